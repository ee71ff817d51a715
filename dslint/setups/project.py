"""The scripts and programs of the project around a file, found once and read when they are needed."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from functools import cached_property, partial

from dslint.evaluate.files import is_searched
from dslint.setups.names import DEBUGGER, is_test
from dslint.source.read import DATA, SCRIPTS, ReadError, read
from dslint.source.store import store

_SCRIPTS = (*SCRIPTS, ".mk")
_MOST_FILES = 10_000
"""The most sources of a project that are looked at. The largest of 29 public repositories has 1,700."""

_LARGEST = 400_000
"""Bytes. Of the 10,500 sources of those repositories one is larger, a generated schema."""

_IMPORT = re.compile(r"^[ \t]*(?:from|import)\b([^\n#]*)", re.MULTILINE)
_WORD = re.compile(r"\w+")
_TRAINER = re.compile(r"\b(\w*Trainer)\s*\(|^class\s+\w+\(.*?(\w*Trainer)\b")
_FOR_DEEPSPEED = re.compile(r"^distributed_type:[ \t]*[\"']?DEEPSPEED\b", re.MULTILINE)

COMMAND_KEYS = ("command", "commands", "cmd", "script", "run", "entrypoint", "args")
"""The keys of job files in YAML that hold commands."""

_COMMAND = re.compile(rf"^[ \t-]*(?:{'|'.join(COMMAND_KEYS)})[ \t]*:", re.MULTILINE)
_RUNS = re.compile(r"subprocess(?<!\wsubprocess)\b|os\.(?<!\wos\.)(?:system|popen|exec|spawn)")
_IN_RUNS = ("subprocess", "system", "popen", "exec", "spawn")
"""One of these is in all that `_RUNS` matches."""
_OWN_TRAINER = re.compile(r"^class\s+(\w*Trainer)\s*(?:\(\s*(?:object)?\s*\))?:", re.MULTILINE)


class Project:
    """The scripts and the Python programs below a folder, by their paths."""

    def __init__(self, top: str) -> None:
        self.top = top
        self.scripts: list[str] = []
        self.programs: list[str] = []
        self._configs: dict[str, list[str]] = {}
        self._notebooks: list[str] = []
        self._yaml: list[str] = []
        self._texts: dict[str, str] = {}
        self._used: dict[str, bool] = {}
        for path in store().listed(("files", top), lambda: list(_files(top))):
            name = os.path.basename(path).lower()
            if name.endswith(_SCRIPTS) or name in ("makefile", "gnumakefile"):
                self.scripts.append(path)
            elif name.endswith(".py"):
                self.programs.append(path)
            elif name.endswith(DATA):
                self._configs.setdefault(os.path.basename(path), []).append(path)
                if not name.endswith(".json"):
                    self._yaml.append(path)
            elif name.endswith(".ipynb"):
                self._notebooks.append(path)

    def configs_named(self, name: str) -> list[str]:
        """The JSON and YAML files of a name."""
        return self._configs.get(name, [])

    def files_named(self, name: str) -> list[str]:
        """All files of a name, of any kind."""
        return [path for path in store().listed(("files", self.top), lambda: list(_files(self.top))) if os.path.basename(path) == name]

    def is_in_package(self, path: str) -> bool:
        """Whether a program is in a folder with an `__init__.py`."""
        return os.path.join(os.path.dirname(os.path.abspath(path)), "__init__.py") in self.programs

    def config_meant(self, name: str) -> str | None:
        """The path of the only JSON or YAML file of a name, or of that name with the other ending of YAML."""
        stem, ending = os.path.splitext(name)
        other = {".yaml": ".yml", ".yml": ".yaml"}.get(ending, ending)
        found = self.configs_named(name) or self.configs_named(stem + other)
        return os.path.relpath(found[0]).replace(os.sep, "/") if len(found) == 1 else None

    def text(self, path: str) -> str:
        """The text of a file; "" if it cannot be read, or is too large for a script or program written by hand."""
        path = os.path.abspath(path)
        if path not in self._texts:
            try:
                self._texts[path] = read(path) if os.path.getsize(path) <= _LARGEST else ""
            except (ReadError, OSError):
                self._texts[path] = ""
        return self._texts[path]

    def other_paths_of(self, path: str) -> list[str]:
        """The further absolute paths of a file in the project, which links to it or to a folder around it give it."""
        real = os.path.realpath(path)
        links = store().listed(("links", self.top), lambda: list(_links(self.top)))
        return [link + real.removeprefix(target) for link, target in links if f"{real}{os.sep}".startswith(os.path.join(target, ""))]

    def launching(self, names: set[str]) -> Iterator[str]:
        """The files that may launch something, by the names of its modules or files: scripts, notebooks, job files, and programs that run
        commands.

        What they launch is read in them; here they only have to hold one of the names, and programs as a file, a module or a string:
        `subprocess.run` would make each a launcher of `run.py`.
        """
        any_name = "|".join(map(re.escape, sorted(names)))
        word = re.compile(rf"(?<!\w)(?:{any_name})(?!\w)")
        in_program = re.compile(rf"(?<!\w)(?:{any_name})\.py(?!\w)|(?:-m\W{{1,4}}|[./])(?:{any_name})(?![\w(.])|[\"'](?:{any_name})[\"']")
        programs = set(self._running)
        longest = {max(_WORD.findall(name), key=len, default="") for name in names}
        able = {path for one in longest for path in self._launching_by_word.get(one, ())}
        for path in (*self.scripts, *self._jobs, *self._running):
            if path in able and (in_program if path in programs else word).search(self.text(path)):
                yield path

    @cached_property
    def _launching_by_word(self) -> dict[str, list[str]]:
        """The files that may launch something, by each word in them: a project with many trainings searches them for each."""
        found: dict[str, list[str]] = {}
        for path in (*self.scripts, *self._jobs, *self._running):
            for word in set(_WORD.findall(self.text(path))):
                found.setdefault(word, []).append(path)
        return found

    @cached_property
    def _jobs(self) -> list[str]:
        """The notebooks, the files of VS Code's debugger, and the YAML files that hold a command."""
        return [*self._notebooks, *self.configs_named(DEBUGGER), *(path for path in self._yaml if _COMMAND.search(self.text(path)))]

    @cached_property
    def _running(self) -> list[str]:
        """The programs that run commands, tests apart, and Databricks' notebooks."""
        from dslint.evaluate.python.cells import OF_DATABRICKS  # it imports what a plain check does not need

        texts = ((path, self.text(path)) for path in self.programs)
        return [
            path
            for path, text in texts
            if (any(word in text for word in _IN_RUNS) and _RUNS.search(text) and not self.is_test(path)) or text.startswith(OF_DATABRICKS)
        ]

    def is_test(self, path: str) -> bool:
        """Whether a file of the project is a test."""
        return is_test(os.path.basename(path), self.text(path).encode("utf-8", "surrogatepass"))

    @cached_property
    def json_files(self) -> list[str]:
        """The absolute paths of the JSON files."""
        return [os.path.abspath(path) for paths in self._configs.values() for path in paths if path.endswith(".json")]

    @property
    def yaml_files(self) -> list[str]:
        """The YAML files."""
        return self._yaml

    @cached_property
    def accelerate_files(self) -> list[str]:
        """The YAML files of Accelerate that train with DeepSpeed."""
        return [path for path in self._yaml if _FOR_DEEPSPEED.search(self.text(path))]

    def importers_of(self, path: str) -> list[str]:
        """The programs that may import a program: a line that imports names its module, with its folder or with no other."""
        module, folder = _module(path)
        means_it = _importing(module, folder)
        return [one for one in self._importers.get(module, ()) if one != path and means_it.search(self.text(one))]

    @cached_property
    def own_loop(self) -> str | None:
        """A program that calls `deepspeed.initialize`, if no program creates or extends a Trainer of a library; else None."""
        loops = [path for path in self.programs if "deepspeed.initialize(" in self.text(path)]
        if not loops:
            return None
        texts = [text for text in map(self.text, self.programs) if "Trainer" in text]
        lines = (line for text in texts for line in text.split("\n") if "Trainer" in line)  # a tenth of the time of searching the texts
        used = {name for line in lines for found in _TRAINER.findall(line) for name in found if name}
        return None if used - {name for text in texts for name in _OWN_TRAINER.findall(text)} else loops[0]

    def engine_call_with(self, argument: str, position: int) -> str | None:
        """The place `file:line` of the first call of `deepspeed.initialize` that is given an argument, tests apart."""
        for path in self.programs:
            text = self.text(path)
            if "deepspeed.initialize(" not in text or self.is_test(path):
                continue
            line = store().parsed(("engine call", text, argument), partial(_line_giving, text, argument, position))
            if line is not None:
                return f"{os.path.relpath(path).replace(os.sep, '/')}:{line}"
        return None

    def program_that_sets(self, *keys: str) -> str | None:
        """The first program that writes one of these keys of a config: `config["key"] = ...`, or in a dict of its own."""
        names = "|".join(map(re.escape, keys))
        sets = re.compile(rf"""(?:["'](?:{names})["'][ \t]*(?:\][ \t]*=(?!=)|:)|setdefault\([ \t]*["'](?:{names})["'])""")
        return next((path for path in self.programs if sets.search(self.text(path))), None)

    def program_matching(self, pattern: re.Pattern[str], word: str) -> str | None:
        """The first program, tests apart, in which a pattern matches; `word` is in all that it matches."""

        def find() -> str | None:
            texts = ((path, self.text(path)) for path in self.programs)
            return next((path for path, text in texts if word in text and pattern.search(text) and not self.is_test(path)), None)

        return store().found(("program matching", self.top, pattern), find)

    def program_that_takes(self, key: str) -> str | None:
        """The first program that takes the value of a key out of a config."""
        return next((path for path in self.programs if takes(self.text(path), key)), None)

    def program_with_field(self, name: str) -> str | None:
        """The first program with a field of this name, as a class of arguments has it: `name: float = 0.1`."""
        field = re.compile(rf"(?m)^[ \t]+{re.escape(name)}[ \t]*:(?!\s*$)")
        return next((path for path in self.programs if name in self.text(path) and field.search(self.text(path))), None)

    def sources_say(self, packages: tuple[str, ...], text: str) -> bool | None:
        """Whether the sources of a package hold a text, such as an error that it raises; None if the project has none of them, or a part.

        A place in the text that varies is written `...`, or stands between double quotes.
        """
        tops = tuple(
            os.path.join(os.path.dirname(path), "")
            for path in self.programs
            if os.path.basename(path) == "__init__.py" and os.path.basename(os.path.dirname(path)) in packages
        )
        inside = [path for path in self.programs if path.startswith(tops)] if tops else []
        part = max(re.split(r"\.\.\.|\"", text), key=len).strip()
        said = any(part in _SEAM.sub("", self.text(path)) for path in inside)
        return True if said else False if len(inside) >= _WHOLE else None

    def program_that_joins(self, argument: str) -> str | None:
        """The first program that puts a folder before an argument: `os.path.join(folder, args.config)`, `folder / args.config`."""
        read = rf"\w\.{re.escape(argument)}\b"
        joins = re.compile(rf"join\([^()]{{1,200}},\s*[\w.]{{0,60}}{read}|/\s*[\w.]{{0,60}}{read}|/\{{[\w.]{{0,60}}{read}")
        return next((path for path in self.programs if argument in self.text(path) and joins.search(self.text(path))), None)

    def parser_without(self, flag: str, program: str) -> str | None:
        """The place `file:line` of the only parser that gets a flag with dashes, `--local-rank`, in a package beside a program that
        imports it, if neither the program nor the package has the flag with underscores. Tests of the package do not count.
        """
        dashed, folder, own = flag.replace("_", "-"), os.path.dirname(os.path.abspath(program)), self.text(program)
        adds = re.compile(rf"""\.add_argument\(\s*["']{re.escape(dashed)}["']""")
        inside = (path for path in self.programs if path.startswith(os.path.join(folder, "")))
        below = [(path, os.path.relpath(path, folder).split(os.sep)) for path in inside]
        found = [(path, parts, at) for path, parts in below if dashed in self.text(path) and (at := adds.search(self.text(path)))]
        if len(found) != 1 or flag.lstrip("-") in own or dashed in own:
            return None
        ((path, (top, *_), at),) = found
        text, imports = self.text(path), rf"^[ \t]*(?:from|import)[ \t]+{re.escape(top.removesuffix('.py'))}\b"
        if not _PARSES.search(text) or "sys.argv" in text or not re.search(imports, own, re.MULTILINE):
            return None
        if any(flag in self.text(other) for other, parts in below if parts[0] == top and "tests" not in parts):
            return None
        return f"{os.path.relpath(path).replace(os.sep, '/')}:{text.count(chr(10), 0, at.start()) + 1}"

    def uses(self, package: str) -> bool:
        """Whether a program imports a package, or a script names it where it does not install it."""
        if package not in self._used:
            self._used[package] = package in self._importers or self._is_named_in_scripts(package)
        return self._used[package]

    def _is_named_in_scripts(self, package: str) -> bool:
        word = re.compile(rf"(?<![\w-]){re.escape(package)}(?![\w-])")
        texts = (text for path in self.scripts if package in (text := self.text(path)))  # a hundredth of the time of the pattern
        return any(not _INSTALLS.search(_line_of(match)) for text in texts for match in word.finditer(text))

    @cached_property
    def _importers(self) -> dict[str, list[str]]:
        """The programs by each word in their lines that import."""
        found: dict[str, list[str]] = {}
        for path in self.programs:
            words = {word for line in _IMPORT.findall(self.text(path)) for word in _WORD.findall(line)}
            for word in words:
                found.setdefault(word, []).append(path)
        return found


_PARSES = re.compile(r"(?<!def )\bparse_args\(")

_WHOLE = 40
"""How many modules a package has at least that is there as a whole: LLaMA-Factory 0.1.7 has 47, and a posted job names a few."""

_SEAM = re.compile(r"""["']\s*\n\s*[rf]?["']""")
"""Between the parts of a text that is written over several lines."""

_INSTALLS = re.compile(r"\b(?:install|uninstall|add|sync)\b")
"""A line that installs packages: `pip install`, `conda install`, `uv add`."""


def _line_of(match: re.Match[str]) -> str:
    """The line in which a match begins, up to where the match ends."""
    return match.string[match.string.rfind("\n", 0, match.start()) + 1 : match.end()]


def _line_giving(text: str, argument: str, position: int) -> int | None:
    """The line of the first call of `deepspeed.initialize` in a program that is given an argument, by its name or at its position."""
    import ast  # few checks need it

    from dslint.source.posted import tree_of_text

    tree = tree_of_text(text)
    if tree is None:
        return None
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call) and ast.unparse(node.func) == "deepspeed.initialize"]
    for call in sorted(calls, key=lambda one: one.lineno):
        given = [one.value for one in call.keywords if one.arg == argument] + call.args[position : position + 1]
        if any(not (isinstance(value, ast.Constant) and value.value is None) for value in given):
            return call.lineno
    return None


def takes(text: str, key: str) -> bool:
    """Whether a program takes the value of a key out of a config: `config["key"]`, `config.get("key")`."""
    keys = (
        re.finditer(rf"""["']{re.escape(key)}["']""", text) if key in text else ()
    )  # a pattern for all of it takes a hundred times as long
    return any(_TAKEN_BY_METHOD.search(text, max(0, at.start() - _NEAR), at.start()) or _is_item(text, at) for at in keys)


_TAKEN_BY_METHOD = re.compile(r"\.(?:get|setdefault|pop)\([ \t]*\Z")
_OF_SOMETHING = re.compile(r"[\w\])][ \t]*\[[ \t]*\Z")
_CLOSED = re.compile(r"[ \t]*\]")
_NEAR = 40
"""The most characters from a method's dot, or the name before a bracket, to a key: `config.setdefault(    "key"`."""


def _is_item(text: str, key: re.Match[str]) -> bool:
    """Whether a key stands in brackets behind something: `config["key"]`, and not in a list."""
    return _CLOSED.match(text, key.end()) is not None and _OF_SOMETHING.search(text, max(0, key.start() - _NEAR), key.start()) is not None


def _module(path: str) -> tuple[str, str]:
    """The names of a program's module and of the folder that the module is in."""
    path = os.path.abspath(path).removesuffix(".py").removesuffix(f"{os.sep}__init__")
    return os.path.basename(path), os.path.basename(os.path.dirname(path))


def _importing(module: str, folder: str) -> re.Pattern[str]:
    """Matches lines that import a module: by its name, with the name of its folder before it, or from its folder."""
    name, above = re.escape(module), re.escape(folder)
    dotted = rf"(?:[\w.]*\b{above}\.|\.*){name}(?!\w)"
    member = rf"from[ \t]+(?:[\w.]*\b{above}|\.+)[ \t]+import\b[^\n#]*\b{name}\b"
    return re.compile(rf"^[ \t]*(?:from[ \t]+{dotted}|import[ \t]+(?:[^\n#]*[ ,])?{dotted}|{member})", re.MULTILINE)


def project_of(path: str) -> Project:
    """The project of a file."""
    top = top_of(path)
    return store().found(("project", top), lambda: Project(top))


def top_of(path: str) -> str:
    """The folder of the project of a file: its repository, or else the working directory if the file is below it, or else its folder."""
    folder, here = os.path.dirname(os.path.abspath(path)), os.getcwd()
    return store().listed(("top", folder, here), lambda: _top(folder, here))


def leads_out(path: str, *allowed: str) -> str | None:
    """Where a path leads if links lead it out of its project, and out of these other folders; None if it stays there.

    A link that may not be read, as those of other users' processes in /proc, leads out.
    """
    try:
        real = os.path.realpath(path)
    except OSError:
        return path
    inside = (os.path.join(os.path.realpath(top), "") for top in (top_of(path), *allowed))
    return None if any(real.startswith(top) for top in inside) else real


def _top(folder: str, here: str) -> str:
    above = folder
    while not os.path.exists(os.path.join(above, ".git")):
        above, before = os.path.dirname(above), above
        if above == before:
            return here if os.path.join(folder, "").startswith(os.path.join(here, "")) else folder
    return above


def _files(top: str) -> Iterator[str]:
    count = 0
    for folder, folders, files in os.walk(top):
        folders[:] = sorted(filter(is_searched, folders))
        for name in sorted(files):
            path = os.path.join(folder, name)
            if not os.path.islink(path) or leads_out(path, top) is None:
                yield path
        count += len(files)
        if count > _MOST_FILES:
            return


def _links(top: str) -> Iterator[tuple[str, str]]:
    """The links in a project that stay in it, each with where it leads."""
    for folder, folders, files in os.walk(top):
        folders[:] = sorted(filter(is_searched, folders))
        for path in (os.path.join(folder, name) for name in (*folders, *sorted(files))):
            if os.path.islink(path) and leads_out(path, top) is None:
                yield path, os.path.realpath(path)
