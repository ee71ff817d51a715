"""Whatever a file, a path or a message holds, and wherever a finding points: every format writes it, and no terminal has to fear it."""

from __future__ import annotations

import json
import re
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dslint.config.context import Context
from dslint.diagnostics import Applicability, Diagnostic, Edit, Effect, Fix, Phase, Place, Range, Related, Severity
from dslint.lint.results import FileResult, Results, Skipped, Suppressed, SuppressedBy
from dslint.report.style import visible
from dslint.settings.table import FORMATS
from dslint.source.tree import Document, Key, Mapping, Member, Node, Scalar, Sequence, Span

from . import readers
from .runner import read
from .scenes import RULES, written

pytestmark = pytest.mark.slow

MARKUP = (
    *"\\`*_[](){}<>!|~&$#@:.-+=^%'\"0aZ \n\t",
    *("http://x.y", "www.x.y", "a@b.cd", "@team", "#1", "x/y#1", "GH-1", "JIRA-12", "0123abc", ":x:", "](1)", "[x](http://y)", "]]>"),
    *("<b>", "<!--", "-->", "&amp;", "&#64;", "</td>", "</details>", "<script>", "\\|", "- ", "1. ", "    ", "---", "```", "$x$", "[^1]"),
)
PIECES = {0xE000 + number: piece for number, piece in enumerate(MARKUP)}
MARKED = st.text(st.sampled_from([chr(piece) for piece in PIECES]), max_size=40).map(lambda text: text.translate(PIECES))
ANY = st.text(st.one_of(st.characters(), st.sampled_from('\t\r\n\x1b\x00\u0301\u202e\ud800\ufffe\uffff型: {}"')), max_size=300)
TEXT = st.one_of(ANY, MARKED)
SHORT = st.one_of(st.text(max_size=30), MARKED)
NUMBER = st.integers(0, 400)


@st.composite
def documents(draw: st.DrawFn) -> Document:
    """A text and a tree that need not belong together, as may be after a mend."""
    spans = st.builds(lambda start, size: Span(start, start + size), NUMBER, NUMBER)
    scalars: st.SearchStrategy[Node] = st.builds(lambda span: Scalar(span, "x", "x"), spans)

    def sections(nodes: st.SearchStrategy[Node]) -> st.SearchStrategy[Node]:
        members = st.builds(lambda span, name, node: Member(Key(span, name, name), node), spans, SHORT, nodes)
        return st.builds(Mapping, spans, st.lists(members, max_size=3)) | st.builds(Sequence, spans, st.lists(nodes, max_size=3))

    root = st.none() | st.recursive(scalars, sections, max_leaves=4)
    return Document(draw(st.one_of(TEXT, TEXT.map(lambda text: text * 20))), draw(root))


PLACES = st.builds(Place, NUMBER, NUMBER, NUMBER)
RANGES = st.none() | st.builds(Range, PLACES, PLACES)
PATHS = st.sampled_from(["a.json", "b.json", "evil\x1b\n::error::.json", "\udce9"])
ODD_PATHS = st.one_of(PATHS, st.sampled_from(["<stdin>", "/x/y.json", "../up.json", "| <b>@x</b> [a](b).json", "\ud800"]))


def diagnostics() -> st.SearchStrategy[Diagnostic]:
    related = st.builds(Related, ODD_PATHS, TEXT, st.none() | SHORT, RANGES)
    fixes = st.builds(Fix, SHORT, st.sampled_from(Applicability), st.lists(st.builds(Edit, NUMBER, NUMBER, SHORT), max_size=2).map(tuple))
    return st.builds(
        Diagnostic,
        ODD_PATHS,
        st.sampled_from(["DS101", "DS501"]),
        SHORT,
        st.sampled_from(Severity),
        st.sampled_from(Effect),
        st.none() | st.sampled_from(Phase),
        TEXT,
        st.none() | TEXT,
        st.none() | SHORT,
        st.none() | SHORT,
        RANGES,
        st.lists(related, max_size=3).map(tuple),
        st.none() | fixes,
    )


FILES = st.builds(
    FileResult,
    ODD_PATHS,
    st.sampled_from(["ds_config", "template", "unreadable"]),
    st.none() | documents(),
    st.lists(diagnostics(), max_size=3).map(tuple),
    st.lists(st.builds(Skipped, st.just("DS201"), st.sampled_from(["world_size", "model"])), max_size=2).map(tuple),
    st.none() | TEXT,
    st.none() | TEXT,
    st.builds(Context, evidence=st.lists(st.tuples(st.just("world_size"), TEXT), max_size=1).map(tuple)),
    st.lists(st.builds(Suppressed, diagnostics(), st.sampled_from(SuppressedBy), st.none() | TEXT), max_size=2).map(tuple),
    st.just(frozenset()),
    st.just("warning"),
    st.just(()),
)
RESULTS = st.builds(Results, st.just(Context()), st.lists(FILES, max_size=3).map(tuple), st.sampled_from([(), RULES]))


@settings(max_examples=100, deadline=None)
@given(RESULTS, st.integers(1, 130))
@pytest.mark.parametrize("output_format", ["full", "concise"])
def test_people_never_see_a_raw_control_character(output_format: str, results: Results, width: int) -> None:
    text = written(results, output_format, width=width)
    assert all(line.isprintable() for line in text.split("\n"))
    assert text == "" or text.endswith("\n")
    colored = written(results, output_format, width=width, color=True)
    assert re.sub(r"\x1b\[[\d;]+m", "", colored) == text


@settings(max_examples=100, deadline=None)
@given(RESULTS)
def test_a_line_per_finding(results: Results) -> None:
    matcher = re.compile(r"^(.+?):(\d+):(\d+): (error|warning|info) (?:(DS\w+) )?\[([^\]]+|.*)\] (.*)$")
    lines = written(results, "concise").split("\n")[:-1]
    findings = sum(len(file.diagnostics) + (file.error is not None) for file in results.files)
    assert all(matcher.match(line) for line in lines[:findings])
    assert len(lines[findings:]) <= 2  # the summary: what was found, and what can be fixed
    assert not any(matcher.match(line) for line in lines[findings:])


@settings(max_examples=100, deadline=None)
@given(RESULTS)
def test_programs_read_it(results: Results) -> None:
    output = json.loads(written(results, "json"))
    assert len(output["diagnostics"]) == len(results.diagnostics)
    json.dumps(output, ensure_ascii=False).encode("utf-8")


@settings(max_examples=100, deadline=None)
@given(RESULTS)
def test_the_runner_obeys_no_command_but_ours(results: Results) -> None:
    commands, log = read(written(results, "github"))
    assert len(commands) == sum(len(file.diagnostics) + (file.error is not None) for file in results.files)
    assert {command.name for command in commands} <= {"error", "warning", "notice"}
    shown = {
        "a.json",
        "b.json",
        visible("evil\x1b\n::error::.json"),
        "\\udce9",
        None,
        "/x/y.json",
        "../up.json",
        "| <b>@x</b> [a](b).json",
        "\\ud800",
    }
    assert {command.properties.get("file") for command in commands} <= shown
    assert "\n".join(log).startswith(written(results, "full"))


@settings(max_examples=100, deadline=None)
@given(RESULTS)
def test_every_line_is_an_object(results: Results) -> None:
    lines = [readers.strict_json(line) for line in written(results, "jsonl").split("\n")[:-1]]
    kinds = Counter(line["type"] for line in lines)
    assert kinds == Counter(file=len(results.files), diagnostic=len(results.diagnostics), suppressed=len(results.suppressed), summary=1)
    assert lines[-1]["type"] == "summary"


@settings(max_examples=100, deadline=None)
@given(RESULTS)
def test_gitlab_reads_it(results: Results) -> None:
    findings = readers.gitlab(written(results, "gitlab"))
    assert len(findings) == len(results.diagnostics) + sum(file.error is not None for file in results.files)


@settings(max_examples=100, deadline=None)
@given(RESULTS)
def test_code_scanning_reads_it(results: Results) -> None:
    run = readers.sarif(written(results, "sarif"))
    assert len(run["results"]) == len(results.diagnostics) + len(results.suppressed)
    assert sum("suppressions" in result for result in run["results"]) == len(results.suppressed)
    levels = [notification["level"] for notification in run["invocations"][0]["toolExecutionNotifications"]]
    assert levels.count("error") == sum(file.error is not None for file in results.files)


@settings(max_examples=100, deadline=None)
@given(RESULTS)
def test_jenkins_reads_it(results: Results) -> None:
    root = readers.junit(written(results, "junit"))
    assert [suite.get("name") for suite in root] == [visible(file.path) for file in results.files]
    assert root.get("errors") == str(sum(file.error is not None for file in results.files))


@settings(max_examples=200, deadline=None)
@given(RESULTS)
def test_markdown_holds_nothing_but_text(results: Results) -> None:
    findings = readers.markdown(written(results, "markdown"))
    assert len(findings) == len(results.diagnostics) + sum(file.error is not None for file in results.files)


def test_every_format_is_tried() -> None:
    assert set(FORMATS) == {"full", "concise", "json", "jsonl", "github", "gitlab", "sarif", "junit", "markdown", "html"}
