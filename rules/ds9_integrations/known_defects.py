"""DS9: releases of DeepSpeed that train wrongly, or fail, with a setting of the config."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from dslint.config import Config
from dslint.diagnostics import Effect
from dslint.facts import Release
from dslint.rule import Finding, bad, good, rule
from dslint.rules.helpers.examples import MINIMAL
from dslint.rules.helpers.optimizer import lower_type
from dslint.rules.helpers.precision import uses_bf16_optimizer
from dslint.rules.helpers.releases import ReleaseDefect
from dslint.rules.helpers.zero import STAGE

_QUANTIZED = "zero_optimization.zero_quantized_weights"
_QUANTIZED_FROZEN = "zero_optimization.zero_quantized_nontrainable_weights"
_STAIR_COUNT = "scheduler.params.cycle_first_stair_count"


def _bf16_optimizer(config: Config) -> bool:
    return uses_bf16_optimizer(config) and config.value("bf16.immediate_grad_update") is False and config.facts.world_size != 1


def _muon(config: Config) -> bool:
    scatters = config.value("zero_optimization.reduce_scatter") is True
    return lower_type(config) == "muon" and config.value(STAGE) in (1, 2) and scatters and config.facts.world_size != 1


def _overlapped(config: Config) -> bool:
    overlaps = config.value("zero_optimization.overlap_comm") is True and config.value("zero_optimization.contiguous_gradients") is True
    return config.value(STAGE) in (1, 2) and overlaps and config.facts.world_size != 1


def _quantized_but_not_fp16(key: str) -> Callable[[Config], bool]:
    def shows(config: Config) -> bool:
        other = config.value("bf16.enabled") is True or config.value("fp16.enabled") is False
        return config.value(key) is True and config.value(STAGE) == 3 and other and config.value("fp16.enabled") is not True

    return shows


def _stairs(config: Config) -> bool:
    stairs = config.value(_STAIR_COUNT) if config.has(_STAIR_COUNT) else 0
    return config.value("scheduler.type") == "OneCycle" and isinstance(stairs, int | float) and stairs > 0


def _at(key: str, shows: Callable[[Config], bool]) -> Callable[[Config], str | None]:
    """The key at which a defect is reported, if it shows."""
    return lambda config: key if shows(config) else None


DEFECTS = (
    ReleaseDefect(
        "deepspeed",
        Release(0, 18, 3),
        Release(0, 18, 10),
        _at("data_types.grad_accum_dtype", _bf16_optimizer),
        "ZeRO stage 1 in bf16 with fp32 accumulation adds the gradients of the last micro batch after it averages over the ranks, so each rank "
        "trains its part on its own gradients of that micro batch",
        "Use DeepSpeed 0.19.0 or later, 0.18.2, or ZeRO stage 2.",
        "https://github.com/deepspeedai/DeepSpeed/pull/7985",
    ),
    ReleaseDefect(
        "deepspeed",
        Release(0, 17, 6),
        Release(0, 19, 2),
        _at("optimizer.type", _muon),
        "with reduce_scatter, true by default, Muon at ZeRO stages 1 and 2 orthogonalizes matrices that are only partly averaged, and each rank "
        "applies another update",
        'Write "reduce_scatter": false in zero_optimization, or use DeepSpeed 0.19.3 or later.',
        "https://github.com/deepspeedai/DeepSpeed/pull/8090",
    ),
    ReleaseDefect(
        "deepspeed",
        Release(0, 17, 2),
        Release(0, 17, 4),
        _at("zero_optimization.overlap_comm", _overlapped),
        "ZeRO stages 1 and 2 overwrite a bucket of gradients that overlap_comm is still reducing, which corrupts gradients",
        'Use DeepSpeed 0.17.5 or later, or write "overlap_comm": false.',
        "https://github.com/deepspeedai/DeepSpeed/pull/7371",
    ),
    ReleaseDefect(
        "deepspeed",
        Release(0, 3, 0),
        Release(0, 19, 3),
        _at(_STAIR_COUNT, _stairs),
        "OneCycle does not read cycle_first_stair_count and cycle_second_stair_count, and changes the learning rate at every step",
        "Use DeepSpeed 0.19.4 or later, or remove the stair counts.",
        "https://github.com/deepspeedai/DeepSpeed/pull/8179",
        Effect.IGNORED,
    ),
    ReleaseDefect(
        "deepspeed",
        Release(0, 10, 0),
        Release(0, 19, 5),
        _at(_QUANTIZED, _quantized_but_not_fp16(_QUANTIZED)),
        "the kernels of zero_quantized_weights know only fp16: they read the bits of other weights as fp16 and return fp16, so the forward pass raises "
        "for two data types, or computes with wrong weights",
        "Use DeepSpeed 0.19.6 or later, fp16, or remove zero_quantized_weights.",
        "https://github.com/deepspeedai/DeepSpeed/pull/8215",
    ),
    ReleaseDefect(
        "deepspeed",
        Release(0, 10, 0),
        Release(0, 19, 5),
        _at(_QUANTIZED_FROZEN, _quantized_but_not_fp16(_QUANTIZED_FROZEN)),
        "the kernels of zero_quantized_nontrainable_weights know only fp16: they read the bits of other frozen weights as fp16 and return fp16, so the "
        "forward pass of a model with frozen parameters may raise for two data types, or compute with wrong weights",
        "Use DeepSpeed 0.19.6 or later, fp16, or remove zero_quantized_nontrainable_weights.",
        "https://github.com/deepspeedai/DeepSpeed/pull/8215",
        depends=True,
    ),
)
"""Defects whose fix was read, and that a config shows."""

_BF16 = f'{{{MINIMAL}, "bf16": {{"enabled": true}}, "data_types": {{"grad_accum_dtype": "fp32"}}, "zero_optimization": {{"stage": 1}}}}'
_MUON = f'{{{MINIMAL}, "optimizer": {{"type": "Muon", "params": {{"lr": 0.02}}}}, "zero_optimization": {{"stage": 2}}}}'
_OVERLAP = f'{{{MINIMAL}, "zero_optimization": {{"stage": 2, "overlap_comm": true}}}}'
_QUANTIZING = f'{{{MINIMAL}, "bf16": {{"enabled": true}}, "zero_optimization": {{"stage": 3, "zero_quantized_weights": true}}}}'
_STAIRS = f'{{{MINIMAL}, "scheduler": {{"type": "OneCycle", "params": {{"cycle_min_lr": 1e-5, "cycle_max_lr": 1e-4, "cycle_first_stair_count": 4}}}}}}'


@rule(
    "DS977",
    effect=Effect.SILENT,
    watches=("zero_optimization", "optimizer.type", "scheduler.type"),
    references=tuple(one.source for one in DEFECTS),
)
@bad(
    _BF16,
    at="data_types.grad_accum_dtype",
    deepspeed="0.18.6",
    world_size=8,
    message="DeepSpeed 0.18.6: ZeRO stage 1 in bf16 with fp32 accumulation adds the gradients of the last micro batch after it averages over the ranks, so each rank trains its part on its own gradients of that micro batch.",
)
@bad(
    _MUON,
    at="optimizer.type",
    deepspeed="0.18.9",
    world_size=8,
    message="DeepSpeed 0.18.9: with reduce_scatter, true by default, Muon at ZeRO stages 1 and 2 orthogonalizes matrices that are only partly averaged, and each rank applies another update.",
)
@bad(
    _OVERLAP,
    at="zero_optimization.overlap_comm",
    deepspeed="0.17.3",
    message="DeepSpeed 0.17.3: ZeRO stages 1 and 2 overwrite a bucket of gradients that overlap_comm is still reducing, which corrupts gradients.",
)
@bad(
    _STAIRS,
    at="scheduler.params.cycle_first_stair_count",
    deepspeed="0.16.0",
    message="DeepSpeed 0.16.0: OneCycle does not read cycle_first_stair_count and cycle_second_stair_count, and changes the learning rate at every step.",
)
@bad(
    _QUANTIZING,
    at="zero_optimization.zero_quantized_weights",
    deepspeed="0.16.9",
    message="DeepSpeed 0.16.9: the kernels of zero_quantized_weights know only fp16: they read the bits of other weights as fp16 and return fp16, so the forward pass raises for two data types, or computes with wrong weights.",
)
@bad(
    _QUANTIZING.replace("quantized_weights", "quantized_nontrainable_weights"),
    at=_QUANTIZED_FROZEN,
    deepspeed="0.16.9",
    message="DeepSpeed 0.16.9: the kernels of zero_quantized_nontrainable_weights know only fp16: they read the bits of other frozen weights as fp16 and return fp16, so the forward pass of a model with frozen parameters may raise for two data types, or compute with wrong weights.",
)
@bad(
    _QUANTIZING.replace('"bf16"', '"fp16"').replace("true}, ", "false}, "),
    at=_QUANTIZED,
    deepspeed="0.16.9",
    message="DeepSpeed 0.16.9: the kernels of zero_quantized_weights know only fp16: they read the bits of other weights as fp16 and return fp16, so the forward pass raises for two data types, or computes with wrong weights.",
)
@good(_QUANTIZING, deepspeed="0.19.6")
@good(_QUANTIZING.replace("bf16", "fp16"), deepspeed="0.16.9")
@good(_BF16, deepspeed="0.19.0", world_size=8)
@good(_BF16, deepspeed="0.18.2", world_size=8)
@good(_MUON, deepspeed="0.19.3")
@good(_OVERLAP, deepspeed="0.17.5")
@good(_STAIRS, deepspeed="0.19.4")
@good(_STAIRS.replace(', "cycle_first_stair_count": 4', ""), deepspeed="0.16.0")
def defect_of_release(config: Config) -> Iterator[Finding]:
    """This release of DeepSpeed has a defect that this config runs into.

    The training runs, and is wrong. Each entry names the change that fixed it: the average over the ranks that leaves out the last micro batch
    (0.18.3 to 0.18.10), Muon with reduce_scatter (0.17.6 to 0.19.2), gradients overwritten while they are reduced (0.17.2 to 0.17.4),
    quantized weights that are not fp16 (up to 0.19.5), and the stairs of OneCycle that nothing reads (up to 0.19.3).

    dslint reports it only for a release that the project pins, or that is given: `--deepspeed 0.18.6`.

    Use another release, or the setting that the message names.
    """
    for defect in DEFECTS:
        release = defect.release(config)
        key = defect.shows(config) if release is not None else None
        if isinstance(key, str):
            yield Finding(
                key,
                f"DeepSpeed {release}: {defect.outcome}.",
                help=defect.advice,
                effect=defect.effect,
                certain=defect.effect is Effect.IGNORED or (config.facts.world_size is not None and not defect.depends),
            )
