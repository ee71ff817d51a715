"""The way of one config: read, parse, detect, resolve, run the rules. Functions of values; nothing is printed here."""

from __future__ import annotations

from collections.abc import Iterable

from dslint.config import resolve
from dslint.config.context import Context
from dslint.config.detect import FileKind
from dslint.config.load import Loaded, load_text
from dslint.diagnostics import Diagnostic
from dslint.facts import Facts, Release
from dslint.frameworks.loader import with_loaders
from dslint.lint.place import by_place, outside_broken_text
from dslint.lint.results import FileResult, Skipped
from dslint.lint.run import by_needs, run_rules
from dslint.not_judged import NotJudged, of_note
from dslint.record import Record
from dslint.rule import RuleInfo
from dslint.schemas.recognition import FRAGMENTS
from dslint.source.store import a_run
from dslint.source.tree import Document


def lint_text(text: str, shown: str, given: Facts | Context, rules: Iterable[RuleInfo], *, named: bool = True) -> FileResult | None:
    """Lint a text as if it were a file. What is wrong with the file itself is in the result. Nothing is suppressed yet.

    Args:
        text: the text of the file.
        shown: its name in diagnostics, with forward slashes.
        given: the context: facts, setup, policy and checkpoint.
        rules: the rules to run.
        named: whether the file was named. A file found in a directory is skipped (None) unless it looks like a config.
    """
    return lint_opened(load_text(text, given, named=named), shown, rules, named=named)


def lint_opened(loaded: Loaded, shown: str, rules: Iterable[RuleInfo], *, named: bool) -> FileResult | None:
    """Lint a file that was opened, as `lint_text` does."""
    if shown.endswith(FRAGMENTS) and loaded.kind is FileKind.DS_CONFIG:
        loaded = loaded._replace(kind=FileKind.TEMPLATE, note="a template of DeepSpeed's autotuner, which adds the other keys.")
    if loaded.kind is FileKind.DS_CONFIG:
        return lint_loaded(loaded, shown, rules)
    if not named and loaded.kind not in (FileKind.TEMPLATE, FileKind.INFERENCE):
        return None
    reason = (of_note(loaded.note),) if loaded.note else ()
    return FileResult(shown, loaded.kind, loaded.document, note=loaded.note if named else None, context=loaded.context, not_judged=reason)


def lint_loaded(loaded: Loaded, shown: str, rules: Iterable[RuleInfo]) -> FileResult:
    """Lint what was opened as a config, whatever it looks like."""
    note = loaded.note or ("a config in base64; lines and columns are those of the decoded text." if loaded.encoded else None)
    linted = lint_document(loaded.document, shown, loaded.context, rules)
    return FileResult(
        shown,
        FileKind.DS_CONFIG,
        loaded.document,
        linted.diagnostics,
        linted.skipped,
        note,
        context=loaded.context,
        ran=linted.ran,
        not_judged=linted.not_judged,
    )


class Linted(Record):
    """What the rules say of a document.

    Findings by place, skipped rules, the codes of those that were not skipped, and why some of these cannot judge it.
    """

    diagnostics: tuple[Diagnostic, ...]
    skipped: tuple[Skipped, ...]
    ran: frozenset[str]
    not_judged: tuple[NotJudged, ...] = ()


def lint_document(document: Document, shown: str, given: Facts | Context, rules: Iterable[RuleInfo]) -> Linted:
    """Run the rules on a document that is known to be a config."""
    with a_run():  # rules ask for the pins of libraries: each folder is searched once
        context = with_loaders(given)._replace(is_hjson=shown.endswith(".hjson"))
        able, skipped = by_needs(rules, context)
        found, not_judged = run_rules(able, resolve(document, context), shown)
        if context.facts.upgrade_from is not None:
            found = _new_since(context.facts.upgrade_from, found, document, shown, context, able)
    found = outside_broken_text(found, document, shown)
    return Linted(tuple(sorted(found, key=by_place)), tuple(skipped), frozenset(rule.code for rule in able), tuple(not_judged))


def _new_since(
    start: Release, found: list[Diagnostic], document: Document, shown: str, context: Context, rules: Iterable[RuleInfo]
) -> list[Diagnostic]:
    """Those of the findings that an earlier release does not have."""
    earlier = resolve(document, context.but(deepspeed=start, upgrade_from=None))
    able, _ = by_needs(rules, earlier.context)
    known = {(d.code, d.pointer, d.effect) for d in run_rules(able, earlier, shown)[0]}
    return [d for d in found if (d.code, d.pointer, d.effect) not in known]
