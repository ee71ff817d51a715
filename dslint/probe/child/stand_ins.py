"""Replacements for DeepSpeed's compiled operations on machines without a GPU.

The surrounding Python code is DeepSpeed's own: FusedAdam and CPUAdam allocate their usual states; only the arithmetic is missing.
"""

from __future__ import annotations

import inspect
import sys
from typing import Any


class Handle:
    """Replaces the handle of the NVMe library: reads and writes nothing, but counts pending requests, which the swappers check."""

    def __init__(self, *_: Any, **__: Any) -> None:
        self._pending = 0

    def wait(self) -> int:
        done, self._pending = self._pending, 0
        return done

    def new_cpu_locked_tensor(self, count: int, like: Any) -> Any:
        import torch

        return torch.empty(count, dtype=like.dtype)

    def is_pinned(self, _: Any) -> bool:
        return True

    def free_cpu_locked_tensor(self, _: Any) -> bool:
        return True

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)

        def call(*_: Any, **__: Any) -> int:
            self._pending += name.startswith("async_")
            return 0

        return call


class CompiledStandIn:
    """Replaces a compiled module: every function exists and computes nothing. Wrong types are rejected as in the real one."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        if name in ("aio_handle", "gds_handle"):
            return Handle
        if name in ("flatten", "unflatten"):
            import torch

            return getattr(torch._utils, f"_{name}_dense_tensors")  # noqa: SLF001 - what the compiled operation calls
        arithmetic = any(word in name for word in ("adam", "lion", "lamb", "adagrad"))

        def call(*arguments: Any, **_: Any) -> None:
            if arithmetic and any(isinstance(argument, str | dict) or argument is None for argument in arguments):
                raise TypeError(f"{name}(): incompatible function arguments")

        return call


def install() -> None:
    """Let every compiled operation load without a compiler."""
    import deepspeed.ops.op_builder as builders

    def load(self: Any, *_: Any, **__: Any) -> CompiledStandIn:
        return CompiledStandIn(type(self).__name__)

    modules = [module for name, module in list(sys.modules.items()) if name.startswith("deepspeed.ops.op_builder") and module]
    for module in [*modules, builders]:
        for kind in [value for value in vars(module).values() if inspect.isclass(value) and "Builder" in value.__name__]:
            bases: list[Any] = [base for base in kind.__mro__ if base.__module__.startswith("deepspeed")]
            for base in bases:
                base.load = base.jit_load = load
                base.is_compatible = lambda *_, **__: True
    # Otherwise DeepSpeed would compile the shared-memory collectives of CPU ranks when communication starts.
    communication: Any = sys.modules.get("deepspeed.comm.torch")
    if communication is not None and hasattr(communication, "build_shm_op"):
        communication.build_shm_op = lambda: None
