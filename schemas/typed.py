"""The parameters of an optimizer or scheduler, by its written type."""

from __future__ import annotations

from typing import Any

from dslint.schemas import key_table


def registry(section: str) -> dict[str, dict[str, Any]] | None:
    """The types of a section in the key table; None for a section without types."""
    return {"optimizer": key_table.OPTIMIZERS, "scheduler": key_table.SCHEDULERS}.get(section)


def find_type(section: str, name: object) -> dict[str, Any] | None:
    """The entry of a type, matched as DeepSpeed matches it (its own optimizers ignoring case, those of torch exactly); None if it is unknown."""
    types = registry(section)
    if types is None or not isinstance(name, str):
        return None
    if name in types:
        return types[name]
    folded = name.lower()
    return next((entry for known, entry in types.items() if known.lower() == folded and entry.get("any_case")), None)


def params_of(section: str, name: object) -> dict[str, dict[str, Any]] | None:
    """The parameters of a type, by name; None if the type is unknown."""
    entry = find_type(section, name)
    return None if entry is None else entry["params"]
