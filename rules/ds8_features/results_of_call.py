"""DS8: the results of the calls that make an engine."""

from __future__ import annotations

import re
from collections.abc import Iterator

from dslint.config import Config
from dslint.diagnostics import Effect, Phase
from dslint.job.events import ENGINE, UNPACKED
from dslint.rule import Finding, bad, good, rule
from dslint.rules.helpers.examples import ADAMW, trained

_CONFIG = trained('"zero_optimization": {"stage": 2}')
_PREPARED = f'{{{ADAMW.partition(", ")[0]}, "gradient_accumulation_steps": 1, "zero_optimization": {{"stage": 2}}}}'
_ENGINE = "import deepspeed\n%s = deepspeed.initialize(model=model, model_parameters=model.parameters(), config='ds_config.json')\n"
_ACCELERATOR = (
    "from accelerate import Accelerator\naccelerator = Accelerator()\n%s = accelerator.prepare(model, optimizer, loader)\n"
    "for batch in loader:\n    accelerator.backward(model(batch)[0])\n"
)


@rule(
    "DS889",
    effect=Effect.CRASH,
    phase=Phase.INITIALIZE,
    watches=("setup",),
    references=(
        "deepspeed/__init__.py, initialize: it returns engine, optimizer, training_dataloader, lr_scheduler",
        "accelerate/accelerator.py, Accelerator.prepare",
    ),
    untried="raised by Python, in the program",
    setup=True,
)
@bad(
    _CONFIG,
    at="",
    program=_ENGINE % "engine, optimizer",
    integration="deepspeed",
    message='train.py:2 assigns the 4 results of deepspeed.initialize to 2 names: Python raises ValueError "too many values to unpack (expected 2)".',
)
@bad(
    _PREPARED,
    at="",
    program=_ACCELERATOR % "model, optimizer, loader, schedule",
    integration="accelerate",
    message='train.py:3 assigns the 3 results of accelerator.prepare to 4 names: Python raises ValueError "not enough values to unpack (expected 4, got 3)".',
)
@good(_CONFIG, program=_ENGINE % "engine, optimizer, _, _", integration="deepspeed")
@good(_CONFIG, program=_ENGINE % "engine, *rest", integration="deepspeed")
@good(_CONFIG, program=_ENGINE.replace(")\n", ")[:2]\n") % "engine, optimizer", integration="deepspeed")
@good(_CONFIG, program=_ENGINE % "results", integration="deepspeed")
@good(_PREPARED, program=_ACCELERATOR % "model, optimizer, loader", integration="accelerate")
@good(
    _PREPARED,
    program=_ACCELERATOR.replace("prepare(model", "prepare(*models") % "model, optimizer, loader, schedule",
    integration="accelerate",
)
def results_not_unpacked(config: Config) -> Iterator[Finding]:
    """The results of `deepspeed.initialize` or `Accelerator.prepare` are assigned to another number of names.

    `deepspeed.initialize` returns four results, also where the program passes no data and no schedule: the engine, the optimizer, the data
    loader and the schedule. `prepare` returns as many as it gets. Python raises `ValueError` for another number of names.

    Write `engine, optimizer, _, _ = deepspeed.initialize(...)`, or `engine, *_ =` for the engine alone.
    """
    program = config.setup.program if config.setup else None
    if program is None:
        return
    for event in program.events.of(rf"({re.escape(ENGINE)}|accelerate\.Accelerator\.prepare)\.{UNPACKED}"):
        names, results = event.arguments["names"].value, event.arguments["results"].value
        if not event.always:
            continue
        error = (
            f"too many values to unpack (expected {names})"
            if results > names
            else f"not enough values to unpack (expected {names}, got {results})"
        )
        written = re.match(r"[\w.]+", event.at.raw)  # a long call is shortened: "deepspeed.initialize... config=config)"
        called = ENGINE if event.name.startswith(ENGINE) or written is None else written[0].rstrip(".")
        yield Finding(
            "",
            f"{event.at.where} assigns the {results} results of {called} to {names} name{'s' * (names != 1)}: Python raises ValueError "
            f'"{error}".',
            help=f"Write {results} names, or a starred one for the rest.",
            elsewhere=event.at.related(""),
        )
        return
