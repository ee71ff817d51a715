"""Functions that call one of the project: in a process or thread of its own, in a loop of events, or as a command."""

from __future__ import annotations

import ast
from collections.abc import Callable

from dslint.evaluate.python.calls import CallOf
from dslint.evaluate.python.command_flags import FLAGS_OF_COMMAND, FLAGS_OF_FIRE, OF_TYPER, flags_of_typer, note_flags, takes_no_others
from dslint.evaluate.python.evaluate import ProgramState, evaluate
from dslint.evaluate.python.functions import enter
from dslint.evaluate.python.libraries.argparse import given_flag
from dslint.evaluate.python.libraries.table import follows
from dslint.evaluate.python.words import is_default
from dslint.evaluate.reasons import Cause, Reason, flag
from dslint.evaluate.values import COMPUTED, NONE, Constant, Function, ListValue, Unknown, Value, harden, soften


def _runs(name: str, first: int) -> Callable[[ProgramState, CallOf], Value]:
    """A function that calls the one in its argument `name`, with the arguments `args`; `first` unknown ones come before them."""

    def run(state: ProgramState, call: CallOf) -> Value:
        function, given = call.get(name, 0), call.get("args", 1)
        rest = [one.value for one in given.items] if isinstance(given, ListValue) and not given.changed else []
        if isinstance(function, Function):
            complete = given is None or isinstance(given, ListValue)
            enter(state, function, [*[COMPUTED] * first, *rest], {}, complete=complete)
        return Unknown(Reason(Cause.RETURNED, (call.name,)))

    return run


follows("multiprocessing.Process", "torch.multiprocessing.Process", "threading.Thread")(_runs("target", 0))
follows("torch.multiprocessing.spawn")(_runs("fn", 1))
follows("accelerate.notebook_launcher")(_runs("function", 0))


@follows("asyncio.run")
def _run(_: ProgramState, call: CallOf) -> Value:
    return call.arguments[0].value if call.arguments else NONE


@follows("fire.Fire", "typer.run", "jsonargparse.CLI", "jsonargparse.auto_cli")
def _runs_command(state: ProgramState, call: CallOf) -> Value:
    """`fire.Fire(main)`, `typer.run(main)`, `CLI(main)`: the parameters of the function are flags."""
    function = call.arguments[0].value if call.arguments else None
    if isinstance(function, Function):
        _note_flags(state, call, function.node)
        given = function.node.args
        names = [one.arg for one in given.args]
        for name, default in zip(reversed(names), reversed(given.defaults), strict=False):
            found = evaluate(state, default, function.scope)
            is_known = isinstance(found, Constant) and found.value is not None
            function.given[name] = soften(found) if is_known else Unknown(flag(f"--{name}", call.span))
            if isinstance(default, ast.Constant) and _leaves_out(state, call, name):
                function.given[name] = harden(function.given[name])
            elif isinstance(state.flags.get(name), str) and found == NONE and _gets_command(call):
                function.given[name] = given_flag(found, state.flags[name])
        function.given |= {name: Unknown(flag(f"--{name}", call.span)) for name in names if name not in function.given}
        enter(state, function, [], {})
    return NONE


def _gets_command(call: CallOf) -> bool:
    """Whether a function gets the command line of the program as Fire or typer reads it."""
    return call.name in ("fire.Fire", "typer.run") and len(call.arguments) == 1 and not call.keywords and call.complete


def _leaves_out(state: ProgramState, call: CallOf, name: str) -> bool:
    """Whether a parameter has its default for certain: the launch gives its flag in none of its forms, and nothing else gives words."""
    if not _gets_command(call) or state.replaces_flags or "sys.argv" in call.scope.source.text:
        return False
    return all(is_default(f"{no}{name}", state.flags) for no in ("", "no", "no_"))


def _note_flags(state: ProgramState, call: CallOf, node: ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda) -> None:
    """Note the flags that typer or Fire knows for a function: those of its parameters, which Fire takes with `_` and with `-`."""
    if isinstance(node, ast.Lambda) or len(call.arguments) != 1 or call.keywords or not call.complete or not takes_no_others(node):
        return
    if call.name == "typer.run":
        note_flags(state, call, FLAGS_OF_COMMAND, flags_of_typer(node) | OF_TYPER)
    elif call.name == "fire.Fire":
        names = [one.arg for one in (*node.args.args, *node.args.kwonlyargs)]
        note_flags(state, call, FLAGS_OF_FIRE, [f"--{no}{one}" for one in names for no in ("", "no")])


@follows("typer.Option", "typer.Argument")
def _default(_: ProgramState, call: CallOf) -> Value:
    """`typer.Option(default)`: a flag with its default."""
    given = call.get("default", 0)
    return soften(given) if isinstance(given, Constant) and given.value is not None else Unknown(Reason(Cause.SOME_FLAG))
