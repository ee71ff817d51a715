"""The generated tables of frameworks: `scripts/framework_tables.py` asks the installed packages."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Any, NamedTuple

from dslint.job.arguments import DEFAULTS


class Table(NamedTuple):
    """What an installed framework says: its release, the defaults of its arguments, the names of all arguments, the configs it ships.

    `tasks` are defaults that differ by what its command does. `older` has the names that older releases accept in addition.
    """

    release: str
    defaults: Mapping[str, Any]
    accepted: frozenset[str]
    presets: Mapping[str, str]
    tasks: Mapping[str, Mapping[str, Any]]
    older: frozenset[str]


@cache
def table(name: str) -> Table:
    """The generated table of a framework's module."""
    data = json.loads((files("dslint.frameworks") / "_generated" / f"{name}.json").read_text(encoding="utf-8"))
    older = frozenset(word for one in data["older"].values() for word in one["more"].split())
    return Table(data["release"], data["defaults"], frozenset(data["accepted"].split()), data["presets"], data["tasks"], older)


def defaults(name: str, names: Mapping[str, str], computed: frozenset[str], task: str = "") -> dict[str, Any]:
    """The defaults of a framework by the names of the Trainer, without those that it computes.

    `names` are its names for arguments of the Trainer. Where its own default is None, that of the Trainer holds.
    """
    written = {own: given for given, own in names.items()}
    own = table(name)
    given = {**own.defaults, **own.tasks.get(task, {})}
    found = {key: given.get(written.get(key, key)) for key in DEFAULTS if key not in computed}
    return {key: DEFAULTS[key] if value is None else value for key, value in found.items()}
