"""Takes note of calls for the table of events of a program."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any, TypeGuard

from dslint.evaluate.python.calls import Argument, CallOf
from dslint.evaluate.python.functions import library_base
from dslint.evaluate.python.nodes import own_nodes
from dslint.evaluate.reasons import Cause, Reason
from dslint.evaluate.values import Constant, DictValue, Entry, Function, ListValue, Object, Scope, Unknown, Value, member
from dslint.job.arguments import SourcedValue, in_short
from dslint.job.attention import PATCHES
from dslint.job.events import (
    ENGINE,
    HOOK,
    INFERENCE,
    MODELS,
    OWN_MODULE,
    REFUSAL,
    RETURNED_SCHEDULE,
    TRAINERS,
    Event,
    Events,
    GivenArgument,
)
from dslint.source.tree import Span
from dslint.source.unknown import UNKNOWN

_KNOWN = re.compile(
    r"argparse\.|(click|fire|hydra|tyro)\.flags|deepspeed\.|safetensors\.|accelerate\.|transformers\.|peft\.|trl\.|diffusers\.|torch\.(save|autocast|cuda\.amp|amp|distributed|nn\.utils|optim|utils\.data)\b"
    r"|torch\.nn\.|torch\.autograd\.(backward|grad)\b|backward$|itertools\.chain$|(lightning\.pytorch|pytorch_lightning)\.callbacks\.|lightning(\.|_)(fabric\.)?Fabric\."
    rf"|sentence_transformers\.|timm\.utils\.|ema_pytorch\.|{PATCHES}$"
)
"""The names of functions that the table holds."""

_TOKENS = re.compile(r"transformers\.\w*(Tokenizer|Processor|Config(?!\.from_pretrained$))\w*")
"""Classes whose methods do not concern the training; but a loaded config may choose the kernel of attention."""


@lru_cache(maxsize=4096)
def is_noted(name: str) -> bool:
    """Whether the table holds calls of a function or a method, by its full name. A project's programs call the same few thousand."""
    return name == REFUSAL or (_KNOWN.match(name) is not None and _TOKENS.match(name) is None)


class Noted:
    """Takes note of calls. `sourced` gives a place its text, as `Recorder.sourced` does."""

    def __init__(self, sourced: Callable[[str, Span, object], SourcedValue]) -> None:
        self._sourced = sourced
        self._events: dict[tuple[int, str, bool], Event] = {}
        self._values: list[Value] = []
        self._turned: dict[tuple[int, int], int] = {}
        self._numbers: dict[int, int] = {}
        self._held: tuple[ast.stmt | None, set[ast.Call]] = (None, set())
        """The statement that was followed last, and the calls of which its value is made."""

    @property
    def events(self) -> Events:
        """The table."""
        return Events(tuple(self._events.values()))

    def note(
        self,
        call: CallOf,
        flow: int,
        owner: Value | None = None,
        making: Sequence[Object] = (),
        statement: ast.stmt | None = None,
    ) -> None:
        """Note a call. `owner` is the object whose method it calls, `making` are the objects of the project that are being made, and
        `statement` is the one that is followed.
        """
        if not is_noted(call.name):
            return
        start = call.scope.source.span(call.node).start
        on_some = any(one.ranks for one in call.conditions)
        key = (start, call.name, on_some)
        if key in self._events:
            return
        given = [(str(number), one) for number, one in enumerate(call.arguments)] + list(call.keywords.items())
        self._events[key] = Event(
            call.name,
            self._sourced(call.name, call.scope.source.span(call.node), UNKNOWN),
            {name: self._given(one, dicts=call.name == INFERENCE) for name, one in given},
            call.complete,
            self.origin(owner),
            call.conditions,
            call.within,
            call.loops,
            not (call.chosen or call.unlikely),
            call.likely,
            bool(call.unlikely),
            flow,
            start,
            tuple(number for one in making if (number := self.origin(one)) is not None),
            call.handled,
            _function_of(call.scope),
            self._bound_by(call, statement),
        )

    def _bound_by(self, call: CallOf, statement: ast.stmt | None) -> str:
        if not isinstance(statement, ast.Assign | ast.AnnAssign):
            return ""
        target, *others = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
        name = target.id if isinstance(target, ast.Name) else target.attr if _is_of_self(target) else ""
        if others or not name:
            return ""
        if self._held[0] is not statement:
            self._held = statement, set(_calls_held(statement.value))
        return name if call.node in self._held[1] else ""

    def _given(self, given: Argument, *, dicts: bool = False) -> GivenArgument:
        value = _weights_in(given.value)
        plain = _plain_dict(value) if dicts and isinstance(value, DictValue) else _plain(value)
        raw = in_short(self._sourced("", given.span, UNKNOWN).raw)
        makers, others = (value.makers, value.others) if isinstance(value, Unknown) else ((), ())
        places = tuple(one.span.start for one in others if one.span is not None)
        rest = _depends_on(value), _length(value), _given_by(value), makers, places
        return GivenArgument(plain, made_by(value), self.origin(value), raw, *rest)

    def origin(self, value: Value | None) -> int | None:
        """A number for an object: the same for the same object, and another one for each other."""
        if isinstance(value, Unknown) and value.span is not None and value.turn:
            return self._turned.setdefault((value.span.start, value.turn), self._number_for(value))
        if isinstance(value, Unknown):
            return value.span.start if value.span is not None else None
        if isinstance(value, Object):
            if id(value) not in self._numbers:
                self._numbers[id(value)] = self._number_for(value)
            return self._numbers[id(value)]
        return None

    def _number_for(self, value: Value) -> int:
        """A new number, which no place has."""
        self._values.append(value)  # keeps its id from being used again
        return -len(self._values)


def _is_of_self(target: ast.expr) -> TypeGuard[ast.Attribute]:
    """Whether a target is an attribute of the object whose method sets it: `self.loader`."""
    return isinstance(target, ast.Attribute) and isinstance(target.value, ast.Name) and target.value.id == "self"


def _depends_on(value: Value) -> str:
    reason = value.reason if isinstance(value, Unknown) else None
    return reason.about[0] if reason is not None and reason.cause in (Cause.RESULT, Cause.FLAG, Cause.VARIABLE) else ""


def _length(value: Value) -> int | None:
    if isinstance(value, ListValue):
        return None if value.changed or any(one.perhaps for one in value.items) else len(value.items)
    return value.length if isinstance(value, Unknown) else None


def _given_by(value: Value) -> int | None:
    """How many items each tuple has that a function of the project returns, or an item of its data is; 0 if these are dicts."""
    function: Value | None = value
    if isinstance(value, Object):
        function = member(value.type, "__getitem__") or member(value.type, "__call__")
    if not isinstance(function, Function) or isinstance(function.node, ast.Lambda) or function.source.parsed.yields(function.node):
        return None
    returned = [one.value for one in own_nodes(function.node.body) if isinstance(one, ast.Return)]
    sizes = {_size_of(one) for one in returned}
    return next(iter(sizes)) if len(sizes) == 1 else None


def _size_of(node: ast.expr | None) -> int | None:
    if isinstance(node, ast.Dict) or (isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "dict"):
        return 0
    is_row = isinstance(node, ast.Tuple | ast.List) and not any(isinstance(one, ast.Starred) for one in node.elts)
    return len(node.elts) if is_row and isinstance(node, ast.Tuple | ast.List) else None


def _function_of(scope: Scope) -> str:
    """The function of the project that a scope belongs to, a method as `Class.method`; "" at the top of a file."""
    here: Scope | None = scope
    while here is not None and (here.function is None or isinstance(here.function.node, ast.Lambda)):
        here = here.above
    if here is None or here.function is None or isinstance(here.function.node, ast.Lambda):
        return ""
    owner = f"{here.function.owner.name}." if here.function.owner is not None else ""
    return f"{owner}{here.function.node.name}"


def _calls_held(node: ast.AST | None) -> Iterator[ast.Call]:
    """The calls in an expression of which its value is made, without those that make arguments of others."""
    waiting = [node] if node is not None else []
    while waiting:
        one = waiting.pop()
        if isinstance(one, ast.Call):
            yield one
            waiting.append(one.func)
        else:
            waiting += ast.iter_child_nodes(one)


def _plain(value: Value) -> Any:
    """A constant, or a tuple of the constants in a list or tuple; `UNKNOWN` for everything else."""
    if isinstance(value, ListValue) and not value.changed:
        items = [one.value for one in value.items if isinstance(one.value, Constant) and not one.value.soft and not one.perhaps]
        return tuple(one.value for one in items) if len(items) == len(value.items) else UNKNOWN
    return value.value if isinstance(value, Constant) and not value.soft else UNKNOWN


def _plain_dict(value: DictValue) -> dict[str, Any]:
    """The keys of a dict that every branch sets, with `UNKNOWN` for a value that is not a constant or a dict."""
    entries = {name: one for name, one in value.cells.items() if isinstance(name, str) and isinstance(one, Entry) and not one.perhaps}
    return {name: _plain_dict(one.value) if isinstance(one.value, DictValue) else _plain(one.value) for name, one in entries.items()}


def _weights_in(value: Value) -> Value:
    """The state dict of a model in a dict, as in `{"model": model.state_dict(), "epoch": 3}`; any other value as it is."""
    entries = [one.value for one in value.cells.values()] if isinstance(value, DictValue) else []
    states = [one for one in entries if isinstance(one, Unknown) and one.made.endswith(".state_dict")]
    return next((one for one in states if not one.made.startswith("torch.optim.")), value)


def made_by(value: Value | None) -> str:
    """What made a value: the function or class of a library, or the one that its class inherits from."""
    if isinstance(value, Unknown):
        return value.made
    return library_base(value.type) if isinstance(value, Object) and value.type is not None else ""


_MODELS = re.compile(f"(deepspeed\\.initialize|{MODELS}|{HOOK}|{TRAINERS}\\.model)")
_WITH_WEIGHTS = re.compile(f"{_MODELS.pattern}|{OWN_MODULE}")
_TRAINERS = re.compile(TRAINERS)
_NOT_PARTS = frozenset(
    """
    config generation_config optimizer lr_scheduler args device dtype training hf_device_map
    tokenizer processor image_processor video_processor feature_extractor processing_class
    """.split()
)


def made_of_attribute(owner: Unknown, attribute: str) -> str:
    """What made an attribute of a value: a part of a model as its model, `engine.module`, `model.lm_head`; the model of a Trainer; the
    schedule of an engine.
    """
    if attribute in ("model", "model_wrapped") and _TRAINERS.fullmatch(owner.made):
        return f"{owner.made}.model"
    if attribute == "lr_scheduler" and owner.made == ENGINE:
        return RETURNED_SCHEDULE
    is_part = bool(owner.made) and attribute not in _NOT_PARTS and _MODELS.fullmatch(owner.made) is not None
    return owner.made if is_part else ""


def makers_of_attribute(owner: Unknown, attribute: str) -> tuple[str, ...]:
    """What made an attribute of a value that one of several functions made: an engine in one branch; () if it is not a part."""
    found = tuple(made_of_attribute(Unknown(made=one), attribute) for one in owner.makers)
    return found if any(found) else ()


def item_in_turn(found: Value, reason: Reason) -> Value:
    """What a turn of a loop gets: a weight of `parameters()` or `named_parameters()` of a model, a model of those that a hook gets, a pair
    with one of them of `enumerate`; an unknown value for any other loop.
    """
    owner, _, method = found.made.rpartition(".") if isinstance(found, Unknown) else ("", "", "")
    item: Value = Unknown(reason)
    if not isinstance(found, Unknown):
        return item
    if found.made == "zip":
        return ListValue([Entry(item_in_turn(one, reason), Span(0, 0), Span(0, 0)) for one in found.options], Span(0, 0), fixed=True)
    if method == "enumerate":
        item = item_in_turn(replace(found, made=owner), reason)
    elif method in ("parameters", "named_parameters") and _WITH_WEIGHTS.fullmatch(owner):
        item = Unknown(reason, f"{owner}.weight", found.span)
    elif found.made == f"{HOOK}s":
        item = Unknown(reason, HOOK, found.span)
    nowhere = Span(0, 0)
    pair = [Entry(one, nowhere, nowhere) for one in (Unknown(reason), item)]
    return ListValue(pair, nowhere, fixed=True) if method in ("named_parameters", "enumerate") else item
