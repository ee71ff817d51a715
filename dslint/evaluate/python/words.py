"""The words that a command gives to a program besides flags: they are among the flags, by names such as `sys.argv[1]`."""

from __future__ import annotations

import posixpath
from collections.abc import Collection, Mapping
from typing import TypeVar

_T = TypeVar("_T")

LOCAL_RANK = "--local_rank=0"
"""The first word of a program that the deepspeed launcher starts."""

WORDS_PARSED = "transformers.HfArgumentParser.words"
"""The name of the event of what gets words of the command line and cannot use them: a parser, or a file whose path is one of them."""

SOME_WORDS = "sys.argv[...]"
"""Stands for words of which the places are not known."""

ALL_FLAGS = "sys.argv[:]"
"""Stands for a command of which every word is known, and which has flags only: what it does not give has its default."""

SPELLED = "sys.argv[--]"
"""Stands for the flags as the command writes them, with blanks between them: other names have `_` for `-`."""

REWRITTEN = "sys.argv[>]"
"""Stands for the files that flags name and that the script writes before it starts the program, one a line."""

NO_WORDS = (ALL_FLAGS, SPELLED, REWRITTEN)
"""The names that have the form of a word and are none."""


def word_name(place: object) -> str:
    """The name of the word at a place, as an index of `sys.argv`."""
    return f"sys.argv[{place}]"


def is_word(name: str) -> bool:
    """Whether a name among the flags is that of a word."""
    return name.startswith("sys.argv[")


def known_words(flags: Mapping[str, _T]) -> dict[str, _T]:
    """The words by their names; {} if there are none, or if not all of them are known."""
    return {} if SOME_WORDS in flags else {name: given for name, given in flags.items() if is_word(name) and name not in NO_WORDS}


def spelled(flags: Mapping[str, object]) -> dict[str, str]:
    """The flags as the command writes them, by their names."""
    written = flags.get(SPELLED)
    return {name_of_flag(one): one for one in written.split()} if isinstance(written, str) else {}


def rewritten(flags: Mapping[str, object]) -> frozenset[str]:
    """The paths of the files that the script writes before it starts the program."""
    given = flags.get(REWRITTEN)
    return frozenset(map(posixpath.normpath, given.splitlines())) if isinstance(given, str) else frozenset()


def name_of_flag(written: str) -> str:
    """The name of a flag: without dashes before it, and with `_` for those in it."""
    return written.lstrip("-").replace("-", "_")


def is_default(name: str, flags: Collection[str]) -> bool:
    """Whether a flag that is not given has its default for certain.

    The launchers give a rank, and parsers accept the beginning of a name.
    """
    return ALL_FLAGS in flags and name != "local_rank" and not any(map(name.startswith, flags))
