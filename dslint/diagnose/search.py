"""Find the rules behind an error that DeepSpeed, transformers, Accelerate or Lightning prints.

What they print is on record in `rules/errors.json`, which `scripts/record_errors.py` makes: it has the real ones run the mistakes that the
rules find.
"""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Iterable
from functools import cache
from importlib import resources
from typing import Any, NamedTuple

from dslint.diagnose.parse_log import Raised

EXACT, PART, SIMILAR, VAGUE = 4, 3, 2, 1
"""How well an error fits a record: the same; the one is a part of the other; most of their words are the same; only its type, or the place
that pydantic names, is.
"""

FEW = 2
"""The number of rules up to which the type of an error alone says something."""

ANYTHING = "<...>"
"""What stands in a record for a part that is the writer's own."""

MARGIN = 0.1
"""How much worse than the best a fit may be, to be shown beside it."""

ALIKE = 0.72
"""The share of words, weighed by how rare they are, from which two messages are similar."""

_WORD = re.compile(r"[A-Za-z_][\w.]*|#|<\w+>|[<>=!]=?|//|\*")


class Known(NamedTuple):
    """A record: what is raised, by whom and in which phase; the rule that finds the mistake; the keys whose value brings it about, if it is
    the value of a single key that does.
    """

    kind: str
    message: str
    code: str
    phase: str
    by: str
    keys: tuple[str, ...] = ()

    def names(self, where: str) -> bool:
        """Whether one of the keys is the place that pydantic names."""
        return any(key == where or key.endswith("." + where) for key in self.keys)


class Match(NamedTuple):
    """A rule that may be behind an error: its code, how well it fits, the keys it may be about, and what the records say of it."""

    code: str
    fit: int
    keys: tuple[str, ...]
    records: tuple[Known, ...]


@cache
def known() -> tuple[Known, ...]:
    """All records."""
    data = json.loads(resources.files("dslint.rules").joinpath("errors.json").read_text(encoding="utf-8"))
    return tuple(map(of_row, data["errors"]))


def of_row(row: list[Any]) -> Known:
    """A record, of the list that stands for it in the file."""
    kind, message, code, phase, by, keys = row
    return Known(kind, message, code, phase, by, tuple(keys))


def find(raised: Raised) -> list[Match]:
    """The rules behind an error, the likeliest first: those whose record fits best, and of these the ones that fewest keys lead to."""
    scored = [(fit, record) for record in known() if (fit := _fit(raised, record)) > 0]
    top = max((fit for fit, _ in scored), default=0)
    records = [record for fit, record in scored if fit >= top - MARGIN]
    if raised.where:
        named = [record for record in records if record.names(raised.where)]
        records = named or [record for record in records if not record.keys] or records
    elif not records:
        records = [record for record in known() if record.kind == raised.kind]
        records = records if len({record.code for record in records}) <= FEW else []
    matches = [_match(code, int(top) or VAGUE, records, raised.where) for code in dict.fromkeys(record.code for record in records)]
    return sorted(matches, key=lambda match: -len(match.keys))


def _match(code: str, fit: int, records: Iterable[Known], where: str) -> Match:
    own = tuple(record for record in records if record.code == code)
    keys = (key for record in own for key in record.keys if not where or key == where or key.endswith("." + where))
    return Match(code, fit, tuple(sorted(set(keys))), own)


def _fit(raised: Raised, record: Known) -> float:
    """How well an error fits a record: one of the constants, a little less for every part that may be anything; 0 if it does not."""
    told, recorded = _plain(raised.message), _plain(record.message)
    if raised.kind and raised.kind != record.kind:
        return PART if told == recorded and len(_words(told)) >= 3 else 0
    if not told or not recorded:
        return EXACT if raised.kind and told == recorded else 0
    words = _words(min(told, recorded, key=len))
    if re.fullmatch(_pattern(recorded), told):
        return EXACT + 0.5 - 0.2 * min(recorded.count(ANYTHING), 2)
    if len(words) >= 3 and (told in recorded or re.search(_pattern(recorded), told)):
        return PART
    if raised.where and record.names(raised.where) and told.partition(":")[0] == recorded.partition(":")[0]:
        same_fault = told.rpartition("(")[2] == recorded.rpartition("(")[2]
        return VAGUE + same_fault / 2
    ours, theirs = Counter(_words(told)), Counter(_words(recorded))
    common = _weight((ours & theirs).elements())
    alike = 2 * common / (_weight(ours.elements()) + _weight(theirs.elements()))
    return SIMILAR + alike / 2 if alike >= ALIKE else 0


@cache
def _pattern(message: str) -> re.Pattern[str]:
    return re.compile(".+?".join(map(re.escape, message.split(ANYTHING))))


def _plain(message: str) -> str:
    """A message without what people lose or add when they copy it: case, kinds of quotes, an ending full stop."""
    return re.sub(r"[`\"\u2018\u2019\u201c\u201d]", "'", message).lower().strip().rstrip(".")


@cache
def _words(message: str) -> tuple[str, ...]:
    return tuple(_WORD.findall(message))


def _weight(words: Iterable[str]) -> float:
    seen, total = _document_counts()
    return sum(math.log((total + 1) / (seen[word] + 0.5)) for word in words)


@cache
def _document_counts() -> tuple[Counter[str], int]:
    """In how many records each word stands, and how many records there are."""
    messages = {_plain(record.message) for record in known()}
    return Counter(word for message in messages for word in set(_words(message))), len(messages)
