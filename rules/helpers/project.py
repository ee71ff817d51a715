"""The project of a config, for what its programs may do with a config that they read themselves."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from dslint.config import Config
from dslint.setups.project import Project, project_of, takes

if TYPE_CHECKING:
    from collections.abc import Iterator

    from dslint.frameworks.base import Framework
    from dslint.job.events import Event


def project_around(config: Config) -> Project | None:
    """The scripts and programs of the project of a config; None for a config that is not in a folder."""
    return project_of(f"{config.context.project}/ds_config.json") if config.context.project is not None else None


def is_raised_by(config: Config, framework: Framework, error: str) -> bool | None:
    """Whether the sources of a framework in the project hold the text of an error; None if the project has none, as most have.

    A checkout is seldom exactly a release, so what it raises stands in it alone.
    """
    project = project_around(config)
    return project.sources_say(framework.packages, error) if project is not None and framework.packages else None


def is_set_by_program(config: Config, *keys: str) -> bool:
    """Whether a program of the project writes one of these keys into a config."""
    project = project_around(config)
    return project is not None and project.program_that_sets(*keys) is not None


def is_set_elsewhere(config: Config, *keys: str) -> bool:
    """Whether a program of the project writes one of these keys into the config of a file: what DeepSpeed gets is not what the file has.

    The config that a program makes is judged as it is.
    """
    return config.document.language != "python" and is_set_by_program(config, *keys)


def is_taken_by_program(config: Config, section: str) -> bool:
    """Whether a program of the project takes a section out of a config, and so may change it or use it itself: `config["section"]`."""
    project = project_around(config)
    if project is not None and project.program_that_takes(section) is not None:
        return True
    return any(takes(text, section) for text in programs_of(config))


def programs_of(config: Config) -> list[str]:
    """The texts of the programs of the setup."""
    return [one.text for one in config.setup.documents.values() if one.language == "python"] if config.setup is not None else []


def blocks_around(before: str) -> Iterator[str]:
    """The first lines of the blocks that a statement of a program stands in, from the inside, by the text before the statement."""
    *lines, line = before.split("\n")
    depth = len(line) - len(line.lstrip())
    for one in reversed(lines):
        start = one.lstrip()
        if depth and start and not start.startswith("#") and len(one) - len(start) < depth:
            depth = len(one) - len(start)
            yield start


def calls_itself(config: Config, event: Event, kind: str) -> bool:
    """Whether a call writes the name of a class of a library: what extends this class in the project has arguments and methods of its own."""
    document = config.setup.documents.get(event.at.path) if config.setup is not None else None
    if document is None or event.at.range is None:
        return False
    start = event.at.range.start
    line = document.text.splitlines()[start.line - 1]
    return re.match(rf"(\w+\.)*{kind}\s*\(", line[start.column - 1 :]) is not None


def is_written_by_program(config: Config, *keys: str) -> bool:
    """Whether nothing says what loads the config, and a program of the project writes one of these keys into one."""
    return config.facts.integration is None and is_set_by_program(config, *keys)
