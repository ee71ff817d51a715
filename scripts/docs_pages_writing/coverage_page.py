"""The coverage page: known mistakes and the rules that find them, from docs/coverage.tsv."""

from __future__ import annotations

import csv
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from docs_pages_writing.markdown import blocks, escape, table
from docs_pages_writing.own_rules import own_rules
from dslint.report.words import listed

SOURCES = {
    "mistakes": "Public threads",
    "integrations": "Training setups",
    "postparse": "DeepSpeed after parsing",
    "observed": "Observed behaviour",
    "contracts": "What libraries refuse with DeepSpeed",
}
"""The sources by their name in the file, with their headings."""

REASONS = {
    "program": "It is only in the program, which a linter does not run.",
    "machine": "It depends on the machine: its libraries, disks and limits. `dslint probe` runs the config there.",
    "model": "It depends on the layers of the model or on the data.",
    "fine": "It works as documented.",
    "loud": "DeepSpeed or the loader reports it clearly before training starts.",
    "past": "It concerns unsupported releases of DeepSpeed, or releases of other libraries.",
    "unsure": "There is a single, unconfirmed report.",
    "internal": "No config, argument or program reaches the check.",
    "open": "No rule looks for it yet.",
}
"""Reasons why no rule finds a mistake: the first word of an answer without rules, and its meaning."""

_CODE = re.compile(r"\bDS\w\d\d\b")


class Entry(NamedTuple):
    """A known mistake: its source, a description, and the rules that find it, or why no rule does.

    An answer that begins with a rule is found. Rules named later find something similar.
    """

    source: str
    line: str
    answer: str

    @property
    def codes(self) -> list[str]:
        """The named rules."""
        return _CODE.findall(self.answer)

    @property
    def found(self) -> bool:
        """Whether a rule finds it."""
        return _CODE.match(self.answer) is not None


class CoverageError(ValueError):
    """The file is malformed; the text says why."""


def read_entries(path: Path) -> list[Entry]:
    """Read the file: tab-separated, with a line of headings.

    Raises:
        CoverageError: a line has the wrong number of columns, an unknown source or rule, or an empty column.
    """
    known = {rule.code for rule in own_rules()}
    with path.open(encoding="utf-8", newline="") as lines:
        rows = [row for row in csv.reader(lines, delimiter="\t", quoting=csv.QUOTE_NONE) if row]
    entries = []
    for number, row in enumerate(rows, start=1):
        if number == 1 and row[0].lower() == "source":
            continue
        if len(row) != len(Entry._fields) or not all(cell.strip() for cell in row):
            raise CoverageError(f"{path.name}, line {number}: it must have a source, a description, and rules or a reason.")
        entry = Entry(*(cell.strip() for cell in row))
        if entry.source not in SOURCES:
            raise CoverageError(f'{path.name}, line {number}: unknown source "{entry.source}"; use {listed(SOURCES)}.')
        if gone := [code for code in entry.codes if code not in known]:
            raise CoverageError(f"{path.name}, line {number}: unknown rule {gone[0]}.")
        entries.append(entry)
    return entries


def coverage_page(entries: Iterable[Entry]) -> str:
    """The page: counts on top, then a table for each source."""
    entries = list(entries)
    by_source = {source: [entry for entry in entries if entry.source == source] for source in SOURCES}
    return blocks(
        "# Coverage",
        "Known mistakes, from public threads, from DeepSpeed's code and from running it, and the rules that find them, or the reason "
        "why no rule does.",
        table(("source", "known", "found by a rule", "not found"), _counts(by_source)),
        *_reasons(entries),
        *(part for source, of_source in by_source.items() for part in _section(source, of_source)),
    )


def _counts(by_source: dict[str, list[Entry]]) -> Iterator[tuple[str, ...]]:
    total = [entry for of_source in by_source.values() for entry in of_source]
    for name, entries in [*((SOURCES[source], of_source) for source, of_source in by_source.items()), ("**all**", total)]:
        found = sum(entry.found for entry in entries)
        yield name, f"{len(entries):,}", f"{found:,}", f"{len(entries) - found:,}"


def _reasons(entries: list[Entry]) -> Iterator[str]:
    """The meaning of the first words of reasons, and their counts."""
    words = Counter(entry.answer.partition(":")[0] for entry in entries if not entry.found)
    rows = [(word, meaning, f"{words[word]:,}") for word, meaning in REASONS.items() if words[word]]
    if rows:
        yield "If no rule finds a mistake, the first word gives the reason:"
        yield table(("reason", "meaning", "mistakes"), rows)


def _section(source: str, entries: list[Entry]) -> Iterator[str]:
    if not entries:
        return
    yield f"## {SOURCES[source]}"
    yield table(("mistake", "rules, or why no rule finds it"), ((escape(entry.line), _linked(entry.answer)) for entry in entries))


def _linked(answer: str) -> str:
    names = {rule.code: rule.name for rule in own_rules()}
    return _CODE.sub(lambda match: f'[{match[0]}](rules/{match[0]}.md "{names[match[0]]}")', escape(answer))
