"""Arguments of a command line that a program filters and gives to a dataclass."""

from __future__ import annotations

import pytest

from tests.setup.folder import Folder

PROGRAM = """
import argparse
from dataclasses import asdict, dataclass, fields
import deepspeed

@dataclass
class Settings:
    deepspeed_cfg: str = None
    steps: int = 10

parser = argparse.ArgumentParser()
for key, value in asdict(Settings()).items():
    parser.add_argument(f"--{key}", type=str if value is None else type(value), default=value)
parser.add_argument("--local_rank", type=int)
given = vars(parser.parse_args())
settings = Settings(**%s)
deepspeed.initialize(model=m, config=settings.deepspeed_cfg)
"""
FILTERS = (
    "{key: value for key, value in given.items() if key in {one.name for one in fields(Settings)}}",
    "{key: value for key, value in given.items() if key != 'local_rank'}",
    "{key: given[key] for key in given if key in [one.name for one in fields(Settings())]}",
    "{one.name: given[one.name] for one in fields(Settings)}",
)


@pytest.mark.parametrize("filtered", FILTERS)
def test_the_launch_names_the_config(folder: Folder, filtered: str) -> None:
    script = "deepspeed --num_gpus 2 train.py --deepspeed_cfg config/ds.json\n"
    config = '{"train_micro_batch_size_per_gpu": 2, "zero_optimization": {"stage": 2, "stagee": 3}}'
    folder.write({"train.py": PROGRAM % filtered, "run.sh": script, "config/ds.json": config})
    assert ("DS101", "config/ds.json", 1) in folder.found("run.sh")


def test_an_argument_that_may_be_passed_has_no_default(folder: Folder) -> None:
    """Behind `Settings(**unknown)` nobody can say that the call passes no config."""
    folder.write({"train.py": PROGRAM % "load(given)"})
    assert [one.reason for one in folder.results("train.py")["train.py"].not_judged] == [
        "the DeepSpeed config for deepspeed.initialize is not in this program: it depends on an unknown dict. Check the config directly."
    ]
