"""DS8: the hybrid engine, which generates text between training steps."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from dslint.config import Config
from dslint.diagnostics import Effect, Phase
from dslint.facts import Release
from dslint.rule import Finding, bad, good, rule
from dslint.rules.helpers.examples import MINIMAL
from dslint.rules.helpers.zero import STAGE

ENABLED = "hybrid_engine.enabled"
CUDA_GRAPH = "hybrid_engine.enable_cuda_graph"
RELEASE_CACHE = "hybrid_engine.release_inference_cache"
TENSOR_PARALLEL = "hybrid_engine.inference_tp_size"


@rule(
    "DS854",
    effect=Effect.IGNORED,
    watches=(CUDA_GRAPH,),
    references=("deepspeed/runtime/hybrid_engine_graph.py, validate_cuda_graph_support",),
)
@bad(
    f'{{{MINIMAL}, "hybrid_engine": {{"enabled": true, "enable_cuda_graph": true}}, "zero_optimization": {{"stage": 3}}}}',
    at=CUDA_GRAPH,
    message="DeepSpeed ignores enable_cuda_graph at ZeRO stage 3: the hybrid engine generates without graphs.",
)
@good(f'{{{MINIMAL}, "hybrid_engine": {{"enabled": true, "enable_cuda_graph": true}}, "zero_optimization": {{"stage": 2}}}}')
def cuda_graph_not_used(config: Config) -> Iterator[Finding]:
    """The hybrid engine cannot use CUDA graphs with these settings.

    A graph replays the buffers that it was recorded with. ZeRO stage 3 gathers the weights into new buffers for each call,
    `release_inference_cache` frees the cache, and an `inference_tp_size` above 1 makes the ranks exchange buffers. In these cases DeepSpeed
    logs a warning and generates without graphs.

    Remove `enable_cuda_graph`, or change the setting that excludes it.
    """
    if config.enabled("hybrid_engine") is not True or not config.has(CUDA_GRAPH) or config.value(CUDA_GRAPH) is not True:
        return
    exclusions = (
        (STAGE, config.value(STAGE) == 3, "at ZeRO stage 3"),
        (RELEASE_CACHE, config.value(RELEASE_CACHE) is True, "with release_inference_cache"),
        (TENSOR_PARALLEL, config.value(TENSOR_PARALLEL) > 1, "with an inference_tp_size above 1"),
    )
    for other, excluded, condition in exclusions:
        if excluded:
            yield Finding(
                CUDA_GRAPH,
                f"DeepSpeed ignores enable_cuda_graph {condition}: the hybrid engine generates without graphs.",
                help=f'Remove it, or change "{other.rpartition(".")[2]}".',
                related=((other, "set here"),),
            )
            return


@rule(
    "DS857",
    effect=Effect.ADVICE,
    needs=("model",),
    watches=(ENABLED,),
    references=("https://github.com/deepspeedai/DeepSpeedExamples/issues/864",),
)
@bad(
    f'{{{MINIMAL}, "hybrid_engine": {{"enabled": true}}, "zero_optimization": {{"stage": 3}}}}',
    at=ENABLED,
    model={"num_attention_heads": 32, "num_key_value_heads": 8, "hidden_size": 4096},
    message="The model shares 8 key-value heads among 32 query heads. Users report that the hybrid engine then generates repeated tokens at ZeRO stage 3.",
)
@good(
    f'{{{MINIMAL}, "hybrid_engine": {{"enabled": true}}, "zero_optimization": {{"stage": 3}}}}',
    model={"num_attention_heads": 32, "num_key_value_heads": 32, "hidden_size": 4096},
)
def hybrid_engine_with_grouped_queries(config: Config) -> Iterator[Finding]:
    """Users report wrong generations from the hybrid engine for models with grouped-query attention at ZeRO stage 3.

    Models such as Llama 2 70B share key-value heads among query heads. The reports describe output that repeats the same tokens.

    Compare a few generations with those of a run without the hybrid engine. If they differ, disable it and generate with another engine.
    """
    model = config.facts.model
    if model is None or not config.has(ENABLED) or config.value(ENABLED) is not True or not config.value(STAGE) >= 3:
        return
    if model.heads and model.kv_heads and model.kv_heads < model.heads:
        yield Finding(
            ENABLED,
            f"The model shares {model.kv_heads} key-value heads among {model.heads} query heads. Users report that the hybrid engine then generates repeated tokens at ZeRO stage 3.",
            help="Compare a few generations with those of a run without the hybrid engine.",
        )


_SUPPORTED = {
    **dict.fromkeys(("opt", "gpt_neox", "gptj", "gpt_neo", "gpt2", "bloom", "bert", "distilbert", "clip"), Release(0, 9, 0)),
    "llama": Release(0, 9, 3),
    "internlm": Release(0, 11, 0),
}
"""By model family of transformers: the first release whose hybrid engine has kernels for its layers."""

_GUARDED = Release(0, 9, 2)
"""The first release that takes a step without such layers."""

_HYBRID = f'{{{MINIMAL}, "hybrid_engine": {{"enabled": true}}, "zero_optimization": {{"stage": 2}}}}'


def _of_family(family: str, **more: str) -> dict[str, Any]:
    return {"model_type": family, "hidden_size": 4096, "num_attention_heads": 32, "num_key_value_heads": 32, **more}


@rule(
    "DS893",
    effect=Effect.IGNORED,
    needs=("model",),
    watches=(ENABLED,),
    references=(
        "deepspeed/runtime/hybrid_engine.py, create_inference_containers; deepspeed/module_inject/replace_policy.py",
        "https://github.com/deepspeedai/DeepSpeedExamples/issues/373",
    ),
)
@bad(
    _HYBRID,
    at=ENABLED,
    model=_of_family("qwen2"),
    message="The hybrid engine has no kernels for qwen2 models: DeepSpeed generates with the modules of the training, as without it.",
)
@bad(
    _HYBRID,
    at=ENABLED,
    model=_of_family("llama"),
    deepspeed="0.9.1",
    message='The hybrid engine of DeepSpeed 0.9.1 has no kernels for llama models: the first step raises "IndexError: list index out of range".',
)
@good(_HYBRID, model=_of_family("llama"))
@good(_HYBRID, model=_of_family("opt"), deepspeed="0.9.1")
@good(_HYBRID, model=_of_family("llama", auto_map="modeling_baichuan.Baichuan"))
@good(_HYBRID.replace("true", "false", 1), model=_of_family("qwen2"))
@good(_HYBRID, model={"hidden_size": 4096})
def hybrid_engine_without_kernels(config: Config) -> Iterator[Finding]:
    """The hybrid engine replaces the layers of a model only while it generates, and it knows the layers of a few families.

    These are OPT, GPT-NeoX, GPT-J, GPT-Neo, GPT-2, BLOOM and BERT, LLaMA since DeepSpeed 0.9.3, and InternLM since 0.11.0. For any other model
    DeepSpeed leaves `generate` as it is: nothing gets faster, and at ZeRO stage 3 each token gathers all weights. DeepSpeed 0.9.0 and 0.9.1 do
    not expect that, and their first step raises IndexError.

    Switch the hybrid engine off, and generate with another engine.
    """
    model = config.facts.model
    if model is None or model.family is None or model.inner_family is not None or config.enabled("hybrid_engine") is not True:
        return
    since = _SUPPORTED.get(model.family)
    if since is not None and (config.release >= since or "auto_map" in model.data):
        return
    raises = config.release < _GUARDED
    older = f" of DeepSpeed {config.release}" if since is not None or raises else ""
    outcome = (
        'the first step raises "IndexError: list index out of range"'
        if raises
        else "DeepSpeed generates with the modules of the training, as without it"
    )
    yield Finding(
        ENABLED,
        f"The hybrid engine{older} has no kernels for {model.family} models: {outcome}.",
        help="Set it to false." if since is None else f"Set it to false, or use DeepSpeed {since} or later.",
        effect=Effect.CRASH if raises else None,
        phase=Phase.STEP if raises else None,
        certain=not raises or config.context.has_known_release,
    )


_GENERATING = f'{{{MINIMAL}, "hybrid_engine": {{"enabled": true, "inference_tp_size": 8}}, "zero_optimization": {{"stage": 3}}}}'


@rule(
    "DS868",
    effect=Effect.CRASH,
    phase=Phase.INITIALIZE,
    needs=("world_size",),
    watches=(TENSOR_PARALLEL,),
    references=(
        "deepspeed/runtime/hybrid_engine.py, create_inference_module",
        "https://github.com/deepspeedai/DeepSpeedExamples/issues/525",
    ),
    untried="requires the compiled inference kernels",
)
@bad(
    _GENERATING,
    at=TENSOR_PARALLEL,
    world_size=2,
    message="inference_tp_size 8 divides the ranks into groups of 8, and 2 ranks fill none: the hybrid engine may raise AttributeError \"'DeepSpeedHybridEngine' object has no attribute 'mp_group'\".",
)
@bad(
    _GENERATING,
    at=TENSOR_PARALLEL,
    world_size=12,
    message="inference_tp_size 8 divides the ranks into groups of 8, and the last 4 of 12 ranks are in none: the hybrid engine may raise AttributeError \"'DeepSpeedHybridEngine' object has no attribute 'mp_group'\".",
)
@good(_GENERATING, world_size=8)
@good(_GENERATING, world_size=16)
@good(_GENERATING.replace('"enabled": true', '"enabled": false'), world_size=2)
@good(_GENERATING, world_size=2, program="import deepspeed\ndeepspeed.initialize(model=model, mpu=mpu, config='ds_config.json')\n")
def generating_groups_not_filled(config: Config) -> Iterator[Finding]:
    """The ranks do not fill the tensor-parallel groups of the hybrid engine.

    The hybrid engine divides the ranks into groups of `inference_tp_size`, and creates only groups that are full. A rank without a group has no
    attribute `mp_group`, and raises AttributeError where it builds the layers for generating or gathers the prompts. Groups that the program.passed as `mpu` count instead.

    Write a divisor of the number of ranks.
    """
    size, ranks = config.value(TENSOR_PARALLEL), config.facts.world_size
    if config.enabled("hybrid_engine") is not True or not config.has(TENSOR_PARALLEL) or not size > 1 or ranks is None or ranks % size == 0:
        return
    program = config.setup.program if config.setup else None
    if program is not None and program.passed is not None and "mpu" in program.passed:
        return
    left = ranks % size
    without = (
        f"the last {left} of {ranks} ranks are in none" if left < ranks else f"{ranks} {'rank fills' if ranks == 1 else 'ranks fill'} none"
    )
    yield Finding(
        TENSOR_PARALLEL,
        f"inference_tp_size {size} divides the ranks into groups of {size}, and {without}: the hybrid engine raises "
        "AttributeError \"'DeepSpeedHybridEngine' object has no attribute 'mp_group'\".",
        help="Write a divisor of the number of ranks; 1 generates on each rank alone.",
        certain=False,  # the program may pass mpu
    )
