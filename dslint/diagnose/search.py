"""Find the rules behind an error of DeepSpeed, transformers, Accelerate or Lightning.

`scripts/record_errors.py` runs the bad examples of the rules on the real libraries and records their errors in `rules/errors.json`.
"""

from __future__ import annotations

import builtins
import json
import math
import re
from collections import Counter
from collections.abc import Iterable
from functools import cache, lru_cache
from importlib import resources
from typing import Any

from dslint.diagnose.parse_log import LoggedError
from dslint.record import Record

EXACT, PART, SIMILAR, VAGUE = 4, 3, 2, 1
"""How well an error matches a record: equal; one contains the other; most words are equal; only the type, or the key that pydantic names,
is equal.
"""

FEW = 2
"""The maximum number of rules for which a match by error type only is reported."""

ANYTHING = "<...>"
"""The placeholder in a record for a part that comes from the user's config."""

MARGIN = 0.1
"""How far below the best score a match is still reported."""

ALIKE = 0.72
"""The minimum fraction of common words, weighted by rarity, for two messages to be similar."""

_WORD = re.compile(r"[A-Za-z_][\w.]*|#|<\w+>|[<>=!]=?|//|\*")


class KnownError(Record):
    """A recorded error: its type and message, the library and phase that raise it, the rule that reports the mistake, and the keys that
    cause it if a single value does.
    """

    kind: str
    message: str
    code: str
    phase: str
    by: str
    keys: tuple[str, ...] = ()

    def names(self, where: str) -> bool:
        """Whether one of the keys is the key that pydantic names."""
        return any(key == where or key.endswith("." + where) for key in self.keys)


class RuleMatch(Record):
    """A rule that may explain an error: its code, how well the error matches, the keys it may be about, and the matching records."""

    code: str
    fit: int
    keys: tuple[str, ...]
    records: tuple[KnownError, ...]


@cache
def known() -> tuple[KnownError, ...]:
    """All records."""
    data = json.loads(resources.files("dslint.rules").joinpath("errors.json").read_text(encoding="utf-8"))
    return tuple(map(of_row, data["errors"]))


def of_row(row: list[Any]) -> KnownError:
    """A record from its row in the file."""
    kind, message, code, phase, by, keys = row
    return KnownError(kind, message, code, phase, by, tuple(keys))


@lru_cache(maxsize=1000)
def find(raised: LoggedError) -> tuple[RuleMatch, ...]:
    """The rules behind an error, most likely first: those with the best matching record, of these the ones with most keys first.

    The type counts only if it is not one of Python's own, which have many causes, and if there is a message, although another one.
    """
    scored = [(fit, record) for record in _candidates(raised) if (fit := _fit(raised, record)) > 0]
    top = max((fit for fit, _ in scored), default=0)
    records = [record for fit, record in scored if fit >= top - MARGIN]
    if raised.where:
        named = [record for record in records if record.names(raised.where)]
        records = named or [record for record in records if not record.keys] or records
    elif raised.kind == "ValidationError":  # no key is named: what holds for one key only is not said
        records = [record for record in records if not record.keys] or records
    elif not records and raised.message and not hasattr(builtins, raised.kind):
        records = [record for record in known() if record.kind == raised.kind]
        records = records if len({record.code for record in records}) <= FEW else []
    matches = [_match(code, int(top) or VAGUE, records, raised.where) for code in dict.fromkeys(record.code for record in records)]
    return tuple(sorted(matches, key=lambda match: -len(match.keys)))


def _match(code: str, fit: int, records: Iterable[KnownError], where: str) -> RuleMatch:
    own = tuple(record for record in records if record.code == code)
    keys = (key for record in own for key in record.keys if not where or key == where or key.endswith("." + where))
    return RuleMatch(code, fit, tuple(sorted(set(keys))), own)


@cache
def _numbers() -> tuple[dict[str, list[int]], dict[str, list[int]]]:
    """The numbers of the records, by type and by text."""
    by_kind: dict[str, list[int]] = {}
    by_text: dict[str, list[int]] = {}
    for number, record in enumerate(known()):
        by_kind.setdefault(record.kind, []).append(number)
        by_text.setdefault(_folded(record.message), []).append(number)
    return by_kind, by_text


def _candidates(raised: LoggedError) -> Iterable[KnownError]:
    """The records that may fit an error: those of its type, and those of another type with its text."""
    if not raised.kind:
        return known()
    by_kind, by_text = _numbers()
    numbers = {*by_kind.get(raised.kind, ()), *by_text.get(_folded(raised.message), ())}
    return [known()[number] for number in sorted(numbers)]


def _fit(raised: LoggedError, record: KnownError) -> float:
    """How well an error matches a record: one of the constants, a little less for every placeholder; 0 for no match."""
    told, recorded = _folded(raised.message), _folded(record.message)
    if raised.kind and raised.kind != record.kind:
        return PART if told == recorded and len(_words(told)) >= 3 else 0
    if not told or not recorded:
        return EXACT if raised.kind and told == recorded else 0
    words = _words(min(told, recorded, key=len))
    if re.fullmatch(_pattern(recorded), told):
        return EXACT + 0.5 - 0.2 * min(recorded.count(ANYTHING), 2)
    # an error that DeepSpeed wraps in a message of its own is raised elsewhere, too, without that message
    cut = told in recorded and (record.kind == "ValidationError" or f": {told}" not in recorded)
    if len(words) >= 3 and (cut or re.search(_pattern(recorded), told)):
        return PART
    if raised.where and record.names(raised.where) and told.partition(":")[0] == recorded.partition(":")[0]:
        same_fault = told.rpartition("(")[2] == recorded.rpartition("(")[2]
        return VAGUE + same_fault / 2
    ours, theirs = _counted(told), _counted(recorded)
    if not ours.words.keys() & theirs.words.keys():
        return 0
    common = _weight((ours.words & theirs.words).elements())
    alike = 2 * common / (ours.weight + theirs.weight)
    return SIMILAR + alike / 2 if alike >= ALIKE else 0


@cache
def _pattern(message: str) -> re.Pattern[str]:
    return re.compile(".+?".join(map(re.escape, message.split(ANYTHING))))


@lru_cache(maxsize=4096)
def _folded(message: str) -> str:
    """A message without differences that copying introduces (case, kinds of quotes, a final full stop), in the words of pydantic 2."""
    folded = re.sub(r"[`\"\u2018\u2019\u201c\u201d]", "'", message).lower().strip().rstrip(".")
    return folded.replace(*_PYDANTIC_1)


_PYDANTIC_1 = ("extra fields not permitted (value_error.extra)", "extra inputs are not permitted (extra_forbidden)")
"""What pydantic 1, used by DeepSpeed up to 0.14, says of an unknown key, and what pydantic 2 says."""


@cache
def _words(message: str) -> tuple[str, ...]:
    return tuple(_WORD.findall(message))


class _Counted(Record):
    """The words of a message with their numbers, and their weight together."""

    words: Counter[str]
    weight: float


@lru_cache(maxsize=4096)
def _counted(message: str) -> _Counted:
    words = Counter(_words(message))
    return _Counted(words, _weight(words.elements()))


def _weight(words: Iterable[str]) -> float:
    return sum(map(_weight_of, words))


@lru_cache(maxsize=10_000)
def _weight_of(word: str) -> float:
    """How much a word says: the rarer it is among the records, the more."""
    seen, total = _document_counts()
    return math.log((total + 1) / (seen[word] + 0.5))


@cache
def _document_counts() -> tuple[Counter[str], int]:
    """The number of records that contain each word, and the number of records."""
    messages = {_folded(record.message) for record in known()}
    return Counter(word for message in messages for word in set(_words(message))), len(messages)
