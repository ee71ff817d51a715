"""Which places of a program the flags of its launch leave out."""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Callable, Iterator, Mapping
from functools import cached_property, partial
from typing import Any

from dslint.evaluate.files import find
from dslint.evaluate.python.evaluate import ProgramState
from dslint.evaluate.python.files import text_of
from dslint.evaluate.python.sources import SourceFile
from dslint.evaluate.python.words import ALL_FLAGS, is_default, name_of_flag
from dslint.record import Record
from dslint.source.searched import matches_in
from dslint.source.store import store
from dslint.source.tree import Span
from dslint.source.unknown import UNKNOWN

_COMPARES: dict[type[ast.cmpop], Callable[[Any, Any], bool]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Is: operator.is_,
    ast.IsNot: operator.is_not,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
}


class Untaken:
    """The branches of a program that no turn of it takes, or that options leave out which have their defaults.

    It outlives the state of the program, of which it keeps only what it reads.
    """

    def __init__(self, state: ProgramState) -> None:
        self.sources = state.sources.all
        self.flags = state.flags
        self.reset = state.reset
        self._branches = [branch for node, branch in state.skipped.items() if branch.body and node not in state.taken_later]

    @cached_property
    def _skipped(self) -> list[Span]:
        """Where the branches are written that no turn of the program takes."""
        return [Span(one.source.span(one.body[0]).start, one.source.span(one.body[-1]).end) for one in self._branches]

    @cached_property
    def _defaults(self) -> dict[str, Any]:
        return _defaults(self)

    def places(self, pattern: re.Pattern[str], source: SourceFile) -> Iterator[tuple[re.Match[str], Span]]:
        """Where a pattern matches in a file, outside of comments and of these branches."""
        for match in matches_in(pattern, source.text):
            place = Span(source.base + match.start(), source.base + match.end())
            if "#" in source.text[source.text.rfind("\n", 0, match.start()) + 1 : match.start()]:
                continue
            is_skipped = any(branch.start <= place.start < branch.end for branch in self._skipped)
            if not is_skipped and not _is_left_by_default(source, place, self._defaults):
                yield match, place


def _is_left_by_default(source: SourceFile, place: Span, defaults: Mapping[str, Any]) -> bool:
    """Whether a place is in a branch that options leave out which have their defaults, wherever the condition gets them from."""
    if not defaults or source.parsed.tree is None:
        return False
    at = place.start - source.base
    for start, end, test, taken in store().parsed(("branches", source.parsed.tree), partial(_branches, source, source.parsed.tree)):
        if start <= at < end:
            holds = _holds(test, defaults)
            if holds is not None and holds is not taken:
                return True
    return False


def _branches(source: SourceFile, tree: ast.Module) -> tuple[tuple[int, int, ast.expr, bool], ...]:
    """The branches of a file: where they are in its own text, their conditions, and whether these hold there. Found once a run."""
    found: list[tuple[int, int, ast.expr, bool]] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.If | ast.IfExp):
            for branch, taken in ((node.body, True), (node.orelse, False)):
                parts = branch if isinstance(branch, list) else [branch]
                if parts:
                    start, end = source.span(parts[0]).start, source.span(parts[-1]).end
                    found.append((start - source.base, end - source.base, node.test, taken))
    return tuple(found)


def _holds(test: ast.expr, defaults: Mapping[str, Any]) -> bool | None:
    """Whether a condition on options holds that have their defaults: `args.freeze_layers > 0`; None if it is about anything else."""
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        holds = _holds(test.operand, defaults)
        return None if holds is None else not holds
    if isinstance(test, ast.BoolOp):
        found = [_holds(one, defaults) for one in test.values]
        decides = isinstance(test.op, ast.Or)
        return decides if decides in found else None if None in found else not decides
    if isinstance(test, ast.Attribute):
        return bool(defaults[test.attr]) if test.attr in defaults else None
    if isinstance(test, ast.Compare) and len(test.ops) == 1 and isinstance(test.left, ast.Attribute) and test.left.attr in defaults:
        compares, right = _COMPARES.get(type(test.ops[0])), test.comparators[0]
        if compares is not None and isinstance(right, ast.Constant):
            try:
                return bool(compares(defaults[test.left.attr], right.value))
            except TypeError:
                return None
    return None


def _defaults(program: Untaken) -> dict[str, Any]:
    """The options in the files of a program that the launch leaves at their defaults, by their names; {} if not the whole command is
    known.

    What may set an option in another way leaves it out: an assignment, or a file with its name that the program reads or the command
    gives.
    """
    if ALL_FLAGS not in program.flags:
        return {}
    added: dict[str, list[_Option]] = {}
    by_class = any("HfArgumentParser" in source.text for source in program.sources)
    for source in program.sources:
        if source.parsed.tree is not None and ("add_argument(" in source.text or (by_class and "class " in source.text)):
            for one in store().parsed(("options", source.text), partial(_options, source.parsed.tree)):
                if by_class or not one.of_class:
                    added.setdefault(one.name, []).append(one)
    found = {name: options[0].default for name, options in added.items() if name not in program.reset and _agree(options, program)}
    for source in program.sources:
        sets = _set_in_file if source.path.endswith((".json", ".yaml", ".yml")) else _set_in_program
        for name in store().parsed(("set", source.text), partial(sets, source.text)):
            found.pop(name, None)
    for given in program.flags.values():
        linked = find(given, program.sources[0].path) if isinstance(given, str) and "." in given else None
        for name in _set_in_file(text_of(linked.path) or "") if linked is not None else ():
            found.pop(name, None)
    return found


def _agree(options: list[_Option], program: Untaken) -> bool:
    """Whether parsers agree on the default of an option, and the launch leaves it there."""
    defaults = {repr(one.default) for one in options}
    return (
        len(defaults) == 1
        and options[0].default is not UNKNOWN
        and all(is_default(flag, program.flags) for one in options for flag in one.flags)
    )


_SETS = re.compile(
    r"(?<!\bself)\.(?P<attribute>\w+)\s*\|?=(?!=)(?!\s*[\w.]+\.(?P=attribute)\b)"
    r"""|\[["'](?P<item>\w+)["']\]\s*=(?!=)|(?:set_defaults|\.update)\((?P<defaults>[^)]*)\)"""
)
"""What sets an option in a program, besides the command; `config.use_lora = args.use_lora` copies one."""
_KEYS = re.compile(r"""["'](?P<quoted>\w+)["']\s*:|^[ \t-]*(?P<plain>\w+)[ \t]*[:=]""", re.MULTILINE)
"""The keys of JSON, YAML and TOML."""


def _set_in_program(text: str) -> frozenset[str]:
    """The names of options that the text of a program may set."""
    names: set[str] = set()
    for match in _SETS.finditer(text):
        names |= set(re.findall(r"(\w+)\s*=", match["defaults"] or "")) | {match["attribute"] or match["item"] or ""}
    return frozenset(names)


def _set_in_file(text: str) -> frozenset[str]:
    """The names of options that a file of another kind may set."""
    return frozenset(match["quoted"] or match["plain"] for match in _KEYS.finditer(text))


class _Option(Record):
    """An option: the names of its flags, the name under which it is stored, and its default, UNKNOWN if only the run knows it."""

    flags: tuple[str, ...]
    name: str
    default: Any
    of_class: bool = False
    """Whether it is a field of a class of arguments."""


def _options(tree: ast.Module) -> tuple[_Option, ...]:
    """The options that a file adds to parsers, and the fields of its classes."""
    return tuple(_all_options(tree))


def _all_options(tree: ast.Module) -> Iterator[_Option]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "add_argument":
            words = [one.value for one in node.args if isinstance(one, ast.Constant) and isinstance(one.value, str)]
            keywords = {one.arg: one.value for one in node.keywords}
            long = [one for one in words if one.startswith("--")]
            if long:
                name = _plain(keywords["dest"]) if "dest" in keywords else name_of_flag(long[0])
                yield _Option(tuple(map(name_of_flag, long)), str(name), _default_of(keywords))
        elif isinstance(node, ast.ClassDef):
            for one in node.body:
                if isinstance(one, ast.AnnAssign) and isinstance(one.target, ast.Name) and one.value is not None:
                    yield _Option((one.target.id,), one.target.id, _default_of_field(one.value), of_class=True)


def _default_of(keywords: Mapping[str | None, ast.expr]) -> Any:
    """The default of a flag of argparse."""
    action = _plain(keywords.get("action"))
    if "default" in keywords:
        return _plain(keywords["default"])
    if None in keywords or "required" in keywords or action not in (None, "store", "store_true", "store_false"):
        return UNKNOWN
    return {"store_true": False, "store_false": True}.get(action or "")


def _default_of_field(value: ast.expr) -> Any:
    """The default of a field of a dataclass: a value, or that of `field(default=...)`."""
    if isinstance(value, ast.Call):
        return next((_plain(one.value) for one in value.keywords if one.arg == "default"), UNKNOWN)
    return _plain(value)


def _plain(node: ast.expr | None) -> Any:
    """The value of a literal; UNKNOWN of anything else, and None if there is none."""
    return None if node is None else node.value if isinstance(node, ast.Constant) else UNKNOWN
