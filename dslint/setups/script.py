"""Read the setups in a script or a launch command."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence

from dslint.config.context import Context
from dslint.config.detect import FileKind
from dslint.evaluate.files import concerns_deepspeed
from dslint.evaluate.python.files import text_of
from dslint.evaluate.shell.conditions import Absent
from dslint.evaluate.shell.pieces import TextPiece
from dslint.evaluate.shell.script import Script, read_script
from dslint.evaluate.shell.syntax import NoParser
from dslint.frameworks.programs import read_python
from dslint.frameworks.registry import built_from
from dslint.not_judged import NotJudged, Why
from dslint.setups.command import Command, read_arguments, read_command
from dslint.setups.gather import LoadedSetup, Read
from dslint.setups.hydra_options import options_of_hydra
from dslint.setups.launch_program import file_of_program
from dslint.setups.launches import ReadLaunch, read_launch
from dslint.setups.lost import begin_of
from dslint.setups.options_alone import command_of_options
from dslint.setups.program import not_known_of
from dslint.setups.project import project_of
from dslint.setups.unknown_config import beside, takes_default_file
from dslint.source.config_text import unread_parts
from dslint.source.ranges import range_of
from dslint.source.store import store
from dslint.source.tree import Document


def read_shell(text: str, path: str, shown: str, given: Context, *, named: bool, make: bool = False) -> Read | None:
    """Read a shell text. None for a discovered file that launches nothing with DeepSpeed."""
    found: Read | None = None
    for absent in _ways(text):
        try:
            script, commands = _script(text, path, shown, given, absent, make=make)
        except NoParser:
            return not_read(Document(text, None, language="text"))
        found = _read_launches(script, commands, path, given, named=named)
        if not script.left_out or (found is not None and found.kind is not FileKind.UNRELATED):
            break
    if found is None and not named and concerns_deepspeed(text):  # a person who names it is told so, too
        document = script.source[1]
        unreached = _unreached(document, commands, cut_off=script.cut_off is not None)
        return Read(FileKind.UNRELATED, document, note=unreached) if unreached is not None else None
    return found


def programs_started(text: str, path: str, shown: str, given: Context, *, make: bool = False) -> Sequence[str]:
    """The paths of the programs that commands of a shell text start, read in any way. They are not read themselves.

    They are kept: each program of a project asks each script with its name in it.
    """
    seen = given.environment
    key = ("started", path, shown, text, id(seen), make)
    return store().found(key, lambda: (seen, list(_started(text, path, shown, given, make=make))))[1]


def commands_of(text: str, path: str, shown: str, given: Context) -> list[Command]:
    """The commands of a shell text that launch something, also those that launch no DeepSpeed training."""
    try:
        return _script(text, path, shown, given, "empty", make=False)[1]
    except NoParser:
        return []


def _started(text: str, path: str, shown: str, given: Context, *, make: bool) -> Iterator[str]:
    for absent in _ways(text):
        try:
            script, commands = _script(text, path, shown, given, absent, make=make)
        except NoParser:
            return
        yield from (linked.path for command in commands if (linked := file_of_program(command, path)) is not None)
        if not script.left_out:
            return


def _ways(text: str) -> tuple[Absent, ...]:
    """How to read what is not given: without arguments, or else with those that make a script launch something."""
    return ("empty", "any", "true") if concerns_deepspeed(text) else ("empty",)


def _script(text: str, path: str, shown: str, given: Context, absent: Absent, *, make: bool) -> tuple[Script, list[Command]]:
    """A script with its commands that launch something. It is followed once a run, for all that ask about it."""
    seen = given.environment

    def read() -> tuple[Mapping[str, str], Script, list[Command]]:
        script = read_script(text, path, shown, seen, make=make, absent=absent)
        return seen, script, _commands(script)

    # Of the context only the variables count, which all folders of a project share. They have no hash, and are kept with the result, so
    # that no others get their id.
    return store().found(("script", path, shown, text, id(seen), absent, make), read)[1:]


def _commands(script: Script) -> list[Command]:
    found: list[Command] = []
    lost: set[tuple[str, int]] = set()
    for launched in script.launched:
        if begin_of(launched) in lost:
            continue  # the arguments of the command above it
        command = read_command(launched, script)
        if command is not None:
            found.append(command)
            lost |= {command.rest} if command.rest is not None else set()
    begins_so = not found and _FLAG_FIRST.match(script.source.document.text) is not None  # not the arguments in a job file
    of_options = command_of_options(script) if begins_so else None
    return [of_options] if of_options is not None else found


def _unreached(document: Document, commands: Sequence[Command], *, cut_off: bool) -> str | None:
    """What is said of a script that reaches no launch, but has the text of one; None if it has none."""
    by_variable = _BY_VARIABLE.search(document.text) if not commands and "deepspeed" in document.text.lower() else None
    if by_variable is not None:
        line = document.position(by_variable.start(1))[0]
        return f"line {line} starts a program with {by_variable[1]}, which is set at run time. Check the command with --command."
    reaches_none = all(command.launcher == "python" for command in commands)
    passed_over = _LAUNCHER.search(document.text) if reaches_none and not cut_off else None
    if passed_over is None:
        return None
    line = document.position(passed_over.start(1))[0]
    why = "the branch is not taken, or it ends before"
    return f"line {line} starts {passed_over[1]}, but the script does not reach that line: {why}; not checked."


def not_read(document: Document) -> Read:
    """A file with shell commands where no parser for them is installed, as in a browser."""
    reason = NotJudged(Why.NO_SHELL_PARSER)
    return Read(FileKind.UNRELATED, document, not_judged=[reason])


def read_launches(script: Script, path: str, given: Context, *, named: bool) -> Read | None:
    """The setups of the launches in a script. None for a discovered file that launches nothing with DeepSpeed."""
    return _read_launches(script, _commands(script), path, given, named=named)


def _read_launches(script: Script, commands: list[Command], path: str, given: Context, *, named: bool) -> Read | None:
    shown, document = script.source
    setups: list[LoadedSetup] = []
    not_judged: list[NotJudged] = []
    said: list[str] = []
    launches: list[ReadLaunch] = []
    open_: list[NotJudged] = []
    for command in commands or [read_arguments(one, script) for one in script.arguments]:
        launch = _read_launch(command, document, path, shown, given)
        if command.infers is not None and launch.program is None and launch.reason is None:
            setups += launch.setups
            continue
        not_judged += [*([launch.reason] if launch.reason else []), *launch.unread]
        setups += launch.setups
        launches.append(launch)
        files = project_of(path).accelerate_files if command.launcher == "accelerate" else []
        default = takes_default_file(command, files) if named or files or _concerns_deepspeed(launch) else None
        open_ += [default] if default is not None else []
        passing = _passing_config(launch, path) if any(_is_of_flags(gathered) for gathered in launch.setups) else None
        if passing is not None:
            not_judged += _not_known_in(passing, launch.command, shown)
        said += [_said(launch, gathered, passing) for gathered in launch.setups]
    if script.cut_off is not None:
        not_judged.append(_cut_off(script.cut_off, shown))
    if not setups and not not_judged:
        programs = (
            [one for launch in launches for one in _not_known_of(launch, shown) or _settings_of(launch, path) or options_of_hydra(launch)]
            if named
            else []
        )
        if programs or open_:
            return Read(FileKind.SCRIPT, document, [], None, programs or open_)
        bare = next((launch.command for launch in launches if _gives_no_config(launch.command)), None)
        note = _unreached(document, [launch.command for launch in launches], cut_off=script.cut_off is not None)
        without = bare is not None and note is None
        if note is None:
            why = f": {bare.launcher} gives {bare.program.raw} no --deepspeed" if bare is not None and bare.program is not None else ""
            if (flag := _FLAG_FIRST.match(document.text)) is not None:
                begins = f"it begins with {flag[1]}, and the command that takes this flag is missing"
                why = f": {begins}. Write it in front, as in `deepspeed train.py {flag[1]} ...`"
            note = f"no command in this file launches a DeepSpeed training{why}; not checked."
        return Read(FileKind.UNRELATED, document, note=note, launched_without=without) if named else None
    return Read(FileKind.SCRIPT, document, setups, _in_a_sentence(list(dict.fromkeys(said))), not_judged)


def _read_launch(command: Command, document: Document, path: str, shown: str, given: Context) -> ReadLaunch:
    """The setups of a command, read once a run: a script is read for itself, for its programs and for their configs."""
    # Neither has a hash. They are kept with the result, so that no others get their ids.
    key = ("launch", id(command), id(given))
    return store().found(key, lambda: (command, given, read_launch(command, document, path, shown, given)))[2]


_LAUNCHER = re.compile(
    r"(?m)^[ \t]*+(?:\w+=(?:\"[^\"\n]*\"|'[^'\n]*'|[^\s\"'])*+[ \t]++|(?:exec|nohup|srun|env)[ \t]++)*+"
    r"(deepspeed|torchrun|accelerate launch)(?=[ \t]+[-\w./$\"{])"
)
"""A command of a launcher, for a script that reaches none: in a branch that is not taken, behind an `exit`, in a
function that nothing calls, or in a file that it writes.
"""

_BY_VARIABLE = re.compile(
    r"(?m)^[ \t]*+(?:\w+=\S*[ \t]++|(?:exec|nohup|srun|env)[ \t]++)*+(\$\{?\w+\}?)[ \t]+(?:[^\n#;|]*[ \t])?[\w./-]+\.py\b"
)
"""A command that a variable holds, with a program behind it: only the run knows what launches it."""

_FLAG_FIRST = re.compile(r"(?:\s+|#[^\n]*\n)*+(--[a-z][\w-]+)(?=[ =\n\\]|$)")
"""A flag where a script begins: people post the options of a command without it."""


def _gives_no_config(command: Command) -> bool:
    """Whether a command has flags of the Hugging Face Trainer, and none that can name a config of DeepSpeed."""
    if command.launcher in ("deepspeed", "accelerate") or command.framework is not None or not command.names_flags or command.words:
        return False
    flags = [name.replace("-", "_") for name in command.flags]
    named = any("deepspeed" in name or "config" in name or "fsdp" in name for name in flags)
    return not named and {"output_dir", "per_device_train_batch_size"} <= {*flags}


_MOST_SAID = 3
"""The most launches that the note on a script names."""


def joined_notes(notes: list[str]) -> str:
    """Notes on the parts of a file as one sentence."""
    return "; ".join([*(one.removesuffix(".") for one in notes[:-1]), *notes[-1:]])


def _in_a_sentence(said: list[str]) -> str | None:
    more = len(said) - _MOST_SAID
    named = said if more <= 1 else [*said[:_MOST_SAID], f"{more} more launches"]
    return "; ".join(named) + "." if said else None


def _concerns_deepspeed(launch: ReadLaunch) -> bool:
    """Whether a file of the program that a command starts is about DeepSpeed."""
    return launch.program is not None and any(concerns_deepspeed(one.text) for one in launch.program.documents.values())


def _not_known_of(launch: ReadLaunch, shown: str) -> list[NotJudged]:
    """Why the config of a launch is not known whose command does not show that it uses DeepSpeed, but its program does."""
    program, command = launch.program, launch.command.program
    if program is None or command is None:
        return []
    name = f"the launch of {command.raw}"
    return [one._replace(range=command.range, path="", launch=name) for one in not_known_of(program, shown)]


def _settings_of(launch: ReadLaunch, path: str) -> list[NotJudged]:
    """Why a launch is not judged with the file of settings that it gives to a program, if that file describes a training with DeepSpeed:
    `python tools/train.py config.py` of MMEngine's projects. What the program does with them is not followed.
    """
    command = launch.command
    given = next((word.value for word in command.words if isinstance(word.value, str) and word.value.endswith(".py")), None)
    linked = beside(command, given, path) if given is not None and command.program is not None else None
    text = text_of(linked.path) if linked is not None else None
    if command.program is None or linked is None or text is None or not concerns_deepspeed(text):
        return []
    settings = read_python(text, linked.shown, linked.path)
    if settings is None or not any(call.through for call in settings.calls):
        return []
    return [NotJudged(Why.SETTINGS_FILE, (linked.shown,), command.place, launch=f"the launch of {command.program.raw}")]


def _cut_off(at: TextPiece, shown: str) -> NotJudged:
    """Why the rest of a script is not judged; `at` is the first statement that is not followed to its end."""
    place = range_of(at.source.document, at.span)
    line = f"line {place.start.line}" + (f" of {at.source.shown}" if at.source.shown != shown else "")
    return NotJudged(Why.TOO_LONG_SCRIPT, (line,), place if at.source.shown == shown else None)


_PASSES_CONFIG = re.compile(r"\bDeepSpeedPlugin\((?:[^()]|\([^()]*\))*\bhf_ds_config\s*=(?!\s*None\b)")


def _is_of_flags(gathered: LoadedSetup) -> bool:
    """Whether the config of a launch is the one that flags of Accelerate's launcher describe, as far as the program is followed."""
    return gathered.kinds.get(gathered.setup.config or "") is FileKind.SCRIPT and gathered.setup.made and gathered.accelerate is None


def _passing_config(launch: ReadLaunch, path: str) -> str | None:
    """The path of a module of the project that passes a config to a plugin: one that a recipe names is not seen where it is made."""
    return project_of(path).program_matching(_PASSES_CONFIG, "hf_ds_config") if launch.command.launcher == "accelerate" else None


def _not_known_in(module: str, command: Command, shown: str) -> list[NotJudged]:
    """Why the config that a module of the project passes to a plugin is not judged with a launch."""
    if command.program is None:
        return []
    at, name = os.path.relpath(module).replace(os.sep, "/"), f"the launch of {command.program.raw}"
    given = read_python(text_of(module) or "", at, module)
    reasons = not_known_of(given, shown) if given is not None else []
    if not reasons:  # the module has a config that is read with it
        return [NotJudged(Why.SETTINGS_FILE, (at,), command.program.range, launch=name)]
    return [one._replace(range=command.program.range, path="", launch=name) for one in reasons]


def _said(launch: ReadLaunch, gathered: LoadedSetup, passing: str | None = None) -> str:
    command = launch.command
    if command.is_options:
        owner = (
            command.framework.name if command.framework is not None else command.program.raw if command.program is not None else "a program"
        )
        return f"options without their command, taken for those of {owner}{_config_of(command, gathered, passing)}"
    framework = f" with {command.started.name}" if command.started is not None else ""
    program = "no program" if command.has_no_program else command.program.raw if command.program else f"a training{framework}"
    program += " (not in this project)" if any(one.why is Why.PROGRAM_UNSEEN for one in launch.unread) else ""
    world_size = gathered.facts.world_size
    stated = gathered.setup.launch.world_size if gathered.setup.launch is not None else None
    of_option = " (--world-size)" if stated not in (None, world_size) else ""  # which replaces what the file says
    ranks = f" on {world_size:,} rank{'s' * (world_size > 1)}{of_option}" if world_size else ""
    return f"{command.launcher} launches {program}{ranks}{_config_of(command, gathered, passing)}"


def _config_of(command: Command, gathered: LoadedSetup, passing: str | None = None) -> str:
    """Where the config of a launch is, and what a program that is not followed is taken for. `passing` is a module that passes another."""
    config = gathered.setup.config
    if config is None:
        return ""
    taken = gathered.setup.program.assumed if gathered.setup.program is not None else None
    if taken is not None:
        return f", perhaps with {taken.config}"
    if gathered.kinds.get(config) is FileKind.SCRIPT:
        of_flags = _is_of_flags(gathered)
        if of_flags and passing is not None:
            return f", perhaps with the config that {os.path.relpath(passing).replace(os.sep, '/')} passes to DeepSpeedPlugin"
        root = gathered.config.root if gathered.config is not None else None
        if of_flags and root is not None and any(unread_parts(root)):
            built = built_from(command.flags)
            like = f" as {built[0].name} does" if built is not None and not gathered.is_in_part else ""
            return f" with a DeepSpeed config that the program {f'builds{like}' if like else 'may build'}, in part from its flags"
        if not of_flags:
            return " with the DeepSpeed config that the script writes"
        by_default = takes_default_file(command) is not None
        return f" with the DeepSpeed config that its flags describe{_AND_DEFAULT_FILE if by_default else ''}"
    if gathered.setup.made or (gathered.config is not None and gathered.config.language == "python"):
        return f" with the DeepSpeed config of {config}"
    if _does_not_use_deepspeed(gathered):
        return f", with flags that name DeepSpeed config {config}"
    return f" with DeepSpeed config {config}"


_AND_DEFAULT_FILE = " and, if there is one, the file that accelerate config wrote on that machine"
"""What Accelerate's launcher reads without `--config_file`: flags override the file."""


def _does_not_use_deepspeed(gathered: LoadedSetup) -> bool:
    """Whether no file of the program of a launch has a word that concerns DeepSpeed, so that nothing shows what reads the config."""
    if gathered.facts.integration is not None or gathered.setup.program is None or gathered.setup.arguments is not None:
        return False
    return not any(concerns_deepspeed(one.text) for one in gathered.documents.values() if one.language == "python")
