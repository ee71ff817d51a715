"""Every rule finds its bad examples, at the place they name, and nothing in its good ones."""

from __future__ import annotations

import ast
import re

import pytest

from dslint.config import resolve
from dslint.config.context import PARTS
from dslint.config.load import take
from dslint.diagnostics import Diagnostic, Effect
from dslint.facts import Facts
from dslint.lint.document import lint_loaded
from dslint.lint.guard import INTERNAL_ERROR
from dslint.registry.rules import loaded_rules
from dslint.rule import Example, Rule, path_of
from dslint.source.parse import parse
from dslint.source.tree import pointer
from dslint.suppress.comments import apply_comments
from tests.cases import every_case, table
from tests.setup.beside import context_of, fixed_text

pytestmark = pytest.mark.usefixtures("empty_folder")
RULES = loaded_rules()


def lint(example: Example) -> tuple[Diagnostic, ...]:
    """What all rules find in an example."""
    document = parse(example.text)
    found = apply_comments(lint_loaded(take(document, context_of(example)), "ds_config.json", RULES)).diagnostics
    assert [d.message for d in found if d.code == INTERNAL_ERROR] == []
    return found


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.code)
def test_bad_examples_are_found(rule: Rule) -> None:
    with every_case() as case:
        for n, example in enumerate(rule.bad):
            with case(f"{rule.code}-bad-{n}"):
                assert_found(rule, example)


def assert_found(rule: Rule, example: Example) -> None:
    """A bad example has one finding of the rule: at its place, with its message and its fix. No other serious rule speaks about that place."""
    every = lint(example)
    found = [d for d in every if d.code == rule.code]
    assert example.at is not None
    assert [d.pointer or "" for d in found] == [pointer(path_of(example.at))]  # a script has places, and no paths
    (one,) = found
    assert one.range is not None
    assert one.range.start.offset < one.range.end.offset or not example.text
    assert (one.message, fixed_text(one, example)) == (example.message, example.fixed), "run python scripts/generate.py"
    assert one.message.endswith((".", "?")), one.message
    assert "  " not in one.message
    assert "UNKNOWN" not in one.message + (one.help or "")
    assert one.message != one.help
    places = [d.pointer for d in every if d.effect in (Effect.CRASH, Effect.SILENT)]
    assert len(places) == len(set(places)), [(d.code, d.pointer, d.message) for d in every]


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.code)
def test_good_examples_are_clean(rule: Rule) -> None:
    with every_case() as case:
        for n, example in enumerate(rule.good):
            with case(f"{rule.code}-good-{n}"):
                found = lint(example)
                assert [d for d in found if d.code == rule.code] == []
                assert [d for d in found if d.effect in (Effect.CRASH, Effect.SILENT)] == []


@table("rule", RULES, ids=lambda rule: rule.code)
def test_programs_of_examples_are_python(rule: Rule) -> None:
    """A good example that Python cannot read would be clean whatever it says."""
    for example in (*rule.bad, *rule.good):
        for name, text in example.files:
            if name.endswith(".py"):
                compile(text, f"{rule.code}: {name}", "exec", dont_inherit=True, flags=ast.PyCF_ONLY_AST)


@table("rule", RULES, ids=lambda rule: rule.code)
def test_a_rule_is_whole(rule: Rule) -> None:
    assert re.fullmatch(r"DS[0-9P][0-9]{2}", rule.code)
    assert re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", rule.name)
    assert rule.bad, "needs a bad example"
    assert rule.good, "needs a good example"
    assert rule.summary.endswith("."), "the summary is a sentence"
    assert len(rule.summary) <= 120
    assert len(rule.documentation.split("\n\n")) >= 2, "documentation says more than the summary"
    assert not set(rule.needs) - {*Facts._fields, *PARTS}


def test_codes_and_names_are_unique_and_sorted_into_chapters() -> None:
    codes = [rule.code for rule in RULES]
    assert len(codes) == len(set(codes))
    assert len({rule.name for rule in RULES}) == len(RULES)
    for rule in RULES:
        assert rule.module.startswith(f"dslint.rules.{rule.code[:3].lower()}_"), rule.module


@pytest.mark.parametrize("rule", [rule for rule in RULES if rule.needs], ids=lambda rule: rule.code)
def test_a_rule_uses_the_facts_it_needs(rule: Rule) -> None:
    """Without a fact that it needs, a rule finds nothing; a fact that it does not use would only keep it from running."""
    for example in rule.bad:
        document = parse(example.text)
        for fact in rule.needs:
            context = context_of(example)
            context = context._replace(**{fact: None}) if fact in PARTS else context.but(**{fact: None})
            try:
                found = list(rule.check(resolve(document, context)))
            except Exception:  # noqa: BLE001 - it looked for the fact
                continue
            assert found == [], fact
