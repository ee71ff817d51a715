"""One process and several print the same bytes, whatever kinds of files a folder has."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

from dslint.lint.files import CHUNK
from tests.command import ROOT, dslint


@pytest.fixture(scope="module")
def mixed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of configs, programs, scripts, notebooks, training files and job files that name each other, in more than one chunk."""
    folder = tmp_path_factory.mktemp("mixed")
    for part in ("tests/setup/frameworks", "tests/setup/job_files", "examples"):
        shutil.copytree(ROOT / part, folder / Path(part).name)
    cell = {"cell_type": "code", "source": "import deepspeed\ndeepspeed.initialize(model=m, config={'fp16': {'enable': True}})"}
    (folder / "train.ipynb").write_text(json.dumps({"cells": [cell], "nbformat": 4}), encoding="utf-8")
    kinds = {path.suffix for path in folder.rglob("*") if path.is_file()}
    assert {".json", ".py", ".sh", ".yaml", ".ipynb"} <= kinds
    assert sum(path.is_file() for path in folder.rglob("*")) > 2 * CHUNK
    return folder


class Printed(NamedTuple):
    """What a check of the folder prints, and its report in JSON."""

    code: int
    out: str
    err: str
    report: str


def check(folder: Path, report: Path, jobs: int) -> Printed:
    """Check the folder once, in both formats."""
    done = dslint("check", ".", "--isolated", "--jobs", str(jobs), "--output", f"json={report}", cwd=folder)
    return Printed(done.returncode, done.stdout, done.stderr, report.read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def alone(mixed: Path, tmp_path_factory: pytest.TempPathFactory) -> Printed:
    """What one process prints."""
    return check(mixed, tmp_path_factory.mktemp("alone") / "report.json", jobs=1)


@pytest.mark.slow
def test_one_process_and_two_print_the_same_bytes(mixed: Path, alone: Printed, tmp_path: Path) -> None:
    assert alone.code == 1
    assert "[DS102]" in alone.out
    assert json.loads(alone.report)["diagnostics"]
    assert check(mixed, tmp_path / "report.json", jobs=2) == alone


SOON_ON_ALL_CORES = """
import sys, dslint.lint.files as files
forked, start = [], files._in_processes
files.ALONE, files._cores = 0.1, lambda: 3
files._in_processes = lambda chunks, finder, jobs: forked.append((len(chunks), jobs)) or start(chunks, finder, jobs)
from dslint.cli import main
try:
    main()
finally:
    assert forked and forked[0][1] == 3, forked
"""


@pytest.mark.slow
def test_the_other_cores_join_a_run_that_takes_longer(mixed: Path, alone: Printed) -> None:
    joined = subprocess.run(
        [sys.executable, "-c", SOON_ON_ALL_CORES, "check", ".", "--isolated", "--output-format", "json"],
        cwd=mixed,
        capture_output=True,
        check=False,
    )
    assert joined.returncode == 1
    assert joined.stdout.decode() == alone.report
    assert b"Error" not in joined.stderr
