"""One process and several print the same bytes, whatever kinds of files a folder has."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

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


@pytest.mark.parametrize("form", ["full", "json"])
def test_one_process_and_two_print_the_same_bytes(form: str, mixed: Path) -> None:
    one, two = (dslint("check", ".", "--isolated", "--jobs", jobs, "--output-format", form, cwd=mixed) for jobs in ("1", "2"))
    assert one.returncode == two.returncode == 1
    assert one.stdout == two.stdout
    assert one.stderr == two.stderr
