"""`HfArgumentParser(...).parse_args()` is argparse's own: it returns a namespace, and makes no training arguments."""

from __future__ import annotations

import pytest

from tests.setup.folder import Folder

PROGRAM = """
from dataclasses import dataclass
import deepspeed
from transformers import HfArgumentParser, TrainingArguments

@dataclass
class Arguments(TrainingArguments):
    deepspeed: bool = True
    deepspeed_config: str = "ds.json"

arguments = HfArgumentParser(Arguments).%s
deepspeed.initialize(model=m, config=arguments.deepspeed_config)
"""
CONFIG = '{"train_micro_batch_size_per_gpu": 2, "zero_optimization": {"stage": 2, "stagee": 3}}'


@pytest.mark.parametrize(("call", "trainers"), [("parse_args()", False), ("parse_args_into_dataclasses()[0]", True)])
def test_only_the_parser_of_dataclasses_makes_training_arguments(folder: Folder, call: str, trainers: bool) -> None:
    folder.write({"train.py": PROGRAM % call, "ds.json": CONFIG})
    results = folder.results("train.py")
    assert ("DS101", "ds.json", 1) in folder.found("train.py")
    assert any("Trainer" in one.reason for one in results["train.py"].not_judged) is trainers
