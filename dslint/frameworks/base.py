"""What a framework is: a program that people start with a training file or flags, and that gives DeepSpeed its config."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from dslint.diagnostics import LoadStep
from dslint.evaluate.files import Linked
from dslint.facts import Facts, Integration, Release
from dslint.frameworks.own_arguments import OwnArguments
from dslint.frameworks.refusals import Refusal
from dslint.frameworks.tables import FrameworkTable, defaults, table
from dslint.job.arguments import DEFAULTS, Arguments, SourcedValue
from dslint.job.attention import OF_PROGRAMS
from dslint.job.model import AccelerateFile
from dslint.record import Record
from dslint.source.tree import Document, Path

Uses = Callable[[str], bool]
"""Whether the project of a file uses a package."""


class FrameworkWorkload(Record):
    """What a framework makes of arguments about memory that are not set.

    `checkpoints` names what checkpoints activations by default. `length` are the tokens per sample. `trains_adapters` says whether
    LoRA is the default, `freezes` names the argument that freezes encoders of images by default, and `zero_init` says that the training
    arguments exist before the model, so that transformers partitions the model while it is built.
    """

    checkpoints: str | None = None
    length: int | None = None
    not_with_length: tuple[str, ...] = ()
    """Arguments with which the program is another one, with the defaults of the Trainer."""
    trains_adapters: bool = False
    lora_rank: int | None = None
    lora_dropout: float | None = None
    freezes: str | None = None
    zero_init: bool = False
    vllm_share: float | None = None
    evaluates_a_share: bool = False
    """Whether `val_set_size` switches evaluations on, which have the micro batch size of the training."""
    shares_loss: bool = False
    """Whether sequence parallelism halves what the loss needs."""
    rewards_with_logits: bool = False
    """Whether a reward model computes logits of words, too."""
    beta: float = 0.04
    """The default of `beta` for GRPO, which holds no reference model with 0."""
    attention: Mapping[str, Mapping[Any, str]] = OF_PROGRAMS
    """The arguments that choose the kernel of attention, each with the kernels by its values."""


UNKNOWN_SHARE = 0.0
"""The share of what is not modelled where no figure includes any of it."""


class Told(Record):
    """Options of `dslint estimate` that training arguments imply, with the place of each; and what they say that no option expresses.

    `sequence` is the size of sequence parallelism, with its place. `unmodelled` names what the program needs in addition, each with the
    share by which the peak may be higher, `UNKNOWN_SHARE` if nothing is known of it. `model` is the data of a `config.json`, if the
    arguments describe the model.
    """

    options: Mapping[str, tuple[Any, str]]
    notes: tuple[str, ...]
    sequence: tuple[int, str] | None = None
    unmodelled: tuple[tuple[str, float], ...] = ()
    model: dict[str, Any] | None = None


class OwnFiles(Record):
    """How it builds the config from files of its own, and which launcher starts it with several of them.

    `recognises` says whether a tree is for it, of one file or of all files of a launch; `config` takes the part for DeepSpeed out of it.
    `arguments` gets the files by their shown names, and `model` makes the data of a `config.json` of the arguments. `parallel_sizes` are by
    the names of the facts. `meant` returns the field that an unknown one misspells.
    """

    recognises: Callable[[Document], bool]
    config: Callable[[Document], Document]
    arguments: Callable[[Mapping[str, Document]], Arguments | None]
    model: Callable[[Arguments], dict[str, Any] | None]
    parallel_sizes: Callable[[Document], Mapping[str, int]]
    meant: Callable[[str], str | None]
    launcher: str
    """The program that starts DeepSpeed's launcher with the files that its words name."""
    trains: str
    """What is in the name of its program for training, the first word."""
    folder: tuple[str, ...]
    """The flags of the launcher for the folder with the files."""
    ending: str
    """What the launcher adds to the name of a file without an ending."""
    refuses_twice: str
    """What it does if two files have the same key."""


class ConfigFlags(Record):
    """How its programs build a config from the flags of their launch, without a file.

    `stages` are flags for the ZeRO stage; each of those that are given is a config of its own. `build` makes it of all flags, the flag for
    the stage, and the script with its shown name. `own` are flags that no other program has together with one for the stage: a launch with
    one of them uses DeepSpeed. `cpu_optimizer` are flags with which the program builds `DeepSpeedCPUAdam`.
    """

    stages: tuple[str, ...]
    build: Callable[[Mapping[str, SourcedValue], SourcedValue, Document, str], Document]
    own: frozenset[str] = frozenset()
    cpu_optimizer: tuple[str, ...] = ()
    fill: frozenset[str] = frozenset()
    """The flags that say what the built config computes from the number of ranks."""


class LauncherFile(Record):
    """How its command starts Accelerate's launcher. `flag` names the file for it, and `keys` are those of a training file that the launcher
    gets. `open` finds the file: the one that is linked, otherwise one that ships with the framework under the name. `missing` is the error
    for any other name, with `{name}`.
    """

    flag: str
    keys: Callable[[Document, str], Mapping[str, SourcedValue]]
    open: Callable[[str, Linked | None], tuple[Document, AccelerateFile] | None]
    missing: str


class Framework(Record):
    """A framework. What it does not have stays at its default; its name and its loader have none.

    `name` is how messages call it; `loader` is what gives its config to DeepSpeed. `packages` are what a project that uses it installs,
    `commands` what starts it, `modules` the packages that `python -m` starts. `recognises` says whether the top-level keys of a file are
    its training arguments; of several frameworks the one with the lowest `rank` counts, because its keys are its own.
    """

    name: str
    loader: Integration
    packages: tuple[str, ...] = ()
    commands: tuple[str, ...] = ()
    mentions: tuple[str, ...] = ()
    """Words, in lower case, by which a file without the word DeepSpeed tells that it is about a training with it: what starts it in a
    script, a key of its training file.
    """
    modules: tuple[str, ...] = ()
    scripts: tuple[str, ...] = ()
    """The names of its programs in a checkout of it; with such a name, the flags of a command must be its arguments, too."""
    former_scripts: Mapping[str, Release] = {}
    """Those that its newest release does not have any more, each with the first release without it: an older checkout may have other
    arguments and checks.
    """
    former_arguments: Mapping[str, Release] = {}
    """Arguments that its newest release does not have, each with the first release without it: a job with one is for an older one."""
    files: tuple[str, ...] = ()
    """The paths of its programs in its package, which other projects do not have: `swift/cli/sft.py`, or as a module `swift.cli.sft`."""
    recognises: Callable[[frozenset[str], Uses], bool] | None = None
    rank: int = 0
    config_keys: tuple[str, ...] = ("deepspeed",)
    """The keys of its training file, and the flags, that name the config or hold it; with dots in a section. The first given one counts."""
    file_flags: tuple[str, ...] = ("config",)
    """The flags that name its training file."""
    own: OwnArguments | None = None
    """Its arguments, and what it makes of them in the config, if it does not train with the Trainer. What Accelerate fills for it does not
    stand here.
    """
    names: Mapping[str, str] = {}
    """Its names for arguments of the Trainer. It shares the others."""
    reads: Callable[[str, Any], Any] | None = None
    """What it reads for a value of an argument: `UNKNOWN` where that depends on the machine. None: the value itself."""
    unset: Mapping[str, tuple[Any, ...]] = {}
    """By argument: values that count as not set."""
    generated: str = ""
    """The name of its generated table; "" for a framework without one, which has the defaults of the Trainer."""
    computes: frozenset[str] = frozenset()
    """The arguments without a fixed default."""
    completes: Callable[[Arguments, Facts], Mapping[str, Any]] | None = None
    """The values that it computes for arguments, set or not, from others and from facts of the run."""
    completes_since: Release | None = None
    """The first release that computes them for a class of its arguments; None if it is not known."""
    adds: Callable[[Arguments], Mapping[Path, Any]] | None = None
    """The keys that it writes into the config for arguments of its own."""
    data: Callable[[Document], tuple[str, Sequence[str | tuple[str, str]]] | None] | None = None
    """The key of a training file that names the data, and the files in which all of it is: each by its path, or by that of a list of data
    and its name there. None if it is elsewhere, too.
    """
    one_sample: Callable[[Arguments], bool] | None = None
    """Whether each row of its data is at most one sample; None: it always is."""
    trains_rows: Callable[[Arguments], bool] | None = None
    """Whether each row of its data is one sample of the Trainer for sure, so that the steps follow from their number."""
    classes: Mapping[str, str] = {}
    """Its classes of training arguments that programs use, by their full names, each with the task of its command that has its defaults."""
    refuses_unknown: str = ""
    """The error with which it refuses a key that it does not know, with `{name}`; "" if it ignores the key."""
    refuses_in_program: str = ""
    """The same for a key of a training file that a program reads with the framework's parser."""
    refuses_flag: str = ""
    """The same for a flag of its command or of a program."""
    refuses_rank: Callable[[Arguments, Release | None], bool] | None = None
    """Whether it refuses the flag --local_rank that the deepspeed launcher passes; the release is None if it is not known."""
    turns_into_flags: bool = False
    """Whether its command makes flags of the keys of a training file, so that the parser of flags refuses their values."""
    is_sure: bool = False
    """Whether the defaults hold for sure, because no program of the user's takes part."""
    loads_by_itself: bool = False
    """Whether it loads the model with a config that it reads and fills by itself, so that what Accelerate adds comes later."""
    config_by_name: Callable[[str], Document | None] | None = None
    """The config that ships with it under a name."""
    ships_unread: frozenset[str] = frozenset()
    """The names of configs that ship with it and are not known here."""
    flags: ConfigFlags | None = None
    """How its programs build a config from flags, if they do."""
    own_files: OwnFiles | None = None
    """How it builds the config from files of its own, if it does."""
    launcher_file: LauncherFile | None = None
    """The file with which its command starts Accelerate's launcher, if it does."""
    passes: frozenset[str] = frozenset()
    """The arguments that it passes to `deepspeed.initialize`, if it calls that itself."""
    as_passed: Callable[[Document], Document] | None = None
    """The config as it passes it on, if it changes what is written."""
    sets_leaf_modules: Release | None = None
    """The first release that calls `set_z3_leaf_modules` for models with experts; None if it never does."""
    sets_quant_storage: bool = False
    """Whether it sets `bnb_4bit_quant_storage` to the data type of the training for weights of 4 bits."""
    loads_quantized: Mapping[str, tuple[Any, ...]] = {"load_in_4bit": (True,), "load_in_8bit": (True,)}
    """The arguments that load a model with weights of 4 or 8 bits by bitsandbytes, each with the values that do."""
    loads_quantized_with: Mapping[str, Any] = {}
    """What other arguments must say for it."""
    refuses_quantized: str = ""
    """The error with which it refuses a model that is stored quantized, at ZeRO stage 3; "" if it takes it."""
    takes_quantized: Mapping[str, Release] = {}
    """The methods of quantization that it takes all the same, each with the first release that does."""
    joins_one_target: bool = False
    """Whether it makes a text of a list of target modules with one name."""
    trains_when_told: bool = False
    """Whether it trains only if `do_train` is set."""
    file_comes_first: bool = False
    """Whether it reads its training file only as the first argument."""
    fails_at_stage_3: Mapping[str, tuple[str, str]] = {}
    """By argument: what may happen with it at ZeRO stage 3 in some releases, and what to do instead."""
    freezes_reference: Callable[[Arguments], SourcedValue | None] | None = None
    """The argument with which it gives the whole config to a reference model that it freezes."""
    loads_reference: Callable[[Arguments], bool] | None = None
    """Whether it loads a reference model after the Trainer is made, and before it compares."""
    passes_choices: bool = False
    """Whether it gives arguments with a choice of values to the Trainer as they are."""
    starts_ranks: bool = False
    """Whether its command starts ranks with torchrun, by the variables NPROC_PER_NODE and NNODES."""
    former_node_rank: tuple[str, Release] | None = None
    """The variable that its command took for the number of the machine in place of NODE_RANK, and the first release that does not."""
    starts_all: bool = False
    """Whether its command starts a rank for each visible GPU if NPROC_PER_NODE is not set."""
    whole_on_each: bool = False
    """Whether each rank of its command loads the whole model on a GPU of its own, unless its arguments divide the model."""
    spread_error: str = ""
    """How its error begins where a process sees several GPUs and DeepSpeed is on: it would spread the model over them."""
    target_length: int = 0
    """The default of `max_target_length` in the releases that limit source and target each: a sample may have both."""
    launcher: str = "torchrun"
    """What its command starts the ranks with."""
    rank_flag: str = ""
    """The flag of its command for the ranks on a machine. If it is among its own arguments, the training file may say it, too."""
    node_flag: str = ""
    """The same for the number of machines."""
    other_tasks: frozenset[str] = frozenset()
    """What its command does besides training, by its first word."""
    infers: frozenset[str] = frozenset()
    """Those of its other tasks that parse arguments, and refuse the one for a DeepSpeed config."""
    inference_scripts: tuple[str, ...] = ()
    """The names of programs of its former checkouts that did what such tasks do."""
    own_packages: tuple[str, ...] = ()
    """The packages that the programs of its checkouts import, by their present and former names."""
    trains_by: tuple[str, ...] = ()
    """The functions of these packages with which its programs start a training; they get a config only as an argument of the launch."""
    ignoring: str = ""
    """The variable or the argument with which it ignores what it does not know."""
    takes_file: bool = False
    """Whether the first word of its command is its training file, also with other words."""
    takes_words: bool = False
    """Whether words of its command override the training file, as OmegaConf reads them: `learning_rate=1e-5`."""
    has_own_loop: bool = True
    """Whether programs of the project that call DeepSpeed cannot be what the file is for."""
    steps: tuple[LoadStep, ...] = tuple(LoadStep)
    """The order in which its jobs come to what may raise before DeepSpeed is called."""
    errors: Mapping[str, str] = {}
    """By argument: the error with which it refuses the argument together with DeepSpeed, and a config that does not exist, if it is not the
    Trainer's.
    """
    not_auto: Mapping[str, str] = {}
    """By key of the config: the error for an "auto" that Accelerate would fill in."""
    refusals: tuple[Refusal, ...] = ()
    """The combinations of arguments that it refuses, in the order in which it looks at them."""
    workload: FrameworkWorkload = FrameworkWorkload()
    task_of_script: re.Pattern[str] | None = None
    """Its scripts that programs of other projects copy, as files or modules, with the task in a group."""
    parallel_flags: Mapping[str, str] = {}
    """By fact: the flag of its programs for the size of a parallel group."""
    usual_flags: frozenset[str] = frozenset()
    """Flags of its programs of which each launch has at least three: one with fewer has the flags above for something else."""
    lowers_parallel_sizes: bool = False
    """Whether its programs lower these sizes to what the ranks allow."""
    in_flags: Callable[[Mapping[str, SourcedValue], str, str], Arguments | None] | None = None
    """Its arguments among the flags of a program, with the shown name of their file and the program; None if they are not there."""
    objects: Callable[[Arguments], Mapping[str, SourcedValue]] | None = None
    """By section of the config: what its programs with these arguments pass to `deepspeed.initialize` in its place."""
    model_in_flags: Callable[[Mapping[str, SourcedValue]], str | None] | None = None
    """The name of the model in the flags of a command, where another argument than the usual one gives it."""
    tells: Callable[[Arguments], Told] | None = None
    """What its arguments say about memory, if they are not those of the Trainer."""

    @property
    def table(self) -> FrameworkTable | None:
        """What its installed package says, if that was generated."""
        return table(self.generated) if self.generated else None

    def defaults(self, task: str = "") -> Mapping[str, Any]:
        """The values of arguments that are not set, by the names of the Trainer. What is not in it is unknown."""
        return defaults(self.generated, self.names, self.computes, task) if self.generated else DEFAULTS

    @property
    def phrase(self) -> str:
        """How a sentence names it: with what trains in it, if that is another program."""
        if self.loader is not Integration.TRANSFORMERS or self.name == self.loader.label:
            return self.name
        return f"{self.name}, which trains with {self.loader.label}"
