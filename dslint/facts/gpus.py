"""Known GPUs: memory and compute capability, from vendor specifications."""

from __future__ import annotations

import re
from collections.abc import Sequence

from dslint.record import Record
from dslint.source.integers import integer
from dslint.source.similar import similar

GIB = 2**30

UNITS = {"": 1, "b": 1, "kb": 10**3, "mb": 10**6, "gb": 10**9, "tb": 10**12, "kib": 2**10, "mib": 2**20, "gib": 2**30, "tib": 2**40}


class Gpu(Record):
    """A GPU model: the memory that programs see in bytes, its compute capability (None for other vendors than NVIDIA), and the memory in
    its name in GB.
    """

    name: str
    memory: int
    capability: tuple[int, int] | None
    sold: int

    def __str__(self) -> str:
        return self.name

    @property
    def is_amd(self) -> bool:
        """Whether it is one of AMD's Instinct series, which all are named MI."""
        return self.name.startswith("mi")

    @property
    def has_bf16(self) -> bool:
        """Whether it supports bfloat16: Ampere and newer, and AMD's MI200 and newer."""
        return self.capability is None or self.capability >= (8, 0)


GPUS = {
    name: Gpu(name, int(seen * GIB), capability, sold)
    for name, sold, seen, capability in (
        ("p100", 16, 15.9, (6, 0)),
        ("p40", 24, 22.38, (6, 1)),
        ("gtx1080ti", 11, 10.91, (6, 1)),
        ("v100-16gb", 16, 15.77, (7, 0)),
        ("v100", 32, 31.73, (7, 0)),
        ("t4", 16, 14.57, (7, 5)),
        ("rtx2080ti", 11, 10.75, (7, 5)),
        ("titanrtx", 24, 23.6, (7, 5)),
        ("rtx8000", 48, 47.46, (7, 5)),
        ("a10", 24, 22.03, (8, 6)),
        ("a10g", 24, 22.03, (8, 6)),
        ("a40", 48, 44.35, (8, 6)),
        ("a4000", 16, 15.61, (8, 6)),
        ("a5000", 24, 23.54, (8, 6)),
        ("a6000", 48, 47.4, (8, 6)),
        ("rtx3060", 12, 11.65, (8, 6)),
        ("rtx3070", 8, 7.78, (8, 6)),
        ("rtx3080", 10, 9.78, (8, 6)),
        ("rtx3080ti", 12, 11.65, (8, 6)),
        ("rtx3090", 24, 23.57, (8, 6)),
        ("rtx3090ti", 24, 23.54, (8, 6)),
        ("a100-40gb", 40, 39.38, (8, 0)),
        ("a100", 80, 79.14, (8, 0)),
        ("a800", 80, 79.14, (8, 0)),
        ("a30", 24, 23.5, (8, 0)),
        ("rtx6000ada", 48, 47.4, (8, 9)),
        ("l40", 48, 44.39, (8, 9)),
        ("l20", 48, 44.39, (8, 9)),
        ("l4", 24, 22.03, (8, 9)),
        ("l40s", 48, 44.39, (8, 9)),
        ("rtx4090", 24, 23.52, (8, 9)),
        ("rtx4080", 16, 15.6, (8, 9)),
        ("rtx5080", 16, 15.45, (12, 0)),
        ("rtx5090", 32, 31.36, (12, 0)),
        ("rtxpro6000", 96, 94.97, (12, 0)),
        ("h100nvl", 94, 93.1, (9, 0)),
        ("h100", 80, 79.1, (9, 0)),
        ("h800", 80, 79.1, (9, 0)),
        ("h20", 96, 95.0, (9, 0)),
        ("gh200", 96, 94.5, (9, 0)),
        ("h200", 141, 139.7, (9, 0)),
        ("b200", 192, 178.3, (10, 0)),
        ("gb200", 186, 183.0, (10, 0)),
        ("b300", 288, 267.0, (10, 3)),
        ("gb300", 288, 275.0, (10, 3)),
        ("mi100", 32, 31.98, None),
        ("mi210", 64, 63.98, None),
        ("mi250x", 64, 63.98, None),
        ("mi300a", 128, 96.0, None),
        ("mi300x", 192, 191.6, None),
        ("mi325x", 256, 255.5, None),
        ("mi350x", 288, 287.5, None),
        ("mi355x", 288, 287.5, None),
        ("gaudi2", 96, 94.0, None),
        ("gaudi3", 128, 125.0, None),
        ("ascend910b", 64, 60.9, None),
        ("ascend910c", 64, 60.9, None),
    )
}
"""By name, in lower case without blanks: the memory in its name, and what a program sees of it, in GiB: the least that
`torch.cuda.get_device_properties` and messages of "CUDA out of memory" report. For an MI250X and an Ascend 910C, it is that of one of
their two dies. An MI300A lets programs allocate 96 of its 128 GiB, unless the driver is told otherwise (ROCm, "MI300A system
optimization"). Those of L20, B300, GB200, GB300, Gaudi, AMD but the MI250X and MI300X, TITAN
RTX and RTX 3080 Ti were not seen: they have the share of the memory in their name that the closest one shows, rounded down."""


def smaller_than(gpu: Gpu) -> Gpu | None:
    """The GPU of the same name with less memory, if one was sold."""
    return next((one for name, one in GPUS.items() if name.startswith(f"{gpu.name}-") and one.sold < gpu.sold), None)


class UnknownGpu(ValueError):
    """The name of a GPU that is not known; `close` are known names that are like it, the most similar first."""

    def __init__(self, close: Sequence[str]) -> None:
        super().__init__(f"is not a known GPU.{f' Did you mean {close[0]}?' if close else ''} Known GPUs: {', '.join(GPUS)}")
        self.close = tuple(close)


def gpu_named(text: str) -> Gpu:
    """The GPU with a name such as `h100`, `A100-40GB`, `A800 80G`, `RTX 4090`, `NVIDIA H100`.

    Raises:
        UnknownGpu: the GPU is unknown; the text lists the known ones.
    """
    name = re.sub(r"[\s_]+", "-", text.strip().lower())
    name = re.sub(r"nvidia|amd|huawei|intel|quadro|tesla|geforce|instinct|hbm\d?e?|sxm\d?|pcie", "", name)
    before, dash, last = name.rstrip("-").rpartition("-")
    gib = integer(last.removesuffix("b").removesuffix("g")) if dash and last.endswith(("gb", "g")) else None
    bare = (name if gib is None else before).replace("-", "")
    for family in (bare, f"rtx{bare}", bare.removeprefix("rtx"), f"gtx{bare}", f"ascend{bare}"):
        for known in (family, family if gib is None else f"{family}-{gib}gb"):
            if known in GPUS and (gib is None or GPUS[known].sold == gib):
                return GPUS[known]
    raise UnknownGpu(similar(name, GPUS))


def size(text: str) -> int:
    """The bytes in `80GiB`, `80 GB`, `2TiB`, `85899345920`.

    Raises:
        ValueError: the text is not a size.
    """
    match = re.fullmatch(r"(\d{1,18}(?:\.\d{1,18})?)\s*+([kmgt]?i?b?)", text.strip().lower())
    unit = match and (match[2] if match[2] in UNITS else match[2] + "b")
    if not match or unit not in UNITS or float(match[1]) <= 0:
        raise ValueError(text)
    if not match[2] and float(match[1]) < UNITS["mib"]:  # a size without a unit below 1 MiB is a mistake
        raise ValueError(text)
    return int(float(match[1]) * UNITS[unit])


def in_words(size: int) -> str:
    """Bytes as text: `80 GiB`, `1.5 TiB`, `512 MiB`."""
    for unit in ("TiB", "GiB", "MiB", "KiB"):
        if size >= UNITS[unit.lower()]:
            return (
                f"{size / UNITS[unit.lower()]:.3g} {unit}"
                if size < 1000 * UNITS[unit.lower()]
                else f"{size / UNITS[unit.lower()]:,.0f} {unit}"
            )
    return f"{size} bytes"
