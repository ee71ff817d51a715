"""The launchers judge what is read of launch commands: the number of ranks and of machines, the program and its arguments."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

from dslint.evaluate.shell.script import read_script
from dslint.facts import Facts
from dslint.frameworks.loader import with_loaders
from dslint.setups.command import read_command
from dslint.setups.command_words import words_of
from dslint.setups.open import open_text
from tests.judges.commands import Case, case
from tests.judges.table import Row

RECORDED = Path(__file__).parent / "launchers.json"
ROOT = Path(__file__).resolve().parents[2]
_LIMIT, _EACH = 300, 10
"""The seconds that the launchers may take: to start, and for each command, on a machine with other work."""


class Claim(NamedTuple):
    """A launch as it is read; None is what is not known."""

    ranks: int | None
    machines: int | None
    program: list[str | None] | None


def missing() -> str:
    """Why the launchers cannot be run here; "" if they can."""
    return next((f"no {name}" for name in ("torch", "deepspeed", "accelerate") if find_spec(name) is None), "")


def text_of(one: Case) -> str:
    """The script with the command."""
    return " ".join([*(f"{name}={value}" for name, value in one.environment.items()), *map(shlex.quote, one.words)]) + "\n"


def claim(one: Case) -> Claim:
    """What is read of a command in a folder with its files."""
    before = os.getcwd()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        try:
            os.mkdir(".git")
            text = text_of(one)
            for name, content in {**one.files, "run.sh": text, "train.py": "import deepspeed\n"}.items():
                Path(name).write_text(content, encoding="utf-8")
            script = read_script(text, "run.sh", "run.sh", {})
            (launched,) = script.launched
            command = read_command(launched, script)
            if command is None or command.program is None:
                return Claim(None, None, None)
            words = [word.text for word in words_of(launched)]
            subject = open_text(text, "run.sh", with_loaders(Facts()))
            setups = subject.trainings.setups if subject is not None and subject.trainings is not None else []
            launch = setups[0].setup.launch if setups else command.launch
            assert launch is not None
            file = setups[0].setup.accelerate if setups else None
            ranks = launch.world_size or (file.number("num_processes") if file is not None else None)
            machines = launch.nodes or (file.number("num_machines") if file is not None else None)
            return Claim(ranks, machines, words[words.index(command.program.value) :])
        finally:
            os.chdir(before)


def compare(one: Case, answer: dict[str, Any]) -> tuple[int, int, list[str]]:
    """How many figures the launcher gives, how many of them are read, and what is wrong."""
    if "error" in answer:
        return 0, 0, []
    made = claim(one)
    found, read, wrong = 0, 0, []
    for name in Claim._fields:
        truth, said = answer[name], getattr(made, name)
        if truth is None:
            if said is not None:
                wrong.append(f"{text_of(one).strip()}: {name} {said}, and only the run knows")
            continue
        found += 1
        read += said is not None
        if said is not None and said != truth:
            wrong.append(f"{text_of(one).strip()}: {name} {said}, and it is {truth}")
    return found, read, wrong


def answers(cases: list[Case]) -> list[dict[str, Any]]:
    """What the launchers do with commands."""
    command = [sys.executable, "-m", "tests.judges.run_launchers"]
    done = subprocess.run(
        command, input=json.dumps(cases), cwd=ROOT, capture_output=True, text=True, check=False, timeout=_LIMIT + _EACH * len(cases)
    )
    if done.returncode:
        raise RuntimeError(done.stderr[-2000:])
    return list(json.loads(done.stdout))


def ask(count: int, seed: int) -> Row:
    """Compare the commands of `count` seeds with the launchers."""
    cases = [case(number) for number in range(seed, seed + count)]
    found = read = raises = 0
    wrong: list[tuple[int, str]] = []
    for number, one, answer in zip(range(seed, seed + count), cases, answers(cases), strict=True):
        figures, known, bad = compare(one, answer)
        found, read, raises = found + figures, read + known, raises + ("error" in answer)
        wrong += [(number, text) for text in bad]
    return Row("launchers", count, "figures", found, read, wrong, f"{raises} commands that the launcher refuses")


def record(count: int, seed: int) -> str:
    """Write the answers to the commands of `count` seeds."""
    numbers = range(seed, seed + count)
    made = dict(zip(numbers, answers([case(number) for number in numbers]), strict=True))
    RECORDED.write_text(json.dumps(made, separators=(",", ":")) + "\n", encoding="utf-8")
    return f"{count} commands recorded"
