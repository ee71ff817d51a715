"""Generated programs that make a config and pass it on, with the constructs that real ones have."""

from __future__ import annotations

from random import Random

from tests.judges.programs.forms import FORMS
from tests.judges.programs.whole import Made, Program

__all__ = ["Made", "forms", "program"]


def program(seed: int) -> Made:
    """The program of a seed."""
    return Program(Random(seed)).write()


def forms() -> list[Made]:
    """A program with each form."""
    return [Program(Random(number)).write_form(form) for number, form in enumerate(FORMS)]
