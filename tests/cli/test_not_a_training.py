"""Configs that are not a whole training: fixtures of tests, templates of the autotuner, examples of a section."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.command import dslint

STAGE_3 = '{"train_micro_batch_size_per_gpu": "auto", "zero_optimization": {"stage": 3}}'
WRONG = '{"train_micro_batch_size_per_gpu": 4, "zero_optimization": {"stage": 7}}'
TUNED = '{"train_micro_batch_size_per_gpu": "auto", "zero_optimization": {"stage": 3}, "autotuning": {"enabled": true, "fast": false}}'


def found(folder: Path, name: str, text: str) -> tuple[set[str], str]:
    """The codes of what is found in a file by a check of the folder, and the note on it."""
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    said = json.loads(dslint("check", ".", "--isolated", "--output-format", "json", cwd=folder).stdout)
    (note,) = (file["note"] or "" for file in said["files"])
    return {one["code"] for one in said["diagnostics"]}, note


@pytest.mark.parametrize(
    ("name", "text", "evidence"),
    [
        ("tests/unit/ds_config.json", STAGE_3, "lies under tests/"),
        ("ds_config.json", TUNED, "a section autotuning"),
        ("ds_config.json", '{"zero_optimization": {"stage": 2}}', "only the section zero_optimization"),
        ("ds_config.json", '{"_comment": "x", "fp16": {"enabled": true}}', "only the section fp16"),
    ],
)
def test_no_warnings_about_what_is_not_there(tmp_path: Path, name: str, text: str, evidence: str) -> None:
    codes, note = found(tmp_path, name, text)
    assert codes == set()
    assert evidence in note


def test_a_whole_config_has_them(tmp_path: Path) -> None:
    assert found(tmp_path, "ds_config.json", STAGE_3) == ({"DS819"}, "")
    # What lies above of the project is no evidence.
    inside = tmp_path / "tests" / "project"
    inside.mkdir(parents=True)
    assert found(inside, "ds_config.json", STAGE_3) == ({"DS819"}, "")


@pytest.mark.parametrize(
    ("name", "text", "code"),
    [
        ("tests/ds_config.json", WRONG, "DS107"),
        ("ds_config.json", '{"zero_optimization": {"stage": 2, "overlap_com": true}}', "DS101"),
        ("ds_config.json", '{"zero_optimization": {"stage": 1, "offload_param": {"device": "cpu"}}}', "DS501"),
    ],
)
def test_errors_and_what_is_ignored_stay(tmp_path: Path, name: str, text: str, code: str) -> None:
    assert code in found(tmp_path, name, text)[0]


def test_what_is_left_out_is_counted_however_many_files_it_is_of(tmp_path: Path) -> None:
    for name in ("ds_one.json", "ds_two.json"):
        (tmp_path / name).write_text('{"zero_optimization": {"stage": 2}}', encoding="utf-8")
    (tmp_path / "ds_config.json").write_text('{"train_micro_batch_size_per_gpu": 4}', encoding="utf-8")
    for way in ((), ("--output-format", "concise"), ("--output-format", "markdown")):
        said = " ".join(dslint("check", ".", "--isolated", *way, cwd=tmp_path).stdout.split())
        assert "2 findings about a whole training were left out." in said


CARRIED = {
    "train.py": "import deepspeed\nengine, *_ = deepspeed.initialize(args=args, model=model, model_parameters=parameters)\n",
    "run.sh": "deepspeed --num_gpus 2 train.py --deepspeed_config ds_used.json\n",
    "ds_used.json": '{"train_micro_batch_size_per_gpu": 4, "optimizer": {"type": "AdamW", "params": {"lr": 1e-5}}, "zero_optimization": {"stage": 2}}',
    "ds_other.json": STAGE_3,
}


def checked(folder: Path, files: dict[str, str], *arguments: str) -> dict[str, set[str]]:
    """The codes of what a check finds, by file."""
    for name, text in files.items():
        (folder / name).write_text(text, encoding="utf-8")
    said = json.loads(dslint("check", *arguments, "--isolated", "--output-format", "json", cwd=folder).stdout)
    return {file["path"]: {one["code"] for one in said["diagnostics"] if one["path"] == file["path"]} for file in said["files"]}


def test_a_config_that_no_command_uses_has_no_warnings_about_a_training(tmp_path: Path) -> None:
    assert checked(tmp_path, CARRIED, ".")["ds_other.json"] == set()
    said = " ".join(dslint("check", ".", "--isolated", cwd=tmp_path).stdout.split())
    assert "1 finding about a whole training was left out." in said
    assert "no command or program of this project uses this config" in " ".join(dslint("check", ".", "-v", cwd=tmp_path).stdout.split())


@pytest.mark.parametrize(
    ("changes", "arguments"),
    [
        ({}, (".", "--pedantic")),
        ({}, ("ds_other.json",)),  # who names a file asks about it
        ({"run.sh": ""}, (".",)),  # no command is known: each config may be the one that is used
        ({"run.sh": CARRIED["run.sh"] + "deepspeed train.py --deepspeed_config $DS\n"}, (".",)),  # it may be this one
    ],
)
def test_it_has_them_where_it_may_be_used(tmp_path: Path, changes: dict[str, str], arguments: tuple[str, ...]) -> None:
    assert "DS819" in checked(tmp_path, CARRIED | changes, *arguments)["ds_other.json"]


def test_what_deepspeed_rejects_is_reported_in_a_config_that_no_command_uses(tmp_path: Path) -> None:
    assert "DS107" in checked(tmp_path, CARRIED | {"ds_other.json": WRONG}, ".")["ds_other.json"]


def test_pedantic_shows_what_a_fixture_lacks(tmp_path: Path) -> None:
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "ds_config.json").write_text(STAGE_3, encoding="utf-8")
    assert "DS819" in checked(tmp_path, {}, ".", "--pedantic")["tests/ds_config.json"]
