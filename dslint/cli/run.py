"""`dslint run`: check a launch command and start it if nothing is certainly wrong."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Sequence

import click

from dslint.cli.options import color_option, run_settings, settings_options, terminal_width, wants_color, warn
from dslint.config.context import Context
from dslint.diagnostics import Diagnostic, Severity
from dslint.errors import TRACEBACK
from dslint.facts.host import Host, facts_of, this_host
from dslint.job.model import Launch
from dslint.lint.files import as_settings_say
from dslint.lint.guard import INTERNAL_ERROR
from dslint.lint.results import FileResult, Results
from dslint.lint.setups import lint_command
from dslint.report import write
from dslint.report.words import count, verdict
from dslint.settings import Finder, Settings
from dslint.settings.table import FACTS
from dslint.suppress.run import suppress

READY, REFUSED, NOT_STARTED, MISSING = 0, 1, 126, 127


@click.command(
    name="run",
    short_help="Check a launch command, and start it if it has no errors.",
    context_settings={"ignore_unknown_options": False, "allow_interspersed_args": False},
)
@click.argument("command_line", nargs=-1, required=True, metavar="-- COMMAND...", type=click.UNPROCESSED)
@click.option("--dry-run", is_flag=True, help="Only check: print all findings and start nothing.")
@click.option("--force", is_flag=True, help="Start the command even if it has errors.")
@settings_options(*FACTS, "checkpoint", "select", "ignore", may_be_unknown=True)
@color_option
def command(command_line: tuple[str, ...], dry_run: bool, force: bool, finder: Finder, color: str) -> None:  # noqa: FBT001 - click passes them by name
    """Check a launch command with its program, its files, this machine and its Slurm job, and start it if nothing is certainly wrong.

    COMMAND is what you would type: deepspeed, torchrun, accelerate launch, srun, sbatch, python, or a script. It replaces dslint: its exit
    code and signals are its own. What dslint cannot know stops no job; only errors that are certain do.

    \b
    Examples:
      dslint run -- deepspeed --num_gpus 8 train.py --deepspeed ds_config.json
      dslint run --dry-run -- sbatch job.sh

    \b
    Exit codes:
      those of COMMAND, if it is started
      0    with --dry-run: nothing stops the command
      1    the command is not started: it has errors
      2    usage error
      126, 127  the command cannot be started, or is not found
    """  # noqa: D301 - click needs the character itself
    if dry_run and force:
        raise click.UsageError("--dry-run and --force cannot be combined.")
    try:
        stopped = _checked(command_line, finder, color, dry_run=dry_run)
    except Exception as error:
        if os.environ.get(TRACEBACK):
            raise
        warn(f"internal error: {type(error).__name__}: {str(error)[:200]}; the command was not checked.")
        stopped = False
    if dry_run:
        sys.exit(REFUSED if stopped else READY)
    if stopped and not force:
        warn("not started. Fix this, or pass --force to start it anyway.")
        sys.exit(REFUSED)
    _start(command_line)


def _checked(command_line: Sequence[str], finder: Finder, color: str, *, dry_run: bool) -> bool:
    """Check the command, report what was found, and return whether something is certainly wrong."""
    settings = run_settings(finder)
    host = this_host(os.environ)
    context = _in_this_place(settings.context, host, command_line)
    found = lint_command(shlex.join(command_line), context, settings.rules)
    files = suppress([as_settings_say(file, settings) for file in found], finder)
    problems = [*_too_many_ranks(files, host, command_line)]
    errors = [diagnostic for file in files for diagnostic in file.diagnostics if is_certain(diagnostic)]
    shown = files if dry_run else [file._replace(diagnostics=tuple(filter(is_certain, file.diagnostics))) for file in files]
    if dry_run or errors:
        _print(shown, settings, color, quiet=not dry_run, out_of_job=dry_run)
    for problem in problems:
        warn(problem)
    if not dry_run:
        others = sum(len(file.diagnostics) for file in files) - len(errors)
        more = f" {count(others, 'less severe finding')}: dslint run --dry-run lists them." if others else ""
        judged = sum(file.is_judged for file in files)
        if not judged:
            warn("no DeepSpeed training was found in this command; it was not checked.")
        elif not errors and not problems:
            warn(f"no errors in {count(judged, 'file')}.{more}")
    return bool(errors or problems)


def is_certain(diagnostic: Diagnostic) -> bool:
    """Whether a finding stops a job: an error that the files and facts prove."""
    return diagnostic.severity is Severity.ERROR and diagnostic.certain and diagnostic.code != INTERNAL_ERROR


def _in_this_place(context: Context, host: Host, command_line: Sequence[str]) -> Context:
    """The context with what the environment and the machine say; what the user said counts more."""
    context = context._replace(environment={**os.environ, **context.environment})
    for name, value, evidence in facts_of(host, command_line, os.environ):
        if context.get(name) is None:
            context = context.with_evidence(evidence, **{name: value})
    return context


def _too_many_ranks(files: Sequence[FileResult], host: Host, command_line: Sequence[str]) -> list[str]:
    """A sentence if the launch starts more ranks on this machine than it has GPUs."""
    if os.path.basename(command_line[0]) in ("sbatch", "srun") or host.gpus is None or os.environ.get("DS_ACCELERATOR"):
        return []
    launches: list[Launch] = [file.context.setup.launch for file in files if file.context.setup is not None and file.context.setup.launch]
    for launch in launches:
        if launch.world_size and launch.nodes and not launch.hosts and launch.world_size // launch.nodes > len(host.gpus):
            ranks = launch.world_size // launch.nodes
            has = count(len(host.gpus), "visible GPU")
            error = f'rank {len(host.gpus)} raises "CUDA error: invalid device ordinal".'
            return [f"{launch.launcher} starts {ranks} ranks on this machine, which has {has}: {error}"]
    return []


def _print(files: Sequence[FileResult], settings: Settings, color: str, *, quiet: bool, out_of_job: bool) -> None:
    """Write findings: to standard output if it is not that of the job."""
    out = sys.stdout if out_of_job else sys.stderr
    results = Results(settings.context, tuple(files), settings.rules, quiet=quiet)
    write(results, "full", out, color=wants_color(color, out), width=terminal_width())
    if quiet:
        warn(verdict(results))


def _start(command_line: Sequence[str]) -> None:
    """Replace this process by the command. Python ignores SIGPIPE and SIGXFSZ, which a command would inherit."""
    import signal

    for name in ("SIGPIPE", "SIGXFSZ"):
        if hasattr(signal, name):
            signal.signal(getattr(signal, name), signal.SIG_DFL)
    sys.stdout.flush()
    sys.stderr.flush()
    try:
        if os.name == "nt":  # exec on Windows returns to the shell before the command ends
            import subprocess

            sys.exit(subprocess.call(command_line))  # noqa: S603 - this is what the user typed
        os.execvp(command_line[0], list(command_line))  # noqa: S606 - this is what the user typed
    except FileNotFoundError:
        warn(f"{command_line[0]}: command not found.")
        sys.exit(MISSING)
    except OSError as error:
        warn(f"{command_line[0]} cannot be started: {error.strerror or error}.")
        sys.exit(NOT_STARTED)
