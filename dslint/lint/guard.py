"""The one place where the way of a file is guarded: whatever fails on one file is a diagnostic of that file, and the others go on."""

from __future__ import annotations

import os
from collections.abc import Callable

from dslint.config.detect import FileKind
from dslint.diagnostics import Diagnostic, Effect, Severity
from dslint.errors import TRACEBACK, UserError
from dslint.lint.results import FileResult
from dslint.not_judged import NotJudged, Why
from dslint.source.frames import with_room

INTERNAL_ERROR = "DS000"
"""The code of the diagnostic for a defect of dslint."""

REPORT_IT = (
    f"This is a defect of dslint. Please report it with the file, or the part of it that causes this, and the traceback: set {TRACEBACK}=1."
)


@with_room
def guarded(work: Callable[[], list[FileResult]], shown: str) -> list[FileResult]:
    """The results of work on one file; one internal error in their place where it fails.

    Raises:
        UserError: a mistake of the user, which the command line reports.
    """
    try:
        return work()
    except UserError:
        raise
    except Exception as error:  # noqa: BLE001 - whatever a file does to dslint, the other files are still reported
        return [failed(shown, error)]


def failed(shown: str, error: Exception) -> FileResult:
    """The result of a file on which dslint failed."""
    message = f"dslint failed on this file: {described(error)}. The other files were checked."
    found = internal_error(shown, message, REPORT_IT)
    return FileResult(shown, FileKind.UNRELATED, diagnostics=(found,), not_judged=(NotJudged(Why.FAILED),))


def internal_error(shown: str, message: str, advice: str) -> Diagnostic:
    """The diagnostic for a defect of dslint that a file brings to light."""
    return Diagnostic(shown, INTERNAL_ERROR, "internal-error", Severity.ERROR, Effect.ADVICE, None, message, help=advice, pointer="")


def described(error: Exception) -> str:
    """An error with the place that raised it, without the values of a long message.

    Where the variable `DSLINT_TRACEBACK` is set, the error is raised again: a developer reads the traceback.
    """
    if os.environ.get(TRACEBACK):
        raise error
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    where = f" (line {trace.tb_lineno} of {trace.tb_frame.f_code.co_name})" if trace is not None else ""
    said = str(error)
    return f"{type(error).__name__}: {said[:200]}{'...' if len(said) > 200 else ''}{where}"
