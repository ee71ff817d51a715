"""DS8: functions that Accelerate calls while it saves a checkpoint."""

from __future__ import annotations

import re
from collections.abc import Iterator

from dslint.config import Config
from dslint.diagnostics import Effect, Phase
from dslint.facts import Integration
from dslint.rule import Finding, bad, good, rule
from dslint.rules.helpers.loaders import RAISED_BY_LOADER
from dslint.rules.helpers.save_hooks import Hook, hooks

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
    message='train.py:7 registers a hook that calls weights.pop() (train.py:6): under DeepSpeed accelerator.save_state calls it with an empty list, and it raises "pop from empty list".',
)
@good(_STAGE_2, program=_PROGRAM % "if weights:\n            weights.pop()", integration="accelerate")
@good(_STAGE_2, program=_PROGRAM % "print(model)", integration="accelerate")
def save_hook_takes_weights(config: Config) -> Iterator[Finding]:
    """A hook for `accelerator.save_state` takes weights out of a list that is empty under DeepSpeed.

    DeepSpeed writes the checkpoint itself, so Accelerate calls the hooks of `save_state` with an empty list of weights, and those of
    `load_state` with an empty list of models: `weights.pop()` raises `IndexError: pop from empty list`. Many examples of diffusers have such a
    hook. In a branch for the main process only that rank raises, and the others wait for it.

    Write `if weights: weights.pop()`.
    """
    program = config.setup.program if config.setup else None
    if program is None or config.facts.integration is not Integration.ACCELERATE:
        return
    for hook in hooks(config):
        called = "save_state" if hook.saves else "load_state"
        calls = list(program.events.of(rf"accelerate\.(\w+\.)?Accelerator\.{called}"))
        place = _taken(hook)
        if place is None or not calls or hook.event.tells_setups_apart or hook.event.unlikely:
            continue
        line, name = place
        yield Finding(
            "",
            f"{hook.event.at.where} registers a hook that calls {name}.pop() ({hook.path}:{line}): under DeepSpeed accelerator.{called} calls "
            f'it with an empty list, and it raises "pop from empty list".',
            help=f"Write if {name}: {name}.pop().",
            elsewhere=hook.event.at.related(""),
            certain=hook.saves
            and (hook.event.certain or hook.event.likely)
            and not any(one.unlikely or one.tells_setups_apart for one in calls),
        )
        return


def _taken(hook: Hook) -> tuple[int, str] | None:
    """The line in which a hook takes an element of the list that is empty under DeepSpeed, and the name of the list."""
    name = hook.parameters[1] if hook.saves else hook.parameters[0]
    body = [(number, line.partition("#")[0]) for number, line in hook.lines[1:]]
    asks = re.compile(rf"\b(if|elif|while|and|or|assert|in|for|len)\b.*\b{name}\b|\btry\b|deepspeed|distributed_type", re.IGNORECASE)
    if any(asks.search(line) for _, line in body):
        return None
    return next(((number, name) for number, line in body if re.search(rf"(?<![\w.]){name}\.pop\(", line)), None)
