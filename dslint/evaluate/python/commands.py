"""Commands that a program runs: a launch is a setup of its own."""

from __future__ import annotations

import re
from collections.abc import Iterator

from dslint.evaluate.python.calls import CallOf
from dslint.evaluate.python.given import quoted
from dslint.evaluate.python.notes import RunCommand
from dslint.evaluate.python.sagemaker import is_estimator, job_of
from dslint.evaluate.python.sources import Sources
from dslint.evaluate.values import ListValue, text_of
from dslint.schemas.framework_commands import COMMANDS
from dslint.source.tree import Span

RUN_COMMANDS = frozenset(
    "os.system os.popen subprocess.run subprocess.call subprocess.check_call subprocess.check_output subprocess.Popen".split()
)
"""Functions that run a command: a string or a list of words."""
_LAUNCHERS = re.compile(rf"\b(deepspeed|torchrun|torch\.distributed|accelerate( launch|\.commands)|{'|'.join(COMMANDS)})\b")


def runs_command(name: str) -> bool:
    """Whether a function runs a command: here, or as a job on SageMaker."""
    return name in RUN_COMMANDS or is_estimator(name)


def command_of(call: CallOf, sources: Sources) -> Iterator[RunCommand]:
    """The command that a call runs, if it may launch a training."""
    if is_estimator(call.name):
        yield from job_of(call, sources)
        return
    given = call.argument("args", 0) or call.argument("command")
    if given is None:
        return
    words = given.value.items if isinstance(given.value, ListValue) else None
    text = text_of(given.value) if words is None else " ".join(quoted(one.value) for one in words)
    if _LAUNCHERS.search(text):
        source = sources.at(given.span.start)
        yield RunCommand(text, source.shown, Span(given.span.start - source.base, given.span.end - source.base))
