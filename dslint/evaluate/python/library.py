"""What functions of libraries return that a config is built with: json, YAML, os.path, numbers. They are followed, never called."""

from __future__ import annotations

import math
import posixpath
from collections.abc import Callable
from dataclasses import replace
from functools import reduce
from typing import Any

from dslint.evaluate.python.calls import Argument, CallOf
from dslint.evaluate.python.dicts import new_dict
from dslint.evaluate.python.evaluate import VALUE_ERROR, State, raise_certainly
from dslint.evaluate.python.expressions import as_set
from dslint.evaluate.python.files import TEMPORARY, exists, json_file, json_text, write_file, yaml_file
from dslint.evaluate.python.functions import GENERATOR, collected, enter, library_base
from dslint.evaluate.python.objects import OBJECTS
from dslint.evaluate.python.operators import LONGEST
from dslint.evaluate.python.parsers import argument_parser, class_parser, config_arguments, field_of
from dslint.evaluate.python.paths import absolute, expanded, folder_of, joined, last_part, located
from dslint.evaluate.python.rows import in_order
from dslint.evaluate.python.statements import set_variable
from dslint.evaluate.python.strings import as_text, opened_file
from dslint.evaluate.python.tables import (
    SET,
    certain_items,
    copied,
    copied_flat,
    copied_row,
    deep_merge,
    items_of,
    leave_open,
    merge,
    new_table,
    pairs_of,
    set_items,
    whole,
)
from dslint.evaluate.reasons import IS_COMPUTED, Cause, Reason
from dslint.evaluate.values import (
    COMPUTED,
    NONE,
    Class,
    Constant,
    DictValue,
    Entry,
    Function,
    Library,
    ListValue,
    Object,
    Unknown,
    Value,
    converted,
    is_soft,
    member,
    path_of,
    soften,
    tables_of,
    truth,
)

_MOST_NUMBERS = 40


def _unknown(*values: Value | None, reason: Reason = IS_COMPUTED) -> Unknown:
    """What depends on values that are not all known: the first of them says where it comes from."""
    known = next((one for one in values if isinstance(one, Unknown) and one.reason), None)
    return Unknown(known.reason if known else reason)


# ---------------------------------------------------------------------- files


def _open(_: State, call: CallOf) -> Value:
    return opened_file(call.get("file", 0) or Unknown(), call.plain("mode", 1))


def _temporary(_: State, call: CallOf) -> Value:
    return opened_file(Constant(f"{TEMPORARY} {call.span.start}>"), "w")


def _path_of(file: Value | None) -> Value | None:
    return file.cells.get("path") if isinstance(file, Object) else None


def _json_load(state: State, call: CallOf) -> Value:
    file = call.get("fp", 0)
    path = _path_of(file)
    if (name := path_of(path)) is not None:
        return json_file(state, name, as_json=not call.name.startswith("hjson"))
    return _unknown(path, file, reason=Reason(Cause.FILE))


def _json_text(state: State, call: CallOf) -> Value:
    text = whole(state, call.get("s", 0) or Unknown())
    if isinstance(text, DictValue):
        return copied(state, text)
    if isinstance(text, Constant) and isinstance(text.value, str):
        return json_text(state, text.value, call.arguments[0].span if call.arguments else call.span)
    return _unknown(text)


def _json_dump(state: State, call: CallOf) -> Value:
    write_file(state, _path_of(call.get("fp", 1)) or Unknown(), call.get("obj", 0), call.span)
    return NONE


def _write_text(state: State, call: CallOf) -> Value:
    write_file(state, call.arguments[0].value, call.arguments[1].value if len(call.arguments) > 1 else call.get("data"), call.span)
    return NONE


def _yaml_load(state: State, call: CallOf) -> Value:
    """A YAML file, given as an open file, or to OmegaConf as its path."""
    file = call.arguments[0].value if call.arguments else call.get("stream") or call.get("file_")
    path = _path_of(file) or file
    if (name := path_of(path)) is not None and name.endswith((".yaml", ".yml", ".json")):
        return yaml_file(state, name, interpolates=call.name.startswith("omegaconf"))
    return _unknown(path, reason=Reason(Cause.FILE))


def _merged(state: State, call: CallOf) -> Value:
    made = new_table(state, call.span)
    for one in call.arguments:
        if isinstance(one.value, DictValue):
            deep_merge(state, made, copied(state, one.value))
        else:
            why = one.value.reason if isinstance(one.value, Unknown) else None
            leave_open(state, made, why or Reason(Cause.MERGED, (), one.span))
    return made


# ---------------------------------------------------------------------- paths and the environment


def first_argument(_: State, call: CallOf) -> Value:
    """What a function returns that changes nothing about its first argument, as far as it matters here."""
    return call.arguments[0].value if call.arguments else Unknown()


def _join(_: State, call: CallOf) -> Value:
    parts = [argument.value for argument in call.arguments]
    return joined(parts) if call.complete else _unknown(*parts)


def _dirname(_: State, call: CallOf) -> Value:
    return folder_of(call.get("p", 0) or Unknown())


def _basename(_: State, call: CallOf) -> Value:
    return last_part(call.get("p", 0) or Unknown())


def _absolute(_: State, call: CallOf) -> Value:
    return absolute(call.get("path", 0) or Unknown(), follows_links=call.name == "os.path.realpath")


def _expanduser(_: State, call: CallOf) -> Value:
    return expanded(call.get("path", 0) or Unknown())


def _working_directory(_: State, __: CallOf) -> Value:
    return located(".")


def _exists(state: State, call: CallOf) -> Value:
    """A file that is there now is taken to be there in the run; one that is not may be."""
    path = path_of(call.get("path", 0))
    is_there = path is not None and exists(state, path)
    return Constant(value=True, soft=True) if is_there else COMPUTED


_SET_BY_LAUNCHERS = frozenset({"WORLD_SIZE", "LOCAL_WORLD_SIZE", "RANK", "LOCAL_RANK"})
"""Variables that are always set where ranks run: the default that a program has for them does not count."""


def _environ(state: State, call: CallOf) -> Value:
    name, default = call.plain("key", 0), call.get("default", 1)
    if name in state.environment:
        known: Value = state.environment[name]
        return known
    if name in _SET_BY_LAUNCHERS:
        return Unknown(Reason(Cause.VARIABLE, (str(name),)))
    return soften(default) if isinstance(default, Constant) and default.value is not None else Unknown(Reason(Cause.VARIABLE, (str(name),)))


def _set_environ(state: State, call: CallOf) -> Value:
    """`os.environ.update(...)`, `os.environ.setdefault(name, value)`."""
    name = call.plain("key", 0)
    if isinstance(name, str) and len(call.arguments) > 1:
        set_variable(state, name, call.arguments[1], call.scope)
    made = new_dict(state, call) if not isinstance(name, str) else new_table(state, call.span)
    for variable, entry in made.cells.items() if isinstance(made, DictValue) else ():
        set_variable(state, variable, Argument(entry.value, entry.span, entry.key_span, entry.literal), call.scope)
    return NONE


def _add_folder(state: State, call: CallOf) -> Value:
    """`sys.path.append(folder)`, `sys.path.insert(0, folder)`."""
    folder = path_of(call.arguments[-1].value) if call.arguments else None
    if folder is not None:
        state.folders.append(folder)
    return NONE


# ---------------------------------------------------------------------- numbers and lists


def _number(state: State, call: CallOf) -> Value:
    value = call.get("x", 0)
    if call.name == "str" and isinstance(value, Object):
        return COMPUTED
    if call.name == "str" and isinstance(value, Unknown) and value.path is not None:
        return value
    if call.name == "int" and len(call.arguments) == 2:
        base = call.plain("base", 1)
        text = call.plain("x", 0)
        try:
            return Constant(int(text, base)) if isinstance(text, str) and isinstance(base, int) and len(text) < _MOST_NUMBERS else COMPUTED
        except ValueError:
            return COMPUTED
    if call.name == "bool" and value is not None and not isinstance(value, Constant) and len(call.arguments) == 1:
        holds = truth(value)
        return _unknown(value) if holds is None else Constant(holds)
    if not isinstance(value, Constant) or len(call.arguments) != 1:
        return _unknown(value)
    found = converted(value, call.name)
    if isinstance(found, Unknown) and isinstance(value.value, str):
        raise_certainly(state, VALUE_ERROR)
    return found


_NUMERIC: dict[str, Callable[..., Any]] = {"max": max, "min": min, "abs": abs, "round": round, "sum": lambda *given: sum(given)}


def _numeric(_: State, call: CallOf) -> Value:
    """`max`, `min`, `abs`, `round`, of numbers that are all known."""
    values = [one.value for one in call.arguments]
    if len(values) == 1 and (items := _items(values[0])) is not None:
        values = [one.value for one in items]
    plain = [one for one in values if isinstance(one, Constant) and isinstance(one.value, int | float)]
    if len(plain) < len(values) or not plain or not call.complete or call.keywords:
        return _unknown(*values)
    function = _NUMERIC[call.name]
    try:
        found = function(*(one.value for one in plain))
    except (TypeError, ValueError, OverflowError):
        return COMPUTED
    return Constant(found, any(one.soft for one in plain)) if isinstance(found, int | float) else COMPUTED


def _length(state: State, call: CallOf) -> Value:
    given = call.arguments[0].value if call.arguments else None
    if isinstance(given, Constant) and isinstance(given.value, str):
        return Constant(len(given.value), given.soft)
    if isinstance(given, Object) and isinstance(method := member(given.type, "__len__"), Function):
        return enter(state, method.bound(given), [], {})
    items = _items(given)
    return _unknown(given) if items is None else Constant(len(items))


def _items(given: Value | None) -> list[Entry] | None:
    """The items of a value, of a set in any order; None if they are not known."""
    if isinstance(given, Object) and given.kind == SET:
        given = given.about
    return certain_items(given) if given is not None else None


def _any_or_all(_: State, call: CallOf) -> Value:
    """`any(...)` and `all(...)` of items of which the truth is known."""
    items = _items(call.arguments[0].value) if call.arguments else None
    if items is None:
        return _unknown(call.arguments[0].value if call.arguments else None)
    truths = [truth(one.value) for one in items]
    deciding = call.name == "any"
    if deciding in truths:
        return Constant(deciding, all(is_soft(one.value) for one, holds in zip(items, truths, strict=True) if holds is deciding))
    return _unknown(*(one.value for one in items)) if None in truths else Constant(not deciding, any(is_soft(one.value) for one in items))


def _sorted(_: State, call: CallOf) -> Value:
    """`sorted(...)` of numbers, of texts, or of pairs by their first item."""
    given = call.arguments[0].value if call.arguments else None
    items = _items(given)
    backwards = call.plain("reverse")
    if items is None or call.keywords.keys() - {"reverse"} or not isinstance(backwards, bool | None):
        return _unknown(given)
    pairs = pairs_of(ListValue(items, call.span))
    if pairs and len({name for name, *_ in pairs}) == len(pairs):
        by_key = {id(key): one for (_, key, _), one in zip(pairs, items, strict=True)}
        order = in_order([key for _, key, _ in pairs], backwards=bool(backwards))
        return ListValue([by_key[id(key)] for key in order], call.span) if order is not None else COMPUTED
    found = in_order(items, backwards=bool(backwards))
    return _unknown(*(one.value for one in items)) if found is None else ListValue(found, call.span)


def _zip(_: State, call: CallOf) -> Value:
    """`zip(...)` and `enumerate(...)`."""
    given = [_rows_of(one.value) for one in call.arguments]
    if any(one is None for one in given) or not given or not call.complete or call.keywords.keys() - {"strict", "start"}:
        return _unknown(*(one.value for one in call.arguments))
    rows = [one for one in given if one is not None]
    if call.name == "enumerate":
        start = call.get("start", 1) or Constant(0)
        if not isinstance(start, Constant) or not isinstance(start.value, int):
            return _unknown(start)
        rows = [[_entry(Constant(start.value + number), call) for number in range(len(rows[0]))], rows[0]]
    return ListValue([_entry(ListValue(list(pair), call.span), call) for pair in zip(*rows, strict=False)], call.span)


def _rows_of(value: Value) -> list[Entry] | None:
    return None if isinstance(value, Object) and value.kind == SET else certain_items(value)


def _reversed(_: State, call: CallOf) -> Value:
    items = _rows_of(call.arguments[0].value) if call.arguments else None
    return _unknown(call.arguments[0].value if call.arguments else None) if items is None else ListValue(items[::-1], call.span)


def _map(state: State, call: CallOf) -> Value:
    """`map` and `filter` with a function of the project, or one of Python's for numbers and texts."""
    items = _rows_of(call.arguments[1].value) if len(call.arguments) == 2 and not call.keywords else None
    if items is None:
        return _unknown(*(one.value for one in call.arguments[1:]))
    function = call.arguments[0].value
    results = [_applied(state, function, one, call) for one in items]
    if call.name == "map":
        return ListValue([_entry(one, call) for one in results], call.span)
    kept = [truth(one) for one in results]
    return COMPUTED if None in kept else ListValue([one for one, keep in zip(items, kept, strict=True) if keep], call.span)


def _applied(state: State, function: Value, one: Entry, call: CallOf) -> Value:
    if isinstance(function, Function):
        return enter(state, function, [one.value], {})
    if isinstance(function, Library) and function.name in FUNCTIONS:
        given = [Argument(one.value, one.span, one.key_span)]
        return FUNCTIONS[function.name](state, replace(call, name=function.name, arguments=given, keywords={}))
    applied: Value = one.value
    return applied if function == NONE else COMPUTED


def _reduce(state: State, call: CallOf) -> Value:
    """`functools.reduce(function, items)` with a function of the project."""
    function, items = call.get("function", 0), _rows_of(call.arguments[1].value) if len(call.arguments) > 1 else None
    values = [one.value for one in (*call.arguments[2:], *(items or ()))]
    if items is None or not isinstance(function, Function) or not values:
        return _unknown(*(one.value for one in call.arguments[1:]))
    result: Value = values[0]
    for one in values[1:]:
        result = enter(state, function, [result, one], {})
    return result


def _fromkeys(state: State, call: CallOf) -> Value:
    """`dict.fromkeys(keys, value)`."""
    items = _rows_of(call.arguments[0].value) if call.arguments else None
    made = new_table(state, call.span)
    default = call.argument("value", 1) or Argument(NONE, call.span, call.span)
    pairs = [_entry(ListValue([one, Entry(default.value, default.key, default.span)], call.span), call) for one in items or ()]
    merge(state, made, ListValue(pairs, call.span) if items is not None else _unknown(call.arguments[0].value), place=call.span)
    return made


def _set(_: State, call: CallOf) -> Value:
    items = _items(call.arguments[0].value) if call.arguments else []
    return _unknown(call.arguments[0].value) if items is None else as_set(items, call.span)


def _iter(state: State, call: CallOf) -> Value:
    """`iter(...)`: what `next` takes of it is gone."""
    items = _rows_of(call.arguments[0].value) if len(call.arguments) == 1 else None
    if items is None:
        return _unknown(*(one.value for one in call.arguments))
    return Object("iterator", state.journal.cells(), about=ListValue(list(items), call.span))


def _next(state: State, call: CallOf) -> Value:
    given, default = call.get("iterator", 0), call.get("default", 1)
    if isinstance(given, Object) and given.kind == GENERATOR:
        collected(state, given, call.span)
        return Unknown(Reason(Cause.GENERATOR, (), call.span))
    row = given.about if isinstance(given, Object) and given.kind == "iterator" else given
    if not isinstance(row, ListValue) or row.changed or state.repeated:
        if isinstance(row, ListValue):
            set_items(state, row, None, call.span)
        return _unknown(given)
    if not row.items:
        return default or COMPUTED
    first, *rest = row.items
    set_items(state, row, rest, call.span)
    taken: Value = first.value
    return taken


def _math(_: State, call: CallOf) -> Value:
    """A function of `math`, and `divmod` and `pow`, of numbers that are known and not large."""
    values = [one.value for one in call.arguments]
    plain = [one.value for one in values if isinstance(one, Constant) and isinstance(one.value, int | float) and abs(one.value) < _LARGEST]
    if len(plain) < len(values) or call.keywords or not call.complete or (call.name == "pow" and abs(plain[-1]) > _MOST_NUMBERS):
        return _unknown(*values)
    try:
        found = _MATH[call.name](*plain)
    except (TypeError, ValueError, OverflowError, ZeroDivisionError):
        return COMPUTED
    soft = any(map(is_soft, values))
    if isinstance(found, tuple):
        return ListValue([_entry(Constant(one, soft), call) for one in found], call.span)
    return Constant(found, soft) if isinstance(found, int | float | str) else COMPUTED


_LARGEST = 1e15
_MATH: dict[str, Callable[..., Any]] = {
    **{f"math.{name}": getattr(math, name) for name in ("ceil", "floor", "sqrt", "log2", "log10", "log", "prod", "pow", "trunc", "gcd")},
    "divmod": divmod,
    "pow": pow,
    "hex": hex,
    "bin": bin,
    "oct": oct,
}


def _repr(_: State, call: CallOf) -> Value:
    """`repr(value)` and `format(value, spec)`."""
    value, spec = call.get("value", 0), call.plain("format_spec", 1)
    if not isinstance(value, Constant) or len(call.arguments) > 2:
        return _unknown(value)
    if call.name == "repr":
        return Constant(repr(value.value), value.soft) if len(str(value.value)) < LONGEST else COMPUTED
    return as_text(Constant(f"{{:{spec or ''}}}"), value, braces=True) if len(call.arguments) == 1 or isinstance(spec, str) else COMPUTED


def _hasattr(_: State, call: CallOf) -> Value:
    thing, name = call.get("obj", 0), call.plain("name", 1)
    if isinstance(thing, Object) and isinstance(name, str) and name in thing.cells:
        return Constant(value=True)
    is_own = isinstance(thing, Object) and (thing.kind == "a namespace" or (thing.type is not None and not library_base(thing.type)))
    if not is_own or not isinstance(thing, Object) or not isinstance(name, str) or thing.reason is not None:
        return COMPUTED
    return Constant(member(thing.type, name) is not None)


def _suppress(state: State, call: CallOf) -> Value:
    """`contextlib.suppress(...)`."""
    names = frozenset(one.value.name for one in call.arguments if isinstance(one.value, Class | Library))
    return Object("suppress", state.journal.cells(), about=names)


def _defaultdict(state: State, call: CallOf) -> Value:
    """A dict whose missing keys are made when they are read, which is not followed: it may have more keys."""
    made = new_dict(state, replace(call, arguments=call.arguments[1:]))
    if isinstance(made, DictValue):
        leave_open(state, made, Reason(Cause.COMPUTED, (), call.span))
    return made


def _normpath(_: State, call: CallOf) -> Value:
    path = call.get("path", 0)
    name = path_of(path)
    if name is None or path is None:
        return _unknown(path)
    return Constant(posixpath.normpath(name), is_soft(path)) if isinstance(path, Constant) else path


def _entry(value: Value, call: CallOf) -> Entry:
    return Entry(value, call.span, call.span)


def _splitext(_: State, call: CallOf) -> Value:
    path = call.plain("p", 0)
    if not isinstance(path, str):
        return _unknown(call.get("p", 0))
    return ListValue([Entry(Constant(part), call.span, call.span) for part in posixpath.splitext(path)], call.span)


def _list(_: State, call: CallOf) -> Value:
    items = items_of(call.arguments[0].value) if call.arguments else []
    return _unknown(call.arguments[0].value) if items is None else ListValue(list(items), call.span, fixed=call.name == "tuple")


def _range(_: State, call: CallOf) -> Value:
    bounds = [one.value.value for one in call.arguments if isinstance(one.value, Constant) and isinstance(one.value.value, int)]
    if len(bounds) < len(call.arguments) or not bounds or (len(bounds) == 3 and bounds[2] == 0):
        return _unknown(*(one.value for one in call.arguments))
    numbers = range(*bounds)
    if len(numbers) > _MOST_NUMBERS:
        return COMPUTED
    return ListValue([Entry(Constant(number), call.span, call.span) for number in numbers], call.span)


def _copied(state: State, call: CallOf) -> Value:
    value = call.arguments[0].value if call.arguments else Unknown()
    if isinstance(value, ListValue):
        return copied_row(state, value) if call.name == "copy.deepcopy" else ListValue(list(value.items), call.span, changed=value.changed)
    copy = copied_flat if call.name == "copy.copy" else copied
    copies: list[Value] = [copy(state, one) for one in tables_of(value)]
    return reduce(state.journal.joined, copies) if copies else _copied_object(state, value, deep=call.name == "copy.deepcopy")


def _copied_object(state: State, value: Value, *, deep: bool) -> Value:
    """A copy of an object of a class of the project, which shares nothing that can change."""
    if not isinstance(value, Object) or value.type is None:
        return value
    made = Object(value.kind, state.journal.cells(), value.type, value.about, value.reason)
    for name, one in value.cells.items():
        made.cells[name] = copied(state, one) if deep and isinstance(one, DictValue) else copied_row(state, one) if deep else one
    return made


def _default(_: State, call: CallOf) -> Value:
    """`typer.Option(default)`: a flag with its default."""
    given = call.get("default", 0)
    return soften(given) if isinstance(given, Constant) and given.value is not None else Unknown(Reason(Cause.SOME_FLAG))


FUNCTIONS: dict[str, Callable[[State, CallOf], Value]] = {
    **OBJECTS,
    "dict": new_dict,
    "collections.OrderedDict": new_dict,
    "easydict.EasyDict": new_dict,
    "ml_collections.ConfigDict": new_dict,
    "addict.Dict": new_dict,
    "omegaconf.OmegaConf.create": first_argument,
    "omegaconf.OmegaConf.to_container": first_argument,
    "omegaconf.OmegaConf.load": _yaml_load,
    "omegaconf.OmegaConf.merge": _merged,
    "yaml.safe_load": _yaml_load,
    "yaml.full_load": _yaml_load,
    "yaml.unsafe_load": _yaml_load,
    "yaml.load": _yaml_load,
    "copy.deepcopy": _copied,
    "copy.copy": _copied,
    "open": _open,
    "io.open": _open,
    "tempfile.NamedTemporaryFile": _temporary,
    "json.load": _json_load,
    "hjson.load": _json_load,
    "json.loads": _json_text,
    "hjson.loads": _json_text,
    "json.dump": _json_dump,
    "json.dumps": first_argument,
    "write_text": _write_text,
    "os.path.join": _join,
    "os.path.dirname": _dirname,
    "os.path.basename": _basename,
    "os.path.abspath": _absolute,
    "os.path.realpath": _absolute,
    "os.path.expanduser": _expanduser,
    "os.getcwd": _working_directory,
    "pathlib.Path.cwd": _working_directory,
    "os.path.normpath": _normpath,
    "os.path.exists": _exists,
    "os.path.isfile": _exists,
    "os.fspath": first_argument,
    "pathlib.Path": _join,
    "pathlib.PurePath": _join,
    "os.environ.get": _environ,
    "os.environ.update": _set_environ,
    "os.environ.setdefault": _set_environ,
    "os.putenv": _set_environ,
    "os.getenv": _environ,
    "sys.path.append": _add_folder,
    "sys.path.insert": _add_folder,
    "zip": _zip,
    "enumerate": _zip,
    "reversed": _reversed,
    "map": _map,
    "filter": _map,
    "functools.reduce": _reduce,
    "dict.fromkeys": _fromkeys,
    "set": _set,
    "frozenset": _set,
    "iter": _iter,
    "next": _next,
    "repr": _repr,
    "format": _repr,
    "hasattr": _hasattr,
    "contextlib.suppress": _suppress,
    "collections.defaultdict": _defaultdict,
    **dict.fromkeys(_MATH, _math),
    "int": _number,
    "float": _number,
    "str": _number,
    "bool": _number,
    "max": _numeric,
    "min": _numeric,
    "abs": _numeric,
    "round": _numeric,
    "sum": _numeric,
    "len": _length,
    "any": _any_or_all,
    "all": _any_or_all,
    "sorted": _sorted,
    "os.path.splitext": _splitext,
    "list": _list,
    "tuple": _list,
    "range": _range,
    "argparse.ArgumentParser": argument_parser,
    "deepspeed.add_config_arguments": config_arguments,
    "transformers.HfArgumentParser": class_parser,
    "trl.TrlParser": class_parser,
    "dataclasses.field": field_of,
    "typer.Option": _default,
    "typer.Argument": _default,
}
"""Functions of libraries by their full names."""

CONSUMES = frozenset("dict list tuple set frozenset sum sorted any all max min zip enumerate map filter reversed".split()) | {
    "functools.reduce",
    "dict.fromkeys",
}
"""Functions that go over their arguments, which can be generators."""
