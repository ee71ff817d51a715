"""The pictures of the terminal show what the commands print today: `python scripts/pictures.py` draws them."""

from __future__ import annotations

import re
import sys
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).resolve().parents[2] / "scripts"))

import pictures

SVG = "{http://www.w3.org/2000/svg}"


def letters(svg: str) -> list[str]:
    """The letters of each line of a picture, without blanks."""
    lines: dict[float, str] = {}
    for element in ET.fromstring(svg).iter(f"{SVG}text"):
        height = float(element.get("y", "0"))
        lines[height] = lines.get(height, "") + "".join(element.itertext())
    return [found for height in sorted(lines) if (found := re.sub(r"\s", "", lines[height]))]


@pytest.mark.slow  # each is printed by a process of its own, and most commands are tried with the documents
@pytest.mark.parametrize("picture", pictures.PICTURES, ids=lambda picture: picture.name)
def test_a_picture_shows_what_the_command_prints(picture: pictures.Picture) -> None:
    printed = re.sub(r"\x1b\[[\d;]*m", "", pictures.run(picture)).splitlines()
    shown = letters(picture.path.read_text(encoding="utf-8"))
    assert shown == [found for line in printed if (found := re.sub(r"\s", "", line))]


def test_pictures_load_nothing() -> None:
    texts = [picture.path.read_text(encoding="utf-8") for picture in pictures.PICTURES]
    assert [text for text in texts if "url(http" in text or "@import" in text or "<script" in text] == []
    readme = (pictures.ROOT / "README.md").read_text(encoding="utf-8")
    assert [picture.name for picture in pictures.PICTURES if f"docs/assets/{picture.name}.svg" not in readme] == []
