"""What goes wrong through no fault of dslint's."""

from __future__ import annotations


class UserError(Exception):
    """A mistake of whoever runs dslint. The text is a sentence for them; the command line prints it and exits with 2."""
