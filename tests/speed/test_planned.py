"""Where the step-time model is used: `estimate`, `fit` and the editor's lens."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from dslint.facts.gpus import GPUS
from dslint.memory.estimate import estimate
from dslint.memory.numbers import with_adapters
from dslint.speed.compute import flops_per_token
from dslint.speed.planned import Rates, active, adapted, job_of, seconds_of, step_of
from tests.command import dslint
from tests.tune.setups import CONFIG, search


def test_the_job_has_the_figures_of_the_plan() -> None:
    found = search(CONFIG, length=4096)
    job = job_of(found.model, found.base, "bf16", Rates(network=1e9, pcie=2e9))
    assert job.params == found.model.size == 8_030_261_248
    assert job.active == active(found.model) == pytest.approx(found.model.size - 128_256 * 4096, rel=1e-5)  # the embedding only looks up
    assert (job.length, job.micro_batch, job.accumulation, job.gpus, job.stage) == (4096, 1, 8, 8, 3)
    assert (job.recomputed, job.optimizer_on, job.network, job.pcie, job.given) == (1.0, "cpu", 1e9, 2e9, ("pcie",))
    assert job.samples == found.base.samples == 64
    assert flops_per_token(job) == pytest.approx(6 * job.active + 6 * 32 * 4096 * 4096)


@pytest.mark.parametrize(("targets", "features"), [((), 2 * 8192 + 2 * 5120 + 3 * (4096 + 14336)), (("q_proj", "v_proj"), 8192 + 5120)])
def test_adapters_are_priced_by_the_modules_that_have_them(targets: tuple[str, ...], features: int) -> None:
    """Those of Llama 3 8B, whose keys and values have 1,024 features."""
    found = search(CONFIG, length=4096)
    for rank in (8, 64):
        assert adapted(with_adapters(found.model, rank, targets)) == 32 * features
    assert job_of(found.model, found.base, "bf16").adapted == 0


def test_experts_that_a_token_skips_cost_nothing() -> None:
    mixtral = search(CONFIG, model="mixtral-8x7b").model
    assert active(mixtral) / mixtral.size == pytest.approx(12.7 / 46.7, rel=0.03)


def test_the_parts_of_fit_are_those_of_the_step() -> None:
    found = search(CONFIG)
    estimated = estimate(found.model, found.base)
    whole = step_of(found.config, estimated)
    assert whole is not None
    assert seconds_of(found.config, estimated).total == pytest.approx(whole.seconds)


def test_an_unknown_gpu_has_no_time() -> None:
    found = search(CONFIG)
    assert step_of(found.config, estimate(found.model, found.base.but(gpu=None))) is None
    slower = step_of(found.config, estimate(found.model, found.base.but(gpu=GPUS["v100"])))
    faster = step_of(found.config, estimate(found.model, found.base))
    assert slower is not None
    assert faster is not None
    assert slower.seconds > faster.seconds


def test_estimate_says_how_long_a_step_takes(tmp_path: Path) -> None:
    file = tmp_path / "ds_config.json"
    file.write_text(json.dumps(CONFIG), encoding="utf-8")
    options = ("--model", "llama-3-8b", "--world-size", "8", "--isolated")
    page = dslint("estimate", file, *options, "--gpu", "a100")
    assert "Time of a step" in page.stdout
    assert "Time of a step" not in dslint("estimate", file, *options).stdout
    data = json.loads(dslint("estimate", file, *options, "--gpu", "a100", "--output-format", "json").stdout)
    assert data["step"]["low"] < data["step"]["seconds"] < data["step"]["high"]
    slow = json.loads(dslint("estimate", file, *options, "--gpu", "a100", "--pcie", "1GB/s", "--output-format", "json").stdout)
    assert slow["step"]["seconds"] > data["step"]["seconds"]
