"""A program may build a config from parts that dslint does not know: what is absent there may be present in the run."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from dslint.config.context import Context
from dslint.config.resolve import resolve
from dslint.facts.release import NEWEST
from dslint.lint.document import lint_document
from dslint.registry.rules import loaded_rules
from dslint.rule import Example, Rule
from dslint.rules.helpers.precision import cpu_adam
from dslint.source.parse import parse
from dslint.source.tree import Mapping, Node, Sequence
from tests.command import dslint
from tests.setup.beside import context_of


def opened(node: Node | None) -> None:
    """Let every object below a node have more members than are known."""
    if isinstance(node, Mapping):
        node.may_have_more = True
        for member in node.members:
            opened(member.value)
    elif isinstance(node, Sequence):
        for item in node.items:
            opened(item)


def _only_adds(before: Any, after: Any) -> bool:
    """Whether a fix only adds keys to objects that are there."""
    if not (isinstance(before, dict) and isinstance(after, dict)):
        return bool(before == after)
    return all(key in after and _only_adds(before[key], after[key]) for key in before)


def cured_by_a_key() -> list[Any]:
    """The bad examples that are good once a key is added: that is their fix, or what their message says."""
    found = []
    for rule in loaded_rules():
        for number, example in enumerate(rule.bad):
            try:
                before, after = json.loads(example.text), json.loads(example.fixed or example.text)
            except ValueError:
                continue
            if (before != after and _only_adds(before, after)) or re.match(r'\w+ has no "\w+"', example.message or ""):
                found.append(pytest.param(rule, example, id=f"{rule.code}-{number}"))
    return found


@pytest.mark.parametrize(("rule", "example"), cured_by_a_key())
def test_a_key_that_may_be_there_is_not_missing(rule: Rule, example: Example) -> None:
    document = parse(example.text)
    opened(document.root)
    found = lint_document(document, "ds_config.json", context_of(example), [rule]).diagnostics
    assert [one.message for one in found if one.certain] == []


def test_what_a_comprehension_copies_from_an_unknown_dict_is_not_missing(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(
        "import deepspeed\nfrom omegaconf import OmegaConf\nhparams = OmegaConf.load(path)\n"
        'optimizer = {"type": "AdamW", "params": {k: v for k, v in hparams.optimizer.items()}}\n'
        'config = {"train_micro_batch_size_per_gpu": 4, "optimizer": optimizer}\n'
        "engine, *_ = deepspeed.initialize(model=model, config=config)\n",
        encoding="utf-8",
    )
    said = dslint("check", ".", "--isolated", cwd=tmp_path).stdout
    assert "No problems found in 1 file." in said


COMPLETED = """
import deepspeed, json, sys
given = json.load(open(sys.argv[1]))
config = {**given["all"], %s}
engine, *_ = deepspeed.initialize(model=model, model_parameters=model.parameters(), config=config)
"""


def _found(tmp_path: Path, text: str) -> list[dict[str, Any]]:
    (tmp_path / "train.py").write_text(COMPLETED % text, encoding="utf-8")
    arguments = ("--world-size", "8", "--deepspeed", str(NEWEST), "--output-format", "json")
    found: list[dict[str, Any]] = json.loads(dslint("check", "train.py", "--isolated", *arguments, cwd=tmp_path).stdout)["diagnostics"]
    return found


def test_a_batch_is_not_certainly_wrong_where_a_sequence_may_share_it(tmp_path: Path) -> None:
    batch = '"train_batch_size": 30, "train_micro_batch_size_per_gpu": 4, "gradient_accumulation_steps": 1'
    assert [(one["code"], one["severity"]) for one in _found(tmp_path, batch)] == [("DS201", "warning")]


def test_offload_at_stage_0_does_not_crash_where_the_program_may_choose_torch_adam(tmp_path: Path) -> None:
    offload = '"train_micro_batch_size_per_gpu": 4, "zero_optimization": {"stage": 0, "offload_optimizer": {"device": "cpu"}}'
    closed = '"optimizer": {"type": "AdamW", "params": {"lr": 1e-4}}'
    opened_params = closed.replace('"lr"', '**given["params"], "lr"')
    assert [(one["code"], one["severity"]) for one in _found(tmp_path, f"{offload}, {closed}")] == [("DS504", "error")]
    assert [(one["code"], one["severity"]) for one in _found(tmp_path, f"{offload}, {opened_params}")] == [("DS504", "warning")]


def test_the_cpu_adam_is_not_certain_where_the_program_may_choose_torch_adam() -> None:
    text = '{"optimizer": {"type": "AdamW", "params": {"lr": 1e-4}}, "zero_optimization": {"stage": 2, "offload_optimizer": {"device": "cpu"}}}'
    closed, completed = parse(text), parse(text)
    opened(completed.root)
    assert cpu_adam(resolve(closed, Context())) is True
    assert cpu_adam(resolve(completed, Context())) is None
