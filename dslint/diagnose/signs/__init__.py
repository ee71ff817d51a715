"""The lines of job logs that are worth reading, by topic. `dslint.diagnose.events` searches for them all at once.

A sign is data: literals, of which every line of this kind contains one, and a pattern with named groups for what the line tells. Literals
should begin with a character that is rare in logs: the search for all of them skips the others quickly.
"""

from __future__ import annotations

from dslint.diagnose.signs import end, failure, launch, memory, progress, start
from dslint.diagnose.signs.sign import Sign

SIGNS: tuple[Sign, ...] = (*start.SIGNS, *memory.SIGNS, *launch.SIGNS, *progress.SIGNS, *failure.SIGNS, *end.SIGNS)
"""All signs."""

FREQUENT = frozenset(
    {
        "step", "bar", "throughput", "breakdown", "spread", "rank_mention",
        "trace_cache", "label", "allocated", "allocated_mb", "host", "peak", "oom", "traceback", "frame", "stack", "not_finite", "error", "ignored", "next_follows",
    }
)  # fmt: skip
"""The kinds of lines of which a log may have millions, and then the first and the last ones tell enough."""

__all__ = ["FREQUENT", "SIGNS", "Sign"]
