"""The near side of the harness: hands cases to workers that hold the real DeepSpeed, and collects what became of them.

Imports neither torch nor deepspeed. A worker is a child process that imports DeepSpeed once and forks for every case, so that each case
meets a fresh DeepSpeed, and a crash, an exit or an endless loop is an outcome like any other.
"""

from __future__ import annotations

import json
import queue
import subprocess
import sys
import threading
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self

Upto = Literal["parse", "initialize", "step"]
ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class Case:
    """A question: what does DeepSpeed do with this config, up to this phase?

    `text` is handed over as the path of a file that holds it, `config` as a dict. `world_size` is that of a fake process group in which
    the worker is rank 0. `optimizer` says whether the program brings an AdamW of its own where the config has no optimizer.
    """

    id: str
    text: str | None = None
    config: dict[str, Any] | None = None
    world_size: int = 1
    upto: Upto = "parse"
    optimizer: bool = False
    checkpointing: bool = False
    """Whether the program also calls `deepspeed.checkpointing.configure` with the config, in `initialize`."""


@dataclass(frozen=True)
class Outcome:
    """What DeepSpeed did.

    `phase` is where it raised ("parse", "initialize", "step"), or None. `error` is the exception's type and text. `effective` are the
    attributes of its `DeepSpeedConfig` as plain data, `engine` what the engine was built from, where it got that far.
    """

    id: str
    phase: str | None = None
    error: str | None = None
    effective: dict[str, Any] = field(default_factory=dict)
    engine: dict[str, Any] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)

    @property
    def raised(self) -> bool:
        """Whether an exception (or an exit, a crash, a hang) ended the case."""
        return self.error is not None


class EngineUnavailable(Exception):
    """A worker did not come up; the text says why."""


class Engine:
    """Workers that hold DeepSpeed, kept between questions. Use as a context manager."""

    def __init__(self, jobs: int = 2, timeout: float = 60.0) -> None:
        self._jobs = jobs
        self._timeout = timeout
        self._idle: queue.SimpleQueue[_Worker] = queue.SimpleQueue()
        self._started: list[_Worker] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        for worker in self._started:
            worker.close()

    def ask(self, cases: Iterable[Case]) -> list[Outcome]:
        """The outcomes of the cases, in their order.

        Raises:
            EngineUnavailable: DeepSpeed cannot be imported.
        """
        todo = list(enumerate(cases))
        while len(self._started) < min(self._jobs, len(todo)):
            worker = _Worker(self._timeout)
            self._started.append(worker)
            self._idle.put(worker)
        outcomes: list[Outcome | None] = [None] * len(todo)
        pending = iter(todo)
        lock = threading.Lock()
        failed: list[BaseException] = []

        def work() -> None:
            worker = self._idle.get()
            try:
                while not failed:
                    with lock:
                        item = next(pending, None)
                    if item is None:
                        break
                    outcomes[item[0]] = worker.ask(item[1])
            except BaseException as error:  # noqa: BLE001 - handed on to the thread that asked
                failed.append(error)
            finally:
                self._idle.put(worker)

        threads = [threading.Thread(target=work) for _ in self._started]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if failed:
            raise failed[0]
        return [outcome for outcome in outcomes if outcome is not None]


class _Worker:
    """One child process. It is started at the first question."""

    def __init__(self, timeout: float) -> None:
        self._timeout = timeout
        self._process: subprocess.Popen[str] | None = None

    def ask(self, case: Case) -> Outcome:
        process = self._process or self._start()
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(json.dumps(asdict(case)) + "\n")
        process.stdin.flush()
        line = process.stdout.readline()
        if not line:
            self._process = None
            return Outcome(case.id, case.upto, "the worker died")
        return Outcome(**json.loads(line))

    def _start(self) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "tests.engine.worker", str(self._timeout)]
        process = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        assert process.stdout is not None
        hello = process.stdout.readline()
        if hello != "ready\n":
            said = process.stderr.read() if process.stderr else ""
            raise EngineUnavailable(said[-2000:] or hello)
        self._process = process
        threading.Thread(target=_drain, args=(process,), daemon=True).start()
        return process

    def close(self) -> None:
        if self._process is None:
            return
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                stream.close()
        self._process.wait(timeout=30)


def _drain(process: subprocess.Popen[str]) -> None:
    """Read and forget what a worker's libraries print, so that it never blocks on a full pipe."""
    assert process.stderr is not None
    with process.stderr as stream:
        for _ in stream:
            pass
