"""The setups of a launch command: the config that it names or that its program builds, with the files around it."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import replace

from dslint.config.context import Context
from dslint.config.detect import FileKind
from dslint.evaluate.files import is_outside
from dslint.evaluate.python.libraries.dataclasses import is_trainers
from dslint.evaluate.python.notes import ConfigCall
from dslint.evaluate.python.read import PythonFile
from dslint.facts import Integration
from dslint.frameworks.base import ConfigFlags
from dslint.frameworks.registry import built_from
from dslint.job.arguments import Arguments, SourcedValue
from dslint.job.events import Events
from dslint.job.model import Program, Setup
from dslint.not_judged import NotJudged, Why
from dslint.record import Record
from dslint.setups.candidates import candidates, candidates_meant
from dslint.setups.command import CONFIG_FLAGS, Command
from dslint.setups.gather import (
    LoadedSetup,
    named_in,
    settle,
    with_model,
)
from dslint.setups.launch_arguments import (
    own_arguments,
)
from dslint.setups.launch_command import follow_hostfile, gather_command, is_of_accelerate, with_program
from dslint.setups.launch_program import file_of_program, program_of
from dslint.setups.launch_without_config import has_other_program, refused_config, starts_trainer_alone, unread_flag
from dslint.setups.only_config import taken_for
from dslint.setups.own_files import read_own_launch
from dslint.setups.program import gather_call, inference_of, launched_with_accelerate
from dslint.setups.project import project_of
from dslint.setups.unknown_config import takes_default_file, unknown_strategy, uses_deepspeed, why_not
from dslint.setups.unseen_program import unread_of
from dslint.source.tree import Document, Mapping
from dslint.source.unknown import UNKNOWN


class ReadLaunch(Record):
    """A launch command with the program that it starts and its setups. `reason` says why its config is not known, `unread`
    what of its program is not judged beside a config that is.
    """

    command: Command
    program: PythonFile | None
    setups: Sequence[LoadedSetup] = ()
    reason: NotJudged | None = None
    unread: Sequence[NotJudged] = ()


def read_launch(command: Command, document: Document, path: str, shown: str, given: Context) -> ReadLaunch:
    """The setups of a command: with the config that it names, otherwise with those that its program builds."""
    if command.infers is not None and not has_other_program(command, path):
        return ReadLaunch(command, None, _refused(command, document, path, shown, given))
    by_framework = read_own_launch(command, document, path, shown, given)
    if isinstance(by_framework, NotJudged):
        found = ReadLaunch(command, None, reason=by_framework)
    elif by_framework is not None:
        found = ReadLaunch(command, None, [by_framework])
    else:
        found = _read_launch(command, document, path, shown, given)
        if any(one.config is not None and not one.built_by for one in found.setups):
            found = found._replace(unread=unread_of(command, found.program, path))
    if all(one.config is None for one in found.setups):
        found = _with_candidates(found, document, path, shown, given)
    if all(one.config is None for one in found.setups) and takes_default_file(command) is not None:
        found = _with_default_file(found, document, path, shown, given)
    own = own_arguments(command, shown)
    if own is not None:
        found = found._replace(setups=[_with_own(one, own) for one in found.setups])
    if found.program is not None:
        files = frozenset(os.path.abspath(one.path) for one in found.program.sources.all)
        return found._replace(setups=[one._replace(launched=files) for one in found.setups])
    return found


def _refused(command: Command, document: Document, path: str, shown: str, given: Context) -> list[LoadedSetup]:
    """The setup of a command that does not train, if it refuses an argument."""
    refused = refused_config(command, document, path)
    if refused is None:
        return []
    documents = {shown: document, **refused[1]}
    return [settle(LoadedSetup(Setup(refused=refused[0]), given, None, documents, kinds={shown: FileKind.SCRIPT}))]


def _read_launch(command: Command, document: Document, path: str, shown: str, given: Context) -> ReadLaunch:
    program = program_of(command, path)
    unread = unread_flag(command, program)
    unconfigured = command.program if unread is None and starts_trainer_alone(command, program) else None
    if unread is not None or unconfigured is not None:
        setup = Setup(launch=command.launch, unread=unread, unconfigured=unconfigured)
        gathered = LoadedSetup(setup, given, documents={shown: document}, kinds={shown: FileKind.SCRIPT})
        if program is not None and program.loader == Integration.TRANSFORMERS:
            gathered = with_program(gathered, program)
            gathered = gathered.but(program=_without_deepspeed(gathered.setup.program))
        return ReadLaunch(command, program, [settle(follow_hostfile(gathered, command, path))])
    named = gather_command(command, program, document, path, shown, given)
    unused = named if named is not None and program is not None and _is_left_to_program(named, program) else None
    if unused is not None:
        given, named = _with_launched_ranks(given, unused), None
    if named is not None and (program is None or not (_is_changed_by(named, program) or _is_passed_over_by(named, program))):
        return ReadLaunch(command, program, [settle(named)])
    setups = _of_program(command, program, document, shown, given)
    if all(_is_known_in_part(setup) for setup in setups):  # the flags may say what the function that is not in the project does
        setups = _of_flags(command, document, shown, given) or setups
    reason = None if setups else why_not(command, program, path, shown)
    if reason is not None and reason.why is Why.PROGRAM_ELSEWHERE and (linked := file_of_program(command, path)) is not None:
        reason = reason._replace(why=Why.PROGRAM_BROKEN, about=(linked.shown,))
    if reason is None and not setups and program is not None:
        reason = unknown_strategy(command, program, shown)
    if reason is None and not setups and program is not None and given.is_for_accelerate:
        setups = _of_default_file(command, program, document, shown, given)
    launch = command.launch
    parses = command.launcher == "deepspeed" and program is not None and bool(program.events.all)
    inference = inference_of(program) if program is not None and not setups else None
    if inference is not None and reason is None and command.program is not None:
        reason = NotJudged(Why.INFERENCE, (inference.at.where,), command.place, launch=f"the launch of {command.program.raw}")
    states = launch is not None and (launch.flags or launch.visible or launch.not_a_program or launch.lost or parses)
    refuses = reason is not None and reason.why is Why.NO_STRATEGY
    if inference is not None or refuses or (reason is not None and states):
        missing = _missing_accelerate_file(command, reason, path)
        bare = LoadedSetup(
            Setup(launch=command.launch, missing=missing), given, documents={shown: document}, kinds={shown: FileKind.SCRIPT}, reason=reason
        )
        if parses or refuses or inference is not None or (missing and program is not None):
            bare = with_program(bare, program)  # the launcher passes a flag that its parser may not know
        setups = [settle(follow_hostfile(bare, command, path))]  # its config is not known; rules about the launcher do not need it
    if unused is not None:
        setups = [_with_accelerate_file(one, unused) for one in setups]
    return ReadLaunch(command, program, setups, reason)


def _missing_accelerate_file(command: Command, reason: NotJudged | None, path: str) -> tuple[SourcedValue, ...]:
    """The flag of Accelerate's launcher that names a file which is not there."""
    given = command.launcher_flags.get("config_file")
    if command.launcher != "accelerate" or given is None or not isinstance(given.value, str) or is_outside(given.value, path):
        return ()
    return (given,) if reason is not None and reason.why in (Why.NO_FILE, Why.NO_FILE_BUT_ANOTHER) and given.value in reason.about else ()


def _with_candidates(found: ReadLaunch, document: Document, path: str, shown: str, given: Context) -> ReadLaunch:
    """A launch that names its config by a variable, with each of the files that can be meant."""
    command, program = found.command, found.program
    reason = found.reason or next((one.not_judged for one in found.setups if one.not_judged is not None), None)
    if program is None or reason is None:
        return found
    own = next((one for one in program.unread if one.flag.lstrip("-") in command.flags and not (one.is_part or one.is_in_use)), None)
    names = ((own.flag.lstrip("-"),) if own is not None else ()) + ("deepspeed", *CONFIG_FLAGS)
    link = next((command.flags[name] for name in names if name in command.flags), None)
    if link is None and own is None:
        own, link = _read_by_program(command, program)
    by_launcher = link is None and command.launcher == "accelerate"
    link = command.launcher_flags.get("config_file") if by_launcher else link
    if link is None or link.value is not UNKNOWN or not link.raw:
        return found
    setups: list[LoadedSetup] = []
    meant = candidates_meant(link.raw, program.path, path, given, yaml=by_launcher)
    for one in meant.paths:
        flag, name = replace(link, value=one), link.name.lstrip("-")
        if own is not None:
            call = replace(own, given=replace(own.given, value=one), reason=None, arguments=program.arguments)
            of_call = gather_call(call, program, program.path, program.path, given, single=True)
            setup: LoadedSetup | None = of_call.with_file(shown, document, FileKind.SCRIPT).but(launch=command.launch)
        else:
            given_so = {**(command.launcher_flags if by_launcher else command.flags), name: flag}
            changed = replace(command, launcher_flags=given_so) if by_launcher else replace(command, flags=given_so)
            setup = gather_command(changed, program, document, path, shown, given)
        setups += [setup] if setup is not None else []
    setups = taken_for(setups, link.where, meant.seen, by_launch=by_launcher)
    return found._replace(setups=setups, reason=reason) if setups else found


def _with_default_file(found: ReadLaunch, document: Document, path: str, shown: str, given: Context) -> ReadLaunch:
    """A launch of Accelerate that names no file, with the only one near it that trains with DeepSpeed: it may be that of its machine.

    Where a script of the project names the file, its author names it where it is meant.
    """
    command, project = found.command, project_of(path)
    meant = candidates(path, given, json=False, yaml=True)
    if len(meant.paths) != 1 or len(project.accelerate_files) != 1:
        return found
    name = os.path.basename(meant.paths[0])
    if any(name in project.text(one) for one in project.scripts):
        return found
    file = os.path.relpath(meant.paths[0], os.path.dirname(os.path.abspath(path))).replace(os.sep, "/")
    flag = SourcedValue(file, "--config_file", file, shown, command.place)
    launched = replace(command, launcher_flags={**command.launcher_flags, "config_file": flag})
    setup = gather_command(launched, found.program, document, path, shown, given)
    if setup is None:
        return found
    if setup.setup.program is None and command.program is not None:  # one of a framework, or one that is not in the project
        loader = command.framework.loader if command.framework is not None else None
        setup = setup.but(program=Program(command.program.raw, loader))
    setups = taken_for([setup], found.program.path if found.program is not None else flag.where, meant.seen, by_launch=True)
    return found._replace(setups=setups, reason=None, unread=unread_of(command, found.program, path)) if setups else found


def _read_by_program(command: Command, program: PythonFile) -> tuple[ConfigCall | None, SourcedValue | None]:
    """The call that takes what a program reads from a file, and the word of its command that can name the file, if there is one of each."""
    calls = [one for one in program.unread if not (one.flag or one.is_part or one.is_in_use)]
    words = [one for one in command.flags.values() if one.value is UNKNOWN and one.raw.endswith(".json")]
    return (calls[0], words[0]) if len(calls) == len(words) == 1 else (None, None)


def _without_deepspeed(program: Program | None) -> Program | None:
    """A program that trains without DeepSpeed, for rules: what it parses, and the arguments of its Trainer."""
    if program is None:
        return None
    kept = tuple(one for one in program.events.all if is_trainers(one.name) or one.name.startswith(_PARSERS))
    return Program(program.path, program.loader, events=Events(kept), reads_words=program.reads_words)


_PARSERS = ("argparse.", "transformers.HfArgumentParser", "trl.TrlParser", "click.", "fire.", "hydra.", "tyro.")


def _of_default_file(command: Command, program: PythonFile, document: Document, shown: str, given: Context) -> list[LoadedSetup]:
    """The setup of a launch with the default file of Accelerate, which is not known: only its program is checked."""
    if takes_default_file(command) is None or program.loader != Integration.ACCELERATE:
        return []
    reason = launched_with_accelerate()._replace(range=command.place)
    setup = LoadedSetup(Setup(launch=command.launch), given, documents={shown: document}, kinds={shown: FileKind.SCRIPT}, reason=reason)
    return [settle(with_program(setup, program))]


def _is_changed_by(named: LoadedSetup, program: PythonFile) -> bool:
    """Whether the program reads the config that its launch names, and passes a dict to DeepSpeed that it makes of it."""
    calls = [call for call in program.calls if call.integration == Integration.DEEPSPEED and call.config is not None]
    return named.setup.config in program.documents and bool(calls)


def _is_passed_over_by(named: LoadedSetup, program: PythonFile) -> bool:
    """Whether the launch names a config for training arguments, and the program has no Trainer: its engines get a config of its own.

    Programs that grew out of one for the Trainer keep its parser, and their scripts keep `--deepspeed zero2.json`.
    """
    link = named.setup.link
    if link is None or link.name.lstrip("-") != "deepspeed" or not program.is_whole:
        return False
    if program.loader == Integration.TRANSFORMERS:
        return _makes_arguments_anew(program)
    return (
        program.loader == Integration.DEEPSPEED
        and bool(program.calls)
        and all(call.config is not None and call.in_args is None for call in program.calls)
    )


def _makes_arguments_anew(program: PythonFile) -> bool:
    """Whether the Trainer gets training arguments that the program makes after it has parsed those of its launch, without their config."""
    made = [
        one
        for one in program.events.all
        if is_trainers(one.name) and "." not in one.name.removeprefix("transformers.").removeprefix("trl.")
    ]
    given = [one.argument("args", 1) for one in program.events.of(_TRAINER)]
    if not made or not given or any(not one.complete or "deepspeed" in one.arguments for one in made):
        return False
    texts = [one.text for one in program.documents.values() if one.language == "python"]
    classes = "|".join({re.escape(one.name.rpartition(".")[2]) for one in made})
    for one in given:
        if one is None or not one.raw.isidentifier():
            return False
        bound = [found[1] for text in texts for found in re.finditer(rf"(?m)^[^#\n=(]*\b{one.raw}\b[^#\n=(]*=(?!=)[ \t]*(.*)$", text)]
        if not bound or not all(re.match(rf"(\w+\.)*({classes})\(", value) for value in bound):
            return False
    return True


_TRAINER = r"(transformers|trl)\.(\w+\.)?\w*Trainer"


def _is_known_in_part(setup: LoadedSetup) -> bool:
    root = setup.config.root if setup.config is not None else None
    return isinstance(root, Mapping) and root.may_have_more


def _of_program(command: Command, program: PythonFile | None, document: Document, shown: str, given: Context) -> list[LoadedSetup]:
    """The setups with the configs that the program passes on itself."""
    setups: list[LoadedSetup] = []
    for call in program.calls if program is not None else ():
        assert program is not None
        if not call.integration and not uses_deepspeed(command):
            continue
        of_call = gather_call(call, program, program.path, program.path, given, single=len(program.calls) == 1)
        setups.append(settle(of_call.with_file(shown, document, FileKind.SCRIPT).but(launch=command.launch)))
    return setups


def _of_flags(command: Command, document: Document, shown: str, given: Context) -> list[LoadedSetup]:
    """The setups with the configs that a program which is not followed builds from its flags."""
    found = built_from(command.flags) if uses_deepspeed(command) else None
    if found is None:
        return []
    (framework, how), flags = found, command.flags
    setups: list[LoadedSetup] = []
    for stage in (flags[name] for name in how.stages if name in flags):
        program = _with_cpu_optimizer(command, how)
        setup = Setup(launch=command.launch, program=program, config=shown, made=True, own=_of_model(command, stage, shown))
        config = how.build(flags, stage, document, shown)
        builder = command.program.raw if command.program else "the program"
        made = LoadedSetup(setup, given, config, {shown: document}, kinds={shown: FileKind.SCRIPT})
        made = made._replace(built_by=builder, built_as=framework.name)
        if given.facts.integration is None:
            evidence = f"the flags of {builder} describe the config"
            made = made.inferring(evidence, integration=Integration.DEEPSPEED)
        setups.append(settle(made))
    return setups


def _of_model(command: Command, stage: SourcedValue, shown: str) -> Arguments | None:
    """The flags for the model whose ZeRO stage is given, of several: `--actor_model_name_or_path` beside `--actor_zero_stage`."""
    prefix = stage.name.lstrip("-").removesuffix("zero_stage")
    given = {name: command.flags.get(f"{prefix}{name}") for name in ("model_name_or_path", "gradient_checkpointing")}
    values = {name: one if one.raw else replace(one, value=True) for name, one in given.items() if one is not None}
    return Arguments(str(command.program.raw), shown, values, complete=False) if values and command.program is not None else None


def _with_own(gathered: LoadedSetup, own: Arguments) -> LoadedSetup:
    """With the flags of a program. What its setup knows of one of several models counts more."""
    of_model = gathered.setup.own.values if gathered.setup.own is not None else {}
    setup = replace(gathered.setup, own=replace(own, values={**own.values, **of_model}))
    gathered = with_model(gathered, named_in(setup.own))
    return gathered._replace(setup=setup, context=gathered.context._replace(setup=setup))


def _with_cpu_optimizer(command: Command, how: ConfigFlags) -> Program | None:
    """A program that is not followed, and builds the optimizer that a flag for offload requires."""
    flag = next((command.flags[name] for name in how.cpu_optimizer if name in command.flags), None)
    if command.program is None or flag is None:
        return None
    return Program(command.program.raw, client_optimizer=replace(flag, value="deepspeed.ops.adam.DeepSpeedCPUAdam"))


def _is_left_to_program(gathered: LoadedSetup, program: PythonFile) -> bool:
    """Whether nothing reads the config of Accelerate's file: the program makes its engines itself, and uses Accelerate for nothing else."""
    return is_of_accelerate(gathered) and program.loader == Integration.DEEPSPEED and program.is_whole


def _with_accelerate_file(gathered: LoadedSetup, unused: LoadedSetup) -> LoadedSetup:
    """A setup with the Accelerate file of its launch, whose config does not count: the launcher reads the rest of the file."""
    documents, kinds = {**unused.documents, **gathered.documents}, {**unused.kinds, **gathered.kinds}
    changed = gathered._replace(documents=documents, kinds=kinds, accelerate=unused.accelerate)
    return changed.but(accelerate=unused.setup.accelerate)


def _with_launched_ranks(given: Context, named: LoadedSetup) -> Context:
    """What was given, with the ranks of a launch whose config does not count."""
    found = settle(named.but(program=None)).context
    evidence = next((text for fact, text in found.evidence if fact == "world_size"), None)
    if evidence is None or given.facts.world_size is not None:
        return given
    return given.inferring(str(evidence), world_size=found.facts.world_size)
