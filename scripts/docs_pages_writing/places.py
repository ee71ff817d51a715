"""The page and anchor of each key in the reference."""

from __future__ import annotations

import re
from functools import cache

from docs_pages_writing.markdown import code
from dslint.schemas.marks import ShadowedBy
from dslint.schemas.optimizers import OPTIMIZERS, TypeSpec
from dslint.schemas.root import DeepSpeedConfig
from dslint.schemas.schedulers import SCHEDULERS
from dslint.schemas.walk import Key, all_keys

TOP = "top-level"
"""The page of keys outside of sections."""

REGISTRIES: dict[str, dict[str, TypeSpec]] = {"optimizer": OPTIMIZERS, "scheduler": SCHEDULERS}
"""The sections with `params` that depend on the `type`."""


@cache
def keys() -> dict[str, Key]:
    """Every key by its dotted path. A section that is an alias (bfloat16) is included without its keys."""
    found = list(all_keys(DeepSpeedConfig))
    shadowed = {key.path[0] for key in found if len(key.path) == 1 and key.mark(ShadowedBy) is not None}
    return {".".join(key.path): key for key in found if len(key.path) == 1 or key.path[0] not in shadowed}


def is_section(key: Key) -> bool:
    """Whether the key contains other keys."""
    return key.shape.section is not None or key.shape.values is not None or key.path[0] in REGISTRIES


def has_page(key: Key) -> bool:
    """Whether a top-level key has its own page."""
    return is_section(key) and not key.mark(ShadowedBy)


def place(dotted: str) -> str | None:
    """The page and anchor of a key, for links within the reference; None if it is not in the reference."""
    section, _, rest = dotted.partition(".")
    parameter = rest.removeprefix("params.")
    if section in REGISTRIES and parameter != rest and any(parameter in kind.params.model_fields for kind in REGISTRIES[section].values()):
        dotted = f"{section}.params"
    known = keys()
    if dotted not in known:
        return None
    page = section if has_page(known[section]) else TOP
    return f"{page}.md#{anchor(heading(known[dotted]))}"


def heading(key: Key) -> str:
    """The heading of a key; a custom key is NAME."""
    return code(".".join("NAME" if step == "*" else step for step in key.path))


def short(key: Key) -> str:
    """What the table of contents shows for a key: its last name, because the list is narrow."""
    return "NAME" if key.name == "*" else key.name


def anchor(heading: str) -> str:
    """The anchor of a heading."""
    return re.sub(r"[^\w\- ]", "", heading).strip().lower().replace(" ", "-")
