"""DS9: the training loop of a program beside an engine, which does a part of it itself."""

from __future__ import annotations

import re
from collections.abc import Iterator

from dslint.config import Config
from dslint.diagnostics import Effect, Phase
from dslint.facts import Integration, Release
from dslint.job.events import Events
from dslint.job.model import Setup
from dslint.rule import Finding, bad, good, rule
from dslint.rules.helpers.accumulated import counted_steps
from dslint.rules.helpers.prepare import BACKWARD, PREPARE, models_of, without_optimizer
from dslint.rules.helpers.zero import STAGE
from dslint.schemas.derive import ACCUMULATION

_CONFIG = (
    '{"train_micro_batch_size_per_gpu": 4, "gradient_accumulation_steps": %s, "optimizer": {"type": "AdamW", "params": {"lr": 1e-5}}, '
    '"zero_optimization": {"stage": 2}%s}'
)
_ONE = _CONFIG % (1, "")
_WITHOUT_OPTIMIZER = '{"train_micro_batch_size_per_gpu": 4, "gradient_accumulation_steps": 1, "zero_optimization": {"stage": 2}}'

_ENGINE = (
    "import deepspeed\nimport torch\n"
    'engine, optimizer, *_ = deepspeed.initialize(model=model, model_parameters=model.parameters(), config="ds_config.json")\n'
)
_ACCELERATOR = (
    "import torch\nfrom accelerate import Accelerator\nfrom transformers import AutoModelForCausalLM\naccelerator = Accelerator()\n"
    'model = AutoModelForCausalLM.from_pretrained("m")\n'
    "model, optimizer, loader = accelerator.prepare(model, optimizer, loader)\n"
)
_WITH_ADAMW = _ACCELERATOR.replace(
    "model, optimizer, loader =", "optimizer = torch.optim.AdamW(model.parameters())\nmodel, optimizer, loader ="
)
_PLAIN = "for batch in loader:\n    loss = %s(batch)[0]\n    loss.backward()\n    optimizer.step()\n"

_FABRIC = (
    "import torch\nimport lightning as L\nfrom lightning.fabric.strategies import DeepSpeedStrategy\n"
    "fabric = L.Fabric(strategy=DeepSpeedStrategy(config='ds_config.json'))\noptimizer = torch.optim.AdamW(model.parameters())\n"
    "model, optimizer = fabric.setup(model, optimizer)\nfor batch in loader:\n    loss = model(batch)\n    %s\n    optimizer.step()\n"
)

_PATCHED = Release(0, 18, 3)
"""The first release whose engine also works with `loss.backward()` (pull request 7665)."""


@rule(
    "DS969",
    effect=Effect.SILENT,
    watches=("setup",),
    references=(
        "deepspeed/runtime/engine.py, DeepSpeedEngine.backward",
        "accelerate/utils/deepspeed.py, DeepSpeedOptimizerWrapper.step",
        "https://github.com/deepspeedai/DeepSpeed/issues/329",
        "https://github.com/deepspeedai/DeepSpeed/pull/7665",
    ),
    setup=True,
)
@bad(
    _ONE,
    at="",
    program=_ENGINE + _PLAIN % "engine",
    integration="deepspeed",
    deepspeed="0.16.3",
    message="train.py:6 calls loss.backward(), and nothing calls engine.backward(loss): DeepSpeed does not average the gradients over the ranks and does not scale the loss; with ZeRO it raises AttributeError.",
)
@bad(
    _WITHOUT_OPTIMIZER,
    at="",
    program=_ACCELERATOR + _PLAIN % "model",
    integration="accelerate",
    message="train.py:9 calls loss.backward(), and nothing calls accelerator.backward(loss): under DeepSpeed optimizer.step() does nothing, so the model silently never changes.",
)
@bad(
    _WITHOUT_OPTIMIZER,
    at="",
    program=f"{_ACCELERATOR}import torch\nscaler = torch.cuda.amp.GradScaler()\nfor batch in loader:\n    scaler.scale(model(batch)[0]).backward()\n    scaler.step(optimizer)\n",
    integration="accelerate",
    message="train.py:10 calls scaler.scale(model(batch)[0]).backward(), and nothing calls accelerator.backward(loss): under DeepSpeed optimizer.step() does nothing, so the model silently never changes.",
)
@good(
    _ONE,
    program=f"{_ENGINE}for batch in loader:\n    engine.backward(engine(batch)[0])\n    engine.step()\n",
    integration="deepspeed",
    deepspeed="0.16.3",
)
@good(
    _ONE,
    program=f"{_ENGINE}for batch in loader:\n    engine(batch)[0].backward()\n    engine.step()\n",
    integration="deepspeed",
    deepspeed="0.18.3",
)
@good(
    _WITHOUT_OPTIMIZER,
    program=f"{_ACCELERATOR}for batch in loader:\n    accelerator.backward(model(batch)[0])\n    optimizer.step()\n",
    integration="accelerate",
)
@good(
    _WITHOUT_OPTIMIZER,
    program=f"{_WITH_ADAMW}size = pick()\nevery = 1\nif size > 16:\n    every = size // 16\nfor step, batch in enumerate(loader):\n    accelerator.backward(model(batch)[0])\n    if step % every == 0:\n        optimizer.step()\n",
    integration="accelerate",
)
@good(
    _ONE,
    program=f"{_WITH_ADAMW.replace('model, optimizer, loader', 'model, loader')}{_PLAIN % 'model'}",
    integration="accelerate",
)
@good(_WITHOUT_OPTIMIZER, program=(_ACCELERATOR + _PLAIN % "model").replace("optimizer.step()", "model.step()"), integration="accelerate")
@good(
    _ONE,
    program=f"{_ENGINE}for batch in loader:\n    with torch.no_grad():\n        words = engine(batch)\n    loss = critic(words)\n    loss.backward()\n",
    integration="deepspeed",
    deepspeed="0.16.3",
)
@bad(
    _WITHOUT_OPTIMIZER,
    at="",
    program=_FABRIC % "loss.backward()",
    integration="lightning",
    message='train.py:9 calls loss.backward(): since 2.3 Lightning raises "The current strategy and precision selection requires you to call `fabric.backward(loss)` instead of `loss.backward()`". Before, the backward of DeepSpeed does not run.',
)
@good(_WITHOUT_OPTIMIZER, program=_FABRIC % "fabric.backward(loss)", integration="lightning")
@good(_WITHOUT_OPTIMIZER, program=_FABRIC % "backward(loss)", integration="lightning")
@good(_WITHOUT_OPTIMIZER, program=(_FABRIC % "loss.backward()").replace("= model(batch)", "= critic(batch)"), integration="lightning")
def backward_beside_the_engine(config: Config) -> Iterator[Finding]:
    """The training loop calls `loss.backward()` instead of the engine's `backward`.

    Before DeepSpeed 0.18.3 only `engine.backward(loss)` averages the gradients over the ranks, scales the loss for fp16 and gradient
    accumulation, and prepares ZeRO's buffers. With `loss.backward()` ZeRO raises "object has no attribute 'ipg_index'"; without ZeRO each rank
    silently trains a model of its own.

    Accelerate runs the engine's backward and its step in `accelerator.backward(loss)`. `optimizer.step()` does nothing under DeepSpeed, so with
    `loss.backward()` the model silently never changes.

    Lightning's Fabric runs it in `fabric.backward(loss)`, and refuses `loss.backward()` since 2.3.

    Call `engine.backward(loss)` and `engine.step()`, or `accelerator.backward(loss)`, or `fabric.backward(loss)`.
    """
    program = config.setup.program if config.setup else None
    if program is None:
        return
    events = program.events
    if config.facts.integration is Integration.LIGHTNING and program.fabric:
        yield from _beside_fabric(events)
    own = config.facts.integration is Integration.DEEPSPEED
    if own and not config.facts.deepspeed < _PATCHED:
        return
    if not own and config.facts.integration is not Integration.ACCELERATE:
        return
    maker = r"deepspeed\.initialize" if own else r"accelerate\.(\w+\.)?Accelerator"
    managed = _trained(events, own=own)
    if any(events.of(rf"{maker}\.(backward|train_batch)")) or managed is None:
        return
    calls = list(events.of("backward", r"torch\.autograd\.backward", r"torch\.(\w+\.)*GradScaler\.backward"))
    if any(one.name == "backward" and "0" in one.arguments for one in calls):
        return  # the backward of an engine that is not known here
    found = next((one for one in calls if one.loops and one.flow == managed), None)
    if found is None or any(one.tells_setups_apart for one in calls):
        return
    outcome = (
        "DeepSpeed does not average the gradients over the ranks and does not scale the loss; with ZeRO it raises AttributeError"
        if own
        else "under DeepSpeed optimizer.step() does nothing, so the model silently never changes"
    )
    instead = "engine.backward(loss)" if own else "accelerator.backward(loss)"
    yield Finding(
        "",
        f"{found.at.where} calls {found.at.raw}, and nothing calls {instead}: {outcome}.",
        help=f"Call {instead}{' and engine.step()' if own else ''}.",
        elsewhere=found.at.related(""),
        certain=not own or "deepspeed" not in config.evidence,
    )


def _beside_fabric(events: Events) -> Iterator[Finding]:
    """The `loss.backward()` of a loop over a model that Fabric has set up."""
    trained = next((one for one in events.of(r"lightning.*\.Fabric\.__call__") if one.loops and one.flow == 0 and not one.within), None)
    calls = [one for one in events.of(r"(.*\.)?backward") if one.loops]
    found = next((one for one in calls if one.flow == 0 and re.search(r"\w\.backward\(\)$", one.at.raw)), None)
    set_up = any(events.of(r"lightning.*\.Fabric\.setup"))
    if trained is None or found is None or not set_up or len(calls) > 1 or any(events.of(r"lightning.*\.Fabric\.backward")):
        return
    error = "The current strategy and precision selection requires you to call `fabric.backward(loss)` instead of `loss.backward()`"
    yield Finding(
        "",
        f'{found.at.where} calls {found.at.raw}: since 2.3 Lightning raises "{error}". Before, the backward of DeepSpeed does not run.',
        help="Call fabric.backward(loss).",
        elsewhere=found.at.related(""),
        effect=Effect.CRASH,
        phase=Phase.STEP,
        certain=found.always and trained.always and not found.tells_setups_apart,
    )


def _trained(events: Events, *, own: bool) -> int | None:
    """The flow in which the model that DeepSpeed trains is called in a loop; None if that is not known, or if there are several, or if the
    program calls the step of Accelerate's engine itself.
    """
    if own:
        calls = (one for one in events.of(r"deepspeed\.initialize\.__call__") if one.loops)
        return next((one.flow for one in calls if not any("no_grad" in name or "inference_mode" in name for name in one.within)), None)
    prepared = list(events.of(PREPARE))
    if prepared and all(without_optimizer(one) for one in prepared):
        return None  # the optimizer is that of torch, and its step does something
    origins = {given.origin for event in prepared for given in event.arguments.values() if given.origin is not None}
    models = {origin for event in prepared for origin, _ in models_of(event)}
    if any(one.origin in models for one in events.of(r".*\.step")):
        return None
    return next((one.flow for one in events.of(r".*\.__call__") if one.loops and one.origin in origins), None)


@rule(
    "DS970",
    effect=Effect.SILENT,
    watches=("setup",),
    references=("deepspeed/runtime/engine.py, DeepSpeedEngine.step and is_gradient_accumulation_boundary",),
    setup=True,
)
@bad(
    _CONFIG % (8, ""),
    at="gradient_accumulation_steps",
    program=f"{_ENGINE}for step, batch in enumerate(loader):\n    engine.backward(engine(batch)[0])\n    if (step + 1) % 8 == 0:\n        engine.step()\n",
    integration="deepspeed",
    message='train.py:7 calls engine.step() only where "(step + 1) % 8 == 0", and gradient_accumulation_steps is 8: the engine counts the calls of step, and updates the weights only after 8 of them.',
)
@good(
    _CONFIG % (8, ""),
    program=f"{_ENGINE}for step, batch in enumerate(loader):\n    engine.backward(engine(batch)[0])\n    engine.step()\n",
    integration="deepspeed",
)
@good(
    _CONFIG % (8, ""),
    program=f"{_ENGINE}for step, batch in enumerate(loader):\n    if step % 2 == 0:\n        engine.backward(engine(batch)[0])\n        engine.step()\n",
    integration="deepspeed",
)
@good(
    _CONFIG % (8, ""),
    program=f"{_ENGINE}for step, batch in enumerate(loader):\n    engine.set_gradient_accumulation_boundary((step + 1) % 8 == 0)\n"
    "    engine.backward(engine(batch)[0])\n    if (step + 1) % 8 == 0:\n        engine.step()\n",
    integration="deepspeed",
)
@good(
    _CONFIG % (8, ""),
    program=f"{_ENGINE}for step, batch in enumerate(loader):\n    engine.backward(engine(batch)[0])\n    if step % 1 == 0:\n        engine.step()\n",
    integration="deepspeed",
)
@good(
    _WITHOUT_OPTIMIZER,
    program=f"{_WITH_ADAMW}for step, batch in enumerate(loader):\n    if step % 5 == 0:\n        accelerator.backward(model(batch)[0])\n        optimizer.step()\n",
    integration="accelerate",
)
@good(
    _ONE,
    program=f"{_WITH_ADAMW.replace('model, optimizer, loader', 'model, loader')}for step, batch in enumerate(loader):\n    accelerator.backward(model(batch)[0])\n    if step % 8 == 0:\n        optimizer.step()\n",
    integration="accelerate",
)
@good(
    _ONE.replace('"stage": 2', '"stage": 3'),
    program=f"{_ENGINE}for step, batch in enumerate(loader):\n    engine.backward(engine(batch)[0])\n    if (step + 1) % 8 == 0:\n        engine.step()\n",
    integration="deepspeed",
)
@bad(
    _WITHOUT_OPTIMIZER,
    at="",
    program=f"{_WITH_ADAMW}for step, batch in enumerate(loader):\n    accelerator.backward(model(batch)[0])\n    if (step + 1) % 8 == 0:\n        optimizer.step()\n",
    integration="accelerate",
    message='train.py:11 calls optimizer.step() only where "(step + 1) % 8 == 0": under DeepSpeed that does nothing, and accelerator.backward (train.py:9) updates the weights after every batch.',
)
@bad(
    _WITHOUT_OPTIMIZER.replace('steps": 1', 'steps": 8'),
    at="gradient_accumulation_steps",
    program=f"{_ACCELERATOR}for batch in loader:\n    accelerator.backward(model(batch)[0])\n    optimizer.step()\n",
    integration="accelerate",
    pins={"accelerate": Release(1, 8, 0)},
    message="gradient_accumulation_steps is 8, but train.py:8 calls accelerator.backward outside of accelerator.accumulate: DeepSpeed updates the weights after every batch, and divides the loss by 8.",
)
@good(
    _WITHOUT_OPTIMIZER.replace('steps": 1', 'steps": 8'),
    program=f"{_ACCELERATOR}for batch in loader:\n    accelerator.backward(model(batch)[0])\n    optimizer.step()\n",
    integration="accelerate",
    pins={"accelerate": Release(1, 7, 0)},
)
@good(
    _WITHOUT_OPTIMIZER.replace('steps": 1', 'steps": 8'),
    program=f"{_ACCELERATOR}for batch in loader:\n    with accelerator.accumulate(model):\n        accelerator.backward(model(batch)[0])\n        optimizer.step()\n",
    integration="accelerate",
)
def accumulation_done_twice(config: Config) -> Iterator[Finding]:
    """The program accumulates gradients in its own loop, which the engine of DeepSpeed does not follow.

    The engine counts its own calls of `step`, and updates the weights at every `gradient_accumulation_steps`-th of them. A program that
    calls `step` only every n-th batch therefore updates the weights after n times as many batches as it means to, with a learning rate
    schedule that is n times as long.

    Under Accelerate the engine's step is a part of `accelerator.backward(loss)`, and `optimizer.step()` does nothing. Before Accelerate 1.8.0
    the engine counts the batches by itself. Since then each `accelerator.backward` outside of `accelerator.accumulate` is the last one of an
    accumulation: the engine updates the weights after every batch, and divides the loss by `gradient_accumulation_steps` all the same.

    Call `engine.step()` after every batch. With Accelerate put the step into `with accelerator.accumulate(model):`, without a condition.
    """
    yield from _accumulates_beside_accelerate(config)
    program = config.setup.program if config.setup else None
    steps = config.value("gradient_accumulation_steps")
    if program is None or config.facts.integration is not Integration.DEEPSPEED or not steps > 1:
        return
    if any(program.events.of(r".*\.set_gradient_accumulation_boundary")):
        return  # the program tells the engine which step is the last
    calls = list(program.events.of(r"deepspeed\.initialize\.step"))
    counted = counted_steps(calls, list(program.events.of(r"deepspeed\.initialize\.backward")))
    if calls and all(counted) and not any(event.tells_setups_apart for event in calls):
        event, condition = calls[0], counted[0]
        yield Finding(
            "gradient_accumulation_steps",
            f'{event.at.where} calls engine.step() only where "{condition}", and gradient_accumulation_steps is {config.quote("gradient_accumulation_steps")}: '
            f"the engine counts the calls of step, and updates the weights only after {steps} of them.",
            help="Call engine.step() after every batch.",
            related=(event.at.related("called here"),),
            certain=_NUMBER.search(condition) is not None,  # what a flag says may be 1
        )


def _accumulates_beside_accelerate(config: Config) -> Iterator[Finding]:
    """The findings for a program that calls `accelerator.backward` outside of `accelerator.accumulate`, and accumulates gradients."""
    setup = config.setup
    program = setup.program if setup is not None else None
    if setup is None or program is None or config.facts.integration is not Integration.ACCELERATE:
        return
    calls = list(program.events.of(BACKWARD))
    if not calls or any(one.tells_setups_apart or not one.loops for one in calls):
        return
    if any(_SYNCS.search(document.text) for name, document in setup.documents.items() if name.endswith((".py", ".ipynb"))):
        return
    release = config.context.pinned("accelerate")
    of_program = release is None or release >= _SYNCED
    steps = config.value(ACCUMULATION)
    updates = list(program.events.of(_OPTIMIZER_STEP))
    counted = counted_steps(updates, calls)
    since = "" if release is not None or steps == 1 else "from Accelerate 1.8.0 on "
    if updates and all(counted):
        if _is_one(setup, counted[0]):
            return
        number = _NUMBER.search(counted[0])
        prepared = list(program.events.of(PREPARE))
        if (
            any(one.tells_setups_apart for one in updates)
            or (not of_program and steps != 1)
            or (prepared and all(without_optimizer(one) for one in prepared))
        ):
            return
        yield Finding(
            "",
            f'{updates[0].at.where} calls {updates[0].called}() only where "{counted[0]}": under DeepSpeed that does nothing, and {since}'
            f"accelerator.backward ({calls[0].at.where}) updates the weights after every batch.",
            help="Put the step into `with accelerator.accumulate(model):`, without a condition, and pass the number to Accelerator.",
            elsewhere=updates[0].at.related(""),
            related=(calls[0].at.related("the weights are updated here"),),
            certain=number is not None and (steps == 1 or release is not None),
        )
    elif of_program and steps > 1 and not config.is_auto(ACCUMULATION) and config.has(ACCUMULATION):
        yield Finding(
            ACCUMULATION,
            f"{ACCUMULATION} is {steps}, but {calls[0].at.where} calls accelerator.backward outside of accelerator.accumulate: {since}"
            f"DeepSpeed {'then ' if since else ''}updates the weights after every batch, and divides the loss by {steps}.",
            help="Put the step into `with accelerator.accumulate(model):`, or set it to 1.",
            related=(calls[0].at.related("the weights are updated here"),),
            certain=release is not None and calls[0].certain,
        )


_SYNCS = re.compile(r"\.accumulate\(|sync_gradients\(|sync_gradients\s*=[^=]|GradientState|set_gradient_accumulation_boundary")
"""What makes a batch one that is not the last of an accumulation."""
_SYNCED = Release(1, 8, 0)
"""The first Accelerate that tells the engine whether a batch is the last of an accumulation."""
_OPTIMIZER_STEP = (
    r"(torch\.optim\.(?!lr_scheduler)|bitsandbytes\.|transformers\.(\w+\.)*Ada|accelerate\.(\w+\.)*DummyOptim|deepspeed\.ops\.).*\.step"
)

_NUMBER = re.compile(r"%\s*(\d+)")


def _is_one(setup: Setup, condition: str) -> bool:
    """Whether a program starts with 1 for the number of batches of a condition, as the examples of Accelerate, which raise it only for a
    large batch: the condition then always holds.
    """
    name = re.search(r"%\s*([A-Za-z_]\w*)\s*==", condition)
    if name is None:
        return False
    is_one = re.compile(rf"(?m)^[ \t]*{name[1]}[ \t]*=[ \t]*1[ \t]*(?:#.*)?$")
    return any(is_one.search(document.text) for document in setup.documents.values() if document.language == "python")


_MEASURES = re.compile(r"\binf\b|[\"'](inf|infinity)[\"']", re.IGNORECASE)
"""A bound of the norm that nothing reaches: the program logs the norm."""


@rule(
    "DS971",
    effect=Effect.IGNORED,
    watches=("setup",),
    references=(
        "accelerate/utils/deepspeed.py, DeepSpeedEngineWrapper.backward: the step is part of it",
        "deepspeed/runtime/zero/stage_1_and_2.py: the gradients are not in param.grad",
    ),
    setup=True,
)
@bad(
    _WITHOUT_OPTIMIZER,
    at="",
    program=f"{_ACCELERATOR}for batch in loader:\n    accelerator.backward(model(batch)[0])\n    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)\n    optimizer.step()\n",
    integration="accelerate",
    message="train.py:9 clips the gradients with torch, which has no effect: accelerator.backward has already run the step of DeepSpeed's engine.",
)
@bad(
    _ONE,
    at="",
    program=f"{_ENGINE}for batch in loader:\n    engine.backward(engine(batch)[0])\n    torch.nn.utils.clip_grad_norm_(engine.parameters(), 1.0)\n    engine.step()\n",
    integration="deepspeed",
    message="train.py:6 clips the gradients with torch, which has no effect: ZeRO has moved them out of the parameters.",
)
@good(
    _CONFIG % (1, ', "gradient_clipping": 1.0'),
    program=f"{_ENGINE}for batch in loader:\n    engine.backward(engine(batch)[0])\n    torch.nn.utils.clip_grad_norm_(engine.parameters(), 1.0)\n    engine.step()\n",
    integration="deepspeed",
)
@good(
    _WITHOUT_OPTIMIZER,
    program=f"{_ACCELERATOR}for batch in loader:\n    accelerator.backward(model(batch)[0])\n    accelerator.clip_grad_norm_(model.parameters(), 1.0)\n    optimizer.step()\n",
    integration="accelerate",
)
@good(
    _WITHOUT_OPTIMIZER,
    program=f"{_ACCELERATOR}for batch in loader:\n    accelerator.backward(model(batch)[0])\n    norm = torch.nn.utils.clip_grad_norm_(model.parameters(), float('inf'))\n",
    integration="accelerate",
)
def clipping_beside_the_engine(config: Config) -> Iterator[Finding]:
    """The program clips gradients with torch, where DeepSpeed has them elsewhere or has used them already.

    ZeRO moves the gradients out of the parameters during the backward pass, and `accelerator.backward` ends with the step. In both cases
    `torch.nn.utils.clip_grad_norm_` finds nothing that still counts: the gradients are not clipped.

    Set `gradient_clipping` in the config.
    """
    program = config.setup.program if config.setup else None
    if program is None or config.has("gradient_clipping"):
        return
    events = program.events
    prepared = {
        given.origin
        for event in events.of(r"accelerate\.(\w+\.)?Accelerator\.prepare")
        for given in event.arguments.values()
        if given.origin
    }
    # without accelerator.backward nothing has run the step, as DS969 says
    own_backward = any(events.of("backward")) and not any(events.of(BACKWARD))
    steps_in_backward = config.facts.integration is Integration.ACCELERATE and not own_backward
    for event in events.of(r"torch\.nn\.utils\.clip_grad_norm_?", r"torch\.nn\.utils\.clip_grad_value_"):
        given = event.argument("parameters", 0)
        norm = event.argument("max_norm", 1)
        if given is None or event.tells_setups_apart or (norm is not None and _MEASURES.search(norm.raw)):
            continue
        of_engine = given.made == "deepspeed.initialize.parameters" and config.value(STAGE) >= 2
        of_prepared = steps_in_backward and given.origin in prepared and given.origin is not None
        if of_engine or of_prepared:
            yield Finding(
                "",
                f"{event.at.where} clips the gradients with torch, which has no effect: "
                + (
                    "ZeRO has moved them out of the parameters."
                    if of_engine
                    else "accelerator.backward has already run the step of DeepSpeed's engine."
                ),
                help="Set gradient_clipping in the config.",
                elsewhere=event.at.related(""),
            )
            return
