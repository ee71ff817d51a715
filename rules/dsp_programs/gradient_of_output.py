"""DSP: gradients that a program takes of an engine's output by itself."""

from __future__ import annotations

import re
from collections.abc import Iterator

from dslint.config import Config
from dslint.diagnostics import Effect, Phase
from dslint.facts import Integration, Release
from dslint.job.events import ENGINE, Event, Events
from dslint.rule import Finding, bad, good, rule
from dslint.rules.helpers.data_flow import Flow
from dslint.rules.helpers.examples import trained
from dslint.rules.helpers.models import ENGINES, managed_models
from dslint.rules.helpers.syntax import tree_of
from dslint.rules.helpers.zero import STAGE

_STAGE_0, _STAGE_2, _STAGE_3 = (trained(f'"zero_optimization": {{"stage": {stage}}}') for stage in (0, 2, 3))
_PENALTY = (
    "import deepspeed\nimport torch\n"
    'critic, *_ = deepspeed.initialize(model=net, model_parameters=net.parameters(), config="ds_config.json")\n'
    "def penalty(critic, batch):\n    batch.requires_grad_(True)\n    score = critic(batch)\n"
    "    slope = torch.autograd.grad(outputs=score.sum(), inputs=batch, create_graph=%s)[0]\n    return ((slope.norm(2, dim=1) - 1) ** 2).mean()\n"
    "for batch in loader:\n    critic.backward(penalty(critic, batch))\n    critic.step()\n"
)


@rule(
    "DSP10",
    effect=Effect.CRASH,
    phase=Phase.STEP,
    watches=("setup",),
    references=(
        "deepspeed/runtime/engine.py, forward: register_output_backward_hooks; _backward_prologue",
        "deepspeed/runtime/zero/parameter_offload.py, post_backward: a weight is released after its module",
    ),
    untried="depends on the calls of the program",
    setup=True,
)
@bad(
    _STAGE_0,
    at="",
    program=_PENALTY % True,
    integration="deepspeed",
    message='train.py:7 takes gradients of the output of the engine (train.py:6) with torch.autograd.grad: DeepSpeed takes that for a backward pass of its own, and at ZeRO stage 0 may raise RuntimeError "Direct calls to tensor.backward() are not supported in this configuration".',
)
@bad(
    _STAGE_2,
    at="",
    program=_PENALTY % False,
    integration="deepspeed",
    message="train.py:7 takes gradients of the output of the engine (train.py:6) with torch.autograd.grad: DeepSpeed takes that for a backward pass of its own, and at ZeRO stage 2 its reduction of gradients may raise IndexError in the first step.",
)
@bad(
    _STAGE_3,
    at="",
    program=_PENALTY % True,
    integration="deepspeed",
    deepspeed="0.16.9",
    message='train.py:7 takes gradients of the output of the engine (train.py:6) with torch.autograd.grad and create_graph=True: at ZeRO stage 3 the weights are released after that, and the backward pass through its graph may raise RuntimeError "mat2 must be a matrix", or another one about a weight of the size 0.',
)
@good(_STAGE_2, program=_PENALTY % True, integration="deepspeed", deepspeed="0.18.2")
@good(_STAGE_3, program=_PENALTY % False, integration="deepspeed")
@good(_STAGE_2, program=(_PENALTY % True).replace("score = critic(batch)", "score = critic.module(batch)"), integration="deepspeed")
@good(_STAGE_2, program=(_PENALTY % True).replace("score = critic(batch)", "score = teacher(batch)"), integration="deepspeed")
@good(
    _STAGE_2,
    program=(_PENALTY % True).replace(
        "    critic.backward(pen", "    critic.backward(critic(batch).mean())\n    critic.step()\n    critic.backward(pen"
    ),
    integration="deepspeed",
)
def gradient_of_engines_output(config: Config) -> Iterator[Finding]:
    """The program takes gradients of an engine's output with `torch.autograd.grad`, as for a gradient penalty.

    Since DeepSpeed 0.18.3 the engine puts hooks on what its forward pass returns, and takes every way back from there for a backward pass of
    its own. Without ZeRO it refuses one that `engine.backward` does not start. At stages 1 and 2 it begins to reduce gradients that no weight
    has got: in the first step that raises IndexError. At stage 3, in all releases, the weights that the graph of the gradients needs are
    released after `torch.autograd.grad`, so that the backward pass of the penalty finds weights of the size 0.

    Below stage 3 compute the output for the penalty with `engine.module(inputs)`, which has no such hooks, and pass the penalty to
    `engine.backward` with the rest of the loss. Do not use stage 3 for gradients of gradients.
    """
    program = config.setup.program if config.setup else None
    stage = config.value(STAGE)
    if program is None or stage not in (0, 1, 2, 3) or config.facts.integration not in (Integration.DEEPSPEED, Integration.ACCELERATE):
        return
    if stage < 3 and config.release < _HOOKS_ON_OUTPUT:
        return
    for number, taken in enumerate(program.events.all):
        if taken.name != "torch.autograd.grad" or taken.unlikely or taken.tells_setups_apart:
            continue
        call = _engine_call(config, program.events, taken)
        graph = taken.argument("create_graph", 4)
        keeps_graph = graph is not None and graph.value is True
        if call is None or (stage == 3 and not keeps_graph):
            continue
        before = program.events.all[:number]
        if stage in (1, 2) and any(one.name.endswith(".backward") for one in before):
            continue  # by then the gradients have their places
        outcome = (
            'DeepSpeed takes that for a backward pass of its own, and at ZeRO stage 0 may raise RuntimeError "Direct calls to tensor.backward() '
            'are not supported in this configuration".'
            if stage == 0
            else f"DeepSpeed takes that for a backward pass of its own, and at ZeRO stage {stage} its reduction of gradients may raise IndexError in "
            "the first step."
            if stage < 3
            else 'at ZeRO stage 3 the weights are released after that, and the backward pass through its graph may raise RuntimeError "mat2 must be '
            'a matrix", or another one about a weight of the size 0.'
        )
        yield Finding(
            "",
            f"{taken.at.where} takes gradients of the output of the engine ({call.at.where}) with torch.autograd.grad"
            f"{' and create_graph=True' if stage == 3 else ''}: {outcome}",
            help="Compute this output with the module of the engine: engine.module(inputs)." if stage < 3 else "Use ZeRO stage 2 or lower.",
            elsewhere=taken.at.related(""),
            related=(call.at.related("the output"),),
            certain=False,
        )
        return


_HOOKS_ON_OUTPUT = Release(0, 18, 3)


def _engine_call(config: Config, events: Events, taken: Event) -> Event | None:
    """The call of the engine whose result a program takes gradients of, in the same function; None for gradients of anything else."""
    outputs = taken.argument("outputs", 0)
    tree = tree_of(config, taken.at.path)
    if outputs is None or tree is None or taken.at.range is None:
        return None
    managed = managed_models(events, *ENGINES)
    calls = [
        one
        for one in events.all
        if (one.name == f"{ENGINE}.__call__" or (one.origin in managed and one.name.endswith(".__call__")))
        and not re.search(r"\.module\b", one.called)
        and (one.at.path, one.function, one.flow) == (taken.at.path, taken.function, taken.flow)
        and one.start < taken.start
    ]
    try:
        made_of = set(Flow(tree, taken.at.range.start.line).called_in(outputs.raw)) if calls else set()
    except SyntaxError:
        return None
    return next((one for one in reversed(calls) if one.called in made_of), None)
