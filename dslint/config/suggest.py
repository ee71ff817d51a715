"""Suggests the intended key for an unknown one. Imported only if there is an unknown key."""

from __future__ import annotations

from collections.abc import Set as AbstractSet
from difflib import SequenceMatcher
from functools import cache

from dslint.config.sections import children
from dslint.schemas.derive import MICRO, TRAIN
from dslint.schemas.key_table import KEYS
from dslint.schemas.nicknames import NICKNAMES
from dslint.schemas.recognition import GENERIC
from dslint.source.tree import Mapping, Node, Path

CLOSE = 0.8
"""The similarity (`SequenceMatcher.ratio`) from which a name counts as a misspelling."""


CLOSE_IN_FOUR = 0.74
"""The same for a name of four letters, of which one slip leaves 0.75, where its section has keys of the one that is meant: "fp1s"."""


OF_PROGRAMS = ("profile",)
"""Names of settings that programs have for something else than the section of DeepSpeed that has them, too."""


def suggest(name: str, value: Node, path: Path, section: str, present: AbstractSet[str], top: AbstractSet[str]) -> Path | None:
    """The intended path, or None. `present` are the keys of the section that are written, `top` those of the top level.

    It searches the keys of the section that are not written yet, then nicknames, then the whole config: a name that is a key of another
    section belongs there.
    """
    folded, known = _fold(name), children().get(section, {})
    siblings = [other for other, key in known.items() if other != "*" and other not in present and _may_be(value, key)]
    for other in siblings:
        if _folded(other) == folded:
            return (*path, other)
    nickname = NICKNAMES.get(f"{section}.{folded}" if section else folded)
    if nickname == TRAIN and MICRO in present:
        return None  # the batch size of a program: DeepSpeed has what it needs
    name_there = nickname.split(".")[section.count(".") + 1 if section else 0] if nickname else ""
    if nickname and name_there not in present and _may_be(value, nickname) and _fits(value, nickname):
        return tuple(nickname.split("."))
    least = CLOSE_IN_FOUR if len(folded) == 4 and isinstance(value, Mapping) and value.members else CLOSE
    is_twice = nickname is not None and name_there in present
    close = None if is_twice else _closest(folded, [other for other in siblings if _fits(value, known[other])], least)
    return (*path, close) if close is not None else _elsewhere(name, value, section, top)


def _may_be(value: Node, key: str) -> bool:
    """Whether the written value suits the key: objects are for sections, and only objects are."""
    spec = KEYS.get(key)
    return spec is None or ("until" not in spec and isinstance(value, Mapping) == ("section" in spec["types"] or "dict" in spec["types"]))


def _fits(value: Node, section: str) -> bool:
    """Whether a written section has a key of the section that is supposed to be meant. An empty section, or a value, fits everywhere."""
    names = {member.key.value for member in value.members} if isinstance(value, Mapping) else set()
    known = children().get(section, {})
    return not names or not known or not names.isdisjoint(known)


def _elsewhere(name: str, value: Node, section: str, written: AbstractSet[str]) -> Path | None:
    """The other section with a key of this name, if it is unique or the shallowest.

    A key is not moved into a section that is off because it is not written: it would still do nothing. A name at the top level belongs to
    no section of a section, and a name that every program has to none.
    """
    if not section and name in OF_PROGRAMS:
        return None
    places = [key for key in _places().get(name, ()) if key.rpartition(".")[0] != section and _may_be(value, key)]
    if not places or (len(places) > 1 and places[0].count(".") == places[1].count(".")):
        return None
    found = tuple(places[0].split("."))
    return None if _is_off(found[0], written) or (not section and len(found) > 2) else found


@cache
def _places() -> dict[str, list[str]]:
    """The keys that have a name, the shallowest first."""
    places: dict[str, list[str]] = {}
    for key in sorted(KEYS, key=lambda key: key.count(".")):
        if "*" not in key and "[]" not in key:
            places.setdefault(key.rpartition(".")[2], []).append(key)
    return places


def _is_off(top: str, written: AbstractSet[str]) -> bool:
    """Whether a top-level section is not written, and has to be enabled or has keys with names of something else."""
    return (f"{top}.enabled" in KEYS or top in GENERIC) and top not in written and top != "fp16"


def _closest(folded: str, names: list[str], least: float) -> str | None:
    best, best_ratio = None, least
    matcher = SequenceMatcher(autojunk=False)
    matcher.set_seq2(folded)
    letters = sorted(folded)
    for name in names:
        if _letters(name) == letters:
            return name  # transposed letters: `bf61`
        matcher.set_seq1(_folded(name))
        if matcher.real_quick_ratio() > best_ratio and matcher.quick_ratio() > best_ratio and (ratio := matcher.ratio()) > best_ratio:
            best, best_ratio = name, ratio
    return best


@cache  # of the names that DeepSpeed knows: a file may have thousands of other ones
def _folded(known: str) -> str:
    return _fold(known)


@cache
def _letters(known: str) -> list[str]:
    return sorted(_folded(known))


def _fold(name: str) -> str:
    return name.strip(" \t\"'\u201c\u201d\u2018\u2019").lower().replace("-", "_").replace(" ", "_")
