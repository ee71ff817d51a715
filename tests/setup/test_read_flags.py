"""Flags that a function of the project reads, such as `str2bool`, and copies of the arguments."""

from __future__ import annotations

import pytest

from tests.setup.folder import Folder

PROGRAM = """
import argparse
import copy
import deepspeed

def str2bool(text):
    if isinstance(text, bool):
        return text
    if text.lower() in ("yes", "true", "1"):
        return True
    if text.lower() in ("no", "false", "0"):
        return False
    raise argparse.ArgumentTypeError("a boolean is expected")

parser = argparse.ArgumentParser()
parser.add_argument("--bf16", type=str2bool, default="no")
parser.add_argument("--local_rank", type=int, default=-1)
args = parser.parse_args()
other = copy.deepcopy(args)
other.bf16 = True
config = {"train_micro_batch_size_per_gpu": 1, "bf16": {"enabled": args.bf16}, "fp16": {"enabled": True}}
deepspeed.initialize(model=m, config=config)
"""


@pytest.mark.parametrize(("flags", "both"), [("", False), ("--bf16 no", False), ("--bf16 True", True), ("--bf16 1", True)])
def test_both_16_bit_types_are_enabled_by_the_flag(folder: Folder, flags: str, both: bool) -> None:
    folder.write({"train.py": PROGRAM, "run.sh": f"deepspeed --num_gpus 1 train.py {flags}\n"})
    assert ("DS301" in {code for code, *_ in folder.found("run.sh")}) is both
