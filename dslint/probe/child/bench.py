"""Where an engine runs: on a GPU, on a fake one, or on the CPU; with the process group that it needs."""

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
    """The device cannot be used; the text is a sentence for people."""


class Gauge(Protocol):
    """What counts bytes."""

    def enter(self, phase: str) -> None:
        """A phase begins."""

    def now(self) -> Counter[str]:
        """The bytes that live, by place."""

    def memory(self, initialized: Counter[str]) -> dict[str, Memory]:
        """What was counted, by place."""

    def timeline(self) -> list[tuple[int, int, int, str]]:
        """The course of memory, where that is known."""


class Bench:
    """A device to run on. `target` is where batches go, `backend` how ranks talk, `real` whether time and arithmetic mean anything."""

    name = ""
    target = ""
    backend = "fake"
    hardware: str | None = None
    capacity: int | None = None

    def gauge(self, *, timeline: bool) -> Gauge:
        """What counts."""
        raise NotImplementedError

    def scope(self, gauge: Gauge) -> AbstractContextManager[Any]:
        """What has to be in force while the engine runs."""
        raise NotImplementedError

    def seconds(self) -> float | None:
        """The time, once the device is idle; None where it means nothing."""
        return None


class OnCuda(Bench):
    """A real GPU; nothing is replaced."""

    name = "cuda"

    def __init__(self, question: Question) -> None:
        if not torch.cuda.is_available():
            raise Unable(
                f"--device cuda: torch {torch.__version__} sees no GPU. --device fake needs none, and counts every byte all the same"
            )
        os.environ["DS_ACCELERATOR"] = "cuda"
        index = int(os.environ.get("LOCAL_RANK", "0")) % torch.cuda.device_count() if question.launched else 0
        torch.cuda.set_device(index)
        self.target = f"cuda:{index}"
        self.backend = "nccl"
        properties = torch.cuda.get_device_properties(index)
        self.hardware = f"{properties.name} with {properties.total_memory / 2**30:.1f} GiB"
        self.capacity = properties.total_memory
        if question.snapshot is not None:
            torch.cuda.memory._record_memory_history(max_entries=1_000_000, stacks="python")  # noqa: SLF001 - torch documents it under this name

    def gauge(self, *, timeline: bool) -> Gauge:  # noqa: ARG002 - the snapshot has the timeline
        from dslint.probe.child.cuda import CudaGauge

        return CudaGauge()

    def scope(self, gauge: Gauge) -> AbstractContextManager[Any]:  # noqa: ARG002 - the allocator counts by itself
        return nullcontext()

    def seconds(self) -> float | None:
        torch.cuda.synchronize()
        return time.perf_counter()


class OnCpu(Bench):
    """Real tensors in host memory. Device and host are the same there, and compiled operations are replaced."""

    name = "cpu"
    target = "cpu"
    backend = "gloo"

    def __init__(self) -> None:
        os.environ["DS_ACCELERATOR"] = "cpu"
        os.environ.setdefault("LOCAL_SIZE", "1")  # else DeepSpeed starts numactl to count devices; some releases fail without it
        import deepspeed  # noqa: F401 - its operations are replaced
        from deepspeed.accelerator import get_accelerator

        from dslint.probe.child import stand_ins

        accelerator = type(get_accelerator())
        # A CPU has no fp16 of its own, and DeepSpeed would refuse configs that run on every GPU.
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
    """Fake tensors: nothing is computed, and every byte counted, on device and host apart."""

    name = "fake"

    def __init__(self, question: Question) -> None:
        os.environ["DS_ACCELERATOR"] = "cpu"  # until the fake one takes its place
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
    """The device that is asked for; by default a GPU where there is one, else a fake one.

    Raises:
        Unable: it cannot be used.
    """
    device = question.device
    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "fake"
    if question.launched and device == "fake":
        raise Unable("--device fake plays one rank alone; with real ranks, use --device cuda or --device cpu")
    if device == "cuda":
        return OnCuda(question)
    return OnCpu() if device == "cpu" else OnFake(question)


def join(question: Question, bench: Bench) -> None:
    """Bring up the process group: with the other ranks where a launcher has started them, else as one rank among absent ones."""
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
