"""Follow calls of the project's own functions and classes into their bodies."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable
from collections.abc import Set as AbstractSet

from dslint.evaluate.python import weak
from dslint.evaluate.python.calls import CallOf
from dslint.evaluate.python.carried import forget_counters
from dslint.evaluate.python.evaluate import ProgramState, block, evaluate
from dslint.evaluate.python.nodes import is_decorated
from dslint.evaluate.python.sources import SourceFile
from dslint.evaluate.python.tables import GLOBALS, copied, forget_all, leave_attributes_open, new_table
from dslint.evaluate.reasons import Cause, Reason
from dslint.evaluate.values import (
    DEEPEST_CLASS,
    NONE,
    Class,
    DictValue,
    Entry,
    Function,
    Library,
    ListValue,
    Object,
    ParsedNames,
    Scope,
    Unknown,
    Value,
    member,
    resolution,
    soften,
)
from dslint.job.events import TRAINER, TRAINERS
from dslint.source.tree import Span

_DEEPEST_CALL = 15
"""How many calls may be inside each other. Of 21,000 calls in programs of LLaMA-Factory, axolotl 0.19 and GPT-NeoX the deepest is 14."""

_DEEPEST_RECURSION = 5
"""How often a function may be inside itself: each level multiplies the work by its calls of itself. LLaMA-Factory's go one level deep, and
GPT-NeoX has none."""

_SHARE = 500
"""How many steps a function of a module may take before it is not followed again, in a program that is large: a 40th of the fewest.
The 26 programs of 8 public repositories that were cut off are followed to their end with it."""

_MOST_YIELDED = 40
"""As many items as a list may have that is followed item by item."""

_NOWHERE = Span(0, 0)


def enter(
    state: ProgramState,
    function: Function,
    arguments: list[Value],
    keywords: dict[str, Value],
    *,
    complete: bool = True,
    call: CallOf | None = None,
) -> Value:
    """Follow a call of a function of the project. With `complete` False there are more arguments than are known."""
    node = function.node
    goes_on = node not in state.active or (state.active.count(node) <= _DEEPEST_RECURSION and complete and _tells(arguments, keywords))
    if _is_spent(state, function):
        return _passed_over(state, function, (*arguments, *keywords.values()), call)
    if not goes_on or len(state.active) >= _DEEPEST_CALL:
        for one in (*arguments, *keywords.values()):
            forget_all(state, one, call.span if call is not None else _NOWHERE)
            if isinstance(one, Object) and isinstance(one.about, ParsedNames):
                one.about.open = True
        return Unknown(Reason(Cause.RECURSION))
    scope = Scope(state.journal.cells(), function.source, function.scope, [], function)
    since = state.journal.mark[1]
    _bind(state, function, scope, arguments, keywords, complete=complete, call=call)
    if isinstance(node, ast.Lambda):
        state.followed.add(node)
        return evaluate(state, node.body, scope)
    if function.source.parsed.yields(node):
        return Object(GENERATOR, state.journal.cells(), about=(function, scope))
    ends = _follow_body(state, node, scope, call)
    if state.weakly_held:
        weak.leave(state, node, call)
    assert scope.returns is not None
    values = [*scope.returns, NONE] if ends else scope.returns
    result = values[0] if values else NONE
    state.journal.since = since
    for one in values[1:]:
        result = state.journal.joined(result, one)
    return result


def _is_spent(state: ProgramState, function: Function) -> bool:
    """Whether a function is not followed again in a program that is large: it is in a module, has had its share of the steps, and led
    to no call with a config.
    """
    if state.steps > state.sparing or function.source.path == state.sources.all[0].path:
        return False
    return state.spent.get(function.node, 0) >= _SHARE and function.node not in state.leads


def _passed_over(state: ProgramState, function: Function, given: tuple[Value, ...], call: CallOf | None) -> Value:
    """The result of a function that is not followed again. It may change what it gets, and what it has from around it."""
    why, span = Reason(Cause.STEPS, (_named(function),)), call.span if call is not None else _NOWHERE
    around: list[Value] = [function.this] if function.this is not None else []
    if function.node not in state.passed_over:  # once: some are called hundreds of times
        state.passed_over.add(function.node)
        names = {one.id for one in ast.walk(function.node) if isinstance(one, ast.Name)}
        here: Scope | None = function.scope
        while here is not None:
            around += [here.cells[name] for name in names if name in here.cells]
            here = here.above
    for value in (*given, *around):
        forget_all(state, value, span)
        if isinstance(value, Object) and value.kind not in (GENERATOR, GLOBALS):
            leave_attributes_open(state, value, why)
    return Unknown(why)


def _tells(arguments: list[Value], keywords: dict[str, Value]) -> bool:
    """Whether a call has no arguments, or one of which something is known.

    A function that calls itself with nothing known is not followed again: it says what it said the first time. One with two such calls,
    as over the items of any list or dict, was followed 64 times for each call (half of the work for axolotl 0.19).
    """
    given = [*arguments, *keywords.values()]
    return not given or any(type(one) is not Unknown or one.options or one.text or one.path is not None for one in given)


def _follow_body(state: ProgramState, node: ast.FunctionDef | ast.AsyncFunctionDef, scope: Scope, call: CallOf | None = None) -> bool:
    """Follow the body of a function. Returns whether its end is reached."""
    state.followed.add(node)
    if state.repeated:
        forget_counters(state, node, scope)
    state.active.append(node)
    state.called_at.append(call.span.start if call is not None else -1)
    before, state.perhaps_left = state.perhaps_left, set()
    at, steps, found = state.at, state.steps, state.found()
    try:
        goes_on = block(state, node.body, scope)
    finally:
        state.spent[node] = state.spent.get(node, 0) + steps - state.steps
        if state.found() > found:
            state.leads.add(node)
        state.active.pop()
        state.called_at.pop()
        state.perhaps_left = before
    state.at = at  # the statement of the call goes on
    return goes_on


GENERATOR = "generator"
"""The kind of the object that a call of a generator function returns."""


def run_generator(state: ProgramState, thing: Object, consume: Callable[[Value], None]) -> None:
    """Follow the body of a generator, whose values a consumer gets one by one."""
    function, scope = thing.about
    if "spent" in thing.cells or len(state.active) >= _DEEPEST_CALL or state.active.count(function.node) > 1:
        return
    state.journal.write(thing.cells, "spent", NONE)
    state.consumers.append(consume)
    try:
        _follow_body(state, function.node, scope)
    finally:
        state.consumers.pop()


def collected(state: ProgramState, value: Value, span: Span) -> Value:
    """The list of what a generator yields; any other value as it is."""
    if not isinstance(value, Object) or value.kind != GENERATOR:
        return value
    items: list[Entry] = []
    start = (state.undecided, state.repeated, state.partial)
    is_sure = True

    def consume(given: Value) -> None:
        nonlocal is_sure
        is_sure = is_sure and (state.undecided, state.repeated, state.partial) == start
        items.append(Entry(given, span, span))

    run_generator(state, value, consume)
    return ListValue(items, span) if is_sure and len(items) <= _MOST_YIELDED else Unknown(Reason(Cause.GENERATOR, (), span))


def _bind(
    state: ProgramState,
    function: Function,
    scope: Scope,
    arguments: list[Value],
    keywords: dict[str, Value],
    *,
    complete: bool,
    call: CallOf | None,
) -> None:
    """Give the parameters of a function their values."""
    given = function.node.args
    names = [one.arg for one in (*given.posonlyargs, *given.args)]
    if function.this is not None and names and _takes_itself(function):
        arguments = [function.this, *arguments]
    defaults = dict(zip(reversed(names), reversed(given.defaults), strict=False))
    defaults |= {one.arg: default for one, default in zip(given.kwonlyargs, given.kw_defaults, strict=True) if default}
    every = [*names, *(one.arg for one in given.kwonlyargs)]
    for number, name in enumerate(every):
        if number < min(len(arguments), len(names)):
            scope.cells[name] = arguments[number]
        elif name in keywords:
            scope.cells[name] = keywords[name]
        elif name in function.given:
            scope.cells[name] = function.given[name]
        elif name in defaults and complete:
            scope.cells[name] = function.defaults[name] if name in function.defaults else evaluate(state, defaults[name], function.scope)
        else:
            made = _model_of_trainer(state, function, name)
            found = Unknown(_parameter(function, name), made, _place_of(function, name)) if made else Unknown(_parameter(function, name))
            scope.cells[name] = _annotated(state, function, name) or found
    if given.vararg:
        more = ListValue([Entry(one, _NOWHERE, _NOWHERE) for one in arguments[len(names) :]], _NOWHERE)
        scope.cells[given.vararg.arg] = more if complete else Unknown(_rest_of(function, "*", given.vararg))
    if given.kwarg:
        rest = {name: one for name, one in (function.given | keywords).items() if name not in every}
        scope.cells[given.kwarg.arg] = _rest(
            state,
            rest,
            call,
            _rest_of(function, "**", given.kwarg),
            complete=complete,
        )


def _model_of_trainer(state: ProgramState, function: Function, name: str) -> str:
    """What makes the argument `model` with which a Trainer calls a method of its class or of a callback; "" for any other argument.

    The program has to make an object of that class.
    """
    owner = function.owner
    if name != "model" or owner is None or id(owner) not in state.made:
        return ""
    base, called = library_base(owner), getattr(function.node, "name", "")
    if base.startswith("transformers.") and base.endswith("TrainerCallback") and called.startswith("on_"):
        return f"{TRAINER}.model"
    return f"{base}.model" if called in _GET_MODEL and re.fullmatch(TRAINERS, base) is not None else ""


_GET_MODEL = frozenset({"compute_loss", "training_step", "prediction_step"})
"""Methods that the Trainer calls with its model."""


def _annotated(state: ProgramState, function: Function, name: str) -> Object | None:
    """The object of a class of the project that an argument is said to be, if nothing is known about the argument itself."""
    given = function.node.args
    annotation = next((one.annotation for one in (*given.posonlyargs, *given.args, *given.kwonlyargs) if one.arg == name), None)
    if isinstance(annotation, ast.Constant) and isinstance(annotation.value, str) and annotation.value.isidentifier():
        annotation = ast.copy_location(ast.Name(annotation.value), annotation)
    kind = evaluate(state, annotation, function.scope) if isinstance(annotation, ast.Name | ast.Attribute) else None
    return some_instance(state, kind) if isinstance(kind, Class) and not library_base(kind) else None


def some_instance(state: ProgramState, made: Class) -> Object:
    """The object of a class that another file makes, with arguments that are not known: of a dataclass it has the defaults."""
    thing = state.instances.get(id(made))
    if thing is None:
        state.instances[id(made)] = Object(made.name, state.journal.cells(), made)  # for an `__init__` that takes one of its own kind
        state.supposed += 1
        thing = state.instances[id(made)] = instance(state, made, [], {}, complete=False)
        state.supposed -= 1
        for name in made.fields if made.dataclass else ():
            default = member(made, name)
            thing.cells.setdefault(name, Unknown(Reason(Cause.REST, (name, made.name))) if default is None else soften(default))
        _take_models(state, made, thing)
    return thing


def _take_models(state: ProgramState, made: Class, thing: Object) -> None:
    """Give an object for methods that no call reaches what libraries made for the only object of its class, such as a Trainer's teacher.

    Other values may have changed by then.
    """
    others = state.made.get(id(made), [])
    for name, value in others[0].cells.items() if len(others) == 1 else ():
        before = thing.cells.get(name)
        if isinstance(value, Unknown) and value.made and (before is None or (isinstance(before, Unknown) and not before.made)):
            thing.cells[name] = value


def _rest_of(function: Function, stars: str, parameter: ast.arg) -> Reason:
    """The reason for `*args` and `**kwargs` of a function that nothing calls."""
    return Reason(Cause.REST, (f"{stars}{parameter.arg}", _named(function)), function.source.span(parameter))


def _parameter(function: Function, name: str) -> Reason:
    """The reason for a parameter of a function that nothing calls."""
    return Reason(Cause.PARAMETER, (name, _named(function)), _place_of(function, name))


def _place_of(function: Function, name: str) -> Span | None:
    """The place of a parameter."""
    given = function.node.args
    found = next((one for one in (*given.posonlyargs, *given.args, *given.kwonlyargs) if one.arg == name), None)
    return function.source.span(found) if found is not None else None


def _named(function: Function) -> str:
    name = getattr(function.node, "name", "a lambda")
    return f"{function.owner.name}.{name}" if function.owner else name


def _takes_itself(function: Function) -> bool:
    """Whether a method gets its object or its class as the first argument."""
    if isinstance(function.this, Class):
        return is_decorated(function.node, "classmethod")
    return not is_decorated(function.node, "staticmethod")


def _rest(state: ProgramState, keywords: dict[str, Value], call: CallOf | None, reason: Reason, *, complete: bool) -> Value:
    """What `**kwargs` holds."""
    if not complete and not keywords:
        return Unknown(reason)
    written = call.keywords if call is not None else {}
    made = new_table(state, call.span if call is not None else _NOWHERE)
    for name, one in keywords.items():
        at = written.get(name)
        made.cells[name] = Entry(one, at.key, at.span, at.literal) if at else Entry(one, made.span, made.span)
    if not complete:
        made.open["more"] = True
    return made


def above(owner: Object, name: str) -> Value:
    """What `super()` finds under a name: a method of the project, or one of a library's class."""
    kind, this = owner.about
    own = this.type if isinstance(this, Object) and this.type is not None else this if isinstance(this, Class) else kind
    order = resolution(own) if kind in resolution(own) else resolution(kind)
    found: Value | None = next((one.cells[name] for one in order[order.index(kind) + 1 :] if name in one.cells), None)
    if isinstance(found, Function):
        return found.bound(this)
    if found is not None:
        return found
    base = library_base(kind)
    return Library(f"{base}.{name}") if base else Unknown(Reason(Cause.ATTRIBUTE, ("", name)))


def library_base(made: Class, depth: int = 0) -> str:
    """The class of a library that a class inherits from; "" if there is none."""
    for base in made.bases:
        of_class = library_base(base, depth + 1) if isinstance(base, Class) and depth < DEEPEST_CLASS else ""
        found = base.name if isinstance(base, Library) else of_class
        if found:
            return found
    return ""


def instance(
    state: ProgramState,
    made: Class,
    arguments: list[Value],
    keywords: dict[str, Value],
    *,
    complete: bool = True,
    call: CallOf | None = None,
) -> Object:
    """A new object of a class of the project. With `complete` False a `call` passes more than is known, which may be any other field."""
    thing = Object(made.name, state.journal.cells(), made)
    if call is not None:
        state.made.setdefault(id(made), []).append(thing)
    if made.dataclass:
        for name in made.fields:
            default = member(made, name)
            if not complete and call is not None:
                thing.cells[name] = Unknown(Reason(Cause.MERGED, (), call.span))
            elif isinstance(default, DictValue):
                thing.cells[name] = copied(state, default)
            elif isinstance(default, ListValue):
                thing.cells[name] = ListValue(list(default.items), default.span, changed=default.changed)
        thing.cells.update(zip(made.fields, arguments, strict=False))
        thing.cells.update({name: one for name, one in keywords.items() if name in made.fields})
    state.making.append(thing)
    start = member(made, "__init__")
    if isinstance(start, Function):
        enter(state, start.bound(thing), arguments, keywords, complete=complete, call=call)
    then = member(made, "__post_init__")
    if isinstance(then, Function):
        enter(state, then.bound(thing), [], {})
    state.making.pop()
    return thing


def follow_rest(state: ProgramState, source: SourceFile, left: AbstractSet[ast.AST] = frozenset()) -> None:
    """Follow the functions of a file that no call in it reaches, but for those in `left`; their arguments are not known.

    First come those that are called in a branch which the program does not take: what they call is not likely, either.
    """
    skipped = frozenset(name for branch in state.skipped.values() for name in branch.called)
    found = [one for one in state.functions if one.source.shown == source.shown and one.node not in left]
    names = {id(one): {getattr(one.node, "name", ""), one.owner.name if one.owner is not None else ""} for one in found}
    reached = [one for one in found if not names[id(one)].isdisjoint(skipped)]
    state.unlikely += 1
    _follow_each(state, reached)
    state.unlikely -= 1
    _follow_each(state, found)


def follow_hooks(state: ProgramState, base: str, names: str) -> None:
    """Follow the methods that a library calls of the objects that the program has made, which are of classes of the project."""
    for things in list(state.made.values()):
        made = things[0].type
        if made is None or re.fullmatch(base, library_base(made)) is None:
            continue
        called = dict.fromkeys(name for one in resolution(made) for name in one.cells if re.fullmatch(names, name))
        methods = (member(made, name) for name in called)
        _follow_each(state, [one.bound(made) for one in methods if isinstance(one, Function)])


def _follow_each(state: ProgramState, functions: list[Function]) -> None:
    for function in functions:
        _follow_later(state)
        if function.node in state.followed:
            continue
        owner = function.this
        this: Value | None = owner
        if isinstance(owner, Class) and not is_decorated(function.node, "classmethod"):
            this = some_instance(state, owner)
        if function.node not in state.followed:
            state.flow += 1
            reached = Function(function.node, function.source, function.scope, this, function.owner, function.given)
            collected(state, enter(state, reached, [], {}, complete=False), _NOWHERE)
    _follow_later(state)


def _follow_later(state: ProgramState) -> None:
    """Follow the functions that a library calls later, under the conditions under which they are passed to it."""
    while state.later:
        function, call = state.later.pop(0)
        if function.node in state.followed:
            continue
        before, state.flow = (state.undecided, state.unlikely), state.flow + 1
        state.undecided, state.unlikely = call.chosen and max(1, len(call.conditions)), int(call.unlikely)
        state.conditions += call.conditions
        enter(state, function, [one.value for one in call.arguments], {}, complete=call.complete)
        del state.conditions[len(state.conditions) - len(call.conditions) :]
        state.undecided, state.unlikely = before
