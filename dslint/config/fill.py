"""The values that integrations fill in for "auto", if the arguments or the model are known."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from dslint.config.context import Context
from dslint.config.values import Origin, Value
from dslint.facts import Facts, Integration, Release
from dslint.setup.arguments import Arguments, SourcedValue
from dslint.setup.model import Setup
from dslint.source.unknown import UNKNOWN

SOURCES: dict[str, tuple[str, ...]] = {
    "train_micro_batch_size_per_gpu": ("per_device_train_batch_size",),
    "gradient_accumulation_steps": ("gradient_accumulation_steps",),
    "train_batch_size": ("per_device_train_batch_size", "gradient_accumulation_steps"),
    "gradient_clipping": ("max_grad_norm",),
    "optimizer.params.lr": ("learning_rate",),
    "optimizer.params.betas": ("adam_beta1", "adam_beta2"),
    "optimizer.params.eps": ("adam_epsilon",),
    "optimizer.params.weight_decay": ("weight_decay",),
    "scheduler.params.warmup_max_lr": ("learning_rate",),
    "scheduler.params.warmup_num_steps": ("warmup_steps", "warmup_ratio", "max_steps"),
    "scheduler.params.total_num_steps": ("max_steps",),
    "fp16.enabled": ("fp16", "fp16_full_eval"),
    "bf16.enabled": ("bf16", "bf16_full_eval"),
}
"""For each key, the arguments of the Hugging Face Trainer that fill it and that it is compared with."""

LABELS = {
    "train_batch_size": "train_batch_size (calculated)",
    "optimizer.params.betas": "adam_beta1+adam_beta2",
    "scheduler.params.warmup_num_steps": "warmup_steps",
    "scheduler.params.total_num_steps": "num_training_steps (calculated)",
    "fp16.enabled": "fp16|fp16_full_eval",
    "bf16.enabled": "bf16|bf16_full_eval",
}
"""The name of the argument in the Trainer's error, if that is not the argument's own name."""

_HIDDEN: dict[str, Callable[[int], int]] = {
    "zero_optimization.reduce_bucket_size": lambda size: size * size,
    "zero_optimization.stage3_prefetch_bucket_size": lambda size: int(0.9 * size * size),
    "zero_optimization.stage3_param_persistence_threshold": lambda size: 10 * size,
}


class Filled:
    """The value that one or several arguments give a key. `sure` is False if one of them has a default that the program may change."""

    __slots__ = ("givens", "sure", "value")

    def __init__(self, value: Any, givens: tuple[SourcedValue, ...], *, sure: bool) -> None:
        self.value = value
        self.givens = givens
        self.sure = sure


AT_LEAST_ONE = Release(5, 16, 0)
"""The first release of transformers (between 5.15 and 5.19) in which a warm-up has at least one step."""

_TEXT_CONFIG = Release(4, 45, 99)
"""The last release of transformers (between 4.45 and 4.46.3) that does not look for the hidden size in `text_config`."""


def from_arguments(key: str, arguments: Arguments, facts: Facts) -> Filled:
    """The value that the Trainer computes for a key."""
    names = SOURCES[key]
    said = {name: arguments.said(name) for name in names}
    values = {name: one.value for name, one in said.items()}
    value = UNKNOWN if any(v is UNKNOWN for v in values.values()) and key not in _OWN_WAY else _computed(key, values, facts)
    givens = tuple(one.given for one in said.values() if one.given is not None)
    return Filled(value, givens, sure=all(one.sure for one in said.values()))


_OWN_WAY = frozenset({"scheduler.params.warmup_num_steps", "fp16.enabled", "bf16.enabled"})


def _computed(key: str, values: dict[str, Any], facts: Facts) -> Any:
    if key == "train_batch_size":
        product = values["per_device_train_batch_size"] * values["gradient_accumulation_steps"]
        return UNKNOWN if facts.world_size is None else product * facts.world_size
    if key == "optimizer.params.betas":
        return [values["adam_beta1"], values["adam_beta2"]]
    if key in ("fp16.enabled", "bf16.enabled"):
        # One true value decides; otherwise both must be known.
        if any(value is True for value in values.values()):
            return True
        return UNKNOWN if any(value is UNKNOWN for value in values.values()) else False
    if key == "scheduler.params.warmup_num_steps":
        old = facts.loader_release is not None and facts.loader_release < AT_LEAST_ONE
        return _warmup(values, 0 if old else 1)
    if key == "scheduler.params.total_num_steps":
        return values["max_steps"] if values["max_steps"] > 0 else UNKNOWN
    return next(iter(values.values()))


def _warmup(values: dict[str, Any], least: int) -> Any:
    """`TrainingArguments.get_warmup_steps`: a whole number counts steps, a number below 1 is a fraction of all steps. At least `least`."""
    steps, ratio, total = (values[name] for name in ("warmup_steps", "warmup_ratio", "max_steps"))
    if steps is UNKNOWN or (steps == 0 and ratio is UNKNOWN):
        return UNKNOWN
    share = steps if 0 < steps < 1 else ratio if steps == 0 else 0
    if share:
        return max(least, math.ceil(total * share)) if isinstance(total, int) and total > 0 else UNKNOWN
    return max(least, int(steps))


def fill(context: Context, key: str, source: str | None) -> Value | None:
    """The value that replaces "auto" in a key that the integration fills, None if it is not known.

    Args:
        context: names the integration, and holds the arguments.
        key: the dotted key.
        source: what it is filled from, for messages.
    """
    facts, setup = context.facts, context.setup
    if key in _HIDDEN:
        return _from_model(facts, key)
    if facts.integration is Integration.TRANSFORMERS and setup is not None and setup.arguments is not None and key in SOURCES:
        filled = from_arguments(key, setup.arguments, facts)
        if filled.value is UNKNOWN or not filled.sure:
            return None
        where = ", ".join(dict.fromkeys(f"{given.name.lstrip('-')} in {given.where}" for given in filled.givens))
        return Value(filled.value, Origin.FILLED, where or f"the default of {' and '.join(SOURCES[key])}")
    if facts.integration is Integration.ACCELERATE:
        return _from_accelerate(setup, key)
    return Value(0, Origin.FILLED, source) if key == "scheduler.params.warmup_min_lr" else None


def _from_model(facts: Facts, key: str) -> Value | None:
    model = facts.model
    size = hidden_size(facts)
    if model is None or size is None:
        return None
    return Value(_HIDDEN[key](size), Origin.FILLED, f"from hidden_size {size:,} in {model.path}")


def hidden_size(facts: Facts) -> int | None:
    """The hidden size that the integration finds in the model's config.json; None if it finds none, or the model is not known."""
    model = facts.model
    if model is None:
        return None
    data = model.data
    found = _size(data)
    release = facts.loader_release
    looks = facts.integration is Integration.TRANSFORMERS and (release is None or release > _TEXT_CONFIG)
    if found is None and looks and isinstance(data.get("text_config"), dict):
        found = _size(data["text_config"])
    return found


_ALIASES = {"gpt2": "n_embd", "gpt_bigcode": "n_embd", "gptj": "n_embd", "codegen": "n_embd", "openai-gpt": "n_embd", "ctrl": "n_embd"}
_ALIASES |= {"t5": "d_model", "mt5": "d_model", "bart": "d_model", "opt": "hidden_size", "whisper": "d_model", "mbart": "d_model"}
_ALIASES |= {"mpt": "d_model", "bloom": "n_embed", "distilbert": "dim", "pegasus": "d_model", "longt5": "d_model", "marian": "d_model"}
"""Model types that store the hidden size under another name in config.json; their classes map `hidden_size` to it."""


def _size(data: dict[str, Any]) -> int | None:
    names = ["hidden_size", *([_ALIASES[data["model_type"]]] if data.get("model_type") in _ALIASES else [])]
    for name in names:
        if isinstance(data.get(name), int) and data[name] > 0:
            return int(data[name])
    sizes = data.get("hidden_sizes")
    if isinstance(sizes, list) and sizes and all(isinstance(size, int) for size in sizes):
        return int(max(sizes))
    return None


def _from_accelerate(setup: Setup | None, key: str) -> Value | None:
    file = setup.accelerate if setup else None
    if file is None or not file.precision or key not in ("fp16.enabled", "bf16.enabled"):
        return None
    kinds = {"fp16.enabled": ("fp16",), "bf16.enabled": ("bf16", "fp8")}[key]
    given = file.get("mixed_precision")
    return Value(
        file.precision in kinds, Origin.FILLED, f"mixed_precision in {given.where}" if given else f"no mixed_precision in {file.path}"
    )
