"""What a finding is known by from one run to the next, whatever moves above it in the file."""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import sha256

from dslint.diagnostics import Diagnostic


def identity(diagnostic: Diagnostic) -> tuple[str, str, str]:
    """The path, the code and the place of a finding: its pointer, or its message where it is about no key.

    No line and no value is in it: a finding stays the same when lines move above it, and when the value it is about is another.
    """
    return diagnostic.path, diagnostic.code, diagnostic.pointer or diagnostic.message


def fingerprints(diagnostics: Iterable[Diagnostic]) -> list[str]:
    """A fingerprint for each of the diagnostics of a run, in order: 32 hexadecimal digits, no two alike."""
    seen: dict[tuple[str, str, str], int] = {}
    prints: list[str] = []
    for diagnostic in diagnostics:
        known = identity(diagnostic)
        seen[known] = seen.get(known, 0) + 1
        text = "\0".join((*known, str(seen[known])))
        prints.append(sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:32])
    return prints
