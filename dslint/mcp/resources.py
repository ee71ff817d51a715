"""The resources: a page for each rule and for each config key."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from dslint.registry.rules import all_rules
from dslint.registry.watches import watched_keys
from dslint.report import rule_page
from dslint.schemas.export import json_schema

RULES, KEYS = "dslint://rules/", "dslint://keys/"

WIDTH = 100


def rules() -> str:
    """The list of all rules."""
    return rule_page.index(all_rules(), color=False, width=WIDTH)


def rule(code: str) -> str | None:
    """The page of a rule; None if there is no such rule."""
    found = next((one for one in all_rules() if code in (one.code, one.name)), None)
    return rule_page.render(found.load(), color=False, width=WIDTH) if found else None


def keys() -> str:
    """The list of all keys, with the first sentence about each."""
    return "\n".join(f"{path}: {_first(schema.get('description', ''))}" for path, schema in _walk(json_schema(), ""))


def key(path: str) -> str | None:
    """What DeepSpeed accepts for a key, and the rules about it; None if there is no such key."""
    schema = next((schema for name, schema in _walk(json_schema(), "") if name == path), None)
    if schema is None:
        return None
    lines = [path, "", schema.get("description", "")]
    lines += [f"{name}: {schema[name]}" for name in ("type", "enum", "default", "minimum", "exclusiveMinimum", "maximum") if name in schema]
    lines += [f"keys: {', '.join(schema['properties'])}"] if "properties" in schema else []
    about = [one for one in all_rules() if path in watched_keys(one)]
    lines += ["", "Rules about it:", *(f"{one.code} {one.name} ({one.severity.value})" for one in about)] if about else []
    return "\n".join(lines)


def _walk(schema: dict[str, Any], before: str) -> Iterator[tuple[str, dict[str, Any]]]:
    for name, inner in schema.get("properties", {}).items():
        path = before + name
        yield path, inner
        for choice in [inner, *inner.get("anyOf", ())]:
            if isinstance(choice, dict):
                yield from _walk(choice, f"{path}.")


def _first(text: str) -> str:
    sentence, stop, _ = text.replace("\n", " ").partition(". ")
    return sentence + ("." if stop else "")
