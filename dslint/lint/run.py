"""Runs rules on a config."""

from __future__ import annotations

import re
from collections.abc import Iterable
from collections.abc import Mapping as Table
from contextlib import suppress
from functools import cache
from typing import TYPE_CHECKING

from dslint.config import Config, Origin
from dslint.config.context import NEEDS, Context
from dslint.config.infer import infer
from dslint.config.resolve import OBJECTS, resolve
from dslint.config.violations import ViolationKind
from dslint.diagnostics import Applicability, Diagnostic, Effect, LoadStep, Phase
from dslint.errors import NotInstalled, UserError
from dslint.facts import OLDEST, Integration, Release
from dslint.facts.find_release import ReleaseSource
from dslint.lint.guard import INTERNAL_ERROR, REPORT_IT, described, internal_error
from dslint.lint.place import place
from dslint.lint.results import Skipped
from dslint.not_judged import NotJudged, of_note
from dslint.registry.watches import can_run, signals_of
from dslint.rule import CannotJudge, Finding, Rule, RuleInfo
from dslint.setups.project import project_of
from dslint.source.change import Rename, Set
from dslint.source.ignores import IgnoreComments
from dslint.source.tree import Document, Path, Span, dotted, path_of

if TYPE_CHECKING:
    from dslint.job.arguments import SourcedValue
    from dslint.job.model import Program

IGNORES = "ignores"
"""What a rule watches that checks the ignore comments of a file. It runs with the suppression of findings, not with the other rules."""


def by_needs(rules: Iterable[RuleInfo], context: Context) -> tuple[list[RuleInfo], list[Skipped]]:
    """The rules that can run, and those that are skipped because a fact is missing."""
    unknown = frozenset(need for need in NEEDS if context.get(need) is None)
    able: list[RuleInfo] = []
    skipped: list[Skipped] = []
    for rule in rules:
        if unknown.isdisjoint(rule.needs):
            able.append(rule)
        else:
            skipped.append(Skipped(rule.code, next(need for need in rule.needs if need in unknown)))
    return able, skipped


def run_rules(rules: Iterable[RuleInfo], config: Config, shown: str) -> tuple[list[Diagnostic], list[NotJudged]]:
    """What the rules find in a config, and what they cannot judge. Only rules that can have something to say are run, and imported."""
    signals = signals_of(config)
    others = config.setup.documents if config.setup else None
    found: list[Diagnostic] = []
    reasons: list[str] = []
    able = [rule for rule in rules if can_run(rule.watches, signals)]
    read = config.as_read
    if read is not None:
        config.crashes = _crashes_of_misspelt(able, config, read, shown, others)
    for rule in able:
        try:
            found += findings_of(rule, config, config.document, shown, others)
        except CannotJudge as reason:
            reasons.append(str(reason))
    found = _failures_in_one(found)
    return found, [of_note(reason) for reason in dict.fromkeys(reasons)]


def _failures_in_one(found: list[Diagnostic]) -> list[Diagnostic]:
    """The findings, with the rules that failed in one block: what one value does to a rule it does to each that reads it."""
    failed = [one for one in found if one.code == INTERNAL_ERROR]
    if len(failed) < 2:
        return found
    first = failed[0]._replace(message=f"{failed[0].message} {len(failed) - 1} of them failed, too.")
    return [one for one in found if one.code != INTERNAL_ERROR] + [first]


def _crashes_of_misspelt(
    rules: Iterable[RuleInfo], config: Config, read: Config, shown: str, others: Table[str, Document] | None
) -> dict[Path, Diagnostic]:
    """By misspelt key: the first crash that it leads to, because DeepSpeed goes on without the key that was meant.

    Args:
        rules: the rules that run.
        config: the config in which a misspelt key leaves open what was meant.
        read: the config in which it stands for nothing.
        shown: the name of the file in diagnostics.
        others: the other files of its setup, by name.
    """
    misspelt = [
        violation
        for violation in config.violations_of(ViolationKind.UNKNOWN_KEY, ViolationKind.MISPLACED_KEY)
        if not violation.raises and violation.meant is not None
    ]
    crashes: list[Diagnostic] = []
    for rule in rules if misspelt else ():
        if rule.effect is not Effect.CRASH or "violation:unknown-key" in rule.watches:
            continue
        with suppress(CannotJudge):
            known = {(d.code, d.pointer) for d in findings_of(rule, config, config.document, shown, others)}
            fresh = findings_of(rule, read, config.document, shown, others)
            crashes += [d for d in fresh if d.certain and d.effect is Effect.CRASH and (d.code, d.pointer) not in known]
    found: dict[Path, Diagnostic] = {}
    for crash in sorted(crashes, key=lambda d: d.order or 0):
        section = (crash.pointer or "/").split("/")[1]
        at = next((one for one in misspelt if one.meant is not None and one.meant[0] == section), misspelt[0])
        found.setdefault(at.path, crash)
    return found


def findings_of(
    rule: RuleInfo, subject: Config | IgnoreComments, document: Document, shown: str, others: Table[str, Document] | None = None
) -> list[Diagnostic]:
    """What a rule finds, placed in the text. A rule that raises gives one diagnostic, which says so.

    Args:
        rule: the rule.
        subject: what it checks: a config; the comments of a file for a rule that watches `IGNORES`.
        document: the file.
        shown: its name in diagnostics.
        others: the other files of its setup, by name.

    Raises:
        CannotJudge: the rule cannot read a fact that it needs.
    """
    try:
        if isinstance(subject, Config) and _is_of_other_training(rule, subject):
            return []
        loaded = rule.load()
        found = [one for one in loaded.check(subject) if "setup" in rule.watches or not _is_unused(rule, one, subject)]
        if not found:  # as most rules
            return []
        if isinstance(subject, Config) and not subject.context.has_known_release:
            found = [_of_unknown_release(rule, one, subject) for one in found]
        if isinstance(subject, Config) and subject.setup is not None and subject.setup.program is not None:
            found = [_as_certain_as_program(one, subject.setup.program, subject) for one in found]
            found = _resting_on_assumed(rule, loaded, found, subject.setup.program, subject)
            found = _resting_on_names(loaded, found, subject) if subject.setup.program.is_posted else found
        if isinstance(subject, Config):
            found = [_as_certain_as_project(rule, one, subject) for one in found]
        if isinstance(subject, Config) and subject.context.oldest is not None and any(_harms(rule, one) for one in found):
            found = _as_certain_as_release(rule, loaded, found, subject)
        found = [_hedged(rule, one) for one in found]
        told = [_without_assertions(rule, _with_arguments(finding, subject), subject) for finding in found]
        return [place(rule, finding, document, shown, others, _order(loaded, finding, subject)) for finding in told]
    except (UserError, CannotJudge):
        raise
    except NotInstalled as error:
        advice = "Install it with pip: dslint loads no plug-in from the working directory or from PYTHONPATH."
        return [internal_error(shown, f"{error} The other rules ran.", advice)]
    except Exception as error:  # noqa: BLE001 - whatever a rule raises, the other rules still run
        message = f"rule {rule.code} ({rule.name}) failed on this file: {described(error)}. The other rules ran."
        return [
            internal_error(
                shown, message, REPORT_IT if rule.is_builtin else f"The rule is not part of dslint: it comes from {rule.module}."
            )
        ]


def _as_certain_as_program(finding: Finding, program: Program, config: Config) -> Finding:
    """The finding, which is not certain where only a run knows whether the program uses the config, or the section that it is about."""
    at = path_of(finding.at)
    is_doubtful = program.by_flag or (bool(at) and config.may_be_replaced(str(at[0])))
    return finding._replace(certain=False) if is_doubtful else finding


def _as_certain_as_project(rule: RuleInfo, finding: Finding, config: Config) -> Finding:
    """The finding, where it is about a section that DeepSpeed may not read, because a program of the project passes an object instead.

    Of a config that nothing is seen to load, or whose program makes the engine where it was not followed, this is not known.
    """
    at = path_of(finding.at)
    argument = OBJECTS.get(str(at[0])) if at else None
    program = config.setup.program if config.setup is not None else None
    if argument is None or not finding.certain or not _harms(rule, finding) or (finding.phase or rule.phase) in (Phase.LOAD, Phase.PARSE):
        return finding
    is_seen = program is not None and program.passed is not None and program.assumed is None  # else it may be for another of its calls
    if is_seen or config.facts.integration not in (None, Integration.DEEPSPEED):
        return finding
    if config.context.project is None or config.document.language == "python" or str(at[0]) in config.replaced:
        return finding
    passes = project_of(f"{config.context.project}/ds_config.json").engine_call_with(*argument)
    if passes is None:
        return finding
    return _resting(
        finding, f"This holds unless the training passes its own {at[0]} to deepspeed.initialize, as {passes} does.", certain=False
    )


def _resting_on_assumed(rule: RuleInfo, loaded: Rule, found: list[Finding], program: Program, config: Config) -> list[Finding]:
    """The findings, where one that rests on the program, for whose config this one is only taken, says so and is not certain.

    What the config shows without the program, or the program under any config, is as certain as it was. Of several configs that it may run
    with, a finding in one of them stays only if it does harm.
    """
    taken = program.assumed
    if taken is None:
        return found
    by_itself: set[str] = set()
    sure: set[str] = set()
    if not taken.is_stage:
        by_itself = _by_itself(loaded, config)
        if rule.setup and not taken.by_launch:
            sure = {one.message for one in loaded.check(config.unknown) if one.certain}
    told = []
    for one in found:
        harms = _harms(rule, one)
        if taken.tried and ((taken.by_launch and loaded.anywhere) or _writes_stage(one)):
            continue  # nothing of the config is known, so that the mistake would be the stage that was tried
        if one.message in sure or one.message in by_itself:
            told.append(one)
        elif harms or not taken.others or one.elsewhere is not None:
            fix = None if taken.is_stage else one.fix  # what is right at one stage is wrong at the others
            resting = _resting(one, taken.sentence, certain=False)
            told.append(resting._replace(fix=fix, rests_on_config=True, harms_with_config=harms))
    return told


def _writes_stage(finding: Finding) -> bool:
    """Whether the fix of a finding is another ZeRO stage."""
    from dslint.job.model import STAGE  # a plain check has no program

    return finding.fix is not None and any(isinstance(one, Set) and one.path == STAGE for one in finding.fix.changes)


def _resting_on_names(loaded: Rule, found: list[Finding], config: Config) -> list[Finding]:
    """The findings about a posted program with names taken for those of libraries: only what the config shows by itself is certain.

    Who loads the config is known by such a name, too.
    """
    if "integration" in config.evidence:
        context = config.context.but(integration=None)._replace(setup=None)
        config = resolve(config.document, infer(config.document, context))
    by_itself = _by_itself(loaded, config)
    return [one if one.message in by_itself else one._replace(certain=False) for one in found]


def _by_itself(loaded: Rule, config: Config) -> set[str]:
    """What a rule finds in the config without the program."""
    with suppress(Exception):  # a rule about a program may need one
        return {one.message for one in loaded.check(config.alone)}
    return set()


def _as_certain_as_release(rule: RuleInfo, loaded: Rule, found: list[Finding], config: Config) -> list[Finding]:
    """The findings, where one that the oldest possible release does not have says on which release it rests.

    An error stays certain on the release of this environment, and not on one that is only assumed. Where the project has another release of
    a library than this environment, it trains in another one, whose DeepSpeed is not known.
    """
    oldest = config.as_oldest
    if oldest is None:
        return found
    known = {(path_of(one.at), one.effect, certain) for one in loaded.check(oldest) for certain in {False, one.certain}}
    is_installed = config.context.release_source is ReleaseSource.ENVIRONMENT
    is_of_training = is_installed and not config.context.trains_elsewhere
    rests_on = f"This environment has DeepSpeed {config.release}" if is_installed else f"DeepSpeed {config.release} is assumed"

    def judged(finding: Finding) -> Finding:
        if not _harms(rule, finding) or (path_of(finding.at), finding.effect, finding.certain) in known:
            return finding
        return _resting(finding, f"{rests_on}; an older release may not do so.", certain=finding.certain and is_of_training)

    return [judged(one) for one in found]


_OF_KEY_TABLE = frozenset(("violation:unknown-key", "violation:misplaced-key", "violation:dead", "violation:too-new"))
"""What rules watch that say which keys a release reads."""


def _of_unknown_release(rule: RuleInfo, finding: Finding, config: Config) -> Finding:
    """The finding about a release that dslint does not know, or a changed copy: nothing that is known of another one is certain for it."""
    if config.context.outside is None:
        return finding._replace(certain=False)
    fix = finding.fix._replace(applicability=Applicability.UNSAFE) if finding.fix is not None else None
    is_older = config.context.outside < OLDEST
    if is_older and fix is not None and not _OF_KEY_TABLE.isdisjoint(rule.watches) and not isinstance(fix.changes[0], Rename):
        fix = None  # the older release may read the key where it stands
    is_told = _harms(rule, finding) or (is_older and (finding.effect or rule.effect) is Effect.IGNORED)
    if not is_told or (finding.phase or rule.phase) is Phase.LOAD:  # what a loader raises is of its own release
        return finding._replace(fix=fix, certain=False)
    return _resting(finding._replace(fix=fix), stands_in(config.context.outside, config.release), certain=False)


def stands_in(outside: Release, judged: Release) -> str:
    """What is said of a finding where a known release stands in for the one that runs the config."""
    return f"dslint judges DeepSpeed {outside} as {judged}, and {outside} may not do so."


def _resting(finding: Finding, on: str, *, certain: bool) -> Finding:
    """A finding with the sentence that says on which release it rests, also where several findings are told as one."""
    if finding.message.endswith(on):  # it has the error of another rule, which says so already
        return finding._replace(certain=certain)
    cause = finding.cause
    shared = cause._replace(message=f"{cause.message} {on}") if cause is not None else None
    return finding._replace(message=f"{finding.message} {on}", cause=shared, certain=certain)


def _hedged(rule: RuleInfo, finding: Finding) -> Finding:
    """The finding where its message says that something raises, and that is not certain: it then says that it may."""
    if finding.certain or (finding.effect or rule.effect) is not Effect.CRASH:
        return finding
    parts = finding.message.split('"')  # quoted text stays as it is
    if any(_MAY.search(part) for part in parts[::2]):
        return finding
    parts[::2] = [re.sub(r"\braises\b", "may raise", part) for part in parts[::2]]
    return finding._replace(message='"'.join(parts))


_MAY = re.compile(r"\b(may|can|could|unless|if)\b", re.IGNORECASE)
"""In a message: it says by itself that it is not certain, or on what it depends."""


def _harms(rule: RuleInfo, finding: Finding) -> bool:
    return (finding.effect or rule.effect) in (Effect.CRASH, Effect.SILENT)


def _order(rule: Rule, finding: Finding, subject: Config | IgnoreComments) -> int | None:
    """The number by which crashes sort as a job meets them: by phase, and up to the search for the ranks by the framework's steps.

    A config that DeepSpeed parses while the model is loaded raises then. Of two errors of a config the one about the batch comes last.
    Source: deepspeed/runtime/config.py, DeepSpeedConfig.__init__, which reads all keys before it checks the batch.
    """
    phase, step = finding.phase or rule.phase, finding.step or rule.step
    if phase is None or (finding.effect or rule.effect) is not Effect.CRASH:
        return None
    late = step is LoadStep.BATCH
    step = LoadStep.MODEL if late else step
    if phase is Phase.PARSE and isinstance(subject, Config):
        from dslint.rules.helpers.models import parses_while_loading  # a plain check does not import what programs need

        phase, step = (Phase.LOAD, LoadStep.MODEL) if parses_while_loading(subject) else (phase, step)
    arguments = subject.arguments if isinstance(subject, Config) else None
    framework = None
    if arguments is not None:
        from dslint.frameworks.registry import named

        framework = named(arguments.framework)
    of_command = framework is not None and arguments is not None and not arguments.kind  # a program has the order of the Trainer
    steps = framework.steps if framework is not None and of_command else tuple(LoadStep)
    return 2 * (steps.index(step) if phase is Phase.LOAD or step is LoadStep.RANKS else len(LoadStep) + list(Phase).index(phase)) + late


_OF_ENGINE = frozenset(f"ds9_integrations.program_{topic}" for topic in ("models", "passes", "weights", "steps", "ranks")) | {
    "ds8_features.save_hooks"
}
"""The modules of rules about what a program does with an engine, beside the chapter DSP."""


def _is_of_other_training(rule: RuleInfo, config: Config) -> bool:
    """Whether a rule is about an engine that the launch does not make, because it selects another training."""
    if config.setup is None or config.setup.accelerate is None:
        return False
    if not (rule.code.startswith("DSP") or rule.module.endswith(tuple(_OF_ENGINE))):
        return False
    from dslint.rules.helpers.loaders import runs_without_deepspeed  # a plain check does not import what programs need

    return runs_without_deepspeed(config)


def _is_unused(rule: RuleInfo, finding: Finding, subject: Config | IgnoreComments) -> bool:
    """Whether a finding is in a section that the program makes useless.

    DeepSpeed does not read a section for which the program passes an object, and a program that only evaluates takes no step with its
    optimizer and schedule.
    """
    setup = subject.setup if isinstance(subject, Config) else None
    at = path_of(finding.at)
    if setup is None or not at or not isinstance(subject, Config):
        return False
    is_idle = setup.program is not None and not setup.program.trains and at[0] in ("optimizer", "scheduler")
    return (is_idle and (finding.effect or rule.effect) is not Effect.CRASH) or at[0] in subject.replaced


def _with_arguments(finding: Finding, subject: Config | IgnoreComments) -> Finding:
    """The finding with the places of the arguments that fill the values it is about: the file itself only says "auto".

    It has no fix if an argument fills the value at its place: the Trainer refuses a config that contradicts its arguments, and a
    written value is not the one that the arguments of another framework ask for.
    """
    if (
        not isinstance(subject, Config)
        or finding.elsewhere is not None
        or (subject.arguments is None and subject.context.own_loader is None)
    ):
        return finding
    named = [finding.at, *(one[0] for one in finding.related if isinstance(one, tuple) and not isinstance(one[0], Span))]
    keys = dict.fromkeys(dotted(path_of(where)) for where in named)
    filled = {key: _fillers(key, subject) for key in keys}
    places = [given.related(f"fills {key}") for key, givens in filled.items() for given in givens]
    return finding._replace(related=(*finding.related, *places), fix=None if filled[next(iter(keys))] else finding.fix)


def _without_assertions(rule: RuleInfo, finding: Finding, subject: Config | IgnoreComments) -> Finding:
    """The finding where the launch runs Python without assertions: an assertion of DeepSpeed that fails is not noticed."""
    launch = subject.setup.launch if isinstance(subject, Config) and subject.setup else None
    given = launch.unasserted if launch is not None else None
    if given is None or (finding.effect or rule.effect) is not Effect.CRASH or rule.code not in _asserted():
        return finding
    is_parsed = (finding.phase or rule.phase) is Phase.PARSE
    return finding._replace(
        message=f"{finding.message} But here {given.name} removes the assertion: DeepSpeed does not notice the mistake and goes on.",
        effect=Effect.SILENT,
        phase=None,
        certain=finding.certain and is_parsed,
        related=(*finding.related, given.related("removes the assertions")),
    )


@cache
def _asserted() -> frozenset[str]:
    """The rules whose bad examples raise nothing but AssertionError in DeepSpeed, as the real one was asked."""
    import json
    from importlib import resources

    raised: dict[str, set[str]] = {}
    for error, _, code, phase, *_ in json.loads(resources.files("dslint.rules").joinpath("errors.json").read_text(encoding="utf-8"))[
        "errors"
    ]:
        raised.setdefault(code, set()).add(error if phase != Phase.LOAD else phase)
    return frozenset(code for code, errors in raised.items() if errors - {""} == {"AssertionError"})


def _fillers(key: str, config: Config) -> tuple[SourcedValue, ...]:
    if not config.has(key) or config.origin(key) is not Origin.FILLED:
        return ()
    from dslint.frameworks.filling import arguments_that_fill

    return arguments_that_fill(config.context, key)
