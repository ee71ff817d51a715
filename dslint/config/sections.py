"""What the key table says of sections and their keys in a release."""

from __future__ import annotations

from functools import cache
from typing import Any

from dslint.config.violations import Spec
from dslint.facts import Release
from dslint.schemas.key_table import KEYS
from dslint.source.unknown import UNKNOWN


@cache
def children() -> dict[str, dict[str, str]]:
    """For every section of the table (dotted; "" is the root) its keys by the names DeepSpeed accepts, documented ones first."""
    tree: dict[str, dict[str, str]] = {"": {}}
    for key, spec in KEYS.items():
        parent, _, name = key.rpartition(".")
        names = tree.setdefault(parent, {})
        names[name.removesuffix("[]")] = key
        for other in spec.get("also", ()):
            names.setdefault(other, key)
    return tree


def is_habit(name: str) -> bool:
    """Whether a key is a comment (`$schema`, `_comment`, `//`), which dslint accepts where DeepSpeed ignores it."""
    return name.startswith(("_", "$", "//", "#")) or name.lower().startswith("comment")


def default_of(spec: Spec, release: Release) -> Any:
    """The default of a key in a release; `UNKNOWN` if it has none."""
    held = [value for since, value in spec.get("defaults", ()) if since == "0" or Release.parse(since) <= release]
    return held[-1] if held else spec.get("default", UNKNOWN)


def forbids_unknown(section: str, release: Release) -> bool:
    """Whether DeepSpeed parses a section with a model that rejects unknown keys and drops every "auto"."""
    spec = KEYS.get(section, {})
    since = spec.get("forbids_since")
    return spec.get("unknown") == "raise" and (since is None or Release.parse(since) <= release)


def drops_auto(section: str, release: Release) -> bool:
    """Whether the model of a section that rejects unknown keys drops every "auto" first."""
    since = KEYS.get(section, {}).get("drops_auto_since")
    return since is None or Release.parse(since) <= release
