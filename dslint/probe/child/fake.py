"""A fake GPU: DeepSpeed's engine runs on tensors without contents, with separate device names for device and host.

Fake tensors have a shape, type and device, but compute nothing. A device of type "cuda" would require a CUDA build of torch, so the fake
device has torch's private-use type, and DeepSpeed gets an accelerator that behaves like its CUDA accelerator.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any, Self

import torch
import torch.nn.functional as F  # noqa: N812 - torch's own convention
from torch import nn

from dslint.probe.child.tracker import DEVICE, Tracker


class Unsupported(Exception):
    """This torch does not support a fake device; the text says why."""


def prepare(memory: int, tracker: Callable[[], Tracker]) -> None:
    """Register the device in torch and the accelerator in DeepSpeed. `memory` is what it claims to have; `tracker` returns the tracker.

    Raises:
        Unsupported: torch is too old.
    """
    try:
        import torch.distributed._tools.fake_collectives
        from torch.utils.backend_registration import _DummyBackendModule, _setup_privateuseone_for_python_backend
    except ImportError:
        raise Unsupported(
            f"--device fake requires a newer torch than {torch.__version__}, which does not support custom devices in Python"
        ) from None

    class Module(_DummyBackendModule):  # type: ignore[misc] # torch is not typed here
        def get_amp_supported_dtype(self) -> list[torch.dtype]:
            return [torch.float16, torch.bfloat16]

        def get_rng_state(self, *_: Any) -> torch.Tensor:
            return torch.get_rng_state()

        def set_rng_state(self, *_: Any) -> None:
            return None

        def device(self, _: Any) -> Any:
            return nullcontext()

        def synchronize(self, *_: Any) -> None:
            return None

    _setup_privateuseone_for_python_backend(DEVICE, backend_module=Module())
    from deepspeed.accelerator import set_accelerator

    set_accelerator(_accelerator(memory, tracker))
    _let_data_move()
    _let_tensors_be_made()
    _let_attention_be_fused()
    _let_ranks_agree()
    _let_norms_be_known()
    _let_optimizers_take_lists()


def answers(tracker: Callable[[], Tracker]) -> dict[str, Callable[..., Any]]:
    """Replacements for operations that need contents or a real device: values are finite, without overflow."""

    def value(tensor: torch.Tensor) -> Any:
        if tensor.dtype == torch.bool:
            return False
        return 1.0 if tensor.dtype.is_floating_point else 0

    def pinned(tensor: torch.Tensor, *_: Any, **__: Any) -> torch.Tensor:
        copy = torch.empty_strided(tensor.size(), tensor.stride(), dtype=tensor.dtype, device="cpu")
        tracker().track(copy)
        tracker().pin(copy)
        return copy

    return {
        "_local_scalar_dense": value,
        "_pin_memory": pinned,
        "pin_memory": pinned,
        "is_pinned": lambda *_, **__: False,
        "equal": lambda *_, **__: True,
    }


class _Silent:
    """A stream, an event or a context on which every operation finishes at once."""

    def __init__(self, *_: Any, **__: Any) -> None:
        pass

    def __getattr__(self, name: str) -> Callable[..., None]:
        if name.startswith("__"):
            raise AttributeError(name)
        return lambda *_, **__: None

    def query(self) -> bool:
        return True

    def elapsed_time(self, _: Any) -> float:
        return 1.0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        return None


def _accelerator(memory: int, tracker: Callable[[], Tracker]) -> Any:  # noqa: C901 - many methods of one line each
    from deepspeed.accelerator.cpu_accelerator import CPU_Accelerator

    class Accelerator(CPU_Accelerator):  # type: ignore[misc] # deepspeed is not typed
        """DeepSpeed's CPU accelerator, with the properties by which its code detects a GPU."""

        Stream = property(lambda _: _Silent)
        Event = property(lambda _: _Silent)

        def __init__(self) -> None:
            super().__init__()
            self._name = DEVICE
            self._communication_backend_name = "fake"

        def is_synchronized_device(self) -> bool:
            return False

        def use_host_timers(self) -> bool:
            return True

        def resolves_data_dependency(self) -> bool:
            return False

        def handles_memory_backpressure(self) -> bool:
            return False

        def device_name(self, device_index: int | None = None) -> str:
            return DEVICE if device_index is None else f"{DEVICE}:{device_index}"

        def device(self, _: Any = None) -> _Silent:
            return _Silent()

        def current_device(self) -> int:
            return 0

        def current_device_name(self) -> str:
            return f"{DEVICE}:0"

        def device_count(self) -> int:
            return 8

        def on_accelerator(self, tensor: torch.Tensor) -> bool:
            return str(tensor.device.type) == DEVICE

        def stream(self, _: Any) -> _Silent:
            return _Silent()

        def current_stream(self, _: Any = None) -> _Silent:
            return _Silent()

        def default_stream(self, _: Any = None) -> _Silent:
            return _Silent()

        def is_fp16_supported(self) -> bool:
            return True

        def is_bf16_supported(self) -> bool:
            return True

        def supported_dtypes(self) -> list[torch.dtype]:
            return [torch.float, torch.half, torch.bfloat16]

        def total_memory(self, _: Any = None) -> int:
            return memory

        def available_memory(self, _: Any = None) -> int:
            return max(0, memory - tracker().size("device"))

        def memory_allocated(self, _: Any = None) -> int:
            return tracker().size("device")

        def max_memory_allocated(self, _: Any = None) -> int:
            return tracker().size("device")

        memory_reserved = memory_cached = memory_allocated
        max_memory_reserved = max_memory_cached = max_memory_allocated

        def memory_stats(self, _: Any = None) -> dict[str, int]:
            size = tracker().size("device")
            return {"allocated_bytes.all.current": size, "allocated_bytes.all.peak": size}

        def pin_memory(self, tensor: torch.Tensor, *_: Any, make_copy: bool = True, match_shape: bool = True, **__: Any) -> torch.Tensor:
            fresh = torch.empty_like(tensor) if match_shape else torch.empty(tensor.numel(), dtype=tensor.dtype)
            tracker().pin(fresh)
            return fresh.copy_(tensor) if make_copy else fresh

        def _pin_fresh(self, template: torch.Tensor, shape: Any) -> torch.Tensor:
            fresh = template.new_empty(shape)
            tracker().pin(fresh)
            return fresh

        def is_pinned(self, tensor: torch.Tensor) -> bool:
            return tracker().is_pinned(tensor)

    return Accelerator()


def _let_data_move() -> None:
    """Allow `parameter.data = tensor on another device`, as on CUDA, and update the device of the fake tensor."""
    from torch._subclasses.fake_tensor import FakeTensor

    make_subclass = torch.Tensor._make_subclass  # noqa: SLF001 - where fake tensors get their keys

    def with_keys_of_the_host(cls: Any, data: Any, require_grad: Any = False, **options: Any) -> Any:  # noqa: FBT002 - torch's signature
        device = options.get("device_for_backend_keys")
        if device is not None and device.type == DEVICE:
            options["device_for_backend_keys"] = torch.device("cpu")
        return make_subclass(cls, data, require_grad, **options)

    torch.Tensor._make_subclass = staticmethod(with_keys_of_the_host)  # noqa: SLF001
    base = torch._C.TensorBase.data  # noqa: SLF001 - the property that is replaced

    def put(self: Any, value: Any) -> None:
        base.__set__(self, value)
        if isinstance(value, FakeTensor):
            self.fake_device = value.fake_device

    FakeTensor.data = property(base.__get__, put)

    def apply(self: nn.Module, function: Callable[[torch.Tensor], torch.Tensor], recurse: bool = True) -> nn.Module:  # noqa: FBT001, FBT002 - torch's signature
        for child in self.children() if recurse else ():
            apply(child, function)
        with torch.no_grad():
            for parameter in self._parameters.values():
                if parameter is not None:
                    parameter.data = function(parameter.data)
                    if parameter.grad is not None:
                        parameter.grad.data = function(parameter.grad)
            for name, buffer in self._buffers.items():
                if buffer is not None:
                    self._buffers[name] = function(buffer)
        return self

    nn.Module._apply = apply  # noqa: SLF001 - it would reject tensors of another device


def _let_tensors_be_made() -> None:
    """Let `torch.tensor(numbers, device=...)` read the numbers on the host, then move them."""
    make = torch.tensor

    def tensor(data: Any, *arguments: Any, device: Any = None, **options: Any) -> torch.Tensor:
        made = make(data, *arguments, **options)
        if hasattr(made, "constant"):
            made.constant = None
        return made if device is None else made.to(device)

    torch.tensor = tensor
    partitioning: Any = sys.modules.get("deepspeed.runtime.zero.partition_parameters")
    if partitioning is not None:
        partitioning._orig_torch_tensor = tensor  # noqa: SLF001 - what zero.Init restores at its end
    torch.Tensor.record_stream = lambda *_: None  # there are no streams


class _FusedAttention(torch.autograd.Function):  # type: ignore[misc] # torch is not typed here
    """The memory that a fused attention kernel keeps: query, key, value, output, and a 32-bit number per row and head.

    The output has the layout of flash attention: the heads of a token are adjacent, so that joining them needs no copy.
    """

    @staticmethod
    def forward(context: Any, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
        rows, heads, length, _ = query.shape
        output = query.new_empty((rows, length, heads, value.shape[-1])).transpose(1, 2)
        sums = torch.empty(query.shape[:-1], dtype=torch.float32, device=query.device)
        context.save_for_backward(query, key, value, output, sums)
        return output

    @staticmethod
    def backward(context: Any, _: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        query, key, value, _output, sums = context.saved_tensors
        torch.empty_like(sums)
        return torch.empty_like(query), torch.empty_like(key), torch.empty_like(value)


def _let_attention_be_fused() -> None:
    """Keep scaled dot-product attention in one kernel, as on a GPU; torch would decompose it on an unknown device."""
    plain = F.scaled_dot_product_attention

    def attention(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, *rest: Any, **options: Any) -> torch.Tensor:
        if query.device.type != DEVICE:
            return plain(query, key, value, *rest, **options)
        output: torch.Tensor = _FusedAttention.apply(query, key, value)
        return output

    F.scaled_dot_product_attention = attention
    nn.functional.scaled_dot_product_attention = attention


def _let_optimizers_take_lists() -> None:
    """Use the foreach implementation of torch's optimizers, as on a GPU: it needs different memory."""
    import torch.optim.optimizer as optimizers
    from torch._subclasses.fake_tensor import FakeTensor

    kinds: Any = getattr(optimizers, "_foreach_supported_types", None)
    if isinstance(kinds, list):
        kinds.append(FakeTensor)


def _let_ranks_agree() -> None:
    """Skip assertions that all ranks have the same numbers: there are no numbers to compare."""
    for name, module in list(sys.modules.items()):
        if name.startswith("deepspeed") and module is not None:
            for function in ("assert_ints_same_as_other_ranks", "assert_lst_len_same_as_other_ranks"):
                if function in vars(module):
                    setattr(module, function, lambda *_, **__: None)


def _let_norms_be_known() -> None:
    """Before 0.19.8 the optimizer for bf16 without ZeRO asserts a norm above 0, which a tensor without contents is not."""
    import deepspeed.runtime.bf16_optimizer as module

    for name in ("get_global_norm_of_tensors", "get_norm_with_moe_layers"):
        function = getattr(module, name, None)
        if function is not None:
            setattr(module, name, _measured(function))


def _measured(function: Callable[..., Any]) -> Callable[..., float]:
    def norm(*arguments: Any, **options: Any) -> float:
        function(*arguments, **options)  # for its memory
        return 1.0

    return norm
