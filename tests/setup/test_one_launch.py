"""A launch counts for the program and for its config, whichever kind of file starts it and whichever file is named."""

from __future__ import annotations

import json

import pytest

from tests.setup.folder import Folder

PROGRAM = """\
import deepspeed

engine, *_ = deepspeed.initialize(model=make_model(), config="ds.json")
"""
CONFIG = '{\n  "train_batch_size": 72,\n  "train_micro_batch_size_per_gpu": 4\n}\n'
"""On 16 ranks no number of accumulation steps fits; on 18 ranks one does."""

AZURE = """\
command: python train.py
code: {folder}
environment: azureml:pytorch:1
compute: azureml:gpu
distribution: {type: pytorch, process_count_per_instance: 8}
resources: {instance_count: {nodes}}
"""


def notebook(line: str) -> str:
    cell = {"cell_type": "code", "execution_count": None, "metadata": {}, "outputs": [], "source": [line]}
    return json.dumps({"cells": [cell], "metadata": {}, "nbformat": 4, "nbformat_minor": 5})


LAUNCHES = {
    "a script that starts a module": ("run.sh", "torchrun --nproc_per_node {ranks} -m train\n", ""),
    "a script with DeepSpeed's launcher": ("run.sh", "deepspeed --num_gpus {ranks} train.py\n", ""),
    "a script in a folder": ("scripts/run.sh", "cd ..\ntorchrun --nproc_per_node {ranks} train.py\n", ""),
    "a makefile": ("Makefile", "train:\n\ttorchrun --nproc_per_node {ranks} train.py\n", ""),
    "a notebook": ("start.ipynb", notebook("!deepspeed --num_gpus {ranks} train.py"), ""),
    "a program": ("start.py", 'import subprocess\nsubprocess.run(["torchrun", "--nproc_per_node={ranks}", "train.py"])\n', ""),
    "a job of AzureML": ("job.yml", AZURE.replace("{folder}", "src"), "src/"),
    "a job of AzureML in a folder": ("jobs/job.yml", AZURE.replace("{folder}", "../src"), "src/"),
}


def write(folder: Folder, launch: str, ranks: int) -> tuple[str, str, str]:
    """Write a project; returns its launch, its program and its config."""
    name, text, below = LAUNCHES[launch]
    files = (name, f"{below}train.py", f"{below}ds.json")
    filled = text.replace("{ranks}", str(ranks)).replace("{nodes}", str(ranks // 8))
    folder.write(dict(zip(files, (filled, PROGRAM, CONFIG), strict=True)))
    return files


@pytest.mark.parametrize("launch", LAUNCHES)
def test_whatever_is_named_the_launch_counts(folder: Folder, launch: str) -> None:
    files = write(folder, launch, 16)
    config = files[-1]
    for name in files:
        assert folder.found(name) == [("DS201", config, 2)], name
        assert folder.results(name)[config].facts.world_size == 16, name
    folder.write({config: CONFIG.replace("72", "64")})
    assert [folder.found(name) for name in files] == [[], [], []]


@pytest.mark.parametrize("launch", LAUNCHES)
def test_a_launch_of_another_program_says_nothing(folder: Folder, launch: str) -> None:
    _, program, config = write(folder, launch, 16)
    folder.write({program.replace("train.py", "other.py"): PROGRAM.replace("ds.json", "other.json")})
    folder.write({config.replace("ds.json", "other.json"): CONFIG})
    for name in (program.replace("train.py", "other.py"), config.replace("ds.json", "other.json")):
        assert folder.found(name) == []
        assert {one.facts.world_size for one in folder.results(name).values()} == {None}


def test_every_launch_of_a_program_counts(folder: Folder) -> None:
    """Eighteen ranks fit, and sixteen do not: whoever starts it in one way does not see the other."""
    files = write(folder, "a script that starts a module", 16)
    folder.write({"more.sh": "torchrun --nproc_per_node 18 train.py\n"})
    for name in files:
        assert folder.found(name) == [("DS201", "ds.json", 2)], name
    assert folder.found("more.sh") == []


def test_a_job_without_deepspeed_is_none(folder: Folder) -> None:
    """A job file need not mention DeepSpeed, but its program has to use it."""
    name, program, _ = write(folder, "a job of AzureML", 16)
    folder.write({program: "print(1)\n"})
    assert folder.found(name) == []
    assert folder.results(name, named=False) == {}
