"""`dslint.fix`."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TypeGuard, Unpack

from dslint.api.given import Given, Source, files
from dslint.api.results import FixedConfig
from dslint.api.subject import ConfigArgument, here, is_training_arguments, named, subject_of
from dslint.config.load import load_data, load_text
from dslint.fixes.apply import fix as apply_fixes
from dslint.fixes.run import ALL, SAFE, FixOptions, fix_text
from dslint.fixes.write_inside import write_inside
from dslint.lint.document import lint_loaded
from dslint.lint.files import as_settings_say, rules_for
from dslint.lint.results import FileResult
from dslint.source.read import read
from dslint.suppress.comments import apply_comments
from dslint.suppress.run import suppress


def fix(config: Source | object, *, unsafe: bool = False, write: bool = False, **given: Unpack[Given]) -> FixedConfig:
    """Fix the mistakes in a config that have a fix. Nothing that is given is changed, and no file is written without `write`.

    Args:
        config: a dict, the path of a file, or the text of a config: a string that holds a brace or a line end. Of a
            `transformers.TrainingArguments`, the config that it names.
        unsafe: whether to make fixes that change training, or delete comments, too.
        write: whether to write the fixed text to the file, whole or not at all.
        given: facts and settings, as in `check`.

    Returns:
        The fixed text, the findings that were fixed, and those that are left. Findings that are suppressed are not fixed.

    Raises:
        ValueError: `write` without the path of a file; a wrong value of an argument.
        OSError: the file cannot be written, a link leads it out of its project, or it has changed meanwhile; it is as it was.
        TypeError, dslint.errors.UserError, dslint.source.read.ReadError: as in `check`.
    """
    if _is_text(config):
        return _fixed(config, _of_text(given), unsafe=unsafe, write=write, name="<config>")
    subject = subject_of(config, given)
    if isinstance(subject.source, Mapping):
        return _fixed(load_data(subject.source, subject.context).document.text, subject, unsafe=unsafe, write=write, name="<config>")
    path = os.fspath(subject.source)
    with named(path):
        text = read(path)
    if is_training_arguments(config):
        return _fixed(text, subject, unsafe=unsafe, write=write, name=subject.shown)
    options = FixOptions(ALL if unsafe else SAFE)
    done = fix_text(text, path, subject.finder, options)
    assert done is not None, "what is named is always read"
    if write and done.fixed:
        write_inside(path, done.after, before=text)
    return FixedConfig(done.after, done.fixed, suppress(list(done.results[:1]), subject.finder)[0].diagnostics)


def _fixed(text: str, subject: ConfigArgument, *, unsafe: bool, write: bool, name: str) -> FixedConfig:
    """A config that is in no file, or that training arguments name."""
    path = None if isinstance(subject.source, Mapping) else os.fspath(subject.source)
    if write and path is None:
        raise ValueError("write=True takes the path of a file")
    chosen = rules_for(path, subject.settings) if path is not None else subject.settings.rules

    def lint(fresh: str) -> FileResult:
        result = as_settings_say(lint_loaded(load_text(fresh, subject.context), name, chosen), subject.settings)
        return suppress([result], subject.finder)[0] if path is not None else apply_comments(result)

    done = apply_fixes(text, lint, ALL if unsafe else SAFE)
    if write and path is not None and done.fixed:
        write_inside(path, done.text, before=text)
    return FixedConfig(done.text, done.fixed, done.result.diagnostics)


def _is_text(config: object) -> TypeGuard[str]:
    return isinstance(config, str) and any(mark in config for mark in "{\n\r")


def _of_text(given: Given) -> ConfigArgument:
    finder = files(given).finder
    settings = here(finder)
    return ConfigArgument({}, settings, settings.context, finder)
