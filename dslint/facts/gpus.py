"""Known GPUs: memory and compute capability, from vendor specifications."""

from __future__ import annotations

import re
from typing import NamedTuple

from dslint.source.integers import integer
from dslint.source.similar import similar

GIB = 2**30

UNITS = {"": 1, "b": 1, "kb": 10**3, "mb": 10**6, "gb": 10**9, "tb": 10**12, "kib": 2**10, "mib": 2**20, "gib": 2**30, "tib": 2**40}


class Gpu(NamedTuple):
    """A GPU model: the memory in bytes that programs see, and its compute capability (None for other vendors than NVIDIA)."""

    name: str
    memory: int
    capability: tuple[int, int] | None

    def __str__(self) -> str:
        return self.name

    @property
    def has_bf16(self) -> bool:
        """Whether it supports bfloat16: Ampere and newer, and AMD's MI200 and newer."""
        return self.capability is None or self.capability >= (8, 0)


GPUS = {
    gpu.name: gpu
    for gpu in (
        Gpu("p100", 16 * GIB, (6, 0)),
        Gpu("v100-16gb", 16 * GIB, (7, 0)),
        Gpu("v100", 32 * GIB, (7, 0)),
        Gpu("t4", 15 * GIB, (7, 5)),
        Gpu("rtx2080ti", 11 * GIB, (7, 5)),
        Gpu("a10", 22 * GIB, (8, 6)),
        Gpu("a10g", 22 * GIB, (8, 6)),
        Gpu("a40", 45 * GIB, (8, 6)),
        Gpu("a6000", 48 * GIB, (8, 6)),
        Gpu("rtx3090", 24 * GIB, (8, 6)),
        Gpu("a100-40gb", 40 * GIB, (8, 0)),
        Gpu("a100", 80 * GIB, (8, 0)),
        Gpu("a800", 80 * GIB, (8, 0)),
        Gpu("l4", 22 * GIB, (8, 9)),
        Gpu("l40s", 45 * GIB, (8, 9)),
        Gpu("rtx4090", 24 * GIB, (8, 9)),
        Gpu("rtx5090", 32 * GIB, (12, 0)),
        Gpu("h100", 80 * GIB, (9, 0)),
        Gpu("h800", 80 * GIB, (9, 0)),
        Gpu("h20", 96 * GIB, (9, 0)),
        Gpu("gh200", 96 * GIB, (9, 0)),
        Gpu("h200", 140 * GIB, (9, 0)),
        Gpu("b200", 180 * GIB, (10, 0)),
        Gpu("mi250x", 64 * GIB, None),
        Gpu("mi300x", 192 * GIB, None),
    )
}
"""By name, in lower case without blanks. The memory is that of one GPU (for an MI250X: of one of its two dies)."""


def gpu_named(text: str) -> Gpu:
    """The GPU with a name such as `h100`, `A100-40GB`, `RTX 4090`, `NVIDIA H100`.

    Raises:
        ValueError: the GPU is unknown; the text lists the known ones.
    """
    name = re.sub(r"[\s_]+", "-", text.strip().lower())
    name = re.sub(r"nvidia|amd|tesla|geforce|instinct|hbm\d?e?|sxm\d?|pcie", "", name)
    before, dash, last = name.rstrip("-").rpartition("-")
    gib = integer(last.removesuffix("gb")) if dash and last.endswith("gb") else None
    bare = (name if gib is None else before).replace("-", "")
    for family in (bare, f"rtx{bare}", bare.removeprefix("rtx")):
        for known in (family, family if gib is None else f"{family}-{gib}gb"):
            if known in GPUS and (gib is None or GPUS[known].memory == gib * GIB):
                return GPUS[known]
    close = similar(name, GPUS)
    raise ValueError(f"is not a known GPU.{f' Did you mean {close[0]}?' if close else ''} Known GPUs: {', '.join(GPUS)}")


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
