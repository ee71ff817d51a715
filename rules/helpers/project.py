"""The project of a config, for what its programs may do with a config that they read themselves."""

from __future__ import annotations

from dslint.config import Config
from dslint.setups.project import Project, project_of


def project_around(config: Config) -> Project | None:
    """The scripts and programs of the project of a config; None for a config that is not in a folder."""
    return project_of(f"{config.context.project}/ds_config.json") if config.context.project is not None else None


def is_set_by_program(config: Config, *keys: str) -> bool:
    """Whether a program of the project writes one of these keys into a config."""
    project = project_around(config)
    return project is not None and project.program_that_sets(*keys) is not None


def is_written_by_program(config: Config, *keys: str) -> bool:
    """Whether nothing says what loads the config, and a program of the project writes one of these keys into one."""
    return config.facts.integration is None and is_set_by_program(config, *keys)
