"""DS6: a schedule of the engine that the program steps, too."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from dslint.config import Config
from dslint.diagnostics import Effect
from dslint.facts import Integration
from dslint.job.events import ENGINE, RETURNED_SCHEDULE, Event
from dslint.rule import Finding, bad, good, rule
from dslint.rules.helpers.examples import ADAMW, MINIMAL
from dslint.rules.helpers.parameters import runs_scheduler
from dslint.rules.helpers.syntax import statements_around, tree_of

_PROGRAM = (
    "import deepspeed\nimport torch\nfrom transformers import get_cosine_schedule_with_warmup\n"
    "optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)\nschedule = get_cosine_schedule_with_warmup(optimizer, 100, 10000)\n"
    "engine, optimizer, _, %s = deepspeed.initialize(model=model, optimizer=optimizer%s, config='ds_config.json')\n"
    "for epoch in range(3):\n    for batch in loader:\n        engine.backward(engine(batch))\n        engine.step()\n%s"
)
_GIVEN = ", lr_scheduler=schedule"
_IN_LOOP = "        schedule.step()\n"
_PER_EPOCH = "    schedule.step()\n"
_ZERO_2 = f'{{{MINIMAL}, "zero_optimization": {{"stage": 2}}}}'
_WARMUP = f'{{{ADAMW}, "scheduler": {{"type": "WarmupLR", "params": {{"warmup_num_steps": 100}}}}, "zero_optimization": {{"stage": 2}}}}'


_WITH_AND_WITHOUT = """\
import deepspeed
from accelerate import Accelerator
from transformers import get_scheduler


def prepare_training():
    return get_scheduler("linear", optimizer=optimizer, num_training_steps=100)


def with_engine():
    schedule = prepare_training()
    engine, *_ = deepspeed.initialize(model=model, optimizer=optimizer, lr_scheduler=schedule, config="ds_config.json")
    for batch in loader:
        engine.backward(engine(batch))
        engine.step()


def without():
    schedule = prepare_training()
    for batch in loader:
        model(batch).backward()
        optimizer.step()
        schedule.step()


with_engine()
without()
"""
"""Two trainings whose schedules one helper makes."""


@rule(
    "DS660",
    effect=Effect.SILENT,
    watches=("setup",),
    references=(
        "deepspeed/runtime/engine.py, DeepSpeedEngine._take_model_step",
        "https://deepspeed.readthedocs.io/en/latest/schedulers.html",
        "https://github.com/lucidrains/DALLE-pytorch/issues/278",
    ),
    setup=True,
)
@bad(
    _ZERO_2,
    at="",
    program=_PROGRAM % ("schedule", _GIVEN, _IN_LOOP),
    integration="deepspeed",
    message="train.py:11 calls schedule.step(), and engine.step (train.py:10) steps this schedule after each update of the weights: it advances more than once for each update, and the warm-up and the decay end too early.",
)
@bad(
    _ZERO_2,
    at="",
    program=_PROGRAM % ("_", _GIVEN, _PER_EPOCH),
    integration="deepspeed",
    message="train.py:11 calls schedule.step() once for many batches, and engine.step (train.py:10) steps this schedule after each update of the weights: a schedule that counts epochs ends within the first of them.",
)
@bad(
    _WARMUP,
    at="",
    program=_PROGRAM % ("_", "", "        engine.lr_scheduler.step()\n"),
    integration="deepspeed",
    message="train.py:11 calls engine.lr_scheduler.step(), and engine.step (train.py:10) steps this schedule after each update of the weights: it advances more than once for each update, and the warm-up and the decay end too early.",
)
@good(_ZERO_2, program=_WITH_AND_WITHOUT, integration="deepspeed")
@good(_ZERO_2, program=_PROGRAM % ("_", "", _IN_LOOP), integration="deepspeed")
@good(_ZERO_2, program=_PROGRAM % ("_", _GIVEN, ""), integration="deepspeed")
@good(_ZERO_2, program=_PROGRAM % ("schedule", _GIVEN, "        schedule.step(engine.global_steps)\n"), integration="deepspeed")
@good(
    _ZERO_2,
    program=(_PROGRAM % ("schedule", _GIVEN, "")).replace("for epoch", "for _ in range(done):\n    schedule.step()\nfor epoch"),
    integration="deepspeed",
)
@good(_WARMUP, program=_PROGRAM % ("_", "", _IN_LOOP), integration="deepspeed")
@good(
    _ZERO_2,
    program=_PROGRAM % ("schedule", _GIVEN, "        if not args.deepspeed:\n            schedule.step()\n"),
    integration="deepspeed",
)
@good(
    _ZERO_2,
    program=(_PROGRAM % ("schedule", _GIVEN, _IN_LOOP)).replace("        engine.step()\n", ""),
    integration="deepspeed",
)
def schedule_stepped_twice(config: Config) -> Iterator[Finding]:
    """The program steps a schedule that the engine steps, too.

    `engine.step()` steps the schedule after each update of the weights: the one that the program passes to `deepspeed.initialize` as
    `lr_scheduler`, else the one of the section `scheduler`. A `step()` of the program comes on top. After every batch it makes the schedule
    twice as fast: the learning rate reaches its end in the middle of the run. A schedule that counts epochs, which the program steps
    after each of them, ends within a few batches, because the engine counts updates.

    Remove the program's `step()`, or leave the schedule out of `deepspeed.initialize` and step it in the program only.
    """
    program = config.setup.program if config.setup else None
    if program is None or config.facts.integration is not Integration.DEEPSPEED:
        return
    makers = list(program.events.of(re.escape(ENGINE)))
    updates = [one for one in program.events.of(rf"{re.escape(ENGINE)}\.(step|train_batch)") if one.loops]
    if len(makers) != 1 or not updates:
        return
    for event in _steps_of_schedule(config, makers[0]):
        update = next((one for one in updates if not event.excludes(one)), None)
        if update is None or event.tells_setups_apart or event.unlikely or event.handled or not event.loops:
            continue
        if event.arguments or not event.complete or _replays(config, event):
            continue  # it sets the schedule to a step, or brings it to the step of a checkpoint
        after_many = event.function == update.function and event.loops < update.loops
        outcome = (
            "a schedule that counts epochs ends within the first of them"
            if after_many
            else "it advances more than once for each update, and the warm-up and the decay end too early"
        )
        yield Finding(
            "",
            f"{event.at.where} calls {event.called}(){' once for many batches' if after_many else ''}, and {update.called} ({update.at.where}) "
            f"steps this schedule after each update of the weights: {outcome}.",
            help="Remove this call, or leave the schedule out of deepspeed.initialize and of the config, and step it here only.",
            elsewhere=event.at.related(""),
            related=(makers[0].at.related("the engine gets the schedule here"),),
        )
        return


def _steps_of_schedule(config: Config, maker: Event) -> Iterator[Event]:
    """The calls of the `step` of the schedule that an engine has, by what the engine returns or by what it was given."""
    program = config.setup.program if config.setup else None
    given = maker.argument("lr_scheduler", 5)
    passed = given is not None and given.value is not None
    if program is None or not (passed or (maker.complete and runs_scheduler(config))):
        return
    for event in program.events.of(r".*\.step"):
        is_given = passed and given is not None and given.origin is not None and event.origin == given.origin
        if is_given or event.name == f"{RETURNED_SCHEDULE}.step":
            yield event


def _replays(config: Config, event: Event) -> bool:
    """Whether the loop around a call does nothing else, as one that brings a new schedule to the step of a checkpoint."""
    loops = [one for one in statements_around(tree_of(config, event.at.path), event) if isinstance(one, ast.For | ast.While)]
    return bool(loops) and all(isinstance(one, ast.Expr) and ".step(" in ast.unparse(one) for one in loops[-1].body)
