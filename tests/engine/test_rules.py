"""Every rule of effect crash is tried: the real DeepSpeed raises in the claimed phase on the bad example, and runs the good one."""

from __future__ import annotations

import json

import pytest

from dslint.config.resolve import resolve
from dslint.diagnostics import Effect, Phase
from dslint.facts import NEWEST, Integration
from dslint.frameworks.engine_optimizer import runs_without_optimizer
from dslint.lint.document import lint_document
from dslint.registry.rules import loaded_rules
from dslint.rule import Example, Rule
from dslint.source.parse import parse
from tests.engine.harness import Case, Engine, Outcome, Upto
from tests.setup.beside import context_of

pytestmark = pytest.mark.deepspeed

FILLED = (Integration.TRANSFORMERS, Integration.ACCELERATE)


def examples(kind: str) -> list[tuple[Rule, Example, str]]:
    """The examples that DeepSpeed alone can judge: no other release, and nothing for an integration or the files of a setup to fill in first."""
    found = []
    for rule in loaded_rules():
        if rule.effect is Effect.CRASH and rule.untried is None:
            for number, example in enumerate(getattr(rule, kind)):
                filled = (example.facts.integration in FILLED or example.files) and '"auto"' in example.text
                launched = any(name == "run.sh" for name, _ in example.files)  # a launch says who passes the optimizer, or that one tunes
                elsewhere = launched or example.facts.integration is Integration.LIGHTNING
                if example.facts.deepspeed == NEWEST and not filled and not (kind == "good" and elsewhere):
                    found.append((rule, example, f"{rule.code}-{kind}-{number}"))
    return found


def outcome(engine: Engine, example: Example, name: str) -> Outcome:
    """What DeepSpeed does with the example, asked by the test that needs it: workers of pytest-xdist share no answers.

    The engine gets an optimizer, unless the program passes none: it then only evaluates. Where the program passes one, it replaces the section.
    """
    config = resolve(parse(example.text), context_of(example))
    trains = not runs_without_optimizer(config)
    upto: Upto = "step" if trains else "initialize"
    text = example.text
    if "optimizer" in config.replaced:
        text = json.dumps({key: value for key, value in json.loads(text).items() if key != "optimizer"})
    return engine.ask([Case(name, text=text, world_size=example.facts.world_size or 1, upto=upto, optimizer=trains)])[0]


def parameters(kind: str) -> list[object]:
    return [pytest.param(rule, example, name, id=name) for rule, example, name in examples(kind)]


@pytest.mark.parametrize(("rule", "example", "name"), parameters("bad"))
def test_deepspeed_raises_in_the_claimed_phase(rule: Rule, example: Example, name: str, engine: Engine) -> None:
    found = [d for d in lint_document(parse(example.text), "c.json", example.context, (rule,)).diagnostics if d.code == rule.code]
    if not found and any(name.endswith(".py") for name, _ in example.files):
        return  # the program decides, and DeepSpeed alone runs the config
    if found[0].effect is not Effect.CRASH:
        return
    if found[0].phase is Phase.LOAD and example.facts.integration in FILLED:
        return  # the integration raises before DeepSpeed sees the config; tests/frameworks asks it
    asked = outcome(engine, example, name)
    assert asked.raised, "DeepSpeed runs it"
    assert asked.phase == found[0].phase, asked.error


@pytest.mark.parametrize(("rule", "example", "name"), parameters("good"))
def test_deepspeed_runs_the_good_example(rule: Rule, example: Example, name: str, engine: Engine) -> None:
    asked = outcome(engine, example, name)
    assert not asked.raised, (asked.phase, asked.error)


def test_every_crash_is_tried_or_says_why_not() -> None:
    tried = {rule.code for rule, _, _ in examples("bad")}
    for rule in loaded_rules():
        if rule.effect is Effect.CRASH and rule.code not in tried:
            assert rule.untried or rule.phase is Phase.LOAD, rule.code


def test_configure_raises_for_a_contiguous_buffer_of_unknown_size(engine: Engine) -> None:
    """The crash of DS702 comes from `deepspeed.checkpointing.configure`, which the program calls."""
    rule = next(rule for rule in loaded_rules() if rule.code == "DS702")
    bad, good = (Case(kind, text=getattr(rule, kind)[0].text, upto="step", optimizer=True, checkpointing=True) for kind in ("bad", "good"))
    raised, ran = engine.ask([bad, good])
    assert raised.phase == "initialize"
    assert "number of layers" in str(raised.error)
    assert not ran.raised, ran.error


def test_stages_1_and_2_raise_without_an_optimizer(engine: Engine) -> None:
    """The crash of DS654: neither the config nor the worker has an optimizer."""
    text = '{"train_micro_batch_size_per_gpu": 1, "zero_optimization": {"stage": %d}}'
    one, two, three = engine.ask([Case(str(stage), text=text % stage, upto="initialize") for stage in (1, 2, 3)])
    for raised in (one, two):
        assert raised.phase == "initialize"
        assert "requires an optimizer" in str(raised.error)
    assert not three.raised, three.error


def test_a_client_optimizer_raises_with_offload(engine: Engine) -> None:
    """The crash of DS525: the worker passes torch's AdamW to a config without an optimizer."""
    text = '{"train_micro_batch_size_per_gpu": 1, "zero_optimization": {"stage": 2, "offload_optimizer": {"device": "%s"}}}'
    raised, ran = engine.ask([Case(device, text=text % device, upto="initialize", optimizer=True) for device in ("cpu", "none")])
    assert raised.phase == "initialize"
    assert "client provided optimizer" in str(raised.error)
    assert not ran.raised, ran.error
