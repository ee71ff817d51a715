"""Launch commands: the launcher, the number of ranks, the program, its arguments and its config."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from os.path import basename

from dslint.setup.arguments import SourcedValue, as_read, range_of
from dslint.setup.model import Launch
from dslint.setup.shell import Script, Word, gpus_per_node
from dslint.setup.training import ARGUMENTS, AXOLOTL, LLAMA_FACTORY, SWIFT, TRAINER, TRL
from dslint.source.integers import integer
from dslint.source.tree import Document
from dslint.source.unknown import UNKNOWN

_CLI = {"llamafactory-cli": LLAMA_FACTORY, "lmf": LLAMA_FACTORY, "axolotl": AXOLOTL, "swift": SWIFT, "trl": TRL}
"""The frameworks that have their own command."""

_ALONE = frozenset(
    """
    module no_python no_local_rank standalone use_deepspeed multi_gpu use_fsdp cpu debug quiet same_network force_multi save_pid
    enable_elastic_training bind_cores_to_rank dynamo_use_dynamic use_cpu m no_ssh no_ssh_check
    """.split()
)
"""Flags of the launchers that take no value."""


@dataclass(slots=True)
class Command:
    """A launch command: its launcher's flags, the program, the program's own flags and other words."""

    launcher: str
    launcher_flags: dict[str, SourcedValue] = field(default_factory=dict)
    program: SourcedValue | None = None
    flags: dict[str, SourcedValue] = field(default_factory=dict)
    words: list[SourcedValue] = field(default_factory=list)
    framework: str = TRAINER
    launch: Launch | None = None
    complete: bool = True


def read_command(words: list[Word], script: Script, document: Document, shown: str) -> Command | None:
    """What a command launches; None if it does not launch a training."""
    reader = _Reader(words, script, document, shown)
    return reader.command()


class _Reader:
    def __init__(self, words: list[Word], script: Script, document: Document, shown: str) -> None:
        self.words = words
        self.script = script
        self.document = document
        self.shown = shown
        self.position = 0
        self.srun = False

    def command(self) -> Command | None:
        names = [basename(word.text or "") for word in self.words]
        self.srun = "srun" in names
        for index, name in enumerate(names):
            after = [word.text for word in self.words[index + 1 : index + 3]]
            if name == "deepspeed":
                return self._launched("deepspeed", index + 1)
            if name in ("torchrun", "torch_run"):
                return self._launched("torchrun", index + 1)
            if name == "accelerate" and after[:1] == ["launch"]:
                return self._launched("accelerate", index + 2)
            if name.startswith("python") and after[:1] == ["-m"] and len(after) > 1:
                module = after[1] or ""
                if module.startswith("torch.distributed."):
                    return self._launched("torchrun", index + 3)
                if module in ("accelerate.commands.launch", "deepspeed.launcher.runner"):
                    return self._launched(module.partition(".")[0], index + 3)
                if module.startswith("axolotl"):
                    return self._run("python", index + 3, framework=AXOLOTL)
            if name in _CLI and after[:1] not in (["fetch"], ["preprocess"], ["export"], ["chat"], ["webui"], ["version"]):
                return self._run(name, index + 2, framework=_CLI[name])
            if name.startswith("python") and re.fullmatch(r"python[\d.]*", name):
                return self._program("python", index + 1)
        return None

    # ------------------------------------------------------------------ words

    def _given(self, name: str, word: Word | None, flag: Word | None = None) -> SourcedValue:
        first, last = flag or word, word or flag
        assert first is not None
        assert last is not None
        value = UNKNOWN if word is not None and word.text is None else word.text if word is not None else True
        raw = "" if word is None or word is flag else word.raw
        span = type(first.span)(first.span.start, last.span.end)
        return SourcedValue(as_read(name, value), flag.raw if flag else name, raw, self.shown, range_of(self.document, span))

    def _flags(self, start: int, *, until_program: bool) -> tuple[dict[str, SourcedValue], list[Word], int]:
        """The flags from a word on. With `until_program` reading stops at the first word that is not a flag: the program."""
        flags: dict[str, SourcedValue] = {}
        rest: list[Word] = []
        index = start
        while index < len(self.words):
            word = self.words[index]
            text = word.text if word.text is not None else word.raw
            if text in (">", "2>", ">>", "<", "2>&1", "&>") or re.match(r"\d?>", text):
                break
            if text.startswith("-") and not re.fullmatch(r"-\d.*", text):
                name, equals, value = text.lstrip("-").partition("=")
                name = name.replace("-", "_")
                following = self.words[index + 1] if index + 1 < len(self.words) else None
                if equals:
                    inside = Word(value if word.text is not None else None, value, word.span)
                    given = self._given(name, inside, None)
                    flags[name] = SourcedValue(given.value, "--" + name, value, given.path, given.range)
                elif following is None or (until_program and name in _ALONE) or re.match(r"--?[A-Za-z]", following.raw):
                    flags[name] = self._given(name, None, word)
                else:
                    flags[name] = self._given(name, following, word)
                    index += 1
            elif until_program:
                return flags, rest, index
            else:
                rest.append(word)
            index += 1
        return flags, rest, index

    # ------------------------------------------------------------------ commands

    def _launched(self, launcher: str, start: int) -> Command | None:
        flags, _, index = self._flags(start, until_program=True)
        command = self._program(launcher, index)
        if command is not None:
            command.launcher_flags = flags
            command.launch = self._launch(launcher, flags)
        return command

    def _program(self, launcher: str, index: int) -> Command | None:
        if index >= len(self.words):
            return None
        program = self.words[index]
        if launcher == "python" and not (program.text or program.raw).endswith(".py"):
            return None
        command = self._run(launcher, index + 1)
        command.program = self._given("", program)
        if launcher == "python":
            command.launch = self._launch("srun" if self.srun else "python", {})
        return command

    def _run(self, launcher: str, index: int, framework: str = TRAINER) -> Command:
        flags, rest, _ = self._flags(index, until_program=False)
        command = Command(launcher, flags=flags, framework=framework)
        command.words = [self._given("", word) for word in rest]
        command.complete = not any(word.text is None and word.raw.startswith(("$", '"$')) for word in rest)
        return command

    # ------------------------------------------------------------------ ranks

    def _launch(self, launcher: str, flags: dict[str, SourcedValue]) -> Launch:
        slurm = {name: value for name, (value, _) in self.script.slurm.items()}
        if launcher == "torchrun":
            each, nodes = _number(flags, "nproc_per_node"), _number(flags, "nnodes")
            nodes = 1 if "nnodes" not in flags else nodes
            given = flags.get("nproc_per_node")
            return Launch(launcher, each * nodes if each and nodes else None, nodes, given, *self._gpus(slurm))
        if launcher == "accelerate":
            number, machines = _number(flags, "num_processes"), _number(flags, "num_machines")
            return Launch(launcher, number, machines, flags.get("num_processes"), *self._gpus(slurm))
        if launcher == "deepspeed":
            given = flags.get("include") or flags.get("i")
            if given is not None and isinstance(given.value, str):
                return Launch(launcher, _included(given.value), None, given)
            gpus, nodes = _number(flags, "num_gpus"), _number(flags, "num_nodes")
            if gpus and ("num_nodes" in flags or not {"hostfile", "H"} & flags.keys()):
                return Launch(launcher, gpus * (nodes or 1), nodes or 1, flags["num_gpus"])
            return Launch(launcher)
        if launcher == "srun":
            nodes, each = _decimal(slurm.get("nodes")), _decimal(slurm.get("ntasks-per-node"))
            tasks = _decimal(slurm.get("ntasks")) or (nodes * each if nodes and each else None)
            line = self.script.slurm.get("ntasks") or self.script.slurm.get("ntasks-per-node")
            if tasks and line and gpus_per_node(slurm) is not None:
                raw = self.document.text[slice(*line[1])]
                return Launch(launcher, tasks, nodes, SourcedValue(tasks, "--ntasks", raw, self.shown, range_of(self.document, line[1])))
        return Launch(launcher)

    def _gpus(self, slurm: dict[str, str]) -> tuple[int | None, SourcedValue | None]:
        """The total number of GPUs that #SBATCH lines request, and the line that says so."""
        each, nodes = gpus_per_node(slurm), _decimal(slurm.get("nodes"))
        line = self.script.slurm.get("gpus-per-node") or self.script.slurm.get("gres")
        if each is None or nodes is None or line is None or not self.words:
            return None, None
        raw = self.document.text[slice(*line[1])]
        return each * nodes, SourcedValue(each * nodes, "--gpus-per-node", raw, self.shown, range_of(self.document, line[1]))


def _number(flags: dict[str, SourcedValue], name: str) -> int | None:
    given = flags.get(name)
    return _decimal(str(given.value)) if given is not None else None


def _decimal(text: str | None) -> int | None:
    return (integer(text) or None) if text else None


def _included(text: str) -> int | None:
    """How many GPUs `--include host:0,1@host2:2` selects; None if a host has no list of GPUs."""
    hosts = [host.partition(":")[2] for host in text.split("@")]
    return sum(len(host.split(",")) for host in hosts) if all(hosts) else None


def training_flags(command: Command) -> dict[str, SourcedValue]:
    """The training arguments among the program's flags."""
    return {name: given for name, given in command.flags.items() if name in ARGUMENTS}
