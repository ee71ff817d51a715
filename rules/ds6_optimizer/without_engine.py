"""DS6: an engine that Accelerate does not make."""

from __future__ import annotations

from collections.abc import Iterator

from dslint.config import Config
from dslint.diagnostics import Effect, Phase
from dslint.facts import Integration
from dslint.rule import Finding, bad, good, rule
from dslint.rules.helpers.loaders import RAISED_BY_LOADER
from dslint.rules.helpers.prepare import PREPARE

_STAGE_2 = '{"train_micro_batch_size_per_gpu": 4, "gradient_accumulation_steps": 1, "zero_optimization": {"stage": 2}}'
_WHOLE = "from accelerate import Accelerator\naccelerator = Accelerator()\nmodel, optimizer, loader = accelerator.prepare(model, optimizer, loader)\n"
_PARTS = (
    "from accelerate import Accelerator\naccelerator = Accelerator()\nmodel = accelerator.prepare_model(model)\n"
    "optimizer = accelerator.prepare_optimizer(optimizer)\nfor batch in loader:\n    accelerator.backward(model(batch)[0])\n"
)


@rule(
    "DS657",
    effect=Effect.CRASH,
    phase=Phase.STEP,
    watches=("setup",),
    references=(
        "accelerate/accelerator.py, Accelerator.prepare_model and Accelerator.backward",
        "https://github.com/bytedance/UNO/issues/45",
    ),
    untried=RAISED_BY_LOADER,
    setup=True,
)
@bad(
    _STAGE_2,
    at="",
    program=_PARTS,
    integration="accelerate",
    message="train.py:3 calls prepare_model, and no call of prepare is seen: with DeepSpeed only prepare makes an engine, and backward in train.py:6 may raise AttributeError \"'NoneType' object has no attribute 'backward'\".",
)
@good(_STAGE_2, program=f"{_WHOLE}for batch in loader:\n    accelerator.backward(model(batch)[0])\n", integration="accelerate")
@good(_STAGE_2, program=_PARTS.replace("accelerator.backward(model(batch)[0])", "model(batch)"), integration="accelerate")
def parts_without_engine(config: Config) -> Iterator[Finding]:
    """A program prepares model and optimizer one by one, and DeepSpeed gets none of them.

    `Accelerator.prepare` with all objects calls `deepspeed.initialize`. `prepare_model`, `prepare_optimizer` and `prepare_scheduler` each wrap
    one object as for DDP, so there is no engine, and the first `Accelerator.backward` raises AttributeError.

    Pass model, optimizer, data loader and schedule to one call of `prepare`.
    """
    program = config.setup.program if config.setup else None
    if program is None or config.facts.integration is not Integration.ACCELERATE or any(program.events.of(PREPARE)):
        return
    parts = next(iter(program.events.of(rf"{PREPARE}_model")), None)
    backward = next(iter(program.events.of(PREPARE.replace("prepare", "backward"))), None)
    if parts is None or backward is None or parts.tells_setups_apart or backward.tells_setups_apart:
        return
    yield Finding(
        "",
        f"{parts.at.where} calls prepare_model, and no call of prepare is seen: with DeepSpeed only prepare makes an engine, and backward in "
        f"{backward.at.where} may raise AttributeError \"'NoneType' object has no attribute 'backward'\".",
        help="Pass model, optimizer, data loader and schedule to one call of accelerator.prepare.",
        elsewhere=parts.at.related(""),
        certain=False,
    )
