"""Changes that save memory: values to write in the config, and what to do in the program if the config cannot express it.

`possible` yields the changes that apply to a config; `fit` tries which of them help, and how much.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from dslint.config import UNKNOWN, Config
from dslint.facts import Facts, Integration, Release
from dslint.facts.experts import EXPERT_BLOCKS
from dslint.frameworks.whole_load import whole_load
from dslint.memory.layout import lay_out, share_on_host
from dslint.memory.plan import HOST, NVME, Plan
from dslint.memory.planning import leaf_classes
from dslint.memory.shapes import Model
from dslint.record import Record

AS_FACTS = ("sequence_parallel", "tensor_parallel")
"""Options of changes that are facts of the run, not options of an estimate."""

SWITCH, FURTHER, BESIDE, TO_HOST, TO_DISK, BY_HAND = 0.02, 0.05, 0.1, 0.15, 0.3, 0.2
"""The effort of a variable of the environment, of a usual change, of one that needs memory of the host (less on a superchip, which is made
for it), of one that needs a fast disk, and of one that only code makes."""

REMOVE = object()
"""A value that stands for removing the key."""

SMALL_BUCKET, SMALL_PREFETCH = 50_000_000, 10_000_000
"""The smallest bucket sizes, in elements, for which collectives still use the network well."""

SMALL_GROUP = 100_000_000
"""The sub group size, in elements, of small swap buffers: the optimizer on NVMe keeps `buffer_count` fp32 buffers of this size per rank."""

EXPANDABLE = "set PYTORCH_ALLOC_CONF=expandable_segments:True in the environment (before PyTorch 2.9 PYTORCH_CUDA_ALLOC_CONF)"
"""How to turn on expandable segments."""

FOLDER, FAST = "/local_nvme", "nvme_path must be a folder on a fast local disk"

CHUNK, TILES = 1024, 4

LONG = 8192
"""The tokens per sample from which sequence parallelism is worth its collective operations."""

ULYSSES = Release(0, 17, 2)
"""The first release with `UlyssesSPAttentionHF` (ALST), which divides the samples of models of transformers."""

VERY_LONG = 32768
"""The tokens per sample from which practitioners name sequence parallelism first. The model stays as it is built; only another attention is
registered."""

TWIN_FLOW = Release(0, 12, 3)
"""The first release with a `ratio` of the optimizer's offload."""

SUPER_OFFLOAD, SUPERCHIPS = Release(0, 18, 0), ("gh200", "gb200", "gb300")
"""The first release with SuperOffload, and the GPUs with a link to their host that it is made for."""

AUTO_TP = Release(0, 16, 4)
"""The first release with AutoTP training."""

LOW_MASTER = Release(0, 18, 3)
"""The first release that supports optimizer states in bf16 for bf16 master weights."""

ON_HOST = ("adam", "adamw", "torch_adamw", "adagrad", "lion")
"""Optimizers with a CPU version in DeepSpeed."""


class Change(Record):
    """One change. `values` are written into the config, by path; `said` are options of the command that change with it, by name;
    `program` is what to do in the program. `tiles` is the number of pieces of large layers. `changes_training`: results differ, not only
    the speed. `rebuilds`: the model itself must be built in another way. `effort` is the share by which it must make a step faster than a
    way without it to be advised first. `without` is what a change takes away, where it only tries whether that is needed.
    """

    name: str
    values: tuple[tuple[str, Any], ...] = ()
    said: tuple[tuple[str, Any], ...] = ()
    program: str = ""
    note: str = ""
    tiles: int = 1
    changes_training: bool = False
    rebuilds: bool = False
    effort: float = FURTHER
    without: str = ""


def possible(config: Config, plan: Plan, model: Model, tiles: int = 1) -> Iterator[Change]:
    """The changes that apply to a config and its program."""
    yield from _allocator(config, plan)
    yield from _batch(config, plan)
    yield from _activations(plan, model)
    yield from _precision(config, plan)
    yield from _stages(config, plan, _leaves(config, plan, model))
    yield from _offload(config, plan, model)
    yield from _buffers(plan)
    yield from _optimizer(config, plan)
    yield from _tensor(config, plan, model)
    yield from _sequence(config, plan, model)
    if plan.stage == 3 and not plan.workload.zero_init:
        yield Change("zero.Init", said=(("zero_init", True),), program=_partitioning(config), effort=SWITCH)
    if plan.stage == 3 and tiles == 1:
        yield Change(
            f"memory-centric tiling, {TILES} pieces",
            program=f"replace the largest linear layers with deepspeed.zero.TiledLinear(..., in_splits=1, out_splits={TILES})",
            tiles=TILES,
            rebuilds=True,
        )


def _partitioning(config: Config) -> str:
    """What to do in the program so that the model is partitioned while it is built."""
    found = whole_load(config)
    if found is not None:
        return found.instead[:1].lower() + found.instead[1:].rstrip(".")
    return "load the model after HfDeepSpeedConfig(config) of transformers, or build it under deepspeed.zero.Init"


def accumulated(config: Config, steps: int) -> Change:
    """The change of gradient accumulation steps that keeps the number of samples per step."""
    key = "gradient_accumulation_steps"
    if config.value(key) is not UNKNOWN:
        return Change(f"{steps} gradient accumulation steps", ((key, steps),))
    return Change(f"{steps} gradient accumulation steps", said=(("accumulation", steps),), program=_argument(config, key, steps))


def _argument(config: Config, name: str, value: int) -> str:
    """How to set a value in the program that the config leaves to it."""
    trainer = config.facts.integration in (None, Integration.TRANSFORMERS)
    return f"{name}={value} in the training arguments" if trainer else f"{name} is {value}"


def _allocator(config: Config, plan: Plan) -> Iterator[Change]:
    if not plan.workload.expandable and has_expandable(config.facts):
        yield Change("expandable segments", said=(("expandable", True),), program=EXPANDABLE, effort=SWITCH)


def has_expandable(facts: Facts) -> bool:
    """Whether PyTorch's allocator has expandable segments on the GPU: not on AMD's, where the setting is ignored with a warning."""
    return facts.gpu is None or not facts.gpu.is_amd


def _batch(config: Config, plan: Plan) -> Iterator[Change]:
    key = "train_micro_batch_size_per_gpu"
    sizes = [plan.micro_batch >> half for half in range(1, plan.micro_batch.bit_length())]
    for size in sizes:
        if plan.micro_batch % size:
            continue
        if config.value(key) is not UNKNOWN:
            yield Change(f"micro batch size {size}", ((key, size),))
        else:
            program = _argument(config, "per_device_train_batch_size", size)
            yield Change(f"micro batch size {size}", said=(("micro_batch", size),), program=program)


def _activations(plan: Plan, model: Model) -> Iterator[Change]:
    every, layers = plan.workload.checkpoint_every, len(model.blocks)
    for number in (4, 2, 1):
        if (every == 0 or number < every) and (number == 1 or layers >= 2 * number):
            whole = "gradient_checkpointing=True in the training arguments, or model.gradient_checkpointing_enable()"
            some = f"wrap every {number}{'nd' if number == 2 else 'th'} block in torch.utils.checkpoint.checkpoint"
            name = "activation checkpointing" + (f" of every {number}{'nd' if number == 2 else 'th'} block" * (number > 1))
            yield Change(
                name,
                said=(("checkpoint_every", number),),
                program=whole if number == 1 else some,
                effort=BY_HAND if number > 1 else FURTHER,
            )
    if every and not plan.activations_on_host:
        yield Change(
            "checkpointed activations on the CPU",
            (("activation_checkpointing.cpu_checkpointing", True),),
            program="use deepspeed.checkpointing.checkpoint: only this function reads that section",
            effort=BY_HAND,
        )
    if model.vocabulary and not plan.workload.loss_chunk and plan.tokens > CHUNK:
        yield Change(
            f"loss in chunks of {CHUNK:,} tokens",
            said=(("loss_chunk", CHUNK),),
            program="use a chunked or fused linear cross entropy that never holds all logits (such as Liger's)",
        )


def _precision(config: Config, plan: Plan) -> Iterator[Change]:
    gpu = config.facts.gpu
    if not plan.half:
        for name in ("bf16", "fp16"):
            if (name == "fp16" or gpu is None or gpu.has_bf16) and not config.has(name):
                yield Change(name, ((f"{name}.enabled", True),), changes_training=True)
        return
    if plan.gradient_bytes == 4 and plan.stage:
        kind = "bf16" if config.value("bf16.enabled") is True else "fp16"
        yield Change(f"gradient accumulation in {kind}", (("data_types.grad_accum_dtype", kind),), changes_training=True)
    whole = plan.stage > 0 and plan.master_bytes == 4 and plan.optimizer_device is None and plan.optimizer in ("adam", "adamw")
    if whole and config.release >= LOW_MASTER and config.value("bf16.enabled") is True:
        values = (("bf16.bf16_master_weights_and_grads", True), ("bf16.bf16_optimizer_states", True))
        yield Change("master weights and optimizer states in bf16", values, changes_training=True)


def _leaves(config: Config, plan: Plan, model: Model) -> tuple[tuple[str, Any], ...]:
    """What stage 3 requires for experts that are modules of their own: a leaf module around them, unless DeepSpeed knows their class."""
    path, block, names = "zero_optimization.leaf_module", EXPERT_BLOCKS.get(model.family), leaf_classes(config)
    if block is None or not plan.lists_experts or names is None or block in names:
        return ()
    return ((f"{path}.classes", [*names, block]),) if config.has(path) else ((path, {"classes": [*names, block]}),)


def _stages(config: Config, plan: Plan, leaves: tuple[tuple[str, Any], ...]) -> Iterator[Change]:
    if plan.optimizer.startswith(("onebit", "zeroone")):
        return
    stages = [stage for stage in range(plan.stage + 1, 4) if stage < 3 or plan.tensor == 1]
    if plan.replicas > 1:
        for stage in stages:
            yield Change(f"ZeRO stage {stage}", (("zero_optimization.stage", stage), *(leaves if stage == 3 else ())))
    else:
        yield from _stages_of_one_rank(config, plan, stages)
    to_host = plan.optimizer in ON_HOST and not plan.torch_adam and plan.optimizer_device is None
    if 3 in stages and to_host and (plan.replicas == 1 or plan.host_memory is not None):
        to_disk = tuple(_section(config, "zero_optimization.offload_optimizer", device=NVME, nvme_path=FOLDER, pin_memory=True))
        yield Change("ZeRO stage 3 with optimizer offload to NVMe", (("zero_optimization.stage", 3), *to_disk), note=FAST, effort=TO_DISK)


def _stages_of_one_rank(config: Config, plan: Plan, stages: list[int]) -> Iterator[Change]:
    """On one rank a stage partitions nothing, but it allows offload."""
    if plan.tensor > 1 or plan.sequence > 1:
        return
    if plan.optimizer in ON_HOST and not plan.torch_adam and plan.optimizer_device is None:
        to_host = tuple(_section(config, "zero_optimization.offload_optimizer", device=HOST, pin_memory=True))
        for stage in stages:
            if stage > 1:
                values = (("zero_optimization.stage", stage), *to_host)
                yield Change(f"ZeRO stage {stage} with optimizer offload to CPU", values, effort=TO_HOST)
    elif plan.stage < 3:
        # Parameter offload requires stage 3.
        to_host = tuple(_section(config, "zero_optimization.offload_param", device=HOST, pin_memory=True))
        yield Change("ZeRO stage 3 with parameter offload to CPU", (("zero_optimization.stage", 3), *to_host), effort=TO_HOST)


def _offload(config: Config, plan: Plan, model: Model) -> Iterator[Change]:
    z = "zero_optimization."
    if plan.stage and plan.optimizer in ON_HOST and not plan.torch_adam:
        if plan.optimizer_device is None:
            values = tuple(_section(config, z + "offload_optimizer", device=HOST, pin_memory=True))
            yield Change("optimizer offload to CPU", values, effort=TO_HOST)
            yield from _parts_of_offload(config, plan, model)
        if plan.optimizer_device != NVME and plan.stage == 3:
            values = tuple(_section(config, z + "offload_optimizer", device=NVME, nvme_path=FOLDER, pin_memory=True))
            yield Change("optimizer offload to NVMe", values, note=FAST, effort=TO_DISK)
        if plan.optimizer_device == HOST and plan.pinned:
            slower = "copies between CPU and GPU take about twice as long; PyTorch rounds page-locked buffers up to powers of two"
            yield Change("no page-locked memory", ((z + "offload_optimizer.pin_memory", False),), note=slower, effort=TO_HOST)
        if plan.optimizer_device == NVME and plan.sub_group > SMALL_GROUP:
            yield Change("smaller swap buffers", ((z + "sub_group_size", SMALL_GROUP),))
    if plan.stage < 3 or (plan.optimizer_device is None and 2 * model.trained > model.size and plan.optimizer in ON_HOST):
        return  # optimizer states are larger than parameters, and cheaper to move
    if plan.parameter_device is None:
        values = tuple(_section(config, z + "offload_param", device=HOST, pin_memory=True))
        yield Change("parameter offload to CPU", values, effort=TO_HOST)
    if plan.parameter_device != NVME:
        values = tuple(_section(config, z + "offload_param", device=NVME, nvme_path=FOLDER, pin_memory=True))
        yield Change("parameter offload to NVMe", values, note=FAST, effort=TO_DISK)


def _parts_of_offload(config: Config, plan: Plan, model: Model) -> Iterator[Change]:
    """A part of the optimizer on the host (Twin-Flow), and SuperOffload; both require stage 3 and DeepSpeed's CPU Adam. With a single sub
    group the first one moves all of it.
    """
    path = "zero_optimization.offload_optimizer"
    if plan.stage < 3 or plan.optimizer not in ("adam", "adamw"):
        return
    divided = plan.but(optimizer_device=HOST, offload_ratio=0.5)
    if config.release >= TWIN_FLOW and share_on_host(lay_out(model, divided), divided) < 1:
        half = tuple(_section(config, path, device=HOST, pin_memory=True, ratio=0.5))
        yield Change("half of the optimizer on the CPU (Twin-Flow)", half, effort=TO_HOST)
    if config.release >= SUPER_OFFLOAD and plan.gpu is not None and plan.gpu.name in SUPERCHIPS:
        beside = tuple(_section(config, path, device=HOST, pin_memory=True, super_offload=True))
        note = "the CPU optimizer runs beside the backward, unless gradients are clipped"
        yield Change("optimizer offload to CPU with SuperOffload", beside, note=note, effort=BESIDE)


def _section(config: Config, path: str, **values: Any) -> Iterator[tuple[str, Any]]:
    """Values for a section: the whole section if it is missing, else its keys that differ."""
    if not config.has(path) or config.quote(path) == "null":
        yield path, values
        return
    for key, value in values.items():
        if not config.has(f"{path}.{key}") or (key == "device" and config.value(f"{path}.{key}") != value):
            yield f"{path}.{key}", value


def _buffers(plan: Plan) -> Iterator[Change]:
    z = "zero_optimization."
    if plan.stage and plan.reduce_bucket > SMALL_BUCKET:
        values: list[tuple[str, Any]] = [(z + "reduce_bucket_size", SMALL_BUCKET)]
        if plan.stage == 3 and plan.prefetch_bucket > SMALL_PREFETCH:
            values.append((z + "stage3_prefetch_bucket_size", SMALL_PREFETCH))
        yield Change("smaller buckets", tuple(values))
    if plan.stage in (1, 2) and plan.overlap:
        yield Change("overlap_comm off (one bucket instead of two)", ((z + "overlap_comm", False),))
    if plan.stage == 3 and plan.max_reuse:
        yield Change("gathered parameters released after each use", ((z + "stage3_max_reuse_distance", 0),))


def _optimizer(config: Config, plan: Plan) -> Iterator[Change]:
    if plan.optimizer not in ("adam", "adamw") or plan.optimizer_device or plan.master_bytes == 2:
        return
    values: list[tuple[str, Any]] = [("optimizer", REMOVE)] if config.has("optimizer") else []
    if plan.stage and config.value("zero_allow_untested_optimizer") is not True:
        values.append(("zero_allow_untested_optimizer", True))
    program = "pass deepspeed.initialize the optimizer bitsandbytes.optim.AdamW8bit(model.parameters(), lr=...)"
    if config.facts.integration is Integration.TRANSFORMERS:  # it passes DeepSpeed the optimizer that `optim` names
        program = 'optim="adamw_bnb_8bit" in the training arguments'
    yield Change("8-bit Adam", tuple(values), (("optimizer", "adam8bit"),), program, changes_training=True)


def _tensor(config: Config, plan: Plan, model: Model) -> Iterator[Change]:
    if plan.tensor > 1 or plan.sequence > 1 or plan.stage == 3 or config.release < AUTO_TP or config.facts.tensor_parallel:
        return
    heads = [number for block in model.blocks for number in (block.heads, block.keys * block.heads // max(1, block.query))]
    for size in (2, 4, 8):
        if plan.local % size or plan.replicas % size or any(number % size for number in heads):
            continue
        program = f"model = deepspeed.tp_model_init(model, tp_size={size}, dtype=...), and the same batch for the {size} ranks of a group"
        yield Change(f"tensor parallel {size}", (("tensor_parallel.autotp_size", size),), program=program, rebuilds=True)


def sequence_sizes(config: Config, plan: Plan, model: Model) -> Iterator[int]:
    """The sizes of sequence parallelism that machine and heads allow, if samples are long and nothing else divides the model."""
    applies = plan.workload.length >= LONG and plan.micro_batch == 1 and model.tokens is None
    if not applies or plan.tensor > 1 or plan.sequence > 1 or config.release < ULYSSES or config.facts.sequence_parallel:
        return
    pairs = [(block.heads, block.keys * block.heads // max(1, block.query)) for block in model.blocks]
    for size in (2, 4, 8):
        if plan.local % size or plan.replicas % size or plan.workload.length % size:
            continue
        if not any(heads % size or (keys % size and size % max(1, keys)) for heads, keys in pairs):
            yield size


def sequence_program(size: int) -> str:
    """What a program does for sequence parallelism of a size."""
    return (
        f"UlyssesSPAttentionHF.register_with_transformers(..., sequence_parallel_size={size}) before the model is built, its mpu for "
        "deepspeed.initialize, and UlyssesSPDataLoaderAdapter around the data loader; with Accelerate or the Trainer "
        f'ParallelismConfig(sp_backend="deepspeed", sp_size={size})'
    )


def _sequence(config: Config, plan: Plan, model: Model) -> Iterator[Change]:
    """Sequence parallelism: the ranks of a group share a sample, and the heads of its attention."""
    for size in sequence_sizes(config, plan, model):
        program = sequence_program(size)
        long = plan.workload.length >= VERY_LONG
        yield Change(f"sequence parallel {size}", said=(("sequence_parallel", size),), program=program, rebuilds=not long)
