"""The search for lines of interest finds what looking at each line finds."""

from __future__ import annotations

import random

import pytest

from dslint.diagnose import scan
from dslint.diagnose.events import SIGNS, Recogniser
from dslint.diagnose.scan import Scanner

LITERALS = ("'loss':", "Error:", "Stage 3 begins", "signal 2", "it/s", "Traceback (most")
WORDS = ("loss", "'loss':", "Stage", "3", "33", "begins", "Error:", "signal 2", "signal 12", "it/s", " 7%|##", "x\r", "ü", "")


def line(chance: random.Random) -> str:
    return " ".join(chance.choice(WORDS) for _ in range(chance.randrange(6)))


@pytest.mark.parametrize("seed", range(20))
def test_each_line_with_a_literal_is_found(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    chance = random.Random(f"scan-{seed}")
    monkeypatch.setattr(scan, "MOST_SHAPES", chance.choice((0, 100, 1 << 20)))
    scanner = Scanner(LITERALS)
    number = 1
    for _ in range(20):
        lines = [line(chance) for _ in range(chance.randrange(1, 30))]
        found = list(scanner.lines(number, "\n".join(lines).encode(), lambda: False))
        texts = [(at, part) for at, whole in enumerate(lines, number) for part in whole.split("\r")]
        assert set(found) >= {(at, part.encode()) for at, part in texts if any(literal in part for literal in LITERALS)}
        without = [literal.translate(str.maketrans("", "", "0123456789")) for literal in LITERALS]
        for _, part in found:
            assert any(literal in part.decode().translate(str.maketrans("", "", "0123456789")) for literal in without)
        number += len(lines)


def test_every_next_line_while_the_reader_is_busy() -> None:
    scanner = Scanner(LITERALS)
    needed: list[bytes] = []
    lines = [b"a", b"Error: 1", b"b", b"c\rd", b"end", b"e", b"signal 2"]
    got = []
    for number, text in scanner.lines(10, b"\n".join(lines), lambda: bool(needed)):
        got.append((number, text))
        if text.startswith(b"Error"):
            needed.append(text)
        elif text == b"end":
            needed.clear()
    assert got == [(11, b"Error: 1"), (12, b"b"), (13, b"c"), (13, b"d"), (14, b"end"), (16, b"signal 2")]


def test_a_literal_that_was_found_often_is_searched_near_others_only() -> None:
    scanner = Scanner(LITERALS, frequent=("'loss':",))
    step = b"'loss': 1"
    for block in range(3):
        list(scanner.lines(block * scan.FULL, b"\n".join([step] * scan.FULL), lambda: False))
    far = b"\n".join([b"-" * scan.NEAR, step, b"." * scan.NEAR, step, b"Error: x", step])
    assert [text for _, text in scanner.lines(1, far, lambda: False)] == [step, b"Error: x"]
    assert scanner.repeated is not None
    assert scanner.repeated.startswith("Of the lines with \"'loss':\" only a part")


def test_the_literals_of_all_signs_stay_without_their_digits() -> None:
    scanner = Recogniser().scanner
    for literal in {literal for sign in SIGNS for literal in sign.literals}:
        assert list(scanner.lines(1, f"before {literal} after".encode(), lambda: False)), literal
