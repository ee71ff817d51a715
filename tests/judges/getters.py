"""The engine of DeepSpeed judges what `show` says: `tests.frameworks.getters` as a row of the table."""

from __future__ import annotations

from importlib.util import find_spec

from tests.frameworks import ask as recorder
from tests.frameworks import getters
from tests.judges.table import Row


def missing() -> str:
    """Why the libraries cannot be asked here; "" if they can."""
    absent = [name for name in ("deepspeed", *getters.LIBRARIES) if find_spec(name) is None]
    return f"no {' and no '.join(absent)}" if absent else ""


def ask(count: int, seed: int) -> Row:
    """Compare jobs of `count` that reach the engine."""
    found = getters.compared(getters.asked(count, seed))
    verdicts = [(number, one.job.id, key, text) for number, one in enumerate(found) for key, text in one.keys.items()]
    wrong = [(number, f"{job} {key}: {text}") for number, job, key, text in verdicts if text not in ("equal", "unknown")]
    read = sum(text != "unknown" for *_, text in verdicts)
    return Row("getters", len(found), "values", len(verdicts), read, wrong, "by library " + ", ".join(getters.LIBRARIES))


def record(count: int, seed: int) -> str:
    """Write the answers for jobs of `count` that reach the engine."""
    recorder.record(getters.NAME, list(getters.asked(count, seed)))
    return f"{count} jobs recorded"
