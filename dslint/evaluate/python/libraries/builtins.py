"""Python's own functions that look into objects and make texts of values."""

from __future__ import annotations

from dslint.evaluate.python.assigning import set_attribute
from dslint.evaluate.python.calls import CallOf
from dslint.evaluate.python.evaluate import ProgramState
from dslint.evaluate.python.expressions import attribute_of
from dslint.evaluate.python.functions import library_base
from dslint.evaluate.python.libraries.table import follows, unknown_of
from dslint.evaluate.python.operators import LONGEST
from dslint.evaluate.python.strings import as_text
from dslint.evaluate.python.tables import GLOBALS, attributes_of, leave_attributes_open, whole
from dslint.evaluate.reasons import IS_COMPUTED, Cause, Reason
from dslint.evaluate.values import (
    COMPUTED,
    NONE,
    Class,
    Constant,
    DictValue,
    Library,
    ListValue,
    Object,
    ParsedNames,
    Scope,
    Unknown,
    Value,
    member,
    resolution,
    text_of,
)


@follows("vars")
def vars_of(state: ProgramState, call: CallOf) -> Value:
    """`vars(thing)`: its attributes as a dict."""
    thing = call.arguments[0].value if call.arguments else None
    if isinstance(thing, Object) and thing.kind != "unknown":
        return attributes_of(state, thing, call.span)
    thing = whole(state, thing) if thing is not None else None
    return thing if isinstance(thing, DictValue) else Unknown(thing.reason if isinstance(thing, Unknown) and thing.reason else IS_COMPUTED)


def _globals_of(call: CallOf) -> Object:
    """An object whose attributes are the variables of the module that a call stands in."""
    scope = call.scope
    while scope.above is not None:
        scope = scope.above
    return Object(GLOBALS, scope.cells)


@follows("globals")
def _globals(state: ProgramState, call: CallOf) -> Value:
    return attributes_of(state, _globals_of(call), call.span)


@follows("exec")
def _exec(state: ProgramState, call: CallOf) -> Value:
    """`exec(code)`, as nanoGPT runs its configurator: any variable of the module may have another value behind it."""
    if len(call.arguments) == 1 and not text_of(call.arguments[0].value).startswith(("from ", "import ")):
        leave_attributes_open(state, _globals_of(call), Reason(Cause.COMPUTED, (), call.span))
    return NONE


@follows("getattr")
def _getattr(state: ProgramState, call: CallOf) -> Value:
    name = call.plain("name", 1)
    if not isinstance(name, str) or not call.arguments:
        return COMPUTED
    found = attribute_of(state, call.arguments[0].value, name)
    is_missing = isinstance(found, Unknown) and isinstance(call.arguments[0].value, Class)
    return call.arguments[2].value if is_missing and len(call.arguments) > 2 else found


@follows("setattr")
def _setattr(state: ProgramState, call: CallOf) -> Value:
    name, owner = call.plain("name", 1), call.arguments[0].value if call.arguments else None
    if isinstance(name, str) and isinstance(owner, Object | Class) and len(call.arguments) == 3:
        set_attribute(state, owner, name, call.arguments[2])
    elif not isinstance(name, str) and isinstance(owner, Object | Class):
        leave_attributes_open(state, owner, Reason(Cause.MERGED, (), call.span))
    return NONE


@follows("hasattr")
def _hasattr(_: ProgramState, call: CallOf) -> Value:
    thing, name = call.get("obj", 0), call.plain("name", 1)
    if isinstance(thing, Object) and isinstance(name, str) and name in thing.cells:
        return Constant(value=True)
    if isinstance(thing, Object) and isinstance(thing.about, ParsedNames) and not thing.about.open and name not in thing.about.known:
        return Constant(value=False, soft=True)
    is_own = isinstance(thing, Object) and (thing.kind == "a namespace" or (thing.type is not None and not library_base(thing.type)))
    if not is_own or not isinstance(thing, Object) or not isinstance(name, str) or thing.reason is not None:
        return COMPUTED
    return Constant(member(thing.type, name) is not None)


@follows("super")
def _super(_: ProgramState, call: CallOf) -> Value:
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


@follows("isinstance")
def _isinstance(_: ProgramState, call: CallOf) -> Value:
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
    is_plain = name in _KINDS or name in ("dict", "list", "tuple", "Mapping")
    if isinstance(value, Constant) and (is_plain or name == "DictConfig"):
        return isinstance(value.value, _KINDS.get(name, ()))
    if isinstance(value, DictValue) and "more" not in value.open and is_plain:
        return name in ("dict", "Mapping")
    if isinstance(value, ListValue) and value.fixed and is_plain:
        return name == "tuple"
    if isinstance(value, Object) and value.type is not None and is_plain and _is_no_kind(value.type):
        return False
    return None


_OTHER_CLASSES = frozenset(("object", "torch.nn.Module", "torch.nn.modules.Module", "torch.nn.modules.module.Module"))
"""Classes of libraries whose objects are neither a dict, a list or a tuple, nor a text or a number."""


def _is_no_kind(made: Class) -> bool:
    """Whether a class of the project is known to inherit from none of Python's kinds, as a class of modules."""
    bases = [base for one in resolution(made) for base in one.bases if not isinstance(base, Class)]
    return all(isinstance(base, Library) and base.name in _OTHER_CLASSES for base in bases)


@follows("repr", "format")
def _repr(_: ProgramState, call: CallOf) -> Value:
    """`repr(value)` and `format(value, spec)`."""
    value, spec = call.get("value", 0), call.plain("format_spec", 1)
    if not isinstance(value, Constant) or len(call.arguments) > 2:
        return unknown_of(value)
    if call.name == "repr":
        return Constant(repr(value.value), value.soft) if len(str(value.value)) < LONGEST else COMPUTED
    return as_text(Constant(f"{{:{spec or ''}}}"), value, braces=True) if len(call.arguments) == 1 or isinstance(spec, str) else COMPUTED
