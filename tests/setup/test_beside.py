"""A config that nothing uses, in a folder of configs that are used."""

from __future__ import annotations

from tests.setup.folder import Folder

AUTO = '{"bf16": {"enabled": "auto"}, "train_micro_batch_size_per_gpu": 4, "zero_optimization": {"stage": %d}}'
LAUNCH = "torchrun --nproc_per_node 8 train.py --deepspeed configs/z3.json --per_device_train_batch_size 8 --output_dir out --learning_rate 1e-5\n"


def test_the_trainer_loads_it_as_the_others(folder: Folder) -> None:
    files = {"configs/z3.json": AUTO % 3, "configs/z0.json": AUTO % 0, "bash/run.sh": LAUNCH}
    folder.write(files)
    assert not {one.code for one in folder.results("configs/z0.json")["configs/z0.json"].diagnostics} & {"DS901"}


def test_without_another_one_nothing_is_known(folder: Folder) -> None:
    folder.write({"configs/z0.json": AUTO % 0, "bash/run.sh": LAUNCH})
    assert "DS901" in {one.code for one in folder.results("configs/z0.json")["configs/z0.json"].diagnostics}
