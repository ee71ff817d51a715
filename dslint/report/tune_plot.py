"""A chart of `dslint tune`: speed against memory of the present config and of the list, and the line of those that none beats in both."""

from __future__ import annotations

from html import escape

from dslint.facts.gpus import GIB
from dslint.record import Record
from dslint.report.estimate_page import gib
from dslint.report.estimate_plot import STYLE
from dslint.report.words import count
from dslint.tune.search import TuneResult

WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 880, 440, 80, 40, 64, 56

POINTS = ".front{stroke:#4269d0;stroke-width:2;fill:none}.point{fill:#4269d0}.now{fill:#ff725c}.span{stroke:#9498a0;stroke-width:1}"


class Point(Record):
    """A config: its label, samples per second (least, expected, most), and its peak in bytes (expected and high)."""

    label: str
    low: float
    speed: float
    high: float
    peak: int
    most: int


def points(result: TuneResult) -> list[Point]:
    """The present config, then those of the list."""
    now, plan = result.now.step, result.now.plan
    found = [_point("now", plan.samples, (now.low, now.seconds, now.high), result.found.device)]
    for number, one in enumerate(result.best, 1):
        step = one.candidate.step
        found.append(_point(str(number), one.candidate.plan.samples, (step.low, step.seconds, step.high), one.found.device))
    return found


def _point(label: str, samples: int, seconds: tuple[float, float, float], device: tuple[int, int, int]) -> Point:
    low, expected, high = seconds
    return Point(label, samples / high, samples / expected, samples / low, device[1], device[2])


def front(found: list[Point]) -> list[Point]:
    """The configs that no other one beats in speed and in memory, from the leanest on."""
    kept: list[Point] = []
    for point in sorted(found, key=lambda point: (point.peak, -point.speed)):
        if not kept or point.speed > kept[-1].speed:
            kept.append(point)
    return kept


def picture(result: TuneResult) -> str:
    """The chart as SVG."""
    found, limit = points(result), result.goal.device
    wide, high = max(limit, *(point.most for point in found)) * 1.02, max(point.high for point in found) * 1.05
    title = f"{result.found.model.name}, {count(result.now.plan.world, 'GPU')}: samples per second against the peak of a GPU"

    def place(peak: float, speed: float) -> tuple[float, float]:
        return LEFT + peak / wide * (WIDTH - LEFT - RIGHT), HEIGHT - BOTTOM - speed / high * (HEIGHT - TOP - BOTTOM)

    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}" role="img">',
        f"<title>{escape(title)}</title><style>{STYLE}{POINTS}</style>",
        f'<text x="16" y="26" font-weight="600">{escape(title)}</text>',
        f'<line class="line" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{HEIGHT - BOTTOM}" y2="{HEIGHT - BOTTOM}"/>',
        f'<line class="line" x1="{LEFT}" x2="{LEFT}" y1="{TOP}" y2="{HEIGHT - BOTTOM}"/>',
        f'<text class="soft" x="{WIDTH - RIGHT}" y="{HEIGHT - 16}" text-anchor="end">peak of a GPU, GiB</text>',
        f'<text class="soft" x="{LEFT}" y="{TOP - 10}">samples per second</text>',
    ]
    for part in range(5):
        x, y = place(limit * part / 4, high * part / 5)
        lines.append(f'<text class="soft" x="{x:.1f}" y="{HEIGHT - BOTTOM + 18}" text-anchor="middle">{limit * part / 4 / GIB:.3g}</text>')
        lines.append(f'<text class="soft" x="{LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{high * part / 5:.3g}</text>')
    x, _ = place(limit, 0)
    lines.append(f'<line class="limit" x1="{x:.1f}" x2="{x:.1f}" y1="{TOP}" y2="{HEIGHT - BOTTOM}"/>')
    lines.append(f'<text class="over" x="{x:.1f}" y="{TOP - 8}" text-anchor="end">limit {gib(limit)} GiB</text>')
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in (place(point.peak, point.speed) for point in front(found)))
    lines.append(f'<polyline class="front" points="{path}"/>')
    for point in found:
        x, y = place(point.peak, point.speed)
        far, least, most = place(point.most, 0)[0], place(0, point.low)[1], place(0, point.high)[1]
        lines.append(f'<line class="span" x1="{x:.1f}" x2="{far:.1f}" y1="{y:.1f}" y2="{y:.1f}"/>')
        lines.append(f'<line class="span" x1="{x:.1f}" x2="{x:.1f}" y1="{least:.1f}" y2="{most:.1f}"/>')
        kind = "now" if point.label == "now" else "point"
        hint = f"{point.speed:.3g} samples per second, {gib(point.peak)} GiB"
        lines.append(f'<circle class="{kind}" cx="{x:.1f}" cy="{y:.1f}" r="5"><title>{hint}</title></circle>')
        lines.append(f'<text x="{x + 8:.1f}" y="{y - 8:.1f}">{point.label}</text>')
    return "\n".join([*lines, "</svg>", ""])
