"""The variants of a question that a comparison runs in turn."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from dslint.probe.filling import micro_batch
from dslint.probe.question import Override, Question
from dslint.record import Record

ALL_OFFLOADED = "all offloaded"
OFFLOAD: dict[str, list[Override]] = {
    "nothing offloaded": [(("zero_optimization", "offload_optimizer"), None), (("zero_optimization", "offload_param"), None)],
    "optimizer offloaded": [
        (("zero_optimization", "offload_optimizer"), {"device": "cpu"}),
        (("zero_optimization", "offload_param"), None),
    ],
    ALL_OFFLOADED: [
        (("zero_optimization", "offload_optimizer"), {"device": "cpu"}),
        (("zero_optimization", "offload_param"), {"device": "cpu"}),
    ],
}

FORMS = "activation-checkpointing, offload, micro-batch=1,2,4, stage=1,2,3, or KEY=VALUE,VALUE of the config"


class ProbedVariant(Record):
    """One way to run: its name as shown to users, and its question."""

    name: str
    question: Question


def variants(question: Question, comparison: str) -> list[ProbedVariant]:
    """The variants of a comparison such as `stage=1,2,3`.

    Raises:
        ValueError: the comparison is invalid; the text says why.
    """
    name, equals, words = comparison.partition("=")
    values = [word.strip() for word in words.split(",")] if equals else []
    if name == "activation-checkpointing" and not equals:
        return [
            ProbedVariant("without checkpointing", replace(question, checkpointing=False)),
            ProbedVariant("with checkpointing", replace(question, checkpointing=True)),
        ]
    if name == "offload" and not equals:
        return [ProbedVariant(what, _with(question, overrides)) for what, overrides in OFFLOAD.items()]
    if name == "micro-batch":
        return [ProbedVariant(f"micro batch {size}", _with(question, micro_batch(size))) for size in _numbers(values, least=1)]
    if name == "stage":
        return [
            ProbedVariant(f"stage {stage}", _with(question, [(("zero_optimization", "stage"), stage)]))
            for stage in _numbers(values, least=0, most=3)
        ]
    if "." in name or equals:
        if len(values) < 2 or not all(values) or not all(name.split(".")):
            raise ValueError(f"{name} requires at least two comma-separated values")
        from dslint.probe.filling import assignment

        return [ProbedVariant(f"{name} = {value}", _with(question, [assignment(f"{name}={value}")])) for value in values]
    raise ValueError(f"unknown comparison; use {FORMS}")


def _with(question: Question, overrides: list[Override]) -> Question:
    return replace(question, overrides=(*question.overrides, *overrides))


def _numbers(words: list[str], *, least: int, most: int | None = None) -> list[int]:
    numbers = [int(word) for word in words if word.isdecimal()]
    if len(numbers) != len(words) or len(words) < 2 or any(number < least or (most is not None and number > most) for number in numbers):
        bounds = f"from {least} to {most}" if most is not None else f"of at least {least}"
        raise ValueError(f"requires at least two comma-separated numbers {bounds}")
    return numbers


class Slowdown(Record):
    """A variant relative to the first one: bytes of peak memory (negative: less), and the factor of its time per step."""

    peak: int
    time: float | None


def relative_cost(first: Any, other: Any) -> Slowdown | None:
    """The cost of one answer relative to another; None if either did not finish."""
    if not first.started or not other.started:
        return None
    time = other.step_seconds / first.step_seconds if first.step_seconds and other.step_seconds else None
    return Slowdown(other.memory[other.place].peak - first.memory[first.place].peak, time)
