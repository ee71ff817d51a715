"""The ranks that share a batch are counted once in it."""

from __future__ import annotations

from typing import Any

import pytest

from dslint.config import resolve
from dslint.facts import Facts
from dslint.lint.document import lint_document
from dslint.registry.rules import own_rules
from dslint.rules.ds2_batch.batch_product import batch_size_product
from dslint.source.parse import parse

TRIAD = '{"train_batch_size": %d, "train_micro_batch_size_per_gpu": 4, "gradient_accumulation_steps": 1}'


@pytest.mark.parametrize(
    ("batch", "facts"),
    [
        (32, {}),
        (16, {"pipeline_parallel": 2}),
        (8, {"tensor_parallel": 4}),
        (16, {"sequence_parallel": 2}),
        (4, {"tensor_parallel": 4, "pipeline_parallel": 2}),
    ],
)
def test_ranks_of_one_replica_count_once(batch: int, facts: dict[str, Any]) -> None:
    for written, expected in ((batch, []), (2 * batch, ["DS201"])):
        found = lint_document(parse(TRIAD % written), "c.json", Facts(world_size=8, **facts), (batch_size_product,)).diagnostics
        assert [d.code for d in found] == expected


def test_ranks_that_cannot_be_divided_say_nothing() -> None:
    facts = Facts(world_size=8, pipeline_parallel=3)
    assert not lint_document(parse(TRIAD % 5), "c.json", facts, (batch_size_product,)).diagnostics


def test_deepspeed_counts_the_ranks_of_autotp_in_the_batch() -> None:
    text = '{"train_micro_batch_size_per_gpu": 4, "tensor_parallel": {"autotp_size": 4}}'
    assert resolve(parse(text), Facts(world_size=8, tensor_parallel=4)).value("train_batch_size") == 32


@pytest.mark.parametrize("size", ["1e999", "-1e999", "1e300", "1e-320", "NaN", "1" + "0" * 400])
@pytest.mark.parametrize("others", ["", ', "train_micro_batch_size_per_gpu": 2.5', ', "gradient_accumulation_steps": 1e-10'])
def test_sizes_beyond_floats_are_no_internal_error(size: str, others: str) -> None:
    for first, second in (("train_batch_size", "gradient_accumulation_steps"), ("train_micro_batch_size_per_gpu", "train_batch_size")):
        text = f'{{"{first}": {size}, "{second}": 4{others}}}'
        for facts in (Facts(), Facts(world_size=8)):
            assert "DS000" not in {d.code for d in lint_document(parse(text), "c.json", facts, own_rules()).diagnostics}, text
