"""dslint against the real DeepSpeed, on configs with one mistake each.

Where `DeepSpeedConfig` raises, dslint reports an error of effect crash and phase parse; where it does not, dslint claims no such crash; and what
is no mistake brings no error at all. MISTAKES=N runs whole seeds.
"""

from __future__ import annotations

import os
import random
from collections import Counter, defaultdict

import pytest

from dslint.diagnostics import Diagnostic, Effect, Phase, Severity
from dslint.facts import Facts, Integration
from dslint.lint.document import lint_document
from dslint.registry.rules import default_rules
from dslint.source.parse import parse
from tests.differential.mistakes import Mistake, mistakes
from tests.engine.harness import Case, Engine, Outcome

pytestmark = pytest.mark.deepspeed

FEW = 1_500
"""How many are tried unless MISTAKES asks for whole seeds: some of each kind."""
SEEDS = range(int(os.environ.get("MISTAKES", "1")))


def lint(mistake: Mistake) -> tuple[Diagnostic, ...]:
    facts = Facts(mistake.world_size, Integration.DEEPSPEED)
    return lint_document(parse(mistake.text), "ds_config.json", facts, default_rules()).diagnostics


@pytest.fixture(scope="module")
def tried(engine: Engine) -> list[tuple[Mistake, Outcome, tuple[Diagnostic, ...]]]:
    """Every mistake with what DeepSpeed and dslint make of it."""
    cases = list({(m.text, m.world_size): m for seed in SEEDS for m in mistakes(seed)}.values())
    if "MISTAKES" not in os.environ:
        cases = of_each_kind(random.Random(len(cases)).sample(cases, len(cases)))[:FEW]
    outcomes = engine.ask(Case(str(number), text=m.text, world_size=m.world_size) for number, m in enumerate(cases))
    return [(mistake, outcome, lint(mistake)) for mistake, outcome in zip(cases, outcomes, strict=True)]


def of_each_kind(cases: list[Mistake]) -> list[Mistake]:
    """The cases, the first of each kind before all others, then the second of each."""
    seen: Counter[str] = Counter()
    turns = []
    for case in cases:
        seen[case.kind] += 1
        turns.append((seen[case.kind], case))
    return [case for _, case in sorted(turns, key=lambda turn: turn[0])]


def crashes(found: tuple[Diagnostic, ...]) -> list[Diagnostic]:
    return [d for d in found if d.effect is Effect.CRASH and d.phase is Phase.PARSE and d.severity is Severity.ERROR]


def report(title: str, wrong: list[str], of: int) -> str:
    return f"{title}: {len(wrong)} of {of}\n" + "\n".join(wrong[:40])


def test_there_are_enough_kinds(tried: list[tuple[Mistake, Outcome, tuple[Diagnostic, ...]]]) -> None:
    assert len({mistake.kind for mistake, _, _ in tried}) >= 120


def test_what_deepspeed_refuses_is_an_error(tried: list[tuple[Mistake, Outcome, tuple[Diagnostic, ...]]]) -> None:
    refused = [(m, o, found) for m, o, found in tried if o.raised]
    missed = [f"{m.kind}\n  {m.text!r}\n  {o.error}" for m, o, found in refused if not crashes(found)]
    print(
        f"\nDeepSpeed refuses {len(refused)} of {len(tried)}; dslint finds {len(refused) - len(missed)} ({1 - len(missed) / len(refused):.2%})"
    )
    assert len(missed) <= 0.005 * len(refused), report("missed", missed, len(refused))


def test_what_deepspeed_accepts_is_not_said_to_crash(tried: list[tuple[Mistake, Outcome, tuple[Diagnostic, ...]]]) -> None:
    accepted = [(m, found) for m, o, found in tried if not o.raised]
    wrong = [f"{m.kind}\n  {m.text!r}\n  {crashes(found)[0].code} {crashes(found)[0].message}" for m, found in accepted if crashes(found)]
    print(f"\nDeepSpeed accepts {len(accepted)} of {len(tried)}; dslint claims a crash for {len(wrong)}")
    assert not wrong, report("claimed wrongly", wrong, len(accepted))


def test_what_is_no_mistake_brings_nothing(tried: list[tuple[Mistake, Outcome, tuple[Diagnostic, ...]]]) -> None:
    loud: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for mistake, outcome, found in tried:
        if mistake.harmless:
            assert not outcome.raised, (mistake, outcome.error)
            loud[mistake.kind].update(d.code for d in found if d.severity is Severity.ERROR)
    assert loud
    assert not {kind: codes for kind, codes in loud.items() if codes}
