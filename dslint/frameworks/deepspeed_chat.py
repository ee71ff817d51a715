"""DeepSpeed-Chat: programs that build the config from flags: `deepspeed main.py --zero_stage 3 --offload`.

Source: applications/DeepSpeed-Chat/dschat/utils/ds_utils.py, get_train_ds_config.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from dslint.facts import Integration
from dslint.frameworks.base import ConfigFlags, Framework
from dslint.frameworks.built import Built
from dslint.job.arguments import SourcedValue
from dslint.source.tree import Document, Path
from dslint.source.unknown import UNKNOWN

_CONTAINED = {
    r"(codegen|bloomz?|gpt-j|gpt-neo|falcon)-": "transformer.h.",
    r"(pythia|gpt-neox)-": "gpt_neox.layers.",
    r"((meta-)?llama-|vicuna-|mistral-|qwen(2|2\.5)-)": "model.layers.",
    r"opt-\d": "model.decoder.layers.",
}
"""By the beginning of a model's name: what holds its layers, in the names of transformers' classes for causal language models."""

_CONTAINERS = frozenset(["layers", "h", *(name.strip(".") for name in _CONTAINED.values()), "decoder.layers"])


def container_without(model: object, part: object) -> str | None:
    """What holds the layers of a model by its name, if `part` of `--lora_module_name` is in no name of them: then no layer gets LoRA.

    Source: applications/DeepSpeed-Chat/dschat/utils/module/lora.py, convert_linear_layer_to_lora.
    """
    if not isinstance(part, str) or not isinstance(model, str) or part.strip(".") not in _CONTAINERS:
        return None
    name = model.rstrip("/").rpartition("/")[2]
    container = next((container for pattern, container in _CONTAINED.items() if re.match(pattern, name, re.IGNORECASE)), None)
    return container if container is not None and part not in f"{container}0." else None


_BATCH = ("per_device_train_batch_size", "per_device_training_batch_size")

_OWN = "data_split"
"""A flag of its programs and of copies of them: of 30 public programs and scripts with `zero_stage`, 27 have it. The other three build
configs of their own.
"""

_WRITTEN: Mapping[Path, object] = {
    ("zero_optimization", "stage3_param_persistence_threshold"): 1e4,
    ("zero_optimization", "stage3_max_live_parameters"): 3e7,
    ("zero_optimization", "stage3_prefetch_bucket_size"): 3e7,
    ("zero_optimization", "memory_efficient_linear"): False,
    ("gradient_clipping",): 1.0,
    ("steps_per_print",): 10,
    ("prescale_gradients",): False,
    ("wall_clock_breakdown",): False,
}
"""What the function writes for every training, in all of its versions."""


def _build(flags: Mapping[str, SourcedValue], stage: SourcedValue, document: Document, shown: str) -> Document:
    built = Built(document, shown, stage)
    built.put(("zero_optimization", "stage"), stage, "max_steps")
    batch = next((flags[name] for name in _BATCH if name in flags), None)
    # Without a flag the program's own default counts, which is not known here.
    built.put(("train_micro_batch_size_per_gpu",), batch or stage, "max_steps", value=UNKNOWN if batch is None else None)
    if _OWN not in flags:
        built.precision(flags)
        return built.document(may_have_more=True)
    if "offload" in flags:
        for part in ("offload_optimizer", "offload_param"):
            built.put(("zero_optimization", part, "device"), flags["offload"], value="cpu")
    # It is the product of the micro batch size, the accumulation and the ranks.
    built.put(("train_batch_size",), batch or stage, value=UNKNOWN)
    dtype = flags.get("dtype")
    precision = "fp16" if dtype is None else dtype.value
    if precision in ("fp16", "bf16"):
        built.put((precision, "enabled"), dtype or stage, value=True)
    if precision == "fp16":
        built.put(("fp16", "loss_scale_window"), dtype or stage, value=100)
    for path, value in _WRITTEN.items():
        built.put(path, stage, value=value)
    hybrid, size = flags.get("enable_hybrid_engine"), flags.get("inference_tp_size")
    if hybrid is not None and stage.name.endswith("actor_zero_stage"):  # the critic has none
        built.put(("hybrid_engine", "enabled"), hybrid, value=True)
        built.put(("hybrid_engine", "inference_tp_size"), size or hybrid, "max_steps", value=None if size is not None else 1)
    return built.document()


FRAMEWORK = Framework(
    "DeepSpeed-Chat",
    Integration.DEEPSPEED,
    packages=("deepspeed-chat", "dschat"),
    rank=1,
    flags=ConfigFlags(
        ("zero_stage", "actor_zero_stage", "critic_zero_stage"),
        _build,
        cpu_optimizer=("offload",),
        fill=frozenset({"gradient_accumulation_steps"}),
    ),
)
