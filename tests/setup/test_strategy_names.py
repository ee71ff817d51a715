"""Names of Lightning's strategies for DeepSpeed: those that it has, and those for which it raises (DSP19)."""

from __future__ import annotations

from pathlib import Path

import pytest

from dslint.frameworks.lightning import OF_TRAINER, STAGE_1_OF_FABRIC, nearest_strategy
from tests.cases import every_case
from tests.setup.folder import Folder

_FLAG = (
    "import argparse\nimport lightning as L\nparser = argparse.ArgumentParser()\n"
    "parser.add_argument('--strategy', default='deepspeed_stage2')\n"
    "L.Trainer(strategy=parser.parse_args().strategy, devices=8)\n"
)
_TRAINS = "import lightning as L\nL.Trainer(strategy=%s, devices=8)\n"
_IN_FUNCTION = (
    "import pytorch_lightning as pl\ndef train(name):\n    return pl.Trainer(**dict(strategy=name, devices=8))\ntrain('deepspeed_2')\n"
)
_ADDS = (
    "from lightning.pytorch.strategies import DeepSpeedStrategy, StrategyRegistry\n"
    "def add():\n    StrategyRegistry.register('deepspeed_small', DeepSpeedStrategy, stage=1)\n"
)
_USES_ADDED = "import lightning as L\nfrom ours import add\nadd()\nL.Trainer(strategy='deepspeed_small')\n"
_DECORATED = (
    "import lightning as L\nfrom lightning.pytorch.strategies import DeepSpeedStrategy, StrategyRegistry\n"
    "@StrategyRegistry.register('deepspeed_small', description='', stage=1)\nclass Small(DeepSpeedStrategy):\n    pass\n"
    "L.Trainer(strategy='deepspeed_small')\n"
)
_SUBCLASS = (
    "import lightning as L\nclass Trainer(L.Trainer):\n    def __init__(self, strategy, **rest):\n"
    "        super().__init__(strategy=ours(strategy), **rest)\nTrainer(strategy='deepspeed_small')\n"
)

_CERTAIN, _MAY, _SILENT = "certain", "may", ""
CASES = [
    ("a name that does not exist", {"train.py": _TRAINS % "'deepspeed_zero_2'"}, "train.py", _CERTAIN),
    ("through a dict and a function", {"train.py": _IN_FUNCTION}, "train.py", _CERTAIN),
    ("its launch", {"train.py": _TRAINS % "'deepspeed_2'", "run.sh": "torchrun --nproc_per_node 8 train.py\n"}, "run.sh", _CERTAIN),
    ("the default of a flag", {"train.py": _FLAG}, "train.py", _MAY),
    ("a flag of the launch", {"train.py": _FLAG, "run.sh": "python train.py --strategy deepspeed_zero3\n"}, "run.sh", _CERTAIN),
    ("the launch gives another", {"train.py": _FLAG, "run.sh": "python train.py --strategy deepspeed_stage_3\n"}, "run.sh", _SILENT),
    ("the program of that launch", {"train.py": _FLAG, "run.sh": "python train.py --strategy deepspeed_stage_3\n"}, "train.py", _SILENT),
    ("one of two names", {"train.py": _TRAINS % "'deepspeed_zero_2' if big else 'ddp'"}, "train.py", _MAY),
    ("capitals", {"train.py": _TRAINS % "'DEEPSPEED_STAGE_2'"}, "train.py", _SILENT),
    ("a strategy that is not DeepSpeed's", {"train.py": _TRAINS % "'hpu_deepspeed'"}, "train.py", _SILENT),
    ("a name that only the run knows", {"train.py": "import os\n" + _TRAINS % "os.environ['S']"}, "train.py", _SILENT),
    ("a strategy of the project", {"train.py": _USES_ADDED, "ours.py": _ADDS}, "train.py", _SILENT),
    ("a strategy with a decorator", {"train.py": _DECORATED}, "train.py", _SILENT),
    ("a Trainer of the project", {"train.py": _SUBCLASS}, "train.py", _SILENT),
    ("another Trainer", {"train.py": _TRAINS.replace("lightning as L", "ours as L") % "'deepspeed_2'"}, "train.py", _SILENT),
]


def test_names_that_lightning_does_not_have(folder: Folder) -> None:
    with every_case() as case:
        for name, files, asked, expected in CASES:
            with case(name):
                for one in ("train.py", "run.sh", "ours.py"):
                    (folder.path / one).unlink(missing_ok=True)
                folder.write(files)
                found = [one for one in folder.diagnostics(asked) if one.code == "DSP19"]
                assert [_CERTAIN if one.certain else _MAY for one in found] == ([expected] if expected else [])


def test_a_program_without_a_strategy_has_no_config(folder: Folder) -> None:
    folder.write({"train.py": _TRAINS % "'deepspeed_zero_2'"})
    (reason,) = folder.results("train.py")["train.py"].not_judged
    assert reason.reason == "deepspeed_zero_2 is not a strategy of Lightning, so no config is built that could be checked."


@pytest.mark.parametrize(
    ("name", "nearest"),
    [
        ("deepspeed_stage_2_something", "deepspeed_stage_2"),
        ("deepspeed_stage_1_offload", "deepspeed_stage_1"),
        ("deepspeed_zero3_offload", "deepspeed_stage_3_offload"),
        ("deepspeed-stage-2", "deepspeed_stage_2"),
        ("deepspeeed", "deepspeed"),
    ],
)
def test_the_name_that_is_proposed(name: str, nearest: str) -> None:
    assert nearest_strategy(name) == nearest


@pytest.mark.slow
def test_the_names_are_those_of_lightning() -> None:
    strategies = pytest.importorskip("lightning.pytorch.strategies")
    fabric = pytest.importorskip("lightning.fabric.strategies")
    known = {one for one in strategies.StrategyRegistry.available_strategies() if "deepspeed" in one}
    of_fabric = {one for one in fabric.STRATEGY_REGISTRY.available_strategies() if "deepspeed" in one}
    assert known == {*OF_TRAINER}
    assert of_fabric - known == {STAGE_1_OF_FABRIC}


@pytest.mark.slow
def test_a_checkpoint_that_is_a_folder_cannot_be_loaded_as_a_file(tmp_path: Path) -> None:
    """DSP22: Lightning's DeepSpeed strategy saves a folder with the name of the checkpoint."""
    module = pytest.importorskip("lightning.pytorch").LightningModule
    (tmp_path / "last.ckpt").mkdir()
    with pytest.raises(IsADirectoryError):
        module.load_from_checkpoint(tmp_path / "last.ckpt")
