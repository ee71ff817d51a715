"""Paths of a followed program, whose absolute form only the machine of the run knows."""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Iterable

from dslint.evaluate.reasons import Cause, Reason
from dslint.evaluate.values import COMPUTED, HOLE, Constant, Entry, ListValue, Unknown, Value, is_soft, path_of
from dslint.source.tree import Span

_NOWHERE = Span(0, 0)
_MACHINE = Reason(Cause.MACHINE)
_MOST_PARENTS = 12
"""How many folders above a path `.parents` lists; a config is looked for a few folders above its program."""

_UP = ("", ".", "..")
"""Last parts of a path that name no file."""

SAME_FILE = frozenset("resolve absolute expanduser as_posix".split())
"""Methods of a path that return the path of the same file."""

PARTS_OF_PATHS = {"sep": "/", "pardir": "..", "curdir": "."}
"""The constants of `os` and `os.path` that programs build paths of."""


def located(path: str) -> Unknown:
    """The absolute path of a file, of which only the path from the working directory, or from the home directory, is known."""
    name = posixpath.basename(path)
    return Unknown(_MACHINE, text=f"{HOLE}/{name}" if name not in _UP else "", path=path)


def absolute(value: Value, *, follows_links: bool = False) -> Value:
    """`os.path.abspath(path)`; with `follows_links` `os.path.realpath(path)`."""
    path = path_of(value)
    if path is None or isinstance(value, Unknown):
        return value
    plain = posixpath.normpath(path)
    if plain.startswith("/") and not follows_links:
        return Constant(plain, is_soft(value))
    return located(f"./{plain}" if plain.startswith("~") else plain)


def expanded(value: Value) -> Value:
    """`os.path.expanduser(path)`."""
    path = path_of(value)
    return located(path) if isinstance(value, Constant) and path is not None and path.startswith("~") else value


def same_file(value: Value, method: str) -> Value:
    """The result of one of the methods `SAME_FILE`."""
    if method == "expanduser":
        return expanded(value)
    return value if method == "as_posix" else absolute(value, follows_links=method == "resolve")


def over_options(parts: list[Value], build: Callable[[list[Value]], Value]) -> Unknown | None:
    """A text that is built with one of several, as in `f"configs/{name}.json"`: one of several, too. None if no part, or more than one, is
    one of several texts.
    """
    several = [(index, one) for index, one in enumerate(parts) if isinstance(one, Unknown) and one.options and one.path is None]
    if len(several) != 1:
        return None
    index, chosen = several[0]
    options = tuple(build([*parts[:index], option, *parts[index + 1 :]]) for option in chosen.options if path_of(option) is not None)
    if len(options) < len(chosen.options) or any(path_of(one) is None for one in options):
        return None
    return Unknown(chosen.reason, options=options, closed=chosen.closed)


def joined(parts: list[Value]) -> Value:
    """`os.path.join(*parts)`."""
    if (several := over_options(parts, joined)) is not None:
        return several
    paths = [path_of(one) for one in parts]
    known = [one for one in paths if one is not None]
    if len(known) < len(parts) or not parts:
        return Unknown(_reason(parts))
    roots = [index for index, one in enumerate(parts) if isinstance(one, Unknown) or known[index].startswith("/")]
    first = roots[-1] if roots else 0
    path = posixpath.join(*known[first:])
    if isinstance(parts[first], Unknown):
        return located(path)
    return Constant(path, any(map(is_soft, parts)))


def folder_of(value: Value) -> Value:
    """`os.path.dirname(path)`."""
    found = parent_of(value)
    return Constant("", found.soft) if isinstance(found, Constant) and found.value == "." and "/" not in str(path_of(value)) else found


def parent_of(value: Value) -> Value:
    """`path.parent`."""
    path = path_of(value)
    if path is None:
        return Unknown(_reason([value]))
    name = posixpath.basename(path)
    if isinstance(value, Constant):
        return Constant(posixpath.dirname(path) or ".", value.soft)
    return located(posixpath.join(path, "..") if name in _UP or name.startswith("~") else posixpath.dirname(path) or ".")


def parents_of(value: Value) -> Value:
    """`path.parents`: of a path from the working directory, those that are within it and some above."""
    folders: list[Value] = []
    ends = (None, "/", ".") if isinstance(value, Constant) else (None, "/")
    while len(folders) < _MOST_PARENTS and path_of(value) not in ends:
        value = parent_of(value)
        folders.append(value)
    return ListValue([Entry(one, _NOWHERE, _NOWHERE) for one in folders], _NOWHERE)


def last_part(value: Value) -> Value:
    """`os.path.basename(path)` and `path.name`."""
    path = path_of(value)
    if path is None:
        return Unknown(_reason([value]))
    name = posixpath.basename(path)
    if isinstance(value, Constant):
        return Constant(name, value.soft)
    return Constant(name) if name not in _UP and not name.startswith("~") else Unknown(_MACHINE)


def extended(parts: list[Value]) -> Value | None:
    """A text that begins with a located path, such as `f"{root}/ds.json"`; None of any other text."""
    if not parts:  # f""
        return None
    first, *rest = parts
    if not isinstance(first, Unknown) or first.path is None or not all(isinstance(one, Constant) for one in rest):
        return None
    after = "".join(str(one.value) for one in rest if isinstance(one, Constant))
    named = posixpath.basename(first.path) not in _UP and not first.path.startswith("~")
    return located(first.path + after) if not after or after.startswith("/") or named else None


def attribute_of_path(value: Value, name: str) -> Value | None:
    """An attribute of a path; None if paths have none of this name."""
    if name == "parent":
        return parent_of(value)
    if name == "parents":
        return parents_of(value)
    if name == "name":
        return last_part(value)
    if name in ("stem", "suffix"):
        found = last_part(value)
        text = path_of(found) if isinstance(found, Constant) else None
        return found if text is None else Constant(posixpath.splitext(text)[name == "suffix"], is_soft(found))
    return None


def _reason(values: Iterable[Value]) -> Reason | None:
    known = next((one for one in values if isinstance(one, Unknown) and one.reason), COMPUTED)
    return known.reason
