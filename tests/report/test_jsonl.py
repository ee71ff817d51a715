"""A line for each object, and the objects those of the format "json"."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from . import readers
from .scenes import SCENES, suppressed, written


def lines(scene: str) -> list[Any]:
    return [readers.strict_json(line) for line in written(SCENES[scene](), "jsonl").splitlines()]


@pytest.mark.parametrize("scene", SCENES)
def test_the_lines_hold_what_the_json_format_holds(scene: str) -> None:
    whole = json.loads(written(SCENES[scene](), "json"))
    parts: dict[str, list[Any]] = {"file": [], "diagnostic": [], "suppressed": [], "summary": []}
    for line in lines(scene):
        parts[line.pop("type")].append(line)
    assert parts["file"] == whole["files"]
    assert parts["diagnostic"] == whole["diagnostics"]
    assert parts["suppressed"] == whole["suppressed"]
    assert parts["summary"] == [{**{key: whole[key] for key in ("version", "dslint", "facts", "skipped")}, **whole["summary"]}]


@pytest.mark.parametrize("scene", SCENES)
def test_the_schema_of_the_json_format_describes_the_findings(scene: str, root: Path) -> None:
    schema = json.loads((root / "docs" / "output.schema.json").read_text(encoding="utf-8"))
    validator = Draft202012Validator({"$ref": "#/$defs/diagnostic", "$defs": schema["$defs"]})
    for line in lines(scene):
        if line["type"] in ("diagnostic", "suppressed"):
            validator.validate(line)


def test_a_file_comes_before_what_was_found_in_it_and_the_summary_last() -> None:
    assert [json.loads(line)["type"] for line in written(suppressed(), "jsonl").splitlines()] == [
        "file",
        "diagnostic",
        "suppressed",
        "suppressed",
        "file",
        "suppressed",
        "summary",
    ]
