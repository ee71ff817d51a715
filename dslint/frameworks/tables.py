"""The generated tables of frameworks: `scripts/framework_tables.py` asks the installed packages."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Any

from dslint.facts import Release
from dslint.job.arguments import DEFAULTS
from dslint.record import Record


class FrameworkTable(Record):
    """What an installed framework says: its release, the defaults of its arguments, the names of all arguments, the configs it ships.

    `tasks` are defaults that differ by what its command does. `older` has the names that older releases accept in addition.
    """

    release: str
    defaults: Mapping[str, Any]
    accepted: frozenset[str]
    presets: Mapping[str, str]
    tasks: Mapping[str, Mapping[str, Any]]
    older: frozenset[str]
    releases: Mapping[str, frozenset[str]] = {}
    """What each older release accepts in addition."""
    choices: Mapping[str, tuple[str, ...]] = {}
    """For arguments with a fixed set of values: the name of the set, and the values."""
    valued: frozenset[str] = frozenset()
    """The switches that may also be None, whose flags need a value."""

    def refuses(self, name: str, release: Release) -> bool:
        """Whether a release refuses a name that another one accepts: neither the newest known one has it, nor the last known one before.

        The release of the table, and any newer one, accepts what the table says.
        """
        if release >= Release.parse(self.release):
            return name in self.older and name not in self.accepted
        before = [known for known in self.releases if Release.parse(known) <= release]
        nearest = max(before, key=Release.parse, default=None)
        return name in self.older and name not in self.accepted and nearest is not None and name not in self.releases[nearest]


@cache
def table(name: str) -> FrameworkTable:
    """The generated table of a framework's module."""
    data = json.loads((files("dslint.frameworks") / "_generated" / f"{name}.json").read_text(encoding="utf-8"))
    releases = {release: frozenset(one["more"].split()) for release, one in data["older"].items()}
    older = frozenset[str]().union(*releases.values())
    choices = {name: tuple(one) for name, one in data["choices"].items()}
    accepted, valued = frozenset(data["accepted"].split()), frozenset(data["valued"].split())
    return FrameworkTable(data["release"], data["defaults"], accepted, data["presets"], data["tasks"], older, releases, choices, valued)


def defaults(name: str, names: Mapping[str, str], computed: frozenset[str], task: str = "") -> dict[str, Any]:
    """The defaults of a framework by the names of the Trainer, without those that it computes.

    `names` are its names for arguments of the Trainer, also those that only older releases have. Where its own default is None, that of the
    Trainer holds.
    """
    written = {own: given for given, own in names.items()}
    own = table(name)
    given = {**own.defaults, **own.tasks.get(task, {})}
    found = {key: given.get(written.get(key, key), given.get(key)) for key in DEFAULTS if key not in computed}
    return {key: DEFAULTS[key] if value is None else value for key, value in found.items()}
