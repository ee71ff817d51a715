"""DS9: arguments of Accelerate's `DummyOptim` and `DummyScheduler` that do not reach DeepSpeed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from dslint.config import UNKNOWN, Config
from dslint.diagnostics import Effect
from dslint.facts import Integration
from dslint.job.events import Event
from dslint.rule import Finding, bad, good, rule

_PROGRAM = (
    "from accelerate import Accelerator\nfrom accelerate.utils import DummyOptim, DummyScheduler\naccelerator = Accelerator()\n"
    "opt = DummyOptim(model.parameters(), %s)\nmodel, opt = accelerator.prepare(model, opt)\n"
)
_CONFIG = (
    '{"train_micro_batch_size_per_gpu": 4, "gradient_accumulation_steps": 1, "optimizer": {"type": "AdamW", "params": {%s}}, '
    '"zero_optimization": {"stage": 2}}'
)
_ARGUMENTS: dict[str, tuple[str, dict[str, int | None]]] = {
    "DummyOptim": ("optimizer", {"lr": 1, "weight_decay": 2, "betas": None, "eps": None}),
    "DummyScheduler": ("scheduler", {"warmup_num_steps": 2}),
}
"""The section that a class stands for, and its arguments that are keys of the section's `params`, with their positions. Accelerate divides
`total_num_steps` by the ranks."""

_ADAM = {"lr": 0.001, "weight_decay": 0.0, "betas": [0.9, 0.999], "eps": 1e-8}
"""What DeepSpeed's Adam uses where the config has no value. Source: deepspeed/ops/adam/fused_adam.py and cpu_adam.py."""


@rule(
    "DS995",
    effect=Effect.IGNORED,
    watches=("setup",),
    references=(
        "accelerate/accelerator.py, Accelerator._prepare_deepspeed",
        "accelerate/utils/deepspeed.py, DummyOptim and DummyScheduler",
    ),
    setup=True,
)
@bad(
    _CONFIG % '"lr": 1e-5',
    at="optimizer",
    program=_PROGRAM % "lr=1e-5, betas=(0.9, 0.95)",
    integration="accelerate",
    message="The DummyOptim of train.py:4 has betas (0.9, 0.95), but Accelerate does not pass it to DeepSpeed, which uses the default, [0.9, 0.999].",
)
@bad(
    _CONFIG % '"lr": 1e-5, "weight_decay": "auto"',
    at="optimizer.params.lr",
    program=_PROGRAM % "3e-4, weight_decay=0.1",
    integration="accelerate",
    message="The DummyOptim of train.py:4 has lr 3e-4, but Accelerate does not pass it to DeepSpeed, which uses optimizer.params.lr, 1e-5.",
)
@good(_CONFIG % '"lr": "auto", "weight_decay": "auto"', program=_PROGRAM % "lr=3e-4, weight_decay=0.1", integration="accelerate")
@good(_CONFIG % '"lr": 3e-4, "betas": [0.9, 0.95]', program=_PROGRAM % "lr=3e-4, betas=(0.9, 0.95)", integration="accelerate")
@good(_CONFIG % '"lr": 3e-4', program=_PROGRAM % "lr=float(rate), eps=1e-8", integration="accelerate")
def stand_in_not_passed_on(config: Config) -> Iterator[Finding]:
    """A program gives `DummyOptim` or `DummyScheduler` a value that Accelerate does not pass to DeepSpeed.

    The section `optimizer` of the config makes the optimizer. Accelerate fills only the `lr` and `weight_decay` of its `params` from the
    `DummyOptim`, and only where they are "auto". It never reads `betas`, `eps` and other arguments. From a `DummyScheduler` it fills only
    keys that are "auto", too.

    Write the value in the config, or "auto" where Accelerate has a value for it.
    """
    program = config.setup.program if config.setup else None
    if program is None or config.facts.integration is not Integration.ACCELERATE:
        return
    for kind, (section, _) in _ARGUMENTS.items():
        made = [one for one in program.events.all if one.name.startswith("accelerate.") and one.name.endswith(f".{kind}")]
        written = isinstance(config.value(f"{section}.type"), str) and not any(section in path for path in program.sets)
        if len(made) == 1 and written and made[0].complete and made[0].certain and not made[0].tells_setups_apart:
            yield from _ignored(config, made[0], kind)


def _ignored(config: Config, made: Event, kind: str) -> Iterator[Finding]:
    section, positions = _ARGUMENTS[kind]
    for name, index in positions.items():
        key = f"{section}.params.{name}"
        given, is_written = made.argument(name, index), config.has(key)
        if given is None or config.is_auto(key) or _plain(given.value) is None:
            continue
        used = _plain(config.value(key)) if is_written else _default(config, name)
        if used is None or used == _plain(given.value):
            continue
        fills = name not in ("betas", "eps")
        yield Finding(
            key if is_written else section,
            f"The {kind} of {made.at.where} has {name} {given.raw}, but Accelerate does not pass it to DeepSpeed, which uses "
            f"{f'{key}, {config.quote(key)}' if is_written else f'the default, {used}'}.",
            help=f'Set `{key}` to "auto", or to the value of the program.' if fills else f"Set `{key}` to {_plain(given.value)}.",
            related=(made.at.related("made here"),),
        )


def _default(config: Config, name: str) -> Any:
    return _ADAM.get(name) if str(config.value("optimizer.type")).lower() in ("adam", "adamw") else None


def _plain(value: Any) -> Any:
    """A number or a list of numbers; None for everything else."""
    if value is UNKNOWN or isinstance(value, bool):
        return None
    if isinstance(value, int | float):
        return value
    is_listed = isinstance(value, list | tuple) and all(isinstance(one, int | float) for one in value)
    return list(value) if is_listed else None
