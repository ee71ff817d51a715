"""Assignments: to names, attributes and items, with what `global`, `nonlocal` and `del` change."""

from __future__ import annotations

import ast
from dataclasses import replace

from dslint.evaluate.python.calls import Argument, CallOf
from dslint.evaluate.python.evaluate import KEY_ERROR, ProgramState, call_here, evaluate, placed, raise_certainly, statement
from dslint.evaluate.python.expressions import item_of, note_trained
from dslint.evaluate.python.functions import enter
from dslint.evaluate.python.nodes import is_literal
from dslint.evaluate.python.operations import operate
from dslint.evaluate.python.tables import erase_key, items_of, mark_changed, merge, new_table, set_items, set_key
from dslint.evaluate.reasons import Cause, Reason
from dslint.evaluate.values import (
    COMPUTED,
    Class,
    Constant,
    DictValue,
    Entry,
    Function,
    Library,
    ListValue,
    Object,
    Scope,
    Unknown,
    Value,
    is_one_of,
    member,
    tables_of,
)
from dslint.job.events import ENGINE, UNPACKED
from dslint.source.tree import Span


@statement(ast.Assign, ast.AnnAssign)
def _assignment(state: ProgramState, node: ast.Assign | ast.AnnAssign, scope: Scope) -> None:
    if node.value is None:
        return
    found = evaluate(state, node.value, scope)
    for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
        assign(state, target, found, node.value, scope)


@statement(ast.AugAssign)
def _augmented(state: ProgramState, node: ast.AugAssign, scope: Scope) -> None:
    """`a += value`, `a |= value`."""
    before = evaluate(state, node.target, scope)
    right = evaluate(state, node.value, scope)
    if isinstance(before, ListValue) and not before.fixed and isinstance(node.op, ast.Add) and not isinstance(node.target, ast.Subscript):
        items = items_of(right)
        known = None if items is None or before.changed else [*before.items, *items]
        set_items(state, before, known, scope.source.span(node.value))
    elif (tables := tables_of(before)) and isinstance(node.op, ast.BitOr):
        for table in tables:
            merge(state, table, right, place=scope.source.span(node.value))
    else:
        assign(state, node.target, operate(state, node.op, before, right), node.value, scope)


def assign(state: ProgramState, target: ast.expr, found: Value, written: ast.expr, scope: Scope) -> None:
    """Assign a value to a name, an attribute or an item."""
    found = placed(found, written, scope)
    if isinstance(target, ast.Name):
        state.journal.write(scope.outer.get(target.id, scope.cells), target.id, found)
    elif isinstance(target, ast.Attribute):
        _assign_attribute(state, target, found, written, scope)
    elif isinstance(target, ast.Subscript):
        _assign_item(state, target, found, written, scope)
    elif isinstance(target, ast.Tuple | ast.List):
        parts = _parts(found, target.elts)
        if isinstance(written, ast.Call):
            _note_unpacked(state, target, found, written, scope)
        unknown = Unknown(found.reason) if isinstance(found, Unknown) and found.reason else COMPUTED
        for number, one in enumerate(target.elts):
            first = item_of(state, found, Constant(number))
            assign(
                state,
                one,
                parts[number] if parts else first if number == 0 or (isinstance(first, Unknown) and first.made) else unknown,
                written,
                scope,
            )
    elif isinstance(target, ast.Starred):
        assign(state, target.value, found if isinstance(found, ListValue) else COMPUTED, written, scope)


_RESULTS = 4
"""How many `deepspeed.initialize` returns."""


def _note_unpacked(state: ProgramState, target: ast.Tuple | ast.List, found: Value, written: ast.Call, scope: Scope) -> None:
    """Note a call of `deepspeed.initialize` or `prepare` whose results do not fit the names that they are assigned to."""
    if any(isinstance(one, ast.Starred) for one in target.elts):
        return
    span = scope.source.span(written)
    of_engine = isinstance(found, Unknown) and found.made == ENGINE and found.span == span
    prepared = (
        isinstance(written.func, ast.Attribute) and written.func.attr == "prepare" and isinstance(found, ListValue) and found.span == span
    )
    results = _RESULTS if of_engine else len(found.items) if prepared and isinstance(found, ListValue) and not found.changed else None
    if results is None or results == len(target.elts):
        return
    name = ENGINE if of_engine else "accelerate.Accelerator.prepare"
    call = call_here(state, written, scope, f"{name}.{UNPACKED}", span)
    call.keywords = {key: Argument(Constant(count), span, span) for key, count in (("names", len(target.elts)), ("results", results))}
    state.note(call, None)


def _parts(found: Value, targets: list[ast.expr]) -> list[Value] | None:
    """The values for several targets, of which one may take the rest; None if they are not known."""
    items = items_of(found)
    if items is None:
        return None
    values = [one.value for one in items]
    star = next((number for number, one in enumerate(targets) if isinstance(one, ast.Starred)), None)
    if star is None:
        return values if len(values) == len(targets) else None
    behind = len(targets) - star - 1
    if len(values) < len(targets) - 1:
        return None
    rest = ListValue(items[star : len(items) - behind], Span(0, 0))
    return [*values[:star], rest, *values[len(values) - behind :]]


def _assign_attribute(state: ProgramState, target: ast.Attribute, found: Value, written: ast.expr, scope: Scope) -> None:
    owner = evaluate(state, target.value, scope)
    place = scope.source.span(target)
    if target.attr == "requires_grad" and isinstance(found, Constant) and isinstance(found.value, bool) and not found.soft:
        note_trained(state, target, scope, is_trained=found.value)
    key = Span(place.end - len(target.attr), place.end)
    if isinstance(owner, Unknown) and owner.reason and not owner.made and isinstance(target.value, ast.Name):
        owner = Object("unknown", state.journal.cells(), reason=owner.reason)
        assign(state, target.value, owner, target.value, scope)
    setter = member(owner.type, f"{target.attr}.setter") if isinstance(owner, Object) else None
    if isinstance(owner, Object) and isinstance(setter, Function):
        enter(state, setter.bound(owner), [found], {})
    elif isinstance(owner, Object | Class):
        set_attribute(state, owner, target.attr, Argument(found, scope.source.span(written), key, is_literal(written), written))
    for table in tables_of(owner):  # a dict with its keys as attributes, as of EasyDict and OmegaConf
        mark_changed(state, table)
        state.journal.write(table.cells, target.attr, Entry(found, key, scope.source.span(written), is_literal(written)))


def set_attribute(state: ProgramState, owner: Object | Class, name: str, given: Argument) -> None:
    """Set an attribute. Training arguments are received again with it."""
    state.journal.write(owner.cells, name, given.value)
    if isinstance(owner, Object) and isinstance(owner.about, CallOf):
        if owner.about.assigned is not None and (state.undecided or state.unlikely):
            given = replace(given, value=Unknown())
        assigned = owner.about.assigned | {name} if owner.about.assigned is not None else None
        later, keywords = owner.about.later | {name}, owner.about.keywords
        before = {name: keywords.get(name), **owner.about.before}
        owner.about = replace(owner.about, keywords={**keywords, name: given}, assigned=assigned, later=later, before=before)
        state.receive(owner.about)


def _assign_item(state: ProgramState, target: ast.Subscript, found: Value, written: ast.expr, scope: Scope) -> None:
    """`owner[key] = value`."""
    owner, key = opened(state, target.value, scope), evaluate(state, target.slice, scope)
    name = key.value if isinstance(key, Constant) and isinstance(key.value, str) else None
    spans = scope.source.span(target.slice), scope.source.span(written)
    method = member(owner.type, "__setitem__") if isinstance(owner, Object) else None
    if isinstance(owner, Object) and isinstance(method, Function):
        enter(state, method.bound(owner), [key, found], {})
    elif isinstance(owner, Object) and name is not None:
        state.journal.write(owner.cells, name, found)
    elif isinstance(owner, Library) and owner.name == "os.environ" and name is not None:
        set_variable(state, name, Argument(found, spans[1], spans[0], is_literal(written), written), scope)
    elif isinstance(owner, ListValue):
        _set_item(state, owner, key, Entry(found, *spans, is_literal(written)))
    for table in tables_of(owner):
        if name is None or is_one_of(owner):
            merge(state, table, Unknown(), Reason(Cause.COMPUTED_KEY, (), spans[0]))
        else:
            mark_changed(state, table)
            set_key(state, table, name, Entry(found, *spans, is_literal(written)))


def _set_item(state: ProgramState, row: ListValue, key: Value, entry: Entry) -> None:
    """`row[index] = value`. An index that is not known can be that of any item; with a slice, none is known."""
    index = key.value if isinstance(key, Constant) else None
    if isinstance(index, int) and -len(row.items) <= index < len(row.items):
        items: list[Entry] | None = list(row.items)
        assert items is not None
        items[index] = entry
    else:
        items = None
    set_items(state, row, items, entry.key_span)


def set_variable(state: ProgramState, name: str, given: Argument, scope: Scope) -> None:
    """Set an environment variable."""
    state.journal.write(state.environment, name, given.value)
    nowhere = ast.Call(ast.Name("os.environ"), [], [])
    state.receive(CallOf(nowhere, scope, "os.environ", given.key, keywords={name: given}))


def opened(state: ProgramState, node: ast.expr, scope: Scope) -> Value:
    """The value of an expression that the program treats as a dict. One that is not known becomes a dict with more keys."""
    owner = evaluate(state, node, scope)
    if not isinstance(owner, Unknown) or tables_of(owner) or not isinstance(node, ast.Name | ast.Attribute | ast.Subscript):
        return owner
    for option in owner.options:  # what the program does with one of these dicts changes it
        if isinstance(option, DictValue):
            merge(state, option, Unknown(), Reason(Cause.COMPUTED_KEY, (), scope.source.span(node)))
    made = new_table(state, scope.source.span(node))
    made.open["more"] = True
    made.open["reason"] = made.open["why"] = owner.reason
    assign(state, node, made, node, scope)
    return made


@statement(ast.Delete)
def _delete(state: ProgramState, node: ast.Delete, scope: Scope) -> None:
    for target in node.targets:
        if isinstance(target, ast.Attribute):
            assign(state, target, Unknown(), target, scope)
        if not isinstance(target, ast.Subscript):
            continue
        owner, key = evaluate(state, target.value, scope), evaluate(state, target.slice, scope)
        if isinstance(owner, Library) and owner.name == "os.environ" and isinstance(key, Constant):
            state.journal.erase(state.environment, str(key.value))
        for table in tables_of(owner):
            if isinstance(key, Constant) and isinstance(key.value, str):
                if key.value not in table.cells and not table.open:
                    raise_certainly(state, KEY_ERROR)
                erase_key(state, table, key.value)
            else:
                merge(state, table, Unknown(), place=scope.source.span(target))
        if isinstance(owner, ListValue):
            set_items(state, owner, None, scope.source.span(target))


@statement(ast.Global)
def _global(_: ProgramState, node: ast.Global, scope: Scope) -> None:
    top = scope
    while top.above is not None:
        top = top.above
    scope.outer.update(dict.fromkeys(node.names, top.cells))


@statement(ast.Nonlocal)
def _nonlocal(_: ProgramState, node: ast.Nonlocal, scope: Scope) -> None:
    for name in node.names:
        here = scope.above
        while here is not None and name not in here.cells:
            here = here.above
        if here is not None:
            scope.outer[name] = here.cells
