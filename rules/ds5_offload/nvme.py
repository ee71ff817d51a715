"""DS5: offload to NVMe: paths, buffers, and the asynchronous input and output."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from dslint.config import Config
from dslint.diagnostics import Applicability, Effect, Phase, Severity
from dslint.rule import Finding, bad, good, rule
from dslint.rules.helpers.examples import trained
from dslint.rules.helpers.fixes import without, write
from dslint.rules.helpers.offload import OFFLOAD_DOCS, OFFLOAD_OPTIMIZER, OFFLOAD_PARAM, OFFLOAD_SECTIONS, PARAM_SWAPPER, to_nvme
from dslint.rules.helpers.zero import local_ranks

ZERO_3 = "deepspeed/runtime/zero/stage3.py, DeepSpeedZeroOptimizer_Stage3"

MEMORY = "/dev/shm"  # noqa: S108 - looked for, not written to
"""The directory whose files are host memory."""

ADAM_BUFFERS = 4
"""What the step of Adam reads of a partition: master weights, gradients, first and second moments."""

LARGE_SHARE = 0.5
"""The part of a machine's memory from which pinned buffers are worth a word."""


@rule(
    "DS505",
    "nvme-without-path",
    effect=Effect.CRASH,
    phase=Phase.INITIALIZE,
    watches=("zero_optimization.offload_optimizer.device", "zero_optimization.offload_param.device"),
    references=(f"{ZERO_3}._configure_tensor_swapping", "deepspeed/runtime/zero/partition_parameters.py, Init._validate_remote_device"),
)
@bad(trained('"zero_optimization": {"stage": 3, "offload_optimizer": {"device": "nvme"}}'), at="zero_optimization.offload_optimizer.device")
@bad(
    trained('"zero_optimization": {"stage": 3, "offload_param": {"device": "nvme", "nvme_path": null}}'),
    at="zero_optimization.offload_param.device",
)
@good(trained('"zero_optimization": {"stage": 3, "offload_optimizer": {"device": "nvme", "nvme_path": "nvme"}}'))
@good(trained('"zero_optimization": {"stage": 2, "offload_optimizer": {"device": "cpu"}}'))
def nvme_without_path(config: Config) -> Iterator[Finding]:
    """Offload to NVMe, without a directory on it.

    DeepSpeed makes its swap files under `nvme_path`. Without one `offload_param` raises an `AssertionError`, `offload_optimizer` a `TypeError` that does not name
    the key.

    Write the path of a directory on a local NVMe disk.
    """
    for block in OFFLOAD_SECTIONS:
        if to_nvme(config, block) and config.value(f"{block}.nvme_path") is None:
            error = (
                'AssertionError ""nvme_path" in DeepSpeed Config cannot be None if remote device is OffloadDeviceEnum.nvme"'
                if block == OFFLOAD_PARAM
                else 'TypeError "expected str, bytes or os.PathLike object, not NoneType"'
            )
            yield Finding(
                f"{block}.device",
                f'{block.partition(".")[2]} to "nvme" has no nvme_path: DeepSpeed raises {error} in deepspeed.initialize.',
                help='Add "nvme_path", a directory on a local NVMe disk.',
            )


@rule(
    "DS506",
    "nvme-path-is-no-disk",
    effect=Effect.MEMORY,
    watches=("zero_optimization.offload_optimizer.nvme_path", "zero_optimization.offload_param.nvme_path"),
    references=(f"{ZERO_3}._configure_tensor_swapping",),
)
@bad(
    trained('"zero_optimization": {"stage": 3, "offload_optimizer": {"device": "nvme", "nvme_path": "/dev/shm/swap"}}'),
    at="zero_optimization.offload_optimizer.nvme_path",
)
@bad(
    trained('"zero_optimization": {"stage": 3, "offload_param": {"device": "nvme", "nvme_path": "/dev/nvme0n1"}}'),
    at="zero_optimization.offload_param.nvme_path",
)
@good(trained('"zero_optimization": {"stage": 3, "offload_optimizer": {"device": "nvme", "nvme_path": "/local_nvme"}}'))
@good(trained('"zero_optimization": {"stage": 3, "offload_optimizer": {"device": "cpu", "nvme_path": "/dev/shm"}}'))
def nvme_path_is_no_disk(config: Config) -> Iterator[Finding]:
    """`nvme_path` is the disk's device or a directory in memory, and not a directory on the disk.

    DeepSpeed makes directories under the path. Under `/dev/shm` they take host memory, once more than offload to the CPU would. `/dev/nvme0n1` is the disk itself:
    nothing can be made below it.

    Mount the disk, and write the directory that it is mounted on.
    """
    for block in OFFLOAD_SECTIONS:
        key = f"{block}.nvme_path"
        path = config.value(key) if to_nvme(config, block) else None
        if not isinstance(path, str):
            continue
        if not path:
            yield Finding(
                key,
                'nvme_path "" is the working directory of the job: the swap files go there, to whatever disk that is.',
                help="Write a directory on a local NVMe disk.",
                effect=Effect.SILENT,
            )
            continue
        directory = path.rstrip("/") + "/"
        if directory.startswith("/dev/") and not directory.startswith(f"{MEMORY}/"):
            yield Finding(
                key,
                f"nvme_path {config.quote(key)} is a device and no directory: DeepSpeed makes its swap files below the path, and raises an OSError in deepspeed.initialize.",
                help="Mount the disk, and write the directory that it is mounted on.",
                effect=Effect.CRASH,
                phase=Phase.INITIALIZE,
            )
        elif directory.startswith(f"{MEMORY}/"):
            yield Finding(
                key,
                f"nvme_path {config.quote(key)} lies in memory: what is offloaded stays in host memory, and goes through buffers and files on the way.",
                help='Write a directory on a disk, or "device": "cpu".',
                fix=write(config, f"{block}.device", '"cpu"'),
            )


@rule(
    "DS507",
    "no-swap-buffers",
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
)
@good(trained('"zero_optimization": {"stage": 3, "offload_optimizer": {"device": "nvme", "nvme_path": "nvme", "buffer_count": 4}}'))
@good(trained('"zero_optimization": {"stage": 3, "offload_optimizer": {"device": "cpu", "buffer_count": 0}}'))
def no_swap_buffers(config: Config) -> Iterator[Finding]:
    """Offload to NVMe with 0 buffers to read into.

    For `offload_optimizer` DeepSpeed raises an `IndexError` when it makes the buffers. For `offload_param` the first parameter of 1 MiB or more raises
    `AssertionError: No swap buffers to allocate`.

    Leave `buffer_count` out: 4 for the optimizer, 5 for parameters. `buffer_size` 0 is the same in another way.
    """
    for block, default in ((OFFLOAD_OPTIMIZER, 4), (OFFLOAD_PARAM, 5)):
        key = f"{block}.buffer_count"
        if to_nvme(config, block) and config.value(key) == 0:
            error = "IndexError" if block == OFFLOAD_OPTIMIZER else 'AssertionError "No swap buffers to allocate"'
            yield Finding(
                key,
                f"buffer_count 0 leaves {block.partition('.')[2]} nothing to read into: DeepSpeed raises {error} in deepspeed.initialize.",
                help=f"Write {default}, the default, or leave it out.",
                fix=write(config, key, str(default), Applicability.SAFE),
            )
    key = f"{OFFLOAD_PARAM}.buffer_size"
    if to_nvme(config, OFFLOAD_PARAM) and config.value(key) == 0:
        yield Finding(
            key,
            'buffer_size 0 holds no element: DeepSpeed raises AssertionError "More elements than buffer size" for the first parameter of 1 MiB or more.',
            help="Write 1e8, the default, or leave it out.",
            fix=write(config, key, "1e8", Applicability.SAFE),
        )


@rule(
    "DS508",
    "few-swap-buffers",
    effect=Effect.CRASH,
    phase=Phase.STEP,
    watches=("zero_optimization.offload_optimizer.buffer_count",),
    untried="partitions below 1 MiB, such as those of the suite's model, are not swapped",
    references=("deepspeed/runtime/swap_tensor/partitioned_optimizer_swapper.py, PartitionedOptimizerSwapper.swap_in_optimizer_state",),
)
@bad(
    trained('"zero_optimization": {"stage": 3, "offload_optimizer": {"device": "nvme", "nvme_path": "/local_nvme", "buffer_count": 2}}'),
    at="zero_optimization.offload_optimizer.buffer_count",
)
@good(trained('"zero_optimization": {"stage": 3, "offload_optimizer": {"device": "nvme", "nvme_path": "/local_nvme", "buffer_count": 4}}'))
@good(trained('"zero_optimization": {"stage": 3, "offload_optimizer": {"device": "cpu", "buffer_count": 2}}'))
def few_swap_buffers(config: Config) -> Iterator[Finding]:
    """The optimizer's states on NVMe need a buffer for each kind, and there are fewer.

    For a step of Adam DeepSpeed reads four things of a partition: master weights, gradients and two moments. With fewer than 4 buffers it asserts at the first
    step, where `pipeline_read` or `pipeline_write` is on with "try increasing 'buffer_count'", otherwise without a word.

    Write 4, the default.
    """
    key, name = f"{OFFLOAD_OPTIMIZER}.buffer_count", config.value("optimizer.type")
    count = config.value(key)
    if not (to_nvme(config, OFFLOAD_OPTIMIZER) and isinstance(name, str) and name.lower() in ("adam", "adamw")):
        return
    if isinstance(count, int) and 0 < count < ADAM_BUFFERS:
        yield Finding(
            key,
            f"buffer_count {count} is less than the {ADAM_BUFFERS} buffers of a step of {name} (master weights, gradients, two moments): DeepSpeed raises an AssertionError at the first step.",
            help=f"Write {ADAM_BUFFERS}, the default, or leave it out.",
            fix=write(config, key, str(ADAM_BUFFERS), Applicability.SAFE),
        )


def _model(vocabulary: int, hidden: int) -> Any:
    from dslint.facts.model_config import describe

    return describe({"model_type": "llama", "hidden_size": hidden, "vocab_size": vocabulary, "num_hidden_layers": 4})


@rule(
    "DS509",
    "swap-buffer-too-small",
    effect=Effect.CRASH,
    phase=Phase.INITIALIZE,
    watches=("zero_optimization.offload_param.device",),
    needs=("model", "world_size"),
    untried="parameters below 1 MiB, such as those of the suite's model, are not swapped",
    references=(f"{PARAM_SWAPPER}.get_buffer", "https://github.com/deepspeedai/DeepSpeed/issues/3506"),
)
@bad(
    trained('"zero_optimization": {"stage": 3, "offload_param": {"device": "nvme", "nvme_path": "/local_nvme"}}'),
    at="zero_optimization.offload_param.device",
    model=_model(128256, 8192),
    world_size=8,
)
@bad(
    trained('"zero_optimization": {"stage": 3, "offload_param": {"device": "nvme", "nvme_path": "/local_nvme", "buffer_size": 1e7}}'),
    at="zero_optimization.offload_param.buffer_size",
    model=_model(32000, 4096),
    world_size=4,
)
@good(
    trained('"zero_optimization": {"stage": 3, "offload_param": {"device": "nvme", "nvme_path": "/local_nvme", "buffer_size": 2e8}}'),
    model=_model(128256, 8192),
    world_size=8,
)
def swap_buffer_too_small(config: Config) -> Iterator[Finding]:
    """A parameter's partition is larger than the buffers through which parameters go to NVMe.

    `offload_param.buffer_size` counts elements, and a buffer holds one rank's part of one parameter. The largest is most often the embedding, vocabulary x hidden
    size over the number of GPUs. Where it does not fit, DeepSpeed raises `AssertionError: More elements ... than buffer size`.

    Write a size above the largest partition.
    """
    model, ranks, key = config.facts.model, config.facts.world_size, f"{OFFLOAD_PARAM}.buffer_size"
    size = config.value(key)
    if (
        not to_nvme(config, OFFLOAD_PARAM)
        or model is None
        or not ranks
        or not isinstance(size, int)
        or (config.facts.tensor_parallel or 1) > 1
    ):
        return
    if not model.vocab_size or not model.hidden_size:
        return
    partition = -(-model.vocab_size * model.hidden_size // ranks)
    if partition > size:
        default = "" if config.has(key) else ", the default"
        enough = -(-partition // 10_000_000) * 10_000_000
        yield Finding(
            key if config.has(key) else f"{OFFLOAD_PARAM}.device",
            f"The embedding of {model}, {model.vocab_size:,} x {model.hidden_size:,} over {ranks:,} GPUs, is {partition:,} elements on each, and buffer_size is {size:,}{default}: "
            'DeepSpeed raises AssertionError "More elements than buffer size".',
            help=f'Write "buffer_size": {enough} in offload_param, or more.',
            fix=write(config, key, str(enough)),
        )


@rule(
    "DS510",
    "pinned-swap-buffers",
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
)
@good(
    trained(
        '"bf16": {"enabled": true}, "zero_optimization": {"stage": 3, "offload_param": {"device": "nvme", "nvme_path": "/local_nvme", "buffer_count": 5, "buffer_size": 1e8}}'
    ),
    host_memory=64 * 2**30,
    world_size=8,
    nodes=1,
)
def pinned_swap_buffers(config: Config) -> Iterator[Finding]:
    """The buffers through which parameters go to NVMe take most of the machine's memory.

    Each rank pins `buffer_count` x `buffer_size` elements of host memory when it starts, whatever the size of the model. Memory that is pinned cannot be paged
    out: where it runs short the system ends the job without a word from Python.

    Write a smaller `buffer_size`, not below the largest partition of a parameter.
    """
    from dslint.facts.gpus import in_words
    from dslint.rules.helpers.precision import model_dtype
    from dslint.rules.helpers.zero import DTYPE_BYTES

    count, size, dtype = config.value(f"{OFFLOAD_PARAM}.buffer_count"), config.value(f"{OFFLOAD_PARAM}.buffer_size"), model_dtype(config)
    memory = config.facts.host_memory
    if not to_nvme(config, OFFLOAD_PARAM) or not isinstance(count, int) or not isinstance(size, int) or dtype is None or memory is None:
        return
    ranks = local_ranks(config) or 1
    pinned = count * size * DTYPE_BYTES[dtype] * ranks
    key = next(
        (key for key in (f"{OFFLOAD_PARAM}.buffer_size", f"{OFFLOAD_PARAM}.buffer_count") if config.has(key)), f"{OFFLOAD_PARAM}.device"
    )
    if pinned > LARGE_SHARE * memory:
        on_each = f" x {ranks} ranks of a machine" if ranks > 1 else ""
        yield Finding(
            key,
            f"The buffers of offload_param pin {count} x {size:,} elements x {DTYPE_BYTES[dtype]} bytes{on_each} = {in_words(pinned)} of host memory, {pinned / memory:.0%} of the {in_words(memory)} there are.",
            help='Write a smaller "buffer_size", not below the largest partition of a parameter.',
        )


OF_NVME = {
    OFFLOAD_PARAM: {"nvme_path": None, "buffer_count": 5, "buffer_size": 100_000_000, "max_in_cpu": 1_000_000_000},
    OFFLOAD_OPTIMIZER: {"nvme_path": None, "buffer_count": 4, "pipeline_read": False, "pipeline_write": False, "fast_init": False},
}
"""By block: the settings that are read with the device "nvme" alone, with their defaults."""


@rule(
    "DS511",
    "nvme-settings-without-nvme",
    effect=Effect.IGNORED,
    watches=tuple(f"{section}.{name}" for section, settings in OF_NVME.items() for name in settings),
    references=(OFFLOAD_DOCS, "deepspeed/runtime/zero/offload_config.py"),
)
@bad(
    trained('"zero_optimization": {"stage": 3, "offload_param": {"device": "cpu", "nvme_path": "/local_nvme"}}'),
    at="zero_optimization.offload_param.nvme_path",
)
@bad(
    trained('"zero_optimization": {"stage": 2, "offload_optimizer": {"device": "cpu", "pipeline_read": true, "buffer_count": 5}}'),
    at="zero_optimization.offload_optimizer.pipeline_read",
)
@good(trained('"zero_optimization": {"stage": 3, "offload_param": {"device": "nvme", "nvme_path": "/local_nvme"}}'))
@good(trained('"zero_optimization": {"stage": 2, "offload_optimizer": {"device": "cpu", "buffer_count": 4, "fast_init": false}}'))
def nvme_settings_without_nvme(config: Config) -> Iterator[Finding]:
    """Settings of NVMe, where the device is another.

    `nvme_path`, the buffers, `max_in_cpu` and the pipelined reading and writing belong to `"device": "nvme"`. With "cpu" nothing reads them, and nothing goes to
    the disk.

    Write `"device": "nvme"` at ZeRO stage 3, or remove them.
    """
    for block, settings in OF_NVME.items():
        device = config.value(f"{block}.device")
        if device not in ("cpu", "none") or not config.has(f"{block}.device"):
            continue
        written = [
            name
            for name, default in settings.items()
            if config.has(f"{block}.{name}") and config.quote(f"{block}.{name}") not in ('"auto"', "null", '""', '"none"', '"None"')
            if config.value(f"{block}.{name}") != default  # a default that is written out misleads nobody
        ]
        if not written or (device == "none" and written == ["nvme_path"]):
            continue
        written.sort(key=lambda name, block=block: config.document.lookup(tuple(f"{block}.{name}".split("."))).span.start)  # type: ignore[misc, union-attr]
        one = len(written) == 1
        yield Finding(
            f"{block}.{written[0]}",
            f'{block.partition(".")[2]} goes to "{device}", where nothing reads {", ".join(written)}: {"it is" if one else "they are"} for the device "nvme".',
            help=f'Write "device": "nvme" (at ZeRO stage 3), or remove {"it" if one else "them"}.',
            fix=without(config, f"{block}.{written[0]}"),
            related=((f"{block}.device", "the device is set here"),),
            severity=None if "nvme_path" in written else Severity.INFO,
        )
