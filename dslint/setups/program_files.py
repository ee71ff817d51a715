"""Programs as files of a project: their calls, the commands that they run, and the scripts that launch them."""

from __future__ import annotations

import os
import re

from dslint.config.context import Context
from dslint.config.detect import FileKind
from dslint.evaluate.files import concerns_deepspeed
from dslint.evaluate.python.reach import is_broken, may_take_config
from dslint.evaluate.python.read import PythonFile
from dslint.facts import Integration
from dslint.frameworks.programs import read_python
from dslint.job.events import DROPPED, ENGINE, HELD_WEAKLY
from dslint.job.model import Setup
from dslint.not_judged import AnsweredBy, NotJudged, Why
from dslint.setups.calls import calls_of
from dslint.setups.candidates import (
    candidates,
    is_for_others,
    is_in_script,
    may_be_posted,
    may_have_candidates,
    may_use_config_beside,
)
from dslint.setups.gather import LoadedSetup, Read, settle
from dslint.setups.launched_by import with_launches
from dslint.setups.only_config import assumed, with_only_config
from dslint.setups.possible_stages import with_possible_stages
from dslint.setups.program import found_inference, kinds_of, launched_with_accelerate, read_followed, with_assumed_names
from dslint.setups.program_commands import with_commands
from dslint.setups.project import project_of
from dslint.setups.tried_stages import by_launch
from dslint.source.tree import Document

_EITHER = {"deepspeed", "accelerate"}
"""The loaders of a program that trains with an engine of its own or with Accelerate, as its flags say."""


def read_program_file(text: str, path: str, shown: str, given: Context, *, named: bool) -> Read | None:
    """Read a program. None for a discovered one that has nothing to do with DeepSpeed."""
    named = named or (given.is_for_accelerate and "Accelerator(" in text)
    if not named and not may_take_config(text, path) and not is_broken(text, path, shown):
        return found_inference(text, path, shown, given) or _found_beside(text, path, shown, given)
    program = read_python(text, shown, path) if named else calls_of(text, path, shown)
    read = _judged(program, text, path, shown, given, named=named)
    return with_assumed_names(read, program) if read is not None and program is not None else read


def _judged(program: PythonFile | None, text: str, path: str, shown: str, given: Context, *, named: bool) -> Read | None:
    """A program that was followed, with its config or what leads to it."""
    found = read_followed(program, text, path, shown, given, named=named)
    if program is not None and program.commands:
        found = with_commands(found, program, path, given)
    if found is None:
        return None if named else found_inference(text, path, shown, given) or _found_beside(text, path, shown, given)
    if program is None:
        return found
    launched = with_only_config(with_launches(found, path, shown, given), program, path, shown, given)
    if launched.setups:
        return with_possible_stages(launched, program)
    with_configs, too_many = assumed(program, path, shown, given, named=named)
    if with_configs:
        return _with_assumed(launched, with_configs, shown)
    alone = _judged_alone(launched, found, program, given, named=named)
    return alone._replace(not_judged=[*alone.not_judged, too_many]) if too_many is not None else alone


def _found_beside(text: str, path: str, shown: str, given: Context) -> Read | None:
    """A program that names no config, with those beside it that it may be launched with."""
    is_posted = may_be_posted(path, text)
    if not is_posted and not may_have_candidates(path, text, given):
        return _may_use_deepspeed(text) if may_use_config_beside(path, text, given) else None
    program = read_python(text, shown, path)
    if program is None or with_launches(Read(FileKind.UNRELATED, program.document), path, shown, given).setups:
        return None
    with_configs, too_many = assumed(program, path, shown, given, named=False)
    if with_configs:
        return with_assumed_names(_with_assumed(Read(FileKind.PYTHON, program.document), with_configs, shown), program)
    if too_many is None and is_posted and _says_deepspeed(program, given):
        return with_assumed_names(_may_be_launched(Read(FileKind.PYTHON, program.document), program, given), program)
    if too_many is None and not is_in_script(project_of(path), path) and candidates(path, given, json=True, yaml=False, beside=True).paths:
        too_many = NotJudged(Why.MAY_USE_DEEPSPEED)
    return Read(FileKind.UNRELATED, program.document, not_judged=[too_many]) if too_many is not None else None


def _may_use_deepspeed(text: str) -> Read:
    """A program among too many for the configs beside it to be taken for its own. It is not followed."""
    reason = NotJudged(Why.MAY_USE_DEEPSPEED)
    return Read(FileKind.UNRELATED, Document(text, None, language="python"), not_judged=[reason])


def _with_assumed(launched: Read, with_configs: list[LoadedSetup], shown: str) -> Read:
    """A program with the configs that are taken for its own."""
    taken = [one.setup.program.assumed for one in with_configs if one.setup.program is not None]
    names = [one.config for one in taken if one is not None]
    is_said = any(one is not None and one.where != shown for one in taken)  # it takes a config, and what is said of it stays
    note = launched.note if is_said else f"a program that names no config; checked with {' and with '.join(names)}."
    together = any(one is not None and one.together for one in taken)
    left = [one for one in launched.not_judged if not (together and (one.at_launch or one.answer is AnsweredBy.LAUNCH))]
    return launched._replace(kind=FileKind.PYTHON, setups=with_configs, note=note, not_judged=left, without_deepspeed=False)


def _judged_alone(launched: Read, found: Read, program: PythonFile, given: Context, *, named: bool) -> Read:
    """A program whose config is not known, with what is wrong in it under any config, if it is known who loads the config."""
    told = given.is_for_accelerate or _is_for_trainer(given, program) or any(one.answer is AnsweredBy.LAUNCH for one in found.not_judged)
    is_whole = not launched.not_judged or program.cut_off is None
    is_own_loop = program.loader == Integration.DEEPSPEED or program.facts.loaders == _EITHER
    if is_own_loop and is_whole and given.facts.integration in (None, Integration.DEEPSPEED):
        return _only_program(launched, program, given)
    if program.facts.unknown_strategy is not None and not launched.setups:
        return _with_program(launched, program, given)
    if is_whole and next(program.events.of(rf"{HELD_WEAKLY}\.{DROPPED}"), None) is not None:
        return _with_program(launched, program, given)
    alone = _without_config(launched, program, given) if named and told else launched
    may_train = alone is launched and is_whole and not launched.launched_without and (named or bool(launched.not_judged))
    return _may_be_launched(launched, program, given) if may_train and _says_deepspeed(program, given) else alone


_LAUNCHED = (Integration.TRANSFORMERS, Integration.ACCELERATE)
"""What trains with DeepSpeed if the launch says so."""


def _says_deepspeed(program: PythonFile, given: Context) -> bool:
    """Whether a program that trains, or its project by what it requires, a script or a file of Accelerate, says that it may use DeepSpeed.

    Scripts that launch it and do not concern DeepSpeed say that it does not.
    """
    if program.loader not in _LAUNCHED or not program.program.trains:
        return False
    if any(concerns_deepspeed(one.text) for one in program.documents.values() if one.language == "python"):
        return True
    if program.assumed and program.assumed.without_imports:
        return True  # a part of a program, which a person posts where DeepSpeed is the topic
    project, name = project_of(program.path), os.path.basename(program.path)
    naming = [text for text in map(project.text, project.scripts) if name in text]
    if is_for_others(program.document.text, program.path) or (naming and not any(map(concerns_deepspeed, naming))):
        return False
    is_launched = bool(project.accelerate_files) or any(map(concerns_deepspeed, map(project.text, project.scripts)))
    return is_launched or given.requirement("deepspeed") is not None


def _may_be_launched(found: Read, program: PythonFile, given: Context) -> Read:
    """A program for Accelerate or the Trainer that may be launched with DeepSpeed, or passes a config that is not known, with what is wrong
    in it then.
    """
    reason, *others = found.not_judged or [_given_at_launch(program)]
    setup = Setup(program=program.program, arguments=program.arguments)
    gathered = LoadedSetup(setup, given, documents=program.documents, kinds=kinds_of(program), reason=reason)
    takes_config = any(one.integration and not (one.flag or one.is_part) for one in program.unread)
    gathered = settle(gathered) if takes_config else by_launch(gathered)
    left = found._replace(not_judged=others, without_deepspeed=False) if found.not_judged else Read(FileKind.PYTHON, found.document)
    return left._replace(setups=[gathered])


def _given_at_launch(program: PythonFile) -> NotJudged:
    """The config of a program for the Trainer or Accelerate that names none comes from its launch."""
    reason = launched_with_accelerate()
    is_trainer = program.loader == Integration.TRANSFORMERS
    return reason._replace(about=(" for the Trainer", "--deepspeed or accelerate launch --config_file")) if is_trainer else reason


def _is_for_trainer(given: Context, program: PythonFile) -> bool:
    """Whether a program makes a Trainer, and a person says that it loads the config."""
    return (
        program.loader == Integration.TRANSFORMERS
        and given.facts.integration is Integration.TRANSFORMERS
        and "integration" not in dict(given.evidence)
    )


def _only_program(found: Read, program: PythonFile, given: Context) -> Read:
    """A program that calls `deepspeed.initialize` with a config which is not known, with what is wrong in it under any config."""
    calls = [one for one in program.unread if one.integration == Integration.DEEPSPEED and not one.is_part]
    if not calls or next(program.events.of(re.escape(ENGINE)), None) is None:
        return found
    if given.facts.integration is None:
        given = given.inferring("the program calls deepspeed.initialize", integration=Integration.DEEPSPEED)
    return _with_program(found, program, given)


def _with_program(found: Read, program: PythonFile, given: Context) -> Read:
    """A program whose config is not known, with what is wrong in it under any config."""
    if not found.not_judged:
        return found
    reason, *others = found.not_judged
    setup = LoadedSetup(Setup(program=program.launched), given, documents=program.documents, kinds=kinds_of(program), reason=reason)
    return found._replace(kind=FileKind.PYTHON, setups=[settle(setup)], not_judged=others)


def _without_config(found: Read, program: PythonFile, given: Context) -> Read:
    """A program for Accelerate or the Trainer whose config nothing names, with what is wrong in it under any config of DeepSpeed.

    That DeepSpeed is used says the person who names the integration, or the program that mentions its config.
    """
    if _is_for_trainer(given, program):
        reason = found.not_judged[0] if found.not_judged else _given_at_launch(program)
        setup = LoadedSetup(Setup(program=program.program, arguments=program.arguments), given, documents=program.documents, reason=reason)
        note = "a program for the Trainer: its DeepSpeed config is not known, so only its calls are checked."
        return Read(FileKind.PYTHON, found.document, [settle(setup)], note)
    if program.loader != Integration.ACCELERATE:
        return found
    reason = found.not_judged[0] if found.not_judged else launched_with_accelerate()
    setup = LoadedSetup(Setup(program=program.program), given, documents=program.documents, reason=reason)
    if given.facts.integration is None:
        setup = setup.inferring("the program makes an Accelerator", integration=Integration.ACCELERATE)
    note = "a program for Accelerate: its DeepSpeed config is not known, so only its calls are checked."
    return Read(FileKind.PYTHON, found.document, [settle(setup)], note)
