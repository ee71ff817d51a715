"""What public guides advise is what the step-time model says, and docs/tune.md has the table."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from dslint.report.tune_plot import front, picture, points
from tests.tune.guides import GUIDES, Guide, table
from tests.tune.setups import CONFIG, search

PAGE = Path(__file__).resolve().parents[2] / "docs/tune.md"
PLOT = PAGE.parent / "assets/tune-plot.svg"
TABLE = re.compile(r"(?<=<!-- guides -->\n).*?(?=<!-- end of guides -->)", re.DOTALL)


@pytest.mark.parametrize("guide", GUIDES, ids=lambda guide: guide.advice)
def test_the_advice_of_a_guide_is_reproduced(guide: Guide) -> None:
    assert guide.low <= guide.ours() <= guide.high


def test_the_page_has_the_table() -> None:
    text = PAGE.read_text(encoding="utf-8")
    if os.environ.get("UPDATE_DOCS"):
        text = TABLE.sub(lambda _: table(), text)
        PAGE.write_text(text, encoding="utf-8")
    found = TABLE.search(text)
    assert found is not None
    assert found[0] == table()


@pytest.mark.slow
def test_the_page_has_the_chart() -> None:
    drawn = picture(search({**CONFIG}, gpu="h100", length=4096).run())
    if os.environ.get("UPDATE_DOCS"):
        PLOT.write_text(drawn, encoding="utf-8")
    assert PLOT.read_text(encoding="utf-8") == drawn


def test_the_front_is_what_no_config_beats() -> None:
    found = points(search(CONFIG).run())
    kept = front(found)
    for point in found:
        beaten = any(other.speed >= point.speed and other.peak <= point.peak and other != point for other in found)
        assert (point in kept) is not beaten
    assert [point.peak for point in kept] == sorted(point.peak for point in kept)
