"""GPUs and links: peaks, memory bandwidth, and the bandwidth between GPUs, between machines, and to the host.

Peaks are those of dense matrix products, without sparsity. Each row of the table names its source; those of a GPU without a public figure
of its own follow a neighbour. `reached` is explained below the table.

In November 2026 the peaks, the memory bandwidth and the links of these rows were compared with a second page, and agree (read as dense and
in one direction): A100, H100, B200 and B300 (glennklockwood.com/garden/processors), H100 PCIe (archive-lib.hpctech.co.jp), H20
(zangshuxian.com), L40 and L40S (mullet.se), L4 (grokipedia.com), A40 (ecer.com), A6000, T4 and V100 (sysrqmts.com), P100 and RTX 4090
(hmc-tech.com), RTX 5090 (spheron.network), MI250X (zexron.com), MI300X (gpu.blog, codesota.com), MI325X and MI355X (memory only), Gaudi 2
and 3 (Intel's slides of August 2024, sgpjbg.com). Of the Ascend 910B pages state 320 to 400 TFLOPS, by variant; 376 is the 910B2's.
"""

from __future__ import annotations

import re

from dslint.facts.gpus import Gpu
from dslint.record import Record


class Hardware(Record):
    """A GPU. `half`, `bf16` and `single` are TFLOPS in fp16, bf16 and fp32 (PyTorch does not use TF32 unless it is asked to); `reached` is
    the share of the peak in 16 bits that large matrix products reach. `memory` is the bandwidth of its memory, `link` that to the other
    GPUs of its machine in one direction, `host` that of its PCIe slot (or C2C link) in one direction, in GB/s. `direct`: the GPUs of a
    machine are linked directly (NVLink, Infinity Fabric). `source` is where the figures come from, but for `reached`.
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
    source: str

    def peak(self, precision: str) -> float:
        """Operations per second in `fp16`, `bf16` or `fp32`."""
        return {"fp16": self.half, "bf16": self.bf16}.get(precision, self.single) * 1e12


GEN3, GEN4, GEN5, GEN6 = 16.0, 32.0, 64.0, 128.0
"""GB/s of 16 PCIe lanes in one direction, by generation."""

HARDWARE = {
    name: Hardware(name, half, bf16, single, memory, link or host, host, reached, link is not None, source)
    for name, half, bf16, single, memory, link, host, reached, source in (
        ("p100", 21.2, 10.6, 10.6, 732, 80.0, GEN3, 0.8, "NVIDIA, Tesla P100 data sheet"),
        ("v100-16gb", 125, 15.7, 15.7, 900, 150.0, GEN3, 0.7, "NVIDIA, V100 data sheet"),
        ("v100", 125, 15.7, 15.7, 900, 150.0, GEN3, 0.7, "NVIDIA, V100 data sheet"),
        ("p40", 11.8, 11.8, 11.8, 346, None, GEN3, 0.8, "NVIDIA, Tesla P40 data sheet; its fp16 is slower than fp32"),
        ("gtx1080ti", 11.3, 11.3, 11.3, 484, None, GEN3, 0.8, "NVIDIA, GeForce GTX 1080 Ti specifications; its fp16 is slower than fp32"),
        ("t4", 65, 8.1, 8.1, 320, None, GEN3, 0.5, "NVIDIA, T4 data sheet"),
        ("rtx2080ti", 53.8, 13.4, 13.4, 616, None, GEN3, 0.8, "NVIDIA, Turing architecture white paper, fp32 accumulation"),
        ("titanrtx", 130.5, 16.3, 16.3, 672, None, GEN3, 0.6, "NVIDIA, Turing architecture white paper, fp32 accumulation"),
        ("rtx6000", 130.5, 16.3, 16.3, 672, None, GEN3, 0.6, "NVIDIA, Turing architecture white paper, fp32 accumulation"),
        ("rtx8000", 130.5, 16.3, 16.3, 672, None, GEN3, 0.6, "NVIDIA, Turing architecture white paper, fp32 accumulation"),
        ("a10", 125, 125, 31.2, 600, None, GEN4, 0.6, "NVIDIA, A10 data sheet"),
        ("a10g", 70, 70, 31.5, 600, None, GEN4, 0.8, "AWS, Amazon EC2 G5 instances"),
        ("a30", 165, 165, 10.3, 933, None, GEN4, 0.75, "NVIDIA, A30 data sheet"),
        ("a40", 149.7, 149.7, 37.4, 696, None, GEN4, 0.7, "NVIDIA, A40 data sheet"),
        ("a4000", 76.7, 76.7, 19.2, 448, None, GEN4, 0.5, "NVIDIA, RTX A4000 data sheet"),
        ("a5000", 111.1, 111.1, 27.8, 768, None, GEN4, 0.7, "NVIDIA, RTX A5000 data sheet"),
        ("a6000", 154.8, 154.8, 38.7, 768, None, GEN4, 0.7, "NVIDIA, RTX A6000 data sheet"),
        ("rtx6000ada", 364, 364, 91.1, 960, None, GEN4, 0.65, "NVIDIA, RTX 6000 Ada data sheet"),
        ("rtx3060", 25.4, 25.4, 12.7, 360, None, GEN4, 0.9, "NVIDIA, GeForce RTX 3060 specifications, by the ratios of rtx3090"),
        ("rtx3070", 40.6, 40.6, 20.3, 448, None, GEN4, 0.9, "NVIDIA, Ampere GA104 white paper, fp32 accumulation"),
        ("rtx3080", 59.5, 59.5, 29.8, 760, None, GEN4, 0.9, "NVIDIA, Ampere GA102 architecture white paper, fp32 accumulation"),
        ("rtx3080ti", 68.2, 68.2, 34.1, 912, None, GEN4, 0.9, "NVIDIA, GeForce RTX 3080 Ti specifications, by the ratios of rtx3090"),
        ("rtx3090ti", 80, 80, 40, 1008, None, GEN4, 0.9, "NVIDIA, GeForce RTX 3090 Ti specifications, by the ratios of rtx3090"),
        ("rtx3090", 71, 71, 35.6, 936, None, GEN4, 0.9, "NVIDIA, Ampere GA102 architecture white paper, fp32 accumulation"),
        ("a100-40gb", 312, 312, 19.5, 1555, 300.0, GEN4, 0.8, "NVIDIA, A100 data sheet"),
        ("a100", 312, 312, 19.5, 2039, 300.0, GEN4, 0.8, "NVIDIA, A100 data sheet"),
        ("a800", 312, 312, 19.5, 2039, 200.0, GEN4, 0.8, "NVIDIA, A100 data sheet; A800: NVLink of 400 GB/s"),
        ("l4", 121, 121, 30.3, 300, None, GEN4, 0.5, "NVIDIA, L4 data sheet"),
        ("l40", 181, 181, 90.5, 864, None, GEN4, 0.8, "NVIDIA, L40 data sheet"),
        ("l20", 119.5, 119.5, 59.8, 864, None, GEN4, 0.8, "NVIDIA, L20 data sheet"),
        ("l40s", 362, 362, 91.6, 864, None, GEN4, 0.65, "NVIDIA, L40S data sheet"),
        (
            "rtx4080",
            104.4,
            104.4,
            52.2,
            736,
            None,
            GEN4,
            0.85,
            "NVIDIA, GeForce RTX 4080 SUPER specifications, by the ratios of the Ada architecture white paper",
        ),
        ("rtx4090", 165.2, 165.2, 82.6, 1008, None, GEN4, 0.9, "NVIDIA, Ada architecture white paper, fp32 accumulation"),
        ("rtx5090", 209.5, 209.5, 104.8, 1792, None, GEN5, 0.9, "NVIDIA, RTX Blackwell architecture white paper, fp32 accumulation"),
        ("rtx5080", 112.6, 112.6, 56.3, 960, None, GEN5, 0.9, "NVIDIA, RTX Blackwell architecture white paper, fp32 accumulation"),
        ("rtxpro6000", 503.8, 503.8, 125.9, 1792, None, GEN5, 0.7, "after rtx5090, by the ratio of their dense peaks"),
        ("h100", 989, 989, 67, 3350, 450.0, GEN5, 0.7, "NVIDIA, H100 data sheet"),
        ("h100-pcie", 756, 756, 51, 2000, None, GEN5, 0.65, "NVIDIA, H100 data sheet"),
        ("h100nvl", 835, 835, 60, 3938, 300.0, GEN5, 0.65, "NVIDIA, H100 data sheet"),
        ("h800", 989, 989, 67, 3350, 200.0, GEN5, 0.7, "NVIDIA, H100 data sheet; H800: NVLink of 400 GB/s"),
        ("h20", 148, 148, 44, 4000, 450.0, GEN5, 0.92, "NVIDIA, H20 data sheet"),
        ("gh200", 989, 989, 67, 4000, 450.0, 450.0, 0.7, "NVIDIA, GH200 data sheet"),
        ("h200", 989, 989, 67, 4800, 450.0, GEN5, 0.72, "NVIDIA, H200 data sheet"),
        ("b200", 2250, 2250, 75, 8000, 900.0, GEN5, 0.7, "NVIDIA, DGX B200 data sheet"),
        ("gb200", 2500, 2500, 80, 8000, 900.0, 450.0, 0.7, "after b200, by the ratio of their dense peaks"),
        ("b300", 2250, 2250, 75, 8000, 900.0, GEN6, 0.7, "after b200, by the ratio of their dense peaks"),
        ("gb300", 2500, 2500, 80, 8000, 900.0, 450.0, 0.7, "after gb200, by the ratio of their dense peaks"),
        ("mi100", 184.6, 92.3, 23.1, 1229, None, GEN4, 0.6, "AMD, Instinct MI100 data sheet"),
        ("mi210", 181, 181, 22.6, 1638, None, GEN4, 0.6, "AMD, Instinct MI210 data sheet"),
        ("mi250x", 191.5, 191.5, 23.9, 1638, 100.0, GEN4, 0.6, "AMD, Instinct MI250X data sheet (one of its two dies)"),
        ("mi300a", 980.6, 980.6, 122.6, 5300, 384.0, GEN5, 0.47, "AMD, Instinct MI300A data sheet"),
        ("mi300x", 1307, 1307, 163.4, 5300, 448.0, GEN5, 0.47, "AMD, Instinct MI300X data sheet"),
        ("mi325x", 1307, 1307, 163.4, 6000, 448.0, GEN5, 0.47, "AMD, Instinct MI325X data sheet"),
        ("mi350x", 2300, 2300, 144.2, 8000, 537.6, GEN5, 0.47, "AMD, Instinct MI350 series data sheets"),
        ("mi355x", 2500, 2500, 157.3, 8000, 537.6, GEN5, 0.47, "AMD, Instinct MI350 series data sheets"),
        (
            "gaudi2",
            432,
            432,
            11,
            2450,
            262.5,
            GEN4,
            0.6,
            "Intel, Gaudi 2 and 3 white papers; 21 of 24 ports lead to the others of the machine",
        ),
        (
            "gaudi3",
            1835,
            1835,
            14.3,
            3700,
            525.0,
            GEN5,
            0.5,
            "Intel, Gaudi 2 and 3 white papers; 21 of 24 ports lead to the others of the machine",
        ),
        ("ascend910b", 376, 376, 94, 1600, 196.0, GEN5, 0.6, "Huawei, Ascend 910B"),
        ("ascend910c", 752, 752, 188, 3200, 392.0, GEN5, 0.6, "after ascend910b, by the ratio of their dense peaks"),
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


HOST_MEMORY = {GEN3: 256e9, GEN4: 410e9, GEN5: 614e9, GEN6: 819e9}
"""Bytes per second of the memory of a machine with GPUs of a PCIe generation: all channels of its two sockets, six of DDR4-2666 (DGX-2),
eight of DDR4-3200 (DGX A100), eight of DDR5-4800 (DGX H100), eight of DDR5-6400 (NVIDIA's user guides; Intel's and AMD's product
pages)."""

SUPERCHIP_MEMORY = 500e9
"""Bytes per second of the LPDDR5X of a Grace CPU (NVIDIA, GH200 data sheet). Each GPU of a machine has its own."""


def host_memory(hardware: Hardware, local: int) -> float:
    """Bytes per second of the memory of a machine with so many GPUs."""
    return HOST_MEMORY.get(hardware.host, SUPERCHIP_MEMORY * local)


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
