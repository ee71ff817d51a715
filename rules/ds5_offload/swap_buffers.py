"""DS5: the buffers in host memory through which data goes to NVMe and back."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from dslint.config import Config
from dslint.diagnostics import Applicability, Effect, Phase
from dslint.rule import Finding, bad, good, rule
from dslint.rules.helpers.examples import trained
from dslint.rules.helpers.fixes import write
from dslint.rules.helpers.offload import OFFLOAD_OPTIMIZER, OFFLOAD_PARAM, PARAM_SWAPPER, to_nvme, when_of
from dslint.rules.helpers.precision import model_dtype
from dslint.rules.helpers.zero import DTYPE_BYTES, local_ranks

BUFFER_SIZE = f"{OFFLOAD_PARAM}.buffer_size"

ADAM_BUFFERS = 4
"""What a step of Adam reads of a partition: master weights, gradients, first and second moments."""

LARGE_SHARE = 0.5
"""The share of a node's memory above which pinned buffers are reported."""


@rule(
    "DS507",
    effect=Effect.CRASH,
    phase=Phase.INITIALIZE,
    watches=(
        "zero_optimization.offload_optimizer.buffer_count",
        "zero_optimization.offload_param.buffer_count",
        "zero_optimization.offload_param.buffer_size",
    ),
    references=("deepspeed/runtime/swap_tensor/utils.py, SwapBufferManager", f"{PARAM_SWAPPER}.get_buffer"),
)
@bad(
    trained('"zero_optimization": {"stage": 3, "offload_optimizer": {"device": "nvme", "nvme_path": "nvme", "buffer_count": 0}}'),
    at="zero_optimization.offload_optimizer.buffer_count",
    message="buffer_count 0 gives offload_optimizer no buffer: DeepSpeed raises IndexError in deepspeed.initialize.",
    fixed='{"train_micro_batch_size_per_gpu": 4, "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}}, "zero_optimization": {"stage": 3, "offload_optimizer": {"device": "nvme", "nvme_path": "nvme", "buffer_count": 4}}}',
)
@good(trained('"zero_optimization": {"stage": 3, "offload_optimizer": {"device": "nvme", "nvme_path": "nvme", "buffer_count": 4}}'))
@good(trained('"zero_optimization": {"stage": 3, "offload_optimizer": {"device": "cpu", "buffer_count": 0}}'))
def no_swap_buffers(config: Config) -> Iterator[Finding]:
    """Offload to NVMe requires at least one buffer, of at least one element.

    With `"buffer_count": 0` in `offload_optimizer` DeepSpeed raises an `IndexError` when it creates the buffers. In `offload_param` the first parameter of
    1 MiB or more raises `AssertionError: No swap buffers to allocate`. `"buffer_size": 0` in `offload_param` also raises an `AssertionError`.

    Remove `buffer_count`: the default is 4 for the optimizer and 5 for parameters.
    """
    for section, default in ((OFFLOAD_OPTIMIZER, 4), (OFFLOAD_PARAM, 5)):
        key = f"{section}.buffer_count"
        if to_nvme(config, section) and config.value(key) == 0:
            error = "IndexError" if section == OFFLOAD_OPTIMIZER else 'AssertionError "No swap buffers to allocate"'
            when = when_of(config, section)
            yield Finding(
                key,
                f"buffer_count 0 gives {section.partition('.')[2]} no buffer: DeepSpeed raises {error} {when.words}.",
                phase=when.phase,
                step=when.step,
                help=f"Write {default}, the default, or remove it.",
                fix=write(config, key, str(default), Applicability.SAFE),
            )
    if to_nvme(config, OFFLOAD_PARAM) and config.value(BUFFER_SIZE) == 0:
        yield Finding(
            BUFFER_SIZE,
            'buffer_size 0 holds no elements: DeepSpeed raises AssertionError "More elements than buffer size" for the first parameter of 1 MiB or more.',
            help="Write 1e8, the default, or remove it.",
            fix=write(config, BUFFER_SIZE, "1e8", Applicability.SAFE),
        )


@rule(
    "DS508",
    effect=Effect.CRASH,
    phase=Phase.STEP,
    watches=("zero_optimization.offload_optimizer.buffer_count",),
    untried="DeepSpeed does not swap partitions below 1 MiB, such as those of the suite's model",
    references=("deepspeed/runtime/swap_tensor/partitioned_optimizer_swapper.py, PartitionedOptimizerSwapper.swap_in_optimizer_state",),
)
@bad(
    trained('"zero_optimization": {"stage": 3, "offload_optimizer": {"device": "nvme", "nvme_path": "/local_nvme", "buffer_count": 2}}'),
    at="zero_optimization.offload_optimizer.buffer_count",
    message="buffer_count 2 is too small: a step of AdamW requires 4 buffers (master weights, gradients, two moments). DeepSpeed raises an AssertionError at the first step.",
    fixed='{"train_micro_batch_size_per_gpu": 4, "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}}, "zero_optimization": {"stage": 3, "offload_optimizer": {"device": "nvme", "nvme_path": "/local_nvme", "buffer_count": 4}}}',
)
@good(trained('"zero_optimization": {"stage": 3, "offload_optimizer": {"device": "nvme", "nvme_path": "/local_nvme", "buffer_count": 4}}'))
@good(trained('"zero_optimization": {"stage": 3, "offload_optimizer": {"device": "cpu", "buffer_count": 2}}'))
def few_swap_buffers(config: Config) -> Iterator[Finding]:
    """Adam on NVMe requires 4 swap buffers, one for each kind of state.

    For a step of Adam DeepSpeed reads four tensors of a partition: master weights, gradients and two moments. With fewer than 4 buffers it raises an
    `AssertionError` at the first step. The error says "try increasing 'buffer_count'" if `pipeline_read` or `pipeline_write` is on, and is empty otherwise.

    Write 4, the default.
    """
    key, name = f"{OFFLOAD_OPTIMIZER}.buffer_count", config.value("optimizer.type")
    count = config.value(key)
    if not (to_nvme(config, OFFLOAD_OPTIMIZER) and isinstance(name, str) and name.lower() in ("adam", "adamw")):
        return
    if isinstance(count, int) and 0 < count < ADAM_BUFFERS:
        yield Finding(
            key,
            f"buffer_count {count} is too small: a step of {name} requires {ADAM_BUFFERS} buffers (master weights, gradients, two moments). DeepSpeed raises an AssertionError at the first step.",
            help=f"Write {ADAM_BUFFERS}, the default, or remove it.",
            fix=write(config, key, str(ADAM_BUFFERS), Applicability.SAFE),
        )


def _model_config(vocabulary: int, hidden: int) -> Any:
    return {"model_type": "llama", "hidden_size": hidden, "vocab_size": vocabulary, "num_hidden_layers": 4}


@rule(
    "DS509",
    effect=Effect.CRASH,
    phase=Phase.INITIALIZE,
    watches=("zero_optimization.offload_param.device",),
    needs=("model", "world_size"),
    untried="DeepSpeed does not swap parameters below 1 MiB, such as those of the suite's model",
    references=(f"{PARAM_SWAPPER}.get_buffer", "https://github.com/deepspeedai/DeepSpeed/issues/3506"),
)
@bad(
    trained('"zero_optimization": {"stage": 3, "offload_param": {"device": "nvme", "nvme_path": "/local_nvme"}}'),
    at="zero_optimization.offload_param.device",
    model=_model_config(128256, 8192),
    world_size=8,
    message='The embedding of config.json, 128,256 x 8,192 over 8 GPUs, is 131,334,144 elements on each, and buffer_size is 100,000,000, the default: DeepSpeed raises AssertionError "More elements than buffer size".',
    fixed='{"train_micro_batch_size_per_gpu": 4, "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}}, "zero_optimization": {"stage": 3, "offload_param": {"device": "nvme", "nvme_path": "/local_nvme", "buffer_size": 140000000}}}',
)
@bad(
    trained('"zero_optimization": {"stage": 3, "offload_param": {"device": "nvme", "nvme_path": "/local_nvme", "buffer_size": 1e7}}'),
    at="zero_optimization.offload_param.buffer_size",
    model=_model_config(32000, 4096),
    world_size=4,
    message='The embedding of config.json, 32,000 x 4,096 over 4 GPUs, is 32,768,000 elements on each, and buffer_size is 10,000,000: DeepSpeed raises AssertionError "More elements than buffer size".',
    fixed='{"train_micro_batch_size_per_gpu": 4, "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}}, "zero_optimization": {"stage": 3, "offload_param": {"device": "nvme", "nvme_path": "/local_nvme", "buffer_size": 40000000}}}',
)
@good(
    trained('"zero_optimization": {"stage": 3, "offload_param": {"device": "nvme", "nvme_path": "/local_nvme", "buffer_size": 2e8}}'),
    model=_model_config(128256, 8192),
    world_size=8,
)
def swap_buffer_too_small(config: Config) -> Iterator[Finding]:
    """A partition of a parameter is larger than the buffers of parameter offload to NVMe.

    `offload_param.buffer_size` counts elements, and a buffer holds one rank's part of one parameter. The largest parameter is usually the embedding: its
    partition is vocabulary x hidden size over the number of GPUs. If it does not fit, DeepSpeed raises `AssertionError: More elements ... than buffer size`.

    Write a size above the largest partition.
    """
    model, ranks, size = config.facts.model, config.facts.world_size, config.value(BUFFER_SIZE)
    if model is None or not ranks or not model.vocab_size or not model.hidden_size:
        return
    if not to_nvme(config, OFFLOAD_PARAM) or not isinstance(size, int) or (config.facts.tensor_parallel or 1) > 1:
        return
    partition = -(-model.vocab_size * model.hidden_size // ranks)
    if partition > size:
        default = "" if config.has(BUFFER_SIZE) else ", the default"
        enough = -(-partition // 10_000_000) * 10_000_000
        yield Finding(
            BUFFER_SIZE if config.has(BUFFER_SIZE) else f"{OFFLOAD_PARAM}.device",
            f"The embedding of {model}, {model.vocab_size:,} x {model.hidden_size:,} over {ranks:,} GPUs, is {partition:,} elements on each, and buffer_size is {size:,}{default}: "
            'DeepSpeed raises AssertionError "More elements than buffer size".',
            help=f'Write "buffer_size": {enough} in offload_param, or more.',
            fix=write(config, BUFFER_SIZE, str(enough)),
        )


@rule(
    "DS510",
    effect=Effect.MEMORY,
    watches=("zero_optimization.offload_param.device",),
    needs=("host_memory",),
    references=(f"{PARAM_SWAPPER}._configure_aio", "https://github.com/deepspeedai/DeepSpeed/issues/3506"),
)
@bad(
    trained(
        '"bf16": {"enabled": true}, "zero_optimization": {"stage": 3, "offload_param": {"device": "nvme", "nvme_path": "/local_nvme", "buffer_count": 5, "buffer_size": 1e9}}'
    ),
    at="zero_optimization.offload_param.buffer_size",
    host_memory=64 * 2**30,
    world_size=8,
    nodes=1,
    message="The buffers of offload_param pin 5 x 1,000,000,000 elements x 2 bytes x 8 ranks of a node = 74.5 GiB of host memory, 116% of 64 GiB.",
)
@good(
    trained(
        '"bf16": {"enabled": true}, "zero_optimization": {"stage": 3, "offload_param": {"device": "nvme", "nvme_path": "/local_nvme", "buffer_count": 5, "buffer_size": 1e8}}'
    ),
    host_memory=64 * 2**30,
    world_size=8,
    nodes=1,
)
@good(
    trained(
        '"bf16": {"enabled": true}, "aio": {"use_gds": true}, "zero_optimization": {"stage": 3, "offload_param": {"device": "nvme", "nvme_path": "/local_nvme", "buffer_count": 5, "buffer_size": 1e9}}'
    ),
    host_memory=64 * 2**30,
    world_size=8,
    nodes=1,
)
def pinned_swap_buffers(config: Config) -> Iterator[Finding]:
    """The buffers of parameter offload to NVMe use most of the node's memory.

    Each rank pins `buffer_count` x `buffer_size` elements of host memory when it starts, for a model of any size. The system cannot page out pinned memory: if
    memory runs short, it kills the job without a message from Python.

    Write a smaller `buffer_size`, but not below the largest partition of a parameter.
    """
    from dslint.facts.gpus import in_words

    count, size, dtype = config.value(f"{OFFLOAD_PARAM}.buffer_count"), config.value(BUFFER_SIZE), model_dtype(config)
    memory = config.facts.host_memory
    if not to_nvme(config, OFFLOAD_PARAM) or not isinstance(count, int) or not isinstance(size, int) or dtype is None or memory is None:
        return
    if config.value("aio.use_gds") is True:
        return  # the buffers are on the GPU
    ranks = local_ranks(config) or 1
    pinned = count * size * DTYPE_BYTES[dtype] * ranks
    key = next((key for key in (BUFFER_SIZE, f"{OFFLOAD_PARAM}.buffer_count") if config.has(key)), f"{OFFLOAD_PARAM}.device")
    if pinned > LARGE_SHARE * memory:
        on_each = f" x {ranks} ranks of a node" if ranks > 1 else ""
        yield Finding(
            key,
            f"The buffers of offload_param pin {count} x {size:,} elements x {DTYPE_BYTES[dtype]} bytes{on_each} = {in_words(pinned)} of host memory, {pinned / memory:.0%} of {in_words(memory)}.",
            help='Write a smaller "buffer_size", but not below the largest partition of a parameter.',
        )
