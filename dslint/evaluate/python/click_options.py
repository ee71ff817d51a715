"""The values that click passes to the function of a command: those of the launch, or else the defaults of its options."""

from __future__ import annotations

import ast
import re

from dslint.evaluate.python.command_flags import is_called
from dslint.evaluate.python.evaluate import ProgramState, evaluate
from dslint.evaluate.python.words import is_default, name_of_flag
from dslint.evaluate.reasons import Cause, Reason
from dslint.evaluate.reasons import flag as as_flag
from dslint.evaluate.values import Constant, Flag, Library, Scope, Unknown, Value, converted, harden, soften
from dslint.record import Record

OPTIONS = frozenset({"click.option", "click.argument"})

_PLAIN = frozenset("type default help show_default is_flag required metavar hidden show_choices".split())
"""Arguments of `click.option` with which only the command line and the default decide the value: not `envvar`, `callback` or `prompt`."""

_DECIDES_ELSEWHERE = re.compile(r"auto_envvar_prefix|default_map|sys\.argv")
"""What gives a command other defaults, or other words than those of the launch."""

_KINDS = {"click.INT": "int", "click.FLOAT": "float", "click.STRING": "str", "click.BOOL": "bool"}
_KEEPS_TEXT = frozenset({"click.Path", "click.Choice"})

_BOOLEANS = dict.fromkeys(("1", "true", "t", "yes", "y", "on"), True) | dict.fromkeys(("0", "false", "f", "no", "n", "off"), False)
"""What click reads as a boolean. Source: click/types.py, BoolParamType."""


class _ClickOption(Record):
    """An option of click: its names as flags have them in dslint, and those that switch it off."""

    name: str
    flag: str
    on: tuple[str, ...]
    off: tuple[str, ...]
    default: Value | None
    kind: str
    """The kind of its one value; "" if it has none, or that is not known."""
    is_switch: bool
    is_plain: bool


def given_by_click(state: ProgramState, node: ast.FunctionDef | ast.AsyncFunctionDef, scope: Scope) -> dict[str, Value]:
    """The arguments that the options of click pass to a function, as far as they are known."""
    given: dict[str, Value] = {}
    made_by = [(one, _library(state, one, scope)) for one in node.decorator_list]
    options = [one for one, name in made_by if name in OPTIONS and isinstance(one, ast.Call)]
    if not options:
        return given
    names = {name for _, name in made_by}
    text = scope.source.text
    gets_command = (
        scope.source is state.sources.all[0]
        and "click.command" in names
        and all(name.startswith("click.") for name in names)
        and is_called(node.name, text)
        and not _DECIDES_ELSEWHERE.search(text)
        and not state.replaces_flags
    )
    for decorator in options:
        option = _option(state, decorator, scope)
        at = as_flag(option.flag, scope.source.span(decorator))
        is_known = isinstance(option.default, Constant) and option.default.value is not None
        value = soften(option.default) if option.default is not None and is_known else Unknown(at)
        if gets_command:
            written = [name for name in (*option.on, *option.off) if name in state.flags]
            if written:
                value = _read(option, written[0], state.flags[written[0]]) if len(written) == 1 else Unknown(Reason(Cause.COMMAND_LINE))
            elif option.is_plain and all(is_default(name, state.flags) for name in (*option.on, *option.off)):
                value = harden(value)
        given[option.name] = value
    return given


def _library(state: ProgramState, decorator: ast.expr, scope: Scope) -> str:
    found = evaluate(state, decorator.func if isinstance(decorator, ast.Call) else decorator, scope)
    return found.name if isinstance(found, Library) else ""


def _option(state: ProgramState, decorator: ast.Call, scope: Scope) -> _ClickOption:
    keywords = {one.arg: evaluate(state, one.value, scope) for one in decorator.keywords if one.arg}
    names = [one.value for given in decorator.args if isinstance(one := evaluate(state, given, scope), Constant)]
    flags = [name for name in names if isinstance(name, str)]
    pairs = [tuple(part.strip() for part in flag.partition("/")[::2]) for flag in flags if flag.startswith("-")]
    plain = next((name for name in flags if not name.startswith("-")), None)
    flag = next((first for first, _ in pairs if first.startswith("--")), flags[0].partition("/")[0] if flags else "--")
    off = tuple(name_of_flag(second) for _, second in pairs if second)
    is_switch = bool(off) or keywords.get("is_flag") == Constant(value=True)
    default = keywords.get("default")
    if default is None and is_switch and "required" not in keywords:
        default = Constant(value=False)
    kind = _kind(keywords.get("type"), default)
    if isinstance(default, Constant) and isinstance(default.value, str):
        default = _converted(kind, default.value)
    is_plain = all(one.arg in _PLAIN for one in decorator.keywords)
    on = tuple(name_of_flag(first) for first, _ in pairs)
    return _ClickOption(plain or name_of_flag(flag).lower(), flag, on, off, default, kind, is_switch, is_plain)


def _kind(written: Value | None, default: Value | None) -> str:
    """The kind of the value of an option, which click takes from the default where no type is written."""
    if written is None:
        return type(default.value).__name__ if isinstance(default, Constant) and default.value is not None else "str"
    name = written.name if isinstance(written, Library) else written.made if isinstance(written, Unknown) else ""
    return "str" if name in _KEEPS_TEXT else _KINDS.get(name, name)


def _read(option: _ClickOption, name: str, given: Flag) -> Value:
    """What click makes of a flag that the launch gives."""
    unknown = Unknown(Reason(Cause.COMMAND_LINE))
    if not option.is_plain or given is None:
        return unknown
    if option.is_switch:
        is_turned = option.default == Constant(value=True) and not option.off  # releases of click differ: not the default, or True
        return unknown if is_turned else Constant(name in option.on)
    return _converted(option.kind, given) if isinstance(given, str) else unknown


def _converted(kind: str, text: str) -> Value:
    """What click reads in a text."""
    if kind == "bool" and text.strip().lower() in _BOOLEANS:
        return Constant(_BOOLEANS[text.strip().lower()])
    return converted(Constant(text), kind) if kind in ("str", "int", "float") else Unknown(Reason(Cause.COMMAND_LINE))
