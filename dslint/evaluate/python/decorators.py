"""Arguments that a decorator passes to a function: the config of `hydra.main`. For the options of click see `click_options.py`."""

from __future__ import annotations

import ast
import posixpath
import re

from dslint.evaluate.files import find
from dslint.evaluate.interpolation import with_floats
from dslint.evaluate.python.evaluate import ProgramState, evaluate
from dslint.evaluate.python.files import text_of, yaml_file
from dslint.evaluate.python.libraries.class_parsers import made_of
from dslint.evaluate.python.tables import deep_merge, new_table
from dslint.evaluate.python.words import NO_WORDS, is_word
from dslint.evaluate.reasons import Cause, Reason
from dslint.evaluate.values import COMPUTED, Constant, DictValue, Entry, Library, ListValue, Scope, Unknown, Value
from dslint.record import Record
from dslint.source.tree import Scalar, Span
from dslint.source.yaml_tree import parse_yaml


def given_by(state: ProgramState, decorator: ast.expr, node: ast.FunctionDef | ast.AsyncFunctionDef, scope: Scope) -> dict[str, Value]:
    """The arguments that a decorator passes, as far as they are known."""
    if not isinstance(decorator, ast.Call):
        return {}
    found = evaluate(state, decorator.func, scope)
    name = found.name if isinstance(found, Library) else ""
    keywords = {one.arg: evaluate(state, one.value, scope) for one in decorator.keywords if one.arg}
    if name == "hydra.main" and node.args.args:
        return {node.args.args[0].arg: _of_hydra(state, keywords, scope, scope.source.span(decorator))}
    if name in _WRAPS and node.args.args and isinstance(node.args.args[0].annotation, ast.Name | ast.Attribute):
        kind = evaluate(state, node.args.args[0].annotation, scope)
        made = made_of(state, kind, scope.source.span(decorator), state.flags.get("config_path"))
        return {node.args.args[0].arg: made} if made is not None else {}
    return {}


_WRAPS = frozenset({"draccus.wrap", "pyrallis.wrap"})
"""Decorators that make an object of the class of the first parameter."""


def _of_hydra(state: ProgramState, keywords: dict[str, Value], scope: Scope, at: Span) -> Value:
    folder, name = keywords.get("config_path", Constant(None)), keywords.get("config_name")
    if not isinstance(folder, Constant) or not isinstance(name, Constant) or not isinstance(name.value, str):
        return Unknown(Reason(Cause.HYDRA))
    path = str(folder.value or ".")
    chosen = next((state.flags[one] for one in _NAMES_FILE if one in state.flags), name.value)
    if not isinstance(chosen, str):
        return Unknown(Reason(Cause.HYDRA))
    given = _overrides(state, path, scope)
    if given is None:
        return Unknown(Reason(Cause.HYDRA))
    made = _composed(state, path, chosen.removesuffix(".yaml"), scope, given)
    if not isinstance(made, DictValue):
        return Unknown(Reason(Cause.HYDRA))
    if given.values:
        _leave_holes_open(state, made)
    is_set = all(_set(state, made, key.split("."), value, at) for key, value in given.values.items())
    return made if is_set else Unknown(Reason(Cause.HYDRA))


_NAMES_FILE = ("config_name", "cn")
"""The flags of Hydra that name another file in place of `config_name`: `--config-name large`, `-cn large`."""


class _Overrides(Record):
    """What a command overrides: the options of groups, and values by their dotted paths."""

    options: dict[str, str]
    values: dict[str, Value]


_OVERRIDE = re.compile(r"(?P<key>[A-Za-z_][\w./]*)=(?P<value>.*)", re.DOTALL)

_PLAIN = re.compile(r"[\w./:+-]*")
"""A value without commas, brackets and interpolations."""


def _overrides(state: ProgramState, folder: str, scope: Scope) -> _Overrides | None:
    """What the words of the command override; None if they are not all known, or do more than that: `~key`, `+key=1`, `--config-dir`.

    A key is a group if its folder has the option (hydra/_internal/config_loader_impl.py). Settings of Hydra itself change nothing here.
    """
    given = _Overrides({}, {})
    if not all(is_word(name) or name in _NAMES_FILE for name in state.flags):
        return None
    for word in (word for name, word in state.flags.items() if name not in (*NO_WORDS, *_NAMES_FILE)):
        match = _OVERRIDE.fullmatch(word) if isinstance(word, str) else None
        if match is None:
            return None
        key, text = match["key"], match["value"]
        if key.startswith(("hydra.", "hydra/")):
            continue
        option = yaml_file(state, posixpath.join(folder, key, f"{text}.yaml"), beside=scope.source.path)
        if isinstance(option, DictValue) and "." not in key:
            given.options[key] = text
        else:
            given.values[key] = _read(text)
    return given


def _read(text: str) -> Value:
    """A value as Hydra's grammar reads it; only plain ones are followed."""
    if _PLAIN.fullmatch(text) is None:
        return COMPUTED
    root = parse_yaml(text).root
    node = with_floats(root) if root is not None else None
    found = node.value if isinstance(node, Scalar) else COMPUTED
    return Constant(found) if found is None or isinstance(found, str | int | float) else COMPUTED


def _set(state: ProgramState, table: DictValue, path: list[str], value: Value, at: Span) -> bool:
    """Set a value that is there already: Hydra refuses to add one. Whether that was possible."""
    name, *rest = path
    entry = table.cells.get(name)
    if entry is None:
        return False
    if rest:
        return isinstance(entry.value, DictValue) and _set(state, entry.value, rest, value, at)
    state.journal.write(table.cells, name, Entry(value, at, at))
    return not isinstance(entry.value, DictValue)


def _leave_holes_open(state: ProgramState, table: DictValue) -> None:
    """Interpolations are unknown where the command sets values: one of these may be what they name."""
    for name, entry in list(table.cells.items()):
        if isinstance(entry.value, DictValue):
            _leave_holes_open(state, entry.value)
        elif isinstance(entry.value, Constant) and "${" in str(entry.value.value):
            state.journal.write(table.cells, name, Entry(COMPUTED, entry.key_span, entry.span))


def _composed(state: ProgramState, folder: str, name: str, scope: Scope, given: _Overrides, depth: int = 0) -> Value | None:
    """A YAML file with the files that its list `defaults` names; None if there is none."""
    path = posixpath.join(folder, f"{name}.yaml")
    own = yaml_file(state, path, beside=scope.source.path, of_omegaconf=True, interpolates=not given.values)
    if not isinstance(own, DictValue):
        return None
    defaults = own.cells.pop("defaults", None)
    if defaults is None or depth > 3:
        return own
    made = new_table(state, own.span)
    listed = defaults.value.items if isinstance(defaults.value, ListValue) else []
    if not any(isinstance(one.value, Constant) and one.value.value == "_self_" for one in listed):
        listed = [*listed, Entry(Constant("_self_"), own.span, own.span)]
    for one in listed:
        added = (
            own if isinstance(one.value, Constant) and one.value.value == "_self_" else _default(state, folder, one, scope, given, depth)
        )
        if added is None:
            _leave_open(state, made)
        else:
            deep_merge(state, made, added)
    return made


def _leave_open(state: ProgramState, table: DictValue) -> None:
    """A file that is not known may set any value."""
    table.open["more"] = True
    for name, entry in list(table.cells.items()):
        if isinstance(entry.value, DictValue):
            _leave_open(state, entry.value)
        else:
            state.journal.write(table.cells, name, Entry(COMPUTED, entry.key_span, entry.span))


_ITEM = re.compile(r"(?:(?P<prefix>optional|override)[ ]+)?(?P<group>[A-Za-z_][\w/]*)(?:@(?P<package>[\w.]+))?")
"""A key in the list `defaults`: a group, maybe with the place of its values."""

_PACKAGE = re.compile(r"(?:[ \t]*(?:\#[^\n]*)?\n)*?[ \t]*\#[ \t]*@package[ \t:]+(?!_group_)(\S+)")
"""The line at the top of a file that says where its values go; without it they go below the names of its group."""


def _package(path: str, scope: Scope) -> str:
    """Where the values of a file go, from the top; "" below the names of its group."""
    linked = find(path, scope.source.path)
    found = _PACKAGE.match(text_of(linked.path) or "") if linked is not None else None
    return found[1] if found is not None else ""


def _default(state: ProgramState, folder: str, listed: Entry, scope: Scope, given: _Overrides, depth: int) -> DictValue | None:
    """The file that an item of the list `defaults` names: `base`, `group/name` or `group: name`; None if it is not known."""
    at, prefix, package = listed, None, None
    if isinstance(listed.value, Constant) and isinstance(listed.value.value, str):
        group, _, option = listed.value.value.rpartition("/")
    elif isinstance(listed.value, DictValue) and len(listed.value.cells) == 1:
        ((key, at),) = listed.value.cells.items()
        item = _ITEM.fullmatch(key)
        if item is None or not isinstance(at.value, Constant) or (item["package"] and item["group"] in given.options):
            return None
        prefix, group, package = item["prefix"], item["group"], item["package"]
        option = given.options.get(group, str(at.value.value))
    else:
        return None
    if group.startswith("hydra/"):
        return new_table(state, listed.span)  # settings of Hydra itself
    path = posixpath.join(folder, group, f"{option}.yaml")
    if prefix == "optional" and find(path, scope.source.path) is None:
        return new_table(state, listed.span)
    package = package or _package(path, scope)
    if prefix == "override" or (package and depth):
        return None  # it changes an item elsewhere, or counts from another place
    found = _composed(state, posixpath.join(folder, group), option, scope, given, depth + 1)
    if not isinstance(found, DictValue):
        return None
    made = found
    names = group.replace("/", ".") if not package else package.removeprefix("_global_")
    for name in reversed(names.split(".") if names else []):
        made = new_table(state, found.span, [(name, Entry(made, at.key_span, at.span))])
    return made
