"""A value that a branch sets is that of the run only if the flag of the branch is given."""

from __future__ import annotations

from dslint.frameworks.programs import read_python
from tests.cases import table

PROGRAM = """\
import argparse, os
from transformers import AutoModelForCausalLM, HfArgumentParser, TrainingArguments
parser = argparse.ArgumentParser()
parser.add_argument("--deepspeed", default="ds.json")
parser.add_argument({flag})
args = parser.parse_args()
arguments = TrainingArguments("out", deepspeed=args.deepspeed)
device_map = None
if {condition}:
    device_map = {{"": int(os.environ["LOCAL_RANK"])}}
model = AutoModelForCausalLM.from_pretrained("m", device_map=device_map)
"""


@table(
    "flag, condition, is_set",
    [
        ('"--use_qlora", action="store_true"', "args.use_qlora", False),
        ('"--use_qlora", type=bool, default=False', "args.use_qlora", False),
        ('"--quantize", default="no"', 'args.quantize == "4bit"', False),
        ('"--use_qlora", action="store_true", default=True', "args.use_qlora", True),
        ('"--local_rank", type=int, default=-1', "args.local_rank != -1", True),
        ('"--x"', 'os.environ.get("LOCAL_RANK") is not None', True),
    ],
)
def test_a_device_map_for_a_rank(flag: str, condition: str, is_set: bool) -> None:
    program = read_python(PROGRAM.format(flag=flag, condition=condition), "train.py", "train.py")
    assert program is not None
    assert (program.program.device_map is not None) is is_set
