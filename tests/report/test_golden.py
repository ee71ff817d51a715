"""What each format looks like, scene by scene."""

from __future__ import annotations

import re

import pytest

from dslint import __version__
from dslint.facts import NEWEST
from dslint.settings.table import FORMATS

from . import golden
from .scenes import SCENES, findings, written


@pytest.mark.parametrize("output_format", FORMATS)
@pytest.mark.parametrize("scene", SCENES)
def test_a_scene_is_written_as_before(scene: str, output_format: str) -> None:
    text = written(SCENES[scene](), output_format)
    releases = {"dslint": __version__, "version": __version__, "semanticVersion": __version__, "deepspeed": NEWEST}
    for key, release in releases.items():
        text = text.replace(f'"{key}": "{release}"', f'"{key}": "*"')
    golden.check(f"{scene}.{output_format}", text)


def test_in_colour() -> None:
    golden.check("findings.full.color", written(findings(), "full", color=True))


def test_in_a_narrow_terminal() -> None:
    golden.check("findings.full.narrow", written(findings(), "full", width=40))


@pytest.mark.parametrize("scene", SCENES)
def test_colour_carries_no_meaning_of_its_own(scene: str) -> None:
    for output_format in FORMATS:
        if output_format != "github":  # there the word that ends the log is made of the log
            colored = written(SCENES[scene](), output_format, color=True)
            assert re.sub(r"\x1b\[[\d;]+m", "", colored) == written(SCENES[scene](), output_format)
