"""The HTML format of `dslint diagnose`: one page without scripts, with a chart of the memory over the lines of the log."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from html import escape

from dslint.diagnose.diagnosis import Diagnosis, LikelyCause
from dslint.diagnose.job import LoggedJob, MemoryMoment
from dslint.diagnose.summary import rows
from dslint.report.html_shell import footer, head
from dslint.report.style import clipped, visible

WIDTH, HEIGHT = 900, 300
LEFT, RIGHT, TOP, BOTTOM = 70, 20, 20, 40
LONGEST = 1000
"""The most characters of a line of evidence."""

STYLE = """
.line { color: var(--dim) } svg { height: auto; max-width: 100% } svg text { fill: var(--text) }
.cause { border-left: 4px solid var(--error); padding-left: 1rem }
.notice { border-left: 4px solid var(--warning); padding-left: 1rem } .todo { color: var(--good) }
"""


def as_html(found: Sequence[Diagnosis]) -> str:
    """The diagnoses as a page."""
    body = "\n".join(line for number, one in enumerate(found, 1) for line in _job(one, f" {number}" if len(found) > 1 else ""))
    return f"{head('dslint diagnose', STYLE)}\n{body}\n{footer()}\n</body></html>"


def _job(found: Diagnosis, number: str) -> Iterator[str]:
    yield f"<h1>Job{number}: {_text(found.outcome.end.value)}</h1><p>{_text(found.outcome.sentence)}</p>"
    yield from (f"<p>{_text(problem)}.</p>" for problem in found.unread)
    for kind, causes in (("cause", found.causes), ("notice", found.notices)):
        for cause in causes:
            yield from _cause(kind, cause)
    facts = "".join(
        f'<tr><th>{_text(row.name)}</th><td>{_text(row.value)}</td><td class="line">{_text(found.at(row.place))}</td></tr>'
        for row in rows(found.job)
    )
    if facts:
        yield f"<h2>What ran</h2><table>{facts}</table>"
    if found.job.moments:
        yield f"<h2>Memory of rank 0, in GiB</h2>{chart(found.job)}"
    for one in found.measured:
        told = f", {one.estimated:.2f} GiB estimated" if one.estimated is not None else ""
        yield f"<p>{_text(one.moment.label)}: {one.moment.now:.2f} GiB measured{told}</p>"
    yield f"<p>{_text(found.not_estimated)}</p>" if found.not_estimated else ""
    if found.findings:
        yield f"<h2>{_text(found.rules_title)}</h2><ul>"
        yield from (
            f"<li><b>{_text(finding.code)}</b> {_text(found.with_place(finding))} {_text(finding.help or '')}</li>"
            for finding in found.findings
        )
        yield "</ul>"


def _cause(kind: str, cause: LikelyCause) -> Iterator[str]:
    yield f'<div class="{kind}"><h2>{_text(cause.title)}</h2>'
    yield f"<p>{_text(cause.where)}</p>" if cause.where else ""
    yield from (f"<p>{_text(sentence)}</p>" for sentence in cause.why)
    for advice, changes in cause.steps:
        yield f'<p class="todo">&#8594; {_text(advice)}</p>'
        yield _preformatted(changes)
    yield _preformatted("\n".join(clipped(f"{shown.place}: {shown.text}", LONGEST) for shown in cause.evidence))
    yield "</div>"


def _preformatted(text: str) -> str:
    """A text as it is printed; nothing for an empty text."""
    return f"<pre>{chr(10).join(_text(line) for line in text.splitlines())}</pre>" if text else ""


def chart(job: LoggedJob) -> str:
    """The memory over the moments at which DeepSpeed or Megatron printed it, as SVG: what tensors held, and their peaks."""
    moments = job.moments
    capacity = job.get("gpu_capacity") or 0
    most = max(capacity, *(moment.most for moment in moments), *(moment.now for moment in moments), 0.01)

    def across(index: int) -> float:
        return LEFT + (index + 0.5) / len(moments) * (WIDTH - LEFT - RIGHT)

    def up(size: float) -> float:
        return HEIGHT - BOTTOM - size / most * (HEIGHT - TOP - BOTTOM)

    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" font-size="11">']
    for share in (0.0, 0.25, 0.5, 0.75, 1.0):
        y = up(share * most)
        parts.append(f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}" stroke="#ccc"/>')
        parts.append(f'<text x="{LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{share * most:.1f}</text>')
    parts += (_bar(moment, across(index), up, (WIDTH - LEFT - RIGHT) / len(moments) * 0.8) for index, moment in enumerate(moments))
    if capacity:
        y = up(capacity)
        parts.append(f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}" stroke="#c00" stroke-dasharray="6 4"/>')
    parts.append(
        f'<text x="{LEFT}" y="{HEIGHT - 10}">dark: held by tensors; light: peak since the moment before; dashed: the GPU</text></svg>'
    )
    return "\n".join(parts)


def _bar(moment: MemoryMoment, x: float, up: Callable[[float], float], width: float) -> str:
    floor = up(0.0)
    title = f"{_text(moment.label)} (line {moment.place.line}): {moment.now:.2f} GiB, peak {moment.most:.2f} GiB"
    left = x - width / 2
    return (
        f"<g><title>{title}</title>"
        f'<rect x="{left:.1f}" y="{up(moment.most):.1f}" width="{width:.1f}" height="{floor - up(moment.most):.1f}" fill="#a9c3e6"/>'
        f'<rect x="{left:.1f}" y="{up(moment.now):.1f}" width="{width:.1f}" height="{floor - up(moment.now):.1f}" fill="#1f4e9c"/></g>'
    )


def _text(text: str) -> str:
    return escape(visible(text))
