"""Configs that a class builds from the arguments of a call, such as Accelerate's plugin."""

from __future__ import annotations

from typing import Any

from dslint.evaluate.python.calls import Argument, CallOf
from dslint.evaluate.values import Constant
from dslint.source.tree import Key, Mapping, Member, Scalar, Span
from dslint.source.unknown import UNKNOWN


class Made:
    """A tree under construction; what no argument says is placed at `at`."""

    def __init__(self, at: Span) -> None:
        self.at = at
        self.root = Mapping(at, [])

    def put(self, path: str, value: Any, given: Argument | None = None, style: str = "computed") -> None:
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
        here.members.append(Member(Key(key, name, name), Scalar(span, value, raw, style)))

    def take(self, path: str, given: Argument | None, default: Any = None) -> None:
        """Write the value of an argument, or a default that is not None."""
        if given is not None and not is_none(given):
            self.put(path, plain_value(given), given)
        elif default is not None:
            self.put(path, default, style="default")

    def precision(self, given: Argument | None, kinds: dict[str, str]) -> None:
        """Write the section of the precision that a trainer is given; both sections if the precision is not known."""
        if given is not None and plain_value(given) is UNKNOWN:
            for section in sorted(set(kinds.values())):
                self.put(f"{section}.enabled", UNKNOWN, given)
            return
        kind = kinds.get(str(plain_value(given))) if given else None
        if given is not None and kind is not None:
            self.put(f"{kind}.enabled", value=True, given=given)


def plain_value(given: Argument) -> Any:
    """The value of an argument; `UNKNOWN` if it is not known."""
    return given.value.value if isinstance(given.value, Constant) else UNKNOWN


def is_zero(value: object) -> bool:
    """Whether a value is the number 0."""
    return isinstance(value, int | float) and value == 0


def is_none(given: Argument) -> bool:
    """Whether an argument is None, or the word that stands for it."""
    return isinstance(given.value, Constant) and given.value.value in (None, "none")


def of_plugin(call: CallOf, at: Span, precision: Argument | None) -> Mapping:
    """The config that Accelerate's `DeepSpeedPlugin` builds. `precision` is the argument `mixed_precision` of `Accelerator`.

    It does not write a gradient clipping of 0, and before Accelerate 0.30.0 none that nothing sets; since then it writes "auto" for these,
    and `prepare` fills in 1.0.
    """
    made = Made(at)
    made.put("train_batch_size", "auto")
    made.put("train_micro_batch_size_per_gpu", "auto")
    made.take("gradient_accumulation_steps", call.argument("gradient_accumulation_steps", 1), "auto")
    clipping = call.argument("gradient_clipping", 2)
    if clipping is None or not is_zero(plain_value(clipping)):
        made.take("gradient_clipping", clipping, "auto")
    made.take("zero_optimization.stage", call.argument("zero_stage", 3), 2)
    for kind in ("optimizer", "param"):
        made.take(f"zero_optimization.offload_{kind}.device", call.argument(f"offload_{kind}_device"))
        if call.plain(f"offload_{kind}_device") == "nvme":
            made.take(f"zero_optimization.offload_{kind}.nvme_path", call.argument(f"offload_{kind}_nvme_path"))
    made.take("zero_optimization.stage3_gather_16bit_weights_on_model_save", call.argument("zero3_save_16bit_model"))
    made.precision(precision, {"fp16": "fp16", "bf16": "bf16"})
    return made.root
