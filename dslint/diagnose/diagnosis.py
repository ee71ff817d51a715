"""The result of a diagnosis: what ran, what happened, why, and what to change."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import takewhile

from dslint.diagnose.events import LogEvent
from dslint.diagnose.job import LoggedJob, MemoryMoment
from dslint.diagnose.prefixes import LogPlace
from dslint.diagnose.situation import Situation
from dslint.diagnostics import Diagnostic
from dslint.record import Record


class End(StrEnum):
    """How a job ended."""

    FINISHED = "finished"
    FAILED = "failed"
    KILLED = "killed"
    HUNG = "hung"
    UNFINISHED = "unfinished"
    """no line of the log says how the job ended"""
    UNKNOWN = "unknown"
    """no line of the log tells how a DeepSpeed job went"""


DATED = ("cancelled", "time-limit")
"""Kinds of causes with lines that tell when they happened. Others only follow a line with a time stamp."""


class Evidence(Record):
    """A line of the log that shows something."""

    place: LogPlace
    text: str


class JobOutcome(Record):
    """How the job ended, as a sentence, with the line that shows it."""

    end: End
    sentence: str
    evidence: Evidence | None = None


POSSIBLE_CAUSE = " what may be the cause: "
"""What stands in a sentence before the message of a finding that explains an error, but is not proved to be its cause."""


@dataclass(frozen=True)
class LikelyCause:
    """A reason for what happened, or something else that is wrong: sentences that explain it, what to change, and the lines that show it.

    `when` is the time, or the last time stamp before. `certain` is False if the log suggests it, but does not prove it. `rules` are the
    codes of rules that find the mistake in a config, and `unchecked` those of them that the user is advised to run. `general` is the part
    of the advice that an estimate of this job replaces. `changes` is the diff of a config, and `changed_by` the advice that it carries out.
    `of_table` are the sentences and the advice that a table has for the error in any job.
    """

    kind: str
    title: str
    why: tuple[str, ...] = ()
    advice: tuple[str, ...] = ()
    evidence: tuple[Evidence, ...] = ()
    rank: int | None = None
    host: str | None = None
    when: str | None = None
    certain: bool = True
    rules: tuple[str, ...] = ()
    unchecked: tuple[str, ...] = ()
    general: tuple[str, ...] = ()
    changes: str = ""
    changed_by: str = ""
    of_table: tuple[str, ...] = ()

    @property
    def all_advice(self) -> tuple[str, ...]:
        """The advice, with that to run the rules which have not run."""
        codes = ", ".join(self.unchecked)
        about = f"; rules about this error: {codes}" if self.certain else f": mistakes that rules find raise this error, too ({codes})"
        run = f"Run `dslint check .` in the project{about}."
        return (*self.advice, run) if self.unchecked else self.advice

    @property
    def steps(self) -> list[tuple[str, str]]:
        """The advice, each with the diff of the config that carries it out, or ""."""
        return [(advice, self.changes if advice == self.changed_by else "") for advice in self.all_advice]

    @property
    def where(self) -> str:
        """Which rank, on which machine, and when, as a sentence; empty if the log does not tell."""
        place = [f"rank {self.rank}"] if self.rank is not None else []
        place += [f"on {self.host}"] if self.host else []
        time = [f"at {self.when}" if self.kind in DATED else f"last time stamp before: {self.when}"] if self.when else []
        text = "; ".join(filter(None, (" ".join(place), *time)))
        return f"{text[0].upper()}{text[1:]}." if text else ""


class MeasuredMemory(Record):
    """Memory as measured and as estimated, in GiB; None without an estimate."""

    moment: MemoryMoment
    estimated: float | None


@dataclass
class Diagnosis:
    """What the log of one job tells. `causes` are ranked; `notices` did not end the job; `findings` are those of the rules.

    `unread` says what could not be read of the logs. `not_estimated` says why measured memory has no estimate, as a sentence, and
    `without_estimate` why there is no estimate, as a clause. `checked_as` is the release whose rules were run, if dslint does not know that
    of the job, which `runs_with` names, or took it from the error. `in_config` is what its config tells, as far as advice depends on it.
    `config_names` are names of that config in findings. `judged_by` are the codes of the rules that could judge its files.
    """

    job: LoggedJob
    outcome: JobOutcome
    causes: list[LikelyCause] = field(default_factory=list)
    notices: list[LikelyCause] = field(default_factory=list)
    findings: list[Diagnostic] = field(default_factory=list)
    measured: list[MeasuredMemory] = field(default_factory=list)
    not_estimated: str = ""
    without_estimate: str = ""
    unread: tuple[str, ...] = ()
    checked_as: str = ""
    runs_with: str = ""
    in_config: Situation = field(default_factory=Situation)
    config_names: tuple[str, ...] = ()
    judged_by: frozenset[str] = frozenset()

    @property
    def rules_title(self) -> str:
        """The title above the findings of the rules."""
        unknown = f": dslint does not know {self.runs_with}, which may differ" if self.runs_with else ""
        subject = "the given files" if any(map(self.place_of, self.findings)) else "the config of this job"
        return f"Rules on {subject}" + (f", as of DeepSpeed {self.checked_as}{unknown}" if self.checked_as else "")

    def place_of(self, finding: Diagnostic) -> str:
        """Where a finding stands, as "ds_config.json:4"; "" if that is the config of the job, which the log prints or a person gave."""
        if finding.path in self.config_names or finding.path in self.job.files:
            return ""
        return f"{finding.path}:{finding.range.start.line}" if finding.range is not None else finding.path

    def with_place(self, finding: Diagnostic) -> str:
        """The message of a finding, after its place if it is not in the config of the job."""
        place = self.place_of(finding)
        return f"{place}: {finding.message}" if place else finding.message

    def at(self, place: LogPlace | None) -> str:
        """Where a line stands, as in "line 7", or "rank_1.log:7" if the job has several logs; "" for None."""
        if place is None:
            return ""
        if len(self.job.files) < 2:
            return f"line {place.line}"
        parts = [_parts(file) for file in self.job.files]
        common = len(list(takewhile(lambda names: len(set(names)) == 1, zip(*parts, strict=False))))  # folders of all logs
        return f"{'/'.join(_parts(place.file)[common:])}:{place.line}"

    def told_as(self, finding: Diagnostic) -> str:
        """Whether a finding "is" or "may be" the cause, as the first cause tells; "" if it lacks what was found or what to do about it."""
        for cause in self.causes[:1]:
            if finding.help not in (None, *cause.advice):
                return ""
            if finding.message in cause.why:
                return "is"
            if any(sentence.endswith(f"{POSSIBLE_CAUSE}{finding.message}") for sentence in cause.why):
                return "may be"
        return ""

    @property
    def is_clean(self) -> bool:
        """Whether the job finished and nothing was found."""
        return self.outcome.end is End.FINISHED and not (self.causes or self.notices or self.findings)


def _parts(file: str) -> list[str]:
    """The folders and the name of a file."""
    return file.replace(os.sep, "/").split("/")


def evidence(event: LogEvent) -> Evidence:
    """The line of an event."""
    return Evidence(event.place, event.text)
