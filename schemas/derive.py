"""Keys that DeepSpeed computes from other keys if they are absent."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Protocol, TypeAlias

from dslint.facts import Facts, Release
from dslint.source.unknown import UNKNOWN


class ConfigView(Protocol):
    """The part of a config that a derivation reads: see `dslint.config.Config`."""

    @property
    def facts(self) -> Facts: ...

    @property
    def release(self) -> Release: ...

    def value(self, where: str) -> Any: ...

    def has(self, where: str) -> bool: ...

    def is_null(self, where: str) -> bool: ...

    def is_added(self, where: str) -> bool: ...


Derived: TypeAlias = tuple[Any, str]
"""A computed value (`UNKNOWN` if it depends on unknown values), and how it is computed, as text."""

TRAIN, MICRO, ACCUMULATION = "train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps"


def batch_world_size(config: ConfigView) -> Any:
    """The data-parallel size in the batch equation: the ranks divided by those that share a batch (a fraction if not divisible).

    Ranks of a pipeline, of a tensor-parallel group of the program and of a sequence share a batch. Those of AutoTP do as well, but DeepSpeed counts each of
    them in the batch sizes. Unknown without a world size.
    """
    ranks = _replicas(config)
    if ranks is None or not config.has("sequence_parallel_size"):
        return UNKNOWN if ranks is None else ranks
    as_dict = True if config.release > (0, 18, 5) else config.facts.is_dict  # later releases read a file into a dict first
    if as_dict is False or (config.release < (0, 17, 0) and not config.has("data_parallel_size")):
        return ranks  # the key has no effect
    if as_dict is None:
        return UNKNOWN
    share, data = config.value("sequence_parallel_size"), config.value("data_parallel_size")
    if config.has("data_parallel_size"):
        return data if isinstance(data, int) and isinstance(share, int) and 0 < data * share <= ranks else UNKNOWN
    if not isinstance(share, int | float) or share <= 0:
        return UNKNOWN
    return ranks / share if ranks % share else ranks // share


def _replicas(config: ConfigView) -> int | None:
    """The data-parallel ranks besides the program's own groups; None if these or the world size are unknown, or it is not divisible."""
    facts = config.facts
    if facts.divided_by_program:
        return None
    tensor = 1 if config.has("tensor_parallel.autotp_size") else facts.tensor_parallel or 1
    share = tensor * (facts.pipeline_parallel or 1) * (1 if config.has("sequence_parallel_size") else facts.sequence_parallel or 1)
    return facts.world_size // share if facts.world_size is not None and facts.world_size % share == 0 else None


SMALLEST, LARGEST = 1e-9, 1e15
"""Between which sizes fractions are multiplied: 1e999 is infinite, and 8 / 1e-320 is, too."""


def are_countable(sizes: Iterable[float]) -> bool:
    """Whether the product of sizes, and their quotients, are numbers: they are integers, or no fraction leaves the range of floats."""
    sizes = list(sizes)
    return all(isinstance(one, int) for one in sizes) or all(one == 0 or SMALLEST <= abs(one) <= LARGEST for one in sizes)


def _batch(name: str) -> Callable[[ConfigView], Derived]:
    """Complete train = micro x accumulation x ranks as `DeepSpeedConfig._set_batch_related_parameters` does, floor divisions included."""

    def derive(config: ConfigView) -> Derived:
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
        if not are_countable(written.values()):
            return UNKNOWN, note
        steps = written.get(ACCUMULATION, 1)
        if name == ACCUMULATION:
            return written[TRAIN] // written[MICRO] // ranks, note
        if name == MICRO:
            return written[TRAIN] // ranks // steps, note
        return written[MICRO] * steps * ranks, note

    return derive


def _formula(name: str, written: dict[str, Any], ranks: str) -> str:
    """How a batch key is computed from the written ones, as text."""
    if name == ACCUMULATION:
        return f"{written[TRAIN]} // {written[MICRO]} // {ranks}"
    steps = written.get(ACCUMULATION)
    if name == MICRO:
        return f"{written[TRAIN]} // {ranks}" + ("" if steps is None else f" // {steps}")
    return f"{written[MICRO]} x " + ("" if steps is None else f"{steps} x ") + ranks


def _given(config: ConfigView, key: str) -> bool:
    """Whether this batch key is present, or the loader adds it; a null counts as absent, as in DeepSpeed, and so does one added step,
    which DeepSpeed takes without the key.
    """
    if config.has(key):
        return not config.is_null(key)
    return config.is_added(key) and not (key == ACCUMULATION and config.value(key) == 1)


def _overlap_comm(config: ConfigView) -> Derived:
    stage = config.value("zero_optimization.stage")
    return UNKNOWN if stage is UNKNOWN else stage == 3, "true only at ZeRO stage 3"


DYNAMIC_SCALE = ("initial_scale_power", "loss_scale_window", "min_loss_scale", "hysteresis", "consecutive_hysteresis")
"""Settings of the dynamic loss scale."""


def _initial_scale_power(config: ConfigView) -> Derived | None:
    """Up to 0.17.0, ZeRO ignores the default of the key, and starts at 2**32, if no setting of the dynamic loss scale is written."""
    if config.release > (0, 17, 0) or any(config.has(f"fp16.{name}") for name in DYNAMIC_SCALE):
        return None
    stage = config.value("zero_optimization.stage")
    if stage is UNKNOWN:
        return UNKNOWN, "32 under ZeRO"
    return (32, "ZeRO starts there without any setting of the loss scale") if stage >= 1 else None


ALWAYS_SHOWN = (
    TRAIN,
    MICRO,
    ACCUMULATION,
    "gradient_clipping",
    "fp16.enabled",
    "bf16.enabled",
    "zero_optimization.stage",
)
"""Keys that every training uses, whether they are written or not."""

OVERRULED = {"wall_clock_breakdown": ("flops_profiler.enabled", "flops_profiler enables it")}
"""Switches that another switch turns on, whatever is written: the other switch, and the note for users."""

DERIVED: dict[str, Callable[[ConfigView], Derived | None]] = {
    TRAIN: _batch(TRAIN),
    MICRO: _batch(MICRO),
    ACCUMULATION: _batch(ACCUMULATION),
    "fp16.initial_scale_power": _initial_scale_power,
    "tensor_parallel.dtype": lambda _: ("torch.float16", 'what DeepSpeed makes of "auto"'),
    "zero_optimization.overlap_comm": _overlap_comm,
}
"""How an absent or null key is computed, by path; None where it has its default. Used by `Config.value`, which caches the result."""
