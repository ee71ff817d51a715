"""DS7: whether the model fits into the GPU. The rules import the memory estimate only when they run."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from dslint.config import UNKNOWN, Config
from dslint.diagnostics import Effect
from dslint.facts.gpus import GIB, in_words
from dslint.rule import Finding, FixPlan, bad, good, rule
from dslint.rules.helpers.fixes import write
from dslint.rules.helpers.least_plan import TYPES, is_half, least_estimate
from dslint.rules.helpers.model import (
    counted,
    gpu_has,
    holds_more_models,
    may_be_smaller,
    may_train_nothing,
    may_train_part,
    told_options,
    too_large_to_load,
    trains_part,
)
from dslint.rules.helpers.offload import OFFLOAD_OPTIMIZER, OFFLOAD_SECTIONS
from dslint.rules.helpers.zero import IN_HALF_PRECISION, STAGE, ZERO, ZEROPP_FEATURES, excludes_stage_3, is_feature, stage_place
from dslint.source.tree import Scalar

if TYPE_CHECKING:
    from dslint.frameworks.whole_load import WholeLoad
    from dslint.memory.estimate import Estimate
    from dslint.memory.plan import Plan
    from dslint.memory.shapes import Model

MAX_SAMPLE_LENGTH = 32_768
"""The longest sample, in tokens, that `more_zero_than_needed` assumes."""

LEAST_GAIN = 0.02
"""The least share by which training must become faster for the help of `more_zero_than_needed` to name it."""

LLAMA_8B = {
    "model_type": "llama",
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "vocab_size": 128256,
    "max_position_embeddings": 8192,
}
LLAMA_2_7B = {**LLAMA_8B, "intermediate_size": 11008, "num_key_value_heads": 32, "vocab_size": 32000}
MIXTRAL = {**LLAMA_8B, "model_type": "mixtral", "vocab_size": 32000, "num_local_experts": 8, "num_experts_per_tok": 2}
GPT2 = {"model_type": "gpt2", "n_embd": 768, "n_layer": 12, "n_head": 12, "n_positions": 1024, "vocab_size": 50257}

ZERO_DOCS = "https://www.deepspeed.ai/docs/config-json/#zero-optimizations-for-fp16-training"
NEEDS = ("model", "gpu_memory", "world_size")


def _model(config: Config) -> Model | None:
    """The model, if it trains unquantized.

    Raises:
        CannotJudge: its weights cannot be counted.
    """
    facts = config.facts.model
    return counted(facts) if facts is not None and facts.quantization is None else None


def _plan(config: Config, model: Model, length: int, micro_batch: int | None, *, either: bool = False) -> Plan | None:
    """The plan for samples of this length; None if the config does not set what the plan depends on. With `either` it is the plan that needs
    the least: the precision may be unknown, and counts as 16 bits; activations are checkpointed, without which stage 3 keeps the gathered
    experts of all layers.
    """
    from dslint.memory.plan import PlanError, Workload
    from dslint.memory.planning import make_plan

    types = () if either or is_half(config) else TYPES
    decisive = (STAGE, *types, *(f"{section}.device" for section in OFFLOAD_SECTIONS))
    if config.document.problems or any(config.value(key) is UNKNOWN for key in decisive):
        return None
    try:
        return make_plan(config, Workload(length, checkpoint_every=int(either)), model.hidden, micro_batch=micro_batch, accumulation=1)
    except (PlanError, ValueError, TypeError):
        return None


def _freezes_towers(config: Config, model: Model) -> bool:
    """Whether the encoders of images in the model are not trained: as some frameworks do by default, or by the program."""
    from dslint.frameworks.trained import freezes_towers
    from dslint.memory.towers import has_towers

    return ("frozen_towers" in told_options(config) or freezes_towers(config.setup) is not None) and has_towers(model)


def _as_optimized(config: Config, plan: Plan) -> tuple[Plan, str]:
    """The plan with the states of the optimizer that the program uses: the fewest that it may keep. And the optimizer, if it is assumed."""
    from dslint.memory.optimizers import used_optimizer
    from dslint.memory.plan import STATES

    if "optimizer" not in config.replaced and isinstance(config.value("optimizer.type"), str):
        return plan, ""
    used = used_optimizer(config)
    if used.lean:
        return plan.but(optimizer="sgd", optimizer_bytes=STATES["sgd"], step_bytes=0, doubtful_step_bytes=0), ""
    return plan, "" if used.known else " with AdamW"


def _gib(size: float) -> str:
    return f"{size / GIB:,.1f} GiB" if size < 10 * GIB else f"{size / GIB:,.0f} GiB"


_UNLIKELY = (
    '{"train_micro_batch_size_per_gpu": 1, "bf16": {"enabled": true}, "optimizer": {"type": "AdamW", "params": {"lr": 1e-5}}, '
    '"zero_optimization": {"stage": 2, "allgather_bucket_size": 5e8, "contiguous_gradients": true}}'
)
_WITHOUT_OPTIMIZER = '{"train_micro_batch_size_per_gpu": 1, "bf16": {"enabled": true}, "zero_optimization": {"stage": 1}}'
_OWN_LORA = (
    "import argparse\nimport deepspeed\nfrom deepspeed.ops.adam import FusedAdam\nparser = argparse.ArgumentParser()\n"
    'parser.add_argument("--lora_dim", type=int, default=0)\nparser.add_argument("--local_rank", type=int)\nparser = deepspeed.add_config_arguments(parser)\nargs = parser.parse_args()\n'
    "if args.lora_dim > 0:\n    model = convert_to_lora(model, args.lora_dim)\n"
    "deepspeed.initialize(args=args, model=model, optimizer=FusedAdam(model.parameters()))\n"
)
_OWN_LOOP = (
    "import deepspeed\nimport torch\n%sengine, *_ = deepspeed.initialize(model=model, model_parameters=model.parameters(), "
    "optimizer=torch.optim.AdamW(model.parameters(), lr=1e-3), config='ds_config.json')\n"
    "for batch in loader:\n    engine.backward(engine(batch))\n    engine.step()\n"
)
_BY_LAUNCHER = "deepspeed --num_gpus 2 train.py%s --deepspeed --deepspeed_config ds_config.json\n"


@rule("DS706", effect=Effect.MEMORY, needs=NEEDS, watches=("fact:model",), references=(ZERO_DOCS,))
@bad(
    '{"train_micro_batch_size_per_gpu": 1, "bf16": {"enabled": true}, "optimizer": {"type": "AdamW", "params": {"lr": 1e-5}}, "zero_optimization": {"stage": 1}}',
    at="zero_optimization.stage",
    model=LLAMA_8B,
    world_size=2,
    gpu="a100",
    message="Full training of this model (8.03 billion parameters) on 2 ranks needs at least 90 GiB on each GPU before any activation: optimizer states 30 GiB, copies in the step 22 GiB, parameters 15 GiB, master weights 15 GiB, gradients 7.5 GiB. The a100 has 79.1 GiB.",
    fixed='{"train_micro_batch_size_per_gpu": 1, "bf16": {"enabled": true}, "optimizer": {"type": "AdamW", "params": {"lr": 1e-5}}, "zero_optimization": {"stage": 3}}',
)
@bad(
    '{"train_micro_batch_size_per_gpu": 1, "bf16": {"enabled": true}, "optimizer": {"type": "AdamW", "params": {"lr": 1e-5}}, "zero_optimization": {"stage": 3}}',
    at="zero_optimization.stage",
    model=MIXTRAL,
    world_size=8,
    gpu="a100",
    message="Full training of this model (46.7 billion parameters) on 8 ranks needs at least 94 GiB on each GPU before any activation: optimizer states 43 GiB, master weights 22 GiB, parameters 11 GiB, gradients 11 GiB, copies in the step 6.1 GiB. The a100 has 79.1 GiB.",
)
@bad(
    '{"train_micro_batch_size_per_gpu": 1, "bf16": {"enabled": true}, "optimizer": {"type": "AdamW", "params": {"lr": 1e-5}}, "zero_optimization": {"stage": 3}}',
    at="zero_optimization.stage",
    model=LLAMA_8B,
    training="stage: sft\nmodel_name_or_path: meta-llama/Llama-3.1-8B\nfinetuning_type: full\npacking: true\ncutoff_len: 16384\nper_device_train_batch_size: 1\nbf16: true\nlearning_rate: 1e-5\n",
    world_size=8,
    gpu="a100-40gb",
    message="Full training of this model (8.03 billion parameters) on 8 ranks needs at least 45 GiB on each GPU with a sample of 16,384 tokens at a time: logits and loss 23 GiB, optimizer states 7.5 GiB, activations 4.5 GiB, master weights 3.7 GiB, gathered parameters 1.9 GiB, parameters 1.9 GiB, gradients 1.9 GiB, buckets and buffers 0.9 GiB. The a100-40gb has 39.4 GiB.",
)
@bad(
    _UNLIKELY,
    at="zero_optimization.stage",
    model=LLAMA_2_7B,
    world_size=2,
    gpu="h100",
    message="Full training of this model (6.74 billion parameters) on 2 ranks is unlikely to fit: it needs about 80.4 GiB on each GPU before any activation, and at least 75.3 GiB: optimizer states 25 GiB, copies in the step 19 GiB, parameters 13 GiB, master weights 13 GiB, gradients 6.3 GiB. The h100 has 79.1 GiB.",
    fixed='{"train_micro_batch_size_per_gpu": 1, "bf16": {"enabled": true}, "optimizer": {"type": "AdamW", "params": {"lr": 1e-5}}, "zero_optimization": {"stage": 3, "allgather_bucket_size": 5e8, "contiguous_gradients": true}}',
)
@good(_UNLIKELY, model=LLAMA_2_7B, world_size=2, gpu="h200")
@good(
    '{"train_micro_batch_size_per_gpu": "auto", "fp16": {"enabled": "auto"}, "optimizer": {"type": "AdamW", "params": {"lr": "auto"}}, "zero_optimization": {"stage": 1}}',
    integration="transformers",
    model=LLAMA_2_7B,
    world_size=8,
    gpu="rtx6000ada",
)
@good(_UNLIKELY, model=LLAMA_2_7B, world_size=4, gpu="h100")
@good(
    '{"train_micro_batch_size_per_gpu": 1, "bf16": {"enabled": true}, "optimizer": {"type": "AdamW", "params": {"lr": 1e-5}}, "zero_optimization": {"stage": 3}}',
    model=LLAMA_8B,
    world_size=8,
    gpu="a100",
)
@good(
    '{"train_micro_batch_size_per_gpu": 1, "bf16": {"enabled": true}, "optimizer": {"type": "AdamW", "params": {"lr": 1e-5}}, "zero_optimization": {"stage": 1}}',
    training="stage: sft\nmodel_name_or_path: meta-llama/Llama-3.1-8B\nfinetuning_type: lora\nper_device_train_batch_size: 1\nbf16: true\nlearning_rate: 1e-5\n",
    world_size=2,
    gpu="a100",
)
@bad(
    '{"train_micro_batch_size_per_gpu": 1, "bf16": {"enabled": true}, "zero_optimization": {"stage": 2}}',
    at="zero_optimization.stage",
    model={**LLAMA_8B, "num_hidden_layers": 200},
    training="stage: sft\nmodel_name_or_path: m\nfinetuning_type: lora\nper_device_train_batch_size: 1\nbf16: true\nlearning_rate: 1e-5\n",
    world_size=8,
    gpu="a100",
    message="Below ZeRO stage 3 each GPU holds all weights of the model, also those that no adapter changes: 44.7 billion parameters need 83 GiB in 16 bits. The a100 has 79.1 GiB.",
)
@good(
    '{"train_micro_batch_size_per_gpu": 1, "bf16": {"enabled": true}, "zero_optimization": {"stage": 2}}',
    model={**LLAMA_8B, "num_hidden_layers": 200},
    training="stage: sft\nmodel_name_or_path: m\nfinetuning_type: lora\nquantization_bit: 4\nper_device_train_batch_size: 1\nbf16: true\nlearning_rate: 1e-5\n",
    world_size=8,
    gpu="a100",
)
@good(
    '{"train_micro_batch_size_per_gpu": 1, "bf16": {"enabled": true}, "zero_optimization": {"stage": 3}}',
    model={**LLAMA_8B, "num_hidden_layers": 200},
    training="stage: sft\nmodel_name_or_path: m\nfinetuning_type: lora\nper_device_train_batch_size: 1\nbf16: true\nlearning_rate: 1e-5\n",
    world_size=8,
    gpu="a100",
)
@good(
    _WITHOUT_OPTIMIZER.replace('"stage": 1', '"stage": 0'),
    program='import deepspeed\nreference, *_ = deepspeed.initialize(model=model, config="ds_config.json")\n',
    integration="deepspeed",
    model=LLAMA_8B,
    world_size=2,
    gpu="a100",
)
@good(
    _WITHOUT_OPTIMIZER,
    program=_OWN_LORA,
    launch=_BY_LAUNCHER % " --lora_dim 128",
    integration="deepspeed",
    model=LLAMA_8B,
    world_size=2,
    gpu="a100",
)
@good(
    _WITHOUT_OPTIMIZER,
    program=_OWN_LOOP % "for weight in model.body.parameters():\n    weight.requires_grad = False\n",
    integration="deepspeed",
    model=LLAMA_8B,
    world_size=2,
    gpu="a100",
)
@good(
    _WITHOUT_OPTIMIZER,
    program=_OWN_LOOP.replace("model=model,", "model=model, mpu=mpu,") % "",
    integration="deepspeed",
    model=LLAMA_8B,
    world_size=2,
    gpu="a100",
)
@good(
    _WITHOUT_OPTIMIZER,
    program="import deepspeed\nimport torch\nfrom deepspeed.pipe import PipelineModule\nmodel = PipelineModule(layers=layers, num_stages=stages())\n"
    "optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)\n"
    "engine, *_ = deepspeed.initialize(model=model, optimizer=optimizer, config='ds_config.json')\nengine.train_batch(data)\n",
    integration="deepspeed",
    model=LLAMA_8B,
    world_size=2,
    gpu="a100",
)
@good(
    _WITHOUT_OPTIMIZER,
    program=_OWN_LOOP.replace("model.parameters(), ", "model.head.parameters(), ") % "",
    integration="deepspeed",
    model=LLAMA_8B,
    world_size=2,
    gpu="a100",
)
@good(
    _WITHOUT_OPTIMIZER,
    training="stage: sft\nmodel_name_or_path: m\nfinetuning_type: freeze\nper_device_train_batch_size: 1\nbf16: true\nlearning_rate: 1e-5\n",
    world_size=2,
    model=LLAMA_8B,
    gpu="a100",
)
@bad(
    _WITHOUT_OPTIMIZER,
    at="zero_optimization.stage",
    program=_OWN_LOOP.replace("torch.optim.AdamW", "torch.optim.SGD") % "",
    integration="deepspeed",
    model={**LLAMA_8B, "num_hidden_layers": 64},
    world_size=2,
    gpu="a100",
    message="Full training of this model (15 billion parameters) on 2 ranks needs at least 111 GiB on each GPU before any activation: copies in the step 42 GiB, parameters 28 GiB, master weights 28 GiB, gradients 14 GiB. The a100 has 79.1 GiB.",
    fixed='{"train_micro_batch_size_per_gpu": 1, "bf16": {"enabled": true}, "zero_optimization": {"stage": 3}}',
)
@good(
    _WITHOUT_OPTIMIZER,
    program=_OWN_LOOP.replace("torch.optim.AdamW", "torch.optim.SGD") % "",
    integration="deepspeed",
    model=LLAMA_8B,
    world_size=2,
    gpu="a100",
)
@good(_WITHOUT_OPTIMIZER, program=_OWN_LORA, integration="deepspeed", model=LLAMA_8B, world_size=2, gpu="a100")
@bad(
    _WITHOUT_OPTIMIZER,
    at="zero_optimization.stage",
    program=_OWN_LORA,
    launch=_BY_LAUNCHER % "",
    integration="deepspeed",
    model=LLAMA_8B,
    world_size=2,
    gpu="a100",
    message="Full training of this model (8.03 billion parameters) on 2 ranks needs at least 90 GiB on each GPU before any activation: optimizer states 30 GiB, copies in the step 22 GiB, parameters 15 GiB, master weights 15 GiB, gradients 7.5 GiB. The a100 has 79.1 GiB.",
    fixed='{"train_micro_batch_size_per_gpu": 1, "bf16": {"enabled": true}, "zero_optimization": {"stage": 3}}',
)
def does_not_fit(config: Config) -> Iterator[Finding]:
    """Parameters, gradients, optimizer states and buffers exceed the memory of the GPU before any activation.

    dslint replays the first steps with the sizes of the model's weights, a single token and checkpointed activations: no long samples, almost
    no memory for the loss. The result is the minimum that this config needs on every rank if all parameters are trained. The job runs out
    of memory in its first step at the latest. If that fits, and training arguments say how long samples are, their activations and logits
    count, too. These are the figures and the verdicts of `dslint estimate`: a job does not fit if even the low figure exceeds the GPU; it is
    unlikely to fit if the expected one does, with what PyTorch keeps beside tensors on a GPU that is nearly full.

    A config does not tell whether the program trains adapters (LoRA). Adapters have few parameters and need less memory, so that the
    finding applies to full training. Of a run that may train adapters or a part of the model (`--freeze_backbone`, `requires_grad_(False)`),
    or nothing (an engine without an optimizer, as for a reference or a reward model; a run that only evaluates), the weights alone count, in
    16 bits, unless they may have fewer: whole below stage 3, divided at stage 3. An optimizer counts with the fewest states that it may keep,
    and as AdamW where nothing names one. Where only the run knows the precision, the smaller of both figures counts. Experts (Mixtral, Qwen
    MoE) count with all their parameters. With `expert_parallel`, which partitions them further, dslint reports nothing.

    At stage 3 transformers partitions a model while it loads it only if the program creates `TrainingArguments` or `HfDeepSpeedConfig`
    before `from_pretrained`, and keeps it. Otherwise every rank loads the whole model, and DeepSpeed moves it to the GPU first.

    Run `dslint fit` to see what to change: a higher ZeRO stage, offload, more ranks.
    """
    model, memory = _model(config), config.facts.gpu_memory
    plan = _plan(config, model, 1, 1, either=True) if model else None
    if memory is not None and (early := too_large_to_load(config)) is not None:
        yield from _whole_on_load(config, *early, memory)
        return
    if model is None or plan is None or memory is None or plan.sequence > 1:
        return
    if may_train_nothing(config) or trains_part(config) or may_train_part(config):
        yield from _weights_alone(config, model, plan, memory)
        return
    if config.facts.divided_by_program or _freezes_towers(config, model):
        return
    plan, using = _as_optimized(config, plan)
    if any(block.experts for block in model.blocks) and config.value("expert_parallel.enabled") is not False:
        return
    result, when = least_estimate(config, model, plan, lambda found: found.device.low), "before any activation"
    told = _as_trained(config, model) if result.device.low <= memory else None
    if told is not None and _exceeds(told, memory) and (told.device.low > memory or not _exceeds(result, memory)):
        workload, result, plan = told.plan.workload, told, told.plan
        samples = "a sample" if plan.micro_batch == 1 else f"{plan.micro_batch} samples"
        when = f"with {samples} of {'at most ' if workload.varying else ''}{workload.length:,} tokens at a time"
    elif not _exceeds(result, memory):
        return
    parts = [(name, size) for name, size in result.peak.parts.items() if size > 0.02 * result.peak.total]
    listed = ", ".join(f"{name} {_gib(size)}" for name, size in sorted(parts, key=lambda part: -part[1]))
    certain = result.device.low > memory
    needs = f"needs at least {_gib(result.device.low)} on each GPU {when}"
    if not certain:
        needs = f"is unlikely to fit: it needs about {result.full / GIB:,.1f} GiB on each GPU {when}, and at least {result.device.low / GIB:,.1f} GiB"
    yield Finding(
        stage_place(config),
        f"Full training of this model ({model.in_billions}){using} on {plan.world:,} {'ranks' if plan.world > 1 else 'rank'} "
        f"{needs}: {listed}. The {gpu_has(config, memory)}.",
        help=f"Run dslint fit with --model and --gpu to see what to change; {_advice(result)}. "
        "Adapters need less: run dslint estimate --lora-rank.",
        fix=_lowest_stage(config, model, plan, memory),
        certain=certain,
    )


def _exceeds(result: Estimate, memory: int) -> bool:
    """Whether the estimate says that a job does not fit, or that it is unlikely to. The second does not count where the low figure fits
    and it is only assumed that activations are not checkpointed.
    """
    from dslint.memory.estimate import Verdict

    verdict = result.verdict(memory)
    return verdict is Verdict.NO or (verdict is Verdict.UNLIKELY and "no activation checkpointing" not in result.plan.guessed)


def _weights_alone(config: Config, model: Model, plan: Plan, memory: int) -> Iterator[Finding]:
    """The finding for a run that trains a part of the model, or nothing: each GPU holds the weights, which alone do not fit."""
    setup, arguments = config.setup, config.arguments
    program = setup.program if setup is not None else None
    if program is None and (arguments is None or not arguments.sure or not arguments.complete):
        return
    divided, weights = plan.stage == 3, 2 * model.size // (plan.replicas if plan.stage == 3 else 1)
    if weights <= memory or may_be_smaller(config) or (divided and (plan.parameter_device or plan.quantized_weights)):
        return
    others = "that no adapter changes" if trains_part(config) else "that are not trained"
    whole = f"{model.in_billions} need"
    if divided:
        said = f"At ZeRO stage 3 each of {plan.replicas:,} GPUs holds its part of all weights of the model, also of those {others}: {whole}"
        said += f" {_gib(weights)} on each in 16 bits."
        advice = "Use more GPUs, or offload_param, which keeps the weights on the host."
    else:
        said = f"Below ZeRO stage 3 each GPU holds all weights of the model, also those {others}: {whole} {_gib(weights)} in 16 bits."
        advice = "Use ZeRO stage 3, which partitions them, or train adapters of a model in 4 bits (QLoRA)."
    yield Finding(
        stage_place(config),
        f"{said} The {gpu_has(config, memory)}.",
        help=advice,
    )


def _whole_on_load(config: Config, found: WholeLoad, model: Model, memory: int) -> Iterator[Finding]:
    """The finding for a model that every rank loads whole, and that no GPU can hold before DeepSpeed partitions it."""
    yield Finding(
        stage_place(config),
        f"{found.at.where} loads the model{found.when}: every rank loads the whole model, and DeepSpeed moves all of it to the GPU before it "
        f"partitions it. Its {model.in_billions} need {_gib(2 * model.size)} in 16 bits, and the "
        f"{gpu_has(config, memory)}.",
        help=found.instead,
        related=(found.at.related("loaded here"),),
    )


def _as_trained(config: Config, model: Model) -> Estimate | None:
    """The estimate with what the training arguments say of samples and activations; None if they do not say how long samples are."""
    from dslint.memory.completed import completed
    from dslint.memory.estimate import estimate
    from dslint.memory.plan import PlanError
    from dslint.memory.requests import DEFAULTS, planned
    from dslint.memory.towers import has_towers

    setup = config.setup
    arguments = (setup.arguments or setup.of_framework) if setup is not None else None
    if arguments is None:
        return None
    done = completed(DEFAULTS, arguments, config.context)
    if "length" not in done.of_options or (done.said["frozen_towers"] and has_towers(model)) or done.said["no_logits"]:
        return None
    try:
        return estimate(model, _as_optimized(config, planned(config, model, done.said))[0])
    except (PlanError, ValueError, TypeError):
        return None


def _lowest_stage(config: Config, model: Model, plan: Plan, memory: int) -> FixPlan | None:
    """Write the lowest ZeRO stage above this one at which the model fits, if there is one."""
    from dslint.memory.estimate import estimate
    from dslint.memory.sweep import at_stage

    stages = range(plan.stage + 1, 3 if excludes_stage_3(config) else 4) if plan.replicas > 1 else ()
    return next(
        (write(config, STAGE, str(stage)) for stage in stages if not _exceeds(estimate(model, at_stage(plan, stage)), memory)), None
    )


def _advice(result: Estimate) -> str:
    plan = result.plan
    if plan.stage < 3 and plan.replicas > 1:
        return "a higher ZeRO stage partitions what every rank now holds whole"
    if plan.optimizer_device is None and plan.stage:
        return "offload_optimizer moves master weights and optimizer states to the host"
    return "with more ranks each holds a smaller partition"


@rule(
    "DS707",
    effect=Effect.SLOW,
    needs=NEEDS,
    watches=("zero_optimization.stage", "zero_optimization.offload_param", "zero_optimization.offload_optimizer"),
    references=(ZERO_DOCS,),
)
@bad(
    '{"train_micro_batch_size_per_gpu": 4, "bf16": {"enabled": true}, "optimizer": {"type": "AdamW", "params": {"lr": 1e-5}}, "zero_optimization": {"stage": 3}}',
    at="zero_optimization.stage",
    model=GPT2,
    world_size=8,
    gpu="h100",
    message="ZeRO stage 3 gathers every parameter for every micro batch, in forward and backward, and this model fits at stage 2: it then needs at most 8.9 GiB of 79.1 GiB, with a micro batch size of 4, samples of 1,024 tokens, fused attention and no activation checkpointing.",
    fixed='{"train_micro_batch_size_per_gpu": 4, "bf16": {"enabled": true}, "optimizer": {"type": "AdamW", "params": {"lr": 1e-5}}, "zero_optimization": {"stage": 2}}',
)
@bad(
    '{"train_micro_batch_size_per_gpu": 4, "bf16": {"enabled": true}, "optimizer": {"type": "AdamW", "params": {"lr": 1e-5}}, "zero_optimization": {"stage": 2, "offload_optimizer": {"device": "cpu"}}}',
    at="zero_optimization.offload_optimizer.device",
    model=GPT2,
    world_size=8,
    gpu="h100",
    message='offload_optimizer to "cpu" moves gradients and parameters over PCIe at every step, and this model fits without it: it then needs at most 8.9 GiB of 79.1 GiB, with a micro batch size of 4, samples of 1,024 tokens, fused attention and no activation checkpointing.',
    fixed='{"train_micro_batch_size_per_gpu": 4, "bf16": {"enabled": true}, "optimizer": {"type": "AdamW", "params": {"lr": 1e-5}}, "zero_optimization": {"stage": 2, "offload_optimizer": {"device": "none"}}}',
)
@good(
    '{"train_micro_batch_size_per_gpu": 4, "bf16": {"enabled": true}, "optimizer": {"type": "AdamW", "params": {"lr": 1e-5}}, "zero_optimization": {"stage": 3}}',
    model=LLAMA_8B,
    world_size=8,
    gpu="h100",
)
@good(
    '{"train_micro_batch_size_per_gpu": 4, "bf16": {"enabled": true}, "optimizer": {"type": "AdamW", "params": {"lr": 1e-5}}, "zero_optimization": {"stage": 2}}',
    model=GPT2,
    world_size=8,
    gpu="h100",
)
@good(
    '{"train_micro_batch_size_per_gpu": 4, "bf16": {"enabled": true}, "optimizer": {"type": "AdamW", "params": {"lr": 1e-5}}, "zero_optimization": {"stage": 2, "offload_optimizer": {"device": "cpu"}}}',
    program="from trl import DPOConfig, DPOTrainer\nargs = DPOConfig('o', deepspeed='ds_config.json', per_device_train_batch_size=4, bf16=True)\nDPOTrainer('m', args=args).train()\n",
    integration="transformers",
    model=GPT2,
    world_size=8,
    gpu="h100",
)
@bad(
    '{"train_micro_batch_size_per_gpu": 4, "bf16": {"enabled": true}, "optimizer": {"type": "AdamW", "params": {"lr": 1e-5}}, "zero_optimization": {"stage": 2, "offload_optimizer": {"device": "cpu"}}}',
    at="zero_optimization.offload_optimizer.device",
    program="import deepspeed\nfrom peft import LoraConfig, get_peft_model\nfrom transformers import AutoModelForCausalLM\n"
    "model = get_peft_model(AutoModelForCausalLM.from_pretrained('m'), LoraConfig())\n"
    "engine, *_ = deepspeed.initialize(model=model, model_parameters=model.parameters(), config='ds_config.json')\n"
    "for batch in loader:\n    engine.backward(engine(batch))\n    engine.step()\n",
    integration="deepspeed",
    model=GPT2,
    world_size=8,
    gpu="h100",
    message='offload_optimizer to "cpu" moves gradients and parameters over PCIe at every step, and this model fits without it: it then needs at most 8.9 GiB of 79.1 GiB, with a micro batch size of 4, samples of 1,024 tokens, fused attention and no activation checkpointing.',
    fixed='{"train_micro_batch_size_per_gpu": 4, "bf16": {"enabled": true}, "optimizer": {"type": "AdamW", "params": {"lr": 1e-5}}, "zero_optimization": {"stage": 2, "offload_optimizer": {"device": "none"}}}',
)
def more_zero_than_needed(config: Config) -> Iterator[Finding]:
    """Offload or ZeRO stage 3 slows down every step, and the model fits without it.

    dslint estimates with the longest samples that the model takes (at most 32,768 tokens), the micro batch size of this config, no
    activation checkpointing, and the upper bound of the estimate: if that fits, shorter samples fit too. Offload moves gradients and
    parameters over PCIe at every step and updates them on the CPU; stage 3 gathers every parameter twice for every micro batch.

    Remove what is not needed, or keep it if you plan to train a larger model.
    """
    micro_batch = config.value("train_micro_batch_size_per_gpu")
    model, memory = _model(config), config.facts.gpu_memory
    if model is None or memory is None or not isinstance(micro_batch, int) or not model.vocabulary:
        return
    if may_train_nothing(config) or holds_more_models(config) or config.facts.divided_by_program:
        return
    length = model.tokens or min(model.positions or MAX_SAMPLE_LENGTH, MAX_SAMPLE_LENGTH)
    plan = _plan(config, model, length, micro_batch)
    if plan is None or plan.sequence > 1 or plan.replicas < 2:
        return
    if (plan.optimizer_device and _needs_offload(config)) or any(is_feature(config, name) for name in ZEROPP_FEATURES):
        return
    if plan.parameter_device or plan.optimizer_device:
        section = next(section for section in OFFLOAD_SECTIONS if config.value(f"{section}.device") in ("cpu", "nvme"))
        cheaper = plan.but(parameter_device=None, optimizer_device=None)
        key, value, what = f"{section}.device", '"none"', f'{section.rpartition(".")[2]} to "{config.value(f"{section}.device")}"'
        without = f"without {'any offload' if plan.parameter_device and plan.optimizer_device else 'it'}"
        is_written = isinstance(config.node(key), Scalar)  # the old cpu_offload: true has no device
        cost, advice = "moves gradients and parameters over PCIe at every step", "Remove the offload."
        if is_written:
            advice = 'Remove the offload, or set "device": "none".'
    elif plan.stage == 3:
        from dslint.memory.sweep import at_stage

        cheaper = at_stage(plan, 2)
        key, value, what, without = STAGE, "2", "ZeRO stage 3", "at stage 2"
        cost, advice = "gathers every parameter for every micro batch, in forward and backward", 'Set "stage": 2.'
        is_written = True
    else:
        return
    from dslint.memory.estimate import estimate

    result = estimate(model, cheaper)
    if result.device.high > memory:
        return
    yield Finding(
        key,
        f"{what} {cost}, and this model fits {without}: it then needs at most {_gib(result.device.high)} of {in_words(memory)}, "
        f"with a micro batch size of {micro_batch}, samples of {length:,} tokens, fused attention and no activation checkpointing.",
        help=f"{advice} {_faster(config, model, plan, cheaper)}",
        on="value",
        fix=write(config, key, value) if is_written else None,
    )


def _needs_offload(config: Config) -> bool:
    """Whether another setting works only with an offloaded optimizer."""
    written = (f"{ZERO}.zenflow", f"{OFFLOAD_OPTIMIZER}.super_offload", f"{OFFLOAD_OPTIMIZER}.ratio")
    return any(config.has(key) and not config.is_null(key) for key in written) or any(
        config.value(key) is True for key in IN_HALF_PRECISION
    )


def _faster(config: Config, model: Model, plan: Plan, cheaper: Plan) -> str:
    """How much faster a cheaper plan trains on the GPU of this setup, as a sentence."""
    from dslint.speed.compare import compare
    from dslint.speed.planned import job_of, precision_of
    from dslint.speed.step import step

    if config.facts.gpu is None or not model.blocks:
        return "Training is faster that way."
    first, second = (step(job_of(model, one, precision_of(config, one))) for one in (cheaper, plan))
    found = compare(first, second)
    if found.gain < LEAST_GAIN:
        return "Training is hardly slower this way, by prediction, but nothing is gained by it."
    expected, low, high = (1 + share for share in (found.gain, max(0.0, found.low), found.high))
    return f"Without accumulation, training is then {expected:.3g} times as fast by prediction ({low:.3g} to {high:.3g})."
