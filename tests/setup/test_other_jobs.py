"""Files that hold a launch in a list of commands, or whose name ends as a batch system wants it."""

from __future__ import annotations

import pytest
from click.testing import CliRunner

from dslint.cli import cli
from tests.setup.folder import Folder

BY_FLAG = (
    "import argparse, deepspeed\nparser = deepspeed.add_config_arguments(argparse.ArgumentParser())\n"
    "deepspeed.initialize(args=parser.parse_args(), model=m)\n"
)
CONFIG = '{"train_batch_size": 12}'
LAUNCH = "deepspeed --num_gpus 8 train.py --deepspeed_config ds.json"

JOBS = {
    "a task of dstack": (
        "train.dstack.yml",
        f"type: task\ncommands:\n  - pip install deepspeed\n  - {LAUNCH}\nresources:\n  gpu: 80GB:8\n",
    ),
    "a pipeline of GitLab": ("pipeline.yml", f"train:\n  stage: train\n  script:\n    - cd .\n    - {LAUNCH}\n"),
    "a stage of DVC": ("dvc.yaml", f"stages:\n  train:\n    cmd: {LAUNCH}\n    deps: [train.py]\n"),
    "two commands of DVC": ("dvc.yaml", f"stages:\n  train:\n    cmd:\n      - export N=8\n      - {LAUNCH.replace('8', '$N')}\n"),
    "a run of MosaicML": ("run.yaml", f"name: x\ngpu_num: 8\ncommand: |\n  {LAUNCH}\n"),
    "a job of PBS": ("train.pbs", f"#!/bin/bash\n#PBS -l select=1:ngpus=8\n{LAUNCH}\n"),
    "a job of LSF": ("train.lsf", f"#!/bin/bash\n#BSUB -n 8\n{LAUNCH}\n"),
    "a job of Slurm": ("train.job", f"#!/bin/bash\n#SBATCH --gpus 8\n{LAUNCH}\n"),
}


@pytest.mark.parametrize("name", JOBS)
def test_the_ranks_of_a_launch(folder: Folder, name: str) -> None:
    """12 samples do not divide by 8 ranks."""
    path, text = JOBS[name]
    folder.write({"train.py": BY_FLAG, "ds.json": CONFIG, path: text})
    for target in (path, "train.py"):
        assert any(code == "DS201" or code == "DS203" for code, *_ in folder.found(target)), folder.found(target)


@pytest.mark.parametrize(
    "text",
    [
        "script:\n  - echo deepspeed train.py\n  - python train.py\n",
        "commands:\n  - pip install deepspeed\n",
        "steps:\n  - run: |\n      pip install deepspeed transformers\n      python -m pytest tests\n",
        "stages:\n  train:\n    cmd: python prepare.py\n",
        "help:\n  commands: use deepspeed to start it\n",
        "script: [1, {a: deepspeed train.py}]\n",
        "runs:\n  first:\n    args: '--backend deepspeed --stage 3 {more}'\n",
        "runs:\n  - args: [--engine, deepspeed, --steps, 3, train.py]\n",
    ],
)
def test_other_commands_launch_nothing(folder: Folder, text: str) -> None:
    folder.write({"train.py": "print('x')\n", "prepare.py": "", "other.yaml": text})
    assert not any(folder.found("other.yaml"))
    assert "other.yaml" not in CliRunner().invoke(cli, ["check", "."]).output  # of a folder, it is not even said to be unread


def test_a_template_names_no_config(folder: Folder) -> None:
    command = "torchrun --nproc_per_node 8 train.py --deepspeed_config {config}"
    folder.write({"train.py": BY_FLAG, "launcher.yaml": f"launcher:\n  cmd: {command}\n"})
    assert not [one for one in folder.found("launcher.yaml") if one[0] == "DS001"]
