"""Stable identities of findings, from one run to the next."""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import sha256

from dslint.diagnostics import Diagnostic


def identity(diagnostic: Diagnostic) -> tuple[str, str, str]:
    """The path, the code and the place of a finding: its pointer, or its message if it concerns no key.

    It contains no line and no value: a finding keeps its identity when lines above it move or when its value changes.
    """
    return diagnostic.path, diagnostic.code, diagnostic.pointer or diagnostic.message


def fingerprints(diagnostics: Iterable[Diagnostic]) -> list[str]:
    """A fingerprint for each of the diagnostics of a run, in order: 32 hexadecimal digits, all different."""
    seen: dict[tuple[str, str, str], int] = {}
    prints: list[str] = []
    for diagnostic in diagnostics:
        known = identity(diagnostic)
        seen[known] = seen.get(known, 0) + 1
        text = "\0".join((*known, str(seen[known])))
        prints.append(sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:32])
    return prints
