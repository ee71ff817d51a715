"""The configs of axolotl's repository, which a training file names and a project often leaves out."""

from __future__ import annotations

import pytest

from dslint.config.context import Context
from dslint.setups.open import open_text
from dslint.source.tree import plain
from tests.setup.folder import Folder

TRAINING = "base_model: m\nmicro_batch_size: 1\nadapter: lora\nbf16: true\ndeepspeed: %s\n"


def stage_of(folder: Folder, name: str) -> object:
    folder.write({"train.yaml": TRAINING % name})
    opened = open_text(TRAINING % name, "train.yaml", Context())
    assert opened is not None
    configs = [plain(one.loaded.document.root) for one in opened.configs]
    return configs[0]["zero_optimization"]["stage"] if configs else None


@pytest.mark.parametrize(
    ("name", "stage"),
    [("deepspeed_configs/zero2.json", 2), ("deepspeed/zero3.json", 3), ("deepspeed_configs/mine.json", None), ("configs/zero2.json", None)],
)
def test_a_config_of_axolotls_is_known_by_its_path(folder: Folder, name: str, stage: int | None) -> None:
    assert stage_of(folder, name) == stage


def test_a_file_of_the_project_counts_more(folder: Folder) -> None:
    folder.write({"deepspeed_configs/zero2.json": '{"zero_optimization": {"stage": 3}, "train_micro_batch_size_per_gpu": 1}'})
    assert stage_of(folder, "deepspeed_configs/zero2.json") == 3
