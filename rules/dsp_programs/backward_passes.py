"""DSP: several backward passes of a program between two steps of its engine."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import pairwise

from dslint.config import Config
from dslint.diagnostics import Effect, Phase
from dslint.facts import Integration
from dslint.job.events import ENGINE, Event
from dslint.rule import Finding, bad, good, rule
from dslint.rules.helpers.accumulated import REPLACES_SINCE, TELLS_BOUNDARY, counted_steps
from dslint.rules.helpers.examples import trained
from dslint.rules.helpers.prepare import BACKWARD, PREPARE, models_of, without_optimizer
from dslint.rules.helpers.syntax import is_in_a_file
from dslint.rules.helpers.zero import STAGE
from dslint.schemas.derive import ACCUMULATION

_STAGE_2 = trained('"gradient_accumulation_steps": 1, "zero_optimization": {"stage": 2}')
_STAGE_3 = _STAGE_2.replace('"stage": 2', '"stage": 3')
_WITHOUT_OPTIMIZER = '{"train_micro_batch_size_per_gpu": 4, "gradient_accumulation_steps": 1, "zero_optimization": {"stage": 2}}'
_ENGINE = (
    "import deepspeed\nimport torch\nnet = torch.nn.Linear(8, 8)\n"
    'engine, *_ = deepspeed.initialize(model=net, model_parameters=net.parameters(), config="ds_config.json")\n'
)
_TWO = _ENGINE + "for a, b in loader:\n    engine.backward(engine(a).mean())\n    engine.backward(engine(b).mean())\n    engine.step()\n"
_PARTS = (
    _ENGINE + "for batch in loader:\n    for part in batch.chunk(4):\n        engine.backward(engine(part).mean())\n    engine.step()\n"
)
_SHARED = (
    _ENGINE
    + "for batch in loader:\n    out = engine(batch)\n    engine.backward(out.mean(), retain_graph=True)\n    engine.backward(out.var())\n    engine.step()\n"
)
_ACCELERATOR = (
    "import torch\nfrom accelerate import Accelerator\nfrom transformers import AutoModelForCausalLM\naccelerator = Accelerator()\n"
    'model = AutoModelForCausalLM.from_pretrained("m")\noptimizer = torch.optim.AdamW(model.parameters())\n'
    "model, optimizer, loader = accelerator.prepare(model, optimizer, loader)\n"
)
_TWO_OF_ACCELERATE = (
    _ACCELERATOR + "for a, b in loader:\n    accelerator.backward(model(**a).loss)\n    accelerator.backward(model(**b).loss)\n"
    "    optimizer.step()\n    optimizer.zero_grad()\n"
)


@rule(
    "DSP01",
    effect=Effect.SILENT,
    watches=("setup",),
    references=(
        "deepspeed/runtime/zero/stage_1_and_2.py, independent_gradient_partition_epilogue",
        "accelerate/utils/deepspeed.py, DeepSpeedEngineWrapper.backward",
        "https://github.com/deepspeedai/DeepSpeed/pull/8135",
        "https://github.com/huggingface/accelerate/issues/2951",
    ),
    setup=True,
)
@bad(
    _STAGE_2,
    at="",
    program=_TWO,
    integration="deepspeed",
    message="train.py:7 is the second backward pass before engine.step() (the first is train.py:6): at ZeRO stage 2 DeepSpeed replaces the gradients of the first one, and only the last pass trains the model.",
)
@bad(
    _STAGE_2,
    at="",
    program=_PARTS,
    integration="deepspeed",
    message="train.py:7 runs backward passes in a loop before engine.step(): at ZeRO stage 2 DeepSpeed replaces the gradients of those before, and only the last pass trains the model.",
)
@bad(
    _STAGE_2,
    at="",
    program=_TWO.replace("    engine.backward(engine(b)", "    if b is not None:\n        engine.backward(engine(b)"),
    integration="deepspeed",
    message="train.py:8 may be the second backward pass before engine.step() (the first is train.py:6): at ZeRO stage 2 DeepSpeed replaces the gradients of the first one, and only the last pass trains the model.",
)
@bad(
    _WITHOUT_OPTIMIZER,
    at="",
    program=_TWO_OF_ACCELERATE,
    integration="accelerate",
    message="train.py:10 is the second accelerator.backward of one batch (the first is train.py:9): under DeepSpeed each of them updates the weights, and optimizer.step() does nothing. The gradients of both never add up.",
)
@good(_STAGE_3, program=_TWO, integration="deepspeed")
@good(_STAGE_2.replace('"stage": 2', '"stage": 0'), program=_TWO, integration="deepspeed")
@good(_STAGE_2, program=_TWO, integration="deepspeed", deepspeed="0.16.9")
@good(
    _STAGE_2,
    program=_TWO.replace("    engine.backward(engine(b)", "    engine.step()\n    engine.backward(engine(b)"),
    integration="deepspeed",
)
@good(
    _STAGE_2,
    program=_TWO.replace(
        "    engine.backward(engine(a)", "    engine.set_gradient_accumulation_boundary(False)\n    engine.backward(engine(a)"
    ),
    integration="deepspeed",
)
@good(
    _STAGE_2,
    program=_TWO.replace(
        "    engine.backward(engine(a).mean())\n",
        "    if a is None:\n        engine.backward(engine(b).sum() * 0)\n        engine.step()\n        continue\n",
    ),
    integration="deepspeed",
)
@good(
    _STAGE_2,
    program=_ENGINE
    + "for a, b in loader:\n    if a is None:\n        engine.backward(engine(b).mean())\n    else:\n        engine.backward(engine(a).mean())\n    engine.step()\n",
    integration="deepspeed",
)
@good(
    _STAGE_2,
    program=_ENGINE + "for a, b in loader:\n    engine.backward(engine(a).mean() + engine(b).mean())\n    engine.step()\n",
    integration="deepspeed",
)
@good(
    _STAGE_2,
    program=_ENGINE
    + 'critic, *_ = deepspeed.initialize(model=torch.nn.Linear(8, 8), config="ds_config.json")\n'
    + "for a, b in loader:\n    engine.backward(engine(a).mean())\n    critic.backward(critic(b).mean())\n    engine.step()\n    critic.step()\n",
    integration="deepspeed",
)
@good(
    _STAGE_2,
    program=_ENGINE
    + "for epoch in range(3):\n    for batch in loader:\n        engine.backward(engine(batch).mean())\n        engine.step()\n    engine.step()\n",
    integration="deepspeed",
)
@good(
    _STAGE_2,
    program=_ENGINE
    + "for a, b in loader:\n    try:\n        engine.backward(engine(a).mean())\n    except RuntimeError:\n        engine.backward(engine(b).mean())\n    engine.step()\n",
    integration="deepspeed",
)
@good(
    _WITHOUT_OPTIMIZER,
    program=_TWO_OF_ACCELERATE.replace(
        "accelerator.backward(model(**a).loss)\n", "with accelerator.no_sync(model):\n        accelerator.backward(model(**a).loss)\n"
    ),
    integration="accelerate",
)
@good(
    _WITHOUT_OPTIMIZER,
    program=_TWO_OF_ACCELERATE.replace("    accelerator.backward(model(**b)", "    optimizer.step()\n    accelerator.backward(model(**b)"),
    integration="accelerate",
)
def several_backward_passes(config: Config) -> Iterator[Finding]:
    """The program runs several backward passes between two steps of its engine, and the gradients do not add up.

    PyTorch adds the gradients of all backward passes until they are set to zero. In the last micro batch of a step ZeRO stages 1 and 2 do
    not: since DeepSpeed 0.17.6 each `engine.backward` replaces what the one before has left, also for weights that it has no gradient for.
    So a second loss, or the last part of a divided batch, is all that the model learns from. Stages 0 and 3 add them up.

    Under Accelerate each `accelerator.backward` ends with the engine's step: two of them are two updates of the weights, with a gradient each.

    Add the losses up, and call backward once. With one backward pass per part of a batch, call `engine.step()` after each and let
    `gradient_accumulation_steps` count them, or call `engine.set_gradient_accumulation_boundary(False)` before each pass but the last.
    """
    setup = config.setup
    program = setup.program if setup is not None else None
    if setup is None or program is None or is_in_a_file(TELLS_BOUNDARY, config):
        return
    events = program.events
    if config.facts.integration is Integration.ACCELERATE:
        prepared = list(events.of(PREPARE))
        models = {origin for one in prepared for origin, _ in models_of(one)}
        if len(models) != 1 or all(without_optimizer(one) for one in prepared):
            return
        found = _second_pass([one for one in events.of(BACKWARD, r".*\.step") if not any("no_sync" in name for name in one.within)])
        if found is not None:
            first, second = found
            yield Finding(
                "",
                f"{second.at.where} {_is(first, second)} the second {second.called} of one batch (the first is {first.at.where}): under DeepSpeed each "
                "of them updates the weights, and optimizer.step() does nothing. The gradients of both never add up.",
                help=f"Add the losses up, and call {second.called} once.",
                elsewhere=second.at.related(""),
                related=(first.at.related("the first one"),),
                certain=first.conditions == second.conditions and second.flow == 0,
            )
        return
    stage, accumulation = config.value(STAGE), config.value(ACCUMULATION)
    if config.facts.integration is not Integration.DEEPSPEED or config.release < REPLACES_SINCE or stage not in (1, 2):
        return
    if config.value("managed_gradient_accumulation") is False or not accumulation >= 1:
        return
    calls = list(events.of(_PASS, _STEP))
    passes, steps = list(events.of(_PASS)), list(events.of(_STEP))
    if any(counted_steps(steps, passes)):
        return  # DS673 reports it
    found = next((pair for origin in {one.origin for one in passes} if (pair := _second_pass(_of(origin, calls))) is not None), None)
    loses = f"at ZeRO stage {stage} DeepSpeed replaces the gradients of"
    advice = "Add the losses up, and call engine.backward once."
    if found is not None:
        first, second = found
        yield Finding(
            "",
            f"{second.at.where} {_is(first, second)} the second backward pass before engine.step() (the first is {first.at.where}): {loses} the first "
            "one, and only the last pass trains the model.",
            help=advice,
            elsewhere=second.at.related(""),
            related=(first.at.related("the first pass"),),
            certain=first.conditions == second.conditions and second.flow == 0,
        )
    elif (inner := _inner_pass(passes, steps)) is not None:
        yield Finding(
            "",
            f"{inner.at.where} runs backward passes in a loop before engine.step(): {loses} those before, and only the last pass trains the model.",
            help="Call engine.step() after each pass, and let gradient_accumulation_steps of the config count them.",
            elsewhere=inner.at.related(""),
            certain=False,  # the loop may have one turn
        )


@rule(
    "DSP02",
    effect=Effect.CRASH,
    phase=Phase.STEP,
    watches=("setup",),
    references=(
        "deepspeed/runtime/zero/parameter_offload.py, post_backward: a weight is released after its module",
        "https://github.com/deepspeedai/DeepSpeed/pull/8045",
    ),
    untried="depends on the calls of the program",
    setup=True,
)
@bad(
    _STAGE_3,
    at="",
    program=_SHARED,
    integration="deepspeed",
    message='train.py:7 keeps the graph for a second backward pass (train.py:8): at ZeRO stage 3 the first pass releases the weights that the graph needs, and the second one may raise RuntimeError "The size of tensor a (0) must match the size of tensor b".',
)
@good(_STAGE_2, program=_SHARED, integration="deepspeed", deepspeed="0.16.9")
@good(_STAGE_3, program=_SHARED.replace("retain_graph=True", "retain_graph=False"), integration="deepspeed")
@good(_STAGE_3, program=_SHARED.replace("    engine.backward(out.var())\n", ""), integration="deepspeed")
@good(_STAGE_3, program=_TWO, integration="deepspeed")
def graph_kept_at_stage_3(config: Config) -> Iterator[Finding]:
    """At ZeRO stage 3 the program runs two backward passes through one graph, with `retain_graph=True`.

    Stage 3 gathers the weights of a module for its forward and its backward pass, and releases them afterwards. The graph of PyTorch still
    points to them. A second backward pass through the same graph finds weights without elements, and raises. Weights below
    `stage3_param_persistence_threshold` stay, so that a small model may run.

    Add the losses up, and call backward once; or run the forward pass again for the second loss.
    """
    program = config.setup.program if config.setup else None
    if program is None or not config.value(STAGE) >= 3 or config.facts.integration is not Integration.DEEPSPEED:
        return
    calls = list(program.events.of(_PASS, _STEP))
    found = next(
        (pair for origin in {one.origin for one in calls} if (pair := _second_pass(_of(origin, calls), kept=True)) is not None), None
    )
    if found is not None:
        first, second = found
        yield Finding(
            "",
            f"{first.at.where} keeps the graph for a second backward pass ({second.at.where}): at ZeRO stage 3 the first pass releases the weights that "
            'the graph needs, and the second one may raise RuntimeError "The size of tensor a (0) must match the size of tensor b".',
            help="Add the losses up, and call engine.backward once.",
            elsewhere=first.at.related(""),
            related=(second.at.related("the second pass"),),
            certain=False,
        )


_PASS, _STEP = (rf"{re.escape(ENGINE)}\.{name}" for name in ("backward", "step"))


def _of(origin: int | None, calls: list[Event]) -> list[Event]:
    """The calls of one engine."""
    return [one for one in calls if origin is not None and one.origin == origin]


def _is(first: Event, second: Event) -> str:
    return "is" if first.conditions == second.conditions else "may be"


def _second_pass(calls: list[Event], *, kept: bool = False) -> tuple[Event, Event] | None:
    """Two backward passes in one turn of a loop without a step between them, of which the first is made wherever the second is; with `kept`,
    the first keeps the graph.
    """
    for first, second in pairwise(calls):
        if not first.name.endswith(".backward") or not second.name.endswith(".backward") or (kept and not _keeps_graph(first)):
            continue
        same_turn = first.loops > 0 and (first.loops, first.flow, first.function) == (second.loops, second.flow, second.function)
        leads = first.conditions == second.conditions[: len(first.conditions)] and not (
            first.handled and first.conditions != second.conditions
        )
        if same_turn and leads and not first.tells_setups_apart and not second.tells_setups_apart and not second.unlikely:
            return first, second
    return None


def _keeps_graph(event: Event) -> bool:
    given = event.argument("retain_graph", 1)
    return given is not None and given.value is True


def _inner_pass(passes: list[Event], steps: list[Event]) -> Event | None:
    """The only backward pass of a program, where it is in a loop inside of that which makes the only step."""
    if len(passes) != 1 or len(steps) != 1:
        return None
    one, step = passes[0], steps[0]
    within = one.start < step.start and (one.origin, one.flow, one.function, one.at.path) == (
        step.origin,
        step.flow,
        step.function,
        step.at.path,
    )
    return one if within and one.loops > step.loops > 0 and not one.tells_setups_apart and not step.tells_setups_apart else None
