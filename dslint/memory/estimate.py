"""The estimate: what the worst rank needs, when, for what, and how sure that is."""

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
"""CUDA context, libraries and NCCL's buffers on a GPU: least, taken, most. An allowance: it differs by driver, GPU and network."""

FRAGMENTS = (0.0, 0.04, 0.12)
"""What PyTorch's allocator rounds up and cannot reuse, as a share of the highest moment: least, taken, most. An allowance, too."""

STATES_ERROR, GATHERED_ERROR, ACTIVATIONS_ERROR, GUESSED_ERROR = 0.02, 0.15, 0.12, 0.25
"""How far may be off: tensors of states and buffers; gathered parameters; activations of a known family, and of a model made of numbers."""


class Range(NamedTuple):
    """Bytes: least, expected, most."""

    low: int
    expected: int
    high: int


@dataclass(frozen=True)
class Estimate:
    """What one rank needs, the worst of them all.

    `steady` is between steps and `peaks` the highest moment of each phase, in bytes of tensors. `device` is the highest moment with the
    allowance for what is no tensor. `host` is the rank's share of the machine's memory.
    """

    model: Model
    plan: Plan
    rank: int
    run: Run
    steady: Moment
    peaks: dict[str, Moment]
    host: Host
    allowance: Range
    device: Range
    checkpoint: int
    reasons: tuple[str, ...]

    @property
    def phase(self) -> str:
        """The phase of the highest moment."""
        return max(PHASES, key=lambda phase: self.peaks[phase].total)

    @property
    def peak(self) -> Moment:
        """The highest moment."""
        return self.peaks[self.phase]

    @property
    def host_of_node(self) -> int:
        """Host memory of a machine, between steps."""
        return self.host.total * self.plan.local

    @property
    def loading_of_node(self) -> int:
        """Host memory of a machine while its ranks hold the model that they load."""
        return self.host.loading * self.plan.local

    def fits(self, memory: int) -> bool | None:
        """Whether it fits into a GPU's memory: True even at the most, False even at the least, None in between."""
        return True if self.device.high <= memory else False if self.device.low > memory else None


def estimate(model: Model, plan: Plan, ranks: Iterable[int] | None = None) -> Estimate:
    """What the worst of some ranks needs; of all, if none are given.

    Ranks differ at stages 1 and 2, where each keeps whole the gradients that touch its part.
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
    """The ranks that may be the worst: the first, the last, and the one whose part touches the most."""
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


def _range(model: Model, plan: Plan, worst: Run, prepared: Operations) -> tuple[Range, Range]:
    """The allowance, and the highest moment with it."""
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
    allowance = Range(*(round(CONTEXT[i] + FRAGMENTS[i] * sums[i]) for i in range(3)))
    return allowance, Range(*(round(sums[i] + allowance[i]) for i in range(3)))


def _masks(model: Model, plan: Plan) -> int:
    """What masks may take: the attention of PyTorch keeps one in the model's precision for each layer that is not checkpointed."""
    every = plan.workload.checkpoint_every
    layers = sum(1 for number in range(len(model.blocks)) if not every or number % every)
    return plan.model_bytes * plan.workload.length * plan.tokens * max(1, layers) if plan.workload.padded else 0


def _checkpoint(plan: Plan, layout: Layout, states: float) -> int:
    """Bytes of a checkpoint on disk: the model once, master weights and states once."""
    master = plan.master_bytes if plan.half or plan.stage else 0
    return (plan.model_bytes * layout.whole + round((master + states) * layout.flat)) * plan.tensor


def _reasons(model: Model, plan: Plan) -> list[str]:
    """Why the range is as wide as it is."""
    reasons = [
        "context, libraries and NCCL: 0.6 to 2 GiB, taken as 1 GiB; not tensors, and not known before the job runs",
        "fragmentation: up to 12 % of the highest moment, taken as 4 %; expandable_segments:True in PYTORCH_ALLOC_CONF keeps it low",
        "empty_cache() gives back what is free already: it lowers no peak, and helps only another program on the same GPU",
    ]
    if model.exact:
        reasons.append("activations: 12 % either way, because kernels and versions of transformers differ in what they keep")
    else:
        reasons.append("activations: 25 % either way, because the layers of this model are not known")
    if plan.stage == 3:
        reasons.append("gathered parameters: 15 % either way, because what is fetched ahead depends on the order in which modules run")
    if plan.workload.padded:
        reasons.append(
            "padding: the most includes a 16-bit mask for each layer, which PyTorch's attention may keep; flash attention has none"
        )
    if any(block.softcap for block in model.blocks) and not plan.workload.eager:
        reasons.append(f"attention of {model.family} keeps its scores, as transformers computes it by default; flash attention would not")
    if model.vocabulary and model.returns_logits and not plan.workload.loss_chunk:
        reasons.append("logits: the most includes the model's output, where a program keeps it until the backward is over")
    return reasons
