"""DSP: `no_sync` of an engine, which does not fit to divided gradients."""

from __future__ import annotations

import re
from collections.abc import Iterator

from dslint.config import Config
from dslint.diagnostics import Effect, Phase
from dslint.facts import Integration, Release
from dslint.job.events import ENGINE
from dslint.rule import Finding, bad, good, rule
from dslint.rules.helpers.examples import trained
from dslint.rules.helpers.zero import STAGE

_STAGE_2 = trained('"gradient_accumulation_steps": 1, "zero_optimization": {"stage": 2}')
_STAGE_1 = _STAGE_2.replace('"stage": 2', '"stage": 1')
_ENGINE = (
    "import contextlib\nimport deepspeed\nimport torch\nnet = torch.nn.Linear(8, 8)\n"
    'engine, *_ = deepspeed.initialize(model=net, model_parameters=net.parameters(), config="ds_config.json")\n'
)
_LOOP = _ENGINE + "for batch in loader:\n    with engine.no_sync():\n        engine.backward(engine(batch).mean())\n    engine.step()\n"
_WITHOUT_OPTIMIZER = '{"train_micro_batch_size_per_gpu": 4, "gradient_accumulation_steps": 1, "zero_optimization": {"stage": 2}}'
_ACCELERATOR = (
    "import torch\nfrom accelerate import Accelerator\nfrom transformers import AutoModelForCausalLM\naccelerator = Accelerator()\n"
    'model = AutoModelForCausalLM.from_pretrained("m")\noptimizer = torch.optim.AdamW(model.parameters())\n'
    "model, optimizer, loader = accelerator.prepare(model, optimizer, loader)\nfor batch in loader:\n    with accelerator.no_sync(model):\n"
    "        accelerator.backward(model(**batch).loss)\n    optimizer.step()\n"
)
_HAS_NO_SYNC = Release(0, 16, 0)
"""The first release whose engine has `no_sync`."""
_ASKS_STAGE = Release(1, 9, 0)
"""The first Accelerate that does not call it at ZeRO stages 2 and 3."""


@rule(
    "DSP05",
    effect=Effect.CRASH,
    phase=Phase.STEP,
    watches=("setup",),
    references=(
        "deepspeed/runtime/engine.py, DeepSpeedEngine.no_sync",
        "accelerate/accelerator.py, Accelerator.no_sync of 1.8.1 and 1.9.0",
    ),
    untried="depends on the calls of the program",
    setup=True,
)
@bad(
    _STAGE_2,
    at="",
    program=_LOOP,
    integration="deepspeed",
    message='train.py:7 calls engine.no_sync(): DeepSpeed raises AssertionError "no_sync context manager is incompatible with gradient partitioning logic of ZeRO stage 2".',
)
@bad(
    _STAGE_2,
    at="",
    program=_LOOP.replace("with engine.no_sync()", "with engine.no_sync() if batch.is_last else contextlib.nullcontext()"),
    integration="deepspeed",
    message='train.py:7 calls engine.no_sync(): DeepSpeed may raise AssertionError "no_sync context manager is incompatible with gradient partitioning logic of ZeRO stage 2".',
)
@bad(
    _STAGE_1,
    at="",
    program=_LOOP,
    integration="deepspeed",
    deepspeed="0.15.4",
    message="train.py:7 calls engine.no_sync(): the engine of DeepSpeed 0.15.4 has no such method, and raises AttributeError.",
)
@bad(
    _WITHOUT_OPTIMIZER,
    at="",
    program=_ACCELERATOR,
    integration="accelerate",
    deepspeed="0.16.9",
    pins={"accelerate": Release(1, 5, 2)},
    message='train.py:9 calls accelerator.no_sync(): DeepSpeed raises AssertionError "no_sync context manager is incompatible with gradient partitioning logic of ZeRO stage 2".',
)
@good(_STAGE_1, program=_LOOP, integration="deepspeed")
@good(_STAGE_2, program=_LOOP.replace("with engine.no_sync()", "with contextlib.nullcontext()"), integration="deepspeed")
@good(_STAGE_2, program=_LOOP.replace("with engine.no_sync()", "with wrapped.no_sync()"), integration="deepspeed")
@good(
    _STAGE_2,
    program=_LOOP.replace("    with engine", "    stage = engine.zero_optimization_stage()\n    with engine").replace(
        "engine.no_sync()", "engine.no_sync() if stage < 2 else contextlib.nullcontext()"
    ),
    integration="deepspeed",
)
@good(_STAGE_2, program=_LOOP.replace("with engine.no_sync()", "with torch.no_grad()"), integration="deepspeed")
@good(_WITHOUT_OPTIMIZER, program=_ACCELERATOR, integration="accelerate", deepspeed="0.16.9", pins={"accelerate": Release(1, 9, 0)})
@good(_WITHOUT_OPTIMIZER, program=_ACCELERATOR, integration="accelerate", deepspeed="0.15.4", pins={"accelerate": Release(1, 5, 2)})
@good(_WITHOUT_OPTIMIZER, program=_ACCELERATOR, integration="accelerate", deepspeed="0.16.9")
@good(
    _WITHOUT_OPTIMIZER.replace('"stage": 2', '"stage": 1'),
    program=_ACCELERATOR,
    integration="accelerate",
    deepspeed="0.16.9",
    pins={"accelerate": Release(1, 5, 2)},
)
def no_sync_refused(config: Config) -> Iterator[Finding]:
    """The program calls `no_sync` of its engine, which refuses it at ZeRO stages 2 and 3.

    `no_sync` keeps the gradients of a backward pass on the rank. Stages 2 and 3 divide them among the ranks in each pass, so that the engine
    raises AssertionError as soon as the `with` statement begins. Before DeepSpeed 0.16.0 the engine has no such method at any stage. Accelerate
    before 1.9.0 calls it in `accelerator.no_sync(model)`, for each micro batch but the last in `accelerator.accumulate(model)` (DS952).

    Call `engine.backward` and `engine.step` for each micro batch: DeepSpeed accumulates with `gradient_accumulation_steps`. Or use stage 1.
    """
    program = config.setup.program if config.setup else None
    if program is None:
        return
    own, stage = config.facts.integration is Integration.DEEPSPEED, config.value(STAGE)
    if own:
        pattern = rf"{re.escape(ENGINE)}\.no_sync"
    elif config.facts.integration is Integration.ACCELERATE:
        release = config.context.pinned("accelerate")
        if release is None or release >= _ASKS_STAGE or config.release < _HAS_NO_SYNC:
            return
        pattern = r"accelerate\.(\w+\.)*Accelerator\.no_sync"
    else:
        return
    is_missing = own and config.release < _HAS_NO_SYNC
    if not is_missing and stage not in (2, 3):
        return
    call = next((one for one in program.events.of(pattern) if not one.unlikely and not one.tells_setups_apart), None)
    if call is None:
        return
    outcome = (
        f"the engine of DeepSpeed {config.release} has no such method, and raises AttributeError"
        if is_missing
        else f'DeepSpeed raises AssertionError "no_sync context manager is incompatible with gradient partitioning logic of ZeRO stage {stage}"'
    )
    yield Finding(
        "",
        f"{call.at.where} calls {call.called}(): {outcome}.",
        help="Call engine.step() after each backward pass, and let gradient_accumulation_steps of the config count."
        if own
        else "Use Accelerate 1.9.0 or later, or DeepSpeed 0.15.4.",
        elsewhere=call.at.related(""),
        certain=call.always,
    )
