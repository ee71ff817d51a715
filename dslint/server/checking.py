"""Checks an open file as `dslint check` would check it, were it saved."""

from __future__ import annotations

import os
from functools import partial

from dslint.config.context import Context
from dslint.config.detect import FileKind
from dslint.config.load import load_text
from dslint.errors import UserError
from dslint.evaluate.files import concerns_deepspeed
from dslint.lint.discovery import Target, is_excluded, shown
from dslint.lint.files import combined, lint_given
from dslint.lint.guard import failed, guarded
from dslint.lint.results import FileResult
from dslint.record import Record
from dslint.server.files import OpenFile
from dslint.server.workspace import Workspace
from dslint.settings import Finder, Settings
from dslint.setups.names import Says, says
from dslint.source.read import ReadError, read
from dslint.suppress.run import suppress


class Checked(Record):
    """What a check of an open file says.

    `result` is None for a file that has nothing to do with DeepSpeed, or that the settings exclude. `error` is a mistake in the settings,
    which keeps the file from being checked. `folder` is that which the paths in the result are relative to.
    """

    file: OpenFile
    folder: str
    result: FileResult | None = None
    error: str | None = None


def check(file: OpenFile, workspace: Workspace) -> Checked:
    """Check an open file. Never raises: what fails is in the result."""
    folder = workspace.folder_of(file.path)
    with workspace.inside(file) as path:
        try:
            return Checked(file, folder, _check(file, path, workspace, workspace.finder(folder)))
        except UserError as error:
            return Checked(file, folder, error=str(error))
        except Exception as error:  # noqa: BLE001 - whatever fails, the server goes on
            return Checked(file, folder, failed(shown(path), error))


def _check(file: OpenFile, path: str, workspace: Workspace, finder: Finder) -> FileResult | None:
    settings = finder.for_file(path)
    if is_excluded(path, settings) or not is_ours(path, file.text):
        return None
    target = Target(path, named=True)
    results = suppress(combined(guarded(partial(_lint, file, path, workspace, settings), shown(path)), [target], finder), finder)
    own = next((result for result in results if result.path == shown(path)), None)
    return None if own is None else _without_known(own, finder)


def _lint(file: OpenFile, path: str, workspace: Workspace, settings: Settings) -> list[FileResult]:
    """The results for an open file, and those for the configs that it names, as `lint_target` has them for a saved one."""
    try:
        text = read(path)
    except ReadError as error:
        return [FileResult(shown(path), FileKind.UNREADABLE, error=str(error), context=settings.context)]
    return lint_given(text, path, settings, contexts=workspace.evidence(file, path, settings.context))


def is_ours(path: str, text: str) -> bool:
    """Whether a file concerns DeepSpeed: by its name, or by what is in it. Of an editor's other files nothing is said."""
    name_says = says(path)
    if name_says is Says.LEADS:
        return concerns_deepspeed(text)
    if name_says is Says.FOREIGN:
        return False
    return name_says is not Says.NOTHING or load_text(text, Context(), named=False).kind is not FileKind.UNRELATED


def _without_known(result: FileResult, finder: Finder) -> FileResult:
    """The result without the findings of the baseline, if the settings of the folder name one."""
    settings = finder.for_directory(os.getcwd())
    if not settings["baseline"]:
        return result
    from dslint.suppress import baseline

    ((base, name),) = settings.based("baseline")
    (left,) = baseline.apply(baseline.load(os.path.relpath(os.path.join(base, name)).replace(os.sep, "/")), [result])
    return left
