"""DS6: a schedule of the config that an old Lightning steps once per epoch."""

from __future__ import annotations

from collections.abc import Iterator

from dslint.config import Config
from dslint.diagnostics import Effect
from dslint.facts import Integration, Release
from dslint.rule import Finding, bad, good, rule
from dslint.rules.helpers.examples import MINIMAL
from dslint.rules.helpers.releases import is_between

_FIRST, _LAST = Release(1, 5, 0), Release(1, 5, 10)
"""Before, the engine still stepped the schedule itself; 1.6.0 steps it after each step."""

_PACKAGES = ("pytorch-lightning", "pytorch_lightning")
"""How requirements spell the package of these releases."""

_ADAM = '"optimizer": {"type": "Adam", "params": {"lr": 1e-4}}'
_WARMUP = '"scheduler": {"type": "WarmupLR", "params": {"warmup_num_steps": 500}}'
_BOTH = f"{{{MINIMAL}, {_ADAM}, {_WARMUP}}}"


@rule(
    "DS659",
    effect=Effect.SILENT,
    watches=("scheduler.type",),
    references=(
        "pytorch_lightning/plugins/training_type/deepspeed.py, DeepSpeedPlugin._initialize_deepspeed_train of 1.5.10",
        "https://github.com/Lightning-AI/pytorch-lightning/pull/11788",
    ),
)
@bad(
    _BOTH,
    at="scheduler.type",
    integration="lightning",
    loader_release=Release(1, 5, 10),
    message="Lightning 1.5.10 steps the schedule of a config that has an optimizer once per epoch, not once per step: the learning rate stays the same within an epoch, and numbers of steps such as warmup_num_steps count epochs.",
)
@bad(
    _BOTH,
    at="scheduler.type",
    integration="lightning",
    pins={"pytorch-lightning": Release(1, 5, 0)},
    message="Lightning 1.5.0 steps the schedule of a config that has an optimizer once per epoch, not once per step: the learning rate stays the same within an epoch, and numbers of steps such as warmup_num_steps count epochs.",
)
@good(_BOTH, integration="lightning", loader_release=Release(1, 6, 0))
@good(_BOTH, integration="lightning", loader_release=Release(1, 4, 9))
@good(_BOTH, integration="lightning")
@good(_BOTH, integration="deepspeed", pins={"pytorch-lightning": Release(1, 5, 0)})
@good(f"{{{MINIMAL}, {_WARMUP}}}", integration="lightning", loader_release=Release(1, 5, 10))
@good(f"{{{MINIMAL}, {_ADAM}}}", integration="lightning", loader_release=Release(1, 5, 10))
def schedule_stepped_per_epoch(config: Config) -> Iterator[Finding]:
    """Lightning 1.5 steps the schedule of the config once per epoch instead of once per step.

    Where the config has an `optimizer`, Lightning 1.5 does not call `configure_optimizers`. It takes the schedule that DeepSpeed makes of
    the section `scheduler` away from the engine and steps it itself, at the end of each epoch: the learning rate does not change within an
    epoch, and `warmup_num_steps` counts epochs. Lightning 1.6 steps it after each step; before 1.5 the engine still did so itself.

    dslint reports it if the release of Lightning is pinned or given: `--integration lightning==1.5.10`.

    Use Lightning 1.6 or later, or define optimizer and schedule in `configure_optimizers` with `"interval": "step"`, and remove both sections.
    """
    if config.facts.integration is not Integration.LIGHTNING or not config.has("scheduler.type") or not config.has("optimizer"):
        return
    pinned = (config.context.pinned(package) for package in _PACKAGES)
    release = config.facts.loader_release or next((one for one in pinned if one is not None), None)
    if release is None or not is_between(release, _FIRST, _LAST):
        return
    yield Finding(
        "scheduler.type",
        f"Lightning {release} steps the schedule of a config that has an optimizer once per epoch, not once per step: the learning rate stays the "
        "same within an epoch, and numbers of steps such as warmup_num_steps count epochs.",
        help='Use Lightning 1.6.0 or later, or remove optimizer and scheduler, and return both from configure_optimizers with "interval": "step".',
    )
