"""The text of a starter config."""

from __future__ import annotations

import json
from collections.abc import Iterator
from textwrap import wrap
from typing import Any

from dslint.starter.contents import Starter

WIDTH = 100


def as_json(starter: Starter) -> str:
    """Strict JSON, which every loader reads, without the reasons."""
    return "\n".join(_members(starter.config, {}, "", 0)) + "\n"


def as_hjson(starter: Starter) -> str:
    """HJSON with the reasons as comments, which DeepSpeed's own loader reads."""
    notes = [f"# {line}" for note in starter.notes for line in wrap(note, WIDTH - 2)]
    return "\n".join([*notes, *_members(starter.config, starter.reasons, "", 0)]) + "\n"


def _members(section: dict[str, Any], reasons: dict[str, str], above: str, depth: int) -> Iterator[str]:
    """The lines of a section, from its opening brace."""
    indent = "  " * (depth + 1)
    yield "{"
    for name, value in section.items():
        path = f"{above}{name}"
        comma = "" if name == list(section)[-1] else ","
        yield from (f"{indent}# {line}" for line in wrap(reasons.get(path, ""), WIDTH - len(indent) - 2))
        if isinstance(value, dict):
            opening, *inner, closing = _members(value, reasons, f"{path}.", depth + 1)
            yield f"{indent}{json.dumps(name)}: {opening}"
            yield from inner
            yield closing + comma
        else:
            yield f"{indent}{json.dumps(name)}: {json.dumps(value)}{comma}"
    yield "  " * depth + "}"
