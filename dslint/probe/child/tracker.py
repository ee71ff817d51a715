"""Tracks every live tensor storage: its bytes, its place, and the phase and line of code of its allocation."""

from __future__ import annotations

import os
import sys
import weakref
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping
from types import FrameType, MappingProxyType
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from dslint.probe.answer import Memory, Site

DEVICE = "dsgpu"
"""The type of the fake device."""

TORCH = os.path.dirname(torch.__file__) + os.sep  # noqa: PTH120 - compared with the names of code objects
HERE = os.path.dirname(__file__) + os.sep  # noqa: PTH120 - the same
PYTHON = os.path.dirname(os.__file__) + os.sep  # noqa: PTH120 - the same
OURS = {HERE + "model.py"}
"""Files of the probe that count as code of the program."""

POINTS = 2000
"""The most points of the curve of memory over time: a plot is not wider in pixels."""

SITES = 12
"""The most places in the code that an answer names for its peak; `dslint probe` prints half of them."""

RESIZING = {"resize_", "set_", "resize_as_", "resize_storage_bytes_"}


class Storage:
    """A live storage."""

    __slots__ = ("pinned", "place", "site", "size")

    def __init__(self, place: str, size: int, site: Any) -> None:
        self.place = place
        self.size = size
        self.site = site
        self.pinned = False


class Tracker(TorchDispatchMode):  # type: ignore[misc] # torch is not typed here
    """Intercepts every operation and counts the storages of its results.

    `apart`: device and host are separate. `answers` are functions that replace operations, by their names.
    """

    def __init__(self, *, apart: bool, timeline: bool, answers: Mapping[str, Callable[..., Any]] = MappingProxyType({})) -> None:
        super().__init__()
        self.phase = "build"
        self._answers = answers
        self._apart = apart
        self._live: dict[int, Storage] = {}
        self._now: Counter[str] = Counter()
        self._by_site: defaultdict[str, Counter[Any]] = defaultdict(Counter)
        self._peaks: defaultdict[str, dict[str, int]] = defaultdict(dict)
        self._at_peak: dict[str, tuple[int, dict[Any, int]]] = {}
        self._pinned = self._most_pinned = 0
        self._known: dict[Any, tuple[bool, Callable[..., Any] | None]] = {}
        self._operations = 0
        self._timeline: list[tuple[int, int, int, str]] | None = [] if timeline else None
        self._spacing = 1

    def enter(self, phase: str) -> None:
        """Begin a phase."""
        self.phase = phase
        for place, size in self._now.items():
            self._note(place, size)

    def pin(self, tensor: torch.Tensor) -> None:
        """Count a tensor as pinned."""
        entry = self._live.get(tensor.untyped_storage()._cdata)  # noqa: SLF001 - the identity of a storage has no other name
        if entry is not None and not entry.pinned:
            entry.pinned = True
            self._pinned += entry.size
            self._most_pinned = max(self._most_pinned, self._pinned)

    def is_pinned(self, tensor: torch.Tensor) -> bool:
        """Whether the storage of a tensor was counted as pinned."""
        entry = self._live.get(tensor.untyped_storage()._cdata)  # noqa: SLF001 - the same
        return entry is not None and entry.pinned

    def size(self, place: str) -> int:
        """The live bytes in a place."""
        return self._now[place]

    def memory(self, initialized: Counter[str]) -> dict[str, Memory]:
        """The counted memory, by place. `initialized` is what was live after initialize."""
        places = ("device", "host", "both") if self._apart else ("both",)
        return {
            place: Memory(
                initialized[place],
                self._now[place],
                dict(self._peaks[place]),
                _largest(self._at_peak.get(place, (0, {}))[1]),
                _largest(self._by_site[place]),
                self._most_pinned if place == "host" else 0,
            )
            for place in places
        }

    def now(self) -> Counter[str]:
        """Live storages, by place."""
        return Counter(self._now)

    def timeline(self) -> list[tuple[int, int, int, str]]:
        """Memory over time: operations so far, bytes on the device, on the host, phase."""
        return self._timeline or []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self._operations += 1
        known = self._known.get(func)
        if known is None:
            known = self._known[func] = _is_alias(func), self._answers.get(func.__name__.partition(".")[0])
        alias, stand_in = known
        result = (stand_in or func)(*args, **(kwargs or {}))
        if not alias:
            self._see(result)
        return result

    def _see(self, result: Any) -> None:
        if isinstance(result, torch.Tensor):
            self.track(result)
        elif isinstance(result, tuple | list):
            for entry in result:
                self._see(entry)

    def track(self, tensor: torch.Tensor) -> None:
        """Count the storage of a tensor, if it is new or has a new size."""
        storage = tensor.untyped_storage()
        key = storage._cdata  # noqa: SLF001 - the identity of a storage has no other name
        size = storage.nbytes()
        entry = self._live.get(key)
        if entry is not None:
            if entry.size != size:
                self._add(entry, size - entry.size)
                entry.size = size
            return
        kind = tensor.device.type
        if not size or kind == "meta":
            return
        entry = self._live[key] = Storage("device" if kind == DEVICE else "host", size, _site(self.phase))
        weakref.finalize(storage, self._free, key).atexit = False
        self._add(entry, size)

    def _free(self, key: int) -> None:
        entry = self._live.pop(key, None)
        if entry is not None:
            self._add(entry, -entry.size)
            if entry.pinned:
                self._pinned -= entry.size

    def _add(self, entry: Storage, size: int) -> None:
        for place in (entry.place, "both"):
            self._now[place] += size
            self._by_site[place][entry.site] += size
            if size > 0:
                self._note(place, self._now[place])
        if self._timeline is not None:
            self._draw()

    def _note(self, place: str, size: int) -> None:
        peaks = self._peaks[place]
        if size > peaks.get(self.phase, -1):
            peaks[self.phase] = size
        if self.phase in ("forward", "backward", "step") and size > self._at_peak.get(place, (0, {}))[0]:
            self._at_peak[place] = size, dict(self._by_site[place])

    def _draw(self) -> None:
        """Add a point to the timeline; if there are too many, keep only the higher one of each pair."""
        assert self._timeline is not None
        point = (self._operations, self._now["device"], self._now["host"], self.phase)
        last = self._timeline[-1] if self._timeline else None
        if last is not None and last[3] == self.phase and self._operations - last[0] < self._spacing:
            if point[1] + point[2] > last[1] + last[2]:
                self._timeline[-1] = (last[0], *point[1:])
            return
        self._timeline.append(point)
        if len(self._timeline) > 2 * POINTS:
            pairs = zip(self._timeline[::2], self._timeline[1::2], strict=False)
            self._timeline = [max(pair, key=lambda point: point[1] + point[2]) for pair in pairs]
            self._spacing *= 2


def _is_alias(func: Any) -> bool:
    """Whether an operation only returns its input storages with unchanged sizes."""
    returns = func._schema.returns  # noqa: SLF001 - the schema has no other name
    if func.namespace != "aten" or func.__name__.partition(".")[0] in RESIZING:
        return not returns
    return all(one.alias_info is not None for one in returns)


def _site(phase: str) -> tuple[str, str, str, int]:
    """The innermost line of code of DeepSpeed or the model, outside of torch and the probe."""
    frame: FrameType | None = sys._getframe(2)  # noqa: SLF001 - what inspect.stack would give, without reading files
    while frame is not None:
        file = frame.f_code.co_filename
        if file in OURS or not (file.startswith((TORCH, HERE, "<")) or "deepspeed/comm/" in file or "deepspeed/utils/" in file):
            return phase, file, frame.f_code.co_name, frame.f_lineno
        frame = frame.f_back
    return phase, "torch's autograd", "", 0  # autograd threads have no Python frames below


def _largest(by_site: dict[Any, int]) -> tuple[Site, ...]:
    largest = sorted(((size, site) for site, size in by_site.items() if size > 0), reverse=True)[:SITES]
    return tuple(
        Site(phase, f"{shorten(file)}:{line} in {function}" if line else file, size) for size, (phase, file, function, line) in largest
    )


def is_of_python(file: str) -> bool:
    """Whether a source file belongs to torch, the probe or Python's standard library."""
    return file.startswith((TORCH, HERE, "<")) or (file.startswith(PYTHON) and "site-packages" not in file)


def shorten(file: str) -> str:
    """The path of a source file, relative to the folder of its package."""
    folder = max((folder for folder in sys.path if folder and file.startswith(folder + os.sep)), key=len, default="")
    return file[len(folder) :].lstrip(os.sep).replace(os.sep, "/")
