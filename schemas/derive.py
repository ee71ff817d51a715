"""Keys whose value, where nobody writes it, DeepSpeed computes from others."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol, TypeAlias

from dslint.facts import Facts, Integration, Release
from dslint.source.unknown import UNKNOWN


class Config(Protocol):
    """What a derivation reads of a config: see `dslint.config.Config`."""

    @property
    def facts(self) -> Facts: ...

    @property
    def release(self) -> Release: ...

    def value(self, where: str) -> Any: ...

    def has(self, where: str) -> bool: ...

    def is_null(self, where: str) -> bool: ...


Derived: TypeAlias = tuple[Any, str]
"""A computed value (`UNKNOWN` where it depends on what is not known), and how it is computed, for people."""

TRAIN, MICRO, ACCUMULATION = "train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps"


def batch_world_size(config: Config) -> Any:
    """The number that the batch triad is multiplied by: the ranks over those that share a batch, a fraction where a written size does not divide them.

    Ranks of a pipeline, of a tensor-parallel group of the program's and of a sequence share one. AutoTP's do as well, but DeepSpeed counts each of them in
    the batch sizes. Unknown without a world size.
    """
    ranks = _replicas(config)
    if ranks is None or config.has("data_parallel_size"):
        return UNKNOWN
    if config.release < (0, 17, 0):
        return ranks  # until then sequence_parallel_size divided nothing by itself
    if config.has("sequence_parallel_size") and config.facts.integration in (None, Integration.DEEPSPEED):
        return UNKNOWN  # DeepSpeed heeds the key in a dict and overlooks it in a file that it is given the path of
    share = config.value("sequence_parallel_size") if config.has("sequence_parallel_size") else 1
    if not isinstance(share, int) or share < 1:
        return UNKNOWN
    return ranks / share if ranks % share else ranks // share


def _replicas(config: Config) -> int | None:
    """The ranks that the program's own groups leave to data parallelism; None where nobody said how many ranks there are, or they do not divide."""
    facts = config.facts
    tensor = 1 if config.has("tensor_parallel.autotp_size") else facts.tensor_parallel or 1
    share = tensor * (facts.pipeline_parallel or 1) * (1 if config.has("sequence_parallel_size") else facts.sequence_parallel or 1)
    return facts.world_size // share if facts.world_size is not None and facts.world_size % share == 0 else None


def _batch(name: str) -> Callable[[Config], Derived]:
    """Complete train = micro x accumulation x ranks as `DeepSpeedConfig._set_batch_related_parameters` does, floor divisions included."""

    def derive(config: Config) -> Derived:
        written = {key: config.value(key) for key in (TRAIN, MICRO, ACCUMULATION) if _given(config, key)}
        if any(value is UNKNOWN for value in written.values()):
            return UNKNOWN, "from the other batch keys"
        if not written.keys() & {TRAIN, MICRO}:
            return UNKNOWN, "no batch size is written"
        if name == ACCUMULATION and len(written) == 1:
            return 1, "1 where only one batch size is written"
        ranks = batch_world_size(config)
        note = _formula(name, written, "world size" if ranks is UNKNOWN else f"{ranks:,}")
        if ranks is UNKNOWN or 0 in (written.get(MICRO), written.get(ACCUMULATION)):
            return UNKNOWN, note
        steps = written.get(ACCUMULATION, 1)
        if name == ACCUMULATION:
            return written[TRAIN] // written[MICRO] // ranks, note
        if name == MICRO:
            return written[TRAIN] // ranks // steps, note
        return written[MICRO] * steps * ranks, note

    return derive


def _formula(name: str, written: dict[str, Any], ranks: str) -> str:
    """How a key of the triad is computed from the written ones, for people."""
    if name == ACCUMULATION:
        return f"{written[TRAIN]} // {written[MICRO]} // {ranks}"
    steps = written.get(ACCUMULATION)
    if name == MICRO:
        return f"{written[TRAIN]} // {ranks}" + ("" if steps is None else f" // {steps}")
    return f"{written[MICRO]} x " + ("" if steps is None else f"{steps} x ") + ranks


def _given(config: Config, key: str) -> bool:
    """Whether the triad has this key; a null counts as absent, as in DeepSpeed."""
    return config.has(key) and not config.is_null(key)


def _overlap_comm(config: Config) -> Derived:
    stage = config.value("zero_optimization.stage")
    return UNKNOWN if stage is UNKNOWN else stage == 3, "true at ZeRO stage 3 alone"


ALWAYS_SHOWN = (
    TRAIN,
    MICRO,
    ACCUMULATION,
    "gradient_clipping",
    "fp16.enabled",
    "bf16.enabled",
    "zero_optimization.stage",
)
"""Keys that every training has, whether its config writes them or not."""

DERIVED: dict[str, Callable[[Config], Derived]] = {
    TRAIN: _batch(TRAIN),
    MICRO: _batch(MICRO),
    ACCUMULATION: _batch(ACCUMULATION),
    "zero_optimization.overlap_comm": _overlap_comm,
}
"""By path: how an absent or null key is computed. Asked through `Config.value`, which remembers the answer."""
