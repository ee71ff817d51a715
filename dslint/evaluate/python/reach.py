"""Whether a program can reach a call that takes a config or runs a command, by its words and those of the modules that it imports.

Repositories have many programs that mention DeepSpeed, and few that pass it a config: of the 866 that a check of the sources of DeepSpeed
0.19.8 followed, 2 did, and of 67 of LLaMA-Factory, 4. To follow a program costs ten to a hundred times what it costs to read its words,
so those that cannot reach such a call are not followed.

The answer errs to one side. A function is taken to call every function whose name stands in it, from wherever the program imports that;
only imports and documentation are left out, and annotations with classes of which they make no object. So "no" is certain, and "yes" may
be wrong.
"""

from __future__ import annotations

import itertools
import re
from typing import NamedTuple

from dslint.evaluate.files import find
from dslint.evaluate.python.files import text_of
from dslint.evaluate.python.modules import files_of_module, is_library, named_in
from dslint.evaluate.python.sources import Source
from dslint.schemas.framework_commands import COMMANDS
from dslint.source.store import store

_TEXTS = re.compile(
    r'^([ \t]*)[rRbBuU]{0,2}"""(?:[^"\\]|\\.|"(?!""))*+(?:""")?'
    r"|^([ \t]*)[rRbBuU]{0,2}'''(?:[^'\\]|\\.|'(?!''))*+(?:''')?"
    r'|"""(?:[^"\\]|\\.|"(?!""))*+(?:""")?'
    r"|'''(?:[^'\\]|\\.|'(?!''))*+(?:''')?"
    r'|"(?:[^"\\\n]|\\.)*+"?'
    r"|'(?:[^'\\\n]|\\.)*+'?"
    r"|#[^\r\n]*",
    re.DOTALL | re.MULTILINE,
)
"""Strings and comments. A string that begins a line in three quotes is documentation."""

_IMPORTS = re.compile(
    r"^([ \t]*)(?:from[ \t]+([.\w]+)[ \t]+import[ \t]*(\([^()]*\)|(?:[^\n\\;]|\\\r?\n)*)|import[ \t]+((?:[^\n\\;]|\\\r?\n)*))", re.MULTILINE
)
_ADDS_FOLDER = re.compile(r"\bsys\s*\.\s*path\s*(?:\.|\+=|\[[^\]]*\]\s*=)")

_NAME = re.compile(r"([\w.*]+)(?:\s+as\s+\w+)?")
_AS = re.compile(r"([\w.]+)\s+as\s+(\w+)")

_TOP = re.compile(r"^(?=[^\s)\]}\"'])", re.MULTILINE)
"""Where a statement at the top of a file begins."""

_DEFINES = re.compile(r"(?:(?:async[ \t]+)?def|(class))[ \t]+(\w+)")

_ARGUMENTS = re.compile(r"(?:Arguments|Config)\b")
_SETS_ITSELF = re.compile(r"\bself\.deepspeed\s*=(?!=)")
"""Training arguments that set what names the config; in any other class `self.deepspeed` is DeepSpeed's engine."""

_INHERITED = re.compile(r"DeepSpeed(?:Config|Plugin|Strategy)\b")

_WORD = re.compile(r"""((?<=[\w)])[ \t]*:[ \t]+["']?|->\s*["']?|(?<=\w)\[["']?|\|[ \t]*["']?)?([^\W\d]\w*)([ \t]*\()?""")
"""A name, with what stands before it in an annotation, and the parenthesis of a call behind it."""

_TAKES = re.compile(
    r"\bdeepspeed\s*\.\s*initialize\b|[\"']initialize[\"']"
    r"|(?:Hf|HfTrainer)?DeepSpeedConfig\s*\(|\w*DeepSpeed(?:Plugin|Strategy)\s*\(|\bDeepspeedTorchDistributor\b"
    r"|=\s*[\"']?[\w.]*DeepSpeed(?:Config|Plugin|Strategy)\b"
    r"|ACCELERATE_DEEPSPEED_CONFIG_FILE"
    r"|(?<!self\.)\bdeepspeed\s*=(?!=)|^\s*deepspeed\s*:|[\"']deepspeed[\"']\s*(?::|\]\s*=)|setattr\([^()]*[\"']deepspeed[\"']"
    r"|\bparse_(?:json_file|yaml_file)\b",
    re.MULTILINE,
)
"""What stands where a call takes a config or names one to the Trainer; see `record.Recorder.receive`."""

_LIGHTNING = re.compile(r"\b(?:Trainer|Fabric)\s*\(")
_STRATEGY = re.compile(r"\bstrategy\s*=|\*\*")
"""Lightning's trainer with a strategy, which DeepSpeed is one of."""

_UNPACKS = re.compile(r"(?:Arguments|Config)\s*\(\s*(?:[^()]*,\s*)?\*\*")
_LOADS = re.compile(r"load|OmegaConf")
"""Training arguments that are unpacked from a dict, and what reads one from a file, where the name of the config stands."""

_RUNNING = re.compile(r"\bsubprocess\s*\.|\bos\s*\.\s*(?:system|popen)\b|\bcheck_(?:call|output)\b|\bPopen\b")
"""What runs a command."""

_STARTS = "|".join(("deepspeed", "torchrun", r"torch\.distributed", "accelerate", *map(re.escape, COMMANDS)))
_LAUNCHER = re.compile(rf"[\"'](?:[^\"'\n]*[\s/=}}])?(?:{_STARTS})(?=[\"'\s{{.])")
"""A string that can be the beginning of a command that launches a training."""

_IMPORTED = frozenset(
    """
    deepspeed DeepSpeedConfig HfDeepSpeedConfig HfTrainerDeepSpeedConfig DeepSpeedPlugin DeepSpeedStrategy DeepspeedTorchDistributor
    """.split()
)
"""What a program may import under another name: a use of that is a use of a config."""

_RUNS = frozenset({"run", "call", "check_call", "check_output", "Popen", "system", "popen"})

_NAMED = re.compile(
    r"^(?:(?:async[ \t]+)?def[ \t]+)?\w*(?:ds|deepspeed)_?(?:config|cfg)\w*[ \t]*[(=:]|^strategy[ \t]*=", re.IGNORECASE | re.MULTILINE
)
"""A variable or a function at the top of a file that is a config by its name, or MMEngine's `strategy`; see `follow._definitions`."""


class _Part(NamedTuple):
    """A function or a class at the top of a file, or with "" as its name the other statements there.

    `takes` says whether a call in it takes a config, `runs` whether one runs a command. `annotations` are the words that stand only in
    annotations, and `bases` those of what a class inherits from; None for anything else.
    """

    name: str
    takes: bool
    runs: bool
    words: frozenset[str]
    annotations: frozenset[str]
    bases: frozenset[str] | None


class _Outline:
    """What follows from the text of a file alone."""

    def __init__(self, text: str) -> None:
        plain = _TEXTS.sub(_without_prose, text)
        self.adds_folders = bool(_ADDS_FOLDER.search(plain))
        self.launcher = bool(_LAUNCHER.search(plain))
        self.names_config = bool(_NAMED.search(plain))
        self.imports: list[tuple[str, tuple[str, ...]]] = []
        self.aliases: list[tuple[str, str]] = []
        runs: set[str] = set()
        self.initialize = False
        """Whether it imports `deepspeed.initialize` by its name."""
        for _, module, names, modules in _IMPORTS.findall(plain):
            self.aliases += [(name.rpartition(".")[2], alias) for name, alias in _AS.findall(names or modules)]
            listed = _NAME.findall(names or modules)
            if module:
                self.imports.append((module, tuple(listed)))
                if module in ("subprocess", "os"):
                    runs |= _RUNS.intersection(listed) | {alias for name, alias in _AS.findall(names) if name in _RUNS}
                self.initialize |= module == "deepspeed" and not {"initialize", "*"}.isdisjoint(listed)
            else:
                self.imports += [(one, ()) for one in listed]
                runs |= {alias for name, alias in _AS.findall(modules) if name in ("subprocess", "os")}
        plain = _IMPORTS.sub(r"\1pass", plain)
        starts = [match.start() for match in _TOP.finditer(plain)]
        rest: list[str] = [plain[: starts[0]] if starts else plain]
        self.parts: list[_Part] = []
        for start, end in itertools.pairwise([*starts, len(plain)]):
            named = _DEFINES.match(plain, start)
            if named is None:
                rest.append(plain[start:end])
            else:
                self.parts.append(_part(named[2], plain[named.end() : end], runs, is_class=named[1] is not None))
        self.top = _part("", "".join(rest), runs)


def _without_prose(found: re.Match[str]) -> str:
    if found[0].startswith("#"):
        return ""
    indent = found[1] if found[1] is not None else found[2]
    return found[0] if indent is None else f'{indent}""'


def _part(name: str, text: str, runs: set[str], *, is_class: bool = False) -> _Part:
    words: set[str] = set()
    annotations: set[str] = set()
    for before, word, called in _WORD.findall(text):
        (words if called or not before else annotations).add(word)
    pairs = ((_UNPACKS, _LOADS), (_LIGHTNING, _STRATEGY))
    takes = bool(_TAKES.search(text)) or any(one.search(text) and other.search(text) for one, other in pairs)
    head = text.partition(":")[0]
    if is_class and not takes:
        takes = bool(_INHERITED.search(head) or (_ARGUMENTS.search(name + head) and _SETS_ITSELF.search(text)))
    bases = frozenset(re.findall(r"\w+", head)) if is_class else None
    runs_any = bool(_RUNNING.search(text)) or not runs.isdisjoint(words)
    return _Part(name, takes, runs_any, frozenset(words), frozenset(annotations - words), bases)


class _File:
    """A file with the names of what reaches a call that takes a config, in itself (`own`) and in all that it imports (`names`).

    `runners` are the names of what runs a command, which may be one that another file passes.
    """

    def __init__(self, path: str, text: str) -> None:
        self.path = path
        self.outline = store().parsed(("outline", text), lambda: _Outline(text))
        self.imports: list[_File] = []
        taking = {*_IMPORTED, "initialize"} if self.outline.initialize else _IMPORTED
        self.own = {alias for name, alias in self.outline.aliases if name in taking} | (taking - _IMPORTED)
        self.names = set(self.own)
        self.runners: set[str] = set()
        self.classes: set[str] = set()
        """Those of `names` of which an annotation makes an object: classes without one of a library among their bases."""
        self.libraries: set[str] = set()
        """The names that it imports from libraries."""
        self.on_import = False
        """Whether to import the file is enough."""

    def update(self) -> bool:
        """Take over what is known of the imports. Returns whether that changes something."""
        before = self._sizes
        for one in self.imports:
            self.names |= one.names
            self.classes |= one.classes
            self.runners |= one.runners
            self.on_import |= one.on_import
        self.own |= {alias for name, alias in self.outline.aliases if name in self.names}
        self.runners |= {alias for name, alias in self.outline.aliases if name in self.runners}
        self.classes |= {alias for name, alias in self.outline.aliases if name in self.classes}
        launches = self.outline.launcher or any(one.outline.launcher for one in self.imports)
        for part in self.outline.parts:
            if part.name not in self.own and self._reaches(part, launches=launches):
                self.own.add(part.name)
                if part.bases is not None and part.bases.isdisjoint(self.libraries):
                    self.classes.add(part.name)
            if part.runs or not self.runners.isdisjoint(part.words):
                self.runners.add(part.name)
        self.names |= self.own
        self.on_import |= self.outline.adds_folders or self._reaches(self.outline.top, launches=launches)
        return before != self._sizes

    @property
    def _sizes(self) -> tuple[int, ...]:
        return len(self.names), len(self.own), len(self.runners), len(self.classes), self.on_import

    def _reaches(self, part: _Part, *, launches: bool) -> bool:
        runs = launches and (part.runs or not self.runners.isdisjoint(part.words))
        return part.takes or runs or not self.names.isdisjoint(part.words) or not self.classes.isdisjoint(part.annotations)


class _Reach:
    """The files of a run that were asked about, with all that they import."""

    def __init__(self) -> None:
        self.files: dict[str, _File | None] = {}

    def file(self, path: str, text: str | None) -> _File | None:
        """A file with what it reaches; None if it cannot be read."""
        if path not in self.files:
            found: list[_File] = []
            self._add(path, text, found)
            changed = True
            while changed:
                changed = sum(one.update() for one in reversed(found)) > 0
        return self.files[path]

    def _add(self, path: str, text: str | None, found: list[_File]) -> None:
        """Add a file and those that it imports, the importing ones first."""
        waiting: list[tuple[str, str | None, _File | None]] = [(path, text, None)]
        while waiting:
            path, text, importer = waiting.pop()
            if path not in self.files:
                text = text_of(path) if text is None else text
                self.files[path] = added = _File(path, text) if text is not None else None
                if added is not None:
                    found.append(added)
                    waiting += [(one, None, added) for one in _imported(added)]
                    added.libraries |= {alias for name, alias in added.outline.aliases if name in added.libraries}
            if importer is not None and (known := self.files[path]) is not None:
                importer.imports.append(known)


def _imported(file: _File) -> list[str]:
    """The paths of the files that the imports of a file can mean."""
    found: dict[str, None] = {}
    for module, names in file.outline.imports:
        name = module.lstrip(".")
        level = len(module) - len(name)
        before = len(found)
        if is_library(name, level):
            file.libraries.update(names or (name.partition(".")[0],))
            continue
        beside = named_in(file.path, level)
        for one in (name, *(f"{name}.{inner}" if name else inner for inner in names)):
            linked = next((linked for link in files_of_module(one) if (linked := find(link, beside)) is not None), None)
            if linked is not None and linked.path != file.path:
                found[linked.path] = None
        if len(found) == before and not level:
            file.libraries.update(names or (name.partition(".")[0],))
    return list(found)


def may_take_config(text: str, path: str) -> bool:
    """Whether a program, or what it imports, can reach a call that takes a config or runs a command. False is certain.

    Args:
        text: the text of the program.
        path: where it is; modules are found from there.
    """
    reach = store().found(("reach",), _Reach)
    found = reach.file(path, text)
    return found is None or found.on_import or bool(found.own) or found.outline.names_config


def is_broken(text: str, path: str, shown: str) -> bool:
    """Whether a line of a program is not Python."""
    return Source(text, path, shown, 0).parsed.broken is not None
