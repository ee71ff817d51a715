"""The estimate: what the fullest rank needs, in which phase, for what, and how accurate that is."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import accumulate
from typing import NamedTuple

from dslint.facts.gpus import GIB
from dslint.memory.activations import Operations, operations
from dslint.memory.engine import Run, optimizer_bytes, run
from dslint.memory.host import Host, host_memory
from dslint.memory.layout import Layout, lay_out
from dslint.memory.ledger import ACTIVATIONS, FORWARD, GATHERED, INIT, LOGITS, PHASES, Moment
from dslint.memory.plan import Plan
from dslint.memory.shapes import Model

CONTEXT = (0.6 * GIB, 1.0 * GIB, 2.0 * GIB)
"""CUDA context, libraries and NCCL buffers on a GPU: low, expected, high. It depends on driver, GPU and network."""

FRAGMENTS = (0.0, 0.04, 0.12)
"""Rounding and fragmentation of PyTorch's allocator, as a share of the peak: low, expected, high."""

STATES_ERROR, GATHERED_ERROR, ACTIVATIONS_ERROR, GUESSED_ERROR = 0.02, 0.15, 0.12, 0.25
"""Relative errors: states and buffers; gathered parameters; activations of a known family, and of a model given by numbers."""


class Bounds(NamedTuple):
    """Bytes: low, expected, high."""

    low: int
    expected: int
    high: int


@dataclass(frozen=True)
class Estimate:
    """The memory of one rank, the one that needs the most.

    `steady` is the memory between steps and `peaks` the peak of each phase, in bytes of tensors. `device` is the overall peak with the
    allowance for memory that is not in tensors. `host` is the rank's share of host memory.
    """

    model: Model
    plan: Plan
    rank: int
    run: Run
    steady: Moment
    peaks: dict[str, Moment]
    host: Host
    allowance: Bounds
    device: Bounds
    checkpoint: int
    reasons: tuple[str, ...]

    @property
    def phase(self) -> str:
        """The phase of the peak."""
        return max(PHASES, key=lambda phase: self.peaks[phase].total)

    @property
    def peak(self) -> Moment:
        """The moment of the peak."""
        return self.peaks[self.phase]

    @property
    def host_of_node(self) -> int:
        """Host memory of a machine between steps."""
        return self.host.total * self.plan.local

    @property
    def loading_of_node(self) -> int:
        """Host memory of a machine while its ranks load the model."""
        return self.host.loading * self.plan.local

    def fits(self, memory: int) -> bool | None:
        """Whether it fits in a GPU's memory: True if even the high figure fits, False if even the low one does not, else None."""
        return True if self.device.high <= memory else False if self.device.low > memory else None


def estimate(model: Model, plan: Plan, ranks: Iterable[int] | None = None) -> Estimate:
    """The estimate of the fullest of some ranks; of all, if none are given.

    Ranks differ at stages 1 and 2, where each keeps the gradients that overlap its partition whole.
    """
    prepared = operations(model, plan)
    done = {rank: run(model, plan, rank, prepared) for rank in ranks or _candidates(model, plan)}
    rank = max(done, key=lambda number: max(moment.total for moment in done[number].peaks.values()))
    worst = done[rank]
    states = optimizer_bytes(model, plan)
    allowance, device = _range(model, plan, worst, prepared)
    return Estimate(
        model,
        plan,
        rank,
        worst,
        worst.steady,
        worst.peaks,
        host_memory(plan, worst.layout, states, prepared),
        allowance,
        device,
        _checkpoint(plan, worst.layout, states),
        tuple(_reasons(model, plan)),
    )


def _candidates(model: Model, plan: Plan) -> list[int]:
    """The candidates for the fullest rank: the first, the last, and the one with the most gradients in its partition."""
    if plan.stage not in (1, 2) or plan.replicas < 2:
        return [0]
    layout = lay_out(model, plan)
    change = [0] * (plan.replicas + 1)
    for index, trained in enumerate(layout.trained):
        if trained:
            first, last = layout.parts(index)
            change[first] += layout.sizes[index]
            change[last + 1] -= layout.sizes[index]
    touched = list(accumulate(change))[: plan.replicas]
    return sorted({0, plan.replicas - 1, touched.index(max(touched))})


def _range(model: Model, plan: Plan, worst: Run, prepared: Operations) -> tuple[Bounds, Bounds]:
    """The allowance, and the peak including it."""
    error = ACTIVATIONS_ERROR if model.exact else GUESSED_ERROR

    def moment(low_high: int) -> float:
        most = 0.0
        for phase, peak in worst.peaks.items():
            doubtful, gathered = peak.parts[ACTIVATIONS] + peak.parts[LOGITS], peak.parts[GATHERED]
            rest = peak.total - doubtful - gathered
            total = peak.total + low_high * (rest * STATES_ERROR + gathered * GATHERED_ERROR + doubtful * error)
            if low_high > 0 and phase not in (INIT, FORWARD):
                total += prepared.returned + _masks(model, plan)
            most = max(most, total)
        return most

    expected = max(peak.total for peak in worst.peaks.values())
    sums = [moment(-1), float(expected), moment(1)]
    allowance = Bounds(*(round(CONTEXT[i] + FRAGMENTS[i] * sums[i]) for i in range(3)))
    return allowance, Bounds(*(round(sums[i] + allowance[i]) for i in range(3)))


def _masks(model: Model, plan: Plan) -> int:
    """Bytes of attention masks: PyTorch's attention may keep one per layer without checkpointing, in the model's precision."""
    every = plan.workload.checkpoint_every
    layers = sum(1 for number in range(len(model.blocks)) if not every or number % every)
    return plan.model_bytes * plan.workload.length * plan.tokens * max(1, layers) if plan.workload.padded else 0


def _checkpoint(plan: Plan, layout: Layout, states: float) -> int:
    """Bytes of a checkpoint on disk: the model once, master weights and states once."""
    master = plan.master_bytes if plan.half or plan.stage else 0
    return (plan.model_bytes * layout.whole + round((master + states) * layout.flat)) * plan.tensor


def _reasons(model: Model, plan: Plan) -> list[str]:
    """The reasons for the width of the range."""
    reasons = [
        "CUDA context, libraries and NCCL: 1 GiB (0.6 to 2 GiB), known only once the job runs",
        "fragmentation: 4 % of the peak (up to 12 %); expandable_segments:True in PYTORCH_ALLOC_CONF keeps it low",
        "empty_cache() does not lower the peak: it returns memory that is already free, for other programs on the GPU",
    ]
    if model.exact:
        reasons.append("activations: 12 % either way; kernels and transformers versions differ in what they keep")
    else:
        reasons.append("activations: 25 % either way; the layers of this model are unknown")
    if plan.stage == 3:
        reasons.append("gathered parameters: 15 % either way; prefetching depends on the order in which modules run")
    if plan.workload.padded:
        reasons.append(
            "padding: the high figure includes a 16-bit mask per layer, which PyTorch's attention may keep (flash attention does not)"
        )
    if any(block.softcap for block in model.blocks) and not plan.workload.eager:
        reasons.append(f"attention: {model.family} keeps attention scores by default in transformers; flash attention does not")
    if model.vocabulary and model.returns_logits and not plan.workload.loss_chunk:
        reasons.append("logits: the high figure includes the model's output, in case the program keeps it until the end of the backward")
    return reasons
