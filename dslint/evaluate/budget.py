"""The work that may be done for one script, makefile, notebook or job file and what is followed from there, and for the calls of a program.

A step is a statement, a piece of a text, or a node of a config. `python/follow.py` has the limit for the expressions of a program.
"""

from __future__ import annotations

STEPS = 200_000
"""The steps for a subject. Subjects of 12 public repositories, axolotl, LLaMA-Factory and TRL take fewer than 1,000. Without a limit a
makefile of 22 lines `A1=$(A0)$(A0)` took 13 s."""


class Budget:
    """The steps that are left. It is passed to everything that is read for the subject."""

    __slots__ = ("left",)

    def __init__(self, steps: int = STEPS) -> None:
        self.left = steps

    def spend(self, steps: int = 1) -> bool:
        """Count steps. Returns whether some are left."""
        self.left -= steps
        return self.left > 0

    @property
    def is_spent(self) -> bool:
        """Whether no steps are left."""
        return self.left <= 0
