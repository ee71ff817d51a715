"""Accelerate's config file, as people write it for DeepSpeed."""

from __future__ import annotations

import json
from typing import Any

from tests.frameworks.drawn.configs import ABSENT, Draw, pick, written


def accelerate_block(rng: Draw, steps: int, *, own_file: bool) -> dict[str, Any]:
    """The block `deepspeed_config` of Accelerate's file."""
    if own_file:
        more = pick(rng, ({}, 8), ({"zero_stage": 3}, 0.5), ({"gradient_clipping": 1.0}, 0.3), ({"offload_optimizer_device": "none"}, 0.3))
        return {"deepspeed_config_file": "ds.json", "zero3_init_flag": rng.choice([True, False]), **more}
    stage = pick(rng, (1, 1), (2, 5), (3, 5), ("'3'", 0.2), (ABSENT, 0.4))
    return written(
        {
            "gradient_accumulation_steps": pick(rng, (steps, 7), (1, 4), (ABSENT, 2), ("auto", 0.3)),
            "gradient_clipping": pick(rng, (1.0, 6), (ABSENT, 3), (0.5, 1), ("auto", 0.3)),
            "offload_optimizer_device": pick(rng, ("none", 6), ("cpu", 2), (ABSENT, 2), ("nvme", 0.2)),
            "offload_param_device": pick(rng, ("none", 6), ("cpu", 1), (ABSENT, 2)),
            "zero3_init_flag": pick(rng, (False, 4), (True, 4), (ABSENT, 1)),
            "zero3_save_16bit_model": pick(rng, (ABSENT, 4), (True, 4), (False, 1)),
            "deepspeed_multinode_launcher": pick(rng, (ABSENT, 4), ("standard", 2)),
            "zero_hpz_partition_size": pick(rng, (ABSENT, 60), (2, 0.5)),
            "zero_stage": stage,
        }
    )


def accelerate_file(rng: Draw, ranks: int, block: dict[str, Any]) -> str:
    """Accelerate's file."""
    top = written(
        {
            "compute_environment": "LOCAL_MACHINE",
            "debug": pick(rng, (False, 3), (ABSENT, 1)),
            "distributed_type": pick(rng, ("DEEPSPEED", 40), ("MULTI_GPU", 0.5)),
            "downcast_bf16": pick(rng, ("'no'", 3), (ABSENT, 1)),
            "machine_rank": 0,
            "main_training_function": pick(rng, ("main", 3), (ABSENT, 1)),
            "mixed_precision": pick(rng, (ABSENT, 9), ("bf16", 0.9))
            if "deepspeed_config_file" in block
            else pick(rng, ("bf16", 6), ("'no'", 3), ("fp16", 2), (ABSENT, 2), ("no", 1), ("bfloat16", 0.15)),
            "num_machines": 1,
            "num_processes": pick(rng, (ranks, 30), (ABSENT, 0.5)),
            "rdzv_backend": pick(rng, ("static", 3), (ABSENT, 1)),
            "same_network": pick(rng, ("true", 3), (ABSENT, 1)),
            "use_cpu": pick(rng, (False, 9), (ABSENT, 3), (True, 0.4)),
            "use_deepspeed": pick(rng, (ABSENT, 60), (True, 0.5)),
        }
    )  # fmt: skip
    lines = [f"{key}: {value if isinstance(value, str) else json.dumps(value)}\n" for key, value in top.items()]
    inner = [f"  {key}: {value if isinstance(value, str) else json.dumps(value)}\n" for key, value in block.items()]
    return "".join([*lines, "deepspeed_config:\n", *inner])
