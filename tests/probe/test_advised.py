"""What `init` writes and what `fit` advises runs on the real DeepSpeed, adapters included."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from dslint.config import Config, resolve
from dslint.facts import Facts, Integration
from dslint.facts.gpus import GPUS
from dslint.memory.families import read_shape
from dslint.memory.fit import FitSearch
from dslint.memory.numbers import with_adapters
from dslint.memory.plan import Plan, Workload
from dslint.memory.planning import make_plan
from dslint.memory.ways import Goal
from dslint.source.parse import parse
from dslint.speed.planned import seconds_of
from tests.command import dslint
from tests.probe.running import asked, needs_engine

pytestmark = [pytest.mark.slow, pytest.mark.deepspeed, needs_engine]

MODEL = {
    "model_type": "llama",
    "hidden_size": 256,
    "intermediate_size": 512,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 4,
    "vocab_size": 8000,
    "max_position_embeddings": 512,
}


def probed(folder: Path, text: str, world: int, *options: str) -> int:
    """The exit code of the probe for a config on the fake device."""
    (folder / "model.json").write_text(json.dumps(MODEL), encoding="utf-8")
    (folder / "ds.json").write_text(text, encoding="utf-8")
    known = ("--device", "fake", "--model", "model.json", "--world-size", str(world), "--sequence-length", "128")
    found = asked(folder / "ds.json", *known, *options)
    assert found["raised"] is None, found["raised"]
    return int(found["exit_code"])


@pytest.mark.parametrize(
    ("world", "memory", "options"),
    [(4, "80GiB", ()), (4, "1100MiB", ()), (1, "24GiB", ("--lora-rank", "8")), (2, "1100MiB", ("--lora-rank", "8"))],
)
def test_what_init_writes_runs(world: int, memory: str, options: tuple[str, ...], tmp_path: Path) -> None:
    (tmp_path / "model.json").write_text(json.dumps(MODEL), encoding="utf-8")
    known = ("--integration=deepspeed", "--output-format=json", f"--model={tmp_path / 'model.json'}", "--sequence-length=128")
    done = dslint("init", "-", *known, f"--world-size={world}", f"--gpu-memory={memory}", "--micro-batch=1", *options)
    assert done.returncode in (0, 4), done.stderr
    assert probed(tmp_path, done.stdout, world, *options) == 0


@pytest.mark.parametrize("adapters", [0, 8])
def test_what_fit_advises_runs(adapters: int, tmp_path: Path) -> None:
    model = read_shape(MODEL, "llama")
    model = with_adapters(model, adapters) if adapters else model
    base = {
        "train_micro_batch_size_per_gpu": 4,
        "gradient_accumulation_steps": 2,
        "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}},
        "bf16": {"enabled": True},
        "zero_optimization": {"stage": 1},
    }
    facts = Facts(world_size=4, gpu=GPUS["h100"], integration=Integration.DEEPSPEED)

    def plan(text: str, said: dict[str, Any]) -> tuple[Config, Plan]:
        read = resolve(parse(text), facts._replace(sequence_parallel=said.get("sequence_parallel")))
        workload = Workload(128, checkpoint_every=said.get("checkpoint_every", 0), loss_chunk=said.get("loss_chunk", 0))
        return read, make_plan(read, workload, model.hidden, micro_batch=said.get("micro_batch"), accumulation=said.get("accumulation"))

    search = FitSearch(json.dumps(base), model, plan, seconds_of)
    found = search.run(Goal(round(0.97 * search.base.found.device.low)))
    in_config = [one for one in (*found.ways, *found.singles) if any(change.values for change in one.changes)]
    texts = {
        one.text: one
        for one in in_config
        if not {"optimizer", "nvme", "tensor"} & set(" ".join(c.name.lower() for c in one.changes).split())
    }
    assert len(texts) >= 2
    for text in texts:
        options = ("--lora-rank", str(adapters)) if adapters else ()
        assert probed(tmp_path, text, 4, *options) == 0, text
