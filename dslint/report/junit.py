"""JUnit XML, which GitLab, Jenkins and CircleCI show as tests: a suite for each file, a test for each rule that found something in it.

    <testsuites>
      <testsuite name="ds.json" ...>
        <testcase classname="ds.json" name="DS501 offload-param-below-stage-3">
          <failure type="warning" message="...">every finding of the rule, with its place</failure>

A test has one `failure` however many findings the rule has, because readers show only the first. A file without findings has one
passed test; a file that cannot be read has an `error`; suppressed findings and files that were not checked are `skipped`. A finding that
is not severe enough to fail the run (`fail-on`) is the output of a passed test. The output is ASCII; characters that XML cannot contain
are made visible.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TextIO
from xml.etree.ElementTree import Element, SubElement, indent, tostring

from dslint.diagnostics import Diagnostic
from dslint.lint.results import FileResult, Results
from dslint.report.style import Style, printable, visible, visible_lines
from dslint.report.words import count, location, note_of, said, suppressed_by


def write(results: Results, out: TextIO, style: Style) -> None:  # noqa: ARG001 - has neither colours nor a width
    """Write the results as JUnit XML."""
    root = Element("testsuites", name="dslint")
    root.extend(_suite(file) for file in results.files)
    for total in ("tests", "failures", "errors"):
        root.set(total, str(sum(int(suite.get(total, "0")) for suite in root)))
    indent(root)
    out.write('<?xml version="1.0" encoding="UTF-8"?>\n')
    out.write(tostring(root, encoding="us-ascii").decode("ascii") + "\n")


def _suite(file: FileResult) -> Element:
    cases = list(_cases(file))
    counts = {tag: sum(case.find(tag) is not None for case in cases) for tag in ("failure", "error", "skipped")}
    suite = Element(
        "testsuite",
        name=visible(file.path),
        tests=str(len(cases)),
        failures=str(counts["failure"]),
        errors=str(counts["error"]),
        skipped=str(counts["skipped"]),
        time="0",
        file=visible(file.path),
    )
    suite.extend(cases)
    if about := _about(file):
        SubElement(suite, "system-out").text = printable(about)
    return suite


def _about(file: FileResult) -> str:
    """What is said of a file as a whole, and why something in it was not checked, a line each."""
    return "\n".join([*filter(None, [note_of(file)]), *(f"not checked: {one.reason}" for one in file.not_judged)])


def _cases(file: FileResult) -> Iterator[Element]:
    if file.error is not None:
        yield _case(file, file.kind, "error", "unreadable", file.error, [visible(f"{file.path}: {file.error}")])
    elif not file.diagnostics:
        judged = file.is_judged
        note = _about(file) or ("" if judged else f"not checked: {file.kind}")
        yield _case(file, "no findings" if judged else file.kind, None if judged else "skipped", file.kind, note, [])
    for (code, name), found in _by_rule(file.diagnostics).items():
        message = found[0].message + (f" (and {count(len(found) - 1, 'more finding')})" if len(found) > 1 else "")
        loudest = max(found, key=lambda diagnostic: diagnostic.severity.rank)
        outcome = "failure" if file.fails_by(loudest) else "system-out"
        yield _case(file, f"{code} {name}", outcome, loudest.severity.value, message, map(_finding, found))
    for (code, name), silent in _by_rule(suppressed.diagnostic for suppressed in file.suppressed).items():
        reasons = dict.fromkeys(suppressed_by(s) for s in file.suppressed if (s.diagnostic.code, s.diagnostic.name) == (code, name))
        yield _case(file, f"{code} {name} (suppressed)", "skipped", "suppressed", "; ".join(reasons), map(_finding, silent))


def _by_rule(diagnostics: Iterable[Diagnostic]) -> dict[tuple[str, str], list[Diagnostic]]:
    rules: dict[tuple[str, str], list[Diagnostic]] = {}
    for diagnostic in diagnostics:
        rules.setdefault((diagnostic.code, diagnostic.name), []).append(diagnostic)
    return rules


def _finding(diagnostic: Diagnostic) -> str:
    return "\n".join([f"{visible(location(diagnostic))}: {diagnostic.severity.value}", *map(visible_lines, said(diagnostic))])


def _case(file: FileResult, name: str, outcome: str | None, kind: str, message: str, body: Iterable[str]) -> Element:
    """A test; `outcome` is the element for its result, None if it passed, `system-out` if it passed with output."""
    case = Element("testcase", classname=visible(file.path), name=visible(name), time="0")
    if outcome is not None:
        attributes = {} if outcome == "system-out" else {"type": visible(kind), "message": visible(message)}
        element = SubElement(case, outcome, attributes)
        element.text = printable("\n\n".join(body)) or None
    return case
