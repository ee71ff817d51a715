"""What the DeepSpeed on PYTHONPATH, whatever release, holds of configs: a JSON object a line; the answer is its settings, or the error as a string.

Runs in an environment of `scripts/release_env.py`; imports nothing of dslint.
"""

from __future__ import annotations

import json
import logging
import os
import sys
from typing import Any

from asker import prepare

FP16 = {"enabled": "fp16_enabled", "loss_scale": "loss_scale"}
"""Settings of fp16, with their names in releases that keep them at the top."""


def held(config: Any) -> dict[str, Any]:
    """The settings that a release holds of a config, by names that are the same in every release."""
    zero = config.zero_config
    found = {"zero": json.loads(zero.json() if not hasattr(zero, "model_dump_json") else zero.model_dump_json())}
    for name in (
        "train_batch_size",
        "train_micro_batch_size_per_gpu",
        "gradient_accumulation_steps",
        "gradient_clipping",
        "steps_per_print",
    ):
        found[name] = getattr(config, name)
    section = getattr(config, "float16_config", None)
    for name, former in FP16.items():
        found[f"fp16.{name}"] = getattr(config, former) if section is None else getattr(section, name)
    bf16 = getattr(config, "bfloat16_config", None)
    found["bf16.enabled"] = config.bfloat16_enabled if bf16 is None else bf16.enabled
    found["communication"] = str(config.seq_parallel_communication_data_type)
    found["aio"] = {name: value for name, value in config.aio_config.items() if name not in ("thread_count", "intra_op_parallelism")}
    found["aio.threads"] = config.aio_config.get("intra_op_parallelism", config.aio_config.get("thread_count"))
    return found


def main() -> None:
    """Answer until standard input ends."""
    out = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    prepare()
    from deepspeed.accelerator import get_accelerator
    from deepspeed.runtime.config import DeepSpeedConfig

    accelerator = type(get_accelerator())
    accelerator.is_fp16_supported = lambda self: True
    accelerator.is_bf16_supported = lambda self: True
    logging.disable(logging.CRITICAL)
    for line in sys.stdin:
        try:
            answer: Any = held(DeepSpeedConfig(json.loads(line)))
        except BaseException as raised:  # noqa: BLE001 - SystemExit too is something that DeepSpeed does
            answer = f"{type(raised).__name__}: {raised}"[:500]
        print(json.dumps(answer, default=str), file=out, flush=True)


if __name__ == "__main__":
    main()
