"""The far side of the harness: imports DeepSpeed once, then forks for every case that comes as a line of JSON on standard input."""

from __future__ import annotations

import json
import os
import select
import signal
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from tests.engine import stand_ins

LATE = (
    "torch._dynamo",
    "torch._inductor.compile_fx",
    "deepspeed.runtime.zero.stage3",
    "deepspeed.runtime.zero.stage_1_and_2",
    "deepspeed.runtime.zero.muon.muon_optimizer",
    "deepspeed.runtime.bf16_optimizer",
    "deepspeed.runtime.zenflow.engine",
    "deepspeed.monitor.monitor",
    "deepspeed.ops.op_builder.all_ops",
    "deepspeed.module_inject.auto_ep_layer",
    "deepspeed.runtime.swap_tensor.pipelined_optimizer_swapper",
)
"""Modules that DeepSpeed imports when an engine first needs them: seconds each, and so once, before the forks."""

WIDTH = 64
"""Of the model that the engine gets: three linear layers."""


def main(timeout: float) -> None:
    """Answer cases until standard input ends."""
    out = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # libraries print; answers have the stream to themselves
    os.chdir(tempfile.mkdtemp(prefix="engine-"))  # monitors and swappers write to relative paths
    stand_ins.before_import()
    stand_ins.without_compiler()
    import deepspeed.runtime.config  # noqa: F401 - held for the forks

    stand_ins.after_import()
    warm = False
    print("ready", file=out, flush=True)
    for line in sys.stdin:
        case = json.loads(line)
        if case["upto"] != "parse" and not warm:
            _import_late()
            warm = True
        print(json.dumps(_forked(case, timeout)), file=out, flush=True)


def _import_late() -> None:
    import importlib

    for name in LATE:
        importlib.import_module(name)
    stand_ins.after_import()


def _forked(case: dict[str, Any], timeout: float) -> dict[str, Any]:
    """Run a case in a child; what the child cannot say about itself (a signal, a hang) is said here."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reader)
        os.setpgid(0, 0)
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
        answer: dict[str, Any] = {"id": case["id"]}
        try:
            _run(case, answer)
        except BaseException as error:  # noqa: BLE001 - SystemExit too is something that DeepSpeed does
            answer["error"] = f"{type(error).__name__}: {error}"[:2000]
        else:
            answer["phase"] = None
        with os.fdopen(writer, "w", encoding="utf-8") as pipe:
            pipe.write(json.dumps(answer, default=str))
        os._exit(0)
    os.close(writer)
    text = _read(reader, child, timeout)
    os.waitpid(child, 0)
    if not text:
        return {"id": case["id"], "phase": case["upto"], "error": f"no answer in {timeout:g} s, or the process died"}
    answer = json.loads(text)
    assert isinstance(answer, dict)
    return answer


def _read(reader: int, child: int, timeout: float) -> str:
    end = time.monotonic() + timeout
    text = b""
    with os.fdopen(reader, "rb", buffering=0) as pipe:
        while True:
            if not select.select([pipe], [], [], max(end - time.monotonic(), 0))[0]:
                os.killpg(child, signal.SIGKILL)
                return ""
            chunk = pipe.read(1 << 16)
            if not chunk:
                return text.decode()
            text += chunk


def _run(case: dict[str, Any], answer: dict[str, Any]) -> None:
    """Take a case through its phases; `answer["phase"]` is the one it is in."""
    import torch.distributed as distributed
    from deepspeed.runtime.config import DeepSpeedConfig
    from torch.testing._internal.distributed.fake_pg import FakeStore

    answer["phase"] = "parse"
    answer["warnings"] = said = _listen()
    ranks = case["world_size"]
    _play_launcher(ranks)
    distributed.init_process_group("fake", store=FakeStore(), rank=0, world_size=ranks)
    _let_deepspeed_know()
    config = case["config"]
    if config is None:
        config = _file_of(case["text"])
    parsed = DeepSpeedConfig(*_loaded(config, answer))
    answer["effective"] = plain(parsed)
    said[:] = list(dict.fromkeys(said))
    if case["upto"] != "parse":
        answer["phase"] = "initialize"
        answer["engine"] = about = {}
        _train(case, config, answer, about, bring=case["optimizer"] and parsed.optimizer_name is None)


def _file_of(text: str) -> str:
    """A file with the text of a case, whose next case overwrites it: thousands of files in the system's folder would slow every later test."""
    path = Path("ds_config.json").absolute()
    path.write_text(text, encoding="utf-8", newline="", errors="surrogatepass")
    return str(path)


def _play_launcher(ranks: int) -> None:
    """Set the variables that DeepSpeed's launcher sets for rank 0 of one machine."""
    os.environ.update(RANK="0", LOCAL_RANK="0", WORLD_SIZE=str(ranks), LOCAL_SIZE=str(ranks), CROSS_RANK="0", CROSS_SIZE="1")
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="29500")


def _loaded(config: Any, answer: dict[str, Any]) -> tuple[Any, None, Any]:
    """The arguments of `DeepSpeedConfig` as `deepspeed.initialize` makes them of a path or a dict.

    It reads a file into a dict first, and builds the device mesh of sequence parallelism before it parses the dict.
    """
    from deepspeed import comm
    from deepspeed.runtime.tensor_parallel.init_utils import load_ds_config

    loaded = load_ds_config(config)
    sizes = ("data_parallel_size", "sequence_parallel_size")
    if not isinstance(loaded, dict) or not all(size in loaded for size in sizes):
        return loaded, None, None
    answer["phase"] = "initialize"
    mesh = comm.initialize_mesh_device(tuple(loaded[size] for size in sizes), ("data_parallel", "sequence_parallel"))
    answer["phase"] = "parse"
    return loaded, None, mesh


def _let_deepspeed_know() -> None:
    """DeepSpeed's communication layer is up as soon as torch's is: it only has to be told."""
    from deepspeed import comm

    comm.init_distributed(dist_backend="fake", auto_mpi_discovery=False, verbose=False)


def _train(case: dict[str, Any], config: Any, answer: dict[str, Any], about: dict[str, Any], *, bring: bool) -> None:
    import deepspeed
    import torch

    torch.manual_seed(0)
    torch.set_num_threads(1)
    linear = torch.nn.Linear
    model = torch.nn.Sequential(linear(WIDTH, WIDTH), torch.nn.ReLU(), linear(WIDTH, WIDTH), torch.nn.ReLU(), linear(WIDTH, WIDTH))
    brought = torch.optim.AdamW(model.parameters(), lr=1e-4) if bring else None
    engine, wrapper, _, scheduler = deepspeed.initialize(model=model, model_parameters=model.parameters(), optimizer=brought, config=config)
    if case["checkpointing"]:
        deepspeed.checkpointing.configure(None, deepspeed_config=config)
    about["stage"] = engine.zero_optimization_stage()
    about["dtype"] = str(next(engine.module.parameters()).dtype)
    about["optimizer"] = type(getattr(engine, "basic_optimizer", None) or wrapper).__name__
    about["wrapper"] = type(wrapper).__name__
    about["scheduler"] = type(scheduler).__name__ if scheduler else None
    if case["upto"] == "initialize":
        return
    answer["phase"] = "step"
    micro = int(engine.train_micro_batch_size_per_gpu())
    for _ in range(2):
        batch = torch.randn(min(micro, 4), WIDTH, dtype=next(engine.module.parameters()).dtype)
        loss = engine(batch).float().pow(2).mean()
        if engine.managed_gradient_accumulation():
            engine.set_gradient_accumulation_boundary(True)
        engine.backward(loss)
        engine.step()
    about["steps"] = engine.global_steps
    about["skipped"] = engine.skipped_steps
    about["lr"] = plain(engine.get_lr())


def _listen() -> list[str]:
    """Collect what DeepSpeed and Python warn about."""
    import logging
    import warnings

    said: list[str] = []

    class Listener(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if record.levelno >= logging.WARNING:
                said.append(record.getMessage()[:500])

    from deepspeed.utils import logger

    logger.addHandler(Listener())
    logger.setLevel(logging.INFO)
    warnings.showwarning = lambda message, *_, **__: said.append(str(message)[:500])
    return said


def plain(value: Any, depth: int = 0) -> Any:
    """An object of DeepSpeed's as JSON can hold it: models and configs as dicts of their attributes, enums and dtypes by name."""
    from enum import Enum

    if value is None or isinstance(value, bool | int | str):
        return value.value if isinstance(value, Enum) else value
    if isinstance(value, float):
        return value if value == value and abs(value) != float("inf") else repr(value)
    if isinstance(value, Enum):
        return plain(value.value, depth)
    if isinstance(value, dict):
        return {str(name): plain(entry, depth + 1) for name, entry in value.items()}
    if isinstance(value, list | tuple | set):
        return [plain(entry, depth + 1) for entry in value]
    if str(value).startswith("torch.") or isinstance(value, os.PathLike):
        return str(value)
    attributes = getattr(value, "__dict__", None)
    if attributes is not None and depth < 8 and type(value).__module__.startswith("deepspeed"):
        return {name: plain(entry, depth + 1) for name, entry in attributes.items() if not name.startswith("_")}
    return str(value)


if __name__ == "__main__":
    main(float(sys.argv[1]))
