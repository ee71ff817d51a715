"""A launch whose program is not read is not green: its config is judged, and what the program does is not."""

from __future__ import annotations

import json

from click.testing import CliRunner

from dslint.cli import cli
from dslint.not_judged import Why
from tests.cases import table
from tests.setup.folder import Folder

CONFIG = '{"train_micro_batch_size_per_gpu": 4, "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}}}'
AUTO = '{"train_micro_batch_size_per_gpu": "auto", "zero_optimization": {"stage": 2}}'
ACCELERATE = "distributed_type: DEEPSPEED\nnum_processes: 4\nmixed_precision: bf16\ndeepspeed_config:\n  zero_stage: 2\n"
TRAINING = "model_name_or_path: org/model\nstage: sft\ndo_train: true\noutput_dir: out\ndeepspeed: ds.json\n"
PROGRAM = """
import argparse
import deepspeed
import torch

parser = deepspeed.add_config_arguments(argparse.ArgumentParser())
parser.add_argument("--local_rank", type=int)
model = torch.nn.Linear(4, 4)
deepspeed.initialize(args=parser.parse_args(), model=model, model_parameters=model.parameters())
"""


def unseen(folder: Folder, script: str, **files: str) -> list[Why]:
    """What is said of the programs of a script, in the order of its lines."""
    written = {name.replace("__", "/") + (".yaml" if name in ("acc", "train") else ".py"): text for name, text in files.items()}
    folder.write({"ds.json": CONFIG, "auto.json": AUTO, "run.sh": script, **written})
    return [one.why for one in folder.results("run.sh")["run.sh"].not_judged]


@table(
    "script, expected",
    [
        ("deepspeed train.py --deepspeed_config ds.json\n", [Why.PROGRAM_UNSEEN]),
        ("torchrun --nproc_per_node 4 tools/train.py --deepspeed auto.json --bf16 --output_dir o\n", [Why.PROGRAM_UNSEEN]),
        ("deepspeed /workspace/train.py --deepspeed_config ds.json\n", [Why.PROGRAM_UNSEEN]),
        ("python -m pkg.train --deepspeed_config ds.json\n", [Why.PROGRAM_UNSEEN]),
        ("deepspeed --module pkg.train --deepspeed_config ds.json\n", [Why.PROGRAM_UNSEEN]),
        ("cd /opt/repo\ndeepspeed train.py --deepspeed_config $OLDPWD/ds.json\n", []),  # its config is not known either, and that is said
        ("accelerate launch --config_file acc.yaml train.py\n", [Why.PROGRAM_UNSEEN]),
        ("accelerate launch --config_file acc.yaml -m pkg.train\n", [Why.PROGRAM_UNSEEN]),
        ('deepspeed "$TRAIN" --deepspeed_config ds.json\n', [Why.PROGRAM_SET_AT_RUN_TIME]),
        ("deepspeed $HOME/code/train.py --deepspeed_config ds.json\n", [Why.PROGRAM_SET_AT_RUN_TIME]),
        ("P=train\ndeepspeed $P.py --deepspeed_config ds.json\n", [Why.PROGRAM_UNSEEN]),
        ("deepspeed broken.py --deepspeed_config ds.json\n", [Why.PROGRAM_NOT_PYTHON]),
        ("accelerate launch --config_file acc.yaml --no_python ./train --lr 1\n", [Why.PROGRAM_WITHOUT_PY]),
        ("cat > train.py <<'EOF'\nimport deepspeed\nEOF\ndeepspeed train.py --deepspeed_config ds.json\n", [Why.PROGRAM_WRITTEN]),
    ],
)
def test_a_program_that_is_not_read_is_said(folder: Folder, script: str, expected: list[Why]) -> None:
    found = unseen(folder, script, acc=ACCELERATE, broken="def f(:\n")
    assert [one for one in found if one.name.startswith("PROGRAM")] == expected
    assert found


@table(
    "script",
    [
        "deepspeed here.py --deepspeed_config ds.json\n",
        "deepspeed --module pkg.here --deepspeed_config ds.json\n",
        "P=here\ndeepspeed $P.py --deepspeed_config ds.json\n",
        "deepspeed /workspace/here.py --deepspeed_config ds.json\n",
        "llamafactory-cli train train.yaml\n",
        "FORCE_TORCHRUN=1 llamafactory-cli train train.yaml\n",
        "accelerate launch --config_file acc.yaml -m axolotl.cli.train\n",
        "swift sft --model org/model --dataset d --deepspeed auto.json\n",
        "torchrun --nproc_per_node 4 src/train.py --stage sft --do_train --finetuning_type lora --dataset d --learning_rate 1e-4 --output_dir o --deepspeed auto.json\n",
        "python -m torch.distributed.run --nproc_per_node 4 here.py --deepspeed_config ds.json\n",
    ],
)
def test_programs_that_are_read_or_known_by_a_framework_are_not(folder: Folder, script: str) -> None:
    assert not unseen(folder, script, acc=ACCELERATE, train=TRAINING, here=PROGRAM, pkg__here=PROGRAM)


def test_job_files_and_notebooks_say_it_too(folder: Folder) -> None:
    notebook = {
        "cells": [
            {"cell_type": "code", "source": "import os", "metadata": {}, "outputs": [], "execution_count": None},
            {
                "cell_type": "code",
                "source": "!deepspeed train.py --deepspeed_config ds.json",
                "metadata": {},
                "outputs": [],
                "execution_count": None,
            },
        ],
        "metadata": {},
        "nbformat": 4,
        "nbformat_minor": 5,
    }
    job = "resources:\n  accelerators: A100:4\nrun: |\n  deepspeed train.py --deepspeed_config ds.json\n"
    starter = "import subprocess\nsubprocess.run(['deepspeed', 'train.py', '--deepspeed_config', 'ds.json'])\n"
    folder.write({"ds.json": CONFIG, "run.ipynb": json.dumps(notebook), "job.yaml": job, "start.py": starter})
    for name, line in (("run.ipynb", 1), ("job.yaml", 4), ("start.py", 2)):
        (one,) = folder.results(name)[name].not_judged
        assert (one.why, one.launch, one.range and one.range.start.line) == (Why.PROGRAM_UNSEEN, "the launch of train.py", line)
    result = CliRunner().invoke(cli, ["check", "."])
    assert "Not checked: job.yaml:4, run.ipynb:cell 2:1, start.py:2: the launch of train.py: the program is not in" in " ".join(
        result.output.split()
    )


def test_a_folder_with_many_launches_says_it_once(folder: Folder) -> None:
    scripts = {f"run_{number}.sh": f"deepspeed part_{number}.py --deepspeed_config ds.json\n" for number in range(6)}
    folder.write({"ds.json": CONFIG, **scripts})
    printed = " ".join(CliRunner().invoke(cli, ["check", "."]).output.split())
    assert "6 files were checked only in part." in printed
    assert printed.count("Not checked") == 1
    assert "run_0.sh:1, run_1.sh:1, run_2.sh:1 and 3 more places: the program is not in this project, so what it does" in printed
    assert "run_5.sh:1: the program" in " ".join(CliRunner().invoke(cli, ["check", ".", "-v"]).output.split())


def test_a_file_and_its_folder_agree(folder: Folder) -> None:
    folder.write({"ds.json": CONFIG, "run.sh": "deepspeed train.py --deepspeed_config ds.json\n"})
    for what in ("run.sh", "."):
        result = CliRunner().invoke(cli, ["check", what])
        assert result.exit_code == 0
        assert "1 file was checked only in part." in " ".join(result.output.split())
        assert CliRunner().invoke(cli, ["check", what, "--strict"]).exit_code == 1
    assert "deepspeed launches train.py (not in this project) with" in " ".join(CliRunner().invoke(cli, ["check", "run.sh"]).output.split())
    folder.write({"train.py": PROGRAM})
    assert CliRunner().invoke(cli, ["check", ".", "--strict"]).exit_code == 0


def test_a_finding_at_the_launch_does_not_speak_for_the_program(folder: Folder) -> None:
    folder.write({"ds.json": CONFIG, "run.sh": "deepspeed --num_gpus 4 --include localhost:0,1 train.py --deepspeed_config ds.json\n"})
    printed = CliRunner().invoke(cli, ["check", "run.sh"]).output
    assert "error" in printed
    assert "the launch of train.py" in printed


def test_findings_about_configs_that_no_launch_uses_are_left_out_as_before(folder: Folder) -> None:
    """Which configs are used is known, though their program is not read."""
    unused = '{"train_micro_batch_size_per_gpu": 4, "fp16": {"enabled": true, "initial_scale_power": 32}}'
    folder.write({"ds.json": CONFIG, "other.json": unused, "run.sh": "deepspeed train.py --deepspeed_config ds.json\n"})
    assert "left out" in " ".join(CliRunner().invoke(cli, ["check", "."]).output.split())
