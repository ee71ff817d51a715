"""A small training on the real DeepSpeed and gloo, whose step takes as long as its config makes it: `tune --measure` starts it.

Between steps it can run out of memory, hang or stay alone, as its arguments say.
"""

from __future__ import annotations

import argparse
import datetime as dt
import signal
import subprocess
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests.engine import stand_ins

parser = argparse.ArgumentParser()
parser.add_argument("--deepspeed_config")
parser.add_argument("--steps", type=int, default=200)
parser.add_argument("--ends", choices=("well", "memory", "hang", "deaf"), default="well")
parser.add_argument("--if-stage", type=int, default=-1, help="do so only at this stage")
given, _ = parser.parse_known_args()

stand_ins.before_import()
stand_ins.without_compiler()

import deepspeed  # noqa: E402
import torch  # noqa: E402
from deepspeed.accelerator import get_accelerator  # noqa: E402

stand_ins.after_import()
type(get_accelerator()).communication_backend_name = lambda self: "gloo"
torch.set_num_threads(1)
deepspeed.init_distributed("gloo", timeout=dt.timedelta(seconds=60))
model = torch.nn.Sequential(*(torch.nn.Linear(64, 64) for _ in range(4)))
engine, *_ = deepspeed.initialize(model=model, config=given.deepspeed_config)
ends = given.ends if given.if_stage in (-1, engine.zero_optimization_stage()) else "well"
for step in range(given.steps):
    for _ in range(engine.gradient_accumulation_steps()):
        batch = torch.randn(engine.train_micro_batch_size_per_gpu(), 64, dtype=next(engine.parameters()).dtype)
        engine.backward(engine(batch).float().pow(2).mean())
        engine.step()
    if ends == "memory" and step == 1:
        raise RuntimeError(
            "CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 8.00 GiB of which 1.00 GiB is free."
        )
    if ends in ("hang", "deaf") and step == 1:
        if ends == "deaf":  # a rank with a child in a session of its own, and no ear for signals
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            subprocess.Popen(
                [sys.executable, "-c", "import signal, time; signal.signal(15, signal.SIG_IGN); time.sleep(600)"], start_new_session=True
            )
        time.sleep(600)
