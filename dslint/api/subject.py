"""What a function of the API is called with: a dict, a path or training arguments, with the settings and facts that belong to it."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from dslint.api.given import Given, Source, files
from dslint.config.context import Context
from dslint.config.load import Loaded
from dslint.errors import UserError
from dslint.facts import Integration
from dslint.record import Record
from dslint.settings import Finder, Settings
from dslint.setups.gather import reasons_of
from dslint.setups.open import open_passed, open_text
from dslint.source.read import ReadError, read


class ConfigArgument(Record):
    """A config as a dict or a path, with its settings, its facts, and where they come from."""

    source: Source
    settings: Settings
    context: Context
    finder: Finder

    @property
    def shown(self) -> str:
        """The name of the config in findings."""
        return shown(self.source)

    def open(self) -> Loaded:
        """Open the config.

        Raises:
            ReadError: the file cannot be read.
        """
        if isinstance(self.source, Mapping):
            return open_passed(self.source, self.context)
        with named(self.source):
            return open_passed(os.fspath(self.source), self.context)

    def open_training(self) -> Loaded:
        """Open the config, or that of the first training in a training file, a script or a program, with its setup.

        Raises:
            ReadError: the file cannot be read.
            UserError: no config was found.
        """
        if isinstance(self.source, Mapping):
            return self.open()
        path = os.fspath(self.source)
        with named(path):
            text = read(path)
        subject = open_text(text, path, self.context)
        assert subject is not None, "what is named is always opened"
        if subject.configs:
            return subject.configs[0].loaded
        reasons = [one.reason for one in reasons_of(subject.trainings)] if subject.trainings is not None else []
        why = subject.note or next(iter(reasons), "no DeepSpeed config was found in it or named by it.")
        raise UserError(f"{self.shown}: {why}")


def subject_of(config: Source | object, given: Given) -> ConfigArgument:
    """The config that the first argument of a function stands for.

    Raises:
        TypeError: the value is not a config, or names none; an unknown argument is given.
        ValueError, dslint.errors.UserError: as in `files`.
    """
    if is_training_arguments(config):
        if (source := config_of(config)) is None:
            raise TypeError("these training arguments name no DeepSpeed config: deepspeed is None")
        return of_training(config, source, given)
    finder = files(given).finder
    return _subject(_source(config, "a config is a dict, a path or a TrainingArguments, not {kind}"), finder)


def of_training(args: object, config: Source, given: Given) -> ConfigArgument:
    """A config with the training arguments that name it."""
    from dslint.frameworks.live import arguments_of, setup_of

    if given.get("world_size") is None and (size := getattr(args, "world_size", None)) is not None:
        given = {**given, "world_size": size}
    subject = _subject(config, files(given).finder)
    context = subject.context._replace(setup=setup_of(arguments_of(args), subject.shown))
    return subject._replace(context=context.but(integration=Integration.TRANSFORMERS))


def config_of(args: object) -> Source | None:
    """The config that training arguments name; None for a training without DeepSpeed."""
    written = getattr(args, "deepspeed", None)
    return None if written is None else _source(written, "args.deepspeed is {kind}, not a dict or a path; pass config=")


def is_training_arguments(value: object) -> bool:
    """Whether a value has the attributes of a `TrainingArguments`."""
    return not isinstance(value, Mapping | str | os.PathLike) and hasattr(value, "deepspeed")


def here(finder: Finder) -> Settings:
    """The settings for data that is in no file: those of the working directory."""
    return finder.for_directory(str(Path.cwd()))


def shown(config: Source) -> str:
    """The name of a config in findings."""
    return "<dict>" if isinstance(config, Mapping) else os.fspath(config).replace(os.sep, "/")


@contextmanager
def named(path: str | os.PathLike[str]) -> Iterator[None]:
    """Put the name of the file into the text of a `ReadError`: the caller sees nothing else of it."""
    try:
        yield
    except ReadError as error:
        error.args = (f"{os.fspath(path)}: {error.message}",)
        raise


def _source(value: object, wrong: str) -> Source:
    if not isinstance(value, Mapping | str | os.PathLike):
        raise TypeError(wrong.format(kind=type(value).__name__))
    return value


def _subject(source: Source, finder: Finder) -> ConfigArgument:
    settings = here(finder) if isinstance(source, Mapping) else finder.for_file(os.fspath(source))
    return ConfigArgument(source, settings, settings.context, finder)
