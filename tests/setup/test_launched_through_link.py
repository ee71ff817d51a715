"""A program that a script launches through a link is judged with that launch."""

from __future__ import annotations

import pytest

from tests.setup.folder import Folder

PROGRAM = (
    "import argparse, deepspeed\nparser = deepspeed.add_config_arguments(argparse.ArgumentParser())\n"
    "deepspeed.initialize(args=parser.parse_args(), model=m)\n"
)
BROKEN = '{"train_batch_size": 8, "zero_optimization": {"stage": 2, "stagee": 3}}'


@pytest.mark.parametrize(("link", "target"), [("recipes/a/pkg", "../../pkg"), ("recipes/a/pkg/train.py", "../../../pkg/train.py")])
def test_a_launch_through_a_link(folder: Folder, link: str, target: str) -> None:
    folder.write({"pkg/train.py": PROGRAM, "recipes/a/ds.json": BROKEN})
    folder.write({"recipes/a/run.sh": "torchrun --nproc_per_node 8 pkg/train.py --deepspeed_config ds.json\n"})
    (folder.path / link).parent.mkdir(exist_ok=True)
    (folder.path / link).symlink_to(target)
    assert ("DS101", "recipes/a/ds.json", 1) in folder.found("pkg/train.py")
    assert folder.results("pkg/train.py")["pkg/train.py"].not_judged == ()


def test_a_link_to_another_program(folder: Folder) -> None:
    folder.write({"pkg/train.py": PROGRAM, "other/train.py": PROGRAM, "recipes/ds.json": BROKEN})
    folder.write({"recipes/run.sh": "torchrun --nproc_per_node 8 pkg/train.py --deepspeed_config ds.json\n"})
    (folder.path / "recipes/pkg").symlink_to("../other")
    assert folder.found("pkg/train.py") == []
