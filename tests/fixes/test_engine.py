"""What DeepSpeed makes of mended examples: what it refused it refuses no more, and what it ran it runs as before where a fix is safe."""

from __future__ import annotations

import json

import pytest

from dslint.diagnostics import Applicability, Effect, Phase
from dslint.facts import NEWEST, Facts, Integration
from dslint.fixes.apply import fix
from dslint.lint.document import lint_text
from dslint.lint.results import FileResult
from dslint.registry.rules import loaded_rules
from dslint.rule import Example, Rule
from tests.engine.harness import Case, Engine, Upto

pytestmark = pytest.mark.deepspeed

FILLED = (Integration.TRANSFORMERS, Integration.ACCELERATE)


def judged_by_deepspeed(text: str, facts: Facts) -> bool:
    """Whether the newest DeepSpeed reads the text as it stands."""
    return facts.deepspeed == NEWEST and not (facts.integration in FILLED and '"auto"' in text)


def mended(rule: Rule, example: Example) -> tuple[str, bool, Upto] | None:
    """The text of an example with the fixes of its rule made, whether all of them are safe, and how far to look; None where that proves nothing."""

    def lint(text: str) -> FileResult:
        result = lint_text(text, "ds.json", example.context, (rule,))
        assert result is not None
        return result

    fixable = [diagnostic for diagnostic in lint(example.text).diagnostics if diagnostic.fix]
    kinds = {diagnostic.fix.applicability for diagnostic in fixable if diagnostic.fix}
    safe = kinds == {Applicability.SAFE}
    phases = {diagnostic.phase for diagnostic in fixable if diagnostic.effect is Effect.CRASH}
    if not safe and not phases:
        return None
    upto: Upto = "parse" if phases == {Phase.PARSE} else "initialize" if phases == {Phase.INITIALIZE} else "step"
    return fix(example.text, lint, kinds).text, safe, upto


def case(name: str, text: str, facts: Facts, upto: Upto) -> Case:
    """The question, put as the integration puts it: the Hugging Face ones hand DeepSpeed a dict."""
    handed = facts.integration in FILLED
    config = json.loads(text) if handed else None
    return Case(name, text=None if handed else text, config=config, world_size=facts.world_size or 1, upto=upto, optimizer=True)


def test_what_fixes_of_examples_do_to_training(engine: Engine) -> None:
    names: list[tuple[str, bool]] = []
    cases: list[Case] = []
    for rule in loaded_rules():
        for number, example in enumerate(() if rule.untried else rule.bad):
            if example.files or not judged_by_deepspeed(example.text, example.facts):
                continue
            found = mended(rule, example)
            if found is None or not judged_by_deepspeed(found[0], example.facts):
                continue
            text, safe, upto = found
            names.append((f"{rule.code}-{number}", safe))
            cases += [case("was", example.text, example.facts, upto), case("is", text, example.facts, upto)]
    outcomes = engine.ask(cases)
    wrong, mends, kept = [], 0, 0
    for index, (name, safe) in enumerate(names):
        was, is_ = outcomes[2 * index], outcomes[2 * index + 1]
        if was.raised and is_.error == was.error and was.phase == is_.phase:
            if "client provided optimizer" not in str(was.error):  # the program's own optimizer, which is not the one at fault
                wrong.append(f"{name}: still {is_.error}")
        elif not was.raised and safe and (is_.raised or is_.engine != was.engine):
            wrong.append(f"{name}: {is_.error} {was.engine} {is_.engine}")
        elif was.raised:
            mends += 1
        else:
            kept += 1
    print(f"\n{len(names)} examples fixed: {mends} that DeepSpeed refused, {kept} that it trains as before")
    assert not wrong, "\n".join(wrong)
    assert mends > 50
    assert kept > 10
