"""What differs between two surfaces: what is new, gone and changed from the first to the second."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

from surface_reading.fields import ANY_KIND
from surface_reading.surface import JUDGED, Key, Surface
from surface_reading.values import HIDDEN, Path


@dataclass(frozen=True)
class Difference:
    """One difference. `aspect` names the differing property; `before` and `after` are texts."""

    kind: Literal["new", "gone", "changed"]
    path: Path
    aspect: str = "key"
    before: str = ""
    after: str = ""
    place: str = ""
    key: Key | None = None
    """The key itself, where it is new."""


def compare(before: Surface, after: Surface) -> list[Difference]:
    """All differences, in the order of the config's paths."""
    found = [*_keys(before, after), *_sections(before, after), *_refusals(before, after), *_names(before, after)]
    return sorted(found, key=lambda each: (each.path, each.aspect))


def _keys(before: Surface, after: Surface) -> Iterator[Difference]:
    is_open = before.open | after.open
    for path in {**before.keys, **after.keys}:
        if any(path[:end] in is_open for end in range(1, len(path))):
            continue
        old, new = before.keys.get(path), after.keys.get(path)
        if new is None:
            yield Difference("gone", path, before="read" if old else "", after=_fate(after, path), place=after.refused.get(path, ""))
        elif old is None:
            yield Difference("new", path, place=new.place, key=new)
        else:
            yield from _aspects(old, new)


def _fate(surface: Surface, path: Path) -> str:
    """What becomes of a key that is not read."""
    return "raises" if path in surface.refused or surface.forbids.get(path[:-1]) else "ignored"


def _aspects(old: Key, new: Key) -> Iterator[Difference]:
    def changed(aspect: str, before: Any, after: Any) -> Difference:
        return Difference("changed", new.path, aspect, _text(before), _text(after), new.place)

    if not _same_default(old, new):
        yield changed("default", _shown(old), _shown(new))
    if old.also != new.also:
        yield changed("other spellings", old.also, new.also)
    if old.deprecated != new.deprecated:
        yield changed("deprecation", _deprecation(old), _deprecation(new))
    if old.place != JUDGED and [check.code for check in old.checks] != [check.code for check in new.checks]:
        yield changed("validators", _checks(old), _checks(new))
    if not (old.by_model and new.by_model):
        return  # read by hand: nothing is declared
    if not _same_kinds(old, new):
        yield changed("type", _kinds(old), _kinds(new))
    if not _same_rule(old, new, old.shape.choices, new.shape.choices):
        yield changed("choices", old.shape.choices, new.shape.choices)
    if not _same_rule(old, new, old.shape.bounds, new.shape.bounds):
        yield changed("range", old.shape.bounds, new.shape.bounds)


def _same_default(old: Key, new: Key) -> bool:
    if HIDDEN in old.defaults or HIDDEN in new.defaults or not old.defaults or not new.defaults:
        return old.required == new.required or not (old.by_model and new.by_model)
    return any(same(one, other) for one in old.defaults for other in new.defaults)


def same(one: Any, other: Any) -> bool:
    """Whether two plain values are the same in a config: 1 and 1.0 are, 1 and true are not."""
    if isinstance(one, list | tuple) and isinstance(other, list | tuple):
        return len(one) == len(other) and all(map(same, one, other))
    return bool(one == other) and isinstance(one, bool) == isinstance(other, bool)


def _same_kinds(old: Key, new: Key) -> bool:
    if old.shape.kinds is None or new.shape.kinds is None:
        return True
    one, other = ({"section" if kind == "dict" else kind for kind in kinds} for kinds in (old.shape.kinds, new.shape.kinds))
    if old.checks or new.checks:
        return one <= other or other <= one  # a validator may turn another kind into the declared one
    return one == other


def _same_rule(old: Key, new: Key, one: Any, other: Any) -> bool:
    """Whether the declared rules agree. A validator, which is not analysed, may be the rule that one side does not declare."""
    if old.shape.kinds is None or new.shape.kinds is None:
        return True
    by_validator = (old.checks and not one) or (new.checks and not other)
    return bool(by_validator or (one == other if isinstance(one, dict) else {*one} == {*other}))


def _sections(before: Surface, after: Surface) -> Iterator[Difference]:
    for path in before.forbids:
        if path in after.forbids and before.forbids[path] != after.forbids[path]:
            words = {True: "raise", False: "are ignored"}
            yield Difference("changed", path, "unknown keys", words[before.forbids[path]], words[after.forbids[path]])


def _refusals(before: Surface, after: Surface) -> Iterator[Difference]:
    is_open = before.open | after.open
    for path in {**before.refused, **after.refused}:
        if any(path[:end] in is_open for end in range(1, len(path))) or path in before.keys or path in after.keys:
            continue  # what was read and is refused now is gone, and said to be
        if before.forbids.get(path[:-1]) or after.forbids.get(path[:-1]) or (path in before.refused) == (path in after.refused):
            continue
        words = ("ignored", "raises") if path in after.refused else ("raises", "ignored")
        yield Difference("changed", path, "a key that is not read", *words, after.refused.get(path, ""))


def _names(before: Surface, after: Surface) -> Iterator[Difference]:
    for name in sorted({*before.optimizers} ^ {*after.optimizers}):
        yield Difference("new" if name in after.optimizers else "gone", ("optimizer", "type"), f'the optimizer "{name}"')
    for name in sorted({*before.schedules, *after.schedules}):
        path = ("scheduler", "params", name)
        if name in before.schedules and name in after.schedules:
            inner = _keys(*(Surface(None, {key.path: key for key in each.schedules[name].values()}) for each in (before, after)))
            yield from (
                Difference(each.kind, (*path, *each.path), each.aspect, each.before, each.after, each.place, each.key) for each in inner
            )
        else:
            yield Difference("new" if name in after.schedules else "gone", ("scheduler", "type"), f'the schedule "{name}"')


def _shown(key: Key) -> str:
    if key.required:
        return "required"
    return " or ".join(map(_text, key.defaults)) or "none"


def _kinds(key: Key) -> str:
    kinds = key.shape.kinds or frozenset()
    return "any" if kinds >= ANY_KIND else " | ".join(sorted(kinds))


def _deprecation(key: Key) -> str:
    if key.deprecated is None:
        return "none"
    if key.deprecated.use is None:
        return "deprecated"
    return f"deprecated, {'copied to' if key.deprecated.mapped else 'use'} {'.'.join(key.deprecated.use)}"


def _checks(key: Key) -> str:
    return ", ".join(f"{check.name} ({check.place})" for check in key.checks) or "none"


def _text(value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, dict):
        return ", ".join(f"{name} {limit}" for name, limit in value.items()) or "none"
    if isinstance(value, tuple):
        return ", ".join(map(str, value)) or "none"
    return repr(value)


def not_read(surface: Surface, models: Surface | None = None) -> list[str]:
    """What cannot be determined statically, as text. Lookups in lists and in dicts with custom keys are expected, and left out."""
    found = [f"{what} ({place})" for what, place in surface.unread]
    for path, place in surface.dynamic:
        known = models.keys.get(path) if models else None
        is_list = known is not None and known.shape.kinds is not None and "list" in known.shape.kinds
        if not is_list and not (models and path in models.named_freely):
            found.append(f"which name is looked up in `{'.'.join(path) or 'the config'}` ({place})")
    return sorted(found)
