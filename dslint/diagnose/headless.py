"""Tracebacks without their first line, as people paste them: the frames above an error belong to it."""

from __future__ import annotations

from dataclasses import replace

from dslint.diagnose.collect import ARROWS
from dslint.diagnose.facts import FACTS
from dslint.diagnose.frames import read_frame
from dslint.diagnose.job import LoggedJob
from dslint.diagnose.places import frames_in
from dslint.diagnose.prefixes import LogLine
from dslint.diagnose.reading import Kept

ABOVE = 400
"""The most lines above an error that are looked at."""


def with_frames_above(job: LoggedJob, kept: Kept) -> None:
    """Give errors that end no traceback the frames that stand directly above them. Only what was kept of a log is read."""
    read = {event.place for event in job.of("raised")}
    errors = {event.place: event for event in job.of("oom", "error") if event.place not in read}
    for name in {place.file for place in errors}:
        above: list[LogLine] = []
        for line in kept.lines(name):
            event = errors.get(line.place)
            if event is not None:
                _attach(job, event.place, above)
                above = []
            else:
                above = [*above[-ABOVE:], line] if _belongs(line.text) else []


def _belongs(text: str) -> bool:
    """Whether a line may be one of a traceback: a frame, or the code below it."""
    return text.startswith((" ", "\t", *ARROWS)) or not text.strip() or read_frame(text) is not None


def _attach(job: LoggedJob, place: object, above: list[LogLine]) -> None:
    frames = tuple(frames_in(line.text for line in above))
    for index, event in enumerate(job.events):
        if frames and event.place == place and event.kind in ("oom", "error"):
            job.events[index] = replace(event, frames=frames)
            FACTS["raised"](job, job.events[index])
