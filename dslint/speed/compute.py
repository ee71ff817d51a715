"""Compute of a micro batch: matrix products, attention, operations that only move memory, and the launches of the host."""

from __future__ import annotations

import math

from dslint.job.attention import FLASH_3, SDPA
from dslint.record import Record
from dslint.speed.constants import Constants
from dslint.speed.job import A100, MODULES, Job

ALIGNED = 64
"""Elements: tensor cores of an A100 and newer GPUs are fully used if the dimensions of a product are multiples of 64 in 16 bits (NVIDIA,
"Matrix Multiplication Background")."""

HEAD = 8
"""A head dimension that is not a multiple of 8 keeps the products of attention off the tensor cores (the same document)."""

WITHOUT_TENSOR_CORES = 0.1
"""The share of the peak that they reach then: with it BLOOM's tables over the number of heads (chronicles-prequel.md) become 25 to 40 %
slower, as they do there."""

IN_FP32 = 0.85
"""The share of the peak that matrix products reach without tensor cores: cuBLAS' plain kernels come close to it."""

FLASH = 335e12
"""Operations per second that FlashAttention-2 reaches at most on a GPU newer than an A100: it does not use what Hopper added (Dao 2023)."""

NEWER_FLASH = 0.65
"""The share of the peak that the forward of a kernel written for Hopper or Blackwell reaches with a causal mask and long samples: 620 of
989 TFLOPS on H100 (FlashAttention-3, Shah et al. 2024, measured by pytorch/benchmark), up to 1,613 of 2,250 on B200 and 1.3 times less by
cuDNN (FlashAttention-4, 2026). Which one runs depends on the releases of PyTorch and cuDNN, and on installed packages."""

EFFICIENT = 0.5
"""The share of FlashAttention-2's rate that PyTorch's memory-efficient kernel reaches, which is that of xformers (Dao 2023, figures 4 to
7)."""

WITH_MASK = ("", SDPA)
"""With these kernels padded samples have a mask. PyTorch then takes its memory-efficient kernel, which computes what the causal mask hides,
too (`scaled_dot_product_attention`: its flash kernel takes no mask). Those of FlashAttention leave padding out."""

BACKWARD_OF_FLASH = 2.5
"""Flash attention's backward computes five products where the forward computes two (Dao 2023)."""

BACKWARD_OF_MEMORY = 1.5
"""The bytes that the backward of memory-bound operations moves, relative to the forward: it reads the gradient in addition."""

DROPPED, ADDED = 7.0, 12.0
"""Bytes that an adapter moves in 16 bits per token in a forward, for a feature of its module's input and of its output, as peft computes
it (`result + lora_B(lora_A(dropout(x))) * scaling`). Input: dropout reads it, writes it and a mask, and the first product reads it. Output:
the second product writes it, the scaling reads and writes it, the sum reads two and writes one. Without dropout an input takes 2 bytes;
fused kernels move almost nothing. The operations are few: 2 x rank for a feature."""

FUSED = 0.7
"""The share of these bytes that fused norms and gates move (Liger: Hsu et al. 2024 report 20 % more throughput with several of them)."""

LOGITS = 14.0
"""Bytes that a forward moves for each logit: the head writes it in 16 bits, and the loss reads it, writes it in 32 bits, and reads and
writes that for the softmax and its logarithm (`ForCausalLMLoss` of transformers; Megatron's cross entropy). The backward moves 1.5 times as
much, as elsewhere. Kernels that fuse the head with the loss write none of it (Liger: Hsu et al. 2024)."""

WITH_NEWER_KERNELS = ("h100", "h100-pcie", "h100nvl", "h800", "h20", "h200", "gh200", "b200", "gb200", "b300", "gb300")
"""The GPUs with kernels for attention that are newer than FlashAttention-2."""

SMOOTH = 4
"""The exponent of the smooth maximum of the GPU's time and the host's."""


class Compute(Record):
    """Seconds of a micro batch on one rank: forward and backward without recomputation and flash attention, flash attention, what else is
    computed again, what adapters cost beside their model, what the last stage of a pipeline has to do beyond the others, and the launches
    of the host.
    """

    forward: float
    backward: float
    attention: float
    again: float
    adapters: float
    uneven: float
    launches: float

    @property
    def device(self) -> float:
        """Seconds of the GPU."""
        return self.forward + self.backward + self.attention + self.again + self.adapters


def flops_per_token(job: Job) -> float:
    """Operations of the model for a token, forward and backward, without recomputation: 6 for each parameter that the token passes, 4 for a
    frozen one, and 12 x layers x hidden x attended tokens, half of them with flash attention, which leaves out what the causal mask hides
    (Narayanan et al. 2021, appendix; Dao 2023).
    """
    dense = 4 * job.active + 2 * job.active * job.trained_share
    return dense + (6 if job.flash else 12) * job.layers * job.hidden * job.attended


def uses_tensor_cores(job: Job) -> bool:
    """Whether matrix products of the job's precision run on tensor cores: not in fp32, nor in bf16 on GPUs before Ampere."""
    return job.hardware.peak(job.precision) > job.hardware.single * 1e12


def rate(job: Job, c: Constants) -> float:
    """Operations per second of the model's matrix products."""
    peak, size = job.hardware.peak(job.precision), job.tokens * job.hidden / job.tensor
    share = job.hardware.reached if uses_tensor_cores(job) else IN_FP32
    width = job.hidden / job.tensor
    aligned = width < ALIGNED or width % ALIGNED == 0
    return peak * share * c.matmul * (1.0 if aligned else c.misaligned) * size / (size + c.half_point * peak / A100)


def compute(job: Job, c: Constants) -> Compute:
    """The compute of a micro batch on one rank."""
    here = job.tokens / (job.tensor * job.pipeline)
    speed, bandwidth = rate(job, c), job.hardware.memory * 1e9
    products = 2 * job.active * here / speed
    scores, scores_back = (0.0, 0.0) if job.flash else _attention_with_scores(job, c, speed)
    flash = (1 + job.copies + BACKWARD_OF_FLASH + job.recomputed) * _flash_attention(job, c) if job.flash else 0.0
    moved = c.traffic * (FUSED if job.fused else 1.0) * job.element / 2 * job.hidden * job.layers * here
    logits = 0.0 if job.fused else LOGITS * job.vocabulary * here
    memory = (moved + logits) / bandwidth
    forward = products + scores + memory
    backward = products * (1 + job.trained_share) + scores_back + BACKWARD_OF_MEMORY * memory
    head = 2 * job.vocabulary * job.hidden * here / speed * (2 + job.trained_share) + (1 + BACKWARD_OF_MEMORY) * logits / bandwidth
    launches = c.launch * max(job.layers_here, job.modules_here / MODULES) * (3 + job.recomputed + job.copies)
    beside = (DROPPED + ADDED) / 2 * job.element / 2 * job.adapted * here / bandwidth * (1 + BACKWARD_OF_MEMORY + job.recomputed)
    uneven = (job.pipeline - 1) * head
    return Compute((1 + job.copies) * forward, backward, flash, job.recomputed * forward, beside, uneven, launches)


def _operations_of_attention(job: Job) -> float:
    """Operations of attention's products in a forward, without what a causal mask lets a kernel leave out."""
    return 4 * job.attended * job.hidden * job.layers * job.tokens / (job.tensor * job.pipeline)


def _attention_with_scores(job: Job, c: Constants, speed: float) -> tuple[float, float]:
    """Seconds of attention that writes its scores, in the forward and in the backward."""
    here = job.tokens / (job.tensor * job.pipeline)
    heads = job.heads or max(1, job.hidden // 128)
    slow = WITHOUT_TENSOR_CORES * job.hardware.peak(job.precision) if (job.hidden // heads) % HEAD else speed
    scores = c.scores * job.element / 2 * heads * job.attended * job.layers * here / (job.hardware.memory * 1e9)
    forward = _operations_of_attention(job) / min(slow, speed) + scores
    return forward, 2 * forward


def _flash_attention(job: Job, c: Constants) -> float:
    """Seconds of flash attention in the forward: the geometric mean of its slowest and its fastest kernel."""
    if _gets_mask(job):
        return _operations_of_attention(job) / (EFFICIENT * _usual_flash(job, c))
    if job.kernel == FLASH_3:
        return _operations_of_attention(job) / 2 / max(_usual_flash(job, c), _newest(job))
    return _operations_of_attention(job) / 2 / (_usual_flash(job, c) * math.sqrt(spread(job, c)))


def _gets_mask(job: Job) -> bool:
    return job.masked and job.kernel in WITH_MASK


def _newest(job: Job) -> float:
    """Operations per second of the newest kernel's forward, 0 where there is none."""
    return NEWER_FLASH * job.hardware.peak(job.precision) if job.hardware.name in WITH_NEWER_KERNELS else 0.0


def _usual_flash(job: Job, c: Constants) -> float:
    """Operations per second of FlashAttention-2's forward."""
    return min(FLASH, job.hardware.peak(job.precision) * job.hardware.reached * c.flash)


def spread(job: Job, c: Constants) -> float:
    """How much faster attention is by the fastest kernel that may compute it than by FlashAttention-2: 1 where the kernel is known, and
    where this GPU has no newer one.
    """
    is_open = job.flash and job.kernel in WITH_MASK and not job.masked
    return max(1.0, _newest(job) / _usual_flash(job, c)) if is_open else 1.0


def paced(device: float, host: float) -> float:
    """Seconds of work for which the GPU needs `device`, and the host `host` to launch it."""
    top = max(device, host)
    return float(top * ((device / top) ** SMOOTH + (host / top) ** SMOOTH) ** (1 / SMOOTH)) if top else 0.0
