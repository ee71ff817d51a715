"""How a program loads its model: with a device map, quantized, or before transformers is told of the DeepSpeed config."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace

from dslint.evaluate.python.calls import Argument, CallOf
from dslint.evaluate.python.given import possible, unless_none
from dslint.evaluate.python.notes import ProgramFacts
from dslint.evaluate.reasons import Cause
from dslint.evaluate.values import Constant, DictValue, Library, Unknown, Value
from dslint.job.arguments import SourcedValue
from dslint.job.events import ABOUT_SETUP
from dslint.record import Record
from dslint.source.tree import Span
from dslint.source.unknown import UNKNOWN

_MODEL_CLASS = re.compile(r"Model|For[A-Z]")
"""What the names of transformers' model classes contain, and those of tokenizers and configs do not."""

_OF_RANKS = re.compile(r"rank|world|ddp|distributed|num_processes|multi", re.IGNORECASE)
"""What a flag is called that the launcher of ranks gives, or that stands for several ranks."""


def _data_type(value: Value) -> object:
    """The name of a data type that is given as a text or as `torch.float16`; `UNKNOWN` if it is not known."""
    if isinstance(value, Library):
        return value.name.removeprefix("torch.") if value.name.startswith("torch.") else UNKNOWN
    return value.value if isinstance(value, Constant) and not value.soft else UNKNOWN


class _Event(Record):
    """A call that loads a model, or with `loads` None one that tells, or may tell, transformers of the config. `flow` is as in `State`."""

    span: Span
    flow: int
    loads: SourcedValue | None = None
    perhaps: bool = False


class Loading:
    """Takes note of calls that load models. `sourced` gives a named argument its place, as `Recorder.sourced` does."""

    def __init__(self, sourced: Callable[[str, Argument], SourcedValue]) -> None:
        self._sourced = sourced
        self._device_maps: list[tuple[SourcedValue, bool, int]] = []
        self._loads_without_map = False
        self._is_reached_without_map = False
        self._quantizations: dict[Span, CallOf] = {}
        self._events: list[_Event] = []

    def load(self, call: CallOf, flow: int, facts: ProgramFacts) -> None:
        """A `from_pretrained` of transformers. One that a flag has to select does not count."""
        if call.unlikely:
            return
        is_model = _MODEL_CLASS.search(call.name.split(".")[-2]) is not None
        given = unless_none(call.argument("device_map"))
        for_ranks = given is not None and self._is_for_ranks(call, given.value)
        if given is not None and (for_ranks or not (isinstance(given.value, Unknown) and given.value.or_none)):
            value = given.value.value if isinstance(given.value, Constant) and not given.value.soft else UNKNOWN
            chosen = (call.chosen or given.perhaps) and not for_ranks
            self._device_maps.append((replace(self._sourced("device_map", given), value=value), chosen, flow))
            self._loads_without_map |= given.perhaps
        elif is_model:
            self._loads_without_map = True
            self._is_reached_without_map |= flow == 0
        if call.chosen:
            return
        self._note_quantization(call, facts)
        if is_model:
            self._events.append(_Event(call.span, flow, self._sourced("from_pretrained", Argument(Unknown(), call.span, call.span))))

    def _is_for_ranks(self, call: CallOf, value: Value) -> bool:
        """Whether a device map has one entry, which the program computes: it is for a rank of a distributed run, as `{"": local_rank}`.

        Neither a branch of the program nor a condition on a rank's variables then makes it one of a run without ranks. Another flag
        may, which has to be given: `if args.use_qlora: device_map = ...`.
        """
        entries = [one.cells[""].value for one in possible(value) if isinstance(one, DictValue) and "" in one.cells]
        conditions = [one.text for one in call.conditions]
        if isinstance(value, Unknown) and value.reason is not None and value.reason.place is not None:
            place = value.reason.place
            conditions.append(self._sourced("", Argument(Unknown(), place, place)).raw)
            if value.reason.cause is Cause.DEFAULT and not _OF_RANKS.search(conditions[-1]):
                return False
        return any(isinstance(one, Unknown) for one in entries) and not any(map(ABOUT_SETUP.search, conditions))

    def quantization(self, call: CallOf, facts: ProgramFacts) -> None:
        """A `BitsAndBytesConfig`, which a later call loads a model with."""
        self._quantizations[call.span] = call
        given = unless_none(call.argument("bnb_4bit_quant_storage"))
        if given is None:
            return
        stored, former = self._sourced("bnb_4bit_quant_storage", given), facts.quantized_storage
        is_other = former is not None and former.value != _data_type(given.value)
        is_sure = not (call.chosen or call.unlikely or given.perhaps or is_other)
        facts.quantized_storage = replace(stored, value=_data_type(given.value) if is_sure else UNKNOWN)

    def _note_quantization(self, call: CallOf, facts: ProgramFacts) -> None:
        """A model is loaded with `load_in_4bit=True`, or with a `BitsAndBytesConfig` that says so."""
        given = call.get("quantization_config")
        made = self._quantizations.get(given.span) if isinstance(given, Unknown) and given.span is not None else None
        for source in (call, made):
            if source is None or source.chosen:
                continue
            for name in ("load_in_4bit", "load_in_8bit"):
                found = source.keywords.get(name)
                if found is not None and isinstance(found.value, Constant) and found.value.value is True and not found.value.soft:
                    facts.quantized = replace(self._sourced(name, found), value=True)

    def tell(self, call: CallOf, flow: int, *, perhaps: bool = False) -> None:
        """A call that tells transformers of a config, or that uses one; with `perhaps` it may be one."""
        self._events.append(_Event(call.span, flow, perhaps=perhaps))

    def forget(self, call: CallOf) -> None:
        """A call told transformers of a config by an object that is gone. If no model was loaded by then, it has told nothing."""
        told = next((index for index, one in enumerate(self._events) if one.loads is None and one.span == call.span), len(self._events))
        if all(one.loads is None for one in self._events[told:]):
            del self._events[told : told + 1]

    def finish(self, facts: ProgramFacts) -> None:
        """Note the device map and the early load. A map that is not for a rank counts unless another branch loads without one.

        Nor does one count that a function passes which nothing calls, where the program itself loads a model without one.
        """
        maps = [
            given
            for given, chosen, flow in self._device_maps
            if not (chosen and self._loads_without_map) and not (flow and self._is_reached_without_map)
        ]
        facts.device_map = maps[-1] if maps else None
        facts.loaded_early = self._early()

    def _early(self) -> SourcedValue | None:
        """A load that certainly comes before transformers is told of the config, if no load comes after that.

        Certain is only the order in what the program runs from its first statement on, and in one function with the calls in it.
        """
        spans = {one.span for one in self._events}
        for flow in dict.fromkeys(one.flow for one in self._events):
            events = [one for one in self._events if one.flow in (0, flow)]
            told = next((index for index, one in enumerate(events) if one.loads is None), None)
            before = [one.loads for one in events[:told] if one.loads is not None]
            is_told = any(one.loads is None and not one.perhaps for one in events)
            if is_told and before and spans == {one.span for one in events} and all(one.loads is None for one in events[told:]):
                return before[0]
        return None
