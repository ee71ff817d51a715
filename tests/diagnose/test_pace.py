"""A job that is slower than expected is told so, with the likely reasons; one that is not is left alone."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

from dslint.diagnose.context import LogContext
from dslint.diagnose.diagnose import diagnose
from dslint.diagnose.diagnosis import LikelyCause
from dslint.diagnose.reading import LogSource
from dslint.facts import Facts
from dslint.facts.gpus import GPUS
from tests.command import dslint

CONFIG: dict[str, Any] = {
    "train_micro_batch_size_per_gpu": 2,
    "gradient_accumulation_steps": 4,
    "bf16": {"enabled": True},
    "zero_optimization": {"stage": 2},
}


def notices(seconds: float, gpu: str = "a100", length: int | None = 2048, **changes: Any) -> list[LikelyCause]:
    """The notices about speed of a job of eight GPUs with steps of so many seconds."""
    lines = [
        "[2026-05-04 09:12:09,530] [INFO] [launch.py:268:main] dist_world_size=8",
        "[2026-05-04 09:12:41,902] [INFO] [logging.py:107:log_dist] [Rank 0] DeepSpeed info: version=0.16.9, git-hash=unknown, git-branch=unknown",
        *([f"Sequence Length: {length}"] if length else []),
        *(f"steps: {step} loss: 2.1 iter time (s): {seconds} samples/sec: 8.0" for step in range(1, 8)),
    ]
    config = json.dumps({**CONFIG, **changes})
    given = LogContext(config=config, model="llama-3.2-1b", facts=Facts(world_size=8, gpu=GPUS[gpu], gpu_memory=GPUS[gpu].memory))
    found = diagnose([LogSource("job.log", io.BytesIO("\n".join(lines).encode()))], given)
    assert len(found) == 1
    return [notice for notice in found[0].notices if notice.kind == "slow"]


def test_a_step_within_the_range_is_not_slow() -> None:
    assert notices(1.0) == []


def test_a_slow_step_is_told_with_the_expected_range() -> None:
    (notice,) = notices(30.0)
    assert notice.title.startswith("A step takes 30 s; ")
    assert notice.title.endswith(" s are expected on 8 a100")
    assert not notice.certain
    assert any("dslint tune" in advice for advice in notice.advice)


def test_without_the_length_of_samples_nothing_is_expected() -> None:
    assert notices(30.0, length=None) == []


def test_the_reasons_name_what_costs_time() -> None:
    v100 = " ".join(notices(300.0, gpu="v100")[0].why)
    assert "bf16 has no tensor cores on v100" in v100
    offload = notices(300.0, zero_optimization={"stage": 2, "offload_optimizer": {"device": "cpu"}})
    assert "CPU optimizer" in offload[0].why[0]
    small = notices(60.0, train_micro_batch_size_per_gpu=1, length=512)
    assert any("only 512 tokens" in why for why in small[0].why)


def test_the_reason_that_costs_most_comes_first() -> None:
    """On a V100 bf16 costs more than small micro batches; with offload of a single micro batch the CPU optimizer costs most."""
    (v100,) = notices(300.0, gpu="v100", train_micro_batch_size_per_gpu=1, length=512)
    assert [word for why in v100.why for word in ("bf16", "only 512 tokens", "data loader") if word in why] == [
        "bf16",
        "only 512 tokens",
        "data loader",
    ]
    offload = {"stage": 2, "offload_optimizer": {"device": "cpu"}}
    (small,) = notices(300.0, train_micro_batch_size_per_gpu=1, gradient_accumulation_steps=1, length=512, zero_optimization=offload)
    assert "CPU optimizer" in small.why[0]
    assert "only 512 tokens" in small.why[1]
    assert "data loader" in small.why[-1]


def test_a_log_that_names_no_gpu_is_judged_by_the_one_that_is_given(tmp_path: Path) -> None:
    lines = [
        "dist_world_size=8",
        "Sequence Length: 2048",
        *(f"steps: {step} loss: 2.1 iter time (s): 60 samples/sec: 1" for step in range(1, 8)),
    ]
    (tmp_path / "job.log").write_text("\n".join(lines), encoding="utf-8")
    (tmp_path / "ds.json").write_text(json.dumps(CONFIG), encoding="utf-8")
    given = ("diagnose", "job.log", "--config", "ds.json", "--model", "llama-3.2-1b")
    assert "are expected" not in dslint(*given, cwd=tmp_path).stdout
    for facts in (("--gpu", "a100", "--world-size", "8"), ("--gpu", "h100", "--world-size", "8")):
        assert f"are expected on 8 {facts[1]}" in dslint(*given, *facts, cwd=tmp_path).stdout


def test_a_fact_that_the_log_contradicts_is_said_not_to_be_used(tmp_path: Path) -> None:
    (tmp_path / "job.log").write_text("dist_world_size=4\ntorch.OutOfMemoryError: CUDA out of memory.\n", encoding="utf-8")
    assert "--world-size 8 is not used: the log says 4." in dslint("diagnose", "job.log", "--world-size", "8", cwd=tmp_path).stderr
    (tmp_path / "ds.json").write_text(json.dumps(CONFIG), encoding="utf-8")
    assert dslint("diagnose", "job.log", "--world-size", "4", "--gpu", "a100", "--config", "ds.json", cwd=tmp_path).stderr == ""
