"""OmegaConf judges what is read of interpolations in YAML: the value at every path."""

from __future__ import annotations

import json
import os
from importlib.util import find_spec
from pathlib import Path
from random import Random
from typing import Any

from dslint.evaluate.interpolation import interpolated
from dslint.source.tree import Member, plain
from dslint.source.tree import Path as TreePath
from dslint.source.unknown import UNKNOWN
from dslint.source.yaml_tree import parse_yaml
from tests.judges.table import Row

RECORDED = Path(__file__).parent / "interpolations.json"
ENVIRONMENT = {"STAGE": "2", "RUN": "first", "EMPTY": ""}
_SCALARS = ("2", "1e-4", "5.0e-5", "true", "auto", '"1e-4"', "null", "gpt2", "'3'", "0.1", "16", "yes", '"x y"', "1e9")
_NAMES = ("model", "trainer", "deepspeed", "optimizer", "zero_optimization", "data")
_KEYS = ("lr", "stage", "steps", "size", "name", "path", "enabled", "bucket")


def missing() -> str:
    """Why OmegaConf cannot be asked here; "" if it can."""
    return "" if find_spec("omegaconf") is not None else "no omegaconf"


class _Writer:
    """Writes a YAML text whose scalars are values or interpolations of paths that are there, mostly."""

    def __init__(self, rng: Random) -> None:
        self.rng = rng
        self.paths: list[tuple[str, ...]] = []
        self.sections: list[tuple[str, ...]] = []

    def text(self) -> str:
        tree = self._section((), 0)
        self._plan(tree, ())
        return "".join(self._lines(tree, (), 0))

    def _section(self, path: tuple[str, ...], depth: int) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for name in self.rng.sample(_KEYS, self.rng.randint(1, 4)):
            found[name] = [None] * self.rng.randint(1, 3) if self.rng.random() < 0.1 else None
        for name in self.rng.sample(_NAMES, self.rng.randint(0 if depth else 2, 3)) if depth < 3 else ():
            found[name] = self._section((*path, name), depth + 1)
        return found

    def _plan(self, tree: dict[str, Any], path: tuple[str, ...]) -> None:
        for name, inner in tree.items():
            if isinstance(inner, dict):
                self.sections.append((*path, name))
                self._plan(inner, (*path, name))
            elif isinstance(inner, list):
                self.paths += [(*path, name, str(index)) for index in range(len(inner))]
            else:
                self.paths.append((*path, name))

    def _lines(self, tree: dict[str, Any], path: tuple[str, ...], depth: int) -> list[str]:
        lines = []
        for name, inner in tree.items():
            indent = "  " * depth
            if isinstance(inner, dict):
                lines += [f"{indent}{name}:\n", *self._lines(inner, (*path, name), depth + 1)]
            elif isinstance(inner, list):
                lines.append(f"{indent}{name}:\n")
                lines += [f"{indent}  - {self._value((*path, name))}\n" for _ in inner]
            else:
                lines.append(f"{indent}{name}: {self._value(path)}\n")
        return lines

    def _value(self, path: tuple[str, ...]) -> str:
        kind = self.rng.random()
        if kind < 0.5:
            return self.rng.choice(_SCALARS)
        if kind < 0.75:
            return "${" + self._name(path) + "}"
        if kind < 0.83:
            return self.rng.choice(["run_{}", "{}/{}", "'{} steps'", '"{}"']).format(*["${" + self._name(path) + "}" for _ in range(2)])
        if kind < 0.93:
            variable = self.rng.choice([*ENVIRONMENT, "NOT_SET"])
            default = self.rng.choice(["", ",7", ",none", ", auto", ",null", ",1e-4", ",'4'", ",true"])
            return f'"${{oc.env:{variable}{default}}}"' if self.rng.random() < 0.4 else f"${{oc.env:{variable}{default}}}"
        own = "${" + self._name(path) + "}"
        return self.rng.choice(
            [
                f"${{oc.select:{'.'.join(self.rng.choice(self.paths))},3}}",
                f"${{oc.decode:{own}}}",
                "'\\${escaped}'",
                "???",
                f"${{deepspeed.{own}}}",
                "${nowhere.x}",
            ]
        )

    def _name(self, path: tuple[str, ...]) -> str:
        """The name of a value or a section: from the top, or relative to the section at `path`."""
        target = self.rng.choice(self.sections if self.sections and self.rng.random() < 0.12 else self.paths)
        words = list(target)
        if self.rng.random() < 0.3:
            shared = 0
            while shared < min(len(path), len(words) - 1) and path[shared] == words[shared]:
                shared += 1
            dots = "." * (len(path) - shared + 1)
            return dots + self._joined(words[shared:])
        return self._joined(words)

    def _joined(self, words: list[str]) -> str:
        bracket = words[-1].isdigit() and self.rng.random() < 0.5
        return ".".join(words[:-1]) + f"[{words[-1]}]" if bracket and len(words) > 1 else ".".join(words)


def case(seed: int) -> str:
    """The YAML text of a seed."""
    return _Writer(Random(f"interpolations {seed}")).text()


def leaves(tree: Any, path: TreePath = ()) -> list[TreePath]:
    """The paths of what is written, the values of sections apart."""
    if isinstance(tree, dict):
        return [found for name, inner in tree.items() for found in leaves(inner, (*path, name))]
    if isinstance(tree, list):
        return [found for index, inner in enumerate(tree) for found in leaves(inner, (*path, index))]
    return [path]


def answer(text: str) -> list[Any]:
    """What OmegaConf makes of each value, in order: a list with the value, or nothing where it raises."""
    from omegaconf import OmegaConf
    from omegaconf.errors import OmegaConfBaseException

    before = {name: os.environ.get(name) for name in (*ENVIRONMENT, "NOT_SET")}
    os.environ.update(ENVIRONMENT)
    os.environ.pop("NOT_SET", None)
    try:
        config = OmegaConf.create(text)
        found: list[Any] = []
        for path in leaves(OmegaConf.to_container(config, resolve=False)):
            dotted = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in path).lstrip(".")
            try:
                value = OmegaConf.select(config, dotted, throw_on_resolution_failure=True, throw_on_missing=True)
                found.append([OmegaConf.to_container(value, resolve=True) if OmegaConf.is_config(value) else value])
            except (OmegaConfBaseException, RecursionError):
                found.append([])
        return found
    finally:
        for name, old in before.items():
            os.environ.pop(name, None)
            if old is not None:
                os.environ[name] = old


def compare(text: str, real: list[Any]) -> tuple[int, int, list[str]]:
    """How many values there are, how many are read, and what is wrong."""
    document = parse_yaml(text)
    resolved = interpolated(document, ENVIRONMENT)
    found, read, wrong = 0, 0, []
    for path, held in zip(leaves(plain(document.root)), real, strict=True):
        node = resolved.lookup(path)
        said = plain(node.value if isinstance(node, Member) else node) if node is not None else UNKNOWN
        known = not _has_unknown(said)
        found += bool(held)
        read += bool(held) and known
        if known and (not held or not _same(said, held[0])):
            wrong.append(f"{'.'.join(map(str, path))} of {text!r}: {said!r}, and it is {held[0] if held else 'an error'!r}")
    return found, read, wrong


def _has_unknown(value: Any) -> bool:
    if isinstance(value, dict | list):
        return any(_has_unknown(inner) for inner in (value.values() if isinstance(value, dict) else value))
    return value is UNKNOWN


def _same(left: Any, right: Any) -> bool:
    if isinstance(left, dict) and isinstance(right, dict):
        return left.keys() == right.keys() and all(_same(left[name], right[name]) for name in left)
    if isinstance(left, list) and isinstance(right, list):
        return len(left) == len(right) and all(map(_same, left, right))
    return type(left) is type(right) and bool(left == right)


def ask(count: int, seed: int) -> Row:
    """Compare the texts of `count` seeds with OmegaConf."""
    found = read = 0
    wrong: list[tuple[int, str]] = []
    for number in range(seed, seed + count):
        values, known, bad = compare(case(number), answer(case(number)))
        found, read = found + values, read + known
        wrong += [(number, text) for text in bad]
    return Row("interpolations", count, "values", found, read, wrong)


def record(count: int, seed: int) -> str:
    """Write the answers to the texts of `count` seeds."""
    made = {number: answer(case(number)) for number in range(seed, seed + count)}
    RECORDED.write_text(json.dumps(made, separators=(",", ":")) + "\n", encoding="utf-8")
    return f"{count} texts recorded"
