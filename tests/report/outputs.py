"""The published schemas of the JSON outputs, and whether an output is as its schema says."""

from __future__ import annotations

import functools
import itertools
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from jsonschema import Draft202012Validator

DOCS = Path(__file__).resolve().parents[2] / "docs"

SCHEMAS = {
    "check": "output",
    "diagnose": "diagnosis",
    **{name: name for name in ("show", "estimate", "fit", "tune", "config", "probe", "rule", "init")},
}
"""The schema of a command, without `.schema.json`."""


@functools.cache
def validator(command: str) -> Draft202012Validator:
    """A validator for the output of a command."""
    return Draft202012Validator(json.loads((DOCS / f"{SCHEMAS[command]}.schema.json").read_text(encoding="utf-8")))


def command_of(arguments: Sequence[str]) -> str | None:
    """The command whose JSON output these arguments print, if it has a schema."""
    if "--output-format=json" not in arguments and not any(pair == ("--output-format", "json") for pair in itertools.pairwise(arguments)):
        return None
    return next((name for name in arguments if name in SCHEMAS), None)


def assert_valid(arguments: Sequence[str], printed: str) -> None:
    """What a command printed as JSON is as its schema says, and has no key that the schema lacks. Other outputs are not looked at."""
    command = command_of(arguments)
    if command is None or not printed.startswith("{"):
        return
    output = json.loads(printed)
    found = validator(command)
    error = next(found.iter_errors(output), None)
    assert error is None, f"{command}: {'/'.join(map(str, error.absolute_path))}: {error.message[:300]}"
    undescribed = list(_undescribed(found.schema, output, found.schema))
    assert undescribed == [], f"{command}: {undescribed}"


def _undescribed(schema: Any, value: Any, whole: Any, path: str = "") -> Iterator[str]:
    """The paths of keys that no property describes."""
    if "$ref" in schema:
        schema = whole["$defs"][schema["$ref"].rpartition("/")[2]]
    for choice in ("oneOf", "anyOf"):
        if choice in schema and value is not None:
            resolver = {"$defs": whole.get("$defs", {})}
            schema = next(one for one in schema[choice] if Draft202012Validator({**resolver, **one}).is_valid(value))
            yield from _undescribed(schema, value, whole, path)
            return
    if "allOf" in schema:
        parts = [whole["$defs"][one["$ref"].rpartition("/")[2]] if "$ref" in one else one for one in schema["allOf"]]
        schema = {"properties": {key: part for one in parts for key, part in one.get("properties", {}).items()}}
    if isinstance(value, dict):
        properties, others = schema.get("properties"), schema.get("additionalProperties")
        for key, inner in value.items():
            if properties and key in properties:
                yield from _undescribed(properties[key], inner, whole, f"{path}/{key}")
            elif isinstance(others, dict):
                yield from _undescribed(others, inner, whole, f"{path}/{key}")
            elif properties is not None:
                yield f"{path}/{key}"
    elif isinstance(value, list) and isinstance(schema.get("items"), dict):
        for inner in value:
            yield from _undescribed(schema["items"], inner, whole, f"{path}[]")
