"""Which rules look at which keys: read out of the rules' code and of their examples."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterator
from types import CodeType, FunctionType, ModuleType
from typing import Any, NamedTuple

import dslint.schemas
from docs_pages_writing.own_rules import own_rules
from docs_pages_writing.places import keys, place
from dslint.rule import Rule, path_of

GENERAL = ("DS0", "DS1")
"""Chapters whose rules are about every key alike: a key in an example of theirs stands for any."""

_OURS = ("dslint.rules.", "dslint.schemas.derive")
"""Modules whose functions a rule's code is followed into."""


class Watched(NamedTuple):
    """The keys that a rule looks at, by its code; the codes of the rules that speak about a key, and of those that only read it."""

    keys: dict[str, list[str]]
    about: dict[str, list[str]]
    readers: dict[str, list[str]]

    @staticmethod
    def link(key: str, folder: str) -> str:
        """The address of a key in the reference, which lies in `folder`."""
        return folder + (place(key) or "")


def watched() -> Watched:
    """Ask every rule."""
    found = Watched({}, {}, {})
    tables = _tables()
    for rule in own_rules():
        at = {word for word in _of_examples(rule) if place(word)}
        words = {word for word in _words(rule.check, set(), tables) if place(word)}
        found.keys[rule.code] = sorted(at | words, key=_order)
        for word in at:
            found.about.setdefault(word, []).append(rule.code)
        for word in words - at:
            found.readers.setdefault(word, []).append(rule.code)
    return found


def _order(dotted: str) -> tuple[int, str]:
    """The order of the reference; parameters of a type, which it has no key for, come where their section does."""
    listed = list(keys())
    whole = dotted if dotted in keys() else dotted.partition(".")[0]
    return listed.index(whole), dotted


def _of_examples(rule: Rule) -> Iterator[str]:
    if not rule.code.startswith(GENERAL):
        for example in rule.bad:
            yield ".".join(str(step) for step in path_of(example.at or ""))


def _words(function: Any, seen: set[int], tables: set[int]) -> Iterator[str]:
    """The strings in a function's code, in the constants that it names, and in the functions of the rules that it calls."""
    if not isinstance(function, FunctionType) or id(function) in seen:
        return
    seen.add(id(function))
    names: set[str] = set()
    for code in _nested(function.__code__):
        names.update(code.co_names)
        yield from _strings([constant for constant in code.co_consts if not isinstance(constant, CodeType)])
    scopes = [function.__globals__]
    scopes += [
        vars(value) for name in names if isinstance(value := function.__globals__.get(name), ModuleType) and _is_ours(value.__name__)
    ]
    for name in sorted(names):
        for value in (scope[name] for scope in scopes if name in scope):
            if isinstance(value, FunctionType) and _is_ours(value.__module__):
                yield from _words(value, seen, tables)
            elif id(value) not in tables:
                yield from _strings(value)


def _is_ours(module: str) -> bool:
    return module.startswith(_OURS)


def _nested(code: CodeType) -> Iterator[CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _nested(constant)


def _strings(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        yield from _strings(list(value))
        yield from _strings(list(value.values()))
    elif isinstance(value, list | tuple | set | frozenset):
        for item in value:
            yield from _strings(item)


def _tables() -> set[int]:
    """The tables of the models, which name every key: a rule that uses one looks at none in particular."""
    names = [module.name for module in pkgutil.iter_modules(dslint.schemas.__path__)]
    modules = [importlib.import_module(f"dslint.schemas.{name}") for name in names if name != "compile"]
    return {id(value) for module in modules for value in vars(module).values() if isinstance(value, dict | list | tuple | set | frozenset)}
