"""Strings and paths of a followed program: their methods and formats, as far as the results are certain."""

from __future__ import annotations

import posixpath
import re

from dslint.evaluate.python.calls import CallOf
from dslint.evaluate.python.operators import LONGEST
from dslint.evaluate.python.paths import SAME_FILE, same_file
from dslint.evaluate.values import COMPUTED, Cells, Constant, Entry, ListValue, Object, Unknown, Value, is_soft
from dslint.source.tree import Span

_PERCENT = re.compile(r"%(?:\.?\d\d?)?[dsfge%]")
_BRACES = re.compile(r"\{(\w*)(?:![rsa])?(?::(?:[^{}]?[<>=^])?[-+ ]?#?0?\d{0,2}[,_]?(?:\.\d{1,2})?[bcdeEfFgGnosxX%]?)?\}")

_METHODS = frozenset(
    """
    lower upper strip lstrip rstrip title capitalize swapcase casefold replace removeprefix removesuffix startswith endswith split rsplit
    splitlines partition rpartition zfill center ljust rjust find rfind count index isdigit isalpha isalnum isnumeric isidentifier islower
    isupper isspace
    """.split()
)
_WIDENS = frozenset({"zfill", "center", "ljust", "rjust"})
"""Methods without effects; their results are no longer than what they are given."""


def as_text(pattern: Constant, given: Value, *, braces: bool = False) -> Value:
    """`pattern % given`, or with `braces` `pattern.format(given)`: one value, or the items of a tuple."""
    values = [one.value for one in given.items] if isinstance(given, ListValue) else [given]
    plain = [one.value for one in values if isinstance(one, Constant)]
    text = str(pattern.value)
    rest = (_BRACES if braces else _PERCENT).sub("", text)
    if len(plain) < len(values) or ("{" in rest or "}" in rest if braces else "%" in rest) or len(text) > LONGEST:
        known = next((one for one in values if isinstance(one, Unknown) and one.reason), None)
        return Unknown(known.reason) if known else COMPUTED
    if len(text) * max((len(str(one)) for one in plain), default=0) > LONGEST * 100:
        return COMPUTED
    try:
        made = text.format(*plain) if braces else text % tuple(plain)
    except (ValueError, TypeError, IndexError, KeyError, OverflowError):
        return COMPUTED
    return Constant(made, pattern.soft or any(is_soft(one) for one in values)) if len(made) < LONGEST else COMPUTED


def method_of_string(owner: Constant, name: str, call: CallOf) -> Value:
    """The result of a method of a string or a path."""
    text = str(owner.value)
    arguments = [one.value for one in call.arguments]
    if name in SAME_FILE:
        return same_file(owner, name)
    if name == "open":
        return opened_file(owner)
    if name == "format" and not call.keywords:
        return as_text(owner, ListValue(_entries(arguments), call.span), braces=True)
    if name == "join" and len(arguments) == 1 and isinstance(arguments[0], ListValue):
        if arguments[0].changed or any(one.perhaps for one in arguments[0].items):
            return Unknown(arguments[0].reason)
        arguments = [one.value for one in arguments[0].items]
    plain = [one.value for one in arguments if isinstance(one, Constant)]
    if len(plain) < len(arguments) or call.keywords or not call.complete:
        known = next((one for one in arguments if isinstance(one, Unknown) and one.reason), None)
        return Unknown(known.reason) if known else COMPUTED
    soft = owner.soft or any(is_soft(one) for one in arguments)
    if name == "joinpath":
        return Constant(posixpath.join(text, *map(str, plain)), soft)
    if name == "with_suffix" and len(plain) == 1:
        return Constant(posixpath.splitext(text)[0] + str(plain[0]), soft)
    if name == "join" and sum(len(str(one)) + len(text) for one in plain) > LONGEST:
        return COMPUTED
    if name == "join":
        made = text.join(map(str, plain))
        return Constant(made, soft) if len(made) < LONGEST else COMPUTED
    if name not in _METHODS or any(isinstance(one, str) and len(one) > LONGEST // 10 for one in plain):
        return COMPUTED
    return _result(text, name, plain, call.span, soft=soft)


def _result(text: str, name: str, arguments: list[str | int | float | bool | None], span: Span, *, soft: bool) -> Value:
    if name in _WIDENS and any(isinstance(one, int) and one > LONGEST for one in arguments):
        return COMPUTED
    if name in (*_WIDENS, "replace") and len(text) > LONGEST // 100:
        return COMPUTED
    try:
        found = getattr(text, name)(*(min(one, LONGEST) if isinstance(one, int) else one for one in arguments))
    except (TypeError, ValueError):
        return COMPUTED
    if isinstance(found, list | tuple):
        return ListValue(_entries([Constant(part, soft) for part in found]), span)
    return Constant(found, soft) if not isinstance(found, str) or len(found) < LONGEST else COMPUTED


def _entries(values: list[Value]) -> list[Entry]:
    return [Entry(one, Span(0, 0), Span(0, 0)) for one in values]


def opened_file(path: Value, mode: object = "r") -> Object:
    """An open file."""
    cells = Cells(0)
    cells["path"] = cells["name"] = path
    return Object("file", cells, about="w" if isinstance(mode, str) and mode[:1] in ("w", "x", "a") else "r")
