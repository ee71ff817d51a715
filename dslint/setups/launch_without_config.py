"""Launches whose program trains without a config: it reads no flag that names one, or is given none."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import replace

from dslint.evaluate.python.files import text_of
from dslint.evaluate.python.libraries.dataclasses import is_trainers
from dslint.evaluate.python.read import PythonFile
from dslint.facts import Integration
from dslint.frameworks.registry import of_script
from dslint.job.arguments import SourcedValue, given_at
from dslint.job.events import TRAINERS
from dslint.job.model import Refused
from dslint.setups.command import CONFIG_FLAGS, Command
from dslint.setups.launch_program import file_of_program
from dslint.setups.unknown_config import beside
from dslint.source.tree import Document
from dslint.source.yaml_tree import parse_yaml


def unread_flag(command: Command, program: PythonFile | None) -> SourcedValue | None:
    """The flag that names a config, if the program leaves DeepSpeed to Accelerate: that reads no flag, only what its launcher exports.
    Or if the program makes the arguments of its Trainer itself, without the flag.

    Sources: accelerate/accelerator.py, Accelerator.__init__, which asks for a plugin or for ACCELERATE_USE_DEEPSPEED; the launcher of
    DeepSpeed does not set that variable. transformers/training_args.py, TrainingArguments.__post_init__, asks for `deepspeed` and for the
    same variable.
    """
    given = next((command.flags[name] for name in CONFIG_FLAGS if name in command.flags), None)
    of_trainer = given or command.flags.get("deepspeed")
    if of_trainer is not None and of_trainer.raw and program is not None and _trains_alone(command, program):
        return of_trainer if not program.parses_arguments and not _parses(program, of_trainer) else None
    if given is None or not given.raw or program is None or command.launcher == "accelerate" or command.framework is not None:
        return None
    if program.loader != Integration.ACCELERATE or program.calls or program.unread or program.cut_off:
        return None
    if not program.program.makes_accelerator:
        return None
    by_accelerate = _BY_ACCELERATE in command.environment or program.has(_SWITCHES)
    return None if by_accelerate else given


def refused_config(command: Command, script: Document, path: str) -> tuple[Refused, Mapping[str, Document]] | None:
    """What a command refuses that does not train: the argument for a config, as a flag or in the file that it reads; and that file."""
    framework = command.framework
    if framework is None or framework.ignoring in script.text:
        return None
    name, keys = command.program.raw if command.program is not None else f"{command.launcher} {command.task}", framework.config_keys
    word = command.words[0] if command.words else None
    file = beside(command, str(word.value), path) if word is not None and word.raw.endswith((".yaml", ".yml", ".json")) else None
    text = text_of(file.path) if file is not None else None
    if file is None or text is None:
        flag = next((command.flags[key] for key in keys if key in command.flags), None) or _rank(command)
        return (Refused(flag, name, framework.refuses_flag.partition(":")[0]), {}) if flag is not None else None
    tree = parse_yaml(text)
    given = next((one for key in keys if (one := given_at(tree, file.shown, (key,), "", None)) is not None), None)
    if given is None or framework.ignoring in text:
        return None
    where = f" ({command.infers.where})" if command.infers is not None else ""
    return Refused(given, name + where, framework.refuses_unknown.partition(":")[0]), {file.shown: tree}


def has_other_program(command: Command, path: str) -> bool:
    """Whether a program that has the name of a framework's is one of the project's own."""
    linked = file_of_program(command, path)
    text = text_of(linked.path) if linked is not None else None
    return text is not None and not (command.framework is not None and _imports(command.framework.own_packages).search(text))


def _rank(command: Command) -> SourcedValue | None:
    """The flag that DeepSpeed's launcher puts before the arguments of a program, at the place of the program."""
    if command.launcher != "deepspeed" or command.program is None or "no_local_rank" in command.launcher_flags:
        return None
    return replace(command.program, name="--local_rank", raw="")


def starts_trainer_alone(command: Command, program: PythonFile | None) -> bool:
    """Whether DeepSpeed's launcher starts a program of the Trainer, and neither the command nor the program names a config."""
    flags, launch = command.flags, command.launch
    if (
        command.launcher != "deepspeed"
        or program is None
        or launch is None
        or launch.lost is not None
        or launch.world_size == 1
        or not (_trains_alone(command, program) or _is_of_checkout(command, program))
    ):
        return False
    named = command.words or not command.complete or any(re.search("deepspeed|config|fsdp", name) for name in flags)
    if named or any("deepspeed" in name or name == "autotuning" for name in command.launcher_flags):
        return False
    return not program.parses_arguments or program.own_defaults is None or "deepspeed" not in program.own_defaults


def _trains_alone(command: Command, program: PythonFile) -> bool:
    """Whether a program trains with the Trainer, and nothing in it gives the Trainer's arguments a config, apart from the command line."""
    events = program.events
    if program.loader != Integration.TRANSFORMERS or program.calls or program.unread or program.cut_off or not program.is_whole:
        return False
    launch = command.launch
    if command.launcher == "accelerate" or command.framework is not None or launch is None or launch.variables:
        return False
    if not any(one.flow == 0 and one.certain for one in events.of(_TRAIN)) or program.has(_GIVES):
        return False
    made = [one for one in events.all if is_trainers(one.name)]
    return all(one.complete for one in made) and bool(made) is not program.parses_arguments


def _is_of_checkout(command: Command, program: PythonFile) -> bool:
    """Whether a command trains with a program of a framework's checkout, which gets a config only as an argument of the launch."""
    flags, launch = command.flags, command.launch
    framework = of_script(str(command.program.value), flags) if command.program is not None else None
    if framework is None or not framework.trains_by or launch is None or launch.variables:
        return False
    if framework.trains_when_told and ("do_train" not in flags or flags["do_train"].value is not True):
        return False
    is_read = program.loader == Integration.TRANSFORMERS and program.is_whole and not (program.calls or program.unread or program.cut_off)
    return is_read and program.has(_imports(framework.own_packages, framework.trains_by)) and not program.has(_SETS)


def _imports(packages: Collection[str], functions: Collection[str] = ()) -> re.Pattern[str]:
    """Finds the lines of a program that import one of these packages, or one of these functions of them."""
    named = rf"from[ \t]+(?:{'|'.join(packages)})\b[^\n]*\b(?:{'|'.join(functions)})\b"
    return re.compile(rf"(?m)^[ \t]*(?:{named})" if functions else rf"(?m)^[ \t]*(?:from|import)[ \t]+(?:{'|'.join(packages)})\b")


_SETS = re.compile(r"deepspeed[ \t]*=(?!=)|[\"']--deepspeed|ACCELERATE_USE|DeepSpeedPlugin\(")
"""What gives the arguments a config."""


def _parses(program: PythonFile, flag: SourcedValue) -> bool:
    """Whether a program may refuse a flag that it does not know."""
    return program.has(_PARSES) and not program.has(re.compile(f"[\"']{re.escape(flag.name)}[\"']"))


_TRAIN = rf"{TRAINERS}\.train"

_GIVES = re.compile(
    r"deepspeed\w*\s*(:[^=\n]+)?=(?!=)|[\"']deepspeed[\"']|ACCELERATE_|DeepSpeedPlugin|DeepSpeedConfig|deepspeed\.init|deepspeed_plugin|parse_dict"
    r"|parse_(json|yaml)_file(?![^\n]*argv)|torch\.load|pickle|hydra|fsdp"
)
"""What may give the Trainer a config, or arguments that are made elsewhere. A file of the command line is a word of the launch."""

_PARSES = re.compile(r"argparse|ArgumentParser|click|fire|tyro|typer|absl")

_BY_ACCELERATE = "ACCELERATE_USE_DEEPSPEED"

_SWITCHES = re.compile(rf"{_BY_ACCELERATE}|deepspeed_plugin|DeepSpeedPlugin")
"""What a program names that lets Accelerate use DeepSpeed without its launcher."""
