"""Findings that the entries `ignores` of the settings suppress; entries that suppress nothing are findings themselves."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from dataclasses import replace

from dslint.diagnostics import Diagnostic
from dslint.lint.document import diagnostic
from dslint.lint.files import rules_for
from dslint.lint.patterns import matches
from dslint.lint.results import FileResult, Suppressed, SuppressedBy
from dslint.registry.rules import all_rules
from dslint.registry.selection import is_name_of
from dslint.rule import Finding
from dslint.rules.ds0_files.ignore_comments import unused_ignore
from dslint.settings import Finder, Layer
from dslint.settings.kinds import IgnoreEntry
from dslint.source.tree import Document, Span, pointer

HEADER = re.compile(r"^[ \t]*\[\[\s*(?:tool\s*\.\s*\"?dslint\"?\s*\.\s*)?ignores\s*\]\]", re.MULTILINE)


def apply(files: Iterable[FileResult], finder: Finder, searched: Iterable[str]) -> list[FileResult]:
    """Take out of the results what the settings' `ignores` cover; add a result for each settings file with an entry that covers nothing.

    Args:
        files: the results.
        finder: where the settings are.
        searched: the directories that were searched. An entry for a pattern of files is only called unused when all that its settings file
            speaks for was looked at.
    """
    entries: dict[tuple[str, int], _Entry] = {}
    results = [_apply(file, finder, entries) for file in files]
    covered = [os.path.join(os.path.abspath(folder), "") for folder in searched]
    by_file: dict[str, list[_Entry]] = {}
    for known in entries.values():
        if known.is_unused(covered):
            by_file.setdefault(known.layer.source, []).append(known)
    return results + [_complain(of_file) for of_file in by_file.values()]


class _Entry:
    """An entry, where it stands, and what became of it in this run."""

    def __init__(self, layer: Layer, number: int, entry: IgnoreEntry) -> None:
        self.layer = layer
        self.number = number
        self.entry = entry
        self.matched = False
        self.asked = False
        self.used = False
        self.wanted = False

    def covers(self, found: Diagnostic) -> bool:
        if not any(is_name_of(word, rule) for word in self.entry.rules for rule in all_rules() if rule.code == found.code):
            return False
        if self.entry.pointer is None:
            return True
        place = self.entry.pointer if self.entry.pointer.startswith("/") else pointer(tuple(self.entry.pointer.split(".")))
        return ((found.pointer or "") + "/").startswith(place.rstrip("/") + "/")

    def is_unused(self, covered: Iterable[str]) -> bool:
        """Whether it can be said that the entry covers nothing: its files were all looked at, its rules asked, and nothing was found."""
        if self.used or not self.wanted:
            return False
        whole = any(os.path.join(self.layer.base, "").startswith(folder) for folder in covered)
        return (self.asked and (whole or not any(set(file) & set("*?[") for file in self.entry.files))) or (whole and not self.matched)


def _apply(file: FileResult, finder: Finder, known: dict[tuple[str, int], _Entry]) -> FileResult:
    settings = finder.for_file(file.path)
    entries: list[_Entry] = []
    for layer in settings.layers:
        for number, entry in enumerate(layer.values.get("ignores", ())):
            entries.append(known.setdefault((layer.source, number), _Entry(layer, number, entry)))
    if not entries:
        return file
    rules = rules_for(file.path, settings)
    asked = {rule.code for rule in rules} - {skip.code for skip in file.skipped}
    mine: list[_Entry] = []
    for one in entries:
        one.wanted |= any(rule.code == unused_ignore.code for rule in rules)
        if matches(file.path, one.layer.base, one.entry.files):
            mine.append(one)
            one.matched = True
            one.asked |= file.error is None and any(is_name_of(w, rule) for w in one.entry.rules for rule in rules if rule.code in asked)
    kept: list[Diagnostic] = []
    suppressed: list[Suppressed] = []
    for found in file.diagnostics:
        covering = [one for one in mine if one.covers(found)]
        if covering:
            suppressed.append(Suppressed(found, SuppressedBy.SETTINGS, covering[0].entry.reason))
        else:
            kept.append(found)
        for one in covering:
            one.used = True
    return replace(file, diagnostics=tuple(kept), suppressed=(*file.suppressed, *suppressed)) if suppressed else file


def _complain(unused: list[_Entry]) -> FileResult:
    """A result for a settings file: its entries that cover nothing."""
    layer = unused[0].layer
    document = Document(layer.text, None)
    headers = [Span(*match.span()) for match in HEADER.finditer(layer.text)]
    found: list[Diagnostic] = []
    for one in unused:
        files, rules = " and ".join(one.entry.files), " and ".join(one.entry.rules)
        reason = f"{rules} finds nothing there" if one.matched else "no file that was checked is of that name"
        span = headers[one.number] if one.number < len(headers) else None
        message = f'Entry {one.number + 1} of ignores is for {rules} in "{files}", but {reason}.'
        found.append(diagnostic(unused_ignore, Finding("", message, help="Delete it.", span=span), document, layer.source))
    return FileResult(layer.source, "settings", document, tuple(found))
