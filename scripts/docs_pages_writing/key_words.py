"""The reference text of a key: its type, default, releases, and what DeepSpeed does with wrong values."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from docs_pages_writing.markdown import code, escape, literal
from dslint.facts import RELEASES, Integration, Release
from dslint.report.words import listed
from dslint.schemas import marks
from dslint.schemas.auto import FILLED
from dslint.schemas.changes import after
from dslint.schemas.derive import DERIVED
from dslint.schemas.walk import NO_DEFAULT, Key, Shape

_KINDS = {
    "bool": "true or false",
    "int": "integer",
    "float": "number",
    "str": "string",
    "list": "list",
    "dict": "object",
    "section": "object",
    "null": "null",
}
_SIGNS = {"ge": "at least", "gt": "above", "le": "at most", "lt": "below"}

_DERIVED = {
    "train_batch_size": "micro batch size x accumulation steps x data-parallel ranks",
    "train_micro_batch_size_per_gpu": "train batch size / data-parallel ranks / accumulation steps",
    "gradient_accumulation_steps": "train batch size / micro batch size / data-parallel ranks; 1 if only one batch size is written",
    "fp16.initial_scale_power": "16; 32 up to 0.17.0 under ZeRO if no setting of the dynamic loss scale is written",
    "tensor_parallel.dtype": "torch.float16",
    "zero_optimization.overlap_comm": "true at ZeRO stage 3, false below",
}
"""How absent keys are computed, for those in `dslint.schemas.derive`."""


def type_of(shape: Shape) -> str:
    """The values of a key as text: types with their range, or the choices."""
    kinds = [kind for kind in shape.kinds if kind != "null"]
    if shape.choices and shape.binding():
        words = [", ".join(code(literal(choice)) for choice in shape.choices)]
    else:
        words = [_kind(kind, shape) for kind in kinds]
        own = [choice for choice in shape.choices if choice is not None]
        words = [code(literal(choice)) for choice in own] + [word for word in words if word != "string" or not own]
    if any(isinstance(mark, marks.BoolStandsFor) for mark in shape.marks):
        words.append("true or false (deprecated)")
    if "null" in shape.kinds:
        words.append("null")
    folded = " (case is ignored)" if any(isinstance(mark, marks.Folded) for mark in shape.marks) else ""
    return " or ".join(words) + folded


def _kind(kind: str, shape: Shape) -> str:
    if kind == "list" and shape.items is not None and shape.items.kinds:
        length = f"{shape.length} " if shape.length else ""
        return f"list of {length}{_plural(type_of(shape.items))}"
    if kind in ("int", "float") and shape.bounds:
        return f"{_KINDS[kind]} {bounds(shape.bounds)}"
    return _KINDS[kind]


def _plural(words: str) -> str:
    return {"string": "strings", "integer": "integers", "number": "numbers", "object": "objects", "true or false": "booleans"}.get(
        words, words
    )


def bounds(found: dict[str, float]) -> str:
    """A range in words: `at least 0 and below 1`."""
    return " and ".join(f"{sign} {literal(found[name])}" for name, sign in _SIGNS.items() if name in found)


def facts(key: Key) -> Iterator[tuple[str, str]]:
    """The facts about a key: labels and texts."""
    yield "type", type_of(key.shape) + ", required" * key.required
    if default := _default(key):
        yield "default", default
    if filled := _filled(".".join(key.path)):
        yield '"auto"', filled
    elif key.mark(marks.AutoIsReal):
        yield '"auto"', "resolved by DeepSpeed itself"
    if key.also:
        yield "also written", ", ".join(map(code, key.also))
    if releases := list(_releases(key)):
        yield "releases", "; ".join(releases)
    if when := list(_when(key)):
        yield "read", "; ".join(when)
    if wrong := list(_wrong(key)):
        yield "wrong values", "; ".join(wrong)


def _default(key: Key) -> str:
    dotted = ".".join(key.path)
    if dotted in DERIVED:
        return f"computed: {_DERIVED[dotted]}"
    held = [(mark.release, mark.value) for mark in key.marked(marks.Default)]
    if len(held) > 1:
        now, *_ = reversed(held)
        before = [f"{code(literal(value))} up to {_before(until)}" for (_, value), (until, _) in pairwise(held)]
        return f"{code(literal(now[1]))} from {now[0]} on; {', '.join(reversed(before))}"
    if key.default is NO_DEFAULT or key.required or (key.default is None and {"section", "dict"} & set(key.shape.kinds)):
        return ""
    return "none" if key.default is None else code(literal(key.default))


def _before(release: str) -> str:
    """The release before one."""
    found = Release.parse(release)
    if found in RELEASES and RELEASES.index(found):
        return str(RELEASES[RELEASES.index(found) - 1])
    return f"{found.major}.{found.minor}.{found.patch - 1}" if found.patch else f"{found.major}.{found.minor - 1}"


def _filled(dotted: str) -> str:
    by_words: dict[str, list[str]] = {}
    for integration, table in FILLED.items():
        if words := table.get(dotted):
            by_words.setdefault(words, []).append(Integration(integration).label)
    return "; ".join(f"{listed(loaders)}: {escape(words)}" for words, loaders in by_words.items())


def _releases(key: Key) -> Iterator[str]:
    for since in key.marked(marks.Since):
        yield f"since {since.release}"
    for gap in key.marked(marks.Absent):
        yield f"not read from {gap.first} to {gap.last}"
    for until in key.marked(marks.Until):
        yield _until(until)
    for old in key.marked(marks.Deprecated):
        instead = f"write {code(old.use)}" if old.use else old.note or "leave it out"
        mapped = " (its value is copied there)" if old.use and old.mapped else ""
        yield f"deprecated since {old.release}: {instead}{mapped}"
    for mark in key.marked(marks.Bounds):
        old_range = {name: value for name in _SIGNS if (value := getattr(mark, name)) is not None}
        yield f"up to {mark.until} {bounds(old_range) or 'any number'}"
    for choices in key.marked(marks.Choices):
        yield f"up to {choices.until} the choices were {', '.join(code(literal(value)) for value in choices.values)}"


def _until(until: marks.Until) -> str:
    then = {"raises": "rejected", "ignored": "silently ignored", "unknown": "an unknown key"}
    words = f"never read; {then[until.then]}"
    if until.release != "0.0.0":
        gone = after(Release.parse(until.release)) if Release.parse(until.release) >= RELEASES[0] else None
        words = f"read up to {until.release}; {then['ignored' if until.raises_since else until.then]} " + (
            f"from {gone} on" if gone else "since"
        )
    if until.raises_since:
        words += f", and rejected from {until.raises_since} on"
    instead = f": write {code(until.use)}" if until.use else ""
    return words + instead + (f". {escape(until.note)}" if until.note else "")


def _when(key: Key) -> Iterator[str]:
    """The conditions under which DeepSpeed reads the key, if it is not always read."""
    for mark in key.shape.marks:
        if isinstance(mark, marks.ShadowedBy):
            yield f"without {code(mark.key)}"
        elif isinstance(mark, marks.ReadWith):
            yield f"together with {code(mark.key)}"
        elif isinstance(mark, marks.DictOnly):
            yield f"up to {mark.until} only if DeepSpeed gets a dict, not the path of a file"


def _wrong(key: Key) -> Iterator[str]:
    """What DeepSpeed does with invalid values."""
    for mark in key.shape.marks:
        if isinstance(mark, marks.Truthy):
            yield 'any non-empty string is true, even "false"'
        elif isinstance(mark, marks.Raises) and not mark.only:
            yield f"{_phase(mark.phase)}: {code(mark.error)}"
        elif isinstance(mark, marks.Passes):
            yield f"not checked. {escape(mark.note)}".rstrip(".")
        elif isinstance(mark, marks.Forbids):
            yield f"{code(literal(mark.value))} {_phase(mark.phase)}: {code(mark.error)}"
        elif isinstance(mark, marks.OutOfRange):
            yield f"out of range, it {_phase(mark.phase)}: {code(mark.error)}"


def _phase(phase: str) -> str:
    return {"parse": "raises while parsing", "initialize": "raises in initialize", "step": "raises in the first step"}[phase]
