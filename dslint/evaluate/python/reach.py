"""Whether a program can reach a call that takes a config or runs a command, by its words and those of the modules that it imports.

Repositories have many programs that mention DeepSpeed, and few that pass it a config: of the 866 that a check of the sources of DeepSpeed
0.19.8 followed, 2 did, and of 67 of LLaMA-Factory, 4. To follow a program costs ten to a hundred times what it costs to read its words,
so those that cannot reach such a call are not followed.

The answer errs to one side. A function is taken to call every function whose name stands in it, if its file defines or imports that name;
of a module that is imported whole, any name that stands there. Only imports, prose and documentation are left out, and annotations with
classes of which they make no object. So "no" is certain, and "yes" may be wrong.
"""

from __future__ import annotations

import os

from dslint.evaluate.files import find, folders_of
from dslint.evaluate.python.files import text_of
from dslint.evaluate.python.module_names import files_of_module, is_library, named_in
from dslint.evaluate.python.outline import TAKING, Outline, OutlinePart
from dslint.evaluate.python.sources import SourceFile
from dslint.source.store import store


class File:
    """A file with the names of what reaches a call that takes a config: of its own functions and classes (`own`), and of all (`names`).

    `runners` are the names of what runs a command, which may be one that another file passes.
    """

    def __init__(self, path: str, text: str) -> None:
        self.path = os.path.abspath(path)
        self.outline = store().parsed(("outline", text), lambda: Outline(text))
        self.links: list[tuple[File, str, str]] = []
        """The files that it imports from: the name that it imports, "" for the file itself, and the name that this gets here."""
        self.whole: dict[str, set[File]] = {}
        """The files that it imports as a whole, by the name that they get here: any name of theirs can stand behind it."""
        taking = {*TAKING, "initialize"} if self.outline.initialize else TAKING
        self.own = {alias for name, alias in self.outline.aliases if name in taking} | (taking - TAKING)
        self.names = set(self.own)
        self.runners: set[str] = set()
        self.classes: set[str] = set()
        """Those of `names` of which an annotation makes an object: classes without one of a library among their bases."""
        self.libraries: set[str] = set()
        """The names that it imports from libraries."""
        self.own_aliases = frozenset(self.own)
        self.on_import = False
        """Whether to import the file is enough."""

    @property
    def launches(self) -> bool:
        """Whether a string in it, or in a file that it imports, can be the beginning of a command that launches a training."""
        return self.outline.launcher or any(one.outline.launcher for one, _, _ in self.links)

    def update(self) -> bool:
        """Take over what is known of the imports. Returns whether that changes something."""
        before = self._sizes
        for one, name, bound in self.links:
            self._take(one, name, bound)
        for one in set().union(*self.whole.values()):
            self.names |= one.names
            self.classes |= one.classes
            self.runners |= one.runners
        self.on_import |= self.outline.adds_folders
        if not (self.names or self.classes or self.runners or self.outline.may_take or self.outline.may_run):
            return before != self._sizes
        launches = self.launches
        for part in self.outline.parts:
            if part.name not in self.own and self._reaches(part, launches=launches):
                self.own.add(part.name)
                if part.bases is not None and part.bases.isdisjoint(self.libraries):
                    self.classes.add(part.name)
            # The command of a function without parameters is written in its own file, or in one that this imports.
            if (launches or part.parameters) and (part.runs or not self.runners.isdisjoint(part.words)):
                self.runners.add(part.name)
        self.names |= self.own
        self.on_import |= self._reaches(self.outline.top, launches=launches)
        return before != self._sizes

    def _take(self, other: File, name: str, bound: str) -> None:
        """Take over what is known of an import."""
        self.on_import |= other.on_import
        if name == "*":
            for whole, files in other.whole.items():
                self.whole.setdefault(whole, set()).update(files)
        elif not name or name in other.whole:
            self.whole.setdefault(bound, set()).update(other.whole[name] if name else (other,))
        for mine, known in ((self.names, other.names), (self.classes, other.classes), (self.runners, other.runners)):
            if name == "*":
                mine.update(known)
            elif name in known:
                mine.add(bound)

    @property
    def _sizes(self) -> tuple[int, ...]:
        whole = sum(map(len, self.whole.values()))
        return len(self.names), len(self.own), len(self.runners), len(self.classes), self.on_import, whole

    def _reaches(self, part: OutlinePart, *, launches: bool) -> bool:
        runs = launches and (part.runs or not self.runners.isdisjoint(part.words))
        return part.takes or runs or not self.names.isdisjoint(part.words) or not self.classes.isdisjoint(part.annotations)


class _Reach:
    """The files of a run that were asked about, with all that they import."""

    def __init__(self) -> None:
        self.files: dict[str, File | None] = {}
        self._fresh: list[File] = []
        """The files whose imports are known, and what they reach is not."""

    def file(self, path: str, text: str | None) -> File | None:
        """A file with what it reaches; None if it cannot be read."""
        found = self.linked(path, text)
        changed = bool(self._fresh)
        while changed:
            changed = sum(one.update() for one in reversed(self._fresh)) > 0
        self._fresh.clear()
        return found

    def linked(self, path: str, text: str | None) -> File | None:
        """A file with those that it imports, directly or not; None if it cannot be read."""
        path = os.path.abspath(path)
        if path not in self.files:
            self._add(path, text, self._fresh)
        return self.files[path]

    def _add(self, path: str, text: str | None, found: list[File]) -> None:
        """Add a file and those that it imports, the importing ones first."""
        waiting: list[tuple[str, str | None, File | None, str, str]] = [(path, text, None, "", "")]
        while waiting:
            path, text, importer, name, bound = waiting.pop()
            if path not in self.files:
                text = text_of(path) if text is None else text
                self.files[path] = added = File(path, text) if text is not None else None
                if added is not None:
                    found.append(added)
                    waiting += [(one, None, added, inner, alias) for one, inner, alias in _imported(added)]
                    added.libraries |= {alias for inner, alias in added.outline.aliases if inner in added.libraries}
            if importer is not None and (known := self.files[path]) is not None:
                importer.links.append((known, name, bound))


def _imported(file: File) -> list[tuple[str, str, str]]:
    """What the imports of a file can mean: the path of another file, the name in it ("" for the file itself), and the name here."""
    found: dict[tuple[str, str, str], None] = {}
    for module, names, bound in file.outline.imports:
        name = module.lstrip(".")
        level = len(module) - len(name)
        imported = [inner for inner, _ in names] or [name.partition(".")[0]]
        if is_library(name, level):
            file.libraries.update(imported)
            continue
        beside = named_in(file.path, level)
        before = len(found)
        for owner in _found(name, beside, file.path):
            found.update(dict.fromkeys((owner, inner, here) for inner, here in names or (("", bound),)))
        below = _names_below(name, beside) if names else frozenset[str]()
        for inner, here in names:
            parts = _found(f"{name}.{inner}" if name else inner, beside, file.path) if _may_be_in(inner, below) else ()
            found.update(dict.fromkeys((part, "", here) for part in parts))
        if len(found) == before and not level:
            file.libraries.update(imported)
    return list(found)


def _names_below(module: str, beside: str) -> frozenset[str]:
    """The names of all files and folders in the folders that a module can be, in lower case."""
    below, folder, here = module.replace(".", "/"), os.path.dirname(os.path.abspath(beside)), os.getcwd()
    return store().listed(("below", below, folder, here), lambda: frozenset().union(*map(_names_in, folders_of(below, beside))))


def _names_in(folder: str) -> frozenset[str]:
    return store().listed(("names", folder), lambda: _listed(folder))


def _listed(folder: str) -> frozenset[str]:
    try:
        return frozenset(name.lower() for name in os.listdir(folder))
    except OSError:
        return frozenset()


def _may_be_in(name: str, names: frozenset[str]) -> bool:
    """Whether a module may be among the names of a folder. Most imported names are functions: to look for a file of each took longer than
    to read the files. Another letter than of ASCII has several forms, and file systems differ in what they take for one name.
    """
    name = name.lower()
    return name in names or f"{name}.py" in names or not name.isascii()


def _found(module: str, beside: str, importer: str) -> list[str]:
    """The paths of a module, without the file that imports it: `eval.py` may import the package `eval` beside it."""
    linked = (find(link, beside) for link in files_of_module(module))
    return [one.path for one in linked if one is not None and one.path != importer]


def file_of(text: str, path: str) -> File | None:
    """A program, with the files that it imports; None if it cannot be read."""
    return store().found(("reach",), _Reach).file(path, text)


def may_take_config(text: str, path: str) -> bool:
    """Whether a program, or what it imports, can reach a call that takes a config or runs a command. False is certain.

    Args:
        text: the text of the program.
        path: where it is; modules are found from there.
    """
    found = file_of(text, path)
    return found is None or found.on_import or bool(found.own) or found.outline.names_config


def may_launch(text: str, path: str) -> bool:
    """Whether a program can run a command that launches a training. False is certain."""
    found = store().found(("reach",), _Reach).linked(path, text)
    return (found is None or found.launches) and may_take_config(text, path)


def may_call_into(text: str, path: str, other: str) -> bool:
    """Whether a program can reach a call that takes a config, in another file that it has in it. False is certain."""
    return may_contain(text, path, other) and may_take_config(text, path)


def may_contain(text: str | None, path: str, other: str) -> bool:
    """Whether a program is a file, or imports it, directly or not. False is certain.

    Args:
        text: the text of the program; None to read it.
        path: where it is.
        other: the absolute path of the file.
    """
    file = store().found(("reach",), _Reach).linked(path, text)
    waiting, seen = [file], {file}
    while waiting:
        here = waiting.pop()
        if here is None or here.path == other or here.outline.adds_folders:
            return True
        fresh = {one for one, _, _ in here.links} - seen
        seen |= fresh
        waiting += fresh
    return False


def is_broken(text: str, path: str, shown: str) -> bool:
    """Whether a line of a program is not Python."""
    return SourceFile(text, path, shown, 0).parsed.broken is not None
