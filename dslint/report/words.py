"""What the reports say in words: consequences, counts, flags."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from dslint.diagnostics import Applicability, Diagnostic, Effect, Phase, Severity
from dslint.lint.results import Results, Suppressed, SuppressedBy

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

_VALUES = {
    "world_size": "N",
    "deepspeed": "RELEASE",
    "nodes": "N",
    "tensor_parallel": "N",
    "pipeline_parallel": "N",
    "sequence_parallel": "N",
    "gpu_memory": "SIZE",
    "host_memory": "SIZE",
    "checkpoint": "DIR",
    "model": "FILE",
}

_BY = {SuppressedBy.COMMENT: "by a comment", SuppressedBy.SETTINGS: "by the settings", SuppressedBy.BASELINE: "by the baseline"}


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


def said(diagnostic: Diagnostic) -> list[str]:
    """All that is said of a finding: what was found, what DeepSpeed does, what to write instead, where there is more."""
    consequence = consequence_of(diagnostic)
    parts = [
        diagnostic.message,
        consequence and f"DeepSpeed: {consequence}",
        diagnostic.help and f"help: {diagnostic.help}",
        diagnostic.url,
    ]
    return [part for part in parts if part]


def place(diagnostic: Diagnostic) -> str:
    """Where a finding is: `path:line:column`, or the path alone."""
    start = diagnostic.range.start if diagnostic.range else None
    return f"{diagnostic.path}:{start.line}:{start.column}" if start else diagnostic.path


def verdict(results: Results) -> str:
    """The run in one sentence, and what was left out in another."""
    judged = sum(file.is_judged for file in results.files)
    unreadable = sum(file.error is not None for file in results.files)
    unjudged = len(results.files) - judged - unreadable
    partly = sum(file.is_judged and bool(file.not_judged) for file in results.files)
    found = [count_severity(number, severity) for severity in Severity if (number := results.count(severity))]
    if found:
        sentences = [f"Found {listed(found)} in {count(judged, 'file')}."]
    else:
        sentences = [f"No problems found in {count(judged, 'file')}." if judged else "No config was judged."]
    if unjudged and judged:
        sentences.append(f"{count(unjudged, 'file')} {'was' if unjudged == 1 else 'were'} not judged.")
    if partly:
        sentences.append(f"{count(partly, 'file')} {'was' if partly == 1 else 'were'} judged only in part.")
    if not results.verbose and any(True for _ in reasons(results)):
        sentences.append("Use -v to list the reasons.")
    if unreadable:
        sentences.append(f"{count(unreadable, 'file')} could not be read.")
    return " ".join(sentences)


def reasons(results: Results) -> Iterator[str]:
    """What was not judged, with its place and the reason, except what the note of a file says already."""
    for file in results.files:
        for one in file.not_judged:
            if one.reason != file.note:
                line = f":{one.range.start.line}" if one.range else ""
                yield f"Not judged: {file.path}{line}: {one.reason}"


def not_asked(results: Results) -> Iterator[str]:
    """How many rules were skipped for want of facts, and the flags that give them, that of the most rules first."""
    skipped = sorted(results.skipped.items(), key=lambda item: (-len(item[1]), item[0]))
    total = len({code for _, codes in skipped for code in codes})
    if skipped:
        flags = ", ".join(f"{flag(fact)} ({len(codes):,})" for fact, codes in skipped)
        yield f"{count(total, 'rule')} {'was' if total == 1 else 'were'} not asked, for want of {flags}"


def assumed(results: Results) -> Iterator[str]:
    """What was inferred in some file, as a flag would say it, with the first evidence for it."""
    for given, evidence in _inferred(results).items():
        yield f"Assumed {given}: {evidence}"


def assumed_in_short(results: Results) -> Iterator[str]:
    """What was inferred, without the evidence; but for the release, which the whole verdict hangs on."""
    inferred = _inferred(results)
    release = [given for given in inferred if given.startswith(option("deepspeed"))]
    yield from (f"Assumed {given}: {inferred[given]}" for given in release)
    others = [given for given in inferred if given not in release]
    if others:
        yield f"Assumed {listed(others)} (-v says why)"


def _inferred(results: Results) -> dict[str, str]:
    """What was inferred in some file, as a flag would say it, with the first evidence for each."""
    inferred: dict[str, str] = {}
    for file in results.files:
        for fact, evidence in file.context.evidence:
            inferred.setdefault(f"{option(fact)} {getattr(file.facts, fact)}", evidence)
    return inferred


def hidden(results: Results) -> str | None:
    """How many findings were suppressed, and by what."""
    means = [suppressed.by for suppressed in results.suppressed]
    if not means:
        return None
    counts = listed(f"{number:,} {_BY[by]}" for by in SuppressedBy if (number := means.count(by)))
    return f"{count(len(means), 'finding')} {'is' if len(means) == 1 else 'are'} suppressed: {counts}"


def fixable(results: Results) -> str | None:
    """How many findings can be fixed, and the flag that does it."""
    kinds = [diagnostic.fix.applicability for diagnostic in results.diagnostics if diagnostic.fix]
    safe, unsafe = kinds.count(Applicability.SAFE), kinds.count(Applicability.UNSAFE)
    if not safe:
        return f"{unsafe:,} can be fixed with --unsafe-fixes" if unsafe else None
    return f"{safe:,} can be fixed with --fix" + (f", {unsafe:,} more with --unsafe-fixes" if unsafe else "")


def suppressed_by(suppressed: Suppressed) -> str:
    """By what a finding was suppressed, and why."""
    return f"suppressed {_BY[suppressed.by]}" + (f": {suppressed.reason}" if suppressed.reason else "")
