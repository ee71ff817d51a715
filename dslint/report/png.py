"""SVG to PNG, with resvg from the extra `plot`, which needs neither a browser nor a plotting library."""

from __future__ import annotations

from dslint.project import install_command

FAMILIES = (None, "DejaVu Sans", "Liberation Sans", "Noto Sans", "Arial", "Helvetica")
"""Fonts to draw with: the machine's default, else the first of these that is installed."""

SCALE = 2
"""Pixels for each unit of the SVG, so that text stays sharp on paper and on dense screens."""

LETTER = '<svg xmlns="http://www.w3.org/2000/svg" width="20" height="20"><text x="2" y="16" font-family="sans-serif">{}</text></svg>'


class NoRenderer(Exception):
    """A PNG cannot be drawn on this machine. The text is a sentence for the user."""


def png(svg: str) -> bytes:
    """The SVG as PNG, on white.

    Raises:
        NoRenderer: resvg or a usable font is not installed.
    """
    try:
        from resvg_py import svg_to_bytes
    except ImportError:
        raise NoRenderer(f"PNG output requires resvg: {install_command('plot')}, or write a .svg") from None
    blank = svg_to_bytes(svg_string=LETTER.format(""))
    for family in FAMILIES:
        if svg_to_bytes(svg_string=LETTER.format("M"), sans_serif_family=family) != blank:
            return bytes(svg_to_bytes(svg_string=svg, background="#ffffff", zoom=SCALE, sans_serif_family=family))
    raise NoRenderer("no usable font is installed on this machine; write a .svg instead")
