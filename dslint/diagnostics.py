"""What dslint says: one frozen `Diagnostic`, and the small vocabulary it is made of.

This module stands at the bottom of the house: everything imports it and it imports nothing of dslint.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple


class Severity(StrEnum):
    """How loud a diagnostic is. It follows from the effect unless a person overrides it."""

    ERROR = "error"
    WARNING = "warning"
    INFO = "info"

    @property
    def rank(self) -> int:
        """0 for info, 2 for error: comparable, where the names are not."""
        return ("info", "warning", "error").index(self.value)


class Effect(StrEnum):
    """What DeepSpeed does with the mistake."""

    CRASH = "crash"
    """raises, in a `Phase`"""
    SILENT = "silent"
    """runs, but not as written: wrong precision, batch, schedule, an unusable checkpoint"""
    IGNORED = "ignored"
    """the setting does nothing"""
    MEMORY = "memory"
    """costs memory the writer did not mean to spend, or will not fit"""
    SLOW = "slow"
    """runs slower than it needs to"""
    ADVICE = "advice"
    """deprecated, unclear, not portable"""

    @property
    def severity(self) -> Severity:
        """The severity that goes with the effect."""
        return _SEVERITY[self]


_SEVERITY = {
    Effect.CRASH: Severity.ERROR,
    Effect.SILENT: Severity.ERROR,
    Effect.IGNORED: Severity.WARNING,
    Effect.MEMORY: Severity.WARNING,
    Effect.SLOW: Severity.INFO,
    Effect.ADVICE: Severity.INFO,
}


class Phase(StrEnum):
    """When a crash comes."""

    LOAD = "load"
    """the loader of an integration (transformers, Accelerate, Lightning) reads the file, before DeepSpeed sees it"""
    PARSE = "parse"
    """`DeepSpeedConfig(...)`, the first thing in `deepspeed.initialize`"""
    INITIALIZE = "initialize"
    """the rest of `deepspeed.initialize`"""
    STEP = "step"
    """the first forward, backward or step"""
    SAVE = "save"
    RESUME = "resume"


class Applicability(StrEnum):
    """Whether a fix may be applied unasked."""

    SAFE = "safe"
    """what DeepSpeed does stays the same, or what it rejects or ignores goes away"""
    UNSAFE = "unsafe"
    """training changes"""
    DISPLAY = "display"
    """shown, never applied"""


@dataclass(frozen=True, slots=True)
class Place:
    """A point in a text: `line` and `column` are 1-based, in code points; `offset` is 0-based, in code points."""

    line: int
    column: int
    offset: int


@dataclass(frozen=True, slots=True)
class Range:
    """A half-open stretch of text."""

    start: Place
    end: Place


@dataclass(frozen=True, slots=True)
class Related:
    """A second place that belongs to a diagnostic, with what it has to do with it."""

    path: str
    message: str
    pointer: str | None = None
    range: Range | None = None


@dataclass(frozen=True, slots=True)
class Edit:
    """Replace `text[start:end]` (code points) by `content`."""

    start: int
    end: int
    content: str


@dataclass(frozen=True, slots=True)
class Fix:
    """Edits that belong together, what they do in a few words, and whether they may be applied unasked."""

    title: str
    applicability: Applicability
    edits: tuple[Edit, ...]


@dataclass(frozen=True, slots=True)
class Diagnostic:
    """One finding at one place, ready to print.

    `message` stands alone: what was found and what DeepSpeed does with it. `help` says what to write instead.
    `phase` is set when the effect is `Effect.CRASH` and only then. `pointer` (RFC 6901) and `range` are None where there is no place.
    `certain` is False where nobody can know from the file and the facts whether DeepSpeed will do what `effect` says.
    """

    path: str
    code: str
    name: str
    severity: Severity
    effect: Effect
    phase: Phase | None
    message: str
    help: str | None = None
    url: str | None = None
    pointer: str | None = None
    range: Range | None = None
    related: tuple[Related, ...] = ()
    fix: Fix | None = None
    certain: bool = True


class NotJudged(NamedTuple):
    """Why a file, or a part of it, was not judged: a sentence that says what the user can do, and the place of the part."""

    reason: str
    range: Range | None = None
