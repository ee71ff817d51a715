"""Suppresses findings by the comments of their file, and finds comments that are malformed or suppress nothing."""

from __future__ import annotations

from collections.abc import Iterable

from dslint.config.detect import FileKind
from dslint.diagnostics import Diagnostic
from dslint.lint.guard import INTERNAL_ERROR
from dslint.lint.place import by_place, outside_broken_text
from dslint.lint.results import FileResult, Suppressed, SuppressedBy
from dslint.lint.run import IGNORES, findings_of
from dslint.registry.rules import all_rules, rule_named
from dslint.registry.selection import no_such_rule
from dslint.source.ignores import Ignore, IgnoreComments, IgnoreUse, ignores_of
from dslint.source.similar import LONGEST, MANY
from dslint.suppress.cover import Cover


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
            sorted_out.add(outside_broken_text(found, document, file.path))
    return file._replace(
        diagnostics=tuple(sorted(sorted_out.kept, key=by_place)),
        suppressed=(*file.suppressed, *sorted(sorted_out.suppressed, key=lambda one: by_place(one.diagnostic))),
    )


class _Sorted:
    """Findings, sorted into those to report and those that comments suppress; and which comments did so, for which rules."""

    def __init__(self, ignores: list[Ignore]) -> None:
        self.cover = Cover(ignores)
        self.kept: list[Diagnostic] = []
        self.suppressed: list[Suppressed] = []
        self.unknown: dict[str, str] = {}

    def add(self, diagnostics: Iterable[Diagnostic]) -> None:
        for diagnostic in diagnostics:
            is_covered, reason = (False, None) if diagnostic.code == INTERNAL_ERROR else self.cover.use(diagnostic)
            if is_covered:
                self.suppressed.append(Suppressed(diagnostic, SuppressedBy.COMMENT, reason))
            else:
                self.kept.append(diagnostic)

    def use(self, ignore: Ignore, ran: frozenset[str]) -> IgnoreUse:
        """What a comment is used for so far. Only of a rule that ran can it be said that the comment suppresses nothing."""
        named = {word: rule for word in ignore.words if (rule := rule_named(word)) is not None}
        unknown = next((self._said_of(word) for word in ignore.words if word not in named), None)
        unused = tuple(word for word, rule in named.items() if rule.code in ran and not self.cover.is_used(ignore, word))
        return IgnoreUse(ignore, unused, unknown)

    def _said_of(self, word: str) -> str:
        """What is said of an unknown rule. A similar one is only looked for as long as there are few of them."""
        if word not in self.unknown:
            rules = all_rules() if len(self.unknown) < MANY and len(word) <= LONGEST else ()
            self.unknown[word] = no_such_rule(word, rules)
        return self.unknown[word]
