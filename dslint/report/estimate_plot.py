"""A chart of an estimate or a sweep: stacked bars, one for each phase or value, with the GPU's limit. SVG, or HTML with a table."""

from __future__ import annotations

from html import escape

from dslint.facts.gpus import GIB
from dslint.memory.estimate import Estimate
from dslint.memory.ledger import PARTS, PHASES, Moment
from dslint.memory.sweep import Sweep
from dslint.record import Record
from dslint.report.estimate_page import ALLOWANCE, gib

COLORS = dict(
    zip(
        (*PARTS, ALLOWANCE),
        ("#4269d0", "#3ca951", "#97bbf5", "#6cc5b0", "#a463f2", "#9c6b4e", "#efb118", "#ff8ab7", "#ff725c", "#d4537e", "#9498a0"),
        strict=True,
    )
)
"""A colour for each part, distinct on white and on black."""

WIDTH, LEFT, RIGHT, TOP, BAR, STEP = 880, 120, 90, 64, 22, 34
ENTRIES = 4
"""Legend entries per line."""

STYLE = """svg{font:13px system-ui,sans-serif;background:#fff}text{fill:#1b1f24}.soft{fill:#656d76}.line{stroke:#d0d7de}
.range{stroke:#1b1f24;stroke-width:1.5;fill:none}
.limit{stroke:#cf222e;stroke-width:2;stroke-dasharray:5 3}.over{fill:#cf222e;font-weight:600}
.sum,.over{paint-order:stroke;stroke:#fff;stroke-width:4px}@media(prefers-color-scheme:dark){svg{background:#0d1117}text{fill:#e6edf3}.range{stroke:#e6edf3}.soft{fill:#9198a1}.line{stroke:#3d444d}
.limit{stroke:#ff7b72}.over{fill:#ff7b72}.sum,.over{stroke:#0d1117}}"""


class Bar(Record):
    """A bar: its label, its parts in bytes, in the order in which they are stacked, and the range of its total, if known."""

    label: str
    parts: tuple[tuple[str, int], ...]
    span: tuple[int, int] | None = None

    @property
    def end(self) -> int:
        """Where the bar or its range ends, in bytes."""
        return max(self.total, self.span[1] if self.span else 0)

    @property
    def total(self) -> int:
        """Bytes."""
        return sum(amount for _, amount in self.parts)


def picture(results: Estimate | Sweep, limit: int | None, *, html: bool) -> str:
    """The chart as SVG, or as an HTML page. `limit` is in bytes, None if there is nothing to compare with."""
    title, bars = _of_sweep(results) if isinstance(results, Sweep) else _of_estimate(results)
    drawn = _svg(title, bars, limit)
    return _page(title, drawn, bars) if html else drawn


def _of_estimate(found: Estimate) -> tuple[str, list[Bar]]:
    plan = found.plan
    title = f"{found.model.name}, {plan.world:,} ranks, ZeRO stage {plan.stage}: GPU memory, peak of each phase"
    spans = {found.phase: (found.device.low, found.device.high)}
    return title, [_bar(phase, found.peaks[phase], found.allowance.expected, spans.get(phase)) for phase in PHASES if phase in found.peaks]


def _of_sweep(found: Sweep) -> tuple[str, list[Bar]]:
    title = f"{found.points[0].model.name}: peak GPU memory by {found.name}"
    pairs = zip(found.values, found.points, strict=True)
    bars = []
    for value, point in pairs:
        span = point.device.low, point.device.high
        bars.append(_bar(f"{value:,} ({point.phase})", point.peak, point.allowance.expected, span))
    return title, bars


def _bar(label: str, moment: Moment, allowance: int, span: tuple[int, int] | None) -> Bar:
    parts = [(part, moment.parts[part]) for part in PARTS if moment.parts[part]]
    return Bar(label, (*parts, (ALLOWANCE, allowance)), span)


def _svg(title: str, bars: list[Bar], limit: int | None) -> str:
    used = [part for part in COLORS if any(part == name for bar in bars for name, _ in bar.parts)]
    base = TOP + STEP * len(bars)
    height = base + 46 + 22 * -(-len(used) // ENTRIES)
    step = _step(max(limit or 0, *(bar.end for bar in bars)))
    most = step * -(-max(limit or 0, *(bar.end for bar in bars)) // step)
    scale = (WIDTH - LEFT - RIGHT) / most
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}" role="img">',
        f"<title>{escape(title)}</title><style>{STYLE}</style>",
        f'<text x="16" y="26" font-weight="600">{escape(title)}</text>',
    ]
    for mark in range(0, most + 1, step):
        x = LEFT + mark * scale
        lines.append(f'<line class="line" x1="{x:.1f}" x2="{x:.1f}" y1="{TOP - 8}" y2="{base}"/>')
        lines.append(f'<text class="soft" x="{x:.1f}" y="{base + 16}" text-anchor="middle">{mark / GIB:g}</text>')
    lines.append(f'<text class="soft" x="{WIDTH - RIGHT + 30}" y="{base + 16}">GiB</text>')
    for number, bar in enumerate(bars):
        lines += _row(bar, TOP + STEP * number, scale)
    if limit:
        x = LEFT + limit * scale
        lines.append(f'<line class="limit" x1="{x:.1f}" x2="{x:.1f}" y1="{TOP - 14}" y2="{base}"/>')
        lines.append(f'<text class="over" x="{x:.1f}" y="{TOP - 18}" text-anchor="middle">limit {gib(limit)} GiB</text>')
    for number, bar in enumerate(bars):
        name = "over" if limit and bar.total > limit else "sum"
        lines.append(f'<text class="{name}" x="{LEFT + bar.end * scale + 6:.1f}" y="{TOP + STEP * number + 16}">{gib(bar.total)}</text>')
    lines += _legend(used, base + 34)
    return "\n".join([*lines, "</svg>", ""])


def _row(bar: Bar, y: int, scale: float) -> list[str]:
    lines = [f'<text x="{LEFT - 8}" y="{y + 16}" text-anchor="end">{escape(bar.label)}</text>']
    x = float(LEFT)
    for part, amount in bar.parts:
        hint = f"<title>{escape(part)}: {gib(amount)} GiB</title>"
        lines.append(f'<rect x="{x:.1f}" y="{y}" width="{amount * scale:.1f}" height="{BAR}" fill="{COLORS[part]}">{hint}</rect>')
        x += amount * scale
    if bar.span:
        low, high = (LEFT + size * scale for size in bar.span)
        middle, hint = y + BAR / 2, f"<title>range: {gib(bar.span[0])} to {gib(bar.span[1])} GiB</title>"
        path = f"M{low:.1f} {middle - 5}v10m0 -5H{high:.1f}m0 -5v10"
        lines.append(f'<path class="range" d="{path}">{hint}</path>')
    return lines


def _legend(parts: list[str], y: int) -> list[str]:
    lines = []
    for number, part in enumerate(parts):
        left, top = 16 + (WIDTH - 32) // ENTRIES * (number % ENTRIES), y + 22 * (number // ENTRIES)
        lines.append(f'<rect x="{left}" y="{top}" width="12" height="12" fill="{COLORS[part]}"/>')
        lines.append(f'<text x="{left + 18}" y="{top + 11}">{escape(part)}</text>')
    return lines


def _step(most: int) -> int:
    """The distance of the tick marks: 1, 2 or 5 times a power of ten of GiB, so that there are at most ten."""
    unit = GIB // 100
    while True:
        for times in (1, 2, 5):
            if most <= 10 * times * unit:
                return times * unit
        unit *= 10


def _page(title: str, drawn: str, bars: list[Bar]) -> str:
    used = [part for part in COLORS if any(part == name for bar in bars for name, _ in bar.parts)]
    head = "".join(f"<th>{escape(part)}</th>" for part in used)
    rows = "".join(_table_row(bar, used) for bar in bars)
    style = (
        ":root{color-scheme:light dark}body{font:15px system-ui,sans-serif;max-width:56rem;margin:2rem auto;padding:0 1rem}"
        "svg{max-width:100%;height:auto}.wide{overflow-x:auto}table{border-collapse:collapse;font-size:13px}"
        "th{white-space:nowrap}th,td{padding:4px 8px;text-align:right;border-bottom:1px solid #8888;font-variant-numeric:tabular-nums}"
    )
    return (
        f'<!doctype html>\n<html lang="en">\n<meta charset="utf-8">\n<meta name="viewport" content="width=device-width">\n'
        f"<title>{escape(title)}</title>\n<style>{style}</style>\n{drawn}"
        f'<p>GiB</p>\n<div class="wide"><table>\n<tr><th></th>{head}<th>total</th></tr>\n{rows}</table></div>\n</html>\n'
    )


def _table_row(bar: Bar, used: list[str]) -> str:
    amounts = dict(bar.parts)
    cells = "".join(f"<td>{gib(amounts.get(part, 0))}</td>" for part in used)
    return f"<tr><th>{escape(bar.label)}</th>{cells}<td><b>{gib(bar.total)}</b></td></tr>\n"
