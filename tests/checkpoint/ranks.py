"""Runs of real DeepSpeed that save and load checkpoints: `python -m tests.checkpoint.ranks` reads them as JSON and answers each on a line.

DeepSpeed is imported once; each run forks its ranks, which talk over gloo. A run is `{"do", "folder", "ranks", "config"}`: "save" trains two
steps and saves; "load" loads without a tag and trains on; "convert" makes a universal checkpoint of the folder's.
"""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import sys
import time
from pathlib import Path
from typing import Any

from tests.engine import stand_ins
from tests.engine.worker import LATE

TIMEOUT = 40.0
"""Seconds that a run may take. Where one rank raises and another waits for it, the one that raised has answered by then."""


def main() -> None:
    """Answer the runs on standard input."""
    out = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # libraries print; answers have the stream to themselves
    stand_ins.before_import()
    import importlib

    for name in ("deepspeed", *LATE, "deepspeed.checkpoint.ds_to_universal"):
        importlib.import_module(name)
    stand_ins.after_import()
    for line in sys.stdin:
        print(json.dumps(_forked(json.loads(line))), file=out, flush=True)


def _forked(run: dict[str, Any]) -> str:
    """What the run came to: a word, or the exception of the first rank that raised."""
    port = _free_port()
    ranks = run["ranks"] if run["do"] != "convert" else 1
    pipes: dict[int, int] = {}
    children = []
    for rank in range(ranks):
        reader, writer = os.pipe()
        child = os.fork()
        if child == 0:
            os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
            try:
                said = _run(run, rank, port)
            except BaseException as error:  # noqa: BLE001 - SystemExit too is something that DeepSpeed does
                said = f"{type(error).__name__}: {error}"
            os.write(writer, said[:2000].encode())
            os._exit(0)
        os.close(writer)
        pipes[reader] = rank
        children.append(child)
    answers = _answers(pipes)
    for child in children:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    raised = [answers[rank] for rank in sorted(answers) if ": " in answers[rank]]
    return raised[0] if raised else answers.get(0, "no answer")


def _answers(pipes: dict[int, int]) -> dict[int, str]:
    """What the ranks say; once one has raised, the others have a few seconds left."""
    answers: dict[int, str] = {}
    end = time.monotonic() + TIMEOUT
    while pipes and time.monotonic() < end:
        for reader in select.select(list(pipes), [], [], 0.2)[0]:
            said = os.read(reader, 4000).decode()
            os.close(reader)
            answers[pipes.pop(reader)] = said or "died: without a word"
            if ": " in said:
                end = min(end, time.monotonic() + 3)
    for reader in pipes:
        os.close(reader)
    return answers


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def _run(run: dict[str, Any], rank: int, port: int) -> str:
    if run["do"] == "convert":
        return _convert(run["folder"])
    import deepspeed
    import torch

    ranks = run["ranks"]
    os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(ranks), MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    deepspeed.init_distributed("gloo", auto_mpi_discovery=False, verbose=False)
    torch.manual_seed(0)
    torch.set_num_threads(1)
    model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU(), torch.nn.Linear(8, 8))
    engine, *_ = deepspeed.initialize(model=model, model_parameters=model.parameters(), config=run["config"])
    if run["do"] == "save":
        _train(engine)
        engine.save_checkpoint(run["folder"])
        return "saved"
    loaded, _ = engine.load_checkpoint(run["folder"])
    _train(engine)
    return "loaded" if loaded else "nothing loaded"


def _train(engine: Any) -> None:
    import torch

    for _ in range(2):
        batch = torch.randn(1, 8, dtype=next(engine.module.parameters()).dtype)
        engine.backward(engine(batch).float().pow(2).mean())
        engine.step()


def _convert(folder: str) -> str:
    from argparse import Namespace

    from deepspeed.checkpoint import ds_to_universal

    tag = Path(folder, "latest").read_text(encoding="utf-8").strip()
    ds_to_universal.main(
        Namespace(
            input_folder=f"{folder}/{tag}",
            output_folder=f"{folder}/{tag}_universal",
            num_extract_workers=1,
            num_merge_workers=1,
            keep_temp_folder=False,
            strict=False,
            inject_missing_state=True,
        )
    )
    return "converted"


if __name__ == "__main__":
    main()
