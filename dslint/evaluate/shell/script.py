"""A script as a list of launches: its commands, its comments, and what its #SBATCH lines request."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from dslint.evaluate.budget import Budget
from dslint.evaluate.shell import builtins, loops
from dslint.evaluate.shell.commands import call
from dslint.evaluate.shell.conditions import Absent
from dslint.evaluate.shell.interpreter import Interpreter
from dslint.evaluate.shell.makefile import recipes
from dslint.evaluate.shell.pieces import ShellSource, Text, TextPiece, fields, known
from dslint.evaluate.shell.state import Launched, ScriptState
from dslint.evaluate.shell.syntax import Chunk, misread
from dslint.source.integers import integer
from dslint.source.tree import Comment, Document, Span

FOLLOWS = (builtins, loops)
"""The modules that register what the interpreter follows, with those that they import."""

_SBATCH = re.compile(r"^#SBATCH[ \t]++([^\s=]++)(?:[= \t][ \t]*+([^\s#]\S*+))?[ \t]*+(?:#.*)?$", re.MULTILINE)

_SHORT = {"N": "nodes", "n": "ntasks", "G": "gpus", "c": "cpus-per-task", "C": "constraint"}


@dataclass(slots=True)
class Script:
    """The commands that a text runs, its comments, its #SBATCH options, and the first statement that is not followed to its end."""

    source: ShellSource
    launched: list[Launched] = field(default_factory=list)
    slurm: dict[str, tuple[str, Span]] = field(default_factory=dict)
    cut_off: TextPiece | None = None
    left_out: bool = False
    """Whether commands were passed over that the script runs with other arguments."""
    arguments: list[Launched] = field(default_factory=list)
    """The variables that hold arguments for a launch, if the script launches nothing itself."""


def read_script(
    text: str,
    path: str,
    shown: str,
    environment: Mapping[str, str],
    *,
    make: bool = False,
    absent: Absent = "empty",
    budget: Budget | None = None,
) -> Script:
    """Read a shell text, or the recipes of a Makefile.

    Args:
        text: the text.
        path: where it is; other files are found from there.
        shown: its name in messages.
        environment: variables that only the run knows.
        make: whether it is a Makefile.
        absent: how to read conditions on arguments and variables that nothing sets.
        budget: the work that may be done for the subject.

    Raises:
        dslint.evaluate.shell.syntax.NoParser: tree-sitter is not installed.
    """
    document = Document(text, None, language="text")
    source = ShellSource(shown, document)
    slurm = {name.lstrip("-"): (value or "", Span(*span)) for name, value, span in _slurm(text)}
    script = Script(source, slurm=slurm)
    shell = Interpreter(path, budget)
    shell.tester.absent = absent
    if make:
        given = {name: _given(name, value) for name, value in environment.items()}
        for recipe in recipes(source, given):
            state = _begin(source, slurm, environment)
            state.files.update(shell.files)
            state.variables.update(recipe.exported)
            state.exported.update(recipe.exported)
            state.perhaps = recipe.perhaps
            shell.run(Chunk(recipe.text), state)
            shell.files = state.files
            script.arguments += _arguments(state)
    else:
        chunk = Chunk(Chunk.of_file(source).pieces)
        document.comments += _comments(chunk)
        state = _begin(source, slurm, environment)
        shell.run(chunk, state)
        script.arguments += _arguments(state)
        if (wrong := misread(chunk)) is not None:
            shell.cut_off_at(chunk, wrong)
    if make:
        document.comments += [Comment(Span(*match.span()), match[0]) for match in re.finditer(r"^[ \t]*#.*", text, re.MULTILINE)]
    script.launched, script.cut_off, script.left_out = shell.launched, shell.cut_off, shell.tester.left_out
    return script


def _arguments(state: ScriptState) -> list[Launched]:
    found: list[Launched] = []
    for value in state.variables.values():
        texts = [value] if isinstance(value, tuple) else value or []
        words = [word for text in texts for word in fields(tuple(piece._replace(splits=True) for piece in text))]
        if any((known(word) or "").startswith("--deepspeed_config") for word in words):
            found.append(Launched(words, {}, state))
    return found[-1:]


def run_words(
    words: list[Text], path: str, environment: Mapping[str, str], budget: Budget | None = None, *, folder: str = ""
) -> Interpreter:
    """Follow a command that stands in another file, such as a job file, and starts in a folder."""
    shell = Interpreter(path, budget)
    state = _begin(words[0][0].source, {}, environment)
    state.folder = folder
    call(shell, words, {}, state, None)
    return shell


def run_parts(
    parts: Iterable[tuple[Text, str | None]], path: str, environment: Mapping[str, str], budget: Budget | None = None
) -> Interpreter:
    """Follow texts one after another, such as those of a notebook: each in a shell of its own. A text with a name becomes that file."""
    shell = Interpreter(path, budget)
    for text, name in parts:
        state = _begin(text[0].source, {}, environment)
        state.files.update(shell.files)
        if name is None:
            shell.run(Chunk(text), state)
        else:
            state.files[os.path.normpath(name)] = text
        shell.files = state.files
    return shell


def _begin(source: ShellSource, slurm: dict[str, tuple[str, Span]], environment: Mapping[str, str]) -> ScriptState:
    """The state before the first statement: what is given, and what #SBATCH lines set."""
    state = ScriptState(exported=set(environment))
    for name, value in environment.items():
        state.variables[name] = _given(name, value)
    for name, (value, span) in from_slurm(slurm).items():
        state.variables.setdefault(name, _constant(value, source, span))
        state.exported.add(name)
    start = Span(0, 0)
    for name in ("0", "BASH_SOURCE"):
        state.variables[name] = _constant(source.shown, source, start)
    return state


def _given(name: str, value: str) -> Text:
    return _constant(value, ShellSource(f"--env {name}", Document(value, None, language="text")), Span(0, len(value)))


def _constant(value: str, source: ShellSource, span: Span) -> Text:
    return (TextPiece(value, source, span, exact=False),)


def _comments(chunk: Chunk) -> list[Comment]:
    found: list[Comment] = []
    waiting = [chunk.root]
    while waiting:
        node = waiting.pop()
        if node.type == "comment":
            found.append(Comment(Span(chunk.start(node), chunk.end(node)), chunk.raw(node).rstrip()))
        waiting += reversed(node.named_children)
    return found


# ---------------------------------------------------------------------- Slurm


def _slurm(text: str) -> Iterator[tuple[str, str | None, tuple[int, int]]]:
    for match in _SBATCH.finditer(text):
        name = match[1].lstrip("-")
        if match[1].startswith("-") and not match[1].startswith("--") and len(name) > 1 and match[2] is None:
            yield _SHORT.get(name[0], name[0]), name[1:], match.span()  # -N2
        else:
            yield _SHORT.get(name, name), match[2], match.span()


def from_slurm(slurm: dict[str, tuple[str, Span]]) -> dict[str, tuple[str, Span]]:
    """The variables that Slurm sets, as far as the #SBATCH lines give their values."""
    numbers = {name: number for name, (value, _) in slurm.items() if (number := integer(value)) is not None}
    found: dict[str, tuple[int, str]] = {}
    nodes = numbers.get("nodes")
    if nodes:
        found |= {"SLURM_NNODES": (nodes, "nodes"), "SLURM_JOB_NUM_NODES": (nodes, "nodes")}
    each = numbers.get("ntasks-per-node")
    tasks = numbers.get("ntasks") or (nodes * each if nodes and each else None)
    if tasks:
        line = "ntasks" if "ntasks" in numbers else "ntasks-per-node"
        found |= {"SLURM_NTASKS": (tasks, line), "SLURM_NPROCS": (tasks, line)}
    if each is not None:
        found["SLURM_NTASKS_PER_NODE"] = (each, "ntasks-per-node")
    gpus = gpus_per_node({name: value for name, (value, _) in slurm.items()})
    if gpus:
        line = "gpus-per-node" if "gpus-per-node" in slurm else "gres"
        found |= {"SLURM_GPUS_ON_NODE": (gpus, line), "SLURM_GPUS_PER_NODE": (gpus, line)}
    return {name: (str(value), slurm[line][1]) for name, (value, line) in found.items()}


_GPUS = re.compile(r"(?:[\w.-]+:)?(\d+)")
_GRES = re.compile(r"gpu[:=](?:[\w.-]+[:=])?(\d+)")
"""A resource of `--gres` that counts GPUs, perhaps of a type; `lscratch:100` counts something else."""


def gpus_per_node(slurm: dict[str, str]) -> int | None:
    """The number of GPUs per node that #SBATCH lines request."""
    match = _GPUS.fullmatch(slurm.get("gpus-per-node", ""))
    number = integer(match[1]) if match else None
    if number:
        return number
    found = [_GRES.fullmatch(one) for one in slurm.get("gres", "").split(",") if one.startswith("gpu")]
    numbers = [integer(one[1]) if one else None for one in found]
    return None if None in numbers else sum(one or 0 for one in numbers) or None
