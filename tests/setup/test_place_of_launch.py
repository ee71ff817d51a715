"""Where a launch is shown whose program begins with a variable, and what is said of a placeholder that a script leaves."""

from __future__ import annotations

import pytest

from tests.setup.folder import Folder

PROGRAM = (
    "import argparse, deepspeed\nparser = argparse.ArgumentParser()\nparser.add_argument('--micro', required=True)\n"
    "args = parser.parse_args()\ndeepspeed.initialize(model=m, config={'train_micro_batch_size_per_gpu': int(args.micro)})\n"
)


@pytest.mark.parametrize(
    ("script", "line"),
    [
        ('HERE=`pwd`\n\nrun="torchrun $HERE/train.py --epochs 3"\neval $run\n', 3),
        ("HERE=.\nPROGRAM=$HERE/train.py\ntorchrun \\\n  $PROGRAM --epochs 3\n", 3),
        ("source folders.sh\ntorchrun ${HERE}/train.py --epochs 3\n", 2),
        ("HERE=.\ntorchrun train.py --epochs 3\n", 2),
    ],
)
def test_the_place_of_a_launch(folder: Folder, script: str, line: int) -> None:
    folder.write({"train.py": PROGRAM, "folders.sh": "HERE=.\n", "run.sh": script})
    assert ("DS973", "run.sh", line) in folder.found("run.sh")


def test_a_placeholder_is_replaced_and_not_quoted(folder: Folder) -> None:
    template = '{\n"train_micro_batch_size_per_gpu": MICRO,\n"zero_optimization": {"stage":\nSTAGE,\n"overlap_comm": false}}\n'
    script = 'sed "s/MICRO/4/" template.json > ds.json\ndeepspeed --num_gpus 2 train.py --deepspeed_config ds.json\n'
    folder.write({"template.json": template, "run.sh": script, "train.py": "import deepspeed\n"})
    found = [one for one in folder.results("run.sh")["template.json"].diagnostics if one.code == "DS104"]
    assert [one.help for one in found] == ["Replace STAGE with one of 0, 1, 2, 3."]
