"""The contract with other programs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from dslint.config.context import Context
from dslint.diagnostics import Applicability, Edit, Effect, Fix
from dslint.lint.results import FileResult, Results
from dslint.source.parse import parse
from dslint.suppress.fingerprints import fingerprints

from .scenes import SCENES, findings, found, hostile, suppressed, written


@pytest.fixture
def schema(root: Path) -> Any:
    return json.loads((root / "docs" / "output.schema.json").read_text(encoding="utf-8"))


def keys_agree(schema: Any, value: Any, whole: Any) -> None:
    """Every key that is written is described, and the other way round."""
    if "$ref" in schema:
        schema = whole["$defs"][schema["$ref"].rpartition("/")[2]]
    if "oneOf" in schema and value is not None:
        schema = schema["oneOf"][1]
    if "allOf" in schema:
        first, second = whole["$defs"]["diagnostic"], schema["allOf"][1]
        schema = {"required": first["required"] + second["required"], "properties": first["properties"] | second["properties"]}
    if isinstance(value, dict):
        assert sorted(schema["properties"]) == sorted(schema["required"]) == sorted(value)
        for key, inner in value.items():
            keys_agree(schema["properties"][key], inner, whole)
    elif isinstance(value, list):
        for inner in value:
            keys_agree(schema["items"], inner, whole)


@pytest.mark.parametrize("scene", SCENES)
def test_the_output_is_as_its_schema_says(scene: str, schema: Any) -> None:
    output = json.loads(written(SCENES[scene](), "json"))
    Draft202012Validator.check_schema(schema)
    Draft202012Validator(schema).validate(output)
    keys_agree(schema, output, schema)


def test_an_edit_can_be_applied_by_its_offsets() -> None:
    results = findings()
    document = results.files[0].document
    assert document is not None
    (edit,) = next(d["fix"] for d in json.loads(written(results, "json"))["diagnostics"] if d["fix"])["edits"]
    start, end = edit["range"]["start"], edit["range"]["end"]
    assert document.text[start["offset"] : end["offset"]] == '"1e8"'
    assert document.line(start["line"])[start["column"] - 1 : end["column"] - 1] == '"1e8"'


def test_it_is_ascii_and_holds_no_lone_surrogate() -> None:
    text = written(hostile(), "json")
    assert text.isascii()
    assert json.loads(text)["diagnostics"][6]["message"] == "half a character: \\ud800"
    json.dumps(json.loads(text), ensure_ascii=False).encode("utf-8")


def test_a_fix_without_a_document_has_no_ranges() -> None:
    fix = Fix("cut", Applicability.UNSAFE, (Edit(0, 1, ""),))
    diagnostic = found("a", "DS001", "n", Effect.SILENT, "m", fix=fix)
    for document, expected in ((None, None), (parse("{}"), {"line": 1, "column": 1, "offset": 0})):
        output = json.loads(written(Results(Context(), (FileResult("a", "ds_config", document, (diagnostic,)),)), "json"))
        (edit,) = output["diagnostics"][0]["fix"]["edits"]
        assert (edit["range"] and edit["range"]["start"]) == expected


def test_what_is_suppressed_is_like_any_finding_and_counted_apart() -> None:
    output = json.loads(written(suppressed(), "json"))
    assert [one["suppression"] for one in output["suppressed"]] == [
        {"by": "comment", "reason": "tried on the cluster, see [here](http://x)"},
        {"by": "baseline", "reason": None},
        {"by": "settings", "reason": "an example"},
    ]
    assert output["suppressed"][0].keys() == {*output["diagnostics"][0], "suppression"}
    assert (output["summary"]["suppressed"], output["summary"]["error"], output["summary"]["warning"]) == (3, 0, 1)


def test_fingerprints_are_those_of_the_run() -> None:
    results = suppressed()
    output = json.loads(written(results, "json"))
    prints = [one["fingerprint"] for one in output["diagnostics"] + output["suppressed"]]
    assert prints == fingerprints([*results.diagnostics, *(one.diagnostic for one in results.suppressed)])
    assert len(set(prints)) == 4
