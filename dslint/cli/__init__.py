"""The command line: a module per command, imported when the command runs."""

from __future__ import annotations

import gc
import importlib
import os
import sys

import click

from dslint import __version__
from dslint.errors import TRACEBACK, UserError
from dslint.project import DISTRIBUTION

COMMANDS = {
    "check": "Find mistakes in DeepSpeed configs.",
    "init": "Write a starter config and explain its values.",
    "show": "Print the effective config with the origin of every value.",
    "estimate": "Estimate the memory that a config needs on GPU and host.",
    "fit": "List changes that make a config fit in memory, best first.",
    "tune": "Name the fastest configs that fit in memory by estimate.",
    "diagnose": "Find out from its log why a job failed.",
    "probe": "Run the real engine with a config and measure its memory.",
    "run": "Check a launch command, and start it if it has no errors.",
    "server": "Serve an editor: the language server.",
    "mcp": "Serve a coding assistant: the Model Context Protocol.",
    "schema": "Print a JSON Schema of the config for editors.",
    "config": "Print the active settings and their sources.",
    "rule": "Explain a rule, list all rules, or find the rules behind an error.",
    "playground": "Serve the page that lints in the browser.",
}


OTHER_WORDS = {
    "autofix": "check --fix",
    "explain": "rule",
    "fix": "check --fix",
    "format": "check --fix",
    "generate": "init",
    "gpu": "estimate",
    "language-server": "server",
    "lint": "check",
    "lsp": "server",
    "memory": "estimate",
    "new": "init",
    "rules": "rule",
    "settings": "config",
    "validate": "check",
    "verify": "check",
    "version": "--version",
    "why": "diagnose",
}
"""What other tools call a command, with ours."""


_COLLECT_AFTER = 1_000_000
"""How many new objects there are when Python looks for garbage, instead of 700. A check keeps the syntax trees of a project until it ends,
and to scan these again and again took a fifth of its time. With 50,000 it is 0.30 to 0.36 s of 8 s for LLaMA-Factory, axolotl and TRL; with
a million checks of these end before the first time, with 9 to 16 MiB more than 150 to 165.
"""

_COLLECT_AFTER_IN_SERVERS = 50_000
"""The same for a process that stays."""

_SERVERS = ("server", "mcp", "playground")


class ClosedPipe(Exception):
    """The reader of standard output closed the pipe (`dslint check | head`). Click would exit with 1 for a `BrokenPipeError`."""


class Commands(click.Group):
    """Finds a command in the module of its name."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002 - click's signature
        if cmd_name not in COMMANDS:
            return None
        gc.disable()  # imported modules are never garbage; scanning them takes a tenth of the start-up time
        command = importlib.import_module(f"dslint.cli.{cmd_name}").command
        gc.freeze()
        gc.set_threshold(_COLLECT_AFTER_IN_SERVERS if cmd_name in _SERVERS else _COLLECT_AFTER, 20, 100)
        gc.enable()
        assert isinstance(command, click.Command)
        return command

    def resolve_command(self, ctx: click.Context, args: list[str]) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command, and suggest one for a misspelt name or a file."""
        if args and args[0] not in COMMANDS and not args[0].startswith("-"):
            from dslint.source.similar import similar

            word, close = args[0], similar(args[0], COMMANDS)
            meant = OTHER_WORDS.get(word) or (f"check {word}" if "." in word or "/" in word else close[0] if close else "")
            raise click.UsageError(f'No such command "{word}".' + (f" Did you mean `dslint {meant}`?" if meant else ""), ctx)
        return super().resolve_command(ctx, args)

    def invoke(self, ctx: click.Context) -> object:
        """Run the command, and write out all that it prints."""
        try:
            try:
                return super().invoke(ctx)
            finally:
                sys.stdout.flush()
        except BrokenPipeError:
            raise ClosedPipe from None

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002 - click's signature
        """List the commands without importing them."""
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


def _version(ctx: click.Context, _param: click.Parameter, given: bool) -> None:  # noqa: FBT001 - click's signature
    """Print the version and exit; with -v after it, also what this installation knows."""
    if not given or ctx.resilient_parsing:
        return
    click.echo(f"dslint {__version__}")
    if any(word in ("-v", "--verbose") for word in sys.argv[1:]):
        from dslint.report import about_page

        click.echo(about_page.page())
    ctx.exit()


def _verbose(_ctx: click.Context, _param: click.Parameter, given: bool) -> None:  # noqa: FBT001 - click's signature
    """Refuse a -v that would do nothing: --version, which it goes with, has exited before."""
    if given:
        raise click.UsageError("-v goes with --version, or behind the name of a command: dslint check -v.")


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "-V",
    "--version",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_version,
    help="Print the version; with -v, what it knows.",
)
@click.option("-v", "--verbose", is_flag=True, expose_value=False, hidden=True, callback=_verbose)
def cli() -> None:
    """Find mistakes in DeepSpeed configs before the job is queued."""


def main() -> None:
    """The console script. Output is UTF-8; an interrupt exits with 130 and a closed pipe with 141, without a traceback."""
    _open_streams()
    try:
        code = cli.main(prog_name=_program(), standalone_mode=False)
    except click.ClickException as error:
        from dslint.report.style import printable, visible

        if not isinstance(error, getattr(click.exceptions, "NoArgsIsHelpError", ())):  # a page of help, from click 8.2 on
            error.message = printable(visible(error.message))  # type: ignore[misc] # it is not printed yet
        error.show()
        sys.exit(2)
    except UserError as error:
        from dslint.cli.options import warn

        warn(str(error))
        sys.exit(2)
    except (click.Abort, KeyboardInterrupt):
        sys.exit(130)
    except (BrokenPipeError, ClosedPipe):
        # Python's final flush would fail again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(141)
    except OSError as error:
        # Only standard output can fail here: a full disk. Python's final flush would fail again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        failed = "cannot write the output" if _has_a_directory() else "the working directory cannot be used"
        click.echo(f"dslint: {failed}: {error.strerror or error}", err=True)
        sys.exit(2)
    except Exception as error:  # noqa: BLE001 - 1 says that something was found: a defect has to end with another code
        _defect(error)
        sys.exit(2)
    sys.exit(code if isinstance(code, int) else 0)


def _program() -> str:
    """The name to show in usage lines: the one that the user ran. With `uvx deepspeed-lint` there is no command `dslint`."""
    started = os.path.basename(sys.argv[0]).removesuffix(".exe")  # noqa: PTH119 - pathlib is slow to import
    return DISTRIBUTION if started == DISTRIBUTION else "dslint"


def _open_streams() -> None:
    """Make the output UTF-8. What a parent closed is a device that takes everything, and an empty input."""
    sys.stdin = sys.stdin or open(os.devnull, encoding="utf-8")  # noqa: SIM115, PTH123 - open as long as the process; pathlib is slow to import
    sys.stdout = sys.stdout or open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115, PTH123
    sys.stderr = sys.stderr or open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115, PTH123
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(encoding="utf-8", errors="backslashreplace")


def _has_a_directory() -> bool:
    try:
        os.getcwd()  # noqa: PTH109 - pathlib is slow to import
    except OSError:
        return False
    return True


def _defect(error: Exception) -> None:
    """Report a defect of dslint: in one sentence, or with its traceback for those who set the variable `DSLINT_TRACEBACK`."""
    if os.environ.get(TRACEBACK):
        import traceback

        traceback.print_exc()
        return
    from dslint.cli.options import warn

    said = f"{type(error).__name__}: {str(error)[:200]}"
    advice = f"This is a defect of dslint. Please report it, with the traceback that {TRACEBACK}=1 prints."
    warn(f"internal error: {said}. {advice}")
