"""Measures the shortlist of `tune` with the user's launch command, one config after the other, and keeps what it measured in a file.

The file has a JSON object per line. A trial writes a line before it starts and one when it has ended, so that a run that was killed goes on
where it was: what ended is not run again, and processes that a killed run left are ended first.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import secrets
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from dslint.errors import UserError
from dslint.facts import Release
from dslint.memory.fit import written
from dslint.record import Record
from dslint.source.edit import CannotChange
from dslint.speed.compare import compare
from dslint.tune.candidate import Candidate
from dslint.tune.launch import PLACE, CannotSet, names, naming_file, with_arguments, with_config
from dslint.tune.processes import kill_marked
from dslint.tune.trial import Status, TrialOutcome, cancel, run
from dslint.tune.write import Written

VERSION = 1

LONGEST_LINE = 300
"""Characters that are shown of the line that says why a trial failed."""

LOG_LEVEL = Release(0, 19, 3)
"""The first release that prints nothing about steps unless the config sets `log_level`."""


def seen(text: str, release: Release) -> str:
    """The config of a trial: DeepSpeed prints a line for each step.

    Raises:
        CannotChange: the text cannot be edited in this way.
    """
    return written(text, (("steps_per_print", 1), *((("log_level", "info"),) if release >= LOG_LEVEL else ())))


class MeasurableConfig(Record):
    """A config to measure."""

    name: str
    candidate: Candidate
    written: Written

    def key(self, command: Sequence[str]) -> str:
        """Identifies the config with what changes with it, and the command that it is measured with."""
        text = json.dumps([self.written.text, sorted(self.written.said.items()), list(command)])
        return hashlib.sha256(text.encode()).hexdigest()[:16]


class MeasuredConfig(Record):
    """A measured config: its outcome, and whether it comes from an earlier run."""

    entry: MeasurableConfig
    outcome: TrialOutcome
    earlier: bool


class ResultsFile:
    """The file of results."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.lines = list(_lines(path))

    def outcome(self, key: str) -> TrialOutcome | None:
        """What was measured of a config; None where its command failed: that is tried again."""
        for line in self.lines:
            if line.get("key") == key and line.get("event") == "ended" and line["outcome"]["status"] != Status.FAILED:
                data = line["outcome"]
                return TrialOutcome(**{**data, "status": Status(data["status"]), "tail": tuple(data.get("tail", ()))})
        return None

    def unfinished(self) -> list[str]:
        """The marks of trials that were started and did not end."""
        ended = {line.get("mark") for line in self.lines if line.get("event") == "ended"}
        return [line["mark"] for line in self.lines if line.get("event") == "started" and line.get("mark") not in ended]

    def submitted(self, mark: str) -> list[str]:
        """The numbers of the jobs of Slurm of a trial."""
        return [line["job"] for line in self.lines if line.get("event") == "submitted" and line.get("mark") == mark]

    def add(self, **line: Any) -> None:
        """Write a line, at once and to the disk."""
        data = {"version": VERSION, **line}
        self.lines.append(data)
        with open(self.path, "ab") as file:
            file.write(json.dumps(data).encode() + b"\n")
            file.flush()
            os.fsync(file.fileno())


def _lines(path: str) -> Iterator[dict[str, Any]]:
    """The lines of a file of results. The last one may be cut off; the next write begins a new one.

    Raises:
        UserError: the file is not one of results.
    """
    try:
        with open(path, "rb") as file:
            data = file.read()
    except FileNotFoundError:
        return
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror or error}") from None
    if data and not data.endswith(b"\n"):
        whole, _, cut = data.rpartition(b"\n")
        if len(cut) > 1 << 20 or not cut.startswith(b"{"):
            raise UserError(f"{path} is not a file of measurements")
        data = whole + b"\n" if whole else b""
        with open(path, "r+b") as file:
            file.truncate(len(data))
    for number, line in enumerate(data.splitlines(), 1):
        try:
            found = json.loads(line)
        except ValueError:
            found = None
        if not isinstance(found, dict) or found.get("version") != VERSION:
            raise UserError(f"{path}:{number} is not a line of `dslint tune --measure`")
        yield found


def measure(
    entries: Sequence[MeasurableConfig],
    command: Sequence[str],
    config: str,
    results: ResultsFile,
    limit: float,
    tell: Callable[[str], None],
) -> list[MeasuredConfig]:
    """Measure configs until the rest cannot win.

    Args:
        entries: the configs, the one with the shortest predicted time first.
        command: the launch command, which names the config.
        config: the path of the config.
        results: the file of results; what it has is not measured again.
        limit: seconds for each config.
        tell: gets a sentence about each step of the way.

    Raises:
        UserError: the command does not name the config, or a file cannot be written.
    """
    for mark in results.unfinished():
        left = kill_marked(mark)
        if left:
            tell(f"Ended {left} processes of an earlier run.")
        for number in results.submitted(mark):
            if cancel(number):
                tell(f"Cancelled job {number} of an earlier run.")
    found: list[MeasuredConfig] = []
    for entry in entries:
        if not can_win(entry, found):
            tell(f"{entry.name}: not measured, it cannot win.")
            continue
        earlier = results.outcome(entry.key(command))
        if earlier is not None:
            tell(f"{entry.name}: {said(earlier)}, measured before.")
            found.append(MeasuredConfig(entry, earlier, earlier=True))
            continue
        outcome = _measured(entry, command, config, results, limit, tell)
        if outcome is not None:
            found.append(MeasuredConfig(entry, outcome, earlier=False))
            tell(f"{entry.name}: {said(outcome)}.")
    return found


def _measured(
    entry: MeasurableConfig, command: Sequence[str], config: str, results: ResultsFile, limit: float, tell: Callable[[str], None]
) -> TrialOutcome | None:
    """The outcome of a config; None if the command cannot start it."""
    folder = os.path.abspath(f"{results.path}.configs")
    key = entry.key(command)
    path = os.path.join(folder, f"{key}.json")
    naming = naming_file(command, config) if not names(command, config) else None
    other = os.path.join(folder, f"{key}.yaml")
    try:
        replaced = with_config(command, naming[0], other) if naming else with_config(command, config, path)
        words = with_arguments(replaced, entry.written.said)
    except CannotSet as reason:
        tell(f"{entry.name}: not measured, {reason}.")
        return None
    try:
        os.makedirs(folder, exist_ok=True)
        if naming:
            with open(other, "w", encoding="utf-8") as file:
                file.write(naming[1].replace(PLACE, json.dumps(path)))
        with open(path, "w", encoding="utf-8") as file:
            file.write(seen(entry.written.text, entry.candidate.plan.release))
    except CannotChange:
        return None
    except OSError as error:
        raise UserError(f"{path} cannot be written: {error.strerror or error}") from None
    mark = secrets.token_hex(8)
    tell(f"{entry.name}: {' '.join(words)}")
    results.add(event="started", key=key, mark=mark, config=entry.name, command=words)
    log = os.path.join(folder, f"{key}.log")
    outcome = run(
        words,
        mark,
        entry.candidate.plan.samples,
        limit,
        log,
        submitted=lambda number: results.add(event="submitted", mark=mark, job=number),
    )
    results.add(
        event="ended",
        key=key,
        mark=mark,
        config=entry.name,
        samples=entry.candidate.plan.samples,
        predicted=entry.candidate.step.seconds,
        outcome=outcome._asdict(),
    )
    return outcome


def can_win(entry: MeasurableConfig, found: Iterable[MeasuredConfig]) -> bool:
    """Whether a config may be faster than all that were measured: its time is at least that of a measured one and the least difference
    between the two, which is surer than either.
    """
    timed = [(one, one.outcome.seconds / one.entry.candidate.plan.samples) for one in found if one.outcome.seconds is not None]
    best = min((seconds for _, seconds in timed), default=None)
    if best is None:
        return True
    least = max(seconds * (1 + compare(one.entry.candidate.step, entry.candidate.step).low) for one, seconds in timed)
    return least < best


def entries_of(best: Sequence[tuple[Candidate, Written]], now: Candidate, text: str) -> list[MeasurableConfig]:
    """The configs to measure: the best ones by their numbers, and the present one, the one with the shortest predicted time first."""
    found = [MeasurableConfig(f"config {number}", candidate, changed) for number, (candidate, changed) in enumerate(best, 1)]
    if all(candidate.choice != now.choice for candidate, _ in best):
        found.append(MeasurableConfig("the present config", now, Written(text, {}, ())))
    return sorted(found, key=lambda entry: entry.candidate.seconds)


def summary(found: Sequence[MeasuredConfig], results: ResultsFile) -> str:
    """Which config is best, and by how much, as a sentence; it is also written to the file of results."""
    timed = sorted(
        ((one.outcome.seconds / one.entry.candidate.plan.samples, one) for one in found if one.outcome.seconds is not None),
        key=lambda pair: pair[0],
    )
    if not timed:
        return "No config was measured."
    (shortest, best), *others = timed
    words = f"Fastest: {best.entry.name}, {said(best.outcome)}"
    gains = {one.entry.name: seconds / shortest - 1 for seconds, one in others}
    words += "".join(f"; {gain:.0%} faster than {name}" for name, gain in gains.items()).replace("%", " %")
    results.add(event="summary", best=best.entry.name, faster_than=gains)
    return f"{words}."


def said(outcome: TrialOutcome) -> str:
    """An outcome as a phrase."""
    if outcome.seconds is None:
        from dslint.diagnose.paste import worst

        lines = [line.strip() for line in outcome.tail if line.strip()]
        if outcome.status is not Status.FAILED or not lines:
            return str(outcome.status)
        at = worst(lines)  # a launcher ends with lines of its own
        return f"{outcome.status}: {lines[-1 if at is None else at][:LONGEST_LINE]}"
    assert outcome.low is not None
    assert outcome.high is not None
    return f"{outcome.seconds:.3g} s per step ({outcome.low:.3g} to {outcome.high:.3g} s, {outcome.steps} steps)"


def remove_configs(results: ResultsFile) -> None:
    """Remove the configs and logs of trials, once all have ended."""
    folder = f"{results.path}.configs"
    with contextlib.suppress(OSError):
        for name in os.listdir(folder):
            os.unlink(os.path.join(folder, name))
        os.rmdir(folder)
