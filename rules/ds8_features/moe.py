"""DS8: expert parallelism (AutoEP)."""

from __future__ import annotations

from collections.abc import Iterator

from dslint.config import UNKNOWN, Config
from dslint.diagnostics import Applicability, Effect, Phase
from dslint.rule import Finding, bad, good, rule
from dslint.rules.helpers.fixes import json_text, spelling, without, write
from dslint.schemas.key_table import KEYS
from dslint.source.tree import Scalar

SECTION = "expert_parallel"
SIZE = f"{SECTION}.autoep_size"
TENSOR = "tensor_parallel.autotp_size"
ZERO = "zero_optimization"
SOURCE = "deepspeed/module_inject/auto_ep_config.py, validate_autoep_config"
FOLDING = "deepspeed/module_inject/auto_ep_folding.py, validate_folding_global"
PRESETS = ("mixtral", "qwen3_moe", "qwen3_5_moe", "deepseek_v2", "deepseek_v3", "minimax_m3")


def _on(config: Config) -> bool:
    return config.has(SECTION) and config.value(f"{SECTION}.enabled") is True


def _experts(inner: str, beside: str = "") -> str:
    return f'{{"train_micro_batch_size_per_gpu": 4, "expert_parallel": {{"enabled": true, {inner}}}{beside}}}'


def _written(config: Config, name: str) -> object:
    """What is written for a key; its default where nothing is."""
    node = config.node(f"{SECTION}.{name}")
    if node is None:
        return KEYS[f"{SECTION}.{name}"].get("default")
    return node.value if isinstance(node, Scalar) else UNKNOWN


@rule("DS841", "expert-parallel-value-refused", effect=Effect.CRASH, phase=Phase.INITIALIZE, references=(SOURCE,))
@bad(_experts('"autoep_size": 2, "comm_backend": "nccl"'), at=f"{SECTION}.comm_backend", world_size=8)
@bad(_experts('"autoep_size": 2, "preset_model": "mixtral-8x7b"'), at=f"{SECTION}.preset_model", world_size=8)
@bad(_experts('"autoep_size": 2, "num_expert_groups": 0'), at=f"{SECTION}.num_expert_groups", world_size=8)
@bad(_experts('"autoep_size": 2, "expert_tensor_parallel_size": 2'), at=f"{SECTION}.expert_tensor_parallel_size", world_size=8)
@good(_experts('"autoep_size": 2, "comm_backend": "comm", "score_func": "softmax"'), world_size=8)
@good('{"train_micro_batch_size_per_gpu": 4, "expert_parallel": {"enabled": false, "comm_backend": "comm"}}')
def expert_parallel_value_refused(config: Config) -> Iterator[Finding]:
    """A value of `expert_parallel` that DeepSpeed refuses.

    They are looked at once expert parallelism is enabled: a word that is none of those it knows, a number that is too small, or the size of expert tensor parallelism, which
    is reserved and has to be 1. DeepSpeed raises a `ValueError`.

    Write one of the values that the message names.
    """
    if not _on(config):
        return
    for key, spec in KEYS.items():
        if not key.startswith(f"{SECTION}.") or not config.has(key) or config.origin(key).value == "dropped":
            continue
        name, value = key.rpartition(".")[2], _written(config, key.rpartition(".")[2])
        choices, least = spec.get("choices") or (PRESETS if name == "preset_model" else ()), spec.get("ge")
        allowed = word = None
        if choices and isinstance(value, str) and value not in choices:
            word = json_text(close.word) if (close := spelling(value, filter(None, choices))) and close.sure else None
            allowed = "one of " + ", ".join(f'"{choice}"' for choice in choices)
        elif least is not None and isinstance(value, int) and not isinstance(value, bool) and value < least:
            allowed = f"a whole number from {least} on"
        elif name == "expert_tensor_parallel_size" and isinstance(value, int) and value != 1:
            allowed, word = "1, and nothing else yet", "1"
        if allowed is not None:
            yield Finding(
                key,
                f"{name} is {config.quote(key)}; it takes {allowed}. DeepSpeed raises ValueError in deepspeed.initialize.",
                help=f"Write {allowed.partition(',')[0] if choices == () else allowed}.",
                fix=write(config, key, word, Applicability.SAFE) if word else None,
            )


@rule("DS842", "expert-parallel-settings-clash", effect=Effect.CRASH, phase=Phase.INITIALIZE, references=(SOURCE,))
@bad(_experts('"autoep_size": 2, "row_weighting_impl": "fused"'), at=f"{SECTION}.row_weighting_impl", world_size=8)
@bad(_experts('"autoep_size": 2, "gate_up_impl": "fused", "use_grouped_mm": false'), at=f"{SECTION}.gate_up_impl", world_size=8)
@bad(
    _experts('"autoep_size": 2, "combine_impl": "fused_weighted_sum", "comm_backend": "deepep"'), at=f"{SECTION}.combine_impl", world_size=8
)
@bad(_experts('"autoep_size": 2, "comm_backend": "deepep"'), at=f"{SECTION}.comm_backend", world_size=8)
@bad(_experts('"autoep_size": 2, "num_expert_groups": 2, "num_limited_groups": 4'), at=f"{SECTION}.num_limited_groups", world_size=8)
@good(_experts('"autoep_size": 2, "gate_up_impl": "fused", "num_expert_groups": 4, "num_limited_groups": 2'), world_size=8)
def expert_parallel_settings_clash(config: Config) -> Iterator[Finding]:
    """Two settings of `expert_parallel` that exclude each other, or one that needs another.

    The fused weighting of rows is part of the DeepEP route, fused gates are one grouped product, DeepEP sums the rows itself and wants to know how many tokens come.
    DeepSpeed raises a `ValueError`.

    Change the one that the message names.
    """
    if not _on(config):
        return
    names = ("comm_backend", "autoep_size", "row_weighting_impl", "gate_up_impl", "use_grouped_mm", "combine_impl")
    backend, size, rows, gates, grouped, combine = (_written(config, name) for name in names)
    deep = backend == "deepep"
    limited, groups = _written(config, "num_limited_groups"), _written(config, "num_expert_groups")
    clashes = (
        ("row_weighting_impl", rows == "fused" and backend == "comm", 'row_weighting_impl "fused" needs comm_backend "deepep"'),
        ("row_weighting_impl", rows == "fused" and deep and size == 1, 'row_weighting_impl "fused" needs an autoep_size above 1'),
        ("gate_up_impl", gates == "fused" and grouped is False, 'gate_up_impl "fused" needs use_grouped_mm'),
        (
            "combine_impl",
            combine == "fused_weighted_sum" and deep and isinstance(size, int) and size > 1,
            'combine_impl "fused_weighted_sum" excludes comm_backend "deepep", which sums by itself',
        ),
        (
            "comm_backend",
            deep and _written(config, "comm_max_tokens_per_rank") == 0,
            'comm_backend "deepep" needs comm_max_tokens_per_rank',
        ),
        (
            "num_limited_groups",
            isinstance(limited, int) and isinstance(groups, int) and limited > groups,
            f"num_limited_groups {limited} is more than num_expert_groups {groups}",
        ),
    )
    for name, wrong, why in clashes:
        if wrong:
            yield Finding(
                f"{SECTION}.{name}",
                f"{why}: DeepSpeed raises ValueError in deepspeed.initialize.",
                help='Add "comm_max_tokens_per_rank": the micro batch size times the longest padded sequence.'
                if name == "comm_backend"
                else "Change one of the two.",
            )
            return


@rule(
    "DS843",
    "expert-parallel-not-a-divisor",
    effect=Effect.CRASH,
    phase=Phase.INITIALIZE,
    needs=("world_size",),
    references=("deepspeed/module_inject/auto_ep_folding.py, build_folding_spec",),
)
@bad(_experts('"autoep_size": 3'), at=SIZE, world_size=8)
@good(_experts('"autoep_size": 4'), world_size=8)
def expert_parallel_not_a_divisor(config: Config) -> Iterator[Finding]:
    """The ranks cannot be divided into groups of `autoep_size`.

    Each group holds one copy of all experts. DeepSpeed raises a `ValueError` where the world size (of a pipeline stage) is no multiple of it.

    Write a divisor of the world size.
    """
    size, ranks = config.value(SIZE), config.facts.world_size
    ranks = ranks // (config.facts.pipeline_parallel or 1) if ranks is not None else None
    if _on(config) and ranks is not None and isinstance(size, int) and size > 0 and ranks % size:
        yield Finding(
            SIZE,
            f'autoep_size {size} does not divide {ranks:,} ranks: DeepSpeed raises ValueError "expert_parallel.autoep_size ... must divide the stage size" in deepspeed.initialize.',
            help=f"Write one of {', '.join(str(n) for n in range(1, min(ranks, 64) + 1) if ranks % n == 0)}.",
        )


@rule(
    "DS844",
    "expert-parallel-and-experts",
    effect=Effect.CRASH,
    phase=Phase.INITIALIZE,
    needs=("model",),
    references=(SOURCE,),
    untried="needs a model with experts",
)
@bad(_experts('"autoep_size": 16'), at=SIZE, model={"num_local_experts": 8, "hidden_size": 4096})
@good(_experts('"autoep_size": 4'), model={"num_local_experts": 8, "hidden_size": 4096})
def expert_parallel_and_experts(config: Config) -> Iterator[Finding]:
    """The model's experts cannot be divided among `autoep_size` ranks.

    Each rank of a group holds as many experts. DeepSpeed counts them when it replaces the layers, and raises a `ValueError` where the number is no multiple of the size.

    Write a divisor of the number of experts.
    """
    model, size = config.facts.model, config.value(SIZE)
    if _on(config) and model is not None and model.experts and isinstance(size, int) and size > 0 and model.experts % size:
        yield Finding(
            SIZE,
            f"autoep_size {config.quote(SIZE)} does not divide the model's {model.experts} experts: DeepSpeed raises ValueError in deepspeed.initialize.",
            help=f"Write one of {', '.join(str(n) for n in range(1, min(model.experts, 64) + 1) if model.experts % n == 0)}.",
        )


@rule("DS845", "expert-and-tensor-parallelism", effect=Effect.CRASH, phase=Phase.INITIALIZE, references=(FOLDING,))
@bad(
    _experts(
        '"autoep_size": 2',
        ', "tensor_parallel": {"autotp_size": 2}, "zero_optimization": {"stage": 2, "offload_optimizer": {"device": "none"}}',
    ),
    at="zero_optimization.offload_optimizer",
    world_size=8,
)
@bad(_experts('"autoep_size": 1', ', "tensor_parallel": {"autotp_size": 2}'), at=SIZE, world_size=8)
@bad(
    _experts('"autoep_size": 2', ', "tensor_parallel": {"autotp_size": 2}, "compile": {"deepcompile": true}'),
    at="compile.deepcompile",
    world_size=8,
)
@good(_experts('"autoep_size": 2', ', "zero_optimization": {"stage": 2, "offload_optimizer": {"device": "none"}}'), world_size=8)
def expert_and_tensor_parallelism(config: Config) -> Iterator[Finding]:
    """Expert parallelism with tensor parallelism excludes more than either of them does.

    With `autotp_size` above 1, `autoep_size` has to be above 1 too, and there may be no offload, no DeepCompile, no sequence parallelism, and no
    `use_data_before_expert_parallelism`. For offload the mere section counts, even with the device "none". DeepSpeed raises a `ValueError`.

    Remove what the message names, or one of the two kinds of parallelism.
    """
    tensor = config.value(TENSOR)
    if not _on(config) or not config.has(TENSOR) or not tensor > 1:
        return
    excluded = (
        (SIZE, config.value(SIZE) == 1, f"autoep_size {config.value(SIZE)}"),
        ("zero_optimization.offload_optimizer", True, "the section offload_optimizer, whatever its device"),
        ("zero_optimization.offload_param", True, "the section offload_param, whatever its device"),
        ("compile.deepcompile", config.value("compile.deepcompile") is True, "DeepCompile"),
        ("sequence_parallel_size", config.value("sequence_parallel_size") not in (None, 1), "sequence parallelism"),
    )
    for key, excluding, what in excluded:
        node = config.node(key)
        if excluding and (node is not None or key == SIZE) and not (isinstance(node, Scalar) and node.value in (None, "auto")):
            yield Finding(
                key,
                f"Expert parallelism with autotp_size {tensor} excludes {what}: DeepSpeed raises ValueError in deepspeed.initialize.",
                help='Remove it, or write "autotp_size": 1.' if key != SIZE else 'Write an "autoep_size" above 1, or "autotp_size": 1.',
                on="key" if key.startswith("zero") else "member",
                related=((TENSOR, "tensor parallelism is on here"),),
                fix=without(config, key) if key.startswith("zero") and config.value(f"{key}.device") == "none" else None,
            )
            return


@rule(
    "DS861",
    "experts-at-stage-3",
    effect=Effect.CRASH,
    phase=Phase.INITIALIZE,
    untried="needs a model with experts",
    references=("deepspeed/runtime/engine.py, DeepSpeedEngine._validate_zero3_moe_compatibility",),
)
@bad(
    _experts('"autoep_size": 2', ', "zero_optimization": {"stage": 3, "zero_quantized_gradients": true}'),
    at=f"{ZERO}.zero_quantized_gradients",
)
@bad(
    _experts('"autoep_size": 2', ', "zero_optimization": {"stage": 3, "zero_hpz_partition_size": 2}'), at=f"{ZERO}.zero_hpz_partition_size"
)
@good(_experts('"autoep_size": 2', ', "zero_optimization": {"stage": 3, "zero_quantized_weights": true}'))
def experts_at_stage_3(config: Config) -> Iterator[Finding]:
    """Expert parallelism at ZeRO stage 3, with a part of ZeRO++ or sequence parallelism.

    The experts are divided among other ranks than the rest of the model. Quantized gradients, secondary copies of the parameters and
    sequence parallelism do not know of that yet, and DeepSpeed raises an `AssertionError` once its own layers are in the place of the
    model's experts.

    Remove what the message names, or take stage 2.
    """
    if not _on(config) or not config.value(f"{ZERO}.stage") >= 3:
        return
    sequences = config.value("sequence_parallel_size")
    excluded = (
        (f"{ZERO}.zero_quantized_gradients", config.value(f"{ZERO}.zero_quantized_gradients") is True),
        (f"{ZERO}.zero_hpz_partition_size", config.value(f"{ZERO}.zero_hpz_partition_size") > 1),
        ("sequence_parallel_size", isinstance(sequences, int) and sequences > 1),
    )
    for key, excluding in excluded:
        if excluding and config.has(key):
            yield Finding(
                key,
                f"Expert parallelism at ZeRO stage 3 excludes {key.rpartition('.')[2]}: DeepSpeed raises AssertionError in deepspeed.initialize.",
                help="Remove it, or take stage 2.",
                related=((f"{ZERO}.stage", "the stage is set here"),),
            )
            return
