"""Real ranks: each measures itself, and rank 0 reports the worst. If a rank raises, the others do not wait for it forever."""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import torch.distributed as dist

from dslint.probe.question import Question

GRACE = 10.0
"""Seconds that a rank may continue after another has raised."""

_finished = threading.Event()


def watch(question: Question, say: Callable[..., None]) -> None:
    """End this rank if another has raised while this one waits in a collective."""
    if not question.launched:
        return
    store = _store()

    def wait() -> None:
        while not _finished.wait(1):
            if store.check(["dslint/raised"]):
                if not _finished.wait(GRACE):
                    answer = json.loads(store.get("dslint/raised"))
                    say(answer=answer if question.rank == 0 else {"unable": f"rank {answer['rank']} raised"})
                    os._exit(0)
                return

    threading.Thread(target=wait, daemon=True).start()


def worst(question: Question, data: dict[str, Any]) -> dict[str, Any]:
    """On rank 0 the answer of the rank that raised, or else of the one with the highest peak; elsewhere the rank's own."""
    if not question.launched or not dist.is_initialized():
        return data
    _finished.set()
    store = _store()
    line = json.dumps(data, default=str)
    if data.get("raised") and not store.check(["dslint/raised"]):
        store.set("dslint/raised", line)
    store.set(f"dslint/rank/{question.rank}", line)
    if question.rank != 0:
        _wait(store, ["dslint/done"], GRACE * 6)
        return data
    deadline = time.monotonic() + (GRACE if data.get("raised") else GRACE * 3)
    keys = [f"dslint/rank/{rank}" for rank in range(1, question.world_size)]
    all_data = [data, *(json.loads(store.get(key)) for key in keys if _wait(store, [key], max(deadline - time.monotonic(), 0.1)))]
    store.set("dslint/done", "1")
    raised = [one for one in all_data if one.get("raised")]
    chosen = raised[0] if raised else max(all_data, key=_peak)
    return {**chosen, "ranks": len(all_data)}


def _peak(data: dict[str, Any]) -> int:
    memory = data.get("memory", {})
    place = memory.get("device") or memory.get("both") or {"peaks": {}}
    return max((size for phase, size in place["peaks"].items() if phase != "build"), default=0)


def _wait(store: Any, keys: list[str], seconds: float) -> bool:
    """Whether the keys were set in time. A missing server means that rank 0 has ended, which is not an error here."""
    try:
        store.wait(keys, timedelta(seconds=seconds))
    except (RuntimeError, ValueError):
        return False
    return True


def _store() -> Any:
    from torch.distributed.distributed_c10d import _get_default_store

    return _get_default_store()
