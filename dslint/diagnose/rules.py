"""Runs the rules on the config of a job, with the facts of its log, and explains its error by what they find."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from dataclasses import replace
from functools import partial

from dslint.config.context import Context
from dslint.config.load import Loaded
from dslint.diagnose.causes.crash import THEY_DIFFER, unequal
from dslint.diagnose.diagnosis import POSSIBLE_CAUSE, LikelyCause
from dslint.diagnose.job import LoggedJob, state_after_init
from dslint.diagnose.judging import judged_in
from dslint.diagnose.texts import GENERAL
from dslint.diagnostics import Diagnostic, Effect, Phase, Severity
from dslint.facts.find_release import ReleaseSource
from dslint.facts.release import LAST_PATCH, OLDEST, RELEASES, Release
from dslint.job.model import Assumed
from dslint.lint.document import lint_loaded
from dslint.lint.group import for_report
from dslint.lint.guard import INTERNAL_ERROR, guarded
from dslint.lint.run import stands_in
from dslint.registry.rules import default_rules
from dslint.setups.open import open_text
from dslint.source.read import ReadError, read
from dslint.source.store import a_run

SURVIVED_INIT = frozenset({Phase.LOAD, Phase.PARSE, Phase.INITIALIZE})
LEAST = Severity.WARNING

AFTER_OLDEST = Release(OLDEST.major, OLDEST.minor, LAST_PATCH[(OLDEST.major, OLDEST.minor)])
"""A release that does what all do since the oldest known one."""


_OF_TRAINING = re.compile(r"deepspeed/runtime/(?:pipe/)?engine\.py:(?:forward|backward|step|_take_model_step|train_batch|eval_batch)$")
"""Methods of an engine that was initialized."""


def survived_by(job: LoggedJob) -> frozenset[Phase]:
    """The phases that a job has survived."""
    if "step" in job.counts:
        return SURVIVED_INIT | {Phase.STEP}
    if "overflow" in job.counts or any(_OF_TRAINING.search(frame.place) for event in job.of("raised") for frame in event.frames):
        return SURVIVED_INIT
    return SURVIVED_INIT if state_after_init(job) or "attribute" in job.counts or job.get("began") else frozenset()


def findings_of(loaded: Loaded, shown: str, survived: frozenset[Phase]) -> list[Diagnostic]:
    """The errors and warnings about a config, except crashes in phases that the job has survived."""
    if loaded.unusable:
        return []
    found = lint_loaded(loaded, shown, default_rules()).diagnostics
    outside = loaded.context.outside
    if outside is None:
        return kept(found, survived)
    if outside < OLDEST:  # what the next release does not do belongs to the one that stands in
        later = loaded.context._replace(facts=loaded.context.facts._replace(deepspeed=AFTER_OLDEST))
        held = {(one.code, one.pointer) for one in lint_loaded(loaded._replace(context=later), shown, default_rules()).diagnostics}
        found = tuple(one for one in found if (one.code, one.pointer) in held)
    return kept((_without_release(one, loaded.context) for one in found), survived)


def _without_release(finding: Diagnostic, context: Context) -> Diagnostic:
    """The finding without the sentence about the release that stands in for another: the title of the findings says it once."""
    if context.outside is None:
        return finding
    return finding._replace(message=finding.message.replace(f" {stands_in(context.outside, context.facts.deepspeed)}", ""))


Found = dict[tuple[str, str | None], Diagnostic]
"""Findings, by code and pointer."""


def findings_of_given(
    path: str, context: Context, survived: frozenset[Phase], about: tuple[str, ...] = ()
) -> tuple[list[Diagnostic], Found | None, frozenset[str]]:
    """What `findings_of` returns, about a launch script, a program, a training file or a config and the files that belong to it, all
    findings, and the rules that could judge these files. All findings are None if it leads to no config, or was not checked. Of the rules
    `about` the error of a job infos count, too.
    """
    from dslint.lint.files import lint_subject  # most diagnoses are of a log alone

    with a_run():
        try:
            subject = open_text(read(path), path, context)
        except ReadError:
            return [], None, frozenset()
        if subject is None:
            return [], None, frozenset()
        results = guarded(partial(lint_subject, subject, context, default_rules()), path)
        failed = any(found.code == INTERNAL_ERROR for result in results for found in result.diagnostics)
        checked = bool(subject.configs) and not failed
        judged = frozenset[str]() if failed else judged_in(subject)
    found = {(finding.code, finding.pointer): _without_release(finding, context) for result in results for finding in result.diagnostics}
    assumed = [taken for one in subject.configs if (taken := _assumed(one.loaded.context)) is not None]
    told = (_with_config(_without_release(finding, context), assumed) for result in results for finding in for_report(result).diagnostics)
    return kept(told, survived, about), found if checked else None, judged


def _assumed(context: Context) -> Assumed | None:
    return context.setup.program.assumed if context.setup is not None and context.setup.program is not None else None


def _with_config(finding: Diagnostic, assumed: Iterable[Assumed]) -> Diagnostic:
    """The finding, where it is about a config that is only taken for that of the program: another job may have another one."""
    taken = next((one for one in assumed if one.config == finding.path and not one.together), None)
    if taken is None or taken.sentence in finding.message:
        return finding
    return finding._replace(message=f"{finding.message} {taken.sentence}", certain=False)


def contradicted(finding: Diagnostic, printed: str) -> bool:
    """Whether a finding about unequal values, which rests on the default of an argument, is not one of those that the error names."""
    stated, told = set(unequal(finding.message)), set(unequal(printed))
    return bool(told) and not stated <= told


def kept(found: Iterable[Diagnostic | None], survived: frozenset[Phase], about: tuple[str, ...] = ()) -> list[Diagnostic]:
    """The findings that a diagnosis has: errors and warnings, except crashes in phases that the job has survived, and all of some rules."""
    told = [one for one in found if one is not None and one.phase not in survived and not one.pedantic]
    return sorted((one for one in told if one.severity.rank >= LEAST.rank or one.code in about), key=lambda one: -one.severity.rank)


_OF_KEY = re.compile(r"ValidationError: (?:\d+ validation errors? for \w+: )?(?P<key>[A-Za-z_][\w.]*): ")
OF_ANY_KEY = ("DS109", "DS112")
"""The rules about keys of another release, which pydantic refuses as it refuses any key that does not exist."""


def key_named_by(title: str) -> str:
    """The key that an error of pydantic is about, "" for other errors."""
    named = _OF_KEY.search(title)
    return named["key"].rpartition(".")[2] if named else ""


def is_about(finding: Diagnostic, key: str) -> bool:
    """Whether a finding is about a key."""
    return finding.pointer is not None and finding.pointer.rpartition("/")[2] == key


def release_of_error(loaded: Loaded, codes: tuple[str, ...], before: Release | None, key: str = "", title: str = "") -> Context | None:
    """The context with the newest release that raises an error which these rules record; None if none of them finds the mistake.

    A log that names no release may be of an older one: what the newest release makes of the config is then not what happened. `before` is
    the first release that has other words for the error. `key` is the one that the error names, if it names one, and `title` the error.
    """
    rules = [rule for rule in default_rules() if rule.code in codes or (key and rule.code in OF_ANY_KEY)]
    oldest = loaded.context.oldest
    if oldest is None or not rules:
        return None
    for release in reversed([release for release in RELEASES if release >= oldest and (before is None or release < before)]):
        facts = loaded.context.facts._replace(deepspeed=release)
        context = loaded.context._replace(facts=facts, oldest=None, release_source=ReleaseSource.STATED)
        found = lint_loaded(loaded._replace(context=context), "", rules).diagnostics
        if any(_explains(finding, title) and (not key or is_about(finding, key)) for finding in found):
            return context
    return None


_OF_RELEASES = frozenset({"DS952", "DS977", "DS986"})
"""The rules that hold tables of releases, each row with an error of its own."""


def _explains(finding: Diagnostic, title: str) -> bool:
    """Whether a finding is a crash for certain; one of a table of releases has to quote the error, which another row may raise."""
    if finding.effect is not Effect.CRASH or not finding.certain:
        return False
    return finding.code not in _OF_RELEASES or _quotes(finding.message, title)


def _quotes(message: str, title: str) -> bool:
    """Whether a message quotes an error, whatever numbers stand in it."""
    told = set(re.findall(r"[A-Za-z_]{3,}", title))
    quoted = (set(re.findall(r"[A-Za-z_]{3,}", quote)) for quote in re.findall(r'"([^"]+)"', message))
    return any(words and len(words & told) >= _ALIKE * len(words) for words in quoted)


_ALIKE = 0.75
"""The share of the words of a quote that the error has: a log may be cut, and names in it differ."""


def _place(finding: Diagnostic, log: str) -> str:
    """Where a finding is, "" if that is not a line of a file that the reader has."""
    if finding.range is None or finding.path == log:
        return ""
    return f" in line {finding.range.start.line} of {os.path.basename(finding.path)}"


def _unsaid(sentence: str, messages: str) -> str:
    """A sentence; of one about values that differ, only the values that messages of rules do not name, "" if they name all."""
    if not sentence.startswith(THEY_DIFFER):
        return sentence
    values = [value for value in sentence.removeprefix(THEY_DIFFER).rstrip(".").split("; ") if value not in messages]
    return f"{THEY_DIFFER}{'; '.join(values)}." if values else ""


OF_CONFIG = frozenset({"batch", "config", "optimizer", "zero", "offload", "integration", "precision", "moe", "parallel", "launcher"})
"""The kinds of errors that a config, its arguments or its launch decide."""


MOST_RULES = 3
"""The rules about an error of which a report tells whether they find it: the first ones record it."""

OF_LOADER = frozenset({"integration", "launcher"})
"""The kinds of errors that a launcher, a parser or a framework raises before DeepSpeed starts."""


def _unproved(codes: str, crashes: list[Diagnostic]) -> str:
    """What is said of an error whose rules find nothing, so that it does not deny what other rules find."""
    others = ", ".join(dict.fromkeys(finding.code for finding in crashes))
    if not others:
        return f"In the given files, rules about this error find nothing ({codes})."
    return f"In the given files, the rules that record this error ({codes}) find nothing. Others find what raises another error: {others}."


def explained(cause: LikelyCause, findings: list[Diagnostic], judged_by: frozenset[str], *, whole: bool, log: str = "") -> LikelyCause:
    """The cause of a job whose config was checked, with what the rules about its error find before what tables say of the error.

    A crash that is found for certain takes the place of a text that holds for any program. `judged_by` are the rules that could judge the
    files: the others stay unchecked, and that they find nothing says nothing of the error. `whole` says that a program or script was given,
    and `log` names the log if it prints the config, so that lines of the config tell nothing.
    """
    if not cause.unchecked:
        return cause
    run = {rule.code: rule for rule in default_rules()}  # without pedantic ones
    about = [code for code in cause.unchecked[:MOST_RULES] if code in run]
    judged = tuple(code for code in about if code in judged_by)
    unjudged = tuple(code for code in about if code not in judged_by)
    cause = replace(cause, unchecked=())
    key = key_named_by(cause.title)
    if key:
        named = [finding for finding in findings if is_about(finding, key) and _explains(finding, cause.title)]
    else:
        recorded = [finding for finding in findings if finding.code in cause.rules and _explains(finding, cause.title)]
        words = frozenset(re.findall(r"\w+", cause.title))
        named = [finding for finding in recorded if finding.pointer and finding.pointer.rpartition("/")[2] in words] or recorded
    crashes = [finding for finding in findings if finding.effect is Effect.CRASH]
    likely = [finding for finding in findings if finding.code in cause.rules] if not key else []
    recorded_by = bool(likely)
    if not likely and cause.kind in OF_LOADER:  # these errors stop a job as early as a mistake that a rule finds there
        likely = [finding for finding in crashes if finding.phase is Phase.LOAD]
    if not named and likely:
        why = tuple(f"{finding.code} finds{_place(finding, log)}{POSSIBLE_CAUSE}{finding.message}" for finding in likely)
        helps = tuple(dict.fromkeys(finding.help for finding in likely if finding.help))
        certain = cause.certain and recorded_by
        return replace(
            cause, why=tuple(dict.fromkeys((*why, *cause.why))), advice=tuple(dict.fromkeys((*helps, *cause.advice))), certain=certain
        )
    if not named:
        codes = ", ".join(judged)
        # the error itself holds the values that differ, such as those of ranks that only the log knows
        is_told = any(one.startswith(THEY_DIFFER) for one in cause.why)
        certain = cause.certain and (bool(unjudged) or not judged or is_told or cause.kind not in OF_CONFIG)
        if whole:
            unproved = () if certain or not codes else (_unproved(codes, crashes),)
            return replace(cause, why=(*cause.why, *unproved), certain=certain, unchecked=unjudged)
        if unjudged or not judged:
            return replace(cause, unchecked=unjudged)
        files = "config and its program" if any("setup" in run[code].watches for code in judged) else "config alone"
        further = f"Run `dslint check .` in the project: in the {files}, rules about this error find nothing ({codes})."
        return replace(cause, advice=(*cause.advice, further), certain=certain)
    places = tuple(f"{finding.code} finds this{place}." for finding in named if (place := _place(finding, log)))
    why = tuple(dict.fromkeys((*(finding.message for finding in named), *places)))
    helps = tuple(dict.fromkeys(finding.help for finding in named if finding.help))
    if cause.kind == GENERAL:
        return replace(cause, why=(*why, *cause.why[1:]), advice=helps or cause.advice, certain=True)
    if (cause.kind in OF_CONFIG or key) and helps:  # what holds for any config would say it again
        rest, more = ([one for one in told if one not in cause.of_table] for told in (cause.why, cause.advice))
        rest = [unsaid for one in rest if (unsaid := _unsaid(one, " ".join(why)))]
        return replace(cause, why=(*why, *rest), advice=(*helps, *more), certain=True)
    return replace(cause, why=(*why, *cause.why), advice=(*helps, *cause.advice), certain=True)
