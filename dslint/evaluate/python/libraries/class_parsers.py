"""Parsers that make an object of a dataclass of the project from flags and files: tyro, draccus, pyrallis, simple_parsing, OmegaConf."""

from __future__ import annotations

import ast
import re

from dslint.evaluate.interpolation import with_floats
from dslint.evaluate.python.calls import CallOf
from dslint.evaluate.python.command_flags import FLAGS_OF_TYRO, note_flags, takes_no_others
from dslint.evaluate.python.evaluate import ProgramState, evaluate
from dslint.evaluate.python.files import yaml_file
from dslint.evaluate.python.functions import enter, library_base
from dslint.evaluate.python.libraries.argparse import given_flag
from dslint.evaluate.python.libraries.dataclasses import line_of
from dslint.evaluate.python.libraries.table import follows
from dslint.evaluate.python.tables import new_table
from dslint.evaluate.python.words import SOME_WORDS, is_default, known_words
from dslint.evaluate.reasons import Cause, Reason, flag
from dslint.evaluate.values import (
    COMPUTED,
    DEEPEST_CLASS,
    NONE,
    Class,
    Constant,
    DictValue,
    Entry,
    Function,
    Object,
    Unknown,
    Value,
    member,
    soften,
)
from dslint.source.tree import Scalar, Span
from dslint.source.yaml_tree import parse_yaml


@follows("draccus.parse", "pyrallis.parse")
def _parse(state: ProgramState, call: CallOf) -> Value:
    """`parse(Args)`: an object with the defaults, the values of a file, and the flags (`--training.bf16 true`)."""
    file = state.flags.get("config_path")
    made = None if call.keywords.keys() - {"config_class"} else made_of(state, call.get("config_class", 0), call.span, file)
    return made or Unknown(Reason(Cause.RETURNED, (call.name,)))


@follows("simple_parsing.parse")
def _simple(state: ProgramState, call: CallOf) -> Value:
    """`simple_parsing.parse(Args)`: flags of classes within a class have no prefix (`--bf16`)."""
    made = None if call.keywords.keys() - {"config_class"} else made_of(state, call.get("config_class", 0), call.span, nested=False)
    return made or Unknown(Reason(Cause.RETURNED, (call.name,)))


@follows("tyro.cli")
def _tyro(state: ProgramState, call: CallOf) -> Value:
    """`tyro.cli(Args)` returns an object; `tyro.cli(main)` calls the function with an object for each class that annotates a parameter."""
    given = call.get("f", 0)
    if not call.complete or call.keywords.keys() - {"f", "default", "description", "prog"}:
        return Unknown(Reason(Cause.RETURNED, (call.name,)))
    _note_flags_of_tyro(state, call, given)
    if isinstance(given, Function):
        parameters = given.node.args.args
        defaults = dict(zip([one.arg for one in reversed(parameters)], reversed(given.node.args.defaults), strict=False))
        values: dict[str, Value] = {}
        for one in parameters:
            made = made_of(state, _annotated(state, given, one.annotation), call.span, inside=one.arg)
            default = evaluate(state, defaults[one.arg], given.scope) if one.arg in defaults else Unknown(Reason(Cause.NO_DEFAULT))
            values[one.arg] = made or _of_flag(state, default, one.arg, call.span)
        return enter(state, given, [], values)
    if "default" in call.keywords:
        given = call.keywords["default"].value if isinstance(call.keywords["default"].value, Object) else None
    return made_of(state, given, call.span) or Unknown(Reason(Cause.RETURNED, (call.name,)))


def _note_flags_of_tyro(state: ProgramState, call: CallOf, given: Value | None) -> None:
    """Note the flags that tyro knows for a function or a class, as far as nothing of `tyro.conf` changes their names."""
    if call.name != "tyro.cli" or any("tyro.conf" in one.text or "tyro import conf" in one.text for one in state.sources.all):
        return
    if isinstance(given, Function) and takes_no_others(given.node):
        names = [one.arg for one in (*given.node.args.args, *given.node.args.kwonlyargs)]
    elif isinstance(given, Class) and (fields := _fields(given)) is not None:
        names = list(fields)
    else:
        return
    note_flags(state, call, FLAGS_OF_TYRO, [f"--{no}{one}" for one in names for no in ("", "no_")])


def _annotated(state: ProgramState, function: Function, annotation: ast.expr | None) -> Value | None:
    return evaluate(state, annotation, function.scope) if isinstance(annotation, ast.Name | ast.Attribute) else None


def made_of(
    state: ProgramState, kind: Value | None, at: Span, file: object = None, *, inside: str = "", nested: bool = True
) -> Object | None:
    """An object of a dataclass of the project, as a parser makes it of the flags; None for another class, or a file that is not known.

    Args:
        state: the state of the program.
        kind: the class, or an object with the defaults.
        at: the place of the call.
        file: the path of a YAML file with values, which count less than flags; None without one.
        inside: what stands before the names of all flags: `args` for `--args.bf16`.
        nested: whether the name of a field stands before the flags of the class in it.
    """
    fields = _fields(kind)
    if fields is None:
        return None
    written = yaml_file(state, file) if isinstance(file, str) else None
    if file is not None and not isinstance(written, DictValue):
        return None
    return _filled(state, kind, fields, at, written if isinstance(written, DictValue) else None, inside, nested=nested)


def _filled(
    state: ProgramState, kind: Value | None, fields: dict[str, Value], at: Span, file: DictValue | None, inside: str, *, nested: bool
) -> Object:
    of_class = kind.type if isinstance(kind, Object) else kind if isinstance(kind, Class) else None
    thing = Object("command line", state.journal.cells(), of_class)
    for name, default in fields.items():
        path = f"{inside}.{name}" if inside and nested else name
        entry = file.cells.get(name) if file is not None else None
        below = _fields(default) if isinstance(default, Object) else None
        if below is not None:
            own = entry.value if entry is not None and isinstance(entry.value, DictValue) else None
            thing.cells[name] = _filled(state, default, below, at, own, path, nested=nested)
        else:
            thing.cells[name] = _of_flag(state, entry.value if entry is not None else default, path, at)
    after = member(of_class, "__post_init__") if of_class is not None else None
    if isinstance(after, Function):
        enter(state, after.bound(thing), [], {})
    return thing


def _of_flag(state: ProgramState, default: Value, path: str, at: Span) -> Value:
    """The value of a field: that of its flag, or else its default."""
    is_switch = isinstance(default, Constant) and isinstance(default.value, bool)
    if path in state.flags:
        given = state.flags[path]
        return Constant(value=True) if is_switch and given is True else given_flag(default, given)
    above, dot, name = path.rpartition(".")
    if is_switch and any(f"{above}{dot}{no}{name}" in state.flags for no in ("no", "no_")):
        return Constant(value=False)
    if isinstance(default, Constant) and default.value is not None:
        return default if is_default(path, state.flags) else soften(default)
    return Unknown(flag(f"--{path}", at), or_none=default == NONE)


def _fields(kind: Value | None) -> dict[str, Value] | None:
    """The fields of a dataclass of the project, or of an object of one, with their defaults; None for another class."""
    of_class = kind.type if isinstance(kind, Object) else kind
    if not isinstance(of_class, Class) or not of_class.dataclass or library_base(of_class):
        return None
    found: dict[str, Value] = {}
    for base in reversed(line_of(of_class)):
        for name in base.fields:
            found[name] = base.cells.get(name, Unknown(Reason(Cause.NO_DEFAULT)))
    if isinstance(kind, Object):
        found |= {name: value for name, value in kind.cells.items() if name in found}
    return found


@follows("omegaconf.OmegaConf.structured")
def _structured(state: ProgramState, call: CallOf) -> Value:
    """`OmegaConf.structured(Config)`: a dict with the defaults of a dataclass, and of those in it."""
    found = _as_table(state, call.arguments[0].value if call.arguments else None, call.span)
    return found if found is not None else Unknown(Reason(Cause.RETURNED, (call.name,)))


_MISSING = Constant("???")
"""What OmegaConf calls MISSING: a value that has to be given."""


def _as_table(state: ProgramState, kind: Value | None, at: Span, depth: int = 0) -> DictValue | None:
    fields = _fields(kind)
    if fields is None or depth > DEEPEST_CLASS:
        return None
    made = new_table(state, at)
    for name, value in fields.items():
        below = _as_table(state, value, at, depth + 1) if isinstance(value, Object) else None
        unknown = value == _MISSING or (isinstance(value, Unknown) and value.reason is not None and value.reason.cause is Cause.NO_DEFAULT)
        state.journal.write(made.cells, name, Entry(below if below is not None else COMPUTED if unknown else value, at, at))
    return made


_WORD = re.compile(r"(?P<path>[A-Za-z_][\w.]*)=(?P<value>[\w./:+-]*)")


@follows("omegaconf.OmegaConf.from_cli")
def _from_cli(state: ProgramState, call: CallOf) -> Value:
    """`OmegaConf.from_cli()`: the words `a.b=value` of the command."""
    if call.arguments or call.keywords or SOME_WORDS in state.flags or not state.flags:
        return Unknown(Reason(Cause.COMMAND_LINE))
    made = new_table(state, call.span)
    for word in known_words(state.flags).values():
        match = _WORD.fullmatch(word) if isinstance(word, str) else None
        if match is None:
            return Unknown(Reason(Cause.COMMAND_LINE))
        *above, last = match["path"].split(".")
        table = made
        for name in above:
            entry = table.cells.get(name)
            inner = entry.value if entry is not None and isinstance(entry.value, DictValue) else new_table(state, call.span)
            state.journal.write(table.cells, name, Entry(inner, call.span, call.span))
            table = inner
        state.journal.write(table.cells, last, Entry(_read(match["value"]), call.span, call.span))
    return made


def _read(text: str) -> Value:
    root = parse_yaml(text).root
    node = with_floats(root) if root is not None else None
    found = node.value if isinstance(node, Scalar) else COMPUTED
    return Constant(found) if found is None or isinstance(found, str | int | float) else COMPUTED
