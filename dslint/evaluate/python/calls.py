"""A call in a program with its evaluated arguments."""

from __future__ import annotations

import ast
from dataclasses import dataclass, field
from typing import Any

from dslint.evaluate.values import Class, Constant, Scope, Value
from dslint.job.events import Condition
from dslint.source.tree import Span

ENGINE_BACKWARD = "deepspeed.initialize.backward"
"""The name under which a call of the method `backward` of DeepSpeed's engine is received; its place is that of `initialize`."""


@dataclass(slots=True)
class Argument:
    """An argument of a call: its value, and where it is written; `key` is the place of its keyword.

    `perhaps` says that only one branch of the program gives it: `**kwargs` of a dict that may have the key.
    """

    value: Value
    span: Span
    key: Span
    literal: bool = False
    node: ast.expr | None = None
    perhaps: bool = False


@dataclass(slots=True)
class CallOf:
    """A call with its evaluated arguments. `complete` is False if there may be more of them (`*args`, `**kwargs`).

    `chosen` says that the call is in a branch of a condition that only the run knows, `unlikely` that the default of a flag takes another,
    and `likely` that only defaults of flags decide, and take this branch.
    `conditions`, `within` and `loops` are what is around the call, as in `dslint.job.events.Event`. `assigned` are the attributes that the
    program sets afterwards, if the flags of the command set the others. `later` are all that it sets afterwards, and `before` is what the
    call gave for them (None: nothing). `parsed` says that a parser of the class makes the call, with what a file or a dict holds. `own` is
    the class of the project that is made, if it inherits from the one that the call names. `handled` says that a `try` statement around the
    call handles an error.
    """

    node: ast.Call
    scope: Scope
    name: str
    span: Span
    arguments: list[Argument] = field(default_factory=list)
    keywords: dict[str, Argument] = field(default_factory=dict)
    complete: bool = True
    chosen: bool = False
    unlikely: bool = False
    likely: bool = True
    conditions: tuple[Condition, ...] = ()
    within: tuple[str, ...] = ()
    loops: int = 0
    assigned: frozenset[str] | None = None
    later: frozenset[str] = frozenset()
    before: dict[str, Argument | None] = field(default_factory=dict)
    parsed: bool = False
    own: Class | None = None
    handled: bool = False

    def get(self, name: str, index: int | None = None) -> Value | None:
        """The value of an argument by its name or position."""
        found = self.argument(name, index)
        return found.value if found else None

    def argument(self, name: str, index: int | None = None) -> Argument | None:
        """An argument by its name or position."""
        if name in self.keywords:
            return self.keywords[name]
        return self.arguments[index] if index is not None and index < len(self.arguments) else None

    def plain(self, name: str, index: int | None = None) -> Any:
        """The plain value of an argument; None if it is not known."""
        value = self.get(name, index)
        return value.value if isinstance(value, Constant) else None
