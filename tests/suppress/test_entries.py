"""Entries of the settings that ignore, where a file can hold no comment."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.command import dslint

CONFIG = '{"train_micro_batch_size_per_gpu": 4, "zero_optimization": {"stage": 2, "offload_param": {"device": "cpu"}}}'
ENTRY = '\n[[tool.dslint.ignores]]\nfile = "{file}"\npointer = "{pointer}"\nrules = ["{rules}"]\nreason = "raised later"\n'


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "a").mkdir()
    for name in ("a/ds_one.json", "a/ds_two.json"):
        (tmp_path / name).write_text(CONFIG, encoding="utf-8")
    return tmp_path


def settings(project: Path, *entries: dict[str, str]) -> None:
    usual = {"file": "a/ds_one.json", "pointer": "/zero_optimization", "rules": "DS501"}
    text = "[tool.dslint]\nworld-size = 8\n" + "".join(ENTRY.format(**usual) if not e else ENTRY.format(**{**usual, **e}) for e in entries)
    (project / "pyproject.toml").write_text(text, encoding="utf-8")


def run(project: Path, *arguments: str) -> tuple[list[tuple[str, str]], list[tuple[str, str, str]], dict[str, object]]:
    data = json.loads(dslint("check", *arguments, "--output-format", "json", cwd=project).stdout)
    suppressed = [(s["path"], s["code"], s["suppression"]["reason"]) for s in data["suppressed"]]
    return [(d["path"], d["code"]) for d in data["diagnostics"]], suppressed, data


@pytest.mark.parametrize("pointer", ["/zero_optimization", "/zero_optimization/offload_param", "zero_optimization.offload_param"])
def test_an_entry_covers_what_lies_at_and_below_its_pointer(project: Path, pointer: str) -> None:
    settings(project, {"pointer": pointer})
    found, suppressed, _ = run(project)
    assert found == [("a/ds_two.json", "DS501")]
    assert suppressed == [("a/ds_one.json", "DS501", "raised later")]


def test_an_entry_elsewhere_covers_nothing_and_is_a_finding_at_its_place(project: Path) -> None:
    settings(project, {}, {"pointer": "/zero"})
    found, _, data = run(project)
    assert found == [("a/ds_two.json", "DS501"), ("pyproject.toml", "DS007")]
    last = data["diagnostics"][-1]  # type: ignore[index]
    assert last["range"]["start"]["line"] == 10
    assert "Entry 2 of ignores suppresses DS501" in last["message"]


def test_a_pattern_is_called_unused_only_when_all_was_searched(project: Path) -> None:
    settings(project, {"file": "a/*.json", "rules": "DS601"})
    assert [code for _, code in run(project, "a/ds_one.json")[0]] == ["DS501"]
    assert [code for _, code in run(project, "a")[0]] == ["DS501", "DS501"]
    assert [code for _, code in run(project)[0]] == ["DS501", "DS501", "DS007"]


def test_an_entry_for_no_file_is_a_finding_once_all_was_searched(project: Path) -> None:
    settings(project, {"file": "b/gone.json"})
    assert [code for _, code in run(project, "a")[0]] == ["DS501", "DS501"]
    assert "no checked file matches" in json.dumps(run(project)[2])


def test_an_entry_for_a_rule_that_was_not_asked_is_left_alone(project: Path) -> None:
    settings(project, {"rules": "DS502"})
    assert ("pyproject.toml", "DS007") not in run(project, ".", "--ignore", "DS502")[0]
    assert ("pyproject.toml", "DS007") in run(project, ".")[0]


def test_two_commands_agree_in_any_number_of_processes(project: Path) -> None:
    settings(project, {})
    assert run(project, ".", "--jobs", "3")[:2] == run(project, ".", "--jobs", "1")[:2]
