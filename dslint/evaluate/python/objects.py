"""Functions of Python and of libraries that look into objects, or call functions of the project. They are followed, never called."""

from __future__ import annotations

from collections.abc import Callable

from dslint.evaluate.python.calls import CallOf
from dslint.evaluate.python.evaluate import State, evaluate
from dslint.evaluate.python.expressions import attribute_of
from dslint.evaluate.python.functions import enter
from dslint.evaluate.python.statements import set_attribute
from dslint.evaluate.python.tables import table_of, whole
from dslint.evaluate.reasons import IS_COMPUTED, Cause, Reason, flag
from dslint.evaluate.values import (
    COMPUTED,
    NONE,
    Class,
    Constant,
    DictValue,
    Function,
    ListValue,
    Object,
    Scope,
    Unknown,
    Value,
    soften,
)


def _namespace(state: State, call: CallOf) -> Value:
    """`argparse.Namespace(...)`, `types.SimpleNamespace(...)`."""
    made = Object("command line" if call.name.startswith("argparse") else "a namespace", state.journal.cells())
    made.cells.update({name: one.value for name, one in call.keywords.items()})
    return made


def _vars(state: State, call: CallOf) -> Value:
    thing = call.arguments[0].value if call.arguments else None
    if isinstance(thing, Object) and thing.kind != "unknown":
        return table_of(state, thing, call.span)
    thing = whole(state, thing) if thing is not None else None
    return thing if isinstance(thing, DictValue) else Unknown(thing.reason if isinstance(thing, Unknown) and thing.reason else IS_COMPUTED)


def _asdict(state: State, call: CallOf) -> Value:
    """`dataclasses.asdict(...)`: the fields, without other attributes."""
    found = _vars(state, call)
    thing = call.arguments[0].value if call.arguments else None
    if isinstance(found, DictValue) and isinstance(thing, Object) and thing.type is not None and thing.type.dataclass:
        for name in [name for name in found.cells if name not in thing.type.fields]:
            del found.cells[name]
    return found


def _getattr(state: State, call: CallOf) -> Value:
    name = call.plain("name", 1)
    if not isinstance(name, str) or not call.arguments:
        return COMPUTED
    found = attribute_of(state, call.arguments[0].value, name)
    is_missing = isinstance(found, Unknown) and isinstance(call.arguments[0].value, Class)
    return call.arguments[2].value if is_missing and len(call.arguments) > 2 else found


def _setattr(state: State, call: CallOf) -> Value:
    name, owner = call.plain("name", 1), call.arguments[0].value if call.arguments else None
    if isinstance(name, str) and isinstance(owner, Object | Class) and len(call.arguments) == 3:
        set_attribute(state, owner, name, call.arguments[2])
    return NONE


def _super(_: State, call: CallOf) -> Value:
    """`super()` in a method: what its class inherits, for its object."""
    scope: Scope | None = call.scope
    while scope is not None and (scope.function is None or scope.function.owner is None):
        scope = scope.above
    if scope is None or scope.function is None:
        return COMPUTED
    first = next(iter(scope.function.node.args.args), None)
    this: Value = scope.cells.get(first.arg, COMPUTED) if first else COMPUTED
    return Object("super", scope.cells.__class__(0), about=(scope.function.owner, this))


_KINDS: dict[str, type | tuple[type, ...]] = {"str": str, "int": int, "float": float, "bool": bool}


def _isinstance(_: State, call: CallOf) -> Value:
    if len(call.arguments) != 2:
        return COMPUTED
    value, kinds = call.arguments[0].value, call.arguments[1].value
    names = [getattr(one.value, "name", "") for one in kinds.items] if isinstance(kinds, ListValue) else [getattr(kinds, "name", "")]
    answers = [_is_a(value, name.rpartition(".")[2]) for name in names]
    if True in answers or None not in answers:
        return Constant(True in answers)
    return COMPUTED


def _is_a(value: Value, name: str) -> bool | None:
    """Whether a value is of a kind of Python; None if that is not known."""
    if isinstance(value, Constant) and (name in _KINDS or name in ("dict", "list", "tuple", "Mapping", "DictConfig")):
        return isinstance(value.value, _KINDS.get(name, ()))
    if isinstance(value, DictValue) and "more" not in value.open and (name in _KINDS or name in ("dict", "list", "tuple", "Mapping")):
        return name in ("dict", "Mapping")
    return None


def _partial(_: State, call: CallOf) -> Value:
    return Object("partial", call.scope.cells.__class__(0), about=call) if call.arguments else COMPUTED


def _runs(name: str, first: int) -> Callable[[State, CallOf], Value]:
    """A function that calls the one in its argument `name`, with the arguments `args`; `first` unknown ones come before them."""

    def run(state: State, call: CallOf) -> Value:
        function, given = call.get(name, 0), call.get("args", 1)
        rest = [one.value for one in given.items] if isinstance(given, ListValue) and not given.changed else []
        if isinstance(function, Function):
            complete = given is None or isinstance(given, ListValue)
            enter(state, function, [*[COMPUTED] * first, *rest], {}, complete=complete)
        return Unknown(Reason(Cause.RETURNED, (call.name,)))

    return run


def _runs_command(state: State, call: CallOf) -> Value:
    """`fire.Fire(main)`, `typer.run(main)`: the parameters of the function are flags."""
    function = call.arguments[0].value if call.arguments else None
    if isinstance(function, Function):
        given = function.node.args
        names = [one.arg for one in given.args]
        for name, default in zip(reversed(names), reversed(given.defaults), strict=False):
            found = evaluate(state, default, function.scope)
            function.given[name] = (
                soften(found) if isinstance(found, Constant) and found.value is not None else Unknown(flag(f"--{name}", call.span))
            )
        function.given |= {name: Unknown(flag(f"--{name}", call.span)) for name in names if name not in function.given}
        enter(state, function, [], {})
    return NONE


OBJECTS: dict[str, Callable[[State, CallOf], Value]] = {
    "argparse.Namespace": _namespace,
    "types.SimpleNamespace": _namespace,
    "vars": _vars,
    "dataclasses.asdict": _asdict,
    "getattr": _getattr,
    "setattr": _setattr,
    "super": _super,
    "isinstance": _isinstance,
    "functools.partial": _partial,
    "asyncio.run": lambda _, call: call.arguments[0].value if call.arguments else NONE,
    "multiprocessing.Process": _runs("target", 0),
    "torch.multiprocessing.Process": _runs("target", 0),
    "threading.Thread": _runs("target", 0),
    "torch.multiprocessing.spawn": _runs("fn", 1),
    "accelerate.notebook_launcher": _runs("function", 0),
    "fire.Fire": _runs_command,
    "typer.run": _runs_command,
}
"""Functions by their full names."""
