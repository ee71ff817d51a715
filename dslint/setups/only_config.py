"""The config of a program that does not name it: the only one that can be meant, or each of several."""

from __future__ import annotations

import os
from dataclasses import replace

from dslint.config.context import Context
from dslint.config.detect import FileKind
from dslint.evaluate.python.notes import ConfigCall
from dslint.evaluate.python.read import PythonFile
from dslint.facts import Integration
from dslint.frameworks.accelerate import read_accelerate
from dslint.frameworks.programs import read_python
from dslint.job.arguments import SourcedValue
from dslint.job.model import Assumed, Seen, Setup
from dslint.not_judged import NotJudged, Why
from dslint.setups.candidates import MOST_CANDIDATES, MOST_FILES, candidates, is_config, is_for_others
from dslint.setups.gather import LoadedSetup, Read, follow, follow_accelerate, settle
from dslint.setups.program import gather_call, kinds_of
from dslint.setups.project import project_of
from dslint.source.store import store
from dslint.source.yaml_tree import parse_yaml


def with_only_config(found: Read, program: PythonFile, path: str, shown: str, given: Context) -> Read:
    """A program with the only DeepSpeed config in its folder, if a flag of the command line names its config and it has no other one."""
    flags = [one for one in program.unread if one.flag and not one.is_part]
    places = {(one.given.path, one.given.range) for one in flags}
    name = _only_config(path, given) if len(places) == 1 and not found.setups else None
    if name is None:
        return found
    taken = flags[0]
    call = replace(taken, given=replace(taken.given, value=name), reason=None, arguments=program.arguments)
    setup = gather_call(call, program, path, shown, given, single=True)
    if setup.config is None:
        return found
    note = f"a program: its launch names the DeepSpeed config with {taken.flag}; checked with {name}, the only one in its folder."
    left = [one for one in found.not_judged if not one.at_launch]
    return found._replace(kind=FileKind.PYTHON, setups=[setup], note=note, not_judged=left)


def assumed(program: PythonFile, path: str, shown: str, given: Context, *, named: bool) -> tuple[list[LoadedSetup], NotJudged | None]:
    """A program that gets its config from elsewhere, or from Accelerate's launcher, with each config that it may run with.

    None of what is found in the program is certain then, and each finding says on what it rests. Beside them is the reason why there are
    none, where it may run with too many.
    """
    calls = [one for one in program.unread if one.integration and not (one.is_part or one.is_in_use or one.is_built or one.through)]
    loader = calls[0].integration if calls else program.loader
    if len({one.integration for one in calls}) > 1 or loader not in _LOADERS or program.calls:
        return [], None
    if not calls and not store().named and is_for_others(program.document.text, path):
        return [], None
    by_launcher = loader != Integration.DEEPSPEED
    takes_json = bool(calls) or program.parses_arguments or bool(store().named) or not _is_launched(path)
    meant = candidates(path, given, json=takes_json, yaml=by_launcher, beside=not calls and not named)
    if meant.too_many:
        return [], NotJudged(Why.TOO_MANY_CONFIGS, (str(MOST_CANDIDATES), shown))
    whole = read_python(program.document.text, shown, path) if meant.paths and not path.endswith(".ipynb") else None
    program = whole or program
    folder = os.path.dirname(os.path.abspath(path))
    found: list[LoadedSetup] = []
    for one in meant.paths:
        if one.endswith((".yaml", ".yml")):
            setup = _launched_with(one, program, path, given)
        else:
            name = os.path.relpath(one, folder).replace(os.sep, "/")
            setup = _with_call(calls[0], name, program, path, shown, given) if calls else _with_json(name, program, path, shown, given)
        if setup is not None:
            found.append(setup)
    is_broken = any(one.config is None for one in found) or len(found) < len(meant.paths)
    seen = Seen.READ if is_broken and meant.seen is Seen.ALL else meant.seen
    return taken_for(found, calls[0].given.where if calls else shown, seen, by_launch=not calls), None


def _is_launched(path: str) -> bool:
    """Whether a script names a program: what it passes is known then, and no other config is meant."""
    project = project_of(path)
    return any(os.path.basename(path) in project.text(one) for one in project.scripts)


def taken_for(setups: list[LoadedSetup], where: str, seen: Seen, *, by_launch: bool) -> list[LoadedSetup]:
    """The setups that have a config, each with which one is taken for that of the program; see `Assumed`."""
    found = [one for one in setups if one.config is not None and one.setup.program is not None]
    names = [one.setup.accelerate.path if one.setup.accelerate is not None else str(one.setup.config) for one in found]
    taken = [Assumed(name, where, tuple(other for other in names if other != name), seen, by_launch=by_launch) for name in names]
    return [settle(_with_taken(*each)) for each in zip(found, taken, strict=True)]


def _with_taken(setup: LoadedSetup, taken: Assumed) -> LoadedSetup:
    assert setup.setup.program is not None
    return setup.but(program=replace(setup.setup.program, assumed=taken))


_LOADERS = (Integration.DEEPSPEED, Integration.TRANSFORMERS, Integration.ACCELERATE, Integration.LIGHTNING)


def _with_call(taken: ConfigCall, name: str, program: PythonFile, path: str, shown: str, given: Context) -> LoadedSetup | None:
    """A program with a config in the place of the one that a call takes from elsewhere."""
    text = project_of(path).text(os.path.join(os.path.dirname(os.path.abspath(path)), name))
    if taken.integration == Integration.DEEPSPEED and '"auto"' in text:
        return None  # the program fills these in by itself, and nobody knows what else
    call: ConfigCall = replace(taken, given=replace(taken.given, value=name), reason=None, arguments=program.arguments)
    return gather_call(call, program, path, shown, given, single=True)


def _with_json(name: str, program: PythonFile, path: str, shown: str, given: Context) -> LoadedSetup:
    """A program with a config that its launch may give, by the Trainer's flag or in a file of Accelerate."""
    setup = LoadedSetup(Setup(program=program.launched, arguments=program.arguments), given, documents=program.documents)
    link = SourcedValue(name, "deepspeed", name, shown)
    return follow(setup._replace(kinds=kinds_of(program)), link, path)


def _launched_with(file: str, program: PythonFile, path: str, given: Context) -> LoadedSetup | None:
    """A program as Accelerate launches it with a file of its own."""
    file = file if os.path.isabs(path) else os.path.relpath(file)
    document = parse_yaml(project_of(path).text(file))
    if document is None:
        return None
    name = file.replace(os.sep, "/")
    setup = Setup(program=program.launched, arguments=program.arguments, accelerate=read_accelerate(document, name))
    kinds = {**kinds_of(program), name: FileKind.ACCELERATE}
    return follow_accelerate(LoadedSetup(setup, given, documents={**program.documents, name: document}, kinds=kinds), file)


def _only_config(path: str, given: Context) -> str | None:
    """The name of the DeepSpeed config in the folder of a program; None if it has none or several, or a script names it for another one."""
    folder = os.path.dirname(os.path.abspath(path))
    names = sorted(name for name in os.listdir(folder) if name.endswith(".json"))
    configs = [name for name in names[:MOST_FILES] if is_config(os.path.join(folder, name), given)]
    if len(configs) != 1 or len(names) > MOST_FILES:
        return None
    project = project_of(path)
    return None if any(configs[0] in project.text(script) for script in project.scripts) else configs[0]
