"""What leads to a config: the trainings, programs, scripts, job files and notebooks near it. Each is read once a run, for all configs."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from functools import partial
from typing import TypeAlias

from dslint.config.context import Context
from dslint.evaluate.files import EDITOR, concerns_deepspeed, folders_above, may_concern_deepspeed
from dslint.facts import Integration
from dslint.setups.names import leads
from dslint.setups.project import Project, leads_out, project_of
from dslint.source.read import ReadError, decode, read_bytes
from dslint.source.store import store

_MOST_FURTHER = 4
"""How many files in other folders are followed to a config: each may be a program that takes a second."""

Link: TypeAlias = tuple[str, Context]
"""The shown path of a config, and what is known where it is used."""

LARGEST = 256 * 1024
"""Larger files in bytes are not searched: they are data rather than scripts."""

MOST_FILES = 200
"""How many files of a folder are searched."""

_SUBFOLDERS = ("scripts", "script", "bash", "launch", "jobs", "configs", "config")
"""Folders with scripts, in the folder of a config or in one above it."""

_HIGHEST = 3
"""How many folders are searched: that of the config, and those above it in its repository."""


def contexts_of(path: str, given: Context) -> list[Context]:
    """What is known in each training that uses a config, by the files near it; empty if there are none.

    Searched are the folder of the config, the folders above it in its repository, and folders for scripts in these; if nothing there leads
    to it, all files of the project.

    Args:
        path: the path of the config.
        given: what is given; it counts more than what a training says.
    """
    name, real = os.fsencode(os.path.basename(path)), os.path.realpath(path)
    found: list[Context] = []
    for folder in _folders(path):
        for other, data in store().found(("near", folder), partial(_near, folder)):
            if name in data:
                found += [context for config, context in _links(other, data, given) if os.path.realpath(config) == real]
    for other in _further(path) if not found else ():
        with contextlib.suppress(ReadError):
            links = _links(other, read_bytes(other, LARGEST), given)
            found += [context for config, context in links if os.path.realpath(config) == real]
    return found


def _further(path: str) -> Iterator[str]:
    """The files elsewhere in the project that name a config; if none does, its programs, for which it may be the only config."""
    project = project_of(path)
    name = os.path.basename(path)
    concerned = store().found(("concerned", project.top), lambda: _concerned(project))
    naming = [one for one in concerned if name in project.text(one)]
    programs = [one for one in concerned if one.endswith(".py")]
    return (os.path.relpath(one) for one in naming[:_MOST_FURTHER] or (programs if len(programs) <= _MOST_FURTHER else ()))


def _concerned(project: Project) -> list[str]:
    """The files of a project that are about DeepSpeed, and can start or configure a training."""
    return [
        one
        for one in (*project.scripts, *project.programs, *project.yaml_files)
        if concerns_deepspeed(project.text(one)) and not project.is_test(one) and not leads_out(one)
    ]


def beside(path: str, given: Context) -> Context | None:
    """What is known of a config that nothing uses: the integration of the configs in its folder, if all that are used have the same one."""
    own = os.path.realpath(path)
    folder = os.path.dirname(own)
    try:
        names = [os.fsencode(name) for name in sorted(os.listdir(folder))[:MOST_FILES] if name.endswith(".json")]
    except OSError:
        return None
    used: dict[Integration | None, str] = {}
    for searched in _folders(path):
        for other, data in store().found(("near", searched), partial(_near, searched)):
            if any(name in data for name in names):
                for config, context in _links(other, data, given):
                    if os.path.dirname(os.path.realpath(config)) == folder:
                        used.setdefault(context.facts.integration, config)
    integration, config = next(iter(used.items()), (None, ""))
    if len(used) != 1 or integration is None:
        return None
    return given.inferring(f"{os.path.basename(config)} beside it is for {integration.label}", integration=integration)


def _links(path: str, data: bytes, given: Context) -> tuple[Link, ...]:
    """The links of a file near a config; what fails here fails in checking that file, too, and is reported there."""

    def read_links() -> tuple[Context, tuple[Link, ...]]:
        with contextlib.suppress(Exception):
            return given, tuple(links_of(decode(data, path), path, path.replace(os.sep, "/"), given))
        return given, ()

    # The context has no hash. It is kept with the result, so that no other one gets its id.
    return store().found(("links", path, id(given)), read_links)[1]


def links_of(text: str, path: str, shown: str, given: Context) -> Iterator[Link]:
    """The separate config files that a file leads to, each with its context, to which the config itself adds facts."""
    from dslint.setups.completed import completed_files  # most configs have no such file near them
    from dslint.setups.read import read_once

    found = read_once(text, path, shown, given, named=True)
    for gathered in found.setups if found is not None else ():
        config = gathered.setup.config
        if gathered.setup.one_of_several:
            continue
        if config is not None and gathered.config is not None and config != shown and gathered.documents.get(config) is gathered.config:
            yield config, gathered.context
        else:
            yield from completed_files(gathered, given)


def _near(folder: str) -> list[tuple[str, bytes]]:
    """The files in a folder that can lead to a config, with what is in them."""
    try:
        names = sorted(name for name in os.listdir(folder or ".") if leads(name))[:MOST_FILES]
    except OSError:
        return []
    found: list[tuple[str, bytes]] = []
    for name in names:
        path = os.path.join(folder, name)
        with contextlib.suppress(ReadError):
            data = read_bytes(path, LARGEST)
            if may_concern_deepspeed(data) and not leads_out(path):
                found.append((path, data))
    return found


def _folders(path: str) -> Iterator[str]:
    own = os.path.dirname(path)
    above = folders_above(os.path.abspath(own or "."))[: _HIGHEST - 1]
    shown = [own, *(folder if os.path.isabs(path) else os.path.relpath(folder) for folder in above)]
    for folder in ("" if one == "." else one for one in shown):
        yield folder
        yield os.path.join(folder, EDITOR)
        for name in _SUBFOLDERS:
            below = os.path.join("" if folder == "." else folder, name)
            if os.path.isdir(below) and not os.path.samefile(below, own or "."):
                yield below
