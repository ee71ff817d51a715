"""Errors that users cause."""

from __future__ import annotations

TRACEBACK = "DSLINT_TRACEBACK"
"""The environment variable with which a defect of dslint shows its traceback in place of a sentence."""


class UserError(Exception):
    """A usage error or unusable input. The text is a sentence for the user; the command line prints it and exits with 2."""


class NotInstalled(Exception):
    """A plug-in that is not installed: it comes with the files that are checked. The text is a sentence for the user."""
