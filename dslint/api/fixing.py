"""`dslint.fix`."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Unpack

from dslint.api.checking import here, shown
from dslint.api.given import Given, Source, files
from dslint.api.results import FixedConfig
from dslint.config.load import load_data, load_text
from dslint.fixes.apply import fix as apply_fixes
from dslint.fixes.atomic_write import write_whole
from dslint.fixes.run import ALL, SAFE
from dslint.lint.document import lint_loaded
from dslint.lint.files import rules_for, with_severities
from dslint.lint.results import FileResult
from dslint.source.read import read
from dslint.suppress.comments import apply_comments
from dslint.suppress.run import suppress


def fix(config: Source, *, unsafe: bool = False, write: bool = False, **given: Unpack[Given]) -> FixedConfig:
    """Fix the mistakes in a config that have a fix. Nothing that is given is changed, and no file is written without `write`.

    Args:
        config: a dict, the path of a file, or the text of a config: a string that holds a brace or a line end.
        unsafe: whether to make fixes that change training, or delete comments, too.
        write: whether to write the fixed text to the file, whole or not at all.
        given: facts and settings, as in `check`.

    Returns:
        The fixed text, the findings that were fixed, and those that are left. Findings that are suppressed are not fixed.

    Raises:
        ValueError: `write` without the path of a file; a wrong value of an argument.
        OSError: the file cannot be written; it is as it was.
        TypeError, dslint.errors.UserError, dslint.source.read.ReadError: as in `check`.
    """
    finder = files(given).finder
    path = None if isinstance(config, Mapping) or _is_text(config) else os.fspath(config)
    if write and path is None:
        raise ValueError("write=True takes the path of a file")
    settings = here(finder) if path is None else finder.for_file(path)
    facts = settings.context
    text = read(path) if path is not None else load_data(config, facts).document.text if isinstance(config, Mapping) else str(config)
    chosen = rules_for(path, settings) if path is not None else settings.rules

    def lint(fresh: str) -> FileResult:
        linted = lint_loaded(load_text(fresh, facts), shown(path) if path is not None else "<config>", chosen)
        result = with_severities(linted, settings)
        return suppress([result], finder)[0] if path is not None else apply_comments(result)

    done = apply_fixes(text, lint, ALL if unsafe else SAFE)
    if write and path is not None and done.fixed:
        write_whole(path, done.text)
    return FixedConfig(done.text, done.fixed, done.result.diagnostics)


def _is_text(config: str | os.PathLike[str]) -> bool:
    return isinstance(config, str) and any(mark in config for mark in "{\n\r")
