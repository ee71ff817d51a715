"""The way of one config: read, parse, recognise, resolve, check. Functions of values; nothing is printed here."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from collections.abc import Mapping as Table
from typing import NamedTuple

from dslint.config import Config, resolve
from dslint.config.context import Context
from dslint.config.detect import FileKind, detect_kind
from dslint.config.infer import infer
from dslint.diagnostics import Diagnostic, Edit, Effect, Fix, Place, Range, Related, Severity
from dslint.facts import Facts
from dslint.lint.results import FileResult, Skipped, Suppressed
from dslint.registry.watches import can_run, signals_of
from dslint.rule import Finding, FixPlan, RuleInfo
from dslint.source.parse import parse
from dslint.source.read import ReadError, decode_base64, read
from dslint.source.tree import Document, Mapping, Member, Node, Path, Span, path_of, pointer
from dslint.suppress.comments import ignores_of, sort_out

INTERNAL_ERROR = "DS000"
"""The code of the diagnostic for a rule that raised."""


def lint_file(
    path: str, shown: str, given: Facts | Context, rules: Iterable[RuleInfo], *, named: bool = True, comments: bool = True
) -> FileResult | None:
    """Read and lint one file. Problems with the file itself come back in the result, never as an exception.

    Args:
        path: where the file is.
        shown: its name in diagnostics, with forward slashes.
        given: what is known beside it.
        rules: the rules to ask.
        named: whether a person named the file. A file that was only found in a directory is left out (None) unless it looks like a config.
        comments: whether comments in the file may suppress findings.
    """
    try:
        text = read(path)
    except ReadError as error:
        return FileResult(shown, FileKind.UNREADABLE, error=str(error), context=Context.of(given))
    return lint_text(text, shown, given, rules, named=named, comments=comments)


def lint_text(
    text: str, shown: str, given: Facts | Context, rules: Iterable[RuleInfo], *, named: bool = True, comments: bool = True
) -> FileResult | None:
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
    context = infer(document, given)
    linted = lint_document(document, shown, context, rules, comments=comments)
    return FileResult(shown, kind, document, linted.diagnostics, linted.skipped, note, context=context, suppressed=linted.suppressed)


class Linted(NamedTuple):
    """What the rules say of a document: findings by place, rules that could not be asked, and findings that its comments suppress."""

    diagnostics: tuple[Diagnostic, ...]
    skipped: tuple[Skipped, ...]
    suppressed: tuple[Suppressed, ...]


def lint_document(document: Document, shown: str, given: Facts | Context, rules: Iterable[RuleInfo], *, comments: bool = True) -> Linted:
    """Ask the rules about a document that is known to be a config."""
    rules = tuple(rules)
    context = Context.of(given)
    config = resolve(document, context)
    config.ignores = ignores_of(document) if comments else []
    asked: list[RuleInfo] = []
    skipped: list[Skipped] = []
    for rule in rules:
        missing = next((need for need in rule.needs if context.get(need) is None), None)
        if missing is None:
            asked.append(rule)
        else:
            skipped.append(Skipped(rule.code, missing))
    signals = signals_of(config)
    found = [d for rule in asked if not rule.last and can_run(rule.watches, signals) for d in _ask(rule, config, shown)]
    if context.facts.upgrade_from is not None:
        earlier = context.but(deepspeed=context.facts.upgrade_from, upgrade_from=None)
        before = lint_document(document, shown, earlier, rules, comments=False)
        known = {(d.code, d.pointer, d.effect) for d in before.diagnostics}
        found = [d for d in found if (d.code, d.pointer, d.effect) not in known]
    if document.problems:
        found = [d for d in found if d.path != shown or not _in_broken_text(d, document)]
    own = [d for d in found if d.path == shown]
    kept, suppressed, config.unused_ignores = sort_out(own, config.ignores, (rule for rule in asked if not rule.last))
    kept += [d for d in found if d.path != shown]
    kept += [d for rule in asked if rule.last and can_run(rule.watches, signals) for d in _ask(rule, config, shown)]
    suppressed.sort(key=lambda one: _place(one.diagnostic))
    return Linted(tuple(sorted(kept, key=_place)), tuple(skipped), tuple(suppressed))


def _in_broken_text(diagnostic: Diagnostic, document: Document) -> bool:
    """Whether a diagnostic is about a stretch of text that is no syntax in the first place: one cause gives one finding."""
    if diagnostic.range is None:
        return False
    start, end = diagnostic.range.start.offset, diagnostic.range.end.offset
    spans = {problem.span for problem in document.problems}
    return Span(start, end) not in spans and any(start < span.end and span.start < end for span in spans)


def _ask(rule: RuleInfo, config: Config, shown: str) -> Iterator[Diagnostic]:
    try:
        findings = list(rule.load().check(config))
    except Exception as error:  # noqa: BLE001 - whatever a rule raises, the other rules still get their say
        yield _internal_error(rule, shown, error)
        return
    for finding in findings:
        yield diagnostic(rule, finding, config.document, shown, config.setup.documents if config.setup else None)


def _internal_error(rule: RuleInfo, shown: str, error: Exception) -> Diagnostic:
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    where = f" (line {trace.tb_lineno} of {trace.tb_frame.f_code.co_name})" if trace is not None else ""
    return Diagnostic(
        shown,
        INTERNAL_ERROR,
        "internal-error",
        Severity.ERROR,
        Effect.ADVICE,
        None,
        f"rule {rule.code} ({rule.name}) failed on this file: {type(error).__name__}: {error}{where}. The other rules were asked as usual.",
        help="This is a defect of dslint. Please report it with the file, or the part of it that brings this about."
        if rule.module.startswith("dslint.")
        else f"It comes from outside of dslint: {rule.module}.",
        pointer="",
    )


def diagnostic(rule: RuleInfo, finding: Finding, document: Document, shown: str, beside: Table[str, Document] | None = None) -> Diagnostic:
    """Place a finding in the text: that of the config, or of one of the files beside it."""
    path = path_of(finding.at)
    effect = finding.effect or rule.effect
    span = finding.span or locate(document, path, finding.on)
    severity = finding.severity or effect.severity
    of_finding = document if finding.elsewhere is None else (beside or {}).get(finding.elsewhere.path)
    elsewhere = finding.elsewhere or Related(shown, "", pointer(document.in_file(path)), _range(document, span))
    return Diagnostic(
        elsewhere.path,
        rule.code,
        rule.name,
        severity,
        effect,
        (finding.phase or rule.phase) if effect is Effect.CRASH else None,
        finding.message,
        finding.help,
        pointer=elsewhere.pointer,
        range=elsewhere.range,
        related=tuple(one if isinstance(one, Related) else _related(*one, document, shown) for one in finding.related),
        fix=_fix(finding.fix, of_finding) if finding.fix and of_finding is not None else None,
        certain=severity.rank >= effect.severity.rank,
    )


def _fix(repair: FixPlan, document: Document) -> Fix | None:
    """The edits that make a repair; None where they cannot be made to this text."""
    from dslint.source.edit import CannotChange, edits_for

    if document.problems:
        return None
    title, changes = repair.title, repair.changes
    try:
        if document.whole is not None:
            from dslint.source.whole import title_of, to_whole

            changes = tuple(to_whole(document, changes))
            title = title if document.sources is None else ", ".join(title_of(change) for change in changes)
        edits = edits_for(document.whole or document, changes)
    except CannotChange:
        return None
    return Fix(title, repair.applicability, tuple(Edit(*edit) for edit in edits))


def _related(where: str | Path | Span, message: str, document: Document, shown: str) -> Related:
    if isinstance(where, Span):
        return Related(shown, message, range=_range(document, where))
    path = path_of(where)
    return Related(shown, message, pointer(document.in_file(path)), _range(document, locate(document, path, "member")))


def locate(document: Document, path: Path, on: str) -> Span | None:
    """The stretch of text to underline for a path, or for its nearest ancestor that is in the file. None in an empty document."""
    found: Member | Node | None = None
    while (found := document.lookup(path)) is None and path:
        path = path[:-1]
        on = "member"
    if found is None:
        return None
    if not isinstance(found, Member):
        return _opening(found)
    if on == "key" or (on == "member" and not _is_flat(found.value)):
        return found.key.span
    return found.span if on == "member" else _opening(found.value)


def _is_flat(node: Node) -> bool:
    return not isinstance(node, Mapping) and "\n" not in getattr(node, "raw", "")


def _opening(node: Node) -> Span:
    """The node's own span; of a section only the brace that opens it."""
    return Span(node.span.start, min(node.span.start + 1, node.span.end)) if isinstance(node, Mapping) else node.span


def _range(document: Document, span: Span | None) -> Range | None:
    if span is None:
        return None
    return Range(Place(*document.position(span.start)), Place(*document.position(span.end)))


def _place(diagnostic: Diagnostic) -> tuple[int, int, str]:
    return (diagnostic.range.start.offset, -diagnostic.severity.rank, diagnostic.code) if diagnostic.range else (-1, 0, diagnostic.code)
