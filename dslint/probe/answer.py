"""The answer of the child process: plain data, sent through a pipe as JSON. All sizes are in bytes."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

PHASES = ("build", "initialize", "forward", "backward", "step")
"""The phases in which memory is counted, in order: building the model, `deepspeed.initialize`, and the parts of a training step."""


@dataclass(frozen=True, slots=True)
class Site:
    """Where live bytes were allocated: the phase, and the line of code."""

    phase: str
    where: str
    size: int


@dataclass(frozen=True, slots=True)
class Memory:
    """The memory in one place (the device, the host, or both together if they cannot be separated).

    `initialized` is in use after initialize, `steady` between steps after the last one, `peaks` is the maximum by phase over all steps.
    `at_peak` and `kept` are the largest allocation sites at the peak of training and between steps. `pinned` is the maximum of pinned
    memory (host only). `reserved`, `retries` and `out_of_memory` come from the CUDA allocator: bytes taken from the device, how often it
    emptied its cache, and how often that was not enough. `driver` is what the driver says is in use at the end, also by other programs;
    `context` is the part of it that the allocator does not hold at that moment.
    `parts` splits `steady` into parameters, master weights, optimizer states and gradients.
    """

    initialized: int
    steady: int
    peaks: dict[str, int]
    at_peak: tuple[Site, ...] = ()
    kept: tuple[Site, ...] = ()
    pinned: int = 0
    reserved: int | None = None
    retries: int | None = None
    out_of_memory: int | None = None
    driver: int | None = None
    context: int | None = None
    parts: dict[str, int] = field(default_factory=dict)

    @property
    def peak(self) -> int:
        """The maximum since the call of `deepspeed.initialize`."""
        return max((size for phase, size in self.peaks.items() if phase != "build"), default=0)

    @property
    def peak_phase(self) -> str:
        """The phase of the peak."""
        return max((phase for phase in PHASES if phase in self.peaks and phase != "build"), key=lambda phase: self.peaks[phase], default="")

    @property
    def training_peak(self) -> int:
        """The maximum in training steps."""
        return max((self.peaks.get(phase, 0) for phase in ("forward", "backward", "step")), default=0)


@dataclass(frozen=True, slots=True)
class RaisedError:
    """An exception: its phase, type, text, and the innermost line of code outside of torch and Python."""

    phase: str
    kind: str
    text: str
    where: str = ""


@dataclass(frozen=True, slots=True)
class Answer:
    """The result of a question.

    `unable` says why nothing ran (no torch, no GPU, ...). `raised` is the exception that ended the run; `out_of_memory` says whether it
    was about memory. `steps` counts optimizer steps, `skipped` those that were skipped because gradients overflowed. `states` is the bytes
    of optimizer state that were found. With `speeds`, `update_seconds` is the time of `engine.step()`, `copied_per_second` bytes over PCIe.
    `capacity` is the memory of the device, or what the fake device claims; `occupied` is what the driver says was in use before the model
    was built: the context of this process, and other programs. `notes` are sentences for
    users: what was replaced, scaled or left out.
    """

    device: str = ""
    unable: str | None = None
    raised: RaisedError | None = None
    out_of_memory: bool = False
    versions: dict[str, str] = field(default_factory=dict)
    hardware: str | None = None
    capacity: int | None = None
    occupied: int | None = None
    world_size: int = 1
    rank: int = 0
    ranks: int = 1
    parameters: int = 0
    layers: int | None = None
    model: str = ""
    engine: dict[str, Any] = field(default_factory=dict)
    memory: dict[str, Memory] = field(default_factory=dict)
    steps: int = 0
    skipped: int = 0
    states: int = 0
    step_seconds: float | None = None
    update_seconds: float | None = None
    copied_per_second: float | None = None
    seconds: float = 0.0
    redirected: tuple[tuple[str, str], ...] = ()
    notes: tuple[str, ...] = ()
    timeline: tuple[tuple[int, int, int, str], ...] = ()
    summary: str | None = None

    @property
    def started(self) -> bool:
        """Whether the engine took all requested steps."""
        return self.unable is None and self.raised is None

    @property
    def place(self) -> str:
        """The place that limits apply to: the device, or device and host together if they cannot be separated."""
        return "device" if "device" in self.memory else "both"

    @classmethod
    def from_data(cls, data: dict[str, Any]) -> Answer:
        """The answer from the data that the child sent."""
        data = dict(data)
        raised = data.pop("raised", None)
        memory = {place: _memory(entry) for place, entry in data.pop("memory", {}).items()}
        for name in ("redirected", "notes", "timeline"):
            data[name] = tuple(tuple(entry) if isinstance(entry, list) else entry for entry in data.get(name, ()))
        return cls(**data, raised=RaisedError(**raised) if raised else None, memory=memory)


def _memory(data: dict[str, Any]) -> Memory:
    at_peak, kept = (tuple(Site(**site) for site in data[name]) for name in ("at_peak", "kept"))
    return Memory(**{**data, "at_peak": at_peak, "kept": kept})
