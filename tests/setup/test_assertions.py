"""A launch that runs Python without assertions: what DeepSpeed then does not notice."""

from __future__ import annotations

import subprocess
import sys

import pytest

from dslint.diagnostics import Effect, Severity
from tests.setup.folder import Folder

BAD_BATCH = '{"train_batch_size": 32, "train_micro_batch_size_per_gpu": 4, "gradient_accumulation_steps": 2}'
PROGRAM = """\
import deepspeed
parser = deepspeed.add_config_arguments(parser)
deepspeed.initialize(args=parser.parse_args(), model=model, model_parameters=model.parameters())
"""
ARGUMENTS = "train.py --deepspeed --deepspeed_config ds_config.json"


@pytest.mark.parametrize(
    ("launch", "removed"),
    [
        (f"deepspeed --num_gpus 8 {ARGUMENTS}", False),
        (f"PYTHONOPTIMIZE=1 deepspeed --num_gpus 8 {ARGUMENTS}", True),
        (f"export PYTHONOPTIMIZE=2\ntorchrun --nproc_per_node 8 {ARGUMENTS}", True),
        (f"export PYTHONOPTIMIZE=yes\ntorchrun --nproc_per_node 8 {ARGUMENTS}", True),
        (f"export PYTHONOPTIMIZE=0\ntorchrun --nproc_per_node 8 {ARGUMENTS}", False),
        (f"export PYTHONOPTIMIZE=\ntorchrun --nproc_per_node 8 {ARGUMENTS}", False),
        (f"python -O -m torch.distributed.run --nproc_per_node 8 {ARGUMENTS}", False),
        (f"srun -n 8 python -O {ARGUMENTS}", True),
        (f"srun -n 8 python -uOO {ARGUMENTS}", True),
        (f"srun -n 8 python -u {ARGUMENTS}", False),
        (f"srun -n 8 python -O -u {ARGUMENTS}", True),
    ],
)
def test_a_bad_batch_size_passes_where_assertions_are_removed(folder: Folder, launch: str, removed: bool) -> None:
    folder.write({"ds_config.json": BAD_BATCH, "train.py": PROGRAM, "run.sh": f"#!/bin/bash\n{launch}\n"})
    found = folder.diagnostics("run.sh")
    assert ("DS940" in [d.code for d in found]) is removed
    for d in found:
        if d.code == "DS201":
            assert d.effect is (Effect.SILENT if removed else Effect.CRASH)
            assert ("removes the assertion" in d.message) is removed
            assert d.severity is Severity.ERROR
    assert "DS201" in [d.code for d in found] or launch.startswith("srun")


@pytest.mark.deepspeed
@pytest.mark.slow
@pytest.mark.parametrize(("flags", "raises"), [((), True), (("-O",), False)])
def test_deepspeed_takes_the_batch_sizes_without_assertions(flags: tuple[str, ...], raises: bool) -> None:
    program = f"from deepspeed.runtime.config import DeepSpeedConfig\nDeepSpeedConfig({BAD_BATCH})"
    done = subprocess.run([sys.executable, *flags, "-c", program], capture_output=True, text=True, check=False)
    assert (done.returncode != 0) is raises, done.stderr
