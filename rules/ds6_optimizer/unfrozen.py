"""DS6: weights that a program unfreezes after DeepSpeed has made its optimizer."""

from __future__ import annotations

import re
from collections.abc import Iterator

from dslint.config import Config
from dslint.diagnostics import Effect
from dslint.facts import Integration
from dslint.job.events import ENGINE, FROZEN, UNFROZEN, Event
from dslint.rule import Finding, bad, good, rule
from dslint.rules.helpers.examples import ADAMW
from dslint.rules.helpers.models import ENGINES
from dslint.rules.helpers.set_weights import SetWeights
from dslint.rules.helpers.zero import STAGE

_ZERO_2 = f'{{{ADAMW}, "zero_optimization": {{"stage": 2}}}}'
_PROGRAM = (
    "import deepspeed\nfrom model import Net\nmodel = Net()\n%s"
    "engine, *_ = deepspeed.initialize(model=model, model_parameters=model.parameters(), config='ds_config.json')\n"
    "for epoch in range(10):\n%s    for batch in loader:\n        engine.backward(engine(batch))\n        engine.step()\n"
)
_FREEZE = "for p in model.encoder.parameters():\n    p.requires_grad = False\n"
_UNFREEZE = "    if epoch == 3:\n        for p in engine.module.encoder.parameters():\n            p.requires_grad = True\n"
_BY_NAME = "for name, p in model.named_parameters():\n    if 'encoder' in name:\n        p.requires_grad = False\n"
_UNFREEZE_BY_NAME = "    if epoch == 3:\n        for name, p in model.named_parameters():\n            if 'encoder' in name:\n                p.requires_grad = True\n"
_TOGGLES = (
    "import deepspeed\nfrom model import Net\n"
    "def freeze(model):\n    for p in model.encoder.parameters():\n        p.requires_grad = False\n"
    "def unfreeze(model):\n    for p in model.encoder.parameters():\n        p.requires_grad = True\n"
    "model = Net()\nmodel, *_ = deepspeed.initialize(model=model, model_parameters=model.parameters(), config='ds_config.json')\n"
    "for batch in loader:\n    freeze(model)\n    model.backward(model(batch))\n    unfreeze(model)\n    model.step()\n"
)
_NEVER = "and the optimizer of the engine has only the weights that require gradients in deepspeed.initialize (train.py:%s): these weights never change."


@rule(
    "DS662",
    effect=Effect.SILENT,
    watches=("setup",),
    references=(
        "deepspeed/runtime/zero/stage_1_and_2.py, DeepSpeedZeroOptimizer.__init__: the trainable parameters of a group",
        "deepspeed/runtime/zero/stage3.py, DeepSpeedZeroOptimizer_Stage3._get_trainable_parameter_groups",
        "https://github.com/deepspeedai/DeepSpeed/issues/1767",
        "https://github.com/deepspeedai/DeepSpeed/issues/5639",
    ),
    setup=True,
)
@bad(
    _ZERO_2,
    at="",
    program=_PROGRAM % (_FREEZE, _UNFREEZE),
    integration="deepspeed",
    message=f"train.py:10 sets p.requires_grad to True again (False in train.py:5), {_NEVER % 6}",
)
@bad(
    _ZERO_2,
    at="",
    program=_PROGRAM % (_BY_NAME, _UNFREEZE_BY_NAME),
    integration="deepspeed",
    message=f"train.py:12 sets p.requires_grad to True again (False in train.py:6), {_NEVER % 7}",
)
@good(_ZERO_2, program=_PROGRAM % ("", _UNFREEZE), integration="deepspeed")
@good(_ZERO_2, program=_PROGRAM % (_FREEZE, _UNFREEZE.replace("encoder", "decoder")), integration="deepspeed")
@good(_ZERO_2, program=_PROGRAM % (_FREEZE + _FREEZE.replace("False", "True"), _UNFREEZE), integration="deepspeed")
@good(f"{{{ADAMW}}}", program=_PROGRAM % (_FREEZE, _UNFREEZE), integration="deepspeed")
@good(_ZERO_2, program=_TOGGLES, integration="deepspeed")
@good(
    _ZERO_2,
    program=_PROGRAM
    % (
        _FREEZE,
        f"{_UNFREEZE}        engine, *_ = deepspeed.initialize(model=model, model_parameters=model.parameters(), config='ds_config.json')\n",
    ),
    integration="deepspeed",
)
def unfrozen_too_late(config: Config) -> Iterator[Finding]:
    """The program unfreezes weights after `deepspeed.initialize`, which has left them out of the optimizer.

    ZeRO and the half precision optimizers copy the weights that require gradients into buffers of their own when the engine is made. A
    weight that is frozen then has no place in them: with `requires_grad = True` later it gets a gradient and never changes. Nothing says so;
    the loss goes on as with frozen weights.

    Leave the weights trainable in `deepspeed.initialize`, in a parameter group of their own with a learning rate of 0 at first, or save a
    checkpoint and make a new engine for the second part of the training.
    """
    program = config.setup.program if config.setup else None
    copies = config.value(STAGE) >= 1 or config.value("fp16.enabled") is True or config.value("bf16.enabled") is True
    if program is None or not copies or config.facts.integration not in (Integration.DEEPSPEED, Integration.ACCELERATE):
        return
    changes = list(program.events.of(*ENGINES, re.escape(FROZEN), re.escape(UNFROZEN)))
    makers = [one for one in changes if one.name not in (FROZEN, UNFROZEN)]
    if len(makers) != 1:
        return
    made = changes.index(makers[0])
    weights = SetWeights.of(config, makers[0]) if any(one.name == UNFROZEN for one in changes[made:]) else None
    if weights is None:
        return
    frozen: dict[tuple[str, ...], Event] = {}
    for number, event in enumerate(changes):
        if number == made or event.flow or event.unlikely or event.tells_setups_apart:
            continue
        which = weights.set_in(event)
        if which is None:
            continue
        if number < made:
            if event.name == FROZEN:
                frozen.setdefault(which, event)
            else:
                frozen.pop(which, None)
        elif event.name == UNFROZEN and which in frozen and len(frozen[which].conditions) < len(which):
            by = "deepspeed.initialize" if makers[0].name == ENGINE else "prepare"
            yield Finding(
                "",
                f"{event.at.where} sets {event.at.raw} to True again (False in {frozen[which].at.where}), and the optimizer of the engine has "
                f"only the weights that require gradients in {by} ({makers[0].at.where}): these weights never change.",
                help="Leave them trainable before, in a parameter group with a learning rate of 0 at first, or make a new engine from a checkpoint.",
                elsewhere=event.at.related(""),
                related=(frozen[which].at.related("frozen here"),),
                certain=not event.handled,
            )
            return
