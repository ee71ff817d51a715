"""The arguments of a framework that does not train with the Trainer, and what it makes of them in the config."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from dslint.facts import Release
from dslint.job.arguments import Arguments, SourcedValue, as_kind
from dslint.record import Record
from dslint.source.unknown import UNKNOWN


class OwnArgument(Record):
    """An argument with a name of the framework's own.

    `kind` is int, float, bool or str. `default` is `UNKNOWN` where the framework has none, or computes it. `changed` has the defaults that
    came later, each with the first release that has it. `since` is the first release with the argument and `before` the first one without
    it again; "" for every known release.
    """

    kind: type
    default: Any = UNKNOWN
    changed: Mapping[str, Any] = {}
    since: str = ""
    before: str = ""

    def is_in(self, release: Release | None) -> bool:
        """Whether a release has it. One that is not known has it."""
        if release is None:
            return True
        return not (self.since and release < Release.parse(self.since)) and not (self.before and release >= Release.parse(self.before))

    def default_in(self, release: Release | None) -> Any:
        """The default in a release. Where the release is not known, only a default counts that all releases have."""
        if release is None:
            return self.default if all(one == self.default for one in self.changed.values()) else UNKNOWN
        if not self.is_in(release):
            return UNKNOWN
        passed = [first for first in sorted(self.changed, key=Release.parse) if Release.parse(first) <= release]
        return self.changed[passed[-1]] if passed else self.default

    def read(self, value: Any) -> Any:
        """What the framework reads for a value of a file or a flag; `UNKNOWN` if that is not certain.

        A number for a str is not: a dataclass keeps it, OmegaConf makes text of it, and pydantic refuses it. A flag is text in any case.
        """
        if value is None or value is UNKNOWN:
            return value
        found = as_kind(self.kind, value)
        return found if type(found) is self.kind or (self.kind is float and type(found) is int) else UNKNOWN


class Fill(Record):
    """What a framework writes into a key of the config: the value of an argument, or what `computes` makes of several.

    `computes` gets the facts of the run and then the values of the arguments, of which none is unknown or None. It returns `UNKNOWN` for a
    value that is not certain, and None where the framework writes no value.
    """

    arguments: tuple[str, ...]
    computes: Callable[..., Any] | None = None


class OwnArguments(Record):
    """The arguments of a framework without the Trainer. Those of a section of its file have names with dots: `optim.lr`.

    `fills` is by key of the config what it puts in the place of "auto". `raises` is its error, with `{key}`, for an "auto" in another key;
    "" if DeepSpeed gets the word. `builds` is by key what it writes into a config of its own where no file is named, and `builds_more` says
    that it writes further keys. `uses_deepspeed` says whether arguments select DeepSpeed, where no config is named. `estimates` are by
    option of `dslint estimate` (`model`, `length`, `micro_batch`, `accumulation`) the arguments for it.
    """

    arguments: Mapping[str, OwnArgument]
    fills: Mapping[str, Fill] = {}
    raises: str = ""
    builds: Mapping[str, Fill] = {}
    builds_more: bool = False
    uses_deepspeed: Callable[[Arguments], bool] | None = None
    estimates: Mapping[str, str] = {}

    def defaults(self, release: Release | None) -> dict[str, Any]:
        """The values of arguments that are not set, in a release of the framework."""
        found = {name: argument.default_in(release) for name, argument in self.arguments.items()}
        return {name: value for name, value in found.items() if value is not UNKNOWN}

    def in_flags(self, flags: Mapping[str, SourcedValue]) -> dict[str, SourcedValue]:
        """The arguments among flags, also `--no_name` of a switch."""
        return {name: given for name, argument in self.arguments.items() if (given := _flag(name, argument, flags)) is not None}


def _flag(name: str, argument: OwnArgument, flags: Mapping[str, SourcedValue]) -> SourcedValue | None:
    given, off = flags.get(name), flags.get(f"no_{name}") if argument.kind is bool else None
    if given is not None:
        return replace(given, value=argument.read(given.value))
    return replace(off, value=False if not off.raw else UNKNOWN) if off is not None else None
