"""Exceptions: what the table of texts and the recorded errors of the rules say about them."""

from __future__ import annotations

import ast
import os
import re

from dslint.diagnose.causes.none_value import none_in
from dslint.diagnose.diagnosis import LikelyCause, evidence
from dslint.diagnose.events import HOOK, LogEvent
from dslint.diagnose.explain import UNSPECIFIC, is_unspecific, leads_elsewhere
from dslint.diagnose.frames import Frame
from dslint.diagnose.job import LoggedJob, first_not_finite
from dslint.diagnose.known_arguments import with_known_argument
from dslint.diagnose.parse_log import normal, read_error
from dslint.diagnose.places import KnownPlace, is_library, known_places, place_of
from dslint.diagnose.refused_key import with_releases
from dslint.diagnose.search import PART, find
from dslint.diagnose.situation import PIPELINE
from dslint.diagnose.texts import ABOUT_KEYS, ABOUT_TENSORS, BUILD, CAUSE, GENERAL, VALIDATION_ELSEWHERE, KnownText, filled, match_line
from dslint.registry.rules import rule_named

LONGEST = 300
"""The most characters of a message in a title."""

MOST_RULES = 3
"""A cause names no rule where more match: none of them is then the likely one."""

MOST_VALUES = 5
"""The most values of a config and arguments that are named."""

CALLING = 3
"""The frames of a library, from the innermost one on, among which is the one that called it."""

OF_TYPES = "dtype-mismatch"
"""The entry about tensors of different types."""

DATA_LOADING = "data-loading"
"""The place where data is read: it adds nothing to an entry of the kind data, which says what is wrong with it."""

_IN_DEEPSPEED = re.compile(r"(?:^|[/\\])(?:deepspeed[/\\](?!.*[/\\]examples?[/\\])|zero_to_fp32\.py$)")
_LOADS = re.compile(r"load_(?:checkpoint|state_dict|module)|_load_|save_")

THEY_DIFFER = "They differ: "
"""How a sentence begins that repeats these values."""

_UNEQUAL = re.compile(r"- (ds \S+=\S+ vs (?:hf|arg) \S+(?: \(calculated\))?=\S+)")
"""How the Trainer and Accelerate name values of a config that are not those of the arguments."""


def unequal(text: str) -> list[str]:
    """The values of the config and of the arguments which a text says are not equal."""
    return [one.rstrip('".') for one in _UNEQUAL.findall(text)]


def they_differ(text: str) -> list[str]:
    """A sentence with the values that a text says are not equal; none if it names none."""
    values = unequal(text)[:MOST_VALUES]
    return [f"{THEY_DIFFER}{'; '.join(values)}."] if values else []


def crash(job: LoggedJob, event: LogEvent) -> LikelyCause:
    """An exception."""
    if is_cut(event) and not _STATES_ITS_ERROR.match(event.frames[-1].code):
        return _of_cut(job, event)
    kind = event.values.get("kind", "").rpartition(".")[2]
    message = event.values.get("message", "") if event.kind in ("raised", "error") else event.text
    lines = [line for line in message.split("\n") if line.strip()]
    title = ": ".join(filter(None, (kind, *_first(lines)))) or _without_error(event)
    if HOOK in event.values:
        return _of_hook(event, title)
    asserted = job.before(event, "assertion")[:1] if _OF_KERNEL in message else _nccl_warned(job, event, message)
    why, advice, codes, sort = _known(event, message, [one.text for one in asserted])
    passed = _passed_by_program(event, message) if sort in (GENERAL, MISMATCHED) else None
    if passed is not None:
        why, advice, codes = passed
    if _runs_no_program(job, event):
        why, advice, codes = _of_displaced(job)
    of_table = (*why, *advice)
    why = they_differ(message) + why
    recorded = _rules(kind, message) if codes is None and not _is_of_others(event, message) else ()
    if (not why or sort == GENERAL) and not _is_of_any_code(event, message):
        why += said_by(recorded)
    if sort in (GENERAL, "crash"):
        why, advice = [*_is_none(event, message), *why], [*_missing_argument(event, message), *advice]
    why = [*why, *_failed_check(event, kind, message)]
    lost = _lost_before(job, event) if sort in AFTER_NAN and event.kind == "raised" else []
    why = [*lost, *why, *raised_at(event.frames), *_others(job, event)]
    machine = event.values.get("host") or event.host
    if event.kind == "hardware" and machine:
        named = [one.replace("--exclude=HOST", f"--exclude={machine}") for one in advice]
        advice = named if named != advice else [*advice, f"Run without {machine} until it is repaired (Slurm: sbatch --exclude={machine})."]
    if _is_of_others(event, message):
        codes = ()
    elif codes is None:
        codes = recorded
    shown = tuple(evidence(one) for one in (event, *asserted))
    cause = LikelyCause(
        sort,
        title,
        tuple(why),
        tuple(advice),
        shown,
        event.rank,
        event.host,
        event.when,
        rules=codes,
        unchecked=codes,
        of_table=of_table,
    )
    return with_known_argument(with_releases(cause), event.frames)


MISMATCHED = "environment"
"""The kind of the entry for arguments that packages of different releases pass each other."""

_UNEXPECTED = re.compile(r"(?:(?P<function>[\w.]+)\(\) )?got an unexpected keyword argument '(?P<argument>\w+)'")


def _passed_by_program(event: LogEvent, message: str) -> tuple[list[str], list[str], tuple[str, ...]] | None:
    """An argument that the program itself names in its call of a library, which passes it on to a function that does not have it."""
    refused = _UNEXPECTED.search(message)
    if refused is None or not event.frames or not is_library(event.frames[-1]):
        return None
    named = re.compile(rf"\b{refused['argument']}\s*=[^=]")
    own = [frame for frame in event.frames if not is_library(frame) and named.search(frame.code)]
    if not own:
        return None
    argument, function = refused["argument"], f"{refused['function']}()" if refused["function"] else "the function that gets it"
    why = (
        f"The program passes {argument} ({_short(own[-1].file)}:{own[-1].line}), the library passes it on, and {function} does not take it."
    )
    advice = f"Leave {argument} out of this call. If the program was written for another release of the library, install that one."
    return [why], [advice], ()


def _is_none(event: LogEvent, message: str) -> list[str]:
    """Which value of the line that raised an error is None, where the line tells it."""
    name = none_in(message.strip(), event.frames[-1].code) if event.frames else ""
    if not name:
        return []
    return [f"{name.partition('(')[0]}(...) returned None." if name.endswith(")") else f"{name} is None here."]


_ARGUMENT = re.compile(r"(?:\w+_)?(?:args|opts?)\.(?P<name>\w+)$")
"""How programs write an argument of their own command line."""


def _missing_argument(event: LogEvent, message: str) -> list[str]:
    """Advice for an argument of the program that was not passed."""
    named = _ARGUMENT.match(none_in(message.strip(), event.frames[-1].code)) if event.frames and not is_library(event.frames[-1]) else None
    return [f"Pass the argument {named['name']} on the command line, or give it a default in the parser."] if named else []


def _failed_check(event: LogEvent, kind: str, message: str) -> list[str]:
    """Which check of the code failed, for an AssertionError without a message."""
    if kind != "AssertionError" or message.strip() or not event.frames:
        return []
    try:
        (check,) = ast.parse(event.frames[-1].code.strip()).body
    except (SyntaxError, ValueError, RecursionError, MemoryError):  # the first line of a longer statement
        return []
    if not isinstance(check, ast.Assert) or check.msg is not None:
        return []
    return [f"A check in the code fails that has no message: `{ast.unparse(check.test)}` is not true here."]


AFTER_NAN = ("crash", "training", "precision", GENERAL)
"""The kinds of errors that NaN may lead to: a check of the program, an index that is not one, a sampling from no probabilities."""


def _lost_before(job: LoggedJob, event: LogEvent) -> list[str]:
    """That the loss was not a number before an error, which says more than the place of the error."""
    lost = first_not_finite(job)
    if lost is None or lost.place.file != event.place.file or lost.place.line >= event.place.line:
        return []
    return [f"The loss is not a finite number before this error (line {lost.place.line}): it may only follow from that."]


_OF_KERNEL = "device-side assert triggered"
"""What CUDA says of a check in a kernel; the kernel has printed before which one failed."""


_OF_NCCL = re.compile(r"\bNCCL error|\bnccl\w+Error\b|\bncclInvalidUsage\b", re.IGNORECASE)


def _nccl_warned(job: LoggedJob, event: LogEvent, message: str) -> list[LogEvent]:
    """The warning of NCCL that names the cause of its error. Others, such as those of a library that it does not find, name none."""
    if not _OF_NCCL.search(message):
        return []
    warned = ((one, match_line(one.text)) for one in job.before(event, "nccl_warning"))
    return [one for one, known in warned if known is not None and known[0].rank == CAUSE][:1]


_NO_PYTHON = ("SyntaxError", "IndentationError", "NameError")
"""What Python raises for a file that is not a program, such as a hostfile."""


def _runs_no_program(job: LoggedJob, event: LogEvent) -> bool:
    """Whether an error comes from a file that stands in the place of the program in the command."""
    kind = event.values.get("kind", "")
    if job.get("displaced") is None or (event.frames and kind not in _NO_PYTHON) or (kind == "NameError" and len(event.frames) > 1):
        return False  # a program without .py in its name runs until its own error
    places = [frame.file for frame in event.frames[:1]] or [event.values.get("missing", "")]
    return bool(os.path.basename(places[0]) == os.path.basename(job.get("displaced")[0]))


def _of_displaced(job: LoggedJob) -> tuple[list[str], list[str], tuple[str, ...]]:
    started, program = job.get("displaced")
    why = f"The command starts {started} as the program, and passes {program} on as its first argument."
    host = "host" in os.path.basename(started)
    advice = f"Remove {started} before {program}" + (f"; a hostfile is passed as --hostfile={started}." if host else ".")
    return [why], [advice], ()


def _of_hook(event: LogEvent, title: str) -> LikelyCause:
    """An error in the function that reports the error that ended the program."""
    why = (
        "An error ended the program, and the function that reports it (sys.excepthook) failed, too. The log does not show the first error.",
    )
    advice = (
        "Look for the first error in the logs of the other ranks, or run without the package that sets sys.excepthook (see the frames).",
    )
    shown = (evidence(event),)
    return LikelyCause("crash", title, (*why, *raised_at(event.frames)), advice, shown, event.rank, event.host, event.when, certain=False)


def _first(lines: list[str]) -> list[str]:
    """The first line of a message; of pydantic, which counts the errors there, also the first key and what is wrong with it."""
    first = lines[: 3 if lines and "validation error" in lines[0] else 1]
    return [_OF_FAULT.sub("", line.strip()).removeprefix(": ")[:LONGEST] for line in first]


_OF_FAULT = re.compile(r" \[type=\w+, input_value=.*\]$")
"""What pydantic adds to a fault for programs."""


def is_cut(event: LogEvent) -> bool:
    """Whether an event is a traceback of which the log does not hold the error."""
    return event.kind == "raised" and not event.values.get("kind") and bool(event.frames)


_STATES_ITS_ERROR = re.compile(r"raise \w|assert ")
"""How the innermost line of a cut traceback begins if it says itself which error was raised."""


def _of_cut(job: LoggedJob, event: LogEvent) -> LikelyCause:
    """A traceback that is cut before its error: its place does not tell why it failed there."""
    why = [f"The log does not hold the error itself, so the cause cannot be told. {_last_frame(event.frames)}", *_others(job, event)]
    advice = ["Pass the lines that follow this one, too: the last line of a traceback names the error.", OTHER_RANKS]
    shown = (evidence(event),)
    return LikelyCause("crash", _without_error(event), tuple(why), tuple(advice), shown, event.rank, event.host, event.when, certain=False)


OTHER_RANKS = (
    "Look at the logs of the other ranks and machines; torchrun writes them with --log-dir, deepspeed with --enable_each_rank_log."
)


def _without_error(event: LogEvent) -> str:
    """A title for a traceback that was cut before its error: the source line of the last frame, and where it stands."""
    if not event.frames:
        return "A process failed"
    last = event.frames[-1]
    at = f"{_short(last.file)}:{last.line}" if last.line else _short(last.file)
    where = f"at `{last.whole_code}` ({at})" if last.code else f"at {at}"
    return f"A process failed {where}; the traceback ends before its error"


def _last_frame(frames: tuple[Frame, ...]) -> str:
    """Where a cut traceback ends, and which line of the program led there."""
    return raised_at(frames)[0].replace("Raised at", "Its last frame is", 1)


def _known(event: LogEvent, message: str, before: list[str]) -> tuple[list[str], list[str], tuple[str, ...] | None, str]:
    """What the table of texts says, or else the place in the code: causes, advice, rules, the kind. The rules are None where they are
    those that record the error. The lines `before` say more than the message.
    """
    kind = event.values.get("kind", "")
    failed = [event.frames[-1].code] if event.frames and not message.strip() else []
    raised = f"{kind}: {message} {event.frames[-1].code}" if event.frames and message in UNSPECIFIC else ""
    place = place_of(event.frames)
    last = message.partition("Last error:")[2].strip()  # of NCCL, which knows more than the line above
    for text in (*before, *filter(None, [last, raised]), f"{kind}: {' '.join(message.split())}"[:4000], *message.split("\n")[:30], *failed):
        hit = _of_its_library(match_line(text, [frame.place for frame in event.frames]), text)
        if hit is not None and not (place and _says_more(place, hit[0], text)):
            entry, values = hit
            where = [place] if place and (entry.kind in ABOUT_TENSORS or entry.id == OF_TYPES) else []
            where = [known for known in where if not _is_vague(known, event) and not (entry.kind == "data" and known.id == DATA_LOADING)]
            if where and _IN_DEEPSPEED.search(event.frames[-1].file):  # advice about inputs and models does not fit
                said = filled(entry.cause, values).partition(". ")[0].rstrip(".")
                return [f"{said}.", where[0].cause], [*filter(None, [where[0].advice])], (), entry.kind
            where += _of_pipeline(entry, event.frames)
            why = [filled(entry.cause, values), *(known.cause for known in where)]
            advice = [filled(entry.advice, values), *(known.advice for known in where if known.advice)]
            without_rules = (
                entry.kind == BUILD
                or entry.id == VALIDATION_ELSEWHERE
                or entry.id in WITHOUT_RULES
                or (text == raised and match_line(f"{kind}: {message}") is None)
            )
            return why, advice, entry.rules or (() if without_rules else None), entry.kind
    return ([place.cause], [*filter(None, [place.advice])], None, "crash") if place else ([], [], None, "crash")


IN_PIPELINES = {"collate-shapes": "pipeline-activations", "values-to-unpack": "pipeline-batch"}
"""What is known of a pipeline, by id, for entries about tensors and values that a layer or the loss function gets from its engine."""


def _of_pipeline(entry: KnownText, frames: tuple[Frame, ...]) -> list[KnownPlace]:
    """What holds for an error in a layer or a loss function that the engine of a pipeline calls."""
    if entry.id not in IN_PIPELINES or not any(PIPELINE in frame.file for frame in frames):
        return []
    return [known for known in known_places() if known.id == IN_PIPELINES[entry.id]]


WITHOUT_RULES = frozenset({"group-larger-than-job", "no-optimizer-state-saved"})
"""Entries for messages that rules record for other places, or that say all that a rule could: there may be no config to check."""

OF_CALLS = "unexpected-argument"
"""The entry for a function that is called with other arguments than it has, which no data and no setting of a job does."""


OF_ATTRIBUTES = "attribute-missing"
"""The entry for an object without an attribute."""

_OF_PROGRAM = re.compile(r"'\w*(?:Arguments|Args)' object has no attribute")
"""What Python says of an object with the arguments of a program, whose class is never one of a library that reads files."""


_WRONG_COUNT = re.compile(r"\(\) takes .{1,60} positional arguments? but \d+ w")
"""What Python says of a call with too many arguments: one of two codes is of another release, whatever the job does at this place."""


def _says_more(place: KnownPlace, entry: KnownText, text: str) -> bool:
    """Whether a place says more about an error than the entry for its message: a library alone says nothing about a wrong call, and the
    files that are read nothing about a class of the program.
    """
    if entry.id == OF_ATTRIBUTES and _OF_PROGRAM.search(text):
        return False
    of_calls = entry.id == OF_CALLS and (place.only_library or bool(_WRONG_COUNT.search(text)))
    return entry.kind == GENERAL and bool(place.advice) and not of_calls


def _is_vague(place: KnownPlace, event: LogEvent) -> bool:
    """Whether a place says only which library raised an error, which adds nothing to what is known of the message."""
    return place.only_library and not _IN_DEEPSPEED.search(event.frames[-1].file)


def _of_its_library(hit: tuple[KnownText, dict[str, str]] | None, text: str) -> tuple[KnownText, dict[str, str]] | None:
    """The entry for what pydantic says of a key, or the one for another library where the values that it checks are those of that."""
    checked = _CHECKED.search(text) if hit is not None and hit[0].id in ABOUT_KEYS else None
    elsewhere = match_line(checked.group()) if checked is not None else None
    return elsewhere if elsewhere is not None and elsewhere[0].id == VALIDATION_ELSEWHERE else hit


_CHECKED = re.compile(r"\d+ validation errors? for \w+")


_OF_PYTHON = re.compile(
    r"^(?:'(?:str|int|float|bool|dict|list|tuple|NoneType)' object |argument of type '\w+' is not iterable|unsupported operand type\(s\) for "
    r"|'\S+' not supported between instances of |(?:not enough|too many) values to unpack)"
)
"""What Python says of values of its own types: of the line that raised it, which is a mistake of the config only in a library."""


def _is_of_any_code(event: LogEvent, message: str) -> bool:
    """Whether a message is one of Python, so that a rule that records it may only be the cause where it finds its mistake in the config."""
    said = normal(" ".join(message.split()))
    return is_unspecific(said, event.frames) or bool(_OF_PYTHON.search(said))


def _is_of_others(event: LogEvent, message: str) -> bool:
    """Whether a message of Python, which rules record for DeepSpeed, was raised elsewhere."""
    said = normal(" ".join(message.split()))
    if not event.frames:
        return leads_elsewhere(said, event.frames)
    if _is_of_any_code(event, message) and not _is_in_deepspeed(event):
        return True
    if said not in UNSPECIFIC:
        return leads_elsewhere(said, event.frames)
    last = event.frames[-1]
    return "/deepspeed/" not in f"/{last.file}" or bool(_LOADS.search(last.function)) or leads_elsewhere(said, event.frames)


def _is_in_deepspeed(event: LogEvent) -> bool:
    """Whether DeepSpeed, Accelerate or the part of another library that reads its config raised an error or called what raised it."""
    last = event.frames[-1]
    return (
        "deepspeed/" in last.file
        or "accelerate/" in last.file
        or (is_library(last) and any("deepspeed" in frame.file for frame in event.frames[-CALLING:]))
    )


def _rules(kind: str, message: str) -> tuple[str, ...]:
    """The rules that record this error, if it is one of theirs beyond doubt."""
    matches = [match for error in read_error(kind, message) for match in find(error) if match.fit >= PART]
    return tuple(dict.fromkeys(match.code for match in matches))[:MOST_RULES] if len(matches) <= MOST_RULES else ()


def said_by(codes: tuple[str, ...]) -> list[str]:
    """What the only rule says that records an error which no table explains."""
    known = rule_named(codes[0]) if len(codes) == 1 else None
    summary = known.load().summary if known is not None else ""
    return [f"{codes[0]} is about this error. {summary}"] if summary else []


def raised_at(frames: tuple[Frame, ...]) -> list[str]:
    """Where it was raised, and which line of the program led there."""
    if not frames:
        return []
    last, verb = frames[-1], "Raised"
    if last.function in _ATTRIBUTES and len(frames) > 1:
        last, verb = frames[-2], "Read"
    own = [frame for frame in frames if not is_library(frame)]
    told = [f"{verb} at {_short(last.file)}:{last.line}" + (f", in {last.function}" if last.function else "")]
    if own and own[-1] is not last:
        told.append(f"called by {_short(own[-1].file)}:{own[-1].line}" + (f" ({own[-1].whole_code})" if own[-1].code else ""))
    return [", ".join(told) + "."]


_ATTRIBUTES = ("__getattr__", "__getattribute__")
"""Methods that only say that an attribute is missing: what matters is the line that reads it."""


def _short(path: str) -> str:
    """The last parts of a path."""
    for library in ("site-packages/", "dist-packages/"):
        if library in path:
            return path.rpartition(library)[2]
    return "/".join(path.replace("\\", "/").split("/")[-2:])


def _others(job: LoggedJob, event: LogEvent) -> list[str]:
    """What the ranks that did not fail did meanwhile."""
    if event.kind != "raised" or not job.of("watchdog"):
        return []
    late = job.of("watchdog")[0]
    return [f"The other ranks then waited until the NCCL watchdog ended them (line {late.place.line}): that is a consequence."]
