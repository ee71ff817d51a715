"""Errors that users cause."""

from __future__ import annotations


class UserError(Exception):
    """A usage error or unusable input. The text is a sentence for the user; the command line prints it and exits with 2."""
