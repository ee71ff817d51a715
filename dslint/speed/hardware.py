"""GPUs and links: peaks, memory bandwidth, and the bandwidth between GPUs, between machines, and to the host.

Peaks are those of dense matrix products, without sparsity. Sources: the data sheets of the vendors (NVIDIA: P100, V100, T4, A10, A40, RTX
A6000, A100, A800, L4, L40S, H100, H20, GH200, H200, B200, and the architecture white papers of Turing, Ampere GA102, Ada and Blackwell
for GeForce, Titan and Quadro, with fp32 accumulation; AMD: Instinct MI210 to MI355X; Intel: Gaudi 2 and 3; Huawei: Ascend 910B); AWS for
the A10G. 21 of the 24 ports of a Gaudi lead to the others of its machine. B300, GB200, GB300, RTX PRO 6000 and Ascend 910C follow their
neighbours by the ratio of their dense peaks; `reached` of all these is that of a neighbour of the same generation.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from dslint.facts.gpus import Gpu


class Hardware(NamedTuple):
    """A GPU. `half`, `bf16` and `single` are TFLOPS in fp16, bf16 and fp32 (PyTorch does not use TF32 unless it is asked to); `reached` is
    the share of the peak in 16 bits that large matrix products reach. `memory` is the bandwidth of its memory, `link` that to the other
    GPUs of its machine in one direction, `host` that of its PCIe slot (or C2C link) in one direction, in GB/s. `direct`: the GPUs of a
    machine are linked directly (NVLink, Infinity Fabric).
    """

    name: str
    half: float
    bf16: float
    single: float
    memory: float
    link: float
    host: float
    reached: float
    direct: bool

    def peak(self, precision: str) -> float:
        """Operations per second in `fp16`, `bf16` or `fp32`."""
        return {"fp16": self.half, "bf16": self.bf16}.get(precision, self.single) * 1e12


GEN3, GEN4, GEN5, GEN6 = 16.0, 32.0, 64.0, 128.0
"""GB/s of 16 PCIe lanes in one direction, by generation."""

HARDWARE = {
    name: Hardware(name, half, bf16, single, memory, link or host, host, reached, link is not None)
    for name, half, bf16, single, memory, link, host, reached in (
        ("p100", 21.2, 10.6, 10.6, 732, 80.0, GEN3, 0.8),
        ("v100-16gb", 125, 15.7, 15.7, 900, 150.0, GEN3, 0.7),
        ("v100", 125, 15.7, 15.7, 900, 150.0, GEN3, 0.7),
        ("t4", 65, 8.1, 8.1, 320, None, GEN3, 0.5),
        ("rtx2080ti", 53.8, 13.4, 13.4, 616, None, GEN3, 0.8),
        ("titanrtx", 130.5, 16.3, 16.3, 672, None, GEN3, 0.6),
        ("rtx6000", 130.5, 16.3, 16.3, 672, None, GEN3, 0.6),
        ("rtx8000", 130.5, 16.3, 16.3, 672, None, GEN3, 0.6),
        ("a10", 125, 125, 31.2, 600, None, GEN4, 0.6),
        ("a10g", 70, 70, 31.5, 600, None, GEN4, 0.8),
        ("a30", 165, 165, 10.3, 933, None, GEN4, 0.75),
        ("a40", 149.7, 149.7, 37.4, 696, None, GEN4, 0.7),
        ("a6000", 154.8, 154.8, 38.7, 768, None, GEN4, 0.7),
        ("rtx6000ada", 364, 364, 91.1, 960, None, GEN4, 0.65),
        ("rtx3090", 71, 71, 35.6, 936, None, GEN4, 0.9),
        ("a100-40gb", 312, 312, 19.5, 1555, 300.0, GEN4, 0.8),
        ("a100", 312, 312, 19.5, 2039, 300.0, GEN4, 0.8),
        ("a800", 312, 312, 19.5, 2039, 200.0, GEN4, 0.8),
        ("l4", 121, 121, 30.3, 300, None, GEN4, 0.5),
        ("l40", 181, 181, 90.5, 864, None, GEN4, 0.8),
        ("l40s", 362, 362, 91.6, 864, None, GEN4, 0.65),
        ("rtx4080", 104.4, 104.4, 52.2, 736, None, GEN4, 0.85),
        ("rtx4090", 165.2, 165.2, 82.6, 1008, None, GEN4, 0.9),
        ("rtx5090", 209.5, 209.5, 104.8, 1792, None, GEN5, 0.9),
        ("rtx5080", 112.6, 112.6, 56.3, 960, None, GEN5, 0.9),
        ("rtxpro6000", 503.8, 503.8, 125.9, 1792, None, GEN5, 0.7),
        ("h100", 989, 989, 67, 3350, 450.0, GEN5, 0.7),
        ("h100-pcie", 756, 756, 51, 2000, None, GEN5, 0.65),
        ("h100nvl", 835, 835, 60, 3938, 300.0, GEN5, 0.65),
        ("h800", 989, 989, 67, 3350, 200.0, GEN5, 0.7),
        ("h20", 148, 148, 44, 4000, 450.0, GEN5, 0.92),
        ("gh200", 989, 989, 67, 4000, 450.0, 450.0, 0.7),
        ("h200", 989, 989, 67, 4800, 450.0, GEN5, 0.72),
        ("b200", 2250, 2250, 75, 8000, 900.0, GEN5, 0.7),
        ("gb200", 2500, 2500, 80, 8000, 900.0, 450.0, 0.7),
        ("b300", 2250, 2250, 75, 8000, 900.0, GEN6, 0.7),
        ("gb300", 2500, 2500, 80, 8000, 900.0, 450.0, 0.7),
        ("mi210", 181, 181, 22.6, 1638, None, GEN4, 0.6),
        ("mi250x", 191.5, 191.5, 23.9, 1638, 100.0, GEN4, 0.6),
        ("mi300x", 1307, 1307, 163.4, 5300, 448.0, GEN5, 0.47),
        ("mi325x", 1307, 1307, 163.4, 6000, 448.0, GEN5, 0.47),
        ("mi350x", 2300, 2300, 144.2, 8000, 537.6, GEN5, 0.47),
        ("mi355x", 2500, 2500, 157.3, 8000, 537.6, GEN5, 0.47),
        ("gaudi2", 432, 432, 11, 2450, 262.5, GEN4, 0.6),
        ("gaudi3", 1835, 1835, 14.3, 3700, 525.0, GEN5, 0.5),
        ("ascend910b", 376, 376, 94, 1600, 196.0, GEN5, 0.6),
        ("ascend910c", 752, 752, 188, 3200, 392.0, GEN5, 0.6),
    )
}
"""By the names of `facts.gpus`, and further GPUs. `reached`: large matrix products measured by SemiAnalysis
(MI300X against H100 and H200, December 2024: 620 and 720 TFLOPS in bf16); by Stas Bekman's "mamf" tables (machine learning engineering
book: A100 87 %, H100 80 %, MI300X 54 % at the best shape, which a whole model never has everywhere); for GPUs of less than 150 W the share
that their power allows; the others like the nearest of their generation."""

WITHIN, TO_HOST, BETWEEN = 0.78, 0.8, 0.8
"""The share of a link's bandwidth that collective operations reach for large messages: within a machine (nccl-tests' all-gather on 8 A100:
about 235 of 300 GB/s), over PCIe with page-locked memory (about 25 of 32 GB/s), and between machines (about 20 of 25 GB/s for each 200
Gb/s)."""

SHARED = 0.35
"""The same share between GPUs that are only linked by PCIe: they share the bus, and what one sends passes through the host."""

LINKED_NETWORK, PLAIN_NETWORK = 100.0, 100.0
"""Gb/s for each GPU of a machine with direct links, and for a whole machine without them, where no network was given. Public clusters with
NVLink have 50 (V100, A100 of 2022) to 400 (H100) for each GPU."""


def assumed_network(hardware: Hardware, local: int) -> float:
    """Bytes per second between machines with so many GPUs, where no network was given."""
    return (LINKED_NETWORK * local if hardware.direct else PLAIN_NETWORK) * 1e9 / 8


def hardware_named(text: str) -> Hardware | None:
    """The GPU in a free text such as `A100-SXM4 40GiB`, `NVIDIA H100 PCIe`, `RTX 4080 SUPER 16GiB`; None if it is unknown."""
    plain = re.sub(r"[^a-z0-9]+", "", text.lower())
    gib = re.search(r"(\d+)\s*gi?b", text.lower())
    pcie = "pcie" in plain
    best = max((name for name in HARDWARE if name.split("-")[0] in plain), key=lambda name: len(name.split("-")[0]), default=None)
    if best is None:
        return None
    family = best.split("-")[0]
    for suffix in (*([f"-{gib[1]}gb"] if gib else []), *(["-pcie"] if pcie else [])):
        if family + suffix in HARDWARE:
            return HARDWARE[family + suffix]
    return HARDWARE[family]


def hardware_of(gpu: Gpu | None) -> Hardware:
    """The hardware of a GPU of the facts; an A100 if none was given."""
    return HARDWARE.get(gpu.name, HARDWARE["a100"]) if gpu else HARDWARE["a100"]


def network_rate(text: str) -> float:
    """Bytes per second of a machine for `8x400Gb/s`, `200Gb/s` or `25GB/s`.

    Raises:
        ValueError: the text is not such a rate.
    """
    match = re.fullmatch(r"(?:(\d{1,3})\s*[x*]\s*)?(\d{1,6}(?:\.\d{1,6})?)\s*(G|M|T)(b|bit|B)(?:/s|ps)?", text.strip())
    if not match or not float(match[2]) or match[1] == "0":
        raise ValueError(text)
    scale = {"M": 1e6, "G": 1e9, "T": 1e12}[match[3]]
    return int(match[1] or 1) * float(match[2]) * scale / (1 if match[4] == "B" else 8)
