"""Read the setups in a script or a launch command."""

from __future__ import annotations

from dataclasses import replace

from dslint.config.context import Context
from dslint.config.detect import FileKind
from dslint.facts import Integration
from dslint.setup.accelerate import AccelerateFile, is_accelerate, read_accelerate
from dslint.setup.arguments import Arguments, SourcedValue
from dslint.setup.command import Command, read_command, training_flags
from dslint.setup.files import find
from dslint.setup.gather import LoadedSetup, Read, follow, follow_accelerate, follow_training, settle
from dslint.setup.hostfile import with_hostfile
from dslint.setup.model import Setup
from dslint.setup.programs import read_python
from dslint.setup.shell import read_script
from dslint.setup.training import framework_of, read_training
from dslint.source.read import ReadError, read
from dslint.source.tree import Document
from dslint.source.yaml_tree import parse_yaml


def read_shell(text: str, path: str, shown: str, given: Context, *, named: bool, make: bool = False) -> Read | None:
    """Read a shell text. None for a discovered file that launches nothing with DeepSpeed."""
    try:
        script = read_script(text, path, shown, given.environment, make=make)
    except NoParser:
        reason = NotJudged("a script; scripts are not read because tree-sitter and tree-sitter-bash are not installed.")
        return Read(FileKind.UNRELATED, Document(text, None, language="text"), note=reason.reason, not_judged=[reason])
    document = script.source.document
    found = Read(FileKind.SCRIPT, document)
    said: list[str] = []
    for launched in script.launched:
        command = read_command(launched, script)
        if command is None:
            continue
        gathered = gather_command(command, document, path, shown, given)
        if gathered is None:
            reason_of = why_not(command, gathered_program(command, path))
            found.not_judged += [reason_of] if reason_of else []
            continue
        found.setups.append(settle(gathered))
        said.append(_said(command, gathered))
    if script.cut_off:
        found.not_judged.append(NotJudged("loops or recursion in this script launch more than dslint follows; the rest is not judged."))
    if not found.setups and not found.not_judged:
        note = "no command in this file launches a DeepSpeed training; not checked."
        return Read(FileKind.UNRELATED, document, note=note) if named else None
    found.note = "; ".join(dict.fromkeys(said)) + "." if said else None
    return found


def why_not(command: Command, program: PythonFile | None) -> NotJudged | None:
    """Why the config of a launch is not known; None if the launch does not use DeepSpeed."""
    flags = command.flags.keys() | command.launcher_flags.keys()
    uses = command.launcher == "deepspeed" or any("deepspeed" in name for name in flags)
    if not uses:
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
    linked = find(os.path.join(command.folder, command.program.value), path) or find(command.program.value, path)
    text = text_of(linked.path) if linked else None
    return read_python(text, linked.shown) if linked and text is not None else None


def _said(command: Command, gathered: LoadedSetup) -> str:
    setup = gathered.setup
    program = command.program.raw if command.program else f"a training with {command.framework}"
    ranks = f" on {gathered.facts.world_size:,} ranks" if gathered.facts.world_size else ""
    config = f" with DeepSpeed config {setup.config}" if setup.config else ""
    return f"{command.launcher} launches {program}{ranks}{config}"


def gather_command(command: Command, document: Document, path: str, shown: str, given: Context) -> LoadedSetup | None:
    """The setup of a launch command; None if it does not use DeepSpeed."""
    gathered = LoadedSetup(Setup(launch=command.launch), given, documents={shown: document}, kinds={shown: FileKind.SCRIPT})
    _read_accelerate(gathered, command, path)
    _read_program(gathered, command, path)
    training = _read_training_files(gathered, command, path)
    flags = training_flags(command)
    link = command.flags.get("deepspeed")
    config = command.flags.get("deepspeed_config") or command.flags.get("ds_config")
    program = gathered.setup.program
    trains = program is not None and program.loader == Integration.TRANSFORMERS
    with_trainer = (link is not None and isinstance(link.value, str)) or training is not None or trains or _is_trainers(command, flags)
    if with_trainer:
        own = {name: given for name, given in flags.items() if name != "deepspeed"}
        base = training or Arguments(command.framework, shown)
        arguments = replace(base, values={**base.values, **own}, complete=base.complete and command.complete)
        gathered.setup = replace(gathered.setup, arguments=arguments)
    if link is not None and isinstance(link.value, str):
        _note_passed_over(gathered, link)
        follow(gathered, link, path)
    elif gathered.setup.link is None and gathered.config is None and config is not None and isinstance(config.value, str):
        gathered.setup = replace(gathered.setup, arguments=None)
        if gathered.facts.integration is None and gathered.setup.program is None:
            evidence = f"{config.shown} ({config.where}) is DeepSpeed's own flag"
            gathered.context = gathered.context.inferring(evidence, integration=Integration.DEEPSPEED)
        follow(gathered, config, path)
    _follow_rest(gathered, path)
    _follow_hostfile(gathered, command, path)
    setup = gathered.setup
    return gathered if setup.link is not None or setup.made or gathered.config is not None else None


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


def _read_accelerate(gathered: LoadedSetup, command: Command, path: str) -> None:
    if command.launcher != "accelerate":
        return
    flags = command.launcher_flags
    given = flags.get("config_file")
    file: AccelerateFile | None = None
    if given is not None and isinstance(given.value, str):
        linked = find(given.value, path)
        text = _text(linked.path) if linked else None
        document = parse_yaml(text) if text is not None else None
        if linked is not None and document is not None and is_accelerate(document):
            file = read_accelerate(document, linked.shown)
            gathered.documents[linked.shown] = document
            gathered.kinds[linked.shown] = FileKind.ACCELERATE
    if "deepspeed_config_file" in flags:
        block = {"deepspeed_config_file": flags["deepspeed_config_file"]}
        file = AccelerateFile(given.path if given else flags["deepspeed_config_file"].path, file.top if file else {}, block)
    if file is not None:
        # Flags override the file. Accelerate accepts --mixed_precision together with a DeepSpeed config file.
        top = {**file.top, **{name: flags[name] for name in ("num_machines",) if name in flags}}
        if "num_processes" in flags:
            top.pop("num_processes", None)
        gathered.setup = replace(gathered.setup, accelerate=replace(file, top=top, precision_flag=flags.get("mixed_precision")))


def _read_program(gathered: LoadedSetup, command: Command, path: str) -> None:
    if command.program is None or not isinstance(command.program.value, str) or not command.program.value.endswith(".py"):
        return
    linked = find(command.program.value, path)
    text = _text(linked.path) if linked else None
    found = read_python(text, linked.shown, linked.path) if linked and text is not None else None
    if found is not None:
        gathered.setup = replace(gathered.setup, program=found.program)
        gathered.documents[found.program.path] = found.document
        gathered.kinds[found.program.path] = FileKind.PYTHON


def _read_training_files(gathered: LoadedSetup, command: Command, path: str) -> Arguments | None:
    """The training file among the words of a command: `train.yaml`, `--config train.yaml`."""
    flag = command.flags.get("config")
    for given in [*command.words, *([flag] if flag else [])]:
        if not isinstance(given.value, str) or not given.value.lower().endswith((".yaml", ".yml")):
            continue
        linked = find(given.value, path)
        text = _text(linked.path) if linked else None
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


def _text(path: str) -> str | None:
    try:
        return read(path)
    except ReadError:
        return None
