"""Interpolations in YAML, as OmegaConf reads them: `${a.b}` is the value at that path. Every other `${...}` or `{{...}}` is unknown."""

from __future__ import annotations

import re
from collections.abc import Mapping as Table
from typing import Any

from dslint.source.tree import Document, Mapping, Member, Node, Path, Scalar, Sequence
from dslint.source.unknown import UNKNOWN

_HOLE = re.compile(r"\$\{([^${}]*)\}|\{\{.*?\}\}|<<\w+>>")

_VARIABLE = re.compile(r"oc\.env:\s*(\w+)\s*(?:,(.*))?", re.DOTALL)

_PATH = re.compile(r"\.*[\w-]+(?:\.[\w-]+|\[\w+\])*")

_MISSING = "???"
"""The value of a key that another file or the command line must set."""

_DEEPEST = 20
"""How many interpolations may lead to each other."""

_LARGEST = 20_000
"""How many nodes interpolations may add to a document."""


def interpolated(document: Document, environment: Table[str, str]) -> Document:
    """The document with its interpolations replaced by the values that they name; the document itself if it has none.

    In a file that is plainly for OmegaConf, numbers such as 1e-4 are numbers.

    Args:
        document: a YAML document.
        environment: the variables that are known, for `${oc.env:NAME}` and `${NAME}`.
    """
    if document.root is None:
        return document
    has_holes, numbers = _HOLE.search(document.text), is_for_omegaconf(document)
    if not has_holes and not numbers:
        return document
    root = with_floats(document.root) if numbers else document.root
    whole = Document(document.text, root, comments=document.comments, problems=document.problems, language=document.language)
    root = _Interpolation(whole, environment).node(root, ()) if has_holes or numbers else root
    return Document(document.text, root, comments=document.comments, problems=document.problems, language=document.language)


class _Interpolation:
    """The interpolations of one document."""

    def __init__(self, document: Document, environment: Table[str, str]) -> None:
        self.document = document
        self.environment = environment
        self.left = _LARGEST

    def node(self, node: Node, path: Path, depth: int = 0) -> Node:
        """A node without interpolations. A node that has none is returned as it is."""
        if isinstance(node, Mapping):
            members = [Member(member.key, self.node(member.value, (*path, member.key.value), depth)) for member in node.members]
            changed = any(new.value is not old.value for new, old in zip(members, node.members, strict=True))
            return Mapping(node.span, members, may_have_more=node.may_have_more) if changed else node
        if isinstance(node, Sequence):
            items = [self.node(item, (*path, index), depth) for index, item in enumerate(node.items)]
            return Sequence(node.span, items) if any(new is not old for new, old in zip(items, node.items, strict=True)) else node
        if node.value == _MISSING:
            return Scalar(node.span, UNKNOWN, node.raw, node.style)
        return self._scalar(node, path, depth) if isinstance(node.value, str) and _HOLE.search(node.value) else node

    def _scalar(self, node: Scalar, path: Path, depth: int) -> Node:
        assert isinstance(node.value, str)
        unknown = Scalar(node.span, UNKNOWN, node.raw, node.style)
        whole = _HOLE.fullmatch(node.value)
        if whole is not None:
            return self._named(whole[1], path, depth, node) or unknown
        parts: list[str] = []
        end = 0
        for match in _HOLE.finditer(node.value):
            found = self._named(match[1], path, depth, node)
            if not isinstance(found, Scalar) or found.value is UNKNOWN or found.value is None:
                return unknown
            parts += [node.value[end : match.start()], str(found.value)]
            end = match.end()
        text = "".join([*parts, node.value[end:]])
        return unknown if "${" in text else Scalar(node.span, text, node.raw, node.style)

    def _named(self, name: str | None, path: Path, depth: int, at: Scalar) -> Node | None:
        """What an interpolation names, with the place of the interpolation if it is a scalar."""
        name = (name or "").strip()
        if depth > _DEEPEST:
            return None
        variable = _VARIABLE.fullmatch(name)
        if variable is not None:
            if variable[1] not in self.environment and variable[2] is None:
                return None
            value = self.environment[variable[1]] if variable[1] in self.environment else _default(variable[2])
            return Scalar(at.span, value, at.raw, at.style)
        if not _PATH.fullmatch(name):
            return None
        target = _absolute(name, path)
        found = self.document.lookup(target) if target is not None else None
        node = found.value if isinstance(found, Member) else found
        if node is None:
            value = self.environment.get(name)
            return None if value is None else Scalar(at.span, value, at.raw, at.style)
        if target is not None and target == path[: len(target)]:
            return None  # it contains itself
        self.left -= _size(node, self.left)
        if self.left <= 0:
            return None
        resolved = self.node(node, target or (), depth + 1)
        return Scalar(at.span, resolved.value, resolved.raw, resolved.style) if isinstance(resolved, Scalar) else resolved


def _default(text: str) -> Any:
    """The default of a variable, as OmegaConf's resolver `oc.env` returns it: null, or the value as a string. UNKNOWN for other syntax."""
    text = text.strip()
    if text[:1] in ("'", '"'):
        whole = len(text) > 1 and text[-1] == text[0] and text[0] not in text[1:-1] and "\\" not in text
        return text[1:-1] if whole else UNKNOWN
    if text.lower() == "null":
        return None
    if text.lower() in ("true", "false"):
        return text.capitalize()
    number = _number(text)
    return str(number) if number is not None else text if _PLAIN.fullmatch(text) else UNKNOWN


_PLAIN = re.compile(r"[\w/.@%+*?|-]*")
"""A default without quotes that the grammar of OmegaConf takes as it is."""


def _number(text: str) -> int | float | None:
    """The number that the grammar of OmegaConf reads; None for another text."""
    if _INTEGER.fullmatch(text) and len(text) < 20:
        return int(text)
    return float(text) if _FLOAT.fullmatch(text) or _DECIMAL.fullmatch(text) else None


_INTEGER = re.compile(r"[-+]?(?:0|[1-9]\d*)")
_DECIMAL = re.compile(r"[-+]?\d+\.\d*")


def _absolute(name: str, path: Path) -> Path | None:
    """The path that an interpolation names. Leading dots are relative: one for the section that it is written in."""
    words = name.lstrip(".")
    dots = len(name) - len(words)
    steps: list[str | int] = [int(step) if step.isdecimal() else step for step in re.split(r"[.\[\]]+", words) if step]
    if dots > len(path):
        return None
    return (*path[: len(path) - dots], *steps) if dots else tuple(steps)


def _size(node: Node, most: int) -> int:
    """The number of nodes below a node; counting stops above `most`."""
    total, pending = 0, [node]
    while pending and total <= most:
        here = pending.pop()
        total += 1
        if isinstance(here, Mapping):
            pending += [member.value for member in here.members]
        elif isinstance(here, Sequence):
            pending += here.items
    return total


_FLOAT = re.compile(r"[-+]?\d+(?:\.\d*)?[eE][-+]?\d+")

_SOME_FLOAT = re.compile(r"(?<!\d)\d++(?:\.\d*+)?[eE][-+]?\d")
"""Such a number somewhere in a text. It begins where digits begin: otherwise a long row of digits takes quadratic time."""

_RESOLVED = re.compile(r"\$\{(?:[\w./]*\w[.:]|\.)")
"""An interpolation that only OmegaConf knows: with a path (`${a.b}`) or a resolver (`${oc.env:X}`)."""


def is_for_omegaconf(document: Document) -> bool:
    """Whether a file is plainly one for OmegaConf or Hydra, by its interpolations, its list of defaults or the classes that it names."""
    root = document.root
    defaults = root.get("defaults") if isinstance(root, Mapping) else None
    listed = defaults is not None and isinstance(defaults.value, Sequence)
    return listed or "_target_:" in document.text or "# @package" in document.text or _RESOLVED.search(document.text) is not None


def has_floats(document: Document) -> bool:
    """Whether a text may have numbers that are strings for PyYAML."""
    return _SOME_FLOAT.search(document.text) is not None


def of_omegaconf(document: Document) -> Document:
    """A document with the numbers that OmegaConf reads as such."""
    root = with_floats(document.root) if document.root is not None else None
    return Document(document.text, root, comments=document.comments, problems=document.problems, language=document.language)


def with_floats(node: Node) -> Node:
    """A tree with the numbers that OmegaConf reads as such: 1e-4 is a string for PyYAML."""
    if isinstance(node, Mapping):
        return Mapping(node.span, [Member(one.key, with_floats(one.value)) for one in node.members], may_have_more=node.may_have_more)
    if isinstance(node, Sequence):
        return Sequence(node.span, [with_floats(item) for item in node.items])
    if isinstance(node.value, str) and node.raw == node.value and _FLOAT.fullmatch(node.value):
        return Scalar(node.span, float(node.value), node.raw, node.style)
    return node
