"""Stretches of a document with lines and columns."""

from __future__ import annotations

from dslint.diagnostics import Place, Range
from dslint.source.tree import Document, Span


def range_of(document: Document, span: Span) -> Range:
    """A stretch of a document as a range."""
    return Range(Place(*document.position(span.start)), Place(*document.position(span.end)))
