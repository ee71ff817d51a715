"""Sentences that several report formats share: consequences, counts, flags."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from dslint.config.context import Context
from dslint.diagnostics import Applicability, Diagnostic, Effect, Phase, Severity
from dslint.facts.find_release import ReleaseSource
from dslint.lint.results import FileResult, Results, Suppressed, SuppressedBy
from dslint.not_judged import NotJudged, of_note
from dslint.project import rule_url

COLORS = {Severity.ERROR: "red", Severity.WARNING: "yellow", Severity.INFO: "blue"}

_CRASHES = {
    Phase.LOAD: ("The loader crashes before DeepSpeed starts", "The loader may crash before DeepSpeed starts"),
    Phase.PARSE: ("DeepSpeed crashes while parsing the config", "DeepSpeed may crash while parsing the config"),
    Phase.INITIALIZE: ("DeepSpeed crashes in deepspeed.initialize", "DeepSpeed may crash in deepspeed.initialize"),
    Phase.STEP: ("DeepSpeed crashes in the first training step", "DeepSpeed may crash in the first training step"),
    Phase.LATER: ("The run stops at this call", "The run may stop at this call"),
    Phase.SAVE: ("DeepSpeed crashes when saving a checkpoint", "DeepSpeed may crash when saving a checkpoint"),
    Phase.RESUME: ("DeepSpeed crashes when resuming from a checkpoint", "DeepSpeed may crash when resuming from a checkpoint"),
}
"""What happens, if that is certain and if it is not."""

_EFFECTS = {
    Effect.SILENT: ("DeepSpeed runs, but not as written", "DeepSpeed may not run as written"),
    Effect.IGNORED: ("What is written has no effect", "What is written may have no effect"),
    Effect.MEMORY: ("DeepSpeed uses more memory than necessary", "DeepSpeed may use more memory than necessary"),
    Effect.SLOW: ("DeepSpeed runs slower than necessary", "DeepSpeed may run slower than necessary"),
}

_OF_RULES = {
    "DS523": ("The job runs out of host memory", "The job may run out of host memory"),
    "DS632": ("DeepSpeed does not clip gradients", "DeepSpeed may not clip gradients"),
    "DS706": ("The job runs out of GPU memory", "The job may run out of GPU memory"),
    "DS708": ("The job runs out of host memory", "The job may run out of host memory"),
    "DS885": ("The run stops at this call, or hangs", "The run may hang or stop at this call"),
    "DS950": ("The training runs without DeepSpeed", "The training may run without DeepSpeed"),
    "DS964": ("The run hangs", "The run may hang"),
    "DS985": ("The run hangs", "The run may hang"),
}
"""The same for rules about jobs that do not fit, do not reach DeepSpeed, or wait for ever instead of raising."""

_IN_PART = frozenset({"DS977"})
"""Rules about settings that a release of DeepSpeed follows in part, such as a schedule from the second step on."""

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

SHORT = 2
"""How many inferred facts the short line names."""

_NAMED = 3
"""How many files are named in a sentence."""

_BY = {SuppressedBy.COMMENT: "by a comment", SuppressedBy.SETTINGS: "by the settings", SuppressedBy.BASELINE: "by the baseline"}


def consequence(effect: Effect, phase: Phase | None, *, certain: bool = True, code: str = "") -> str | None:
    """What DeepSpeed does about what a rule finds, as a sentence without its full stop; None where nothing goes wrong (`Effect.ADVICE`)."""
    if effect is Effect.IGNORED and code in _IN_PART:
        effect = Effect.SILENT
    forms = _OF_RULES.get(code) or (_CRASHES.get(phase) if phase is not None else _EFFECTS.get(effect))
    return forms[0 if certain else 1] if forms else None


def consequence_of(diagnostic: Diagnostic) -> str | None:
    """What DeepSpeed does about a finding; "may" if that is not certain."""
    return consequence(diagnostic.effect, diagnostic.phase, certain=diagnostic.certain, code=diagnostic.code)


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
    return "--integration" if fact == "loader_release" else "--" + fact.replace("_", "-")


def shown_fact(context: Context, fact: str) -> str:
    """The value of a fact as the flag reads it; of an unknown release also the known one that stands for it."""
    value = getattr(context.facts, fact)
    if fact == "loader_release":
        return f"{context.facts.integration}=={value}"
    if fact == "deepspeed" and context.outside is not None:
        return f"{value} in place of {context.outside}"
    if not fact.endswith("_memory") or value is None:
        return str(value)
    from dslint.facts.gpus import in_words

    return in_words(value).replace(" ", "")


def flag(fact: str) -> str:
    """The flag that gives a fact, with a placeholder for its value: `--world-size N`."""
    return f"{option(fact)} {_VALUES.get(fact, 'NAME')}"


def said(diagnostic: Diagnostic) -> list[str]:
    """The lines of a finding: what was found, what DeepSpeed does, what to write instead, where to read more."""
    consequence = consequence_of(diagnostic)
    parts = [
        diagnostic.message,
        consequence and f"effect: {consequence}",
        diagnostic.help and f"help: {diagnostic.help}",
        diagnostic.url,
    ]
    return [part for part in parts if part]


def page_of(diagnostic: Diagnostic) -> str | None:
    """The page of the finding's rule, if it is one of the site: an address that is safe in a link."""
    return diagnostic.url if diagnostic.url and diagnostic.url == rule_url(diagnostic.code) else None


def location(diagnostic: Diagnostic) -> str:
    """Where a finding is: `path:line:column`, or only the path."""
    start = diagnostic.range.start if diagnostic.range else None
    return f"{diagnostic.path}:{start.line}:{start.column}" if start else diagnostic.path


def verdict(results: Results) -> str:
    """The result of the run in one sentence, with what was read, followed by what was not checked."""
    judged = sum(file.is_judged for file in results.files)
    unreadable = sum(file.error is not None for file in results.files)
    paths = {file.path for file in results.files if file.is_judged}
    unsaid = {file.path for file, _ in _unsaid(results)}
    others = (file for file in results.files if not file.is_judged and file.error is None)
    unjudged = len({file.path for file in others if file.path in unsaid or not file.not_judged} - paths)
    partly = len(paths & unsaid)
    found = [count_severity(number, severity) for severity in Severity if (number := results.count(severity))]
    if found:
        sentences = [f"Found {listed(found)} in {read(results)}." if judged else f"Found {listed(found)}. No config was checked."]
    else:
        sentences = [f"No problems found in {read(results)}." if judged else "No config was checked."]
    if unjudged and judged:
        sentences.append(f"{count(unjudged, 'file')} {'was' if unjudged == 1 else 'were'} not checked.")
    if partly:
        sentences.append(f"{count(partly, 'file')} {'was' if partly == 1 else 'were'} checked only in part.")
    if unreadable:
        sentences.append(f"{count(unreadable, 'file')} could not be read.")
    left_out = sum(file.left_out for file in results.files)
    if left_out:
        sentences.append(f"{count(left_out, 'finding')} about a whole training {'was' if left_out == 1 else 'were'} left out.")
    return " ".join(sentences)


def more(results: Results, inferred: str | None) -> str | None:
    """What is assumed, and how many reasons only -v lists; None for nothing."""
    left = 0 if results.verbose else len(_of_others(results)) - MOST_REASONS
    if left <= 0:
        return inferred or None
    unlisted = f"{count(left, 'more reason')} why something was not checked."
    if inferred and inferred.endswith(_VERBOSE):
        return f"{inferred.removesuffix('.')} and {unlisted}"
    return " ".join(filter(None, (inferred, f"Use -v to list {unlisted}")))


_VERBOSE = "Use -v for details."


_KINDS = {"ds_config": "config", "training": "training file", "accelerate": "Accelerate config", "script": "script", "python": "program"}


_SHIPPED = re.compile(r"<[\w.-]+ of [^<>]+>")
"""The name of a config that comes with a framework: no file of the person who asks."""


def read(results: Results) -> str:
    """What was checked: `1 file`, or `12 files (4 configs, 6 scripts, 2 programs)`. A file whose config does not exist counts, too, where a
    finding says so.
    """
    unsaid = {file.path for file, _ in _unsaid(results)}
    judged = [file for file in results.files if file.is_judged or (file.diagnostics and file.path not in unsaid)]
    judged = [file for file in judged if not _SHIPPED.fullmatch(file.path)]
    kinds = {noun: number for kind, noun in _KINDS.items() if (number := sum(file.kind == kind for file in judged))}
    parts = ", ".join(count(number, noun) for noun, number in kinds.items())
    return count(len(judged), "file") + (f" ({parts})" if len(kinds) > 1 else "")


MOST_REASONS = 3
"""The most reasons that are listed without -v. Those of files that look like configs are always listed, and not counted here."""

MOST_PLACES = 3
"""The most places of a reason that are listed without -v; one more is listed rather than counted."""

_OTHER_KINDS = ("unrelated", "template", "inference", "unreadable")


def reasons(results: Results) -> list[str]:
    """What was not checked, with its places and the reason: first the files that look like configs, then all others."""
    return [*_of_configs(results), *_of_others(results)]


def note_of(file: FileResult) -> str | None:
    """What is said of a file as a whole, unless that is why it was not checked."""
    return file.note if file.note and of_note(file.note) not in file.not_judged else None


def first_reasons(results: Results) -> list[str]:
    """The reasons that are listed without -v."""
    return [*_of_configs(results, MOST_PLACES), *_of_others(results, MOST_PLACES)[:MOST_REASONS]]


def _of_configs(results: Results, most: int | None = None) -> list[str]:
    return _reasons((pair for pair in _unsaid(results) if pair[0].kind in _OTHER_KINDS), most)


def _of_others(results: Results, most: int | None = None) -> list[str]:
    others = (pair for pair in _unsaid(results) if pair[0].kind not in _OTHER_KINDS)
    return _reasons(sorted(others, key=lambda pair: pair[0].is_judged), most)


def _unsaid(results: Results) -> Iterator[tuple[FileResult, NotJudged]]:
    """What was not checked, by file, without what a finding at the same place says: the config of a launch that does not exist."""
    found = {(one.path, one.range) for one in results.diagnostics}
    found |= {(at.path, at.range) for one in results.diagnostics for at in one.related}
    for file in results.files:
        yield from (
            (file, one)
            for one in file.not_judged
            if one.range is None or one.is_of_program or (one.path or file.path, one.range) not in found
        )


def _reasons(found: Iterable[tuple[FileResult, NotJudged]], most: int | None) -> list[str]:
    """A sentence for each reason, with the places that have it: all, or the first ones and how many more there are.

    Launches of several programs that have one reason share a sentence, which names none of them.
    """
    alike: dict[str, dict[str, str]] = {}
    for file, one in found:
        place = (one.path or file.path) + (f":{one.range.start.line}" if one.range else "")
        alike.setdefault(_without_verdict(one.reason_of_any), {}).setdefault(place, _without_verdict(one.reason))
    said = []
    for reason, places in alike.items():
        of_each = list(dict.fromkeys(places.values()))
        left = len(places) - most if most is not None else 0
        named = [*list(places)[:most], count(left, "more place")] if left > 1 else list(places)
        shown = f"{', '.join(named[:-1])} and {named[-1]}" if left > 1 else ", ".join(named)
        said.append(f"Not checked: {shown}: {of_each[0] if len(of_each) == 1 else reason}")
    return said


def _without_verdict(note: str) -> str:
    """A note on a file as the reason in a sentence that begins with "Not checked"."""
    return note.removeprefix("not checked: ").replace("; not checked.", ".")


def by_text(said: Iterable[tuple[str, str]]) -> dict[str, list[str]]:
    """What each text is said of, in the order of the texts, from pairs of both."""
    found: dict[str, list[str]] = {}
    for of, text in said:
        if of not in found.setdefault(text, []):
            found[text].append(of)
    return found


def skipped_rules(results: Results) -> Iterator[str]:
    """How many rules were skipped because a fact is missing, and the flags that give these facts, the one with the most rules first."""
    skipped = sorted(results.skipped.items(), key=lambda item: (-len(item[1]), item[0]))
    if skipped:
        flags = ", ".join(f"{flag(fact)} ({len(codes):,})" for fact, codes in skipped)
        total = _skipped(results)
        yield f"{count(total, 'rule')} skipped; to enable {'it' if total == 1 else 'them'} pass {flags}"


def _skipped(results: Results) -> int:
    return len({code for codes in results.skipped.values() for code in codes})


def inferred_facts(results: Results) -> Iterator[str]:
    """A sentence for each fact that was inferred for some file, with its first evidence."""
    for (fact, _), (context, evidence) in _inferred(results).items():
        yield inferred_fact(context, fact, evidence)


def in_short(results: Results) -> str | None:
    """What was inferred, in one short line; None for nothing. Skipped rules are left to -v: most are about facts that the reader lacks."""
    inferred = _inferred(results)
    pinned = [value for (fact, value), (context, _) in inferred.items() if fact == "deepspeed" and _is_pinned(context)]
    used = f"Using DeepSpeed {listed(pinned)}. " if pinned else ""
    given = {
        (fact, value): f"DeepSpeed {value}" if fact == "deepspeed" else f"{option(fact)} {value}"
        for fact, value in inferred
        if not (fact == "deepspeed" and value in pinned)
        and not any(other == fact and more.startswith(f"{value}==") for other, more in inferred)
    }
    unused = next((one.context for one in results.files if one.context.unused_ranks is not None), None)
    said = f"--world-size {unused.unused_ranks} is not used where a launch states its own number. " if unused is not None else ""
    other = next((one.context.unused_loader for one in results.files if one.context.unused_loader is not None), None)
    said += f"--integration {other} is not used where a program passes its config to another loader. " if other is not None else ""
    if not given:
        return f"{said}{used}{_VERBOSE}" if used else None
    named = list(given.values())
    if len(given) > SHORT:
        named = [text for (fact, _), text in given.items() if fact == "deepspeed"][:SHORT]
    left = len(given) - len(named)
    more = count(left, "more inferred fact") if named else count(left, "inferred fact")
    return f"{said}{used}Assuming {listed([*named, *([more] if left else [])])}. {_VERBOSE}"


def _is_pinned(context: Context) -> bool:
    """Whether a file of the project names exactly one release, and dslint knows it."""
    return context.release_source is ReleaseSource.STATED and context.oldest is None and context.has_known_release


def inferred_fact(context: Context, fact: str, evidence: str) -> str:
    """An inferred fact and its evidence, as a sentence without its full stop."""
    value = shown_fact(context, fact)
    if fact == "deepspeed" and context.release_source is ReleaseSource.ASSUMED:
        return f"Assuming DeepSpeed {value} (latest supported): {evidence}"
    if fact == "deepspeed" and context.outside is not None:
        return f"Assuming DeepSpeed {value}: {evidence}"
    return f"Detected DeepSpeed {value}: {evidence}" if fact == "deepspeed" else f"Inferred {option(fact)} {value}: {evidence}"


def _inferred(results: Results) -> dict[tuple[str, str], tuple[Context, str]]:
    """The facts that were inferred for some file: the first context that holds each, and its evidence."""
    inferred: dict[tuple[str, str], tuple[Context, str]] = {}
    for file in results.files:
        for fact, evidence in file.context.evidence:
            inferred.setdefault((fact, shown_fact(file.context, fact)), (file.context, evidence))
    return inferred


def hidden(results: Results) -> str | None:
    """How many findings were suppressed, and how."""
    means = [suppressed.by for suppressed in results.suppressed]
    if not means:
        return None
    counts = listed(f"{number:,} {_BY[by]}" for by in SuppressedBy if (number := means.count(by)))
    return f"{count(len(means), 'finding')} suppressed: {counts}"


def fixable(results: Results) -> str | None:
    """How many findings can be fixed, with which flag, and which files to name for that."""
    kinds = [diagnostic.fix.applicability for diagnostic in results.diagnostics if diagnostic.fix]
    safe, unsafe = kinds.count(Applicability.SAFE), kinds.count(Applicability.UNSAFE)
    parts = [f"{safe:,} fixable with --fix"] if safe else []
    if unsafe:
        parts.append(f"{unsafe:,} more with --unsafe-fixes" if safe else f"{unsafe:,} fixable with --unsafe-fixes")
    others = dict.fromkeys(d.path for d in results.diagnostics if d.fix and d.fix.applicability is Applicability.DISPLAY)
    if others:
        more = [count(len(others) - _NAMED, "more file")] if len(others) > _NAMED else []
        named = listed([*list(others)[:_NAMED], *more])
        parts.append(f"{kinds.count(Applicability.DISPLAY):,} fixable if you also name {named}")
    return ", ".join(parts) or None


def suppressed_by(suppressed: Suppressed) -> str:
    """How a finding was suppressed, and why."""
    return f"suppressed {_BY[suppressed.by]}" + (f": {suppressed.reason}" if suppressed.reason else "")
