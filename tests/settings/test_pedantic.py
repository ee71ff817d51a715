"""Findings that are reported only with `--pedantic`: all of some rules, and those of others that change nothing."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from dslint import api
from dslint.facts import Integration
from tests.command import dslint

LEFTOVER = '{\n  "train_micro_batch_size_per_gpu": 4,\n  "fp16": {"enabled": false},\n  "loss_scale_window": 400\n}\n'
"""A misplaced key of a section that is off."""

BATCHLESS = '{"zero_optimization": {"stage": 2}, "bf16": {"enabled": true}}'


def codes(path: Path, *options: str) -> list[str]:
    done = dslint("check", path, "--output-format", "json", *options)
    return [one["code"] for one in json.loads(done.stdout)["diagnostics"]]


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "ds_config.json"
    path.write_text(LEFTOVER, encoding="utf-8")
    return path


@pytest.mark.parametrize(
    ("options", "found"),
    [
        ([], []),
        (["--pedantic"], ["DS102"]),
        (["--extend-select", "DS102"], ["DS102"]),
        (["--select", "misspelt-key-dropped"], ["DS102"]),
        (["--select", "DS1"], []),
        (["--severity", "DS102=error"], []),
    ],
)
def test_what_changes_nothing_is_reported_if_it_is_asked_for(config: Path, options: list[str], found: list[str]) -> None:
    assert [code for code in codes(config, *options) if code == "DS102"] == found


@pytest.mark.parametrize("form", ["sarif", "github", "junit", "concise"])
def test_each_format_has_the_same_findings(config: Path, form: str) -> None:
    assert "DS102" not in json.dumps(_results(config, form))
    assert "DS102" in json.dumps(_results(config, form, "--pedantic"))


def _results(config: Path, form: str, *options: str) -> object:
    printed = dslint("check", config, "--output-format", form, *options).stdout
    return [run["results"] for run in json.loads(printed)["runs"]] if form == "sarif" else printed


def test_the_api_has_the_findings_of_the_command(config: Path) -> None:
    text = json.loads(LEFTOVER)
    for source in (config, text):
        assert "DS102" not in [one.code for one in api.check(source)]
        assert "DS102" in [one.code for one in api.check(source, pedantic=True)]


def test_a_comment_for_one_is_used_with_and_without_the_option(config: Path) -> None:
    config.write_text(LEFTOVER.replace('  "loss', '  // dslint: ignore[DS102] kept for later\n  "loss'), encoding="utf-8")
    assert not {"DS102", "DS007"} & {*codes(config)}
    assert not {"DS102", "DS007"} & {*codes(config, "--pedantic")}


def test_an_entry_for_one_is_used_with_and_without_the_option(config: Path) -> None:
    entry = '[[ignores]]\nfile = "ds_config.json"\nrules = ["DS102"]\nreason = "kept for later"\n'
    (config.parent / "dslint.toml").write_text(entry, encoding="utf-8")
    assert not {"DS102", "DS007"} & {*codes(config.parent)}
    assert not {"DS102", "DS007"} & {*codes(config.parent, "--pedantic")}


@pytest.mark.parametrize(
    ("program", "reported"),
    [
        ('config["train_micro_batch_size_per_gpu"] = args.batch\n', False),
        ('config.update({"train_batch_size": 8})\n', False),
        ("config.setdefault('train_batch_size', 8)\n", False),
        ("import pytorch_lightning as pl\n", False),
        ('print(config["train_batch_size"])\n', True),
        ('assert config["train_batch_size"] == 8\n', True),
        ("", True),
    ],
)
def test_a_missing_batch_size_that_a_program_of_the_project_writes(tmp_path: Path, program: str, *, reported: bool) -> None:
    (tmp_path / ".git").mkdir()
    for name, text in {"ds/ds_config.json": BATCHLESS, "src/harness.py": program}.items():
        (tmp_path / name).parent.mkdir()
        (tmp_path / name).write_text(text, encoding="utf-8")
    assert ("DS204" in codes(tmp_path / "ds" / "ds_config.json")) is reported
    assert "DS204" in codes(tmp_path / "ds" / "ds_config.json", "--pedantic")
    assert "DS204" in codes(tmp_path / "ds" / "ds_config.json", "--integration", Integration.DEEPSPEED.value)


@pytest.mark.parametrize(
    ("program", "certain"),
    [
        ('def build(config):\n    config.setdefault("train_micro_batch_size_per_gpu", 1)\n    return config\n', False),
        ('def build(config):\n    return {**config, "train_batch_size": 8}\n', False),
        ('def build(config):\n    assert config["train_batch_size"] == 8\n', True),
        ("def build(config):\n    return config\n", True),
    ],
)
def test_a_given_loader_does_not_say_that_no_program_adds_a_batch_size(tmp_path: Path, program: str, *, certain: bool) -> None:
    (tmp_path / ".git").mkdir()
    (tmp_path / "ds_config.json").write_text(BATCHLESS, encoding="utf-8")
    (tmp_path / "worker.py").write_text(program, encoding="utf-8")
    found = api.check(tmp_path / "ds_config.json", integration=Integration.DEEPSPEED.value)
    (one,) = (one for one in found if one.code == "DS204")
    assert (one.certain, "unless the program adds one" in one.message) == (certain, not certain)


@pytest.mark.parametrize(
    ("keys", "reported"),
    [
        ({"my_switch": True}, True),
        ({"my_switch": False}, False),
        ({f"setting_{n}": n for n in range(4)}, True),
        ({f"setting_{n}": n for n in range(5)}, False),
        ({f"setting_{n}": n for n in range(4)} | {"tensor_parallel_size": 2}, True),
        ({f"setting_{n}": n for n in range(10)} | {"tensor_parallel_size": 2}, False),
    ],
)
def test_keys_of_the_program_beside_the_config(tmp_path: Path, keys: dict[str, object], *, reported: bool) -> None:
    path = tmp_path / "ds_config.json"
    path.write_text(json.dumps({"train_micro_batch_size_per_gpu": 4, "zero_optimization": {"stage": 2}} | keys), encoding="utf-8")
    assert ("DS103" in codes(path)) is reported
    assert "DS103" in codes(path, "--pedantic")
