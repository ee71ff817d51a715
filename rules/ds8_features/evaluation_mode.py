"""DS8: a training loop that leaves its model in evaluation mode."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from dslint.config import Config
from dslint.diagnostics import Effect, Phase
from dslint.facts import Release
from dslint.job.events import Event, Events
from dslint.rule import Finding, bad, good, rule
from dslint.rules.helpers.examples import ADAMW
from dslint.rules.helpers.models import ENGINES, managed_models
from dslint.rules.helpers.prepare import BACKWARD
from dslint.rules.helpers.releases import release_of
from dslint.rules.helpers.syntax import statements_around, tree_of
from dslint.rules.helpers.zero import STAGE

_LAST_REFUSING = Release(0, 15, 3)
"""The last release that asserts that each module is in training mode (deepspeed/runtime/zero/parameter_offload.py, of 0.15.3 and 0.15.4)."""

_BACKWARD = rf"deepspeed\.initialize\.backward|{BACKWARD}"

_CONFIG = f'{{{ADAMW}, "zero_optimization": {{"stage": 2}}}}'
_LOOP = (
    "import deepspeed\nfrom transformers import AutoModelForCausalLM\nmodel = AutoModelForCausalLM.from_pretrained('m')\n"
    "engine, *_ = deepspeed.initialize(model=model, model_parameters=model.parameters(), config='ds_config.json')\n"
    "engine.train()\nfor epoch in range(3):\n%s    for batch in loader:\n        engine.backward(engine(**batch).loss)\n        engine.step()\n%s"
)
_EVAL = "    engine.eval()\n    for batch in others:\n        print(engine(**batch).loss)\n"
_AGAIN = "    engine.train()\n"


@rule(
    "DS892",
    effect=Effect.SILENT,
    watches=("setup",),
    references=(
        "torch/nn/modules/module.py, Module.eval",
        "deepspeed/runtime/zero/parameter_offload.py of 0.15.3, DeepSpeedZeRoOffload.pre_sub_module_backward_function",
        "https://github.com/Lightning-AI/pytorch-lightning/issues/19467",
    ),
    setup=True,
)
@bad(
    _CONFIG,
    at="",
    program=_LOOP % ("", _EVAL),
    integration="deepspeed",
    message="train.py:10 calls engine.eval in the loop that trains the model (train.py:8), and nothing in it calls train() again: from the next pass on it trains in evaluation mode, without dropout.",
)
@bad(
    _CONFIG.replace('"stage": 2', '"stage": 3'),
    at="",
    program=_LOOP % ("", _EVAL),
    integration="deepspeed",
    deepspeed="0.14.4",
    message='train.py:10 calls engine.eval in the loop that trains the model (train.py:8), and nothing in it calls train() again: the next backward pass may raise AssertionError "backward pass is invalid for module in evaluation mode".',
)
@bad(
    _CONFIG,
    at="",
    program=_LOOP.replace("        engine.step()\n", "        engine.step()\n        if step > 100:\n            engine.eval()\n")
    % ("", ""),
    integration="deepspeed",
    message="train.py:11 calls engine.eval in the loop that trains the model (train.py:8), and nothing in it calls train() again: from the next pass on it trains in evaluation mode, without dropout.",
)
@good(_CONFIG, program=_LOOP % (_AGAIN, _EVAL), integration="deepspeed")
@good(_CONFIG, program=_LOOP % ("", _EVAL + _AGAIN), integration="deepspeed")
@good(_CONFIG, program=_LOOP % ("", "engine.eval()\nfor batch in others:\n    print(engine(**batch).loss)\n"), integration="deepspeed")
@good(_CONFIG, program=_LOOP % ("", "    model.train(mode)\n" + _EVAL), integration="deepspeed")
@good(_CONFIG, program=_LOOP % ("", "    teacher.eval()\n"), integration="deepspeed")
@good(_CONFIG, program=_LOOP % ("", "    if epoch == 2:\n        engine.eval()\n        break\n"), integration="deepspeed")
@good(
    _CONFIG,
    program=(_LOOP % ("    start(epoch)\n", _EVAL)).replace(
        "import deepspeed\n", "import deepspeed\ndef start(epoch):\n    engine.train()\n"
    ),
    integration="deepspeed",
)
def trained_in_evaluation_mode(config: Config) -> Iterator[Finding]:
    """The training loop calls `eval` of its model, and nothing in the loop calls `train` again.

    From then on the model trains in evaluation mode: without dropout, and with the statistics of batch normalization as they are. Up to DeepSpeed 0.15.3
    stage 3 raises AssertionError "backward pass is invalid for module in evaluation mode" in the next backward pass.

    Call `engine.train()` at the start of each pass of the loop.
    """
    program = config.setup.program if config.setup else None
    if program is None:
        return
    release = release_of(config, "deepspeed")
    refuses = bool(config.value(STAGE) >= 3) and release is not None and release <= _LAST_REFUSING
    found = next(_left_in_evaluation(config, program.events), None)
    if found is None:
        return
    event, backward = found
    outcome = (
        'the next backward pass raises AssertionError "backward pass is invalid for module in evaluation mode".'
        if refuses
        else "from the next pass on it trains in evaluation mode, without dropout."
    )
    yield Finding(
        "",
        f"{event.at.where} calls {event.called} in the loop that trains the model ({backward.at.where}), and nothing in it calls train() again: {outcome}",
        help="Call train() of the model behind the evaluation.",
        elsewhere=event.at.related(""),
        related=(backward.at.related("trained here"),),
        effect=Effect.CRASH if refuses else Effect.SILENT,
        phase=Phase.STEP if refuses else None,
        certain=False,
    )


def _left_in_evaluation(config: Config, events: Events) -> Iterator[tuple[Event, Event]]:
    """Calls of `eval` in a loop that trains, each with the backward pass there."""
    trained = managed_models(events, *ENGINES)
    starts = {one.start for one in events.of(*ENGINES)}
    calls = [one for one in events.all if one.name.endswith(".train")]
    passes = list(events.of(_BACKWARD))
    for event in events.all:
        is_trained = event.name.endswith(".eval") and event.origin is not None and (event.origin in trained or event.origin in starts)
        if not is_trained or event.flow or event.unlikely or not event.loops:
            continue
        for backward in passes:
            loop = _loop_around(config, event, backward)
            if loop is not None and not any(one.function != event.function or one.at.path != event.at.path for one in calls):
                yield event, backward
                break


def _loop_around(config: Config, event: Event, other: Event) -> ast.stmt | None:
    """The innermost loop around two calls of one function; None if there is none, if the first call may end it, or if it may call `train`."""
    document = config.setup.documents.get(event.at.path) if config.setup is not None else None
    tree = tree_of(config, event.at.path)
    if document is None or (event.at.path, event.function) != (other.at.path, other.function) or event.at.range is None:
        return None
    around = statements_around(tree, event)
    loops = [one for one in statements_around(tree, other) if isinstance(one, ast.For | ast.While) and one in around]
    if not loops:
        return None
    loop, lines = max(loops, key=lambda one: one.lineno), document.text.split("\n")
    text, behind = ("\n".join(lines[start - 1 : loop.end_lineno]) for start in (loop.lineno, event.at.range.start.line))
    return None if re.search(r"train\w*\(", text) or re.search(r"(?m)^\s*(break|return|raise)\b|exit\(", behind) else loop
