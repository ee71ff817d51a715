"""Prints what DeepSpeed prints of its steps, as fast as its config makes it: a training without DeepSpeed, for tests of `tune --measure`."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

config = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
ends = dict(word.split("=") for word in os.environ.get("FAKE_ENDS", "").split())  # what happens at a stage: 0=memory 1=hang
stage = config.get("zero_optimization", {}).get("stage", 0)
samples = config["train_micro_batch_size_per_gpu"] * config.get("gradient_accumulation_steps", 1) * 2
seconds = {0: 0.02, 1: 0.03, 2: 0.05, 3: 0.08}[stage]
assert config["steps_per_print"] == 1
end = ends.get(str(stage), "well")
if end == "fails":
    sys.exit("RuntimeError: wrong")
lock = (
    os.open(os.environ["FAKE_LOCK"], os.O_CREAT | os.O_EXCL) if "FAKE_LOCK" in os.environ else None
)  # as torch does while it builds an op
if end == "deaf":  # a rank in a session of its own that hears no signal, with its launcher
    code = "import signal, time; signal.signal(15, signal.SIG_IGN); time.sleep(600)"
    subprocess.Popen([sys.executable, "-c", code], start_new_session=True)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
for step in range(12):
    print(f"[INFO] [timer.py:264:stop] epoch=0/micro_step={step}/global_step={step}, RunningAvgSamplesPerSec=1.0, ", end="")
    print(f"CurrSamplesPerSec={samples / seconds}, MemAllocated=0.1GB, MaxMemAllocated=0.2GB", flush=True)
    if end == "memory" and step == 1:
        sys.exit("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 8.00 GiB.")
    if end in ("hang", "deaf") and step == 1:
        time.sleep(600)
    time.sleep(0.01)
