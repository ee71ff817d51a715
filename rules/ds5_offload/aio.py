"""DS5: the `aio` section: asynchronous reading and writing of NVMe."""

from __future__ import annotations

from collections.abc import Iterator

from dslint.config import Config
from dslint.diagnostics import Applicability, Effect, Phase
from dslint.rule import Finding, bad, good, rule
from dslint.rules.helpers.examples import trained
from dslint.rules.helpers.fixes import without, write
from dslint.rules.helpers.offload import OFFLOAD_DOCS, OFFLOAD_SECTIONS, PARAM_SWAPPER, to_nvme
from dslint.rules.helpers.zero import STAGE, related_stage


@rule(
    "DS512",
    effect=Effect.ADVICE,
    pedantic=True,
    watches=("aio",),
    references=("deepspeed/runtime/swap_tensor/aio_config.py, get_aio_config", OFFLOAD_DOCS),
)
@bad(
    trained('"aio": {"block_size": 1048576}, "zero_optimization": {"stage": 3, "offload_optimizer": {"device": "cpu"}}'),
    at="aio",
    message="aio tunes the reading and writing of NVMe: DeepSpeed does not read it, because this config offloads nothing to NVMe.",
    fixed='{"train_micro_batch_size_per_gpu": 4, "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}}, "zero_optimization": {"stage": 3, "offload_optimizer": {"device": "cpu"}}}',
)
@good(
    trained(
        '"aio": {"block_size": 1048576}, "zero_optimization": {"stage": 3, "offload_optimizer": {"device": "nvme", "nvme_path": "/local_nvme"}}'
    )
)
@good(trained('"zero_optimization": {"stage": 1}'))
def aio_without_nvme(config: Config) -> Iterator[Finding]:
    """The `aio` section tunes reading and writing of NVMe, and this config does not use NVMe.

    DeepSpeed reads the section for offload to NVMe, at ZeRO stage 3, and for the FAST checkpoint writer. Otherwise the section does nothing.

    Remove it.
    """
    members = getattr(config.node("aio"), "members", None)
    if not members or config.has("checkpoint.writer"):
        return
    devices = [config.value(f"{section}.device") for section in OFFLOAD_SECTIONS]
    if config.value(STAGE) in (0, 1, 2) or (config.value(STAGE) == 3 and all(device in (None, "none", "cpu") for device in devices)):
        yield Finding(
            "aio",
            "aio tunes the reading and writing of NVMe: DeepSpeed does not read it, because this config offloads nothing to NVMe.",
            help="Remove it.",
            fix=without(config, "aio"),
            on="key",
            related=related_stage(config),
        )


@rule(
    "DS513",
    effect=Effect.CRASH,
    phase=Phase.INITIALIZE,
    watches=("aio.intra_op_parallelism",),
    references=("deepspeed/runtime/swap_tensor/optimizer_utils.py, OptimizerSwapper._io_aligned_numel", PARAM_SWAPPER),
)
@bad(
    trained(
        '"aio": {"intra_op_parallelism": 0}, "zero_optimization": {"stage": 3, "offload_optimizer": {"device": "nvme", "nvme_path": "nvme"}}'
    ),
    at="aio.intra_op_parallelism",
    message="intra_op_parallelism 0 leaves no thread for reading and writing: DeepSpeed raises ZeroDivisionError in deepspeed.initialize.",
    fixed='{"train_micro_batch_size_per_gpu": 4, "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}}, "aio": {"intra_op_parallelism": 1}, "zero_optimization": {"stage": 3, "offload_optimizer": {"device": "nvme", "nvme_path": "nvme"}}}',
)
@good(
    trained(
        '"aio": {"intra_op_parallelism": 2}, "zero_optimization": {"stage": 3, "offload_optimizer": {"device": "nvme", "nvme_path": "nvme"}}'
    )
)
@good(trained('"aio": {"intra_op_parallelism": 0}, "zero_optimization": {"stage": 2}'))
def aio_not_positive(config: Config) -> Iterator[Finding]:
    """`aio.intra_op_parallelism` must be at least 1.

    DeepSpeed aligns each buffer to 1024 bytes for each of `intra_op_parallelism` threads, and divides by the product: 0 raises a `ZeroDivisionError` when it
    creates the first buffer.

    Write 1, the default, or more.
    """
    key = "aio.intra_op_parallelism"
    if config.release >= (0, 16, 4) and config.value(key) == 0 and any(to_nvme(config, section) for section in OFFLOAD_SECTIONS):
        yield Finding(
            key,
            "intra_op_parallelism 0 leaves no thread for reading and writing: DeepSpeed raises ZeroDivisionError in deepspeed.initialize.",
            help="Write 1, the default, or more.",
            fix=write(config, key, "1", Applicability.SAFE),
        )


@rule(
    "DS514",
    effect=Effect.SILENT,
    watches=("aio.block_size", "aio.queue_depth"),
    references=("deepspeed/ops/csrc/aio/common/deepspeed_aio_common.cpp, do_aio_operation_sequential",),
)
@bad(
    trained(
        '"aio": {"block_size": 0}, "zero_optimization": {"stage": 3, "offload_optimizer": {"device": "nvme", "nvme_path": "/local_nvme"}}'
    ),
    at="aio.block_size",
    message="With block_size 0 reads and writes of NVMe may transfer nothing or hang: neither DeepSpeed nor its AIO library checks the value.",
    fixed='{"train_micro_batch_size_per_gpu": 4, "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}}, "aio": {"block_size": 1048576}, "zero_optimization": {"stage": 3, "offload_optimizer": {"device": "nvme", "nvme_path": "/local_nvme"}}}',
)
@good(
    trained(
        '"aio": {"block_size": 1048576, "queue_depth": 8}, "zero_optimization": {"stage": 3, "offload_optimizer": {"device": "nvme", "nvme_path": "/local_nvme"}}'
    )
)
@good(trained('"aio": {"block_size": 0}, "zero_optimization": {"stage": 2}'))
def aio_makes_no_progress(config: Config) -> Iterator[Finding]:
    """With `block_size` or `queue_depth` 0, reads and writes of NVMe make no progress.

    DeepSpeed accepts any integer. Its AIO library divides each transfer into blocks of `block_size` bytes and keeps `queue_depth` requests in flight. With 0 or
    less there is nothing to transfer, and the library does not check the values.

    Remove them, or write the values that a benchmark of the disk recommends. The defaults are blocks of 1 MiB and a queue of 8.
    """
    for name, default in (("block_size", 1_048_576), ("queue_depth", 8)):
        key = f"aio.{name}"
        if config.has(key) and config.value(key) <= 0 and any(to_nvme(config, section) for section in OFFLOAD_SECTIONS):
            yield Finding(
                key,
                f"With {name} {config.quote(key)} reads and writes of NVMe may transfer nothing or hang: neither DeepSpeed nor its AIO library checks the value.",
                help=f"Write {default}, the default, or remove it.",
                fix=write(config, key, str(default)),
                certain=False,
            )
