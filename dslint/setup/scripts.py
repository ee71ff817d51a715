"""Read the setups in a script or a launch command."""

from __future__ import annotations

import os
from dataclasses import replace

from dslint.config.context import Context
from dslint.config.detect import FileKind
from dslint.diagnostics import NotJudged
from dslint.facts import Integration, PassedAs
from dslint.setup.accelerate import AccelerateFile, is_accelerate, read_accelerate
from dslint.setup.arguments import Arguments, SourcedValue
from dslint.setup.command import Command, parallel_sizes, read_arguments, read_command, training_flags
from dslint.setup.files import Linked, find, find_checkout
from dslint.setup.flags import accelerate_flags, configs_of_flags, keys_of_flags
from dslint.setup.gather import LoadedSetup, Read, follow, follow_accelerate, follow_training, settle
from dslint.setup.hostfile import with_hostfile
from dslint.setup.model import Setup
from dslint.setup.programs import PythonFile, read_python
from dslint.setup.programs.gather import gather_call, way_of
from dslint.setup.shell.script import Script, read_script
from dslint.setup.shell.syntax import NoParser
from dslint.setup.training import framework_of, read_training
from dslint.setup.written import written_config
from dslint.source.read import ReadError, read
from dslint.source.tree import Document
from dslint.source.unknown import UNKNOWN
from dslint.source.yaml_tree import parse_yaml


def read_shell(text: str, path: str, shown: str, given: Context, *, named: bool, make: bool = False) -> Read | None:
    """Read a shell text. None for a discovered file that launches nothing with DeepSpeed."""
    try:
        script = read_script(text, path, shown, given.environment, make=make)
    except NoParser:
        return not_read(Document(text, None, language="text"))
    return read_launches(script, path, given, named=named)


def not_read(document: Document) -> Read:
    """A file with shell commands where no parser for them is installed, as in a browser."""
    reason = NotJudged("a script; scripts are not read because tree-sitter and tree-sitter-bash are not installed.")
    return Read(FileKind.UNRELATED, document, note=reason.reason, not_judged=[reason])


def read_launches(script: Script, path: str, given: Context, *, named: bool) -> Read | None:
    """The setups of the launches in a script. None for a discovered file that launches nothing with DeepSpeed."""
    shown, document = script.source
    found = Read(FileKind.SCRIPT, document)
    said: list[str] = []
    commands = [command for launched in script.launched if (command := read_command(launched, script)) is not None]
    for command in commands or [read_arguments(one, script) for one in script.arguments]:
        setups, reason_of = _setups_of(command, document, path, shown, given)
        found.not_judged += [reason_of] if reason_of else []
        found.setups += setups
        said += [_said(command, gathered) for gathered in setups]
    if script.cut_off:
        found.not_judged.append(NotJudged("loops or recursion in this script launch more than dslint follows; the rest is not judged."))
    if not found.setups and not found.not_judged:
        note = "no command in this file launches a DeepSpeed training; not checked."
        return Read(FileKind.UNRELATED, document, note=note) if named else None
    found.note = "; ".join(dict.fromkeys(said)) + "." if said else None
    return found


def _setups_of(command: Command, document: Document, path: str, shown: str, given: Context) -> tuple[list[LoadedSetup], NotJudged | None]:
    """The setups of a command: with the config that it names, otherwise with those that its program builds."""
    gathered = gather_command(command, document, path, shown, given)
    if gathered is not None:
        return [settle(gathered)], None
    program = gathered_program(command, path)
    setups: list[LoadedSetup] = []
    for call in program.calls if program is not None and uses_deepspeed(command) else ():
        assert program is not None
        of_call = gather_call(call, program, program.program.path, program.program.path, given, single=len(program.calls) == 1)
        of_call.documents[shown] = document
        of_call.kinds[shown] = FileKind.SCRIPT
        of_call.setup = replace(of_call.setup, launch=command.launch)
        setups.append(settle(of_call))
    if not setups and uses_deepspeed(command):
        for config in configs_of_flags(command.flags, document, shown):
            made = LoadedSetup(
                Setup(launch=command.launch, config=shown, made=True), given, config, {shown: document}, kinds={shown: FileKind.SCRIPT}
            )
            if given.facts.integration is None:
                evidence = f"{command.program.raw if command.program else 'the program'} builds the config from its flags"
                made.context = given.inferring(evidence, integration=Integration.DEEPSPEED)
            setups.append(settle(made))
    return (setups, None) if setups else ([], why_not(command, program))


def flags_of(command: Command) -> dict[str, str | bool | None]:
    """The flags of the program as its parser gets them. Where some are not known, none of the others is certain to count."""
    return {
        name: True if not given.raw and given.value is not UNKNOWN else given.raw if given.value is not UNKNOWN else None
        for name, given in command.flags.items()
    }


def uses_deepspeed(command: Command) -> bool:
    """Whether a launch uses DeepSpeed, as far as its launcher and its flags tell."""
    flags = command.flags.keys() | command.launcher_flags.keys()
    return command.launcher == "deepspeed" or any("deepspeed" in name for name in flags)


def why_not(command: Command, program: PythonFile | None) -> NotJudged | None:
    """Why the config of a launch is not known; None if the launch does not use DeepSpeed."""
    if not uses_deepspeed(command):
        return None
    at = command.program.range if command.program else None
    name = f"the launch of {command.program.raw}" if command.program else "a launch"
    link = command.flags.get("deepspeed_config") or command.flags.get("deepspeed") or command.flags.get("ds_config")
    if link is not None and link.value is UNKNOWN:
        return NotJudged(f"{name}: its DeepSpeed config is {link.raw}, which is set at run time. Pass --env NAME=VALUE.", link.range)
    if program is None:
        return NotJudged(f"{name} uses DeepSpeed, names no config, and the program is not in this project.", at)
    return NotJudged(f"{name} uses DeepSpeed and names no config; the program sets it. Check the program.", at)


def gathered_program(command: Command, path: str) -> PythonFile | None:
    """The program that a command launches, if it is in the project."""
    if command.program is None or not isinstance(command.program.value, str) or not command.program.value.endswith(".py"):
        return None
    linked = _beside(command, command.program.value, path)
    text = text_of(linked.path) if linked else None
    return read_python(text, linked.shown, linked.path, flags_of(command)) if linked and text is not None else None


def _said(command: Command, gathered: LoadedSetup) -> str:
    setup = gathered.setup
    program = command.program.raw if command.program else f"a training with {command.framework}"
    ranks = f" on {gathered.facts.world_size:,} ranks" if gathered.facts.world_size else ""
    config = f" with DeepSpeed config {setup.config}" if setup.config else ""
    return f"{command.launcher} launches {program}{ranks}{config}"


def gather_command(command: Command, document: Document, path: str, shown: str, given: Context) -> LoadedSetup | None:
    """The setup of a launch command; None if it does not use DeepSpeed."""
    gathered = LoadedSetup(Setup(launch=command.launch), given, documents={shown: document}, kinds={shown: FileKind.SCRIPT})
    _infer_parallel_sizes(gathered, command)
    _read_accelerate(gathered, command, path)
    _read_program(gathered, command, path)
    training = _read_training_files(gathered, command, path)
    flags = training_flags(command)
    link = command.flags.get("deepspeed")
    config = command.flags.get("deepspeed_config") or command.flags.get("ds_config")
    program = gathered.setup.program
    trains = program is not None and program.loader == Integration.TRANSFORMERS
    with_trainer = (link is not None and bool(link.raw)) or training is not None or trains or _is_trainers(command, flags)
    if with_trainer:
        own = {name: given for name, given in flags.items() if name != "deepspeed"}
        base = training or Arguments(command.framework, shown)
        arguments = replace(base, values={**base.values, **own}, complete=base.complete and command.complete)
        gathered.setup = replace(gathered.setup, arguments=arguments)
    if link is not None and link.raw:
        _note_passed_over(gathered, link)
        _follow_link(gathered, command, "deepspeed", link, path)
    elif gathered.setup.link is None and gathered.config is None and config is not None and config.raw:
        gathered.setup = replace(gathered.setup, arguments=None)
        if gathered.facts.integration is None and gathered.setup.program is None:
            evidence = f"{config.shown} ({config.where}) is DeepSpeed's own flag"
            gathered.context = gathered.context.inferring(evidence, integration=Integration.DEEPSPEED).but(passed_as=PassedAs.PATH)
        name = "deepspeed_config" if "deepspeed_config" in command.flags else "ds_config"
        _follow_link(gathered, command, name, config, path)
    _follow_rest(gathered, path)
    _use_accelerate_flags(gathered, command, document, shown)
    _follow_hostfile(gathered, command, path)
    setup = gathered.setup
    return gathered if setup.link is not None or setup.made or gathered.config is not None else None


def _infer_parallel_sizes(gathered: LoadedSetup, command: Command) -> None:
    for fact, (size, given) in parallel_sizes(command).items():
        if gathered.context.get(fact) is None:
            gathered.context = gathered.context.inferring(f"{given.shown} ({given.where})", **{fact: size})


def _is_trainers(command: Command, flags: dict[str, SourcedValue]) -> bool:
    """Whether the program's flags are clearly those of the Trainer."""
    known = flags.keys() & {"learning_rate", "output_dir", "bf16", "fp16", "lr_scheduler_type"}
    return "per_device_train_batch_size" in flags or (len(known) >= 3 and command.launcher in ("accelerate", "torchrun"))


def _note_passed_over(gathered: LoadedSetup, link: SourcedValue) -> None:
    if gathered.setup.link is not None or (gathered.setup.accelerate is not None and gathered.setup.accelerate.has_block):
        gathered.setup = replace(gathered.setup, passed_over=link, link=None)
        gathered.config = None


def _follow_rest(gathered: LoadedSetup, path: str) -> None:
    """Use the launcher's config if the arguments name none."""
    if gathered.setup.link is None and gathered.config is None and gathered.setup.accelerate is not None:
        follow_accelerate(gathered, path)


def _use_accelerate_flags(gathered: LoadedSetup, command: Command, document: Document, shown: str) -> None:
    """Build the config of `accelerate launch --use_deepspeed` without a file from the launcher's own flags."""
    if command.launcher != "accelerate" or gathered.config is not None or gathered.setup.link is not None:
        return
    if gathered.setup.accelerate is not None or "config_file" in command.launcher_flags:
        return
    found = accelerate_flags(command.launcher_flags, document, shown)
    if found is not None:
        file, gathered.config = found
        gathered.setup = replace(gathered.setup, accelerate=file, config=shown, made=True)


def _read_accelerate(gathered: LoadedSetup, command: Command, path: str) -> None:
    if command.launcher != "accelerate":
        return
    flags = command.launcher_flags
    given = flags.get("config_file")
    file: AccelerateFile | None = None
    if given is not None and isinstance(given.value, str):
        linked = _beside(command, given.value, path)
        text = text_of(linked.path) if linked else None
        document = parse_yaml(text) if text is not None else None
        if linked is not None and document is not None and is_accelerate(document):
            file = read_accelerate(document, linked.shown)
            gathered.documents[linked.shown] = document
            gathered.kinds[linked.shown] = FileKind.ACCELERATE
    if "deepspeed_config_file" in flags:
        block = keys_of_flags(flags, ["deepspeed_config_file"])
        file = AccelerateFile(given.path if given else flags["deepspeed_config_file"].path, file.top if file else {}, block)
    if file is not None:
        # Flags override the file. Accelerate accepts --mixed_precision together with a DeepSpeed config file.
        top = {**file.top, **keys_of_flags(flags, ["num_machines"])}
        if "num_processes" in flags:
            top.pop("num_processes", None)
        gathered.setup = replace(gathered.setup, accelerate=replace(file, top=top, precision_flag=flags.get("mixed_precision")))


def _read_program(gathered: LoadedSetup, command: Command, path: str) -> None:
    found = gathered_program(command, path)
    if found is not None:
        gathered.setup = replace(gathered.setup, program=found.program)
        ways = {way_of(call) for call in found.calls if call.integration == Integration.DEEPSPEED}
        if len(ways) == 1:
            gathered.context = gathered.context.but(passed_as=ways.pop())
        gathered.documents[found.program.path] = found.document
        gathered.kinds[found.program.path] = FileKind.PYTHON


def _read_training_files(gathered: LoadedSetup, command: Command, path: str) -> Arguments | None:
    """The training file among the words of a command: `train.yaml`, `--config train.yaml`."""
    flag = command.flags.get("config")
    for given in [*command.words, *([flag] if flag else [])]:
        if not isinstance(given.value, str) or not given.value.lower().endswith((".yaml", ".yml")):
            continue
        linked = _beside(command, given.value, path)
        text = text_of(linked.path) if linked else None
        document = parse_yaml(text) if text is not None else None
        framework = framework_of(document) if document else None
        if linked is None or document is None or framework is None:
            continue
        gathered.documents[linked.shown] = document
        gathered.kinds[linked.shown] = FileKind.TRAINING
        if follow_training(gathered, document, linked.path, linked.shown) and gathered.setup.accelerate is not None:
            gathered.setup = replace(gathered.setup, passed_over=gathered.setup.link)
        return read_training(document, linked.shown, framework)
    return None


def _follow_hostfile(gathered: LoadedSetup, command: Command, path: str) -> None:
    """Read the hostfile; it decides the number of ranks if no flag does."""
    flags = command.launcher_flags
    given = flags.get("hostfile") or flags.get("H") or flags.get("deepspeed_hostfile")
    if command.launcher in ("deepspeed", "accelerate") and given is not None and isinstance(given.value, str):
        decides = command.launcher == "deepspeed" and not flags.keys() & {"include", "i", "exclude", "e", "num_gpus", "num_nodes"}
        gathered.setup = with_hostfile(gathered.setup, given, path, decides=decides)


def _beside(command: Command, link: str, path: str) -> Linked | None:
    """A file that a command names: from the folder that the script has changed to, or as it stands."""
    here = (find(os.path.join(command.folder, link), path) if command.folder else None) or find(link, path)
    return here or (find_checkout(link, path) if link.startswith("/") else None)


def _follow_link(gathered: LoadedSetup, command: Command, name: str, link: SourcedValue, path: str) -> None:
    """Follow the flag that names a config: a file that the script writes, one of the project, or the config itself."""
    written = written_config(command.written.get(name, ()))
    if written is not None:
        source, config = written
        gathered.config = config
        gathered.setup = replace(gathered.setup, link=link, config=source.shown)
        gathered.documents[source.shown] = source.document
        return
    if link.value is UNKNOWN:
        gathered.setup = replace(gathered.setup, link=link)
        return
    if name in command.written:
        gathered.setup = replace(gathered.setup, link=link)
        gathered.reason = NotJudged(f"the script writes the DeepSpeed config {link.raw}, and what it writes is not JSON.", link.range)
        return
    linked = _beside(command, str(link.value), path)
    follow(gathered, link, path, linked)


def text_of(path: str) -> str | None:
    """The text of a file; None if it cannot be read."""
    try:
        return read(path)
    except ReadError:
        return None
