"""Parsers of the command line: argparse, and those of dataclasses. A flag has its default until the launch gives it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from dslint.setup.programs.calls import CallOf
from dslint.setup.programs.values import NONE, Class, Entry, Flag, Function, Object, Opaque, Plain, Row, Value, converted, soften

if TYPE_CHECKING:
    from dslint.setup.programs.functions import Functions


def argument_parser(follower: Functions, _: CallOf) -> Value:
    """`argparse.ArgumentParser()`."""
    return Object("argparse", follower.journal.cells())


def config_arguments(follower: Functions, call: CallOf) -> Value:
    """`deepspeed.add_config_arguments(parser)`."""
    parser = call.get("parser", 0)
    if isinstance(parser, Object):
        for name in ("deepspeed_config", "deepscale_config"):
            follower.journal.write(parser.cells, name, Opaque(f"--{name}"))
        follower.journal.write(parser.cells, "deepspeed", Plain(value=False, soft=True))
    return parser or Opaque()


def _add_argument(follower: Functions, parser: Object, call: CallOf) -> Value:
    names = [argument.value.value for argument in call.arguments if isinstance(argument.value, Plain)]
    flags = [name for name in names if isinstance(name, str)]
    if not flags:
        return NONE
    flag = next((name for name in flags if name.startswith("--")), flags[0])
    name = call.plain("dest") or flag.lstrip("-").replace("-", "_")
    follower.journal.write(parser.cells, str(name), _default(call, flag))
    return NONE


def _default(call: CallOf, flag: str) -> Value:
    action, default = call.plain("action"), call.get("default")
    if default is None and action in ("store_true", "store_false"):
        return Plain(action == "store_false", soft=True)
    if not isinstance(default, Plain) or default.value is None:
        return Opaque(flag)
    kind = getattr(call.get("type"), "name", "")
    if isinstance(default.value, str) and kind in ("int", "float"):
        return soften(converted(default, kind))
    return soften(default)


def _parse_args(follower: Functions, parser: Object, _: CallOf) -> Value:
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


def _parse_known(follower: Functions, parser: Object, call: CallOf) -> Value:
    return Row([Entry(_parse_args(follower, parser, call), call.span, call.span), Entry(Opaque(), call.span, call.span)], call.span)


def _itself(_: Functions, parser: Object, __: CallOf) -> Value:
    return parser


OF_PARSER: dict[str, Callable[[Functions, Object, CallOf], Value]] = {
    "add_argument": _add_argument,
    "add_argument_group": _itself,
    "add_mutually_exclusive_group": _itself,
    "parse_args": _parse_args,
    "parse_known_args": _parse_known,
}
"""Methods of `argparse.ArgumentParser`."""


def class_parser(follower: Functions, call: CallOf) -> Value:
    """`HfArgumentParser(classes)`."""
    given = call.get("dataclass_types", 0)
    kinds = [one.value for one in given.items] if isinstance(given, Row) else [given]
    follower.parsed += [kind for kind in kinds if kind is not None]
    return Object("classes", follower.journal.cells(), about=kinds)


def _parse_classes(follower: Functions, parser: Object, call: CallOf) -> Value:
    made = [_from_flags(follower, kind) for kind in parser.about]
    return Row([Entry(value, call.span, call.span) for value in made], call.span)


def _from_flags(follower: Functions, kind: Value | None) -> Value:
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


def field_of(follower: Functions, call: CallOf) -> Value:
    """The default of a field of a dataclass."""
    factory = call.get("default_factory")
    if isinstance(factory, Function):
        return follower.enter(factory, [], {})
    return call.get("default") or Opaque("it has no default")


OF_CLASSES: dict[str, Callable[[Functions, Object, CallOf], Value]] = {
    "parse_args_into_dataclasses": _parse_classes,
    "parse_args_and_config": _parse_classes,
    "parse_args": _parse_classes,
}
"""Methods of `transformers.HfArgumentParser` and `trl.TrlParser`."""
