"""DS4: how gradients are sent: overlap with the backward pass, their data type, buckets of several ranks."""

from __future__ import annotations

from collections.abc import Iterator

from dslint.config import Config
from dslint.diagnostics import Effect, Phase
from dslint.rule import Finding, bad, good, rule, unsafe
from dslint.rules.helpers.examples import trained
from dslint.rules.helpers.fixes import without, write
from dslint.rules.helpers.precision import uses_bf16_optimizer
from dslint.rules.helpers.zero import ACCUMULATION, STAGE, ZERO, requires_managed_accumulation
from dslint.source.change import Rename

ENGINE = "deepspeed/runtime/engine.py, DeepSpeedEngine"
OVERLAP = f"{ZERO}.overlap_comm"


@rule(
    "DS418",
    effect=Effect.CRASH,
    phase=Phase.INITIALIZE,
    watches=("managed_gradient_accumulation",),
    references=(f"{ENGINE}._do_sanity_check",),
)
@bad(
    trained('"managed_gradient_accumulation": false, "zero_optimization": {"stage": 1, "overlap_comm": true}'),
    at="managed_gradient_accumulation",
    message="managed_gradient_accumulation false conflicts with overlap_comm at stage 1: DeepSpeed raises an AssertionError in deepspeed.initialize.",
    fixed='{"train_micro_batch_size_per_gpu": 4, "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}}, "managed_gradient_accumulation": false, "zero_optimization": {"stage": 1, "overlap_comm": false}}',
)
@bad(
    trained('"managed_gradient_accumulation": false, "compile": {"deepcompile": true}'),
    at="managed_gradient_accumulation",
    message="managed_gradient_accumulation false conflicts with DeepCompile: DeepSpeed raises an AssertionError in deepspeed.initialize.",
    fixed='{"train_micro_batch_size_per_gpu": 4, "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}}, "managed_gradient_accumulation": false, "compile": {"deepcompile": false}}',
)
@good(trained('"managed_gradient_accumulation": true, "zero_optimization": {"stage": 1, "overlap_comm": true}'))
def unmanaged_accumulation_with_overlap(config: Config) -> Iterator[Finding]:
    """`managed_gradient_accumulation: false` conflicts with `overlap_comm` at stages 0 and 1, and with DeepCompile.

    With this setting the program manages gradient accumulation, and DeepSpeed learns only at `step()` that it has seen the last micro batch. It then raises an
    `AssertionError` in `deepspeed.initialize` for `overlap_comm` at stages 0 and 1, for pipelines and for DeepCompile, which need to know earlier.

    Remove one of the two.
    """
    if config.release < (0, 19, 4) or config.value(ACCUMULATION) is not False:
        return
    place = requires_managed_accumulation(config)
    if place is None:
        return
    what = f"overlap_comm at stage {config.value(STAGE)}" if place == OVERLAP else "DeepCompile"
    yield Finding(
        ACCUMULATION,
        f"managed_gradient_accumulation false conflicts with {what}: DeepSpeed raises an AssertionError in deepspeed.initialize.",
        help="Remove one of the two.",
        fix=write(config, place, "false"),
        related=((place, "conflicts with it"),),
    )


@rule(
    "DS419",
    effect=Effect.IGNORED,
    watches=("communication_data_type",),
    needs=("sequence_parallel",),
    references=(f"{ENGINE}._configure_distributed_model",),
)
@bad(
    trained('"communication_data_type": "bf16", "bf16": {"enabled": true}'),
    at="communication_data_type",
    sequence_parallel=4,
    message="DeepSpeed does not read communication_data_type with sequence parallelism: it uses seq_parallel_communication_data_type, which is fp32.",
    fixed='{"train_micro_batch_size_per_gpu": 4, "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}}, "seq_parallel_communication_data_type": "bf16", "bf16": {"enabled": true}}',
)
@good(trained('"seq_parallel_communication_data_type": "bf16", "bf16": {"enabled": true}'), sequence_parallel=4)
@good(trained('"communication_data_type": "bf16", "bf16": {"enabled": true}'), sequence_parallel=1)
def communication_type_of_sequence_parallelism(config: Config) -> Iterator[Finding]:
    """With sequence parallelism DeepSpeed ignores `communication_data_type`.

    Where several GPUs share a sequence, DeepSpeed sends gradients in the type that `seq_parallel_communication_data_type` gives. Its default is fp32.

    Write `seq_parallel_communication_data_type` instead.
    """
    key, used_key = "communication_data_type", "seq_parallel_communication_data_type"
    written, used = config.value(key), config.value(used_key)
    if (config.facts.sequence_parallel or 1) < 2 or not config.has(key) or not isinstance(written, str) or not isinstance(used, str):
        return
    if config.release >= (0, 11, 2) and written.lower() != used.lower():
        yield Finding(
            key,
            f"DeepSpeed does not read communication_data_type with sequence parallelism: it uses {used_key}, which is {used}.",
            help=f'Write "{used_key}": {config.quote(key)} to send gradients in that type.',
            fix=without(config, key) if config.has(used_key) else unsafe(f'rename to "{used_key}"', Rename((key,), used_key)),
        )


@rule(
    "DS420",
    effect=Effect.IGNORED,
    watches=("zero_optimization.overlap_comm",),
    needs=("pipeline_parallel",),
    references=(f"{ENGINE}._configure_zero_optimizer",),
)
@bad(
    trained('"zero_optimization": {"stage": 1, "overlap_comm": true}'),
    at="zero_optimization.overlap_comm",
    pipeline_parallel=4,
    message="DeepSpeed disables overlap_comm with 4 pipeline stages and logs a warning.",
    fixed='{"train_micro_batch_size_per_gpu": 4, "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}}, "zero_optimization": {"stage": 1}}',
)
@good(trained('"zero_optimization": {"stage": 1, "overlap_comm": true}'), pipeline_parallel=1)
@good(trained('"zero_optimization": {"stage": 1, "overlap_comm": false}'), pipeline_parallel=4)
@good(
    trained(
        '"bf16": {"enabled": true}, "data_types": {"grad_accum_dtype": "fp32"}, "zero_optimization": {"stage": 1, "overlap_comm": true}'
    ),
    pipeline_parallel=4,
)
def overlap_comm_with_pipeline(config: Config) -> Iterator[Finding]:
    """DeepSpeed disables `overlap_comm` in a pipeline.

    It logs the warning "Pipeline parallelism does not support overlapped communication, will be disabled" and continues without overlap.

    Write false, or remove the key.
    """
    stages = config.facts.pipeline_parallel or 1
    if (
        stages > 1
        and config.value(STAGE) == 1
        and config.has(OVERLAP)
        and config.value(OVERLAP) is True
        and not uses_bf16_optimizer(config)
    ):
        yield Finding(
            OVERLAP,
            f"DeepSpeed disables overlap_comm with {stages} pipeline stages and logs a warning.",
            help="Write false, or remove it.",
            fix=without(config, OVERLAP),
        )


@rule(
    "DS427",
    effect=Effect.ADVICE,
    watches=("zero_optimization.overlap_comm",),
    pedantic=True,
    references=("https://github.com/deepspeedai/DeepSpeed/issues/7188", "https://github.com/deepspeedai/DeepSpeed/issues/8061"),
)
@bad(
    trained('"zero_optimization": {"stage": 2, "overlap_comm": true}'),
    at="zero_optimization.overlap_comm",
    message="overlap_comm with contiguous_gradients at stage 2 may cause NaN or a different loss: users report both, most often with small buckets or torch.compile.",
)
@good(trained('"zero_optimization": {"stage": 2, "overlap_comm": false}'))
@good(trained('"zero_optimization": {"stage": 2, "overlap_comm": true, "contiguous_gradients": false}'))
def overlap_comm_and_nan(config: Config) -> Iterator[Finding]:
    """`overlap_comm` with `contiguous_gradients` at stages 1 and 2 has caused NaN in several releases.

    DeepSpeed copies gradients into a bucket on one stream and reduces them from it on another. Several issues report NaN, a loss of 0 or a loss that differs
    from training without overlap, most often with small buckets or `torch.compile`. Fixes came one at a time, up to 0.19. For most training runs overlap
    is correct and faster.

    If the loss becomes NaN, write `"overlap_comm": false` first.
    """
    overlaps = config.value(OVERLAP) is True and config.has(OVERLAP)
    if overlaps and config.value(STAGE) in (1, 2) and config.value(f"{ZERO}.contiguous_gradients") is True:
        yield Finding(
            OVERLAP,
            f"overlap_comm with contiguous_gradients at stage {config.value(STAGE)} may cause NaN or a different loss: users report both, most often with small buckets or torch.compile.",
            help='If the loss becomes NaN, write "overlap_comm": false first.',
            certain=False,
        )


@rule(
    "DS428",
    effect=Effect.SILENT,
    watches=("zero_optimization.stage",),
    pedantic=True,
    references=("https://github.com/deepspeedai/DeepSpeed/issues/5242", "https://github.com/deepspeedai/DeepSpeed/issues/5347"),
)
@bad(
    trained('"zero_optimization": {"stage": 2}'),
    at="zero_optimization.stage",
    deepspeed="0.13.5",
    message="DeepSpeed 0.13.5 reduces the buckets of several ranks in one operation, which may give wrong gradients: users of 0.12.4 to 0.14.0 report a loss of 0 and a gradient norm of NaN.",
    fixed='{"train_micro_batch_size_per_gpu": 4, "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}}, "zero_optimization": {"stage": 2, "use_multi_rank_bucket_allreduce": false}}',
)
@good(trained('"zero_optimization": {"stage": 2, "use_multi_rank_bucket_allreduce": false}'), deepspeed="0.13.5")
@good(trained('"zero_optimization": {"stage": 2}'), deepspeed="0.14.5")
def multi_rank_bucket_allreduce(config: Config) -> Iterator[Finding]:
    """Releases 0.12.4 to 0.14.0 reduce the buckets of several ranks in one operation, and users report wrong gradients.

    Since 0.12.4 this is the default at stages 1 and 2. Issues about 0.12.4 to 0.14.0 report a loss of 0 and a gradient norm of NaN, which disappear when
    `use_multi_rank_bucket_allreduce` is false.

    Write `"use_multi_rank_bucket_allreduce": false`, or use a newer release.
    """
    key = f"{ZERO}.use_multi_rank_bucket_allreduce"
    if (0, 12, 4) <= config.release <= (0, 14, 0) and config.value(STAGE) in (1, 2) and config.value(key) is True and config.has(STAGE):
        yield Finding(
            STAGE,
            f"DeepSpeed {config.release} reduces the buckets of several ranks in one operation, which may give wrong gradients: users of 0.12.4 to 0.14.0 report a loss of 0 and a gradient norm of NaN.",
            help='Write "use_multi_rank_bucket_allreduce": false, or use a newer release.',
            fix=write(config, key, "false"),
            certain=False,
        )
