"""Does what the help of a finding says: the changes to a config, and the release, of each alternative that it names.

Only what can be done mechanically is done: `Set "stage": 3, or remove the section.` is two ways, `Write a directory on a disk.` is none.
"""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Iterable, Iterator
from functools import cache
from typing import Any, NamedTuple

from dslint.diagnostics import Diagnostic
from dslint.facts import Release
from dslint.schemas.key_table import KEYS, OPTIMIZERS

Config = dict[str, Any]
Path = tuple[str, ...]

STAGE = ("zero_optimization", "stage")

GONE = object()
"""In the place of a value: the key is removed."""


class Way(NamedTuple):
    """One alternative of an advice: what it writes at which paths, `GONE` to remove them, and the release of DeepSpeed that it asks for."""

    words: str
    changes: tuple[tuple[Path, object], ...] = ()
    release: Release | None = None

    def done(self, config: Config) -> Config | None:
        """The config as the advice wants it; None if it cannot be done, or is done already."""
        changed = copy.deepcopy(config)
        for path, value in self.changes:
            if not (_remove(changed, path) if value is GONE else _put(changed, path, value)):
                return None
        return changed if changed != config or self.release is not None else None


def _put(config: Config, path: Path, value: object) -> bool:
    for name in path[:-1]:
        inner = config.get(name)
        if inner is None:
            inner = config[name] = {}
        if not isinstance(inner, dict):
            return False
        config = inner
    config[path[-1]] = copy.deepcopy(value)
    return True


def _remove(config: Config, path: Path) -> bool:
    for name in path[:-1]:
        inner = config.get(name)
        if not isinstance(inner, dict):
            return False
        config = inner
    return config.pop(path[-1], GONE) is not GONE


_VERBS = (
    r"(?:set|write|add|remove|use|enable|disable|keep|upgrade|pass|put|run|train|give|create|change|leave|choose|call|switch|load|save)"
)
_SENTENCE = re.compile(r"(?<=[.:;]) (?=[A-Z])")
_OR = re.compile(rf",? or (?={_VERBS}\b)", re.IGNORECASE)
_OTHER_KIND = re.compile(r", or (?=[A-Z]\w+ with )")
_AND = re.compile(rf",? and (?={_VERBS}\b)", re.IGNORECASE)
_PAIR = re.compile(r'["`](\w+)["`](?:: | to )')
_RELEASE = re.compile(r"(?:use|run|upgrade DeepSpeed to|upgrade to) (?:DeepSpeed )?(\d+\.\d+\.\d+)")
_STAGES = re.compile(r"(?:stage|the stage to|\"stage\" to) ((?:\d|, | or )*\d)(?! ?[x%])")
_PLACE = re.compile(r"\b(?:in|to) (?:the section )?[\"`]?(zero_optimization|\w+)[\"`]?(?=[,. ]|$)")
_TYPE = re.compile(r'^(?:[Uu]se|[Ww]rite)(?: the (?:optimizer )?type)? "?(AdamW|Adam|Lamb|SGD|Lion)"?(?=$|,| instead)')
_SECTIONS = "fp16|bf16|zenflow|deepcompile|zero_optimization"


def ways(found: Diagnostic, config: Config) -> Iterator[Way]:
    """The alternatives of a finding's help, each once. A fix is no part of it."""
    seen: list[object] = []
    for way in _ways(found, config):
        if way.changes or way.release:
            key = (way.changes, way.release)
            if key not in seen:
                seen.append(key)
                yield way


def _ways(found: Diagnostic, config: Config) -> Iterator[Way]:
    for number, sentence in enumerate(_SENTENCE.split(found.help or "")):
        if number and not sentence.startswith("Or "):
            return  # it adds something to the advice, and is no alternative
        told = re.sub(r"^(?:Or|To [^,]+,) ", "", sentence).removesuffix(".")
        if re.match(rf"{_VERBS}\b", told, re.IGNORECASE):
            for part in _OR.split(_OTHER_KIND.sub(", or use ", told)):
                yield from _alternative(found, part, config)


def _alternative(found: Diagnostic, words: str, config: Config) -> Iterator[Way]:
    """The ways of an alternative: all its clauses are done together, with each of the values that they name."""
    made: list[Way] = [Way(words)]
    for clause in _AND.split(words):
        options = list(_clause(found, clause, config))
        if not options:
            return
        made = [
            one._replace(changes=(*one.changes, *more.changes), release=more.release or one.release) for one in made for more in options
        ]
    yield from made


def _clause(found: Diagnostic, words: str, config: Config) -> Iterator[Way]:
    verb, _, rest = re.split(r",? unless |, (?:which|and DeepSpeed) ", words)[0].partition(" ")
    verb = verb.lower()
    here = of_pointer(found.pointer)
    release = _RELEASE.search(words)
    if release:
        yield Way(words, (), Release.parse(release[1]))
    elif verb == "remove":
        yield from (Way(words, changes) for changes in _removed(found, rest, here, config))
    elif verb in ("enable", "disable"):
        name = re.match(rf"({_SECTIONS}|it)\b", rest)
        section = here[:1] if name and name[1] == "it" else (name[1],) if name else None
        if section and len(section) == 1 and (*section, "enabled") and ".".join((*section, "enabled")) in KEYS:
            other = {("fp16",): "bf16", ("bf16",): "fp16"}.get(section)
            also = (((other, "enabled"), False),) if other and " instead" in words else ()
            yield Way(words, (((*section, "enabled"), verb == "enable"), *also))
        elif rest.startswith("one of") and here[:1] in (("fp16",), ("bf16",)):
            yield from (Way(words, (((name, "enabled"), False),)) for name in ("fp16", "bf16") if name in config)
    elif verb in ("set", "write", "add", "use"):
        yield from _written(words, rest, here, config)


def _removed(found: Diagnostic, rest: str, here: Path, config: Config) -> Iterator[tuple[tuple[Path, object], ...]]:
    others = [of_pointer(one.pointer) for one in found.related if one.pointer and one.path == found.path]
    if re.match(r"the section$", rest) and here and not isinstance(_value(config, here), dict):
        here = here[:-1]
    if re.match(r"(it|the key|this key)\b", rest) or rest == "the section":
        if here:
            yield ((here, GONE),)
    elif re.match(r"them\b", rest):
        yield tuple(
            (path, GONE) for path in dict.fromkeys([here, *(path for path in others if path[-1] != "stage" and path[-1] in found.message)])
        )
    elif re.match(r"one of (the two|them)\b", rest):
        for path in dict.fromkeys([here, *others]):
            yield ((path, GONE),)
    elif name := re.fullmatch(r'(?:the section )?["`]?(\w+)["`]?(?:: \w+)?(?: from the config)?', rest):
        path = _near(name[1], here, config)
        if path is not None and _has(config, path):
            yield ((path, GONE),)


def _written(words: str, rest: str, here: Path, config: Config) -> Iterator[Way]:
    """What a clause with "write", "set", "add" or "use" says: pairs of a key and a value, a stage, a type, a precision, or a value here."""
    if _PAIR.search(words):
        yield from _pairs(words, here, config)
    elif stages := _STAGES.search(words):
        for stage in re.findall(r"\d", stages[1]):
            yield Way(words, ((STAGE, int(stage)),))
    elif kind := re.search(r"^use (?:another type|one of DeepSpeed's schedules), such as (\w+)", words, re.IGNORECASE):
        yield Way(words, ((("optimizer" if here[:1] == ("optimizer",) else "scheduler", "type"), kind[1]),))
    elif kind := _TYPE.match(words):
        yield Way(words, ((("optimizer", "type"), kind[1]),))
    elif names := re.match(rf"({_SECTIONS})(?: or ({_SECTIONS}))?(?= on|$|,| or newer)", rest):
        for name in filter(None, names.groups()):
            yield from _precision(words, name, here, config)
    elif here and re.match("[Ww]rite ", words):
        yield from _value_here(words, rest, here, config)


def _pairs(words: str, here: Path, config: Config) -> Iterator[Way]:
    changes: list[tuple[Path, object]] = []
    end = 0
    for pair in _PAIR.finditer(words):
        if pair.start() < end:
            continue  # within the value of another
        read = _literal(words, pair.end())
        if read is None:
            return
        value, end = read
        path = _path_of_pair(pair[1], words, end, here, config)
        if path is None:
            return
        changes.append((path, value))
    if len(changes) > 1 and re.search(r'", or "|\w, or "', words):
        yield from (Way(words, (change,)) for change in changes)
        return
    yield Way(words, (*changes, *_beside(words, here, [path for path, _ in changes])))
    if len(changes) == 1:  # `"stage": 1, 2 or 3`
        more = re.match(r"(?:,? or |, )\d+(?:(?:,? or |, )\d+)*(?![\w.])", words[end:])
        for number in re.findall(r"\d+", more[0]) if more else ():
            yield Way(words, ((changes[0][0], int(number)),))


def _beside(words: str, here: Path, paths: list[Path]) -> Iterator[tuple[Path, object]]:
    """What a clause says besides its pairs of keys and values."""
    if words.endswith(" instead") and here and here not in paths:
        yield here, GONE
    kind = re.search(r" with the optimizer type (\w+)", words) or re.match(r"[Uu]se (\w+) with ", words)
    if kind and kind[1] in OPTIMIZERS:
        yield ("optimizer", "type"), kind[1]
    if stages := re.search(r"stage (\d) with", words):
        yield STAGE, int(stages[1])


def _path_of_pair(name: str, words: str, end: int, here: Path, config: Config) -> Path | None:
    place = _PLACE.match(words[end:].lstrip())
    section = _section(place[1]) if place else None
    if section is not None:
        return (*section, name)
    return (name,) if "top level" in words else _near(name, here, config)


def _precision(words: str, name: str, here: Path, config: Config) -> Iterator[Way]:
    if here[-1:] == ("dtype",):
        yield Way(words, ((here, name),))
    elif name in ("fp16", "bf16"):
        other = "bf16" if name == "fp16" else "fp16"
        off = (((other, "enabled"), False),) if isinstance(config.get(other), dict) else ()
        yield Way(words, (((name, "enabled"), True), *off))


def _value_here(words: str, rest: str, here: Path, config: Config) -> Iterator[Way]:
    """`Write 1e8.` and `Write a smaller "reduce_bucket_size", such as 1e8.`"""
    before, _, example = rest.partition("such as ")
    if example and (key := re.match(r'[^"]*"(\w+)"', before)):
        near = _near(key[1], here, config)
        if near is None:
            return
        here = near
    rest = re.sub(r"(?<=\d),(?=\d{3}\b)", "", example or rest)
    read = _literal(rest, 0)
    if (
        read is None
        or rest[read[1] :].startswith(" and ")
        or (isinstance(read[0], str) and (_named(read[0]) or rest[read[1] :].startswith(" instead")))
    ):
        return  # several values, or the name of a key
    yield Way(words, ((here, read[0]),))
    more = re.match(r'\S+ or (?=["\[\d])', rest)
    other = _literal(rest, more.end()) if more else None
    if other is not None:
        yield Way(words, ((here, other[0]),))


def _literal(text: str, start: int) -> tuple[Any, int] | None:
    """The JSON value at a place of a text, and its end."""
    try:
        return json.JSONDecoder().raw_decode(text, start)
    except ValueError:
        return None


def of_pointer(pointer: str | None) -> Path:
    """The path of a JSON pointer."""
    return tuple(part.replace("~1", "/").replace("~0", "~") for part in (pointer or "").split("/")[1:])


def _value(config: object, path: Path) -> object:
    for name in path:
        if not isinstance(config, dict) or name not in config:
            return None
        config = config[name]
    return config


def _has(config: object, path: Path) -> bool:
    for name in path:
        if not isinstance(config, dict) or name not in config:
            return False
        config = config[name]
    return True


def _near(name: str, here: Path, config: Config) -> Path | None:
    """The path of a key that a help names: the nearest section that has it, or else the only one."""
    for length in range(len(here), -1, -1):
        if ".".join((*here[:length], name)) in KEYS or _has(config, (*here[:length], name)):
            return (*here[:length], name)
    if here[:1] in (("optimizer",), ("scheduler",)) and here[1:2] == ("params",):
        return (*here[:2], name)
    found = _named(name)
    written = [path for path in found if _has(config, path)]
    if len(written) == 1:
        return written[0]
    return found[0] if len(found) == 1 else None


@cache
def _named(name: str) -> tuple[Path, ...]:
    return tuple(tuple(key.split(".")) for key in KEYS if key.rpartition(".")[2] == name)


def _section(name: str) -> Path | None:
    found = [path for path in _named(name) if "section" in KEYS[".".join(path)]["types"]]
    return found[0] if len(found) == 1 else None


def touches(paths: Iterable[Path], pointer: str | None) -> bool:
    """Whether a place is one of the paths, within one, or around one."""
    place = of_pointer(pointer)
    return bool(place) and any(path[: len(place)] == place or place[: len(path)] == path for path in paths)
