"""Starts the child process, reads its answer, and cleans up its processes and files."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any

from dslint.probe.answer import Answer
from dslint.probe.question import Question
from dslint.probe.safety import UNDONE, environment
from dslint.probe.scratch import scratch_folder
from dslint.project import install_command

Progress = Callable[[str, float | None], None]
"""Called with the current activity, and the finished fraction of it if known."""

ROOT = Path(__file__).resolve().parents[2]
"""The folder that the package dslint is imported from."""


def missing(question: Question) -> str | None:
    """A sentence about packages that a question needs and that are missing; None if all are installed. Nothing is imported."""
    needed = ("torch", "deepspeed", *(("transformers",) if question.model.data is not None else ()))
    absent = [name for name in needed if importlib.util.find_spec(name) is None]
    if absent == ["transformers"]:
        return "--model requires transformers: pip install transformers"
    if not absent:
        return None
    verb = "is" if len(absent) == 1 else "are"
    return f"{' and '.join(absent)} {verb} not installed: {install_command('probe')}"


def ask(question: Question, *, timeout: float, progress: Progress) -> Answer:
    """Run a question in a new process, and wait for the answer.

    Args:
        question: what to run.
        timeout: after this many seconds the process is killed, and the answer says so.
        progress: called repeatedly.

    Returns:
        The answer. If the process died or was killed, the answer says so.
    """
    absent = missing(question)
    if absent:
        return Answer(unable=absent)
    with contextlib.ExitStack() as stack:
        try:
            scratch = stack.enter_context(scratch_folder())
        except OSError as error:
            return Answer(unable=f"cannot create a temporary folder: {error.strerror or error}; set TMPDIR to another location")
        return _run(question, scratch, timeout, progress)


def _run(question: Question, scratch: str, timeout: float, progress: Progress) -> Answer:
    """Run a question in a folder."""
    process = None
    try:
        log = Path(scratch, "log.txt")
        with log.open("wb") as errors:
            process = subprocess.Popen(
                [sys.executable, "-W", "ignore", "-m", "dslint.probe.child"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                cwd=scratch,
                env=_environment(scratch),
                start_new_session=True,
                text=True,
                encoding="utf-8",
            )
        return _listen(process, question, time.monotonic() + timeout, progress) or _failure(process, log, timeout)
    finally:
        with _uninterrupted():
            if process is not None:
                _end(process)


@contextlib.contextmanager
def _uninterrupted() -> Iterator[None]:
    """Keep a second Ctrl-C from interrupting the cleanup."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, signal.SIG_IGN) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _environment(scratch: str) -> dict[str, str]:
    """The child's variables, with dslint and the interpreter's programs on the paths (DeepSpeed runs `ninja --version`)."""
    inherited = dict(os.environ)
    paths = [str(ROOT), *(str(Path(path).resolve()) for path in inherited.get("PYTHONPATH", "").split(os.pathsep) if path)]
    programs = [str(Path(sys.executable).parent), inherited.get("PATH", "")]
    return {
        **inherited,
        **environment(scratch),
        "PYTHONPATH": os.pathsep.join(paths),
        "PATH": os.pathsep.join(programs),
        "PYTHONIOENCODING": "utf-8",
        "TORCH_CPP_LOG_LEVEL": "ERROR",
    }


def _listen(process: subprocess.Popen[str], question: Question, deadline: float, progress: Progress) -> Answer | None:
    """The answer; None if the process ended or timed out before it."""
    assert process.stdin is not None
    assert process.stdout is not None
    lines: queue.SimpleQueue[str] = queue.SimpleQueue()
    threading.Thread(target=_read, args=(process.stdout, lines), daemon=True).start()
    try:
        process.stdin.write(question.to_json() + "\n")
        process.stdin.flush()
    except OSError:
        return None
    doing, part = "starting", None
    while (left := deadline - time.monotonic()) > 0:
        try:
            line = lines.get(timeout=min(left, 0.5))
        except queue.Empty:
            progress(doing, part)
            continue
        data: dict[str, Any] = json.loads(line) if line else {}
        if not data:
            return None
        if "answer" in data:
            return Answer.from_data(data["answer"])
        doing, part = data.get("doing", doing), data.get("done")
        progress(doing, part)
    return None


def _read(stream: IO[str], lines: queue.SimpleQueue[str]) -> None:
    """Put lines into the queue, and an empty one at the end."""
    try:
        for line in stream:
            lines.put(line)
    except (OSError, ValueError):
        pass
    lines.put("")


def _failure(process: subprocess.Popen[str], log: Path, timeout: float) -> Answer:
    """The answer for a process that gave none."""
    try:
        code = process.wait(timeout=1)
    except subprocess.TimeoutExpired:
        return Answer(unable=f"no answer within {timeout:g} s; pass a longer --timeout")
    if code == -getattr(signal, "SIGKILL", 9):
        return Answer(unable="the process was killed (SIGKILL); this machine probably ran out of memory")
    said = [line for line in log.read_text(encoding="utf-8", errors="replace").splitlines() if line.strip()]
    last = f": {said[-1].strip()[:500]}" if said else ""
    how = f"by signal {-code}" if code < 0 else f"with exit code {code}"
    return Answer(unable=f"the process ended {how} without an answer{last}")


def _end(process: subprocess.Popen[str]) -> None:
    """End the process and its children."""
    if hasattr(os, "killpg"):
        try:
            os.killpg(process.pid, signal.SIGINT)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(UNDONE)
            os.killpg(process.pid, signal.SIGKILL)
        except (ProcessLookupError, PermissionError):
            process.kill()
    else:
        process.kill()
    process.wait()
    for stream in (process.stdin, process.stdout):
        if stream is not None:
            with contextlib.suppress(OSError):
                stream.close()
