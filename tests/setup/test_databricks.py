"""Notebooks of Databricks: a `.py` file whose lines of shell and prose begin with `# MAGIC`, or `.ipynb` with `%sh`."""

from __future__ import annotations

import json

import pytest

from tests.command import dslint as run
from tests.setup.folder import Folder

BROKEN = '{"train_batch_size": 8, "zero_optimization": {"stage": 2, "stagee": 3}}'
BY_FLAG = (
    "import argparse, deepspeed\nparser = deepspeed.add_config_arguments(argparse.ArgumentParser())\n"
    "deepspeed.initialize(args=parser.parse_args(), model=m)\n"
)
_HEAD = "# Databricks notebook source\n# MAGIC %md\n# MAGIC # Train it (see <a>)\n\n# COMMAND ----------\n\n"
_TRAINING = {"training/__init__.py": "", "training/trainer.py": BY_FLAG, "config/ds.json": BROKEN}


def _notebook(*cells: str) -> str:
    return _HEAD + "\n\n# COMMAND ----------\n\n".join(cells) + "\n"


def _magic(*lines: str) -> str:
    return "\n".join(f"# MAGIC {line}".rstrip() for line in lines)


@pytest.mark.parametrize(
    "cells",
    [
        (_magic("%sh", "cd .", "", "deepspeed --num_gpus 8 --module training.trainer \\", "  --deepspeed_config config/ds.json"),),
        (_magic("!deepspeed --num_gpus 8 --module training.trainer \\", "  --deepspeed_config config/ds.json"),),
        ("path = 'config/ds.json'", _magic("!deepspeed --module training.trainer --deepspeed_config {path}")),
        (
            "import os\npath = os.path.join(os.getcwd(), 'config/ds.json')\nflags = ''\nif count := ask():\n    flags = f'--num_gpus={count}'",
            _magic("!deepspeed {flags} \\", "  --module training.trainer \\", "  --deepspeed_config {path}"),
        ),
    ],
)
def test_the_launch_of_a_notebook(folder: Folder, cells: tuple[str, ...]) -> None:
    folder.write({**_TRAINING, "start.py": _notebook(*cells)})
    for name in ("start.py", "training/trainer.py"):
        assert ("DS101", "config/ds.json", 1) in folder.found(name)
    found = folder.results("start.py")["start.py"]
    assert found.not_judged == ()
    assert "training.trainer" in (found.note or "")


@pytest.mark.parametrize("again", ["path = other()", "for path in paths:\n    print(path)", "def show(path):\n    print(path)"])
def test_a_variable_that_is_assigned_again_may_have_another_value(folder: Folder, again: str) -> None:
    cells = ("path = 'config/ds.json'", _magic("!deepspeed --module training.trainer --deepspeed_config {path}"), again)
    folder.write({**_TRAINING, "start.py": _notebook(*cells)})
    assert [one.reason for one in folder.results("start.py")["start.py"].not_judged] == [
        "the DeepSpeed config is {path}, which is only known at run time. Check the config directly."
    ]


def test_a_config_in_a_notebook(folder: Folder) -> None:
    """Its lines are counted within the cell."""
    folder.write({"start.py": _notebook(_magic("%pip install deepspeed"), f"import deepspeed\ndeepspeed.initialize(m, config={BROKEN})")})
    assert ("DS101", "start.py:cell 3", 4) in folder.found("start.py")


def test_a_shell_cell_of_a_jupyter_file(folder: Folder) -> None:
    text = "%sh\ndeepspeed --num_gpus 8 --module training.trainer --deepspeed_config config/ds.json\n"
    cell = {"cell_type": "code", "metadata": {}, "source": text, "outputs": [], "execution_count": None}
    folder.write({**_TRAINING, "start.ipynb": json.dumps({"cells": [cell], "metadata": {}, "nbformat": 4, "nbformat_minor": 5})})
    assert ("DS101", "config/ds.json", 1) in folder.found("start.ipynb")
    assert folder.results("start.ipynb")["start.ipynb"].not_judged == ()  # its lines are no Python


@pytest.mark.parametrize(
    ("assigned", "given"),
    [
        ("count = 8", "--num_gpus {count}"),
        ("flags = '--num_gpus 8 --no_local_rank'", "{flags}"),
        ("import os\ncount = 2 * 4", "--num_gpus={count}"),
    ],
)
def test_the_ranks_in_a_variable_of_a_notebook(folder: Folder, assigned: str, given: str) -> None:
    """12 samples do not divide by 8 ranks."""
    launch = f"!deepspeed {given} --module training.trainer --deepspeed_config config/ds.json"
    folder.write({**_TRAINING, "config/ds.json": '{"train_batch_size": 12}', "start.py": _notebook(assigned, _magic(launch))})
    assert ("DS201", "config/ds.json", 1) in folder.found("start.py")


def test_a_variable_before_the_program_may_be_empty(folder: Folder) -> None:
    folder.write({**_TRAINING, "run.sh": "deepspeed $(more_flags) --module training.trainer --deepspeed_config config/ds.json\n"})
    assert ("DS101", "config/ds.json", 1) in folder.found("training/trainer.py")


_OF_TRAINER = (
    "import click, transformers\n@click.command()\n@click.option('--batch', type=int)\n@click.option('--deepspeed')\n"
    "@click.option('--remat', default=True)\ndef main(**given):\n    train(**given)\n"
    "def train(batch, deepspeed, remat):\n"
    "    model = transformers.AutoModelForCausalLM.from_pretrained('gpt2')\n"
    "    options = transformers.TrainingArguments('out', per_device_train_batch_size=batch, gradient_checkpointing=remat, deepspeed=deepspeed)\n"
    "    transformers.Trainer(model, options).train()\nmain()\n"
)
_AUTO = '{"train_micro_batch_size_per_gpu": "auto", "zero_optimization": {"stage": 3}, "bf16": {"enabled": true}}'
_LAUNCHES = _magic("!deepspeed --no_local_rank --module training.trainer --batch 6 --deepspeed {deepspeed_config}")


@pytest.mark.slow
@pytest.mark.parametrize("named", ["config/ds.json", "start.py", "training/trainer.py"])
def test_the_launch_of_a_notebook_counts_more_than_the_name_of_the_config_in_it(folder: Folder, named: str) -> None:
    """The notebook names the config and launches a training with it: commands about one training take the launched one."""
    notebook = _notebook("deepspeed_config = 'config/ds.json'", _LAUNCHES)
    folder.write({**_TRAINING, "training/trainer.py": _OF_TRAINER, "config/ds.json": _AUTO, "start.py": notebook})
    answer = run("estimate", named, "--isolated", "--params", "7B", "--world-size", "8", "--gpu", "a100-40gb")
    shown = " ".join(answer.stdout.split())
    assert "6 x 1 samples per rank and step, 2,048 tokens each, activation checkpointing" in shown
    assert "every rank holds the whole model first: training/trainer.py:9 loads it" in shown
    checked = " ".join(run("check", ".", "--isolated", "-v").stdout.split())
    assert ".;" not in checked
    assert "Inferred --model gpt2" in checked
    assert "--model FILE" not in checked
    assert "the one in start.py:cell " in answer.stderr or named == "training/trainer.py"
