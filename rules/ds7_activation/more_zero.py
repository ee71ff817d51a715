"""DS7: offload and ZeRO stages that a model does not need. The rule imports the memory estimate only when it runs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from dslint.config import Config
from dslint.diagnostics import Effect
from dslint.facts.gpus import in_words
from dslint.rule import Finding, bad, good, rule
from dslint.rules.helpers.fixes import write
from dslint.rules.helpers.least_plan import LLAMA_8B, gib, plan_of, whole_model
from dslint.rules.helpers.model import holds_more_models, may_train_nothing
from dslint.rules.helpers.offload import OFFLOAD_OPTIMIZER, OFFLOAD_SECTIONS
from dslint.rules.helpers.zero import IN_HALF_PRECISION, STAGE, ZERO, ZEROPP_FEATURES, is_feature
from dslint.source.tree import Scalar

if TYPE_CHECKING:
    from dslint.memory.plan import Plan
    from dslint.memory.shapes import Model

MAX_SAMPLE_LENGTH = 32_768
"""The longest sample, in tokens, that `more_zero_than_needed` assumes."""

LEAST_GAIN = 0.02
"""The least share by which training must become faster for the help of `more_zero_than_needed` to name it."""

GPT2 = {"model_type": "gpt2", "n_embd": 768, "n_layer": 12, "n_head": 12, "n_positions": 1024, "vocab_size": 50257}

ZERO_DOCS = "https://www.deepspeed.ai/docs/config-json/#zero-optimizations-for-fp16-training"
NEEDS = ("model", "gpu_memory", "world_size")


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
    model, memory = whole_model(config), config.facts.gpu_memory
    if model is None or memory is None or not isinstance(micro_batch, int) or not model.vocabulary:
        return
    if may_train_nothing(config) or holds_more_models(config) or config.facts.divided_by_program:
        return
    length = model.tokens or min(model.positions or MAX_SAMPLE_LENGTH, MAX_SAMPLE_LENGTH)
    plan = plan_of(config, model, length, micro_batch)
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
        f"{what} {cost}, and this model fits {without}: it then needs at most {gib(result.device.high)} of {in_words(memory)}, "
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
