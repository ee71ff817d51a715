"""The setup of a launch command with the config that it names, or a file of it: its flags, training files, variables and hostfile."""

from __future__ import annotations

import re
from dataclasses import replace
from functools import partial

from dslint.config.context import Context
from dslint.config.detect import FileKind
from dslint.evaluate.python.files import text_of
from dslint.evaluate.python.read import PythonFile
from dslint.evaluate.python.tables import SECTIONS
from dslint.evaluate.shell.pieces import known
from dslint.evaluate.shell.written import written_config
from dslint.facts import Integration, PassedAs
from dslint.frameworks.accelerate import bare_plugin
from dslint.frameworks.base import Framework
from dslint.frameworks.own_loading import read_own
from dslint.frameworks.registry import framework_of, in_flags, named, objects_of, of_imports, parallel_flags
from dslint.frameworks.training import read_training
from dslint.job.arguments import Arguments, SourcedValue
from dslint.job.model import Setup
from dslint.not_judged import NotJudged, Why
from dslint.setups import launch_accelerate
from dslint.setups.command import CONFIG_FLAGS, Command
from dslint.setups.gather import (
    LoadedSetup,
    follow,
    follow_training,
    loaded_by,
    passed_by_framework,
    release_of,
)
from dslint.setups.hostfile import with_hostfile
from dslint.setups.launch_arguments import (
    arguments_of_launch,
    flag_for_config,
    has_no_trainer,
    own_arguments_of_launch,
    with_words,
)
from dslint.setups.launch_program import file_of_program, program_of
from dslint.setups.program import way_of
from dslint.setups.project import project_of
from dslint.setups.ranks import SELECTING, number_of
from dslint.setups.unknown_config import beside
from dslint.source.tree import Document, Mapping
from dslint.source.unknown import UNKNOWN
from dslint.source.yaml_tree import parse_yaml


def _chosen_by_config(gathered: LoadedSetup, command: Command, program: PythonFile | None, path: str) -> LoadedSetup:
    """With the program as the config decides on it, which it finds in Accelerate's plugin: `"optimizer" in plugin.deepspeed_config`."""
    root = gathered.config.root if gathered.config is not None else None
    if program is None or program.loader != Integration.ACCELERATE or not isinstance(root, Mapping) or root.may_have_more:
        return gathered
    if not program.has(_BY_SECTION):
        return gathered
    sections = frozenset(name for name in SECTIONS if gathered.config is not None and gathered.config.lookup((name,)) is not None)
    return with_program(gathered, program_of(command, path, sections))


_BY_SECTION = re.compile(rf"""["'](?:{"|".join(SECTIONS)})["']\s+(?:not\s+)?in\b""")


def gather_command(
    command: Command, program: PythonFile | None, document: Document, path: str, shown: str, given: Context
) -> LoadedSetup | None:
    """The setup of a launch command with the config that the command or a file of it names; None if they name none."""
    command = with_words(command)
    setup = Setup(launch=command.launch, starts_here=command.starts_here)
    gathered = LoadedSetup(setup, given, documents={shown: document}, kinds={shown: FileKind.SCRIPT})
    gathered = _infer_parallel_sizes(gathered, command)
    gathered = launch_accelerate.read_file(gathered, command, path)
    gathered = with_program(gathered, program)
    library = _library_of(program)
    gathered, training = _read_training_files(gathered, command, path, library)
    own = in_flags(command.flags, shown, command.program.raw if command.program else "")
    framework = _without_trainer(command, training) or library
    if framework is not None and framework.own is not None:
        own = own_arguments_of_launch(command, framework, framework.own, training, shown, release_of(framework, given))
        gathered = gathered.but(of_framework=own, objects=objects_of(own))
        gathered = _follow_own_flags(gathered, command, framework, path)
        if framework.loader is Integration.ACCELERATE:
            gathered = launch_accelerate.follow_rest(gathered, command, None, path)
            gathered = launch_accelerate.use_flags(gathered, command, None, document, path, shown)
        gathered = loaded_by(framework, framework.own, gathered if _names_config(gathered) else None, gathered, own.path) or gathered
        gathered = follow_hostfile(gathered, command, path)
        return gathered if _names_config(gathered) else None
    alone = training is None and command.framework is None and has_no_trainer(_texts_of(command, program, path))
    arguments = None if alone else arguments_of_launch(command, program, training, shown)
    gathered = gathered.but(arguments=arguments, of_framework=own, objects=objects_of(own))
    gathered = _follow_flags(gathered, command, path)
    gathered = launch_accelerate.follow_rest(gathered, command, program, path)
    gathered = launch_accelerate.use_flags(gathered, command, program, document, path, shown)
    gathered = _follow_environment(gathered, command, document, path, shown)
    gathered = follow_hostfile(gathered, command, path)
    if command.framework is not None and command.framework.loader is Integration.DEEPSPEED:
        gathered = passed_by_framework(gathered, command.framework)
    gathered = _prepared_by_accelerate(gathered, program)
    gathered = _chosen_by_config(gathered, command, program, path)
    return gathered if _names_config(gathered) else None


def _prepared_by_accelerate(gathered: LoadedSetup, program: PythonFile | None) -> LoadedSetup:
    """With the program as it is for Accelerate, where the config is that of Accelerate's file and the program makes an `Accelerator`, whose
    plugin reads the file's fields.

    Such a program often calls `deepspeed.initialize`, too, with another config, for a model that it does not train: a reference model.
    """
    if program is None or not is_of_accelerate(gathered) or program.loader == Integration.TRANSFORMERS:
        return gathered
    if next(program.events.of(_USES), None) is None:
        return gathered
    return gathered.but(program=replace(program.program, loader=Integration.ACCELERATE.value))


def is_of_accelerate(gathered: LoadedSetup) -> bool:
    """Whether the config is the one that Accelerate's file or flags describe or name."""
    file, link = gathered.setup.accelerate, gathered.setup.link
    return file is not None and (gathered.setup.made or (link is not None and link == file.config_file))


_USES = r"accelerate\.(\w+\.)*Accelerator(\.prepare)?"


def _texts_of(command: Command, program: PythonFile | None, path: str) -> dict[str, str]:
    """The texts of a program's files by their names, also of one that is not Python."""
    if program is not None:
        return {name: one.text for name, one in program.documents.items()}
    linked = file_of_program(command, path)
    text = text_of(linked.path) if linked is not None else None
    return {linked.shown: text} if linked is not None and text is not None else {}


def _names_config(gathered: LoadedSetup) -> bool:
    """Whether a config is named, or one is built."""
    return gathered.setup.link is not None or gathered.setup.made or gathered.config is not None


def _without_trainer(command: Command, training: Arguments | None) -> Framework | None:
    """The framework of a launch with arguments of its own: the one that the command starts, or else that of the training file."""
    framework = command.framework or (named(training.framework) if training is not None else None)
    return framework if framework is not None and framework.own is not None else None


def _library_of(program: PythonFile | None) -> Framework | None:
    """The framework with arguments of its own that a program of the project imports, and leaves the training to."""
    return of_imports(program.document.text) if program is not None and program.loader is None and not program.calls else None


def _follow_own_flags(gathered: LoadedSetup, command: Command, framework: Framework, path: str) -> LoadedSetup:
    """Follow the flag of a framework's own that names the config. It counts more than the training file."""
    for key in framework.config_keys:
        link = command.flags.get(key) or command.word_given(key)
        if link is not None and link.raw:
            return _follow_link(gathered.without_config().but(link=None), command, key, link, path)
    return gathered


def _follow_flags(gathered: LoadedSetup, command: Command, path: str) -> LoadedSetup:
    """Follow the flag that names a config: that of the Trainer or a framework, or else DeepSpeed's own `--deepspeed_config`."""
    if _is_switched_off(command):
        return gathered
    link = flag_for_config(command) or _dotted(command)
    if link is not None and link.raw:
        return _follow_link(_with_passed_over(gathered, link), command, "deepspeed", link, path)
    name = next((flag for flag in CONFIG_FLAGS if flag in command.flags), CONFIG_FLAGS[0])
    config = command.flags.get(name)
    if gathered.setup.link is not None or gathered.config is not None or config is None or not config.raw:
        return gathered
    if gathered.setup.program is None or gathered.setup.program.loader != Integration.TRANSFORMERS:
        gathered = gathered.but(arguments=None)
    if gathered.facts.integration is None and gathered.setup.program is None and name == "deepspeed_config":
        evidence = f"{config.shown} ({config.where}) is DeepSpeed's own flag"
        context = gathered.context.inferring(evidence, integration=Integration.DEEPSPEED).but(passed_as=PassedAs.PATH)
        gathered = gathered._replace(context=context)
    return _follow_link(gathered, command, name, config, path)


_SWITCH = re.compile(r"(?:.*\.)?(?:use|enable)_deepspeed")
"""A flag or word by which a program decides whether it trains with DeepSpeed: `++train_conf.use_deepspeed=false`."""


def _is_switched_off(command: Command) -> bool:
    """Whether a flag or word of a program tells it not to use DeepSpeed, so that it reads none of the configs that others name."""
    named = [*command.flags.items(), *((word.raw.partition("=")[0].lstrip("+"), word) for word in command.words)]
    switches = (
        command.word_given(name) if given.raw.lstrip("+").startswith(f"{name}=") else given
        for name, given in named
        if _SWITCH.fullmatch(name)
    )
    return any(switch is not None and str(switch.value).lower() in ("false", "no", "0") for switch in switches)


def _dotted(command: Command) -> SourcedValue | None:
    """The flag or word of a nested argument that names a config: `--training_arguments.deepspeed conf/z2.json`, `args.deepspeed=z2.json`.

    Words of that form are how OmegaConf and Hydra read values.
    """
    names = [*command.flags, *(word.raw.partition("=")[0].lstrip("+") for word in command.words)]
    nested = (name for name in names if "." in name and name.rpartition(".")[2] in ("deepspeed", *CONFIG_FLAGS))
    found = (command.flags.get(name) or command.word_given(name) for name in nested)
    return next((one for one in found if one is not None and isinstance(one.value, str) and one.value.endswith(".json")), None)


def _follow_environment(gathered: LoadedSetup, command: Command, document: Document, path: str, shown: str) -> LoadedSetup:
    """Follow the variable of Accelerate or Lightning that names a config, if nothing else does. Accelerate builds one without it.

    Sources: accelerate/utils/dataclasses.py, DeepSpeedPlugin; lightning/pytorch/strategies/deepspeed.py, _load_config.
    """
    if gathered.setup.link is not None or gathered.setup.made or gathered.config is not None:
        return gathered
    given = command.environment
    switch, strategy = given.get("ACCELERATE_USE_DEEPSPEED"), command.flags.get("strategy")
    by_plugin = command.program if bare_plugin(gathered.setup.program) else None
    if (switch is not None and str(switch.value).lower() in ("true", "1", "yes")) or by_plugin is not None:
        name, integration = "ACCELERATE_DEEPSPEED_CONFIG_FILE", Integration.ACCELERATE
    elif strategy is not None and "deepspeed" in str(strategy.value):
        name, integration = "PL_DEEPSPEED_CONFIG_PATH", Integration.LIGHTNING
    else:
        return gathered
    link = given.get(name)
    if by_plugin is not None and gathered.facts.integration is None:
        gathered = gathered.inferring(f"{by_plugin.raw} makes a DeepSpeedPlugin", integration=Integration.ACCELERATE)
    switch = switch or by_plugin
    if link is None and integration is Integration.ACCELERATE and switch is not None:
        return launch_accelerate.use_variables(gathered, command, switch, document, shown)
    if link is None:
        return gathered
    if gathered.facts.integration is None:
        gathered = gathered.inferring(f"{link.shown} ({link.where})", integration=integration)
    return _follow_link(gathered, command, name, link, path)


def _infer_parallel_sizes(gathered: LoadedSetup, command: Command) -> LoadedSetup:
    """With the sizes of parallel groups that flags of the program set."""
    for fact, flag in parallel_flags().items():
        size, given = number_of(command.flags, flag), command.flags.get(flag)
        if size is not None and given is not None and gathered.context.get(fact) is None:
            gathered = gathered.inferring(f"{given.shown} ({given.where})", **{fact: size})
    return gathered


def _with_passed_over(gathered: LoadedSetup, link: SourcedValue) -> LoadedSetup:
    if gathered.setup.link is not None or (gathered.setup.accelerate is not None and gathered.setup.accelerate.has_block):
        return gathered.without_config().but(passed_over=link, link=None)
    return gathered


def with_program(gathered: LoadedSetup, program: PythonFile | None) -> LoadedSetup:
    """A setup with the program that is launched, and with its files."""
    if program is None:
        return gathered
    ways = {way_of(call) for call in program.calls if call.integration == Integration.DEEPSPEED}
    if len(ways) == 1:
        gathered = gathered._replace(context=gathered.context.but(passed_as=ways.pop()))
    for shown, document in program.modules.items():
        gathered = gathered.with_file(shown, document, FileKind.PYTHON)
    return gathered.but(program=program.launched).with_file(program.path, program.document, FileKind.PYTHON)


def read_training_file(command: Command, path: str) -> Arguments | None:
    """The arguments in the training file among the words of a command."""
    return _read_training_files(LoadedSetup(Setup(launch=command.launch), Context()), command, path, None)[1]


def _read_training_files(
    gathered: LoadedSetup, command: Command, path: str, library: Framework | None
) -> tuple[LoadedSetup, Arguments | None]:
    """With the training file among the words of a command (`train.yaml`, `--config train.yaml`), and its arguments."""
    own = command.framework if command.framework is not None and command.framework.own is not None else None
    names = own.file_flags if own is not None else (*(library.file_flags if library is not None else ()), "config")
    endings = (".yaml", ".yml") if own is None and library is None else (".yaml", ".yml", ".json")
    flag = next((command.flags[name] for name in names if name in command.flags), None)
    for given in [*command.words, *([flag] if flag else [])]:
        if not isinstance(given.value, str) or not given.value.lower().endswith(endings):
            continue
        linked = beside(command, given.value, path)
        text = text_of(linked.path) if linked else None
        document = parse_yaml(text) if text is not None else None
        framework = command.started or own or (framework_of(document, partial(_uses, command, path)) if document else None)
        if linked is None or document is None or framework is None:
            continue
        gathered = gathered.with_file(linked.shown, document, FileKind.TRAINING)
        with_config = follow_training(gathered, document, linked.path, linked.shown, framework)
        if with_config is not None and with_config.setup.accelerate is not None:
            with_config = with_config.but(passed_over=with_config.setup.link)
        is_of_program = given is flag and framework.takes_file and command.framework is None  # the framework takes no such flag
        if framework.own is not None:
            release = release_of(framework, gathered.context)
            return with_config or gathered, read_own(document, linked.shown, framework, framework.own, release)
        arguments = None if is_of_program else read_training(document, linked.shown, framework)
        return with_config or gathered, arguments
    return gathered, None


def _uses(command: Command, path: str, package: str) -> bool:
    """Whether a launch uses a package: that of its own framework, or one of the project."""
    own = command.framework.packages if command.framework is not None else ()
    return package in own or project_of(path).uses(package)


def follow_hostfile(gathered: LoadedSetup, command: Command, path: str) -> LoadedSetup:
    """With the machines of the hostfile; it decides the number of ranks if no flag does."""
    flags = command.launcher_flags
    given = flags.get("hostfile") or flags.get("H") or flags.get("deepspeed_hostfile")
    if command.launcher not in ("deepspeed", "accelerate") or given is None or not isinstance(given.value, str):
        return gathered
    decides = command.launcher == "deepspeed" and command.launch is not None and command.launch.flags.keys().isdisjoint(SELECTING)
    written = command.written.get("hostfile")
    return gathered._replace(setup=with_hostfile(gathered.setup, given, path, decides=decides, written=written))


def _follow_link(gathered: LoadedSetup, command: Command, name: str, link: SourcedValue, path: str) -> LoadedSetup:
    """Follow the flag that names a config: a file that the script writes, one of the project, or the config itself."""
    written = written_config(command.written.get(name, ()))
    if written is not None:
        source, config = written
        kind = gathered.kinds.get(source.shown, FileKind.DS_CONFIG)
        return gathered.with_file(source.shown, source.document, kind)._replace(config=config).but(link=link, config=source.shown)
    if link.value is UNKNOWN:
        return gathered.but(link=link)
    if command.framework is not None and link.value in command.framework.ships_unread:
        return gathered._replace(reason=NotJudged(Why.SHIPPED, (link.raw, command.framework.name), link.range)).but(link=link)
    if name in command.written:
        text = command.written[name]
        why = Why.WRITES_NO_JSON if text and known(text) is not None else Why.WRITES_UNKNOWN
        return gathered._replace(reason=NotJudged(why, (link.raw,), link.range)).but(link=link)
    return follow(gathered, link, path, beside(command, str(link.value), path))
