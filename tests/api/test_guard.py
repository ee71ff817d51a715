"""`dslint.guard`, by itself and in a job of two ranks."""

from __future__ import annotations

import importlib.util
import os
import socket
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import pytest

import dslint

ROOT = Path(__file__).resolve().parents[2]

GOOD: dict[str, Any] = {"train_micro_batch_size_per_gpu": 4, "zero_optimization": {"stage": 2}}
WRONG = {**GOOD, "zero_optimization": {"stage": 9}}
ODD = {**GOOD, "zero_optimization": {"stage": 2, "offload_param": {"device": "cpu"}}}


@pytest.fixture(autouse=True)
def no_job(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("RANK", "WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)


def test_an_error_raises() -> None:
    assert dslint.guard(GOOD) == []
    with pytest.raises(dslint.ConfigError) as raised:
        dslint.guard(WRONG)
    assert [d.code for d in raised.value.diagnostics] == ["DS107"]


def test_a_warning_is_issued_on_rank_0_only(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.warns(dslint.ConfigWarning, match="DS501"):
        assert [d.code for d in dslint.guard(ODD)] == ["DS501"]
    with pytest.warns(dslint.ConfigWarning, match="DS107"):
        dslint.guard(WRONG, warn=True)
    monkeypatch.setenv("RANK", "1")
    with warnings.catch_warnings(record=True) as issued:
        warnings.simplefilter("always")
        dslint.guard(ODD)
    assert issued == []


def test_the_facts_are_those_of_the_job(monkeypatch: pytest.MonkeyPatch) -> None:
    config = {"train_batch_size": 12, "train_micro_batch_size_per_gpu": 3}
    assert dslint.guard(config) == []
    monkeypatch.setenv("WORLD_SIZE", "8")
    with pytest.raises(dslint.ConfigError, match="DS201"):
        dslint.guard(config)
    assert dslint.guard(config, world_size=4) == []


class Model:
    """A model as transformers builds it, as far as dslint reads it."""

    class config:  # noqa: N801 - the attribute of a model
        @staticmethod
        def to_dict() -> dict[str, Any]:
            return {"model_type": "llama", "hidden_size": 4096, "torch_dtype": "bfloat16"}


class FusedAdam:
    """An optimizer of the program."""


def test_the_model_and_the_optimizer_are_known() -> None:
    half = {**GOOD, "fp16": {"enabled": True}}
    assert "DS325" in [d.code for d in dslint.guard(half, model=Model())]
    with pytest.warns(dslint.ConfigWarning, match="DS945"):
        dslint.guard({**GOOD, "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}}}, optimizer=FusedAdam())


JOB = """
import sys, time, warnings
import torch.distributed as dist
import dslint
from datetime import timedelta
from dslint.api import guarding

rank, address = int(sys.argv[1]), sys.argv[2]
warnings.simplefilter("ignore")
dist.init_process_group("gloo", init_method=address, rank=rank, world_size=2, timeout=timedelta(seconds=60))
good = {"train_micro_batch_size_per_gpu": 4, "zero_optimization": {"stage": 2}}
wrong = {"train_micro_batch_size_per_gpu": 4, "zero_optimization": {"stage": 9}}

def outcome(config, **more):
    try:
        dslint.guard(config, **more)
    except Exception as error:
        return type(error).__name__
    return "none"

found = [outcome(good), outcome(wrong), outcome(wrong if rank == 0 else good), outcome(good if rank == 0 else wrong)]
found.append(outcome(good, world_size=0 if rank == 0 else 2))
guarding.PATIENCE = timedelta(seconds=1)
start = time.monotonic()
if rank == 1:  # rank 0 does not call guard
    found.append(outcome(wrong))
    found.append("soon" if time.monotonic() - start < 30 else "late")
dist.barrier()
if rank == 0:  # rank 0 is so late that rank 1 has gone on
    next(guarding._calls)
    time.sleep(2)
found.append(outcome(wrong))
dist.barrier()
print(*found)
"""


@pytest.mark.integrations
@pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="requires torch")
def test_two_ranks_decide_alike_and_never_hang(tmp_path: Path) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"tcp://127.0.0.1:{free.getsockname()[1]}"
    program = tmp_path / "job.py"
    program.write_text(JOB, encoding="utf-8")
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    ranks = [
        subprocess.Popen(
            [sys.executable, str(program), str(rank), address], stdout=subprocess.PIPE, text=True, env=environment, cwd=tmp_path
        )
        for rank in (0, 1)
    ]
    first, second = (rank.communicate(timeout=120)[0].split() for rank in ranks)
    assert first == ["none", "ConfigError", "ConfigError", "none", "none", "none"]
    assert second == ["none", "ConfigError", "ConfigError", "none", "none", "none", "soon", "none"]
