"""Hostfiles of DeepSpeed's launcher: a line `worker-1 slots=8` for each machine."""

from __future__ import annotations

from dataclasses import replace

from dslint.setup.arguments import SourcedValue
from dslint.setup.files import find, is_outside
from dslint.setup.model import Launch, Setup
from dslint.source.integers import integer
from dslint.source.read import ReadError, read


def slots_of(text: str) -> dict[str, int] | None:
    """The number of GPUs of each machine, by its name; None if the launcher cannot read a line."""
    slots: dict[str, int] = {}
    for line in text.splitlines():
        words = line.partition("#")[0].split()
        if not words:
            continue
        name, equals, number = words[-1].partition("=")
        slot = integer(number)
        if len(words) != 2 or name != "slots" or not equals or slot is None:
            return None
        slots[words[0]] = slot
    return slots


def with_hostfile(setup: Setup, given: SourcedValue, beside: str, *, decides: bool) -> Setup:
    """The setup with the number of GPUs from a hostfile and, if the hostfile `decides`, the number of ranks."""
    word = str(given.value)
    linked = find(word, beside)
    if linked is None:
        return setup if is_outside(word, beside) else replace(setup, missing=(*setup.missing, given))
    try:
        slots = slots_of(read(linked.path))
    except ReadError:
        return setup
    if not slots:
        return setup
    launch = setup.launch or Launch("accelerate")
    if decides:
        launch = replace(launch, world_size=sum(slots.values()), nodes=len(slots), given=given)
    return replace(setup, launch=replace(launch, gpus=sum(slots.values()), gpus_given=given, hosts=slots))
