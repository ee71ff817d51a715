"""What is still wrong with a config whose every key and value is well formed: a module per chapter, a function per rule.

To add a rule, find its chapter by the first digit of its code, write the function there, and run the tests: nothing has to be registered.
`CONTRIBUTING.md` shows one being written.
"""

from __future__ import annotations

from functools import cache

from dslint.rule import Rule
from dslint.rules import (
    accelerate_file,
    activation,
    aio,
    auto,
    batch,
    buckets,
    checkpoints,
    communication,
    compilation,
    cross_file,
    cycles,
    data,
    datatypes,
    experts,
    files,
    host,
    hugging_face,
    keys,
    launches,
    lifetimes,
    lightning,
    loss_scale,
    master_weights,
    memory,
    monitors,
    nvme,
    offload,
    optimizer,
    optimizer_builds,
    optimizer_kinds,
    optimizer_values,
    policy,
    precision,
    ranks,
    resume,
    scheduler,
    sections,
    setups,
    tuning,
    unheard,
    upgrade,
    values,
    zenflow,
    zero,
    zero_layouts,
    zero_settings,
)

CHAPTERS = (
    files,
    keys,
    values,
    lifetimes,
    upgrade,
    policy,
    batch,
    precision,
    loss_scale,
    datatypes,
    master_weights,
    zero,
    zero_settings,
    zero_layouts,
    communication,
    buckets,
    offload,
    nvme,
    aio,
    zenflow,
    host,
    optimizer,
    optimizer_kinds,
    optimizer_builds,
    optimizer_values,
    scheduler,
    cycles,
    activation,
    memory,
    sections,
    checkpoints,
    resume,
    monitors,
    data,
    ranks,
    experts,
    compilation,
    tuning,
    auto,
    cross_file,
    unheard,
    accelerate_file,
    setups,
    launches,
    hugging_face,
    lightning,
)
"""The modules that hold rules, in the order of their codes."""


_plugged: dict[str, tuple[Rule, ...]] = {}
"""The rules of plug-ins, by the plug-in's name."""


def plug_in(name: str) -> tuple[Rule, ...]:
    """Load a plug-in's rules, once; from then on they are among all rules."""
    if name not in _plugged:
        from dslint.plugins import load  # most have none

        _plugged[name] = load(name)
        all_rules.cache_clear()
    return _plugged[name]


@cache
def all_rules() -> tuple[Rule, ...]:
    """Every rule, by code, those of plug-ins last."""
    rules = (value for chapter in CHAPTERS for value in vars(chapter).values() if isinstance(value, Rule))
    return (*sorted(rules, key=lambda rule: rule.code), *plugged())


def plugged() -> tuple[Rule, ...]:
    """The rules of the plug-ins that were loaded."""
    return tuple(rule for of_plug_in in _plugged.values() for rule in of_plug_in)


@cache
def default_rules() -> tuple[Rule, ...]:
    """Dslint's own rules, but for those that experts disagree about: what is asked unless something else is wanted."""
    own = {rule.code for rule in plugged()}
    return tuple(rule for rule in all_rules() if not rule.pedantic and rule.code not in own)
