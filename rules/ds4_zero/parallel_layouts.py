"""DS4: ZeRO beside other ways to divide a model: pipelines, experts, shards within groups of ranks."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from dslint.config import Config
from dslint.diagnostics import Effect, Phase, Severity
from dslint.facts import Integration
from dslint.rule import Finding, bad, good, rule
from dslint.rules.helpers.examples import trained
from dslint.rules.helpers.fixes import json_text, without, write
from dslint.rules.helpers.zero import STAGE, ZERO, local_ranks, related_stage


@rule(
    "DS410",
    "pipeline-with-zero-2",
    effect=Effect.CRASH,
    phase=Phase.INITIALIZE,
    watches=("zero_optimization.stage",),
    needs=("pipeline_parallel",),
    untried="it takes a model of pipeline stages",
    references=("deepspeed/runtime/pipe/engine.py, PipelineEngine.__init__",),
)
@bad(trained('"zero_optimization": {"stage": 2}'), at="zero_optimization.stage", pipeline_parallel=2)
@good(trained('"zero_optimization": {"stage": 1}'), pipeline_parallel=2)
@good(trained('"zero_optimization": {"stage": 2}'), pipeline_parallel=1)
def pipeline_with_zero_2(config: Config) -> Iterator[Finding]:
    """Pipeline parallelism goes with ZeRO stages 0 and 1.

    A pipeline accumulates gradients over its micro batches; stages 2 and 3 partition them after each. DeepSpeed raises `AssertionError: ZeRO-2 and ZeRO-3 are
    incompatible with pipeline parallelism`.

    Set the stage to 1.
    """
    stage = config.value(STAGE)
    if (config.facts.pipeline_parallel or 1) > 1 and stage in (2, 3):
        yield Finding(
            STAGE,
            f'ZeRO stage {stage} does not go with {config.facts.pipeline_parallel} pipeline stages: DeepSpeed raises AssertionError "ZeRO-2 and ZeRO-3 are incompatible with pipeline parallelism".',
            help='Set "stage": 1.',
            fix=write(config, STAGE, "1"),
        )


BLOCKS = {
    "mixtral": "MixtralSparseMoeBlock",
    "qwen2_moe": "Qwen2MoeSparseMoeBlock",
    "qwen3_moe": "Qwen3MoeSparseMoeBlock",
    "deepseek_v2": "DeepseekV2MoE",
    "deepseek_v3": "DeepseekV3MoE",
    "olmoe": "OlmoeSparseMoeBlock",
    "phimoe": "PhimoeSparseMoeBlock",
    "jamba": "JambaSparseMoeBlock",
}
"""By family: the class of the block that holds the experts, in transformers."""


def _quantized(method: str) -> Any:
    return {"model_type": "llama", "hidden_size": 4096, "quantization_config": {"quant_method": method}}


def _model(family: str) -> Any:
    from dslint.facts.model_config import describe

    return describe({"model_type": family, "hidden_size": 2048, "num_local_experts": 8})


@rule(
    "DS414",
    "experts-without-leaf-modules",
    effect=Effect.ADVICE,
    watches=("zero_optimization.stage",),
    needs=("model",),
    references=("https://deepspeed.readthedocs.io/en/latest/zero3.html", "https://github.com/deepspeedai/DeepSpeed/issues/4808"),
)
@bad(trained('"zero_optimization": {"stage": 3}'), at="zero_optimization.stage", model=_model("deepseek_v3"))
@bad(
    trained('"zero_optimization": {"stage": 3, "leaf_module": {"classes": ["OlmoeSparseMoeBlock"]}}'),
    at="zero_optimization.leaf_module.classes",
    model=_model("mixtral"),
)
@good(trained('"zero_optimization": {"stage": 3}'), model=_model("mixtral"))
@good(trained('"zero_optimization": {"stage": 3, "leaf_module": {"classes": ["DeepseekV3MoE"]}}'), model=_model("deepseek_v3"))
@good(trained('"zero_optimization": {"stage": 2}'), model=_model("deepseek_v3"))
def experts_without_leaf_modules(config: Config) -> Iterator[Finding]:
    """A mixture of experts at ZeRO stage 3, whose expert blocks are not fetched as a whole.

    Stage 3 gathers the parameters of a module when it runs. Where the experts are modules of their own, ranks whose tokens went to other experts gather other
    modules, the collectives no longer match, and the job hangs without a message. A leaf module is gathered whole on every rank. DeepSpeed 0.18.0 and newer
    have a built-in list (Mixtral, Qwen2-MoE, Qwen3-MoE), which `leaf_module.classes` replaces. Where transformers keeps all experts of a layer in one tensor, as
    its release 5 does for most models, it makes no difference.

    Add the class of the block to `leaf_module.classes`, or call `deepspeed.utils.set_z3_leaf_modules` in the program.
    """
    model = config.facts.model
    block = BLOCKS.get(model.family or "") if model is not None else None
    if model is None or block is None or not config.value(STAGE) == 3:  # noqa: SIM201
        return
    known = config.release >= (0, 18, 0)
    section = f"{ZERO}.leaf_module"
    classes = config.value(f"{section}.classes") if known else []
    if not isinstance(classes, list) or any(isinstance(name, str) and name.rpartition(".")[2] == block for name in classes):
        return
    if config.has(f"{section}.names") or config.has(f"{section}.name_suffixes"):
        return
    replaced = config.has(f"{section}.classes")
    what = "leaf_module.classes replaces the built-in list and does not name" if replaced else "no leaf module covers"
    yield Finding(
        f"{section}.classes" if replaced else STAGE,
        f"{model} is a mixture of experts, and {what} its {block}: at stage 3 ranks whose tokens go to different experts can wait for each other for ever.",
        help=f'Write "leaf_module": {{"classes": ["{block}"]}} in zero_optimization.'
        if known
        else f"Call deepspeed.utils.set_z3_leaf_modules(model, [{block}]) in the program.",
        fix=write(config, f"{section}.classes", json_text([*classes, block] if replaced else [block])) if known else None,
        severity=Severity.WARNING,
        on="key" if replaced else "member",
    )


@rule(
    "DS415",
    "mics-not-a-divisor",
    effect=Effect.CRASH,
    phase=Phase.INITIALIZE,
    watches=("zero_optimization.mics_shard_size",),
    needs=("world_size",),
    untried="the setting is gone from the newest release, which refuses it while parsing",
    references=("deepspeed/runtime/zero/mics_utils.py, _generate_mics_config, until 0.19.6",),
)
@bad(
    trained('"zero_optimization": {"stage": 3, "mics_shard_size": 3}'),
    at="zero_optimization.mics_shard_size",
    world_size=8,
    deepspeed="0.16.9",
)
@bad(
    trained('"zero_optimization": {"stage": 3, "mics_shard_size": 6}'),
    at="zero_optimization.mics_shard_size",
    world_size=16,
    nodes=2,
    deepspeed="0.16.9",
)
@good(trained('"zero_optimization": {"stage": 3, "mics_shard_size": 4}'), world_size=8, deepspeed="0.16.9")
@good(trained('"zero_optimization": {"stage": 3, "mics_shard_size": -1}'), world_size=8, deepspeed="0.16.9")
def mics_not_a_divisor(config: Config) -> Iterator[Finding]:
    """MiCS divides the ranks into groups of equal size, and the size does not divide the world size.

    Releases that still have it raise `AssertionError: dp group size is not dividable by dp_shard_size`. Newer ones refuse the key as such; ZeRO++'s
    `zero_hpz_partition_size` has taken its place.

    Write a divisor of the world size, as a rule the number of GPUs of a node.
    """
    key, ranks = f"{ZERO}.mics_shard_size", config.facts.world_size
    size = config.value(key) if config.has(key) and config.release < (0, 19, 7) else 0
    if isinstance(size, int) and size > 0 and ranks is not None and ranks % size and config.value(STAGE) == 3:
        yield Finding(
            key,
            f'mics_shard_size {size} does not divide the world size {ranks:,}: DeepSpeed raises AssertionError "dp group size is not dividable by dp_shard_size" in deepspeed.initialize.',
            help=f"Write a divisor of {ranks:,}, as a rule the number of GPUs of a node.",
            fix=write(config, key, str(local)) if (local := local_ranks(config)) else None,
        )


@rule(
    "DS438",
    "pipeline-loading-below-stage-3",
    effect=Effect.CRASH,
    phase=Phase.RESUME,
    watches=("zero_optimization.pipeline_loading_checkpoint",),
    untried="it comes when a checkpoint is loaded",
    references=("deepspeed/runtime/engine.py, DeepSpeedEngine._load_zero_checkpoint",),
)
@bad(trained('"zero_optimization": {"stage": 2, "pipeline_loading_checkpoint": true}'), at="zero_optimization.pipeline_loading_checkpoint")
@good(trained('"zero_optimization": {"stage": 3, "pipeline_loading_checkpoint": true}'))
def pipeline_loading_below_stage_3(config: Config) -> Iterator[Finding]:
    """`pipeline_loading_checkpoint` works at ZeRO stage 3 alone, and is only looked at when a checkpoint is loaded.

    Training starts and saves. The first resume raises `AssertionError: Only stage3 support for pipeline checkpoint loading`.

    Remove it, or set the stage to 3.
    """
    key, stage = f"{ZERO}.pipeline_loading_checkpoint", config.value(STAGE)
    if config.value(key) is True and stage in (1, 2) and config.release >= (0, 10, 1):
        yield Finding(
            key,
            f'pipeline_loading_checkpoint works at ZeRO stage 3 alone, and the stage is {stage}: the first resume raises AssertionError "Only stage3 support for pipeline checkpoint loading".',
            help="Remove it.",
            fix=without(config, key),
            related=related_stage(config),
        )


@rule(
    "DS442",
    "quantized-model-at-stage-3",
    effect=Effect.MEMORY,
    watches=("zero_optimization.stage",),
    needs=("model",),
    references=("transformers/modeling_utils.py, PreTrainedModel.get_init_context",),
)
@bad('{"train_batch_size": "auto", "zero_optimization": {"stage": 3}}', at=STAGE, integration="transformers", model=_quantized("gptq"))
@good('{"train_batch_size": "auto", "zero_optimization": {"stage": 2}}', integration="transformers", model=_quantized("gptq"))
@good(trained('"zero_optimization": {"stage": 3}'), integration="deepspeed", model=_quantized("gptq"))
def quantized_model_at_stage_3(config: Config) -> Iterator[Finding]:
    """The model was quantized beforehand, and ZeRO stage 3 is to divide it.

    transformers makes a model under `zero.Init`, which gives each rank its part, only where it is not quantized. Every rank loads all of this one. Many
    kinds of quantized weights stage 3 cannot divide afterwards either; 4-bit weights of bitsandbytes it can, where `bnb_4bit_quant_storage` is the type
    of the other parameters.

    Take ZeRO stage 2 for adapters on a quantized model, or a model that is not quantized.
    """
    model = config.facts.model
    if model is None or model.quantization is None or not config.value(STAGE) >= 3:
        return
    if config.facts.integration in (Integration.TRANSFORMERS, Integration.ACCELERATE):
        yield Finding(
            STAGE,
            f"{model} is quantized ({model.quantization}), and transformers does not use zero.Init for such a model: every rank loads all of it.",
            help="Take ZeRO stage 2, or a model that is not quantized.",
            severity=Severity.WARNING,
        )
