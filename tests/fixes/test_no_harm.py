"""Fixes that would cost somebody something are not offered, or not unasked."""

from __future__ import annotations

from typing import Any

import pytest

import dslint
from dslint.diagnostics import Applicability

MICRO = {"train_micro_batch_size_per_gpu": 4}


def fixes(config: dict[str, Any], **facts: Any) -> dict[str, tuple[str, Applicability] | None]:
    found = dslint.check({**MICRO, **config}, **{"integration": "deepspeed", **facts})
    return {d.pointer or "": (d.fix.title, d.fix.applicability) if d.fix else None for d in found}


@pytest.mark.parametrize(("name", "meant"), [("learning_rate", "lr"), ("epsilon", "eps"), ("wd", "weight_decay")])
def test_a_parameter_by_another_librarys_name_is_renamed_and_not_lost(name: str, meant: str) -> None:
    found = fixes({"optimizer": {"type": "AdamW", "params": {name: 1e-4}}})
    assert found[f"/optimizer/params/{name}"] == (f'rename to "{meant}"', Applicability.SAFE)


def test_two_betas_are_left_to_the_writer() -> None:
    found = fixes({"optimizer": {"type": "AdamW", "params": {"lr": 1e-4, "beta1": 0.9, "beta2": 0.95}}})
    assert found == {"/optimizer/params/beta1": None, "/optimizer/params/beta2": None}


def test_no_offload_is_turned_on_by_a_guess() -> None:
    found = fixes({"zero_optimization": {"stage": 2, "offload_optimizer": {"device": "gpu"}}})
    assert found["/zero_optimization/offload_optimizer/device"] == ('write "none"', Applicability.UNSAFE)


def test_bf16_gets_no_loss_scale_elsewhere() -> None:
    found = fixes({"bf16": {"enabled": True, "loss_scale": 0}})
    assert found["/bf16/loss_scale"] == ('remove "loss_scale"', Applicability.SAFE)


def test_a_section_that_does_nothing_is_not_thrown_away() -> None:
    found = fixes({"zero_optimization": {"stage": 2}, "zero": {"stage": 3}, "my_settings": {"a": 1}})
    assert set(found.values()) == {None}


def test_what_accelerate_overwrites_is_no_crash() -> None:
    config = {"steps_per_print": "inf", "zero_optimization": {"stage": 0}}
    assert fixes(config, integration="transformers") == {}
    assert "/steps_per_print" in fixes(config)


def test_the_quoted_error_names_what_is_written() -> None:
    (found,) = dslint.check({**MICRO, "zero_optimization": 2}, integration="deepspeed")
    assert "must be a mapping, not int" in found.message
