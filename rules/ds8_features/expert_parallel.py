"""DS8: expert parallelism (AutoEP)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from dslint.config import Config, Origin
from dslint.diagnostics import Applicability, Effect, Phase
from dslint.facts import Release
from dslint.rule import Finding, bad, good, rule
from dslint.rules.helpers.fixes import spelling, without, write
from dslint.rules.helpers.offload import OFFLOAD_OPTIMIZER, OFFLOAD_PARAM, OFFLOAD_SECTIONS
from dslint.rules.helpers.zero import STAGE, ZERO
from dslint.schemas.key_table import KEYS
from dslint.source.tree import Scalar

SECTION = "expert_parallel"
ENABLED = f"{SECTION}.enabled"
SIZE = f"{SECTION}.autoep_size"
TENSOR_PARALLEL = "tensor_parallel.autotp_size"
SEQUENCE_PARALLEL = "sequence_parallel_size"
QUANTIZED_GRADIENTS = f"{ZERO}.zero_quantized_gradients"
SECONDARY_PARTITION = f"{ZERO}.zero_hpz_partition_size"
SOURCE = "deepspeed/module_inject/auto_ep_config.py, validate_autoep_config"
_FOLDS = Release(0, 19, 3)
"""The first release that combines expert parallelism with tensor parallelism and with ZeRO stage 3; 0.19.2 refuses both."""
PRESETS = ("mixtral", "qwen3_moe", "qwen3_5_moe", "deepseek_v2", "deepseek_v3", "minimax_m3")
NAMES = (
    "router_pattern",
    "expert_pattern",
    "expert_w1",
    "expert_w2",
    "expert_w3",
    "num_experts_attr",
    "top_k_attr",
    "shared_experts_pattern",
    "shared_experts_gate_pattern",
)
"""The keys that name a direct child of a layer, or an attribute of the model's config: `_validate_attr_name` refuses a dot in them."""


def _is_enabled(config: Config) -> bool:
    return config.has(SECTION) and config.value(ENABLED) is True


def _example(inner: str, more: str = "") -> str:
    """The text of a config that enables expert parallelism, with these members in its section and more at the top level."""
    return f'{{"train_micro_batch_size_per_gpu": 4, "expert_parallel": {{"enabled": true, {inner}}}{more}}}'


def _setting(config: Config, name: str) -> Any:
    """The scalar written for a key of the section, its default if the key is absent, else `UNKNOWN`."""
    key = f"{SECTION}.{name}"
    return config.literal(key) if config.has(key) else KEYS[key].get("default")


def _divisors(number: int) -> str:
    """The divisors of a number up to 64, as a list in words."""
    return ", ".join(str(n) for n in range(1, min(number, 64) + 1) if number % n == 0)


@rule(
    "DS841",
    effect=Effect.CRASH,
    phase=Phase.INITIALIZE,
    watches=(ENABLED,),
    references=(SOURCE,),
)
@bad(
    _example('"autoep_size": 2, "preset_model": "mixtral-8x7b"'),
    at=f"{SECTION}.preset_model",
    world_size=8,
    message='preset_model must be one of "mixtral", "qwen3_moe", "qwen3_5_moe", "deepseek_v2", "deepseek_v3", "minimax_m3", but it is "mixtral-8x7b": DeepSpeed raises ValueError in deepspeed.initialize.',
)
@bad(
    _example('"autoep_size": 2, "expert_pattern": "mlp.experts"'),
    at=f"{SECTION}.expert_pattern",
    world_size=8,
    message='expert_pattern must be a name without a dot, but it is "mlp.experts": DeepSpeed raises ValueError in deepspeed.initialize.',
)
@bad(
    _example('"autoep_size": 2, "expert_tensor_parallel_size": 2'),
    at=f"{SECTION}.expert_tensor_parallel_size",
    world_size=8,
    message="expert_tensor_parallel_size must be 1, but it is 2: DeepSpeed raises ValueError in deepspeed.initialize.",
    fixed='{"train_micro_batch_size_per_gpu": 4, "expert_parallel": {"enabled": true, "autoep_size": 2, "expert_tensor_parallel_size": 1}}',
)
@good(_example('"autoep_size": 2, "expert_pattern": "experts"'), world_size=8)
@good('{"train_micro_batch_size_per_gpu": 4, "expert_parallel": {"enabled": false, "preset_model": "mine"}}')
def expert_parallel_value_refused(config: Config) -> Iterator[Finding]:
    """DeepSpeed does not accept this value in `expert_parallel`.

    Once expert parallelism is enabled, it raises a `ValueError` for a model that it has no preset of, for a name of a submodule or of an
    attribute that is empty or has a dot, and for an `expert_tensor_parallel_size` other than 1, which is reserved for later releases.

    Write one of the values that the message names.
    """
    if not _is_enabled(config):
        return
    for name in ("preset_model", "expert_tensor_parallel_size", *NAMES):
        key = f"{SECTION}.{name}"
        if not config.has(key) or config.origin(key) is Origin.DROPPED:
            continue
        value = config.literal(key)
        allowed = _allowed(name, value)
        if allowed is not None:
            correction = "1" if allowed == "1" else _corrected(value, PRESETS if name == "preset_model" else ())
            yield Finding(
                key,
                f"{name} must be {allowed}, but it is {config.quote(key)}: DeepSpeed raises ValueError in deepspeed.initialize.",
                help=f"Set {name} to {allowed}.",
                fix=write(config, key, correction, Applicability.SAFE) if correction else None,
            )


def _allowed(name: str, value: Any) -> str | None:
    """What a key accepts, in words, if DeepSpeed rejects its value; None if it does not. Types, words and limits belong to the keys."""
    if name == "preset_model":
        refused = isinstance(value, str) and value not in PRESETS
        return "one of " + ", ".join(f'"{choice}"' for choice in PRESETS) if refused else None
    if name == "expert_tensor_parallel_size":
        return "1" if isinstance(value, int) and value > 1 else None
    return "a name without a dot" if isinstance(value, str) and (not value or "." in value) else None


def _corrected(value: Any, choices: tuple[Any, ...]) -> str | None:
    """The choice that a misspelt word means, as JSON; None if that is not sure."""
    close = spelling(value, filter(None, choices)) if isinstance(value, str) else None
    return f'"{close.word}"' if close and close.sure else None


@rule(
    "DS842",
    effect=Effect.CRASH,
    phase=Phase.INITIALIZE,
    watches=(ENABLED,),
    references=(SOURCE,),
)
@bad(
    _example('"autoep_size": 2, "row_weighting_impl": "fused"'),
    at=f"{SECTION}.row_weighting_impl",
    world_size=8,
    message='row_weighting_impl "fused" requires comm_backend "deepep": DeepSpeed raises ValueError in deepspeed.initialize.',
)
@bad(
    _example('"autoep_size": 2, "gate_up_impl": "fused", "use_grouped_mm": false'),
    at=f"{SECTION}.gate_up_impl",
    world_size=8,
    message='gate_up_impl "fused" requires use_grouped_mm: DeepSpeed raises ValueError in deepspeed.initialize.',
)
@bad(
    _example('"autoep_size": 2, "combine_impl": "fused_weighted_sum", "comm_backend": "deepep"'),
    at=f"{SECTION}.combine_impl",
    world_size=8,
    message='combine_impl "fused_weighted_sum" cannot be combined with comm_backend "deepep", which sums the rows itself: DeepSpeed raises ValueError in deepspeed.initialize.',
)
@bad(
    _example('"autoep_size": 2, "comm_backend": "deepep"'),
    at=f"{SECTION}.comm_backend",
    world_size=8,
    message='comm_backend "deepep" requires comm_max_tokens_per_rank: DeepSpeed raises ValueError in deepspeed.initialize.',
)
@bad(
    _example('"autoep_size": 2, "num_expert_groups": 2, "num_limited_groups": 4'),
    at=f"{SECTION}.num_limited_groups",
    world_size=8,
    message="num_limited_groups 4 is more than num_expert_groups 2: DeepSpeed raises ValueError in deepspeed.initialize.",
)
@good(_example('"autoep_size": 2, "gate_up_impl": "fused", "num_expert_groups": 4, "num_limited_groups": 2'), world_size=8)
def expert_parallel_settings_clash(config: Config) -> Iterator[Finding]:
    """Two settings of `expert_parallel` exclude each other, or one requires another.

    Fused row weighting is a part of the DeepEP backend. Fused gate and up projections require grouped matrix products. DeepEP sums the rows
    itself and requires the maximum number of tokens per rank. DeepSpeed raises a `ValueError`.

    Change one of the settings that the message names.
    """
    if not _is_enabled(config):
        return
    names = ("comm_backend", "autoep_size", "row_weighting_impl", "gate_up_impl", "use_grouped_mm", "combine_impl")
    backend, size, row_weighting, gate_up, grouped_mm, combine = (_setting(config, name) for name in names)
    deepep = backend == "deepep"
    limited, groups = _setting(config, "num_limited_groups"), _setting(config, "num_expert_groups")
    clashes = (
        (
            "row_weighting_impl",
            row_weighting == "fused" and backend == "comm",
            'row_weighting_impl "fused" requires comm_backend "deepep"',
        ),
        (
            "row_weighting_impl",
            row_weighting == "fused" and deepep and size == 1,
            'row_weighting_impl "fused" requires an autoep_size above 1',
        ),
        ("gate_up_impl", gate_up == "fused" and grouped_mm is False, 'gate_up_impl "fused" requires use_grouped_mm'),
        (
            "combine_impl",
            combine == "fused_weighted_sum" and deepep and isinstance(size, int) and size > 1,
            'combine_impl "fused_weighted_sum" cannot be combined with comm_backend "deepep", which sums the rows itself',
        ),
        (
            "comm_backend",
            deepep and _setting(config, "comm_max_tokens_per_rank") == 0,
            'comm_backend "deepep" requires comm_max_tokens_per_rank',
        ),
        (
            "num_limited_groups",
            isinstance(limited, int) and isinstance(groups, int) and limited > groups,
            f"num_limited_groups {limited} is more than num_expert_groups {groups}",
        ),
    )
    for name, clash, reason in clashes:
        if clash:
            yield Finding(
                f"{SECTION}.{name}",
                f"{reason}: DeepSpeed raises ValueError in deepspeed.initialize.",
                help='Add "comm_max_tokens_per_rank": the micro batch size times the longest padded sequence.'
                if name == "comm_backend"
                else "Change one of the two.",
            )
            return


@rule(
    "DS843",
    effect=Effect.CRASH,
    phase=Phase.INITIALIZE,
    needs=("world_size",),
    watches=(SIZE,),
    references=("deepspeed/module_inject/auto_ep_folding.py, build_folding_spec",),
)
@bad(
    _example('"autoep_size": 3'),
    at=SIZE,
    world_size=8,
    message='autoep_size 3 does not divide 8 ranks: DeepSpeed raises ValueError "expert_parallel.autoep_size ... must divide the stage size" in deepspeed.initialize.',
)
@good(_example('"autoep_size": 4'), world_size=8)
def expert_parallel_not_a_divisor(config: Config) -> Iterator[Finding]:
    """The ranks cannot be divided into groups of `autoep_size`.

    Each group holds one copy of all experts. DeepSpeed raises a `ValueError` if the number of ranks (of a pipeline stage) is not a multiple
    of it.

    Write a divisor of the world size.
    """
    size, ranks = config.value(SIZE), config.facts.world_size
    ranks = ranks // (config.facts.pipeline_parallel or 1) if ranks is not None else None
    if _is_enabled(config) and ranks is not None and isinstance(size, int) and size > 0 and ranks % size:
        named = config.release >= _FOLDS
        error = "expert_parallel.autoep_size ... must divide the stage size" if named else f"autoep_size={size} must divide the stage size"
        yield Finding(
            SIZE,
            f'autoep_size {size} does not divide {ranks:,} ranks: DeepSpeed raises ValueError "{error}" in deepspeed.initialize.',
            help=f"Write one of {_divisors(ranks)}.",
        )


@rule(
    "DS844",
    effect=Effect.CRASH,
    phase=Phase.INITIALIZE,
    needs=("model",),
    watches=(SIZE,),
    references=("deepspeed/module_inject/auto_ep_config.py, validate_autoep_post_detection",),
    untried="needs a model with experts",
)
@bad(
    _example('"autoep_size": 16'),
    at=SIZE,
    model={"num_local_experts": 8, "hidden_size": 4096},
    message="autoep_size 16 does not divide the model's 8 experts: DeepSpeed raises ValueError in deepspeed.initialize.",
)
@good(_example('"autoep_size": 4'), model={"num_local_experts": 8, "hidden_size": 4096})
def expert_parallel_and_experts(config: Config) -> Iterator[Finding]:
    """The model's experts cannot be divided among `autoep_size` ranks.

    Each rank of a group holds the same number of experts. DeepSpeed counts them when it replaces the layers, and raises a `ValueError` if
    their number is not a multiple of the size.

    Write a divisor of the number of experts.
    """
    model, size = config.facts.model, config.value(SIZE)
    if _is_enabled(config) and model is not None and model.experts and isinstance(size, int) and size > 0 and model.experts % size:
        yield Finding(
            SIZE,
            f"autoep_size {config.quote(SIZE)} does not divide the model's {model.experts} experts: DeepSpeed raises ValueError in deepspeed.initialize.",
            help=f"Write one of {_divisors(model.experts)}.",
        )


@rule(
    "DS845",
    effect=Effect.CRASH,
    phase=Phase.INITIALIZE,
    watches=(ENABLED,),
    references=("deepspeed/module_inject/auto_ep_folding.py, validate_folding_global",),
)
@bad(
    _example(
        '"autoep_size": 2',
        ', "tensor_parallel": {"autotp_size": 2}, "zero_optimization": {"stage": 2, "offload_optimizer": {"device": "none"}}',
    ),
    at="zero_optimization.offload_optimizer",
    world_size=8,
    message="Expert parallelism with autotp_size 2 excludes the section offload_optimizer, whatever its device: DeepSpeed raises ValueError in deepspeed.initialize.",
    fixed='{"train_micro_batch_size_per_gpu": 4, "expert_parallel": {"enabled": true, "autoep_size": 2}, "tensor_parallel": {"autotp_size": 2}, "zero_optimization": {"stage": 2}}',
)
@bad(
    _example('"autoep_size": 1', ', "tensor_parallel": {"autotp_size": 2}'),
    at=SIZE,
    world_size=8,
    message="Expert parallelism with autotp_size 2 excludes autoep_size 1: DeepSpeed raises ValueError in deepspeed.initialize.",
)
@bad(
    _example('"autoep_size": 2', ', "tensor_parallel": {"autotp_size": 2}, "compile": {"deepcompile": true}'),
    at="compile.deepcompile",
    world_size=8,
    message="Expert parallelism with autotp_size 2 excludes DeepCompile: DeepSpeed raises ValueError in deepspeed.initialize.",
)
@good(_example('"autoep_size": 2', ', "zero_optimization": {"stage": 2, "offload_optimizer": {"device": "none"}}'), world_size=8)
@good(_example('"autoep_size": 1', ', "tensor_parallel": {"autotp_size": 2}'), world_size=8, deepspeed="0.19.2")
def expert_and_tensor_parallelism(config: Config) -> Iterator[Finding]:
    """Expert parallelism together with tensor parallelism excludes several other features.

    With `autotp_size` above 1, `autoep_size` must be above 1 too, and DeepSpeed raises a `ValueError` for offload, DeepCompile, sequence
    parallelism and `use_data_before_expert_parallelism`. For offload the section is enough, even with the device "none".

    Remove what the message names, or one of the two kinds of parallelism.
    """
    tensor = config.value(TENSOR_PARALLEL)
    if not _is_enabled(config) or not config.has(TENSOR_PARALLEL) or not tensor > 1 or config.release < _FOLDS:
        return
    exclusions = (
        (SIZE, config.value(SIZE) == 1, f"autoep_size {config.value(SIZE)}"),
        (OFFLOAD_OPTIMIZER, True, "the section offload_optimizer, whatever its device"),
        (OFFLOAD_PARAM, True, "the section offload_param, whatever its device"),
        ("compile.deepcompile", config.value("compile.deepcompile") is True, "DeepCompile"),
        (SEQUENCE_PARALLEL, config.value(SEQUENCE_PARALLEL) not in (None, 1), "sequence parallelism"),
    )
    for key, excluded, feature in exclusions:
        node = config.node(key)
        if not excluded or (node is None and key != SIZE) or (isinstance(node, Scalar) and node.value in (None, "auto")):
            continue
        offload = key in OFFLOAD_SECTIONS
        yield Finding(
            key,
            f"Expert parallelism with autotp_size {tensor} excludes {feature}: DeepSpeed raises ValueError in deepspeed.initialize.",
            help='Write an "autoep_size" above 1, or "autotp_size": 1.' if key == SIZE else 'Remove it, or write "autotp_size": 1.',
            on="key" if offload else "member",
            related=((TENSOR_PARALLEL, "tensor parallelism is enabled here"),),
            fix=without(config, key) if offload and config.value(f"{key}.device") == "none" else None,
        )
        return


@rule(
    "DS861",
    effect=Effect.CRASH,
    phase=Phase.INITIALIZE,
    watches=(ENABLED,),
    untried="needs a model with experts",
    references=("deepspeed/runtime/engine.py, DeepSpeedEngine._validate_zero3_moe_compatibility",),
)
@bad(
    _example('"autoep_size": 2', ', "zero_optimization": {"stage": 3, "zero_quantized_gradients": true}'),
    at=QUANTIZED_GRADIENTS,
    message="Expert parallelism at ZeRO stage 3 excludes zero_quantized_gradients: DeepSpeed raises AssertionError in deepspeed.initialize.",
)
@bad(
    _example('"autoep_size": 2', ', "zero_optimization": {"stage": 3, "zero_hpz_partition_size": 2}'),
    at=SECONDARY_PARTITION,
    message="Expert parallelism at ZeRO stage 3 excludes zero_hpz_partition_size: DeepSpeed raises AssertionError in deepspeed.initialize.",
)
@good(_example('"autoep_size": 2', ', "zero_optimization": {"stage": 3, "zero_quantized_weights": true}'))
@good(_example('"autoep_size": 2', ', "zero_optimization": {"stage": 3, "zero_quantized_gradients": true}'), deepspeed="0.19.2")
def experts_at_stage_3(config: Config) -> Iterator[Finding]:
    """Expert parallelism at ZeRO stage 3 does not support quantized gradients, secondary partitions or sequence parallelism.

    The experts are divided among other ranks than the rest of the model, which these features do not support yet. DeepSpeed raises an
    `AssertionError` after it has replaced the model's experts by its own layers.

    Remove what the message names, or use stage 2.
    """
    if not _is_enabled(config) or not config.value(STAGE) >= 3 or config.release < _FOLDS:
        return
    sequences = config.value(SEQUENCE_PARALLEL)
    exclusions = (
        (QUANTIZED_GRADIENTS, config.value(QUANTIZED_GRADIENTS) is True),
        (SECONDARY_PARTITION, config.value(SECONDARY_PARTITION) > 1),
        (SEQUENCE_PARALLEL, isinstance(sequences, int) and sequences > 1),
    )
    for key, excluded in exclusions:
        if excluded and config.has(key):
            yield Finding(
                key,
                f"Expert parallelism at ZeRO stage 3 excludes {key.rpartition('.')[2]}: DeepSpeed raises AssertionError in deepspeed.initialize.",
                help="Remove it, or use stage 2." if key == SEQUENCE_PARALLEL else "Remove it.",
                related=((STAGE, "the stage is set here"),),
            )
            return
