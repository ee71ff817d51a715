"""What the reports say in words: consequences, counts, flags."""

from __future__ import annotations

from collections.abc import Iterable

from dslint.diagnostics import Diagnostic, Effect, Phase, Severity
from dslint.results import FileResult

COLORS = {Severity.ERROR: "red", Severity.WARNING: "yellow", Severity.INFO: "blue"}

_CRASHES = {
    Phase.LOAD: ("is never reached: the loader before it crashes", "may never be reached: the loader before it may crash"),
    Phase.PARSE: ("crashes while it parses the config", "may crash while it parses the config"),
    Phase.INITIALIZE: ("crashes in initialize, once the config is parsed", "may crash in initialize, once the config is parsed"),
    Phase.STEP: ("crashes in the first training step", "may crash in the first training step"),
    Phase.SAVE: ("crashes when it saves a checkpoint", "may crash when it saves a checkpoint"),
    Phase.RESUME: ("crashes when it resumes from a checkpoint", "may crash when it resumes from a checkpoint"),
}
"""What DeepSpeed does, for sure and perhaps."""

_EFFECTS = {
    Effect.SILENT: ("runs without a word, but not as written", "may run without a word, but not as written"),
    Effect.IGNORED: ("ignores the setting", "may ignore the setting"),
    Effect.MEMORY: ("takes more memory than it needs to", "may take more memory than it needs to"),
    Effect.SLOW: ("runs slower than it needs to", "may run slower than it needs to"),
}

_VALUES = {"world_size": "N", "deepspeed": "RELEASE", "gpu_memory": "SIZE", "host_memory": "SIZE"}

_JUDGED = ("ds_config", "accelerate")
"""The kinds of file that rules are asked about."""


def consequence(effect: Effect, phase: Phase | None, *, certain: bool = True) -> str | None:
    """What DeepSpeed does, to be read after its name; None where it does nothing wrong (`Effect.ADVICE`)."""
    forms = _CRASHES.get(phase) if phase is not None else _EFFECTS.get(effect)
    return forms[0 if certain else 1] if forms else None


def consequence_of(diagnostic: Diagnostic) -> str | None:
    """What DeepSpeed does about a finding: "may" where nobody can be sure."""
    return consequence(diagnostic.effect, diagnostic.phase, certain=diagnostic.certain)


def count(number: int, noun: str, plural: str | None = None) -> str:
    """`1 file`, `2 files`."""
    return f"{number:,} {noun if number == 1 else plural or noun + 's'}"


def count_severity(number: int, severity: Severity) -> str:
    """`1 error`, `2 warnings`, `3 info`."""
    return count(number, severity.value, "info" if severity is Severity.INFO else None)


def listed(words: Iterable[str]) -> str:
    """`a`, `a and b`, `a, b and c`."""
    *most, last = words
    return f"{', '.join(most)} and {last}" if most else last


def option(fact: str) -> str:
    """The flag that gives a fact: `--world-size`."""
    return "--" + fact.replace("_", "-")


def flag(fact: str) -> str:
    """The flag that gives a fact, with a word for its value: `--world-size N`."""
    return f"{option(fact)} {_VALUES.get(fact, 'NAME')}"


def is_judged(file: FileResult) -> bool:
    """Whether the rules were asked about a file."""
    return file.error is None and file.kind in _JUDGED
