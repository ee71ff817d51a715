"""What a run keeps: the texts that an editor has open, and each result that several files of a project need, made once.

A run is one call of a command, one function of the API, or one check of the language server. Files do not change while it lasts, so that
a file is parsed, and a program followed, once for all that refer to it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, TypeVar

_T = TypeVar("_T")


class Store:
    """The results of one run, by what they were made of.

    `unsaved` are texts that are read instead of files, by absolute path. `named` are the absolute paths of the files that a person names
    in one command: a program and a config among them belong together.
    """

    def __init__(self, unsaved: Mapping[str, str] | None = None, named: Sequence[str] = ()) -> None:
        self.unsaved = unsaved or {}
        self.named = tuple(named)
        self._parsed: dict[Hashable, Any] = {}
        self._listed: dict[Hashable, Any] = {}
        self._found: dict[Hashable, Any] = {}

    def parsed(self, key: Hashable, make: Callable[[], _T]) -> _T:
        """A result that follows from the key alone, which holds the text."""
        return _kept(self._parsed, key, make)

    def listed(self, key: Hashable, make: Callable[[], _T]) -> _T:
        """A result that depends on which files exist, and not on what is in them."""
        return _kept(self._listed, key, make)

    def found(self, key: Hashable, make: Callable[[], _T]) -> _T:
        """A result that may depend on other files."""
        return _kept(self._found, key, make)

    def with_text(self, path: str, text: str) -> Store:
        """The store with the text of a file that is not saved, or that standard input holds."""
        path = os.path.abspath(path)  # noqa: PTH100 - pathlib is slow to import
        return self if self.unsaved.get(path) == text else self.edited({**self.unsaved, path: text})

    def edited(self, unsaved: Mapping[str, str]) -> Store:
        """The store for other texts of the same files: what follows from texts alone holds still, and so does which files there are."""
        after = Store(unsaved, self.named)
        after._listed = self._listed
        after._parsed = self._parsed if len(self._parsed) < _MOST_PARSED else {}
        return after


_MOST_PARSED = 5_000
"""How many parsed texts an editor's session keeps: more than the files of a large project, and every edit adds one."""


def _kept(table: dict[Hashable, Any], key: Hashable, make: Callable[[], _T]) -> _T:
    if key not in table:
        table[key] = make()
    found: _T = table[key]
    return found


_CURRENT: ContextVar[Store | None] = ContextVar("store", default=None)


def store() -> Store:
    """The store of this run; outside a run an empty one, which nobody keeps."""
    return _CURRENT.get() or Store()


@contextmanager
def a_run(of: Store | None = None) -> Iterator[Store]:
    """Keep results until the end of the block. A run inside another one shares its store, unless it is given one."""
    known = of or _CURRENT.get() or Store()
    token = _CURRENT.set(known)
    try:
        yield known
    finally:
        _CURRENT.reset(token)
