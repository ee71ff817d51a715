"""Calls: of functions, methods and classes of the project, of functions of libraries that are known, and of all others."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from dataclasses import replace
from functools import reduce
from itertools import accumulate

from dslint.evaluate.python import weak
from dslint.evaluate.python.assigning import opened
from dslint.evaluate.python.calls import ENGINE_BACKWARD, Argument, CallOf
from dslint.evaluate.python.dicts import CHANGES_TABLE, OF_TABLE
from dslint.evaluate.python.evaluate import ProgramState, call_here, evaluate, expression
from dslint.evaluate.python.events import is_noted
from dslint.evaluate.python.expressions import attribute_of
from dslint.evaluate.python.files import json_file, method_of_file
from dslint.evaluate.python.functions import GENERATOR, collected, enter, instance, library_base
from dslint.evaluate.python.libraries import FUNCTIONS
from dslint.evaluate.python.libraries.argparse import OF_PARSER, leave_open
from dslint.evaluate.python.libraries.collections import CONSUMES
from dslint.evaluate.python.libraries.dataclasses import OF_CLASSES, is_trainers
from dslint.evaluate.python.libraries.datasets import rows_after
from dslint.evaluate.python.paths import SAME_FILE, joined, same_file
from dslint.evaluate.python.rows import method_of_row, method_of_set
from dslint.evaluate.python.strings import method_of_string, opened_file
from dslint.evaluate.python.tables import SET, certain_items, forget_all, table_of, whole
from dslint.evaluate.reasons import Cause, Reason
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
    Object,
    Scope,
    Unknown,
    Value,
    is_one_of,
    member,
    path_of,
    tables_of,
)

_PARSERS = {"HfArgumentParser": "transformers.HfArgumentParser", "TrlParser": "trl.TrlParser", "H4ArgumentParser": "trl.TrlParser"}
_PASSED_ON = {
    "Accelerator": frozenset({"prepare", "unwrap_model"}),
    "Fabric": frozenset({"setup"}),
}
"""The methods of the classes of Accelerate and of Lightning that return their arguments, wrapped."""
_TAKES_ITEMS = frozenset({"update", "extend", "join"})
_HOOKS = {
    "register_save_state_pre_hook": (Unknown(made="accelerate.save_hook.models"), Unknown(made="accelerate.save_hook.weights", length=0)),
    "register_load_state_pre_hook": (Unknown(made="accelerate.load_hook.models", length=0),),
}
"""What Accelerate passes to the functions that these methods register, besides the folder, under DeepSpeed: it saves the weights itself."""
_NEW = frozenset({"state_dict", "get_state_dict", "parameters", "named_parameters", "tokenizer"})
"""Methods whose result is not the object itself, or a part of it."""

_ITSELF = frozenset("to cuda cpu half float bfloat16 eval train requires_grad_ merge_and_unload".split())
"""Methods of a model that return the model. What any other returns may be None or false."""

_AS_DICT = frozenset("dict model_dump to_dict asdict _asdict as_dict".split())


@expression(ast.Call)
def _call(state: ProgramState, node: ast.Call, scope: Scope) -> Value:
    owner: Value | None = None
    if isinstance(node.func, ast.Attribute):
        owner = (opened if node.func.attr == "update" else evaluate)(state, node.func.value, scope)
        called = attribute_of(state, owner, node.func.attr)
    else:
        called = evaluate(state, node.func, scope)
    call = _with_arguments(state, node, scope, called.name if isinstance(called, Library) else "")
    is_method = owner is not None and not isinstance(called, Function | Class | Library) and not _is_held(owner, called, node.func)
    if is_method and owner is not None and isinstance(node.func, ast.Attribute):
        leave_open(call)
        return _method(state, owner, node.func.attr, call)
    if isinstance(called, Object):
        called, call = _callable(called, call)
    if isinstance(called, Function):
        return enter(state, called, *_values(call), complete=call.complete, call=call)
    if isinstance(called, Class):
        return _construct(state, called, call)
    if not isinstance(called, Library):
        leave_open(call)
        if isinstance(called, Unknown) and called.made:
            _note_method(state, call, f"{called.made}.__call__", called)
        if isinstance(called, Unknown) and called.functions:
            return Unknown(called.reason, "", call.span, makers=called.functions)
        return Unknown(called.reason) if isinstance(called, Unknown) and called.reason else COMPUTED
    return call_library(state, call, owner)


def _is_held(owner: Value, called: Value, function: ast.expr) -> bool:
    """Whether a call is one of what a library made, and an object of the project holds: `self.teacher(**batch)`."""
    is_made = isinstance(called, Unknown) and bool(called.made)
    return is_made and isinstance(owner, Object) and isinstance(function, ast.Attribute) and function.attr in owner.cells


def call_library(state: ProgramState, call: CallOf, owner: Value | None = None) -> Value:
    """A call of a library's function, or of `super().__init__` for the class of a library."""
    if isinstance(owner, Object) and owner.kind == "super" and call.name.endswith(".__init__"):
        call.name = call.name.removesuffix(".__init__")
        call.own = owner.about[1].type if isinstance(owner.about[1], Object) else None
        state.receive(call)
        return NONE
    if call.name in CONSUMES:
        _collect(state, call)
    known = FUNCTIONS.get(call.name) or state.library.get(call.name) or FUNCTIONS.get(_PARSERS.get(call.name.rpartition(".")[2], ""))
    if known is not None:
        return known(state, call)
    leave_open(call)
    received = state.receive(call)
    weak.note_made(state, call)
    return received or Unknown(_result_of(state, call), call.name, call.span, turn=_turn_of(state, call))


def _turn_of(state: ProgramState, call: CallOf) -> int:
    """How many other places called the functions around a call of a library before, as of `optimizer_for(a)` and `optimizer_for(b)`."""
    turns = state.turns.setdefault(call.span.start, {})
    return turns.setdefault(tuple(state.called_at), len(turns))


def _result_of(state: ProgramState, call: CallOf) -> Reason:
    """Where the value comes from that a function returns which is not followed."""
    name = call.name.rpartition(".")[2]
    if state.beyond and (beyond := _file_of(call, state.beyond)) is not None:
        return Reason(Cause.RESULT_BEYOND, (name, beyond), call.span)
    if state.outside and (outside := _file_of(call, state.outside)) is not None:
        return Reason(Cause.RESULT_OUTSIDE, (name, outside), call.span)
    return Reason(Cause.RESULT, (call.name,), call.span)


def _file_of(call: CallOf, files: Mapping[str, str]) -> str | None:
    """The file of the module whose function is called, among files by the names of their modules."""
    above = set(accumulate(call.name.split(".")[:-1], "{}.{}".format))
    return None if above.isdisjoint(files) else next(file for module, file in files.items() if module in above)


def _collect(state: ProgramState, call: CallOf) -> None:
    """Replace the generators among the arguments of a call by the lists of what they yield."""
    for one in call.arguments:
        one.value = collected(state, one.value, one.span)


def _with_arguments(state: ProgramState, node: ast.Call, scope: Scope, name: str) -> CallOf:
    """A call with its arguments."""
    places = scope.source.places(node)
    call = call_here(state, node, scope, name, places.span)
    for one, span, literal in places.arguments:
        if type(one) is ast.Starred:
            found = evaluate(state, one.value, scope)
            found = collected(state, found, span)
            known = certain_items(found)
            call.complete = call.complete and known is not None
            items = known or []
            call.arguments += [Argument(item.value, item.span if item.span.end else span, span, item.literal) for item in items]
        elif state.is_posted and isinstance(one, ast.Constant) and one.value is ...:
            call.complete = False  # dots stand for what a posted program leaves out
            break
        else:
            call.arguments.append(Argument(evaluate(state, one, scope), span, span, literal, one))
    for keyword, value, at, span, literal in places.keywords:
        found = evaluate(state, value, scope)
        if keyword is not None:
            call.keywords[keyword] = Argument(found, span, at, literal, value)
        elif isinstance(found := whole(state, found), DictValue):
            given = {key: Argument(one.value, one.span, one.key_span, one.literal, perhaps=one.perhaps) for key, one in found.cells.items()}
            call.keywords.update(given)
            call.complete = call.complete and not found.open
        else:
            call.complete = False
    return call


def _values(call: CallOf) -> tuple[list[Value], dict[str, Value]]:
    return [one.value for one in call.arguments], {name: one.value for name, one in call.keywords.items()}


def _callable(thing: Object, call: CallOf) -> tuple[Value, CallOf]:
    """What a call of an object calls, with the arguments: the function of `functools.partial`, or `__call__`."""
    if isinstance(thing.about, CallOf) and thing.kind == "partial":
        first, *rest = thing.about.arguments
        call.arguments = [*rest, *call.arguments]
        call.keywords = {**thing.about.keywords, **call.keywords}
        call.complete = call.complete and thing.about.complete
        call.name = first.value.name if isinstance(first.value, Library) else ""
        return first.value, call
    method = member(thing.type, "__call__")
    return method.bound(thing) if isinstance(method, Function) else COMPUTED, call


def _construct(state: ProgramState, made: Class, call: CallOf) -> Value:
    """A new object. A class that it inherits from a library gets the same arguments, unless its own `__init__` passes others on."""
    base = library_base(made)
    is_plain = not isinstance(member(made, "__init__"), Function)
    if base and is_plain:
        call.name, call.own = base, made
        state.receive(call)
    thing = instance(state, made, *_values(call), complete=call.complete, call=call)
    if base and is_plain:
        thing.cells.update({name: one.value for name, one in call.keywords.items()})
        thing.about = call if is_trainers(base) and thing.about is None else thing.about  # a program may set attributes later
    return thing


def _method(state: ProgramState, owner: Value, name: str, call: CallOf) -> Value:
    """A method of a value that dslint knows, or knows nothing about."""
    if name in _TAKES_ITEMS:
        _collect(state, call)
    if tables := tables_of(owner):
        method = OF_TABLE.get(name)
        if is_one_of(owner) and name in CHANGES_TABLE:
            for one in tables:
                forget_all(state, one, call.span)
            return Unknown(Reason(Cause.CONDITION, (), call.span))
        results = [method(state, one, call) for one in tables] if method else [COMPUTED]
        return reduce(state.journal.joined, results)
    if isinstance(owner, ListValue) and (result := method_of_row(state, owner, name, call)) is not None:
        return result
    if isinstance(owner, Constant) and isinstance(owner.value, str):
        return _of_path(state, owner, name, call) or method_of_string(owner, name, call)
    if isinstance(owner, Object) and (found := _of_object(state, owner, name, call)) is not None:
        return found
    if isinstance(owner, Unknown) and owner.path is not None and (found := _of_path(state, owner, name, call)) is not None:
        return found
    if isinstance(owner, Unknown):
        _note_method(state, call, f"{owner.made}.{name}".lstrip("."), owner)
        if f"{owner.made}.{name}" == ENGINE_BACKWARD:
            state.receive(replace(call, name=ENGINE_BACKWARD, span=owner.span or call.span))
        if (found := _of_trainer(state, owner, name, call)) is not None:
            return found
        made = owner.made if name not in _NEW else f"{owner.made}.{name}"
        may_be_none = name not in _ITSELF
        makers = tuple(one and f"{one}.{name}" for one in owner.makers) if name in _NEW else owner.makers
        rows = rows_after(state, owner, name, call)
        return Unknown(
            owner.reason, made, owner.span, or_none=may_be_none, length=rows, turn=owner.turn, makers=makers, others=owner.others
        )
    arguments = owner.about if isinstance(owner, Object) and isinstance(owner.about, CallOf) and name == "main_process_first" else None
    return Unknown(Reason(Cause.METHOD, (name,), call.span), arguments.name if arguments is not None else "", call.span)


def _note_method(state: ProgramState, call: CallOf, name: str, owner: Value) -> None:
    """Note a call of a method under its full name, if the table of events holds such calls: a copy of each call takes long."""
    if is_noted(name):
        is_one_of_several = isinstance(owner, Unknown) and bool(owner.others)
        state.note(replace(call, name=name, chosen=call.chosen or is_one_of_several), owner)


def _of_object(state: ProgramState, owner: Object, name: str, call: CallOf) -> Value | None:
    """A method of an object of a kind that dslint knows."""
    table = {"argparse": OF_PARSER, "classes": OF_CLASSES}.get(owner.kind, {})
    if name in table:
        return table[name](state, owner, call)
    if owner.kind == "file":
        return method_of_file(state, owner, name, call)
    if owner.kind == SET:
        return method_of_set(owner)
    if owner.kind == GENERATOR:
        collected(state, owner, call.span)
    if name in _AS_DICT and owner.type is not None and owner.type.dataclass:
        return table_of(state, owner, call.span)
    base = library_base(owner.type) if owner.type is not None else ""
    if base:
        _note_method(state, call, f"{base}.{name}", owner)
    if base.startswith("torch.nn.") and name in _NEW:
        return Unknown(Reason(Cause.METHOD, (name,), call.span), f"{base}.{name}", call.span)
    return owner if base.startswith("torch.nn.") and name in _ITSELF else None


def _of_trainer(state: ProgramState, owner: Unknown, name: str, call: CallOf) -> Value | None:
    """A method of Accelerate's `Accelerator` or Lightning's `Fabric` that returns its arguments, wrapped, or gets a function to call."""
    kind = owner.made.rpartition(".")[2]
    if name in _PASSED_ON.get(kind, ()):
        return _passed_on(call, owner) or Unknown(owner.reason)
    if kind == "Accelerator" and name in _HOOKS:
        _register(state, call, _HOOKS[name])
    if kind == "Fabric" and name == "launch" and call.arguments and isinstance(function := call.arguments[0].value, Function):
        given = [owner, *(one.value for one in call.arguments[1:])]
        return enter(state, function, given, {key: one.value for key, one in call.keywords.items()}, complete=call.complete)
    return None


def _register(state: ProgramState, call: CallOf, given: tuple[Unknown, ...]) -> None:
    """Have the function that a call registers followed; what it is given is known by the place of the call."""
    function = call.get("hook", 0)
    arguments = [Argument(value, call.span, call.span) for value in (*(replace(one, span=call.span) for one in given), COMPUTED)]
    called = replace(call, arguments=arguments, keywords={})
    if isinstance(function, Object):
        function, called = _callable(function, called)
    if isinstance(function, Function):
        state.later.append((function, called))


def _passed_on(call: CallOf, owner: Unknown) -> Value | None:
    """What Accelerate's `prepare` and `unwrap_model` return: their arguments, wrapped. Fabric's `setup` returns an engine,
    its optimizer and the schedule.
    """
    given = call.arguments
    if owner.made.endswith("Fabric") and given:
        engine, optimizer = (
            Unknown(owner.reason, owner.made, owner.span, turn=owner.turn),
            Unknown(owner.reason, f"{owner.made}.setup.optimizer", call.span),
        )
        schedules = [one for keyword, one in call.keywords.items() if keyword == "scheduler"]
        given = [replace(given[0], value=engine), *(replace(one, value=optimizer) for one in given[1:]), *schedules]
    if len(given) == 1:
        return given[0].value
    items = [Entry(one.value, one.key, one.span) for one in given]
    return ListValue(items, call.span) if call.complete and items else None


def _of_path(state: ProgramState, owner: Constant | Unknown, name: str, call: CallOf) -> Value | None:
    """A method of a path that reads or writes the file there, or one of a path that is absolute."""
    here = Argument(owner, call.span, call.span)
    if name in ("read_text", "read_bytes"):
        return json_file(state, path_of(owner) or "")
    if isinstance(owner, Unknown) and (name in SAME_FILE or (name == "joinpath" and call.complete)):
        return same_file(owner, name) if name in SAME_FILE else joined([owner, *(one.value for one in call.arguments)])
    if isinstance(owner, Unknown) and name == "open":
        return opened_file(owner, call.plain("mode", 0))
    if name == "write_text":
        return FUNCTIONS["write_text"](state, replace(call, arguments=[here, *call.arguments]))
    return FUNCTIONS["os.path.exists"](state, replace(call, arguments=[here])) if name in ("exists", "is_file") else None
