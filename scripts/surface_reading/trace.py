"""The record of a walk through the source: what was looked up in the config, and what becomes of dicts that it is copied into."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from surface_reading.values import (
    UNKNOWN,
    Class,
    Config,
    Const,
    Mapping,
    NameIn,
    Path,
    Sequence,
    Value,
    Values,
    either,
    keys_of,
    texts,
)

LONGEST_LOOP = 64


@dataclass
class Read:
    """A key that is looked up: the defaults it is looked up with, and where."""

    path: Path
    defaults: dict[object, Values] = field(default_factory=dict)
    places: list[str] = field(default_factory=list)


@dataclass
class Trace:
    """What became of the config."""

    reads: dict[Path, Read] = field(default_factory=dict)
    refused: dict[Path, str] = field(default_factory=dict)
    """Keys that raise by their mere presence, and where."""
    models: dict[Path, tuple[Class, str]] = field(default_factory=dict)
    """Sections handed to a pydantic model, and where."""
    dynamic: dict[tuple[Path, str], None] = field(default_factory=dict)
    """Parts of the config in which a name is looked up that is not known, and where."""
    missing: dict[str, None] = field(default_factory=dict)
    """Entries that are not there."""

    def size(self) -> tuple[int, ...]:
        """Grows with everything that is found."""
        reads = sum(len(read.defaults) + len(read.places) for read in self.reads.values())
        return len(self.reads), reads, len(self.refused), len(self.models), len(self.dynamic)

    def look_up(self, part: Config, name: str, defaults: Values, place: str) -> Values:
        """Note that a key is looked up. `"." in value` looks for a character, not for a key."""
        if not re.fullmatch(r"[A-Za-z_][\w-]*", name):
            return UNKNOWN
        path = (*part.path, name)
        read = self.reads.setdefault(path, Read(path))
        if defaults:
            read.defaults.setdefault(keys_of(defaults), defaults)
        if place not in read.places:
            read.places.append(place)
        return (Config(path),)

    def is_value(self, path: Path) -> bool:
        """Whether a number, a string or a list stands here, judged by its default: then no key is looked up in it."""
        read = self.reads.get(path)
        defaults = [value for values in read.defaults.values() for value in values] if read else []
        return any(isinstance(value, Sequence) or (isinstance(value, Const) and value.value is not None) for value in defaults)

    def get(self, value: Value, keys: Values, defaults: Values, place: str) -> Values:
        """`value[key]`, or `value.get(key, default)`."""
        match value:
            case Config(path=path) if self.is_value(path):
                return UNKNOWN
            case Config(path=path):
                found = [self.look_up(value, name, defaults, place) for name in texts(keys)]
                if any(isinstance(key, NameIn) for key in keys):
                    found.append((value.below("*"),))
                elif not found and not any(isinstance(key, Const) for key in keys):
                    self.dynamic[path, place] = None
                    if not path:
                        return UNKNOWN  # the names of the sections are never the writer's own
                    found.append((value.below("*"),))
                return either(*found)
            case NameIn(path=path) if path and path[-1] != "*":
                item = Config((*path[:-1], path[-1] + "[]"))
                return either(*(self.look_up(item, name, defaults, place) for name in texts(keys)))
            case Mapping(entries=entries, merged=merged):
                known = [entries[key.value] for key in keys if isinstance(key, Const) and key.value in entries]
                if not keys or any(isinstance(key, NameIn) for key in keys):
                    known = [*entries.values()]
                parts = [self.look_up(part, name, either(*known), place) for part in merged for name in texts(keys)]
                return either(*known, *parts)
            case Sequence(items=items):
                indexes = [key.value for key in keys if isinstance(key, Const) and type(key.value) is int]
                known = [items[index] for index in indexes if -len(items) <= index < len(items)]
                return either(*(known or items))
        return UNKNOWN

    def merge(self, target: Mapping, part: Config, place: str) -> None:
        """The user's keys are copied over a dict's entries: each entry is the default of a key."""
        if self.is_value(part.path):
            return
        for name, default in target.entries.items():
            strangers = [value for value in default if isinstance(value, Config) and value.path[: len(part.path)] != part.path]
            if isinstance(name, str) and not strangers:  # values that the code itself inserts are not keys of the user
                self.look_up(part, name, default, place)
        if part not in target.merged:
            target.merged.append(part)

    def store(self, value: Value, keys: Values, stored: Values, place: str) -> None:
        """`value[key] = stored`."""
        if not isinstance(value, Mapping):
            return
        for key in keys:
            if isinstance(key, Const):
                value.entries[key.value] = either(value.entries.get(key.value, UNKNOWN), stored)
            elif isinstance(key, NameIn):
                self.merge(value, Config(key.path), place)

    def update(self, target: Value, given: Values, place: str) -> None:
        """`target.update(given)`."""
        if not isinstance(target, Mapping):
            return
        for value in given:
            if isinstance(value, Config):
                self.merge(target, value, place)
            elif isinstance(value, Mapping) and value is not target:
                target.entries |= value.entries
                for part in value.merged:
                    self.merge(target, part, place)

    def items(self, values: Values) -> list[Values]:
        """What a loop over these goes through, turn by turn."""
        turns: list[Values] = []
        for value in values:
            match value:
                case Sequence(items=items):
                    turns += items[:LONGEST_LOOP]
                case Mapping(entries=entries, merged=merged):
                    turns += [(Const(name),) for name in entries][:LONGEST_LOOP]
                    turns += [(NameIn(part.path),) for part in merged]
                case Config(path=path) if not self.is_value(path):
                    turns.append((NameIn(path),))
        return turns or [UNKNOWN]

    def view(self, value: Value, name: str) -> Values:
        """What `keys`, `values` and `items` of a dict give."""
        if isinstance(value, Config) and self.is_value(value.path):
            return UNKNOWN
        pairs: list[tuple[Values, Values]] = []
        if isinstance(value, Mapping):
            pairs += [((Const(key),), entry) for key, entry in value.entries.items()]
        parts = [value] if isinstance(value, Config) else value.merged if isinstance(value, Mapping) else []
        if name == "keys" and isinstance(value, Config):
            return (value,)  # so that `in` works as on the dict itself
        pairs += [((NameIn(part.path),), (part.below("*"),)) for part in parts]
        if not pairs:
            return UNKNOWN
        index = {"keys": 0, "values": 1}.get(name)
        return (Sequence([(Sequence([*pair]),) if index is None else pair[index] for pair in pairs]),)
