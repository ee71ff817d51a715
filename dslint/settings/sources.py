"""Where settings come from: a file, the environment, the command line."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import Any

from dslint.errors import TRACEBACK, UserError
from dslint.facts import Release
from dslint.facts.release import ANY_PATCH
from dslint.record import Record
from dslint.settings.kinds import Wrong, show
from dslint.settings.table import SETTINGS
from dslint.source import toml
from dslint.source.read import ReadError, read_bytes
from dslint.source.similar import similar

FILES = ("dslint.toml", "pyproject.toml")
"""The names of settings files; the first that exists is used."""


class SettingsError(UserError):
    """An unknown setting or an invalid value. The text is a sentence for the user, with the place."""


class Layer(Record):
    """One source of settings: its name, the directory that its patterns and paths are relative to, and its values by setting.

    `text` and `path` are those of the settings file, if the source is one.
    """

    source: str
    base: str
    values: Mapping[str, Any]
    path: str | None = None
    text: str = ""

    def origin(self, name: str) -> str:
        """The source of the value of a setting, as shown to users."""
        if name == "deepspeed" and name in self.values.get("package", {}):
            name = "package"
        if self.source == ENVIRONMENT:
            return SETTINGS[name].variable
        return f"--{name}" if self.source == COMMAND_LINE else self.source


ENVIRONMENT = "the environment"
COMMAND_LINE = "the command line"


def with_deepspeed(layer: Layer) -> Layer:
    """A source in which DeepSpeed's release is given as that of a package, with this release as its `deepspeed`.

    Raises:
        SettingsError: it gives two releases.
    """
    packages = layer.values.get("package") or {}
    if "deepspeed" not in packages:
        return layer
    given = layer.values.get("deepspeed")
    if given is not None and given != packages["deepspeed"]:
        raise SettingsError(
            f"{layer.source}: deepspeed is {given}, and package names deepspeed=={packages['deepspeed']}; give one of them."
        )
    return layer._replace(values={**layer.values, "deepspeed": packages["deepspeed"]})


def releases_in(layer: Layer, *, with_loader: bool) -> dict[str, Release]:
    """The releases of packages that a source gives, with that of the loader (`integration`) if the source decides on it.

    Raises:
        SettingsError: it gives two releases of the loader.
    """
    packages: dict[str, Release] = dict(layer.values.get("package") or {})
    loader, _, text = (layer.values.get("integration") or "").partition("==")
    if not text or not with_loader:
        return packages
    release = Release.parse(text)
    named = packages.get(loader, release)
    if named != release and (release.patch != ANY_PATCH or named[:2] != release[:2]):
        raise SettingsError(f"{layer.source}: integration is {loader}=={text}, and package names {loader}=={named}; give one of them.")
    return {**packages, loader: named}


def nearest(folder: str) -> Layer | None:
    """The settings file in a directory, if there is one; raises `SettingsError`."""
    for name in FILES:
        path = os.path.join(folder, name)
        if os.path.isfile(path):
            layer = read_file(path)
            if layer is not None:
                return layer
    return None


def named(path: str) -> Layer:
    """The settings file given by `--config`; raises `SettingsError`."""
    layer = read_file(path, pipe=True)
    if layer is None:
        raise SettingsError(f"{_shown(path)} has no table [tool.dslint]")
    return layer


def read_file(path: str, *, pipe: bool = False) -> Layer | None:
    """Read a settings file; None for a `pyproject.toml` without a table `[tool.dslint]`. With `pipe`, it may be a pipe.

    Raises:
        SettingsError: the file cannot be read, is not TOML, or contains an unknown setting or an invalid value.
    """
    shown = _shown(path)
    try:
        data = read_bytes(path, pipes=pipe)
    except ReadError as error:
        raise SettingsError(f"{shown}: {error}") from None
    whole = os.path.basename(path) != "pyproject.toml"
    if not whole and not _may_have_table(data):
        return None  # the common case, without parsing TOML
    try:
        text = data.decode("utf-8")
        found = toml.loads(text)
    except ValueError as error:
        raise SettingsError(f"{shown} is not valid TOML: {error}") from None
    tool = found.get("tool", {})
    table = found if whole else tool.get("dslint") if isinstance(tool, dict) else None
    if table is None:
        return None
    if not isinstance(table, dict):
        raise SettingsError(f"{shown}: tool.dslint must be a table")
    return Layer(shown, os.path.dirname(os.path.abspath(path)), _values(table, shown), shown, text)


def _may_have_table(data: bytes) -> bool:
    """Whether a `pyproject.toml` can hold the table `tool.dslint`: a line has both words, or there is a table `tool`."""
    return any(b"tool" in line for line in data.splitlines() if b"dslint" in line) or b"[tool]" in data.replace(b" ", b"")


def _shown(path: str) -> str:
    """The path of a settings file as shown to users: relative to the working directory if it is below."""
    here = os.path.join(os.getcwd(), "")
    absolute = os.path.abspath(path)
    return absolute.removeprefix(here).replace(os.sep, "/")


def _values(table: Mapping[str, Any], source: str) -> dict[str, Any]:
    for name in table:
        if name not in SETTINGS:
            raise SettingsError(f'{source}: unknown setting "{name}".{_suggestion(name, SETTINGS)} `dslint config` lists all settings.')
    in_order = sorted(table.items(), key=lambda item: item[0] != "plugins")  # other settings may name their rules
    return {name: _read(f'{source}: "{name}"', SETTINGS[name].kind.from_file, value) for name, value in in_order}


def _read(place: str, read: Any, value: Any) -> Any:
    try:
        return read(value)
    except Wrong as wrong:
        raise SettingsError(f"{place}: {show(value)} {wrong}.".replace("..", ".")) from None


def from_environment(environment: Mapping[str, str]) -> Layer:
    """The settings in the `DSLINT_*` variables. Empty variables are ignored.

    Raises:
        SettingsError: a variable belongs to no setting, or its value is invalid.
    """
    variables = {setting.variable: setting for setting in SETTINGS.values() if setting.name != "ignores"}
    values: dict[str, Any] = {}
    for name, word in sorted(environment.items(), key=lambda item: item[0] != "DSLINT_PLUGINS"):
        if not name.startswith("DSLINT_") or not word or name == TRACEBACK:
            continue
        if name not in variables:
            raise SettingsError(
                f"the environment: unknown variable {name}.{_suggestion(name, variables)} `dslint config` lists all settings."
            )
        setting = variables[name]
        values[setting.name] = _read(name, setting.kind.from_word, word)
    return Layer(ENVIRONMENT, os.getcwd(), values)


def from_options(options: Mapping[str, Any]) -> Layer:
    """The settings given as options on the command line."""
    return Layer(COMMAND_LINE, os.getcwd(), options)


def _suggestion(name: str, names: Iterable[str]) -> str:
    close = similar(name.replace("_", "-") if name.islower() else name, names)
    return f' Did you mean "{close[0]}"?' if close else ""
