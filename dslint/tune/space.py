"""The configs that `tune` considers: every combination of choices that DeepSpeed accepts for the setup."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Any

from dslint.config import Config
from dslint.memory.changes import ON_HOST, SMALL_BUCKET, SMALL_PREFETCH
from dslint.memory.plan import HOST, Plan
from dslint.memory.shapes import Model
from dslint.record import Record

MOST_SAMPLES = 1024
"""The largest micro batch size that is tried."""

PARALLEL = (1, 2, 4, 8)
"""Sizes of tensor and sequence parallelism that are tried where the setup uses it."""

RATIO = 0.5
"""The share of the optimizer states on the host that is tried next to all of them (Twin-Flow, `offload_optimizer.ratio`)."""


class Choice(Record):
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
            self.tensor,
            self.sequence,
        )

    def plan(self, base: Plan) -> Plan:
        """The plan of the config with these choices."""
        pinned = base.pinned or (base.optimizer_device is None and self.optimizer_device is not None)
        return base.but(**self._asdict(), replicas=base.world // self.tensor, pinned=pinned)

    def differs(self, other: Choice) -> tuple[str, ...]:
        """The names of the choices that differ."""
        return tuple(name for name in self._fields if getattr(self, name) != getattr(other, name))


def present(plan: Plan) -> Choice:
    """The choices of a plan."""
    return Choice(**{name: getattr(plan.workload if name == "checkpoint_every" else plan, name) for name in Choice._fields})


def choices(config: Config, plan: Plan, model: Model, *, free_batch: bool) -> Iterator[Choice]:
    """All choices for a setup. Without `free_batch` the samples of an optimizer step stay as they are."""
    checkpointing = sorted({0, 1, plan.workload.checkpoint_every})
    seen: set[Choice] = set()
    for tensor, sequence, stage in product(_sizes(plan.tensor, plan, model), _sizes(plan.sequence, plan, model), _stages(plan)):
        if stage == 3 and tensor > 1:
            continue
        for micro_batch, accumulation in _batches(plan, tensor, sequence, free=free_batch):
            options = _offload(plan, stage), _overlaps(plan, stage), _hpz(config, plan, stage), _buckets(plan, stage)
            for every, (device, ratio, parameters), overlap, (secondary, quantized), buckets in product(checkpointing, *options):
                choice = Choice(
                    stage,
                    micro_batch,
                    accumulation,
                    every,
                    device,
                    ratio,
                    parameters,
                    overlap,
                    secondary,
                    quantized,
                    tensor,
                    sequence,
                    *buckets,
                )
                if choice not in seen:
                    seen.add(choice)
                    yield choice


def _sizes(used: int, plan: Plan, model: Model) -> tuple[int, ...]:
    """Parallel sizes, where the setup uses the parallelism at all: only its program can begin to."""
    if used == 1:
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
    if stage in (1, 2):
        return False, True
    return (plan.overlap if stage == plan.stage else stage == 3,)


def _hpz(config: Config, plan: Plan, stage: int) -> Iterator[tuple[int, bool]]:
    """Secondary partitions of a machine's size, and quantised weights where machines exchange them."""
    yield 1, False
    several = plan.world > plan.local > 1
    if stage == 3 and several and config.value("zero_optimization.zero_quantized_gradients") is not True:
        yield plan.local, False
    if stage == 3 and several and plan.half:
        yield 1, True
        yield plan.local, True
    if stage == 3 and (plan.quantized_weights or plan.secondary > 1):
        yield plan.secondary, plan.quantized_weights


def _buckets(plan: Plan, stage: int) -> Iterator[tuple[int, int]]:
    """Sizes of the buckets of reduction and of prefetching: those of the config, and small ones, which save memory."""
    yield plan.reduce_bucket, plan.prefetch_bucket
    if stage and plan.reduce_bucket > SMALL_BUCKET:
        yield SMALL_BUCKET, min(plan.prefetch_bucket, SMALL_PREFETCH) if stage == 3 else plan.prefetch_bucket
