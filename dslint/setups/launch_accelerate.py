"""What `accelerate launch`, or a command that starts it, brings to a launch: a file, flags, and the config built of them."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace

from dslint.config.detect import FileKind
from dslint.evaluate.python.files import text_of
from dslint.evaluate.python.read import PythonFile
from dslint.evaluate.shell.written import written_config, written_yaml
from dslint.facts import Integration
from dslint.frameworks.accelerate import (
    accelerate_flags,
    from_variables,
    is_accelerate,
    keys_of_flags,
    opened,
    opened_without_deepspeed,
    over_file,
    plugin_with_config,
    read_accelerate,
    starts_one_process,
)
from dslint.frameworks.base import LauncherFile
from dslint.job.arguments import SourcedValue, as_read
from dslint.job.model import AccelerateFile, Launch
from dslint.setups.command import Command
from dslint.setups.gather import LoadedSetup, follow, follow_accelerate
from dslint.setups.unknown_config import beside, why_no_file
from dslint.source.tree import Document
from dslint.source.unknown import UNKNOWN
from dslint.source.yaml_tree import parse_yaml


def follow_rest(gathered: LoadedSetup, command: Command, program: PythonFile | None, path: str) -> LoadedSetup:
    """With the launcher's config if the arguments name none. A config of the program counts more where the file has no block, or where the
    program passes it to its `DeepSpeedPlugin`.

    Source: accelerate/utils/dataclasses.py, DeepSpeedPlugin.__post_init__.
    """
    file = gathered.setup.accelerate
    if gathered.setup.link is not None or gathered.config is not None or file is None:
        return gathered
    named = _named_by_program(gathered, program)
    if named is not None:
        return follow(gathered, named, path, beside(command, str(named.value), path))
    given = [call for call in program.calls if call.integration == Integration.ACCELERATE] if program is not None else []
    if len(given) == 1 and plugin_with_config(gathered.setup.program):
        is_path = given[0].config is None and isinstance(given[0].given.value, str)
        return follow(gathered, given[0].given, path, beside(command, str(given[0].given.value), path)) if is_path else gathered
    link = file.config_file
    written = written_config(command.files.get(os.path.normpath(link.value), ())) if link is not None else None
    if link is not None and written is not None:
        source, config = written
        return gathered.with_file(source.shown, source.document)._replace(config=config).but(link=link, config=source.shown)
    if file.has_block or program is None or not any(call.integration for call in program.calls):
        known = beside(command, link.value, path) if link is not None and isinstance(link.value, str) else None
        return follow_accelerate(gathered, path, known)
    return gathered


def _named_by_program(gathered: LoadedSetup, program: PythonFile | None) -> SourcedValue | None:
    """The file that the training arguments of a program name as their config, if they do so for certain."""
    calls = [call for call in program.calls if call.integration] if program is not None else []
    if len(calls) != 1 or calls[0].config is not None or gathered.setup.arguments is None:
        return None
    (call,) = calls
    is_named = call.integration == Integration.TRANSFORMERS and call.arguments is not None and isinstance(call.given.value, str)
    return call.given if is_named else None


def use_flags(
    gathered: LoadedSetup, command: Command, program: PythonFile | None, document: Document, path: str, shown: str
) -> LoadedSetup:
    """With the config of `accelerate launch --use_deepspeed` without a file, which the launcher builds from its own flags.

    A config that the training arguments or the program's `DeepSpeedPlugin` name counts more.
    """
    if command.launcher != "accelerate" or gathered.config is not None or gathered.setup.link is not None:
        return gathered
    if gathered.setup.accelerate is not None or "config_file" in command.launcher_flags:
        return gathered
    named = _named_by_program(gathered, program)
    if named is not None:
        return follow(gathered, named, path, beside(command, str(named.value), path))
    if program is not None and any(call.integration for call in program.calls):
        return gathered
    by_variable = command.environment.get("ACCELERATE_DEEPSPEED_CONFIG_FILE") if _starts_deepspeed(command) else None
    if by_variable is not None:  # the launcher passes it on
        return follow(gathered, by_variable, path, beside(command, str(by_variable.value), path))
    variables = from_variables(command.launch.variables) if command.launch is not None else {}
    found = accelerate_flags({**variables, **command.launcher_flags}, document, shown) if _starts_deepspeed(command) else None
    if found is None:
        return gathered
    file, config = found
    return gathered._replace(config=config).but(accelerate=file, config=shown, made=True)


def _starts_deepspeed(command: Command) -> bool:
    return not command.launcher_flags.keys().isdisjoint(("use_deepspeed", "zero_stage"))


def use_variables(gathered: LoadedSetup, command: Command, switch: SourcedValue, document: Document, shown: str) -> LoadedSetup:
    """With the config that Accelerate builds from variables alone, in a program that is started by any launcher."""
    program = gathered.setup.program
    if command.launch is None or program is None or not (program.makes_accelerator or program.loader == Integration.TRANSFORMERS):
        return gathered
    variables = command.launch.variables
    found = accelerate_flags({"use_deepspeed": switch, **from_variables(variables)}, document, shown)
    if found is None:
        return gathered
    file, config = found
    if command.launcher == "accelerate":  # it sets the variable anew
        precision = command.launcher_flags.get("mixed_precision")
    else:
        precision = variables.get("ACCELERATE_MIXED_PRECISION")
    file = replace(file, precision_flag=precision)
    gathered = gathered._replace(config=config).but(accelerate=file, config=shown, made=True)
    if gathered.facts.integration is None:
        gathered = gathered.inferring(f"{switch.shown} ({switch.where})", integration=Integration(program.loader or Integration.ACCELERATE))
    return gathered


def read_file(gathered: LoadedSetup, command: Command, path: str) -> LoadedSetup:
    """With the Accelerate file of a launch: the one that a flag names, or that the script writes; flags override its keys."""
    how = command.started.launcher_file if command.started is not None else None
    if command.launcher != "accelerate" and how is None:
        return gathered
    flags = _flags_with_file(command, how, path) if how is not None else command.launcher_flags
    given = flags.get(how.flag if how is not None else "config_file")
    if how is not None and given is None:
        return _with_flagged_ranks(gathered, flags)
    file: AccelerateFile | None = None
    written = written_yaml(command.written.get("config_file", ()))
    if written is not None and is_accelerate(written[1]):  # the script itself writes it
        source, tree = written
        gathered = gathered.with_file(source.shown, gathered.documents.get(source.shown, source.document))._replace(accelerate=tree)
        file = read_accelerate(tree, source.shown)
    if file is None and given is not None and isinstance(given.value, str):
        linked = beside(command, given.value, path)
        selected = "use_deepspeed" in flags
        found = how.open(given.value, linked) if how is not None else opened(linked, selected=selected) if linked is not None else None
        if found is not None:
            document, file = found
            gathered = gathered.with_file(file.path, document, FileKind.ACCELERATE)
            if how is not None and gathered.setup.launch is not None:
                launch = gathered.setup.launch
                gathered = gathered.but(launch=replace(launch, flags={**launch.flags, "config_file": given}))
        elif how is not None:
            gathered = _with_flagged_ranks(gathered, flags, named=True)
            if linked is None and _is_no_config(command, given.value):
                reason = why_no_file(command, "Accelerate config", given, path, "a launch")
                gathered = gathered._replace(reason=reason).but(link=given, missing=(*gathered.setup.missing, given))
        elif linked is not None and (other := opened_without_deepspeed(linked)) is not None:
            gathered = _with_ranks_of_file(gathered, other)
    if "deepspeed_config_file" in flags:
        block = keys_of_flags(flags, ["deepspeed_config_file"])
        file = AccelerateFile(given.path if given else flags["deepspeed_config_file"].path, file.top if file else {}, block)
    if file is None:
        return gathered
    # Flags override the file. Accelerate accepts --mixed_precision together with a DeepSpeed config file.
    top = {**file.top, **keys_of_flags(flags, ["num_machines", "num_processes"] if how is not None else ["num_machines"])}
    if "num_processes" in flags and how is None:
        top.pop("num_processes", None)
    own = {name: given for name, given in flags.items() if how is None or not _is_argument(command, name)}
    variables = command.launch.variables if command.launch is not None else {}
    over = over_file(file, own, variables)
    return gathered.but(accelerate=replace(file, top=top, precision_flag=flags.get("mixed_precision"), flags=over))


def _is_no_config(command: Command, name: str) -> bool:
    """Whether a name is a word, and not that of a config that ships with the framework."""
    return command.started is not None and name.isidentifier() and name not in command.started.ships_unread


def _is_argument(command: Command, name: str) -> bool:
    """Whether the training takes a flag, so that the launcher does not get it."""
    table = command.started.table if command.started is not None else None
    return table is not None and name in table.accepted


def _with_ranks_of_file(gathered: LoadedSetup, file: AccelerateFile) -> LoadedSetup:
    """With the ranks and machines that a file says which starts no DeepSpeed itself; flags override it."""
    launch = gathered.setup.launch
    if launch is None:
        return gathered
    ranks, given = launch.world_size, launch.given
    if ranks is None and "num_processes" not in launch.flags:
        ranks, given = file.number("num_processes"), file.top.get("num_processes")
    nodes = launch.nodes if "num_machines" in launch.flags else file.number("num_machines")
    return gathered.but(launch=replace(launch, world_size=ranks, nodes=nodes, given=given))


def _with_flagged_ranks(gathered: LoadedSetup, flags: Mapping[str, SourcedValue], *, named: bool = False) -> LoadedSetup:
    """With the ranks that a command such as `trl sft` passes to Accelerate's launcher, beside a file that starts no DeepSpeed itself."""
    given, launch = flags.get("num_processes"), gathered.setup.launch or Launch("accelerate")
    if named or not starts_one_process(flags):  # the file may select a launcher that sets ranks for one process, too
        launch = replace(launch, bare=None)
    number = as_read("max_steps", given.value) if given is not None else UNKNOWN
    if launch.world_size is not None or not isinstance(number, int) or number < 1:
        return gathered.but(launch=launch)
    return gathered.but(launch=replace(launch, world_size=number, given=given))


def _flags_with_file(command: Command, how: LauncherFile, path: str) -> dict[str, SourcedValue]:
    """The flags of a command such as `trl sft`, with the keys of the file `--config` that Accelerate's launcher gets."""
    given = command.flags.get("config")
    linked = beside(command, given.value, path) if given is not None and isinstance(given.value, str) else None
    text = text_of(linked.path) if linked else None
    document = parse_yaml(text) if text is not None else None
    if linked is None or document is None:
        return command.flags
    return {**how.keys(document, linked.shown), **command.flags}
