"""OpenRLHF: programs that build the config from flags: `python -m openrlhf.cli.train_ppo_ray --ds.zero_stage 3`.

Source: openrlhf/utils/deepspeed/deepspeed.py, get_ds_train_config.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import prod

from dslint.facts import Integration
from dslint.frameworks.base import ConfigFlags, Framework
from dslint.frameworks.built import Built
from dslint.job.arguments import SourcedValue, as_read
from dslint.source.tree import Document
from dslint.source.unknown import UNKNOWN

_OLD_NAMES = {
    "ds.zero_stage": "zero_stage",
    "ds.adam_offload": "adam_offload",
    "ds.param_dtype": "dtype",
    "ds.ring_attn_size": "ring_attn_size",
    "ds.tensor_parallel_size": "ds_tensor_parallel_size",
    "train.batch_size": "train_batch_size",
    "train.micro_batch_size": "micro_train_batch_size",
}
"""Flags with a section, by the names that they had before."""

_SHARING = ("ring_attn_size", "ds_tensor_parallel_size")
"""Flags for the number of ranks that share a batch: it multiplies the batch size by it."""

_OF_RAY = ("rollout", "num_gpus_per_node", "vllm")
"""Parts of the flags of its programs that Ray starts."""


def _build(given: Mapping[str, SourcedValue], stage: SourcedValue, document: Document, shown: str) -> Document:
    flags = {_OLD_NAMES.get(name, name): value for name, value in given.items()}
    built = Built(document, shown, stage)
    built.put(("zero_optimization", "stage"), stage, "max_steps")
    is_fixed = "use_dynamic_batch" not in flags
    batch = flags.get("micro_train_batch_size") if is_fixed else None
    # Without a flag the program's own default counts, which is not known here.
    built.put(("train_micro_batch_size_per_gpu",), batch or stage, "max_steps", value=UNKNOWN if batch is None else None)
    if batch is not None and "train_batch_size" in flags:
        factors = [as_read("max_steps", flags[name].value) for name in ("train_batch_size", *_SHARING) if name in flags]
        known = all(isinstance(factor, int) for factor in factors)
        built.put(("train_batch_size",), flags["train_batch_size"], value=prod(factors) if known else UNKNOWN)
        if not any(word in name for name in flags for word in _OF_RAY):  # there the actor has ranks of its own
            built.leave_out("gradient_accumulation_steps", flags["train_batch_size"])
    if "adam_offload" in flags:
        built.put(("zero_optimization", "offload_optimizer", "device"), flags["adam_offload"], value="cpu")
    built.precision(flags)
    return built.document(may_have_more=True)


FRAMEWORK = Framework(
    "OpenRLHF",
    Integration.DEEPSPEED,
    packages=("openrlhf",),
    flags=ConfigFlags(
        ("zero_stage", "ds.zero_stage"),
        _build,
        own=frozenset({"ds.zero_stage", "micro_train_batch_size", "adam_offload"}),
        cpu_optimizer=("adam_offload", "ds.adam_offload"),
    ),
)
