"""`benchmarks/throughput.py`: what it prints for made measurements."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
SPEC = importlib.util.spec_from_file_location("throughput", ROOT / "benchmarks/throughput.py")
assert SPEC is not None
assert SPEC.loader is not None
throughput = importlib.util.module_from_spec(SPEC)
sys.modules["throughput"] = throughput
SPEC.loader.exec_module(throughput)

ROW: dict[str, Any] = {
    "id": "made", "source": "somebody/repository README.md", "group": "made", "year": 2025, "model": "7B", "params": 7e9, "layers": 32,
    "hidden": 4096, "heads": 32, "vocab": 32000, "seq": 2048, "micro_batch": 4, "gas": 1, "gpus": 8, "gpus_per_node": 8, "gpu": "A100 80GiB",
    "interconnect": "nvlink", "stage": 2, "offload_optimizer": None, "offload_param": None, "tp": 1, "pp": 1, "sp": 1, "precision": "bf16",
    "checkpointing": False, "flash_attention": True, "trainable": "full", "measure": "s_per_step", "value": 1.0, "oom": False, "note": "",
    "rank_group": None,
}  # fmt: skip


def rows(tmp_path: Path, *changes: dict[str, Any]) -> str:
    file = tmp_path / "rows.jsonl"
    file.write_text("".join(json.dumps({**ROW, **change}) + "\n" for change in changes), encoding="utf-8")
    return str(file)


def printed(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, *arguments: str) -> str:
    monkeypatch.setattr(sys, "argv", ["throughput.py", *arguments])
    throughput.main()
    return capsys.readouterr().out


def test_a_measurement_in_every_unit_is_the_same_time(tmp_path: Path) -> None:
    found, _ = throughput.read(rows(tmp_path, {"value": 2.0}))
    flops = throughput.flops_per_token(found[0].job)
    units = {"s_per_step": 2.0, "samples_per_s": 16.0, "tokens_per_s_per_gpu": 4096.0, "tflops_per_gpu": 4096 * flops / 1e12}
    again, _ = throughput.read(rows(tmp_path, *({"measure": unit, "value": value} for unit, value in units.items())))
    assert [row.seconds for row in again] == pytest.approx([2.0] * 4)


def test_times_and_groups_are_scored(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """The config with offload is the slowest, as measured; the rule of thumb picks the largest micro batch, as the model does."""
    group = {"rank_group": "made", "measure": "samples_per_s"}
    file = rows(
        tmp_path,
        {**group, "id": "plain", "value": 20.0},
        {**group, "id": "offload", "offload_optimizer": "cpu", "value": 5.0},
        {**group, "id": "small", "micro_batch": 1, "value": 12.0},
        {**group, "id": "out of memory", "micro_batch": 64, "value": None, "oom": True},
        {"params": None, "value": 3.0},
    )
    out = printed(capsys, monkeypatch, file)
    assert "4 rows, 1 more without the facts for a prediction" in out
    assert "times: 3 rows" in out
    lines = [line.split() for line in out.splitlines()]
    assert ["model", "1.00", "of", "1", "100%", "1.00"] in lines
    assert ["rule", "of", "thumb", "1.00", "of", "1", "100%", "1.00"] in lines
    assert ["random", "pick", "0.33", "of", "1", "33%", "0.00"] in lines


def test_rows_that_ran_out_of_memory_are_named_if_they_would_be_chosen(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that surely does not fit, one that surely does, and one with a pipeline."""
    oom = {"oom": True, "value": None}
    file = rows(
        tmp_path,
        {**oom, "id": "large", "micro_batch": 64},
        {**oom, "id": "small", "params": 1e8, "layers": 4, "hidden": 512, "heads": 8},
        {**oom, "pp": 4},
    )
    out = printed(capsys, monkeypatch, file)
    assert "3 rows ran out of memory, of which 1 surely fit by their estimate small; 1 say too little or have a pipeline" in out


def test_a_wrong_order_is_lost(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    group = {"rank_group": "made", "measure": "samples_per_s"}
    file = rows(
        tmp_path, {**group, "value": 5.0}, {**group, "offload_optimizer": "cpu", "value": 20.0}, {**group, "micro_batch": 1, "value": 12.0}
    )
    out = printed(capsys, monkeypatch, file, "--rows")
    assert ["model", "0.00", "of", "1", "0%", "-1.00"] in [line.split() for line in out.splitlines()]


def test_two_equal_configs_that_differ_by_half_are_a_wrong_call(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    group = {"rank_group": "made"}
    changes = [{**group, "id": "a", "value": 1.0}, {**group, "id": "b", "value": 1.5}, {**group, "id": "c", "value": 1.1}]
    assert "3 pairs too close to call, of which 2 differ by 25 %" in printed(capsys, monkeypatch, rows(tmp_path, *changes))
    changes[1]["note"] = "outlier of the source: slower than its neighbours"
    assert "1 pairs too close to call, of which 0 differ by 25 %" in printed(capsys, monkeypatch, rows(tmp_path, *changes))


@pytest.mark.parametrize(
    ("changes", "experts"),
    [
        ({"model": "Qwen3-30B-A3B", "year": 2025}, 128),
        ({"model": "Qwen3-30B-A3B", "year": 2026}, 0),
        ({"model": "Qwen3-30B-A3B", "year": 2026, "experts": 64}, 64),
        ({"model": "Llama-2-7B", "year": 2025}, 0),
        ({"model": "their own", "year": 2025}, 0),
    ],
)
def test_the_experts_of_a_known_model_are_known(tmp_path: Path, changes: dict[str, Any], experts: int) -> None:
    found, _ = throughput.read(rows(tmp_path, {**ROW, **changes}))
    assert found[0].job.modules == found[0].job.layers * (throughput.MODULES + throughput.EXPERT_MODULES * experts)


def test_a_source_is_scored_with_constants_fitted_to_the_others(tmp_path: Path) -> None:
    """All jobs of a source that trains twice as slowly as expected: what is fitted to it is slower, what is fitted without it is not."""
    plain, _ = throughput.read(rows(tmp_path, ROW))
    expected = throughput.step(plain[0].job).seconds
    changes = [{"source": f"a/{number}", "value": 1.6 * expected} for number in range(3)] + [{"source": "b/b", "value": expected}]
    found, _ = throughput.read(rows(tmp_path, *changes))
    by_source = {time.row.source: time.ratio for time in throughput.left_out(found)}
    assert by_source["b/b"] > 1.2
    assert by_source["a/1"] < by_source["b/b"]
