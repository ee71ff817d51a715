"""One process and several print the same bytes, whatever kinds of files a folder has."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from subprocess import CompletedProcess

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


@pytest.fixture(scope="module")
def alone(mixed: Path) -> Callable[[str], CompletedProcess[str]]:
    """What one process prints of the folder in a format."""

    @cache
    def printed(form: str) -> CompletedProcess[str]:
        return dslint("check", ".", "--isolated", "--jobs", "1", "--output-format", form, cwd=mixed)

    return printed


@pytest.mark.parametrize("form", ["full", "json"])
def test_one_process_and_two_print_the_same_bytes(form: str, mixed: Path, alone: Callable[[str], CompletedProcess[str]]) -> None:
    one, two = alone(form), dslint("check", ".", "--isolated", "--jobs", "2", "--output-format", form, cwd=mixed)
    assert one.returncode == two.returncode == 1
    assert one.stdout == two.stdout
    assert one.stderr == two.stderr


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


def test_the_other_cores_join_a_run_that_takes_longer(mixed: Path, alone: Callable[[str], CompletedProcess[str]]) -> None:
    joined = subprocess.run(
        [sys.executable, "-c", SOON_ON_ALL_CORES, "check", ".", "--isolated", "--output-format", "json"],
        cwd=mixed,
        capture_output=True,
        check=False,
    )
    assert joined.returncode == 1
    assert joined.stdout.decode() == alone("json").stdout
    assert b"Error" not in joined.stderr
