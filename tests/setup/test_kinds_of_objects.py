"""A program that treats models alone in another way than tuples of a model and its optimizer."""

from __future__ import annotations

import pytest

from dslint.diagnostics import Severity
from tests.setup.folder import Folder

_PROGRAM = """\
import collections, typing
import deepspeed
import torch
from torch import nn
%s

class Strategy:
    def prepare(self, *parts):
        for part in parts:
            if isinstance(part, tuple):
                self.train(*part)
            else:
                self.evaluate(part)

    def train(self, model, optimizer):
        config = {"train_micro_batch_size_per_gpu": 1, "zero_optimization": {"stage": 2, "quantized": False}}
        return deepspeed.initialize(model=model, optimizer=optimizer, config=config)

    def evaluate(self, model):
        return deepspeed.initialize(model=model, config={"train_micro_batch_size_per_gpu": 1})


Strategy().prepare(%s)
"""


@pytest.mark.parametrize(
    ("classes", "part", "certain"),
    [
        ("class Net(nn.Module):\n    pass\n", "(Net(), optimizer)", True),
        ("class Net(nn.Module):\n    pass\n", "Net()", False),
        ("class Base(torch.nn.Module):\n    pass\nclass Net(Base):\n    pass\n", "Net()", False),
        ("class Net:\n    pass\n", "Net()", False),
    ],
)
def test_the_branch_of_a_model(folder: Folder, classes: str, part: str, certain: bool) -> None:
    folder.write({"train.py": _PROGRAM % (classes, part), "run.sh": "deepspeed --num_gpus 2 train.py\n"})
    found = [one for result in folder.results("run.sh").values() for one in result.diagnostics if one.code == "DS101"]
    assert (Severity.ERROR in {one.severity for one in found}) is certain


@pytest.mark.parametrize(
    "classes",
    [
        "class Net(typing.NamedTuple):\n    model: object\n    optimizer: object\n",
        "class Net(collections.namedtuple('Pair', 'model optimizer')):\n    pass\n",
        "class Net(tuple):\n    pass\n",
        "from other import Base\nclass Net(Base):\n    pass\n",
        "from other import Base\nclass Net(nn.Module, Base):\n    pass\n",
    ],
)
def test_an_object_that_may_be_a_tuple(folder: Folder, classes: str) -> None:
    folder.write({"train.py": _PROGRAM % (classes, "Net(model, optimizer)"), "run.sh": "deepspeed --num_gpus 2 train.py\n"})
    found = [one for result in folder.results("run.sh").values() for one in result.diagnostics if one.code == "DS101"]
    assert found
