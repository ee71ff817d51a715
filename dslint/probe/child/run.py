"""Runs one question: builds device, model and engine, takes a few optimizer steps, and measures them."""

from __future__ import annotations

import copy
import errno
import gc
import os
import statistics
import time
import traceback
from collections import Counter
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from dslint.probe.answer import RaisedError
from dslint.probe.child import ranks
from dslint.probe.child.bench import Bench, Gauge, Unable, bench_for, join
from dslint.probe.child.model import BuiltModel, NoModel, build, loss_of
from dslint.probe.child.parts import parts
from dslint.probe.child.tracker import is_of_python, shorten
from dslint.probe.question import Question
from dslint.probe.safety import override, redirect

PATIENCE = 40
"""The most optimizer steps to take until the loss scale is low enough and steps are no longer skipped."""

Say = Callable[..., None]


def run(question: Question, say: Say) -> dict[str, Any]:
    """Answer a question. Errors of the engine are part of the answer.

    Raises:
        ImportError: torch or deepspeed is not installed.
    """
    began = time.monotonic()
    say(doing="importing deepspeed")
    try:
        bench = bench_for(question)
        import deepspeed
    except Unable as error:
        return {"unable": str(error)}
    trial = Trial(question, bench, say)
    trial.data["versions"] = {"deepspeed": deepspeed.__version__, "torch": torch.__version__}
    try:
        trial.go()
    except (Unable, NoModel) as error:
        trial.data["unable"] = str(error)
    except BaseException as error:  # noqa: BLE001 - DeepSpeed also raises SystemExit
        trial.fail(error)
    try:
        trial.close()
    except Exception as error:  # noqa: BLE001 - after some errors of CUDA every further call raises the same
        trial.fail(error)
    trial.data["seconds"] = time.monotonic() - began
    return ranks.worst(question, trial.data)


class Trial:
    """One run. `data` becomes the answer."""

    def __init__(self, question: Question, bench: Bench, say: Say) -> None:
        self.question = question
        self.bench = bench
        self.data: dict[str, Any] = {
            "device": bench.name,
            "hardware": bench.hardware,
            "capacity": bench.capacity,
            "occupied": bench.occupied,
            "world_size": question.world_size,
            "rank": question.rank,
        }
        self._say = say
        self._notes: list[str] = []
        self._phase = "parse"
        self._gauge: Gauge | None = None
        self._initialized: Counter[str] = Counter()
        self._parts: dict[str, dict[str, int]] = {}

    def go(self) -> None:
        """Run the config through all phases."""
        join(self.question, self.bench)
        ranks.watch(self.question, self._say)
        config = self._config()
        torch.manual_seed(0)
        self._gauge = self.bench.gauge(timeline=self.question.timeline)
        with self.bench.scope(self._gauge):
            self._enter("build")
            with self._divided(config):
                built = build(self.question)
            self.data["model"], self.data["layers"] = built.words, built.layers
            self.data["parameters"] = sum(getattr(parameter, "ds_numel", parameter.numel()) for parameter in built.module.parameters())
            engine = self._initialize(config, built)
            self._train(engine, built)

    def fail(self, error: BaseException) -> None:
        """Record the error and its place. The first one counts: what follows it is its consequence."""
        if "raised" in self.data or "unable" in self.data:
            return
        lines = [frame for frame in traceback.extract_tb(error.__traceback__) if not is_of_python(frame.filename)]
        text = str(error) or (lines[-1].line if lines else None) or ""
        where = f"{shorten(lines[-1].filename)}:{lines[-1].lineno} in {lines[-1].name}" if lines else ""
        if isinstance(error, OSError) and error.errno == errno.ENOSPC:
            self.data["unable"] = "the disk with the temporary folder is full; set TMPDIR to another location"
        self.data["raised"] = asdict(RaisedError(self._phase, type(error).__name__, text[:4000], where))
        self.data["out_of_memory"] = isinstance(error, torch.OutOfMemoryError | MemoryError) or "can't allocate memory" in text
        with suppress(OSError):
            traceback.print_exception(error)

    def close(self) -> None:
        """Take the final measurements."""
        question = self.question
        self.data["notes"] = self._notes
        if self._gauge is not None:
            memory = self._gauge.memory(self._initialized)
            self.data["memory"] = {place: {**asdict(sizes), "parts": self._parts.get(place, {})} for place, sizes in memory.items()}
            self.data["timeline"] = self._gauge.timeline()
        if self.bench.name == "cuda":
            if question.speeds and "raised" not in self.data:
                self.data["copied_per_second"] = self.bench.copied_per_second()
            self.data["summary"] = torch.cuda.memory_summary()
            if question.snapshot is not None:
                torch.cuda.memory._dump_snapshot(question.snapshot)  # noqa: SLF001 - torch documents it under this name

    def _enter(self, phase: str) -> None:
        self._phase = phase
        if self._gauge is not None:
            self._gauge.enter(phase)

    def _config(self) -> dict[str, Any]:
        """The config as DeepSpeed reads it from its file, with outputs redirected."""
        import hjson
        from deepspeed.runtime.config import DeepSpeedConfig
        from deepspeed.runtime.config_utils import dict_raise_error_on_duplicate_keys

        config = hjson.loads(self.question.text, object_pairs_hook=dict_raise_error_on_duplicate_keys)
        if isinstance(config, dict):
            for path, value in self.question.overrides:
                override(config, path, value)
            self.data["redirected"] = redirect(config, os.getcwd())  # noqa: PTH109 - a string of the config
            DeepSpeedConfig(copy.deepcopy(config))
            return config
        Path("config.json").write_text(self.question.text, encoding="utf-8")
        DeepSpeedConfig("config.json")
        raise Unable("the config is not an object, but DeepSpeed accepted it")

    def _divided(self, config: dict[str, Any]) -> AbstractContextManager[Any]:
        """At stage 3, partition the model while it is built, as the integrations do."""
        import deepspeed

        zero = config.get("zero_optimization")
        if not (self.question.zero_init and isinstance(zero, dict) and zero.get("stage") == 3):
            return nullcontext()

        # zero.Init changes how tensors are created, which this module does not expect at import.
        import torch._dynamo  # noqa: F401

        context: AbstractContextManager[Any] = deepspeed.zero.Init(config_dict_or_path=config)
        return context

    def _initialize(self, config: dict[str, Any], built: BuiltModel) -> Any:
        import deepspeed

        self._say(doing="initialize")
        self._enter("initialize")
        parameters = [parameter for parameter in built.module.parameters() if parameter.requires_grad]
        optimizer = None if isinstance(config.get("optimizer"), dict) else self._bring(config, parameters)
        if self.bench.name == "cuda":
            self._replace_uncompiled(config)
        engine, *_ = deepspeed.initialize(model=built.module, model_parameters=parameters, optimizer=optimizer, config=config)
        gc.collect()
        assert self._gauge is not None
        self._initialized = self._gauge.now()
        self.data["engine"] = {
            "stage": engine.zero_optimization_stage(),
            "dtype": str(next(engine.module.parameters()).dtype).removeprefix("torch."),
            "optimizer": type(getattr(engine, "basic_optimizer", None) or engine.optimizer).__name__,
            "wrapper": type(engine.optimizer).__name__,
            "micro_batch": int(engine.train_micro_batch_size_per_gpu()),
            "accumulation": int(engine.gradient_accumulation_steps()),
            "world_size": int(engine.dp_world_size),
        }
        return engine

    def _replace_uncompiled(self, config: dict[str, Any]) -> None:
        """Train with torch's Adam where DeepSpeed's fused Adam cannot be compiled here: its states take the same memory."""
        from deepspeed.ops.op_builder import FusedAdamBuilder

        written = config.get("optimizer")
        name = str(written.get("type")).lower() if isinstance(written, dict) else ""
        if name not in ("adam", "adamw") or offloaded_to(config) is not None:
            return
        assert isinstance(written, dict)
        params = written.setdefault("params", {})
        if not isinstance(params, dict) or params.get("torch_adam"):
            return
        try:
            FusedAdamBuilder().load()
        except Exception as error:  # noqa: BLE001 - no nvcc, no compiler, another release of CUDA than torch's: each raises its own
            first = (str(error).splitlines() or [type(error).__name__])[0][:200]
            self._notes.append(f"DeepSpeed's fused Adam cannot be compiled here ({first}); the probe used torch's Adam.")
            params["torch_adam"] = True

    def _bring(self, config: dict[str, Any], parameters: list[Any]) -> Any:
        """The optimizer of the program, if the config has none."""
        if offloaded_to(config) is not None:
            from deepspeed.ops.adam import DeepSpeedCPUAdam

            self._notes.append("The config has no optimizer; the probe used DeepSpeedCPUAdam, which optimizer offload requires.")
            return DeepSpeedCPUAdam(parameters, lr=1e-4)
        self._notes.append("The config has no optimizer; the probe used torch's AdamW.")
        return torch.optim.AdamW(parameters, lr=1e-4)

    def _train(self, engine: Any, built: BuiltModel) -> None:
        accumulation = self.data["engine"]["accumulation"]
        micro_steps = min(accumulation, self.question.micro_steps)
        if micro_steps < accumulation:
            self._notes.append(f"Each step ran {micro_steps} of {accumulation} micro batches; the others would repeat the last one.")
        times: list[float] = []
        wanted = self.question.steps
        while self.data.get("steps", 0) < wanted:
            taken = self.data.get("steps", 0)
            self._say(doing=f"step {taken + 1}", done=taken / wanted)
            start = self.bench.seconds()
            for number in range(micro_steps):
                self._micro_step(engine, built, last=number == micro_steps - 1)
            end = self.bench.seconds()
            if start is not None and end is not None and taken:
                times.append(end - start)
            gc.collect()
            self.data["steps"], self.data["skipped"] = taken + 1, int(engine.skipped_steps)
            comes_down = getattr(engine.optimizer, "dynamic_loss_scale", True)
            if comes_down and self.data["skipped"] and self.data["steps"] - self.data["skipped"] < 2:
                wanted = min(wanted + 1, PATIENCE)
        self._parts = parts(engine, self.bench.target.partition(":")[0])
        self.data["states"] = sum(sizes.get("optimizer states", 0) for sizes in self._parts.values())
        self.data["step_seconds"] = statistics.median(times) * accumulation / micro_steps if times else None

    def _micro_step(self, engine: Any, built: BuiltModel, *, last: bool) -> None:
        self._enter("forward")
        batch = built.batch(self.data["engine"]["micro_batch"], self.bench.target)
        loss = loss_of(engine(**batch) if isinstance(batch, dict) else engine(*batch))
        engine.set_gradient_accumulation_boundary(last)
        self._enter("backward")
        engine.backward(loss)
        del loss, batch
        self._enter("step")
        if not (last and self.question.speeds):
            engine.step()
            return
        start = self.bench.seconds()  # it waits for the device, which slows down a step
        engine.step()
        end = self.bench.seconds()
        if start is not None and end is not None:
            self.data["update_seconds"] = end - start


def offloaded_to(config: dict[str, Any]) -> Any:
    """The device of `offload_optimizer`, "cpu" or "nvme"; None if the optimizer stays on the GPU."""
    zero = config.get("zero_optimization")
    offload = zero.get("offload_optimizer") if isinstance(zero, dict) else None
    device = offload.get("device") if isinstance(offload, dict) else None
    return device if device in ("cpu", "nvme") else None
