"""A fork answers as a Python that was started for it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.command import dslint

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="this system cannot fork")

FRESH = {"PYTHONHASHSEED": "0"}
"""A variable with which `dslint` starts a Python."""


@pytest.mark.parametrize(
    "words",
    [
        ("--version",),
        ("check", "c.json"),
        ("check", "-", "--output-format", "json"),
        ("check", "missing.json"),
        ("show", "c.json"),
        ("nonsense",),
        ("rule", "DS101"),
    ],
)
def test_a_fork_answers_like_a_fresh_process(words: tuple[str, ...], tmp_path: Path) -> None:
    (tmp_path / "c.json").write_text('{"train_batch_size": 8, "zero_optimisation": {"stage": 2}}', encoding="utf-8")
    given = '{"train_batch_size": "8"}'
    forked, fresh = (dslint(*words, cwd=tmp_path, input=given, env={"COLUMNS": "70", **more}) for more in ({}, FRESH))
    assert forked.args[0] != fresh.args[0]
    assert (forked.returncode, forked.stdout, forked.stderr) == (fresh.returncode, fresh.stdout, fresh.stderr)
