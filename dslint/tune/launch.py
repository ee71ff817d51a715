"""The command of a trial: the user's own launch command with another config, and how a scheduler's job is followed and ended."""

from __future__ import annotations

import os
from collections.abc import Sequence

ARGUMENTS = {
    "micro_batch": ("per_device_train_batch_size",),
    "accumulation": ("gradient_accumulation_steps",),
    "checkpoint_every": ("gradient_checkpointing",),
}
"""Arguments of the Hugging Face Trainer for choices that its config leaves to them."""


class CannotSet(Exception):
    """The command has no place for a value that differs between configs. The text is a sentence."""


def with_config(command: Sequence[str], config: str, other: str) -> list[str]:
    """The command with another config.

    Raises:
        CannotSet: the command does not name the config.
    """
    target = os.path.realpath(config)
    found = [_replaced(word, target, other) for word in command]
    if found == list(command):
        raise CannotSet(f"the command does not name {config}: name it as a word or as --option={config}")
    return found


def _replaced(word: str, target: str, other: str) -> str:
    option, equals, value = word.partition("=")
    if os.path.realpath(word) == target:
        return other
    return f"{option}={other}" if equals and value and os.path.realpath(value) == target else word


def with_arguments(command: Sequence[str], said: dict[str, int]) -> list[str]:
    """The command with other arguments of the Hugging Face Trainer.

    Raises:
        CannotSet: the command does not have them, so that it is not known how the program takes them.
    """
    words = list(command)
    for name, value in said.items():
        if name not in ARGUMENTS:
            raise CannotSet(f"{name.replace('_', ' ')} is set in the program")
        for argument in ARGUMENTS[name]:
            text = str(bool(value)) if name == "checkpoint_every" else str(value)
            if not _set(words, argument, text):
                raise CannotSet(f"the command has no --{argument}")
    return words


def _set(words: list[str], argument: str, value: str) -> bool:
    flags = (f"--{argument}", f"--{argument.replace('_', '-')}")
    for index, word in enumerate(words):
        if word in flags:
            if index + 1 < len(words) and not words[index + 1].startswith("-"):
                words[index + 1] = value
            else:
                words[index] = f"{word}={value}"
            return True
        if word.startswith(tuple(f"{flag}=" for flag in flags)):
            words[index] = f"{word.partition('=')[0]}={value}"
            return True
    return False


def is_batch(command: Sequence[str]) -> bool:
    """Whether a command hands its job to Slurm and returns."""
    return bool(command) and os.path.basename(command[0]) == "sbatch"


def followed(command: Sequence[str], log: str) -> list[str]:
    """An sbatch command that writes to a log, prints only the number of its job, and has no output of its own."""
    return [command[0], "--parsable", f"--output={log}", "--open-mode=truncate", *command[1:]]
