"""Generated programs that make a config and pass it on, with the constructs that real ones have."""

from __future__ import annotations

from random import Random

from tests.judges.programs.whole import Program


def program(seed: int) -> dict[str, str]:
    """The files of the program of a seed; the first is `train.py`."""
    return Program(Random(seed)).write()
