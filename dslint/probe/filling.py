"""Values for "auto" that an integration would fill, and overrides of config keys."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from dslint.config import UNKNOWN, Config
from dslint.facts import Integration
from dslint.probe.question import Override
from dslint.source.tree import Mapping, Node, Path, Scalar

_HUGGING_FACE = (Integration.TRANSFORMERS, Integration.ACCELERATE)

_STAND_INS: dict[str, Any] = {
    "train_micro_batch_size_per_gpu": 1,
    "gradient_accumulation_steps": 1,
    "gradient_clipping": 1.0,
    "optimizer.params.lr": 5e-5,
    "scheduler.params.warmup_min_lr": 0,
    "scheduler.params.warmup_max_lr": 5e-5,
    "scheduler.params.warmup_num_steps": 10,
    "scheduler.params.total_num_steps": 1000,
    "zero_allow_untested_optimizer": True,
    "zero_optimization.stage": 2,
}
"""Values for an "auto" that cannot be computed. Other keys with "auto" are left out and have their defaults."""


def fill(config: Config, hidden: int | None) -> list[Override]:
    """The overrides for each "auto" that the Hugging Face integrations or a framework fill. Any other "auto" stays.

    Args:
        config: the config.
        hidden: the hidden size of the model, from which bucket sizes are computed.
    """
    own = config.context.own_loader
    if config.facts.integration not in _HUGGING_FACE and own is None:
        return []
    sizes = {} if hidden is None or own is not None else _bucket_sizes(hidden)
    autos = [path for path, node in _leaves(config.document.root, ()) if isinstance(node, Scalar) and node.value == "auto"]
    autos = [path for path in autos if own is None or ".".join(map(str, path)) in own.fills]
    return [(tuple(map(str, path)), _value(config, path, autos, sizes)) for path in autos]


def _value(config: Config, path: Path, autos: list[Path], sizes: dict[str, int]) -> Any:
    key = ".".join(map(str, path))
    if key in ("fp16.enabled", "bf16.enabled"):
        other = ("bf16", "enabled") if key == "fp16.enabled" else ("fp16", "enabled")
        taken = config.value(".".join(other)) is True or (key == "fp16.enabled" and other in autos)
        return not taken
    if key in sizes:
        return sizes[key]
    known = config.value(path)
    return known if known is not UNKNOWN and known != "auto" else _STAND_INS.get(key)


def _bucket_sizes(hidden: int) -> dict[str, int]:
    """The bucket sizes that the integrations compute from the model's hidden size."""
    return {
        "zero_optimization.reduce_bucket_size": hidden * hidden,
        "zero_optimization.stage3_prefetch_bucket_size": int(0.9 * hidden * hidden),
        "zero_optimization.stage3_param_persistence_threshold": 10 * hidden,
    }


def _leaves(node: Node | None, path: Path) -> Iterator[tuple[Path, Node]]:
    if isinstance(node, Mapping):
        for member in node.members:
            yield from _leaves(member.value, (*path, member.key.value))
    elif node is not None:
        yield path, node


def micro_batch(size: int) -> list[Override]:
    """A micro batch size; the train batch size follows from it."""
    return [(("train_micro_batch_size_per_gpu",), size), (("train_batch_size",), None)]


def assignment(text: str) -> Override:
    """The override in `fp16.enabled=true`: a dotted path and a JSON value; a value that is not JSON is a string, `null` removes the key.

    Raises:
        ValueError: the path or the `=` is missing.
    """
    key, equals, word = text.partition("=")
    path = tuple(key.strip().split("."))
    if not equals or not all(path):
        raise ValueError(text)
    try:
        value = json.loads(word)
    except ValueError:
        value = word.strip()
    return path, value


def in_words(override: Override) -> str:
    """An override as text: `zero_optimization.stage = 2`."""
    path, value = override
    return f"{'.'.join(path)} " + ("left out" if value is None else f"= {json.dumps(value)}")


def ranks_of(config: Config) -> tuple[int, str] | None:
    """The number of ranks that satisfies the batch sizes of the file, with the evidence; None if they do not determine it."""
    written = [
        value
        for key in ("train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps")
        if config.has(key) and isinstance(value := config.value(key), int) and value > 0
    ]
    if len(written) != 3 or written[0] % (written[1] * written[2]):
        return None
    total, micro, steps = written
    said = f"train_batch_size {total} / (train_micro_batch_size_per_gpu {micro} x gradient_accumulation_steps {steps})"
    return total // (micro * steps), said
