"""The command of a trial: the user's own launch command with another config, and how a scheduler's job is followed and ended."""

from __future__ import annotations

import os
import re
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
    if not names(command, config):
        raise CannotSet(f"the command does not name {config}: name it as a word, as --option={config}, or in a YAML file of the command")
    return [_replaced(word, os.path.realpath(config), other) for word in command]


def names(command: Sequence[str], config: str) -> bool:
    """Whether a command names a file, in any form of its path."""
    target = os.path.realpath(config)
    return any(_replaced(word, target, "") != word for word in command)


def naming_file(command: Sequence[str], config: str) -> tuple[str, str] | None:
    """A YAML file of the command that names the config, such as Accelerate's, and its text with `PLACE` instead of it."""
    target = os.path.realpath(config)
    for word in command:
        path = word.partition("=")[2] if word.startswith("-") else word
        if not path.endswith((".yaml", ".yml")) or not os.path.isfile(path):
            continue
        with open(path, encoding="utf-8", errors="replace") as file:
            lines = file.read(LARGEST_FILE).split("\n")
        for number, line in enumerate(lines):
            found = NAMED.match(line)
            if found and target in (os.path.realpath(found[2]), os.path.realpath(os.path.join(os.path.dirname(path), found[2]))):
                return path, "\n".join([*lines[:number], f"{found[1]}{PLACE}", *lines[number + 1 :]])
    return None


NAMED = re.compile(r"""(\s*[\w-]+:\s*)["']?([^"'#]+?)["']?\s*(?:#.*)?$""")
"""A line of YAML with a key and a value of one word."""

PLACE = "{dslint's config}"

LARGEST_FILE = 1 << 20
"""The bytes that are read of a YAML file that a launch names. Training files have a few thousand."""


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
