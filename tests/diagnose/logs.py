"""Logs of our own making, in the formats of launchers and libraries."""

from __future__ import annotations

import io
from collections.abc import Iterable

from dslint.diagnose.context import LogContext
from dslint.diagnose.diagnose import diagnose
from dslint.diagnose.diagnosis import Diagnosis
from dslint.diagnose.reading import LogSource

STARTED = "[2026-05-04 09:12:09,530] [INFO] [launch.py:268:main] dist_world_size=4"
FINISHED = "[2026-05-04 09:40:09,530] [INFO] [launch.py:367:main] Process 4121 exits successfully."
RETURNED = "[2026-05-04 09:13:11,472] [ERROR] [launch.py:325:sigkill_handler] ['python', 'train.py'] exits with return code = {code}"
CONFIG = '[2026-05-04 09:12:09,530] [INFO] [config.py:1000:print_user_config]   json = {{\n    "zero_optimization": {{\n        "stage": {stage}\n    }}\n}}'
CHILD_FAILED = "torch.distributed.elastic.multiprocessing.errors.ChildFailedError: "
OOM = (
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 3.91 GiB. GPU 2 has a total capacity of 79.15 GiB of which 1.32 GiB is free. "
    "Including non-PyTorch memory, this process has 77.82 GiB memory in use. Of the allocated memory 71.45 GiB is allocated by PyTorch, and "
    "4.88 GiB is reserved by PyTorch but unallocated."
)
WATCHDOG = (
    "[rank0]:[E328 00:21:12.920872216 ProcessGroupNCCL.cpp:683] [Rank 0] Watchdog caught collective operation timeout: "
    "WorkNCCL(SeqNum=2, OpType=ALLREDUCE, NumelIn=1, NumelOut=1, Timeout(ms)=600000) ran for 600031 milliseconds before timing out."
)


def traceback(error: str, *frames: tuple[str, int, str, str], prefix: str = "") -> str:
    """A traceback, every line with a prefix."""
    shown = frames or (("train.py", 12, "main", "engine.step()"),)
    lines = ["Traceback (most recent call last):"]
    for file, line, function, code in shown:
        lines += [f'  File "{file}", line {line}, in {function}', f"    {code}"]
    return "\n".join(prefix + line for line in (*lines, error))


def diagnosed(*parts: str | bytes, name: str = "job.log", config: str | None = None) -> Diagnosis:
    """The diagnosis of the only job in a log, perhaps with its config."""
    (found,) = all_diagnosed(*parts, name=name, config=config)
    return found


def all_diagnosed(*parts: str | bytes, name: str = "job.log", config: str | None = None) -> list[Diagnosis]:
    data = b"\n".join(part if isinstance(part, bytes) else part.encode() for part in parts)
    return diagnose([LogSource(name, io.BytesIO(data))], LogContext(config=config))


def causes(found: Diagnosis) -> list[tuple[str, int]]:
    """The causes: kind and line."""
    return [(cause.kind, cause.evidence[0].place.line) for cause in found.causes]


def notices(found: Diagnosis) -> list[str]:
    return [notice.kind for notice in found.notices]


def steps(values: Iterable[float]) -> str:
    """Steps of a training with these losses."""
    return "\n".join(f"Iteration {number}: loss={loss}" for number, loss in enumerate(values))
