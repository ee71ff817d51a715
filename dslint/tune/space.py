"""The configs that `tune` considers: every combination of choices that DeepSpeed accepts for the setup."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Any

from dslint.config import Config
from dslint.facts import Integration, Release
from dslint.memory.changes import ON_HOST, SMALL_BUCKET, SMALL_PREFETCH
from dslint.memory.plan import HOST, Plan
from dslint.memory.shapes import Model
from dslint.record import Record

MOST_SAMPLES = 1024
"""The largest micro batch size that is tried."""

PARALLEL = (1, 2, 4, 8)
"""Sizes of tensor and sequence parallelism that are tried where the setup can use it."""

AUTOTP = Release(0, 16, 4)
"""The first release that divides the layers of a model for training by its config alone (`tensor_parallel.autotp_size`)."""

RATIO = 0.5
"""The share of the optimizer states on the host that is tried next to all of them (Twin-Flow, `offload_optimizer.ratio`)."""


class ConfigChoice(Record):
    """The choices of a config. `checkpoint_every` and the parallel sizes are made in the program."""

    stage: int
    micro_batch: int
    accumulation: int
    checkpoint_every: int
    optimizer_device: str | None
    offload_ratio: float
    parameter_device: str | None
    overlap: bool
    secondary: int
    quantized_weights: bool
    quantized_gradients: bool
    tensor: int
    sequence: int
    reduce_bucket: int
    prefetch_bucket: int

    @property
    def kind(self) -> tuple[Any, ...]:
        """What tells it from configs of another kind: all but the batch sizes, the overlap and the buckets."""
        return (
            self.stage,
            bool(self.checkpoint_every),
            self.optimizer_device,
            self.offload_ratio,
            self.parameter_device,
            self.secondary,
            self.quantized_weights,
            self.quantized_gradients,
            self.tensor,
            self.sequence,
        )

    def plan(self, base: Plan) -> Plan:
        """The plan of the config with these choices."""
        pinned = base.pinned or (base.optimizer_device is None and self.optimizer_device is not None)
        return base.but(**self._asdict(), replicas=base.world // self.tensor, pinned=pinned)

    def differs(self, other: ConfigChoice) -> tuple[str, ...]:
        """The names of the choices that differ."""
        return tuple(name for name in self._fields if getattr(self, name) != getattr(other, name))


def present(plan: Plan) -> ConfigChoice:
    """The choices of a plan."""
    return ConfigChoice(**{name: getattr(plan.workload if name == "checkpoint_every" else plan, name) for name in ConfigChoice._fields})


def choices(plan: Plan, model: Model, *, free_batch: bool, divides: bool = False) -> Iterator[ConfigChoice]:
    """All choices for a setup. Without `free_batch` the samples of an optimizer step stay as they are. `divides`: the setup can use tensor
    parallelism by its config alone.
    """
    checkpointing = sorted({0, 1, plan.workload.checkpoint_every})
    seen: set[ConfigChoice] = set()
    for tensor, sequence, stage in product(
        _sizes(plan.tensor, plan, model, may_begin=divides), _sizes(plan.sequence, plan, model), _stages(plan)
    ):
        if stage == 3 and tensor > 1:
            continue
        for micro_batch, accumulation in _batches(plan, tensor, sequence, free=free_batch):
            options = _offload(plan, stage), _overlaps(plan, stage), _zeropp(plan, stage), _buckets(plan, stage)
            for every, (device, ratio, parameters), overlap, zeropp, buckets in product(checkpointing, *options):
                if zeropp[0] > 1 and (device or parameters) and not _mixes(plan):
                    continue
                choice = ConfigChoice(
                    stage,
                    micro_batch,
                    accumulation,
                    every,
                    device,
                    ratio,
                    parameters,
                    overlap,
                    *zeropp,
                    tensor,
                    sequence,
                    *buckets,
                )
                if choice not in seen:
                    seen.add(choice)
                    yield choice


def can_divide(config: Config, plan: Plan, model: Model) -> bool:
    """Whether DeepSpeed can divide the layers of the model by the config alone: the loader gives the ranks of a group the same samples, as
    Accelerate does (`_prepare_deepspeed` makes a mesh of `autotp_size`), and all of a dense model of Hugging Face is trained.
    """
    loader = config.facts.integration in (Integration.TRANSFORMERS, Integration.ACCELERATE)
    dense = not model.adapted and not any(block.experts for block in model.blocks)
    return loader and dense and config.facts.model is not None and plan.release >= AUTOTP and plan.sequence == 1


def _sizes(used: int, plan: Plan, model: Model, *, may_begin: bool = False) -> tuple[int, ...]:
    """Parallel sizes, where the setup uses the parallelism already or may begin to: else only its program can begin to."""
    if used == 1 and not may_begin:
        return (1,)
    heads = [number for block in model.blocks[:1] for number in (block.heads, block.keys * block.heads // max(1, block.query))]
    able = [size for size in PARALLEL if plan.local % size == 0 and not any(number % size for number in heads)]
    return tuple(sorted({used, *able}))


def _stages(plan: Plan) -> tuple[int, ...]:
    """The ZeRO stages that the optimizer works with. On one rank a stage divides nothing."""
    if plan.optimizer.startswith(("onebit", "zeroone")):
        return (plan.stage,)
    if plan.replicas == 1:
        return tuple(sorted({plan.stage, 0, 2, 3}))
    return (0, 1, 2, 3)


def _batches(plan: Plan, tensor: int, sequence: int, *, free: bool) -> Iterator[tuple[int, int]]:
    """Micro batch sizes and accumulation steps: those with the samples per step of the plan, or all powers of two."""
    groups = plan.world // (tensor * sequence)
    if free:
        sizes = {plan.micro_batch, *(2**power for power in range(MOST_SAMPLES.bit_length()))}
        yield from ((size, 1) for size in sorted(sizes) if size <= MOST_SAMPLES)
        yield plan.micro_batch, plan.accumulation
        return
    each, rest = divmod(plan.samples, groups)
    if not rest:
        yield from ((size, each // size) for size in range(1, min(each, MOST_SAMPLES) + 1) if each % size == 0)


def _offload(plan: Plan, stage: int) -> Iterator[tuple[str | None, float, str | None]]:
    """Devices of optimizer and parameters. NVMe is tried only where the config uses it: only its owner knows the disk."""
    yield None, 1.0, None
    able = stage > 0 and plan.optimizer in ON_HOST and not plan.torch_adam
    devices = {HOST, plan.optimizer_device} - {None} if able else set()
    for device in sorted(map(str, devices)):
        if device != HOST and stage < 3:
            continue
        yield device, 1.0, None
        if stage == 3:
            yield device, RATIO, None
            yield device, 1.0, plan.parameter_device or HOST
    if stage == 3 and plan.parameter_device and not plan.optimizer_device:
        yield None, 1.0, plan.parameter_device


def _overlaps(plan: Plan, stage: int) -> tuple[bool, ...]:
    """Whether collectives overlap with compute. At stage 3 this costs no memory that is estimated, so that only a config which has it off
    keeps it off.
    """
    if stage == 3:
        return (True,) if plan.overlap or plan.stage != 3 else (False, True)
    return (False, True) if stage else (False,)


def _zeropp(plan: Plan, stage: int) -> Iterator[tuple[int, bool, bool]]:
    """Secondary partitions of a machine's size, quantised weights and quantised gradients (ZeRO++), where machines exchange them. Only
    NVIDIA's GPUs have the kernels.
    """
    if stage < 3:
        yield 1, False, False
        return
    several = plan.world > plan.local > 1
    able = several and plan.half and (plan.gpu is None or plan.gpu.capability is not None)
    used = plan.secondary, plan.quantized_weights, plan.quantized_gradients
    yield from product((1, plan.local) if several else (1,), *((False, True) if able else (False,),) * 2)
    if used[0] not in (1, plan.local) or not able:
        yield used


def _mixes(plan: Plan) -> bool:
    """Whether a config has secondary partitions and offload. With both, users report trainings that make no progress (DS426), so that they
    are not put together.
    """
    return plan.secondary > 1 and bool(plan.optimizer_device or plan.parameter_device)


def _buckets(plan: Plan, stage: int) -> Iterator[tuple[int, int]]:
    """Sizes of the buckets of reduction and of prefetching: those of the config, and small ones, which save memory."""
    yield plan.reduce_bucket, plan.prefetch_bucket
    if stage and plan.reduce_bucket > SMALL_BUCKET:
        yield SMALL_BUCKET, min(plan.prefetch_bucket, SMALL_PREFETCH) if stage == 3 else plan.prefetch_bucket
