"""The way of one config: read, parse, detect, resolve, run the rules. Functions of values; nothing is printed here."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import NamedTuple

from dslint.config import resolve
from dslint.config.context import Context
from dslint.config.detect import FileKind, detect_kind
from dslint.config.infer import infer
from dslint.diagnostics import Diagnostic
from dslint.facts import Facts, Release
from dslint.lint.place import by_place, in_broken_text
from dslint.lint.results import FileResult, Skipped
from dslint.lint.run import by_needs, run_rules
from dslint.rule import RuleInfo
from dslint.source.parse import parse
from dslint.source.read import ReadError, decode_base64, read
from dslint.source.tree import Document


def lint_file(path: str, shown: str, given: Facts | Context, rules: Iterable[RuleInfo], *, named: bool = True) -> FileResult | None:
    """Read and lint one file. Problems with the file itself come back in the result, never as an exception. Nothing is suppressed yet.

    Args:
        path: where the file is.
        shown: its name in diagnostics, with forward slashes.
        given: what is known beside it.
        rules: the rules to run.
        named: whether a person named the file. A file that was only found in a directory is left out (None) unless it looks like a config.
    """
    try:
        text = read(path)
    except ReadError as error:
        return FileResult(shown, FileKind.UNREADABLE, error=str(error), context=Context.of(given))
    return lint_text(text, shown, given, rules, named=named)


def lint_text(text: str, shown: str, given: Facts | Context, rules: Iterable[RuleInfo], *, named: bool = True) -> FileResult | None:
    """Lint a text as if it were the file `shown`; see `lint_file`."""
    decoded = decode_base64(text)
    document = parse(decoded or text)
    kind, note = detect_kind(document, named=named)
    if decoded and note is None:
        note = "a config in base64; lines and columns are those of the decoded text."
    if not named and kind is not FileKind.DS_CONFIG:
        return None
    if kind is not FileKind.DS_CONFIG:
        return FileResult(shown, kind, document, note=note, context=Context.of(given))
    return replace(lint_config(document, shown, given, rules), note=note)


def lint_config(document: Document, shown: str, given: Facts | Context, rules: Iterable[RuleInfo]) -> FileResult:
    """Lint a parsed config, with the facts that plainly follow from it."""
    context = infer(document, given)
    linted = lint_document(document, shown, context, rules)
    return FileResult(shown, FileKind.DS_CONFIG, document, linted.diagnostics, linted.skipped, context=context, ran=linted.ran)


class Linted(NamedTuple):
    """What the rules say of a document: findings by place, skipped rules, and the codes of those that were not skipped."""

    diagnostics: tuple[Diagnostic, ...]
    skipped: tuple[Skipped, ...]
    ran: frozenset[str]


def lint_document(document: Document, shown: str, given: Facts | Context, rules: Iterable[RuleInfo]) -> Linted:
    """Run the rules on a document that is known to be a config."""
    context = Context.of(given)
    able, skipped = by_needs(rules, context)
    found = run_rules(able, resolve(document, context), shown)
    if context.facts.upgrade_from is not None:
        found = _new_since(context.facts.upgrade_from, found, document, shown, context, able)
    found = [d for d in found if d.path != shown or not in_broken_text(d, document)]
    return Linted(tuple(sorted(found, key=by_place)), tuple(skipped), frozenset(rule.code for rule in able))


def _new_since(
    start: Release, found: list[Diagnostic], document: Document, shown: str, context: Context, rules: Iterable[RuleInfo]
) -> list[Diagnostic]:
    """Those of the findings that an earlier release does not have."""
    earlier = resolve(document, context.but(deepspeed=start, upgrade_from=None))
    able, _ = by_needs(rules, earlier.context)
    known = {(d.code, d.pointer, d.effect) for d in run_rules(able, earlier, shown)}
    return [d for d in found if (d.code, d.pointer, d.effect) not in known]
