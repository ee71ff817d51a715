"""The setup of a framework that builds the config from files of its own, and its launcher: `deepy.py train.py -d configs a.yml b.yml`."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace

from dslint.config.context import Context
from dslint.config.detect import FileKind
from dslint.evaluate.files import Linked
from dslint.facts.model_config import describe
from dslint.frameworks.base import Framework, OwnFiles
from dslint.frameworks.registry import with_own_files
from dslint.job.arguments import SourcedValue, in_short
from dslint.job.model import Launch, Setup
from dslint.not_judged import NotJudged, Why, of_note, what_to_pass
from dslint.setups.command import Command
from dslint.setups.gather import LoadedSetup, settle
from dslint.setups.hostfile import with_hostfile
from dslint.setups.ranks import SELECTING
from dslint.setups.unknown_config import beside
from dslint.source.read import ReadError, read
from dslint.source.tree import Document, Mapping, Member, Span, TextPart, moved
from dslint.source.unknown import UNKNOWN
from dslint.source.yaml_tree import parse_yaml


def setup_of(framework: Framework, own: OwnFiles, document: Document, documents: dict[str, Document], given: Context) -> LoadedSetup:
    """The setup with the config that a framework builds from its files: `documents`, and all of them in one tree."""
    first, *_ = documents
    context = given
    if given.facts.integration is None:
        context = given.inferring(f"{first} is a {framework.name} config", integration=framework.loader)
    for name, size in own.parallel_sizes(document).items():
        if context.get(name) is None:
            context = context.inferring(f"{first} is a {framework.name} config", **{name: size})
    kinds = dict.fromkeys(documents, FileKind.TRAINING)
    arguments = own.arguments(documents)
    model = own.model(arguments) if arguments is not None else None
    if model is not None and context.facts.model is None:
        context = context.inferring(f"{first} gives the sizes of the model", model=describe(model, first))
    return LoadedSetup(Setup(config=first, made=True, of_framework=arguments), context, own.config(document), dict(documents), kinds=kinds)


def read_own_launch(command: Command, document: Document, path: str, shown: str, given: Context) -> LoadedSetup | NotJudged | None:
    """The setup of a training that the launcher of such a framework starts, or why it is not known; None for any other command."""
    program = command.program.value if command.program is not None else None
    if not isinstance(program, str) or not command.words:
        return None
    framework, own = next((one for one in with_own_files() if one[1].launcher == os.path.basename(program)), (None, None))
    script, *names = command.words
    launch = f"the launch of {script.raw}"
    if framework is None or own is None or own.trains not in str(script.value):
        return None
    files: dict[str, Document] = {}
    for name in names:
        linked = _linked(command, own, name, path)
        if not isinstance(linked, Linked):
            return NotJudged(Why.OWN_FILE, (framework.name, in_short(name.raw), linked), name.range, launch=launch)
        try:
            files[linked.shown] = parse_yaml(read(linked.path))
        except ReadError as error:
            return of_note(str(error))._replace(range=name.range, launch=launch)
    whole = joined(files)
    duplicate = next(_duplicates(files), None)
    if duplicate is not None:
        return NotJudged(Why.GIVEN_TWICE, (framework.name, own.refuses_twice, duplicate), script.range, launch=launch)
    if whole is None or not own.recognises(whole):
        return NotJudged(Why.NOT_OWN_FILES, (framework.name,), script.range, launch=launch)
    found = setup_of(framework, own, whole, files, given).with_file(shown, document, FileKind.SCRIPT)
    return settle(found._replace(setup=with_launch(found.setup, command, path, files)))


def with_launch(setup: Setup, command: Command, path: str, files: dict[str, Document]) -> Setup:
    """The setup with the ranks of its launch: the program starts DeepSpeed's launcher, which takes them from a hostfile, or starts one on
    each visible GPU.
    """
    seen, launch = command.launch, Launch("deepspeed")
    gpus = seen.visible_gpus if seen is not None and not any(map(_selects, files.values())) else None
    if seen is not None and gpus:
        launch = Launch("deepspeed", len(gpus), 1, seen.visible, visible=seen.visible)
    launched = replace(setup, launch=launch)
    hosts = command.flags.get("hostfile") or command.flags.get("H")
    return with_hostfile(launched, hosts, path, decides=True) if hosts is not None and isinstance(hosts.value, str) else launched


def _selects(document: Document) -> bool:
    """Whether a file of the framework chooses among machines and GPUs by itself, as its launcher's flags do."""
    members = document.root.members if isinstance(document.root, Mapping) else []
    return any(member.key.value.replace("-", "_") in ("hostfile", *SELECTING) for member in members)


def _linked(command: Command, own: OwnFiles, name: SourcedValue, path: str) -> Linked | str:
    """A file of the launch, or what is wrong with it."""
    folder = next((command.flags[flag] for flag in own.folder if flag in command.flags), None)
    for given in (folder, name):
        if given is not None and given.value is UNKNOWN:
            return f"is in {given.raw}, which is set at run time. {what_to_pass(given.raw)}"
    below = os.path.join(str(folder.value) if folder is not None else "", str(name.value))
    ending = "" if below.endswith((".yml", ".json")) else own.ending
    return beside(command, below + ending, path) or "is not a file in this project."


def _duplicates(files: dict[str, Document]) -> Iterator[str]:
    seen: set[str] = set()
    for document in files.values():
        members = document.root.members if isinstance(document.root, Mapping) else []
        yield from (member.key.value for member in members if member.key.value in seen)
        seen |= {member.key.value.replace("-", "_") for member in members}


def joined(files: dict[str, Document]) -> Document | None:
    """The files in one tree. A single file stays as it is."""
    if len(files) <= 1:
        return next(iter(files.values()), None)
    text = ""
    members: list[Member] = []
    parts: list[TextPart] = []
    for shown, document in files.items():
        parts.append(TextPart(len(text), shown))
        root = moved(document.root, len(text)) if document.root is not None else None
        members += root.members if isinstance(root, Mapping) else []
        text += document.text + "\n"
    return Document(text, Mapping(Span(0, len(text)), members), language="yaml", parts=tuple(parts))
