"""DS6: models and scalers that a program gives to an engine of DeepSpeed, and that the engine does not handle as the program expects."""

from __future__ import annotations

import re
from collections.abc import Iterator

from dslint.config import Config
from dslint.diagnostics import Effect, Phase
from dslint.facts import Integration
from dslint.job.events import ENGINE
from dslint.rule import Finding, bad, good, rule
from dslint.rules.helpers.examples import trained
from dslint.rules.helpers.offload import offloads_optimizer
from dslint.rules.helpers.precision import model_dtype
from dslint.rules.helpers.zero import STAGE

_STAGE_1 = trained('"gradient_accumulation_steps": 1, "zero_optimization": {"stage": 1}')
_STAGE_2 = _STAGE_1.replace('"stage": 1', '"stage": 2')
_ENGINE = (
    "import deepspeed\nimport torch\nnet = torch.nn.Linear(8, 8)\n%s"
    'engine, optimizer, *_ = deepspeed.initialize(model=net, model_parameters=net.parameters(), config="ds_config.json")\n'
)
_SCALED = (
    _ENGINE
    % ""
    + "scaler = torch.cuda.amp.GradScaler(%s)\nfor batch in loader:\n    loss = engine(batch).mean()\n    engine.backward(scaler.scale(loss))\n"
    "    scaler.step(optimizer)\n    scaler.update()\n    engine.step()\n"
)


@rule(
    "DS669",
    effect=Effect.CRASH,
    phase=Phase.STEP,
    watches=("setup",),
    references=("torch/amp/grad_scaler.py, GradScaler.step", "deepspeed/runtime/zero/stage_1_and_2.py, step"),
    untried="depends on the calls of the program",
    setup=True,
)
@bad(
    _STAGE_2,
    at="",
    program=_SCALED % "",
    integration="deepspeed",
    message='train.py:9 passes the optimizer of an engine to GradScaler.step: with ZeRO, fp16 or bf16 its parameters have no gradients there, and torch raises AssertionError "No inf checks were recorded for this optimizer".',
)
@good(_STAGE_2, program=_SCALED % "enabled=False", integration="deepspeed")
@good(_STAGE_2, program=_SCALED % "enabled=args.amp", integration="deepspeed")
@good(_STAGE_2, program=(_SCALED % "").replace("scaler.step(optimizer)", "scaler.step(other)"), integration="deepspeed")
@good(trained('"zero_optimization": {"stage": 0}'), program=_SCALED % "", integration="deepspeed")
def scaler_of_engine(config: Config) -> Iterator[Finding]:
    """The program steps the optimizer of an engine with a `GradScaler` of torch.

    With ZeRO, fp16 or bf16 `deepspeed.initialize` returns an optimizer whose parameters are copies in fp32. These get their gradients only
    inside of its step. `GradScaler.step` looks for them before, finds none and raises `AssertionError: No inf checks were recorded for this
    optimizer`. DeepSpeed scales the loss in fp16 itself.

    Remove the GradScaler, call `engine.backward(loss)` and `engine.step()`, and write the section fp16 or bf16.
    """
    program = config.setup.program if config.setup else None
    if program is None or config.document.root is None or config.facts.integration is not Integration.DEEPSPEED:
        return
    has_copies = config.value(STAGE) in (1, 2, 3) or model_dtype(config) in ("fp16", "bf16")
    if not has_copies or offloads_optimizer(config):
        return
    scalers = {one.start: one for one in program.events.of(r"torch\.(\w+\.)*GradScaler")}
    for step in program.events.of(r"torch\.(\w+\.)*GradScaler\.step"):
        given, scaler = step.argument("optimizer", 0), scalers.get(step.origin or 0)
        if given is None or given.made != f"{ENGINE}.optimizer" or scaler is None or step.unlikely or step.tells_setups_apart:
            continue
        if not scaler.complete or "enabled" in scaler.arguments:
            continue
        yield Finding(
            "",
            f"{step.at.where} passes the optimizer of an engine to GradScaler.step: with ZeRO, fp16 or bf16 its parameters have no gradients there, "
            'and torch raises AssertionError "No inf checks were recorded for this optimizer".',
            help="Remove the GradScaler, and call engine.backward(loss) and engine.step().",
            elsewhere=step.at.related(""),
            related=(scaler.at.related("made here"),),
            certain=step.certain,
        )
        return


_PARTS = (
    "import deepspeed\nimport torch\nfrom deepspeed.pipe import PipelineModule\nclass Both(torch.nn.Module):\n    def __init__(self):\n"
    "        super().__init__()\n        self.text = %s\n    def forward(self, batch):\n        return self.text(batch)\n"
    'net = Both()\nengine, *_ = deepspeed.initialize(model=net, model_parameters=net.parameters(), config="ds_config.json")\n'
    "for batch in loader:\n    engine.backward(engine(batch))\n    engine.step()\n"
)


@rule(
    "DS670",
    effect=Effect.SILENT,
    watches=("setup",),
    references=("deepspeed/__init__.py, initialize: only a PipelineModule gets a PipelineEngine", "deepspeed/runtime/pipe/module.py"),
    setup=True,
)
@bad(
    _STAGE_1,
    at="",
    program=_PARTS % "PipelineModule(layers=layers, num_stages=2)",
    integration="deepspeed",
    message="train.py:7 makes a PipelineModule of 2 stages as a part of another model, which gets no engine for pipelines: each rank has only the layers of its stage, and nothing passes their results on to the next one. The run may hang.",
)
@good(_STAGE_1, program=_PARTS % "torch.nn.Linear(8, 8)", integration="deepspeed")
@good(_STAGE_1, program=_PARTS % "PipelineModule(layers=layers, num_stages=1)", integration="deepspeed")
@good(
    _STAGE_1,
    program="import deepspeed\nfrom deepspeed.pipe import PipelineModule\nnet = PipelineModule(layers=layers, num_stages=2)\n"
    'engine, *_ = deepspeed.initialize(model=net, config="ds_config.json")\nengine.train_batch(iterator)\n',
    integration="deepspeed",
)
def pipeline_as_part(config: Config) -> Iterator[Finding]:
    """A `PipelineModule` is a part of another model.

    `deepspeed.initialize` makes an engine for pipelines only if the model itself is a `PipelineModule`. As a part of another model each rank
    still has only the layers of its stage, and its forward pass runs them on its own inputs: no rank computes the whole model.

    Write the whole model as one list of layers of a `PipelineModule`.
    """
    program = config.setup.program if config.setup else None
    if program is None:
        return
    models = {given.origin for one in program.events.of(re.escape(ENGINE)) if (given := one.argument("model", 1)) is not None}
    for module in program.events.of(r"deepspeed\.(runtime\.)?pipe\.(module\.)?PipelineModule"):
        stages = module.argument("num_stages", 1)
        is_part = any(part in models for part in module.parts_of)
        if not is_part or module.start in models or stages is None or not isinstance(stages.value, int) or stages.value < 2:
            continue
        yield Finding(
            "",
            f"{module.at.where} makes a PipelineModule of {stages.value} stages as a part of another model, which gets no engine for pipelines: each "
            "rank has only the layers of its stage, and nothing passes their results on to the next one. The run may hang.",
            help="Write the whole model as one list of layers of a PipelineModule.",
            elsewhere=module.at.related(""),
            certain=module.certain,
        )
        return


_FROZEN = _ENGINE % "net.requires_grad_(False)\nnet.bias.requires_grad_(True)\n"
_CONVERTED = (
    _FROZEN + "engine.save_checkpoint('out')\nfrom deepspeed.utils.zero_to_fp32 import get_fp32_state_dict_from_zero_checkpoint\n"
    "weights = get_fp32_state_dict_from_zero_checkpoint('out'%s)\n"
)
_CONVERTS = r"deepspeed\.utils\.zero_to_fp32\.(get_fp32_state_dict_from|convert|load_state_dict_from)_zero_checkpoint(_to_fp32_state_dict)?"


@rule(
    "DS671",
    effect=Effect.SILENT,
    watches=("setup",),
    references=(
        "deepspeed/runtime/engine.py, _save_checkpoint: save_frozen_param",
        "https://github.com/deepspeedai/DeepSpeed/issues/5439",
    ),
)
@bad(
    _STAGE_1,
    at="zero_optimization.stage",
    program=_CONVERTED % "",
    integration="deepspeed",
    message="The program may freeze weights (train.py:4), and converts checkpoints of ZeRO stage 1 (train.py:9): these do not list frozen weights, so the converted ones lack them.",
)
@good(_STAGE_2, program=_CONVERTED % "", integration="deepspeed")
@good(_STAGE_1, program=_CONVERTED % ", exclude_frozen_parameters=True", integration="deepspeed")
@good(
    _STAGE_1,
    program=(_CONVERTED % "").replace("requires_grad_(False)", "train()").replace("net.bias.requires_grad_(True)\n", ""),
    integration="deepspeed",
)
@good(_STAGE_1, program=_FROZEN + "engine.save_checkpoint('out')\n", integration="deepspeed")
def frozen_not_converted(config: Config) -> Iterator[Finding]:
    """The program converts checkpoints of ZeRO stage 1 of a model with frozen weights.

    A checkpoint of ZeRO stages 2 and 3 lists the frozen weights for the functions of `zero_to_fp32`; one of stage 1 does not. What they return
    has only the trained weights. All weights in half precision are in the file `mp_rank_00_model_states.pt`.

    Use ZeRO stage 2, or add the frozen weights from the pretrained model.
    """
    program = config.setup.program if config.setup else None
    is_stage_1 = bool(config.value(STAGE) == 1)
    if program is None or program.freezes is None or not is_stage_1:
        return
    call = next(
        (one for one in program.events.of(_CONVERTS) if "exclude_frozen_parameters" not in one.arguments and not one.unlikely), None
    )
    if call is None:
        return
    yield Finding(
        STAGE,
        f"The program may freeze weights ({program.freezes.where}), and converts checkpoints of ZeRO stage 1 ({call.at.where}): these do not list "
        "frozen weights, so the converted ones lack them.",
        help="Set the stage to 2, or add the frozen weights from the pretrained model.",
        related=(call.at.related("converted here"),),
        certain=False,
    )
