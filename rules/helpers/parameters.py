"""What the optimizer and the schedule are built with: the parameters that are written, else the defaults of their type."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from dslint.config import UNKNOWN, Config
from dslint.config.validate import default_of
from dslint.diagnostics import Applicability
from dslint.facts import Release
from dslint.rule import FixPlan
from dslint.rules.helpers.fixes import Spelling, spelling, without
from dslint.schemas.typed import find_type, registry
from dslint.source.change import Rename
from dslint.source.tree import Mapping

OFFLOADED = ("cpu", "nvme")
"""Devices of `offload_optimizer` with which DeepSpeed builds optimizers for the CPU, whatever the ZeRO stage."""


def parameter(config: Config, section: str, name: str) -> Any:
    """What a type is built with for one of its parameters: the value written, else the type's default in this release.

    `UNKNOWN` where the type takes no such parameter, where the value is not usable, or where somebody else fills it in.

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
    if any(violation.meant == (section, "params", name) for violation in config.violations):
        return UNKNOWN
    params = config.node(key)
    if config.has(key) and not isinstance(params, Mapping) and config.quote(key) != "null":
        return UNKNOWN
    return default_of(spec, config.release)


def written(config: Config, name: str, section: str = "optimizer") -> Any:
    """What is written for a parameter; `UNKNOWN` where nothing usable is, or the type takes no such parameter."""
    return parameter(config, section, name) if config.has(f"{section}.params.{name}") else UNKNOWN


def number(value: Any) -> Any:
    """The value if it is a number, and `UNKNOWN` otherwise: booleans, lists and null are none."""
    return value if isinstance(value, int | float) and not isinstance(value, bool) else UNKNOWN


def in_release(entry: dict[str, Any], release: Release) -> bool:
    """Whether a release has the type that an entry of the key table is about."""
    until, since = entry.get("until"), entry.get("since")
    return not (until and Release.parse(until["release"]) < release) and not (since and release < Release.parse(since))


def implementation(config: Config) -> str | None:
    """The class that DeepSpeed builds for the optimizer's type, as the key table names it; None where that is open.

    For Adam it depends on `torch_adam`, on the offload of the optimizer (at any ZeRO stage) and on ZenFlow.
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
    wanted = "with optimizer offload" if device in OFFLOADED else "where the optimizer is not offloaded"
    if device in OFFLOADED and config.has("zero_optimization.zenflow") and config.quote("zero_optimization.zenflow") != "null":
        wanted = "with optimizer offload and zenflow"
    return next((name for name, when in classes.items() if when == wanted), None)


def runs_scheduler(config: Config) -> bool:
    """Whether the config has a schedule, of a type that DeepSpeed knows."""
    return config.has("scheduler.type") and find_type("scheduler", config.value("scheduler.type")) is not None


RATES = ("optimizer.params.lr", "optimizer.params.adam_lr", "optimizer.params.muon_lr")
"""Learning rates of optimizers, which a schedule may replace."""


def lr_is_replaced(config: Config) -> bool:
    """Whether the schedule sets the learning rate before the optimizer's own is ever used. An optimizer for the CPU is built with its own."""
    if "CPU" in (implementation(config) or ""):
        return False
    kind = config.value("scheduler.type") if config.has("scheduler.type") else None
    return kind in ("WarmupDecayLR", "LRRangeTest", "OneCycle") or (kind == "WarmupLR" and config.has("scheduler.params.warmup_max_lr"))


def meant_parameter(section: str, name: str, known: Iterable[str]) -> Spelling | None:
    """The parameter that a name is a misspelling of. One that other types have is none: it stands here for what it says."""
    if any(name in entry["params"] for entry in (registry(section) or {}).values()):
        return None
    return spelling(name, known)


def respelt_parameter(config: Config, section: str, name: str, word: str | None, kind: Applicability) -> FixPlan | None:
    """The right name for a parameter; where there is none, or it is written too, this one goes."""
    path = (section, "params", name)
    if word is None or config.has((section, "params", word)):
        return without(config, path, Applicability.UNSAFE)
    return FixPlan(f'rename to "{word}"', (Rename(path, word),), kind)
