"""Explain a pasted text or the end of a log: its causes, with the rules behind them, before what only follows from them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

from dslint.diagnose import places, search, texts
from dslint.diagnose.frames import Frame
from dslint.diagnose.parse_log import LoggedError, clean_lines, errors_in, normal
from dslint.record import Record

FEWEST_WORDS = 8
"""The fewest words of a message that is compared with similar records."""

UNSPECIFIC = frozenset(
    {
        "",
        "list index out of range",
        "division by zero",
        "float division by zero",
        "integer modulo by zero",
        "# is not divisible by #",
        "expected str, bytes or os.PathLike object, not NoneType",
        "argument of type 'NoneType' is not iterable",
        "max() arg is an empty sequence",
        "float floor division by zero",
    }
)
"""Messages of Python, and of many libraries, that are recorded for rules: they say nothing where a traceback leads elsewhere."""

_OF_LIBRARIES = re.compile(
    r"(?i)^(?:int too (?:big|large) to convert|int\(\) argument must be a |invalid literal for int\(\) with base (?!.*'auto'$)"
    r"|not all arguments converted during string formatting|attribute name must be string|stat: path should be |exceeds the limit \("
    r"|'DataLoader' object is not an iterator|pop from empty list|empty\(\): argument 'size'|sizes .* and strides "
    r"|trying to create tensor with negative dimension)"
)
"""Messages of Python and PyTorch with a part that varies, which are recorded for rules, too: a tokenizer without a maximum length says "int
too big to convert" as often as the loss scaler.
"""


_THROUGH = {
    "list index out of range": r"/deepspeed/runtime/(swap_tensor|pipe)/",
    "pop from empty list": r"/accelerate/accelerator\.py:(save|load)_state$",
    "the new group's world size should be less or equal to the world size set by init_process_group": r"/deepspeed/inference/",
}
"""Such messages that another function raises, and the frame of the library that called it."""


def is_unspecific(message: str, frames: Sequence[Frame] = ()) -> bool:
    """Whether a message alone says nothing about DeepSpeed. For some, the frames tell which function it belongs to."""
    if frames and message in _THROUGH:
        return leads_elsewhere(message, frames)
    return message in UNSPECIFIC or bool(_OF_LIBRARIES.match(message))


def leads_elsewhere(message: str, frames: Sequence[Frame]) -> bool:
    """Whether a message that a rule records was raised where no frame is the one of the rule's library."""
    through = _THROUGH.get(message)
    return through is not None and bool(frames) and not any(re.search(through, f"/{frame.place}") for frame in frames)


class Explained(Record):
    """An error of a text, with what says its cause: an entry of the table of known texts, recorded errors of rules, or both; or only the
    place where it was raised.
    """

    printed: str
    known: texts.TextMatch | None
    rules: tuple[search.RuleMatch, ...]
    place: places.KnownPlace | None = None


class Explanation(Record):
    """What a text tells: the errors that are causes, most likely first; the known texts that are not; and all errors that were read."""

    causes: tuple[Explained, ...]
    others: tuple[texts.TextMatch, ...]
    read: tuple[LoggedError, ...]


def explain(text: str) -> Explanation:
    """Explain the errors of a text.

    A known text comes with the recorded errors of its line, if they are the same message. A recorded error that is only similar counts
    if no known text is a cause. If nothing is a cause, the place of the traceback says what failed; without one, what general texts say
    counts, or else the symptoms. Of a symptom that is the error itself, such as a lost connection, the place says less.
    """
    lines = clean_lines(text)
    frames = places.frames_in(lines)
    place = places.place_of(frames)
    read = errors_in(text)
    known = _first_of_each(texts.ranked(texts.match(lines, [frame.place for frame in frames])))
    found = {raised: tuple(search.find(raised)) for raised in read}
    named = _most_telling([match for match in known if match.entry.rank == texts.CAUSE and match.entry.kind != texts.GENERAL])
    causes = [_of_text(match, lines, found, frames, place) for match in named]
    found = {raised: similar for raised, similar in found.items() if not _is_further_line(raised, similar, named, lines)}
    causes += list(_of_records(found, frames, certain=bool(causes)))
    if not causes and place:
        causes = [Explained(_line_of(match, lines), match, ()) for match in known if _is_symptom_of(match, read, lines)]
    if not causes and place:
        causes = [Explained(_last_raised(read, frames), None, (), place)]
    if not causes:
        general = [match for match in known if match.entry.kind == texts.GENERAL]
        symptoms = [match for match in known if match.entry.rank == texts.SYMPTOM]
        causes = [Explained(_line_of(match, lines), match, ()) for match in general or symptoms]
    used = [cause.known for cause in causes]
    others = [match for match in known if match.entry.rank != texts.CAUSE and match not in used]
    return Explanation(tuple(causes), tuple(others), tuple(read))


OF_SHAPES = ("checkpoint-of-placeholders", "checkpoint-of-empty-weights", "checkpoint-of-one-number", "checkpoint-shape-mismatch")
"""The entries for the lines of one message about shapes, the one that says most first: a file of weights that ZeRO stage 3 had divided
holds small weights whole, and those of other layers show it.
"""


OF_PARAMETER = ("parameter-without-elements", "param-inflight")
"""The entries for the line that asserts the state of a parameter and for its summary, which is below it or torn from it."""


def _most_telling(named: list[texts.TextMatch]) -> list[texts.TextMatch]:
    """The matches, of those about shapes or about one parameter only the one that says most."""
    ids = {match.entry.id for match in named}
    less = [name for group in (OF_SHAPES, OF_PARAMETER) for name in [name for name in group if name in ids][1:]]
    return [match for match in named if match.entry.id not in less]


def _of_text(
    match: texts.TextMatch,
    lines: Sequence[str],
    found: dict[LoggedError, tuple[search.RuleMatch, ...]],
    frames: Sequence[Frame],
    place: places.KnownPlace | None,
) -> Explained:
    """The explanation of a known text, with the recorded errors of its line, which are taken out of `found`."""
    line = _line_of(match, lines)
    own = [raised for raised in found if _is_in(raised, line)]
    recorded = {raised: found.pop(raised) for raised in own}
    of_config = match.entry.kind != texts.BUILD
    specific = (rules for raised, rules in recorded.items() if of_config and (raised.message not in UNSPECIFIC or _is_in_library(frames)))
    return Explained(
        line, match, _sure(rule for rules in specific for rule in rules), place if match.entry.kind in texts.ABOUT_TENSORS else None
    )


HEAD = 40
"""The number of characters with which a line of a message is looked for in records of the whole message."""


def _is_further_line(
    raised: LoggedError, similar: Sequence[search.RuleMatch], named: Sequence[texts.TextMatch], lines: Sequence[str]
) -> bool:
    """Whether an error without a type is a further line of a known message, which was pasted without its traceback.

    It is one if its own line is known as that message, or if a rule records it in one message with a line that is.
    """
    if raised.kind:
        return False
    known = texts.match_line(raised.message)
    if known is not None and any(known[0].id == match.entry.id for match in named):
        return True
    told = [normal(_line_of(match, lines))[:HEAD] for match in named]
    return any(head in record.message for head in told for rule in similar for record in rule.records)


def _of_records(
    found: Mapping[LoggedError, tuple[search.RuleMatch, ...]], frames: Sequence[Frame], *, certain: bool
) -> Iterator[Explained]:
    """The explanations of errors by recorded ones; only by equal ones if another cause is `certain`."""
    for raised, similar in found.items():
        is_short = not raised.kind and not raised.where and len(raised.message.split()) < FEWEST_WORDS
        if certain and is_short and all(rule.fit < search.EXACT for rule in similar):
            continue  # such as "for more details", which ends many messages
        rules = _sure(similar) if certain and not raised.where else _plausible(raised, similar)
        unspecific = raised.message in UNSPECIFIC or (is_unspecific(raised.message) and not _is_in_library(frames))
        if rules and not ((frames or not raised.message) and unspecific) and not leads_elsewhere(raised.message, frames):
            yield Explained(str(raised), None, rules)


def _is_symptom_of(match: texts.TextMatch, read: Sequence[LoggedError], lines: Sequence[str]) -> bool:
    """Whether a symptom, or what follows from a failure, is what the error of a traceback says."""
    is_of_failure = match.entry.rank in (texts.SYMPTOM, texts.FOLLOW_UP)
    return is_of_failure and any(raised.kind and _is_in(raised, _line_of(match, lines)) for raised in read)


def _line_of(match: texts.TextMatch, lines: Sequence[str]) -> str:
    return lines[match.line_number - 1].strip()


def _is_in_library(frames: Sequence[Frame]) -> bool:
    """Whether the innermost frame is one of DeepSpeed's, the library for which such messages are recorded."""
    return bool(frames) and "/deepspeed/" in f"/{frames[-1].file}"


def _last_raised(read: Sequence[LoggedError], frames: Sequence[Frame]) -> str:
    """The error that a traceback ends with, or else the line that raised it."""
    named = [str(raised) for raised in read if raised.kind]
    if named:
        return named[0]
    last = frames[-1]
    return last.code or f"{last.function or 'a frame'} in {'/'.join(last.file.split('/')[-2:])}, line {last.line}"


def _first_of_each(matches: Iterable[texts.TextMatch]) -> list[texts.TextMatch]:
    """The first match of each entry."""
    return list({match.entry.id: match for match in reversed(list(matches))}.values())[::-1]


def _is_in(raised: LoggedError, line: str) -> bool:
    """Whether an error was read from a line, or begins there."""
    return any(raised.message.startswith(part.message) and raised.kind == part.kind for part in errors_in(line))


def _plausible(raised: LoggedError, rules: tuple[search.RuleMatch, ...]) -> tuple[search.RuleMatch, ...]:
    """The rules with a similar record: a message of a few words is similar to too many."""
    return (
        rules
        if raised.where or len(raised.message.split()) >= FEWEST_WORDS
        else tuple(rule for rule in rules if rule.fit != search.SIMILAR)
    )


def _sure(rules: Iterable[search.RuleMatch]) -> tuple[search.RuleMatch, ...]:
    """The rules with a record that is equal to the error or a part of it, each once."""
    return tuple({rule.code: rule for rule in rules if rule.fit >= search.PART}.values())


def codes(explained: Explained) -> Sequence[str]:
    """The codes of the rules about an error: those with a recorded error first, then those of the known text."""
    recorded = [rule.code for rule in explained.rules]
    named = explained.known.entry.rules if explained.known else ()
    return list(dict.fromkeys([*recorded, *named]))
