"""Expressions: names, attributes, dicts and lists. Operators are in `operations`, calls in `calling`, comprehensions in `repetition`."""

from __future__ import annotations

import ast
from dataclasses import replace
from typing import Any

from dslint.evaluate.python.calls import Argument
from dslint.evaluate.python.evaluate import (
    ATTRIBUTE_ERROR,
    INDEX_ERROR,
    KEY_ERROR,
    ProgramState,
    call_here,
    evaluate,
    expression,
    placed,
    raise_certainly,
)
from dslint.evaluate.python.events import item_in_turn, made_by, made_of_attribute, makers_of_attribute
from dslint.evaluate.python.functions import above, collected, enter, library_base
from dslint.evaluate.python.nodes import is_decorated, is_literal
from dslint.evaluate.python.paths import PARTS_OF_PATHS, attribute_of_path, parent_of, parents_of
from dslint.evaluate.python.plugins import CONFIGS, KIND, PLUGIN, config_attribute, plugin_in_use
from dslint.evaluate.python.rank_conditions import condition_of
from dslint.evaluate.python.tables import as_set, attributes_of, certain_items, merge, new_table, options_of, whole
from dslint.evaluate.python.words import word_name
from dslint.evaluate.reasons import IS_COMPUTED, Cause, Reason, flag
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
    Module,
    Object,
    ParsedNames,
    Scope,
    Unknown,
    Value,
    is_soft,
    member,
    truth,
)
from dslint.job.events import ENGINE, FROZEN, HOOK, MAKES_MODEL, MISSING_ARGUMENT, UNFROZEN, Condition
from dslint.source.tree import Span

_CONFIG_FLAGS = frozenset({"deepspeed", "deepspeed_config", "ds_config"})
"""Flags that name a config."""

# ---------------------------------------------------------------------- names


@expression(ast.Constant)
def _constant(_: ProgramState, node: ast.Constant, __: Scope) -> Value:
    found = node.value
    return Constant(found) if found is None or isinstance(found, _PLAIN) else COMPUTED


_PLAIN = (str, int, float)


@expression(ast.Name)
def _name(_: ProgramState, node: ast.Name, scope: Scope) -> Value:
    name = node.id
    if name in scope.cells:  # as `variable` finds it: most names are of their own function
        found: Value = scope.cells[name]
        return found
    return variable(name, scope)


def variable(name: str, scope: Scope) -> Value:
    """The value of a variable in a scope or around it."""
    here: Scope | None = scope
    while here is not None:
        if name in here.cells:
            found: Value = here.cells[name]
            return found
        here = here.above
    return Library(name)


@expression(ast.Attribute)
def _attribute(state: ProgramState, node: ast.Attribute, scope: Scope) -> Value:
    owner = evaluate(state, node.value, scope)
    if type(owner) is Library:
        return attribute_of(state, owner, node.attr)
    if node.attr in _OF_WEIGHT and isinstance(node.value, ast.Attribute) and node.value.attr in _WEIGHTS:
        note_weight(state, owner, node, scope)
    if node.attr == "data" and isinstance(owner, Unknown) and owner.made.endswith(".weight"):
        note_weight(state, replace(owner, made=owner.made.removesuffix(".weight")), node, scope)
    if isinstance(owner, Object) and owner.kind == "argparse":
        owner.about.open = True  # a method that gets another name, or what the parser holds
    if isinstance(owner, Object) and isinstance(owner.about, ParsedNames) and isinstance(node.ctx, ast.Load):
        _note_missing(state, owner, owner.about, node, scope)
    if node.attr == "__dict__" and isinstance(owner, Object):
        return attributes_of(state, owner, scope.source.span(node))
    if isinstance(owner, Unknown) and node.attr in _CONFIG_FLAGS and isinstance(given := state.flags.get(node.attr), str):
        return Constant(given)  # the object is not known; one with such an attribute holds the arguments of the program
    if isinstance(owner, Unknown) and owner.reason and isinstance(node.value, ast.Name) and node.attr != PLUGIN:
        reason = owner.reason if owner.reason.through else owner.reason._replace(through=f"{node.value.id}.{node.attr}")
        made = made_of_attribute(owner, node.attr)
        if not made:
            return Unknown(reason, makers=makers_of_attribute(owner, node.attr))
        return Unknown(reason, made, owner.span, or_none=True, turn=owner.turn, others=owner.others)
    return attribute_of(state, owner, node.attr)


def _note_missing(state: ProgramState, owner: Object, names: ParsedNames, node: ast.Attribute, scope: Scope) -> None:
    """Note a read of an attribute that neither the parser nor the program sets."""
    name = node.attr
    if names.open or name.startswith("_") or name in names.known or name in owner.cells or state.partial:
        return
    span = scope.source.span(node)
    use = call_here(state, ast.copy_location(ast.Call(node, [], []), node), scope, MISSING_ARGUMENT, span)
    state.note(replace(use, keywords={name: Argument(Constant(name), span, span)}), None)


_WEIGHTS = ("weight", "bias")
_OF_WEIGHT = ("data", "shape")


def note_weight(state: ProgramState, owner: Value, node: ast.expr, scope: Scope) -> None:
    """Note that the program reads or writes the elements of a weight of a model."""
    if isinstance(owner, Unknown) and made_of_attribute(owner, "weight"):
        use = ast.copy_location(ast.Call(node, [], []), node)
        state.note(call_here(state, use, scope, f"{owner.made}.weight", scope.source.span(node)), owner)


def note_trained(state: ProgramState, target: ast.Attribute, scope: Scope, *, is_trained: bool) -> None:
    """Note that the program sets `requires_grad` of a weight."""
    use = ast.copy_location(ast.Call(target, [], []), target)
    state.note(call_here(state, use, scope, UNFROZEN if is_trained else FROZEN, scope.source.span(target)), None)


def attribute_of(state: ProgramState, owner: Value, name: str) -> Value:
    """The attribute of a value."""
    if isinstance(owner, Library):
        part = PARTS_OF_PATHS.get(name) if owner.name in ("os", "os.path") else None
        return Library(f"{owner.name}.{name}") if part is None else Constant(part)
    owner = whole(state, owner)
    if isinstance(owner, Module):
        found: Value | None = owner.scope.cells.get(name)
        return Unknown(Reason(Cause.NOT_DEFINED, (name, owner.source.shown))) if found is None else found
    if isinstance(owner, Object):
        return _of_object(state, owner, name)
    if isinstance(owner, Class):
        return _of_class(owner, name)
    if isinstance(owner, DictValue) and name in owner.cells:
        return _entry(owner, name).value
    if isinstance(owner, Constant):
        if owner.value is None and not owner.soft:
            raise_certainly(state, ATTRIBUTE_ERROR)
        return _of_plain(owner, name)
    if isinstance(owner, Unknown) and owner.path is not None and (found := attribute_of_path(owner, name)) is not None:
        return found
    reason = owner.reason if isinstance(owner, Unknown) else None
    if isinstance(owner, Unknown) and (made := made_of_attribute(owner, name)):
        return Unknown(reason, made, owner.span, or_none=True, turn=owner.turn, others=owner.others)
    if name == PLUGIN:
        return plugin_in_use(state, reason)
    makers = makers_of_attribute(owner, name) if isinstance(owner, Unknown) else ()
    return Unknown(reason or Reason(Cause.ATTRIBUTE, ("", name)), makers=makers)


def _of_class(owner: Class, name: str) -> Value:
    """An attribute of a class: its own, or how it makes a model as the class of a library does that it inherits from."""
    method = member(owner, name)
    if isinstance(method, Function):
        return method.bound(owner)
    base = library_base(owner) if name in MAKES_MODEL else ""
    return method or (Library(f"{base}.{name}") if base else Unknown(Reason(Cause.ATTRIBUTE, (owner.name, name))))


def _of_object(state: ProgramState, owner: Object, name: str) -> Value:
    if owner.kind == "super":
        return above(owner, name)
    if name in owner.cells:
        found: Value = owner.cells[name]
        return found
    method = member(owner.type, name)
    if isinstance(method, Function):
        method = method.bound(owner)
        return enter(state, method, [], {}) if is_decorated(method.node, "property", "cached_property") else method
    if method is not None:
        return method
    if name == "module" and owner.type is not None and library_base(owner.type).startswith("torch.nn."):
        return owner  # a model of the project that Accelerate has wrapped
    if owner.kind == KIND and name in CONFIGS:
        return config_attribute(state, owner, name)
    if name == PLUGIN and owner.kind != "command line":
        return plugin_in_use(state, owner.reason)
    if owner.type is not None and (made := made_of_attribute(Unknown(made=made_by(owner)), name)).endswith(".model"):
        return Unknown(owner.reason, made)
    return Unknown(flag(f"--{name}") if owner.kind == "command line" else owner.reason or Reason(Cause.ATTRIBUTE, (owner.kind, name)))


def _of_plain(owner: Constant, name: str) -> Value:
    """An attribute of a path, or the value of a member of an enumeration."""
    if isinstance(owner.value, str) and name in ("parent", "parents"):
        return parent_of(owner) if name == "parent" else parents_of(owner)
    return owner if name == "value" else Unknown(Reason(Cause.ATTRIBUTE, ("", name)))


# ---------------------------------------------------------------------- containers


@expression(ast.Dict)
def _dict(state: ProgramState, node: ast.Dict, scope: Scope) -> Value:
    made = new_table(state, scope.source.span(node))
    for key, given in zip(node.keys, node.values, strict=True):
        found = evaluate(state, given, scope)
        if key is None:
            merge(state, made, found, place=scope.source.span(given))
            continue
        name = evaluate(state, key, scope)
        if isinstance(name, Constant) and isinstance(name.value, str):
            made.cells[name.value] = Entry(found, scope.source.span(key), scope.source.span(given), is_literal(given))
        else:
            merge(state, made, Unknown(), Reason(Cause.COMPUTED_KEY, (), scope.source.span(key)))
    return made


@expression(ast.List, ast.Tuple, ast.Set)
def _row(state: ProgramState, node: ast.List | ast.Tuple | ast.Set, scope: Scope) -> Value:
    items: list[Entry] = []
    is_known = True
    for one in node.elts:
        if isinstance(one, ast.Starred):
            inner = collected(state, evaluate(state, one.value, scope), scope.source.span(one))
            known = certain_items(inner)
            is_known = is_known and known is not None
            items += known or []
        else:
            items.append(Entry(evaluate(state, one, scope), Span(0, 0), scope.source.span(one), is_literal(one)))
    if is_known and not isinstance(node, ast.Set):
        return ListValue(items, scope.source.span(node), fixed=isinstance(node, ast.Tuple))
    return as_set(items, scope.source.span(node)) if is_known else COMPUTED


@expression(ast.Subscript)
def _subscript(state: ProgramState, node: ast.Subscript, scope: Scope) -> Value:
    if isinstance(node.slice, ast.Slice):
        return _slice(state, node, node.slice, scope)
    owner, index = evaluate(state, node.value, scope), evaluate(state, node.slice, scope)
    if isinstance(node.value, ast.Attribute) and node.value.attr in _WEIGHTS:
        note_weight(state, owner, node, scope)
    return item_of(state, owner, index)


def _slice(state: ProgramState, node: ast.Subscript, bounds: ast.Slice, scope: Scope) -> Value:
    """`owner[1:3]` of a text or a list."""
    owner = evaluate(state, node.value, scope)
    parts = [evaluate(state, one, scope) for one in (bounds.lower, bounds.upper, bounds.step)]
    plain = [one.value for one in parts if isinstance(one, Constant) and (one.value is None or isinstance(one.value, int))]
    if len(plain) < len(parts) or plain[2] == 0:
        return Unknown(next((one.reason for one in parts if isinstance(one, Unknown) and one.reason), IS_COMPUTED))
    if isinstance(owner, Constant) and isinstance(owner.value, str):
        return Constant(owner.value[slice(*plain)], owner.soft or any(map(is_soft, parts)))
    if isinstance(owner, ListValue) and not owner.changed:
        return ListValue(owner.items[slice(*plain)], scope.source.span(node))
    return Unknown(owner.reason if isinstance(owner, Unknown) and owner.reason else IS_COMPUTED)


def item_of(state: ProgramState, owner: Value, index: Value) -> Value:
    """An item of a dict or a list."""
    owner = whole(state, owner)
    at = index.value if isinstance(index, Constant) else None
    if isinstance(owner, DictValue) and isinstance(at, str):
        if at not in owner.cells and not owner.open:
            raise_certainly(state, KEY_ERROR)
        state.missing += at not in owner.cells or _entry(owner, at).perhaps
        return tinted(_entry(owner, at).value, soft=is_soft(index)) if at in owner.cells else Unknown(Reason(Cause.ITEM, (at,)))
    if isinstance(owner, DictValue):
        return options_of(owner, index.reason if isinstance(index, Unknown) and index.reason else IS_COMPUTED)
    if isinstance(owner, Constant) and isinstance(owner.value, str) and isinstance(at, int):
        fits = -len(owner.value) <= at < len(owner.value)
        return Constant(owner.value[at], owner.soft or is_soft(index)) if fits else Unknown()
    if isinstance(owner, ListValue) and (isinstance(at, int) or owner.changed):
        return _item_of_row(state, owner, at)
    if isinstance(owner, Object) and isinstance(method := member(owner.type, "__getitem__"), Function):
        return enter(state, method.bound(owner), [index], {})
    if isinstance(owner, Object) and isinstance(at, str):
        return attribute_of(state, owner, at)
    if isinstance(owner, Library) and owner.name == "os.environ" and isinstance(at, str):
        known: Value = state.environment.get(at, Unknown(Reason(Cause.VARIABLE, (at,))))
        return known
    if isinstance(owner, Library) and owner.name == "sys.argv":
        word = state.flags.get(word_name(at))
        return Constant(word) if isinstance(word, str) else Unknown(Reason(Cause.ARGV))
    if isinstance(owner, Unknown) and owner.made == f"{HOOK}s":
        return item_in_turn(owner, owner.reason or IS_COMPUTED)
    if isinstance(owner, Unknown) and at == 0:  # the first of several results is what the call makes
        return Unknown(owner.reason or IS_COMPUTED, owner.made, owner.span, turn=owner.turn, others=owner.others)
    if isinstance(owner, Unknown) and owner.made == ENGINE and isinstance(at, int) and at in _RETURNED:
        return Unknown(owner.reason or IS_COMPUTED, f"{ENGINE}.{_RETURNED[at]}", owner.span, turn=owner.turn, others=owner.others)
    return Unknown(owner.reason if isinstance(owner, Unknown) and owner.reason else IS_COMPUTED)


_RETURNED = {1: "optimizer", 3: "lr_scheduler"}
"""What `deepspeed.initialize` returns behind the engine, by position."""


def _item_of_row(state: ProgramState, row: ListValue, at: Any) -> Value:
    if row.changed:
        return Unknown(row.reason)
    if not -len(row.items) <= at < len(row.items):
        raise_certainly(state, INDEX_ERROR)
        return Unknown()
    found: Value = row.items[at].value
    return Unknown() if row.items[at].perhaps else found


def _entry(table: DictValue, name: str) -> Entry:
    found: Entry = table.cells[name]
    return found


# ---------------------------------------------------------------------- the rest


@expression(ast.IfExp)
def _conditional(state: ProgramState, node: ast.IfExp, scope: Scope) -> Value:
    """`a if c else b`: the one that the condition selects, or both joined."""
    test = evaluate(state, node.test, scope)
    holds = truth(test)
    if holds is not None and not is_soft(test):  # the other one is not evaluated, as in Python
        return evaluate(state, node.body if holds else node.orelse, scope)
    since = state.journal.mark[1]
    if holds is None:
        condition = condition_of(node, scope, state.active[-1] if state.active else None, holds=True)
        chosen = _under(state, condition, node.body, scope)
        other = _under(state, condition._replace(holds=False), node.orelse, scope)
    else:
        chosen = evaluate(state, node.body if holds else node.orelse, scope)
        is_likely = chosen == NONE  # a flag that is not given leaves None; the other one is what it is for
        state.unlikely += not is_likely
        other = evaluate(state, node.orelse if holds else node.body, scope)
        state.unlikely -= not is_likely
    if holds is None or chosen == NONE:
        state.journal.since, state.journal.condition = since, Reason(Cause.CONDITION, (), scope.source.span(node.test))
        return state.journal.joined(chosen, other)
    return tinted(chosen, soft=is_soft(test))


def _under(state: ProgramState, condition: Condition, node: ast.expr, scope: Scope) -> Value:
    """The value of a branch of a condition that only the run knows."""
    state.undecided += 1
    state.conditions.append(condition)
    try:
        return evaluate(state, node, scope)
    finally:
        state.conditions.remove(condition)
        state.undecided -= 1


@expression(ast.NamedExpr)
def _named(state: ProgramState, node: ast.NamedExpr, scope: Scope) -> Value:
    found = evaluate(state, node.value, scope)
    while scope.is_turn and scope.above is not None:
        scope = scope.above
    state.journal.write(scope.outer.get(node.target.id, scope.cells), node.target.id, placed(found, node.value, scope))
    return found


@expression(ast.Lambda)
def _lambda(state: ProgramState, node: ast.Lambda, scope: Scope) -> Value:
    return Function(node, scope.source, scope, defaults=defaults_of(state, node, scope))


def defaults_of(state: ProgramState, node: ast.Lambda | ast.FunctionDef | ast.AsyncFunctionDef, scope: Scope) -> dict[str, Value]:
    """The defaults of the parameters of a function, which are evaluated where it is defined."""
    given = node.args
    if not given.defaults and not given.kwonlyargs:  # as most: a program defines the functions of all its modules
        return {}
    names = [one.arg for one in (*given.posonlyargs, *given.args)]
    pairs = [*zip(names[len(names) - len(given.defaults) :], given.defaults, strict=True)]
    pairs += [(one.arg, default) for one, default in zip(given.kwonlyargs, given.kw_defaults, strict=True) if default is not None]
    return {name: evaluate(state, default, scope) for name, default in pairs}


@expression(ast.Await)
def _await(state: ProgramState, node: ast.Await, scope: Scope) -> Value:
    return evaluate(state, node.value, scope)


def tinted(found: Value, *, soft: bool) -> Value:
    """A value as a condition chooses it: soft where the condition is."""
    return Constant(found.value, soft=True) if soft and isinstance(found, Constant) else found
