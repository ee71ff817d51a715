"""Which ranks of a program write a file: whether something around a call, or around the calls of its function, selects some of them.

The words of the program decide, in doubt for "some ranks": a rule says "all ranks" only where nothing near the call asks for a rank.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import TypeAlias

from dslint.config import Config
from dslint.evaluate.python.nodes import children
from dslint.job.events import Event
from dslint.record import Record
from dslint.rules.helpers.syntax import tree_of
from dslint.source.store import store

_ASKS = re.compile(
    r"rank|process|is_main|main_|\bmain\b|_main\b|master|chief|primary|leader|zero|should_|writer|root|world|distributed|\bdist\b|node|first|worker|coordinator",
    re.IGNORECASE,
)
"""Words of a condition, a decorator or a context that may select ranks."""

_COUNTS = re.compile(
    r"step|epoch|iter|loss|best|acc|score|metric|reward|exist|isfile|isdir|dir\b|path|folder|output|freq|every|interval|grad|lora|peft|adapter|"
    r"ema|merge|optim|sched|None|[<>]|%|name|mode|type",
    re.IGNORECASE,
)
"""What a condition has that does not: all ranks count the same steps. Any other one, as `if save_it:`, may hold what asks for a rank."""

OF_ONE_RANK = re.compile(
    r"rank|process|pid|uuid|host|temp|mkdtemp|mkstemp|time|now\(|date|random|shard|worker|local|node|gpu|device|bytesio|buffer|wandb|null|stdout|fifo",
    re.IGNORECASE,
)
"""What makes a path another one on each rank, or what is not a file."""

_LEAVES = ast.Return | ast.Raise | ast.Continue | ast.Break
_EXITS = re.compile(r"(\w+\.)*_?(exit|quit|abort)\(")
_OF_LIBRARIES = ("torch.", "np.", "json.", "accelerator.", "safetensors.")
_DEEPEST = 4

_RUN_A_FUNCTION = ("Fire", "run", "CLI", "cli")
"""What calls a function that it is given: `fire.Fire(main)`, `typer.run(main)`, `jsonargparse.CLI(main)`."""

_Function: TypeAlias = ast.FunctionDef | ast.AsyncFunctionDef


class Site(Record):
    """A call in a file: its tree, the nodes around it from the outermost, and itself."""

    tree: ast.Module
    around: tuple[ast.AST, ...]
    call: ast.Call

    @property
    def function(self) -> ast.AST:
        """The function around the call; the file, if there is none."""
        return next((one for one in reversed(self.around) if isinstance(one, _Function)), self.tree)


class Writes:
    """The Python files of a setup."""

    def __init__(self, config: Config) -> None:
        paths = config.setup.documents if config.setup is not None else ()
        self._trees = {path: tree for path in paths if (tree := tree_of(config, path)) is not None}

    def site(self, event: Event) -> Site | None:
        """The place of an event; None if its file is not read."""
        tree, place = self._trees.get(event.at.path), event.at.range
        if tree is None or place is None:
            return None
        found = _calls(tree).on_lines.get((place.start.line, place.end.line), ())
        names = event.name.rpartition(".")[2]
        return next((one for one in found if ast.unparse(one.call.func).endswith(names)), None)

    def on_all_ranks(self, site: Site, depth: int = 0) -> bool:
        """Whether nothing selects the ranks that come to a call: neither around it, nor where its function is called."""
        if _is_selected(site):
            return False
        function = site.function
        if not isinstance(function, _Function) or depth >= _DEEPEST:
            return True
        callers = self._callers(function)
        return not callers or any(self.on_all_ranks(one, depth + 1) for one in callers)

    def _callers(self, function: _Function) -> list[Site]:
        """The calls of a function, or of another one with its name."""
        found = [one for tree in self._trees.values() for one in _calls(tree).of_name.get(function.name, ())]
        return [one for one in found if function not in one.around and not ast.unparse(one.call.func).startswith(_OF_LIBRARIES)]

    def calls_of(self, *names: str) -> Iterator[tuple[str, Site]]:
        """The calls of functions and methods with these names, with the file of each, in the order of the lines."""
        for path, tree in self._trees.items():
            sites = (site for name in names for site in _calls(tree).of_name.get(name, ()))
            yield from ((path, site) for site in sorted(sites, key=lambda one: one.call.lineno))

    def is_of(self, site: Site, value: ast.expr, form: re.Pattern[str]) -> bool:
        """Whether a value has a form, as it stands or as its name is set, or annotated, in the file."""
        text = ast.unparse(value)
        if form.search(text):
            return True
        return any(name == text and form.search(ast.unparse(one)) for name, one in _assigned(site.tree))

    def is_reached_on_all_ranks(self, site: Site, program: str, depth: int = 0) -> bool:
        """Whether a call is seen to be reached from the program, and nothing on the way selects ranks."""
        if _is_selected(site) or depth > _DEEPEST:
            return False
        function = site.function
        if isinstance(function, _Function):
            return any(self.is_reached_on_all_ranks(one, program, depth + 1) for one in self._passing(function))
        own = self._trees.get(program)
        return site.tree is own or not any(isinstance(one, ast.If) and "__name__" in ast.unparse(one.test) for one in site.around)

    def _passing(self, function: _Function) -> Iterator[Site]:
        """The calls of a function, and those that get it to call it: `fire.Fire(main)`."""
        yield from self._callers(function)
        for name in _RUN_A_FUNCTION:
            for tree in self._trees.values():
                sites = _calls(tree).of_name.get(name, ())
                yield from (one for one in sites if any(isinstance(arg, ast.Name) and arg.id == function.name for arg in one.call.args))

    def is_one_file(
        self, site: Site, written: ast.expr, depth: int = 0, seen: frozenset[str] = frozenset(), *, but: re.Pattern[str] | None = None
    ) -> bool:
        """Whether nothing makes a path another one on each rank: neither its words, nor what its names are set to, nor what callers give.

        Words that match `but` do not count.
        """
        text = ast.unparse(written)
        if OF_ONE_RANK.search(text if but is None else but.sub("", text)):
            return False
        names = {ast.unparse(one) for one in ast.walk(written) if isinstance(one, ast.Name | ast.Attribute)} - seen
        if depth >= _DEEPEST:
            return True
        seen |= names
        if not all(self.is_one_file(site, value, depth + 1, seen, but=but) for name, value in _set_for(site) if name in names):
            return False
        function = site.function
        given = function.args if isinstance(function, _Function) else None
        parameters = [one.arg for one in (*given.posonlyargs, *given.args, *given.kwonlyargs)] if given is not None else []
        taken = {one: number for number, one in enumerate(parameters) if one in names and one not in ("self", "cls")}
        if not isinstance(function, _Function) or not taken:
            return True
        is_method = bool(parameters) and parameters[0] in ("self", "cls")
        for caller in self._callers(function):
            for name, number in taken.items():
                place = number - 1 if is_method else number
                by_name = next((one.value for one in caller.call.keywords if one.arg == name), None)
                passed = by_name if by_name is not None else caller.call.args[place] if place < len(caller.call.args) else None
                if passed is not None and not self.is_one_file(caller, passed, depth + 1, seen, but=but):
                    return False
        return True


def _is_selected(site: Site) -> bool:
    """Whether something in the function of a call, or in its file outside of functions, may keep some ranks from it."""
    inside = list(site.around)
    start = next((number for number in range(len(inside) - 1, -1, -1) if isinstance(inside[number], _Function)), 0)
    function = inside[start]
    if isinstance(function, _Function) and (
        any(_ASKS.search(ast.unparse(one)) and "hydra" not in ast.unparse(one) for one in function.decorator_list)
        or re.search(r"rank|main_proc|master|^_save$", function.name)
    ):
        return True
    for outer, inner in zip(inside[start:], (*inside[start + 1 :], site.call), strict=True):
        if isinstance(outer, ast.If | ast.While | ast.IfExp) and (inner is outer.test or _may_select(outer.test)):
            return True
        if isinstance(outer, ast.With | ast.AsyncWith) and any(
            re.search(r"rank|main_process_only|only_", ast.unparse(one)) for one in outer.items
        ):
            return True
        for body in (getattr(outer, name, None) for name in ("body", "orelse", "finalbody")):
            if isinstance(body, list) and inner in body and any(_keeps_out(one) for one in body[: body.index(inner)]):
                return True
    return False


def _may_select(test: ast.expr) -> bool:
    text = ast.unparse(test)
    if "__name__" in text:
        return False
    return _ASKS.search(text) is not None or _COUNTS.search(text) is None


def _keeps_out(statement: ast.stmt) -> bool:
    """Whether a statement before a call may end the function, or the program, on some ranks."""
    if isinstance(statement, ast.Assert):
        return _may_select(statement.test)
    if not isinstance(statement, ast.If) or not _may_select(statement.test):
        return False
    last = [body[-1] for body in (statement.body, statement.orelse) if body]
    return any(isinstance(one, _LEAVES) or _EXITS.match(ast.unparse(one)) for one in last)


def _called(call: ast.Call) -> str:
    return call.func.attr if isinstance(call.func, ast.Attribute) else call.func.id if isinstance(call.func, ast.Name) else ""


class _Calls:
    """The calls of a file, with the nodes around each: by their lines, and by what they call."""

    def __init__(self, tree: ast.Module) -> None:
        self.on_lines: dict[tuple[int, int | None], list[Site]] = {}
        self.of_name: dict[str, list[Site]] = {}
        waiting: list[tuple[ast.AST, tuple[ast.AST, ...]]] = [(tree, ())]
        while waiting:
            node, around = waiting.pop()
            if isinstance(node, ast.Call):
                site = Site(tree, around, node)
                self.on_lines.setdefault((node.lineno, node.end_lineno), []).append(site)
                self.of_name.setdefault(_called(node), []).append(site)
            waiting += [(one, (*around, node)) for one in children(node)]


def _calls(tree: ast.Module) -> _Calls:
    """The calls of a file, found once a run: a project has many configs for a program."""
    return store().parsed(("calls around", tree), lambda: _Calls(tree))


def _assigned(tree: ast.AST) -> list[tuple[str, ast.expr]]:
    """What names and attributes are set to in a file, found once a run."""
    return store().parsed(("assigned", tree), lambda: list(_assignments(tree)))


def _set_for(site: Site) -> list[tuple[str, ast.expr]]:
    """What names are set to where a call uses them: in its function, or anywhere in the file if the function sets them nowhere."""
    own = _assigned(site.function)
    known = {name for name, _ in own}
    return [*own, *(one for one in _assigned(site.tree) if one[0] not in known)]


def _assignments(tree: ast.AST) -> Iterator[tuple[str, ast.expr]]:
    """What names and attributes are set to in a file; a context that gets a name counts as well."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign):
            yield from ((ast.unparse(one), node.value) for one in node.targets)
        elif isinstance(node, ast.AugAssign | ast.AnnAssign) and node.value is not None:
            yield ast.unparse(node.target), node.value
        elif isinstance(node, ast.withitem) and node.optional_vars is not None:
            yield ast.unparse(node.optional_vars), node.context_expr
