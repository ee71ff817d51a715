"""A chart of memory over time as SVG, with the phases in its background."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby

from dslint.facts.gpus import in_words
from dslint.probe.answer import PHASES
from dslint.probe.result import ProbeResult
from dslint.report.style import visible

WIDTH, HEIGHT = 960, 420
LEFT, RIGHT, TOP, BOTTOM = 90, 20, 50, 60
COLORS = dict(zip(PHASES, ("#e8e8e8", "#d9e6f5", "#dcefdc", "#fdecd2", "#f7dcdc"), strict=True))
DEVICE, HOST = "#1f4e9c", "#b5541c"

Point = tuple[int, int, int, str]


def svg(result: ProbeResult) -> str:
    """The chart of a result with a timeline: bytes on the device and on the host over the number of operations."""
    points = result.answer.timeline
    apart = "device" in result.answer.memory
    courses = {"device": (DEVICE, [point[1] for point in points])} if apart else {}
    courses["host" if apart else "tensors in host memory"] = HOST, [point[2] for point in points]
    limit = result.limit.size if result.limit and apart else 0
    first, last = points[0][0], max(points[-1][0], points[0][0] + 1)
    most = max(limit, 1, *(size for _, sizes in courses.values() for size in sizes))

    def across(operations: int) -> float:
        return LEFT + (operations - first) / (last - first) * (WIDTH - LEFT - RIGHT)

    def up(size: int) -> float:
        return HEIGHT - BOTTOM - size / most * (HEIGHT - TOP - BOTTOM)

    answer = result.answer
    title = f"{result.path}: rank {answer.rank} of {answer.world_size}, {answer.model}"
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" font-size="12">',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
        f'<text x="{LEFT}" y="20" font-size="14">{_escaped(visible(title))}</text>',
    ]
    for phase, start, end in _phases(points):
        x, width = across(start), across(end) - across(start)
        parts.append(
            f'<rect x="{x:.1f}" y="{TOP}" width="{width:.1f}" height="{HEIGHT - TOP - BOTTOM}" fill="{COLORS[phase]}">'
            f"<title>{phase}</title></rect>"
        )
    for share in (0.0, 0.25, 0.5, 0.75, 1.0):
        y = up(round(share * most))
        parts.append(f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}" stroke="#999" stroke-width="0.5"/>')
        parts.append(f'<text x="{LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{in_words(round(share * most)) if share else 0}</text>')
    for name, (color, sizes) in courses.items():
        corners = " ".join(_steps((across(point[0]), up(size)) for point, size in zip(points, sizes, strict=True)))
        parts.append(f'<polyline points="{corners}" fill="none" stroke="{color}" stroke-width="1.5"><title>{name}</title></polyline>')
    if limit:
        parts.append(
            f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{up(limit):.1f}" y2="{up(limit):.1f}" stroke="#c00000" stroke-dasharray="6 4">'
            f"<title>{in_words(limit)}</title></line>"
        )
        parts.append(f'<text x="{WIDTH - RIGHT - 4}" y="{up(limit) + 14:.1f}" text-anchor="end" fill="#c00000">{_limit(result)}</text>')
    x = float(LEFT)
    present = {point[3] for point in points}
    labels = {**{name: color for name, (color, _) in courses.items()}, **{phase: COLORS[phase] for phase in PHASES if phase in present}}
    for label, color in labels.items():
        parts.append(f'<rect x="{x}" y="{HEIGHT - 32}" width="12" height="12" fill="{color}" stroke="#666" stroke-width="0.5"/>')
        parts.append(f'<text x="{x + 17}" y="{HEIGHT - 22}">{label}</text>')
        x += 40 + 7 * len(label)
    parts.append(f'<text x="{WIDTH - RIGHT}" y="{HEIGHT - 6}" text-anchor="end">operations, from the first to the last</text>')
    return "\n".join([*parts, "</svg>", ""])


def _phases(points: tuple[Point, ...]) -> Iterator[tuple[str, int, int]]:
    """Intervals of one phase: its name, its start, and the start of the next one."""
    runs = [(phase, next(group)[0]) for phase, group in groupby(points, key=lambda point: point[3])]
    ends = [*(start for _, start in runs[1:]), points[-1][0]]
    for (phase, start), end in zip(runs, ends, strict=True):
        yield phase, start, end


def _steps(corners: Iterator[tuple[float, float]]) -> Iterator[str]:
    """The points of a step function: a level holds until the next point."""
    before: float | None = None
    for x, y in corners:
        if before is not None:
            yield f"{x:.1f},{before:.1f}"
        yield f"{x:.1f},{y:.1f}"
        before = y


def _limit(result: ProbeResult) -> str:
    assert result.limit is not None
    return _escaped(f"{in_words(result.limit.size)} ({result.limit.source})")


def _escaped(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
