"""The table of texts that failing jobs print, with the cause of each and what to do about it.

The entries are data: the JSON files in `known_texts`, one per topic. `match` finds them in the lines of a log or of a pasted text in one
pass, in time linear in the text, and keeps the numbers that a message names.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from importlib import resources
from typing import Any

from dslint.diagnose import template
from dslint.record import Record

CAUSE, SYMPTOM, FOLLOW_UP, NOISE = range(4)
"""The ranks of entries: the cause of a failure; what shows that something failed, perhaps elsewhere; what follows from a failure that is
printed before; what finished jobs print, too.
"""

MOST_VALUES = 20
"""The maximum number of matches of an entry in a text, each with other values. A job of many ranks prints an error many times."""

FOLLOWING = 3
"""The number of lines within which a further line of a message adds its values to the match before."""

WITHOUT_FRAMES = "without frames"
"""The place of a text that no traceback belongs to."""

IGNORED_TRACEBACK = "ignored-traceback"
"""The kind of the entry that introduces a traceback of an error that Python ignores."""

GENERAL = "general"
"""The kind of entries for messages of Python itself, which count only if nothing says more."""

BUILD = "build"
"""The kind of entries about ops that are compiled on the machine, which no config decides: of an equal message, no rule is named."""

VALIDATION_ELSEWHERE = "validation-elsewhere"
"""The entry about values that pydantic refuses for another library."""

ABOUT_KEYS = frozenset({"pydantic-extra-key", "pydantic-fraction", "pydantic-enum"})
"""The entries for what pydantic says about one key of DeepSpeed's config. It says the same about keys of other libraries."""

ABOUT_TENSORS = frozenset({"training", "data"})
"""The kinds of entries for messages that many places raise, so that the place of the traceback says more."""

TRACEBACK_LINES = 40
"""The number of lines within which the error of such a traceback stands."""

FREQUENT = frozenset(
    b"memory loss step steps second seconds time rank device number parameters gradient allocated reserved total error training".split()
)
"""Words of ordinary progress lines. The index avoids them, so that it seldom searches such a line."""

_CLAUSE = re.compile(r"\[([^\[\]]*)\]")
_VALUE = re.compile(r"\{(\w+)\}")
_BRACE_OR_VALUE = re.compile(r"\{\{|\}\}|\{(\w+)\}")


_NAME = re.compile(r"[\w.:]+(?:Error|Exception|Interrupt|bad_alloc|OutOfResources|Invalid)$")
"""A text that is only the name of an exception."""

_RAISED_BEFORE = re.compile(
    r"(?i:(?:^\s*(?:E\s+)?|[:\]|>)}] *|\d |\b(?:raised?|throwing an instance of|error|exception|with|by|to) +)"
    r"['\"(]?(?:[a-z_]\w*(?:\.|::))*\w*)$"
)
_RAISED_AFTER = re.compile(r"['\"]?[)}]*(?:\s*$|:)|\(")
"""What stands before and after the name of an exception that was raised, and not only named in a sentence or a list."""

BARE = 30
"""The most characters of a text without places that a program may print in advice or settings."""

_ADVICE = re.compile(
    r"(?i)\b(?:if|in case of|avoid(?:s|ing)?|prevent(?:s|ing)?|catch(?:es|ing)?|handl(?:e|es|ing)|except|retry(?:ing)?|without|no) "
    r"(?:\S+ ){0,4}\S*$"
)
"""What stands before such a text where a program says how to treat the error, in a line that does not begin with an exception."""

_BEGINS_WITH_EXCEPTION = re.compile(r"\s*(?:[\w.]+\.)?\w*(?:Error|Exception)\b")


def _is_said(text: _Text, line: str, hit: re.Match[str]) -> bool:
    """Whether a line reports what a text is about. In a sentence, in a list or in advice, the name of an exception reports nothing."""
    if text.is_name and not (_RAISED_BEFORE.search(line[max(0, hit.start() - 200) : hit.start()]) and _RAISED_AFTER.match(line, hit.end())):
        return False
    bare = text.specific <= BARE and "(?P<" not in text.pattern
    return not bare or bool(_BEGINS_WITH_EXCEPTION.match(line)) or not _ADVICE.search(line[max(0, hit.start() - 80) : hit.start()])


class KnownText(Record):
    """A text that a failing job prints.

    `texts` are its wordings, as templates. `cause` and `advice` are sentences with `{name}` for the values of places; a clause in square
    brackets is left out if the message does not have its values. `rules` are the codes of rules that report the mistake in a config.
    `sources` say where the text comes from: a file of a library, or a public thread. `where` are paths in libraries, also with a
    function ("shutil.py:rmtree"): without a frame there, the text tells something else. `WITHOUT_FRAMES` among them stands for a
    text that is pasted without a traceback.
    """

    id: str
    kind: str
    rank: int
    texts: tuple[str, ...]
    cause: str
    advice: str
    rules: tuple[str, ...]
    sources: tuple[str, ...]
    where: tuple[str, ...] = ()

    def fits(self, files: Sequence[str]) -> bool:
        """Whether a traceback through these files may be about this entry."""
        if not files:
            return not self.where or WITHOUT_FRAMES in self.where
        return not self.where or any(part in file.replace("\\", "/") for file in files for part in self.where)


class TextMatch(Record):
    """A text found in a line. `line_number` counts from 1; `values` are the values of the named places, as they are printed."""

    entry: KnownText
    line_number: int
    values: Mapping[str, str]

    @property
    def cause(self) -> str:
        """What went wrong, with the numbers of the message."""
        return filled(self.entry.cause, self.values)

    @property
    def advice(self) -> str:
        """What to do about it."""
        return filled(self.entry.advice, self.values)


class _Text(Record):
    """A wording of an entry, ready for searching.

    `pattern` is its regular expression, `words` are the words that a line with the text contains, and `specific` counts the literal
    characters.
    """

    entry: KnownText
    pattern: str
    words: frozenset[bytes]
    specific: int
    is_name: bool = False


@cache
def entries() -> tuple[KnownText, ...]:
    """All entries, by file and in the order of the file."""
    written = list(rows())
    by_id = {row["id"]: row for row in written}
    return tuple(_entry(row, by_id[row.get("same_as", row["id"])]) for row in written)


def rows() -> Iterator[dict[str, Any]]:
    """The entries as they are written."""
    files = sorted(resources.files("dslint.diagnose").joinpath("known_texts").iterdir(), key=lambda file: file.name)
    for file in files:
        if file.name.endswith(".json"):
            yield from json.loads(file.read_text(encoding="utf-8"))


def _entry(row: dict[str, Any], said: dict[str, Any]) -> KnownText:
    """An entry. `said` has its cause and advice: the entry itself, or the one that it is `same_as`, with other texts or another `where`."""
    return KnownText(
        row["id"],
        row["kind"],
        row.get("rank", CAUSE),
        tuple(row["texts"]),
        said["cause"],
        said["advice"],
        tuple(row.get("rules", ())),
        tuple(row["sources"]),
        tuple(row.get("where", ())),
    )


def match(lines: Iterable[str], files: Sequence[str] = ()) -> list[TextMatch]:
    """The texts found in lines, by line; at most one per line, and of equal matches the first.

    A message of several lines is one match with the values of all its lines. The error at the end of a traceback that Python ignores does
    not count.
    """
    found: list[TextMatch] = []
    ignored_until = 0
    seen: dict[str, set[tuple[tuple[str, str], ...]]] = {}
    for number, line in enumerate(lines, 1):
        hit = match_line(line, files)
        if hit is None:
            continue
        entry, values = hit
        if entry.kind == IGNORED_TRACEBACK:
            ignored_until = number + TRACEBACK_LINES
        elif entry.rank < NOISE and number <= ignored_until:
            ignored_until = 0
            continue
        last = found[-1] if found else None
        if last and last.entry.id == VALIDATION_ELSEWHERE and entry.id in ABOUT_KEYS and number - last.line_number <= TRACEBACK_LINES:
            continue
        if last and last.entry is entry and number - last.line_number <= FOLLOWING and values and not values.keys() & last.values.keys():
            found[-1] = last._replace(values={**last.values, **values})
            continue
        known = seen.setdefault(entry.id, set())
        key = tuple(values.items())
        if key not in known and len(known) < MOST_VALUES:
            known.add(key)
            found.append(TextMatch(entry, number, values))
    return found


def match_line(line: str, files: Sequence[str] = ()) -> tuple[KnownText, dict[str, str]] | None:
    """The entry with the most specific text in a line, and the values of its places; None for a line without a known text.

    `files` are those of the traceback above the line.
    """
    index = _index()
    words = template.words(line)
    if index.keys().isdisjoint(words):
        return None
    present = set(words)
    candidates = [text for word in present & index.keys() for text in index[word] if text.words <= present]
    for text in sorted(candidates, key=lambda text: (_is_weak(text.entry), -text.specific, not text.entry.where, text.entry.id)):
        if text.entry.fits(files) and (hit := _compiled(text.pattern).search(line)) and _is_said(text, line, hit):
            return text.entry, {name: value.strip() for name, value in hit.groupdict().items() if value and value.strip()}
    return None


def _is_weak(entry: KnownText) -> bool:
    """Whether an entry counts only in a line that names no cause: what follows from a failure, and messages of Python itself."""
    return entry.rank == FOLLOW_UP or entry.kind == GENERAL


@cache
def _index() -> dict[bytes, list[_Text]]:
    """The texts by their longest word that is not frequent: lines without such a word are not searched."""
    index: dict[bytes, list[_Text]] = {}
    for entry in entries():
        for text in entry.texts:
            parts = template.parse(text)
            words = template.whole_words(parts)
            literal = sum(len(part) for part in parts if isinstance(part, str))
            rarest = max(words, key=lambda word: (word not in FREQUENT, len(word), word))
            index.setdefault(rarest, []).append(_Text(entry, template.pattern(parts), words, literal, bool(_NAME.match(text))))
    return index


@cache
def _compiled(pattern: str) -> re.Pattern[str]:
    """The pattern, compiled when a line has its words: to compile all 2,200 takes 0.4 s, half the time of a short log."""
    return re.compile(pattern, re.IGNORECASE)


def filled(sentence: str, values: Mapping[str, str]) -> str:
    """A sentence with its values; clauses in square brackets that lack a value are left out."""
    kept = _CLAUSE.sub(lambda clause: clause[1] if values.keys() >= set(_VALUE.findall(clause[1])) else "", sentence)
    return _BRACE_OR_VALUE.sub(lambda place: values.get(place[1], "?") if place[1] else place[0][0], kept)


def ranked(matches: Iterable[TextMatch]) -> list[TextMatch]:
    """Matches with the most likely cause first: causes before symptoms, follow-ups and noise; of equal rank the one printed first."""
    return sorted(matches, key=lambda found: (found.entry.rank, found.line_number))
