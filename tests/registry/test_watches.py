"""A rule runs only where one of its watches holds, and misses nothing by it.

Proven rule by rule: wherever the watches say that a rule cannot run, it runs here all the same, and has to find nothing.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from dslint.config import Config, resolve
from dslint.config.context import Context
from dslint.config.infer import infer
from dslint.config.violations import ViolationKind
from dslint.diagnostics import Effect
from dslint.facts import Facts, Integration, Release
from dslint.job.model import Setup
from dslint.lint.document import lint_document
from dslint.lint.run import IGNORES
from dslint.registry.rules import loaded_rules
from dslint.registry.watches import can_run, signals_of
from dslint.rule import Finding, Rule
from dslint.source.parse import parse
from dslint.source.tree import Document, Mapping
from tests.cases import table
from tests.rules.test_no_rule_fails import odd_config
from tests.setup.beside import context_of

sys.path.append(str(Path(__file__).resolve().parents[2] / "scripts"))

import build_rule_index

RULES = loaded_rules()
ROOT = Path(__file__).resolve().parents[2]
FACTS = (
    Facts(),
    Facts(8, Integration.TRANSFORMERS),
    Facts(4, Integration.ACCELERATE, Release(0, 16, 9)),
    Facts(1, Integration.DEEPSPEED, Release(0, 9, 0)),
    Facts(2, Integration.LIGHTNING),
)


def missed(document: Document, given: Facts | Context, rules: Sequence[Rule] = RULES) -> list[str]:
    """Rules that find something although none of their watches holds."""
    config = resolve(document, given)
    signals = signals_of(config)
    assert {violation.kind for violation in config.violations} <= set(ViolationKind)
    idle = [
        rule for rule in rules if not can_run(rule.watches, signals) and all(config.context.get(need) is not None for need in rule.needs)
    ]
    return [rule.code for rule in idle if IGNORES not in rule.watches and list(rule.check(config))]


def with_one_section_less(document: Document) -> Iterator[Document]:
    """The document, and the document without each of its members, and of the members of its sections."""
    yield document
    if not isinstance(document.root, Mapping):
        return
    members = document.root.members
    for number, member in enumerate(members):
        yield _with(document, [*members[:number], *members[number + 1 :]])
        if isinstance(member.value, Mapping):
            for inner in member.value.members:
                less = Mapping(member.value.span, [other for other in member.value.members if other is not inner])
                changed = type(member)(member.key, less)
                yield _with(document, [*members[:number], changed, *members[number + 1 :]])


def _with(document: Document, members: list[object]) -> Document:
    assert document.root is not None
    root = Mapping(document.root.span, members)  # type: ignore[arg-type]
    return Document(
        document.text,
        root,
        comments=document.comments,
        problems=document.problems,
        departures=document.departures,
        language=document.language,
    )


@pytest.mark.slow
@table("rule", RULES, ids=lambda rule: rule.code)
def test_a_rule_is_not_missed_on_its_examples(rule: Rule) -> None:
    for example in (*rule.bad, *rule.good):
        context = context_of(example)
        for document in with_one_section_less(parse(example.text)):
            assert missed(document, infer(document, context), [rule]) == [], example.text


OTHERS = 4
"""Examples of a rule on which all others are asked; it is asked on each of its own. All are of the same kind: more took ten minutes."""


@pytest.mark.slow
@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.code)
def test_no_rule_is_missed_on_an_example_of_another(rule: Rule) -> None:
    for example in (*rule.bad[: OTHERS // 2], *rule.good[: OTHERS // 2]):
        context = context_of(example)
        for document in with_one_section_less(parse(example.text)):
            assert missed(document, infer(document, context)) == [], example.text


@pytest.mark.parametrize("path", sorted((ROOT / "examples").rglob("*.*json")), ids=lambda path: path.name)
@pytest.mark.parametrize("facts", FACTS, ids=lambda facts: str(facts.integration))
def test_no_rule_is_missed_on_a_file(path: Path, facts: Facts) -> None:
    for document in with_one_section_less(parse(path.read_text(encoding="utf-8"))):
        assert missed(document, facts) == []


@pytest.mark.parametrize("seed", [*range(5), *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(5, 60))])
def test_no_rule_is_missed_on_an_odd_config(seed: int) -> None:
    document = parse(json.dumps(odd_config(seed)))
    for one in with_one_section_less(document):
        assert missed(one, FACTS[seed % len(FACTS)]) == [], document.text


@pytest.mark.parametrize(
    ("watches", "text", "given", "runs"),
    [
        ((), "{}", Facts(), True),
        (("always: it is about the whole file",), "{}", Facts(), True),
        (("bf16",), "{}", Facts(), False),
        (("bf16",), '{"bf16": {"enabled": true}}', Facts(), True),
        (("bf16.enabled",), '{"bf16": {}}', Facts(), False),
        (("bf16.enabled",), '{"bf16": true}', Facts(), True),
        (("fp16", "bf16.enabled"), '{"bf16": {"enabled": null}}', Facts(), True),
        (("zero_optimization.stage",), '{"zero_optimization": "3"}', Facts(), True),
        (("zero_optimization.stage3_prefetch_bucket_size",), '{"zero_optimization": {"prefetch_bucket_size": 5}}', Facts(), True),
        (("zero_optimization.offload_optimizer.device",), '{"zero_optimization": {"cpu_offload": true}}', Facts(), True),
        (("zero_optimization.offload_param.device",), '{"zero_optimization": {"cpu_offload": true}}', Facts(), False),
        (("optimizer.params.lr",), '{"optimizer": {"params": "auto"}}', Facts(), True),
        (("optimizer.params.lr",), '{"optimizer": {"type": "x", "params": {"eps": 1}}}', Facts(), False),
        (("!optimizer",), "{}", Facts(), True),
        (("!optimizer",), '{"optimizer": null}', Facts(), True),
        (("!optimizer",), '{"optimizer": {}}', Facts(), False),
        (("=auto",), '{"optimizer": {"params": {"betas": ["auto", 0.9]}}}', Facts(), True),
        (("=auto",), '{"optimizer": {"type": "automatic"}}', Facts(), False),
        (("fact:world_size",), "{}", Facts(world_size=2), True),
        (("fact:world_size",), "{}", Facts(), False),
        (("violation:unknown-key",), '{"bf17": {}}', Facts(), True),
        (("violation:unknown-key",), '{"bf16": {}}', Facts(), False),
        (("text",), "{}", Facts(), False),
        (("text",), "{} // note", Facts(), True),
        (("text",), '{"bf16": {}, "bf16": {}}', Facts(), True),
        (("text",), "[]", Facts(), True),
        (("setup",), "{}", Facts(), False),
        (("setup",), "{}", Context(setup=Setup(config="ds_config.json")), True),
    ],
)
def test_each_watch_holds_where_it_says(watches: tuple[str, ...], text: str, given: Facts | Context, runs: bool) -> None:
    assert can_run(watches, signals_of(resolve(parse(text), given))) is runs


@pytest.mark.parametrize(
    "watch",
    [
        "zero_optimisation.stage",
        "!offload",
        "fact:weather",
        "fact:setup",
        "violation:wrong",
        "always",
        "always: so",
        "optimizer.params.x",
        "",
    ],
)
def test_a_watch_that_means_nothing_is_refused(watch: str) -> None:
    assert build_rule_index.problem_of(watch)


def test_few_rules_always_run() -> None:
    always = [rule.code for rule in RULES if any(watch.startswith("always") for watch in rule.watches)]
    assert len(always) <= 15, always


def test_a_rule_runs_only_where_a_watch_holds() -> None:
    """The linter asks `can_run`: a rule that would raise is left alone."""

    def check(config: Config) -> list[Finding]:
        raise AssertionError(config)

    rule = Rule("DS999", "made-up", Effect.ADVICE, None, check, "", watches=("bf16",))
    assert lint_document(parse("{}"), "c.json", Facts(), [rule]).diagnostics == ()
    assert [d.code for d in lint_document(parse('{"bf16": {}}'), "c.json", Facts(), [rule]).diagnostics] == ["DS000"]
