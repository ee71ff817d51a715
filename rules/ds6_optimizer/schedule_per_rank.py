"""DS6: schedules that Accelerate advances once for each rank."""

from __future__ import annotations

import re
from collections.abc import Iterator

from dslint.config import Config
from dslint.diagnostics import Effect
from dslint.facts import Integration, Release
from dslint.job.events import Event, GivenArgument, is_true
from dslint.rule import Finding, bad, good, rule
from dslint.rules.helpers.prepare import PREPARE

_STANDS_STILL = Release(0, 23, 0), Release(0, 25, 0)
"""Releases of Accelerate that advance a schedule of torch once per step, on any number of ranks (DS986)."""

_ACCELERATOR = r"accelerate\.(\w+\.)*Accelerator"
_LENGTHS = {
    r"(transformers|diffusers)\.(\w+\.)*get_scheduler": ("num_training_steps", 3),
    r"(transformers|diffusers)\.(\w+\.)*get_(linear|cosine|polynomial_decay)_schedule_with_warmup": ("num_training_steps", 2),
    r"torch\.optim\.lr_scheduler\.CosineAnnealingLR": ("T_max", 1),
    r"accelerate\.(\w+\.)*DummyScheduler": ("total_num_steps", 1),
}
"""What makes a schedule that ends, with the argument for its length."""
_KEEPS_RATE = ("constant", "constant_with_warmup", "piecewise_constant")

_STAGE_2 = '{"train_micro_batch_size_per_gpu": 4, "gradient_accumulation_steps": 1, "zero_optimization": {"stage": 2}}'
_LOOP = (
    "import torch\nfrom accelerate import Accelerator\nfrom transformers import get_scheduler\naccelerator = Accelerator(%s)\n"
    "optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)\nsteps = 1000%s\n"
    "schedule = get_scheduler('cosine', optimizer, num_warmup_steps=0, num_training_steps=steps%s)\n"
    "model, optimizer, loader, schedule = accelerator.prepare(model, optimizer, loader, schedule)\ncompleted_steps = 0\n"
    "for batch in loader:\n    accelerator.backward(model(batch)[0])\n    optimizer.step()\n    schedule.step()\n    completed_steps += 1\n"
    "    if completed_steps >= steps:\n        break\n"
)


@rule(
    "DS663",
    effect=Effect.SILENT,
    watches=("setup",),
    references=(
        "accelerate/scheduler.py, AcceleratedScheduler.step",
        "accelerate/accelerator.py, Accelerator._prepare_deepspeed: total_num_steps of a DummyScheduler",
        "https://github.com/huggingface/accelerate/issues/2142",
        "https://github.com/jzhang38/EasyContext/issues/21",
    ),
    needs=("world_size",),
    setup=True,
)
@bad(
    _STAGE_2,
    at="",
    program=_LOOP % ("", "", ""),
    integration="accelerate",
    world_size=8,
    message="train.py:7 makes a schedule of 1000 steps, after which the training ends. Accelerate advances it once for each of 8 ranks at every step, so it ends after 125 steps.",
)
@bad(
    _STAGE_2,
    at="",
    program=(_LOOP % ("", "", "")).replace("    schedule.step", "    if completed_steps % accumulation == 0:\n        schedule.step"),
    integration="accelerate",
    world_size=8,
    message="train.py:7 makes a schedule of 1000 steps, after which the training ends. Accelerate advances it once for each of 8 ranks at every step, so it ends after 125 steps.",
)
@good(_STAGE_2, program=_LOOP % ("", "", " * accelerator.num_processes"), integration="accelerate", world_size=8)
@good(_STAGE_2, program=_LOOP % ("split_batches=True", "", ""), integration="accelerate", world_size=8)
@good(
    _STAGE_2,
    program=_LOOP % ("dataloader_config=DataLoaderConfiguration(split_batches=True)", "", ""),
    integration="accelerate",
    world_size=8,
)
@good(_STAGE_2, program=(_LOOP % ("", "", "")).replace("    schedule.step()\n", ""), integration="accelerate", world_size=8)
@good(_STAGE_2, program=(_LOOP % ("", "", "")).replace("+= 1", "+= accelerator.num_processes"), integration="accelerate", world_size=8)
@good(
    _STAGE_2.replace('_steps": 1', '_steps": 8'),
    program=(_LOOP % ("gradient_accumulation_steps=8", "", ""))
    .replace("completed_steps", "global_step")
    .replace("    accelerator.backward", "    with accelerator.accumulate(model):\n     accelerator.backward"),
    integration="accelerate",
    world_size=8,
)
@good(
    _STAGE_2,
    program=(_LOOP % ("", "", "")).replace("    schedule.step", "    if completed_steps % 8 == 0:\n        schedule.step"),
    integration="accelerate",
    world_size=8,
)
@good(_STAGE_2, program=_LOOP % ("step_scheduler_with_optimizer=False", "", ""), integration="accelerate", world_size=8)
@good(_STAGE_2, program=_LOOP % ("", "", ""), integration="accelerate", world_size=1)
@good(_STAGE_2, program=(_LOOP % ("", "", "")).replace("'cosine'", "'constant_with_warmup'"), integration="accelerate", world_size=8)
def schedule_per_rank(config: Config) -> Iterator[Finding]:
    """A schedule for the steps of the training is given to Accelerate, which advances it once for each rank at every step.

    Accelerate expects the length of a schedule in batches of one rank. At each step of the optimizer the schedule that `prepare` returns
    advances as often as there are ranks, and of a `DummyScheduler` Accelerate divides `total_num_steps` by their number. A schedule whose
    length is the number of steps at which the training ends is over after a part of it: the learning rate is 0 from then on, or grows again
    with `CosineAnnealingLR`. The warm-up of a schedule of torch is shorter by the same factor.

    A length that comes from the data loader before `prepare` counts the batches of all ranks, and is right.

    Multiply the lengths by `accelerator.num_processes`, or do not give the schedule to `prepare`.
    """
    program = config.setup.program if config.setup else None
    ranks, pinned = config.facts.world_size, config.context.pinned("accelerate")
    if program is None or ranks is None or ranks < 2 or config.facts.integration is not Integration.ACCELERATE:
        return
    if any(
        _splits_batches(one) or not one.complete or _is_off(one.argument("step_scheduler_with_optimizer"))
        for one in program.events.of(_ACCELERATOR)
    ):
        return
    prepared = {given.origin for event in program.events.of(PREPARE) for given in event.arguments.values() if given.origin is not None}
    for event in program.events.of(*_LENGTHS):
        length = _length(event)
        if (
            length is None
            or event.start not in prepared
            or event.unlikely
            or event.tells_setups_apart
            or any(_skips_batches(one) for one in program.events.of(r".*\.step") if one.origin == event.start)
            or not _ends_training(config, length)
        ):
            continue
        is_stand_in = event.name.endswith("DummyScheduler")
        if (is_stand_in and _writes_length(config)) or (not is_stand_in and pinned is not None and _is_between(pinned)):
            continue
        does = (
            f"Accelerate divides this by the {ranks} ranks"
            if is_stand_in
            else f"Accelerate advances it once for each of {ranks} ranks at every step"
        )
        yield Finding(
            "",
            f"{event.at.where} makes a schedule of {length.value} steps, after which the training ends. {does}, so it ends after "
            f"{-(-length.value // ranks)} steps.",
            help=f"Multiply {'total_num_steps' if is_stand_in else 'the steps of the schedule, and of its warm-up,'} by accelerator.num_processes.",
            elsewhere=event.at.related(""),
            certain=event.certain,
        )
        return


def _splits_batches(accelerator: Event) -> bool:
    return is_true(accelerator.argument("split_batches")) or accelerator.argument("dataloader_config") is not None


def _is_off(given: GivenArgument | None) -> bool:
    return given is not None and given.value is not True


def _length(event: Event) -> GivenArgument | None:
    """The length of a schedule that changes the rate until its end, if it is a number."""
    kind = event.argument("name", 0)
    if event.name.endswith("get_scheduler") and (kind is None or not isinstance(kind.value, str) or kind.value in _KEEPS_RATE):
        return None
    given = next(event.argument(*where) for names, where in _LENGTHS.items() if re.fullmatch(names, event.name))
    return given if given is not None and type(given.value) is int and given.value > 1 else None


_COUNTS_UPDATES = r"(?:completed|update|optimi[sz]er|optim)_?(?:train_?)?steps?"
_COUNTS = r"(?:completed|global|update|optimi[sz]er|optim|train|total|current|cur)_?(?:train_?)?steps?"
_COUNTS_BATCHES = rf"(?:{_COUNTS}|steps?|it|i)"
_ACCUMULATES = re.compile(r"sync_gradients|%\s*[\w.]*accum")
"""A program that counts at each update. Without it `global_step` may count batches, several for each step of the schedule."""
_STEPS = re.compile(r"sched\w*\.step\(\s*\)", re.IGNORECASE)


def _skips_batches(step: Event) -> bool:
    """Whether a program steps its schedule only after every so many batches, for another reason than that it accumulates gradients."""
    return any("%" in one.text and not _ACCUMULATES.search(one.text) for one in step.conditions)


def _ends_training(config: Config, length: GivenArgument) -> bool:
    """Whether the training ends at the number of steps that a schedule is made for, by the expression for both."""
    documents = config.setup.documents.values() if config.setup is not None else ()
    texts = [one.text for one in documents if one.language == "python"]
    return any(_STEPS.search(one) for one in texts) and any(_ends_at(config, length, one) for one in texts)


def _ends_at(config: Config, length: GivenArgument, text: str) -> bool:
    by_batch = config.value("gradient_accumulation_steps") == 1
    counts = _COUNTS_BATCHES if by_batch else _COUNTS if _ACCUMULATES.search(text) else _COUNTS_UPDATES
    steps = rf"(?:self\.)?{re.escape(length.raw)}(?![\w.\[(]|\s*[*/+-])"
    end = re.compile(rf"\b({counts})\s*(?:>=|==|<)\s*{steps}|\bfor {_COUNTS_BATCHES} in (?:tqdm\()?range\((?:\w+,\s*)?{steps}")
    found = list(end.finditer(text))
    return any(one[1] is None or re.search(rf"\b{re.escape(one[1])}\s*\+=(?!\s*1\b)", text) is None for one in found)


def _writes_length(config: Config) -> bool:
    """Whether the config has a length of its own, which Accelerate leaves."""
    return not config.is_auto("scheduler.params.total_num_steps")


def _is_between(release: Release) -> bool:
    first, last = _STANDS_STILL
    return first <= release <= last
