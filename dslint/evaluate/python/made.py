"""The configs that Accelerate's plugin and Lightning's strategy build from the arguments of a call."""

from __future__ import annotations

from collections.abc import Mapping as Table
from typing import Any, Protocol

from dslint.evaluate.python.calls import Argument, CallOf
from dslint.evaluate.values import Constant, Unknown
from dslint.source.tree import Key, Mapping, Member, Scalar, Span
from dslint.source.unknown import UNKNOWN

LIGHTNING_TRAINER = ("precision", "accumulate_grad_batches", "gradient_clip_val", "gradient_clip_algorithm")
"""The arguments of Lightning's Trainer that concern DeepSpeed."""

STRATEGY = frozenset(
    """
    zero_optimization stage offload_optimizer offload_parameters offload_params_device nvme_path params_buffer_count params_buffer_size
    max_in_cpu offload_optimizer_device optimizer_buffer_count block_size queue_depth single_submit overlap_events thread_count pin_memory
    sub_group_size contiguous_gradients overlap_comm allgather_partitions reduce_scatter allgather_bucket_size reduce_bucket_size
    zero_allow_untested_optimizer logging_batch_size_per_gpu partition_activations cpu_checkpointing contiguous_memory_optimization
    synchronize_checkpoint_boundary
    """.split()
)
"""The arguments from which Lightning's strategy builds a config if it is given none."""

_ZERO = frozenset(
    """
    contiguous_gradients overlap_comm allgather_partitions reduce_scatter allgather_bucket_size reduce_bucket_size sub_group_size
    """.split()
)
_ACTIVATION = frozenset("partition_activations cpu_checkpointing contiguous_memory_optimization synchronize_checkpoint_boundary".split())
_AIO = frozenset("block_size queue_depth single_submit overlap_events thread_count".split())

_STRATEGIES: dict[str, tuple[int, str | None, str | None]] = {
    "deepspeed": (2, None, None),
    "deepspeed_stage_1": (1, None, None),
    "deepspeed_stage_2": (2, None, None),
    "deepspeed_stage_2_offload": (2, "cpu", None),
    "deepspeed_stage_3": (3, None, None),
    "deepspeed_stage_3_offload": (3, "cpu", "cpu"),
    "deepspeed_stage_3_offload_nvme": (3, "nvme", "nvme"),
}
"""Lightning's names of strategies: the stage, and the devices of the optimizer and of the parameters."""


class Keywords(Protocol):
    """The arguments that a class is made with, in a program or in a file."""

    @property
    def keywords(self) -> Table[str, Argument]:
        """The arguments by name."""

    def argument(self, name: str, index: int | None = None) -> Argument | None:
        """An argument by its name or position."""

    def plain(self, name: str, index: int | None = None) -> Any:
        """The plain value of an argument; None if it is not known."""


class _Made:
    """A tree under construction; what no argument says is placed at `at`."""

    def __init__(self, at: Span) -> None:
        self.at = at
        self.root = Mapping(at, [])

    def put(self, path: str, value: Any, given: Argument | None = None) -> None:
        """Write a value at a dotted path."""
        *sections, name = path.split(".")
        key, span = (given.key, given.span) if given else (self.at, self.at)
        here = self.root
        for section in sections:
            inner = here.get(section)
            if inner is None:
                inner = Member(Key(key, section, section), Mapping(key, []))
                here.members.append(inner)
            assert isinstance(inner.value, Mapping)
            here = inner.value
        raw = "..." if value is UNKNOWN else repr(value)
        here.members.append(Member(Key(key, name, name), Scalar(span, value, raw, "computed")))

    def take(self, path: str, given: Argument | None, default: Any = None) -> None:
        """Write the value of an argument, or a default that is not None."""
        if given is not None and not _is_none(given):
            self.put(path, _plain(given), given)
        elif default is not None:
            self.put(path, default)

    def precision(self, given: Argument | None, kinds: dict[str, str]) -> None:
        """Write the section of the precision that a trainer is given; both sections if the precision is not known."""
        if given is not None and _plain(given) is UNKNOWN:
            for section in sorted(set(kinds.values())):
                self.put(f"{section}.enabled", UNKNOWN, given)
            return
        kind = kinds.get(str(_plain(given))) if given else None
        if given is not None and kind is not None:
            self.put(f"{kind}.enabled", value=True, given=given)


def _plain(given: Argument) -> Any:
    return given.value.value if isinstance(given.value, Constant) else UNKNOWN


def _is_none(given: Argument) -> bool:
    return isinstance(given.value, Constant) and given.value.value in (None, "none")


def of_plugin(call: CallOf, at: Span, precision: Argument | None) -> Mapping:
    """The config that Accelerate's `DeepSpeedPlugin` builds. `precision` is the argument `mixed_precision` of `Accelerator`."""
    made = _Made(at)
    made.put("train_batch_size", "auto")
    made.put("train_micro_batch_size_per_gpu", "auto")
    made.take("gradient_accumulation_steps", call.argument("gradient_accumulation_steps", 1), "auto")
    made.take("gradient_clipping", call.argument("gradient_clipping", 2))
    made.take("zero_optimization.stage", call.argument("zero_stage", 3), 2)
    for kind in ("optimizer", "param"):
        made.take(f"zero_optimization.offload_{kind}.device", call.argument(f"offload_{kind}_device"))
        if call.plain(f"offload_{kind}_device") == "nvme":
            made.take(f"zero_optimization.offload_{kind}.nvme_path", call.argument(f"offload_{kind}_nvme_path"))
    made.take("zero_optimization.stage3_gather_16bit_weights_on_model_save", call.argument("zero3_save_16bit_model"))
    made.precision(precision, {"fp16": "fp16", "bf16": "bf16"})
    return made.root


def of_strategy(call: Keywords, at: Span, precision: Argument | None) -> Mapping | None:
    """The config that Lightning's `DeepSpeedStrategy` builds; None with a strategy that is not DeepSpeed's."""
    made = _Made(at)
    if call.plain("zero_optimization", 1) is not False:
        made.take("zero_optimization.stage", call.argument("stage", 2), 2)
        devices = {"optimizer": "offload_optimizer_device", "param": "offload_params_device"}
        for kind, switch in (("optimizer", "offload_optimizer"), ("param", "offload_parameters")):
            given = call.argument(switch)
            if given is not None and _plain(given) is not False:
                device = call.argument(devices[kind])
                made.put(f"zero_optimization.offload_{kind}.device", _device(given, device), device or given)
        for name in sorted(_ZERO & call.keywords.keys()):
            made.take(f"zero_optimization.{name}", call.keywords[name])
    for section, names in (("activation_checkpointing", _ACTIVATION), ("aio", _AIO)):
        for name in sorted(names & call.keywords.keys()):
            made.take(f"{section}.{name}", call.keywords[name])
    made.precision(precision, LIGHTNING_PRECISION)
    return made.root


LIGHTNING_PRECISION = {"16": "fp16", "16-mixed": "fp16", "16-true": "fp16", "bf16": "bf16", "bf16-mixed": "bf16", "bf16-true": "bf16"}


def _device(switch: Argument, device: Argument | None) -> Any:
    if _plain(switch) is UNKNOWN:
        return UNKNOWN
    return _plain(device) if device is not None else "cpu"


def of_name(given: Argument, precision: Argument | None) -> Mapping | None:
    """The config of a strategy that Lightning knows by its name: `strategy="deepspeed_stage_3"`. None for any other name."""
    known = _STRATEGIES.get(str(_plain(given)))
    if known is None or isinstance(given.value, Unknown):
        return None
    made = _Made(given.span)
    stage, optimizer, parameters = known
    made.put("zero_optimization.stage", stage, given)
    if optimizer:
        made.put("zero_optimization.offload_optimizer.device", optimizer, given)
    if parameters:
        made.put("zero_optimization.offload_param.device", parameters, given)
    made.precision(precision, LIGHTNING_PRECISION)
    return made.root
