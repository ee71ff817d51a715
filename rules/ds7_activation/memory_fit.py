"""DS7: whether the model fits into the GPU. The rules import the memory estimate only when they run."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from dslint.config import Config
from dslint.diagnostics import Effect, Phase
from dslint.facts.gpus import GIB
from dslint.rule import CannotJudge, Finding, FixPlan, bad, good, rule
from dslint.rules.helpers.as_trained import AsTrained, as_trained, what_fits
from dslint.rules.helpers.fixes import write
from dslint.rules.helpers.least_plan import LLAMA_8B, as_optimized, gib, least_estimate, plan_of
from dslint.rules.helpers.model import (
    counted,
    gpu_has,
    has_unread_settings,
    may_be_smaller,
    may_train_nothing,
    may_train_part,
    told_options,
    too_large_to_load,
    trains_part,
)
from dslint.rules.helpers.zero import STAGE, excludes_stage_3, stage_place

if TYPE_CHECKING:
    from dslint.frameworks.whole_load import WholeLoad
    from dslint.memory.estimate import Estimate
    from dslint.memory.plan import Plan
    from dslint.memory.shapes import Model

LLAMA_2_7B = {**LLAMA_8B, "intermediate_size": 11008, "num_key_value_heads": 32, "vocab_size": 32000}
MIXTRAL = {**LLAMA_8B, "model_type": "mixtral", "vocab_size": 32000, "num_local_experts": 8, "num_experts_per_tok": 2}

ZERO_DOCS = "https://www.deepspeed.ai/docs/config-json/#zero-optimizations-for-fp16-training"
NEEDS = ("model", "gpu_memory", "world_size")


def _freezes_towers(config: Config, model: Model) -> bool:
    """Whether the encoders of images in the model are not trained: as some frameworks do by default, or by the program."""
    from dslint.frameworks.trained import freezes_towers
    from dslint.memory.towers import has_towers

    return ("frozen_towers" in told_options(config) or freezes_towers(config.setup) is not None) and has_towers(model)


_UNLIKELY = (
    '{"train_micro_batch_size_per_gpu": 1, "bf16": {"enabled": true}, "optimizer": {"type": "AdamW", "params": {"lr": 1e-5}}, '
    '"zero_optimization": {"stage": 2, "allgather_bucket_size": 5e8, "contiguous_gradients": true}}'
)
_WITHOUT_OPTIMIZER = '{"train_micro_batch_size_per_gpu": 1, "bf16": {"enabled": true}, "zero_optimization": {"stage": 1}}'
_LONG = '{"train_micro_batch_size_per_gpu": 4, "bf16": {"enabled": true}, "zero_optimization": {"stage": 3}}'
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
_OWN_LENGTH = (
    "import argparse\nimport deepspeed\nfrom deepspeed.ops.adam import FusedAdam\nparser = argparse.ArgumentParser()\n"
    'parser.add_argument("--block_size", type=int, default=4096)\nparser.add_argument("--checkpoint", action="store_true")\nparser.add_argument("--local_rank", type=int)\n'
    "parser = deepspeed.add_config_arguments(parser)\nargs = parser.parse_args()\nif args.checkpoint:\n    model.gradient_checkpointing_enable()\n"
    "engine, *_ = deepspeed.initialize(args=args, model=model, optimizer=FusedAdam(model.parameters()))\n"
    "for batch in blocks(args.block_size):\n    engine.backward(engine(batch))\n    engine.step()\n"
)
_BY_LAUNCHER = "deepspeed --num_gpus 2 train.py%s --deepspeed --deepspeed_config ds_config.json\n"


@rule(
    "DS706",
    effect=Effect.CRASH,
    phase=Phase.STEP,
    needs=NEEDS,
    watches=("fact:model",),
    references=(ZERO_DOCS,),
    untried="needs a GPU",
)
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
    '{"train_micro_batch_size_per_gpu": "auto", "bf16": {"enabled": "auto"}, "zero_optimization": {"stage": 2}}',
    at="zero_optimization.stage",
    model=LLAMA_8B,
    training="stage: sft\nmodel_name_or_path: meta-llama/Llama-3.1-8B\nfinetuning_type: lora\npacking: true\ncutoff_len: 8192\nper_device_train_batch_size: 8\nbf16: true\nlearning_rate: 1e-4\n",
    world_size=8,
    gpu="a100",
    message="Training adapters of this model (8.05 billion parameters) on 8 ranks needs at least 121 GiB on each GPU with 8 samples of 8,192 tokens at a time: logits and loss 94 GiB, activations 17 GiB, parameters 15 GiB. The a100 has 79.1 GiB.",
)
@bad(
    _LONG,
    at="zero_optimization.stage",
    model=LLAMA_8B,
    program=_OWN_LENGTH,
    launch=_BY_LAUNCHER % "",
    integration="deepspeed",
    world_size=8,
    gpu="a100",
    message="Full training of this model (8.03 billion parameters) on 8 ranks needs at least 128 GiB on each GPU with 4 samples of 4,096 tokens at a time: activations 99 GiB, logits and loss 27 GiB, optimizer states 7.5 GiB, master weights 3.7 GiB. The a100 has 79.1 GiB.",
)
@good(
    _LONG,
    model=LLAMA_8B,
    program=_OWN_LENGTH,
    launch=_BY_LAUNCHER % " --checkpoint",
    integration="deepspeed",
    world_size=8,
    gpu="a100",
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
    """The training needs more memory than the GPU has: for weights, gradients and optimizer states, or with its samples.

    dslint replays the first steps with the sizes of the model's weights, a single token and checkpointed activations: no long samples, almost
    no memory for the loss. The result is the minimum that this config needs on every rank if all parameters are trained. The job runs out
    of memory in its first step at the latest. If that fits, and training arguments or the program say how long samples are, activations and
    logits count, too. These are the figures and the verdicts of `dslint estimate`: a job does not fit if even the low figure exceeds the GPU;
    it is unlikely to fit if the expected one does, with what PyTorch keeps beside tensors on a GPU that is nearly full. That is an error if
    the low figure exceeds the GPU, arguments or program say what is trained, and all samples have one length; else a warning. Activations
    count as checkpointed where the program may checkpoint them.

    A config does not tell whether the program trains adapters (LoRA). Adapters have few parameters and need less memory. dslint does not read
    the settings of xtuner: what a command with LoRA in it trains (`xtuner train llama2_70b_qlora_alpaca_e3`) is not judged. Where arguments or
    program say that adapters are trained, they count, with the samples. Of a run that may train adapters or a part of the model
    (`--freeze_backbone`, `requires_grad_(False)`), or nothing (an engine without an optimizer, as for a reference or a reward model; a run
    that only evaluates), the weights alone count, in 16 bits, unless they may have fewer: whole below stage 3, divided at stage 3. An
    optimizer counts with the fewest states that it may keep, and as AdamW where nothing names one. Where only the run knows the precision,
    the smaller of both figures counts. Experts (Mixtral, Qwen MoE) count with all their parameters. With `expert_parallel`, which partitions
    them further, dslint reports nothing.

    At stage 3 transformers partitions a model while it loads it only if the program creates `TrainingArguments` or `HfDeepSpeedConfig`
    before `from_pretrained`, and keeps it. Otherwise every rank loads the whole model, and DeepSpeed moves it to the GPU first.

    Enable gradient checkpointing, or lower the micro batch size, where activations do not fit. Run `dslint fit` to see what else to change: a
    higher ZeRO stage, offload, more ranks.
    """
    memory = config.facts.gpu_memory
    if memory is not None and (early := too_large_to_load(config)) is not None:
        yield from _whole_on_load(config, *early, memory)
        return
    model = counted(config.facts.model) if config.facts.model is not None else None
    plan = plan_of(config, model, 1, 1, either=True) if model else None
    if model is None or plan is None or memory is None or plan.sequence > 1 or config.facts.divided_by_program:
        return
    is_part = trains_part(config)
    if is_part and has_unread_settings(config):
        reason = "the command names LoRA, and dslint does not read the settings of the training: whether it fits is not judged."
        raise CannotJudge(f"{reason} Run dslint estimate --lora-rank.")
    if may_train_nothing(config) or is_part or may_train_part(config):
        told = as_trained(config)
        if told is None or not told.adapters or not _exceeds(told.result, memory):
            yield from _weights_alone(config, model, plan, memory)
        else:
            yield _of_samples(config, told, memory)
        return
    if config.facts.model is None or config.facts.model.quantization is not None:
        return
    if any(block.experts for block in model.blocks) and config.value("expert_parallel.enabled") is not False:
        return
    plan, using = as_optimized(config, plan)
    if _freezes_towers(config, model):
        from dslint.memory.towers import with_frozen_towers

        model, using = with_frozen_towers(model), f", without its encoders,{using}"
    result = least_estimate(config, model, plan, lambda found: found.device.low)
    told = as_trained(config) if result.device.low <= memory else None
    if told is not None and _exceeds(told.result, memory) and (told.result.device.low > memory or not _exceeds(result, memory)):
        yield _of_samples(config, told, memory, using)
    elif _exceeds(result, memory):
        yield _finding(config, f"Full training of this model ({model.in_billions}){using}", result, "before any activation", memory)


def _of_samples(config: Config, told: AsTrained, memory: int, using: str = "") -> Finding:
    """The finding for a job that does not fit with its samples."""
    model = told.result.model
    what = f"{'Training adapters' if told.adapters else 'Full training'} of this model ({model.in_billions}){using}"
    found = _finding(config, what, told.result, f"with {told.samples} at a time", memory)
    fits = what_fits(told, memory)
    advice = found.help if not told.adapters else f"{_RUN_FIT}; {_advice(told.result)}."
    fix = None if fits or told.adapters else found.fix
    return found._replace(help=f"{fits} {advice}" if fits else advice, fix=fix, certain=found.certain and told.one_length)


_RUN_FIT = "Run dslint fit with --model and --gpu to see what to change"


def _finding(config: Config, what: str, result: Estimate, when: str, memory: int) -> Finding:
    """The finding for a job that needs more than a GPU has."""
    plan = result.plan
    parts = [(name, size) for name, size in result.peak.parts.items() if size > 0.02 * result.peak.total]
    listed = ", ".join(f"{name} {gib(size)}" for name, size in sorted(parts, key=lambda part: -part[1]))
    exceeds = result.device.low > memory
    needs = f"needs at least {gib(result.device.low)} on each GPU {when}"
    if not exceeds:
        needs = f"is unlikely to fit: it needs about {result.full / GIB:,.1f} GiB on each GPU {when}, and at least {result.device.low / GIB:,.1f} GiB"
    return Finding(
        stage_place(config),
        f"{what} on {plan.world:,} {'ranks' if plan.world > 1 else 'rank'} {needs}: {listed}. The {gpu_has(config, memory)}.",
        help=f"{_RUN_FIT}; {_advice(result)}. Adapters need less: run dslint estimate --lora-rank.",
        fix=_lowest_stage(config, result.model, plan, memory),
        certain=exceeds and _is_known(config) and plan.tensor == 1,
    )


def _is_known(config: Config) -> bool:
    """Whether the program or the arguments of the run are known, so that it certainly trains what they say."""
    setup, arguments = config.setup, config.arguments
    if has_unread_settings(config):
        return False
    return (setup is not None and setup.program is not None) or (arguments is not None and arguments.sure and arguments.complete)


def _exceeds(result: Estimate, memory: int) -> bool:
    """Whether the estimate says that a job does not fit, or that it is unlikely to."""
    from dslint.memory.estimate import Verdict

    return result.verdict(memory) in (Verdict.NO, Verdict.UNLIKELY)


def _weights_alone(config: Config, model: Model, plan: Plan, memory: int) -> Iterator[Finding]:
    """The finding for a run that trains a part of the model, or nothing: each GPU holds the weights, which alone do not fit."""
    if not _is_known(config):
        return
    divided, weights = plan.stage == 3, 2 * model.size // (plan.replicas if plan.stage == 3 else 1)
    if weights <= memory or may_be_smaller(config) or (divided and (plan.parameter_device or plan.quantized_weights)):
        return
    others = "that no adapter changes" if trains_part(config) else "that are not trained"
    whole = f"{model.in_billions} need"
    if divided:
        said = f"At ZeRO stage 3 each of {plan.replicas:,} GPUs holds its part of all weights of the model, also of those {others}: {whole}"
        said += f" {gib(weights)} on each in 16 bits."
        advice = "Use more GPUs, or offload_param, which keeps the weights on the host."
    else:
        said = f"Below ZeRO stage 3 each GPU holds all weights of the model, also those {others}: {whole} {gib(weights)} in 16 bits."
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
        f"partitions it. Its {model.in_billions} need {gib(2 * model.size)} in 16 bits, and the "
        f"{gpu_has(config, memory)}.",
        help=found.instead,
        related=(found.at.related("loaded here"),),
    )


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
