"""What the functions of the API are given besides a config: the settings of the command, by the same names."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, TypedDict

from dslint.record import Record
from dslint.settings import Finder, Layer, from_environment
from dslint.settings.kinds import Wrong
from dslint.settings.table import SETTINGS
from dslint.source.similar import similar

Source = Mapping[str, Any] | str | os.PathLike[str]
"""A config as a dict, or its path."""


class Given(TypedDict, total=False):
    """Facts and settings, as options of the command or keys of `dslint.toml`. What is not given comes from `DSLINT_*` variables, the
    settings file nearest to the config (for a dict: to the working directory), and what dslint infers.
    """

    world_size: int | None
    """the number of ranks of the whole job"""
    integration: str | None
    """who loads the config: "transformers", "accelerate", "lightning" or "deepspeed", optionally with its release"""
    deepspeed: str | None
    """the release that runs it, such as "0.16.9", or an upgrade "0.14.5..0.19.8" """
    package: Mapping[str, str] | str | None
    """releases of other packages: {"torch": "2.10.0"}"""
    nodes: int | None
    tensor_parallel: int | None
    pipeline_parallel: int | None
    sequence_parallel: int | None
    gpu: str | None
    gpu_memory: str | int | None
    host_memory: str | int | None
    model: Any
    """the model: its config.json or folder, the data of it, a config of transformers, or a model that has one"""
    checkpoint: str | os.PathLike[str] | None
    calibration: str | os.PathLike[str] | None
    """a file of `dslint probe --calibrate`, or a folder with one for each GPU"""
    env: Mapping[str, str] | None
    policy: str | os.PathLike[str] | None
    plugins: Iterable[str] | None
    select: Iterable[str] | None
    ignore: Iterable[str] | None
    extend_select: Iterable[str] | None
    extend_ignore: Iterable[str] | None
    pedantic: bool | None
    severity: Mapping[str, str] | None
    per_file_ignores: Mapping[str, Iterable[str]] | None
    ignores: Iterable[Mapping[str, Any]] | None


class Files(Record):
    """Where settings come from: the given ones, the environment, and the settings files."""

    finder: Finder
    layer: Layer


def files(given: Given) -> Files:
    """The settings that are given, checked as in a settings file.

    Raises:
        ValueError: an unknown or wrong setting; the text names it.
        dslint.errors.UserError: a `DSLINT_*` variable is wrong, or a file cannot be used.
    """
    values: dict[str, Any] = {}
    for argument, value in sorted(given.items(), key=lambda item: item[0] != "plugins"):  # other settings may name their rules
        name = argument.replace("_", "-")
        if argument not in Given.__annotations__:
            meant = next(iter(similar(argument, Given.__annotations__)), None)
            raise TypeError(f'unknown argument "{argument}"' + (f'. Did you mean "{meant}"?' if meant else "; dslint.api.Given lists them"))
        if value is None:
            continue
        values[name] = _model(value) if name == "model" else _read(argument, name, value)
    layer = Layer("the arguments", str(Path.cwd()), values)
    return Files(Finder([from_environment(os.environ), layer]), layer)


def _read(argument: str, name: str, value: Any) -> Any:
    if isinstance(value, os.PathLike):
        value = os.fspath(value)
    if isinstance(value, Iterable) and not isinstance(value, str | Mapping):
        value = list(value)
    if name == "per-file-ignores":
        value = {pattern: list(words) for pattern, words in value.items()}
    try:
        return SETTINGS[name].kind.from_file(value)
    except Wrong as wrong:
        raise ValueError(f"{argument}: {value!r} {wrong}") from None


def _model(model: Any) -> Any:
    """A model as the settings hold it: a path, or the description of its config."""
    if isinstance(model, str | os.PathLike):
        return os.fspath(model)
    from dslint.facts.model_config import describe

    config = model if isinstance(model, Mapping) else getattr(model, "config", model)
    data = config if isinstance(config, Mapping) else config.to_dict() if hasattr(config, "to_dict") else None
    return None if data is None else describe(dict(data), type(model).__name__ if not isinstance(model, Mapping) else "<model>")
