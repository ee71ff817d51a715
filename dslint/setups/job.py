"""Job files in YAML that wrap a launch: Kubernetes, AzureML, SkyPilot, Determined, dstack and others; and ConfigMaps that hold a config."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from itertools import pairwise

from dslint.config.context import Context
from dslint.config.detect import FileKind
from dslint.evaluate.files import folders_above, is_elsewhere
from dslint.evaluate.shell.pieces import ShellSource, Text, TextPiece, place_of
from dslint.evaluate.shell.script import Script, run_words
from dslint.evaluate.shell.syntax import NoParser
from dslint.evaluate.shell.written import written_config
from dslint.job.arguments import SourcedValue
from dslint.job.model import JobSize, Setup
from dslint.not_judged import NotJudged, Why
from dslint.record import Record
from dslint.setups.containers import of_service
from dslint.setups.gather import LoadedSetup, Read, settle
from dslint.setups.job_ranks import set_by_platform, size_of
from dslint.setups.job_texts import Filling, environment_of, of_azure, of_kubernetes, text_of
from dslint.setups.limits import container_limit
from dslint.setups.project import COMMAND_KEYS
from dslint.setups.script import not_read, read_launches
from dslint.source.ranges import range_of
from dslint.source.tree import Document, Mapping, Node, Scalar, Sequence, Span
from dslint.source.yaml_tree import parse_yaml

_DOCUMENT = re.compile(r"^---[^\n]*\n", re.MULTILINE)

_TEXTS = ("run", "command", "entrypoint")
"""Keys that hold a command: of SkyPilot, AzureML, Determined."""

_LINES = ("commands", "script", "cmd")
"""Keys that hold a command, or a list of them, of which a shell reads one after the other: of dstack, of the pipelines of GitLab, DVC."""

_LAUNCHES = re.compile(r"(?:^|[;&|\s])(?:deepspeed|torchrun|accelerate[ \t]+launch)(?=[ \t])(?=[^;&|\n]*(?:[ \t]-|\.py\b|[\\${]))")
"""The command of a launcher, with what prose has not: a flag, a program, a variable, or a line that goes on. Where the text has one, no
other key has to show that the file is a job.
"""

_AROUND = frozenset({"resources", "setup", "environment", "compute", "code", "searcher", "$schema", "inputs", "distribution"})
"""Keys that stand next to such a text in a job file."""

_ABOUT = re.compile(r"deepspeed|zero_optimization|ds_config", re.IGNORECASE)
"""What a job mentions that is meant for DeepSpeed, whatever it starts."""

_HOLDS = re.compile(rf"\b(?:{'|'.join(COMMAND_KEYS)}|ConfigMap)\b")
"""What a document with a command or a config has in it."""

_STARTS = re.compile(r"(?:\b(?:torchrun|deepspeed|accelerate launch|mpirun|python[\d.]*)\s+|\b(?:ba)?sh\s+(?=\S*\.sh\b))[^|;&\n]{0,60}")
"""A command that starts a program or a script, for messages."""

_DEEPEST = 40
"""How deep a command or a config is searched for in a job file. In a PyTorchJob of Kubernetes the command is 8 deep."""


class _Command(Record):
    """A command of a job: its words, the variables that the job sets for it, the size of the job, and the memory limit of its container.

    `of_job` is False where only the text of the command shows that the file is a job: it may be any text that names a launcher.
    """

    words: list[Text]
    environment: dict[str, str]
    size: JobSize
    folder: str = ""
    memory: SourcedValue | None = None
    container: SourcedValue | None = None
    of_job: bool = True


def read_job(text: str, path: str, shown: str, given: Context) -> Read | None:
    """Read the commands and the configs in a job file; None for a YAML text that is not a job with DeepSpeed.

    A job need not mention DeepSpeed: the program that it starts does.
    """
    document = Document(text, None, language="text")
    source = ShellSource(shown, document)
    script = Script(source)
    configs: list[LoadedSetup] = []
    commands: list[_Command] = []
    for part in _parts(text):
        for content in _config_maps(part, source):
            found = written_config(content)
            if found is not None and found[1].root is not None:
                setup = Setup(config=shown)
                configs.append(settle(LoadedSetup(setup, given, found[1], {shown: document}, kinds={shown: FileKind.TRAINING})))
        for command in _commands(part.root, source, ()):
            if command.of_job:
                commands.append(command)
            try:
                folder = command.folder if _is_folder(command.folder, path) else ""
                runner = run_words(command.words, path, {**command.environment, **given.environment}, folder=folder)
            except NoParser:
                return not_read(document)
            for launched in runner.launched:
                launched.memory, launched.job, launched.container = command.memory, command.size, command.container
            script.launched += runner.launched
            script.cut_off = script.cut_off or runner.cut_off
    found_launches = read_launches(script, path, given, named=False)
    if found_launches is None and not configs:
        return _not_followed(commands, document) if _ABOUT.search(text) else None
    result = found_launches or Read(FileKind.TRAINING, document, note="a job file with a DeepSpeed config in it.")
    return result._replace(setups=[*result.setups, *configs])


def _not_followed(commands: list[_Command], document: Document) -> Read | None:
    """A job that mentions DeepSpeed and starts a program, where no launch with DeepSpeed is found. None for a job that starts none."""
    for command in commands:
        text = " ".join("".join(piece.text or "..." for piece in word) for word in command.words)
        started = _STARTS.search(text)
        if started is None or text.removeprefix("bash -c").lstrip().startswith("-"):
            continue  # no command, or only the arguments of one
        at = next((word for word in command.words if any(started[0].strip() in (piece.text or "") for piece in word)), command.words[0])
        _, span = place_of(at)
        why = NotJudged(Why.JOB_STARTS_OTHER, (started[0].strip(),), range_of(document, span))
        return Read(FileKind.UNRELATED, document, not_judged=[why])
    return None


_MOST_DOCUMENTS = 50
"""The most documents of a file. No YAML file of 29 public repositories has more than two."""


def _parts(text: str) -> Iterator[Document]:
    """The documents of a YAML text, each with the offsets of the whole text."""
    starts = [0, *(match.end() for match in _DOCUMENT.finditer(text)), len(text)]
    for start, end in list(pairwise(starts))[:_MOST_DOCUMENTS]:
        segment = re.sub(r"^---[^\n]*\n?", "", text[start:end], flags=re.MULTILINE)
        if _HOLDS.search(segment):
            yield parse_yaml(re.sub(r"[^\n]", " ", text[:start]) + segment)


def _config_maps(part: Document, source: ShellSource) -> Iterator[Text]:
    root = part.root
    kind, data = (root.get("kind"), root.get("data")) if isinstance(root, Mapping) else (None, None)
    if kind is None or data is None or not isinstance(kind.value, Scalar) or kind.value.value != "ConfigMap":
        return
    for member in data.value.members if isinstance(data.value, Mapping) else ():
        if isinstance(member.value, Scalar) and isinstance(member.value.value, str) and "{" in member.value.value:
            text = text_of(member.value, source, {})
            if re.search(r'"(zero_optimization|train_batch_size|train_micro_batch_size_per_gpu|fp16|bf16)"', member.value.value):
                yield text


def _commands(node: Node | None, source: ShellSource, around: tuple[Mapping, ...]) -> Iterator[_Command]:
    """The commands in a tree: those of containers, and the texts of jobs. `around` are the mappings that the node stands in."""
    if len(around) > _DEEPEST or node is None:
        return
    if isinstance(node, Sequence):
        for item in node.items:
            if not isinstance(item, Sequence):
                yield from _commands(item, source, around)
        return
    if not isinstance(node, Mapping):
        return
    names = {member.key.value for member in node.members}
    here = (*around, node)
    environment = {**environment_of(node), **set_by_platform(here)}
    if names & {"image", "args", "numNodes", "numProcPerNode"} and names & {"command", "args"}:
        fills = of_kubernetes(node)
        words = [*_words(node, "command", source, fills), *_words(node, "args", source, fills)]
        if words:
            size, folder = size_of(here, source), _folder(node)
            yield _Command(words, environment, size, folder, container_limit(node, source), of_service(node, here, source))
    else:
        for name in (*_TEXTS, *_LINES):
            words = (_lines if name in _LINES else _words)(node, name, source, of_azure(here))
            of_job = name in _TEXTS and not names.isdisjoint(_AROUND)
            if words and (of_job or _LAUNCHES.search("".join(piece.text or "" for piece in words[-1]))):
                size = size_of(here, source)
                starts_ranks = any("determined.launch." in (piece.text or "") for word in words for piece in word)
                size = size if starts_ranks or size.slots is None else size._replace(ranks=None)
                yield _Command(words, environment, size, _folder(node), of_job=of_job)
    for member in node.members:
        yield from _commands(member.value, source, here)


_FOLDERS = ("code", "workdir", "working_dir", "workingDir")
"""Keys that name the folder in which a command starts: of AzureML, SkyPilot, Ray, Kubernetes."""


def _folder(node: Mapping) -> str:
    """The folder in which a command starts, as the job names it; "" for that of the job file."""
    found = (member.value.value for name in _FOLDERS if (member := node.get(name)) is not None and isinstance(member.value, Scalar))
    return next((os.path.normpath(one) for one in found if isinstance(one, str) and one.strip() and not is_elsewhere(one)), "")


def _is_folder(folder: str, path: str) -> bool:
    """Whether a folder is there: from the job file, from the working directory, or from a folder above in the repository."""
    own = os.path.dirname(os.path.abspath(path))
    return folder not in ("", ".") and any(os.path.isdir(os.path.join(base, folder)) for base in (own, os.getcwd(), *folders_above(own)))


def _lines(node: Mapping, name: str, source: ShellSource, fills: Filling) -> list[Text]:
    """The words of a shell that reads a text, or the texts of a list one after the other."""
    value = _value(node, name)
    return _shell(value.items if isinstance(value, Sequence) else (value,), source, fills)


def _words(node: Mapping, name: str, source: ShellSource, fills: Filling) -> list[Text]:
    """The words of a command; a text is one that a shell reads."""
    value = _value(node, name)
    if isinstance(value, Sequence):
        return [text_of(item, source, fills) for item in value.items if isinstance(item, Scalar) and item.value is not None]
    return _shell((value,), source, fills)


def _value(node: Mapping, name: str) -> Node | None:
    member = node.get(name)
    return member.value if member is not None else None


def _shell(lines: Iterable[Node | None], source: ShellSource, fills: Filling) -> list[Text]:
    """The words of a shell that reads these texts; none if something else is among them, or if they are empty."""
    lines = list(lines)
    texts = [one for one in lines if isinstance(one, Scalar) and isinstance(one.value, str)]
    if len(texts) < len(lines) or not any(str(one.value).strip() for one in texts):
        return []
    shell = TextPiece("bash", source, Span(texts[0].span.start, texts[0].span.start), exact=False)
    pieces = [piece for one in texts for piece in (shell._replace(text="\n"), *text_of(one, source, fills))]
    return [(shell,), (shell._replace(text="-c"),), tuple(pieces[1:])]
