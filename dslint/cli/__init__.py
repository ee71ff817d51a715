"""The command line. A module per command, imported when it is called: `dslint check` does not pay for the others."""

from __future__ import annotations

import gc
import importlib
import os
import sys

import click

from dslint import __version__
from dslint.errors import UserError

COMMANDS = {
    "check": "Find the mistakes in DeepSpeed configs.",
    "init": "Write a config to start from, with the reasons for its values.",
    "show": "Print the effective config, with the origin of every value.",
    "estimate": "Say how much memory a config needs, on the GPU and on the host.",
    "fit": "Say what to change so that a config fits, best first.",
    "probe": "Run the real engine with a config, and say what it takes.",
    "schema": "Print a JSON Schema of the config, for editors.",
    "config": "Print the settings in force, and where each came from.",
    "rule": "Explain a rule, list them all, or find those behind an error.",
}


class Commands(click.Group):
    """Finds a command in the module of its name."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002 - click's signature
        if cmd_name not in COMMANDS:
            return None
        gc.disable()  # what is imported stays: to look through it for garbage takes a tenth of the start
        command = importlib.import_module(f"dslint.cli.{cmd_name}").command
        gc.freeze()
        gc.enable()
        assert isinstance(command, click.Command)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002 - click's signature
        """List the commands without importing them."""
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, "-V", "--version", message="dslint %(version)s")
def cli() -> None:
    """Find the mistakes in DeepSpeed configs before the job is queued."""


def main() -> None:
    """The console script: UTF-8 everywhere, and quiet exit codes of their own for an interrupt (130) and a closed pipe (141)."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(encoding="utf-8", errors="backslashreplace")
    try:
        code = cli.main(prog_name="dslint", standalone_mode=False)
        sys.stdout.flush()
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
    except UserError as error:
        click.echo(f"dslint: {error}", err=True)
        sys.exit(2)
    except (click.Abort, KeyboardInterrupt):
        sys.exit(130)
    except BrokenPipeError:
        # The reader has gone (`dslint check | head`). Python would fail once more on its own last flush.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(141)
    except OSError as error:
        # Only standard output can fail here: a full disk. Python would fail once more on its own last flush.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        click.echo(f"dslint: the output cannot be written: {error.strerror or error}", err=True)
        sys.exit(2)
    sys.exit(code if isinstance(code, int) else 0)
