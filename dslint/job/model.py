"""A setup: the files around a DeepSpeed config, which rules compare with it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum, StrEnum

from dslint.job.arguments import Arguments, Said, SourcedValue
from dslint.job.events import Events
from dslint.job.gradient_read import GradientRead
from dslint.record import Record
from dslint.source.integers import integer
from dslint.source.tree import Document

TOWERS = "towers"
"""The value of what leaves nothing but encoders of images and sound as they are; see `Program.freezes`."""


class JobSize(Record):
    """The size of a job, as far as its file tells, each number with its place.

    `ranks` are processes that the platform starts itself, `gpus` all GPUs of the job, and `nodes` its machines. `slots` are GPUs on which
    only a launcher of the platform starts a process each. `hostfile` is the path of the one that the platform writes. `on_each` are the
    machines on each of which the platform starts the command itself, if they are several. `gpu` is the kind of GPU that it asks for.
    """

    ranks: SourcedValue | None = None
    gpus: SourcedValue | None = None
    nodes: int | None = None
    slots: SourcedValue | None = None
    hostfile: str = ""
    on_each: SourcedValue | None = None
    gpu: SourcedValue | None = None


class PassedOn(Record):
    """What a launch passes to its program: the flags by their names without dashes before them, and whether that is all for sure."""

    program: SourcedValue
    flags: Mapping[str, SourcedValue]
    complete: bool = True


class Ending(Enum):
    """What ends a command before lines that were meant to continue it, for messages."""

    BLANK = "a blank behind the backslash"
    COMMENT_BEHIND = "a comment behind the backslash"
    WORDS = 'a "#" one blank behind the backslash'
    RETURN = "a Windows line end behind the backslash"
    COMMENT_LINE = "a comment line"
    EMPTY_LINE = "an empty line"
    NO_BACKSLASH = "a missing backslash"


@dataclass(frozen=True, slots=True)
class Launch:
    """A launch command: the launcher and the number of ranks. None means unknown; `world_size` is `processes` x `nodes`.

    `given` is the flag or line that the number of ranks comes from. `gpus` is the total number of GPUs of the job, from a hostfile or
    from Slurm options, and `gpus_given` the place of that number. `hosts` are the GPUs of each machine, as far as they are known.
    """

    launcher: str
    world_size: int | None = None
    nodes: int | None = None
    given: SourcedValue | None = None
    gpus: int | None = None
    gpus_given: SourcedValue | None = None
    hosts: Mapping[str, int] = field(default_factory=dict)
    hostfile_error: str | None = None
    """The error of the launcher if it cannot read the hostfile `gpus_given`."""
    variables: Mapping[str, SourcedValue] = field(default_factory=dict)
    """The variables of Accelerate that the launch sets: `ACCELERATE_MIXED_PRECISION`."""
    flags: Mapping[str, SourcedValue] = field(default_factory=dict)
    """The flags of the launcher by their long names: `include`, `num_gpus`, `hostfile`."""
    passed: PassedOn | None = None
    """The arguments of the program, if it is not one of a framework."""
    visible: SourcedValue | None = None
    """The variable CUDA_VISIBLE_DEVICES, if the launch sets it; its value is the list of GPUs, `UNKNOWN` if that is not known."""
    by_machine: SourcedValue | None = None
    """The variable CUDA_VISIBLE_DEVICES, if it gets the numbers that Slurm counts on the whole machine, whatever it held before."""
    misspelt: SourcedValue | None = None
    """A variable that the launch sets and that misspells CUDA_VISIBLE_DEVICES, if nothing else sets that or reads the variable."""
    variable_behind: SourcedValue | None = None
    """The assignment of a variable behind the command, where it is an argument; its value says whether no flag may take it."""
    former_node_rank: SourcedValue | None = None
    """The variable that the launch sets in place of NODE_RANK, which only older releases of its framework read."""
    allocator: SourcedValue | None = None
    """The setting of PyTorch's allocator, if the launch sets it."""
    bare: SourcedValue | None = None
    """The program, if the script starts it by itself: as one process, with no ranks in its environment."""
    in_slurm_job: bool = False
    """Whether the script that starts a `bare` program has directives for Slurm, whose variables Lightning reads."""
    container: SourcedValue | None = None
    """What starts the container of the job, if that has only the shared memory which containers have by default."""
    lost: SourcedValue | None = None
    """The first flag that bash does not pass, because the command ends before it; its value is the `Ending`."""
    lost_flags: frozenset[str] = frozenset()
    """The flags that bash does not pass for the same reason."""
    backslash: SourcedValue | None = None
    """The first argument that is a backslash: of a text in which it continues no line."""
    with_return: SourcedValue | None = None
    """The last argument, if bash passes the carriage return of a Windows line end as a part of it."""
    not_a_program: SourcedValue | None = None
    """The file or number that the launcher takes for the program, because it stands before it without a flag; or `python` before it."""
    passes_torch_rank: bool = False
    """Whether the launcher is `torch.distributed.launch` without --use_env, which passes its rank as an argument of the program."""
    may_hold_more: bool = False
    """Whether a variable before the program may hold flags of the launcher that are not known."""
    loses_config: bool = False
    """Whether a flag that names a DeepSpeed config is among those that bash does not pass."""
    without_program: bool = False
    """Whether the command ends before its program."""
    unexported: SourcedValue | None = None
    """The first variable that the launch reads, and that its script sets without exporting it."""
    unasserted: SourcedValue | None = None
    """The flag -O of Python, or the variable PYTHONOPTIMIZE, with which the ranks run without assertions."""
    tasks: SourcedValue | None = None
    """The tasks that srun starts on each machine, each of which starts the launcher, if they are several."""
    on_each: SourcedValue | None = None
    """The machines on each of which srun or the platform of a job starts the launcher, if they are several."""
    one_gpu: SourcedValue | None = None
    """What gives each of several tasks that srun starts on a machine one GPU, which is number 0 for each of them."""
    expanded_early: SourcedValue | None = None
    """The number of a machine or a rank that srun would give each task, and that the script of the job expands before, to 0. Its value is
    a text if nothing expands it; see `slurm_numbers`."""
    waits_for: SourcedValue | None = None
    """The tasks of a Slurm job whose script starts the program once, without srun; its value is their number in total."""
    only_first: SourcedValue | None = None
    """The machines of a Slurm job of which only the first one starts the launcher."""
    memory: SourcedValue | None = None
    """The host memory that the job may use on a machine, if Slurm or a container limits it; its value is in bytes."""
    gpu: SourcedValue | None = None
    """The kind of GPU that the job asks Slurm or its platform for, where that is known to dslint; its value is a `Gpu`."""

    @property
    def visible_gpus(self) -> tuple[int, ...] | None:
        """The numbers in CUDA_VISIBLE_DEVICES; None if it is not set, not known, or names GPUs in another way."""
        words = str(self.visible.value).split(",") if self.visible is not None and isinstance(self.visible.value, str) else []
        numbers = [integer(word.strip()) for word in words]
        return tuple(number for number in numbers if number is not None) if words and None not in numbers else None


class Seen(StrEnum):
    """Which configs are taken for that of a program, as the end of a phrase."""

    ALL = "that dslint sees"
    READ = "that dslint can read"
    OF_NOBODY_ELSE = "that no other file names"
    NAMED_BY_IT = "that the program names"
    NAMED_ALIKE = "with a name that fits"
    NAMED_WITH_IT = "named with it"
    """A person named the program and the configs in one command."""


STAGE = ("zero_optimization", "stage")
"""The place of the ZeRO stage in a config."""

ANY_STAGE = "a config"
"""What is tried in the place of a config that is not known: one with any ZeRO stage."""


class Assumed(Record):
    """The config that is taken for that of a program which names none, by its shown name, and the others that it may run with as well.

    `where` is the place in the program that takes it, and `seen` says which configs these are. With `by_launch`
    only the launch decides whether the program trains with DeepSpeed: nothing in it does. `flag` is what says the ZeRO stage in a config of
    the program itself, where the configs are that one with each stage. With `tried` the config, or with a `flag` its stage, is not known,
    and `config` is what is tried in its place: a ZeRO stage, or `ANY_STAGE`.
    """

    config: str
    where: str
    others: tuple[str, ...] = ()
    seen: Seen = Seen.ALL
    by_launch: bool = False
    flag: str = ""
    tried: bool = False

    @property
    def is_stage(self) -> bool:
        """Whether the configs differ in nothing but their ZeRO stages: what is right at one stage is wrong at the others."""
        return bool(self.flag) or self.tried

    @property
    def sentence(self) -> str:
        """The end of a message that rests on this config."""
        if self.others or self.tried:
            return self.with_some([self.config])
        which = self.seen if self.together else f"the only candidate {self.seen}"
        return f"{self.config}, {which}, is taken for that of {self.where}."

    @property
    def together(self) -> bool:
        """Whether a person named the program and the configs in one command."""
        return self.seen is Seen.NAMED_WITH_IT

    def with_some(self, configs: Sequence[str]) -> str:
        """The end of a message that is true with some of the configs."""
        if self.tried:
            return self._with_stages(configs)
        names = " or ".join(filter(None, (", ".join(configs[:-1]), configs[-1])))
        return f"That is so if {self.where} runs with {names}, {'one' if len(configs) == 1 else len(configs)} of {self._all}."

    @property
    def of_all(self) -> str:
        """The end of a message that is true with each of the configs."""
        if self.tried:
            return self._with_stages((self.config, *self.others))
        return f"That is so with each of the {self._all}: {', '.join(sorted((self.config, *self.others)))}."

    def _with_stages(self, tried: Sequence[str]) -> str:
        """The end of a message that is true at some of the stages that a config may have which is not known."""
        stages = "" if ANY_STAGE in tried else f"ZeRO stage {' or '.join(sorted(one[-1] for one in tried))}"
        if self.flag:
            return f"That is so if {self.flag} is {stages.removeprefix('ZeRO stage ')}."
        if self.by_launch:
            return f"That is so if the launch uses DeepSpeed{' at ' * bool(stages)}{stages}."
        return f"That is so if the config, which is not known, sets {stages}." if stages else ""

    @property
    def _all(self) -> str:
        if self.flag:
            return f"{len(self.others) + 1} that {self.flag} may be"
        return f"{len(self.others) + 1} {'configs' if self.together else 'candidates'} {self.seen}"


@dataclass(frozen=True, slots=True)
class Program:
    """Calls in a Python program that concern DeepSpeed, read from its syntax tree.

    `loader` is the value of a `dslint.facts.Integration`, or None if the program calls none, or several. `accumulation` is the argument
    of `Accelerator(gradient_accumulation_steps=...)`, `trainer` the arguments of Lightning's `Trainer`, and `strategy` the arguments of its
    `DeepSpeedStrategy`, besides the config, that set what a config sets. `client_optimizer` and `client_scheduler` are what the program
    passes to `deepspeed.initialize` instead of a section of the config; the value is the full name of the class. `device_map` is the
    argument of a `from_pretrained` of transformers.
    """

    path: str
    loader: str | None = None
    dummy_optimizer: bool = False
    torch_optimizer: SourcedValue | None = None
    legacy_keyword: SourcedValue | None = None
    accumulation: SourcedValue | None = None
    trainer: Mapping[str, SourcedValue] = field(default_factory=dict)
    trainer_complete: bool = False
    """Whether `trainer` holds all that Lightning's `Trainer` is given: the program unpacks no arguments."""
    strategy: tuple[SourcedValue, ...] = ()
    mixed_precision: SourcedValue | None = None
    """The argument of `Accelerator(mixed_precision=...)`; its value is `UNKNOWN` if the program computes it."""
    client_optimizer: SourcedValue | None = None
    client_scheduler: SourcedValue | None = None
    passed: frozenset[str] | None = None
    """The names of the arguments of `deepspeed.initialize`; None if they are not known."""
    through: str = ""
    """The framework that calls `deepspeed.initialize` in place of the program: `xtuner`."""
    config_in_args: SourcedValue | None = None
    """The attribute `deepspeed_config` of `args`, where the program passes a config to `deepspeed.initialize` besides."""
    device_map: SourcedValue | None = None
    makes_ranks: bool = True
    """Whether the program, or a module of the project that it imports, may start ranks, or tell a process that it is one."""
    reads_words: bool = True
    """Whether the program, or a module of the project that it imports, may change the arguments that the parser of a library reads."""
    saves: bool = True
    """Whether the program, or a module of the project that it imports, may save weights: it calls something that saves, or a state dict."""
    divides_data: bool = True
    """Whether the program, or a module of the project that it imports, may divide its data over the ranks: it names a sampler that does."""
    sets_rate: bool = False
    """Whether the program, or a module of the project that it imports, may write a learning rate into the groups of an optimizer."""
    freezes: SourcedValue | None = None
    """What may leave weights as they are, in the program or in a module of the project that it imports: `requires_grad_(False)`. The value
    is TOWERS if it leaves nothing but encoders of images and sound."""
    checkpoints: SourcedValue | None = None
    """What may checkpoint activations, or keep them elsewhere, in the program or in a module of the project that it imports."""
    own_save: SourcedValue | None = None
    """What a Trainer's own `_save`, `save_model` or callback, which is its name, saves although nothing has gathered the weights."""
    gradient_reads: tuple[GradientRead, ...] = ()
    """The reads of gradients that follow a backward pass."""
    lean_optimizer: bool = False
    """Whether the program, or a module of the project that it imports, names an optimizer with smaller states than Adam's."""
    attention: SourcedValue | None = None
    """What sets the kernel of attention in the program, or in a module of the project that it imports, besides a call: an attribute of a
    config, or the import of FlashAttention; its value is the kernel."""
    trains: bool = True
    """Whether the program, or a module of the project that it imports, may step: one that only evaluates does not."""
    quantized: SourcedValue | None = None
    """The argument `load_in_4bit` or `load_in_8bit` with which the program loads its model."""
    quantized_storage: SourcedValue | None = None
    """The argument `bnb_4bit_quant_storage` of the program, the data type in which the 4-bit weights are stored: `float16`."""

    loaded_early: SourcedValue | None = None
    """The call that loads the only model before the program tells transformers of the config."""

    pipeline: SourcedValue | None = None
    """The `PipelineModule` that the program passes to `deepspeed.initialize`; its value is the number of stages, if that is known."""
    fabric: bool = False
    """Whether the program trains with Lightning Fabric, not with Lightning's Trainer."""
    lightning_trainer: bool = False
    """Whether the program makes a Trainer of Lightning's."""
    several_optimizers: SourcedValue | None = None
    """The second of several optimizers that a LightningModule returns; its value is their number."""
    unknown_strategy: Said | None = None
    """The strategy that Lightning's `Trainer` or `Fabric` is given by a name that the `Trainer` does not have: `deepspeed_stage2`."""
    builds_config: bool = False
    """Whether Lightning's strategy builds the config from its own arguments, because it is given none."""
    by_flag: bool = False
    """Whether a flag of the command line that nothing gives has to select the call which takes the config."""
    assumed: Assumed | None = None
    """Which config is taken for that of the program, which names none; None if it names its config."""
    is_posted: bool = False
    """Whether it is a part of a program, as people post it, in which names without an import are taken for those of libraries."""
    engine_backward: bool = False
    """Whether the program calls `backward` of the engine that `deepspeed.initialize` returns."""
    loader_batch: SourcedValue | None = None
    """The batch size of the data loaders that the program makes, if all have the same."""
    fills_auto: bool = False
    """Whether code of the program that calls DeepSpeed itself compares with "auto", as what replaces it does."""
    makes_accelerator: bool = False
    """Whether the program makes an `Accelerator` with arguments that are all known."""
    argument_class: str = ""
    """The class of a library whose arguments and defaults those have that the program parses: `transformers.TrainingArguments`."""
    model: SourcedValue | None = None
    """The path or the name of the only model that the program loads."""
    default_model: SourcedValue | None = None
    """The only model that it loads unless a flag of the command line names another."""
    events: Events = field(default_factory=Events)
    """The calls of the program."""
    train_data: SourcedValue | None = None
    """The argument `train_dataset` of the only Trainer that the program makes; its value is the number of rows, if that is certain."""
    set_late: SourcedValue | None = None
    """The config that the program sets in arguments of the Trainer which are made already."""
    makes_again: bool = False
    """Whether the program may make the arguments of the Trainer again, or what they make of the config."""
    sets: frozenset[tuple[str, ...]] = frozenset()
    """The keys that the program sets in the config that its launch gives, after Accelerate read it."""

    @property
    def replaced(self) -> dict[str, SourcedValue]:
        """The sections of the config that DeepSpeed does not read because the program passes an object instead, with that object."""
        if self.loader == "lightning":
            return {}  # with a section in the config its strategy passes no object
        objects = {"optimizer": self.client_optimizer, "scheduler": self.client_scheduler}
        return {section: given for section, given in objects.items() if given is not None}


PRECISIONS = ("no", "fp16", "bf16", "fp8")
"""The values of `mixed_precision` in Accelerate."""


@dataclass(frozen=True, slots=True)
class AccelerateFile:
    """The contents of an Accelerate file: its top-level keys and those of the block, each with its place."""

    path: str
    top: Mapping[str, SourcedValue] = field(default_factory=dict)
    block: Mapping[str, SourcedValue] = field(default_factory=dict)
    has_block: bool = True
    precision_flag: SourcedValue | None = None
    """`--mixed_precision` of the command line, which overrides the file."""
    flags: Mapping[str, SourcedValue] = field(default_factory=dict)
    """Flags and variables of the launch that count more than the block, by its keys."""

    def get(self, name: str) -> SourcedValue | None:
        """A key of the block, otherwise a top-level key."""
        return self.block.get(name) or self.top.get(name)

    def number(self, name: str) -> int | None:
        """A top-level key as a positive integer; None for anything else."""
        given = self.top.get(name)
        value = given.value if given else None
        return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else None

    @property
    def is_for_deepspeed(self) -> bool:
        """Whether the file itself selects DeepSpeed. Without a block Accelerate builds the config from its defaults."""
        kind = self.top.get("distributed_type")
        return kind is not None and kind.value == "DEEPSPEED"

    @property
    def is_for_sagemaker(self) -> bool:
        """Whether the file is one for SageMaker, which has no keys for DeepSpeed."""
        given = self.top.get("compute_environment")
        return given is not None and given.value == "AMAZON_SAGEMAKER"

    @property
    def misplaced_path(self) -> SourcedValue | None:
        """The text that stands where the block should stand, as in `deepspeed_config: ds.json`."""
        given = self.top.get("deepspeed_config")
        return given if given is not None and isinstance(given.value, str) and given.value else None

    @property
    def config_file(self) -> SourcedValue | None:
        """The key that names a DeepSpeed config."""
        given = self.block.get("deepspeed_config_file")
        return given if given and isinstance(given.value, str) and given.value not in ("", "none", "None") else None

    @property
    def precision(self) -> str:
        """The mixed precision that Accelerate uses: one of `PRECISIONS`, or "" if it is unknown."""
        given = self.precision_flag or self.top.get("mixed_precision")
        if given is None:
            old = self.top.get("fp16")
            return "no" if old is None or old.value in (False, None) else "fp16" if old.value is True else ""
        return given.value if isinstance(given.value, str) and given.value in PRECISIONS else ""


class Refused(Record):
    """The argument for a DeepSpeed config that a command of a framework refuses because it does not train, and how its error begins."""

    given: SourcedValue
    command: str
    error: str


@dataclass(frozen=True, slots=True)
class Setup:
    """The files around a config.

    `link` is the value that names the config, None for a config named by the user. `missing` are links to files that do not exist,
    `passed_over` is a link to a config that is not used because another one takes precedence. `config` is the shown path of the config.
    """

    arguments: Arguments | None = None
    of_framework: Arguments | None = None
    """The arguments of a framework that does not train with the Trainer, by its own names: not for rules about the Trainer's."""
    objects: Mapping[str, SourcedValue] = field(default_factory=dict)
    """By section of the config: what a program of a framework passes to `deepspeed.initialize` in its place."""
    own: Arguments | None = None
    """The flags of a program with a loop of its own that have the names of training arguments. Only an estimate reads them."""
    accelerate: AccelerateFile | None = None
    launch: Launch | None = None
    program: Program | None = None
    link: SourcedValue | None = None
    missing: tuple[SourcedValue, ...] = ()
    passed_over: SourcedValue | None = None
    unread: SourcedValue | None = None
    """The flag that names a config, where nothing in the program reads it and the training runs without DeepSpeed."""
    unconfigured: SourcedValue | None = None
    """The program of the Trainer that DeepSpeed's launcher starts, where nothing names a config and the training runs without DeepSpeed."""
    refused: Refused | None = None
    """What the launch refuses, where it starts a command of a framework that does not train."""
    config: str | None = None
    starts_here: bool = False
    """Whether the script does nothing before its launch that could write a file or change the directory."""
    made: bool = False
    """Whether there is no config file, and Accelerate builds the config from its own block."""
    documents: Mapping[str, Document] = field(default_factory=dict, compare=False, repr=False)
    """The files of the setup by their shown names."""

    @property
    def one_of_several(self) -> Assumed | None:
        """Which config is taken for that of the program, if it is one of several that the program may run with."""
        taken = self.program.assumed if self.program is not None else None
        return taken if taken is not None and (taken.others or taken.tried) else None

    @property
    def of_accelerate_file(self) -> Setup | None:
        """The setup of an Accelerate file that is read by itself; None without such a file."""
        if self.accelerate is None:
            return None
        return Setup(accelerate=self.accelerate, link=self.link, config=self.config, made=self.made, documents=self.documents)

    @property
    def replaced(self) -> Mapping[str, SourcedValue]:
        """The sections of the config that DeepSpeed does not read because it is passed an object instead, with that object."""
        program = self.program
        if program is None:
            return self.objects
        return program.replaced if program.passed is not None else {**self.objects, **program.replaced}

    @property
    def workload(self) -> Arguments | None:
        """The arguments that say what an estimate needs."""
        return self.arguments or self.of_framework or self.own
