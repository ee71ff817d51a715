"""Find what starts a program: the scripts of its project that launch it, or programs that import it."""

from __future__ import annotations

import os
from collections.abc import Iterator

from dslint.config.context import Context
from dslint.config.detect import FileKind
from dslint.diagnostics import Range
from dslint.evaluate.python.reach import may_call_into
from dslint.not_judged import AnsweredBy, NotJudged, Why
from dslint.setups.calls import calls_of
from dslint.setups.gather import LoadedSetup, Read
from dslint.setups.launching import first_launches, may_launch, read_launching
from dslint.setups.program import gather_call
from dslint.setups.project import Project, project_of
from dslint.source.tree import Mapping, Node, Scalar, Sequence
from dslint.source.unknown import UNKNOWN

_MOST_IMPORTERS = 20
"""How many programs that import one, directly or not, are searched for what starts it. Seven programs of LLaMA-Factory, axolotl 0.19
and GPT-NeoX have at least as many."""

_MOST_STARTED = 2
"""How many programs that import a module are followed to see what they do with it, where nothing launches any of them."""


def with_launches(found: Read, path: str, shown: str, given: Context) -> Read:
    """A program that takes its config from its launch, with the setups of the launches in its project."""
    project = project_of(path)
    here = os.path.abspath(path)
    leading, more = _leading_to(project, here)
    leading = [_as_named(one, path) for one in leading]
    launching = [_as_named(one, path) for one in project.launching({_name_in_launches(one) for one in leading}) if one != here]
    setups, left_out = first_launches(_launched(project, launching, here, given), launching)
    if not setups and any(one.answer is AnsweredBy.CALLER for one in found.not_judged):
        setups, left_out = first_launches(_imported(project, leading[1:], here, given), leading[1:])
    elif not setups and any(not one.is_definition for one in found.setups) and not _is_started(found.document.text):
        importers = [one for one in leading[1:] if _is_started(project.text(one))][:_MOST_STARTED]
        setups = list(_imported(project, importers, here, given))
    without_config = [setup for setup in setups if setup.config is None]
    setups = [setup for setup in setups if setup.config is not None]
    further = [left_out] if left_out is not None else []
    if found.setups:
        completed = _completed(found, setups, shown)
        return completed._replace(not_judged=[*completed.not_judged, *further]) if completed is not found else found
    if not setups:
        reasons = [_without_launch(one, project, leading[1:], here, without_config, more=more) for one in found.not_judged]
        without = bool(without_config) and all(one.not_judged is None for one in without_config)
        return found._replace(not_judged=reasons, launched_without=without)
    starts = ", ".join(dict.fromkeys(_start_of(setup, shown) for setup in setups))
    left = [one for one in found.not_judged if one.answer in (None, AnsweredBy.REST)]
    kind = FileKind.PYTHON if found.kind is FileKind.UNRELATED else found.kind
    setups = [one.seen_from(shown, found.document, FileKind.PYTHON) for one in setups]
    return found._replace(kind=kind, setups=[*found.setups, *setups], note=f"a program: {starts}.", not_judged=[*left, *further])


def _completed(found: Read, launched: list[LoadedSetup], shown: str) -> Read:
    """A program that contains or names its configs, or parts of them, with those of its launches in their place: these know ranks and
    flags.
    """
    setups = [one for one in launched if not one.is_in_part and not one.setup.made and _is_known(one)]
    parts = {one.range for one in found.not_judged}
    calls = {_range(one) for one in found.setups}
    replaced = {_range(one) for one in setups} & calls
    if calls & parts:
        replaced |= parts
    else:
        setups = [one for one in setups if _range(one) in calls]
    if not setups or not any(_range(one) in replaced for one in found.setups):
        return found
    setups = [one.seen_from(shown, found.document, FileKind.PYTHON) for one in setups]
    kept = [one for one in found.setups if _range(one) not in replaced]
    answered = {_range(one) for one in found.setups if _range(one) in parts}
    starts = ", ".join(dict.fromkeys(_start_of(setup, shown) for setup in setups))
    left = [one for one in found.not_judged if one.range not in answered]
    return found._replace(setups=[*kept, *setups], note=f"a program: {starts}.", not_judged=left)


def _is_started(text: str) -> bool:
    """Whether a file is a program that somebody starts by its path."""
    return "__main__" in text


def _is_known(gathered: LoadedSetup) -> bool:
    """Whether a value of a config is known."""
    waiting: list[Node] = [gathered.config.root] if gathered.config is not None and gathered.config.root is not None else []
    while waiting:
        node = waiting.pop()
        if isinstance(node, Scalar) and node.value is not UNKNOWN:
            return True
        waiting += [one.value for one in node.members] if isinstance(node, Mapping) else node.items if isinstance(node, Sequence) else []
    return False


def _range(gathered: LoadedSetup) -> Range | None:
    return gathered.setup.link.range if gathered.setup.link is not None else None


_WHAT_TO_DO = "Name the program with its config (dslint check PROGRAM CONFIG), or check the launch with --command."

_ALONE = f"dslint reached no command of this project that launches the program with a config. {_WHAT_TO_DO}"

_IMPORTED = f"dslint found no launch of a program that imports this file and names a config. {_WHAT_TO_DO}"

_TOO_MANY = (
    f"More than {_MOST_IMPORTERS} programs import this file, directly or through others, and in the launches of these dslint found no "
    f"config. {_WHAT_TO_DO}"
)


def _without_launch(
    reason: NotJudged, project: Project, importers: list[str], here: str, without_config: list[LoadedSetup], *, more: bool
) -> NotJudged:
    """A reason that a launch would answer, where none has a config: what its launches, or programs that import it, say of it.

    `more` says that there are further programs that import it.
    """
    none = _TOO_MANY if more else _IMPORTED if importers else _ALONE
    if reason.answer in (AnsweredBy.FLAG, AnsweredBy.LAUNCH):
        told = ((setup.setup.link, setup.not_judged) for setup in without_config)
        why = next((f"{link.where} launches it: {one.reason}" for link, one in told if link is not None and one is not None), None)
        return reason._replace(advice=why or none)
    if reason.answer is not AnsweredBy.CALLER:
        return reason
    for path in importers:
        if not may_call_into(project.text(path), path, here):
            continue
        program = calls_of(project.text(path), path, path.replace(os.sep, "/"))
        passed = [one.reason for one in program.unread if os.path.abspath(one.given.path) == here] if program is not None else []
        known = [one.text for one in passed if one is not None and not one.is_parameter]
        if known:
            return reason._replace(why=Why.PASSED_BY, about=(reason.reason, path.replace(os.sep, "/"), known[0]), advice="")
    return reason._replace(advice=none) if more else reason


def _leading_to(project: Project, here: str) -> tuple[list[str], bool]:
    """A program and those that import it, directly or not, and whether there are more."""
    found = [here]
    for path in found:
        found += [one for one in project.importers_of(path) if one not in found]
        if len(found) > _MOST_IMPORTERS + 1:
            return found[: _MOST_IMPORTERS + 1], True
    return found, False


def _launched(project: Project, launching: list[str], here: str, given: Context) -> Iterator[LoadedSetup]:
    """The setups of the launches in files that start a program which has this file in it, by its own path or through a link."""
    paths = [here, *project.other_paths_of(here)]
    for path in launching:
        text, shown = project.text(path), path.replace(os.sep, "/")
        if not any(may_launch(text, path, shown, given, one) for one in paths):
            continue
        found = read_launching(text, path, shown, given, named=False)
        yield from (one for one in found.setups if not one.launched.isdisjoint(paths)) if found is not None else ()


def _imported(project: Project, importers: list[str], here: str, given: Context) -> Iterator[LoadedSetup]:
    """The setups of the calls in a file, as programs that import it make them."""
    for path in importers:
        if not may_call_into(project.text(path), path, here):
            continue
        shown = path.replace(os.sep, "/")
        program = calls_of(project.text(path), path, shown)
        if program is None or not program.consists_of(here):
            continue
        for call in program.calls:
            if call.integration and os.path.abspath(call.given.path) == here:
                yield gather_call(call, program, path, shown, given, single=False)


def _start_of(setup: LoadedSetup, shown: str) -> str:
    given = setup.setup
    scripts = [path for path, kind in setup.kinds.items() if kind is FileKind.SCRIPT]
    if scripts:
        program = given.program.path if given.program is not None else shown
        is_other = os.path.abspath(program) != os.path.abspath(shown)
        launched = f"launches {program}, which imports it" if is_other else "launches it"
        holds_none = (shown, program, scripts[0])  # where a program or flags make the config, no file has it
        config = "" if given.config in holds_none else f"{',' if is_other else ''} with the DeepSpeed config {given.config}"
        return f"{scripts[0]} {launched}{config}"
    return f"{given.program.path if given.program else 'a program'} imports it and passes {given.config}"


def _name_in_launches(path: str) -> str:
    """The word that every launch of a program has in it: the name of its file or module, or that of its folder for `python -m folder`."""
    name = os.path.basename(path).removesuffix(".py")
    return os.path.basename(os.path.dirname(os.path.abspath(path))) if name == "__main__" else name


def _as_named(path: str, beside: str) -> str:
    """A path as the user names paths: absolute, or from the working directory."""
    return path if os.path.isabs(beside) else os.path.relpath(path)
