"""What a recorded call is given: questions about its arguments and their values."""

from __future__ import annotations

import shlex

from dslint.evaluate.python.calls import Argument, CallOf
from dslint.evaluate.reasons import Reason, flag
from dslint.evaluate.values import Cells, Constant, DictValue, Object, Unknown, Value, text_of


def quoted(word: Value) -> str:
    """A word of a command as a shell reads it."""
    return shlex.quote(str(word.value)) if isinstance(word, Constant) else text_of(word)


def known_options(value: Value) -> list[Value]:
    """The configs that an unknown value can be."""
    options = value.options if isinstance(value, Unknown) else ()
    return [option for option in options if not isinstance(option, DictValue) or says_anything(option)]


def possible(value: Value) -> tuple[Value, ...]:
    """A value that is known, or the values that one of which it is."""
    return value.options if isinstance(value, Unknown) and value.path is None else (value,)


def says_anything(table: DictValue) -> bool:
    """Whether a value of a dict is known; of one that the program builds itself this is taken as given."""
    values = [entry.value for entry in table.cells.values()]
    return "reason" not in table.open or any(
        isinstance(value, Constant) or (isinstance(value, DictValue) and says_anything(value)) for value in values
    )


def reason_for_all(table: DictValue) -> Reason | None:
    """Why not one value of a dict is known; None if one is."""
    first: Reason | None = None
    waiting, seen = [table], {id(table)}
    while waiting:
        for entry in waiting.pop().cells.values():
            value = entry.value
            if isinstance(value, DictValue):
                waiting += [value] if id(value) not in seen else []
                seen.add(id(value))
            elif not isinstance(value, Unknown) or not value.reason:
                return None
            else:
                first = first or value.reason
    return first


def once(calls: list[CallOf]) -> list[CallOf]:
    """The calls without repetitions of the same place with the same arguments."""
    return list({(call.span, _given(call)): call for call in calls}.values())


def _given(call: CallOf) -> tuple[tuple[str, object], ...]:
    """The arguments of a call, as far as they are plain values."""
    return tuple((name, one.value.value if isinstance(one.value, Constant) else None) for name, one in call.keywords.items())


def is_dict(value: Value) -> bool:
    """Whether a value is a dict, and not one that hjson reads as DeepSpeed would."""
    return isinstance(value, DictValue) and (value.file is None or "hjson" not in value.file)


def as_object(call: CallOf) -> Object:
    """Training arguments as an object: the program may set more of them."""
    cells = Cells(0)
    cells.update({name: given.value for name, given in call.keywords.items()})
    if call.complete:
        cells.setdefault("deepspeed", Constant(None))
    return Object("TrainingArguments", cells, about=call)


def unless_none(given: Argument | None) -> Argument | None:
    """An argument, unless it is None."""
    return None if given is None or (isinstance(given.value, Constant) and given.value.value is None) else given


def of_arguments(given: Argument) -> Argument | None:
    """The config that the command line names: the attribute `deepspeed_config` of the parsed arguments."""
    value = given.value
    if isinstance(value, DictValue) and "deepspeed_config" in value.cells:
        return Argument(value.cells["deepspeed_config"].value, given.span, given.key, node=given.node)
    if not isinstance(value, Object):
        return Argument(Unknown(flag("--deepspeed_config", given.span)), given.span, given.key, node=given.node)
    found = value.cells.get("deepspeed_config", Unknown(flag("--deepspeed_config", given.span)))
    return Argument(found, given.span, given.key, node=given.node)
