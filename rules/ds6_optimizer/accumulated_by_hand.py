"""DS6: gradients that a program accumulates itself, while the config says one accumulation step."""

from __future__ import annotations

import re
from collections.abc import Iterator

from dslint.config import Config
from dslint.diagnostics import Effect
from dslint.facts import Integration
from dslint.job.events import ENGINE
from dslint.rule import Finding, bad, good, rule
from dslint.rules.helpers.accumulated import REPLACES_SINCE, TELLS_BOUNDARY, counted_steps
from dslint.rules.helpers.examples import trained
from dslint.rules.helpers.syntax import is_in_a_file
from dslint.rules.helpers.zero import STAGE
from dslint.schemas.derive import ACCUMULATION

_STAGE_2 = trained('"gradient_accumulation_steps": 1, "zero_optimization": {"stage": 2}')
_ENGINE = (
    "import deepspeed\nimport torch\nnet = torch.nn.Linear(8, 8)\n"
    'engine, *_ = deepspeed.initialize(model=net, model_parameters=net.parameters(), config="ds_config.json")\n'
)
_BY_HAND = (
    _ENGINE
    + "for step, batch in enumerate(loader):\n    engine.backward(engine(batch).mean())\n    if (step + 1) % {} == 0:\n        engine.step()\n"
)


@rule(
    "DS673",
    effect=Effect.SILENT,
    watches=("setup",),
    references=(
        "deepspeed/runtime/zero/stage_1_and_2.py, independent_gradient_partition_epilogue",
        "deepspeed/runtime/engine.py, set_gradient_accumulation_boundary",
    ),
    setup=True,
)
@bad(
    _STAGE_2,
    at="",
    program=_BY_HAND.format(8),
    integration="deepspeed",
    message="train.py:8 calls engine.step() only after 8 backward passes, and gradient_accumulation_steps is 1: DeepSpeed takes each pass for the last one of a step, and at ZeRO stage 2 it replaces the gradients of those before. Only the last micro batch counts.",
)
@bad(
    _STAGE_2,
    at="",
    program=_BY_HAND.format("args.accumulation"),
    integration="deepspeed",
    message="train.py:8 calls engine.step() only after args.accumulation backward passes (if that is more than 1), and gradient_accumulation_steps is 1: DeepSpeed takes each pass for the last one of a step, and at ZeRO stage 2 it replaces the gradients of those before. Only the last micro batch counts.",
)
@good(_STAGE_2, program=_BY_HAND.replace("    if (step + 1) % {} == 0:\n        ", "    "), integration="deepspeed")
@good(_STAGE_2.replace('"stage": 2', '"stage": 3'), program=_BY_HAND.format(8), integration="deepspeed")
@good(_STAGE_2, program=_BY_HAND.format(8), integration="deepspeed", deepspeed="0.16.9")
@good(_STAGE_2, program=_BY_HAND.format("engine.gradient_accumulation_steps()"), integration="deepspeed")
@good(
    _STAGE_2,
    program=_BY_HAND.format(8).replace("    engine.b", "    engine.set_gradient_accumulation_boundary((step + 1) % 8 == 0)\n    engine.b"),
    integration="deepspeed",
)
@good(_STAGE_2, program=_BY_HAND.format(100).replace("engine.step()", "print(step)\n    engine.step()"), integration="deepspeed")
@good(
    _STAGE_2,
    program=_ENGINE
    + "for step, batch in enumerate(loader):\n    if step % 5 == 0:\n        engine.backward(engine(batch).mean())\n        engine.step()\n",
    integration="deepspeed",
)
def accumulated_by_hand(config: Config) -> Iterator[Finding]:
    """The program calls `engine.step()` only after several backward passes, and the config says one accumulation step.

    DeepSpeed counts the micro batches itself. With `"gradient_accumulation_steps": 1` each backward pass is the last one of a step: since
    DeepSpeed 0.17.6 ZeRO stages 1 and 2 then replace the gradients that the passes before have left. Of all micro batches between two calls of
    `engine.step()` only the last one counts. Stages 0 and 3 add them up.

    Call `engine.step()` after every backward pass and let `gradient_accumulation_steps` count, or tell the engine before each pass with
    `set_gradient_accumulation_boundary` whether it is the last one.
    """
    setup = config.setup
    program = setup.program if setup is not None else None
    if setup is None or program is None or config.facts.integration is not Integration.DEEPSPEED or config.release < REPLACES_SINCE:
        return
    stage, offload = config.value(STAGE), config.value("zero_optimization.offload_optimizer.device")
    if not (config.value(ACCUMULATION) == 1 and stage in (1, 2) and offload in (None, "none")):
        return
    if config.value("managed_gradient_accumulation") is False or is_in_a_file(TELLS_BOUNDARY, config):
        return
    name = re.escape(ENGINE)
    passes, steps = list(program.events.of(rf"{name}\.backward")), list(program.events.of(rf"{name}\.step"))
    counted = counted_steps(steps, passes)
    if len(steps) != 1 or not counted[0] or steps[0].tells_setups_apart or not any(one.start < steps[0].start for one in passes):
        return
    step, every = steps[0], _EVERY.search(counted[0])
    if every is None:
        return
    unless = "" if every[1].isdigit() else " (if that is more than 1)"
    yield Finding(
        "",
        f"{step.at.where} calls {step.called}() only after {every[1]} backward passes{unless}, and {ACCUMULATION} is 1: DeepSpeed takes each pass for "
        f"the last one of a step, and at ZeRO stage {stage} it replaces the gradients of those before. Only the last micro batch counts.",
        help="Call engine.step() after every backward pass, and let gradient_accumulation_steps of the config count.",
        elsewhere=step.at.related(""),
        certain=every[1].isdigit() and step.flow == 0,
    )


_EVERY = re.compile(r"%\s*(?!1\b)([\w.]+)(?![\w.(\[])")
"""In a condition: each so many turns."""
