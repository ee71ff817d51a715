"""No advice leads into another rule, and no two sentences of a report contradict each other: some examples here, all of them when slow."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from dslint.config import Config
from dslint.config.context import Context
from dslint.diagnostics import Diagnostic, Effect, Phase, Severity
from dslint.facts import Facts, Integration
from dslint.rule import Example, Finding, rule
from tests.judges import contradictions as judge
from tests.judges.advice import GONE, ways
from tests.judges.contradictions import contradictions, examples, made

ZERO = {"zero_optimization": {"stage": 2, "offload_param": {"device": "cpu"}}}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('Set "stage": 3, or remove the section.', [{"zero_optimization.stage": 3}, {"zero_optimization.offload_param": GONE}]),
        ('Write "stage": 1, 2 or 3.', [{"zero_optimization.stage": stage} for stage in (1, 2, 3)]),
        ('Write "overlap_comm": true in zero_optimization.', [{"zero_optimization.overlap_comm": True}]),
        ('Use AdamW, or Lamb with "stage": 0.', [{"optimizer.type": "AdamW"}, {"zero_optimization.stage": 0, "optimizer.type": "Lamb"}]),
        ("Write a directory on a disk.", []),
        ("Remove it. Use fp16, bf16 or torch_autocast.", [{"zero_optimization.offload_param": GONE}]),
    ],
)
def test_the_alternatives_of_a_help_are_read(text: str, expected: list[dict[str, object]]) -> None:
    found = Diagnostic(
        "ds.json", "DS501", "x", Severity.WARNING, Effect.IGNORED, None, "Found.", text, pointer="/zero_optimization/offload_param"
    )
    assert [{".".join(path): value for path, value in way.changes} for way in ways(found, ZERO)] == expected


@rule("DS997", effect=Effect.SLOW)
def advises_stage_3(config: Config) -> Iterator[Finding]:
    """Advises stage 3."""
    if config.value("zero_optimization.stage") == 2:
        yield Finding("zero_optimization.stage", "Slow.", help='Set "stage": 3.', costly=True)


@rule("DS998", effect=Effect.CRASH, phase=Phase.INITIALIZE)
def refuses_stage_3(config: Config) -> Iterator[Finding]:
    """Refuses stage 3."""
    if config.value("zero_optimization.stage") == 3:
        yield Finding("zero_optimization.stage", "It crashes.", help='Set "stage": 2.')


@rule("DS999", effect=Effect.IGNORED)
def advises_stage_1(config: Config) -> Iterator[Finding]:
    """Advises stage 1."""
    if config.value("zero_optimization.stage") == 2:
        yield Finding("zero_optimization.stage", "Nothing happens.", help='Set "stage": 1.')


def test_contradictions_are_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    case = Example('{"train_micro_batch_size_per_gpu": 4, "zero_optimization": {"stage": 2}}', Context(Facts(1, Integration.DEEPSPEED)))
    for rules, expected in (
        ((advises_stage_3,), set()),
        ((advises_stage_3, refuses_stage_3), {("crash", "DS997", "DS998")}),
        ((advises_stage_3, advises_stage_1), {("advice", "DS997", "DS999")}),
    ):
        monkeypatch.setattr(judge, "RULES", rules)
        assert {one[:3] for one in contradictions(case)} == expected


@pytest.mark.slow
def test_no_advice_leads_into_another_rule() -> None:
    cases = [*list(examples())[::36], *((str(seed), made(seed)) for seed in range(7_000, 7_002))]
    assert [(name, one) for name, case in cases for one in contradictions(case)] == []


@pytest.mark.slow
def test_no_advice_of_any_example_leads_into_another_rule() -> None:
    cases = [*examples(), *((str(seed), made(seed)) for seed in range(8_000, 8_200))]
    assert [(name, one) for name, case in cases for one in contradictions(case)] == []
