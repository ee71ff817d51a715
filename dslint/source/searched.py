"""Searches of texts that a run keeps: programs share modules, and a project has many configs for one program."""

from __future__ import annotations

import re

from dslint.source.store import store


def has(pattern: re.Pattern[str], text: str) -> bool:
    """Whether a pattern matches in a text."""
    return store().parsed(("has", pattern, text), lambda: pattern.search(text) is not None)


def matches_in(pattern: re.Pattern[str], text: str) -> tuple[re.Match[str], ...]:
    """All matches of a pattern in a text."""
    return store().parsed(("matches", pattern, text), lambda: tuple(pattern.finditer(text)))
