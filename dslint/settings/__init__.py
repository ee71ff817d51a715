"""The active settings for a file, and their sources.

They come from the settings file nearest to the file, then from `DSLINT_*` variables, then from the command line; later sources win.
A settings file is `dslint.toml`, or `pyproject.toml` with a table `[tool.dslint]`; only the nearest one is read.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from functools import cached_property
from typing import TYPE_CHECKING, Any

from dslint.config.context import Context
from dslint.diagnostics import Diagnostic, Severity
from dslint.facts import NEWEST, OLDEST, Facts, Integration, Release, Upgrade
from dslint.facts.find_release import NOT_ASKED, NOTHING, FoundRelease, ReleaseSource, find, wsl_kernel
from dslint.frameworks.loader import LOADERS
from dslint.record import Record
from dslint.registry.rules import all_rules, plug_in, plugged
from dslint.registry.selection import Selection, choose, is_code_or_part, is_name_of, means
from dslint.rule import RuleInfo
from dslint.settings.sources import (
    Layer,
    SettingsError,
    from_environment,
    from_options,
    named,
    nearest,
    releases_in,
    with_deepspeed,
)
from dslint.settings.table import EXTENDING, SETTINGS, TABLES

if TYPE_CHECKING:
    from dslint.config.policy import Policy
    from dslint.facts.calibration import Calibration
    from dslint.facts.checkpoint import CheckpointFacts
    from dslint.facts.model_config import ModelConfig

__all__ = ["Finder", "InForce", "Layer", "Settings", "SettingsError", "from_environment", "from_options"]


class InForce(Record):
    """The value of a setting, and its sources; none for the default."""

    value: Any
    origins: tuple[str, ...]


class Settings:
    """The settings for a file (or for the run): layers, of which later ones win."""

    def __init__(self, layers: Iterable[Layer] = (), folder: str | None = None) -> None:
        self.layers = tuple(map(with_deepspeed, layers))
        self._folder = folder
        """Where to search for the DeepSpeed release; None for no search."""
        self._shared: dict[str, Any] = {}
        """What follows from the layers, and so is the same for all folders that have them."""

    def below(self, folder: str | None) -> Settings:
        """The same settings for another folder, in which the project may name another release. Files that they name are read once."""
        settings = Settings(self.layers, folder)
        settings._shared = self._shared
        return settings

    def _once(self, name: str, make: Callable[[], Any]) -> Any:
        if name not in self._shared:
            self._shared[name] = make()
        return self._shared[name]

    def __getitem__(self, name: str) -> Any:
        """The value of a setting."""
        return self.in_force(name).value

    def in_force(self, name: str) -> InForce:
        """The value of a setting, and its sources."""
        saying = [layer for layer in self.layers if name in layer.values]
        origins = tuple(layer.origin(name) for layer in saying)
        if name == "deepspeed" and not saying:
            return InForce(self._found.release, (self._found.evidence,) if self._found.source is not ReleaseSource.ASSUMED else ())
        if not saying:
            return InForce(SETTINGS[name].default, ())
        if name in EXTENDING:
            return InForce(tuple(word for layer in saying for word in layer.values[name]), origins)
        if name in TABLES:
            return InForce({key: value for layer in saying for key, value in layer.values[name].items()}, origins)
        return InForce(saying[-1].values[name], origins[-1:])

    @cached_property
    def facts(self) -> Facts:
        """The facts as given, with the detected release if none is given; raises `UserError` for a file that cannot be read."""
        release = self._release
        given = self["deepspeed"]
        loader = (self["integration"] or "").partition("==")[0]
        return Facts(
            world_size=self["world-size"],
            integration=Integration(loader) if loader else None,
            loader_release=self._pins.get(loader),
            deepspeed=release.nearest if release.is_outside else release,
            upgrade_from=given.start if isinstance(given, Upgrade) else None,
            nodes=self["nodes"],
            tensor_parallel=self["tensor-parallel"],
            pipeline_parallel=self["pipeline-parallel"],
            sequence_parallel=self["sequence-parallel"],
            gpu=self["gpu"],
            gpu_memory=self["gpu-memory"] or (self["gpu"] and self["gpu"].memory),
            host_memory=self["host-memory"],
            model=self._once("model", self._model),
        )

    @cached_property
    def _pins(self) -> dict[str, Release]:
        """The releases of packages that are given, also with the loader; of several the one of the last source."""
        found: dict[str, Release] = {}
        loading = next((layer for layer in reversed(self.layers) if "integration" in layer.values), None)
        for layer in self.layers:
            found |= releases_in(layer, with_loader=layer is loading)
        return found

    @property
    def _release(self) -> Release:
        """The release that will run the config, as given or as detected."""
        given: Release | Upgrade = self["deepspeed"]
        return given.to if isinstance(given, Upgrade) else given

    @cached_property
    def context(self) -> Context:
        """The facts, the policy, the checkpoint and the calibration; raises `UserError` for a file that cannot be read."""
        given = next((layer.origin("deepspeed") for layer in reversed(self.layers) if "deepspeed" in layer.values), None)
        release = self._release
        evidence: tuple[tuple[str, str], ...] = () if given else (("deepspeed", self._found.evidence),)
        if release.is_outside:
            why = f"{given} is {release}" if given else self._found.evidence
            evidence = (("deepspeed", f"{why}; dslint knows {OLDEST} to {NEWEST}, so no finding is certain"),)
        return Context(
            self.facts,
            evidence,
            policy=self._once("policy", self._policy),
            checkpoint=self._once("checkpoint", self._checkpoint),
            calibration=self._once("calibration", self._calibration),
            environment=self["env"],
            project=self._folder,
            pins={name: release for name, release in self._pins.items() if name != "deepspeed"},
            kernel=wsl_kernel() if self._folder is not None else None,
            release_source=self._found.source if not given else ReleaseSource.STATED,
            oldest=self._found.oldest if not given else None,
            outside=release if release.is_outside else None,
            own_copy=self._found.own_copy and not given,
            filler=LOADERS,
        ).with_loader_release()

    @property
    def named_files(self) -> Iterator[str]:
        """The files and folders (absolute) of the model, the policy, the checkpoint and the calibration."""
        for name in ("model", "policy", "checkpoint", "calibration"):
            yield from (os.path.abspath(os.path.join(base, value)) for base, value in self.based(name) if isinstance(value, str))

    def _model(self) -> ModelConfig | None:
        if self["model"] is None:
            return None
        if not isinstance(self["model"], str):
            return self["model"]  # type: ignore[no-any-return] # a program describes it
        from dslint.facts.model_config import load_model

        return load_model(self._path("model"), self["model"])

    def _policy(self) -> Policy | None:
        if self["policy"] is None:
            return None
        from dslint.config.policy import load_policy

        return load_policy(self._path("policy"))

    def _checkpoint(self) -> CheckpointFacts | None:
        if self["checkpoint"] is None:
            return None
        from dslint.facts.checkpoint import describe

        return describe(self._path("checkpoint"))

    def _calibration(self) -> Calibration | None:
        gpu = self["gpu"] and self["gpu"].name
        if self["calibration"] is None and gpu is None:
            return None
        from dslint.facts.calibration import find_calibration, shipped_calibration

        return shipped_calibration(gpu) if self["calibration"] is None else find_calibration(self._path("calibration"), gpu)

    def _path(self, name: str) -> str:
        """The path that a setting names, relative to the working directory if it is below."""
        (base, value), *_ = self.based(name)
        path = os.path.join(base, value)
        return os.path.relpath(path) if path.startswith(os.path.join(os.getcwd(), "")) else path

    @cached_property
    def _found(self) -> FoundRelease:
        """The release that the project names."""
        return NOT_ASKED if self._folder is None else find(self._folder) or NOTHING

    @cached_property
    def rules(self) -> tuple[RuleInfo, ...]:
        """The rules to run, before `per-file-ignores`."""
        found: tuple[RuleInfo, ...] = self._once("rules", self._rules)
        return found

    def _rules(self) -> tuple[RuleInfo, ...]:
        says = (layer.values for layer in self.layers)
        selections = (
            Selection(said.get("select"), said.get("ignore"), said.get("extend-select", ()), said.get("extend-ignore", ())) for said in says
        )
        return choose(self._offered, selections)

    @property
    def _offered(self) -> Iterable[RuleInfo]:
        """The rules to choose from; pedantic rules only if enabled or named."""
        others = {rule.code for rule in plugged()} - {rule.code for name in self["plugins"] for rule in plug_in(name)}
        for rule in all_rules():
            if (not rule.pedantic or self.is_pedantic_about(rule)) and rule.code not in others:
                yield rule

    def is_pedantic_about(self, rule: RuleInfo | Diagnostic) -> bool:
        """Whether what is pedantic of a rule, or of the rule of a diagnostic, is reported: if that is enabled, or the rule is named."""
        named = (word for layer in self.layers for name in ("select", "extend-select") for word in layer.values.get(name, ()))
        return self["pedantic"] or any(is_name_of(word, rule) for word in named)

    @cached_property
    def severity(self) -> dict[str, Severity]:
        """The severities that the settings choose, by code; the most specific word wins."""
        found: dict[str, Severity] = self._once("severity", self._severity)
        return found

    def _severity(self) -> dict[str, Severity]:
        table = sorted(self["severity"].items(), key=lambda pair: len(pair[0]) if is_code_or_part(pair[0]) else 9)
        return {rule.code: Severity(chosen) for word, chosen in table for rule in all_rules() if means(word, rule)}

    def based(self, name: str) -> list[tuple[str, Any]]:
        """The values of a setting with paths or patterns, each with the directory that they are relative to."""
        saying = [(layer.base, layer.values[name]) for layer in self.layers if name in layer.values]
        return saying if name in EXTENDING | TABLES else saying[-1:]


class Finder:
    """Finds the settings for files. Each settings file is read once.

    Args:
        above: the layers above the settings files: environment and command line.
        only: the settings file to use for all files; "" for none.
    """

    def __init__(self, above: Iterable[Layer] = (), *, only: str | None = None) -> None:
        self._above = tuple(above)
        self._only_path = only
        self._settings: dict[str, Settings] = {}
        self._only = None if only is None else Settings((*([named(only)] if only else []), *self._above))

    def again(self) -> Finder:
        """A new finder with the same sources and an empty cache."""
        return Finder(self._above, only=self._only_path)

    def given(self, source: str, **values: Any) -> Finder:
        """A finder with values that override those of all other sources."""
        return Finder((*self._above, Layer(source, "", values)), only=self._only_path)

    @property
    def found(self) -> Iterable[Settings]:
        """The settings that were found so far."""
        return self._settings.values()

    def for_file(self, path: str) -> Settings:
        """The settings for a file.

        Raises:
            SettingsError: a setting is invalid.
        """
        return self.for_directory(os.path.dirname(os.path.abspath(path)))

    def for_directory(self, folder: str) -> Settings:
        """The settings for the files in a directory (absolute); raises `SettingsError`."""
        if folder not in self._settings:
            self._settings[folder] = self._find(folder)
        return self._settings[folder]

    def _find(self, folder: str) -> Settings:
        if self._only is not None:
            return self._only.below(None if self._only_path == "" else folder)
        layer, parent = nearest(folder), os.path.dirname(folder)
        if layer is not None or parent == folder:
            return Settings((*([layer] if layer else []), *self._above), folder)
        return self.for_directory(parent).below(folder)
