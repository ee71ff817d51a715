"""Every command opens a config alike, and has one exit code for a file that cannot be used."""

from __future__ import annotations

import json
import os
from collections import Counter
from pathlib import Path

import pytest
from click.testing import CliRunner

import dslint as api
from dslint.cli import cli
from tests.command import dslint

COMMANDS = (
    ("show",),
    ("estimate", "--params", "7B", "--world-size", "8"),
    ("fit", "--params", "7B", "--world-size", "8", "--gpu", "a100"),
    ("probe", "--device", "fake"),
)
UNUSABLE = {
    "broken": ('{"train_batch_size": 8', "never closed"),
    "another kind": ('{"dependencies": {}, "name": "x"}', ""),
    "a template": ('{"train_batch_size": {{ batch }}, "zero_optimization": {}}', "template"),
    "a list": ("[1]", ""),
    "missing": (None, "no such file"),
    "binary": ("\0\0", ""),
}


@pytest.mark.parametrize("what", UNUSABLE)
@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command[0])
def test_a_file_that_cannot_be_used_exits_with_2(tmp_path: Path, command: tuple[str, ...], what: str) -> None:
    content, words = UNUSABLE[what]
    file = tmp_path / "c.json"
    if content is not None:
        file.write_text(content, encoding="utf-8")
    done = dslint(command[0], file, *command[1:])
    assert done.returncode == 2, done.stdout + done.stderr
    assert done.stdout == ""
    assert "c.json" in done.stderr
    assert words in done.stderr


@pytest.mark.parametrize(("content", "code"), [('{"train_batch_size": 8', 1), ("[1]", 1), ("\0\0", 2), (None, 2)])
def test_check_finds_syntax_errors_and_exits_with_2_only_where_it_cannot_judge(tmp_path: Path, content: str | None, code: int) -> None:
    file = tmp_path / "c.json"
    if content is not None:
        file.write_text(content, encoding="utf-8")
    assert dslint("check", file).returncode == code


@pytest.mark.parametrize("command", COMMANDS[:3], ids=lambda command: command[0])
def test_a_training_stands_for_the_config_that_it_leads_to(tmp_path: Path, command: tuple[str, ...]) -> None:
    (tmp_path / "ds.json").write_text('{"train_micro_batch_size_per_gpu": "auto", "zero_optimization": {"stage": 3}}', encoding="utf-8")
    launch = "deepspeed --num_gpus 8 train.py --deepspeed ds.json --per_device_train_batch_size 3\n"
    (tmp_path / "run.sh").write_text(launch, encoding="utf-8")
    done = dslint(command[0], "run.sh", *command[1:], cwd=tmp_path)
    assert done.returncode in (0, 4), done.stderr
    assert "ds.json" in done.stderr


@pytest.mark.parametrize("command", ["estimate", "fit"])
def test_figures_of_a_config_with_errors_say_so(tmp_path: Path, command: str) -> None:
    config = {"train_batch_size": 8, "train_micro_batch_size_per_gpu": 1, "gradient_accumulation_steps": 8}
    path = tmp_path / "ds.json"
    said = []
    for world_size in (1, 8):
        path.write_text(json.dumps(config), encoding="utf-8")
        done = dslint(command, str(path), "--model", "gpt2", "--world-size", str(world_size), "--gpu", "a100")
        said.append("`dslint check` finds errors (DS201); the figures are as if DeepSpeed ran the config without them." in done.stderr)
    assert said == [False, True]


def test_rules_search_the_folders_above_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Dozens of rules ask for the release of a library, and a home or temporary folder above a config may have thousands of files."""
    (tmp_path / "project").mkdir()
    file = tmp_path / "project" / "ds.json"
    file.write_text('{"train_micro_batch_size_per_gpu": 4, "zero_optimization": {"stage": 3}}', encoding="utf-8")
    (tmp_path / "project" / "run.sh").write_text("deepspeed --num_gpus 8 train.py --deepspeed ds.json --bf16 true\n", encoding="utf-8")
    monkeypatch.chdir(file.parent)
    listed: Counter[str] = Counter()
    listdir = os.listdir
    monkeypatch.setattr(os, "listdir", lambda path=".": listed.update([os.fspath(path)]) or listdir(path))
    api.check(file)
    assert listed.pop(str(tmp_path)) == 1
    done = CliRunner().invoke(cli, ["estimate", "run.sh", "--params", "7B", "--world-size", "8"])
    assert done.exit_code == 0, done.output
    assert listed[str(tmp_path)] <= 4  # for the settings, the config, its rules and the requirements


def test_why_a_launch_leads_to_no_config_stands_in_the_file_that_says_so(tmp_path: Path) -> None:
    """A script launches a program with a file of Accelerate, and that names a config that is not there."""
    (tmp_path / "run.sh").write_text("accelerate launch --config_file a.yaml train.py\n", encoding="utf-8")
    block = "num_processes: 2\ndeepspeed_config:\n  deepspeed_config_file: gone/zero.json\n"
    (tmp_path / "a.yaml").write_text(f"distributed_type: DEEPSPEED\n{block}", encoding="utf-8")
    said = dslint("show", "run.sh", cwd=tmp_path).stderr
    assert "a.yaml:4: the DeepSpeed config is gone/zero.json, which does not exist" in said
    assert "run.sh:4" not in said
