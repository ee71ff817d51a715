"""DS6: what a program does with an engine of DeepSpeed so that its weights do not change as meant."""

from __future__ import annotations

import re
from collections.abc import Iterator

from dslint.config import Config
from dslint.diagnostics import Effect, Phase
from dslint.facts import Integration
from dslint.job.events import ENGINE, Event
from dslint.job.model import Setup
from dslint.rule import Finding, bad, good, rule
from dslint.rules.helpers.examples import trained
from dslint.rules.helpers.precision import model_dtype
from dslint.rules.helpers.prepare import BACKWARD
from dslint.rules.helpers.zero import STAGE
from dslint.schemas.derive import ACCUMULATION
from dslint.source.unknown import UNKNOWN

_STAGE_2 = trained('"gradient_accumulation_steps": 4, "zero_optimization": {"stage": 2}')
_ONE_STEP = _STAGE_2.replace("4, ", "1, ", 2).replace('"train_micro_batch_size_per_gpu": 1', '"train_micro_batch_size_per_gpu": 4')
_ENGINE = (
    "import deepspeed\nimport torch\nnet = torch.nn.Linear(8, 8)\n"
    'engine, optimizer, *_ = deepspeed.initialize(model=net, model_parameters=net.parameters(), config="ds_config.json")\n'
)
_LOOP = _ENGINE + "%sfor batch in loader:\n    loss = engine(batch).mean()\n    engine.backward(loss%s)\n    %s\n"
_ACCELERATOR = (
    "from accelerate import Accelerator\naccelerator = Accelerator()\nmodel, optimizer, loader = accelerator.prepare(model, optimizer, loader)\n"
    "for batch in loader:\n    with accelerator.accumulate(model):\n        loss = model(batch)[0]%s\n        accelerator.backward(loss)\n        optimizer.step()\n"
)


@rule(
    "DS664",
    effect=Effect.SILENT,
    watches=("setup",),
    references=(
        "deepspeed/runtime/engine.py, DeepSpeedEngine.step and is_gradient_accumulation_boundary",
        "https://www.deepspeed.ai/getting-started/#training",
    ),
    setup=True,
)
@bad(
    _STAGE_2,
    at="",
    program=_LOOP % ("", "", "optimizer.step()"),
    integration="deepspeed",
    message="train.py:8 calls optimizer.step(), and nothing calls engine.step(), which counts the micro batches: the engine never reaches the last of its 4 gradient accumulation steps, where it finishes the gradients.",
)
@bad(
    _ONE_STEP,
    at="",
    program=_LOOP % ("", "", "optimizer.step()"),
    integration="deepspeed",
    message="train.py:8 calls optimizer.step(), and nothing calls engine.step(), which counts the steps: the schedule of the engine does not advance, gradients are not set to zero, and every checkpoint is named global_step0.",
)
@good(_STAGE_2, program=_LOOP % ("", "", "engine.step()"), integration="deepspeed")
@good(_STAGE_2, program=_LOOP % ("", "", "optimizer.step()\n    engine.step()"), integration="deepspeed")
@good(_STAGE_2, program=_LOOP % ("", "", "update(engine)"), integration="deepspeed")
@good(_STAGE_2, program=_LOOP % ("", "", "trainer.step()"), integration="deepspeed")
def stepped_beside_the_engine(config: Config) -> Iterator[Finding]:
    """The program calls `step()` of the optimizer that `deepspeed.initialize` returns, and not that of the engine.

    `engine.step()` counts micro batches, updates the weights at the last one of an accumulation, sets the gradients to zero and advances the
    schedule. With `optimizer.step()` in its place the engine takes each micro batch for the first one, so that with gradient accumulation it
    never finishes the gradients.

    Call `engine.step()` after each `engine.backward(loss)`.
    """
    setup = config.setup
    program = setup.program if setup is not None else None
    if setup is None or program is None or config.facts.integration is not Integration.DEEPSPEED:
        return
    name = re.escape(ENGINE)
    backward = next((one for one in program.events.of(rf"{name}\.backward") if one.loops and not one.unlikely), None)
    if backward is None or any(program.events.of(rf"{name}\.(step|train_batch)")) or backward.tells_setups_apart:
        return
    if _leaves(backward, setup):
        return
    own = next((one for one in program.events.of(rf"{name}\.optimizer\.step") if one.loops), None)
    steps = config.value(ACCUMULATION)
    if own is None or steps is UNKNOWN:
        return
    outcome = (
        f"which counts the micro batches: the engine never reaches the last of its {steps} gradient accumulation steps, where it finishes the gradients"
        if steps > 1
        else "which counts the steps: the schedule of the engine does not advance, gradients are not set to zero, and every checkpoint is named global_step0"
    )
    yield Finding(
        "",
        f"{own.at.where} calls {own.called}(), and nothing calls engine.step(), {outcome}.",
        help="Call engine.step() in its place.",
        elsewhere=own.at.related(""),
        certain=own.certain and steps > 1,
    )


def _leaves(backward: Event, setup: Setup) -> bool:
    """Whether the engine, or an object that holds it, goes to code that is not followed: it may call step there."""
    engine = backward.called.rpartition(".")[0]
    given = re.compile(rf"[(,]\s*(?:\w+\s*=\s*)?{re.escape(engine)}\s*[,)]")
    return any(given.search(one.text) for one in setup.documents.values() if one.language == "python")


_DIVISOR = re.compile(r"/\s*\(?\s*([\w.]+(?:\[[^\]]*\])?(?:\(\))?)")
_NAMED = re.compile(r"(?i)grad\w*_?acc|accum|\bgas\b|acc_steps|acc_grad")
_OF_ENGINE = ".gradient_accumulation_steps()"
_LINES = 12
"""The lines above a backward pass in which its loss is divided."""


@rule(
    "DS665",
    effect=Effect.SILENT,
    watches=("setup",),
    references=(
        "deepspeed/runtime/engine.py, DeepSpeedEngine.backward: scale_wrt_gas",
        "accelerate/accelerator.py, Accelerator.backward",
    ),
    setup=True,
)
@bad(
    _STAGE_2,
    at="gradient_accumulation_steps",
    program=_LOOP % ("", " / engine.gradient_accumulation_steps()", "engine.step()"),
    integration="deepspeed",
    message="train.py:7 divides the loss by engine.gradient_accumulation_steps(), and engine.backward divides it by gradient_accumulation_steps 4 again: the gradients are 4 times too small.",
)
@bad(
    _STAGE_2,
    at="gradient_accumulation_steps",
    program=(_LOOP % ("", "", "engine.step()")).replace(
        "    engine.backward", "    loss = loss / args.grad_accum_steps\n    engine.backward"
    ),
    integration="deepspeed",
    message="train.py:7 divides the loss by args.grad_accum_steps, and engine.backward divides it by gradient_accumulation_steps 4 again: the gradients may be 4 times too small.",
)
@bad(
    trained('"gradient_accumulation_steps": 8, "zero_optimization": {"stage": 2}'),
    at="gradient_accumulation_steps",
    program=_ACCELERATOR % " / accelerator.gradient_accumulation_steps",
    integration="accelerate",
    message="train.py:6 divides the loss by accelerator.gradient_accumulation_steps, and accelerator.backward divides it by gradient_accumulation_steps 8 again: the gradients are 8 times too small.",
)
@good(_STAGE_2, program=_LOOP % ("", "", "engine.step()"), integration="deepspeed")
@good(_STAGE_2, program=_LOOP % ("", " / batch.shape[0]", "engine.step()"), integration="deepspeed")
@good(_STAGE_2, program=_LOOP % ("", " / 2", "engine.step()"), integration="deepspeed")
@good(
    _STAGE_2, program=_LOOP % ("", " / engine.gradient_accumulation_steps(), scale_wrt_gas=False", "engine.step()"), integration="deepspeed"
)
@good(_ONE_STEP, program=_LOOP % ("", " / args.accumulation", "engine.step()"), integration="deepspeed")
@good(
    _STAGE_2,
    program=(_LOOP % ("", "", "engine.step()")) + "    total = loss / args.grad_accum_steps\n",
    integration="deepspeed",
)
def divided_twice(config: Config) -> Iterator[Finding]:
    """The program divides the loss by the gradient accumulation steps, and the engine does it again.

    `engine.backward(loss)` divides the loss by `gradient_accumulation_steps` of the config, and so does `accelerator.backward(loss)`. A loss
    that is divided before makes gradients that are that number of times too small: clipping clips less, and an optimizer such as SGD learns
    more slowly.

    Pass the loss as it is, or `scale_wrt_gas=False` to `engine.backward`.
    """
    setup, steps = config.setup, config.value(ACCUMULATION)
    program = setup.program if setup is not None else None
    if setup is None or program is None or not steps > 1 or not config.has(ACCUMULATION):
        return
    names = {
        Integration.DEEPSPEED: rf"{re.escape(ENGINE)}\.backward",
        Integration.ACCELERATE: BACKWARD,
    }
    pattern = names.get(config.facts.integration) if config.facts.integration is not None else None
    if pattern is None or any(program.events.of(r".*\.set_gradient_accumulation_boundary")):
        return
    for call in program.events.of(pattern):
        loss = call.argument("loss", 0)
        if loss is None or not call.loops or call.tells_setups_apart or "scale_wrt_gas" in call.arguments:
            continue
        found = _division(setup, call, loss.raw)
        if found is None:
            continue
        line, divisor = found
        sure = divisor.endswith((_OF_ENGINE, "accelerator.gradient_accumulation_steps"))
        yield Finding(
            ACCUMULATION,
            f"{call.at.path}:{line} divides the loss by {divisor}, and {call.called} divides it by {ACCUMULATION} {config.quote(ACCUMULATION)} "
            f"again: the gradients {'are' if sure else 'may be'} {steps} times too small.",
            help="Pass the loss as it is.",
            related=(call.at.related("the backward pass"),),
            certain=sure and call.certain,
        )
        return


def _division(setup: Setup, call: Event, loss: str) -> tuple[int, str] | None:
    """The line in which the loss of a backward pass is divided by the accumulation steps, and what divides it."""
    line = call.at.range.start.line if call.at.range is not None else 0
    found = _DIVISOR.search(loss)
    if found is not None and _NAMED.search(found[1]):
        return line, found[1]
    document = setup.documents.get(call.at.path)
    if document is None or not loss.isidentifier():
        return None
    above = document.text.splitlines()[max(0, line - 1 - _LINES) : line - 1]
    for number, text in enumerate(reversed(above), 1):
        assigned = re.match(rf"\s*{loss}\s*(/=|=)(.*)$", text)
        if assigned is None:
            if re.match(r"\s*(def|class)\b", text):
                return None
            continue
        divided = _DIVISOR.search(f"/{assigned[2]}" if assigned[1] == "/=" else assigned[2])
        return (line - number, divided[1]) if divided is not None and _NAMED.search(divided[1]) else None
    return None


@rule(
    "DS666",
    effect=Effect.SILENT,
    watches=("setup",),
    references=(
        "deepspeed/runtime/zero/stage_1_and_2.py, step: the weights are copied from single_partition_of_fp32_groups",
        "deepspeed/runtime/engine.py, _load_checkpoint: refresh_fp32_params",
    ),
    setup=True,
)
@bad(
    _STAGE_2,
    at="",
    program=_LOOP % ("engine.module.load_state_dict(torch.load('best.pt'))\n", "", "engine.step()"),
    integration="deepspeed",
    message="train.py:5 loads weights into the model of an engine that exists already: DeepSpeed has copied the weights from before, and writes its copies over the loaded ones in the first step.",
)
@bad(
    _STAGE_2,
    at="",
    program=_LOOP % ("net.load_state_dict(torch.load('best.pt'))\n", "", "engine.step()"),
    integration="deepspeed",
    message="train.py:5 loads weights into the model of an engine that exists already: DeepSpeed has copied the weights from before, and writes its copies over the loaded ones in the first step.",
)
@good(
    _STAGE_2,
    program=(_LOOP % ("", "", "engine.step()")) + "engine.module.load_state_dict(torch.load('best.pt'))\n",
    integration="deepspeed",
)
@good(
    _STAGE_2,
    program=(_LOOP % ("", "", "engine.step()")).replace(
        "engine, optimizer", "net.load_state_dict(torch.load('best.pt'))\nengine, optimizer"
    ),
    integration="deepspeed",
)
@good(
    _STAGE_2,
    program=_LOOP % ("engine.module.load_state_dict(torch.load('best.pt'))\nengine.optimizer.refresh_fp32_params()\n", "", "engine.step()"),
    integration="deepspeed",
)
@good(
    trained('"zero_optimization": {"stage": 0}'),
    program=_LOOP % ("engine.module.load_state_dict(torch.load('best.pt'))\n", "", "engine.step()"),
    integration="deepspeed",
)
@good(
    _STAGE_2,
    program=_LOOP % ("critic.load_state_dict(torch.load('best.pt'))\n", "", "engine.step()"),
    integration="deepspeed",
)
@good(
    _STAGE_2,
    program=_ENGINE + "engine.module.load_state_dict(torch.load('best.pt'))\nengine.eval()\nprint(engine(batch))\n",
    integration="deepspeed",
)
def loaded_behind_the_engine(config: Config) -> Iterator[Finding]:
    """The program loads weights into its model after `deepspeed.initialize`, and trains on.

    With ZeRO, fp16 or bf16 the optimizer holds its own copies of the weights, in fp32, from the time of `deepspeed.initialize`. It updates
    these, and copies them to the model in each step: the loaded weights are lost in the first one, and the training goes on from those before.
    At stage 3 the call fails already (DS968).

    Load the weights before `deepspeed.initialize`, or with `engine.load_checkpoint`.
    """
    setup = config.setup
    program = setup.program if setup is not None else None
    if setup is None or program is None or config.document.root is None or config.facts.integration is not Integration.DEEPSPEED:
        return
    stage = config.value(STAGE)
    has_copies = stage in (1, 2) or (stage == 0 and model_dtype(config) in ("fp16", "bf16"))
    events = list(program.events.all)
    if not has_copies or any(program.events.of(rf"{re.escape(ENGINE)}\.load_checkpoint")) or _refreshes(setup):
        return
    engines = {number: one for number, one in enumerate(events) if one.name == ENGINE}
    for number, event in enumerate(events):
        if not event.name.endswith(".load_state_dict") or event.name.endswith(("optimizer.load_state_dict", "scheduler.load_state_dict")):
            continue
        made = [one for position, one in engines.items() if position < number and one.flow == event.flow]
        into = next((one for one in made if _is_into(event, one)), None)
        later = events[number + 1 :]
        trains = any(one.name == f"{ENGINE}.step" and one.loops and one.flow == event.flow and not one.excludes(event) for one in later)
        if into is None or not trains or event.loops or event.unlikely or any(one.name == ENGINE for one in later):
            continue
        yield Finding(
            "",
            f"{event.at.where} loads weights into the model of an engine that exists already: DeepSpeed has copied the weights from before, and "
            "writes its copies over the loaded ones in the first step.",
            help="Load the weights before deepspeed.initialize, or with engine.load_checkpoint.",
            elsewhere=event.at.related(""),
            related=(into.at.related("the engine is made here"),),
            certain=event.certain and not event.conditions,
        )
        return


def _refreshes(setup: Setup) -> bool:
    """Whether a file of the program makes the optimizer copy the weights again."""
    return any("refresh_fp32_params" in one.text or "_restore_from_bit16_weights" in one.text for one in setup.documents.values())


def _is_into(load: Event, engine: Event) -> bool:
    """Whether a call loads the weights of the engine's model: through the engine, or through the model that it was given."""
    if load.origin == engine.start:
        return load.name == f"{ENGINE}.load_state_dict"
    model = engine.argument("model", 1)
    whole = re.fullmatch(r"\w+(\.module)?\.load_state_dict", load.called) is not None
    return whole and model is not None and load.origin is not None and model.origin == load.origin


@rule(
    "DS667",
    effect=Effect.CRASH,
    phase=Phase.INITIALIZE,
    watches=("setup",),
    references=("deepspeed/__init__.py, initialize(args=None, model=None, ...)",),
    untried="depends on the call in the program",
    setup=True,
)
@bad(
    _STAGE_2,
    at="",
    program='import deepspeed\nengine, *_ = deepspeed.initialize(net, config="ds_config.json")\n',
    integration="deepspeed",
    message='train.py:2 passes net as the first argument of deepspeed.initialize, which is args, and no model: DeepSpeed raises AssertionError "deepspeed.initialize requires a model".',
)
@good(
    _STAGE_2, program='import deepspeed\nengine, *_ = deepspeed.initialize(args, net, config="ds_config.json")\n', integration="deepspeed"
)
@good(
    _STAGE_2, program='import deepspeed\nengine, *_ = deepspeed.initialize(model=net, config="ds_config.json")\n', integration="deepspeed"
)
@good(
    _STAGE_2, program='import deepspeed\nengine, *_ = deepspeed.initialize(**settings, config="ds_config.json")\n', integration="deepspeed"
)
def initialized_without_model(config: Config) -> Iterator[Finding]:
    """`deepspeed.initialize` gets no model: its first argument is `args`, the second one the model.

    `deepspeed.initialize(net, config=...)` passes the model as `args`, and DeepSpeed raises `AssertionError: deepspeed.initialize requires a
    model`.

    Pass the model by its name: `deepspeed.initialize(model=net, ...)`.
    """
    program = config.setup.program if config.setup else None
    if program is None:
        return
    for call in program.events.of(re.escape(ENGINE)):
        if not call.complete or call.argument("model", 1) is not None or call.unlikely:
            continue
        first = call.argument("args", 0)
        given = (
            f"passes {first.raw} as the first argument of deepspeed.initialize, which is args, and no model" if first else "passes no model"
        )
        yield Finding(
            "",
            f'{call.at.where} {given}: DeepSpeed raises AssertionError "deepspeed.initialize requires a model".',
            help=f"Write deepspeed.initialize({_as_keyword(first.raw if first is not None else '')}, ...).",
            elsewhere=call.at.related(""),
            certain=call.certain,
        )
        return


def _as_keyword(given: str) -> str:
    """The argument that was meant by the first one of a call without names: the model, or a config beside the model."""
    if not given.isidentifier() or re.search("arg|opt", given):
        return "model=model"
    return f"model=model, config={given}" if re.search("conf|cfg", given) else f"model={given}"


@rule(
    "DS668",
    effect=Effect.CRASH,
    phase=Phase.STEP,
    watches=("setup",),
    references=("torch/nn/parallel/distributed.py, DistributedDataParallel", "deepspeed/runtime/engine.py, DeepSpeedEngine"),
    untried="depends on the calls of the program",
    setup=True,
)
@bad(
    _STAGE_2,
    at="",
    program=_LOOP % ("engine = torch.nn.parallel.DistributedDataParallel(engine)\n", "", "engine.step()"),
    integration="deepspeed",
    message="train.py:5 wraps the engine into DistributedDataParallel, which has no backward: train.py:8 raises AttributeError \"'DistributedDataParallel' object has no attribute 'backward'\".",
)
@good(
    _STAGE_2,
    program=_LOOP % ("other = torch.nn.parallel.DistributedDataParallel(critic)\n", "", "engine.step()"),
    integration="deepspeed",
)
def engine_wrapped(config: Config) -> Iterator[Finding]:
    """The program wraps the engine into `DistributedDataParallel` or `DataParallel`.

    The engine averages the gradients over the ranks itself. The wrapper has none of its methods: `backward`, `step` and `save_checkpoint` raise
    AttributeError.

    Remove the wrapper.
    """
    program = config.setup.program if config.setup else None
    if program is None:
        return
    wrapper = r"torch\.nn\.(parallel\.)?(\w+\.)*(DistributedDataParallel|DataParallel)"
    for wrap in program.events.of(wrapper):
        module = wrap.argument("module", 0)
        if module is None or module.made != ENGINE:
            continue
        methods = program.events.of(rf"{wrapper}\.(backward|step|save_checkpoint|load_checkpoint|train_batch)")
        call = next((one for one in methods if one.origin == wrap.start), None)
        if call is None:
            continue
        kind, method = wrap.name.rpartition(".")[2], call.name.rpartition(".")[2]
        yield Finding(
            "",
            f"{wrap.at.where} wraps the engine into {kind}, which has no {method}: {call.at.where} raises AttributeError "
            f"\"'{kind}' object has no attribute '{method}'\".",
            help="Remove the wrapper: the engine averages the gradients over the ranks.",
            elsewhere=wrap.at.related(""),
            related=(call.at.related("called here"),),
            certain=wrap.certain and call.certain,
        )
        return
