"""Which rules are about which keys: what rules watch, and where their examples are found."""

from __future__ import annotations

from typing import NamedTuple

from docs_pages_writing.own_rules import own_rules
from docs_pages_writing.places import keys, place
from dslint.registry.watches import watched_keys
from dslint.rule import Rule, path_of

GENERAL = ("DS0", "DS1")
"""Chapters with rules about all keys: a key in their examples stands for any."""


class Watched(NamedTuple):
    """The keys that a rule watches, by its code; the codes of the rules that speak about a key, and of those that only watch it."""

    keys: dict[str, list[str]]
    about: dict[str, list[str]]
    readers: dict[str, list[str]]

    @staticmethod
    def link(key: str, folder: str) -> str:
        """The link to a key in the reference in `folder`."""
        return folder + (place(key) or "")


def watched() -> Watched:
    """The keys of every rule."""
    found = Watched({}, {}, {})
    for rule in own_rules():
        at = {key for key in _found_at(rule) if place(key)}
        watches = {key for key in watched_keys(rule) if place(key)}
        found.keys[rule.code] = sorted(at | watches, key=_order)
        for key in at:
            found.about.setdefault(key, []).append(rule.code)
        for key in watches - at:
            found.readers.setdefault(key, []).append(rule.code)
    return found


def _order(dotted: str) -> tuple[int, str]:
    """The order of the reference; parameters of a type have the place of their section."""
    listed = list(keys())
    whole = dotted if dotted in keys() else dotted.partition(".")[0]
    return listed.index(whole), dotted


def _found_at(rule: Rule) -> set[str]:
    """The keys at which the bad examples of a rule are found."""
    if rule.code.startswith(GENERAL):
        return set()
    return {".".join(str(step) for step in path_of(example.at or "")) for example in rule.bad}
