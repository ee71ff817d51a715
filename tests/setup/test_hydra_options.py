"""Launches whose words select files for Hydra, and programs of Hydra with the Trainer."""

from __future__ import annotations

import pytest

from tests.setup.folder import Folder

_PROGRAM = (
    "import hydra\nimport lightning as L\n@hydra.main(version_base=None, config_path='../conf', config_name='train.yaml')\n"
    "def main(cfg):\n    trainer = hydra.utils.instantiate(cfg.trainer)\n    trainer.fit(model)\nmain()\n"
)
_PLAIN = "defaults:\n  - strategy: %s\n  - trainer: gpu\n"
_FILES = {
    "src/train.py": _PROGRAM,
    "conf/train.yaml": _PLAIN % "default",
    "conf/strategy/default.yaml": "_target_: lightning.pytorch.strategies.SingleDeviceStrategy\n",
    "conf/experiment/large.yaml": "# @package _global_\ndefaults:\n  - override /strategy: deepspeed\nseed: 1\n",
    "conf/experiment/small.yaml": "# @package _global_\nseed: 1\n",
}


def _reason(folder: Folder, words: str, main: str = "default") -> str:
    folder.write({**_FILES, "conf/train.yaml": _PLAIN % main, "run.sh": f"torchrun --nproc_per_node 4 src/train.py {words}\n"})
    result = folder.results("run.sh")["run.sh"]
    return "; ".join([*(one.reason for one in result.not_judged), result.note or ""])


@pytest.mark.parametrize(
    ("words", "main", "named"),
    [
        ("experiment=large", "default", "experiment=large"),
        ("+experiment=large trainer.devices=4", "default", "+experiment=large"),
        ("seed=3", "deepspeed", "train.yaml"),
        ("", "deepspeed_stage_2", "train.yaml"),
    ],
)
def test_a_file_that_selects_the_strategy_is_named(folder: Folder, words: str, main: str, named: str) -> None:
    assert f"takes its config from {named}, with which Hydra reads a file" in _reason(folder, words, main)


@pytest.mark.parametrize(
    ("words", "main"),
    [("experiment=small", "default"), ("", "default"), ("strategy=default", "deepspeed"), ("experiment=missing", "default")],
)
def test_a_launch_without_deepspeed_is_one(folder: Folder, words: str, main: str) -> None:
    assert "no command in this file launches a DeepSpeed training" in _reason(folder, words, main)


_TRAINER = (
    "import hydra\nfrom transformers import Seq2SeqTrainer, TrainingArguments\nfrom arguments import setup\n"
    "@hydra.main(config_path='conf', config_name='config')\ndef main(cfg):\n    args = setup(cfg)\n"
    "    Seq2SeqTrainer(model=model, args=args.training).train()\nmain()\n"
)
_WARMUP = (
    '{"train_micro_batch_size_per_gpu": "auto", "optimizer": {"type": "AdamW", "params": {"lr": "auto"}}, "scheduler": {"type": "WarmupLR", '
    '"params": {"warmup_min_lr": "auto", "warmup_max_lr": "auto", "warmup_num_steps": "auto"}}, "zero_optimization": {"stage": 2}}'
)


def test_files_for_hydra_may_hold_the_other_arguments(folder: Folder) -> None:
    arguments = "from transformers import TrainingArguments\ndef setup(cfg):\n    return cfg\n"
    launch = "deepspeed --no_local_rank --num_gpus 4 train.py +model=large training.deepspeed=ds.json training.output_dir=out\n"
    folder.write({"train.py": _TRAINER, "arguments.py": arguments, "ds.json": _WARMUP, "run.sh": launch})
    assert "DS658" not in [code for code, _, _ in folder.found("run.sh")]


@pytest.mark.parametrize(
    "words",
    [
        "++train_conf.use_deepspeed=false ++train_conf.deepspeed_config=conf/none.json",
        "--use_deepspeed False --deepspeed_config conf/none.json",
        "model.enable_deepspeed=no model.deepspeed_config=conf/none.json",
    ],
)
def test_a_switch_that_is_off(folder: Folder, words: str) -> None:
    """The program does not read the config that another word names."""
    folder.write({"run.sh": f"torchrun --nproc_per_node 2 train.py {words}\n", "train.py": "import torch\n"})
    assert folder.found("run.sh") == []


@pytest.mark.parametrize(
    "words",
    [
        "++train_conf.use_deepspeed=true ++train_conf.deepspeed_config=conf/none.json",
        "--use_deepspeed --deepspeed_config conf/none.json",
        "++train_conf.use_deepspeed=$SWITCH ++train_conf.deepspeed_config=conf/none.json",
    ],
)
def test_a_switch_that_is_on(folder: Folder, words: str) -> None:
    folder.write({"run.sh": f"torchrun --nproc_per_node 2 train.py {words}\n", "train.py": "import torch\n"})
    assert [code for code, _, _ in folder.found("run.sh")] == ["DS919"]
