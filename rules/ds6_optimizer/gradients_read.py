"""DS6: gradients that a program reads where DeepSpeed has moved them out of the weights."""

from __future__ import annotations

from collections.abc import Iterator

from dslint.config import Config
from dslint.diagnostics import Effect, Phase
from dslint.facts import Integration
from dslint.job.events import ENGINE
from dslint.job.gradient_read import CALLBACK, LOOP, GradientRead
from dslint.rule import Finding, bad, good, rule
from dslint.rules.helpers.zero import STAGE

_CONFIG = '{"train_micro_batch_size_per_gpu": 4, "gradient_accumulation_steps": 1, "zero_optimization": {"stage": %d}}'
_TRAINED = _CONFIG[:-1] + ', "optimizer": {"type": "AdamW", "params": {"lr": 1e-5}}}'
_ACCELERATOR = (
    "from accelerate import Accelerator\nimport torch\naccelerator = Accelerator()\n"
    "model, optimizer, loader = accelerator.prepare(model, torch.optim.AdamW(model.parameters()), loader)\n"
    "for batch in loader:\n    accelerator.backward(model(batch)[0])\n"
)
_ENGINE = (
    'import deepspeed\nengine, *_ = deepspeed.initialize(model=model, model_parameters=model.parameters(), config="ds_config.json")\n'
    "for batch in loader:\n    engine.backward(engine(batch)[0])\n"
)
_READ = "    norms = [weight.grad.norm() for weight in model.parameters() if weight.grad is not None]\n"
_CALLBACK = (
    "from transformers import AutoModel, Trainer, TrainerCallback, TrainingArguments\n"
    "class Norms(TrainerCallback):\n    def on_pre_optimizer_step(self, args, state, control, model=None, **kwargs):\n"
    "        for name, weight in model.named_parameters():\n            if weight.grad is not None:\n                print(name, weight.grad.norm())\n"
    "arguments = TrainingArguments('out', deepspeed='ds_config.json')\n"
    "Trainer(AutoModel.from_pretrained('m'), arguments, callbacks=[Norms()]).train()\n"
)


@rule(
    "DS661",
    effect=Effect.IGNORED,
    watches=("setup",),
    references=(
        "deepspeed/runtime/zero/stage_1_and_2.py, independent_gradient_partition_epilogue",
        "deepspeed/runtime/zero/stage3.py, partition_grads",
        "accelerate/utils/deepspeed.py, DeepSpeedEngineWrapper.backward: the step is part of it",
        "https://github.com/huggingface/transformers/pull/31095",
        "https://deepspeed.readthedocs.io/en/latest/zero3.html#debugging",
    ),
    setup=True,
)
@bad(
    _CONFIG % 2,
    at="",
    program=f"{_ACCELERATOR}{_READ}    optimizer.step()\n",
    integration="accelerate",
    message="train.py:7 reads weight.grad, which is None there: accelerator.backward has run the step of DeepSpeed's engine by then, which drops the gradients.",
)
@bad(
    _TRAINED % 2,
    at="",
    program=f"{_ENGINE}    for name, weight in engine.module.named_parameters():\n        print(name, weight.grad.norm())\n    engine.step()\n",
    integration="deepspeed",
    message="train.py:6 reads weight.grad, which is None there: in the backward pass ZeRO moves the gradients out of the weights. It may raise AttributeError \"'NoneType' object has no attribute ...\".",
)
@bad(
    _TRAINED % 1,
    at="",
    program=_CALLBACK,
    integration="transformers",
    message="train.py:6 reads weight.grad, which is None there: the Trainer calls the callback behind the step of DeepSpeed's engine, which drops the gradients.",
)
@good(_CONFIG % 2, program=f"{_ACCELERATOR}    if not is_deepspeed:\n    {_READ}    optimizer.step()\n", integration="accelerate")
@good(_TRAINED % 0, program=f"{_ENGINE}{_READ}    engine.step()\n", integration="deepspeed")
@good(
    _TRAINED % 2,
    program=f"{_ENGINE}    norms = [deepspeed.utils.safe_get_full_grad(weight).norm() for weight in engine.module.parameters()]\n    engine.step()\n",
    integration="deepspeed",
)
@good(
    _CONFIG % 2,
    program=f"{_ACCELERATOR}    for weight in model.parameters():\n        weight.grad = None\n",
    integration="accelerate",
)
def gradients_read(config: Config) -> Iterator[Finding]:
    """The program reads the gradients of weights where DeepSpeed has moved them elsewhere: `weight.grad` is None.

    In the backward pass ZeRO moves the gradients into buffers of its own, at stage 1 with the last batch of a step, and the step of the engine
    drops them at every stage. Under DeepSpeed `accelerator.backward` ends with that step, so a program on Accelerate and the callbacks of the
    Trainer never see a gradient. A norm that is logged is 0, a mask or a noise for the gradients does nothing, and what does not ask for None
    raises AttributeError.

    Log `engine.get_global_grad_norm()`; the Trainer logs `grad_norm` itself. Read single gradients with `deepspeed.utils.safe_get_full_grad`
    between `engine.backward` and `engine.step`, in a loop without Accelerate, or change them in a hook: `weight.register_hook(...)`.
    """
    program = config.setup.program if config.setup else None
    for read in program.gradient_reads if program is not None else ():
        why = _why(config, read)
        if why:
            yield Finding(
                "",
                f"{read.at.where} reads {read.at.raw}, which is None there: {why}."
                + (" It may raise AttributeError \"'NoneType' object has no attribute ...\"." if read.raises else ""),
                help="Log engine.get_global_grad_norm(), or read gradients with deepspeed.utils.safe_get_full_grad between engine.backward and "
                "engine.step.",
                elsewhere=read.at.related(""),
                effect=Effect.CRASH if read.raises else Effect.IGNORED,
                phase=Phase.STEP if read.raises else None,
                certain=not read.raises,
            )
            return


_DROPS = "the step of DeepSpeed's engine"


def _why(config: Config, read: GradientRead) -> str:
    """Why there is no gradient; "" if there may be one."""
    if read.after != LOOP:
        if config.facts.integration is not Integration.TRANSFORMERS:
            return ""
        if read.after == CALLBACK:
            return f"the Trainer calls the callback behind {_DROPS}, which drops the gradients"
        return f"the backward pass of the Trainer ends with {_DROPS}, which drops the gradients" if _drops_all(config) else ""
    program = config.setup.program if config.setup else None
    passes = [one for one in program.events.all if one.start == read.backward] if program is not None else []
    event = next((one for one in passes if one.name.endswith(".backward")), None)
    if event is None or event.unlikely or event.tells_setups_apart:
        return ""
    if event.name.startswith("accelerate."):
        by_accelerate = config.facts.integration is Integration.ACCELERATE and _drops_all(config)
        return f"accelerator.backward has run {_DROPS} by then, which drops the gradients" if by_accelerate else ""
    if event.name != f"{ENGINE}.backward" or _keeps_gradients(config):
        return ""
    if config.value(STAGE) >= 2 or (config.value(STAGE) == 1 and _accumulates_none(config)):
        return "in the backward pass ZeRO moves the gradients out of the weights"
    return f"{_DROPS} drops the gradients" if read.stepped and _accumulates_none(config) else ""


def _drops_all(config: Config) -> bool:
    """Whether no batch leaves a gradient: below stage 2 a batch does that the engine makes no step for."""
    return config.value(STAGE) >= 2 or _accumulates_none(config)


def _keeps_gradients(config: Config) -> bool:
    """Whether DeepSpeed takes its BF16_Optimizer, which leaves the gradients in the weights: with bf16 and sums in fp32 below stage 2."""
    return config.value(STAGE) < 2 and config.value("bf16.enabled") is True and config.value("data_types.grad_accum_dtype") == "fp32"


def _accumulates_none(config: Config) -> bool:
    return bool(config.value("gradient_accumulation_steps") == 1)
