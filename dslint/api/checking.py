"""`dslint.check` and `dslint.load`."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Unpack

from dslint.api.given import Given, Source
from dslint.api.results import ConfigError, Findings
from dslint.api.subject import ConfigArgument, config_of, is_training_arguments, named, of_training, subject_of
from dslint.config import resolve
from dslint.config.effective import as_deepspeed_sees_it
from dslint.diagnostics import Effect, Phase
from dslint.lint.discovery import Target
from dslint.lint.document import lint_loaded
from dslint.lint.files import as_settings_say, lint_target, rules_for
from dslint.source.read import read
from dslint.source.store import a_run
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
    with a_run():
        subject = subject_of(config, given)
        if isinstance(subject.source, Mapping):
            return linted(subject)
        path = os.fspath(subject.source)
        with named(path):
            read(path)  # what cannot be read is an error of the caller
        return Findings(suppress(lint_target(Target(path, named=True), subject.settings), subject.finder))


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
    written = config if config is not None else config_of(args)
    return linted(of_training(args, written, given)) if written is not None else Findings()


def load(config: Source | object, **given: Unpack[Given]) -> DeepSpeedConfig:
    """The config as a typed model, with the values that DeepSpeed uses: defaults filled in, deprecated keys replaced, the batch completed.

    As for `dslint show`, the path may be that of a training file, a script or a program; its first config counts.

    Unknown values (an "auto" that an integration fills) have their defaults. The arguments are those of `check`; `TrainingArguments` fill
    the "auto" values of their config. The result prints the values that differ from DeepSpeed's defaults.

    Raises:
        ConfigError: DeepSpeed would raise while parsing the config.
        TypeError, ValueError, dslint.errors.UserError, dslint.source.read.ReadError: as in `check`.
    """
    from dslint.registry.rules import all_rules
    from dslint.schemas.root import DeepSpeedConfig

    subject = subject_of(config, given)
    loaded = subject.open_training()
    found = lint_loaded(loaded, subject.shown, all_rules()).diagnostics
    refused = [d for d in found if d.effect is Effect.CRASH and d.phase in (Phase.LOAD, Phase.PARSE)]
    if refused:
        raise ConfigError(refused)
    values = as_deepspeed_sees_it(resolve(loaded.document, loaded.context))[0]
    endless = {key: value for key, value in values.items() if value == float("inf")}  # what Accelerate writes for "never"; no file can
    whole = DeepSpeedConfig.model_validate({key: value for key, value in values.items() if key not in endless})
    return whole.model_copy(update=endless)


def linted(subject: ConfigArgument) -> Findings:
    """The findings in a config itself."""
    loaded, settings = subject.open(), subject.settings
    if isinstance(subject.source, Mapping):
        return Findings([as_settings_say(lint_loaded(loaded, subject.shown, settings.rules), settings)])
    result = lint_loaded(loaded, subject.shown, rules_for(os.fspath(subject.source), settings))
    return Findings(suppress([as_settings_say(result, settings)], subject.finder))
