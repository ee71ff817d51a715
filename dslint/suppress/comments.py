"""Suppresses findings by the comments of their file, and finds comments that are malformed or suppress nothing."""

from __future__ import annotations

from collections.abc import Iterable

from dslint.config.detect import FileKind
from dslint.diagnostics import Diagnostic
from dslint.lint.place import by_place, in_broken_text
from dslint.lint.results import FileResult, Suppressed, SuppressedBy
from dslint.lint.run import IGNORES, findings_of
from dslint.registry.redirects import current
from dslint.registry.rules import all_rules
from dslint.registry.selection import is_name_of, no_such_rule
from dslint.source.ignores import Ignore, IgnoreComments, IgnoreUse, ignores_of


def apply_comments(file: FileResult) -> FileResult:
    """The result without the findings that comments suppress, and with those about the comments.

    Only a file that is a config has findings about its comments, and not where two releases are compared: only what changes is reported.
    """
    document = file.document
    ignores = ignores_of(document) if document is not None else []
    if document is None or not ignores:
        return file
    sorted_out = _Sorted(ignores)
    sorted_out.add(file.diagnostics)
    if file.kind == FileKind.DS_CONFIG and file.facts.upgrade_from is None:
        # Malformed comments come first: a comment that suppresses such a finding is used.
        for rule in (rule for rule in all_rules() if IGNORES in rule.watches and rule.code in file.ran):
            uses = tuple(sorted_out.use(ignore, file.ran - {rule.code}) for ignore in ignores)
            found = findings_of(rule, IgnoreComments(document, uses), document, file.path)
            sorted_out.add(d for d in found if not in_broken_text(d, document))
    return file._replace(
        diagnostics=tuple(sorted(sorted_out.kept, key=by_place)),
        suppressed=(*file.suppressed, *sorted(sorted_out.suppressed, key=lambda one: by_place(one.diagnostic))),
    )


class _Sorted:
    """Findings, sorted into those to report and those that comments suppress; and which comments did so, for which rules."""

    def __init__(self, ignores: list[Ignore]) -> None:
        self.ignores = ignores
        self.kept: list[Diagnostic] = []
        self.suppressed: list[Suppressed] = []
        self.used: set[tuple[Ignore, str]] = set()

    def add(self, diagnostics: Iterable[Diagnostic]) -> None:
        for diagnostic in diagnostics:
            covering = [
                ignore
                for ignore in self.ignores
                if any(is_name_of(word, diagnostic) for word in ignore.words) and ignore.covers(diagnostic)
            ]
            self.used.update((ignore, diagnostic.code) for ignore in covering)
            if covering:
                reason = next((ignore.reason for ignore in covering if ignore.reason), None)
                self.suppressed.append(Suppressed(diagnostic, SuppressedBy.COMMENT, reason))
            else:
                self.kept.append(diagnostic)

    def use(self, ignore: Ignore, ran: frozenset[str]) -> IgnoreUse:
        """What a comment is used for so far. Only of a rule that ran can it be said that the comment suppresses nothing."""
        rules = all_rules()
        named = {word: rule for word in ignore.words for rule in rules if is_name_of(word, rule)}
        unknown = next((no_such_rule(word, rules) for word in ignore.words if word not in named), None)
        unused = tuple(word for word, rule in named.items() if rule.code in ran and (ignore, rule.code) not in self.used)
        renamed = tuple((word, rule.name) for word, rule in named.items() if current(word) != word)
        return IgnoreUse(ignore, unused, unknown, renamed)
