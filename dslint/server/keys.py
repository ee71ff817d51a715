"""What is known of a key: its meaning and its values, from the JSON Schema, and in which releases it is read, from the key table."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from functools import cache
from importlib.resources import files
from typing import Any

from dslint.facts import Release
from dslint.record import Record
from dslint.schemas.key_table import KEYS, OPTIMIZERS, SCHEDULERS
from dslint.source.tree import Mapping, Member, Path, Scalar, dotted

Schema = dict[str, Any]

PARAMS = {"optimizer": OPTIMIZERS, "scheduler": SCHEDULERS}
"""Sections with a `type` that decides what their `params` are, and what the table says of each type."""


class PossibleValue(Record):
    """A value that a key can have, and what it means, in Markdown."""

    value: Any
    meaning: str = ""


class KnownKey(Record):
    """What is known of a key. `meaning` is Markdown; `kinds` are the types of JSON that its value can have."""

    name: str
    meaning: str = ""
    default: Any = None
    choices: tuple[PossibleValue, ...] = ()
    kinds: tuple[str, ...] = ()
    deprecated: str = ""


def known(path: Path, root: Mapping | None) -> KnownKey | None:
    """What is known of the key at a path; `root` is the config, where the type of an optimizer is looked up."""
    schema = _schema_of(path, root)
    return None if schema is None else _known(str(path[-1]) if path else "", schema)


def keys_of(section: Path, root: Mapping | None) -> dict[str, KnownKey]:
    """The keys of a section, in the order of their use; empty for what is not a section, or is open."""
    found: dict[str, KnownKey] = {}
    for node in _branches(_schema_of(section, root) or {}):
        for name, schema in node.get("properties", {}).items():
            found.setdefault(name, _known(name, schema))
    return found


def gone_keys(section: Path) -> list[str]:
    """The keys of a section that only older releases read."""
    at = dotted(section)
    return [key.rpartition(".")[2] for key, spec in KEYS.items() if "until" in spec and key.rpartition(".")[0] == at and "[" not in key]


def status(path: Path, release: Release, root: Mapping | None) -> str | None:
    """Why a release does not read a key, as a sentence; None if it does, or if the key is not known."""
    spec = _spec(path, root)
    if spec is None:
        return None
    since, until = spec.get("since"), spec.get("until")
    if since is not None and Release.parse(since) > release:
        return f"DeepSpeed {release} does not read it: new in {since}."
    if until is None or Release.parse(until["release"]) >= release:
        return None
    instead = f" Use `{until['use']}`." if until.get("use") else ""
    note = f" {until['note']}" if until.get("note") else ""
    last = "" if until["release"] == "0.0.0" else f"; the last release that read it is {until['release']}"
    return f"DeepSpeed {release} does not read it{last}.{instead}{note}"


def _spec(path: Path, root: Mapping | None) -> dict[str, Any] | None:
    if len(path) == 3 and path[0] in PARAMS and path[1] == "params":
        word = _type_in(root, path[:1]) or ""
        named = next((spec for name, spec in PARAMS[str(path[0])].items() if name.lower() == word.lower()), {})
        found: dict[str, Any] | None = named.get("params", {}).get(path[2])
        return found
    return KEYS.get(dotted(path))


@cache
def _schema() -> Schema:
    """The JSON Schema of the newest release."""
    schema: Schema = json.loads((files("dslint.schemas") / "ds_config.schema.json").read_text(encoding="utf-8"))
    return schema


def _schema_of(path: Path, root: Mapping | None) -> Schema | None:
    schema = _schema()
    for length, step in enumerate(path):
        inner = _child(schema, step, _type_in(root, path[:length]))
        if inner is None:
            return None
        schema = inner
    return schema


def _child(schema: Schema, step: str | int, kind: str | None) -> Schema | None:
    for branch in _branches(schema):
        if isinstance(step, int):
            items = branch.get("items")
            if isinstance(items, dict):
                return items
            continue
        for one in branch.get("allOf", ()):
            then = one.get("then", {}).get("properties", {}) if kind and _is_of(one.get("if", {}), kind) else {}
            if step in then:
                return then[step]  # type: ignore[no-any-return]
        if step in branch.get("properties", {}):
            return branch["properties"][step]  # type: ignore[no-any-return]
        if isinstance(more := branch.get("additionalProperties"), dict):
            return more
    return None


def _branches(schema: Schema) -> Iterator[Schema]:
    yield schema
    for branch in schema.get("anyOf", ()):
        yield from _branches(branch)


def _is_of(condition: Schema, kind: str) -> bool:
    wanted = condition.get("properties", {}).get("type", {})
    return wanted.get("const") == kind or ("pattern" in wanted and re.search(wanted["pattern"], kind) is not None)


def _type_in(root: Mapping | None, path: Path) -> str | None:
    """The `type` that a section has in the config."""
    node: Any = root
    for step in path:
        member = node.get(step) if isinstance(node, Mapping) and isinstance(step, str) else None
        node = member.value if isinstance(member, Member) else None
    member = node.get("type") if isinstance(node, Mapping) else None
    value = member.value.value if member is not None and isinstance(member.value, Scalar) else None
    return value if isinstance(value, str) else None


def _known(name: str, schema: Schema) -> KnownKey:
    choices: list[PossibleValue] = []
    kinds: list[str] = []
    for branch in _branches(schema):
        meanings = branch.get("markdownEnumDescriptions", ())
        for index, value in enumerate(branch.get("enum", ())):
            choices.append(PossibleValue(value, meanings[index] if index < len(meanings) else ""))
        kind = branch.get("type", ())
        kinds += [kind] if isinstance(kind, str) else kind
    if "boolean" in kinds and "object" not in kinds:
        choices = [PossibleValue(value=True), PossibleValue(value=False), *choices]
    meaning = schema.get("markdownDescription") or schema.get("description", "")
    return KnownKey(name, meaning, schema.get("default"), tuple(choices), tuple(kinds), schema.get("deprecationMessage", ""))
