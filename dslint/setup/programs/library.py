"""What functions of libraries return that a config is built with: dict, json, argparse, os.path. They are followed, never called."""

from __future__ import annotations

import posixpath
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from dslint.setup.programs.values import (
    NONE,
    Class,
    Entry,
    Flag,
    Function,
    Object,
    Opaque,
    Plain,
    Row,
    Scope,
    Table,
    Value,
    soften,
)
from dslint.source.tree import Span

if TYPE_CHECKING:
    import ast

    from dslint.setup.programs.statements import Statements


@dataclass(slots=True)
class Argument:
    """An argument of a call: its value, and where it is written; `key` is the place of its keyword."""

    value: Value
    span: Span
    key: Span
    literal: bool = False
    node: ast.expr | None = None


@dataclass(slots=True)
class CallOf:
    """A call with its evaluated arguments. `complete` is False if there may be more of them (`*args`, `**kwargs`).

    `chosen` says that the call is in a branch of a condition that only the run knows.
    """

    node: ast.Call
    scope: Scope
    name: str
    span: Span
    arguments: list[Argument] = field(default_factory=list)
    keywords: dict[str, Argument] = field(default_factory=dict)
    complete: bool = True
    chosen: bool = False

    def get(self, name: str, index: int | None = None) -> Value | None:
        """The value of an argument by its name or position."""
        found = self.argument(name, index)
        return found.value if found else None

    def argument(self, name: str, index: int | None = None) -> Argument | None:
        """An argument by its name or position."""
        if name in self.keywords:
            return self.keywords[name]
        return self.arguments[index] if index is not None and index < len(self.arguments) else None

    def plain(self, name: str, index: int | None = None) -> Any:
        """The plain value of an argument; None if it is not known."""
        value = self.get(name, index)
        return value.value if isinstance(value, Plain) else None


# ---------------------------------------------------------------------- dicts


def _dict(follower: Statements, call: CallOf) -> Value:
    made = follower.table(call.span)
    for argument in call.arguments:
        follower.merge(made, argument.value)
    for name, argument in call.keywords.items():
        made.cells[name] = Entry(argument.value, argument.key, argument.span, argument.literal)
    if not call.complete:
        made.open["more"] = True
    return made


def _update(follower: Statements, table: Table, call: CallOf) -> Value:
    follower.merge(table, _dict(follower, call))
    return NONE


def _get(follower: Statements, table: Table, call: CallOf) -> Value:
    name = call.plain("key", 0)
    if name in table.cells:
        return follower.entry(table, name).value
    if table.open or not isinstance(name, str):
        return Opaque("it is computed")
    return call.get("default", 1) or NONE


def _setdefault(follower: Statements, table: Table, call: CallOf) -> Value:
    name, default = call.plain("key", 0), call.argument("default", 1)
    if name in table.cells:
        return follower.entry(table, name).value
    if not isinstance(name, str) or default is None:
        return Opaque("it is computed")
    follower.changed(table)
    value = Opaque("it may be set before") if table.open else default.value
    follower.journal.write(table.cells, name, Entry(value, call.arguments[0].span, default.span, default.literal))
    return value


def _pop(follower: Statements, table: Table, call: CallOf) -> Value:
    name = call.plain("key", 0)
    if not isinstance(name, str):
        follower.merge(table, Opaque())
        return Opaque("it is computed")
    value = _get(follower, table, call)
    follower.changed(table)
    follower.journal.erase(table.cells, name)
    return value


def _copy(follower: Statements, table: Table, _: CallOf) -> Value:
    return follower.copied(table)


def _clear(follower: Statements, table: Table, _: CallOf) -> Value:
    follower.changed(table)
    for name in list(table.cells):
        follower.journal.erase(table.cells, name)
    return NONE


OF_TABLE: dict[str, Callable[[Statements, Table, CallOf], Value]] = {
    "update": _update,
    "get": _get,
    "setdefault": _setdefault,
    "pop": _pop,
    "copy": _copy,
    "clear": _clear,
}
"""Methods of a dict."""


# ---------------------------------------------------------------------- files and paths


def _open(_: Statements, call: CallOf) -> Value:
    path = call.get("file", 0)
    mode = call.plain("mode", 1)
    cells = call.scope.cells.__class__(0)
    cells["path"] = path or Opaque()
    return Object("file", cells, about="w" if isinstance(mode, str) and mode[:1] in ("w", "x", "a") else "r")


def _json_load(follower: Statements, call: CallOf) -> Value:
    file = call.get("fp", 0)
    path = file.cells.get("path") if isinstance(file, Object) else None
    if isinstance(path, Plain) and isinstance(path.value, str):
        return follower.json_file(path.value, as_json=not call.name.startswith("hjson"))
    known = next((one for one in (path, file) if isinstance(one, Opaque) and one.why), None)
    return Opaque(known.why if known else "it is read from a file")


def _json_text(follower: Statements, call: CallOf) -> Value:
    text = call.get("s", 0)
    if isinstance(text, Table):
        return follower.copied(text)
    if isinstance(text, Plain) and isinstance(text.value, str):
        return follower.json_text(text.value, call.arguments[0].span if call.arguments else call.span)
    return Opaque(text.why if isinstance(text, Opaque) else "")


def _json_dump(follower: Statements, call: CallOf) -> Value:
    table, file = call.get("obj", 0), call.get("fp", 1)
    path = file.cells.get("path") if isinstance(file, Object) else None
    if isinstance(table, Table) and isinstance(path, Plain):
        follower.written[posixpath.normpath(str(path.value))] = follower.copied(table)
    return NONE


def _first(_: Statements, call: CallOf) -> Value:
    return call.arguments[0].value if call.arguments else Opaque()


def _join(_: Statements, call: CallOf) -> Value:
    parts = [argument.value for argument in call.arguments]
    plain = [part for part in parts if isinstance(part, Plain) and isinstance(part.value, str)]
    if len(plain) < len(parts) or not call.complete or not parts:
        known = next((part for part in parts if isinstance(part, Opaque) and part.why), None)
        return Opaque(known.why if known else "it is computed")
    return Plain(posixpath.join(*(str(part.value) for part in plain)), any(part.soft for part in plain))


def _dirname(_: Statements, call: CallOf) -> Value:
    path = call.plain("p", 0)
    return Plain(posixpath.dirname(path) or ".") if isinstance(path, str) else Opaque("it is computed")


def _environ(_: Statements, call: CallOf) -> Value:
    name, default = call.plain("key", 0), call.get("default", 1)
    return soften(default) if isinstance(default, Plain) and default.value is not None else Opaque(f"the environment variable {name}")


def _number(_: Statements, call: CallOf) -> Value:
    value = call.get("x", 0)
    if not isinstance(value, Plain) or len(call.arguments) != 1 or len(str(value.value)) > 40:
        return Opaque(value.why if isinstance(value, Opaque) and value.why else "it is computed")
    convert: Callable[[Any], Any] = {"int": int, "float": float, "str": str, "bool": bool}[call.name]
    try:
        return Plain(convert(value.value), value.soft)
    except (TypeError, ValueError, OverflowError):
        return Opaque("it is computed")


def _extreme(_: Statements, call: CallOf) -> Value:
    values = [argument.value for argument in call.arguments]
    plain = [value for value in values if isinstance(value, Plain) and isinstance(value.value, int | float)]
    if len(plain) < 2 or len(plain) < len(values) or not call.complete:
        return Opaque("it is computed")
    numbers: list[Any] = [value.value for value in plain]
    return Plain(max(numbers) if call.name == "max" else min(numbers), any(value.soft for value in plain))


# ---------------------------------------------------------------------- argparse and dataclasses


def _parser(follower: Statements, _: CallOf) -> Value:
    return Object("argparse", follower.journal.cells())


def _ds_arguments(follower: Statements, call: CallOf) -> Value:
    parser = call.get("parser", 0)
    if isinstance(parser, Object):
        for name in ("deepspeed_config", "deepscale_config"):
            follower.journal.write(parser.cells, name, Opaque(f"--{name}"))
        follower.journal.write(parser.cells, "deepspeed", Plain(value=False, soft=True))
    return parser or Opaque()


def _add_argument(follower: Statements, parser: Object, call: CallOf) -> Value:
    names = [argument.value.value for argument in call.arguments if isinstance(argument.value, Plain)]
    flags = [name for name in names if isinstance(name, str)]
    if not flags:
        return NONE
    flag = next((name for name in flags if name.startswith("--")), flags[0])
    name = call.plain("dest") or flag.lstrip("-").replace("-", "_")
    follower.journal.write(parser.cells, str(name), _default(follower, call, flag))
    return NONE


def _default(follower: Statements, call: CallOf, flag: str) -> Value:
    action, default = call.plain("action"), call.get("default")
    if default is None and action in ("store_true", "store_false"):
        return Plain(action == "store_false", soft=True)
    if not isinstance(default, Plain) or default.value is None:
        return Opaque(flag)
    kind = getattr(call.get("type"), "name", "")
    if isinstance(default.value, str) and kind in ("int", "float"):
        made = CallOf(call.node, call.scope, kind, call.span, [Argument(default, call.span, call.span)])
        return soften(_number(follower, made))
    return soften(default)


def _parse_args(follower: Statements, parser: Object, _: CallOf) -> Value:
    cells = follower.journal.cells()
    cells.update(parser.cells)
    for name in cells.keys() & follower.flags.keys():
        cells[name] = _given_flag(cells[name], follower.flags[name])
    return Object("command line", cells)


def _given_flag(default: Value, given: Flag) -> Value:
    """The value of a flag that the launch gives; None is a value that only the run knows."""
    if given is None:
        return Opaque("the command line")
    if isinstance(given, bool):
        return Plain(not default.value) if isinstance(default, Plain) and isinstance(default.value, bool) else Opaque("the command line")
    kind = type(default.value) if isinstance(default, Plain) else None
    try:
        return Plain(kind(given)) if kind in (int, float, str) else _number_or_text(given)
    except ValueError:
        return Opaque("the command line")


def _number_or_text(given: str) -> Value:
    """A value for a flag of unknown type: text that reads as a number could be either."""
    try:
        float(given)
    except ValueError:
        return Plain(given)
    return Opaque("the command line")


def _parse_known(follower: Statements, parser: Object, call: CallOf) -> Value:
    return Row([Entry(_parse_args(follower, parser, call), call.span, call.span), Entry(Opaque(), call.span, call.span)], call.span)


def _itself(_: Statements, parser: Object, __: CallOf) -> Value:
    return parser


OF_PARSER: dict[str, Callable[[Statements, Object, CallOf], Value]] = {
    "add_argument": _add_argument,
    "add_argument_group": _itself,
    "add_mutually_exclusive_group": _itself,
    "parse_args": _parse_args,
    "parse_known_args": _parse_known,
}
"""Methods of `argparse.ArgumentParser`."""


def _class_parser(follower: Statements, call: CallOf) -> Value:
    kinds = call.get("dataclass_types", 0)
    return Object("classes", follower.journal.cells(), about=[one.value for one in kinds.items] if isinstance(kinds, Row) else [kinds])


def _parse_classes(follower: Statements, parser: Object, call: CallOf) -> Value:
    made = [_from_flags(follower, kind) for kind in parser.about]
    return Row([Entry(value, call.span, call.span) for value in made], call.span)


def _from_flags(follower: Statements, kind: Value | None) -> Value:
    """An object of a dataclass with its defaults, which flags can override."""
    if not isinstance(kind, Class):
        return Object("command line", follower.journal.cells())
    thing = Object("command line", follower.journal.cells(), kind)
    for base in reversed(_line(kind)):
        for name in base.fields:
            if name in base.cells:
                default = base.cells[name]
                known = isinstance(default, Plain) and default.value is not None
                thing.cells[name] = soften(default) if known else Opaque(f"--{name}")
    for name in kind.fields:
        thing.cells.setdefault(name, Opaque(f"--{name}"))
    return thing


def _line(kind: Class, depth: int = 0) -> list[Class]:
    above = [one for base in kind.bases if isinstance(base, Class) and depth < 10 for one in _line(base, depth + 1)]
    return [kind, *above]


def _field(follower: Statements, call: CallOf) -> Value:
    factory = call.get("default_factory")
    if isinstance(factory, Function):
        return follower.enter(factory, [], {})
    return call.get("default") or Opaque("it has no default")


OF_CLASSES: dict[str, Callable[[Statements, Object, CallOf], Value]] = {
    "parse_args_into_dataclasses": _parse_classes,
    "parse_args_and_config": _parse_classes,
    "parse_args": _parse_classes,
}
"""Methods of `transformers.HfArgumentParser` and `trl.TrlParser`."""


def _copied(follower: Statements, call: CallOf) -> Value:
    value = call.arguments[0].value if call.arguments else Opaque()
    return follower.copied(value) if isinstance(value, Table) else value


FUNCTIONS: dict[str, Callable[[Statements, CallOf], Value]] = {
    "dict": _dict,
    "collections.OrderedDict": _dict,
    "easydict.EasyDict": _dict,
    "mmengine.Config": _first,
    "omegaconf.OmegaConf.create": _first,
    "omegaconf.OmegaConf.to_container": _first,
    "types.SimpleNamespace": _dict,
    "argparse.Namespace": _dict,
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
    "argparse.ArgumentParser": _parser,
    "deepspeed.add_config_arguments": _ds_arguments,
    "transformers.HfArgumentParser": _class_parser,
    "trl.TrlParser": _class_parser,
    "dataclasses.field": _field,
}
"""Functions of libraries by their full names."""
