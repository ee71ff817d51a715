"""The same file gives the same facts, findings and values, however it is named."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

import dslint
from dslint.facts import Facts
from dslint.server.checking import check
from dslint.server.files import OpenFile, uri_of
from tests.command import dslint as run
from tests.server.opened import opened
from tests.setup.folder import Folder

TRAIN = """\
from transformers import HfArgumentParser, Trainer, TrainingArguments

args = HfArgumentParser(TrainingArguments).parse_args_into_dataclasses()[0]
Trainer(model=None, args=args).train()
"""
FLAGS = "--deepspeed ds_config.json --per_device_train_batch_size 4 --gradient_accumulation_steps 2 --bf16 True"
CONFIG = """\
{
  "train_micro_batch_size_per_gpu": "auto",
  "gradient_accumulation_steps": 2,
  "fp16": {"enabled": true},
  "zero_optimization": {"stage": 2, "offload_param": {"device": "cpu"}}
}
"""
EXPECTED = [("DS905", 4), ("DS501", 5)]


@pytest.fixture
def project(folder: Folder) -> Folder:
    """A config that a script names, in the working directory."""
    folder.write({"train.py": TRAIN, "run.sh": f"deepspeed --num_gpus 8 train.py {FLAGS}\n", "ds_config.json": CONFIG})
    return folder


def of_command(*arguments: str, **options: str) -> list[tuple[str, int]]:
    """Code and line of what is found in the config."""
    done = run("check", *arguments, "--isolated", "--deepspeed", "0.19.8", "--output-format", "json", **options)
    found = json.loads(done.stdout)["diagnostics"]
    return [(one["code"], one["range"]["start"]["line"]) for one in found if one["path"] == "ds_config.json"]


def values_of(shown: str) -> dict[str, object]:
    """The values that `show` prints, by their keys."""
    return {".".join(one["path"]): one["value"] for one in json.loads(shown)["keys"]}


WAYS: dict[str, Callable[[], list[tuple[str, int]]]] = {
    "file": lambda: of_command("ds_config.json"),
    "directory": lambda: of_command("."),
    "pattern": lambda: of_command("*.json"),
    "script": lambda: of_command("run.sh"),
    "standard input": lambda: of_command("-", "--stdin-filename", "ds_config.json", input=CONFIG),
    "command": lambda: of_command("--command", f"deepspeed --num_gpus 8 train.py {FLAGS}"),
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.usefixtures("project")
def test_a_config_has_the_same_findings(way: str) -> None:
    assert sorted(WAYS[way]()) == sorted(EXPECTED)


def test_the_api_and_the_server_find_the_same(project: Folder) -> None:
    found = dslint.check("ds_config.json", deepspeed="0.19.8")
    assert sorted((one.code, one.range.start.line if one.range else 0) for one in found) == sorted(EXPECTED)
    result = opened(project.path, "ds_config.json", CONFIG, {"deepspeed": "0.19.8"}).checked.result
    assert result is not None
    assert sorted((one.code, one.range.start.line if one.range else 0) for one in result.diagnostics) == sorted(EXPECTED)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["ds_config.json", "run.sh", "train.py"])
@pytest.mark.usefixtures("project")
def test_every_command_uses_the_values_of_the_launch(name: str) -> None:
    shown = run("show", name, "--isolated", "--output-format", "json")
    values = values_of(shown.stdout)
    assert (values["train_micro_batch_size_per_gpu"], values["train_batch_size"]) == (4, 64)
    estimated = run("estimate", name, "--isolated", "--params", "7B")
    assert "8 ranks" in estimated.stdout
    assert "4 x 2 samples per rank" in estimated.stdout
    fitted = run("fit", name, "--isolated", "--params", "7B", "--gpu", "h100")
    assert "64 samples per step" in fitted.stdout


def test_a_config_that_two_scripts_launch_is_shown_as_the_first_does(project: Folder) -> None:
    project.write({"two.sh": f"deepspeed --num_gpus 2 train.py {FLAGS}\n"})
    done = run("show", "ds_config.json", "--isolated", "--output-format", "json")
    assert "2 trainings use it, each with other facts; this is the config of the one in run.sh:1." in done.stderr
    assert values_of(done.stdout)["train_batch_size"] == 64


def test_an_unsaved_edit_of_a_script_counts_for_the_config(project: Folder) -> None:
    """The server checks the config with the script as it is in the editor."""
    config = opened(project.path, "ds_config.json", CONFIG, {"deepspeed": "0.19.8"})
    assert config.checked.result is not None
    assert config.checked.result.facts.world_size == 8
    path = str(project.path / "run.sh")
    script = OpenFile(uri_of(path), path, f"deepspeed --num_gpus 4 train.py {FLAGS}\n", 2, "utf-16")
    config.workspace.files[script.uri] = script
    assert config.workspace.edited(path)
    result = check(config.checked.file, config.workspace).result
    assert result is not None
    assert result.facts.world_size == 4


def test_what_a_person_gives_counts_more_than_what_files_say(project: Folder) -> None:
    facts = project.results("ds_config.json", facts=Facts(world_size=2))["ds_config.json"].facts
    assert facts.world_size == 2


BATCH = '{"train_batch_size": 16, "train_micro_batch_size_per_gpu": 8}'
LAUNCH = "deepspeed --num_gpus {} train.py --deepspeed_config ds.json\n"


@pytest.mark.parametrize("named", ["run.sh", "ds.json"])
def test_a_given_world_size_replaces_that_of_launches_that_agree(folder: Folder, named: str) -> None:
    folder.write({"ds.json": BATCH, "train.py": "import deepspeed\n", "run.sh": LAUNCH.format(2)})
    assert "on each of 8 GPUs" in run("check", named, "--isolated", "--world-size", "8", "--output-format", "concise").stdout
    assert "GPUs" not in run("check", ".", "--isolated", "--world-size", "8", "--output-format", "concise").stdout
    folder.write({"run.sh": LAUNCH.format(2) + LAUNCH.format(4)})
    for checked in (named, "."):
        output = run("check", checked, "--isolated", "--world-size", "8", "--output-format", "concise").stdout
        assert "on each of 4 GPUs" in output
        assert "of 8 GPUs" not in output
    folder.write({"run.sh": LAUNCH.replace("--num_gpus {} ", "")})
    assert "on each of 8 GPUs" in run("check", ".", "--isolated", "--world-size", "8", "--output-format", "concise").stdout


def test_a_given_world_size_that_no_launch_uses_is_named(folder: Folder) -> None:
    folder.write({"ds.json": BATCH, "train.py": "import deepspeed\n", "run.sh": LAUNCH.format(2)})
    said = "--world-size 8 is not used where a launch states its own number."
    assert said in " ".join(run("check", ".", "--isolated", "--world-size", "8").stdout.split())
    assert "not used" not in run("check", ".", "--isolated", "--world-size", "2").stdout
    named = run("check", "run.sh", "--isolated", "--world-size", "8").stdout
    assert "not used" not in named
    assert "launches train.py on 8 ranks (--world-size)" in named


def test_a_given_integration_that_a_program_contradicts_is_named(folder: Folder) -> None:
    """In a folder it is meant for the configs for which no program shows what loads them; a person who names a file means that file."""
    config = '{"train_batch_size": "auto", "optimizer": {"type": "AdamW", "params": {"betas": "auto"}}, "zero_optimization": {"stage": 2}}'
    program = "from transformers import Trainer, TrainingArguments\nargs = TrainingArguments('out', deepspeed='ds.json')\nTrainer(m, args).train()\n"
    folder.write({"ds.json": config, "train.py": program})
    options = ("--isolated", "--integration", "accelerate")
    said = "--integration accelerate is not used where a program passes its config to another loader."
    output = " ".join(run("check", ".", *options).stdout.split())
    assert said in output
    assert "DS903" not in output
    assert "DS903" in run("check", "train.py", *options).stdout
    folder.write({"other/ds_config.json": config})
    assert "other/ds_config.json" in run("check", ".", *options, "--output-format", "concise").stdout
    assert "not used" not in run("check", ".", "--isolated", "--integration", "transformers").stdout
