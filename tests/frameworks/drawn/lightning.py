"""Jobs of Lightning's Trainer with its DeepSpeed strategy: by name, by arguments of the strategy, and with a config."""

from __future__ import annotations

import json
from typing import Any

from tests.frameworks.drawn.configs import ABSENT, Draw, pick, written
from tests.frameworks.drawn.huggingface import job, sizes
from tests.frameworks.jobs import Job

RELEASES = {"lightning": "2.6.6", "deepspeed": "0.19.8", "torch": "2.13.0"}

PROGRAM = """import lightning as L
import torch
from lightning.pytorch.strategies import DeepSpeedStrategy


class Model(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(8, 8)

    def training_step(self, batch, number):
        return self.layer(batch).sum()

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr={rate})

    def train_dataloader(self):
        return torch.utils.data.DataLoader(torch.zeros(64, 8), batch_size={micro})


{before}trainer = L.Trainer({arguments})
trainer.fit(Model())
"""

NAMES = ("deepspeed", *(f"deepspeed_stage_{one}" for one in ("1", "2", "2_offload", "3", "3_offload")))


def lightning(rng: Draw, name: str) -> Job:
    """A job of Lightning."""
    micro, steps, ranks = sizes(rng)
    files: dict[str, str] = {}
    way = pick(rng, ("name", 2), ("arguments", 4), ("file", 3), ("dict", 2))
    before = ""
    if way == "name":
        strategy = repr(rng.choice(NAMES))
    elif way == "arguments":
        strategy = _call(_of_strategy(rng))
    elif way == "file":
        files["ds.json"] = json.dumps(_config(rng, micro, steps), indent=2)
        strategy = _call({"config": "ds.json"} | pick(rng, ({}, 4), ({"loss_scale": 128}, 1)))
    else:
        before = f"config = {_config(rng, micro, steps)!r}\n"
        strategy = "DeepSpeedStrategy(config=config)"
    nodes = 2 if ranks == 8 and rng.random() < 0.3 else 1
    given = written(
        {
            "accelerator": pick(rng, ("gpu", 3), ("cuda", 1)),
            "devices": ranks // nodes,
            "num_nodes": nodes if nodes > 1 else pick(rng, (ABSENT, 3), (1, 1)),
            "precision": pick(rng, (ABSENT, 2), ("bf16-mixed", 4), ("16-mixed", 2), ("bf16-true", 2), ("16-true", 1), ("32-true", 1)),
            "accumulate_grad_batches": pick(rng, (ABSENT, 2), (steps, 4)),
            "gradient_clip_val": pick(rng, (ABSENT, 3), (1.0, 2), (0.5, 1)),
            "max_epochs": pick(rng, (ABSENT, 1), (1, 3)),
            "logger": False,
            "enable_checkpointing": False,
        }
    )
    shown = {key: repr(value) for key, value in given.items()} | {"strategy": strategy}
    if before or pick(rng, (False, 3), (True, 1)):
        before += f"strategy = {shown['strategy']}\n"
        shown["strategy"] = "strategy"
    arguments = ", ".join(f"{key}={value}" for key, value in shown.items())
    files["train.py"] = PROGRAM.format(rate=pick(rng, (1e-4, 2), (3e-4, 1)), micro=micro, before=before, arguments=arguments)
    return job(name, "lightning", files, ["python", "train.py"], {}, ranks, RELEASES, rng)


def _call(arguments: dict[str, Any]) -> str:
    return f"DeepSpeedStrategy({', '.join(f'{key}={value!r}' for key, value in arguments.items())})"


def _of_strategy(rng: Draw) -> dict[str, Any]:
    """Arguments of the strategy, from which it builds a config."""
    stage = pick(rng, (ABSENT, 1), (1, 1), (2, 4), (3, 4))
    return written(
        {
            "stage": stage,
            "offload_optimizer": pick(rng, (ABSENT, 4), (True, 2)),
            "offload_parameters": pick(rng, (ABSENT, 4), (True, 1)) if stage == 3 else ABSENT,
            "pin_memory": pick(rng, (ABSENT, 5), (True, 1)),
            "sub_group_size": pick(rng, (ABSENT, 5), (10**9, 1)),
            "reduce_bucket_size": pick(rng, (ABSENT, 4), (50_000_000, 1), (500_000_000, 1)),
            "allgather_bucket_size": pick(rng, (ABSENT, 4), (50_000_000, 1), (500_000_000, 1)),
            "overlap_comm": pick(rng, (ABSENT, 4), (False, 1)),
            "contiguous_gradients": pick(rng, (ABSENT, 6), (False, 1)),
            "zero_allow_untested_optimizer": pick(rng, (ABSENT, 6), (True, 1)),
            "logging_batch_size_per_gpu": pick(rng, (ABSENT, 6), ("auto", 1), (2, 1)),
            "partition_activations": pick(rng, (ABSENT, 9), (True, 1)),
            "cpu_checkpointing": pick(rng, (ABSENT, 9), (True, 1)),
            "loss_scale": pick(rng, (ABSENT, 9), (128, 1)),
            "initial_scale_power": pick(rng, (ABSENT, 9), (12, 1)),
        }
    )


def _config(rng: Draw, micro: int, steps: int) -> dict[str, Any]:
    """A config for the strategy: Lightning fills no "auto"."""
    stage = pick(rng, (0, 1), (1, 1), (2, 5), (3, 5))
    size = lambda number: pick(rng, (ABSENT, 3), (number, 3), (float(number), 1))  # noqa: E731
    zero = {
        "stage": stage,
        "overlap_comm": pick(rng, (ABSENT, 2), (True, 3), (False, 1)),
        "contiguous_gradients": pick(rng, (ABSENT, 2), (True, 3), (False, 1)),
        "reduce_bucket_size": size(200_000_000),
        "allgather_bucket_size": size(200_000_000),
        "round_robin_gradients": pick(rng, (ABSENT, 6), (True, 1)),
        "offload_optimizer": pick(rng, (ABSENT, 3), ({"device": "cpu", "pin_memory": True}, 1)) if stage else ABSENT,
    }
    if stage == 3:
        zero |= {
            "stage3_prefetch_bucket_size": size(50_000_000),
            "stage3_param_persistence_threshold": size(100_000),
            "stage3_max_live_parameters": size(10**9),
            "stage3_gather_16bit_weights_on_model_save": pick(rng, (ABSENT, 2), (True, 3)),
            "sub_group_size": size(10**9),
        }
    scheduler = {"type": "WarmupLR", "params": {"warmup_min_lr": 0, "warmup_max_lr": 1e-4, "warmup_num_steps": 10}}
    optimizer = {"type": pick(rng, ("AdamW", 3), ("Adam", 1)), "params": {"lr": 1e-4, "betas": [0.9, 0.95], "weight_decay": 0.01}}
    return written(
        {
            "train_micro_batch_size_per_gpu": pick(rng, (ABSENT, 2), (micro, 4)),
            "gradient_clipping": pick(rng, (ABSENT, 4), (1.0, 1)),
            "zero_optimization": pick(rng, (written(zero), 12), (ABSENT, 1)),
            "fp16": pick(rng, (ABSENT, 6), ({"enabled": True, "initial_scale_power": 16}, 1), ({"enabled": False}, 1)),
            "bf16": pick(rng, (ABSENT, 6), ({"enabled": True}, 1)),
            "zero_allow_untested_optimizer": pick(rng, (ABSENT, 2), (True, 3)),
            "steps_per_print": pick(rng, (ABSENT, 3), (100, 1)),
            "wall_clock_breakdown": pick(rng, (ABSENT, 3), (False, 1), (True, 1)),
            "optimizer": pick(rng, (ABSENT, 2), (optimizer, 1)),
            "scheduler": pick(rng, (ABSENT, 3), (scheduler, 1)),
        }
    )
