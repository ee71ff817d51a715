#!/usr/bin/env python3
"""Draw what dslint prints as pictures for the documents (requires `pip install ".[docs]"`).

    python scripts/pictures.py

Each picture is a command on the files of examples/ and its real output in colour, as an SVG file in docs/assets. The suite compares their
text with what the commands print today.
"""

from __future__ import annotations

import io
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / "docs" / "assets"
COLUMNS = 80

FORMAT = """<svg viewBox="0 0 {width} {height}" role="img" xmlns="http://www.w3.org/2000/svg">
<style>
.{unique_id}-matrix {{
  font: {char_height}px/{line_height}px ui-monospace, "SF Mono", Menlo, Consolas, "DejaVu Sans Mono", monospace;
}}
.{unique_id}-title {{ font-size: 18px; font-family: sans-serif; }}
{styles}
</style>
<defs>
<clipPath id="{unique_id}-clip-terminal"><rect x="0" y="0" width="{terminal_width}" height="{terminal_height}" /></clipPath>
{lines}
</defs>
{chrome}
<g transform="translate({terminal_x}, {terminal_y})" clip-path="url(#{unique_id}-clip-terminal)">
{backgrounds}
<g class="{unique_id}-matrix">
{matrix}
</g>
</g>
</svg>
"""
"""rich's own format without the fonts that it loads from another host."""


class Picture(NamedTuple):
    """A picture: its name, the command after `dslint`, and after how many lines it ends (0: none is left out)."""

    name: str
    command: str
    lines: int = 0

    @property
    def path(self) -> Path:
        """The SVG file."""
        return FOLDER / f"{self.name}.svg"


PICTURES = (
    Picture("check", "check examples/misspelt.json --integration deepspeed"),
    Picture(
        "estimate",
        "estimate examples/zero3.json --model llama-3-8b --world-size 16 --nodes 2 --gpu a100 --sequence-length 4096 "
        "--activation-checkpointing",
        25,
    ),
    Picture(
        "fit", "fit examples/zero3.json --model llama-3-8b --sequence-length 2048 --world-size 2 --gpu a100-40gb --host-memory 512GiB", 40
    ),
    Picture("diagnose", "diagnose examples/logs/out-of-memory.log", 40),
)


def run(picture: Picture) -> str:
    """What the command prints, with the command above it and in colour; where lines are left out, an ellipsis ends it."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "COLUMNS": str(COLUMNS)}
    program = "import dslint.facts.find_release as r; r.installed = lambda: None; from dslint.cli import main; main()"
    command = [sys.executable, "-c", program, *shlex.split(picture.command), "--color", "always"]
    done = subprocess.run(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, encoding="utf-8", check=False)
    lines = [line for line in done.stdout.splitlines() if not re.search(r"\brules? skipped\b|^Assuming ", line)]
    if 0 < picture.lines < len(lines):
        lines = [*lines[: picture.lines], "…"]
    return "\n".join([*_typed(f"$ dslint {picture.command}"), *lines]) + "\n"


def _typed(command: str) -> list[str]:
    """The command in as many lines as it needs, as people break it."""
    lines: list[str] = []
    line = ""
    for word in command.split(" "):
        if len(line) + len(word) + 3 > COLUMNS:
            lines, line = [*lines, f"{line} \\"], "   "
        line = f"{line} {word}" if line else word
    return [*lines, line]


def draw(text: str, name: str) -> str:
    """A text with colours as an SVG picture."""
    from rich.console import Console
    from rich.terminal_theme import DIMMED_MONOKAI
    from rich.text import Text

    console = Console(record=True, width=COLUMNS, file=io.StringIO(), force_terminal=True, color_system="truecolor", highlight=False)
    console.print(Text.from_ansi(text), end="")
    return console.export_svg(title="", theme=DIMMED_MONOKAI, code_format=FORMAT, unique_id=name)


def main() -> None:
    """Draw all pictures."""
    for picture in PICTURES:
        picture.path.write_text(draw(run(picture), picture.name), encoding="utf-8")


if __name__ == "__main__":
    main()
