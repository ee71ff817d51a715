"""Reads the statistics of the CUDA allocator and the memory of the process; peaks are reset at the start of each phase."""

from __future__ import annotations

import re
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch

from dslint.probe.answer import Memory


class CudaGauge:
    """The allocator's statistics, phase by phase."""

    def __init__(self) -> None:
        self._phase = "build"
        self._peaks: dict[str, int] = {}
        self._reserved = 0
        self._host = HostGauge()
        torch.cuda.reset_peak_memory_stats()

    def enter(self, phase: str) -> None:
        """Begin a phase, and end the previous one."""
        self._note()
        self._phase = phase
        self._host.enter(phase)
        torch.cuda.reset_peak_memory_stats()

    def now(self) -> Counter[str]:
        """Allocated bytes."""
        return Counter(device=torch.cuda.memory_allocated(), host=self._host.now())

    def memory(self, initialized: Counter[str]) -> dict[str, Memory]:
        """The counted memory. `initialized` is what was allocated after initialize."""
        self._note()
        stats: dict[str, Any] = torch.cuda.memory_stats()
        free, total = torch.cuda.mem_get_info()
        return {
            "device": Memory(
                initialized["device"],
                torch.cuda.memory_allocated(),
                dict(self._peaks),
                reserved=self._reserved,
                driver=total - free,
                context=total - free - torch.cuda.memory_reserved(),
                retries=stats.get("num_alloc_retries", 0),
                out_of_memory=stats.get("num_ooms", 0),
            ),
            **self._host.memory(initialized["host"]),
        }

    @staticmethod
    def copies() -> float:
        """Bytes per second from page-locked host memory to the GPU and back, the slower of both."""
        there = torch.empty(2**28, dtype=torch.uint8, device="cuda")
        here = torch.empty(2**28, dtype=torch.uint8, pin_memory=True)
        times = []
        for target, source in ((there, here), (here, there)):
            target.copy_(source)  # the first copy also allocates
            torch.cuda.synchronize()
            start = time.perf_counter()
            for _ in range(4):
                target.copy_(source, non_blocking=True)
            torch.cuda.synchronize()
            times.append((time.perf_counter() - start) / 4)
        return float(there.numel() / max(times))

    def timeline(self) -> list[tuple[int, int, int, str]]:
        """Empty: only the allocator's snapshot has memory over time."""
        return []

    def _note(self) -> None:
        self._peaks[self._phase] = max(self._peaks.get(self._phase, 0), torch.cuda.max_memory_allocated())
        self._reserved = max(self._reserved, torch.cuda.max_memory_reserved())


class HostGauge:
    """The resident memory of this process beyond what the libraries held before the model was built, phase by phase. Only Linux says it.

    It is what the kernel counts: besides tensors also what the allocators of Python and of the C library keep.
    """

    def __init__(self) -> None:
        self._phase = "build"
        self._peaks: dict[str, int] = {}
        self._before = _resident("VmRSS")
        _forget_peak()

    def enter(self, phase: str) -> None:
        """Begin a phase, and end the previous one."""
        self._note()
        self._phase = phase
        _forget_peak()

    def now(self) -> int:
        """Bytes in use now."""
        return max(0, _resident("VmRSS") - self._before)

    def memory(self, initialized: int) -> dict[str, Memory]:
        """The counted memory; empty where the system does not say it."""
        if not self._before:
            return {}
        self._note()
        return {"host": Memory(initialized, self.now(), dict(self._peaks), pinned=_page_locked())}

    def _note(self) -> None:
        self._peaks[self._phase] = max(self._peaks.get(self._phase, 0), _resident("VmHWM") - self._before, 0)


def _resident(name: str) -> int:
    """A size in bytes of /proc/self/status: VmRSS is the resident memory, VmHWM its peak. 0 where there is no such file."""
    try:
        found = re.search(rf"^{name}:\s+(\d+) kB$", Path("/proc/self/status").read_text(encoding="ascii"), re.MULTILINE)
    except OSError:
        return 0
    return 1024 * int(found[1]) if found else 0


def _forget_peak() -> None:
    """Let VmHWM begin anew (man 5 proc, clear_refs). Where that is refused, later phases show the peak of earlier ones."""
    with suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")


def _page_locked() -> int:
    """The most bytes that PyTorch's allocator of page-locked memory has held; 0 before torch 2.8, which does not say it."""
    statistics = getattr(torch.cuda, "host_memory_stats", None)
    return int(statistics().get("allocated_bytes.peak", 0)) if statistics else 0
