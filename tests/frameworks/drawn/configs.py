"""DeepSpeed configs as people hand them to a framework: mostly right, some with a mistake."""

from __future__ import annotations

import json
from random import Random
from typing import Any

ABSENT = object()
"""A key that is not written."""


class Draw(Random):
    """Draws the parts of a job. `mistakes` is how many rare values it may still have: most of them are mistakes, and people make few at once."""

    mistakes = 0


def pick(rng: Draw, *weighted: tuple[Any, float]) -> Any:
    """One of several values, each with a weight. A weight below 1 makes a value a rare one."""
    value, weight = rng.choices(weighted, [weight for _, weight in weighted])[0]
    if weight < 1:
        if rng.mistakes <= 0 and any(weight >= 1 for _, weight in weighted):
            return pick(rng, *[one for one in weighted if one[1] >= 1])
        rng.mistakes -= 1
    return value


def written(values: dict[str, Any]) -> dict[str, Any]:
    """The keys that are written."""
    return {key: value for key, value in values.items() if value is not ABSENT}


def config(rng: Draw, given: dict[str, Any], ranks: int) -> dict[str, Any]:
    """A config for a job with these arguments, by the names of the Trainer, and this many ranks."""
    micro, steps = given.get("per_device_train_batch_size", 8), given.get("gradient_accumulation_steps", 1)
    clip = given.get("max_grad_norm", 1.0)
    found = written(
        {
            "train_batch_size": pick(rng, ("auto", 12), (ABSENT, 5), (micro * steps * ranks, 2), (2 * micro * steps * ranks, 0.5)),
            "train_micro_batch_size_per_gpu": pick(rng, ("auto", 12), (micro, 3), (2 * micro, 0.5), (ABSENT, 0.7), (str(micro), 0.2)),
            "gradient_accumulation_steps": pick(
                rng, ("auto", 12), (steps, 3), (ABSENT, 2), (steps + 1, 0.5), (0, 0.1), (float(steps), 0.2)
            ),
            "gradient_clipping": pick(rng, ("auto", 10), (clip, 4), (ABSENT, 4), (0.5, 0.5), (0, 0.3)),
            "steps_per_print": pick(rng, (ABSENT, 8), (100, 3), ("auto", 0.2)),
            "wall_clock_breakdown": pick(rng, (ABSENT, 5), (False, 3)),
            "zero_allow_untested_optimizer": pick(rng, (ABSENT, 6), (True, 5), (False, 0.5), ("auto", 0.2)),
            "zero_force_ds_cpu_optimizer": pick(rng, (ABSENT, 9), (False, 2)),
            "communication_data_type": pick(rng, (ABSENT, 19), ("fp16", 0.5), ("bf16", 0.5), ("float8", 0.1)),
            "gradient_predivide_factor": pick(rng, (ABSENT, 19), (1.0, 1)),
            "activation_checkpointing": pick(rng, (ABSENT, 15), ({"partition_activations": True}, 1), ({"cpu_checkpointing": "auto"}, 0.1)),
            "zero_optimization": zero(rng),
            **precision(rng, given),
            "optimizer": optimizer(rng, given),
            "scheduler": scheduler(rng, given),
        }
    )
    if pick(rng, (False, 30), (True, 0.9)):
        old = rng.choice([key for key in found if key != "train_batch_size"])
        found[rng.choice(["zero_optimisation", f"{old}s", old.upper()])] = found.pop(old)
    return found


def zero(rng: Draw) -> Any:
    """The section `zero_optimization`."""
    stage = pick(rng, (0, 0.7), (1, 1), (2, 6), (3, 6), ("auto", 0.3), ("3", 0.3), (4, 0.1))
    size = lambda number: pick(rng, ("auto", 6), (number, 4), (float(number), 1), (ABSENT, 3), (f"{number:.0e}", 0.15))  # noqa: E731
    found = {
        "stage": stage,
        "overlap_comm": pick(rng, (True, 6), (False, 1), (ABSENT, 3), ("auto", 0.1)),
        "contiguous_gradients": pick(rng, (True, 6), (ABSENT, 3)),
        "reduce_bucket_size": size(200_000_000),
        "allgather_bucket_size": pick(rng, (ABSENT, 8), (200_000_000, 3), ("auto", 0.1)),
        "reduce_scatter": pick(rng, (ABSENT, 8), (True, 3)),
        "round_robin_gradients": pick(rng, (ABSENT, 9), (True, 1)),
        "offload_optimizer": _offload(rng, "optimizer", 4),
    }
    if stage == 3 or pick(rng, (False, 15), (True, 0.9)):
        found |= {
            "offload_param": _offload(rng, "param", 2),
            "sub_group_size": pick(rng, (ABSENT, 3), (1e9, 4), (10**9, 1), ("auto", 0.05)),
            "stage3_prefetch_bucket_size": size(50_000_000),
            "stage3_param_persistence_threshold": size(100_000),
            "stage3_max_live_parameters": pick(rng, (1e9, 5), (ABSENT, 5), ("auto", 0.2)),
            "stage3_max_reuse_distance": pick(rng, (1e9, 5), (ABSENT, 5), ("auto", 0.05)),
            pick(rng, ("stage3_gather_16bit_weights_on_model_save", 9), ("stage3_gather_fp16_weights_on_model_save", 1)): pick(
                rng, (True, 6), (ABSENT, 3), ("auto", 0.2)
            ),
            "zero_hpz_partition_size": pick(rng, (ABSENT, 19), (2, 1)),
            "prefetch_bucket_size": pick(rng, (ABSENT, 40), ("auto", 0.5)),
        }
    return pick(rng, (written(found), 60), (ABSENT, 0.6), (True, 0.2))


def _offload(rng: Draw, kind: str, often: float) -> Any:
    device = pick(rng, ("cpu", 8), ("none", 3), ("nvme", 0.6 if kind == "optimizer" else 0), ("auto", 0.2))
    values = {
        "device": device,
        "pin_memory": pick(rng, (True, 6), (ABSENT, 2), ("auto", 0.1)),
        "nvme_path": "/local" if device == "nvme" else ABSENT,
    }
    return pick(rng, (ABSENT, 10), (written(values), often))


def precision(rng: Draw, given: dict[str, Any]) -> dict[str, Any]:
    """The sections `bf16` and `fp16`."""
    asked = {kind: given.get(kind) is True for kind in ("bf16", "fp16")}
    enabled = {kind: pick(rng, ("auto", 10), (on, 3), (not on, 0.7)) for kind, on in asked.items()}
    scale = {
        "loss_scale": pick(rng, (0, 9), (128, 1), ("auto", 0.2)),
        "loss_scale_window": 1000,
        "initial_scale_power": 16,
        "hysteresis": 2,
    }
    more = pick(rng, ({}, 2), (scale, 3), ({**scale, "min_loss_scale": 1}, 3), ({"auto_cast": "auto"}, 0.2))
    return {
        "bf16": pick(rng, ({"enabled": enabled["bf16"]}, 9), (ABSENT, 3), (True, 0.1)),
        "fp16": pick(rng, ({"enabled": enabled["fp16"], **more}, 6), (ABSENT, 6)),
    }


def optimizer(rng: Draw, given: dict[str, Any]) -> Any:
    """The section `optimizer`."""
    rate, decay = given.get("learning_rate", 5e-5), given.get("weight_decay", 0.0)
    betas = [0.9, given.get("adam_beta2", 0.999)]
    params = {
        "lr": pick(rng, ("auto", 8), (rate, 2), (3 * rate, 0.5), (ABSENT, 0.5)),
        "betas": pick(rng, ("auto", 8), (betas, 2), ([0.9, 0.98], 0.5), (ABSENT, 1)),
        "eps": pick(rng, ("auto", 8), (given.get("adam_epsilon", 1e-8), 2), (ABSENT, 1)),
        "weight_decay": pick(rng, ("auto", 8), (decay, 2), (0.03, 0.5), (ABSENT, 1)),
        **pick(rng, ({}, 12), ({"torch_adam": True}, 1), ({"adam_w_mode": True}, 0.5)),
    }
    kind = pick(rng, ("AdamW", 9), ("Adam", 2), ("adamw", 0.2))
    return pick(rng, (ABSENT, 12), ({"type": kind, "params": written(params)}, 8), ({"type": kind}, 0.3))


def scheduler(rng: Draw, given: dict[str, Any]) -> Any:
    """The section `scheduler`."""
    kind, warmup = pick(rng, ("WarmupLR", 6), ("WarmupDecayLR", 5), ("WarmupCosineLR", 1)), given.get("warmup_steps", 0)
    params = {"warmup_num_steps": pick(rng, ("auto", 8), (warmup, 2 if warmup > 1 else 0.2), (20, 0.5), (1, 0.3), (ABSENT, 0.5))}
    if kind == "WarmupCosineLR":
        params["warmup_min_ratio"] = pick(rng, (0.1, 3), (ABSENT, 1))
    else:
        params["warmup_min_lr"] = pick(rng, ("auto", 8), (0, 2), (ABSENT, 1))
        params["warmup_max_lr"] = pick(rng, ("auto", 8), (given.get("learning_rate", 5e-5), 2), (0.01, 0.5), (ABSENT, 1))
    if kind != "WarmupLR":
        params["total_num_steps"] = pick(rng, ("auto", 8), (given.get("max_steps", 1000), 2), (77, 0.5), (ABSENT, 0.5))
    return pick(rng, (ABSENT, 15), ({"type": kind, "params": written(params)}, 6))


def text(rng: Draw, values: dict[str, Any]) -> str:
    """A config as JSON; in few cases not quite."""
    found = json.dumps(values, indent=2)
    return pick(rng, (found, 60), (found[:-2] + ",\n}", 0.4), ("// for the large model\n" + found, 0.2), ("{}", 0.2))
