"""The suppression of findings, in one pass over the results of a run: comments in the files, entries of the settings, the baseline."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial

from dslint.lint.files import as_settings_say
from dslint.lint.guard import guarded
from dslint.lint.results import FileResult
from dslint.settings import Finder
from dslint.suppress.comments import apply_comments
from dslint.suppress.entries import RunEntries


def suppress(files: Iterable[FileResult], finder: Finder, *, searched: Iterable[str] = ()) -> list[FileResult]:
    """Take out of the results what comments and settings suppress. What suppresses nothing becomes a finding itself.

    Args:
        files: the results of linting.
        finder: where the settings are.
        searched: the directories that were searched. An entry for a pattern of files is only called unused when all files that its settings
            file speaks for were looked at.

    Returns:
        The results, and one more for each settings file with an unused entry.
    """
    entries = RunEntries(finder)

    def one(file: FileResult) -> list[FileResult]:
        return [entries.apply(as_settings_say(apply_comments(file), finder.for_file(file.path)))]

    results = [result for file in files for result in guarded(partial(one, file), file.path)]
    return [*results, *(as_settings_say(file, finder.for_file(file.path)) for file in entries.unused(searched))]
