"""Compile `rules/index.py`: what dslint knows about a rule without importing its module.

    python scripts/build_rule_index.py [--check]

Run it after adding, renaming or moving a rule, and after changing the arguments of `@rule`. With `--check` nothing is written; the exit
code is 1 if the file is stale.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Iterator
from importlib import import_module
from pathlib import Path
from pkgutil import walk_packages

import dslint.rules
from dslint.config.context import NEEDS
from dslint.config.violations import ViolationKind
from dslint.rule import Rule
from dslint.schemas.key_table import KEYS
from dslint.schemas.typed import registry

INDEX = Path(__file__).resolve().parent.parent / "rules/index.py"
PACKAGE = "dslint.rules."
FLAGS = ("pedantic", "setup")

WORDS = frozenset(("=auto", "text", "setup", "ignores"))
KINDS = {"fact": frozenset(NEEDS) - {"setup"}, "violation": frozenset(ViolationKind)}
PARAMS = frozenset(
    f"{section}.params.{name}"
    for section in ("optimizer", "scheduler")
    for entry in (registry(section) or {}).values()
    for name in entry["params"]
)

HEADER = '''"""The index of the rules. Compiled by `python scripts/build_rule_index.py` from their modules; do not edit.

A row is (code, name, effect, phase, needs, flags, watches, module below `dslint.rules`, function).
"""

# fmt: off

from __future__ import annotations

RULES: tuple[tuple[str, str, str, str | None, tuple[str, ...], tuple[str, ...], tuple[str, ...], str, str], ...] = (
'''


def written_rules() -> list[tuple[str, Rule]]:
    """Every rule below `rules/` with the name of its function, by code.

    Raises:
        ValueError: two rules share a code or a name, or a rule watches something that does not exist.
    """
    modules = [module.name for module in walk_packages(dslint.rules.__path__, PACKAGE) if not module.ispkg]
    found = [
        (name, value)
        for module in modules
        if module != f"{PACKAGE}index"
        for name, value in vars(import_module(module)).items()
        if isinstance(value, Rule) and value.module == module
    ]
    for what in ("code", "name"):
        known: dict[str, Rule] = {}
        for _, rule in found:
            other = known.setdefault(getattr(rule, what), rule)
            if other is not rule:
                raise ValueError(f"{other.module} and {rule.module} both hold a rule with the {what} {getattr(rule, what)}")
    for _, rule in found:
        for watch in rule.watches:
            problem = problem_of(watch)
            if problem:
                raise ValueError(f"{rule.code} watches {watch!r}: {problem}")
    return sorted(found, key=lambda pair: pair[1].code)


def problem_of(watch: str) -> str | None:
    """What is wrong with a watch; None for one that `dslint.rule.rule` documents."""
    kind, colon, name = watch.partition(":")
    if kind == "always":
        return None if len(name.split()) >= 3 else 'write the reason: "always: why"'
    if kind in KINDS and colon:
        return None if name in KINDS[kind] else f"there is no {kind} {name!r}"
    key = watch.removeprefix("!")
    return None if watch in WORDS or _is_key(key) else f"{key!r} is not in the key table"


def _is_key(key: str) -> bool:
    """Whether the key table has a key, or it stands in a dict of free form, or is a parameter of some optimizer or schedule."""
    section = key.rpartition(".")[0]
    free = section not in ("optimizer.params", "scheduler.params") and "dict" in KEYS.get(section, {}).get("types", ())
    return key in KEYS or key in PARAMS or free


def index_of(rules: Iterable[tuple[str, Rule]]) -> str:
    """The text of the index, one line a rule."""
    return HEADER + "".join(_lines(rules)) + ")\n"


def _lines(rules: Iterable[tuple[str, Rule]]) -> Iterator[str]:
    chapter = ""
    for function, rule in rules:
        if rule.code[:3] != chapter:
            chapter = rule.code[:3]
            yield f"    # {chapter}\n"
        flags = tuple(flag for flag in FLAGS if getattr(rule, flag))
        phase = rule.phase.value if rule.phase else None
        row = (
            *(rule.code, rule.name, rule.effect.value, phase, rule.needs, flags, rule.watches),
            *(rule.module.removeprefix(PACKAGE), function),
        )
        yield f"    {_literal(row)},\n"


def _literal(value: object) -> str:
    """A tuple, string or None as ruff would write it."""
    if isinstance(value, tuple):
        return f"({', '.join(map(_literal, value))}{',' if len(value) == 1 else ''})"
    if isinstance(value, str) and '"' not in value:
        return f'"{repr(value)[1:-1]}"'
    return repr(value)


def main(arguments: list[str] | None = None) -> int:
    """Write the index, or check it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="exit with 1 if the index is stale, and write nothing")
    only_check = parser.parse_args(arguments).check
    try:
        text = index_of(written_rules())
    except ValueError as error:
        print(f"build_rule_index: {error}", file=sys.stderr)
        return 1
    if INDEX.is_file() and INDEX.read_text(encoding="utf-8") == text:
        return 0
    if only_check:
        print("stale: rules/index.py; run python scripts/generate.py rules", file=sys.stderr)
        return 1
    INDEX.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
