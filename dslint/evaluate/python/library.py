"""What functions of libraries return that a config is built with: json, YAML, os.path, numbers. They are followed, never called."""

from __future__ import annotations

import posixpath
from collections.abc import Callable
from functools import reduce
from typing import Any

from dslint.evaluate.python.calls import Argument, CallOf
from dslint.evaluate.python.dicts import new_dict
from dslint.evaluate.python.evaluate import State
from dslint.evaluate.python.files import TEMPORARY, exists, json_file, json_text, write_file, yaml_file
from dslint.evaluate.python.objects import OBJECTS
from dslint.evaluate.python.parsers import argument_parser, class_parser, config_arguments, field_of
from dslint.evaluate.python.repetition import items_of
from dslint.evaluate.python.statements import set_variable
from dslint.evaluate.python.strings import opened_file
from dslint.evaluate.python.tables import copied, copied_flat, deep_merge, new_table, whole
from dslint.evaluate.reasons import IS_COMPUTED, Cause, Reason
from dslint.evaluate.values import (
    COMPUTED,
    NONE,
    Constant,
    DictValue,
    Entry,
    ListValue,
    Object,
    Unknown,
    Value,
    converted,
    is_soft,
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
    if isinstance(path, Constant) and isinstance(path.value, str):
        return json_file(state, path.value, as_json=not call.name.startswith("hjson"))
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
    if isinstance(path, Constant) and isinstance(path.value, str) and path.value.endswith((".yaml", ".yml", ".json")):
        return yaml_file(state, path.value, interpolates=call.name.startswith("omegaconf"))
    return _unknown(path, reason=Reason(Cause.FILE))


def _merged(state: State, call: CallOf) -> Value:
    made = new_table(state, call.span)
    for one in call.arguments:
        if isinstance(one.value, DictValue):
            deep_merge(state, made, copied(state, one.value))
        else:
            made.open["more"] = True
    return made


# ---------------------------------------------------------------------- paths and the environment


def _first(_: State, call: CallOf) -> Value:
    return call.arguments[0].value if call.arguments else Unknown()


def _join(_: State, call: CallOf) -> Value:
    parts = [argument.value for argument in call.arguments]
    plain = [part for part in parts if isinstance(part, Constant) and isinstance(part.value, str)]
    if len(plain) < len(parts) or not call.complete or not parts:
        return _unknown(*parts)
    return Constant(posixpath.join(*(str(part.value) for part in plain)), any(part.soft for part in plain))


def _dirname(_: State, call: CallOf) -> Value:
    path = call.plain("p", 0)
    return Constant(posixpath.dirname(path) or ".") if isinstance(path, str) else _unknown(call.get("p", 0))


def _basename(_: State, call: CallOf) -> Value:
    path = call.plain("p", 0)
    return Constant(posixpath.basename(path)) if isinstance(path, str) else _unknown(call.get("p", 0))


def _exists(state: State, call: CallOf) -> Value:
    """A file that is there now is taken to be there in the run; one that is not may be."""
    path = call.get("path", 0)
    is_there = isinstance(path, Constant) and isinstance(path.value, str) and exists(state, path.value)
    return Constant(value=True, soft=True) if is_there else COMPUTED


_SET_BY_LAUNCHERS = frozenset({"WORLD_SIZE", "LOCAL_WORLD_SIZE", "RANK", "LOCAL_RANK"})
"""Variables that are always set where ranks run: the default that a program has for them does not count."""


def _environ(state: State, call: CallOf) -> Value:
    name, default = call.plain("key", 0), call.get("default", 1)
    if name in state.environment:
        return state.environment[name]
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
    folder = call.arguments[-1].value if call.arguments else None
    if isinstance(folder, Constant) and isinstance(folder.value, str):
        state.folders.append(folder.value)
    return NONE


# ---------------------------------------------------------------------- numbers and lists


def _number(_: State, call: CallOf) -> Value:
    value = call.get("x", 0)
    if not isinstance(value, Constant) or len(call.arguments) != 1:
        return _unknown(value)
    return converted(value, call.name)


_NUMERIC: dict[str, Callable[..., Any]] = {"max": max, "min": min, "abs": abs, "round": round, "sum": lambda *given: sum(given)}


def _numeric(_: State, call: CallOf) -> Value:
    """`max`, `min`, `abs`, `round`, of numbers that are all known."""
    values = [one.value for one in call.arguments]
    if len(values) == 1 and isinstance(values[0], ListValue) and not values[0].changed:
        values = [one.value for one in values[0].items]
    plain = [one for one in values if isinstance(one, Constant) and isinstance(one.value, int | float)]
    if len(plain) < len(values) or not plain or not call.complete or call.keywords:
        return _unknown(*values)
    function = _NUMERIC[call.name]
    try:
        found = function(*(one.value for one in plain))
    except (TypeError, ValueError, OverflowError):
        return COMPUTED
    return Constant(found, any(one.soft for one in plain)) if isinstance(found, int | float) else COMPUTED


def _length(_: State, call: CallOf) -> Value:
    given = call.arguments[0].value if call.arguments else None
    if isinstance(given, Constant) and isinstance(given.value, str):
        return Constant(len(given.value), given.soft)
    items = items_of(given) if given is not None else None
    return _unknown(given) if items is None else Constant(len(items))


def _any_or_all(_: State, call: CallOf) -> Value:
    """`any(...)` and `all(...)` of items of which the truth is known."""
    items = items_of(call.arguments[0].value) if call.arguments else None
    if items is None:
        return _unknown(call.arguments[0].value if call.arguments else None)
    truths = [truth(one.value) for one in items]
    deciding = call.name == "any"
    if deciding in truths:
        return Constant(deciding, all(is_soft(one.value) for one, holds in zip(items, truths, strict=True) if holds is deciding))
    return _unknown(*(one.value for one in items)) if None in truths else Constant(not deciding, any(is_soft(one.value) for one in items))


def _sorted(_: State, call: CallOf) -> Value:
    """`sorted(...)` of numbers, or of texts."""
    items = items_of(call.arguments[0].value) if call.arguments and not call.keywords else None
    if items is None:
        return _unknown(call.arguments[0].value if call.arguments else None)
    values: list[Any] = [one.value.value for one in items if isinstance(one.value, Constant)]
    numbers = all(isinstance(one, int | float) for one in values)
    if len(values) < len(items) or not (numbers or all(isinstance(one, str) for one in values)):
        return _unknown(*(one.value for one in items))
    order = sorted(range(len(items)), key=values.__getitem__)
    return ListValue([items[index] for index in order], call.span)


def _splitext(_: State, call: CallOf) -> Value:
    path = call.plain("p", 0)
    if not isinstance(path, str):
        return _unknown(call.get("p", 0))
    return ListValue([Entry(Constant(part), call.span, call.span) for part in posixpath.splitext(path)], call.span)


def _list(_: State, call: CallOf) -> Value:
    items = items_of(call.arguments[0].value) if call.arguments else []
    return _unknown(call.arguments[0].value) if items is None else ListValue(list(items), call.span)


def _range(_: State, call: CallOf) -> Value:
    bounds = [one.value.value for one in call.arguments if isinstance(one.value, Constant) and isinstance(one.value.value, int)]
    if len(bounds) < len(call.arguments) or not bounds or (len(bounds) == 3 and bounds[2] == 0):
        return COMPUTED
    numbers = range(*bounds)
    if len(numbers) > _MOST_NUMBERS:
        return COMPUTED
    return ListValue([Entry(Constant(number), call.span, call.span) for number in numbers], call.span)


def _copied(state: State, call: CallOf) -> Value:
    value = call.arguments[0].value if call.arguments else Unknown()
    copy = copied_flat if call.name == "copy.copy" else copied
    copies: list[Value] = [copy(state, one) for one in tables_of(value)]
    return reduce(state.journal.joined, copies) if copies else value


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
    "mmengine.Config": _first,
    "omegaconf.OmegaConf.create": _first,
    "omegaconf.OmegaConf.to_container": _first,
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
    "json.dumps": _first,
    "write_text": _write_text,
    "os.path.join": _join,
    "os.path.dirname": _dirname,
    "os.path.basename": _basename,
    "os.path.abspath": _first,
    "os.path.realpath": _first,
    "os.path.expanduser": _first,
    "os.path.normpath": _first,
    "os.path.exists": _exists,
    "os.path.isfile": _exists,
    "os.fspath": _first,
    "pathlib.Path": _join,
    "pathlib.PurePath": _join,
    "os.environ.get": _environ,
    "os.environ.update": _set_environ,
    "os.environ.setdefault": _set_environ,
    "os.putenv": _set_environ,
    "os.getenv": _environ,
    "sys.path.append": _add_folder,
    "sys.path.insert": _add_folder,
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
