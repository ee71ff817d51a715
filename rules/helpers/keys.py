"""Which of several keys a config sets, and in which order."""

from __future__ import annotations

from collections.abc import Iterable

from dslint.config import Config
from dslint.rule import path_of
from dslint.source.tree import Path, plain


def is_set(config: Config, key: str) -> bool:
    """Whether a key is written with a value other than null and "auto"."""
    return config.has(key) and not config.is_auto(key) and not config.is_null(key)


def is_on(config: Config, key: str) -> bool:
    """Whether a key is written with a value other than null, "auto" and false."""
    return is_set(config, key) and config.literal(key) is not False


def in_file_order(config: Config, keys: Iterable[str]) -> list[str]:
    """Those of the keys that are written, in the order of the file."""
    places = {key: found.span.start for key in keys if (found := config.document.lookup(path_of(key))) is not None}
    return sorted(places, key=places.__getitem__)


def says_the_same(config: Config, path: Path, other: Path) -> bool:
    """Whether two members are written with the same value, so that ignoring one of them loses nothing."""
    first, second = config.node(path), config.node(other)
    return first is not None and second is not None and plain(first) == plain(second)
