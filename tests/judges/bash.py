"""bash judges what is read of scripts: every launch with its arguments and variables."""

from __future__ import annotations

import json
import os
import re
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from dslint.evaluate.shell.pieces import Text
from dslint.evaluate.shell.script import read_script
from dslint.evaluate.shell.state import Launched
from tests.judges import scripts
from tests.judges.fence import fenced
from tests.judges.table import Row

DRIVER = Path(__file__).parent / "run_scripts.py"
LAUNCHERS = frozenset(["deepspeed", "torchrun", "accelerate", "srun", "python", "python3", "llamafactory-cli", "mpirun"])
VARIABLES = frozenset(["CUDA_VISIBLE_DEVICES", "MASTER_PORT", "OMP_NUM_THREADS", "NCCL_DEBUG", "DS_STAGE"])
RECORDED = Path(__file__).parent / "bash.json"
_BATCH = 100
_UNDECIDED = re.compile(
    r"UNSET|\[ -[fd] |(?:if|!) (?:deepspeed|torchrun)|(?:deepspeed|torchrun|python|accelerate|srun|launch_)[^\n]*(?:&&|\|\|)"
)
_STARTERS = frozenset({"time", "nohup", "command", "exec"})


class Claim(NamedTuple):
    """A launch as it is read: each word and variable is its text, None if that is not known."""

    words: list[str | None]
    variables: dict[str, str | None]
    perhaps: bool


@dataclass
class Verdict:
    """The comparison of scripts with bash."""

    launches: int = 0
    """Launches that bash runs."""
    read: int = 0
    """Those of them that are read with all of their words."""
    hedged: int = 0
    """Those of them that are read as launches that only the run decides."""
    never: int = 0
    """Claims of launches that only the run decides, and that bash does not run."""
    assumed: int = 0
    """Claims behind the end of a script that checks for a variable: it is read as if that were given."""
    wrong: list[str] = field(default_factory=list)


def claims(files: dict[str, str]) -> tuple[list[Claim], bool, bool]:
    """The launches that are read of a script in an empty folder with its other files.

    Returns also whether the reader stopped before the end, and whether it read conditions on what nothing sets.
    """
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
    kept = [one for one in found if not one.words or one.words[0] is None or one.words[0] in LAUNCHERS]
    return kept, script.cut_off is not None, script.left_out


def _claim(launched: Launched) -> Claim:
    words = [_known(text) for text in launched.words]
    while words and words[0] in _STARTERS:
        words = words[1:]
    return Claim(words, {name: _known(text) for name, text in launched.environment.items() if name in VARIABLES}, launched.perhaps)


def _known(text: Text) -> str | None:
    return "".join(piece.text or "" for piece in text) if all(piece.text is not None for piece in text) else None


def compare(files: dict[str, str], answer: dict[str, Any]) -> Verdict:
    """Compare the claims with the launches that bash ran, in order."""
    if answer["status"] < 0:
        return Verdict()
    made, cut_off, assumes = claims(files)
    launches = [[name, *words] for name, words, _ in answer["launches"]]
    pairs = dict(_aligned(made, launches))
    verdict = Verdict(launches=len(launches))
    last = max(pairs.values(), default=-1)
    for index, claim in enumerate(made):
        if index in pairs:
            variables = answer["launches"][pairs[index]][2]
            for name, value in claim.variables.items():
                if value is not None and variables.get(name) != value and not claim.perhaps:
                    verdict.wrong.append(f"claims {name}={value} of {claim.words}, and it is {variables.get(name)}")
            verdict.read += None not in claim.words
            verdict.hedged += claim.perhaps
        elif claim.perhaps:
            verdict.never += 1
        elif assumes and answer["status"] > 0 and last == len(launches) - 1 and all(one < index for one in pairs):
            verdict.assumed += 1
        elif not cut_off:
            verdict.wrong.append(f"claims {claim.words}")
    repeated = [claim.words for claim in made if claim.perhaps or None in claim.words]  # of a loop, the run decides how often
    for index, words in enumerate(launches):
        if index not in pairs.values() and not cut_off and not any(_fits(claim, words) for claim in repeated):
            verdict.wrong.append(f"misses {words}")
    return verdict


def _aligned(made: list[Claim], launches: list[list[str]]) -> list[tuple[int, int]]:
    """The pairs of claims and launches, in order, that leave the fewest claims alone; a claim that is only perhaps may stay alone."""
    best: dict[tuple[int, int], tuple[int, list[tuple[int, int]]]] = {}
    for left in range(len(made), -1, -1):
        for right in range(len(launches), -1, -1):
            ways: list[tuple[int, list[tuple[int, int]]]] = []
            if left < len(made) and right < len(launches) and _fits(made[left].words, launches[right]):
                cost, pairs = best[left + 1, right + 1]
                ways.append((cost + (2 if made[left].perhaps else 3), [(left, right), *pairs]))
            if left < len(made):
                ways.append(best[left + 1, right])
            if right < len(launches):
                ways.append(best[left, right + 1])
            best[left, right] = max([*ways, (0, [])], key=lambda way: way[0])  # of equal ways the first, which pairs the earliest claims
    return best[0, 0][1]


def _fits(claim: list[str | None], words: list[str]) -> bool:
    """Whether the words of a launch are those of a claim, in which an unknown word stands for any number of words."""
    if None not in claim:
        return claim == words
    first = claim.index(None)
    if claim[:first] != words[:first]:
        return False
    rest = claim[first + 1 :]
    return any(_fits(rest, words[start:]) for start in range(first, len(words) + 1))


# ---------------------------------------------------------------------- asking


def ask(count: int, seed: int) -> Row:
    """Compare the scripts of `count` seeds with bash."""
    total = Verdict()
    wrong: list[tuple[int, str]] = []
    unneeded = 0
    for start in range(seed, seed + count, _BATCH):
        numbers = range(start, min(start + _BATCH, seed + count))
        made = [scripts.script(number) for number in numbers]
        for number, files, answer in zip(numbers, made, fenced(DRIVER, [{"files": files} for files in made], 600), strict=True):
            verdict = compare(files, answer)
            wrong += [(number, one) for one in verdict.wrong]
            for name in ("launches", "read", "hedged", "never", "assumed"):
                setattr(total, name, getattr(total, name) + getattr(verdict, name))
            unneeded += verdict.hedged if not is_undecided(files) else 0
    more = f'{total.hedged} of those read are said as "perhaps" ({unneeded} without need), {total.never} "perhaps" never ran, {total.assumed} assumed'
    return Row("bash", count, "launches", total.launches, total.read, wrong, more)


def is_undecided(files: dict[str, str]) -> bool:
    """Whether a script has conditions that nobody can decide who does not run it.

    Those are on files, on whether a program succeeds, and on variables that nothing sets: the one who starts it may.
    """
    return any(_UNDECIDED.search(text) for text in files.values())


def record(count: int, seed: int) -> str:
    """Write the answers to the scripts of `count` seeds."""
    numbers = range(seed, seed + count)
    answers = fenced(DRIVER, [{"files": scripts.script(number)} for number in numbers], 600)
    RECORDED.write_text(json.dumps(dict(zip(numbers, answers, strict=True)), separators=(",", ":")) + "\n", encoding="utf-8")
    return f"{count} scripts recorded"
