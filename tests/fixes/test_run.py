"""Fixing files: each text is parsed once, files are written once, and the results are those of the files as they are then."""

from __future__ import annotations

from pathlib import Path

import pytest

import dslint.config.load
from dslint.diagnostics import Applicability
from dslint.fixes.run import ALL, FixOptions, fix_files
from dslint.lint.discovery import Target, discover
from dslint.lint.files import lint_all
from dslint.settings import Finder, from_options
from dslint.source.tree import Document

BROKEN = '{"train_micro_batch_size_per_gpu": "4", "zero_optimisation": {"stage": 2}}'
LAUNCH = "deepspeed --num_gpus 8 train.py --deepspeed ds.json --per_device_train_batch_size 4\n"


@pytest.fixture
def parsed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Every text that is parsed."""
    texts: list[str] = []
    parse = dslint.config.load.parse

    def counted(text: str) -> Document:
        texts.append(text)
        return parse(text)

    monkeypatch.setattr("dslint.config.load.parse", counted)
    return texts


def finder() -> Finder:
    return Finder([from_options({"integration": "deepspeed"})])


def test_every_text_is_parsed_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, parsed: list[str]) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "ds.json").write_text(BROKEN, encoding="utf-8")
    (tmp_path / "fine.json").write_text('{"train_micro_batch_size_per_gpu": 1, "zero_optimization": {"stage": 2}}', encoding="utf-8")
    (tmp_path / "package.json").write_text('{"name": "x"}', encoding="utf-8")
    targets = discover(["."], finder()).targets
    files, results = fix_files(targets, finder(), FixOptions(ALL))
    assert len(parsed) == len(set(parsed)) == 4
    assert [(file.path, len(file.fixed)) for file in files] == [("ds.json", 2), ("fine.json", 0)]
    assert [(result.path, result.diagnostics) for result in results] == [("ds.json", ()), ("fine.json", ())]
    assert "optimization" in (tmp_path / "ds.json").read_text(encoding="utf-8")


def test_without_writing_the_results_are_those_of_the_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "ds.json").write_text(BROKEN, encoding="utf-8")
    (file,), (result,) = fix_files([Target("ds.json", named=True)], finder(), FixOptions(ALL, write=False))
    assert file.before == (tmp_path / "ds.json").read_text(encoding="utf-8") == BROKEN
    assert "optimization" in file.after
    assert {d.code for d in result.diagnostics} == {"DS102", "DS104"}


def test_what_leads_to_a_fixed_config_is_linted_with_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "ds.json").write_text(BROKEN.replace('"4"', '"8"'), encoding="utf-8")
    (tmp_path / "run.sh").write_text(LAUNCH, encoding="utf-8")
    targets = [Target("run.sh", named=True), Target("ds.json", named=True)]
    _, results = fix_files(targets, finder(), FixOptions(ALL))
    fresh = lint_all(targets, finder())
    assert [(r.path, r.diagnostics) for r in results] == [(r.path, r.diagnostics) for r in fresh]
    assert not {"DS102", "DS104"} & {d.code for result in results for d in result.diagnostics}


def test_what_is_not_utf_8_is_linted_and_never_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    program = "# coding: gbk\n# \u8bad\u7ec3\nimport deepspeed\ndeepspeed.initialize(config={'zero_optimisation': {'stage': 2}})\n"
    (tmp_path / "train.py").write_bytes(program.encode("gbk"))
    files, (result,) = fix_files([Target("train.py", named=True)], finder(), FixOptions(ALL))
    assert not files
    assert "DS102" in {d.code for d in result.diagnostics}
    assert all(d.fix is None or d.fix.applicability is Applicability.DISPLAY for d in result.diagnostics)
    assert (tmp_path / "train.py").read_bytes() == program.encode("gbk")


def test_a_file_that_cannot_be_written_is_left_and_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "ds.json").write_text(BROKEN, encoding="utf-8")

    def refuse(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("dslint.fixes.run.write_inside", refuse)
    (file,), (result,) = fix_files([Target("ds.json", named=True)], finder(), FixOptions(ALL))
    assert file.error is not None
    assert "No space left" in file.error
    assert {d.code for d in result.diagnostics} == {"DS102", "DS104"}
