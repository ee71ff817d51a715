"""What is still wrong with a config whose every key and value is well formed: a module per chapter, a function per rule.

To add a rule, find its chapter by the first digit of its code, write the function there, and run the tests: nothing has to be registered.
`CONTRIBUTING.md` shows one being written.
"""

from __future__ import annotations

from functools import cache

from dslint.rule import Rule
from dslint.rules import activation, auto, batch, files, keys, offload, optimizer, precision, sections, upgrade, zero

CHAPTERS = (files, keys, upgrade, batch, precision, zero, offload, optimizer, activation, sections, auto)
"""The modules that hold rules, in the order of their codes."""


@cache
def all_rules() -> tuple[Rule, ...]:
    """Every rule, by code."""
    rules = (value for chapter in CHAPTERS for value in vars(chapter).values() if isinstance(value, Rule))
    return tuple(sorted(rules, key=lambda rule: rule.code))
