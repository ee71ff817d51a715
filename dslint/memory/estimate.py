"""The estimate: what the fullest rank needs, in which phase, for what, and how accurate that is."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import lru_cache
from itertools import accumulate

from dslint.memory.activations import dropout_of_adapters, operations
from dslint.memory.engine import Run, optimizer_bytes, run, stepped_elements, unpartitioned
from dslint.memory.host import HostBytes, host_memory, host_range
from dslint.memory.layout import Layout, lay_out
from dslint.memory.ledger import ACTIVATIONS, BACKWARD, EVALUATION, FORWARD, GATHERED, GENERATION, INIT, LOGITS, STEP, TRAINING, Moment
from dslint.memory.operations import Operations
from dslint.memory.plan import SHORT, Plan
from dslint.memory.reasons import reasons
from dslint.memory.shapes import Model
from dslint.memory.surroundings import Bounds, context, reserve

STATES_ERROR, GATHERED_ERROR, LOGITS_ERROR, ACTIVATIONS_ERROR, GUESSED_ERROR, WEIGHTS_ERROR = 0.02, 0.15, 0.05, 0.12, 0.25, 0.05
"""Relative errors: states and buffers (the last: of a model with weights guessed from sizes); gathered parameters; logits; activations
of a known family, and of a model given by numbers. The latter is also that of all that a step allocates with tensor parallelism, which was
not measured."""


ROOM = 0.97
"""The share of a GPU up to which short samples count as fitting, where their length decides: others are longer."""


class Verdict(StrEnum):
    """Whether an estimate fits in a GPU and its machine."""

    FITS = "fits"
    """the high end of the range fits"""
    LIKELY = "likely fits"
    """the expected value fits, the high end does not"""
    UNLIKELY = "unlikely to fit"
    """the low end of the range fits, the expected value does not"""
    NO = "does not fit"
    """the low end of the range does not fit"""
    OPEN = "not judged"
    """what is counted fits or likely fits, and the job needs more that is not counted; or it depends on a length that nothing says"""


@dataclass(frozen=True)
class Estimate:
    """The memory of one rank, the one that needs the most.

    `tensors`, `reserved`, `device` and `full` are those of training; an evaluation between two steps is apart (`evaluating`). `steady` is
    the memory between steps and `peaks` the peak of each phase, in bytes of tensors. `tensors` is the range of the overall peak,
    `reserved` what PyTorch's allocator reserves for it, and `device` what the process needs beside other programs; `full` is
    expected of the process on a GPU that is nearly full, and `full_of_short` the same with short samples, where nothing or a limit says
    how long they are. `host` is the rank's share of host memory. `unpartitioned` is what
    initialization needs if the program does not build a stage-3 model under `zero.Init`; 0 if that is known.
    """

    model: Model
    plan: Plan
    rank: int
    run: Run
    steady: Moment
    peaks: dict[str, Moment]
    host: HostBytes
    tensors: Bounds
    reserved: Bounds
    device: Bounds
    full: int
    checkpoint: int
    resuming: int
    reasons: tuple[str, ...]
    unpartitioned: int = 0
    full_of_short: int | None = None

    @property
    def phase(self) -> str:
        """The phase of the peak of training."""
        return max((phase for phase in TRAINING if phase in self.peaks), key=lambda phase: self.peaks[phase].total)

    @property
    def peak(self) -> Moment:
        """The moment of the peak of training."""
        return self.peaks[self.phase]

    @property
    def host_of_node(self) -> int:
        """Host memory of a machine between steps."""
        return self.host.total * self.plan.local

    @property
    def loading_of_node(self) -> int:
        """Host memory of a machine while its ranks load the model."""
        return self.host.loading * self.plan.local

    @property
    def allowance(self) -> Bounds:
        """The part of `device` that is not in tensors."""
        return Bounds(*(whole - part for whole, part in zip(self.device, self.tensors, strict=True)))

    def verdict(self, memory: int) -> Verdict:
        """Whether it fits in a GPU's memory, in bytes. PyTorch returns reserved memory before it gives up, so `full` is what counts. It
        fits for certain only if the whole model does, as long as it is only assumed that the model is partitioned while it is built.
        """
        found = self.counted_verdict(memory)
        if (self.is_lower_bound and found is not Verdict.NO) or (self.plan.uncounted and found in (Verdict.FITS, Verdict.LIKELY)):
            return Verdict.OPEN
        return Verdict.OPEN if found is Verdict.UNLIKELY and self.length_decides(memory) else found

    def length_decides(self, memory: int) -> bool:
        """Whether nothing or only a limit says how long samples are, and the assumed ones are not expected to fit, but short ones are."""
        return self.full_of_short is not None and self.full_of_short <= ROOM * memory and memory < self.full

    def counted_verdict(self, memory: int) -> Verdict:
        """Whether what is counted fits, with samples of the assumed length where nothing says it."""
        found = _verdict(Bounds(self.device.low, self.full, self.device.high), memory)
        doubtful = self.unpartitioned > memory or self.evaluating > memory or self.plan.images_decide
        return Verdict.LIKELY if found is Verdict.FITS and doubtful else found

    @property
    def is_lower_bound(self) -> bool:
        """Whether what the model keeps for its backward is unknown and not counted."""
        return self.model.generic and not self.model.vocabulary

    @property
    def evaluating(self) -> int:
        """Bytes that the process is expected to occupy during an evaluation on a GPU that is nearly full; 0 without one. Its samples are
        as long as those of training: evaluations of shorter ones need less.
        """
        if EVALUATION not in self.peaks:
            return 0
        return round(self.peaks[EVALUATION].total * reserve(self.plan).full) + context(self.plan).expected

    def host_verdict(self, memory: int, *, loading: bool = True) -> Verdict:
        """Whether it fits in the host memory of a machine, in bytes, with or without what the ranks need to load the model."""
        return _verdict(host_range(self.plan, self.host, loading=loading), memory)

    def fits(self, device: int | None, host: int | None) -> bool:
        """Whether even the high end fits in a GPU and in a machine, as far as their memory is known."""
        on_device = device is None or self.verdict(device) is Verdict.FITS
        return on_device and (host is None or self.host_verdict(host) is Verdict.FITS)

    @property
    def host_range(self) -> Bounds:
        """Host memory of a machine at its fullest, in bytes."""
        return host_range(self.plan, self.host)


def _verdict(needs: Bounds, memory: int) -> Verdict:
    if needs.high <= memory:
        return Verdict.FITS
    if needs.low > memory:
        return Verdict.NO
    return Verdict.LIKELY if needs.expected <= memory else Verdict.UNLIKELY


def estimate(model: Model, plan: Plan, ranks: Iterable[int] | None = None) -> Estimate:
    """The estimate of the fullest of some ranks; of all, if none are given.

    Ranks differ at stages 1 and 2, where each keeps the gradients that overlap its partition whole.
    """
    return _estimated(model, plan, None if ranks is None else tuple(ranks))


@lru_cache(maxsize=64)
def _estimated(model: Model, plan: Plan, ranks: tuple[int, ...] | None) -> Estimate:
    """Several rules ask for the same estimate, and again after each edit or fix of something that does not matter to memory."""
    if plan.mixes_lengths:
        return _of_mixed_lengths(model, plan, ranks)
    if plan.workload.guessed_length and plan.workload.length > plan.shortest:
        return _of_guessed_length(model, plan, ranks)
    prepared = operations(model, plan)
    layout = lay_out(model, plan)
    done = {rank: run(model, plan, rank, prepared, layout) for rank in ranks or _candidates(plan, layout)}
    rank = max(done, key=lambda number: max(moment.total for moment in done[number].peaks.values()))
    worst = done[rank]
    states = optimizer_bytes(model, plan)
    tensors = _tensors(model, plan, worst, prepared)
    return Estimate(
        model,
        plan,
        rank,
        worst,
        worst.steady,
        worst.peaks,
        _loaded(model, host_memory(plan, worst.layout, states, prepared)),
        tensors,
        *_occupied(plan, worst.steady.total, tensors),
        _checkpoint(plan, worst.layout, states),
        _resuming(plan, worst.layout, states),
        tuple(reasons(model, plan)),
        _unpartitioned(plan, worst.layout),
    )


def _occupied(plan: Plan, steady: int, tensors: Bounds) -> tuple[Bounds, Bounds, int]:
    """What PyTorch reserves for tensors, what the process occupies, and what it is expected to occupy on a GPU that is nearly full."""
    around, more = context(plan), reserve(plan)
    reserved = Bounds(*(round(amount * share) for amount, share in zip(tensors, more, strict=False)))
    generating = steady + plan.elsewhere if plan.sleeps else 0  # what vLLM and the training hold together
    device = Bounds(*(max(inside, generating) + outside for inside, outside in zip(reserved, around, strict=True)))
    return reserved, device, max(round(tensors.expected * more.full), generating) + around.expected


def _of_mixed_lengths(model: Model, plan: Plan, ranks: tuple[int, ...] | None) -> Estimate:
    """The estimate of samples with a limit: in the low figure all are very short, in the expected one all but one are short, in the high
    one none is.
    """
    count, limit = plan.samples_at_once, plan.workload.length
    mean = -(-(limit + (count - 1) * min(SHORT, limit)) // (count * plan.sequence)) * plan.sequence
    longest, usual, short = (estimate(model, plan.but(length=length, varying=False), ranks) for length in (limit, mean, plan.shortest))
    tensors = Bounds(min(usual.tensors.low, short.tensors.low), usual.tensors.expected, longest.tensors.high)
    reserved, device, full = _occupied(plan, usual.steady.total, tensors)
    told = tuple(reasons(model, plan))
    ranges = replace(usual, tensors=tensors, reserved=reserved, device=device, full=full)
    return replace(ranges, plan=plan, reasons=told, full_of_short=short.full)


def _of_guessed_length(model: Model, plan: Plan, ranks: tuple[int, ...] | None) -> Estimate:
    """The estimate of samples of a length that nothing says: in the low figure they are very short."""
    usual, short = (
        estimate(model, plan.but(length=length, guessed_length=False), ranks) for length in (plan.workload.length, plan.shortest)
    )
    tensors = usual.tensors._replace(low=min(usual.tensors.low, short.tensors.low))
    reserved, device, full = _occupied(plan, usual.steady.total, tensors)
    told = tuple(reasons(model, plan))
    ranges = replace(usual, tensors=tensors, reserved=reserved, device=device, full=full)
    return replace(ranges, plan=plan, reasons=told, full_of_short=short.full)


def _loaded(model: Model, host: HostBytes) -> HostBytes:
    """The memory on the host; a model that is quantized while it is loaded goes to the GPU file by file."""
    return host._replace(loading=0) if any(weight.quantized for weight in model.weights) else host


def _unpartitioned(plan: Plan, layout: Layout) -> int:
    """What initialization needs without `zero.Init`, as long as it is only assumed."""
    return unpartitioned(plan, layout) + context(plan).low if plan.assumes_zero_init else 0


def _candidates(plan: Plan, layout: Layout) -> list[int]:
    """The candidates for the fullest rank: the first, the last, and the one with the most gradients in its partition."""
    if plan.stage not in (1, 2) or plan.replicas < 2:
        return [0]
    change = [0] * (plan.replicas + 1)
    for index, trained in enumerate(layout.trained):
        if trained:
            first, last = layout.parts(index)
            change[first] += layout.sizes[index]
            change[last + 1] -= layout.sizes[index]
    touched = list(accumulate(change))[: plan.replicas]
    return sorted({0, plan.replicas - 1, touched.index(max(touched))})


def _tensors(model: Model, plan: Plan, worst: Run, prepared: Operations) -> Bounds:
    """The range of the overall peak, in bytes of tensors."""
    error = ACTIVATIONS_ERROR if model.exact else GUESSED_ERROR
    unmodelled = 1 + sum(share for _, share in plan.unmodelled)
    dropped = dropout_of_adapters(model, plan, prepared)
    doubtful = {FORWARD: dropped, BACKWARD: dropped, STEP: _doubtful_step(model, plan, worst, prepared)}

    def moment(sign: int) -> int:
        most = 0.0
        for phase in (name for name in TRAINING if name in worst.peaks):
            peak = worst.peaks[phase]
            activations, logits, gathered = peak.parts[ACTIVATIONS], peak.parts[LOGITS], peak.parts[GATHERED]
            rest = peak.total - activations - logits - gathered
            doubt = (
                rest * (WEIGHTS_ERROR if model.generic else STATES_ERROR)
                + gathered * GATHERED_ERROR
                + logits * LOGITS_ERROR
                + activations * error
            )
            if plan.tensor > 1 and phase != INIT:
                doubt = max(doubt, GUESSED_ERROR * (peak.total - worst.steady.total))
            total = peak.total + sign * doubt
            if sign < 0 and phase == GENERATION:
                continue  # the program may generate without gathering all weights
            if sign < 0 and phase != INIT:
                total -= prepared.output
            if sign > 0:
                total += doubtful.get(phase, 0)
            if sign > 0 and phase not in (INIT, GENERATION, FORWARD):
                total += prepared.returned - prepared.output + _masks(model, plan)
            most = max(most, total)
        return round(most)

    return Bounds(moment(-1), moment(0), round(unmodelled * moment(1)))


def _doubtful_step(model: Model, plan: Plan, worst: Run, prepared: Operations) -> int:
    """Bytes that the step may need in addition; 0 if even then it is not the peak."""
    before = worst.peaks[STEP].total
    if before + plan.doubtful_step_bytes * stepped_elements(plan, worst.layout) <= max(
        worst.peaks[phase].total for phase in TRAINING if phase in worst.peaks
    ):
        return 0
    more = plan.but(step_bytes=plan.step_bytes + plan.doubtful_step_bytes)
    after = run(model, more, worst.layout.rank, prepared, worst.layout)
    return after.peaks[STEP].total - before


def _masks(model: Model, plan: Plan) -> int:
    """Bytes of attention masks: PyTorch's attention may keep one per layer without checkpointing, in the model's precision."""
    every = plan.workload.checkpoint_every
    layers = sum(1 for number in range(len(model.blocks)) if not every or number % every)
    return plan.model_bytes * plan.workload.length * plan.tokens * max(1, layers) if plan.workload.padded else 0


def _checkpoint(plan: Plan, layout: Layout, states: float) -> int:
    """Bytes of a checkpoint on disk: the model once, master weights and states once."""
    master = plan.master_bytes if plan.half or plan.stage else 0
    return (plan.model_bytes * layout.whole + round((master + states) * layout.flat)) * plan.tensor


def _resuming(plan: Plan, layout: Layout, states: float) -> int:
    """Bytes that a rank reads into host memory as it resumes from a checkpoint; 0 if it does not.

    It reads the file of the model, which below stage 3 holds all of it, and then that of its optimizer states; without ZeRO one file holds
    both. Source: deepspeed/runtime/engine.py of 0.6.4 and 0.19.8, _load_checkpoint and _get_all_zero_checkpoint_state_dicts, which read
    to the CPU.
    """
    if not plan.resumes:
        return 0
    master = plan.master_bytes if plan.half or plan.stage else 0
    model, optimizer = plan.model_bytes * layout.whole, (master + states) * layout.flat
    if not plan.stage:
        return round(model + optimizer)
    return round(max(model / (plan.replicas if plan.stage == 3 else 1), optimizer / plan.replicas))
