"""What older releases take: pydantic 1's conversions against `pydantic.v1` itself, and facts that were tried on those releases."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest
from pydantic import v1

from dslint.config import Config, resolve
from dslint.config.coerce import INVALID, coerce_1
from dslint.facts import Facts, Integration, Release
from dslint.source.parse import parse
from tests.cases import table

VALUES: tuple[Any, ...] = (
    None, True, False, -1, 0, 1, 2, 10**18, 10**400, 1.0, 1.5, -0.5, 1e30, float("inf"), float("nan"),
    "", "word", "auto", "7", " 7 ", "-3", "1_000", "1.0", "2.5", "5e8", "1e400", "true", "Yes", "off",
    [], [1], ["x"], ["ab"], [["a", 1]], {}, {"x": 1},
)  # fmt: skip


class Bool(v1.BaseModel):
    value: bool


class Int(v1.BaseModel):
    value: int


class Float(v1.BaseModel):
    value: float


class Str(v1.BaseModel):
    value: str


class List(v1.BaseModel):
    value: list[Any]


class Dict(v1.BaseModel):
    value: dict[Any, Any]


MODELS: dict[str, type[Any]] = {"bool": Bool, "int": Int, "float": Float, "str": Str, "list": List, "dict": Dict}


@table("kind, value", product(MODELS, VALUES))
def test_conversions_are_pydantic_1s(kind: str, value: Any) -> None:
    try:
        expected = MODELS[kind](value=value).value
    except (v1.ValidationError, OverflowError):
        expected = INVALID
    taken = coerce_1(value, kind)
    assert taken is expected or (type(taken) is type(expected) and repr(taken) == repr(expected))


def judged(text: str, release: str) -> Config:
    return resolve(parse(text), Facts(1, Integration.DEEPSPEED, Release.parse(release)))


def refused(text: str, release: str) -> bool:
    found = judged(text, release).violations
    return any(violation.consequence is not None and violation.consequence[:2] == ("raises", "parse") for violation in found)


@pytest.mark.parametrize(
    ("text", "last", "first"),
    [
        ('{"zero_optimization": {"reduce_bucket_size": 2.5}}', "0.14.5", "0.15.0"),
        ('{"wandb": {"team": 7}}', "0.14.5", "0.15.0"),
        ('{"tensorboard": []}', "0.14.5", "0.15.0"),
        ('{"elasticity": {"enabled": false}}', "0.19.7", "0.19.8"),
        ('{"nebula": {}}', "0.19.6", "0.19.7"),
        ('{"bf16": {"x": 1}}', "0.17.0", "0.17.1"),
        ('{"compile": {"enabled": true}}', "0.16.5", "0.16.6"),
        ('{"compile": {"x": true}}', "0.16.5", "0.16.6"),
        ('{"compile": {"x": true}}', "0.13.1", "0.13.2"),
        ('{"zero_optimization": {"zenflow": {"update_interval": 0}}}', "0.19.5", "0.19.6"),
        ('{"zero_optimization": {"mics_shard_size": "auto"}}', "0.19.6", "0.19.7"),
    ],
)
def test_refused_from_a_release_on(text: str, last: str, first: str) -> None:
    assert not refused(text, last)
    assert refused(text, first)


@pytest.mark.parametrize(
    ("text", "last", "first"),
    [
        ('{"zero_optimization": {"stage": "1"}}', "0.14.5", "0.15.0"),
        ('{"comms_logger": {"enabled": "auto"}}', "0.14.5", "0.15.0"),
        ('{"comms_logger": {"x": "auto"}}', "0.14.5", "0.15.0"),
        ('{"bf16": null}', "0.17.0", "0.17.1"),
        ('{"fp16": {"enabled": true, "initial_scale_power": "auto"}}', "0.17.0", "0.17.1"),
        ('{"seq_parallel_comm_data_type": "word"}', "0.16.4", "0.16.5"),
        ('{"compile": {"deepcompile": true}}', "0.14.3", "0.14.4"),
        ('{"weight_quantization": {"x": 1}}', "0.19.8", "0.10.2"),
    ],
)
def test_refused_up_to_a_release(text: str, last: str, first: str) -> None:
    assert refused(text, last)
    assert not refused(text, first)


@pytest.mark.parametrize(
    ("text", "release"),
    [
        ('{"zero_optimization": {"offload_param": {"nvme_path": 7}}}', "0.14.5"),
        ('{"zero_optimization": {"stage": 2.5}}', "0.14.5"),
        ('{"amp": null}', "0.14.5"),
        ('{"amp": {}}', "0.14.5"),
        ('{"curriculum_learning": {"curriculum_type": "seqlen"}}', "0.19.7"),
        ('{"optimizer": {"type": "AdamW", "params": "x"}}', "0.19.8"),
        ('{"torch_autocast": {"lower_precision_safe_modules": 1}}', "0.19.8"),
    ],
)
def test_refused(text: str, release: str) -> None:
    assert refused(text, release)


@pytest.mark.parametrize(
    ("text", "release"),
    [
        ('{"weight_quantization": {"num_bits": 8}}', "0.10.3"),
        ('{"zero_optimization": {"zenflow": "auto"}}', "0.9.5"),
        ('{"compile": {"backend": "auto"}}', "0.19.8"),
        ('{"amp": {"enabled": false}}', "0.14.5"),
        ('{"optimizer": {"params": "x"}}', "0.19.8"),
        ('{"fp16": {"initial_scale_power": "x"}}', "0.16.9"),
        ('{"data_efficiency": {"data_sampling": {"dynamic_batching": {"min_batch_size": "4"}}}}', "0.19.8"),
    ],
)
def test_taken(text: str, release: str) -> None:
    assert not refused(text, release)


def test_a_fraction_is_cut_off() -> None:
    config = judged('{"zero_optimization": {"reduce_bucket_size": 5.5}}', "0.14.5")
    assert config.value("zero_optimization.reduce_bucket_size") == 5


@pytest.mark.parametrize(
    ("steps", "release", "is_refused"),
    [
        ("0.1", "0.19.2", False),
        ("0.1", "0.19.3", True),
        ("100.0", "0.19.2", False),
        ("100", "0.19.3", False),
        ('"100"', "0.19.2", True),
    ],
)
def test_the_release_that_insists_on_whole_steps(steps: str, release: str, *, is_refused: bool) -> None:
    """Before 0.19.3 the warm-up schedules compute with a fraction: `max(2, warmup_num_steps)`."""
    text = f'{{"scheduler": {{"type": "WarmupLR", "params": {{"warmup_num_steps": {steps}}}}}}}'
    found = [one.consequence for one in judged(text, release).violations if one.consequence is not None]
    assert any(consequence[0] == "raises" for consequence in found) is is_refused, found
