"""DS8: functions that Accelerate calls while it saves a checkpoint."""

from __future__ import annotations

from collections.abc import Iterator

from dslint.config import Config
from dslint.diagnostics import Effect, Phase
from dslint.facts import Integration
from dslint.rule import Finding, bad, good, rule
from dslint.rules.helpers.loaders import RAISED_BY_LOADER

_STAGE_2 = '{"train_micro_batch_size_per_gpu": 4, "zero_optimization": {"stage": 2}}'
_PROGRAM = (
    "from accelerate import Accelerator\naccelerator = Accelerator()\n"
    "def save_model_hook(models, weights, output_dir):\n    for model in models:\n        model.save_pretrained(output_dir)\n        %s\n"
    "accelerator.register_save_state_pre_hook(save_model_hook)\nmodel = accelerator.prepare(model)\n"
    'for batch in loader:\n    accelerator.save_state("out")\n'
)


@rule(
    "DS872",
    effect=Effect.CRASH,
    phase=Phase.SAVE,
    watches=("setup",),
    references=(
        "accelerate/accelerator.py, Accelerator.save_state and load_state",
        "https://github.com/huggingface/diffusers/issues/2606",
    ),
    untried=RAISED_BY_LOADER,
    setup=True,
)
@bad(
    _STAGE_2,
    at="",
    program=_PROGRAM % "weights.pop()",
    integration="accelerate",
    message='train.py:7 registers a hook that calls weights.pop() (train.py:6): under DeepSpeed accelerator.save_state calls the hook with an empty list, for which pop() raises "pop from empty list".',
)
@good(_STAGE_2, program=_PROGRAM % "if weights:\n            weights.pop()", integration="accelerate")
@good(_STAGE_2, program=_PROGRAM % "print(model)", integration="accelerate")
@good(
    _STAGE_2,
    program=_PROGRAM.replace("    for model", '    if accelerator.distributed_type != "NO":\n        return\n    for model')
    % "weights.pop()",
    integration="accelerate",
)
def save_hook_takes_weights(config: Config) -> Iterator[Finding]:
    """A hook for `accelerator.save_state` takes weights out of a list that is empty under DeepSpeed.

    DeepSpeed writes the checkpoint itself, so Accelerate calls the hooks of `save_state` with an empty list of weights, and those of
    `load_state` with an empty list of models: `weights.pop()` raises `IndexError: pop from empty list`. Many examples of diffusers have such a
    hook. In a branch for the main process only that rank raises, and the others wait for it.

    Write `if weights: weights.pop()`. The models are DeepSpeed's engines: a hook that compares their classes has to unwrap them first, with
    `accelerator.unwrap_model`.
    """
    program = config.setup.program if config.setup else None
    if program is None or config.facts.integration is not Integration.ACCELERATE:
        return
    calls = list(program.events.of(r"accelerate\.(\w+\.)?Accelerator\.(save|load)_state"))
    registered = {
        event.start: event for event in program.events.of(r"accelerate\.(\w+\.)?Accelerator\.register_(save|load)_state_pre_hook")
    }
    for event in program.events.of(r"accelerate\.(save_hook\.weights|load_hook\.models)\.pop"):
        hook, saves = registered.get(event.origin or 0), event.name.endswith("weights.pop")
        called = "save_state" if saves else "load_state"
        by = [one for one in calls if one.name.endswith(called)]
        if hook is None or not by or event.unlikely or event.handled or event.tells_setups_apart:
            continue
        yield Finding(
            "",
            f"{hook.at.where} registers a hook that calls {event.called}() ({event.at.where}): under DeepSpeed accelerator.{called} calls "
            f'the hook with an empty list, for which pop() raises "pop from empty list".',
            help=f"Write if {event.called.removesuffix('.pop')}: {event.called}()."
            + " The hook gets the engine in place of the model: unwrap it before its class is compared." * saves,
            elsewhere=hook.at.related(""),
            certain=saves and (hook.certain or hook.likely) and not any(one.unlikely or one.tells_setups_apart for one in by),
        )
        return
