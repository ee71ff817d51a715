"""What the child process says of a run. Plain data that comes through a pipe as JSON; all sizes are in bytes."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

PHASES = ("build", "initialize", "forward", "backward", "step")
"""The phases in which memory is counted, in their order: the model is built, `deepspeed.initialize`, and the parts of a training step."""


@dataclass(frozen=True, slots=True)
class Site:
    """Where bytes were allocated that are live at some moment: the phase of the allocation, and the line of code that asked for them."""

    phase: str
    where: str
    size: int


@dataclass(frozen=True, slots=True)
class Memory:
    """What lay in one place (the device, the host, or both together where they cannot be told apart).

    `initialized` is what is left after initialize, `steady` what is left between steps after the last, `peaks` the most by phase, of all
    steps. `at_peak` and `kept` are the largest allocation sites at the peak of training and between steps. `pinned` is the most that was
    page-locked at once (host only). `reserved`, `retries` and `out_of_memory` are the CUDA allocator's own: bytes it took from the device,
    how often it had to empty its cache to go on, and how often even that was not enough. `parts` is how much of `steady` is
    parameters, master weights, optimizer states and gradients.
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
    parts: dict[str, int] = field(default_factory=dict)

    @property
    def peak(self) -> int:
        """The most there was since the model was handed to `deepspeed.initialize`."""
        return max((size for phase, size in self.peaks.items() if phase != "build"), default=0)

    @property
    def peak_phase(self) -> str:
        """The phase of the peak."""
        return max((phase for phase in PHASES if phase in self.peaks and phase != "build"), key=lambda phase: self.peaks[phase], default="")

    @property
    def training_peak(self) -> int:
        """The most there was in training steps."""
        return max((self.peaks.get(phase, 0) for phase in ("forward", "backward", "step")), default=0)


@dataclass(frozen=True, slots=True)
class Raised:
    """An exception: in which phase, its type, its text, and the innermost line of code that is not torch's or Python's own."""

    phase: str
    kind: str
    text: str
    where: str = ""


@dataclass(frozen=True, slots=True)
class Answer:
    """What became of a question.

    `unable` says why nothing was run (no torch, no GPU, ...). `raised` is the exception that ended the run; `out_of_memory` says that it
    was about memory. `steps` counts optimizer steps, `skipped` those of them that changed nothing because gradients overflowed.
    `states` is the bytes of optimizer state that were seen. `capacity` is the memory that the device has, or claims to have.
    `notes` are sentences for people: what was replaced, scaled, left out.
    """

    device: str = ""
    unable: str | None = None
    raised: Raised | None = None
    out_of_memory: bool = False
    versions: dict[str, str] = field(default_factory=dict)
    hardware: str | None = None
    capacity: int | None = None
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
    seconds: float = 0.0
    redirected: tuple[tuple[str, str], ...] = ()
    notes: tuple[str, ...] = ()
    timeline: tuple[tuple[int, int, int, str], ...] = ()
    summary: str | None = None

    @property
    def started(self) -> bool:
        """Whether the engine took every step that was asked of it."""
        return self.unable is None and self.raised is None

    @property
    def place(self) -> str:
        """The place whose memory counts: the device's, or that of both together where they cannot be told apart."""
        return "device" if "device" in self.memory else "both"

    @classmethod
    def from_data(cls, data: dict[str, Any]) -> Answer:
        """The answer, of the data that the child sent."""
        data = dict(data)
        raised = data.pop("raised", None)
        memory = {place: _memory(entry) for place, entry in data.pop("memory", {}).items()}
        for name in ("redirected", "notes", "timeline"):
            data[name] = tuple(tuple(entry) if isinstance(entry, list) else entry for entry in data.get(name, ()))
        return cls(**data, raised=Raised(**raised) if raised else None, memory=memory)


def _memory(data: dict[str, Any]) -> Memory:
    at_peak, kept = (tuple(Site(**site) for site in data[name]) for name in ("at_peak", "kept"))
    return Memory(**{**data, "at_peak": at_peak, "kept": kept})
