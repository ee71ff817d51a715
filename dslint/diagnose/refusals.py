"""What decides an error that a framework raises about arguments: the conditions that stand around it in the framework's sources, and the
values that the job has for them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from importlib import resources
from typing import Any

from dslint.diagnose.diagnosis import LikelyCause
from dslint.diagnose.events import LogEvent
from dslint.diagnose.frames import Frame
from dslint.diagnose.texts import GENERAL, match_line
from dslint.job.arguments import Arguments
from dslint.record import Record

FIRST = 3
"""The words of a message by which its rows are found."""

FEWEST = 4
"""The fewest words by which a message without a traceback is known."""

MOST = 4
"""The most conditions that are told: the last ones stand next to the error."""

MOST_DEPENDS = 3
"""The most further arguments that are named."""

STAGE_3, DEEPSPEED, FSDP = "ZeRO stage 3", "DeepSpeed", "FSDP"
_IN_FORCE = {
    STAGE_3: ("ZeRO stage 3 is in force", "ZeRO stage 3 is not in force", "train at ZeRO stage 2", "train at ZeRO stage 3"),
    DEEPSPEED: ("DeepSpeed is in force", "DeepSpeed is not in force", "train without DeepSpeed", "train with DeepSpeed"),
    FSDP: ("FSDP is in force", "FSDP is not in force", "train without FSDP", "train with FSDP"),
}
"""What is said of a situation, and how to change it: where it holds, and where it does not."""

NO_SETTINGS = frozenset(
    {"base_model", "model_name_or_path", "model", "is_encoder_decoder", "output_dir", "use_dataset_only", "args", "accelerator", "template"}
)
"""Arguments that stand in conditions and that nobody changes to avoid an error."""

NAMES = {"trl": "TRL", "accelerate": "Accelerate", "lightning": "Lightning", "peft": "PEFT"}

_COMPARED = {">": "is above", ">=": "is at least", "<": "is below", "<=": "is at most", "==": "equals", "!=": "differs from"}
_ASSERTS = re.compile(r"\bassert\b")


class RefusedArguments(Record):
    """An error that arguments decide: the first words of its message, the place that raises it, and the conditions under which it does.

    `depends` are further arguments in conditions that are not told; `whole` says that there are no other conditions.
    """

    library: str
    words: str
    place: str
    error: str
    conditions: tuple[tuple[Any, ...], ...]
    depends: tuple[str, ...]
    whole: bool


@cache
def _known() -> dict[str, list[RefusedArguments]]:
    """The refusals by some words of their messages and by their place."""
    data = json.loads(resources.files("dslint.diagnose").joinpath("refusals.json").read_text(encoding="utf-8"))
    found: dict[str, list[RefusedArguments]] = {}
    for library, rows in data.items():
        for words, place, error, conditions, depends, whole in rows:
            one = RefusedArguments(library, words, place, error, tuple(map(tuple, conditions)), tuple(depends), whole)
            for key in filter(None, (_key(words), place)):
                found.setdefault(key, []).append(one)
    return found


def _key(words: str) -> str:
    """The first words of a message that stand together without a value in or between them, "" if there are none."""
    own = words.split()
    runs = (own[start : start + FIRST] for start in range(len(own) - FIRST + 1))
    return next((" ".join(run) for run in runs if not any("{}" in word for word in run)), "")


@cache
def _pattern(words: str) -> re.Pattern[str]:
    return re.compile(r".{0,300}?".join(r"\s+".join(map(re.escape, part.split(" "))) for part in words.split("{}")))


def refusals_of(title: str, frames: Sequence[Frame] = ()) -> list[RefusedArguments]:
    """The refusals that an error may be: those with its message, of those the ones that its traceback leads to."""
    words = title.split()
    keys = {" ".join(words[start : start + FIRST]) for start in range(len(words))}
    found = list(dict.fromkeys(one for key in keys for one in _known().get(key, ()) if _pattern(one.words).search(title)))
    if not frames:
        found = [one for one in found if len(one.words.split()) >= FEWEST]
    else:
        places = {_place(frame) for frame in frames}
        here = _known().get(_place(frames[-1]), [])
        told = [one for one in here if one.words and _pattern(one.words).search(title)]
        silent = [one for one in here if not one.words and _ASSERTS.search(frames[-1].code) and _names_all(one, frames[-1].code)]
        found = told or [one for one in found if one.place in places] or silent
    longest = max((len(one.words) for one in found), default=0)
    return [one for one in found if len(one.words) == longest]


def _place(frame: Frame) -> str:
    return f"{'/'.join(frame.file.replace(chr(92), '/').split('/')[-2:])}:{frame.function}"


def _names_all(one: RefusedArguments, code: str) -> bool:
    """Whether the line that raised an error names the argument of the last condition."""
    return bool(one.conditions) and re.search(rf"\b{re.escape(str(one.conditions[-1][0]))}\b", code) is not None


class Decided(Record):
    """What is told of an error: its cause and what to change, and the arguments that these name."""

    why: str
    advice: str
    names: tuple[str, ...]


def with_refusal(cause: LikelyCause, frames: Sequence[Frame], arguments: Arguments | None, commands: Sequence[LogEvent]) -> LikelyCause:
    """The cause; of an error of a framework about arguments that no text explains, with the conditions under which it is raised and what
    the job has for them.
    """
    known = match_line(cause.title, [frame.place for frame in frames])
    if known is not None and known[0].kind != GENERAL:
        return cause
    told = _told(refusals_of(cause.title, frames))
    if told is None:
        return cause
    why, advice = ([one for one in said if one not in cause.of_table] for said in (cause.why, cause.advice))
    given = _given(told.names, arguments, commands)
    return replace(cause, why=(told.why, *given, *why), advice=(told.advice, *advice), of_table=(told.why, told.advice))


def sentences(found: Sequence[RefusedArguments]) -> tuple[str, ...]:
    """The cause and the advice for an error that is one of these refusals."""
    told = _told(found)
    return (told.why, told.advice) if told is not None else ()


def _told(found: Sequence[RefusedArguments]) -> Decided | None:
    """What all refusals that an error may be have in common; None if they are of several libraries, or have nothing that can be changed."""
    if not found or len({one.library for one in found}) > 1:
        return None
    shared = [one for one in dict.fromkeys(found[0].conditions) if all(one in other.conditions for other in found)]
    told = [one for one in shared if one[0] not in NO_SETTINGS][-MOST:]
    named = {one[0] for one in told}
    every = (name for one in found for name in (*one.depends, *(condition[0] for condition in one.conditions if condition not in shared)))
    depends = [name for name in dict.fromkeys(every) if name not in NO_SETTINGS | named and name not in _IN_FORCE][:MOST_DEPENDS]
    if not told and not depends:
        return None
    whole = all(one.whole and set(one.conditions) == set(shared) for one in found) and len(told) == len(shared)
    names = (*(str(name) for name, *_ in told if name not in _IN_FORCE), *depends)
    return Decided(
        _why(NAMES.get(found[0].library, found[0].library), told, depends, whole=whole), _advice(told, depends, whole=whole), names
    )


def _why(library: str, conditions: Sequence[tuple[Any, ...]], depends: Sequence[str], *, whole: bool) -> str:
    if not conditions:
        return f"{library} raises this for values of {_listed(depends)}."
    said = _listed([_said(one) for one in conditions])
    further = f"; it depends on {_listed(depends)}, too" if depends else "" if whole else ", under further conditions"
    return f"{library} raises this where {said}{further}."


def _said(condition: tuple[Any, ...]) -> str:
    """A condition in words."""
    name, relation, *values = condition
    if name in _IN_FORCE:
        return _IN_FORCE[name][0 if relation == "set" else 1]
    if relation in _COMPARED:
        return f"{name} {_COMPARED[relation]} {values[0]}"
    shown = [_value(value) for value in values]
    match relation:
        case "set":
            return f"{name} is set"
        case "unset" | "missing":
            return f"{name} is not set"
        case "given":
            return f"{name} is given"
        case "is" | "is not":
            return f"{name} {relation} {shown[0]}"
        case "one of":
            return f"{name} is {_either(shown)}"
    return f"{name} is neither {' nor '.join(shown)}" if len(shown) > 1 else f"{name} is not {shown[0]}"


def _value(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else "nothing" if value in ("", None) else str(value)


def _either(values: list[str]) -> str:
    return " or ".join(values)


def _advice(conditions: Sequence[tuple[Any, ...]], depends: Sequence[str], *, whole: bool) -> str:
    """The changes each of which ends one of the conditions: all of them hold where the error is raised."""
    first = [f"change {name}" for name in depends] or ([] if whole else ["do what the message says"])
    changes = [*first, *(change for one in reversed(conditions) if (change := _change(one)))]
    text = ", or ".join(dict.fromkeys(changes[:MOST]))
    return f"{text[0].upper()}{text[1:]}."


def _change(condition: tuple[Any, ...]) -> str:
    name, relation, *values = condition
    if name in _IN_FORCE:
        return _IN_FORCE[name][2 if relation == "set" else 3]
    match relation:
        case "set" | "given":
            return f"leave {name} out"
        case "unset" | "missing":
            return f"set {name}"
        case "is" | "one of":
            return f"choose another {name}"
        case "is not" | "none of":
            return f"set {name} to {_either([_value(value) for value in values])}"
    return f"change {name}"


def _given(names: Sequence[str], arguments: Arguments | None, commands: Sequence[LogEvent]) -> list[str]:
    """What the given files and the commands of the log have for arguments, as a sentence."""
    told = []
    for name in names:
        value = arguments.get(name) if arguments is not None else None
        if value is not None:
            told.append(f"{value.shown} ({value.where})")
        elif passed := next((one for event in commands if (one := _passed(name, event))), ""):
            told.append(passed)
    return [f"The job has {_listed(told)}."] if told else []


def _passed(name: str, event: LogEvent) -> str:
    """An argument as a command of the log passes it, with the line."""
    flag = name.replace("_", "[_-]")
    hit = re.search(rf"--{flag}(?:[=\s',\"]+(?P<value>[^\s',\"\]-][^\s',\"\]]*))?(?=[\s',\"\]]|$)", event.text)
    return f"--{name}{' ' + hit['value'] if hit['value'] else ''} (line {event.place.line} of the log)" if hit else ""


def _listed(words: Sequence[str]) -> str:
    *most, last = words
    return f"{', '.join(most)} and {last}" if most else last
