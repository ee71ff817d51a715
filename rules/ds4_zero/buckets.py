"""DS4: the sizes of the buckets in which ZeRO gathers parameters and reduces gradients."""

from __future__ import annotations

from collections.abc import Iterator

from dslint.config import Config
from dslint.diagnostics import Applicability, Effect, Phase
from dslint.frameworks.engine_optimizer import runs_without_optimizer
from dslint.rule import Finding, FixPlan, bad, good, rule
from dslint.rules.helpers.cost import small_collectives
from dslint.rules.helpers.examples import trained
from dslint.rules.helpers.fixes import write
from dslint.rules.helpers.model import may_be_pipelined
from dslint.rules.helpers.precision import dtype_of, model_dtype, uses_bf16_optimizer
from dslint.rules.helpers.zero import DTYPE_BYTES, STAGE, ZERO

STAGE_1_AND_2 = "deepspeed/runtime/zero/stage_1_and_2.py, DeepSpeedZeroOptimizer"
REDUCE_BUCKET = f"{ZERO}.reduce_bucket_size"

LARGE_SHARE = 0.1
"""The share of a GPU's memory above which buffers of a fixed size are reported."""

TINY_BUCKET = 100_000
"""Elements in a bucket below which a collective costs more in latency than in transfer."""

SMALLER_BUCKET = 100_000_000
"""Elements of a bucket that is still large enough to use the full bandwidth."""


@rule(
    "DS429",
    effect=Effect.CRASH,
    phase=Phase.INITIALIZE,
    watches=("zero_optimization.allgather_bucket_size",),
    references=(f"{STAGE_1_AND_2}.__init__",),
)
@bad(
    trained('"zero_optimization": {"stage": 2, "allgather_bucket_size": 500000001}'),
    at="zero_optimization.allgather_bucket_size",
    message='allgather_bucket_size 500000001 is odd: DeepSpeed raises AssertionError "allgather_bucket_size must be a multiple of nccl_start_alignment_factor, 2".',
    fixed='{"train_micro_batch_size_per_gpu": 4, "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}}, "zero_optimization": {"stage": 2, "allgather_bucket_size": 500000002}}',
)
@good(trained('"zero_optimization": {"stage": 2, "allgather_bucket_size": 500000000}'))
@good(trained('"zero_optimization": {"stage": 3, "allgather_bucket_size": 500000001}'))
def odd_allgather_bucket(config: Config) -> Iterator[Finding]:
    """`allgather_bucket_size` must be even at ZeRO stages 1 and 2.

    The buffers start at multiples of 4 bytes, which is two elements in half precision. DeepSpeed asserts that the bucket also ends at such a multiple.

    Write an even number.
    """
    key = f"{ZERO}.allgather_bucket_size"
    size = config.value(key)
    if isinstance(size, int) and size % 2 and config.value(STAGE) in (1, 2) and not uses_bf16_optimizer(config):
        yield Finding(
            key,
            f'allgather_bucket_size {config.quote(key)} is odd: DeepSpeed raises AssertionError "allgather_bucket_size must be a multiple of nccl_start_alignment_factor, 2".',
            help=f"Write an even number, such as {size + 1}.",
            fix=write(config, key, str(size + 1), Applicability.SAFE),
        )


@rule(
    "DS443",
    effect=Effect.CRASH,
    phase=Phase.STEP,
    watches=("zero_optimization.reduce_bucket_size",),
    references=(f"{STAGE_1_AND_2}.report_ipg_memory_usage", "https://github.com/deepspeedai/DeepSpeed/issues/8260"),
    untried="requires DeepSpeed 0.19.5 or earlier; tried by hand on 0.16.9 at stages 1 and 2, and on 0.19.5 at stages 1 to 3",
)
@bad(
    trained('"zero_optimization": {"stage": 2, "reduce_bucket_size": 0}'),
    at="zero_optimization.reduce_bucket_size",
    deepspeed="0.19.5",
    message='reduce_bucket_size is 0: the first backward pass of DeepSpeed 0.19.5 raises ZeroDivisionError "float floor division by zero".',
    fixed='{"train_micro_batch_size_per_gpu": 4, "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}}, "zero_optimization": {"stage": 2, "reduce_bucket_size": 5e8}}',
)
@good(trained('"zero_optimization": {"stage": 0, "reduce_bucket_size": 0}'), deepspeed="0.19.5")
@good(trained('"zero_optimization": {"stage": 2, "reduce_bucket_size": 5e8}'), deepspeed="0.19.5")
def reduce_bucket_of_zero(config: Config) -> Iterator[Finding]:
    """`reduce_bucket_size` 0 divides by zero in the first backward pass, up to DeepSpeed 0.19.5.

    DeepSpeed divides the number of collected gradient elements by the size of the bucket, and raises ZeroDivisionError "float floor division
    by zero". From 0.19.6 on it refuses the value when it reads the config.

    Write 5e8, the default, or a smaller positive number.
    """
    if config.value(REDUCE_BUCKET) == 0 and _reduces_in_buckets(config):
        yield Finding(
            REDUCE_BUCKET,
            f"reduce_bucket_size is {config.quote(REDUCE_BUCKET)}: the first backward pass of DeepSpeed {config.release} raises "
            'ZeroDivisionError "float floor division by zero".',
            help="Write 5e8, the default, or a smaller positive number.",
            fix=write(config, REDUCE_BUCKET, "5e8"),
        )


@rule(
    "DS430",
    effect=Effect.SLOW,
    watches=("zero_optimization.reduce_bucket_size",),
    references=(f"{STAGE_1_AND_2}.reduce_independent_p_g_buckets_and_remove_grads",),
)
@bad(
    trained('"zero_optimization": {"stage": 2, "reduce_bucket_size": 1000}'),
    at="zero_optimization.reduce_bucket_size",
    message="reduce_bucket_size 1000 holds 1,000 elements: DeepSpeed reduces nearly every parameter in its own collective operation.",
    fixed='{"train_micro_batch_size_per_gpu": 4, "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}}, "zero_optimization": {"stage": 2, "reduce_bucket_size": 5e7}}',
)
@good(trained('"zero_optimization": {"stage": 2, "reduce_bucket_size": 5e7}'))
@good(trained('"zero_optimization": {"stage": 0, "reduce_bucket_size": 1000}'))
@good(trained('"zero_optimization": {"stage": 2, "reduce_bucket_size": 1000}'), world_size=1)
def tiny_reduce_bucket(config: Config) -> Iterator[Finding]:
    """With a tiny `reduce_bucket_size` the latency of gradient reduction exceeds the time of the transfer.

    `reduce_bucket_size` counts elements. DeepSpeed reduces each bucket in one collective operation, with a latency of tens of microseconds. It reduces a
    parameter that is larger than the bucket separately.

    Write 5e7 or more. The default is 5e8.
    """
    size = config.value(REDUCE_BUCKET)
    if 0 < size < TINY_BUCKET and config.facts.world_size != 1 and _reduces_in_buckets(config):
        yield Finding(
            REDUCE_BUCKET,
            f"reduce_bucket_size {config.quote(REDUCE_BUCKET)} holds {size:,} elements: DeepSpeed reduces nearly every parameter in its own collective operation.",
            help=f"Write 5e7 or more: it counts elements, and the default is 5e8.{small_collectives(config)}",
            fix=write(config, REDUCE_BUCKET, "5e7"),
            costly=True,
        )


@rule(
    "DS431",
    effect=Effect.MEMORY,
    watches=("zero_optimization.stage",),
    needs=("gpu_memory",),
    references=(f"{STAGE_1_AND_2}.setup_buckets", "https://huggingface.co/docs/transformers/deepspeed"),
)
@bad(
    trained('"bf16": {"enabled": true}, "zero_optimization": {"stage": 2, "overlap_comm": true, "reduce_bucket_size": 1e9}'),
    at="zero_optimization.reduce_bucket_size",
    gpu="rtx4090",
    message="The gradient buckets use 2 x 1.86 GiB = 3.73 GiB, 16% of the GPU's 23.5 GiB, for a model of any size. overlap_comm doubles the memory.",
    fixed='{"train_micro_batch_size_per_gpu": 4, "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}}, "bf16": {"enabled": true}, "zero_optimization": {"stage": 2, "overlap_comm": true, "reduce_bucket_size": 1e8}}',
)
@good(
    trained('"bf16": {"enabled": true}, "zero_optimization": {"stage": 2, "overlap_comm": true, "reduce_bucket_size": 2e8}'),
    gpu="rtx4090",
)
@good(
    trained('"bf16": {"enabled": true}, "zero_optimization": {"stage": 2, "overlap_comm": true, "reduce_bucket_size": 1e9}'),
    gpu="h100",
)
@good(
    trained('"bf16": {"enabled": true}, "zero_optimization": {"stage": 1, "overlap_comm": true, "reduce_bucket_size": 1e9}'),
    gpu="rtx4090",
    program="import deepspeed\nfrom deepspeed.pipe import PipelineModule\nmodel = PipelineModule(layers=layers, num_stages=stages())\n"
    "engine, *_ = deepspeed.initialize(model=model, config='ds_config.json')\nengine.train_batch(data)\n",
    integration="deepspeed",
)
def large_buckets(config: Config) -> Iterator[Finding]:
    """The gradient buckets use a large part of the GPU's memory.

    `reduce_bucket_size` counts elements. DeepSpeed allocates the whole buffer, for a model of any size. At stages 1 and 2 `overlap_comm` adds a second buffer:
    DeepSpeed fills one while it reduces the other.

    Write a smaller `reduce_bucket_size`, such as 2e8 or 1e8, or `"overlap_comm": false`.
    """
    from dslint.facts.gpus import in_words

    memory, buckets = config.facts.gpu_memory, _gradient_buckets(config)
    key = next((key for key in (REDUCE_BUCKET, f"{ZERO}.overlap_comm", STAGE) if config.has(key)), None)
    if memory is None or buckets is None or key is None:
        return
    count, size = buckets
    if count * size <= LARGE_SHARE * memory:
        return
    shown = f"{count} x {in_words(size)} = {in_words(count * size)}" if count > 1 else in_words(size)
    default = "" if key == REDUCE_BUCKET else " (the default, 5e8 elements)"
    yield Finding(
        key,
        f"The gradient bucket{'s use' if count > 1 else ' uses'} {shown}{default}, {count * size / memory:.0%} of the GPU's {in_words(memory)}, for a model of any size."
        + (" overlap_comm doubles the memory." if count > 1 else ""),
        help='Write a smaller "reduce_bucket_size", such as 1e8' + (', or "overlap_comm": false.' if count > 1 else "."),
        fix=_write_smaller_bucket(config, count, size),
    )


def _reduces_in_buckets(config: Config) -> bool:
    """Whether ZeRO reduces gradients in buckets of the written size."""
    return bool(config.value(STAGE) >= 1) and not uses_bf16_optimizer(config) and not runs_without_optimizer(config)


def _gradient_buckets(config: Config) -> tuple[int, int] | None:
    """How many gradient buckets ZeRO allocates on every GPU, and the bytes of one. None where it allocates none, or a value is unknown.

    At stages 1 and 2 it allocates one in the data type of the model, two with `overlap_comm`; at stage 3 one in the data type of the communication. Each is
    allocated whole, for a model of any size.
    """
    stage, size, dtype = config.value(STAGE), config.value(REDUCE_BUCKET), model_dtype(config)
    contiguous = config.value(f"{ZERO}.contiguous_gradients")
    if not isinstance(size, int) or dtype is None or contiguous is not True or not _reduces_in_buckets(config):
        return None
    if stage in (1, 2):
        overlap = not may_be_pipelined(config) and config.value(f"{ZERO}.overlap_comm")  # a pipeline disables it
        return (2 if overlap else 1, size * DTYPE_BYTES[dtype]) if isinstance(overlap, bool) else None
    if stage == 3:
        sent = dtype_of(config, "communication_data_type") or dtype
        return 1, size * DTYPE_BYTES.get(sent, DTYPE_BYTES[dtype])
    return None


def _write_smaller_bucket(config: Config, count: int, size: int) -> FixPlan | None:
    """Write a smaller bucket, if it is small enough for the GPU. `count` and `size` (bytes) are those of the present buckets."""
    elements, memory = config.value(REDUCE_BUCKET), config.facts.gpu_memory or 0
    fits = count * size // elements * SMALLER_BUCKET <= LARGE_SHARE * memory
    return write(config, REDUCE_BUCKET, "1e8") if fits else None
