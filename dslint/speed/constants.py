"""The constants of the step-time model that no data sheet states.

They were fitted to 126 measured step times of 2021 to 2026 from eight public sources and to the order of the configs in 30 of their tables,
held near the figures that papers and documents state, by `python benchmarks/throughput.py FILE.jsonl --fit`. `--leave-one-out` scores each
source with constants that were fitted without it.
"""

from __future__ import annotations

from dslint.record import Record


class Constants(Record):
    """Shares are of 1, times in seconds.

    `matmul`: the share of what large matrix products reach that those of a whole model do. `half_point`: tokens x hidden size of a micro
    batch, per rank of tensor parallelism, at which an A100 reaches half of that; it is proportional to the peak. `misaligned`: the share
    that remains where a dimension is not a multiple of 64. `flash`: flash attention's share of the rate of matrix products.
    `traffic`: bytes that norms, activations and residuals move in 16 bits per token, layer and unit of the hidden size in a forward.
    `scores`: bytes per attention score in a forward without flash attention, in 16 bits. `launch`: the host's time per layer and pass;
    a layer whose experts are modules of their own counts as many layers as it has times their modules.
    `gather`: the same per module and pass for the hooks of stage 3. `latency`: of a collective operation between machines.
    `overlapped` and `overlapped3`: the share of compute that hides communication, below and at stage 3. `streaming`: the share of the
    usual bandwidth that stage 3's gathers of single layers reach. `adam`: the share of the bandwidth of a machine's memory that the CPU
    optimizer reaches. `unpinned`: the share of PCIe's bandwidth without page-locked memory. `step`: the time of a step outside of all
    these.
    """

    matmul: float = 0.73
    half_point: float = 1.64e6
    misaligned: float = 0.86
    flash: float = 0.65
    traffic: float = 60.0
    scores: float = 11.0
    launch: float = 0.25e-3
    gather: float = 0.45e-3
    latency: float = 30e-6
    overlapped: float = 0.46
    overlapped3: float = 0.48
    streaming: float = 0.64
    adam: float = 0.083
    unpinned: float = 0.5
    step: float = 0.022


FITTED = Constants()
