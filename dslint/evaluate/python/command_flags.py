"""The flags of functions that click, typer, Fire, tyro or Hydra runs as the command of a program: each refuses all others."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable
from dataclasses import replace

from dslint.evaluate.python.calls import Argument, CallOf
from dslint.evaluate.python.evaluate import ProgramState, evaluate
from dslint.evaluate.values import Constant, Library, Scope, Unknown

FLAGS_OF_COMMAND = "click.flags"
"""The event of a function that click or typer runs with the command line; its arguments are named after its flags."""

FLAGS_OF_FIRE = "fire.flags"
"""The event of a function that Fire calls; its arguments are named after its flags."""

FLAGS_OF_TYRO = "tyro.flags"
"""The event of a call of `tyro.cli`; its arguments are named after its flags, and those of a class in a class begin with one and a dot."""

FLAGS_OF_HYDRA = "hydra.flags"
"""The event of a function that Hydra's parser runs; its arguments are named after Hydra's flags, the only ones that it knows."""

_HYDRAS = (
    *("--help", "--hydra-help", "--version", "--cfg", "--resolve", "--package", "--run", "--multirun", "--shell-completion"),
    *("--config-path", "--config-name", "--config-dir", "--experimental-rerun", "--info"),
)
"""Source: hydra/_internal/utils.py, get_args_parser."""

OF_TYPER = frozenset({"--install-completion", "--show-completion"})
"""The flags that typer adds itself, beside `--help`."""

_CLICK = frozenset({"click.option", "click.argument"})

_TAKES_OTHERS = re.compile(
    r"ignore_unknown_options|token_normalize_func|\bcls\s*=|context_settings\s*=\s*(?!\{|dict\()|\.callback\(|add_typer\("
)
"""What lets a command take other flags, or makes it one of several."""


def note_command(state: ProgramState, node: ast.FunctionDef | ast.AsyncFunctionDef, scope: Scope) -> None:
    """Note a function that click, typer or Hydra runs as the only command of the program, and that refuses all flags but its own."""
    if scope.source is not state.sources.all[0] or scope.function is not None:
        return
    _note_hydra(state, node, scope)
    flags: set[str] = set()
    found: ast.Call | None = None
    called = node.name
    for decorator in node.decorator_list:
        if not isinstance(decorator, ast.Call):
            return
        function = evaluate(state, decorator.func, scope)
        name = function.name if isinstance(function, Library) else ""
        if name in _CLICK:
            given = [evaluate(state, one, scope) for one in decorator.args]
            flags |= {flag for one in given if isinstance(one, Constant) for flag in str(one.value).split("/")}
        elif name == "click.command":
            found = decorator
        elif _is_of_typer(state, decorator.func, scope):
            found, called = decorator, ast.unparse(decorator.func).rpartition(".")[0]
            flags |= flags_of_typer(node) | OF_TYPER
        else:
            return  # it may pass on what the command does not know
    text = scope.source.text
    if found is not None and not _TAKES_OTHERS.search(text) and is_called(called, text):
        note_flags(state, CallOf(found, scope, FLAGS_OF_COMMAND, scope.source.span(found)), FLAGS_OF_COMMAND, flags)


def note_flags(state: ProgramState, call: CallOf, name: str, flags: Iterable[str]) -> None:
    """Add the event of a parser that refuses all flags but these."""
    named = {one: Argument(Constant(one), call.span, call.span) for one in sorted(flags)}
    state.note(replace(call, name=name, arguments=[], keywords=named), None)


def takes_no_others(node: ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda) -> bool:
    """Whether a function has only named parameters."""
    return node.args.vararg is None and node.args.kwarg is None


def flags_of_typer(node: ast.FunctionDef | ast.AsyncFunctionDef) -> set[str]:
    """The flags that typer makes of the parameters of a function: with dashes (`--local-rank`), unless it names others itself."""
    given = node.args
    defaults = dict(zip([one.arg for one in reversed(given.args)], reversed(given.defaults), strict=False))
    defaults |= {one.arg: default for one, default in zip(given.kwonlyargs, given.kw_defaults, strict=True) if default is not None}
    flags: set[str] = set()
    for one in (*given.args, *given.kwonlyargs):
        parts = [part for part in (one.annotation, defaults.get(one.arg)) if part is not None]
        made_by = {ast.unparse(call.func).rpartition(".")[2] for part in parts for call in ast.walk(part) if isinstance(call, ast.Call)}
        if "Argument" in made_by or (one.arg not in defaults and "Option" not in made_by):
            continue
        words = [word.value for part in parts for word in ast.walk(part) if isinstance(word, ast.Constant)]
        named = {flag for word in words if isinstance(word, str) and word.startswith("-") for flag in word.split("/")}
        plain = one.arg.replace("_", "-")
        flags |= named or {f"--{plain}", f"--no-{plain}"}
    return flags


def is_called(name: str, text: str) -> bool:
    """Whether a program calls the function of a command with the command line, not with words of its own."""
    return re.search(rf"(?m)^\s*(?:\w+\s*=\s*|(?:sys\.)?exit\()?{re.escape(name)}\(\s*(?:\)|(?!args\b)\w+\s*=)", text) is not None


def _note_hydra(state: ProgramState, node: ast.FunctionDef | ast.AsyncFunctionDef, scope: Scope) -> None:
    """Note a function of `hydra.main` that the program calls without a config, so that Hydra parses the command line."""
    decorator = node.decorator_list[0] if len(node.decorator_list) == 1 else None
    if not isinstance(decorator, ast.Call) or not re.search(rf"(?m)^\s*{node.name}\(\s*\)", scope.source.text):
        return
    function = evaluate(state, decorator.func, scope)
    if isinstance(function, Library) and function.name == "hydra.main":
        note_flags(state, CallOf(decorator, scope, FLAGS_OF_HYDRA, scope.source.span(decorator)), FLAGS_OF_HYDRA, _HYDRAS)


def _is_of_typer(state: ProgramState, method: ast.expr, scope: Scope) -> bool:
    """Whether an expression is the method `command` of `typer.Typer()`."""
    owner = evaluate(state, method.value, scope) if isinstance(method, ast.Attribute) and method.attr == "command" else None
    return isinstance(owner, Unknown) and owner.made == "typer.Typer"
