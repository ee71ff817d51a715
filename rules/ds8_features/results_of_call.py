"""DS8: the results of the calls that make an engine."""

from __future__ import annotations

import re
from collections.abc import Iterator

from dslint.config import Config
from dslint.diagnostics import Effect, Phase
from dslint.job.events import ENGINE, UNPACKED, Events
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
@bad(
    _CONFIG,
    at="",
    program=_ENGINE % "engine" + "for batch in loader:\n    loss = engine(batch)\n    engine.backward(loss)\n",
    integration="deepspeed",
    message="train.py:4 calls engine, but engine is the tuple of the 4 results of deepspeed.initialize (train.py:2): Python raises TypeError \"'tuple' object is not callable\".",
)
@bad(
    _CONFIG,
    at="",
    program=_ENGINE % "engine" + "engine.train()\n",
    integration="deepspeed",
    message="train.py:3 calls engine.train, but engine is the tuple of the 4 results of deepspeed.initialize (train.py:2): Python raises AttributeError \"'tuple' object has no attribute 'train'\".",
)
@good(_CONFIG, program=_ENGINE.replace(")\n", ")[0]\n") % "engine" + "engine.train()\n", integration="deepspeed")
@good(_CONFIG, program=_ENGINE % "engine" + "engine = engine[0]\nengine.train()\n", integration="deepspeed")
@good(_CONFIG, program=_ENGINE % "out" + "engine, optimizer, _, _ = out\nengine.train()\nout[0].train()\n", integration="deepspeed")
@good(_CONFIG, program=_ENGINE % "engine" + "engine, optimizer, _, _ = engine\nengine.train()\n", integration="deepspeed")
@good(
    _CONFIG, program=_ENGINE % "engine" + "if isinstance(engine, tuple):\n    engine = engine[0]\nengine.train()\n", integration="deepspeed"
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

    One name for all of them is a tuple, which has no method of the engine.

    Write `engine, optimizer, _, _ = deepspeed.initialize(...)`, or `engine, *_ =` for the engine alone.
    """
    program = config.setup.program if config.setup else None
    if program is None:
        return
    yield from _used_as_engine(config, program.events)
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


def _used_as_engine(config: Config, events: Events) -> Iterator[Finding]:
    """The first use of the tuple of all results as if it were the engine."""
    texts = {path: one.text for path, one in config.setup.documents.items()} if config.setup is not None else {}
    for made in events.of(re.escape(ENGINE)):
        text, end = texts.get(made.at.path, ""), made.at.range.end.offset if made.at.range is not None else 0
        if not made.bound or not made.always or not text or text[end:].lstrip(" \t)")[:1] not in ("\n", "#", ""):
            continue
        name = made.bound
        for use in events.of(rf"{re.escape(ENGINE)}\.(?!{UNPACKED}$)\w+"):
            here = (use.at.path, use.function) == (made.at.path, made.function) and use.origin == made.start
            written = re.match(rf"{name}(\.(\w+)\(|\()", use.at.raw)
            start = use.at.range.start.offset if use.at.range is not None else 0
            is_set = re.search(rf"\b{name}\b\s*(,[^=\n]*)?=[^=]|[,(]\s*\*?{name}\b[^=\n]*=[^=]", text[end:start])
            if not here or written is None or start < end or is_set is not None or use.unlikely:
                continue
            method = written[2]
            error = (
                f"AttributeError \"'tuple' object has no attribute '{method}'\""
                if method
                else "TypeError \"'tuple' object is not callable\""
            )
            yield Finding(
                "",
                f"{use.at.where} calls {name}{f'.{method}' if method else ''}, but {name} is the tuple of the 4 results of deepspeed.initialize "
                f"({made.at.where}): Python raises {error}.",
                help=f"Write {name}, *_ = deepspeed.initialize(...).",
                elsewhere=use.at.related(""),
                phase=Phase.STEP,
                certain=not use.handled,
            )
            return
