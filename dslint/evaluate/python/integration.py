"""What a framework adds to how programs are read: calls of its library that take a config, and files that describe a training.

Each module of `dslint.frameworks` that has something to add has a `PROGRAMS`; nothing here knows a framework by name.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

from dslint.evaluate.python.calls import Argument, CallOf
from dslint.evaluate.python.evaluate import ProgramState
from dslint.evaluate.python.notes import ConfigCall, ProgramFacts
from dslint.evaluate.python.sources import Sources
from dslint.evaluate.values import Value
from dslint.job.arguments import SourcedValue
from dslint.record import Record
from dslint.source.tree import Span


class Notes(Protocol):
    """What is noted of a program; see `Recorder`."""

    sources: Sources
    calls: list[ConfigCall]
    unread: list[ConfigCall]
    facts: ProgramFacts
    state: ProgramState | None

    def take(self, integration: str, keyword: str, given: Argument | None) -> list[ConfigCall]:
        """Note the config that a call takes, or each of those that it may take. [] if the program contains none."""

    def asked(self, call: CallOf, *names: str) -> dict[str, SourcedValue]:
        """Keyword arguments of a call."""

    def sourced(self, name: str, span: Span, value: Any, *, key: Span | None = None) -> SourcedValue:
        """A value with its place in the file that it is written in."""

    def place_of(self, call: CallOf) -> Span:
        """The place of the name of the called function."""


class CallReader(Protocol):
    """Reads the calls of one program."""

    def receive(self, call: CallOf) -> bool:
        """Take note of a call. Returns whether it is one of the framework's."""

    def finish(self) -> None:
        """Note the configs that only the whole program tells, at its end."""


class InPrograms(Record):
    """What a framework adds.

    `reader` makes what reads the calls of a program. `functions` are those of its library that return what they are given, or the like, by
    their full names. `describes` notes the config of a file without calls that assigns to the variables `settings`; the first of them
    tells such a file. `takes` are pairs of patterns: where both stand in a function, a call in it may take a config. `hooks` are the base
    classes, by their full names, and the methods that its library calls of their objects.
    """

    reader: Callable[[Notes], CallReader] | None = None
    functions: Mapping[str, Callable[[ProgramState, CallOf], Value]] = {}
    settings: tuple[str, ...] = ()
    describes: Callable[[Notes, Mapping[str, Value]], None] | None = None
    takes: tuple[tuple[str, str], ...] = ()
    hooks: tuple[str, str] | None = None
