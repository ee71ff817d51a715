"""Which known mistake is found by which rule: docs/coverage.md, written from docs/coverage.tsv."""

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
    "integrations": "Between the files of a training",
    "postparse": "What DeepSpeed does after parsing",
    "observed": "What was observed",
}
"""The sources by their word in the file, with their headings."""

REASONS = {
    "program": "It stands in the program alone, which no linter of configs runs.",
    "machine": "It is a matter of the machine: its libraries, disks and limits. `dslint probe` runs the config there.",
    "model": "It depends on the layers of the model or on the data, which no file describes.",
    "fine": "It does what it says, and nothing is lost.",
    "loud": "Whoever reads the setting says so by itself, clearly and before training starts.",
    "past": "It belongs to releases before those that dslint knows, or to releases of other libraries.",
    "unsure": "There is one report, and nobody has confirmed it.",
}
"""Why no rule finds a mistake: the word that an answer without rules begins with, and what it means."""

_CODE = re.compile(r"\bDS\d{3}\b")


class Entry(NamedTuple):
    """A known mistake: where it is known from, what it is, and the rules that find it, or why none does.

    An answer with a rule begins with one. A rule that is named further on finds something near it.
    """

    source: str
    line: str
    answer: str

    @property
    def codes(self) -> list[str]:
        """The rules that are named."""
        return _CODE.findall(self.answer)

    @property
    def found(self) -> bool:
        """Whether a rule finds it."""
        return _CODE.match(self.answer) is not None


class CoverageError(ValueError):
    """The file cannot be used; the text says why."""


def read_entries(path: Path) -> list[Entry]:
    """Read the file: tab-separated, with a line of headings.

    Raises:
        CoverageError: a line has another number of columns, a source or a rule that there is not, or says nothing.
    """
    known = {rule.code for rule in own_rules()}
    with path.open(encoding="utf-8", newline="") as lines:
        rows = [row for row in csv.reader(lines, delimiter="\t", quoting=csv.QUOTE_NONE) if row]
    entries = []
    for number, row in enumerate(rows, start=1):
        if number == 1 and row[0].lower() == "source":
            continue
        if len(row) != len(Entry._fields) or not all(cell.strip() for cell in row):
            raise CoverageError(f"{path.name}, line {number}: it has to have a source, what it is about, and rules or a reason.")
        entry = Entry(*(cell.strip() for cell in row))
        if entry.source not in SOURCES:
            raise CoverageError(f'{path.name}, line {number}: "{entry.source}" is no source; they are {listed(SOURCES)}.')
        if gone := [code for code in entry.codes if code not in known]:
            raise CoverageError(f"{path.name}, line {number}: there is no rule {gone[0]}.")
        entries.append(entry)
    return entries


def coverage_page(entries: Iterable[Entry]) -> str:
    """The page: counts on top, then a table for each source."""
    entries = list(entries)
    by_source = {source: [entry for entry in entries if entry.source == source] for source in SOURCES}
    return blocks(
        "# Coverage",
        "The mistakes that are known, from public threads, from DeepSpeed's code and from running it, and the rules that find them. Where "
        "no rule does, the reason stands there.",
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
    """What the first word of a reason means, and how often it is the reason."""
    words = Counter(entry.answer.partition(":")[0] for entry in entries if not entry.found)
    rows = [(word, meaning, f"{words[word]:,}") for word, meaning in REASONS.items() if words[word]]
    if rows:
        yield "Where no rule finds a mistake, the first word says why:"
        yield table(("reason", "meaning", "mistakes"), rows)


def _section(source: str, entries: list[Entry]) -> Iterator[str]:
    if not entries:
        return
    yield f"## {SOURCES[source]}"
    yield table(("mistake", "rules, or why there is none"), ((escape(entry.line), _linked(entry.answer)) for entry in entries))


def _linked(answer: str) -> str:
    names = {rule.code: rule.name for rule in own_rules()}
    return _CODE.sub(lambda match: f'[{match[0]}](rules/{match[0]}.md "{names[match[0]]}")', escape(answer))
