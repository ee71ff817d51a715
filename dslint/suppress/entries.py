"""Suppression by the settings' `ignores` entries; an entry that suppresses nothing is a finding itself."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable

from dslint.diagnostics import Diagnostic
from dslint.lint.guard import INTERNAL_ERROR
from dslint.lint.patterns import matches
from dslint.lint.place import place
from dslint.lint.results import FileResult, Suppressed, SuppressedBy
from dslint.registry.rules import all_rules
from dslint.registry.selection import is_name_of
from dslint.rule import Finding, RuleInfo
from dslint.settings import Finder, Layer
from dslint.settings.kinds import IgnoreEntry
from dslint.source.tree import Document, Span, pointer

UNUSED = "DS007"
"""The rule about what suppresses nothing."""

HEADER = r"(?m)^[ \t]*\[\[\s*(?:tool\s*\.\s*\"?dslint\"?\s*\.\s*)?ignores\s*\]\]"


class RunEntries:
    """The entries of the settings files of a run, as they are met, and which of them suppressed something."""

    def __init__(self, finder: Finder) -> None:
        self._finder = finder
        self._known: dict[tuple[str, int], _Entry] = {}
        self._reported: set[str] = set()

    def apply(self, file: FileResult) -> FileResult:
        """The result without what the entries of its settings cover."""
        entries = self._of(file)
        if not entries:
            return file
        mine = [entry for entry in entries if matches(file.path, entry.layer.base, entry.entry.files)]
        rules = [rule for rule in all_rules() if rule.code in file.ran]
        for entry in mine:
            entry.matched = True
            entry.ran |= any(is_name_of(word, rule) for word in entry.entry.rules for rule in rules)
        kept: list[Diagnostic] = []
        suppressed: list[Suppressed] = []
        for found in file.diagnostics:
            covering = [entry for entry in mine if entry.covers(found)]
            for entry in covering:
                entry.used = True
            if covering:
                suppressed.append(Suppressed(found, SuppressedBy.SETTINGS, covering[0].entry.reason))
            else:
                kept.append(found)
        return file._replace(diagnostics=tuple(kept), suppressed=(*file.suppressed, *suppressed)) if suppressed else file

    def _of(self, file: FileResult) -> list[_Entry]:
        """The entries of the settings for a file."""
        found: list[_Entry] = []
        for layer in self._finder.for_file(file.path).layers:
            for number, entry in enumerate(layer.values.get("ignores", ())):
                found.append(self._known.setdefault((layer.source, number), _Entry(layer, number, entry)))
            if UNUSED in file.ran:
                self._reported.add(layer.source)
        return found

    def unused(self, searched: Iterable[str]) -> list[FileResult]:
        """A result for each settings file with entries that cover nothing, where the rule about them ran; see `suppress`."""
        covered = [os.path.join(os.path.abspath(folder), "") for folder in searched]
        by_file: dict[str, list[_Entry]] = {}
        for known in self._known.values():
            if known.layer.source in self._reported and known.is_unused(covered):
                by_file.setdefault(known.layer.source, []).append(known)
        rule = next((rule for rule in all_rules() if rule.code == UNUSED), None)
        return [_result(of_file, rule) for of_file in by_file.values()] if rule else []


class _Entry:
    """An entry, its place, and how it was used in this run."""

    def __init__(self, layer: Layer, number: int, entry: IgnoreEntry) -> None:
        self.layer = layer
        self.number = number
        self.entry = entry
        self.matched = False
        self.ran = False
        self.used = False

    def covers(self, found: Diagnostic) -> bool:
        if found.code == INTERNAL_ERROR or not any(is_name_of(word, found) for word in self.entry.rules):
            return False
        if self.entry.pointer is None:
            return True
        place = self.entry.pointer if self.entry.pointer.startswith("/") else pointer(tuple(self.entry.pointer.split(".")))
        return ((found.pointer or "") + "/").startswith(place.rstrip("/") + "/")

    def is_unused(self, covered: Iterable[str]) -> bool:
        """Whether it can be said that the entry covers nothing: its files were all looked at, its rules ran, and nothing was found."""
        if self.used:
            return False
        whole = any(os.path.join(self.layer.base, "").startswith(folder) for folder in covered)
        return (self.ran and (whole or not any(set(file) & set("*?[") for file in self.entry.files))) or (whole and not self.matched)


def _result(unused: list[_Entry], rule: RuleInfo) -> FileResult:
    """The result for a settings file: its unused entries."""
    layer = unused[0].layer
    document = Document(layer.text, None)
    headers = [Span(*match.span()) for match in re.finditer(HEADER, layer.text)]
    found: list[Diagnostic] = []
    for one in unused:
        files, rules = " and ".join(one.entry.files), " and ".join(one.entry.rules)
        reason = f"{rules} finds nothing there" if one.matched else "no checked file matches"
        span = headers[one.number] if one.number < len(headers) else None
        message = f'Entry {one.number + 1} of ignores suppresses {rules} in "{files}", but {reason}.'
        found.append(place(rule, Finding("", message, help="Delete the entry.", span=span), document, layer.source))
    return FileResult(layer.source, "settings", document, tuple(found))
