"""DS8: calls that need the process group, after the program has destroyed it."""

from __future__ import annotations

import re
from collections.abc import Iterator

from dslint.config import Config
from dslint.diagnostics import Effect, Phase
from dslint.facts import Release
from dslint.job.events import ENGINE, Event
from dslint.rule import Finding, bad, good, rule
from dslint.rules.helpers.loaders import RAISED_BY_LOADER
from dslint.rules.helpers.zero import STAGE

_DESTROYS_SINCE = Release(0, 34, 0)
"""The first Accelerate whose `end_training` destroys the process group."""

_ACCELERATOR = r"accelerate\.(\w+\.)*Accelerator"
_DIST = r"(torch\.distributed|deepspeed\.comm)"
_ENDS = rf"{_ACCELERATOR}\.end_training|{_DIST}\.destroy_process_group"
_MAKES_GROUP = rf"{_ACCELERATOR}|{_DIST}\.init_process_group|deepspeed\.(comm\.)?init_distributed|{re.escape(ENGINE)}"
_COLLECTIVES = (
    rf"{_ACCELERATOR}\.(wait_for_everyone|gather|gather_for_metrics|reduce|save_state|load_state)"
    rf"|{re.escape(ENGINE)}\.(save_checkpoint|load_checkpoint)|{_DIST}\.(barrier|all_reduce|all_gather\w*|broadcast\w*|reduce)"
)
_AT_STAGE_3 = rf"{_ACCELERATOR}\.(get_state_dict|save_model)|{re.escape(ENGINE)}\.(save_16bit_model|save_fp16_model|__call__)"

_STAGE_2 = '{"train_micro_batch_size_per_gpu": 4, "gradient_accumulation_steps": 1, "zero_optimization": {"stage": 2}}'
_STAGE_3 = _STAGE_2.replace("2}}", '3, "stage3_gather_16bit_weights_on_model_save": true}}')
_LOOP = (
    "import torch\nfrom accelerate import Accelerator\naccelerator = Accelerator()\n"
    "model, optimizer, loader = accelerator.prepare(model, optimizer, loader)\nfor batch in loader:\n    accelerator.backward(model(batch)[0])\n"
)


@rule(
    "DS880",
    effect=Effect.CRASH,
    phase=Phase.SAVE,
    watches=("setup",),
    references=(
        "accelerate/accelerator.py, Accelerator.end_training since 0.34.0",
        "https://github.com/huggingface/accelerate/issues/3315",
    ),
    untried=RAISED_BY_LOADER,
    setup=True,
)
@bad(
    _STAGE_2,
    at="",
    program=f"{_LOOP}accelerator.end_training()\naccelerator.wait_for_everyone()\n",
    integration="accelerate",
    message='train.py:8 calls accelerator.wait_for_everyone after accelerator.end_training in train.py:7, which destroys the process group: it raises ValueError "Default process group has not been initialized".',
)
@bad(
    _STAGE_3,
    at="",
    program=f"{_LOOP}accelerator.end_training()\nstate = accelerator.get_state_dict(model)\n",
    integration="accelerate",
    message='train.py:8 calls accelerator.get_state_dict after accelerator.end_training in train.py:7, which destroys the process group: it raises ValueError "Default process group has not been initialized".',
)
@good(_STAGE_2, program=f"{_LOOP}accelerator.end_training()\nstate = accelerator.get_state_dict(model)\n", integration="accelerate")
@good(
    _STAGE_2,
    program="import torch.distributed as dist\n"
    + _LOOP.replace("for batch", "try:\n  for batch")
    + "except KeyboardInterrupt:\n  dist.destroy_process_group()\n  raise SystemExit\naccelerator.wait_for_everyone()\n",
    integration="accelerate",
)
@good(
    _STAGE_2,
    program=f"import torch.distributed as dist\n{_LOOP}dist.destroy_process_group(dist.new_group([0]))\naccelerator.wait_for_everyone()\n",
    integration="accelerate",
)
@good(_STAGE_2, program=f"{_LOOP}accelerator.wait_for_everyone()\naccelerator.end_training()\n", integration="accelerate")
def collective_after_the_end(config: Config) -> Iterator[Finding]:
    """A program makes a call that needs the process group after it has destroyed the group.

    `Accelerator.end_training` destroys the process group since Accelerate 0.34.0, as `torch.distributed.destroy_process_group` does. What waits
    for other ranks or collects from them raises an error afterwards: the weights are lost if they are saved then. At ZeRO stage 3
    `get_state_dict` collects the weights.

    Move the call before the end.
    """
    program = config.setup.program if config.setup else None
    if program is None:
        return
    at_stage_3 = f"|{_AT_STAGE_3}" if config.value(STAGE) >= 3 else ""
    collective = re.compile(f"{_COLLECTIVES}{at_stage_3}")
    pinned = config.context.pinned("accelerate")
    end: Event | None = None
    for event in program.events.all:
        if re.fullmatch(_MAKES_GROUP, event.name):
            end = None
        elif re.fullmatch(_ENDS, event.name):
            keeps_group = event.name.endswith("end_training") and pinned is not None and pinned < _DESTROYS_SINCE
            end = event if end is None and not keeps_group and _ends_always(event) else end
        elif end is not None and collective.fullmatch(event.name) and _follows(event, end):
            yield Finding(
                "",
                f"{event.at.where} calls {event.called} after {end.called} in {end.at.where}, which destroys the process group: it raises "
                f"{'ValueError ' if event.name.startswith('accelerate.') or '.distributed.' in event.name else 'an error such as '}"
                '"Default process group has not been initialized".',
                help=f"Call it before {end.called}.",
                elsewhere=event.at.related(""),
                related=(end.at.related("the end"),),
            )
            return


def _ends_always(event: Event) -> bool:
    """Whether a program goes on behind the end of all groups: not in a loop, and with no condition but whether there is a group."""
    if event.argument("group", 0) is not None or not event.complete:
        return False
    return not event.loops and not event.unlikely and all("is_initialized" in one.text for one in event.conditions)


def _follows(event: Event, end: Event) -> bool:
    return event.flow == end.flow and not event.conditions and not event.handled and event.certain and not event.tells_setups_apart
