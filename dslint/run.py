"""A run over many files: each with the settings nearest to it, in one process or several; then what settings and baseline suppress."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

from dslint.diagnostics import Diagnostic, Place, Range
from dslint.discover import Target, shown
from dslint.linter import diagnostic, lint_file
from dslint.patterns import matches
from dslint.results import By, FileResult, Suppressed
from dslint.rule import Finding, Rule
from dslint.rules.files import unused_ignore
from dslint.selection import choose, is_name_of, Selection
from dslint.settings import Finder, Layer, Settings
from dslint.settings.kinds import Entry
from dslint.source.tree import Document

PARALLEL_FROM = 400
"""The number of files from which more processes pay: starting them takes as long as linting some hundred files."""

CHUNK = 50
"""Files that a process is given at a time."""


def lint(target: Target, settings: Settings) -> FileResult | None:
    """Lint a file with its settings. None for a file that was only found and is no config."""
    result = lint_file(target.path, shown(target.path), settings.facts, rules_for(target.path, settings), named=target.named)
    return result and judge_severity(result, settings)


def rules_for(path: str, settings: Settings) -> Sequence[Rule]:
    """The rules to ask of a file: the chosen ones, but for `per-file-ignores`."""
    unwanted = tuple(
        word for base, table in settings.based("per-file-ignores") for pattern, words in table.items() if matches(path, base, [pattern]) for word in words
    )
    return choose(settings.rules, [Selection(ignore=unwanted)]) if unwanted else settings.rules
