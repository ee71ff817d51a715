"""dslint judges itself: what it finds in the program of an example, it finds in the same program as other people write it, and nothing new.

The bad examples of the rules about programs are rewritten (`rewrites.py`) and checked in a folder of their own, with what is beside them; the
finding must be there, certain or not. The good ones are rewritten, too: no rule may find what it does not find in the program as it was.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import chdir
from functools import cache
from pathlib import Path
from random import Random
from typing import NamedTuple

from dslint.lint.discovery import Target, discover
from dslint.lint.setups import merged
from dslint.registry.rules import loaded_rules
from dslint.rule import Example
from dslint.settings import Finder
from dslint.source.store import a_run
from dslint.suppress.comments import apply_comments
from tests.judges.rewrites import PROGRAM, REWRITES, Files, parts_of
from tests.judges.table import Row
from tests.setup.beside import CONFIG
from tests.setup.folder import lint_one

_KNOWN = Path(__file__).with_name("reach.txt")


class Case(NamedTuple):
    """An example of a rule with a program: its name, the rule's code, and whether the rule finds something in it."""

    name: str
    code: str
    example: Example
    is_bad: bool


class Rewritten(NamedTuple):
    """A rewritten program of a case, and the codes that are found in its folder; `lost` if that of a bad one is not among them."""

    case: Case
    rewrite: str
    lost: bool
    added: frozenset[str]

    def __str__(self) -> str:
        return f"{self.rewrite} {self.case.name}"


@cache
def cases() -> tuple[Case, ...]:
    """The examples of all rules that have a program."""
    every = ((rule, kind, n, one) for rule in loaded_rules() for kind in ("bad", "good") for n, one in enumerate(getattr(rule, kind)))
    return tuple(
        Case(f"{rule.code}-{kind}-{n}", rule.code, one, kind == "bad") for rule, kind, n, one in every if PROGRAM in dict(one.files)
    )


def rewritten(case: Case, share: int = 0, shares: int = 1) -> Iterator[Rewritten]:
    """What is found in each rewritten program of a case, or in those of one share of the rewrites. None, if the rule does not find the
    mistake in a folder: a fact of the example is in none of its files.
    """
    beside = dict(case.example.files)
    parts = parts_of(beside.pop(PROGRAM))
    if parts is None:
        return
    changed = [(rewrite.__name__, rewrite(parts)) for rewrite in REWRITES[share % shares :: shares]]
    possible = [(name, files) for name, files in changed if files is not None and _fits(files, beside)]
    if not possible:
        return
    before = codes_in(dict(case.example.files), case.example)
    if case.is_bad and case.code not in before:
        return
    for name, files in possible:
        found = codes_in(beside | files, case.example)
        yield Rewritten(case, name, case.is_bad and case.code not in found, frozenset() if case.is_bad else found - before)


def _fits(files: Files, beside: Files) -> bool:
    """Whether the files of a rewritten program can stand beside the others of an example."""
    return files.keys().isdisjoint(beside) and (PROGRAM in files or "run.sh" not in beside)


def codes_in(files: Files, example: Example) -> frozenset[str]:
    """The codes of what is found in a folder with these files, the config of the example, and the releases that it pins."""
    pins = "".join(f"{name}=={release}\n" for name, release in example.context.pins.items())
    every = {CONFIG: example.text, "requirements.txt": pins, "pyproject.toml": ""} | files
    with tempfile.TemporaryDirectory() as folder, chdir(folder), a_run():
        for name, text in every.items():
            os.makedirs(os.path.dirname(name) or ".", exist_ok=True)
            Path(name).write_text(text, encoding="utf-8")
        facts = example.facts._replace(integration=None)  # the program tells it
        found = [result for target in _targets() for result in lint_one(target, facts)]
        return frozenset(d.code for result in merged(found) for d in apply_comments(result).diagnostics)


def _targets() -> list[Target]:
    return discover(["."], Finder()).targets


def known() -> dict[str, str]:
    """The findings that are known to be lost, and why, by the name of the rewrite and of the example."""
    lines = [line.partition(": ") for line in _KNOWN.read_text(encoding="utf-8").splitlines() if line and not line.startswith("#")]
    return {name: why for name, _, why in lines}


def ask(count: int, seed: int) -> Row:
    """Rewrite the programs of so many examples."""
    chosen = Random(seed).sample(cases(), min(count, len(cases())))
    done = [(number, one) for number, case in enumerate(chosen) for one in rewritten(case)]
    lost = [(number, f"{one}: lost") for number, one in done if one.lost]
    added = [(number, f"{one}: finds {', '.join(sorted(one.added))}, too") for number, one in done if one.added]
    wrong = [one for one in (*lost, *added) if one[1].partition(": ")[0] not in known()]
    return Row("reach", len(chosen), "rewritten programs", len(done), len(done) - len(lost), wrong)


def record(count: int, seed: int) -> str:
    """Write down what is lost today, with the reasons that are known."""
    reasons = known()
    lost = [str(one) for case in cases() for one in rewritten(case) if one.lost or one.added]
    head = [line for line in _KNOWN.read_text(encoding="utf-8").splitlines() if line.startswith("#")]
    _KNOWN.write_text("\n".join([*head, *(f"{name}: {reasons.get(name, '')}" for name in sorted(lost))]) + "\n", encoding="utf-8")
    return f"{len(lost)} lost, in {_KNOWN.name}"


def missing() -> str:
    """dslint alone is needed."""
    return ""
