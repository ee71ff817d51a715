"""A DeepSpeed source release: its modules as syntax trees, and what their names stand for. Nothing of it is run."""

from __future__ import annotations

import ast
import builtins
import re
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

VERSION_FILES = {
    "PKG-INFO": r"^Version: *([\w.]+)",
    "METADATA": r"^Version: *([\w.]+)",
    "version.txt": r"^\s*([\w.]+)",
    "git_version_info_installed.py": r"^version *= *['\"]([\w.]+)",
}
"""Where a release says which it is: in an sdist, in the repository, and where it is installed."""


class Unreadable(Exception):
    """This is not a DeepSpeed source. The text says why."""


@dataclass(frozen=True)
class External:
    """A name from outside the release, dotted: `pydantic.Field`, `sys`."""

    name: str


@dataclass(frozen=True)
class Definition:
    """A name's meaning: the node that gives it (an expression, a function, a class, or a module) and the module it stands in."""

    module: Module
    node: ast.AST


@dataclass
class Module:
    """A module of the release."""

    name: str
    path: str
    text: str = field(repr=False)
    source: Source = field(repr=False)
    is_package: bool = False

    def __hash__(self) -> int:
        return hash(self.name)

    def where(self, node: ast.AST) -> str:
        """The place of a node, as it is cited."""
        return f"{self.path}:{getattr(node, 'lineno', 0)}"

    @cached_property
    def tree(self) -> ast.Module:
        """Its syntax tree; empty if the text cannot be parsed as Python."""
        try:
            return ast.parse(self.text)
        except SyntaxError:
            return ast.Module(body=[], type_ignores=[])

    @cached_property
    def _names(self) -> dict[str, ast.AST]:
        """What each name was bound to last, function and class bodies left out."""
        return dict(bindings(self.tree.body))

    @cached_property
    def _stars(self) -> list[str]:
        """The modules imported with `*`, the last first."""
        return [self._target(node) for node in _star_imports(self.tree.body)][::-1]

    def _target(self, node: ast.ImportFrom) -> str:
        if not node.level:
            return node.module or ""
        parts = self.name.split(".")
        base = parts[: len(parts) - node.level + self.is_package]
        return ".".join([*base, node.module] if node.module else base)

    def lookup(self, name: str) -> Definition | External | None:
        """What a name means in this module, imports followed to their end. None: nothing binds it here."""
        return self._lookup(name, frozenset())

    def _lookup(self, name: str, seen: frozenset[tuple[str, str]]) -> Definition | External | None:
        if (self.name, name) in seen:
            return None
        seen |= {(self.name, name)}
        node = self._names.get(name)
        if node is None:
            starred = [(star, self.source.modules.get(star)) for star in self._stars]
            found = (each._lookup(name, seen) for _, each in starred if each)  # noqa: SLF001
            outside = [star for star, each in starred if not each and star.split(".")[0] != "deepspeed" and not hasattr(builtins, name)]
            foreign = (External(f"{star}.{name}") for star in outside)
            return next((each for each in found if each), None) or next(foreign, None)
        if isinstance(node, ast.ImportFrom | ast.Import):
            return self._imported(name, node, seen)
        return Definition(self, node)

    def imported(self, name: str, node: ast.ImportFrom | ast.Import) -> Definition | External | None:
        """What an import statement binds a name to."""
        return self._imported(name, node, frozenset())

    def _imported(self, name: str, node: ast.ImportFrom | ast.Import, seen: frozenset[tuple[str, str]]) -> Definition | External | None:
        alias = next(alias for alias in node.names if (alias.asname or alias.name.split(".")[0]) == name)
        if isinstance(node, ast.Import):
            return self._whole(alias.name if alias.asname else alias.name.split(".")[0])
        target = self._target(node)
        module = self.source.modules.get(target)
        if module is None:
            return (
                self._whole(f"{target}.{alias.name}")
                if f"{target}.{alias.name}" in self.source.modules
                else External(f"{target}.{alias.name}")
            )
        inner = module._lookup(alias.name, seen)  # noqa: SLF001
        return inner or self._whole(f"{target}.{alias.name}")

    def _whole(self, name: str) -> Definition | External:
        module = self.source.modules.get(name)
        return Definition(module, module.tree) if module else External(name)


def _star_imports(body: list[ast.stmt]) -> Iterator[ast.ImportFrom]:
    for node in body:
        match node:
            case ast.ImportFrom(names=[ast.alias(name="*")]):
                yield node
            case ast.If(body=inner, orelse=other) | ast.Try(body=inner, orelse=other):
                handlers = node.handlers if isinstance(node, ast.Try) else []
                yield from _star_imports([*other, *(line for handler in handlers for line in handler.body), *inner])


def bindings(body: list[ast.stmt]) -> Iterator[tuple[str, ast.AST]]:
    """The names that a body binds, each with what gives its meaning."""
    for node in body:
        match node:
            case ast.Assign(targets=targets, value=value):
                yield from ((target.id, value) for target in targets if isinstance(target, ast.Name))
            case ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value):
                yield name, value
            case ast.FunctionDef(name=name) | ast.ClassDef(name=name):
                yield name, node
            case ast.Import(names=names) | ast.ImportFrom(names=names):
                yield from ((alias.asname or alias.name.split(".")[0], node) for alias in names if alias.name != "*")
            case ast.If(body=inner, orelse=other):
                yield from bindings([*other, *inner])
            case ast.Try(body=inner, handlers=handlers, orelse=other):
                yield from bindings([*(line for handler in handlers for line in handler.body), *inner, *other])


@dataclass
class Source:
    """A release: its own name for itself, and its modules by dotted name."""

    release: str | None
    modules: dict[str, Module] = field(default_factory=dict)

    @classmethod
    def open(cls, path: Path) -> Source:
        """Read a folder (the source, the installed package, or a folder with the package in it) or an sdist.

        Raises:
            Unreadable: there is no package `deepspeed` in it.
        """
        texts = dict(_archived(path) if path.is_file() else _in_folder(path))
        source = cls(_release(texts))
        for name, text in texts.items():
            if name.endswith(".py") and name.startswith("deepspeed/"):
                source.add(name, text)
        if "deepspeed" not in source.modules:
            raise Unreadable(f"{path} has no package deepspeed in it: name a source folder or an sdist (.tar.gz)")
        return source

    def add(self, path: str, text: str) -> None:
        """Add a module from its text."""
        is_package = path.endswith("__init__.py")
        name = path.removesuffix("/__init__.py").removesuffix(".py").replace("/", ".")
        self.modules[name] = Module(name, path, text, self, is_package)


def _archived(path: Path) -> Iterator[tuple[str, str]]:
    try:
        with tarfile.open(path) as archive:
            for member in archive:
                name = member.name.partition("/")[2]
                if member.isfile() and _wanted(name) and (file := archive.extractfile(member)):
                    yield name, file.read().decode("utf-8", "replace")
    except (tarfile.TarError, OSError, EOFError) as error:
        raise Unreadable(f"{path} cannot be read as an archive: {str(error).splitlines()[0].rstrip(':')}") from error


def _in_folder(path: Path) -> Iterator[tuple[str, str]]:
    if not path.is_dir():
        raise Unreadable(f"{path} is not there")
    top = path.resolve()
    if top.name == "deepspeed" and not (top / "deepspeed").is_dir():
        top = top.parent
    installed = [file for folder in top.glob("deepspeed-*.dist-info") for file in folder.glob("METADATA")]
    for file in [*top.glob("PKG-INFO"), *top.glob("version.txt"), *installed, *sorted((top / "deepspeed").rglob("*.py"))]:
        name = file.name if file in installed else file.relative_to(top).as_posix()
        if _wanted(name):
            yield name, file.read_text(encoding="utf-8", errors="replace")


def _wanted(name: str) -> bool:
    return name in VERSION_FILES or (name.startswith("deepspeed/") and name.endswith(".py"))


def _release(texts: dict[str, str]) -> str | None:
    for name, pattern in VERSION_FILES.items():
        text = texts.get(name) or texts.get(f"deepspeed/{name}")
        if text and (found := re.search(pattern, text, re.MULTILINE)):
            return found[1]
    return None
