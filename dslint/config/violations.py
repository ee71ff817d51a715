"""What can be wrong with a key or a value, as far as the key table knows."""

from __future__ import annotations

from enum import StrEnum
from typing import Any, TypeAlias

from dslint.source.tree import Path, dotted
from dslint.source.unknown import UNKNOWN

Spec: TypeAlias = dict[str, Any]
"""A key's entry in the key table; `schemas/compile.py` documents it."""

Consequence: TypeAlias = tuple[str, ...]
"""("raises", phase, error), ("truthy",) or ("passes", note): see `schemas/marks.py`. ("depends", note): raises in a dict, not in a file."""


class ViolationKind(StrEnum):
    """The kinds of violations. Rules watch them by value: "violation:unknown-key"."""

    UNKNOWN_KEY = "unknown-key"
    MISPLACED_KEY = "misplaced-key"
    """a key of another section"""
    TOO_NEW = "too-new"
    """a key of a later release"""
    REMOVED = "removed"
    """a key that the release rejects, and earlier ones read"""
    DEAD = "dead"
    """a key that the release ignores, and earlier ones read"""
    DEPRECATED = "deprecated"
    GIVEN_TWICE = "given-twice"
    """two names of one key"""
    SHADOWED = "shadowed"
    """another key of the section overrides it"""
    WRONG_TYPE = "wrong-type"
    NULL = "null"
    NOT_A_CHOICE = "not-a-choice"
    OUT_OF_RANGE = "out-of-range"
    FORBIDDEN = "forbidden"
    """a value of the right type that the release rejects"""
    AUTO_DROPPED = "auto-dropped"
    """"auto" that DeepSpeed drops"""
    AUTO_KEPT = "auto-kept"
    """"auto" that DeepSpeed takes as the value"""
    AUTO_UNFILLED = "auto-unfilled"
    """"auto" that the integration does not replace"""
    AUTO_UNDECIDED = "auto-undecided"
    """"auto" in a config of unknown integration"""


class Violation:
    """A key or value that is not what DeepSpeed reads there.

    `section` is the dotted key of the section it stands in, `spec` the key's entry in the table (empty for unknown keys), `meant` the path
    the writer probably meant, `consequence` what DeepSpeed does (None where it does nothing about it), `becomes` the value it goes on with.
    """

    __slots__ = ("becomes", "consequence", "kind", "meant", "path", "section", "spec")

    def __init__(
        self,
        kind: ViolationKind,
        path: Path,
        section: str,
        spec: Spec,
        *,
        consequence: Consequence | None = None,
        meant: Path | None = None,
        becomes: Any = UNKNOWN,
    ) -> None:
        self.kind = kind
        self.path = path
        self.section = section
        self.spec = spec
        self.consequence = consequence
        self.meant = meant
        self.becomes = becomes

    @property
    def key(self) -> str:
        """The dotted path, for messages."""
        return dotted(self.path)

    @property
    def raises(self) -> bool:
        """Whether DeepSpeed raises because of it, in any phase."""
        return is_raising(self.consequence)


def is_raising(consequence: Consequence | None) -> bool:
    """Whether a consequence is that DeepSpeed raises."""
    return consequence is not None and consequence[0] == "raises"
