"""How DeepSpeed reads one value: the result, and what happens if the value is invalid.

A pure function of the value, the key's entry in the table (`schemas/compile.py` documents the entries) and the release.
"""

from __future__ import annotations

import math
from typing import Any

from dslint.config.coerce import INVALID, coerce, coerce_1, is_kind
from dslint.config.violations import Consequence, Spec, ViolationKind, is_raising
from dslint.facts import Release
from dslint.record import Record
from dslint.source.unknown import UNKNOWN

REFUSED: Consequence = ("raises", "parse", "ValidationError")
"""What a section with a pydantic model does with every invalid value."""

PYDANTIC_2 = Release(0, 15, 0)
"""The first release with pydantic 2 models."""


class Reading(Record):
    """The value that DeepSpeed continues with (`UNKNOWN` if it raises), and for an invalid value the fault and its consequence."""

    value: Any
    fault: ViolationKind | None = None
    consequence: Consequence | None = None


def read_value(value: Any, spec: Spec, release: Release, *, by_hand: bool) -> Reading:
    """Read a value as `release` does, without or with a pydantic model (`by_hand`)."""
    if not by_hand:
        return _by_pydantic(value, spec, release)
    reading = _by_hand(value, spec, release)
    if reading.consequence is None or not is_raising(reading.consequence) or "{" not in reading.consequence[2]:
        return reading
    _, phase, error = reading.consequence
    error = error.replace("{type}", type(value).__name__).replace("{unpacking}", _unpacking(value, spec.get("length", 0)))
    return reading._replace(consequence=("raises", phase, error))


def _unpacking(value: Any, length: int) -> str:
    """The error of unpacking a value into `length` names."""
    if not isinstance(value, str | list | dict):
        return f"TypeError: cannot unpack non-iterable {type(value).__name__} object"
    if len(value) > length:
        return f"ValueError: too many values to unpack (expected {length})"
    return f"ValueError: not enough values to unpack (expected {length}, got {len(value)})"


def _by_pydantic(value: Any, spec: Spec, release: Release) -> Reading:
    if value is None:
        return Reading(None) if "null" in spec["types"] else Reading(UNKNOWN, ViolationKind.NULL, REFUSED)
    no_bool = spec.get("no_bool")
    if isinstance(value, bool) and no_bool and Release.parse(no_bool) <= release:
        return Reading(UNKNOWN, ViolationKind.WRONG_TYPE, REFUSED)
    taken = _coerced(value, spec, release)
    if isinstance(taken, str) and spec["types"][0] == "list":
        taken = [taken]  # a single name stands for a list with it
    if taken is INVALID or (isinstance(taken, list) and not _items_fit(taken, spec)):
        return Reading(UNKNOWN, ViolationKind.WRONG_TYPE, REFUSED)
    fault = _fault(taken, spec, release)
    return Reading(UNKNOWN, fault, REFUSED) if fault else Reading(taken)


def _coerced(value: Any, spec: Spec, release: Release) -> Any:
    for kind in spec["types"]:
        if is_kind(value, kind) and not (kind == "int" and isinstance(value, float)):
            return value
    old = release < PYDANTIC_2
    if old and "choices" in spec and isinstance(value, str):
        return INVALID  # an enumeration of integers: only pydantic 2 accepts strings
    convert = coerce_1 if old and "choices" not in spec and "path" not in spec else coerce
    return next((taken for kind in spec["types"] if (taken := convert(value, kind)) is not INVALID), INVALID)


def _by_hand(value: Any, spec: Spec, release: Release) -> Reading:
    if "falsy" in spec and not value:
        return Reading(value)
    if value is None and (_null_raises(spec, release) or "null" not in spec["types"]):
        return _null_by_hand(spec)
    for banned, phase, error in spec.get("forbids", ()):
        if value == banned and isinstance(value, bool) == isinstance(banned, bool):
            return Reading(UNKNOWN, ViolationKind.FORBIDDEN, ("raises", phase, error))
    kind = next((kind for kind in spec["types"] if is_kind(value, kind)), None)
    if kind is None and "fraction" in spec and is_kind(value, "float"):
        return _checked(value, spec, release)
    if kind is None:
        return _wrong_by_hand(value, spec, release)
    if kind == "int":
        return _int_by_hand(value, spec, release)
    if isinstance(value, list) and not _items_fit(value, spec):
        return Reading(UNKNOWN, ViolationKind.WRONG_TYPE, _of_wrong_list(value, spec))
    if "needs" in spec and isinstance(value, dict) and spec["needs"][0] not in value:
        return Reading(UNKNOWN, ViolationKind.FORBIDDEN, spec["needs"][1])
    return _checked(value, spec, release)


def _null_raises(spec: Spec, release: Release) -> bool:
    until = spec.get("null_until")
    return "null" in spec and (until is None or release <= Release.parse(until))


def _null_by_hand(spec: Spec) -> Reading:
    consequence = spec.get("null") or spec.get("wrong")
    if consequence != ("truthy",):
        return Reading(UNKNOWN, ViolationKind.NULL, consequence)
    return Reading(value=False, fault=ViolationKind.NULL, consequence=consequence) if spec.get("default") else Reading(value=False)


def _int_by_hand(value: Any, spec: Spec, release: Release) -> Reading:
    """A whole number, which may be written as `5e8` where the release does not insist on an integer."""
    if isinstance(value, float) and _is_exact(spec, release):
        return Reading(UNKNOWN, ViolationKind.WRONG_TYPE, spec.get("wrong"))
    return _checked(int(value), spec, release)


def _is_exact(spec: Spec, release: Release) -> bool:
    """Whether the release insists on an integer."""
    exact = spec.get("exact_int")
    return exact is not None and Release.parse(exact) <= release


def _of_wrong_list(value: list[Any], spec: Spec) -> Consequence | None:
    consequence: Consequence | None = spec.get("wrong_kinds", {}).get("list", spec.get("wrong"))
    if consequence and consequence[0] == "raises" and len(value) == spec.get("length"):
        return ("raises", consequence[1], "TypeError")  # the table describes a list that is too short
    return consequence


def _checked(value: Any, spec: Spec, release: Release) -> Reading:
    """A value of the right type, held against choices and bounds."""
    fault = _fault(value, spec, release)
    if fault is ViolationKind.OUT_OF_RANGE:
        return Reading(value if "range" not in spec else UNKNOWN, fault, spec.get("range", ("passes", "")))
    return Reading(UNKNOWN, fault, spec.get("wrong")) if fault else Reading(value)


def _wrong_by_hand(value: Any, spec: Spec, release: Release) -> Reading:
    wrong: Consequence | None = spec.get("wrong")
    if wrong == ("truthy",):
        forbidden = next(((phase, error) for banned, phase, error in spec.get("forbids", ()) if banned is bool(value)), None)
        if forbidden is not None:
            return Reading(UNKNOWN, ViolationKind.FORBIDDEN, ("raises", *forbidden))
        return Reading(bool(value), ViolationKind.WRONG_TYPE, wrong)
    for kind, consequence in spec.get("wrong_kinds", {}).items():
        if is_kind(value, kind):
            return Reading(UNKNOWN, ViolationKind.WRONG_TYPE, consequence)
    is_let = any(is_kind(value, kind) and not (kind == "int" and isinstance(value, float)) for kind in spec.get("lets", ()))
    if is_let and not (isinstance(value, float) and _is_exact(spec, release)):
        number = coerce(value, "float") if isinstance(value, str) else value
        if "range" in spec and isinstance(number, int | float) and not _is_inside(number, spec):
            return Reading(UNKNOWN, ViolationKind.OUT_OF_RANGE, spec["range"])
        note = f"DeepSpeed reads it as {int(value)}" if isinstance(value, bool) else "DeepSpeed does not check it and uses it as written"
        return Reading(value, ViolationKind.WRONG_TYPE, ("passes", note))
    return Reading(UNKNOWN, ViolationKind.WRONG_TYPE, wrong)


def _items_fit(value: list[Any], spec: Spec) -> bool:
    kinds = spec.get("items")
    if "length" in spec and len(value) != spec["length"]:
        return False
    if kinds is None:
        return True
    words = spec.get("item_choices")
    return all(any(_is_item(item, kind) for kind in kinds) and (words is None or item in words) for item in value)


def _is_item(item: Any, kind: str) -> bool:
    """Whether an item has a type. DeepSpeed does not convert strings in a list: "0.9" is not a number there."""
    return is_kind(item, kind) if isinstance(item, str) else coerce(item, kind) is not INVALID


def _fault(value: Any, spec: Spec, release: Release) -> ViolationKind | None:
    """Why a value of the right type is invalid, or None."""
    choices = _of_its_time(spec, "old_choices", release) or spec.get("choices") or (spec.get("words") if isinstance(value, str) else None)
    if choices and value is not None and not isinstance(value, list | dict):
        folded = value.lower() if "folded" in spec and isinstance(value, str) else value
        if folded not in choices and not ("folded" in spec and folded in {c.lower() for c in choices if isinstance(c, str)}):
            return ViolationKind.NOT_A_CHOICE
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    if "finite" in spec and isinstance(value, float) and not math.isfinite(value):
        return ViolationKind.OUT_OF_RANGE
    old = _of_its_time(spec, "bounds", release)
    bounds = spec if old is None else old
    return None if _is_inside(value, bounds) else ViolationKind.OUT_OF_RANGE


def _is_inside(value: float, bounds: Spec) -> bool:
    return (
        ("ge" not in bounds or value >= bounds["ge"])
        and ("gt" not in bounds or value > bounds["gt"])
        and ("le" not in bounds or value <= bounds["le"])
        and ("lt" not in bounds or value < bounds["lt"])
    )


def of_release(spec: Spec, release: Release) -> Spec:
    """The entry of a key with the choices, the bounds and the error that a release has."""
    if "old_choices" not in spec and "bounds" not in spec:
        return spec
    old, bounds = _of_its_time(spec, "old_choices", release), _of_its_time(spec, "bounds", release)
    if old is not None:
        told = str(list(spec["choices"]))
        spec = {**spec, "choices": old}
        if is_raising(spec.get("wrong")):
            spec["wrong"] = (*spec["wrong"][:2], spec["wrong"][2].replace(told, str(list(old))))  # the error lists them
    if bounds is not None:
        spec = {**{name: entry for name, entry in spec.items() if name not in ("ge", "gt", "le", "lt")}, **bounds}
    return spec


def _of_its_time(spec: Spec, entry: str, release: Release) -> Any:
    """The value of an older release, from a list of values with their last releases; None if the current value applies."""
    return next((held for until, held in spec.get(entry, ()) if release <= Release.parse(until)), None)
