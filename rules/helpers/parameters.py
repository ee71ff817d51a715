"""The values that DeepSpeed builds the optimizer and the schedule with: the written parameters, else the defaults of the type."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from dslint.config import UNKNOWN, Config
from dslint.config.sections import default_of
from dslint.diagnostics import Applicability
from dslint.facts import Release
from dslint.rule import FixPlan
from dslint.rules.helpers.fixes import Spelling, spelling, without
from dslint.schemas.typed import find_type, registry
from dslint.source.change import Rename
from dslint.source.tree import Mapping

OFFLOADED = ("cpu", "nvme")
"""Devices of `offload_optimizer` for which DeepSpeed builds CPU optimizers, at every ZeRO stage."""


def parameter(config: Config, section: str, name: str) -> Any:
    """The value of one parameter: the written value, else the default of the type in this release.

    `UNKNOWN` if the type has no such parameter, if the value is not usable, or if a loader fills it in.

    Args:
        config: the config.
        section: "optimizer" or "scheduler".
        name: the parameter.
    """
    entry = find_type(section, config.value(f"{section}.type"))
    spec = entry["params"].get(name) if entry else None
    if spec is None or config.document.problems:
        return UNKNOWN
    key = f"{section}.params"
    if config.has(f"{key}.{name}"):
        return config.value(f"{key}.{name}")
    if config.is_meant((section, "params", name)) or config.may_be_written(f"{key}.{name}"):
        return UNKNOWN
    params = config.node(key)
    if config.has(key) and not isinstance(params, Mapping) and not config.is_null(key):
        return UNKNOWN
    return default_of(spec, config.release)


def written(config: Config, name: str, section: str = "optimizer") -> Any:
    """The written value of a parameter; `UNKNOWN` if it is absent or not usable, or if the type has no such parameter."""
    return parameter(config, section, name) if config.has(f"{section}.params.{name}") else UNKNOWN


def number(value: Any) -> Any:
    """The value if it is a number, else `UNKNOWN`. A boolean does not count as a number."""
    return value if isinstance(value, int | float) and not isinstance(value, bool) else UNKNOWN


def in_release(entry: dict[str, Any], release: Release) -> bool:
    """Whether a release has the type that an entry of the key table describes."""
    until, since = entry.get("until"), entry.get("since")
    return not (until and Release.parse(until["release"]) < release) and not (since and release < Release.parse(since))


def type_in_release(config: Config, section: str) -> bool:
    """Whether the type of a section, "optimizer" or "scheduler", is known and the config's release has it."""
    entry = find_type(section, config.value(f"{section}.type"))
    return entry is not None and in_release(entry, config.release)


def implementation(config: Config) -> str | None:
    """The class that DeepSpeed builds for the optimizer's type, as the key table names it; None if the config does not decide it.

    For Adam it depends on `torch_adam`, on optimizer offload (at every ZeRO stage) and on ZenFlow.
    """
    entry = find_type("optimizer", config.value("optimizer.type"))
    if entry is None:
        return None
    classes = entry.get("classes", {})
    if len(classes) < 2:
        return next(iter(classes), None)
    torch_adam = parameter(config, "optimizer", "torch_adam") if "torch_adam" in entry["params"] else False
    if torch_adam is True:
        decoupled = "torch.optim.Adam" not in classes or parameter(config, "optimizer", "adam_w_mode")
        return None if decoupled is UNKNOWN else "torch.optim.AdamW" if decoupled else "torch.optim.Adam"
    if torch_adam is not False:
        return None
    device = config.value("zero_optimization.offload_optimizer.device")
    if device is UNKNOWN:
        return None
    condition = "with optimizer offload" if device in OFFLOADED else "without optimizer offload"
    if device in OFFLOADED and config.has("zero_optimization.zenflow") and not config.is_null("zero_optimization.zenflow"):
        condition = "with optimizer offload and zenflow"
    return next((name for name, when in classes.items() if when == condition), None)


def is_passed_by_program(config: Config) -> bool:
    """Whether the program passes DeepSpeed an optimizer, or may do so, in place of the section."""
    return "optimizer" in config.replaced or config.may_be_replaced("optimizer")


def runs_scheduler(config: Config) -> bool:
    """Whether the config has a schedule of a type that DeepSpeed knows."""
    return config.has("scheduler.type") and find_type("scheduler", config.value("scheduler.type")) is not None


RATES = ("optimizer.params.lr", "optimizer.params.adam_lr", "optimizer.params.muon_lr")
"""Learning rates of optimizers that a schedule can replace."""


def lr_is_replaced(config: Config) -> bool:
    """Whether the schedule sets the learning rate before the optimizer's own is used. A CPU optimizer is always built with its own."""
    if "CPU" in (implementation(config) or ""):
        return False
    schedule = config.value("scheduler.type") if config.has("scheduler.type") else None
    return schedule in ("WarmupDecayLR", "LRRangeTest", "OneCycle") or (
        schedule == "WarmupLR" and config.has("scheduler.params.warmup_max_lr")
    )


def meant_parameter(section: str, name: str, known: Iterable[str]) -> Spelling | None:
    """The parameter that a name misspells. A parameter of another type is not a misspelling: the writer means that parameter."""
    if any(name in entry["params"] for entry in (registry(section) or {}).values()):
        return None
    return spelling(name, known)


def respelt_parameter(config: Config, section: str, name: str, word: str | None, kind: Applicability) -> FixPlan | None:
    """Rename a misspelt parameter to `word`; remove it if there is no such word, or if `word` is written too."""
    path = (section, "params", name)
    if word is None or config.has((section, "params", word)):
        return without(config, path, Applicability.UNSAFE)
    return FixPlan(f'rename to "{word}"', (Rename(path, word),), kind)
