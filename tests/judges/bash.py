"""bash judges what is read of scripts: every launch with its arguments and variables."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

from dslint.evaluate.shell.pieces import Text
from dslint.evaluate.shell.script import read_script
from dslint.evaluate.shell.state import Launched

DRIVER = Path(__file__).parent / "run_scripts.py"
LAUNCHERS = frozenset(["deepspeed", "torchrun", "accelerate", "srun", "python", "python3", "llamafactory-cli", "mpirun"])
VARIABLES = frozenset(["CUDA_VISIBLE_DEVICES", "MASTER_PORT", "OMP_NUM_THREADS", "NCCL_DEBUG", "DS_STAGE"])
_STARTERS = frozenset({"time", "nohup", "command", "exec"})


class Claim(NamedTuple):
    """A launch as it is read: each word and variable is its text, None if that is not known."""

    words: list[str | None]
    variables: dict[str, str | None]
    perhaps: bool


class Verdict(NamedTuple):
    """The comparison of one script: launches that bash runs, those of them that are read, and claims that are wrong."""

    launches: int
    read: int
    wrong: list[str]


def claims(files: dict[str, str]) -> tuple[list[Claim], bool]:
    """The launches that are read of a script in an empty folder with its other files, and whether the reader stopped before the end."""
    before = os.getcwd()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        try:
            os.mkdir(".git")
            for name, text in files.items():
                Path(name).write_text(text, encoding="utf-8")
            make = "Makefile" in files
            name = "Makefile" if make else "run.sh"
            script = read_script(files[name], name, name, {}, make=make)
        finally:
            os.chdir(before)
    found = [_claim(one) for one in script.launched]
    return [one for one in found if not one.words or one.words[0] is None or one.words[0] in LAUNCHERS], script.cut_off is not None


def _claim(launched: Launched) -> Claim:
    words = [_known(text) for text in launched.words]
    while words and words[0] in _STARTERS:
        words = words[1:]
    return Claim(words, {name: _known(text) for name, text in launched.environment.items() if name in VARIABLES}, launched.perhaps)


def _known(text: Text) -> str | None:
    return "".join(piece.text or "" for piece in text) if all(piece.text is not None for piece in text) else None


def compare(files: dict[str, str], answer: dict[str, Any]) -> Verdict:
    """Compare the claims with the launches that bash ran, in order."""
    made, cut_off = claims(files)
    launches = [[name, *words] for name, words, _ in answer["launches"]]
    if answer["status"] < 0 or cut_off:
        return Verdict(0, 0, [])
    wrong: list[str] = []
    read, position, matched = 0, 0, set()
    for claim in made:
        fitting = next((index for index in range(position, len(launches)) if _fits(claim.words, launches[index])), None)
        if fitting is None:
            if not claim.perhaps:
                wrong.append(f"claims {claim.words}")
            continue
        variables = answer["launches"][fitting][2]
        for name, value in claim.variables.items():
            if value is not None and variables.get(name) != value and not claim.perhaps:
                wrong.append(f"claims {name}={value} of {claim.words}, and it is {variables.get(name)}")
        position = fitting + 1
        matched.add(fitting)
        read += None not in claim.words
    hedged = [claim.words for claim in made if claim.perhaps or None in claim.words]  # of a loop, the run decides how often
    left = [launches[index] for index in range(len(launches)) if index not in matched]
    wrong += [f"misses {one}" for one in left if not any(_fits(claim, one) for claim in hedged)]
    return Verdict(len(launches), read, wrong)


def _fits(claim: list[str | None], words: list[str]) -> bool:
    """Whether the words of a launch are those of a claim, in which an unknown word stands for any number of words."""
    if None not in claim:
        return claim == words
    first = claim.index(None)
    if claim[:first] != words[:first]:
        return False
    rest = claim[first + 1 :]
    return any(_fits(rest, words[start:]) for start in range(first, len(words) + 1))
