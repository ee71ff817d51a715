"""The kinds of values of settings: how each is read from a settings file and from a string, and its JSON Schema.

A kind raises `Wrong` with the end of a sentence ("must be ..."); the caller adds the place and the value in front.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, Protocol

from dslint.facts import LAST_PATCH, NEWEST, OLDEST, Release, Upgrade
from dslint.facts.release import KNOWN_PACKAGES, final_release
from dslint.record import Record
from dslint.registry.rules import all_rules, plug_in
from dslint.registry.selection import NoSuchRule, check_words, is_name_of
from dslint.source.similar import similar


class Wrong(ValueError):
    """An invalid value of a setting. The text goes after the value: "must be a positive integer"."""


class SettingKind(Protocol):
    """The interface of every kind."""

    def from_file(self, value: Any) -> Any:
        """The value of the setting, from the value in the settings file."""

    def from_word(self, word: str) -> Any:
        """The value of the setting, from an environment variable or an option."""

    def schema(self) -> dict[str, Any]:
        """The JSON Schema of the value in a settings file."""


class Count:
    """A positive integer."""

    def from_file(self, value: Any) -> int:
        if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value < 10**9:
            raise Wrong("must be a positive integer")
        return value

    def from_word(self, word: str) -> int:
        return self.from_file(int(word) if word.isascii() and word.isdecimal() and len(word) < 10 else None)

    def schema(self) -> dict[str, Any]:
        return {"type": "integer", "minimum": 1}


class Flag:
    """True or false."""

    def from_file(self, value: Any) -> bool:
        if not isinstance(value, bool):
            raise Wrong("must be true or false")
        return value

    def from_word(self, word: str) -> bool:
        return self.from_file({"1": True, "true": True, "0": False, "false": False}.get(word.lower()))

    def schema(self) -> dict[str, Any]:
        return {"type": "boolean"}


class Choice:
    """One of several words."""

    def __init__(self, words: Iterable[str]) -> None:
        self.words = tuple(words)

    def from_file(self, value: Any) -> str:
        if value not in self.words:
            raise Wrong(f"must be one of {', '.join(self.words)}{_suggestion(value, self.words)}")
        return str(value)

    from_word = from_file

    def schema(self) -> dict[str, Any]:
        return {"enum": list(self.words)}


_LOADER_OF = {
    "hf": "transformers",
    "huggingface": "transformers",
    "trainer": "transformers",
    "pl": "lightning",
    "pytorchlightning": "lightning",
    "fabric": "lightning",
    "plain": "deepspeed",
    "none": "deepspeed",
}
"""Names that people give to a loader (without hyphens), and the loader."""


def _loader_of(name: str) -> str | None:
    """The loader that a person means with a name: that of a framework, or another word for a loader."""
    from dslint.frameworks.registry import frameworks  # only a wrong value pays for it

    meant = _plain(name)
    found = next((one.loader.value for one in frameworks() if meant in {_plain(own) for own in (one.name, *one.packages)}), None)
    return _LOADER_OF.get(meant) or found


def _plain(name: str) -> str:
    return name.lower().replace("_", "").replace("-", "")


class Loader(Choice):
    """The loader of the config, optionally with its release: `transformers`, `transformers==4.40.0`."""

    def from_file(self, value: Any) -> str:
        name, equals, release = str(value).partition("==")
        meant = _loader_of(name) if name not in self.words else None
        if meant in self.words:
            raise Wrong(f'must be one of {", ".join(self.words)}. Did you mean "{meant}"?')
        if equals and name in self.words:
            try:
                Release.parse(release)
            except ValueError:
                raise Wrong(f"has no valid release; write it as {name}==4.40.0") from None
            return f"{name}=={release}"
        return super().from_file(value)

    from_word = from_file

    def schema(self) -> dict[str, Any]:
        return {"anyOf": [super().schema(), {"type": "string", "pattern": rf"^({'|'.join(self.words)})==v?\d+\.\d+(\.\d+)?([.+].*)?$"}]}


class DeepSpeedRelease:
    """A supported DeepSpeed release or a later one, or an upgrade between two: `0.14.5..0.19.8`."""

    def from_file(self, value: Any) -> Release | Upgrade:
        if isinstance(value, float):
            raise Wrong(f'must be in quotes, because 0.10 would mean 0.1: write "{value}"')
        if not isinstance(value, str):
            raise Wrong('must be a release in quotes, such as "0.16.9" or "0.16"')
        return self.from_word(value)

    def from_word(self, word: str) -> Release | Upgrade:
        try:
            release = Upgrade.parse(word) if ".." in word else Release.parse(word)
        except ValueError:
            what = f"an upgrade; write it as 0.14.5..{NEWEST}" if ".." in word else "a DeepSpeed release; write it as 0.16.9 or 0.16"
            raise Wrong(f"is not {what}") from None
        if isinstance(release, Upgrade) and release.start < OLDEST:
            raise Wrong(f"starts before DeepSpeed {OLDEST}, the oldest supported release; give {OLDEST}..{release.to}")
        for one in release if isinstance(release, Upgrade) else (release,):
            if "+" not in word and ".dev" not in word and not one.is_outside and not one.may_exist:
                raise Wrong(f"names a release that DeepSpeed does not have; the nearest one is {one.nearest}")
        return release

    def schema(self) -> dict[str, Any]:
        minors = [f"{major}.{minor}" for major, minor in LAST_PATCH]
        return {"type": "string", "pattern": r"^v?\d+\.\d+(\.\d+)?([.+].*)?(\.\.(\d+\.\d+(\.\d+)?)?)?$", "examples": [*minors, str(NEWEST)]}


class Packages:
    """Releases of packages by name, as an exact pin states them; as a word `NAME==RELEASE`, several with commas or in lines."""

    def from_file(self, value: Any) -> dict[str, Release]:
        if isinstance(value, str):
            return self.from_word(value)
        if not isinstance(value, dict):
            raise Wrong('must be a table, such as {torch = "2.10.0"}')
        return self._pins(value.items())

    def from_word(self, word: str) -> dict[str, Release]:
        pins = [pin.strip().partition("==") for pin in re.split(r"[,\n]", word) if pin.strip()]
        if not pins or not all(equals and name and release for name, equals, release in pins):
            raise Wrong("must have the form NAME==RELEASE, such as torch==2.10.0")
        return self._pins((name, release) for name, _, release in pins)

    def _pins(self, written: Iterable[tuple[Any, Any]]) -> dict[str, Release]:
        found: dict[str, Release] = {}
        for name, release in (self._pin(*pair) for pair in written):
            if found.setdefault(name, release) != release:
                raise Wrong(f"names two releases of {name}: {found[name]} and {release}")
        return found

    def _pin(self, written: Any, release: Any) -> tuple[str, Release]:
        """The normalised name of a package, with its release."""
        name = re.sub(r"[-_.]+", "-", str(written).strip()).lower()
        if not re.fullmatch(r"[a-z0-9]([a-z0-9-]*[a-z0-9])?", name):
            raise Wrong(f"names a package that cannot exist: {written}")
        if name not in KNOWN_PACKAGES and (close := similar(name, KNOWN_PACKAGES, cutoff=_MISSPELT)):
            raise Wrong(f'names the package {written}. Did you mean "{close[0]}"?')
        if isinstance(release, float):
            raise Wrong(f'needs the release of {name} in quotes, because 2.10 would mean 2.1: write "{release}"')
        text = release.strip() if isinstance(release, str) else ""
        if name == "deepspeed":
            of_deepspeed = DeepSpeedRelease().from_file(text)
            if isinstance(of_deepspeed, Upgrade):
                raise Wrong("names an upgrade; give it as deepspeed OLD..NEW")
            return name, of_deepspeed
        found = final_release(text.removeprefix("v"))
        if found is None:
            raise Wrong(f"has no final release of {name}; write it as {name}==2.10.0")
        return name, found

    def schema(self) -> dict[str, Any]:
        return {"type": "object", "additionalProperties": {"type": "string", "pattern": r"^v?\d+\.\d+(\.\d+)*([.+].*)?$"}}


_MISSPELT = 0.85
"""How similar an unknown package must be to a known one to be a misspelling of it: `transformer` is, `torchao` is another package."""


class Size:
    """An amount of memory."""

    def from_file(self, value: Any) -> int:
        return self.from_word(value if isinstance(value, str) else "")

    def from_word(self, word: str) -> int:
        from dslint.facts.gpus import size

        try:
            return size(word)
        except ValueError:
            raise Wrong('must be an amount of memory, such as "80GiB"') from None

    def schema(self) -> dict[str, Any]:
        return {"type": "string", "pattern": r"^\s*\d+(\.\d+)?\s*[kKmMgGtT]?[iI]?[bB]?\s*$"}


class GpuName:
    """A kind of GPU."""

    def from_file(self, value: Any) -> Any:
        return self.from_word(value if isinstance(value, str) else "")

    def from_word(self, word: str) -> Any:
        from dslint.facts.gpus import UnknownGpu, gpu_named

        try:
            return gpu_named(word)
        except UnknownGpu as unknown:
            raise Wrong(str(unknown)) from unknown

    def schema(self) -> dict[str, Any]:
        from dslint.facts.gpus import GPUS

        return {"type": "string", "examples": list(GPUS)}


class FileName:
    """A file name, relative to the directory of the settings file."""

    def from_file(self, value: Any) -> str:
        if not isinstance(value, str) or not value or "\0" in value:
            raise Wrong("must be a file name")
        return value

    from_word = from_file

    def schema(self) -> dict[str, Any]:
        return {"type": "string", "minLength": 1}


class FolderName(FileName):
    """A folder name, relative to the directory of the settings file."""

    def from_file(self, value: Any) -> str:
        if not isinstance(value, str) or not value or "\0" in value:
            raise Wrong("must be a folder name")
        return value

    from_word = from_file


class Words:
    """A list of strings: patterns of file names."""

    def from_file(self, value: Any) -> tuple[str, ...]:
        if not isinstance(value, list) or not all(isinstance(word, str) and word for word in value):
            raise Wrong("must be a list of strings")
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
            raise Wrong(f"contains the {error}") from None
        for word in words:
            if self.exact and not any(is_name_of(word, rule) for rule in all_rules()):
                raise Wrong(f"must name single rules by code or name; {word} stands for several")
        return words

    def schema(self) -> dict[str, Any]:
        return {"type": "array", "items": rule_schema(exact=self.exact)}


def rule_schema(*, exact: bool = False) -> dict[str, Any]:
    """The JSON Schema of a word that selects rules: completion offers names, a pattern allows lower case and chapters."""
    names = [name for rule in all_rules() for name in (rule.code, rule.name)]
    pattern = r"^[dD][sS][0-9pP]\d{2}$" if exact else r"^([dD][sS][0-9pP]\d{0,2}|[aA][lL][lL])$"
    return {"type": "string", "anyOf": [{"enum": names}, {"pattern": pattern}]}


class PlugIns(Words):
    """A list of plug-ins. Reading it loads them, so that later settings can name their rules."""

    def from_file(self, value: Any) -> tuple[str, ...]:
        names = super().from_file(value)
        for name in names:
            plug_in(name)
        return names


class Table:
    """A table from a word to a value of another kind: `{"DS501" = "error"}`; as a string, `DS501=error,DS2=info`."""

    def __init__(self, kind: SettingKind, *, of_rules: bool = False) -> None:
        self.kind = kind
        self.of_rules = of_rules

    def from_file(self, value: Any) -> dict[str, Any]:
        if not isinstance(value, dict):
            raise Wrong("must be a table")
        if self.of_rules:
            RuleWords().from_file(list(value))
        return {word: self._inner(word, entry, self.kind.from_file) for word, entry in value.items()}

    def from_word(self, word: str) -> dict[str, Any]:
        pairs = [pair.rpartition("=") for pair in word.split(",") if pair.strip()]
        if not all(name.strip() and entry.strip() for name, _, entry in pairs):
            raise Wrong("must have the form NAME=VALUE, with commas between several")
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
            raise Wrong(f"is invalid at {word}: {show(entry)} {wrong}") from None

    def schema(self) -> dict[str, Any]:
        names: dict[str, Any] = {"propertyNames": rule_schema()} if self.of_rules else {}
        return {"type": "object", "additionalProperties": self.kind.schema(), **names}


class Environment:
    """Values of environment variables by name, and of arguments of a script by number; as a word, one `NAME=VALUE` per line."""

    def from_file(self, value: Any) -> dict[str, str]:
        if not isinstance(value, dict):
            raise Wrong("must be a table")
        for name, entry in value.items():
            if not _is_variable(name) or isinstance(entry, bool) or not isinstance(entry, str | int | float):
                raise Wrong(f"is invalid at {name}: the value of a variable must be a string or a number")
        return {name: str(entry) for name, entry in value.items()}

    def from_word(self, word: str) -> dict[str, str]:
        pairs = [pair.partition("=") for pair in word.splitlines() if pair.strip()]
        if not all(equals and _is_variable(name) for name, equals, _ in pairs):
            raise Wrong("must have the form NAME=VALUE")
        return {name: value for name, _, value in pairs}

    def schema(self) -> dict[str, Any]:
        names = {"propertyNames": {"pattern": "^([A-Za-z_][A-Za-z0-9_]*|[0-9]+)$"}}
        return {"type": "object", "additionalProperties": {"type": ["string", "number"]}, **names}


def _is_variable(name: str) -> bool:
    return name.isascii() and (name.isidentifier() or name.isdecimal())


class IgnoreEntry(Record):
    """An entry of `ignores`: the rules to suppress, in which files, where, and why.

    `files` are patterns. `pointer` is a JSON pointer or a dotted path; it covers everything below. None covers the whole file.
    """

    files: tuple[str, ...]
    rules: tuple[str, ...]
    reason: str
    pointer: str | None = None


class Entries:
    """The list of entries `ignores`; only settings files can contain it."""

    def from_file(self, value: Any) -> tuple[IgnoreEntry, ...]:
        if not isinstance(value, list) or not all(isinstance(entry, dict) for entry in value):
            raise Wrong("must be a list of tables: write [[tool.dslint.ignores]] above each")
        return tuple(self._entry(number, entry) for number, entry in enumerate(value, 1))

    def _entry(self, number: int, entry: dict[str, Any]) -> IgnoreEntry:
        which = f"is invalid in entry {number}:"
        for name in entry:
            if name not in ("file", "rules", "reason", "pointer"):
                raise Wrong(f"{which} unknown key {name!r}; an entry has file, rules, reason and optionally pointer")
        for name in ("file", "rules", "reason"):
            if name not in entry:
                raise Wrong(f"{which} missing {name}; an entry has file, rules, reason and optionally pointer")
        for name in ("reason", "pointer"):
            if name in entry and not (isinstance(entry[name], str) and entry[name].strip()):
                raise Wrong(f"{which} {name} must be a string")
        files = entry["file"] if isinstance(entry["file"], list) else [entry["file"]]
        try:
            return IgnoreEntry(
                Words().from_file(files), RuleWords(exact=True).from_file(entry["rules"]), entry["reason"], entry.get("pointer")
            )
        except Wrong as wrong:
            raise Wrong(f"{which} {show(entry)} {wrong}") from None

    def from_word(self, word: str) -> Any:  # noqa: ARG002 - the interface has it
        raise Wrong("must be written in a settings file")

    def schema(self) -> dict[str, Any]:
        text = {"type": "string", "minLength": 1}
        fields = {
            "file": {"anyOf": [text, {"type": "array", "items": text}], "description": "Patterns of file names."},
            "rules": {**RuleWords(exact=True).schema(), "minItems": 1},
            "reason": {**text, "description": "Why the findings are suppressed."},
            "pointer": {
                **text,
                "description": "Where in the file: /zero_optimization/offload_param, or with dots. Covers everything below.",
            },
        }
        entry = {"type": "object", "properties": fields, "required": ["file", "rules", "reason"], "additionalProperties": False}
        return {"type": "array", "items": entry}


def show(value: Any) -> str:
    """A value in the syntax of a settings file, shortened if it is long."""
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


def _suggestion(value: Any, words: Iterable[str]) -> str:
    close = similar(value, words) if isinstance(value, str) else []
    return f'. Did you mean "{close[0]}"?' if close else ""
