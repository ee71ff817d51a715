"""Options that several commands share. Options for settings are built from the table of settings, so that every source is read alike."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TextIO, TypeVar

import click

from dslint.errors import UserError
from dslint.facts import Release
from dslint.settings import Finder, Layer, Settings, from_environment, from_options
from dslint.settings.kinds import (
    Choice,
    Count,
    DeepSpeedRelease,
    Environment,
    FileName,
    Flag,
    FolderName,
    GpuName,
    Packages,
    RuleWords,
    Size,
    Table,
    Words,
    Wrong,
)
from dslint.settings.table import EXTENDING, SETTINGS, TABLES, Setting

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

Command = TypeVar("Command", bound=Callable[..., Any])

_METAVARS = {
    Count: "N",
    DeepSpeedRelease: "RELEASE",
    RuleWords: "RULES",
    Words: "PATTERNS",
    Environment: "NAME=VALUE",
    Packages: "NAME==RELEASE",
    FileName: "FILE",
    FolderName: "DIR",
    Size: "SIZE",
    GpuName: "NAME",
}


class SettingType(click.ParamType):  # type: ignore[type-arg] # older releases of click have no parameter here
    """The value of a setting, read as in the other sources of settings."""

    def __init__(self, setting: Setting, *, may_be_unknown: bool = False) -> None:
        self.setting = setting
        self.name = setting.name
        self.may_be_unknown = may_be_unknown
        """Whether the command goes on without a GPU or a model that is not known."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if self.may_be_unknown and self.name == "model" and isinstance(value, str):
            return _known_model(value)
        try:
            return self.setting.kind.from_word(value) if isinstance(value, str) else value
        except Wrong as wrong:
            if not self.may_be_unknown:
                self.fail(f'"{value}" {wrong}', param, ctx)
            close = ", ".join(getattr(wrong.__cause__, "close", ())[:3])
            near = f" (like it: {close})" if close else ""
            warn(f'--gpu "{value}" is not a known GPU{near}. Its data types are not judged, and its memory only with --gpu-memory SIZE.')
            return UNKNOWN_VALUE

    def get_metavar(self, param: click.Parameter, ctx: click.Context | None = None) -> str | None:  # noqa: ARG002 - click's signature
        kind = self.setting.kind
        if isinstance(kind, Choice):
            return f"[{'|'.join(kind.words)}]"
        if isinstance(kind, Table):
            return "RULE=SEVERITY" if kind.of_rules else "PATTERN=RULE"
        return _METAVARS.get(type(kind))

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:  # noqa: ARG002 - click's signature
        from dslint.cli.completion import complete_models, complete_value

        return complete_models(incomplete) if self.name == "model" else complete_value(self.setting.kind, incomplete)


UNKNOWN_VALUE = object()
"""The value of --gpu or --model for a name that is not known, in commands that go on without it."""


def _known_model(name: str) -> object:
    """A model as it is given, unless it can only be the name of one that is not known."""
    from dslint.facts.model_config import load_model  # few commands name one

    if os.path.exists(name) or name.endswith(".json"):  # noqa: PTH110 - pathlib is slow to import
        return name
    try:
        load_model(name)
    except UserError as error:
        warn(f"{error}. Until then no rule about the model runs.")
        return UNKNOWN_VALUE
    return name


def layer_of(options: Mapping[str, Any]) -> Layer:
    """The settings that options give. A GPU or a model that is not known is not replaced by that of another source."""
    given = {name: _combined(name, value) for name, value in options.items() if value not in (None, (), False)}
    return from_options({name: None if value is UNKNOWN_VALUE else value for name, value in given.items()})


def has_unknown(settings: Settings) -> bool:
    """Whether a GPU or a model is given that is not known."""
    return any(one.value is None and bool(one.origins) for one in map(settings.in_force, _MAY_BE_UNKNOWN))


_MAY_BE_UNKNOWN = ("gpu", "model")


def settings_options(*names: str, may_be_unknown: bool = False) -> Callable[[Command], Command]:
    """Add `--config`, `--isolated` and options for these settings to a command, which receives them as the argument `finder`.

    With `may_be_unknown` the command goes on without a GPU or a model that is not known.
    """

    def add(command: Command) -> Command:
        def with_settings(config: str | None, isolated: bool, **rest: Any) -> Any:  # noqa: FBT001 - click passes it by name
            given = {name: rest.pop(SETTINGS[name].variable.lower()) for name in names}
            if config is not None and isolated:
                raise click.UsageError("--config and --isolated cannot be combined.")
            return command(finder=Finder([from_environment(os.environ), layer_of(given)], only="" if isolated else config), **rest)

        with_settings.__doc__ = command.__doc__
        with_settings.__click_params__ = list(getattr(command, "__click_params__", []))  # type: ignore[attr-defined]
        click.option("--isolated", is_flag=True, help="Ignore all settings files, and the releases that the project pins.")(with_settings)
        click.option("--config", metavar="FILE", help="Use this settings file instead of the one nearest to each config.")(with_settings)
        for name in reversed(names):
            setting_option(name, may_be_unknown=may_be_unknown and name in _MAY_BE_UNKNOWN)(with_settings)
        return with_settings  # type: ignore[return-value]

    return add


def setting_option(name: str, *, may_be_unknown: bool = False) -> Callable[[Command], Command]:
    """The option for a setting."""
    setting = SETTINGS[name]
    default = f"detected, else {setting.default}" if setting.name == "deepspeed" else setting.default
    meaning = setting.meaning + (f"  [default: {default}]" if isinstance(default, str) and default else "")
    if isinstance(setting.kind, Flag):
        return click.option(f"--{setting.name}", setting.variable.lower(), is_flag=True, help=meaning)
    several = isinstance(setting.kind, Words | Table | Environment | Packages)
    kind = SettingType(setting, may_be_unknown=may_be_unknown)
    return click.option(f"--{setting.name}", setting.variable.lower(), type=kind, multiple=several, help=meaning)


def _combined(name: str, value: Any) -> Any:
    """The values of a repeated option, combined."""
    if name == "package":
        found: dict[str, Release] = {}
        for package, release in (pair for table in value for pair in table.items()):
            if found.setdefault(package, release) != release:
                raise click.UsageError(f"--package names two releases of {package}: {found[package]} and {release}.")
        return found
    if name in TABLES:
        return {key: entry for table in value for key, entry in table.items()}
    return tuple(word for words in value for word in words) if name in EXTENDING or isinstance(SETTINGS[name].kind, Words) else value


def run_settings(finder: Finder) -> Settings:
    """The settings of the whole run: those nearest to the working directory."""
    return finder.for_directory(os.getcwd())  # noqa: PTH109 - pathlib is slow to import


def model_option(command: Command) -> Command:
    """Add `--model`, a file or a known name, to a command."""

    def complete(_context: click.Context, _param: click.Parameter, word: str) -> list[CompletionItem]:
        from dslint.cli.completion import complete_models

        return complete_models(word)

    meaning = "The model: its config.json, its folder, or a known name (llama-3-8b)."
    return click.option("--model", metavar="FILE|NAME", shell_complete=complete, help=meaning)(command)


def color_option(command: Command) -> Command:
    """Add `--color` to a command."""
    return click.option(
        "--color",
        type=click.Choice(["auto", "always", "never"]),
        default="auto",
        show_default=True,
        help="When to use colours. auto respects NO_COLOR and FORCE_COLOR.",
    )(command)


def wants_color(choice: str, out: TextIO) -> bool:
    """Whether to use colours: as chosen, else by NO_COLOR and FORCE_COLOR, else if `out` is a terminal."""
    if choice != "auto":
        return choice == "always"
    if os.environ.get("NO_COLOR"):
        return False
    if os.environ.get("FORCE_COLOR"):
        return True
    return out.isatty() and os.environ.get("TERM") != "dumb"


def terminal_width(least: int = 40, most: int = 120) -> int:
    """The columns to fill."""
    written = os.environ.get("COLUMNS", "")
    if written.isdecimal() and int(written) > 0:
        return max(least, min(int(written), most))
    try:  # as `shutil.get_terminal_size` does, which is slow to import
        columns = os.get_terminal_size(sys.__stdout__.fileno()).columns  # type: ignore[union-attr]
    except (AttributeError, ValueError, OSError):
        columns = 0
    return max(least, min(columns or 80, most))


def warn(sentence: str) -> None:
    """Print a message that is not part of a report to standard error."""
    from dslint.report.style import visible, wrap

    text = f"dslint: {visible(sentence)}"
    show_page("\n".join(wrap(text, terminal_width())) if sys.stderr.isatty() else text, color=False, err=True)


def show_page(text: str, *, color: bool, err: bool = False, paged: bool = False) -> None:
    """Print a page of text: whatever names and values are in it, it controls neither a terminal nor a CI runner.

    With `paged`, a text that is longer than the terminal opens in the user's pager.
    """
    from dslint.report.style import printable

    text = printable(text, color=color)
    if paged and sys.stdin.isatty() and sys.stdout.isatty() and 0 < os.get_terminal_size().lines <= text.count("\n"):
        os.environ.setdefault("LESS", "FRX")  # colours as colours, and the text stays on the screen afterwards
        click.echo_via_pager(text + "\n", color=color)
    else:
        click.echo(text, color=color, err=err)


def read_stdin() -> str:
    """The text on standard input; raises `dslint.source.read.ReadError`."""
    from dslint.source.read import MAX_BYTES, decode

    return decode(sys.stdin.buffer.read(MAX_BYTES + 1))
