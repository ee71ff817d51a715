"""Why the config of a launch is not known."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence

from dslint.evaluate.files import Linked, concerns_deepspeed, find, find_checkout, folders_of, makes_loader
from dslint.evaluate.python.read import PythonFile
from dslint.facts import Integration
from dslint.frameworks.registry import built_from
from dslint.job.arguments import SourcedValue, in_short
from dslint.not_judged import NotJudged, Why, what_to_pass
from dslint.setups.command import CONFIG_FLAGS, Command
from dslint.setups.program import not_known_of
from dslint.setups.project import project_of
from dslint.source.unknown import UNKNOWN


def uses_deepspeed(command: Command) -> bool:
    """Whether a launch uses DeepSpeed, as far as its launcher and its flags tell.

    A flag for the ZeRO stage is one of DeepSpeed next to a flag of a framework that builds configs, and in programs named after it.
    """
    flags = command.flags.keys() | command.launcher_flags.keys()
    if command.framework is not None and not flags.isdisjoint(command.framework.config_keys):
        return True
    if command.launcher == "deepspeed" or any("deepspeed" in name for name in flags) or _names_strategy(command):
        return True
    found = built_from(flags)
    program = os.path.basename(command.program.raw).lower() if command.program is not None else ""
    return found is not None and (bool(found[1].own) or "deepspeed" in program)


_STRATEGY = re.compile(r"([\w.+/-]*(strategy|trainer)[\w.]*=)?deepspeed(_stage_[123]\w*)?", re.IGNORECASE)
"""A strategy of Lightning by its name: as the value of a flag, or in a word of Hydra, `trainer=deepspeed_stage_2`."""


def _names_strategy(command: Command) -> bool:
    """Whether a flag or a word of a launch names a strategy of Lightning for DeepSpeed."""
    given = [one for name, one in command.flags.items() if "strategy" in name] + [one for one in command.words if "=" in one.raw]
    return any(_STRATEGY.fullmatch(str(one.value)) for one in given)


def _selects_strategy(command: Command) -> str:
    """The flag of a launch, with its value, that selects a strategy of Lightning: by a name that only Lightning has, or for its CLI."""
    given = ((name, one.value) for name, one in command.flags.items() if "strategy" in name and isinstance(one.value, str))
    found = (f"--{name} {value}" for name, value in given if _OF_LIGHTNING.fullmatch(value) or (name == _OF_CLI and value == "deepspeed"))
    return next(found, "")


_OF_LIGHTNING = re.compile(r"deepspeed_stage_[123](_offload(_nvme)?)?")
"""The names of Lightning's strategies for DeepSpeed that no other library has."""

_OF_CLI = "trainer.strategy"


def _known_of(program: PythonFile, command: Command, shown: str) -> NotJudged | None:
    """Why the program of a launch does not say what its config is, or the strategy of Lightning that the launch selects in it."""
    known = not_known_of(program, shown)
    if known and known[0].why is Why.NO_KNOWN_CALL and (strategy := _selects_strategy(command)):
        return NotJudged(Why.OF_NAMED_STRATEGY, (strategy,))
    return known[0] if known else None


def unknown_strategy(command: Command, program: PythonFile, shown: str) -> NotJudged | None:
    """That the program of a launch names a strategy which Lightning does not have; None for any other program."""
    found = next((one for one in not_known_of(program, shown) if one.why is Why.NO_STRATEGY), None)
    name = f"the launch of {command.program.raw}" if command.program is not None else "a launch"
    return found._replace(range=command.place, path="", launch=name) if found is not None else None


def why_not(command: Command, program: PythonFile | None, path: str, shown: str) -> NotJudged | None:
    """Why the config of a launch is not known; None if the launch does not use DeepSpeed."""
    name = f"the launch of {command.program.raw}" if command.program and not command.has_no_program else "a launch"
    file = _file_of_launcher(command)
    if file is not None and not uses_deepspeed(command):
        return why_no_file(command, *file, path, name)
    at = command.place
    if not uses_deepspeed(command) and not command.has_no_program:
        lost = command.launch.lost if command.launch is not None and command.launch.loses_config else None
        if lost is None:
            return None
        return NotJudged(Why.CONFIG_LOST, _ending(lost), lost.range, launch=name)
    own = command.framework.config_keys if command.framework is not None else ()
    link = next(
        (command.flags[flag] for flag in (*own, "deepspeed", *CONFIG_FLAGS) if flag in command.flags and command.flags[flag].raw), None
    )
    if link is not None and link.value is UNKNOWN:
        return NotJudged(Why.CONFIG_SET_AT_RUN_TIME, (link.raw, what_to_pass(link.raw)), link.range, launch=name)
    lost = command.launch.lost if command.launch is not None else None
    if lost is not None:
        return NotJudged(Why.PROGRAM_LOST if command.has_no_program else Why.ARGUMENT_LOST, _ending(lost), lost.range, launch=name)
    misplaced = [command.launcher_flags[flag] for flag in ("deepspeed", *CONFIG_FLAGS) if flag in command.launcher_flags]
    if misplaced and command.launcher in ("deepspeed", "torchrun"):  # the words after it are not the program that is meant, either
        return NotJudged(Why.FLAG_OF_PROGRAM, (misplaced[0].name,), misplaced[0].range, launch="a launch")
    framework = command.framework
    if framework is not None and framework.loader is Integration.TRANSFORMERS and command.complete and not command.words:
        return NotJudged(Why.WITHOUT_DEEPSPEED, (framework.name,), at, launch=name)
    given = _given_to_program(command)
    unseen = (
        NotJudged(Why.GIVEN_TO_PROGRAM, (given.shown if given.name.startswith("-") else given.raw,), given.range, launch=name)
        if given
        else None
    )
    if program is None:
        return unseen or NotJudged(Why.PROGRAM_ELSEWHERE, range=at, launch=name)
    if (known := _known_of(program, command, shown)) is not None:
        return known._replace(range=at, path="", launch=name)
    of_hydra = command.flags.get("config_name")
    if of_hydra is not None and of_hydra.raw and any("hydra.main" in one.text for one in program.documents.values()):
        return NotJudged(Why.OF_HYDRA, (of_hydra.shown,), of_hydra.range, launch=name)
    is_loader_seen = program.loader is not None  # a flag such as --deepspeed_checkpoint only names a file to read
    if not is_loader_seen or (command.launcher == "deepspeed" and not any("deepspeed" in flag for flag in command.flags)):
        if strategy := _selects_strategy(command):
            return NotJudged(Why.OF_NAMED_STRATEGY, (strategy,), at, launch=name)
        by_launcher = (
            command.launcher == "deepspeed" and not any("deepspeed" in flag for flag in command.flags) and not _names_strategy(command)
        )
        silent = by_launcher and not any(concerns_deepspeed(one.text) or makes_loader(one.text) for one in program.documents.values())
        return unseen or NotJudged(Why.PROGRAM_WITHOUT_WORD if silent else Why.PROGRAM_MAY_SET, range=at, launch=name)
    return unseen or NotJudged(Why.PROGRAM_SETS, range=at, launch=name)


_FILE_OF_CONFIG = re.compile(
    r"(?:.*[/=])?(?:[^/=]*[^/=a-z])?(?:ds|deepspeed|zero|z[0-3])(?:[^/=a-z][^/=]*)?\.(?:json|hjson|ya?ml)", re.IGNORECASE
)
_NAME_OF_CONFIG = re.compile(r"(?:.*[_.-])?(?:ds|deepspeed)[_-](?:\w+[_-])?(?:config|cfg|conf|json|file)\w*", re.IGNORECASE)
"""The flag `--deepspeed_config_path` of OpenFold, `--ds_cfg`; not `--deepspeed_checkpoint`."""


def _given_to_program(command: Command) -> SourcedValue | None:
    """The first argument of a program that looks as if it named a DeepSpeed config, by its own name or by that of a file."""
    by_name = (one for name, one in command.flags.items() if one.raw and _NAME_OF_CONFIG.fullmatch(name))
    by_file = (one for one in [*command.flags.values(), *command.words] if _FILE_OF_CONFIG.fullmatch(one.raw))
    return next(by_name, None) or next(by_file, None)


def _ending(lost: SourcedValue) -> tuple[str, ...]:
    """What ends a command, before which argument, and where."""
    return lost.value.value, lost.name, lost.where


_OTHER_WAYS = frozenset({"multi_gpu", "tpu", "tpu_use_cluster", "use_fsdp", "use_megatron_lm", "cpu", "config_file"})
"""Flags of `accelerate launch` with which the default file of the machine does not decide whether DeepSpeed is used."""


def takes_default_file(command: Command, files: Sequence[str] = ()) -> NotJudged | None:
    """Why it is not known whether a launch of Accelerate without a file uses DeepSpeed; None for any other launch.

    `files` are those of the project with which Accelerate uses DeepSpeed: with the only one, a launch that names it would be checked.
    Source: accelerate/commands/launch.py, _validate_launch_command.
    """
    if command.launcher != "accelerate" or command.program is None or not command.launcher_flags.keys().isdisjoint(_OTHER_WAYS):
        return None
    only = os.path.relpath(files[0]) if len(files) == 1 else ""
    if command.launch is not None and command.launch.may_hold_more:
        return NotJudged(Why.MAY_NAME_FILE, (), command.place, launch=f"the launch of {command.program.raw}")
    why = Why.MAY_BE_DEFAULT_FILE if only else Why.DEFAULT_FILE
    return NotJudged(why, (only,), command.place, launch=f"the launch of {command.program.raw}")


def _file_of_launcher(command: Command) -> tuple[str, SourcedValue] | None:
    """The file that says whether a launch uses DeepSpeed, with what it is: Accelerate's config, or the training file of a framework."""
    if command.launcher == "accelerate":
        given = command.launcher_flags.get("config_file")
        return ("Accelerate config", given) if given is not None and given.raw else None
    framework = command.started or (command.framework if command.framework is not None and command.framework.own is not None else None)
    if framework is None:
        return None
    own = framework.launcher_file
    if own is not None and own.flag in command.flags:
        return "Accelerate config", command.flags[own.flag]
    words = [word for word in command.words if word.value is UNKNOWN or str(word.value).lower().endswith((".yaml", ".yml", ".json"))]
    words = words if not command.flags else []  # an unknown word could be more flags
    config = next((command.flags[name] for name in framework.file_flags if name in command.flags), None)
    named = [config] if config is not None else words[:1] if framework.takes_file or len(words) == 1 else []
    return ("training file", named[0]) if named else None


def why_no_file(command: Command, what: str, given: SourcedValue, path: str, name: str) -> NotJudged | None:
    """Why a file of the launcher is not read; None if it is there, and does not name DeepSpeed."""
    if given.value is UNKNOWN:
        return NotJudged(Why.FILE_SET_AT_RUN_TIME, (what, in_short(given.raw), what_to_pass(given.raw)), given.range, launch=name)
    if beside(command, str(given.value), path) is None:
        framework = command.started
        ships = framework is not None and framework.launcher_file is not None
        where = f"neither a file in this project nor a config of {framework.name}" if framework and ships else "not a file in this project"
        meant = project_of(path).config_meant(os.path.basename(str(given.value)))
        about = (what, str(given.value), where)
        if meant:
            return NotJudged(Why.NO_FILE_BUT_ANOTHER, (*about, meant), given.range, launch=name)
        return NotJudged(Why.NO_FILE, about, given.range, launch=name)
    return None


def beside(command: Command, link: str, path: str) -> Linked | None:
    """A file that a command names: from the folder that the script has changed to, or as it stands."""
    here = (find(os.path.join(command.folder, link), path) if command.folder else None) or find(link, path)
    return here or (find_checkout(link, path) if link.startswith("/") or _begins_above(link, path) else None)


def _begins_above(link: str, path: str) -> bool:
    """Whether a relative path begins with a folder that is not in the project: the command starts in a folder above it."""
    first = link.partition("/")[0]
    return first not in ("", ".", "..", "~") and "$" not in first and not any(map(os.path.isdir, folders_of(first, path)))
