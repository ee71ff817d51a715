"""Keys whose value, where nobody writes it, DeepSpeed computes from others."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from dslint.values import UNKNOWN, Origin, Value

if TYPE_CHECKING:
    from dslint.config import Config

TRAIN, MICRO, ACCUMULATION = "train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps"


def batch_world_size(config: Config) -> Any:
    """The number that the batch triad is multiplied by: all ranks over those that share a sequence, a fraction where these do not divide them.

    Unknown without a world size.
    """
    ranks = config.facts.world_size
    if ranks is None or config.has("data_parallel_size"):
        return UNKNOWN
    share = config.value("sequence_parallel_size") if config.has("sequence_parallel_size") else 1
    if not isinstance(share, int) or share < 1:
        return UNKNOWN
    return ranks / share if ranks % share else ranks // share


def _batch(name: str) -> Callable[[Config], Value]:
    """Complete the triad train = micro x accumulation x ranks as `DeepSpeedConfig._set_batch_related_parameters` does, floor divisions included."""

    def derive(config: Config) -> Value:
        written = {key: config.value(key) for key in (TRAIN, MICRO, ACCUMULATION) if _given(config, key)}
        if any(value is UNKNOWN for value in written.values()):
            return Value(UNKNOWN, Origin.DERIVED)
        train, micro, steps = (written.get(key) for key in (TRAIN, MICRO, ACCUMULATION))
        if train is None and micro is None:
            return Value(UNKNOWN, Origin.DERIVED, "no batch size is written")
        if name == ACCUMULATION and (train is None or micro is None):
            return Value(1, Origin.DERIVED, "1 where only one batch size is written")
        ranks = batch_world_size(config)
        symbol = "world size" if ranks is UNKNOWN else f"{ranks:,}"
        note = {
            ACCUMULATION: f"{train} // {micro} // {symbol}",
            MICRO: f"{train} // {symbol}" + (f" // {steps}" if steps is not None else ""),
            TRAIN: f"{micro} x " + (f"{steps} x " if steps is not None else "") + symbol,
        }[name]
        if ranks is UNKNOWN or micro == 0 or steps == 0:
            return Value(UNKNOWN, Origin.DERIVED, note)
        computed = {
            ACCUMULATION: lambda: train // micro // ranks,
            MICRO: lambda: train // ranks // (1 if steps is None else steps),
            TRAIN: lambda: micro * (1 if steps is None else steps) * ranks,
        }[name]()
        return Value(computed, Origin.DERIVED, note)

    return derive


def _given(config: Config, key: str) -> bool:
    """Whether the triad has this key; a null counts as absent, as in DeepSpeed."""
    return config.has(key) and config.quote(key) != "null"


def _overlap_comm(config: Config) -> Value:
    stage = config.value("zero_optimization.stage")
    return Value(UNKNOWN if stage is UNKNOWN else stage == 3, Origin.DERIVED, "true at ZeRO stage 3 alone")


DERIVED: dict[str, Callable[[Config], Value]] = {
    TRAIN: _batch(TRAIN),
    MICRO: _batch(MICRO),
    ACCUMULATION: _batch(ACCUMULATION),
    "zero_optimization.overlap_comm": _overlap_comm,
}
"""By path: how an absent or null key is computed. Asked through `Config.value`, which remembers the answer."""
