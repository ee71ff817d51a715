"""DeepSpeed-Chat: programs that build the config from flags: `deepspeed main.py --zero_stage 3 --offload`.

Source: applications/DeepSpeed-Chat/dschat/utils/ds_utils.py, get_train_ds_config.
"""

from __future__ import annotations

from collections.abc import Mapping

from dslint.facts import Integration
from dslint.frameworks.base import ConfigFlags, Framework
from dslint.frameworks.built import Built
from dslint.job.arguments import SourcedValue
from dslint.source.tree import Document
from dslint.source.unknown import UNKNOWN

_BATCH = ("per_device_train_batch_size", "per_device_training_batch_size")


def _build(flags: Mapping[str, SourcedValue], stage: SourcedValue, document: Document, shown: str) -> Document:
    built = Built(document, shown, stage)
    built.put(("zero_optimization", "stage"), stage, "max_steps")
    batch = next((flags[name] for name in _BATCH if name in flags), None)
    # Without a flag the program's own default counts, which is not known here.
    built.put(("train_micro_batch_size_per_gpu",), batch or stage, "max_steps", value=UNKNOWN if batch is None else None)
    if "offload" in flags:
        for part in ("offload_optimizer", "offload_param"):
            built.put(("zero_optimization", part, "device"), flags["offload"], value="cpu")
    built.precision(flags)
    return built.document()


FRAMEWORK = Framework(
    "DeepSpeed-Chat",
    Integration.DEEPSPEED,
    packages=("deepspeed-chat", "dschat"),
    rank=1,
    flags=ConfigFlags(("zero_stage", "actor_zero_stage", "critic_zero_stage"), _build, cpu_optimizer=("offload",)),
)
