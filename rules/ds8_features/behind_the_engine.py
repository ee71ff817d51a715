"""DS8: calls that replace parameters of a model that DeepSpeed has taken over."""

from __future__ import annotations

import re
from collections.abc import Iterator

from dslint.config import Config
from dslint.diagnostics import Effect, Phase
from dslint.job.events import ENGINE, Event, GivenArgument
from dslint.job.model import Program
from dslint.rule import Finding, bad, good, rule
from dslint.rules.helpers.examples import ADAMW
from dslint.rules.helpers.prepare import PREPARE, kind_of
from dslint.rules.helpers.zero import STAGE

_METHODS = (
    "resize_token_embeddings",
    "add_adapter",
    "merge_and_unload",
    "unload",
    "set_input_embeddings",
    "set_output_embeddings",
)
"""Methods of a model that replace or add parameters."""

_FUNCTIONS = (
    r"accelerate\.(big_modeling\.)?(dispatch_model|cpu_offload|cpu_offload_with_hook|disk_offload)",
    r"accelerate\.(\w+\.)*load_checkpoint_and_dispatch",
    r"peft\.(\w+\.)*(get_peft_model|prepare_model_for_kbit_training|inject_adapter_in_model)",
    r"torch\.nn\.(\w+\.)*convert_sync_batchnorm",
)
"""Functions that do so to their first argument."""

_MOVES = re.compile(r"accelerate\..*")

_CONFIG = f'{{{ADAMW}, "zero_optimization": {{"stage": 2}}}}'
_PREPARED = '{"train_micro_batch_size_per_gpu": 4, "gradient_accumulation_steps": 1, "zero_optimization": {"stage": 2}}'
_LOADED = "from transformers import AutoModelForCausalLM\nmodel = AutoModelForCausalLM.from_pretrained('m')\n"
_ENGINE = (
    "import deepspeed\n" + _LOADED + "%s"
    "engine, *_ = deepspeed.initialize(model=model, model_parameters=model.parameters(), config='ds_config.json')\n%s"
)
_ACCELERATE = (
    "import accelerate\nimport torch\nfrom peft import LoraConfig, get_peft_model\n"
    + _LOADED
    + "accelerator = accelerate.Accelerator()\n%s"
    "optimizer = torch.optim.AdamW(model.parameters())\nmodel, optimizer, loader = accelerator.prepare(model, optimizer, loader)\n%s"
)
_RESIZE = "model.resize_token_embeddings(len(tokenizer))\n"
_WRAP = "import torch\nmodel = torch.nn.parallel.DistributedDataParallel(model)\n"
_DISPATCH = "model = accelerate.dispatch_model(model, device_map=devices)\n"


@rule(
    "DS890",
    effect=Effect.SILENT,
    watches=("setup",),
    references=(
        "deepspeed/runtime/engine.py, DeepSpeedEngine._configure_optimizer and _get_zero_frozen_param_attributes",
        "accelerate/big_modeling.py, dispatch_model",
        "https://github.com/huggingface/accelerate/issues/2211",
    ),
    setup=True,
)
@bad(
    _CONFIG,
    at="",
    program=_ENGINE % ("", _RESIZE),
    integration="deepspeed",
    message="train.py:5 calls resize_token_embeddings on a model after train.py:4 has made the engine: the next step may raise, because the engine keeps the size of before.",
)
@bad(
    _CONFIG,
    at="",
    program=_ENGINE % ("", "engine.module.resize_token_embeddings(9)\n"),
    integration="deepspeed",
    message="train.py:5 calls resize_token_embeddings on a model after train.py:4 has made the engine: the next step may raise, because the engine keeps the size of before.",
)
@bad(
    _PREPARED,
    at="",
    program=_ACCELERATE % ("", _DISPATCH),
    integration="accelerate",
    message="train.py:9 calls dispatch_model on a model after train.py:8 has made the engine: it replaces parameters and moves them by hooks of its own. DeepSpeed may not find them, and raises in a step or when it saves a checkpoint.",
)
@bad(
    _PREPARED,
    at="",
    program=_ACCELERATE % ("", "model = get_peft_model(model, LoraConfig(r=8))\n"),
    integration="accelerate",
    message="train.py:9 calls get_peft_model on a model after train.py:8 has made the engine: the optimizer of the engine keeps the parameters of before. The new ones may not be trained, or the next step raises.",
)
@good(_CONFIG, program=_ENGINE % (_RESIZE, ""), integration="deepspeed")
@good(_CONFIG.replace('"stage": 2', '"stage": 0'), program=_ENGINE % ("", _RESIZE), integration="deepspeed")
@good(_PREPARED, program=_ACCELERATE % (_RESIZE, ""), integration="accelerate")
@good(_PREPARED, program=_ACCELERATE % ("model = get_peft_model(model, LoraConfig(r=8))\n", ""), integration="accelerate")
@good(_PREPARED, program=_ACCELERATE % ("", "accelerator.unwrap_model(model).save_pretrained('out')\n"), integration="accelerate")
@good(
    _PREPARED,
    program=_ACCELERATE % ("", "teacher = accelerate.dispatch_model(AutoModelForCausalLM.from_pretrained('t'), device_map=devices)\n"),
    integration="accelerate",
)
@good(
    _PREPARED,
    program=_ACCELERATE % ("", "if accelerator.distributed_type != 'DEEPSPEED':\n    " + _DISPATCH),
    integration="accelerate",
)
@good(
    _PREPARED,
    program=_ACCELERATE
    % (
        "",
        "for batch in loader:\n    accelerator.backward(model(**batch).loss)\nmodel = accelerator.unwrap_model(model).merge_and_unload()\n",
    ),
    integration="accelerate",
)
@good(
    _CONFIG,
    program=_ENGINE % ("", "model = AutoModelForCausalLM.from_pretrained('other')\n" + _RESIZE),
    integration="deepspeed",
)
def parameters_replaced_behind_engine(config: Config) -> Iterator[Finding]:
    """The program replaces or adds parameters of a model after DeepSpeed has made its engine.

    The engine, its optimizer and its hooks keep the parameters that the model has in `deepspeed.initialize`, or in `Accelerator.prepare`.
    An adapter or `accelerate.dispatch_model` afterwards replaces or adds some: the new ones are not in the optimizer, so that they are not
    trained, or DeepSpeed raises when it looks for them while it saves a checkpoint. After `resize_token_embeddings` the next step raises
    RuntimeError at ZeRO stages 1 to 3.

    Make these calls before the engine.
    """
    program = config.setup.program if config.setup else None
    if program is None:
        return
    for event, made in _late_calls(program):
        short = event.name.rpartition(".")[2]
        moves, resizes = _MOVES.fullmatch(event.name) is not None, short == "resize_token_embeddings"
        if resizes and not config.value(STAGE) >= 1:
            continue  # without ZeRO the engine trains the resized weight
        outcome = (
            "the next step raises, because the engine keeps the size of before."
            if resizes
            else "it replaces parameters and moves them by hooks of its own. DeepSpeed may not find them, and raises in a step or when it saves a checkpoint."
            if moves
            else "the optimizer of the engine keeps the parameters of before. The new ones may not be trained, or the next step raises."
        )
        yield Finding(
            "",
            f"{event.at.where} calls {short} on a model after {made.at.where} has made the engine: {outcome}",
            help=f"Call {short} before the engine is made." if not moves else f"Remove {short}: DeepSpeed places the model itself.",
            elsewhere=event.at.related(""),
            related=(made.at.related("the engine is made here"),),
            effect=Effect.CRASH if resizes else Effect.SILENT,
            phase=Phase.STEP if resizes else None,
            certain=False,
        )
        return


def _late_calls(program: Program) -> Iterator[tuple[Event, Event]]:
    """Calls that replace parameters of a model, each with the call before it that made the engine of this model."""
    events = program.events
    engines: dict[int, Event] = {}
    trained = False
    for event in events.all:
        if event.flow or event.unlikely:
            continue
        if re.fullmatch(PREPARE, event.name) or event.name == ENGINE:
            given = [event.argument("model", 1)] if event.name == ENGINE else list(event.arguments.values())
            engines.update({one.origin: event for one in given if one is not None and one.origin is not None and _may_be_model(one.made)})
            if event.name == ENGINE:
                engines[event.start] = event
            continue
        trained = trained or event.name.endswith((".backward", ".step")) or event.name == "torch.autograd.backward"
        if trained or event.tells_setups_apart:
            continue
        owner = _owner_of(event)
        if owner is not None and owner in engines and not event.excludes(engines[owner]):
            yield event, engines[owner]


def _may_be_model(made: str) -> bool:
    return kind_of(made) is None and not made.startswith(("torch.utils.data.", "accelerate.utils.Dummy"))


def _owner_of(event: Event) -> int | None:
    """The origin of the model whose parameters a call replaces; None for any other call."""
    short = event.name.rpartition(".")[2]
    if any(re.fullmatch(one, event.name) for one in _FUNCTIONS):
        given = event.argument("model", 0) or event.argument("module", 0)
        return given.origin if given is not None else None
    if short not in _METHODS or event.name.startswith("torch."):
        return None
    if short == "resize_token_embeddings" and not event.arguments:
        return None  # it only returns the embedding
    return event.origin


@rule(
    "DS891",
    effect=Effect.CRASH,
    phase=Phase.STEP,
    watches=("setup",),
    references=("deepspeed/runtime/engine.py, DeepSpeedEngine.allreduce_gradients", "torch/nn/parallel/distributed.py, Reducer"),
    untried="requires several ranks; it was tried with two, at each ZeRO stage",
    setup=True,
)
@bad(
    _CONFIG.replace('"stage": 2', '"stage": 3'),
    at="",
    program=_ENGINE % (_WRAP, ""),
    integration="deepspeed",
    message='train.py:6 makes the engine of a DistributedDataParallel: at ZeRO stage 3 the first step raises RuntimeError "The size of tensor a must match the size of tensor b (0)".',
)
@bad(
    _CONFIG,
    at="",
    program=_ENGINE % (_WRAP, ""),
    integration="deepspeed",
    message="train.py:6 makes the engine of a DistributedDataParallel: it keeps whole gradients in its buckets, and reduces them before DeepSpeed reduces them again.",
)
@good(_CONFIG, program=_ENGINE % ("teacher = torch.nn.parallel.DistributedDataParallel(teacher)\n", ""), integration="deepspeed")
@good(
    _CONFIG,
    program=_ENGINE % ("if not args.deepspeed:\n    " + _WRAP.partition("\n")[2] + "else:\n    pass\n", ""),
    integration="deepspeed",
)
@good(_PREPARED, program=_ACCELERATE % ("", ""), integration="accelerate")
@good(
    _PREPARED,
    program=_ACCELERATE % ("if accelerator.distributed_type == 'MULTI_GPU':\n    " + _WRAP.partition("\n")[2], ""),
    integration="accelerate",
)
def wrapped_for_ddp_too(config: Config) -> Iterator[Finding]:
    """The program gives DeepSpeed a model that `DistributedDataParallel` wraps.

    DistributedDataParallel keeps the whole gradients in buckets of its own, and reduces them before DeepSpeed does. At ZeRO stage 3, which divides the
    weights, the first step raises RuntimeError "The size of tensor a ... must match the size of tensor b (0)". At the other stages the gradients are
    reduced twice, and the buckets take the memory that ZeRO stage 2 saves.

    Give DeepSpeed the model itself.
    """
    program = config.setup.program if config.setup else None
    if program is None:
        return
    for event in program.events.of(PREPARE, ENGINE.replace(".", r"\.")):
        given = [event.argument("model", 1)] if event.name == ENGINE else list(event.arguments.values())
        if event.unlikely or event.tells_setups_apart or not any(map(_is_wrapped, given)):
            continue
        crashes = bool(config.value(STAGE) >= 3)
        yield Finding(
            "",
            f"{event.at.where} makes the engine of a DistributedDataParallel: "
            + (
                'at ZeRO stage 3 the first step raises RuntimeError "The size of tensor a must match the size of tensor b (0)".'
                if crashes
                else "it keeps whole gradients in its buckets, and reduces them before DeepSpeed reduces them again."
            ),
            help="Give DeepSpeed the model itself.",
            elsewhere=event.at.related(""),
            effect=Effect.CRASH if crashes else Effect.SLOW,
            phase=Phase.STEP if crashes else None,
            certain=event.certain and event.flow == 0,
        )
        return


def _is_wrapped(given: GivenArgument | None) -> bool:
    return given is not None and re.fullmatch(r"torch\.nn\.parallel\.(\w+\.)*DistributedDataParallel", given.made) is not None
