"""Diagnoses jobs from their logs: reads, reconstructs, finds the cause, runs the rules, compares the memory."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Iterator
from dataclasses import replace

from dslint.config import resolve
from dslint.config.context import Context
from dslint.config.load import Loaded
from dslint.config.read_value import PYDANTIC_2
from dslint.diagnose import paste
from dslint.diagnose.causes import find_causes, find_notices, follows
from dslint.diagnose.causes.gpu_memory import ENOUGH_IN_PIECES, figures_of
from dslint.diagnose.causes.requests import STATES_OF_ADAM
from dslint.diagnose.causes.waits import wait_at_end
from dslint.diagnose.context import NOTHING, LogContext, checked_as, config_file, config_of, context_of, is_only_printed, model_in
from dslint.diagnose.diagnosis import Diagnosis, End, Evidence, JobOutcome, LikelyCause
from dslint.diagnose.equal_jobs import EqualJobs
from dslint.diagnose.events import EventReader
from dslint.diagnose.fitting import fitted
from dslint.diagnose.fold import jobs_of
from dslint.diagnose.headless import with_frames_above
from dslint.diagnose.job import SURVIVING, LoggedJob
from dslint.diagnose.judging import judged_by
from dslint.diagnose.memory import Way, Workshop, estimated, is_of_another_job, measured, measured_only, ways_to_fit
from dslint.diagnose.outcome import LOG_ENDS, TELLS_NO_FAILURE, of_ended_cells, outcome_of
from dslint.diagnose.pace import slow_steps
from dslint.diagnose.places import frames_in
from dslint.diagnose.prefixes import LogLine
from dslint.diagnose.reading import LogSource
from dslint.diagnose.refusals import with_refusal
from dslint.diagnose.rules import (
    contradicted,
    explained,
    findings_of,
    findings_of_given,
    is_about,
    kept,
    key_named_by,
    release_of_error,
    survived_by,
)
from dslint.diagnose.situation import Situation, scales_loss, shows_deepspeed, situation_given, situation_in, situation_of, stated_release
from dslint.diagnose.stage_of_error import loads_at_stage_3, proves_stage_3
from dslint.diagnose.texts import BUILD
from dslint.diagnostics import Diagnostic, Phase
from dslint.errors import UserError
from dslint.facts import Release
from dslint.facts.gpus import GIB
from dslint.lint.discovery import shown as shown_path
from dslint.memory.estimate import Estimate
from dslint.memory.ledger import GRADIENTS, MASTER, OPTIMIZER, PARAMETERS
from dslint.memory.shapes import Model
from dslint.record import Record
from dslint.source.config_text import unread_parts

COMPARABLE = Release(0, 9, 0)
"""The first release with which the estimate was compared."""

MOST_TEXTS = 16
"""The logs without a line of a job that are searched for an error."""

MOST_LAST = 5
"""The last lines of a log that are searched for an error if none of them says how the job ended."""

MOST_LINES = 1000
"""The last lines of such a log that are searched for what else it tells, such as its launcher."""

TEXT_FAILED = "The text reports an error; no line tells how the job ended."

NEXT_BEGINS = "The next job of the log begins"

OF_SIGNAL = re.compile(r"failed \(exitcode: -\d+\)|\bexitcode +: -\d+|Signal \d+ \(SIG\w+\) received by|exits with return code = -\d+")
"""Lines of launchers which say that a signal ended a process, as the cause from the signs of the job does."""

OF_TRAINING = re.compile(
    r"\[(?:DEBUG|INFO|WARNING|ERROR)\] +\[\w+\.py:\d+:\w+\]"
    r"|(?i:\bdeepspeed|ds_(?:config|report|z\d)|zero_optimization|\bzero[_ -]?(?:stage|init|[123]\b)|train_micro_batch_size_per_gpu)"
    r"|time \(ms\) \| |-compute \.+: \(|\bCPU Virtual Memory: |\bInvalidate trace cache @|\bpytorch allocator cache flushes"
    r"|\bTime to load \w+ op: |\bas PyTorch extensions root\b|\bLoading extension module \w+|\bNCCL INFO\b"
    r"|\btrainable params: |Loading checkpoint shards|\bepoch\b.{0,60}\bloss\b|\bloss['\"]?[ :=]+['\"]?\d"
)
"""Lines of a training: how DeepSpeed begins what it logs (deepspeed/utils/logging.py), its name and its keys, what it and Megatron print
without them, or what programs print.
"""

OF_REPORT = re.compile(r"\.{5} |extension op report|general environment info")
"""Lines of `ds_report`, which tells what is installed."""

LAST_WORDS = re.compile(
    r"^\s*what\(\): |Assertion .{1,500} failed|Segmentation fault|core dumped|Caught signal \d+|[Bb]us error|\bE[A-Z]\d{4}: ?\S"
    r"|Memory access fault by GPU|^nvcc fatal|: fatal error: "
    r"|^(?:\S+: )?(?:Permission denied \(|Host key verification failed|ssh: connect to host |ssh: Could not resolve)"
    r"|not enough slots available|has detected an attempt to run as root"
    r"|was unable to (?:find the specified executable|launch the specified application)"
    r"|Error while finding module specification for '?deepspeed"
    r"|A worker died or was killed while executing a task|The actor is dead because its worker process has died"
)
"""Lines that a process, or what starts it, prints as it ends. A warning about what is then tried in another way may have the words of
other errors.
"""

OF_SLURM = ("srun: ", "slurmstepd: ")
"""How Slurm says that a task ended, which says less than any other line of an error."""

OF_NINJA = "'ninja', '-v'"
"""What the error of a build names which follows from one of the compiler."""

OF_COMPILER = re.compile(r"[:(]\d+\)?: (?:fatal )?error\b|^(?:cc1plus|ld|collect2|\S*/ld): (?:fatal )?error: ")
"""Lines in which a compiler or linker reports an error."""

LONGEST_NAME = 500
"""The characters of a line that are searched for it."""

LONG_WARMUP = "DS635"
"""The rule about a warm-up that is longer than the run, which is also a notice for jobs whose config is not checked."""


class Judgement(Record):
    """What follows from the facts of a job: what the rules find, and the estimate with what it is made of, or why there is none."""

    findings: list[Diagnostic]
    judged_by: frozenset[str]
    shop: Workshop | None = None
    estimate: Estimate | None = None
    missing: str = ""
    in_config: Situation = Situation()
    checked_as: str = ""
    runs_with: str = ""


def diagnose(sources: Iterable[LogSource], given: LogContext = NOTHING) -> list[Diagnosis]:
    """The diagnosis of each job in some logs, in the order of their start.

    Raises:
        OSError: a log cannot be read.
        UserError: the given model does not exist, or is not supported.
    """
    equal, reader = EqualJobs(), EventReader()
    names: list[str] = []
    ended: set[str] = set()
    jobs = jobs_of(reader.read(_named(sources, names, ended)))
    for job in jobs:
        with_frames_above(job, reader.kept)
    found = [diagnose_job(job, equal, given) for job in jobs]
    for index, one in enumerate(found):
        text = ""
        if one.outcome.end is End.UNFINISHED:
            _look_at_end(one, jobs[index], reader, names, last=index + 1 == len(found))
        if one.outcome.end in (End.UNKNOWN, End.FAILED) and all(follows(jobs[index], cause) for cause in one.causes):
            text = _look_into_text(one, index, jobs, reader, names)
            _explain_by_rules(one, given, text)
        one.causes = [_with_refusal(one.job, cause, given, text) for cause in one.causes]
        situation = one.in_config._replace(
            checkpointing=given.checkpointing,
            loads_partitioned=one.in_config.loads_partitioned or (given.loads_partitioned and one.in_config.stage == 3),
            without_deepspeed=given.without_deepspeed and not shows_deepspeed(one.job),
            dtype="float16" if scales_loss(one.job) else one.in_config.dtype,
            config_found=given.config_found if one.job.stage() is None else "",
        )
        one.causes = [fitted(cause, situation) for cause in one.causes]
        one.notices = [fitted(notice, situation) for notice in one.notices]
        _advise_once(one)
        one.unread = (*reader.kept.damaged, *filter(None, [reader.recogniser.scanner.repeated]))
        if one.outcome.end is End.UNFINISHED and jobs[index].files and jobs[index].files <= ended:
            one.outcome = of_ended_cells(jobs[index])
    for one in found[:-1]:
        if one.outcome.end is End.UNFINISHED:
            one.outcome = one.outcome._replace(sentence=one.outcome.sentence.replace(LOG_ENDS, NEXT_BEGINS))
    return found


def _with_refusal(job: LoggedJob, cause: LikelyCause, given: LogContext, text: str) -> LikelyCause:
    """The cause; of an error of a framework with the conditions under which it is raised. `text` is that of a cause that no event tells."""
    places = {shown.place for shown in cause.evidence}
    frames = next((event.frames for event in job.of("raised", "error") if event.place in places), ()) or tuple(frames_in(text.split("\n")))
    return with_refusal(cause, frames, given.arguments, job.of("launch", "spawned"))


def _advise_once(found: Diagnosis) -> None:
    """Leave out of each cause and notice the advice that one before it gives."""
    told: set[str] = set()
    for causes in (found.causes, found.notices):
        for index, cause in enumerate(causes):
            causes[index] = replace(cause, advice=tuple(advice for advice in cause.advice if advice not in told))
            told.update(cause.advice)


def _named(sources: Iterable[LogSource], names: list[str], ended: set[str]) -> Iterator[LogSource]:
    for source in sources:
        names.append(source.name)
        if source.ended:
            ended.add(source.name)
        yield source


def _look_into_text(found: Diagnosis, index: int, jobs: list[LoggedJob], reader: EventReader, names: list[str]) -> str:
    """Find the cause in the text itself, where no line tells it that the signs of jobs know; return the text that tells it, or ""."""
    job = jobs[index]
    following = jobs[index + 1].first if index + 1 < len(jobs) else None
    first = job.first.line if job.first and index else 0
    last = following.line - 1 if following else sys.maxsize
    known = {shown.place for cause in found.causes for shown in cause.evidence}
    for name in job.files or names[:MOST_TEXTS]:
        begin = max(first, _survived_until(job, name))
        lines = [line for line in reader.kept.lines(name) if begin <= line.place.line <= last and line.text.strip()]
        if not lines and found.outcome.end is End.UNKNOWN:
            found.outcome = JobOutcome(End.UNKNOWN, f"{name} is empty.")
        if found.outcome.end is End.UNKNOWN and any(_is_of_training(line.text[:LONGEST_NAME]) for line in lines):
            found.outcome = found.outcome._replace(end=End.UNFINISHED, sentence=f"{LOG_ENDS}; {TELLS_NO_FAILURE}.")
            _look_at_end(found, job, reader, names, last=following is None)
        ended = any(cause.kind == "exit" for cause in found.causes)
        causes = [
            cause
            for cause in _fitted(job, lines)
            if cause.evidence[0].place not in known and not (ended and OF_SIGNAL.search(cause.evidence[0].text))
        ]
        named = any(cause.kind != "exit" for cause in found.causes)
        says_more = causes and (causes[0].kind != "unknown" or _is_only_of_slurm(found.causes, causes[0]))
        if causes and (causes[0].certain if named else says_more):
            if found.outcome.end in (End.UNKNOWN, End.UNFINISHED):
                found.outcome = JobOutcome(End.FAILED, TEXT_FAILED, causes[0].evidence[0])
            exits = [cause for cause in found.causes if cause.kind == "exit"]
            warned = exits and paste.WARNS.search(causes[0].evidence[0].text[:LONGEST_NAME])
            found.causes = [*exits, *causes] if warned else [*causes, *exits]
            return "\n".join(line.text for line in lines)
        found.causes = [_with_compiler(cause, lines) if cause.kind == BUILD or OF_NINJA in cause.title else cause for cause in found.causes]
    return ""


def _is_only_of_slurm(causes: list[LikelyCause], other: LikelyCause) -> bool:
    """Whether only Slurm tells the causes, and a line that is not one of Slurm looks like an error."""
    return all(cause.evidence[0].text.startswith(OF_SLURM) for cause in causes) and not other.evidence[0].text.startswith(OF_SLURM)


def _is_of_training(text: str) -> bool:
    """Whether a line is one of a training or of DeepSpeed, and not of a report of what is installed."""
    return OF_TRAINING.search(text) is not None and not OF_REPORT.search(text)


def _look_at_end(found: Diagnosis, job: LoggedJob, reader: EventReader, names: list[str], *, last: bool) -> None:
    """Find the cause in the last lines of a log that no sign of a failure ends, where nothing else is printed after it."""
    files = job.files or set(names)
    if not last or len(files) != 1:
        return
    name = next(iter(files))
    stepped = max((step.place.line for step in job.steps), default=0)
    whole = [line for line in reader.kept.lines(name) if line.text.strip()]
    told = _fitted(job, [line for line in whole[-MOST_LAST:] if line.place.line > stepped])
    causes = [cause for cause in told if cause.kind == "hang" or (cause.certain and LAST_WORDS.search(cause.evidence[0].text))]
    if causes:
        found.outcome = JobOutcome(End.FAILED, TEXT_FAILED, causes[0].evidence[0])
        found.causes = causes[:1]
    elif not job.steps and len(whole) > 1 and (wait := wait_at_end(job, whole)) is not None:  # one line is an excerpt
        found.causes = [wait]


def _with_compiler(cause: LikelyCause, lines: list[LogLine]) -> LikelyCause:
    """A failed build, with the first error of the compiler."""
    first = next((line for line in lines if OF_COMPILER.search(line.text[:LONGEST_NAME])), None)
    if first is None:
        return cause
    return replace(cause, evidence=(*cause.evidence, Evidence(first.place, first.text)))


def _survived_until(job: LoggedJob, name: str) -> int:
    """The line of a log up to which the job survived what the log shows: it trained on."""
    steps = [step for step in job.steps if step.place.file == name]
    return steps[-SURVIVING].place.line if len(steps) >= SURVIVING else 0


def _fitted(job: LoggedJob, lines: list[LogLine]) -> list[LikelyCause]:
    """The causes that a text tells, as far as they fit what it tells besides."""
    if not lines:
        return []
    texts = [line.text for line in lines[-MOST_LINES:]]
    situation = situation_of(job, frames_in(texts), "\n".join(texts))
    return [fitted(cause, situation) for cause in paste.causes_of(lines)]


def diagnose_job(job: LoggedJob, equal: EqualJobs, given: LogContext = NOTHING) -> Diagnosis:
    """The diagnosis of one job; raises `UserError` for a model that does not exist. The jobs of a log share `equal`."""
    if is_only_printed(job, given):
        del job.facts["integration"]
    outcome = outcome_of(job)
    situation = situation_of(job)
    found = Diagnosis(job, outcome, find_causes(job, outcome), [fitted(notice, situation) for notice in find_notices(job)])
    shown, told, survived = _shown(job, given), job.told(), survived_by(job)
    found.config_names = (shown,) if given.config_path is None else (shown, shown_path(given.config_path))
    judged = equal.once((told, survived, shown), lambda: _judged(job, given, shown, survived))
    found.findings, found.judged_by = judged.findings, judged.judged_by
    found.checked_as, found.runs_with, found.in_config = judged.checked_as, judged.runs_with, judged.in_config
    _explain_by_rules(found, given)
    if any(finding.code == LONG_WARMUP for finding in found.findings):
        found.notices = [notice for notice in found.notices if notice.kind != "schedule"]
    if judged.shop is None or judged.estimate is None:
        found.measured, found.without_estimate = measured_only(job), judged.missing
        found.not_estimated = f"Not estimated: {judged.missing}." if found.measured else ""
        return found
    shop, estimate = judged.shop._replace(job=job), judged.estimate
    found.measured = measured(job, estimate)
    if given.model is None and any(is_of_another_job(one) for one in found.measured):
        found.measured = measured_only(job)
        found.not_estimated = (
            "Not estimated: much less memory was measured than training the whole model needs; the program may train a part of it (LoRA)."
        )
        return found
    found.causes = [_with_estimate(shop, estimate, cause, equal) for cause in found.causes]
    slow = slow_steps(shop, estimate)
    found.notices += [slow] if slow is not None else []
    return found


def _shown(job: LoggedJob, given: LogContext) -> str:
    """The name of the config in findings."""
    place = job.facts["config"].place if given.config is None and "config" in job.facts else None
    return place.file if place else (config_file(job) if given.config is None else None) or "the config"


def _explain_by_rules(found: Diagnosis, given: LogContext, text: str = "") -> None:
    """Replace the advice to check the config by what the check finds; of a log without a release, with one that raises the error.

    `text` tells a cause that no event tells.
    """
    codes = next((cause.rules for cause in found.causes if cause.unchecked), ())
    loaded = config_of(found.job, context_of(found.job, given), given) if codes else None
    if loaded is not None and loaded.unusable:
        loaded = None
    if not codes or (loaded is None and given.program is None):
        return
    if given.checked is not None and not any(finding.code in codes for finding in found.findings):
        told, _ = _findings(None, context_of(found.job, given), given, _shown(found.job, given), survived_by(found.job), codes)
        found.findings = [*found.findings, *(one for one in told if one.code in codes)]
    if given.program is not None and given.program.endswith(".py") and loaded is None:
        _judge_at_stage(found, given.program, context_of(found.job, given))
    printed = "\n".join([text, *(event.values.get("message", "") for event in found.job.of("raised", "error"))])
    found.findings = [finding for finding in found.findings if not contradicted(finding, printed)]
    key = next((key for cause in found.causes if cause.unchecked and (key := key_named_by(cause.title))), "")
    is_found = any(is_about(finding, key) if key else finding.code in codes for finding in found.findings)
    before = PYDANTIC_2 if any(_OF_PYDANTIC_1 in cause.title for cause in found.causes) else None
    title = next((cause.title for cause in found.causes if cause.unchecked), "")
    if loaded is not None and (before or not is_found) and (context := release_of_error(loaded, codes, before, key, title)) is not None:
        shown = _shown(found.job, given)
        found.findings, found.judged_by = _findings(loaded._replace(context=context), context, given, shown, survived_by(found.job))
        found.checked_as, found.runs_with = str(context.facts.deepspeed), str(found.job.get("release") or "")
    place = found.job.facts["config"].place if given.config is None and "config" in found.job.facts else None
    log = place.file if place else ""
    whole = given.program is not None
    found.causes = [explained(cause, found.findings, found.judged_by, whole=whole, log=log) for cause in found.causes]


def _judge_at_stage(found: Diagnosis, program: str, context: Context) -> None:
    """Add what rules find in a program that leads to no config, where the error proves its ZeRO stage."""
    if not any(cause.unchecked and proves_stage_3(cause.title) for cause in found.causes):
        return
    told, by = loads_at_stage_3(program, context)
    places = {(one.code, one.path, one.range) for one in told}  # what was found there rests on a stage that nobody knew yet
    found.findings = [*(one for one in found.findings if (one.code, one.path, one.range) not in places), *told]
    found.judged_by |= by


_OF_PYDANTIC_1 = "extra fields not permitted"
"""What the models of DeepSpeed say of an unknown key before `PYDANTIC_2`."""


def _findings(
    loaded: Loaded | None, context: Context, given: LogContext, shown: str, survived: frozenset[Phase], about: tuple[str, ...] = ()
) -> tuple[list[Diagnostic], frozenset[str]]:
    """What the rules find in the config of a job and in the given files, and the rules that could judge these. `about` are the rules about
    its error, which may be infos.
    """
    findings = findings_of(loaded, shown, survived) if loaded is not None else []
    judged = judged_by(loaded) if loaded is not None else frozenset()
    if given.checked is None:
        return findings, judged
    if given.facts is not None and context.through is None and context.facts.integration is given.facts.integration:
        context = context.but(integration=None)  # the given file leads to it, and its check says how certain that is
    further, checked, by = findings_of_given(given.checked, context, survived, about)
    if given.config is not None and checked is not None:  # its program may replace parts of this config, or fill them
        findings = kept((checked.get((finding.code, finding.pointer)) for finding in findings), survived, about)
    known = {(finding.code, finding.pointer) for finding in findings}
    findings += [finding for finding in further if (finding.code, finding.pointer) not in known]
    return findings, by if given.program is not None else judged | by


def _judged(job: LoggedJob, given: LogContext, shown: str, survived: frozenset[Phase]) -> Judgement:
    context = context_of(job, given)
    loaded = config_of(job, context, given)
    findings, by = _findings(loaded, context, given, shown, survived)
    model = model_in(job, given)
    told = _told_besides(loaded, context).completed(given.situation)
    known = job.stage()
    told = told._replace(stage=known.value) if known is not None else told
    try:
        shop = _workshop(job, context, loaded, model)._replace(loads_partitioned=given.loads_partitioned)
        judged = Judgement(findings, by, shop, estimated(shop))
    except UserError as error:
        judged = Judgement(findings, by, missing=str(error).rstrip("."))
    return judged._replace(in_config=told, checked_as=checked_as(context), runs_with=str(context.outside or ""))


def _told_besides(loaded: Loaded | None, context: Context) -> Situation:
    """What the config and the given facts tell of a job."""
    if loaded is None or loaded.unusable:
        return situation_given(context.facts)._replace(release=stated_release(context))
    return situation_in(resolve(loaded.document, loaded.context))


def _workshop(job: LoggedJob, context: Context, loaded: Loaded | None, model: Model | None) -> Workshop:
    """What the estimate of a job needs; raises `UserError` for what is missing."""
    if loaded is None:
        raise UserError("the log does not print the config; pass --config FILE")
    if loaded.unusable:
        raise UserError("the config has errors")
    if loaded.document.root is not None and any(unread_parts(loaded.document.root)):
        raise UserError("the program computes a part of the config; write it to a file, and pass --config FILE")
    if _is_old(job):
        raise UserError(f"the job runs a DeepSpeed release before {COMPARABLE}")
    if model is None:
        raise UserError("the log does not tell the model; pass --model")
    return Workshop(job, context, loaded, model)


def _is_old(job: LoggedJob) -> bool:
    """Whether the log names a release, also one that was never published, before the first comparable one."""
    numbers = re.match(r"(\d+)\.(\d+)", str(job.get("release") or ""))
    return numbers is not None and (int(numbers[1]), int(numbers[2])) < (COMPARABLE.major, COMPARABLE.minor)


def _with_estimate(shop: Workshop, estimate: Estimate, cause: LikelyCause, equal: EqualJobs) -> LikelyCause:
    """The cause, with what the estimate adds to it."""
    if cause.kind == "oom":
        return _with_changes(shop, estimate, cause, equal)
    if cause.kind != "host-memory":
        return cause
    ranks = f"{estimate.plan.local} rank{'s' if estimate.plan.local != 1 else ''} of a machine"
    need = f"By the estimate the {ranks} need {estimate.host_of_node / GIB:.0f} GiB of host memory between steps"
    unless = " (where each loads it whole, outside of zero.Init)" if estimate.plan.stage == 3 else ""
    loading = f" and {estimate.loading_of_node / GIB:.0f} GiB while they load the model{unless}" if estimate.host.loading else ""
    rest = tuple(advice for advice in cause.advice if advice not in cause.general)
    return replace(cause, why=(*cause.why, f"{need}{loading}."), advice=rest)


def _with_changes(shop: Workshop, estimate: Estimate, cause: LikelyCause, equal: EqualJobs) -> LikelyCause:
    """The cause, with changes of the config that would have made the job fit."""
    event = next((event for event in shop.job.of("oom") if event.place == cause.evidence[0].place), None)
    figures = figures_of(event) if event else None
    if figures is None or not figures.capacity or figures.free is None:
        return cause
    room = figures.capacity - sum(figures.others)
    needed, capacity = (room - figures.free + figures.request) / GIB, room / GIB
    if estimate.device.expected > room:  # with all its memory in one piece it would not fit either
        cause = replace(cause, advice=tuple(advice for advice in cause.advice if ENOUGH_IN_PIECES not in advice))
    states = sum(estimate.steady.parts[part] for part in STATES)
    too_many = states > room and not shop.job.steps
    if too_many and STATES_OF_ADAM not in " ".join(cause.why):
        alone = (
            f"By the estimate a rank needs {states / GIB:.0f} GiB for weights, gradients and optimizer states alone: more than it can have."
        )
        cause = replace(cause, why=(*cause.why, alone))
    ways = equal.once((shop.job.told(), needed, capacity), lambda: ways_to_fit(shop, needed, capacity))
    if not ways:
        return cause
    told = [_told(way) for way in ways]
    rest = [advice for advice in cause.advice if advice not in cause.general]
    if too_many:  # fewer activations alone are not enough
        rest = [advice for advice in rest if not OF_ACTIVATIONS.search(advice)]
    changes, changed_by = next(((way.diff, sentence) for way, sentence in zip(ways, told, strict=True) if way.diff), ("", ""))
    return replace(cause, advice=(*rest, *told), changes=changes, changed_by=changed_by)


STATES = (PARAMETERS, GRADIENTS, MASTER, OPTIMIZER)
"""The parts of the memory that a rank keeps between steps, whatever the batch is."""

OF_ACTIVATIONS = re.compile(r"activation checkpointing|the loss in chunks|attn_implementation|Lower the (?:micro )?batch size")
"""Advice that saves activations or logits."""


def _told(way: Way) -> str:
    """A change in a sentence."""
    name = f"{way.name[0].upper()}{way.name[1:]}"
    program = f" In the program: {way.program}." if way.program else ""
    return f"{name}: the peak falls to about {way.peak:.0f} GiB (estimated).{program}"
