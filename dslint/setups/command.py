"""Launch commands: the launcher, the number of ranks, the program, its arguments and its config."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from os.path import basename

from dslint.diagnostics import Range
from dslint.evaluate.files import is_elsewhere
from dslint.evaluate.shell.pieces import Text, is_absent, key, known, names_arguments
from dslint.evaluate.shell.script import Script, gpus_per_node
from dslint.evaluate.shell.state import Launched
from dslint.frameworks.accelerate import starts_one_process
from dslint.frameworks.base import Framework
from dslint.frameworks.registry import of_inference_script, of_package, run_as, started_by
from dslint.job.arguments import LISTS, SourcedValue, as_read
from dslint.job.model import Launch, PassedOn
from dslint.setups.command_words import CommandWord, folders_in, is_redirect, variable_of, without_first, word_of, words_of
from dslint.setups.containers import of_command
from dslint.setups.job_ranks import sized
from dslint.setups.limits import slurm_gpu, slurm_limit, tasks_per_node
from dslint.setups.lost import LostArguments, lost_arguments, unexported, with_return
from dslint.setups.ranks import COUNTS, OF_TORCHRUN, VISIBLE, framework_launch, launch_of
from dslint.setups.slurm_numbers import machine_number, rank_number
from dslint.setups.slurm_tasks import (
    TASKS,
    counted_anew,
    is_by_machine,
    machines_of_srun,
    one_gpu_of_srun,
    only_first,
    tasks_by_flag,
    tasks_of_srun,
    waits_for_tasks,
)
from dslint.source.integers import integer
from dslint.source.similar import similar
from dslint.source.unknown import UNKNOWN

CONFIG_FLAGS = ("deepspeed_config", "ds_config", "deepspeed_config_file")
"""Flags with which programs of their own take the path of a DeepSpeed config, besides the Trainer's `--deepspeed`."""

_OF_DEEPSPEED = frozenset("num_gpus num_nodes include exclude hostfile master_addr master_port module no_local_rank".split())
"""Flags of DeepSpeed's launcher that few programs have."""

_MODULE = ("module", "m")
"""The flag of launchers that start a module by its name."""

_ALONE = frozenset(
    """
    module no_python no_local_rank standalone use_deepspeed multi_gpu use_fsdp cpu debug quiet same_network force_multi save_pid
    enable_elastic_training bind_cores_to_rank dynamo_use_dynamic use_cpu m no_ssh no_ssh_check q h help
    run_path use_env virtual_local_rank
    downcast_bf16 dynamo_use_fullgraph dynamo_use_regional_compilation enable_cpu_affinity fp8_use_autocast_during_eval no_tpu_cluster
    tpu tpu_cluster tpu_use_sudo use_megatron_lm use_parallelism_config
    """.split()
)
"""Flags of the launchers that take no value: of DeepSpeed, torchrun and Accelerate."""


@dataclass(slots=True)
class Command:
    """A launch command: its launcher's flags, the program, the program's own flags and other words."""

    launcher: str
    launcher_flags: dict[str, SourcedValue] = field(default_factory=dict)
    program: SourcedValue | None = None
    flags: dict[str, SourcedValue] = field(default_factory=dict)
    words: list[SourcedValue] = field(default_factory=list)
    place: Range | None = None
    """Where the command and its program stand. A program whose name begins with a variable has the place of that variable's value."""
    framework: Framework | None = None
    """The framework that it starts, by its command or its module; None for a program."""
    task: str = ""
    """What the command of a framework does: `sft`, `train`."""
    infers: SourcedValue | None = None
    """The command of a framework, if what it does is not a training."""
    launch: Launch | None = None
    complete: bool = True
    names_flags: bool = True
    """Whether every flag of the program is known: what else is not known of it are single values of flags."""
    hands_on: bool = False
    """Whether only the arguments that the script hands on are not known of it: `$@`, `${@:2}`, `$1`."""
    is_module: bool = False
    folder: str = ""
    import_folders: tuple[str, ...] = ()
    """The folders of PYTHONPATH."""
    starts_here: bool = False
    """Whether the script does nothing before it that could write a file or change the directory."""
    environment: dict[str, SourcedValue] = field(default_factory=dict)
    """The variables of its environment that say how many ranks start, or name a config."""
    written: dict[str, Text] = field(default_factory=dict)
    """The texts of the files that the script has written and that flags name."""
    files: Mapping[str, Text] = field(default_factory=dict)
    """The texts of all files that the script has written, by their paths."""
    is_options: bool = False
    """Whether only its options are given, and what takes them follows from their names."""
    rest: tuple[str, int] | None = None
    """Where the arguments begin that it loses, because it ends before them; see `begin_of`."""

    @property
    def started(self) -> Framework | None:
        """The framework if its own command starts it, which decides on the launch."""
        return self.framework if self.framework is not None and self.launcher in self.framework.commands else None

    def word_given(self, name: str) -> SourcedValue | None:
        """The value that a word gives a name, as OmegaConf and Hydra read words: `optim.lr=1e-4`."""
        for word in reversed(self.words):
            before, equals, value = word.raw.partition("=")
            if equals and before.lstrip("+") == name:
                return replace(word, name=before, raw=value, value=UNKNOWN if word.value is UNKNOWN else value)
        return None

    @property
    def has_no_program(self) -> bool:
        """Whether an escaped blank stands where the program should be."""
        return self.program is not None and str(self.program.value)[:1].isspace()


_STARTERS = frozenset({"nohup", "time", "exec", "nice", "stdbuf", "env"})
"""Commands that start another one as it is."""

_TELLS_OF_RANKS = (
    r"RANK\b|MASTER_ADDR|WORLD_SIZE|PROCID|(?<![\w-])(?:mpi(?:4py|run|exec)\S*|[jp]?srun|aprun|pdsh|horovodrun|ray|torchrun%s)\b"
    r"|(?<![\w-])deepspeed(?=[ \t]+-)"
)
_RANKS = re.compile(_TELLS_OF_RANKS % "|accelerate")
"""What tells of ranks in a script: their variables, and commands that start several processes."""
_PASSES_RANK = "torch.distributed.launch"
"""The module of PyTorch that passes its rank as an argument; torchrun sets LOCAL_RANK only."""

_RANKS_BESIDES_ACCELERATE = re.compile(_TELLS_OF_RANKS % "")

_SRUN = re.compile(r"(?<![\w-])srun\b")

_VARIABLE = re.compile(
    r"(CUDA_VISIBLE_DEVICES|ASCEND_RT_VISIBLE_DEVICES|CUDA_LAUNCH_BLOCKING|NPROC_PER_NODE|NNODES|NODE_RANK|MASTER_ADDR|MASTER_PORT"
    r"|FORCE_TORCHRUN|DISABLE_VERSION_CHECK|OMP_NUM_THREADS|(NCCL|TORCH|PYTORCH|WANDB|HF)_\w+)=.*"
)
"""The assignment of a variable that launchers and libraries read, and no program as an argument."""
_NO_PROGRAM = re.compile(rf"\w*hostfile\w*|.+\.(txt|json|ya?ml)|\d+|{_VARIABLE.pattern}")
"""What is not a Python program: a hostfile, a config, a number of ranks, or a variable. Any other word may be a program without `.py`."""
_FOR_TORCHRUN = re.compile("FORCE_TORCHRUN|NPROC_PER_NODE|NNODES|USE_RAY|USE_KT|SWIFT_SINGLE_DEVICE_MODE")
"""The variables by which the commands of LLaMA-Factory and ms-swift decide whether to start ranks with torchrun."""

_BRINGS_FILES = re.compile(
    r"(?<![\w-])(?:cp|mv|ln|cd|pushd|wget|curl|git|tar|unzip|rsync|scp|aws|gsutil|gcloud|azcopy|docker|source|\.)(?=[ \t])"
)
"""What brings files into a folder, or leads to another one, besides commands that are followed."""

_LAUNCHERS = frozenset({"deepspeed", "torchrun", "accelerate", "python", "python3", "bash"})

_OF_MPI = frozenset({"mpirun", "mpiexec", "mpiexec.hydra", "mpirun_rsh"})

_TAKES_NAME = frozenset("--extra --with --group --only-group --package --name --job-name -J --container-name --partition --account".split())
"""Flags of commands before a launcher whose value is a name, which may be that of a launcher: `uv run --extra deepspeed train.py`."""

LINKS = ("ACCELERATE_USE_DEEPSPEED", "ACCELERATE_DEEPSPEED_CONFIG_FILE", "PL_DEEPSPEED_CONFIG_PATH")
"""The variables with which Accelerate and Lightning find a config that no argument names."""

_OTHER_TASKS = frozenset(
    """
    fetch preprocess export chat webui webchat version api eval env vllm-serve merge-lora merge-sharded-fsdp-weights inference infer
    deploy app web-ui rollout sample quantize vllm help list-cfg copy-cfg log-dataset check-custom-dataset convert test mmbench
    """.split()
)
"""What the commands of the frameworks do besides training."""

_OF_PYTHON = r"-[uOBsEIPvqbd]+"
"""Flags of Python without a value."""

_NEAR = 200
"""How many characters a value may stand behind its flag to be shown as one place with it."""


def _place_of(command: Command, first: CommandWord) -> Range | None:
    """The place of the program of a command, or of the first word where the program's name begins in a line above."""
    program = command.program
    if program is None or program.range is None:
        return None
    is_above = program.path == first.path and program.range.start.offset < first.range.start.offset
    return first.range if is_above else program.range


def _at_launch(program: SourcedValue, place: Range | None, first: CommandWord) -> SourcedValue:
    """The program of a command, placed where it is launched: its name may begin with a variable, whose value stands elsewhere."""
    if program.path != first.path:
        return replace(program, path=first.path, range=first.range)
    return replace(program, range=place)


def _optimized(variable: SourcedValue | None) -> SourcedValue | None:
    """PYTHONOPTIMIZE, if it is on: Python takes any text but an empty one and a number below 1."""
    number = None if variable is None else integer(str(variable.value))
    is_on = variable is not None and variable.value is not UNKNOWN and variable.value != "" and (number is None or number >= 1)
    return variable if is_on else None


def _import_folders(launched: Launched) -> tuple[str, ...]:
    """The folders of PYTHONPATH in the project: as they stand, as that of `$(pwd)` does, and from where the script has changed to."""
    written = [one for one in folders_in(launched.environment.get("PYTHONPATH", ())) if not is_elsewhere(one)]
    from_there = [os.path.join(launched.folder, one) for one in written] if launched.folder else []
    return tuple(dict.fromkeys([*from_there, *written]))


def read_command(launched: Launched, script: Script) -> Command | None:
    """What a command launches; None if it does not launch a training."""
    reader = _CommandReader(launched, script)
    command = reader.command()
    if command is None:
        return None
    command.place = _place_of(command, reader.words[0])
    command.folder = launched.folder
    command.import_folders = _import_folders(launched)
    command.starts_here = len(script.launched) == 1 and not launched.folder and not _BRINGS_FILES.search(script.source.document.text)
    command.files = launched.files
    if command.launch is not None:
        lost = lost_arguments(launched)
        command.launch = _with_surroundings(command.launch, command, reader, lost)
        command.rest = lost.begin if lost is not None else None
    return command


def _with_surroundings(launch: Launch, command: Command, reader: _CommandReader, lost: LostArguments | None) -> Launch:
    """A launch with what is said around its command: by the job, by variables, and by lines that end where they look continued."""
    launched, text = reader.launched, reader.document.text
    if command.program is not None and command.framework is None:
        program = _at_launch(command.program, command.place, reader.words[0])
        launch = replace(launch, passed=PassedOn(program, command.flags, command.names_flags))
    if launched.job is not None:
        launch = sized(launch, launched.job, by_platform=command.launcher == "python")
    visible = launched.environment.get(VISIBLE)
    by_machine = launch.visible if visible and is_by_machine(visible) else None
    own = {name: one for name in launched.environment if name.startswith("ACCELERATE_") and (one := variable_of(launched, name))}
    shell = [word_of(word, launched) for word in launched.shell_of if word]
    launch = replace(
        launch,
        variables=own or launch.variables,
        by_machine=by_machine or launch.by_machine,
        misspelt=_misspelt(launched, text),
        former_node_rank=_former_node_rank(command, launched),
        variable_behind=_variable_behind(command, reader.words),
        container=launched.container or of_command([*shell, *words_of(launched)], text),
        allocator=variable_of(launched, "PYTORCH_ALLOC_CONF") or variable_of(launched, "PYTORCH_CUDA_ALLOC_CONF"),
        unasserted=launch.unasserted or _optimized(variable_of(launched, "PYTHONOPTIMIZE")),
        backslash=reader.backslash(),
        unexported=unexported(launched, _read_by(command), text),
        gpu=(launched.job.gpu if launched.job is not None else None) or slurm_gpu(reader.script),
    )
    if lost is None:
        return replace(launch, with_return=with_return(launched))
    return replace(
        launch,
        lost=lost.first,
        lost_flags=frozenset(lost.flags),
        loses_config=not lost.flags.isdisjoint(("deepspeed", *CONFIG_FLAGS)),
        without_program=command.has_no_program or _is_behind(command.program, lost.begin),
    )


def _is_behind(program: SourcedValue | None, begin: tuple[str, int]) -> bool:
    """Whether the program of a command stands where another command begins."""
    return program is not None and program.range is not None and program.path == begin[0] and program.range.start.offset >= begin[1]


def _misspelt(launched: Launched, text: str) -> SourcedValue | None:
    """A variable that misspells CUDA_VISIBLE_DEVICES, unless the script sets that, too, or reads the variable."""
    names = {name for name in launched.environment if name.startswith("CUDA") and "DEV" in name}
    for wrong in similar(VISIBLE, sorted(names), cutoff=_MISSPELT) if VISIBLE not in names else ():
        return variable_of(launched, wrong) if not re.search(rf"\$\{{?{wrong}\b", text) else None
    return None


def _variable_behind(command: Command, words: list[CommandWord]) -> SourcedValue | None:
    """The first word behind a program, or the command of a framework, that is meant to set a variable for it."""
    found = next((word for word in command.words if _VARIABLE.fullmatch(word.raw)), None)
    if found is None or found.range is None:
        return None
    first = next((word for word in words if word.raw.startswith("--")), None)
    is_before = first is None or first.path != found.path or first.range.start.offset > found.range.start.offset
    return replace(found, name=found.raw.partition("=")[0], value=is_before and command.program is None)


def _former_node_rank(command: Command, launched: Launched) -> SourcedValue | None:
    """The number of the machine under the name that a framework has given up, if it is not that of the first one."""
    framework = command.started
    if (
        framework is None
        or framework.former_node_rank is None
        or "NNODES" not in launched.environment
        or "NODE_RANK" in launched.environment
    ):
        return None
    given = variable_of(launched, framework.former_node_rank[0])
    return given if given is not None and given.value != "0" else None


_MISSPELT = 0.9
"""The similarity of CUDA_VISIBLE_DEVICE, CUDA_VISIABLE_DEVICES and CUDA__VISIBLE_DEVICES, which public scripts have, is 0.97. That of the
variables of CUDA is at most 0.7: CUDA_DEVICE_MAX_CONNECTIONS, CUDA_DEVICE_ORDER."""


def _read_by(command: Command) -> tuple[str, ...]:
    """The variables that decide which ranks a command starts."""
    own = (*COUNTS, "FORCE_TORCHRUN") if command.started is not None and command.started.starts_ranks else ()
    return (*own, VISIBLE)


def read_arguments(launched: Launched, script: Script) -> Command:
    """The arguments of a launch that another script runs."""
    return _CommandReader(launched, script).arguments()


def read_options(launched: Launched, script: Script) -> Command:
    """The options of a command that is not known, of which the text may have only a part."""
    command = _CommandReader(launched, script).options()
    command.is_options = True
    return command


class _CommandReader:
    def __init__(self, launched: Launched, script: Script) -> None:
        self.launched = launched
        self.words = words_of(launched)
        self.visible = variable_of(launched, VISIBLE)
        self.environment = {name: given for name in (*COUNTS, *OF_TORCHRUN, *LINKS) if (given := variable_of(launched, name)) is not None}
        self.memory = launched.memory
        self.by_platform = launched.job is not None
        self.files = launched.files
        self.script = script
        self.document = script.source.document
        self.shown = script.source.shown
        self.srun = False
        self.skips = False
        files = {name: launched.files.get(os.path.normpath(key(launched.environment[name]))) for name in self.environment}
        self.written: dict[str, Text] = {name: text for name, text in files.items() if text is not None}

    def command(self) -> Command | None:
        self.words = self.words[self._submitted() :]
        before = [None, *(word.text for word in self.words)]
        names = ["" if flag in _TAKES_NAME else basename(word.text or "") for flag, word in zip(before, self.words, strict=False)]
        self.srun = "srun" in names
        for index, name in enumerate(names):
            after = [word.text for word in self.words[index + 1 : index + 3]]
            if name in ("deepspeed", "ds"):
                return self._launched("deepspeed", index + 1)
            if name in ("torchrun", "torch_run", "hyperpodrun"):
                return self._launched("torchrun", index + 1)
            if name == "accelerate" and after[:1] == ["launch"]:
                return self._launched("accelerate", index + 2)
            if name.startswith("python"):
                module, start = self._module(index + 1)
                if module.startswith("torch.distributed."):
                    return self._launched("torchrun", start)
                if module in ("accelerate.commands.launch", "deepspeed.launcher.runner", "deepspeed.launcher.launch"):
                    return self._launched(module.partition(".")[0], start)
                if (framework := run_as(module)) is not None:
                    return self._run("python", start, framework=framework)
                if module:
                    return self._program("python", start - 1, module=True)
            framework = started_by(name)
            if framework is not None and (command := self._of_framework(framework, name, index)) is not None:
                return command
            if re.fullmatch(r"python[\d.]*", name):
                return self._program("python", index + 1)
            if name.endswith(".py") and names[max(index - 1, 0)] in ("run", name):  # ./train.py, uv run train.py
                return self._program("python", index)
        return None

    def _of_framework(self, framework: Framework, name: str, index: int) -> Command | None:
        """The command of a framework, its word at an index; None for a task of it that has nothing to do with a config."""
        task = self.words[index + 1].text or "" if index + 1 < len(self.words) else ""
        if task in framework.infers:
            command = self._run(name, index + 2, framework=framework)
            command.task, command.infers = task, self._given("", self.words[index])
            return command
        if task in _OTHER_TASKS | framework.other_tasks:
            return None
        has_task = framework.own is None or re.fullmatch(r"\w[\w-]*", task) is not None
        command = self._run(name, index + 1 + has_task, framework=framework)
        command.task = task if has_task else ""
        command.launch = self._by_framework(framework, index, command.flags)
        return command

    def _submitted(self) -> int:
        """The index of the command that a program submits, or starts on every slot of Determined; 0 if the first word is the command.

        Words that begin with a flag are not a command but the arguments of one: `args: "--backend deepspeed --stage 3"`.
        """
        for index, word in enumerate(self.words[:-1]):
            if word.text != "--" and not (word.text or "").startswith("determined.launch."):
                continue
            starts = [index + 1, *(later for later in range(index + 2, len(self.words)) if self.words[later - 1].text in ("&&", ";"))]
            if basename(self.words[starts[-1]].text or "") in _LAUNCHERS:  # the last command of `-- a && b`
                return starts[-1]
        return len(self.words) if self.words and (self.words[0].text or "").startswith("-") else 0

    def backslash(self) -> SourcedValue | None:
        """The first word that is a backslash: of a text in single quotes, or of one with a blank behind it in a here-document."""
        found = next((word for word in self.words if word.text == "\\" and any(piece.splits for piece in word.parts)), None)
        return self._given("", found) if found is not None else None

    def arguments(self) -> Command:
        """The words as arguments of a program that is not known."""
        command = self._run("a script that uses its arguments", 0)
        command.complete = command.names_flags = False
        return command

    def options(self) -> Command:
        """The words as the options of a command that is not there."""
        command = self._run("", 0)
        command.place, command.complete = self.words[0].range, False
        return command

    def _module(self, index: int) -> tuple[str, int]:
        """The module of `python -u -m MODULE`, and the index of the word after it."""
        while self._is_of_python(index):
            index += 1
        if index + 1 < len(self.words) and self.words[index].text == "-m":
            return self.words[index + 1].text or "", index + 2
        return "", index

    def _is_of_python(self, index: int) -> bool:
        """Whether the word at an index stands before the program of Python and says nothing about it."""
        if index >= len(self.words):
            return False
        return re.fullmatch(_OF_PYTHON, self.words[index].text or "") is not None or _is_optional(self.words[index])

    # ------------------------------------------------------------------ words

    def _number_of_mpirun(self, program: int) -> SourcedValue | None:
        """The number of processes that mpirun starts a program with; None if it is not known, or another program starts it."""
        before = [word.text or "" for word in self.words[:program]]
        start = next((index for index, text in enumerate(before) if basename(text) in _OF_MPI), None)
        if start is None or ":" in [word.text for word in self.words]:
            return None
        flags = (index for index in range(start + 1, program - 1) if before[index] in ("-n", "-np", "--np", "-c"))
        found = [(self.words[index + 1], self.words[index]) for index in flags]
        given = self._given("np", *found[0]) if len(found) == 1 else None
        return given if given is not None and integer(str(given.value)) else None

    def _given(self, name: str, word: CommandWord | None, flag: CommandWord | None = None) -> SourcedValue:
        first, last = flag or word, word or flag
        assert first is not None
        assert last is not None
        value = UNKNOWN if word is not None and word.text is None else word.text if word is not None else True
        raw = "" if word is None or word is flag else word.raw
        if word is not None and word.written is not None:
            self.written[name] = word.written
        near = first.path == last.path and 0 <= last.range.start.offset - first.range.end.offset < _NEAR
        place = Range(first.range.start, last.range.end) if near else first.range
        return SourcedValue(as_read(name, value), flag.raw if flag else name, raw, first.path, place)

    def _flags(self, start: int, *, until_program: bool) -> tuple[dict[str, SourcedValue], list[CommandWord], int]:
        """The flags from a word on. With `until_program` reading stops at the first word that is not a flag: the program."""
        flags: dict[str, SourcedValue] = {}
        rest: list[CommandWord] = []
        index = start
        while index < len(self.words):
            word = self.words[index]
            text = word.text if word.text is not None else word.raw
            if is_redirect(word) or text in ("|", "&&", ";", "||"):
                break
            if until_program and (_is_optional(word) or self._holds_flags(index)):
                self.skips = True
                index += 1
                continue
            if until_program and text == "--":  # the parsers of the launchers take the next word as their program
                return flags, rest, index + 1
            if text.startswith("-") and not re.fullmatch(r"-\d.*", text) and not _holds_blank(word):
                name, equals, value = text.lstrip("-").partition("=")
                name = name.replace("-", "_")
                following = self.words[index + 1] if index + 1 < len(self.words) else None
                if equals:
                    named = self.files.get(os.path.normpath(key(without_first(word.parts, len(text) - len(value)))))
                    inside = word._replace(text=value if word.text is not None else None, raw=value, written=named)
                    given = self._given(name, inside, None)
                    flags[name] = SourcedValue(given.value, text.partition("=")[0], value, given.path, given.range)
                elif (
                    following is None
                    or (until_program and name in _ALONE)
                    or (re.match(r"--?[A-Za-z]", following.raw) and not _holds_blank(following))
                    or is_redirect(following)
                ):
                    flags[name] = self._given(name, None, word)
                elif _HANDED_ON.match(following.raw):  # a value, more flags, or nothing
                    self.skips |= until_program
                    flags[name] = replace(self._given(name, None, word), value=UNKNOWN)
                else:
                    flags[name] = self._given(name, following, word)
                    index += 1
                    if name in LISTS and not until_program:
                        words = self._names(index)
                        flags[name] = replace(flags[name], value=",".join(words) if words else UNKNOWN)
                        index += max(0, len(words) - 1)
            elif until_program:
                return flags, rest, index
            else:
                rest.append(word)
            index += 1
        return flags, rest, index

    def _holds_flags(self, index: int) -> bool:
        """Whether an unquoted variable that nothing sets here stands before the program: `deepspeed ${ARGS} train.py`."""
        following = self.words[index + 1].text if index + 1 < len(self.words) else None
        return is_absent(self.words[index].parts) and self.words[index].raw.startswith("$") and (following or "").endswith(".py")

    def _may_hold_flags(self, index: int) -> bool:
        """Whether a variable that only the run knows is before the program, unquoted, or `{variable}` of a notebook: it may be empty."""
        if index + 1 >= len(self.words):
            return False
        word, following = self.words[index : index + 2]
        name = (following.text or "").lstrip("-").partition("=")[0]
        before_program = (following.text or "").endswith(".py") or (following.raw.startswith("--") and name in _OF_DEEPSPEED)
        return word.text is None and word.raw.startswith(("$", "{")) and before_program

    def _names(self, index: int) -> list[str]:
        """The words from here to the next flag; none if one of them is unknown."""
        names: list[str] = []
        for word in self.words[index:]:
            text = word.text if word.text is not None else word.raw
            if text.startswith("-") or is_redirect(word) or text in ("|", "&&", ";", "||"):
                break
            if word.text is None:
                return []
            names.append(text)
        return names

    # ------------------------------------------------------------------ commands

    def _by_framework(self, framework: Framework, index: int, flags: Mapping[str, SourcedValue]) -> Launch | None:
        """The launch by the command of a framework, its word at an index."""
        memory = self.memory or slurm_limit(self.script)
        if framework.launcher_file is not None:  # it calls `accelerate launch`
            alone = None if _RANKS_BESIDES_ACCELERATE.search(self.document.text) else self._given("", self.words[index])
            return Launch("accelerate", visible=self.visible, memory=memory, bare=alone)
        launch = framework_launch(framework, flags, self.environment, self.visible, memory)
        if launch is not None and framework.starts_ranks and "NNODES" in self.environment:
            early = rank_number(self.words[:index], self.launched, self.script, ("NODE_RANK",))
            launch = replace(launch, expanded_early=early)
        is_bare = launch is not None and framework.starts_ranks and not _FOR_TORCHRUN.search(self.document.text)
        return replace(launch, bare=self._given("", self.words[index])) if launch is not None and is_bare else launch

    def _launched(self, launcher: str, start: int) -> Command | None:
        flags, _, index = self._flags(start, until_program=True)
        if self._may_hold_flags(index):
            self.skips = True
            more, _, program = self._flags(index + 1, until_program=True)
            is_module = not more.keys().isdisjoint(_MODULE)
            if program < len(self.words) and (is_module or (self.words[program].text or ".py").endswith(".py")):
                flags, index = flags | more, program
        started = self._started_by_python(index, flags)
        interpreter, runs_module = self._given("", self.words[index]) if started is not None else None, False
        if started is not None:
            runs_module, index = self.words[started].text == "-m", started
            index += runs_module
        command = self._program(launcher, index)
        if command is not None:
            command.launcher_flags = flags
            command.is_module = runs_module or not flags.keys().isdisjoint(_MODULE)
            command.launch = launch_of(launcher, flags, self.script, self.visible, self.memory, self.environment)
            before = [word.text or "" for word in self.words[:start]]
            shell = [known(word) or "" for word in self.launched.shell_of]
            tasks = tasks_of_srun(before, self.script)
            wrong = command.program if self._is_before_program(index, flags) else interpreter
            command.launch = replace(
                command.launch,
                tasks=tasks,
                on_each=machines_of_srun([*shell, *before], self.script),
                only_first=only_first(before, self.script),
                expanded_early=machine_number(self.words[:index], self.launched, self.script),
                not_a_program=wrong,
                passes_torch_rank=_PASSES_RANK in before and flags.keys().isdisjoint(("use_env", "use-env")),
                may_hold_more=self.skips,
            )
            if launcher == "accelerate" and starts_one_process(flags) and not _RANKS_BESIDES_ACCELERATE.search(self.document.text):
                command.launch = replace(command.launch, bare=command.program)
        return command

    def _started_by_python(self, index: int, flags: Mapping[str, SourcedValue]) -> int | None:
        """The index of the program, or of `-m`, behind the word `python` in its place: `deepspeed python -u train.py`; None without it."""
        if index >= len(self.words) or re.fullmatch(r"python[\d.]*", basename(self.words[index].text or "")) is None:
            return None
        index += 1
        while self._is_of_python(index):
            index += 1
        words = [word.text or "" for word in self.words[index : index + 2]]
        has_program = bool(words) and (words[0].endswith(".py") or (words[0] == "-m" and len(words) > 1))
        return index if has_program and flags.keys().isdisjoint(("module", "m", "no_python")) else None

    def _is_before_program(self, index: int, flags: Mapping[str, SourcedValue]) -> bool:
        """Whether the word in the place of the program is a hostfile, a config or a number, and the program comes after it.

        A word after a flag can be the value of a flag that is not known.
        """
        words = [word.text or "" for word in self.words]
        if index >= len(words) or words[index - 1].startswith("-") or _NO_PROGRAM.fullmatch(basename(words[index])) is None:
            return False
        return flags.keys().isdisjoint(("module", "m", "no_python")) and any(word.endswith(".py") for word in words[index + 1 :])

    def _program(self, launcher: str, index: int, *, module: bool = False) -> Command | None:
        while launcher == "python" and self._is_of_python(index):
            index += 1
        if index >= len(self.words):
            return None
        program = self.words[index]
        if launcher == "python" and not module and not (program.text or program.raw).endswith(".py"):
            return None
        command = self._run(launcher, index + 1)
        command.program = self._given("", program)
        command.is_module = module
        former = of_inference_script(program.text or "", command.flags)
        command.framework = former or of_package(program.text or "")
        command.infers = command.program if former is not None else None
        if command.framework is not None:
            command.task = (program.text or "").removesuffix(".py").replace("/", ".").rpartition(".")[2]
        if launcher == "python":
            command.launch = launch_of("srun" if self.srun else "python", {}, self.script, self.visible, self.memory)
            command.launch = counted_anew(self.words[:index], command.launch)
            command.launch = replace(
                command.launch, unasserted=self._without_assertions(index), one_gpu=one_gpu_of_srun(self.words[:index], self.script)
            )
            if not self.srun:
                command.launch = replace(command.launch, waits_for=waits_for_tasks(self.script))
            early = rank_number(self.words[:index], self.launched, self.script, ("RANK",))
            command.launch = replace(command.launch, expanded_early=early)
            given = self._number_of_mpirun(index)
            if given is not None:
                command.launch = replace(command.launch, world_size=integer(str(given.value)), given=given)
            if self._is_bare(index) or self._is_one_task(index):
                command.launch = replace(command.launch, bare=command.program, in_slurm_job=bool(self.script.slurm))
        return command

    def _without_assertions(self, index: int) -> SourcedValue | None:
        """The flag -O of Python before a program, its word at an index. Launchers do not hand it on to the ranks that they start."""
        for word in reversed(self.words[:index]):
            if re.fullmatch(_OF_PYTHON, word.text or "") and "O" in (word.text or ""):
                return self._given("", None, word)
            if not (word.text or "").startswith("-"):
                break
        return None

    def _is_bare(self, index: int) -> bool:
        """Whether the command starts the program, its word at an index, as a single process: nothing in the script tells of ranks."""
        before = {name for word in self.words[:index] if not (name := basename(word.text or "")).startswith(("python", "-"))}
        return not self.by_platform and before <= _STARTERS and not _RANKS.search(self.document.text)

    def _is_one_task(self, index: int) -> bool:
        """Whether srun starts the program, its word at an index, as its only task, and nothing else in the script tells of ranks.

        Without a flag of srun for it, the job must have several GPUs on a machine. Several tasks may find each other by MPI.
        """
        if not self.srun or _RANKS.search(_SRUN.sub("", self.document.text)):
            return False
        before = [word.text or "" for word in self.words[:index]]
        if any(TASKS.match(word) for word in before):
            values = {at + 1 for at, word in enumerate(before) if word.startswith("-") and "=" not in word}
            names = {basename(word) for at, word in enumerate(before) if at not in values}
            is_one = tasks_by_flag(before) == 1 and not self.by_platform and not any(word.startswith("--mpi") for word in before)
        else:
            slurm = {name: value for name, (value, _) in self.script.slurm.items()}
            names = {basename(word) for word in before}
            is_one = (gpus_per_node(slurm) or 0) > 1 and (slurm.get("nodes", "1"), tasks_per_node(slurm)) == ("1", 1)
        return is_one and {name for name in names if not name.startswith(("python", "-"))} <= _STARTERS | {"srun"}

    def _run(self, launcher: str, index: int, framework: Framework | None = None) -> Command:
        flags, rest, _ = self._flags(index, until_program=False)
        command = Command(launcher, flags=flags, framework=framework)
        command.words = [self._given("", word) for word in rest]
        loose = [word for word in self.words[index:] if word.loose]
        others = (word for word, before in zip(self.words[index:], self.words[index - 1 :], strict=False) if not _is_value(word, before))
        command.names_flags = not any(word.loose or any(piece.absent for piece in word.parts) for word in others)
        command.complete, command.hands_on = not loose, bool(loose) and all(is_absent(word.parts) for word in loose)
        command.written = self.written
        command.environment = self.environment
        return command


def _holds_blank(word: CommandWord) -> bool:
    """Whether a word that begins with a dash is a value for argparse, because it holds a blank: `--args "-x 1"`."""
    return word.text is not None and " " in word.text.partition("=")[0]


def _is_optional(word: CommandWord) -> bool:
    """Whether a word is `${N:+--flag}` or `${N:-}` of a variable that nothing sets here: it is left out."""
    return is_absent(word.parts) and _OPTIONAL.match(word.raw) is not None


_OPTIONAL = re.compile(r"\$\{\w+:?[+-]")


def _is_value(word: CommandWord, before: CommandWord) -> bool:
    """Whether a word is or has the value of a flag, by the name of its variable, too: `$EXTRA_ARGS` may hold flags."""
    glued = (word.parts[0].text or "") if word.parts else ""
    if glued.startswith("--") and "=" in glued:
        return not names_arguments(word.raw.partition("=")[2])
    return (before.text or "").startswith("--") and "=" not in (before.text or "") and not names_arguments(word.raw)


_HANDED_ON = re.compile(r"""["']?\$\{?[@*]""")
"""The arguments that a script hands on."""
