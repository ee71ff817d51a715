"""Fixes that several rules share: rename a key, move it to its section, remove it, write a value."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from dslint.config import UNKNOWN, Config, Violation
from dslint.diagnostics import Applicability
from dslint.record import Record
from dslint.rule import FixPlan, Where, path_of
from dslint.rules.helpers.keys import says_the_same
from dslint.rules.helpers.unknown import is_loss_scaling_of_bf16
from dslint.schemas.key_table import KEYS
from dslint.source.change import Change, Insert, Move, Remove, Rename, Set
from dslint.source.similar import similar
from dslint.source.tree import Path

SWITCHES = (("fp16", "enabled"), ("bf16", "enabled"))
"""The keys that enable a precision. DeepSpeed refuses a config with both."""


def corrected_key(config: Config, violation: Violation) -> FixPlan | None:
    """Rename a misspelt key, or move it to the section that it belongs to.

    If the correct key is written already, remove the other one where it has the same value; None where it has another one. None, too, where
    the corrected key would enable a second precision.

    Safe for a key that DeepSpeed refuses. Unsafe for a key that it ignores, because the corrected key takes effect.
    """
    if violation.meant is None:
        return None
    if is_loss_scaling_of_bf16(violation) and (violation.raises or config.value("fp16.enabled") is not True):
        return without(config, violation.path)
    if config.has(violation.meant):
        return without(config, violation.path) if says_the_same(config, violation.path, violation.meant) else None
    if f"{violation.section}.enabled" not in KEYS and config.literal((*violation.path[:-1], "enabled")) is False:
        return None  # the section is off in the eyes of its writer, and the corrected key would switch it on
    enabled = [switch for switch in SWITCHES if config.value(switch) is True and switch != violation.meant]
    if enabled and violation.meant in SWITCHES and config.literal(violation.path) is not False:
        return None  # DeepSpeed refuses a config that enables two precisions
    kind = Applicability.SAFE if violation.raises else Applicability.UNSAFE
    if violation.meant[:-1] == violation.path[:-1]:
        return FixPlan(f'rename to "{violation.meant[-1]}"', (Rename(violation.path, str(violation.meant[-1])),), kind)
    section = ".".join(map(str, violation.meant[:-1])) or "the top level"
    return FixPlan(f"move to {section}", (Move(violation.path, violation.meant),), kind)


def put(config: Config, where: Where, text: str) -> Change:
    """Change the value of a key, or add the key with that value. `text` is JSON."""
    path = path_of(where)
    return Set(path, text) if config.has(path) else Insert(path[:-1], str(path[-1]), text)


def write(config: Config, where: Where, text: str, kind: Applicability = Applicability.UNSAFE) -> FixPlan | None:
    """Write a value, whether or not the key is written. `text` is JSON. Unsafe by default.

    None if another name of the key, or a deprecated key that maps to it, already sets the value.
    """
    path = path_of(where)
    return FixPlan(f"write {_shown(config, path, text)}", (put(config, path, text),), kind) if _is_free(config, path) else None


def _shown(config: Config, path: Path, text: str) -> str:
    """A key with its value, inside the sections that the fix adds. For an item of a list only the value."""
    if isinstance(path[-1], int):
        return text
    while len(path) > 1 and not config.has(path[:-1]):
        path, text = path[:-1], f'{{"{path[-1]}": {text}}}'
    return f'"{path[-1]}": {text}'


def _is_free(config: Config, path: Path) -> bool:
    """Whether a key can be written: it is written already, or neither another of its names nor a deprecated key sets it."""
    if config.has(path):
        return True
    others = KEYS.get(".".join(map(str, path)), {}).get("also", ())
    given = any(path[:length] in config.mapped for length in range(1, len(path) + 1))
    return not given and not any(config.has((*path[:-1], name)) for name in others)


class Spelling(Record):
    """The word that a misspelt word means. `sure` means that only the case differs, or that no other word is similar."""

    word: str
    sure: bool


def spelling(word: str, words: Iterable[str]) -> Spelling | None:
    """The word of a list that is similar to a misspelt word, if there is one."""
    words = list(words)
    same = [known for known in words if known.lower() == word.lower()]
    close = same or similar(word, words, n=2, cutoff=0.8)
    return Spelling(close[0], len(close) == 1) if close else None


NOTHING_WHEN_EMPTY = ("aio", "data_types", "fp16", "torch_autocast")
"""Sections that DeepSpeed treats as absent when they are empty."""


def without(config: Config, where: Where, kind: Applicability = Applicability.SAFE) -> FixPlan | None:
    """Remove a key, together with its section if that would be left empty and have no effect. None for a key that is not written.

    Safe by default: for keys that DeepSpeed does not read, or refuses.
    """
    path = path_of(where)
    if len(path) > 1 and path[0] in NOTHING_WHEN_EMPTY and len(getattr(config.node(path[:-1]), "members", ())) == 1:
        path = path[:-1]
    if config.document.lookup(path) is None:
        return None
    return FixPlan(f'remove "{path[-1]}"', (Remove(path),), kind)


def without_all(keys: Iterable[str]) -> FixPlan:
    """Remove several written keys that DeepSpeed does not read. Their section keeps at least one other key."""
    paths = [path_of(key) for key in keys]
    return FixPlan("remove " + ", ".join(f'"{path[-1]}"' for path in paths), tuple(Remove(path) for path in paths), Applicability.SAFE)


def switched(config: Config, *, on: str = "", off: str = "") -> FixPlan | None:
    """Enable a section, disable another, or both. Unsafe: training changes."""
    switches = [(name, value) for name, value in ((on, "true"), (off, "false")) if name]
    if not all(_is_free(config, (name, "enabled")) for name, _ in switches):
        return None
    title = " and ".join(f"{'enable' if value == 'true' else 'disable'} {name}" for name, value in switches)
    return FixPlan(title, tuple(put(config, f"{name}.enabled", value) for name, value in switches))


ON_GPU = ("gpu", "cuda")
"""Words that people write as the device of an offload section to keep the data on the GPU."""


def closest(config: Config, violation: Violation) -> str | None:
    """The choice that is most similar to a wrong word, if any is."""
    node = config.node(violation.path)
    word = getattr(node, "value", None)
    spec = violation.spec
    if violation.path[-1] == "device" and isinstance(word, str) and word.lower() in ON_GPU:
        return "none"
    words = [choice for choice in (*spec.get("choices", ()), *spec.get("words", ())) if isinstance(choice, str)]
    close = similar(word.lower(), words) if isinstance(word, str) else []
    return close[0] if close else None


def replacement(config: Config, violation: Violation) -> FixPlan | None:
    """Replace a deprecated key by its successor, and convert the value."""
    deprecated = violation.spec["deprecated"]
    if not deprecated.get("use") or not deprecated.get("mapped", True):
        return without(config, violation.path)
    old = config.resolved(violation.path).value
    return None if old is UNKNOWN else as_successor(config, violation.path, deprecated, old)


def as_successor(config: Config, path: Path, said: dict[str, Any], old: Any, kind: Applicability = Applicability.SAFE) -> FixPlan | None:
    """Write the key that replaces another one, with its value converted.

    None if the value cannot be moved to another section as it is.

    Args:
        config: the config.
        path: the key that is replaced.
        said: what the key table says of its end: `use` is the other key, `values` the former and the current value of each pair.
        old: the value.
        kind: whether the fix is safe.
    """
    to: Path = tuple(said["use"].split("."))
    new = dict(said.get("values", ())).get(old, old) if isinstance(old, bool | int | float | str) else old
    if new is None:
        return without(config, path, kind)
    if to[:-1] != path[:-1]:
        return FixPlan(f"write {said['use']} instead", (Move(path, to),), kind) if new == old else None
    changes: tuple[Change, ...] = (Rename(path, str(to[-1])),)
    if new != old:
        changes += (Set(path, json_text(new)),)
    return FixPlan(f"write {said['use']} instead", changes, kind)


def json_text(value: Any) -> str:
    """A value as JSON text, for fixes."""
    import json

    return json.dumps(value, ensure_ascii=False)
