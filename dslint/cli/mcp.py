"""`dslint mcp`: the commands as tools for coding assistants."""

from __future__ import annotations

import os

import click

from dslint.errors import UserError
from dslint.project import install_command


@click.command(name="mcp", short_help="Serve a coding assistant: the Model Context Protocol.")
@click.option(
    "--root",
    "roots",
    multiple=True,
    metavar="DIR",
    type=click.Path(exists=True, file_okay=False),
    help="A folder that the tools may read. Repeatable.  [default: the current directory]",
)
def command(roots: tuple[str, ...]) -> None:
    """Serve a coding assistant on standard input and output, by the Model Context Protocol: the tools check, show, estimate, fit, init,
    explain_rule, explain_error and diagnose, and a resource for each rule and key.

    The tools read only below --root, write no file and start no program. An assistant starts the server itself: add the command
    `dslint mcp` to its configuration.
    """
    try:
        from dslint.mcp.serve import serve
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in ("mcp", "mcp_types", "anyio"):
            raise
        raise UserError(f"dslint mcp requires the package mcp: {install_command('mcp')}") from None
    serve(roots or (os.curdir,))
