"""The kinds of value that a setting can have: how each is read from a settings file and from a word, and its JSON Schema.

A kind raises `Wrong` with the end of a sentence ("has to be ..."), which the reader of the settings completes with the place.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple, Protocol

from dslint.facts import LAST_PATCH, NEWEST, OLDEST, Release, Upgrade
from dslint.registry.rules import all_rules, plug_in
from dslint.registry.selection import NoSuchRule, check_words, is_name_of


class Wrong(ValueError):
    """A value that a setting cannot have. The text goes after the value: "has to be a whole number from 1 on"."""


class SettingKind(Protocol):
    """What every kind can do."""

    def from_file(self, value: Any) -> Any:
        """The setting's value, made of what the settings file holds."""

    def from_word(self, word: str) -> Any:
        """The setting's value, made of an environment variable or an option."""

    def schema(self) -> dict[str, Any]:
        """The JSON Schema of what the settings file may hold."""


class Count:
    """A whole number from 1 on."""

    def from_file(self, value: Any) -> int:
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            raise Wrong("has to be a whole number from 1 on")
        return value

    def from_word(self, word: str) -> int:
        return self.from_file(int(word) if word.isascii() and word.isdecimal() and len(word) < 10 else None)

    def schema(self) -> dict[str, Any]:
        return {"type": "integer", "minimum": 1}


class Flag:
    """True or false."""

    def from_file(self, value: Any) -> bool:
        if not isinstance(value, bool):
            raise Wrong("has to be true or false")
        return value

    def from_word(self, word: str) -> bool:
        return self.from_file({"1": True, "true": True, "0": False, "false": False}.get(word.lower()))

    def schema(self) -> dict[str, Any]:
        return {"type": "boolean"}


class Choice:
    """One of a few words."""

    def __init__(self, words: Iterable[str]) -> None:
        self.words = tuple(words)

    def from_file(self, value: Any) -> str:
        if value not in self.words:
            raise Wrong(f"has to be one of {', '.join(self.words)}{_meant(value, self.words)}")
        return str(value)

    from_word = from_file

    def schema(self) -> dict[str, Any]:
        return {"enum": list(self.words)}


class Loader(Choice):
    """Who loads the config, with its release if that is known: `transformers`, `transformers==4.40.0`."""

    def from_file(self, value: Any) -> str:
        name, equals, release = str(value).partition("==")
        if equals and name in self.words:
            try:
                Release.parse(release)
            except ValueError:
                raise Wrong(f"names no release; write it like {name}==4.40.0") from None
            return f"{name}=={release}"
        return super().from_file(value)

    from_word = from_file

    def schema(self) -> dict[str, Any]:
        return {"anyOf": [super().schema(), {"type": "string", "pattern": rf"^({'|'.join(self.words)})==v?\d+\.\d+(\.\d+)?([.+].*)?$"}]}


class DeepSpeedRelease:
    """A DeepSpeed release that dslint knows, or a later one; or an upgrade from one to another, `0.14.5..0.19.8`."""

    def from_file(self, value: Any) -> Release | Upgrade:
        if isinstance(value, float):
            raise Wrong(f'has to be in quotes, or 0.10 would mean 0.1: write "{value}"')
        if not isinstance(value, str):
            raise Wrong('has to be a release in quotes, such as "0.16.9" or "0.16"')
        return self.from_word(value)

    def from_word(self, word: str) -> Release | Upgrade:
        try:
            release = Upgrade.parse(word) if ".." in word else Release.parse(word)
        except ValueError:
            what = "an upgrade; write it like 0.14.5..0.19.8" if ".." in word else "a DeepSpeed release; write it like 0.16.9 or 0.16"
            raise Wrong(f"is not {what}") from None
        if (release.start if isinstance(release, Upgrade) else release) < OLDEST:
            raise Wrong(f"is older than DeepSpeed {OLDEST}, the oldest that dslint knows")
        return release

    def schema(self) -> dict[str, Any]:
        minors = [f"{major}.{minor}" for major, minor in LAST_PATCH]
        return {"type": "string", "pattern": r"^v?\d+\.\d+(\.\d+)?([.+].*)?(\.\.(\d+\.\d+(\.\d+)?)?)?$", "examples": [*minors, str(NEWEST)]}


class Size:
    """An amount of memory."""

    def from_file(self, value: Any) -> int:
        return self.from_word(value if isinstance(value, str) else "")

    def from_word(self, word: str) -> int:
        from dslint.facts.gpus import size

        try:
            return size(word)
        except ValueError:
            raise Wrong('has to be an amount of memory, such as "80GiB"') from None

    def schema(self) -> dict[str, Any]:
        return {"type": "string", "pattern": r"^\s*\d+(\.\d+)?\s*[kKmMgGtT]?[iI]?[bB]?\s*$"}


class GpuName:
    """A kind of GPU."""

    def from_file(self, value: Any) -> Any:
        return self.from_word(value if isinstance(value, str) else "")

    def from_word(self, word: str) -> Any:
        from dslint.facts.gpus import gpu_named

        try:
            return gpu_named(word)
        except ValueError as error:
            raise Wrong(str(error)) from None

    def schema(self) -> dict[str, Any]:
        from dslint.facts.gpus import GPUS

        return {"type": "string", "examples": list(GPUS)}


class FileName:
    """The name of a file, from the directory of the settings file on."""

    def from_file(self, value: Any) -> str:
        if not isinstance(value, str) or not value:
            raise Wrong("has to be the name of a file")
        return value

    from_word = from_file

    def schema(self) -> dict[str, Any]:
        return {"type": "string", "minLength": 1}


class FolderName(FileName):
    """The name of a folder, from the directory of the settings file on."""

    def from_file(self, value: Any) -> str:
        if not isinstance(value, str) or not value:
            raise Wrong("has to be the name of a folder")
        return value

    from_word = from_file


class Words:
    """A list of words: patterns of file names."""

    def from_file(self, value: Any) -> tuple[str, ...]:
        if not isinstance(value, list) or not all(isinstance(word, str) and word for word in value):
            raise Wrong("has to be a list of strings")
        return tuple(value)

    def from_word(self, word: str) -> tuple[str, ...]:
        return self.from_file([part.strip() for part in word.split(",") if part.strip()])

    def schema(self) -> dict[str, Any]:
        return {"type": "array", "items": {"type": "string", "minLength": 1}}


class RuleWords(Words):
    """A list of rules: codes, names, chapters, ALL; or, if `exact`, codes and names."""

    def __init__(self, *, exact: bool = False) -> None:
        self.exact = exact

    def from_file(self, value: Any) -> tuple[str, ...]:
        words = super().from_file(value)
        try:
            check_words(words, all_rules())
        except NoSuchRule as error:
            raise Wrong(f"names a rule that does not exist: {error}") from None
        for word in words:
            if self.exact and not any(is_name_of(word, rule) for rule in all_rules()):
                raise Wrong(f"has to name each rule by its code or name; {word} is many of them")
        return words

    def schema(self) -> dict[str, Any]:
        return {"type": "array", "items": rule_schema(exact=self.exact)}


def rule_schema(*, exact: bool = False) -> dict[str, Any]:
    """The JSON Schema of a word that means rules: completion offers the names, a pattern admits small letters and chapters."""
    names = [name for rule in all_rules() for name in (rule.code, rule.name)]
    pattern = r"^[dD][sS]\d{3}$" if exact else r"^([dD][sS]\d{1,3}|[aA][lL][lL])$"
    return {"type": "string", "anyOf": [{"enum": names}, {"pattern": pattern}]}


class PlugIns(Words):
    """A list of plug-ins. Reading it loads them, so that their rules can be spoken of."""

    def from_file(self, value: Any) -> tuple[str, ...]:
        names = super().from_file(value)
        for name in names:
            plug_in(name)
        return names


class Table:
    """A table from a word to a value of another kind: `{"DS501" = "error"}`; as a word, `DS501=error,DS2=info`."""

    def __init__(self, kind: SettingKind, *, of_rules: bool = False) -> None:
        self.kind = kind
        self.of_rules = of_rules

    def from_file(self, value: Any) -> dict[str, Any]:
        if not isinstance(value, dict):
            raise Wrong("has to be a table")
        if self.of_rules:
            RuleWords().from_file(list(value))
        return {word: self._inner(word, entry, self.kind.from_file) for word, entry in value.items()}

    def from_word(self, word: str) -> dict[str, Any]:
        pairs = [pair.rpartition("=") for pair in word.split(",") if pair.strip()]
        if not all(name.strip() and entry.strip() for name, _, entry in pairs):
            raise Wrong("has to be of the form NAME=VALUE, several of them separated by commas")
        found: dict[str, Any] = {}
        for name, _, entry in pairs:
            read = self._inner(name.strip(), entry.strip(), self.kind.from_word)
            found[name.strip()] = found.get(name.strip(), ()) + read if isinstance(read, tuple) else read
        if self.of_rules:
            RuleWords().from_file(list(found))
        return found

    def _inner(self, word: str, entry: Any, read: Any) -> Any:
        try:
            return read(entry)
        except Wrong as wrong:
            raise Wrong(f"is wrong at {word}: {show(entry)} {wrong}") from None

    def schema(self) -> dict[str, Any]:
        names: dict[str, Any] = {"propertyNames": rule_schema()} if self.of_rules else {}
        return {"type": "object", "additionalProperties": self.kind.schema(), **names}


class Environment:
    """Values of environment variables by name; as a word, one `NAME=VALUE` per line."""

    def from_file(self, value: Any) -> dict[str, str]:
        if not isinstance(value, dict):
            raise Wrong("has to be a table")
        for name, entry in value.items():
            if not _is_variable(name) or isinstance(entry, bool) or not isinstance(entry, str | int | float):
                raise Wrong(f"is wrong at {name}: a variable has a name and a string or a number")
        return {name: str(entry) for name, entry in value.items()}

    def from_word(self, word: str) -> dict[str, str]:
        pairs = [pair.partition("=") for pair in word.splitlines() if pair.strip()]
        if not all(equals and _is_variable(name) for name, equals, _ in pairs):
            raise Wrong("has to be of the form NAME=VALUE")
        return {name: value for name, _, value in pairs}

    def schema(self) -> dict[str, Any]:
        names = {"propertyNames": {"pattern": "^[A-Za-z_][A-Za-z0-9_]*$"}}
        return {"type": "object", "additionalProperties": {"type": ["string", "number"]}, **names}


def _is_variable(name: str) -> bool:
    return name.isascii() and name.isidentifier()


class IgnoreEntry(NamedTuple):
    """An entry of `ignores`: which rules not to hear of, in which files and where in them, and why.

    `files` are patterns; `pointer` is where: a JSON pointer or a dotted path, and all below it; None is the whole file.
    """

    files: tuple[str, ...]
    rules: tuple[str, ...]
    reason: str
    pointer: str | None = None


class Entries:
    """The list of entries `ignores`; it has no form as a word."""

    def from_file(self, value: Any) -> tuple[IgnoreEntry, ...]:
        if not isinstance(value, list) or not all(isinstance(entry, dict) for entry in value):
            raise Wrong("has to be a list of tables: write [[tool.dslint.ignores]] above each")
        return tuple(self._entry(number, entry) for number, entry in enumerate(value, 1))

    def _entry(self, number: int, entry: dict[str, Any]) -> IgnoreEntry:
        which = f"is wrong in entry {number}:"
        for name in entry:
            if name not in ("file", "rules", "reason", "pointer"):
                raise Wrong(f"{which} there is no {name!r}; an entry has file, rules, reason, and perhaps pointer")
        for name in ("file", "rules", "reason"):
            if name not in entry:
                raise Wrong(f"{which} it has no {name}; an entry has file, rules, reason, and perhaps pointer")
        for name in ("reason", "pointer"):
            if name in entry and not (isinstance(entry[name], str) and entry[name].strip()):
                raise Wrong(f"{which} its {name} has to be text")
        files = entry["file"] if isinstance(entry["file"], list) else [entry["file"]]
        try:
            return IgnoreEntry(
                Words().from_file(files), RuleWords(exact=True).from_file(entry["rules"]), entry["reason"], entry.get("pointer")
            )
        except Wrong as wrong:
            raise Wrong(f"{which} {show(entry)} {wrong}") from None

    def from_word(self, word: str) -> Any:  # noqa: ARG002 - a kind has it
        raise Wrong("has to be written in a settings file")

    def schema(self) -> dict[str, Any]:
        text = {"type": "string", "minLength": 1}
        fields = {
            "file": {"anyOf": [text, {"type": "array", "items": text}], "description": "Patterns of the files."},
            "rules": {**RuleWords(exact=True).schema(), "minItems": 1},
            "reason": {**text, "description": "Why: for those who read it later."},
            "pointer": {**text, "description": "Where in the file: /zero_optimization/offload_param, or with dots; and all below it."},
        }
        entry = {"type": "object", "properties": fields, "required": ["file", "rules", "reason"], "additionalProperties": False}
        return {"type": "array", "items": entry}


def show(value: Any) -> str:
    """A value as a settings file would have it, cut where it is long."""
    if isinstance(value, bool):
        text = "true" if value else "false"
    elif isinstance(value, str | Release | Upgrade) or hasattr(value, "capability"):
        text = f'"{value}"'
    elif isinstance(value, IgnoreEntry):
        text = show({name: entry for name, entry in value._asdict().items() if entry is not None})
    elif isinstance(value, list | tuple):
        text = f"[{', '.join(map(show, value))}]"
    elif isinstance(value, dict):
        text = "{" + ", ".join(f"{name} = {show(entry)}" for name, entry in value.items()) + "}"
    else:
        text = str(value)
    return text if len(text) <= 80 else text[:77] + "..."


def _meant(value: Any, words: Iterable[str]) -> str:
    from difflib import get_close_matches

    close = get_close_matches(value, list(words), n=1) if isinstance(value, str) else []
    return f'. Did you mean "{close[0]}"?' if close else ""
