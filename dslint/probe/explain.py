"""Finds the rules that explain an exception of the engine."""

from __future__ import annotations

import re
from collections.abc import Iterable

from dslint.diagnostics import Diagnostic, Effect, Phase
from dslint.probe.answer import RaisedError

_PHASES = {
    "parse": {Phase.LOAD, Phase.PARSE},
    "build": {Phase.INITIALIZE},
    "initialize": {Phase.INITIALIZE},
    "forward": {Phase.STEP},
    "backward": {Phase.STEP},
    "step": {Phase.STEP},
}
_QUOTES = re.compile(r'"([^"\n]{12,})"')
"""Quotations in a message; shorter ones could match by chance."""


def explain(raised: RaisedError, diagnostics: Iterable[Diagnostic]) -> tuple[Diagnostic, ...]:
    """The crash findings of the phase in which the engine raised; if possible only those that quote the error or are about a key in it."""
    crashes = [d for d in diagnostics if d.effect is Effect.CRASH and d.phase in _PHASES.get(raised.phase, ())]
    text = _folded(f"{raised.kind}: {raised.text}")
    quoting = [d for d in crashes if any(_folded(quote) in text for quote in _QUOTES.findall(d.message))]
    naming = [d for d in crashes if (key := (d.pointer or "").rpartition("/")[2]) and len(key) > 3 and key.lower() in text]
    return tuple(quoting or naming or crashes)


def _folded(text: str) -> str:
    return " ".join(text.lower().split())
