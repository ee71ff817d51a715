"""Releases of DeepSpeed that train wrongly, or fail, with a setting of the config."""

from __future__ import annotations

from collections.abc import Callable

from dslint.config import Config
from dslint.diagnostics import Effect, Phase
from dslint.facts import Integration, Release
from dslint.frameworks.engine_optimizer import runs_without_optimizer
from dslint.rules.helpers.optimizer import ONE_BIT, lower_type
from dslint.rules.helpers.parameters import implementation, is_passed_by_program, number, parameter
from dslint.rules.helpers.precision import dtype_of, model_dtype, uses_bf16_optimizer
from dslint.rules.helpers.releases import ReleaseDefect
from dslint.rules.helpers.schedule import schedule_param, schedule_type
from dslint.rules.helpers.zero import STAGE

_QUANTIZED = "zero_optimization.zero_quantized_weights"
_QUANTIZED_FROZEN = "zero_optimization.zero_quantized_nontrainable_weights"
_STAIR_COUNT = "scheduler.params.cycle_first_stair_count"

_ZERO = "zero_optimization"
_SCHEDULE_TYPE = "scheduler.type"
_GPU_ADAM = ("FusedAdam",)
_WITH_COSINE = Release(0, 12, 3)
_WARMUPS = ("WarmupLR", "WarmupDecayLR", "WarmupCosineLR")
_PULL = "https://github.com/deepspeedai/DeepSpeed/pull/"


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


def _warms_up(config: Config) -> bool:
    rate, start = number(parameter(config, "optimizer", "lr")), schedule_param(config, "warmup_min_lr")
    kind = schedule_type(config)
    is_known = kind != "WarmupCosineLR" or config.release >= _WITH_COSINE  # older ones raise (DS611)
    return kind in _WARMUPS and is_known and rate not in (start, 0)


def _offloads_while_accumulating(config: Config) -> bool:
    offloads = config.value(STAGE) in (1, 2) and config.value(f"{_ZERO}.offload_optimizer.device") in ("cpu", "nvme")
    return bool(offloads and config.value("gradient_accumulation_steps") > 2)


def _without_zero(config: Config, dtype: str) -> bool:
    """Whether a training in this type runs without ZeRO, and not in a pipeline. An engine without an optimizer trains nothing."""
    is_plain = model_dtype(config) == dtype and not config.has("amp")
    return bool(config.value(STAGE) == 0) and is_plain and not _has_pipeline(config) and not runs_without_optimizer(config)


def _has_pipeline(config: Config) -> bool:
    program = config.setup.program if config.setup else None
    return program is not None and program.pipeline is not None


def _fused_in_fp16(config: Config) -> bool:
    is_fused = implementation(config) in _GPU_ADAM and not is_passed_by_program(config)
    return _without_zero(config, "fp16") and is_fused and config.value("optimizer.legacy_fusion") is False


def _unfused_in_bf16(config: Config) -> bool:
    made = implementation(config)
    is_unfused = made is not None and made not in _GPU_ADAM and lower_type(config) not in ONE_BIT
    return (
        _without_zero(config, "bf16") and is_unfused and not is_passed_by_program(config) and not config.has("data_types.grad_accum_dtype")
    )


def _sums_in_fp32_alone(config: Config) -> bool:
    written = dtype_of(config, "data_types.grad_accum_dtype")
    alone = _without_zero(config, "bf16") and (written == "fp32" or not config.has("data_types.grad_accum_dtype"))
    is_of_bf16 = uses_bf16_optimizer(config) and not _has_pipeline(config) and not runs_without_optimizer(config)
    return (alone or is_of_bf16) and config.facts.world_size != 1


def _clips_in_fp32(config: Config) -> bool:
    return _without_zero(config, "fp32") and bool(config.value("gradient_clipping") > 0)


def _at_stage_3(key: str, value: object) -> Callable[[Config], bool]:
    """Stage 3 with this value of a key of `zero_optimization`."""

    def shows(config: Config) -> bool:
        return bool(config.value(STAGE) == 3) and bool(config.value(f"{_ZERO}.{key}") == value) and config.facts.world_size != 1

    return shows


def _secondary_partition(config: Config) -> bool:
    return bool(config.value(STAGE) == 3 and config.value(f"{_ZERO}.zero_hpz_partition_size") > 1)


def _reduces_whole_bucket(config: Config) -> bool:
    is_whole = config.value(f"{_ZERO}.reduce_scatter") is False and config.value(f"{_ZERO}.contiguous_gradients") is True
    return bool(config.value(STAGE) == 3) and is_whole and config.facts.world_size != 1


def _communicates_in_other_type(config: Config) -> bool:
    other, own = dtype_of(config, "communication_data_type"), model_dtype(config)
    return config.value(STAGE) in (1, 2) and other is not None and own is not None and other != own


def _at_low_stage(key: str) -> Callable[[Config], bool]:
    """ZeRO stage 1 or 2 with a key of `zero_optimization` that is true."""
    return lambda config: config.value(STAGE) in (1, 2) and config.value(f"{_ZERO}.{key}") is True


def _autocast_at_stage_3(config: Config) -> bool:
    return config.enabled("torch_autocast") is True and bool(config.value(STAGE) == 3)


def _resumes_universal(config: Config) -> bool:
    return config.value("checkpoint.load_universal") is True and bool(config.value(STAGE) == 3)


def _trainer_accumulates(config: Config) -> bool:
    by_trainer = config.facts.integration is Integration.TRANSFORMERS
    return by_trainer and bool(config.value("gradient_accumulation_steps") > 1) and config.value("gradient_clipping") > 0


def _logs_cosine(config: Config) -> bool:
    return schedule_type(config) == "WarmupCosineLR" and config.facts.integration is Integration.TRANSFORMERS


def _at(key: str, shows: Callable[[Config], bool]) -> Callable[[Config], str | None]:
    """The key at which a defect is reported, if it shows."""
    return lambda config: key if shows(config) else None


DEFECTS = (
    ReleaseDefect(
        "deepspeed",
        Release(0, 18, 3),
        Release(0, 18, 9),
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
    ReleaseDefect(
        "deepspeed",
        Release(0, 12, 3),
        Release(0, 12, 3),
        _at(_SCHEDULE_TYPE, _logs_cosine),
        "its WarmupCosineLR has no get_last_lr, with which the Trainer logs the learning rate: the first log raises AttributeError "
        "\"'WarmupCosineLR' object has no attribute 'get_last_lr'\"",
        "Use DeepSpeed 0.12.4 or later.",
        f"{_PULL}4688",
        Effect.CRASH,
        Phase.STEP,
        of_one_rank=True,
    ),
    ReleaseDefect(
        "deepspeed",
        Release(0, 3, 0),
        Release(0, 15, 2),
        _at(_SCHEDULE_TYPE, _warms_up),
        "the warm-up schedules set the learning rate only after the first step, which runs at the whole learning rate of the optimizer",
        "Use DeepSpeed 0.15.3 or later.",
        f"{_PULL}6597",
        Effect.IGNORED,
    ),
    ReleaseDefect(
        "deepspeed",
        Release(0, 15, 2),
        Release(0, 18, 9),
        _at("gradient_accumulation_steps", _offloads_while_accumulating),
        "ZeRO stages 1 and 2 with an offloaded optimizer add up only the first and the last micro batch of a step: the gradients of those between "
        "them are lost",
        "Use DeepSpeed 0.19.0 or later, or at most 2 gradient accumulation steps, or ZeRO stage 3, or no offload.",
        f"{_PULL}7967",
        of_one_rank=True,
    ),
    ReleaseDefect(
        "deepspeed",
        Release(0, 17, 6),
        Release(0, 18, 1),
        _at("fp16.enabled", _fused_in_fp16),
        "in fp16 without ZeRO the step of DeepSpeed's Adam ends after it has looked for an overflow: no weight is ever updated",
        "Use DeepSpeed 0.18.2 or later, or 0.17.5, or ZeRO stage 1.",
        f"{_PULL}7645",
        of_one_rank=True,
    ),
    ReleaseDefect(
        "deepspeed",
        Release(0, 17, 6),
        Release(0, 18, 5),
        _at("bf16.enabled", _unfused_in_bf16),
        "in bf16 without ZeRO, with an optimizer other than DeepSpeed's fused Adam, gradients are divided by a loss scale that the loss was not "
        "multiplied with, and are not set to zero after a step",
        "Use DeepSpeed 0.18.6 or later, or 0.17.5.",
        f"{_PULL}7839",
        of_one_rank=True,
    ),
    ReleaseDefect(
        "deepspeed",
        Release(0, 9, 0),
        Release(0, 13, 2),
        _at("bf16.enabled", _sums_in_fp32_alone),
        "in bf16 with fp32 accumulation, at ZeRO stage 1 or without ZeRO, the gradients are averaged over the ranks after they were added to "
        "those that the optimizer uses: each rank trains on its own",
        "Use DeepSpeed 0.13.3 or later, or ZeRO stage 2.",
        f"{_PULL}5170",
    ),
    ReleaseDefect(
        "deepspeed",
        Release(0, 13, 2),
        Release(0, 13, 2),
        _at("gradient_clipping", _clips_in_fp32),
        "without ZeRO, fp16 and bf16 it does not clip large gradients, and scales small ones up to the norm of gradient_clipping",
        "Use DeepSpeed 0.13.3 or later, or 0.13.1.",
        f"{_PULL}5150",
        of_one_rank=True,
    ),
    ReleaseDefect(
        "deepspeed",
        Release(0, 18, 3),
        Release(0, 18, 3),
        _at("gradient_accumulation_steps", _trainer_accumulates),
        "it divides the gradients by the gradient accumulation steps even if it is asked not to, and the Trainer of newer releases of transformers "
        "has divided them already: they may be too small, and gradient_clipping does not clip them",
        "Use DeepSpeed 0.18.4 or later, or 0.18.2.",
        f"{_PULL}7724",
        depends=True,
    ),
    ReleaseDefect(
        "deepspeed",
        Release(0, 14, 3),
        Release(0, 19, 3),
        _at(f"{_ZERO}.stage3_use_all_reduce_for_fetch_params", _at_stage_3("stage3_use_all_reduce_for_fetch_params", value=True)),
        "with stage3_use_all_reduce_for_fetch_params, a parameter whose size is not a multiple of the number of ranks overlaps with the next one "
        "where they are gathered: weights may be wrong",
        "Use DeepSpeed 0.19.4 or later, or remove stage3_use_all_reduce_for_fetch_params.",
        f"{_PULL}8158",
        depends=True,
    ),
    ReleaseDefect(
        "deepspeed",
        Release(0, 13, 2),
        Release(0, 18, 2),
        _at(f"{_ZERO}.zero_hpz_partition_size", _secondary_partition),
        "weights that are loaded into a partitioned model, from a pretrained model or a checkpoint, may not reach the secondary partition: the "
        "first steps compute with other weights",
        "Use DeepSpeed 0.18.3 or later, or remove zero_hpz_partition_size.",
        f"{_PULL}7707",
        depends=True,
    ),
    ReleaseDefect(
        "deepspeed",
        Release(0, 13, 5),
        Release(0, 19, 4),
        _at(f"{_ZERO}.zero_hpz_partition_size", _secondary_partition),
        "a parameter that is smaller than the secondary partition of a rank raises IndexError where it is divided",
        "Use DeepSpeed 0.19.5 or later, or remove zero_hpz_partition_size.",
        f"{_PULL}8210",
        Effect.CRASH,
        Phase.INITIALIZE,
        depends=True,
    ),
    ReleaseDefect(
        "deepspeed",
        Release(0, 9, 0),
        Release(0, 10, 3),
        _at(f"{_ZERO}.reduce_scatter", _reduces_whole_bucket),
        "at ZeRO stage 3 with reduce_scatter false, a gradient that fills the bucket exactly may not be averaged over the ranks, as with a "
        "reduce_bucket_size that the Trainer computes from the hidden size",
        "Use DeepSpeed 0.11.0 or later, or remove reduce_scatter.",
        f"{_PULL}4321",
        depends=True,
    ),
    ReleaseDefect(
        "deepspeed",
        Release(0, 9, 0),
        Release(0, 13, 1),
        _at(f"{_ZERO}.elastic_checkpoint", _at_low_stage("elastic_checkpoint")),
        "with elastic_checkpoint, the optimizer states of a checkpoint may be loaded into other positions than they were saved from",
        "Use DeepSpeed 0.13.2 or later, or remove elastic_checkpoint.",
        f"{_PULL}5105",
        depends=True,
    ),
    ReleaseDefect(
        "deepspeed",
        Release(0, 17, 2),
        Release(0, 18, 1),
        _at("communication_data_type", _communicates_in_other_type),
        "with a communication_data_type other than the type of the parameters, a parameter that is larger than reduce_bucket_size raises an "
        "error in the backward pass",
        "Use DeepSpeed 0.18.2 or later, or 0.17.1, or remove communication_data_type.",
        f"{_PULL}7660",
        Effect.CRASH,
        Phase.STEP,
        depends=True,
    ),
    ReleaseDefect(
        "deepspeed",
        Release(0, 17, 2),
        Release(0, 17, 4),
        _at("torch_autocast.enabled", _autocast_at_stage_3),
        "torch_autocast at ZeRO stage 3 gathers parameters of several types twice, and raises AssertionError",
        "Use DeepSpeed 0.17.6 or later, or bf16 in place of torch_autocast.",
        f"{_PULL}7462",
        Effect.CRASH,
        Phase.STEP,
        depends=True,
    ),
    ReleaseDefect(
        "deepspeed",
        Release(0, 13, 0),
        Release(0, 17, 6),
        _at(f"{_ZERO}.offload_optimizer.device", _at_stage_3("offload_optimizer.device", value="nvme")),
        "all ranks copy their optimizer states on NVMe into one folder of the checkpoint, where they may overwrite those of the others",
        "Use DeepSpeed 0.18.0 or later, or offload the optimizer to the CPU.",
        f"{_PULL}7613",
        depends=True,
    ),
    ReleaseDefect(
        "deepspeed",
        Release(0, 14, 5),
        Release(0, 17, 6),
        _at("checkpoint.load_universal", _resumes_universal),
        "a universal checkpoint of ZeRO stage 3 raises FileNotFoundError on more ranks than wrote it, and a model of several sub groups cannot be converted",
        "Use DeepSpeed 0.18.0 or later.",
        f"{_PULL}7599",
        Effect.CRASH,
        Phase.RESUME,
        depends=True,
    ),
    ReleaseDefect(
        "deepspeed",
        Release(0, 17, 2),
        Release(0, 17, 2),
        _at(STAGE, lambda config: bool(config.value(STAGE) == 3)),
        "ZeRO stage 3 never empties the count of its gradient bucket, and soon reduces every gradient by itself",
        "Use DeepSpeed 0.17.3 or later.",
        f"{_PULL}7418",
        Effect.SLOW,
    ),
    ReleaseDefect(
        "deepspeed",
        Release(0, 17, 5),
        Release(0, 18, 4),
        _at(f"{_ZERO}.overlap_comm", _overlapped),
        "ZeRO stages 1 and 2 wait for each bucket of gradients, so overlap_comm overlaps nothing",
        "Use DeepSpeed 0.18.5 or later.",
        f"{_PULL}7805",
        Effect.SLOW,
    ),
    ReleaseDefect(
        "deepspeed",
        Release(0, 18, 5),
        Release(0, 18, 6),
        _at(STAGE, lambda config: config.value(STAGE) in (1, 2, 3)),
        "ZeRO counts all parameters again for each gradient, which slows down the backward pass of a model with many parameters",
        "Use DeepSpeed 0.18.7 or later, or 0.18.4.",
        f"{_PULL}7886",
        Effect.SLOW,
    ),
)
"""Defects whose fix was read, and that a config shows."""
