"""The time of a training step: the sum of its parts, each with a range."""

from __future__ import annotations

import math

from dslint.record import Record
from dslint.speed.collectives import bucketed, gathered, pipeline, reduced, sequence_parallel, tensor_parallel, updated
from dslint.speed.compute import Compute, compute, flops_per_token, paced, spread
from dslint.speed.constants import FITTED, Constants
from dslint.speed.job import Job
from dslint.speed.optimizer import offload


class Kind(Record):
    """A kind of part: its name, its shortest and longest time as multiples of the expected one, and why it varies. `ways` are the
    properties of a job that decide in which way the part is done: which kernels, which collectives.
    """

    name: str
    low: float
    high: float
    why: str = ""
    ways: tuple[str, ...] = ()

    def wider(self, factor: float, why: str) -> Kind:
        """The kind, if it may take less and more time by a factor."""
        return self._replace(low=self.low / factor, high=self.high * factor, why=why)


_KERNELS = ("product_size", "tensor", "precision", "flash", "kernel", "fused")
_COLLECTIVES = ("stage", "overlap", "secondary", "quantized_weights", "quantized_gradients", "tensor", "pipeline")

COMPUTE = Kind("compute", 0.74, 1.42, "depends on kernels, clocks and the lengths of samples", _KERNELS)
ATTENTION = Kind("attention", 0.74, 1.42, "", _KERNELS)
AGAIN = Kind("recomputation", 0.74, 1.42, "", _KERNELS)
ADAPTERS = Kind("adapters", 0.0, 2.0, "depends on fused kernels, on dropout and on their precision", _KERNELS)
UNEVEN = Kind("last pipeline stage", 0.0, 1.4, "depends on whether layers are divided so that the head counts", ("pipeline",))
LAUNCHES = Kind("waiting for launches", 0.4, 2.0, "depends on the CPU's speed and on the framework", _COLLECTIVES)
ZERO = Kind("hooks of ZeRO", 0.3, 3.0, "", _COLLECTIVES)
TENSOR = Kind("tensor parallelism", 0.6, 1.7, "", ("tensor",))
SEQUENCE = Kind("sequence parallelism", 0.6, 1.7, "", ("sequence",))
BUBBLE = Kind("pipeline bubble", 0.7, 1.5, "", ("pipeline",))
PIPELINE = Kind("pipeline transfers", 0.5, 2.0, "", ("pipeline",))
NETWORK = Kind("waiting for collectives", 0.5, 2.0, "depends on the network and on how much compute hides", _COLLECTIVES)
UPDATED = Kind("gathering updated weights", 0.5, 2.0, "", _COLLECTIVES)
COPIES = Kind("copies between GPU and host", 0.5, 2.5, "depends on page-locked memory and on how GPUs share PCIe", ("stage",))
HOST = Kind("CPU optimizer", 0.3, 3.3, "depends on threads, core binding and memory bandwidth")
FETCHED = Kind("fetching from the host", 0.5, 4.0, "depends on page-locked memory and on how GPUs share PCIe", ("stage",))
DISK = Kind("NVMe", 0.5, 2.5, "depends on the disks")
OPTIMIZER = Kind("optimizer", 0.6, 1.8, "", ("stage",))
REST = Kind("rest of the step", 0.3, 3.0)

KINDS = (
    *(COMPUTE, ATTENTION, AGAIN, ADAPTERS, LAUNCHES, ZERO, TENSOR, SEQUENCE, UNEVEN, BUBBLE, PIPELINE),
    *(NETWORK, UPDATED, COPIES, FETCHED, HOST, DISK, OPTIMIZER, REST),
)
"""All kinds, in the order of a report. Their ranges hold the ratios of measured to predicted times of public tables where that part
dominates; the CPU optimizer's is 0.25 to 2.7 s for 1e9 parameters and machine."""


class StepPart(Record):
    """A part of a step, with its expected seconds."""

    kind: Kind
    seconds: float

    @property
    def low(self) -> float:
        """The least seconds."""
        return self.seconds * self.kind.low

    @property
    def high(self) -> float:
        """The most seconds."""
        return self.seconds * self.kind.high


class StepTime(Record):
    """A training step: its parts, and the seconds of communication that compute hides."""

    job: Job
    parts: tuple[StepPart, ...]
    hidden: float

    @property
    def seconds(self) -> float:
        """Expected seconds of the step."""
        return sum(part.seconds for part in self.parts)

    @property
    def low(self) -> float:
        """The least seconds."""
        return sum(part.low for part in self.parts)

    @property
    def high(self) -> float:
        """The most seconds."""
        return sum(part.high for part in self.parts)

    def of(self, kind: Kind) -> float:
        """Expected seconds of the parts of a kind."""
        return sum(part.seconds for part in self.parts if part.kind.name == kind.name)

    @property
    def tokens_per_second(self) -> float:
        """Tokens per second over all GPUs."""
        return self.job.samples * self.job.length / self.seconds

    @property
    def flops_per_gpu(self) -> float:
        """Operations of the model per second and GPU, without recomputation."""
        return self.tokens_per_second * flops_per_token(self.job) / self.job.gpus

    @property
    def utilisation(self) -> float:
        """Model FLOPS utilisation: the share of the GPU's peak in the precision of the job (PaLM, Chowdhery et al. 2022)."""
        return self.flops_per_gpu / self.job.hardware.peak(self.job.precision)

    def hours(self, tokens: float) -> float:
        """Hours of a training with so many tokens."""
        return tokens / self.tokens_per_second / 3600


NOT_HIDDEN = 0.25
"""The share of the hooks of stage 3 that waits for the GPU: where they need a value, or the first weights of a pass."""


BESIDE = {2: 0.01, 3: 0.05}
"""The share of compute by which stages 2 and 3 make it slower although nothing waits: their copies and collectives use the GPU, too
(DeepSpeed's autotuning table of BERT base on V100: stage 2 is 6 % slower than stages 0 and 1, stage 3 15 %)."""


def step(job: Job, constants: Constants = FITTED) -> StepTime:
    """The step of a job."""
    c, times = constants, job.accumulation
    done, moved = compute(job, c), offload(job, c)
    hooks = c.gather * job.modules_here * (2 + job.recomputed + job.copies) if job.stage == 3 else 0.0
    busy = paced(done.device, done.launches + hooks)
    zero = NOT_HIDDEN * hooks + BESIDE.get(job.stage, 0.0) * busy
    tensor, sequence, passed = tensor_parallel(job, c), sequence_parallel(job, c), pipeline(job)
    each = busy + done.uneven + zero + tensor + sequence + passed
    exposed, hidden = _waiting(job, c, done, busy)
    seconds = {
        COMPUTE: (done.forward + done.backward) * times,
        ATTENTION: done.attention * times,
        AGAIN: done.again * times,
        ADAPTERS: done.adapters * times,
        LAUNCHES: (busy - done.device) * times,
        ZERO: zero * times,
        TENSOR: tensor * times,
        SEQUENCE: sequence * times,
        UNEVEN: done.uneven * times,
        BUBBLE: each * (job.pipeline - 1),
        PIPELINE: passed * times,
        NETWORK: exposed,
        UPDATED: updated(job, c),
        COPIES: moved.once + moved.each * (times - 1),
        FETCHED: moved.fetched * times,
        HOST: max(0.0, moved.cpu - done.backward) if job.beside_backward else moved.cpu,
        DISK: moved.nvme,
        OPTIMIZER: moved.device,
        REST: c.step,
    }
    wider = math.sqrt(spread(job, c))
    kinds = {ATTENTION: ATTENTION.wider(wider, "depends on whether its kernel is FlashAttention-2 or newer")} if wider > 1 else {}
    return StepTime(job, tuple(StepPart(kinds.get(kind, kind), seconds[kind]) for kind in KINDS if seconds[kind] > 0), hidden)


def _waiting(job: Job, c: Constants, done: Compute, busy: float) -> tuple[float, float]:
    """Seconds of collectives in a step that compute does not hide, and that it hides. Stage 3 gathers and reduces in every micro batch,
    stage 2 reduces in every one, stages 0 and 1 in the last one. Below stage 3 only the backward hides anything. Without overlap, stage 3
    reduces on the stream of the compute, which waits; gathers run beside it still, because NCCL has a stream of its own.
    """
    if job.stage == 3:
        gathers, reductions = sum(gathered(job, c)), reduced(job, c) + bucketed(job)
        all_of_it, rounds = gathers + reductions, job.accumulation
        spare = c.overlapped3 * busy if job.overlap else min(c.overlapped3 * busy, gathers)
    else:
        all_of_it = reduced(job, c) + bucketed(job)
        rounds = job.accumulation if job.stage == 2 else 1
        spare = c.overlapped * busy * done.backward / done.device if job.overlap and done.device else 0.0
    exposed = max(0.0, all_of_it - spare)
    return exposed * rounds, (all_of_it - exposed) * rounds
