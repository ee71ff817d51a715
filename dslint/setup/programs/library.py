"""What functions of libraries return that a config is built with: json, os.path, numbers. They are followed, never called."""

from __future__ import annotations

import posixpath
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from dslint.setup.programs.calls import CallOf
from dslint.setup.programs.dicts import new_dict
from dslint.setup.programs.parsers import argument_parser, class_parser, config_arguments, field_of
from dslint.setup.programs.values import NONE, Object, Opaque, Plain, Table, Value, converted, soften

if TYPE_CHECKING:
    from dslint.setup.programs.functions import Functions


def _open(_: Functions, call: CallOf) -> Value:
    path = call.get("file", 0)
    mode = call.plain("mode", 1)
    cells = call.scope.cells.__class__(0)
    cells["path"] = path or Opaque()
    return Object("file", cells, about="w" if isinstance(mode, str) and mode[:1] in ("w", "x", "a") else "r")


def _json_load(follower: Functions, call: CallOf) -> Value:
    file = call.get("fp", 0)
    path = file.cells.get("path") if isinstance(file, Object) else None
    if isinstance(path, Plain) and isinstance(path.value, str):
        return follower.json_file(path.value, as_json=not call.name.startswith("hjson"))
    known = next((one for one in (path, file) if isinstance(one, Opaque) and one.why), None)
    return Opaque(known.why if known else "it is read from a file")


def _json_text(follower: Functions, call: CallOf) -> Value:
    text = call.get("s", 0)
    if isinstance(text, Table):
        return follower.copied(text)
    if isinstance(text, Plain) and isinstance(text.value, str):
        return follower.json_text(text.value, call.arguments[0].span if call.arguments else call.span)
    return Opaque(text.why if isinstance(text, Opaque) else "")


def _json_dump(follower: Functions, call: CallOf) -> Value:
    table, file = call.get("obj", 0), call.get("fp", 1)
    path = file.cells.get("path") if isinstance(file, Object) else None
    if isinstance(table, Table) and isinstance(path, Plain):
        follower.written[posixpath.normpath(str(path.value))] = follower.copied(table)
    return NONE


def _first(_: Functions, call: CallOf) -> Value:
    return call.arguments[0].value if call.arguments else Opaque()


def _join(_: Functions, call: CallOf) -> Value:
    parts = [argument.value for argument in call.arguments]
    plain = [part for part in parts if isinstance(part, Plain) and isinstance(part.value, str)]
    if len(plain) < len(parts) or not call.complete or not parts:
        known = next((part for part in parts if isinstance(part, Opaque) and part.why), None)
        return Opaque(known.why if known else "it is computed")
    return Plain(posixpath.join(*(str(part.value) for part in plain)), any(part.soft for part in plain))


def _dirname(_: Functions, call: CallOf) -> Value:
    path = call.plain("p", 0)
    return Plain(posixpath.dirname(path) or ".") if isinstance(path, str) else Opaque("it is computed")


_SET_BY_LAUNCHERS = frozenset({"WORLD_SIZE", "LOCAL_WORLD_SIZE", "RANK", "LOCAL_RANK"})
"""Variables that are always set where ranks run: the default that a program has for them does not count."""


def _environ(_: Functions, call: CallOf) -> Value:
    name, default = call.plain("key", 0), call.get("default", 1)
    if name in _SET_BY_LAUNCHERS:
        return Opaque(f"the environment variable {name}")
    return soften(default) if isinstance(default, Plain) and default.value is not None else Opaque(f"the environment variable {name}")


def _number(_: Functions, call: CallOf) -> Value:
    value = call.get("x", 0)
    if not isinstance(value, Plain) or len(call.arguments) != 1:
        return Opaque(value.why if isinstance(value, Opaque) and value.why else "it is computed")
    return converted(value, call.name)


def _extreme(_: Functions, call: CallOf) -> Value:
    values = [argument.value for argument in call.arguments]
    plain = [value for value in values if isinstance(value, Plain) and isinstance(value.value, int | float)]
    if len(plain) < 2 or len(plain) < len(values) or not call.complete:
        return Opaque("it is computed")
    numbers: list[Any] = [value.value for value in plain]
    return Plain(max(numbers) if call.name == "max" else min(numbers), any(value.soft for value in plain))


def _copied(follower: Functions, call: CallOf) -> Value:
    value = call.arguments[0].value if call.arguments else Opaque()
    return follower.copied(value) if isinstance(value, Table) else value


FUNCTIONS: dict[str, Callable[[Functions, CallOf], Value]] = {
    "dict": new_dict,
    "collections.OrderedDict": new_dict,
    "easydict.EasyDict": new_dict,
    "mmengine.Config": _first,
    "omegaconf.OmegaConf.create": _first,
    "omegaconf.OmegaConf.to_container": _first,
    "types.SimpleNamespace": new_dict,
    "argparse.Namespace": new_dict,
    "copy.deepcopy": _copied,
    "copy.copy": _copied,
    "open": _open,
    "io.open": _open,
    "json.load": _json_load,
    "hjson.load": _json_load,
    "json.loads": _json_text,
    "hjson.loads": _json_text,
    "json.dump": _json_dump,
    "json.dumps": _first,
    "os.path.join": _join,
    "os.path.dirname": _dirname,
    "os.path.abspath": _first,
    "os.path.realpath": _first,
    "os.path.expanduser": _first,
    "os.path.normpath": _first,
    "os.fspath": _first,
    "pathlib.Path": _join,
    "pathlib.PurePath": _join,
    "os.environ.get": _environ,
    "os.getenv": _environ,
    "int": _number,
    "float": _number,
    "str": _number,
    "bool": _number,
    "max": _extreme,
    "min": _extreme,
    "argparse.ArgumentParser": argument_parser,
    "deepspeed.add_config_arguments": config_arguments,
    "transformers.HfArgumentParser": class_parser,
    "trl.TrlParser": class_parser,
    "dataclasses.field": field_of,
}
"""Functions of libraries by their full names."""
