"""Building blocks of pages: escaped text, code, tables."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from typing import Any

_CODE = re.compile(r"(`+)(.+?)\1", re.DOTALL)
_ITEM = re.compile(r"([-*]|\d+\.) ")


def code(text: str) -> str:
    """A code span."""
    return f"`{text}`" if "`" not in text else f"`` {text} ``"


def literal(value: Any) -> str:
    """A value as in a config: `5e8` rather than `500000000`."""
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) >= 1_000_000 and value % 100_000 == 0:
        mantissa, _, exponent = f"{value:e}".partition("e")
        return f"{mantissa.rstrip('0').rstrip('.')}e{int(exponent)}"
    return json.dumps(list(value) if isinstance(value, tuple) else value, ensure_ascii=False)


def fence(text: str, language: str) -> str:
    """A block of code."""
    ticks = "````" if "```" in text else "```"
    return f"{ticks}{language}\n{text.rstrip()}\n{ticks}"


def escape(text: str) -> str:
    """Escaped text; `code` in backticks stays."""
    parts: list[str] = []
    end = 0
    for span in _CODE.finditer(text):
        parts += [_plain(text[end : span.start()]), span[0]]
        end = span.end()
    return "".join([*parts, _plain(text[end:])])


def _plain(text: str) -> str:
    text = text.replace("&", "&amp;").replace("<", "&lt;")
    text = re.sub(r"([*\[\]])", r"\\\1", text)
    return re.sub(r"(?<![^\W_])(_+)|(_+)(?![^\W_])", lambda match: "\\_" * len(match[0]), text)


def prose(text: str) -> str:
    """The paragraphs of a docstring: fenced and indented text stays, lists begin after a blank line."""
    lines: list[str] = []
    fenced = False
    for line in text.split("\n"):
        fences = line.lstrip().startswith("```")
        item = _ITEM.match(line.lstrip())
        if not fenced and item and lines and lines[-1].strip() and not _in_list(lines):
            lines.append("")
        if fenced or fences or (line.startswith("    ") and not _in_list(lines)):
            lines.append(line)
        else:
            sign = item[0] if item else ""
            indent = line[: len(line) - len(line.lstrip())]
            lines.append(indent + sign + line.lstrip()[len(sign) :])
        fenced ^= fences
    return "\n".join(lines)


def _in_list(lines: list[str]) -> bool:
    """Whether the block of the last line began with a list item."""
    block = list(reversed(lines))
    before = [line for line in block[: block.index("")] if line] if "" in block else block
    return bool(before) and bool(_ITEM.match(before[-1].lstrip()))


def table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """A table; bars in cells are escaped."""
    lines = [list(head)]
    lines += [["---"] * len(lines[0]), *map(list, rows)]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)


def blocks(*parts: str | None) -> str:
    """A page from its non-empty parts."""
    return "\n\n".join(part for part in parts if part) + "\n"
