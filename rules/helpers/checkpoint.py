"""What rules about checkpoints share: the key for universal checkpoints, references, and the checkpoints of examples."""

from __future__ import annotations

from dslint.facts.checkpoint import CheckpointFacts

LOAD_UNIVERSAL = "checkpoint.load_universal"
LOADING = "deepspeed/runtime/engine.py, DeepSpeedEngine.load_checkpoint"
UNIVERSAL_GUIDE = "https://www.deepspeed.ai/tutorials/universal-checkpointing/"
UNTRIED = "raised by load_checkpoint; tests/checkpoint writes and loads them"

FROM_STAGE_0 = CheckpointFacts("run", "global_step500", (0,), None, 1, None)
FROM_STAGE_2 = CheckpointFacts("run", "global_step500", (1, 2), 8, 1, bf16=False)
FROM_STAGE_3 = CheckpointFacts("run", "global_step500", (3,), 8, 1, bf16=True)
CONVERTED = CheckpointFacts("run", "global_step500", (1, 2), 8, 1, bf16=False, universal="global_step500_universal")
