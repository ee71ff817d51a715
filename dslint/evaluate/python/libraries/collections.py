"""Collections: Python's own functions that make or go over them, the module `collections`, and dicts of other libraries."""

from __future__ import annotations

import sys
from dataclasses import replace

from dslint.evaluate.python.calls import Argument, CallOf
from dslint.evaluate.python.dicts import new_dict
from dslint.evaluate.python.evaluate import ProgramState
from dslint.evaluate.python.functions import GENERATOR, collected, enter
from dslint.evaluate.python.libraries.table import FUNCTIONS, entry_of, follows, items_in, length_of, like, row_in, unknown_of
from dslint.evaluate.python.rows import in_order
from dslint.evaluate.python.tables import as_set, items_of, leave_open, merge, new_table, pairs_of, set_items
from dslint.evaluate.python.words import known_words
from dslint.evaluate.reasons import IS_COMPUTED, Cause, Reason
from dslint.evaluate.values import (
    COMPUTED,
    NONE,
    Constant,
    DictValue,
    Entry,
    Function,
    Library,
    ListValue,
    Object,
    Unknown,
    Value,
    is_soft,
    truth,
)

_MOST_NUMBERS = 40
"""How many numbers of a `range` are followed one by one, as turns of a loop are; of longer ones only their kind is known."""


@follows("list", "tuple")
def _list(_: ProgramState, call: CallOf) -> Value:
    items = items_of(call.arguments[0].value) if call.arguments else []
    return like(call.arguments[0].value) if items is None else ListValue(list(items), call.span, fixed=call.name == "tuple")


@follows("range")
def _range(_: ProgramState, call: CallOf) -> Value:
    bounds = [one.value.value for one in call.arguments if isinstance(one.value, Constant) and isinstance(one.value.value, int)]
    if len(bounds) < len(call.arguments) or not bounds or (len(bounds) == 3 and bounds[2] == 0):
        return unknown_of(*(one.value for one in call.arguments))
    numbers = range(*bounds)
    if max(map(abs, bounds)) > sys.maxsize:
        return COMPUTED
    if len(numbers) > _MOST_NUMBERS:
        return Unknown(IS_COMPUTED, length=len(numbers))
    return ListValue([Entry(Constant(number), call.span, call.span) for number in numbers], call.span)


@follows("set", "frozenset")
def _set(_: ProgramState, call: CallOf) -> Value:
    items = items_in(call.arguments[0].value) if call.arguments else []
    return unknown_of(call.arguments[0].value) if items is None else as_set(items, call.span)


@follows("len")
def _length(state: ProgramState, call: CallOf) -> Value:
    given = call.arguments[0].value if call.arguments else None
    if isinstance(given, Constant) and isinstance(given.value, str):
        return Constant(len(given.value), given.soft)
    if isinstance(given, Library) and given.name == "sys.argv":
        words = known_words(state.flags)
        return Constant(len(words) + 1) if words else Unknown(Reason(Cause.ARGV))
    length = length_of(state, given)
    return unknown_of(given) if length is None else length


@follows("any", "all")
def _any_or_all(_: ProgramState, call: CallOf) -> Value:
    """`any(...)` and `all(...)` of items of which the truth is known."""
    items = items_in(call.arguments[0].value) if call.arguments else None
    if items is None:
        return unknown_of(call.arguments[0].value if call.arguments else None)
    truths = [truth(one.value) for one in items]
    deciding = call.name == "any"
    if deciding in truths:
        return Constant(deciding, all(is_soft(one.value) for one, holds in zip(items, truths, strict=True) if holds is deciding))
    return unknown_of(*(one.value for one in items)) if None in truths else Constant(not deciding, any(is_soft(one.value) for one in items))


@follows("sorted")
def _sorted(_: ProgramState, call: CallOf) -> Value:
    """`sorted(...)` of numbers, of texts, or of pairs by their first item."""
    given = call.arguments[0].value if call.arguments else None
    items = items_in(given)
    backwards = call.plain("reverse")
    if items is None or call.keywords.keys() - {"reverse"} or not isinstance(backwards, bool | None):
        return unknown_of(given)
    pairs = pairs_of(ListValue(items, call.span))
    if pairs and len({name for name, *_ in pairs}) == len(pairs):
        by_key = {id(key): one for (_, key, _), one in zip(pairs, items, strict=True)}
        order = in_order([key for _, key, _ in pairs], backwards=bool(backwards))
        return ListValue([by_key[id(key)] for key in order], call.span) if order is not None else COMPUTED
    found = in_order(items, backwards=bool(backwards))
    return unknown_of(*(one.value for one in items)) if found is None else ListValue(found, call.span)


@follows("zip", "enumerate")
def _zip(_: ProgramState, call: CallOf) -> Value:
    """`zip(...)` and `enumerate(...)`."""
    given = [row_in(one.value) for one in call.arguments]
    if any(one is None for one in given) or not given or not call.complete or call.keywords.keys() - {"strict", "start"}:
        first = call.arguments[0].value if call.arguments else None
        if call.name == "enumerate" and isinstance(first, Unknown) and first.made:
            return replace(first, made=f"{first.made}.enumerate")
        if call.name == "zip" and call.complete and any(isinstance(one.value, Unknown) and one.value.made for one in call.arguments):
            unknown = unknown_of(*(one.value for one in call.arguments))
            return replace(unknown, made="zip", options=tuple(one.value for one in call.arguments)) if type(unknown) is Unknown else unknown
        return unknown_of(*(one.value for one in call.arguments))
    rows = [one for one in given if one is not None]
    if call.name == "enumerate":
        start = call.get("start", 1) or Constant(0)
        if not isinstance(start, Constant) or not isinstance(start.value, int):
            return unknown_of(start)
        rows = [[entry_of(Constant(start.value + number), call) for number in range(len(rows[0]))], rows[0]]
    return ListValue([entry_of(ListValue(list(pair), call.span), call) for pair in zip(*rows, strict=False)], call.span)


@follows("reversed")
def _reversed(_: ProgramState, call: CallOf) -> Value:
    items = row_in(call.arguments[0].value) if call.arguments else None
    return unknown_of(call.arguments[0].value if call.arguments else None) if items is None else ListValue(items[::-1], call.span)


@follows("map", "filter")
def _map(state: ProgramState, call: CallOf) -> Value:
    """`map` and `filter` with a function of the project, or one of Python's for numbers and texts."""
    items = row_in(call.arguments[1].value) if len(call.arguments) == 2 and not call.keywords else None
    if items is None:
        return unknown_of(*(one.value for one in call.arguments[1:]))
    function = call.arguments[0].value
    results = [_applied(state, function, one, call) for one in items]
    if call.name == "map":
        return ListValue([entry_of(one, call) for one in results], call.span)
    kept = [truth(one) for one in results]
    return COMPUTED if None in kept else ListValue([one for one, keep in zip(items, kept, strict=True) if keep], call.span)


def _applied(state: ProgramState, function: Value, one: Entry, call: CallOf) -> Value:
    if isinstance(function, Function):
        return enter(state, function, [one.value], {})
    if isinstance(function, Library) and function.name in FUNCTIONS:
        given = [Argument(one.value, one.span, one.key_span)]
        return FUNCTIONS[function.name](state, replace(call, name=function.name, arguments=given, keywords={}))
    applied: Value = one.value
    return applied if function == NONE else COMPUTED


@follows("iter")
def _iter(state: ProgramState, call: CallOf) -> Value:
    """`iter(...)`: what `next` takes of it is gone."""
    given = call.arguments[0].value if len(call.arguments) == 1 else None
    items = row_in(given) if given is not None else None
    if items is None:
        if isinstance(given, Unknown) and given.made:
            return replace(given, made=f"{given.made}.iter")
        return unknown_of(*(one.value for one in call.arguments))
    return Object("iterator", state.journal.cells(), about=ListValue(list(items), call.span))


@follows("next")
def _next(state: ProgramState, call: CallOf) -> Value:
    given, default = call.get("iterator", 0), call.get("default", 1)
    if isinstance(given, Object) and given.kind == GENERATOR:
        collected(state, given, call.span)
        return Unknown(Reason(Cause.GENERATOR, (), call.span))
    row = given.about if isinstance(given, Object) and given.kind == "iterator" else given
    if not isinstance(row, ListValue) or row.changed or state.repeated:
        if isinstance(row, ListValue):
            set_items(state, row, None, call.span)
        return unknown_of(given)
    if not row.items:
        return default or COMPUTED
    first, *rest = row.items
    set_items(state, row, rest, call.span)
    taken: Value = first.value
    return taken


follows("dict", "collections.OrderedDict", "easydict.EasyDict", "ml_collections.ConfigDict", "addict.Dict")(new_dict)


@follows("dict.fromkeys")
def _fromkeys(state: ProgramState, call: CallOf) -> Value:
    """`dict.fromkeys(keys, value)`."""
    items = row_in(call.arguments[0].value) if call.arguments else None
    made = new_table(state, call.span)
    default = call.argument("value", 1) or Argument(NONE, call.span, call.span)
    pairs = [entry_of(ListValue([one, Entry(default.value, default.key, default.span)], call.span), call) for one in items or ()]
    merge(state, made, ListValue(pairs, call.span) if items is not None else unknown_of(call.arguments[0].value), place=call.span)
    return made


@follows("collections.defaultdict")
def _defaultdict(state: ProgramState, call: CallOf) -> Value:
    """A dict whose missing keys are made when they are read, which is not followed: it may have more keys."""
    made = new_dict(state, replace(call, arguments=call.arguments[1:]))
    if isinstance(made, DictValue):
        leave_open(state, made, Reason(Cause.COMPUTED, (), call.span))
    return made


CONSUMES = frozenset("dict list tuple set frozenset sum sorted any all max min zip enumerate map filter reversed".split()) | {
    "functools.reduce",
    "dict.fromkeys",
}
"""Functions that go over their arguments, which can be generators."""
