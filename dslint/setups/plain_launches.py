"""Trainings that a script launches without DeepSpeed: each GPU holds the whole model."""

from __future__ import annotations

import re

from dslint.config.context import Context
from dslint.evaluate.files import find
from dslint.evaluate.python.files import text_of
from dslint.evaluate.python.read import PythonFile
from dslint.facts import Integration
from dslint.job.arguments import Arguments
from dslint.job.model import Launch
from dslint.record import Record
from dslint.setups.command import Command
from dslint.setups.launch_arguments import arguments_of_launch, own_arguments
from dslint.setups.launch_command import read_training_file
from dslint.setups.launch_program import program_of
from dslint.setups.launch_without_config import starts_trainer_alone
from dslint.setups.script import commands_of
from dslint.setups.unknown_config import uses_deepspeed
from dslint.source.unknown import UNKNOWN


class PlainTraining(Record):
    """A launch of a training without DeepSpeed, with its arguments."""

    command: Command
    launch: Launch
    arguments: Arguments


_TRAINS = frozenset(("output_dir", "learning_rate", "num_train_epochs", "max_steps", "do_train", "per_device_train_batch_size"))

_FEWEST = 2
"""How many flags of a training show that a command is one; one alone may be another program's."""

_DIVIDES = re.compile(
    r"fsdp|megatron|device_map|tensor_parallel|pipeline|deepspeed|galore|badam|lomo|ray|(^|_)tp($|_)|(^|_)pp($|_)", re.IGNORECASE
)
"""What flags are called that divide a model among GPUs in another way, or keep less than a whole training."""

_KINDS = re.compile(r"(?m)^\s*distributed_type\s*:\s*[\"']?(MULTI_GPU|NO)\b")
"""The ways of Accelerate in which each GPU holds the whole model."""


def plain_training(text: str, path: str, shown: str, given: Context) -> PlainTraining | None:
    """The first training that a script launches without DeepSpeed, if nothing says that its model is divided."""
    for command in commands_of(text, path, shown, given):
        if command.infers is not None or command.launch is None or not command.names_flags:
            continue
        file = read_training_file(command, path) if _loads_whole(command) else None
        names = {*command.flags, *(file.values if file is not None else ())}
        if len(names & _TRAINS) < _FEWEST or ("do_predict" in names and "do_train" not in names):
            continue
        program = program_of(command, path)
        alone = command.launcher == "deepspeed" and starts_trainer_alone(command, program)
        divided = any(_DIVIDES.search(name) for name in (*names, *command.launcher_flags)) or (program is not None and _divides(program))
        if divided or (uses_deepspeed(command) and not alone) or not (alone or _is_whole_on_each(command, path)):
            continue
        arguments = arguments_of_launch(command, program, file, shown) or own_arguments(command, shown)
        if arguments is not None:
            return PlainTraining(command, command.launch, arguments)
    return None


_DIVIDES_IN_PROGRAM = re.compile(r"FullyShardedDataParallel|fully_shard|device_map\s*=|fsdp|tensor_parallel|init_device_mesh")

_DIVIDES_WITH_TRAINER = re.compile(
    r"(FullyShardedDataParallel|FSDP|fully_shard)\(|device_map\s*=|\bfsdp\s*=|tensor_parallel|init_device_mesh"
)
"""The same in a program of the Trainer, which uses FSDP where its arguments say so."""


def _divides(program: PythonFile) -> bool:
    """Whether a program may divide its model among GPUs."""
    by_trainer = program.loader == Integration.TRANSFORMERS
    return program.has(_DIVIDES_WITH_TRAINER if by_trainer else _DIVIDES_IN_PROGRAM)


def _loads_whole(command: Command) -> bool:
    """Whether the command of a framework starts ranks that each load the whole model."""
    return command.started is not None and command.started.whole_on_each


def _is_whole_on_each(command: Command, path: str) -> bool:
    """Whether each process of a launch trains with one GPU, on which it has the whole model."""
    if command.launcher == "torchrun" or _loads_whole(command):
        return True
    if command.launcher == "accelerate":
        if "multi_gpu" in command.launcher_flags:
            return True
        given = command.launcher_flags.get("config_file")
        linked = find(str(given.value), path) if given is not None and given.value is not UNKNOWN else None
        return linked is not None and _KINDS.search(text_of(linked.path) or "") is not None
    visible = command.launch.visible_gpus if command.launch is not None else None
    return visible is not None and len(visible) == 1
