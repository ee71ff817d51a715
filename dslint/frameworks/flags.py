"""Configs that a program builds from the flags of its launch: `--zero_stage 3 --offload`, `accelerate launch --use_deepspeed`.

Only what a flag says is in such a config; its places are those of the flags.
"""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Mapping as Table
from dataclasses import replace
from math import prod
from typing import Any

from dslint.evaluate.shell.written import in_script
from dslint.job.accelerate import AccelerateFile
from dslint.job.arguments import SourcedValue, as_read
from dslint.source.tree import Document, Key, Mapping, Member, Path, Scalar, Span
from dslint.source.unknown import UNKNOWN

STAGES = ("zero_stage", "actor_zero_stage", "critic_zero_stage")
"""Flags for the ZeRO stage in DeepSpeed-Chat and OpenRLHF; each of those that are given is a config of its own."""

_OPENRLHF = {
    "ds.zero_stage": "zero_stage",
    "ds.adam_offload": "adam_offload",
    "ds.param_dtype": "dtype",
    "ds.ring_attn_size": "ring_attn_size",
    "ds.tensor_parallel_size": "ds_tensor_parallel_size",
    "train.batch_size": "train_batch_size",
    "train.micro_batch_size": "micro_train_batch_size",
}
"""Flags of OpenRLHF with a section, by the names that they had before."""

_SHARING = ("ring_attn_size", "ds_tensor_parallel_size")
"""Flags of OpenRLHF for the number of ranks that share a batch: it multiplies the batch size by it.

Source: openrlhf/utils/deepspeed/deepspeed.py, get_ds_train_config.
"""

_ACCELERATE: dict[str, Path] = {
    "gradient_accumulation_steps": ("gradient_accumulation_steps",),
    "gradient_clipping": ("gradient_clipping",),
    "zero_stage": ("zero_optimization", "stage"),
    "offload_optimizer_device": ("zero_optimization", "offload_optimizer", "device"),
    "offload_param_device": ("zero_optimization", "offload_param", "device"),
    "zero3_save_16bit_model": ("zero_optimization", "stage3_gather_16bit_weights_on_model_save"),
}
"""Flags of `accelerate launch`, each with the DeepSpeed key that it sets."""


def configs_of_flags(given: Table[str, SourcedValue], document: Document, shown: str) -> list[Document]:
    """The configs that programs such as DeepSpeed-Chat and OpenRLHF build from their flags."""
    flags = {_OPENRLHF.get(name, name): value for name, value in given.items()}
    return [_of_stage(flags, flags[name], document, shown) for name in STAGES if name in flags]


def cpu_optimizer(given: Table[str, SourcedValue]) -> SourcedValue | None:
    """The flag for offload, with which DeepSpeed-Chat and OpenRLHF build the optimizer `DeepSpeedCPUAdam`."""
    flag = next((given[name] for name in ("adam_offload", "ds.adam_offload", "offload") if name in given), None)
    return replace(flag, value="deepspeed.ops.adam.DeepSpeedCPUAdam") if flag is not None else None


def _of_stage(flags: Table[str, SourcedValue], stage: SourcedValue, document: Document, shown: str) -> Document:
    made = _Made(document, shown, stage)
    made.put(("zero_optimization", "stage"), stage, "max_steps")
    named = ("micro_train_batch_size", "per_device_train_batch_size", "per_device_training_batch_size")
    batch = next((flags[name] for name in named if name in flags and "use_dynamic_batch" not in flags), None)
    # Without a flag the program's own default counts, which is not known here.
    made.put(("train_micro_batch_size_per_gpu",), batch or stage, "max_steps", value=UNKNOWN if batch is None else None)
    if "micro_train_batch_size" in flags and "train_batch_size" in flags and "use_dynamic_batch" not in flags:
        factors = [as_read("max_steps", flags[name].value) for name in ("train_batch_size", *_SHARING) if name in flags]
        known = all(isinstance(factor, int) for factor in factors)
        made.put(("train_batch_size",), flags["train_batch_size"], value=prod(factors) if known else UNKNOWN)
    if "offload" in flags:
        for part in ("offload_optimizer", "offload_param"):
            made.put(("zero_optimization", part, "device"), flags["offload"], value="cpu")
    if "adam_offload" in flags:
        made.put(("zero_optimization", "offload_optimizer", "device"), flags["adam_offload"], value="cpu")
    for dtype in ("bf16", "fp16"):
        switch = flags.get(dtype) or flags.get("dtype")
        if switch is not None and (switch.value is True or switch.value == dtype):
            made.put((dtype, "enabled"), switch, value=True)
    return made.document()


def accelerate_flags(flags: Table[str, SourcedValue], document: Document, shown: str) -> tuple[AccelerateFile, Document] | None:
    """The settings and the config of `accelerate launch --use_deepspeed` without a file; None for any other launch."""
    if "use_deepspeed" not in flags and "zero_stage" not in flags:
        return None
    at = flags.get("use_deepspeed") or flags["zero_stage"]
    made = _Made(document, shown, at)
    for key in (("train_batch_size",), ("train_micro_batch_size_per_gpu",)):
        made.put(key, at, value="auto")
    for name, path in _ACCELERATE.items():
        given = flags.get(name)
        if given is not None and given.value != "none":
            made.put(path, given, "max_steps" if name == "zero_stage" else "max_grad_norm" if name.startswith("gradient") else "")
        elif name in ("gradient_accumulation_steps", "gradient_clipping"):
            made.put(path, at, value="auto")
        elif name == "zero_stage":
            made.put(path, at, value=2)
    block = keys_of_flags(flags, (*_ACCELERATE, "zero3_init_flag"))
    top = keys_of_flags(flags, ("num_processes", "num_machines", "mixed_precision"))
    return AccelerateFile(shown, top, block, precision_flag=flags.get("mixed_precision")), made.document()


def keys_of_flags(flags: Table[str, SourcedValue], names: Iterable[str]) -> dict[str, SourcedValue]:
    """The flags of `accelerate launch` that are given, by the names of the keys of its file."""
    return {name: replace(flags[name], name=name) for name in names if name in flags}


class _Made:
    """A config under construction. A value from another file has the place of the launch."""

    def __init__(self, document: Document, shown: str, at: SourcedValue) -> None:
        self.whole = document
        self.shown = shown
        self.at = self._span(at, Span(0, 0))
        self.root = Mapping(self.at, [])

    def _span(self, given: SourcedValue, otherwise: Span) -> Span:
        if given.path != self.shown or given.range is None:
            return otherwise
        return Span(given.range.start.offset, given.range.end.offset)

    def put(self, path: Path, given: SourcedValue, kind: str = "", *, value: Any = None) -> None:
        """Write the value of a flag at a path; `kind` is an argument of the Trainer that is read alike."""
        span = self._span(given, self.at)
        read = value if value is not None else as_read(kind, given.value)
        if isinstance(read, str) and read.lower() in ("true", "false"):
            read = read.lower() == "true"
        here = self.root
        for step in path[:-1]:
            inner = here.get(str(step))
            if inner is None:
                inner = Member(Key(span, str(step), str(step)), Mapping(span, []))
                here.members.append(inner)
            assert isinstance(inner.value, Mapping)
            here = inner.value
        raw = given.raw or given.name
        here.members.append(
            Member(Key(span, str(path[-1]), str(path[-1])), Scalar(span, read if read is not None else UNKNOWN, raw, "yaml"))
        )

    def document(self) -> Document:
        """The config, with its places in the script."""
        return in_script(self.whole, self.root)
