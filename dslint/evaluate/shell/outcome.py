"""What a command comes to."""

from __future__ import annotations

from dslint.evaluate.shell.pieces import Text


class CommandOutcome:
    """What a command comes to: its exit status, and its output as far as that is known.

    Args:
        value: whether it succeeds, None if only the run knows.
        absent: whether that hangs on something that nothing sets.
        expected: whether it is a program, which is expected to succeed, and may fail.
        output: what it prints, None if that is not known.
    """

    __slots__ = ("absent", "excused", "expected", "output", "value")

    def __init__(
        self,
        value: bool | None,  # noqa: FBT001 - it is the outcome
        *,
        absent: bool = False,
        expected: bool = False,
        output: Text | None = (),
    ) -> None:
        self.value = value
        self.absent = absent
        self.expected = expected
        self.output = output
        self.excused = False
        """Whether a failure does not end a script with `set -e`: that of `a` in `a && b`."""

    @property
    def is_sure(self) -> bool:
        """Whether the command comes to this in every run."""
        return self.value is not None and not self.expected and not self.absent

    @property
    def is_true(self) -> bool:
        """Whether it is a condition that holds."""
        return self.value is True and not self.expected

    @property
    def is_false(self) -> bool:
        """Whether it is a condition that does not hold."""
        return self.value is False and not self.expected

    def negated(self) -> CommandOutcome:
        """The outcome of `! command`."""
        value = None if self.value is None or self.expected else not self.value
        found = CommandOutcome(value, absent=self.absent, output=self.output)
        found.excused = True
        return found

    def then(self, following: CommandOutcome, *, because: bool = True) -> CommandOutcome:
        """The outcome of another command that runs after this one, `because` of it or not."""
        output = None if self.output is None or following.output is None else self.output + following.output
        return CommandOutcome(
            following.value, absent=(because and self.absent) or following.absent, expected=following.expected, output=output
        )


DONE = CommandOutcome(value=True)
"""The outcome of a statement that cannot fail."""

UNKNOWN_PROGRAM = CommandOutcome(value=True, expected=True, output=None)
"""The outcome of a program: it is expected to succeed."""
