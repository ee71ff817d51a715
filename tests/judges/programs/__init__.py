"""Generated programs that make a config and pass it on, with the constructs that real ones have."""

from __future__ import annotations

from random import Random

from tests.judges.programs.whole import Made, Program

__all__ = ["Made", "program"]


def program(seed: int) -> Made:
    """The program of a seed."""
    return Program(Random(seed)).write()
