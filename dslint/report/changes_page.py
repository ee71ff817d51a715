"""What changed in the config between two releases, as terminal text and as Markdown."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import groupby

from dslint.report.style import Style, wrap
from dslint.report.words import count
from dslint.schemas.changes import Change

KINDS = {
    "gone": "gone",
    "stricter": "stricter",
    "meaning": "meaning",
    "default": "default",
    "range": "range",
    "choices": "choices",
    "deprecated": "deprecated",
    "new": "new",
}
COLORS = {"gone": "red", "stricter": "red", "meaning": "yellow", "default": "yellow"}


def text(changes: Iterable[Change], style: Style) -> str:
    """The changes by release, a paragraph each."""
    lines: list[str] = []
    total = 0
    for release, of_release in groupby(changes, key=lambda change: change.release):
        lines += [style.paint(f"DeepSpeed {release}", "bold")]
        for change in of_release:
            total += 1
            word = f"{change.kind:<10}"
            painted = style.paint(word, COLORS[change.kind]) if change.kind in COLORS else word
            sentence = f"{change.key}: {change.text}" if change.key and change.text else change.key or change.text
            first, *rest = wrap(sentence, style.width - 14)
            lines += [f"  {painted}  {first}", *(" " * 14 + line for line in rest)]
        lines.append("")
    return "\n".join([*lines, f"{count(total, 'change')}."])


def markdown(changes: Iterable[Change]) -> str:
    """The changes as sections of a page, the newest release first."""
    by_release = [(release, list(of_release)) for release, of_release in groupby(changes, key=lambda change: change.release)]
    return "\n".join(line for release, of_release in reversed(by_release) for line in _section(str(release), of_release))


def _section(title: str, changes: list[Change]) -> Iterator[str]:
    yield f"## {title}"
    yield ""
    for change in changes:
        key = f"`{change.key}`" if change.key else "all sections"
        yield f"- **{KINDS[change.kind]}** {key}" + (f": {change.text}" if change.text else "")
    yield ""
