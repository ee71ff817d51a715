"""What practitioners ask about memory: what public guides answer, and what dslint answers.

A line of questions.jsonl is a question, what to ask dslint (`ask`, by name: a command, changes of the config, options, and the config.json
of a model without a name), and the answers of up to three guides in short words, with their address (read on 27 November 2026) and a claim
that dslint's answer is held to. Where dslint's answer is another one, `differs` says why, and the test fails when that changes.
"""

from __future__ import annotations

import json
import tempfile
from collections import Counter
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from dslint.facts.gpus import GIB
from tests.command import dslint

BASE: dict[str, Any] = {
    "train_micro_batch_size_per_gpu": 1,
    "gradient_accumulation_steps": 1,
    "optimizer": {"type": "AdamW", "params": {"lr": 1e-5}},
    "bf16": {"enabled": True},
}
FITTING = ("fits", "likely fits")
QUESTIONS: list[dict[str, Any]] = [
    json.loads(line) for line in Path(__file__).with_name("questions.jsonl").read_text(encoding="utf-8").splitlines()
]


@cache
def ask(command: str, changes: str, options: str, model: str | None = None) -> Any:
    """The answer of `dslint estimate` or `fit` for BASE with these changes, or the config that `init` writes."""
    if model:
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder, "config.json")
            file.write_text(model, encoding="utf-8")
            return ask(command, changes, f"--model={file} {options}")
    if command == "init":
        done = dslint("init", "-", "--isolated", *options.split())
        assert done.returncode in (0, 4), done.stderr
        return {"fits": done.returncode == 0, **json.loads(done.stdout)}
    config = json.dumps({**BASE, **json.loads(changes)})
    done = dslint(command, "-", "--isolated", "--output-format=json", *options.split(), input=config)
    assert done.returncode in (0, 4), done.stderr
    return json.loads(done.stdout)


def asked(row: dict[str, Any], name: str) -> Any:
    command, changes, options, *model = row["ask"][name]
    return ask(command, json.dumps(changes), options, *map(json.dumps, model))


def overlaps(answer: dict[str, float], claimed: list[float | None]) -> bool:
    low, high = claimed
    return (low is None or low * GIB <= answer["high"]) and (high is None or answer["low"] <= high * GIB)


def position(answer: Any, change: str) -> int:
    """The place of the first way of `fit` with a change of this name."""
    found = (n for n, way in enumerate([*answer["ways"], *answer["singles"]]) if any(change in name for name in way["changes"]))
    return next(found, 1000)


def holds(row: dict[str, Any], claim: dict[str, Any]) -> bool:
    """Whether dslint's answer is that of a guide."""
    kind, said = next(iter(claim.items()))
    if kind in ("less", "faster"):
        answers = [asked(row, name) for name in said]
        values = [answer["device"]["expected"] if kind == "less" else answer["step"]["seconds"] for answer in answers]
        return all(claim.get("times", 1) * value < other for value, other in pairwise(values))
    if kind == "saves":
        more, fewer, low, high = said
        saved = asked(row, more)["tensors"]["expected"] - asked(row, fewer)["tensors"]["expected"]
        return bool(low * GIB <= saved <= high * GIB)
    answer = asked(row, claim.get("of", "it"))
    if kind == "fits":
        verdict = answer["fits"] if row["ask"][claim.get("of", "it")][0] != "estimate" else answer["verdict"] in FITTING
        return bool(verdict is said)
    if kind == "before":
        return position(answer, said[0]) < position(answer, said[1])
    if kind == "first":
        return position(answer, said) == 0
    if kind == "way":
        return position(answer, said) < len(answer["ways"])
    if kind == "advice":
        return any(said in advice for advice in answer["advice"])
    if kind == "zero":
        return bool(answer["zero_optimization"].items() >= said.items())
    if kind == "host":
        return overlaps(answer["host"]["machine"], said)
    if kind == "phase":
        phase, low, high = said
        return bool(low * GIB <= answer["phases"][phase]["total"] <= high * GIB)
    if kind == "part":
        name, phase, low, high = said
        return bool(low * GIB <= answer["phases"][phase]["parts"][name] <= high * GIB)
    return overlaps(answer[kind], said)


CASES = [
    pytest.param(row, guide, id=f"{row['question']} {guide['guide']}: {guide['says']}") for row in QUESTIONS for guide in row["guides"]
]


@pytest.mark.slow
@pytest.mark.parametrize(("row", "guide"), CASES)
def test_a_guide_and_dslint_agree_or_the_row_says_why_not(row: dict[str, Any], guide: dict[str, Any]) -> None:
    assert holds(row, guide["claim"]) is ("differs" not in guide)


def test_the_questions() -> None:
    assert len({row["question"] for row in QUESTIONS}) == len(QUESTIONS)
    for row in QUESTIONS:
        assert 1 <= len({guide["url"] for guide in row["guides"]}) == len(row["guides"]) <= 3, row["question"]
        assert all(guide["url"].startswith("https://") and guide["says"] for guide in row["guides"])
    counts = Counter(len({guide["guide"] for guide in row["guides"]}) for row in QUESTIONS)
    print(f"\n{len(QUESTIONS)} questions; with three guides: {counts[3]}, two: {counts[2]}, one: {counts[1]}")
