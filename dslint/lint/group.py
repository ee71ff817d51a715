"""Findings that belong together: those of a file with one cause, and the same finding in many files.

Suppression, fixes and the editor deal with each finding by itself; a report shows them together.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from math import inf

from dslint.diagnostics import Applicability, Diagnostic, Edit, Fix, Related, SharedCause
from dslint.lint.place import by_place
from dslint.lint.results import FileResult

MANY_PLACES = 3
"""From this number of places on, in one file or in many, a report shows the same finding once."""

SHOWN_KEYS = 20
"""How many keys the message of findings with one cause lists."""

SHOWN_TITLES = 3
"""How many titles of fixes the title of their combination lists."""

_RISK = (Applicability.SAFE, Applicability.UNSAFE, Applicability.DISPLAY)


def for_report(file: FileResult) -> FileResult:
    """The result as a report shows it: one finding for each cause, the most severe first, then by place."""
    groups = _by_cause(sorted(file.diagnostics, key=_by_severity))
    return file._replace(diagnostics=tuple(_merged(group) if len(group) > 1 else group[0] for group in groups))


def count_for_report(findings: Iterable[Diagnostic]) -> int:
    """How many findings a report shows for those of a file: one for each cause."""
    return len(_by_cause(findings))


def _by_cause(findings: Iterable[Diagnostic]) -> list[list[Diagnostic]]:
    groups: dict[object, list[Diagnostic]] = {}
    for index, one in enumerate(findings):
        groups.setdefault(index if one.cause is None else (one.cause.name, one.certain), []).append(one)
    return list(groups.values())


def _by_severity(diagnostic: Diagnostic) -> tuple[int, float, tuple[int, int, str]]:
    """Orders findings by severity, and crashes among them by when they happen: whoever runs the job meets the first."""
    return -diagnostic.severity.rank, inf if diagnostic.order is None else diagnostic.order, by_place(diagnostic)


def _merged(group: list[Diagnostic]) -> Diagnostic:
    """One finding for several with the same cause, in the order of a report: the worst and earliest, with the places of the others."""
    first, *others = group
    cause = first.cause
    assert cause is not None
    elsewhere = [d for d in others if (d.code, d.path, d.range) != (first.code, first.path, first.range)]
    places = tuple(Related(d.path, d.code if d.code != first.code else "", d.pointer, d.range) for d in elsewhere)
    related = tuple(dict.fromkeys(one for d in group for one in d.related))
    return first._replace(
        message=_message(cause, group),
        help=first.help if _is_one_key(group) else cause.help or first.help,
        related=(*places, *related),
        fix=_combined([d.fix for d in group if d.fix]),
    )


def _is_one_key(group: list[Diagnostic]) -> bool:
    """Whether findings are about the same key, which several branches of a program write."""
    return len({d.pointer for d in group}) == 1 and bool(group[0].pointer)


def _message(cause: SharedCause, group: list[Diagnostic]) -> str:
    if _is_one_key(group):
        return group[0].message
    firsts: dict[str, Diagnostic] = {}
    for one in group:
        firsts.setdefault(one.pointer or "", one)
    keys = [_key(one) for one in firsts.values()]
    more = [f"and {len(keys) - SHOWN_KEYS:,} more"] if len(keys) > SHOWN_KEYS else []
    return cause.message.replace("{count}", f"{len(keys):,}").replace("{keys}", ", ".join(keys[:SHOWN_KEYS] + more))


def _key(diagnostic: Diagnostic) -> str:
    """The key that a finding is about, with what happens there."""
    key = ".".join(filter(None, (diagnostic.pointer or "").split("/"))).replace("~1", "/").replace("~0", "~")
    return f"{key} ({diagnostic.cause.at_key})" if diagnostic.cause is not None and diagnostic.cause.at_key else key


def _combined(fixes: list[Fix]) -> Fix | None:
    """The fixes as one, which is as risky as the riskiest of them. Of two that touch the same text the first is made.

    The title tells of all, because `--fix` makes the others in its next pass.
    """
    kept: list[Fix] = []
    edits: list[Edit] = []
    for fix in fixes:
        if all(_apart(new, old) for new in fix.edits for old in edits):
            kept.append(fix)
            edits += [edit for edit in fix.edits if edit not in edits]
    if not kept:
        return None
    titles = list(dict.fromkeys(fix.title for fix in fixes))
    more = len(titles) - SHOWN_TITLES
    title = "; ".join(titles[:SHOWN_TITLES]) + (f"; and {more} more" if more > 0 else "")
    return Fix(title, max((fix.applicability for fix in kept), key=_RISK.index), tuple(edits))


def _apart(one: Edit, other: Edit) -> bool:
    """Whether two edits can be made together: they do not touch, or both delete."""
    first, second = sorted((one, other), key=lambda edit: (edit.start, edit.end))
    return first.end < second.start or (first.end == second.start and not first.content and not second.content)


def same_in_many(files: Iterable[FileResult]) -> dict[Diagnostic, tuple[Diagnostic, ...]]:
    """For the first of findings that are the same at `MANY_PLACES` places or more: the others. With a cause across files two files are
    enough, and at one place two findings are.

    Findings are the same if they are of one rule and one severity, and their messages differ only in numbers and in the names of
    programs and of checked files. At one place that happens where several launches start a program.
    """
    files = list(files)
    groups: dict[tuple[str, str, str], list[Diagnostic]] = {}
    names = _names([file.path for file in files])
    for file in files:
        for d in file.diagnostics:
            groups.setdefault((d.code, d.severity, names.sub("", d.message)), []).append(d)
    same: dict[Diagnostic, tuple[Diagnostic, ...]] = {}
    for group in groups.values():
        if len({(d.path, d.pointer, d.range) for d in group}) >= MANY_PLACES or len({d.path for d in group}) >= _enough(group[0]):
            same[group[0]] = tuple(group[1:])
            continue
        at_place: dict[object, list[Diagnostic]] = {}
        for d in group:
            at_place.setdefault((d.path, d.pointer, d.range) if d.range is not None else d, []).append(d)
        same |= {here[0]: tuple(here[1:]) for here in at_place.values() if len(here) > 1}
    return same


def _names(paths: list[str]) -> re.Pattern[str]:
    """What messages of the same finding may differ in: numbers, the names of files, and which cell of a notebook."""
    of_files = sorted(map(re.escape, paths), key=len, reverse=True)
    of_any = r"(?<![\w/.-])[\w./-]+\.(?:py|sh|ipynb)(?![\w/-])"
    return re.compile("|".join([*(rf"(?<![\w/.-]){path}(?![\w/-])(?::cell \d+)?" for path in of_files), of_any, r"\d[\d.,e+-]* ?"]))


def _enough(diagnostic: Diagnostic) -> int:
    """From how many files on a report shows the same finding once."""
    return 2 if diagnostic.cause is not None and diagnostic.cause.across else MANY_PLACES
