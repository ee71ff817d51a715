"""Which functions of a program need not be followed to find the calls in it that take a config.

`reach` decides by whole classes and across files whether a program is followed at all. In a library that is nearly every program: its
classes name each other. Of a program that is followed, the functions that nobody calls cost most (8.7 of 12.3 s for the sources of
Accelerate 1.15), and few of them lead to a call. Here only the calls in the file itself count, method by method, and those elsewhere that
can get a config from it. Any other call is found in its own file, where it is told once, and not for each file that imports it.

The answer is for the search for calls alone: a program that has one is followed as a whole, because every function says something of the
training. Names are those of functions, methods and constructors, whatever object stands before them. A name that stands somewhere
without a call may be called under another name: then all methods of that class count, and at the top of a file all of its functions.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from dslint.evaluate.python.outline import OutlinePiece
from dslint.evaluate.python.reach import File, file_of
from dslint.source.store import store

_CONSTRUCTORS = frozenset(("__init__", "__post_init__", "__new__"))

_CONFIG = re.compile(
    r"\.(?:h?json|ya?ml)\b|zero_optimization|train_batch_size|train_micro_batch|gradient_accumulation|(?:ds|deepspeed)_?(?:config|cfg)",
    re.IGNORECASE,
)
"""What stands in a file that passes a config to a function of another file: its name, a key, or a variable that is one by its name."""


def without_calls(text: str, path: str) -> frozenset[tuple[str, str]]:
    """The functions of a program that cannot lead to such a call, each with the name of its class or "". Empty if it cannot be told.

    Args:
        text: the text of the program.
        path: where it is; modules are found from there.
    """
    file = file_of(text, path)
    if file is None:
        return frozenset()
    known = store().found(("without calls", path, text), lambda: _Closure(file, passes=bool(_CONFIG.search(text))))
    return known.left if known.is_sure else frozenset()


class _Closure:
    """What leads to a call in a file."""

    def __init__(self, file: File, *, passes: bool) -> None:
        self.file = file
        self.is_sure = True
        self._names: set[str] = set()
        self._reached: set[int] = set()
        self._whole: set[str] = set()
        self._waiting: list[str] = []
        pieces = file.outline.pieces
        own = {name for piece in pieces for name in (piece.name, piece.owner)}
        elsewhere = file.names - own if passes else set()
        if passes and file.outline.adds_folders:  # what is taken for a library may be a module of the project
            elsewhere |= file.libraries
        launches = file.launches
        self._add(file.own_aliases)
        if file.outline.top.takes or (launches and file.outline.top.runs):
            self._reach_all()
        for piece in pieces:
            part = piece.part
            if piece.takes or (launches and part.runs) or not elsewhere.isdisjoint(part.words | part.annotations):
                if piece.owner and not piece.name:  # a field that names the config, or what it inherits: the object takes it
                    self._reach_class(piece.owner)
                self._reach(piece)
        while self._waiting and self.is_sure:
            self._spread(self._waiting.pop())

    @property
    def left(self) -> frozenset[tuple[str, str]]:
        """The functions that were not reached."""
        reached = {(one.owner, one.name) for one in self.file.outline.pieces if id(one) in self._reached}
        return frozenset((one.owner, one.name) for one in self.file.outline.pieces) - reached

    def _add(self, names: Iterable[str]) -> None:
        fresh = set(names) - self._names
        self._names |= fresh
        self._waiting += fresh

    def _spread(self, name: str) -> None:
        """Take over that a name leads to a call."""
        if name in self.file.outline.top.words:
            self._reach_all()
        for piece in self.file.outline.pieces:
            if piece.bases is not None and name in piece.bases:
                self._reach_class(piece.owner)
            if name in piece.part.words or name in piece.part.annotations:
                self._reach(piece)
                if piece.owner and (name in piece.loose or not piece.name):
                    self._reach_whole(piece.owner)

    def _reach(self, piece: OutlinePiece) -> None:
        if id(piece) in self._reached:
            return
        self._reached.add(id(piece))
        if piece.name in _CONSTRUCTORS:
            self._reach_class(piece.owner)
        elif _is_special(piece.name):
            self.is_sure = False  # no name stands where Python calls it
        elif piece.name:
            self._add((piece.name,))

    def _reach_class(self, owner: str) -> None:
        """A constructor of a class leads to a call."""
        self._add((owner,))
        for piece in self.file.outline.pieces:
            if piece.owner == owner and piece.name in _CONSTRUCTORS:
                self._reach(piece)

    def _reach_whole(self, owner: str) -> None:
        """Any method of a class may lead to a call, and any of a class that inherits from it."""
        if owner in self._whole:
            return
        self._whole.add(owner)
        for piece in self.file.outline.pieces:
            if piece.owner == owner and (piece.name in _CONSTRUCTORS or not _is_special(piece.name)):
                self._reach(piece)
            if piece.bases is not None and owner in piece.bases:
                self._reach_whole(piece.owner)

    def _reach_all(self) -> None:
        """The statements at the top of the file lead to a call."""
        for piece in self.file.outline.pieces:
            if piece.name in _CONSTRUCTORS or not _is_special(piece.name):
                self._reach(piece)


def _is_special(name: str) -> bool:
    return name.startswith("__") and name.endswith("__")
