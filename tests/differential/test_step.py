"""dslint against the real DeepSpeed up to the first training step, on configs with one mistake each.

Where DeepSpeed raises anywhere up to there, dslint reports an error; where it trains, dslint claims no crash up to there; and where a name
or a place is wrong and DeepSpeed says nothing, dslint does. MISTAKES=N runs whole seeds.
"""

from __future__ import annotations

import os
import random
from collections import Counter

import pytest

from dslint.diagnostics import Diagnostic, Effect, Phase, Severity
from dslint.facts import Facts, Integration
from dslint.lint.document import lint_document
from dslint.registry.rules import default_rules
from dslint.source.parse import parse
from tests.differential.mistakes import Mistake, later_mistakes
from tests.engine.harness import Case, Engine, Outcome

pytestmark = pytest.mark.deepspeed

FEW = 600
"""How many are tried unless MISTAKES asks for whole seeds: a training step takes its time."""
SEEDS = range(int(os.environ.get("MISTAKES", "1")))
UP_TO_THE_STEP = (Phase.PARSE, Phase.INITIALIZE, Phase.STEP)
OF_THE_MACHINE = (
    "CUDAOpBuilder",
    "CUDA_HOME",
    "CROSS_SIZE",
    "DataStates",
    "No such file",
    "NCCL",
    "Torch not compiled with CUDA",
    "Unable to JIT load",
    "async_io",
    "must be on supported devices",
    "no attention projection",
    "not associated with a value",
    "nvme_path",
)
"""Words of errors that depend on the machine, on what is installed there, and on the model of the suite."""
CLIENT = "with a client provided optimizer"
"""Words of an error that the suite's own optimizer brings about, where the config's is not read."""
UNTRIED = frozenset(rule.code for rule in default_rules() if rule.load().untried) | {"DS504"}
"""Rules whose crash needs a GPU (DS504: an optimizer for the CPU that meets parameters on the GPU), or a program that calls something."""

Tried = list[tuple[Mistake, Outcome, tuple[Diagnostic, ...]]]


def lint(text: str) -> tuple[Diagnostic, ...]:
    return lint_document(parse(text), "ds_config.json", Facts(1, Integration.DEEPSPEED), default_rules()).diagnostics


@pytest.fixture(scope="module")
def tried(engine: Engine) -> Tried:
    """Every mistake with what DeepSpeed and dslint make of it, but for what only this machine refuses."""
    cases = list({m.text: m for seed in SEEDS for m in later_mistakes(seed)}.values())
    if "MISTAKES" not in os.environ:
        cases = random.Random(len(cases)).sample(cases, FEW)
    outcomes = engine.ask(Case(str(n), text=m.text, world_size=1, upto="step", optimizer=True) for n, m in enumerate(cases))
    together = [(mistake, outcome, lint(mistake.text)) for mistake, outcome in zip(cases, outcomes, strict=True)]
    return [one for one in together if not any(word in (one[1].error or "") for word in (*OF_THE_MACHINE, CLIENT))]


def errors(found: tuple[Diagnostic, ...]) -> list[Diagnostic]:
    return [d for d in found if d.severity is Severity.ERROR]


def crashes(found: tuple[Diagnostic, ...]) -> list[Diagnostic]:
    return [d for d in errors(found) if d.effect is Effect.CRASH and d.phase in UP_TO_THE_STEP and d.code not in UNTRIED]


def report(title: str, wrong: list[str], of: int) -> str:
    return f"{title}: {len(wrong)} of {of}\n" + "\n".join(wrong[:60])


def test_what_raises_up_to_the_first_step_is_an_error(tried: Tried) -> None:
    raised = [one for one in tried if one[1].raised]
    missed = [f"{m.kind} ({o.phase})\n  {m.text!r}\n  {o.error}" for m, o, found in raised if not errors(found)]
    phases = Counter(outcome.phase for _, outcome, _ in raised)
    print(f"\nDeepSpeed raises for {len(raised)} of {len(tried)} ({dict(phases)}); dslint misses {len(missed)}")
    print(report("missed", missed, len(raised)))
    assert len(missed) <= 0.01 * len(raised), report("missed", missed, len(raised))


def test_what_trains_is_not_said_to_crash(tried: Tried) -> None:
    trains = [one for one in tried if not one[1].raised]
    wrong = [f"{m.kind}\n  {m.text!r}\n  {crashes(found)[0].code} {crashes(found)[0].message}" for m, _, found in trains if crashes(found)]
    print(f"\nDeepSpeed trains with {len(trains)} of {len(tried)}; dslint claims a crash for {len(wrong)}")
    assert not wrong, report("claimed wrongly", wrong, len(trains))


def test_a_wrong_name_or_place_in_silence_is_said(tried: Tried) -> None:
    silent = [(m, found) for m, o, found in tried if not o.raised and m.kind.startswith(("name:", "place:")) and "a note" not in m.kind]
    bases = {base: {(d.code, d.pointer) for d in lint(base)} for base in {m.base for m, _ in silent}}
    missed = [f"{m.kind}\n  {m.text!r}" for m, found in silent if not {(d.code, d.pointer) for d in found} - bases[m.base]]
    print(f"\nDeepSpeed says nothing of {len(silent)} wrong names and places; dslint neither of {len(missed)}")
    assert len(missed) <= 0.03 * len(silent), report("missed", missed, len(silent))


def test_the_configs_they_are_made_from_train_and_are_clean(engine: Engine) -> None:
    texts = {mistake.base for mistake in later_mistakes(0)}
    outcomes = engine.ask(Case(text, text=text, world_size=1, upto="step") for text in texts)
    assert not [outcome.error for outcome in outcomes if outcome.raised]
    assert not [d for text in texts for d in lint(text) if d.severity is not Severity.INFO]
