"""The pages that explain rules."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from dslint.config import Config
from dslint.diagnostics import Effect, Phase
from dslint.registry.rules import loaded_rules
from dslint.report.rule_page import CHAPTER_TITLES, index, render
from dslint.report.style import columns
from dslint.rule import Finding, bad, good, rule

from . import golden


@rule(
    "DS998",
    effect=Effect.CRASH,
    phase=Phase.STEP,
    needs=("world_size", "gpu_memory"),
    references=("https://example.org", "deepspeed/a.py, f"),
)
@bad('{"a": 1}', at="a", world_size=8)
@bad('{"a": 2}', at="a", world_size=8)
@bad(
    '{"train_micro_batch_size_per_gpu": 4, "zero_optimization": {"stage": 2, "list": [1, 5e8, {"x": "y"}]}}',
    at=("a.b", 0),
    integration="transformers",
)
@bad("a: 1 # a comment\nb: 2", at="")
@good('{"a": 3}', deepspeed="0.16.9")
def made_up(config: Config) -> Iterator[Finding]:
    """A rule that is made up, with a summary that is rather longer than it has any need to be.

    A paragraph of
    several lines.

        {"code": "is kept"}

    - an item
      goes on
    - another item

    ```json
    {"fenced":
    "is kept"}
    ```
    The end.
    """
    yield from ()


@rule("DS999", effect=Effect.ADVICE)
def advice_only(config: Config) -> Iterator[Finding]:
    """A summary alone."""
    yield from ()


def test_pages() -> None:
    golden.check("rule_page", render(made_up, color=False, width=80) + "\n\n====\n\n" + render(advice_only, color=True, width=80) + "\n")


def test_the_list() -> None:
    golden.check("rule_index", index([advice_only, made_up], color=False, width=80) + "\n")


@pytest.mark.slow
def test_every_rule_has_a_page_that_fits() -> None:
    pages = {rule.code: render(rule, color=True, width=80) for rule in loaded_rules()}
    assert [code for code, page in pages.items() if page.endswith("\n")] == []
    lines = [(code, line) for code, page in pages.items() for line in re.sub(r"\x1b\[[\d;]+m", "", page).split("\n")]
    assert [one for one in lines if columns(one[1]) > 80 and " " in one[1].strip() and not one[1].startswith(("  ", "Found at"))] == []


def test_the_list_of_loaded_rules_fits_and_knows_every_chapter() -> None:
    text = index(loaded_rules(), color=False, width=80)
    assert all(columns(line) <= 80 for line in text.split("\n"))
    assert all(rule.code[:3] in CHAPTER_TITLES and rule.name in text for rule in loaded_rules())


def test_a_job_that_does_not_reach_deepspeed_is_not_said_to_run_it() -> None:
    (unused,) = (one for one in loaded_rules() if one.code == "DS950")
    page = render(unused, color=False, width=80)
    assert "The training runs without DeepSpeed" in page
    assert "DeepSpeed runs, but not as written" not in page


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("DS504", "warning: What is written has no effect; some findings are errors"),
        ("DS430", "info: DeepSpeed runs slower than necessary; its findings are warnings"),
        ("DS101", "error: DeepSpeed crashes while parsing the config"),
    ],
)
def test_the_page_tells_the_severities_of_single_findings(code: str, said: str) -> None:
    rule = next(one for one in loaded_rules() if one.code == code)
    assert render(rule.load(), color=False, width=200).split("\n")[1] == said
