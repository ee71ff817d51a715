"""Python judges what is evaluated of programs: the values of the call that takes the config, and where the others become unknown."""

from __future__ import annotations

import json
import os
import posixpath
import shlex
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from dslint.evaluate.python.calls import CallOf
from dslint.evaluate.python.follow import follow
from dslint.evaluate.python.record import Recorder
from dslint.evaluate.python.sources import Sources
from dslint.evaluate.python.tables import why_open
from dslint.evaluate.shell.script import read_script
from dslint.evaluate.values import Constant, DictValue, Flag, ListValue, Unknown, Value, path_of
from dslint.frameworks.registry import in_programs
from dslint.setups.command import read_command
from dslint.setups.launch_program import flags_of
from tests.judges import programs
from tests.judges.fence import fenced
from tests.judges.programs import Made
from tests.judges.table import Row

DRIVER = Path(__file__).parent / "run_programs.py"
RECORDED = Path(__file__).parent / "python.json"
FOLDER = "/tmp/work"
"""Where `run_programs.py` runs programs."""
SINKS = frozenset({"deepspeed.initialize", "TrainingArguments", "DeepSpeedPlugin", "DeepSpeedStrategy"})
_BATCH = 200

Path_ = tuple[str | int, ...]


class Leaf(NamedTuple):
    """A value as it is evaluated: known, or unknown with a place; `perhaps` if only some branches set it.

    Of a path that is absolute in the run `path` is known, relative to the working directory.
    """

    value: Any = None
    is_known: bool = False
    is_placed: bool = False
    perhaps: bool = False
    path: str | None = None


class Open(NamedTuple):
    """A dict that may have more keys, or a list of which not all items are known."""

    is_placed: bool


@dataclass
class Claim:
    """A call as it is evaluated: the leaves of each argument by their paths, and what is open."""

    place: tuple[str, int]
    leaves: dict[Path_, Leaf] = field(default_factory=dict)
    open: dict[Path_, Open] = field(default_factory=dict)
    is_sure: bool = True
    """Whether the call runs, as far as is known."""


@dataclass
class Verdict:
    """The comparison of programs with Python."""

    values: int = 0
    """Plain values that the program passes."""
    known: int = 0
    placed: int = 0
    """Values that are not known, whose place is."""
    perhaps: int = 0
    """Known values that are said as those of some branches only."""
    unseen: int = 0
    """Calls that are not seen at all."""
    wrong: list[str] = field(default_factory=list)


class _Hearing(Recorder):
    """Notes the calls of the sinks as they are evaluated."""

    def __init__(self, sources: Sources) -> None:
        super().__init__(sources, in_programs())
        self.heard: list[Claim] = []

    def receive(self, call: CallOf) -> Value | None:
        short = call.name.rpartition(".")[2]
        if call.name in SINKS or short in SINKS:
            claim = Claim((os.path.basename(call.scope.source.shown), call.node.lineno))
            claim.is_sure = not call.chosen and not call.unlikely and (self.state is None or self.state.flow == 0)
            for name, given in call.keywords.items():
                _leaves(claim, (name,), given.value, perhaps=False)
            if not call.complete:
                claim.open[()] = Open(is_placed=True)
            self.heard.append(claim)
        return super().receive(call)


def _leaves(claim: Claim, path: Path_, value: Value, *, perhaps: bool) -> None:
    """Note the leaves of a value."""
    if len(path) > 20:
        claim.open[path] = Open(is_placed=False)
    elif isinstance(value, DictValue):
        if not value.cells and not value.open:
            claim.leaves[path] = Leaf({}, is_known=True, perhaps=perhaps)
        for name, entry in value.cells.items():
            _leaves(claim, (*path, name), entry.value, perhaps=perhaps or entry.perhaps)
        if value.open:
            claim.open[path] = Open(is_placed=why_open(value).place is not None)
    elif isinstance(value, ListValue):
        if value.changed:
            claim.open[path] = Open(is_placed=value.reason is not None and value.reason.place is not None)
        elif not value.items:
            claim.leaves[path] = Leaf([], is_known=True, perhaps=perhaps)
        for index, item in enumerate(value.items if not value.changed else ()):
            _leaves(claim, (*path, index), item.value, perhaps=perhaps or item.perhaps)
    elif isinstance(value, Constant):
        claim.leaves[path] = Leaf(value.value, is_known=True, perhaps=perhaps)
    else:
        reason = value.reason if isinstance(value, Unknown) else None
        claim.leaves[path] = Leaf(is_placed=reason is not None and reason.place is not None, perhaps=perhaps, path=path_of(value))


def claims(program: Made) -> list[Claim]:
    """The calls that are evaluated of a program in a folder with its other files."""
    files = program.files
    before = os.getcwd()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        try:
            os.mkdir(".git")
            for name, text in files.items():
                Path(name).parent.mkdir(parents=True, exist_ok=True)
                Path(name).write_text(text, encoding="utf-8")
            sources = Sources()
            sources.add(files["train.py"], "train.py", "train.py")
            source = sources.all[0]
            assert source.parsed.tree is not None
            hearing = _Hearing(sources)
            follow([(source, source.parsed.tree)], sources, hearing, _flags(program.argv))
        finally:
            os.chdir(before)
    return hearing.heard


def _flags(argv: Sequence[str]) -> dict[str, Flag]:
    """The flags of a command line as they are read of the command that starts the program."""
    text = shlex.join(["deepspeed", "train.py", *argv]) + "\n"
    script = read_script(text, "run.sh", "run.sh", {})
    command = read_command(script.launched[0], script)
    assert command is not None
    return flags_of(command)


def _flat(path: Path_, value: Any) -> Iterator[tuple[Path_, Any]]:
    """The plain values of what a program passed; objects are left out."""
    if not isinstance(value, dict):
        yield path, value
    elif "dict" in value or "list" in value:
        pairs = list(value["dict"].items() if "dict" in value else enumerate(value["list"]))
        if not pairs:
            yield path, {} if "dict" in value else []
        for key, inner in pairs:
            yield from _flat((*path, key), inner)


def _same(one: Any, other: Any) -> bool:
    return type(one) is type(other) and (one == other or one != one)


def _names(path: str, value: Any) -> bool:
    """Whether a path from the working directory, or from the home directory, is that of a file."""
    if path.startswith("~"):
        return isinstance(value, str) and value.endswith(path[1:])
    return isinstance(value, str) and posixpath.normpath(posixpath.join(FOLDER, path)) == posixpath.normpath(value)


def compare(program: Made, answer: dict[str, Any]) -> Verdict:
    """Compare the evaluated calls with those that Python ran."""
    verdict = Verdict()
    if answer["error"]:
        return verdict
    made = claims(program)
    ran: set[tuple[str, int]] = set()
    for name, file, line, _, keywords in answer["calls"]:
        ran.add((file, line))
        truth = {path: value for key, given in keywords.items() for path, value in _flat((key,), given)}
        here = [_compared(claim, truth, f"{name} at {file}:{line}") for claim in made if claim.place == (file, line)]
        if not here:
            verdict.unseen += 1
            verdict.values += len(truth)
            continue
        best = min(here, key=lambda one: (len(one.wrong), -one.known))
        for counted in ("values", "known", "placed", "perhaps"):
            setattr(verdict, counted, getattr(verdict, counted) + getattr(best, counted))
        verdict.wrong += best.wrong
    verdict.wrong += [f"claims a call at {claim.place}" for claim in made if claim.is_sure and claim.place not in ran]
    return verdict


def _compared(claim: Claim, truth: dict[Path_, Any], what: str) -> Verdict:
    found = Verdict(values=len(truth))
    for path, value in truth.items():
        leaf = claim.leaves.get(path)
        if leaf is not None and leaf.is_known:
            found.known += 1
            found.perhaps += leaf.perhaps
            if not _same(leaf.value, value):
                found.wrong.append(f"{what}: {path} is {value!r}, and is evaluated as {leaf.value!r}")
            continue
        if leaf is not None and leaf.path is not None and not _names(leaf.path, value):
            found.wrong.append(f"{what}: {path} is {value!r}, and is evaluated as the path {leaf.path!r}")
        above = [path[:length] for length in range(len(path), -1, -1)]
        unknown = next((claim.leaves[one] for one in above if one in claim.leaves and not claim.leaves[one].is_known), None)
        is_open = next((claim.open[one] for one in above if one in claim.open), None)
        if unknown is None and is_open is None:
            found.wrong.append(f"{what}: {path} is {value!r}, and is not there")
        else:
            found.placed += (unknown or is_open).is_placed  # type: ignore[union-attr]
    for path, leaf in claim.leaves.items():
        inside = any(one[: len(path)] == path for one in truth)
        if leaf.is_known and path not in truth and not leaf.perhaps and not _is_object(path, truth):
            found.wrong.append(f"{what}: {path} is evaluated as {leaf.value!r}, and is {'more' if inside else 'not there'}")
    return found


def _is_object(path: Path_, truth: dict[Path_, Any]) -> bool:
    """Whether a known value stands where the program passes an object, which is not compared: `model=None` is a plain value."""
    return len(path) == 1 and not any(one[:1] == path for one in truth)


# ---------------------------------------------------------------------- asking


def answers(made: list[Made]) -> list[dict[str, Any]]:
    """What Python does with programs."""
    folder = str(Path(yaml.__file__).parent.parent)
    return list(fenced(DRIVER, {"yaml": folder, "programs": [one._asdict() for one in made]}, 600))


def ask(count: int, seed: int) -> Row:
    """Compare the programs of `count` seeds with Python."""
    total = Verdict()
    wrong: list[tuple[int, str]] = []
    raises = 0
    for start in range(seed, seed + count, _BATCH):
        numbers = range(start, min(start + _BATCH, seed + count))
        made = [programs.program(number) for number in numbers]
        for number, program, answer in zip(numbers, made, answers(made), strict=True):
            verdict = compare(program, answer)
            raises += bool(answer["error"])
            wrong += [(number, one) for one in verdict.wrong]
            for name in ("values", "known", "placed", "perhaps", "unseen"):
                setattr(total, name, getattr(total, name) + getattr(verdict, name))
    unknown = total.values - total.known
    more = f"of {unknown} unknown {total.placed} with their place, {total.perhaps} known as perhaps, {total.unseen} calls unseen, {raises} programs raise"
    return Row("python", count, "values", total.values, total.known, wrong, more)


def record(count: int, seed: int) -> str:
    """Write the answers to the programs of `count` seeds."""
    numbers = range(seed, seed + count)
    found = answers([programs.program(number) for number in numbers])
    RECORDED.write_text(json.dumps(dict(zip(numbers, found, strict=True)), separators=(",", ":")) + "\n", encoding="utf-8")
    return f"{count} programs recorded"
