"""`dslint.check` and `dslint.load`."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

from dslint.api.given import Given, Source, files
from dslint.api.results import ConfigError, Findings
from dslint.config import resolve
from dslint.config.context import Context
from dslint.config.effective import as_deepspeed_sees_it
from dslint.config.load import Loaded, load_data
from dslint.config.load import load as load_config
from dslint.diagnostics import Effect, Phase
from dslint.facts import Facts, Integration
from dslint.lint.discovery import Target
from dslint.lint.document import lint_loaded
from dslint.lint.files import lint_target, rules_for, with_severities
from dslint.settings import Finder, Settings
from dslint.source.read import read
from dslint.suppress.run import suppress

if TYPE_CHECKING:
    from dslint.schemas.root import DeepSpeedConfig


def check(config: Source | object, **given: Unpack[Given]) -> Findings:
    """Find mistakes in a config, or in a training that uses one.

    Args:
        config: a dict, as passed to `deepspeed.initialize`; the path of a config, a training file, a script or a program; or a
            `transformers.TrainingArguments`.
        given: facts and settings, as options of `dslint check` (see `Given`): `world_size=8, gpu="a100", select=["DS4"]`.

    Returns:
        The findings, a list, by file and place, without those that comments or settings suppress. Of a dict, places are those in its text
        as `json.dumps(config, indent=2)` writes it.

    Raises:
        TypeError: the dict contains a value that JSON cannot represent (the text names its path), or an unknown argument.
        ValueError: a wrong value of an argument.
        dslint.errors.UserError: a settings file, the model or another file cannot be used.
        dslint.source.read.ReadError: the file cannot be read.
    """
    if is_training_arguments(config):
        return check_training_arguments(config, **given)
    finder = files(given).finder
    if isinstance(config, Mapping):
        return of_data(config, here(finder))
    if not isinstance(config, str | os.PathLike):
        raise TypeError(f"a config is a dict, a path or a TrainingArguments, not {type(config).__name__}")
    path = os.fspath(config)
    read(path)  # what cannot be read is an error of the caller
    return Findings(suppress(lint_target(Target(path, named=True), finder.for_file(path)), finder))


def check_training_arguments(args: object, *, config: Source | None = None, **given: Unpack[Given]) -> Findings:
    """Find mistakes in a config and its `transformers.TrainingArguments`, including those that the Trainer reports only later.

    Call it after parsing the arguments and before loading the model. It neither changes `args` nor keeps state.

    Args:
        args: the arguments, or any object with their attributes.
        config: the config as written; `args.deepspeed` by default.
        given: facts and settings, as in `check`. The world size is `args.world_size` by default.

    Returns:
        The findings, sorted by place. Places of arguments have the path "<TrainingArguments>" and no line. Empty without a config.

    Raises:
        TypeError, ValueError, dslint.source.read.ReadError: as in `check`.
    """
    from dslint.setup.live import arguments_of, setup_of

    written = config if config is not None else getattr(args, "deepspeed", None)
    if written is None:
        return Findings()
    if not isinstance(written, Mapping | str | os.PathLike):
        raise TypeError(f"args.deepspeed is {type(written).__name__}, not a dict or a path; pass config=")
    if given.get("world_size") is None and (size := getattr(args, "world_size", None)) is not None:
        given["world_size"] = size
    finder = files(given).finder
    settings = here(finder) if isinstance(written, Mapping) else finder.for_file(os.fspath(written))
    context = settings.context._replace(setup=setup_of(arguments_of(args), shown(written)))
    context = context.but(integration=Integration.TRANSFORMERS)
    return linted(opened(written, context), written, settings, finder)


def load(config: Source, **given: Unpack[Given]) -> DeepSpeedConfig:
    """The config as a typed model, with the values that DeepSpeed uses: defaults filled in, deprecated keys replaced, the batch completed.

    Unknown values (an "auto" that an integration fills) have their defaults. The arguments are those of `check`.

    Raises:
        ConfigError: DeepSpeed would raise while parsing the config.
        TypeError, ValueError, dslint.errors.UserError, dslint.source.read.ReadError: as in `check`.
    """
    from dslint.registry.rules import all_rules
    from dslint.schemas.root import DeepSpeedConfig

    finder = files(given).finder
    settings = here(finder) if isinstance(config, Mapping) else finder.for_file(os.fspath(config))
    loaded = opened(config, settings.context)
    found = lint_loaded(loaded, shown(config), all_rules()).diagnostics
    refused = [d for d in found if d.effect is Effect.CRASH and d.phase in (Phase.LOAD, Phase.PARSE)]
    if refused:
        raise ConfigError(refused)
    return DeepSpeedConfig.model_validate(as_deepspeed_sees_it(resolve(loaded.document, loaded.context))[0])


def is_training_arguments(value: object) -> bool:
    """Whether a value has the attributes of a `TrainingArguments`."""
    return not isinstance(value, Mapping | str | os.PathLike) and hasattr(value, "deepspeed")


def here(finder: Finder) -> Settings:
    """The settings for data that is in no file: those of the working directory."""
    return finder.for_directory(str(Path.cwd()))


def of_data(config: Mapping[str, Any], settings: Settings, context: Context | None = None) -> Findings:
    """The findings in a config that is data."""
    result = lint_loaded(load_data(config, context or settings.context), shown(config), settings.rules)
    return Findings([with_severities(result, settings)])


def linted(loaded: Loaded, source: Source, settings: Settings, finder: Finder) -> Findings:
    """The findings in a config that was opened."""
    if isinstance(source, Mapping):
        return Findings([with_severities(lint_loaded(loaded, shown(source), settings.rules), settings)])
    result = lint_loaded(loaded, shown(source), rules_for(os.fspath(source), settings))
    return Findings(suppress([with_severities(result, settings)], finder))


def opened(config: Source, given: Facts | Context) -> Loaded:
    """A config that was opened."""
    return load_data(config, given) if isinstance(config, Mapping) else load_config(os.fspath(config), given)


def shown(config: Source) -> str:
    """The name of a config in findings."""
    return "<dict>" if isinstance(config, Mapping) else os.fspath(config).replace(os.sep, "/")
