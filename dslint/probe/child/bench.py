"""The devices that an engine runs on (a GPU, a fake GPU, the CPU), and its process group."""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Protocol

import torch
import torch.distributed as dist

from dslint.probe.answer import Memory
from dslint.probe.question import Question


class Unable(Exception):
    """The device cannot be used; the text is a sentence for the user."""


class Gauge(Protocol):
    """The interface for counting bytes."""

    def enter(self, phase: str) -> None:
        """Begin a phase."""

    def now(self) -> Counter[str]:
        """Live bytes, by place."""

    def memory(self, initialized: Counter[str]) -> dict[str, Memory]:
        """The counted memory, by place."""

    def timeline(self) -> list[tuple[int, int, int, str]]:
        """Memory over time, if known."""


class Bench:
    """A device to run on. `target` is the device of batches, `backend` that of communication. `capacity` and `occupied` are bytes: the
    memory of the device, and what the driver says is in use before the model is built.
    """

    name = ""
    target = ""
    backend = "fake"
    hardware: str | None = None
    capacity: int | None = None
    occupied: int | None = None

    def gauge(self, *, timeline: bool) -> Gauge:
        """What counts."""
        raise NotImplementedError

    def scope(self, gauge: Gauge) -> AbstractContextManager[Any]:
        """The context in which the engine runs."""
        raise NotImplementedError

    def seconds(self) -> float | None:
        """The time after synchronizing the device; None if it is not real."""
        return None

    def copied_per_second(self) -> float | None:
        """Bytes per second between device and host; None if they are not apart."""
        return None


class OnCuda(Bench):
    """A real GPU."""

    name = "cuda"

    def __init__(self, question: Question) -> None:
        if not torch.cuda.is_available():
            raise Unable(f"--device cuda: torch {torch.__version__} finds no GPU; --device fake needs none and also counts every byte")
        os.environ["DS_ACCELERATOR"] = "cuda"
        index = int(os.environ.get("LOCAL_RANK", "0")) % torch.cuda.device_count() if question.launched else 0
        torch.cuda.set_device(index)
        self.target = f"cuda:{index}"
        self.backend = "nccl"
        properties = torch.cuda.get_device_properties(index)
        self.hardware = f"{properties.name} with {properties.total_memory / 2**30:.1f} GiB"
        self.capacity = properties.total_memory
        free, total = torch.cuda.mem_get_info(index)
        self.occupied = total - free
        if question.expandable:
            torch.cuda.memory._set_allocator_settings("expandable_segments:True")  # noqa: SLF001 - the variable is read too early
        if question.cap is not None:
            torch.cuda.set_per_process_memory_fraction(min(1.0, question.cap / properties.total_memory), index)
        if question.snapshot is not None:
            torch.cuda.memory._record_memory_history(max_entries=1_000_000, stacks="python")  # noqa: SLF001 - torch documents it under this name

    def gauge(self, *, timeline: bool) -> Gauge:  # noqa: ARG002 - the snapshot has the timeline
        from dslint.probe.child.cuda import CudaGauge

        return CudaGauge()

    def scope(self, gauge: Gauge) -> AbstractContextManager[Any]:  # noqa: ARG002 - the allocator counts by itself
        return nullcontext()

    def copied_per_second(self) -> float | None:
        from dslint.probe.child.cuda import CudaGauge

        return CudaGauge.copies()

    def seconds(self) -> float | None:
        torch.cuda.synchronize()
        return time.perf_counter()


class OnCpu(Bench):
    """Real tensors in host memory, which is also the device. Compiled operations are replaced."""

    name = "cpu"
    target = "cpu"
    backend = "gloo"

    def __init__(self) -> None:
        os.environ["DS_ACCELERATOR"] = "cpu"
        os.environ.setdefault("LOCAL_SIZE", "1")  # otherwise DeepSpeed runs numactl to count devices; some releases fail without it
        import deepspeed  # noqa: F401 - its operations are replaced
        from deepspeed.accelerator import get_accelerator

        from dslint.probe.child import stand_ins

        accelerator = type(get_accelerator())
        # A CPU does not support fp16, so DeepSpeed would reject configs that run on every GPU.
        accelerator.is_fp16_supported = lambda _: True
        accelerator.is_bf16_supported = lambda _: True
        accelerator.supported_dtypes = lambda _: [torch.float, torch.half, torch.bfloat16]
        stand_ins.install()

    def gauge(self, *, timeline: bool) -> Gauge:
        from dslint.probe.child.tracker import Tracker

        return Tracker(apart=False, timeline=timeline)

    def scope(self, gauge: Gauge) -> AbstractContextManager[Any]:
        assert isinstance(gauge, AbstractContextManager)
        return gauge


class OnFake(Bench):
    """Fake tensors: nothing is computed, and every byte is counted, separately on device and host."""

    name = "fake"

    def __init__(self, question: Question) -> None:
        os.environ["DS_ACCELERATOR"] = "cpu"  # until the fake one replaces it
        import deepspeed  # noqa: F401 - its operations are replaced

        from dslint.probe.child import fake, stand_ins
        from dslint.probe.child.tracker import DEVICE, Tracker

        self.capacity = question.memory
        self._trackers: list[Tracker] = []

        def tracker() -> Tracker:
            return self._trackers[-1]

        try:
            fake.prepare(question.memory, tracker)
        except fake.Unsupported as error:
            raise Unable(str(error)) from None
        stand_ins.install()
        self._answers: dict[str, Callable[..., Any]] = fake.answers(tracker)
        self.target = f"{DEVICE}:0"
        self.backend = "fake"

    def gauge(self, *, timeline: bool) -> Gauge:
        from dslint.probe.child.tracker import Tracker

        self._trackers.append(Tracker(apart=True, timeline=timeline, answers=self._answers))
        return self._trackers[-1]

    def scope(self, gauge: Gauge) -> AbstractContextManager[Any]:
        from contextlib import ExitStack

        from torch._subclasses.fake_tensor import FakeTensorMode

        stack = ExitStack()
        stack.enter_context(FakeTensorMode(allow_non_fake_inputs=True))
        assert isinstance(gauge, AbstractContextManager)
        stack.enter_context(gauge)
        return stack


def bench_for(question: Question) -> Bench:
    """The requested device; by default a GPU if there is one, else a fake one.

    Raises:
        Unable: it cannot be used.
    """
    device = question.device
    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "fake"
    if question.launched and device == "fake":
        raise Unable("--device fake simulates a single rank; with real ranks, use --device cuda or --device cpu")
    if device == "cuda":
        return OnCuda(question)
    return OnCpu() if device == "cpu" else OnFake(question)


def join(question: Question, bench: Bench) -> None:
    """Initialize the process group: with the other ranks if a launcher started them, else with one simulated rank."""
    from deepspeed import comm

    if question.launched:
        dist.init_process_group(bench.backend)
    else:
        from torch.testing._internal.distributed.fake_pg import FakeStore

        os.environ.update(
            RANK=str(question.rank),
            LOCAL_RANK="0",
            WORLD_SIZE=str(question.world_size),
            MASTER_ADDR="127.0.0.1",
            MASTER_PORT="29500",
        )
        dist.init_process_group("fake", store=FakeStore(), rank=question.rank, world_size=question.world_size)
    comm.init_distributed(dist_backend=bench.backend, auto_mpi_discovery=False, verbose=False)
