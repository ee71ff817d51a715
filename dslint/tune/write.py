"""Writes a choice into the text of a config, and names what the program has to change."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from dslint.config import UNKNOWN, Config
from dslint.facts import Integration
from dslint.frameworks.workload import workload_of
from dslint.memory.changes import REMOVE
from dslint.memory.fit import written
from dslint.record import Record
from dslint.source.edit import CannotChange
from dslint.source.tree import Document, dotted
from dslint.tune.space import ConfigChoice

Z = "zero_optimization"

Values = Iterator[tuple[str, Any]]


class Written(Record):
    """The text of a config, the options of a command that change with it, and what to do in the program, as imperatives. `values` are the
    new values of the config by their paths.
    """

    text: str
    said: dict[str, Any]
    program: tuple[str, ...]
    values: tuple[tuple[str, Any], ...] = ()

    def into(self, document: Document) -> str:
        """The text of the file that the config was read from, with the new values.

        Raises:
            CannotChange: it cannot be edited in this way.
        """
        if document.places is None:
            return self.text if document.language in ("json", "hjson") else written(document.text, self.values, document.language)
        if document.whole is None or document.whole.language != "yaml":
            raise CannotChange("the config is not in a YAML file")
        there = [(document.places.get(tuple(path.split("."))), value) for path, value in self.values]
        if any(path is None or isinstance(value, dict) for path, value in there):
            raise CannotChange("the file has no key for a value")
        return written(document.whole.text, tuple((dotted(path), value) for path, value in there if path is not None), "yaml")


def write(text: str, config: Config, choice: ConfigChoice, now: ConfigChoice) -> Written | None:
    """The config with a choice instead of the present one; None if the text cannot be edited in this way."""
    said: dict[str, Any] = {}
    program: list[str] = []
    values = [*_zero(config, choice, now), *_batch(config, choice, now, said, program)]
    if choice.checkpoint_every != now.checkpoint_every:
        said["checkpoint_every"] = choice.checkpoint_every
        program.append(_checkpointing(config, choice.checkpoint_every))
    if choice.tensor != now.tensor:
        said["tensor_parallel"] = choice.tensor
        by_config = config.has("tensor_parallel.autotp_size")
        if by_config or now.tensor == 1:
            section = config.has("tensor_parallel")
            size = ("tensor_parallel.autotp_size", choice.tensor) if section else ("tensor_parallel", {"autotp_size": choice.tensor})
            values.append(size)
        if config.facts.integration not in (Integration.TRANSFORMERS, Integration.ACCELERATE) or not (by_config or now.tensor == 1):
            program.append(_parallel("tensor", choice.tensor))
    if choice.sequence != now.sequence:
        said["sequence_parallel"] = choice.sequence
        if config.has("sequence_parallel_size"):
            values.append(("sequence_parallel_size", choice.sequence))
        program.append(_parallel("sequence", choice.sequence))
    try:
        return Written(written(text, tuple(values)), said, tuple(program), tuple(values))
    except CannotChange:
        return None


def _parallel(kind: str, size: int) -> str:
    """What the program has to do for a size of tensor or sequence parallelism."""
    return f"use {kind} parallelism over {size} ranks" if size > 1 else f"use no {kind} parallelism: each rank takes samples of its own"


def _zero(config: Config, choice: ConfigChoice, now: ConfigChoice) -> Values:
    if not config.has(Z):
        section = dict(_keys(config, choice, now))
        if section:
            yield Z, _nested(section)
        return
    for key, value in _keys(config, choice, now):
        yield f"{Z}.{key}", value


def _nested(values: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in values.items() if value is not REMOVE}


def _keys(config: Config, choice: ConfigChoice, now: ConfigChoice) -> Values:
    """The keys of the section that change."""
    if choice.stage != now.stage:
        yield "stage", choice.stage
        if choice.stage == 3 and config.facts.integration is not Integration.DEEPSPEED:
            key = "stage3_gather_16bit_weights_on_model_save"  # else the integration saves a model without its weights
            if not config.has(f"{Z}.{key}"):
                yield key, True
    told = config.value(f"{Z}.overlap_comm") if config.has(f"{Z}.overlap_comm") else None
    if choice.stage and choice.overlap != (told if isinstance(told, bool) else choice.stage == 3):
        yield "overlap_comm", choice.overlap
    yield from _device(config, "offload_optimizer", choice.optimizer_device, now.optimizer_device, choice.offload_ratio)
    yield from _device(config, "offload_param", choice.parameter_device, now.parameter_device, 1.0)
    if choice.secondary != now.secondary:
        yield "zero_hpz_partition_size", choice.secondary if choice.secondary > 1 else REMOVE
    if choice.quantized_weights != now.quantized_weights:
        yield "zero_quantized_weights", choice.quantized_weights or REMOVE
    if choice.quantized_gradients != now.quantized_gradients:
        yield "zero_quantized_gradients", choice.quantized_gradients or REMOVE
    if choice.stage and choice.reduce_bucket != now.reduce_bucket:
        yield "reduce_bucket_size", choice.reduce_bucket
    if choice.stage == 3 and choice.prefetch_bucket != now.prefetch_bucket:
        yield "stage3_prefetch_bucket_size", choice.prefetch_bucket


def _device(config: Config, section: str, device: str | None, before: str | None, ratio: float) -> Values:
    """The values of an offload section. One that is no longer used is removed."""
    written_section = config.has(f"{Z}.{section}") and config.quote(f"{Z}.{section}") != "null"
    if device is None:
        if before is not None and written_section:
            yield section, REMOVE
        return
    if not written_section:
        yield section, {"device": device, "pin_memory": True, **({"ratio": ratio} if ratio < 1 else {})}
        return
    if device != before:
        yield f"{section}.device", device
    if section == "offload_optimizer" and (config.value(f"{Z}.{section}.ratio") or 1.0) != ratio:
        yield f"{section}.ratio", ratio


def _batch(config: Config, choice: ConfigChoice, now: ConfigChoice, said: dict[str, Any], program: list[str]) -> Values:
    """Micro batch size and accumulation steps: in the config where it has them, else as arguments of the program."""
    names = (
        ("micro_batch", "train_micro_batch_size_per_gpu", "per_device_train_batch_size"),
        ("accumulation", "gradient_accumulation_steps", "gradient_accumulation_steps"),
    )
    whole = "train_batch_size"
    for field, key, argument in names:
        value = getattr(choice, field)
        if value == getattr(now, field):
            continue
        derived = not config.has(key) and _is_number(config, whole)
        filled = not _is_number(config, key) and not derived and (config.has(key) or _fills(config))
        if not filled and not (derived and field == "accumulation" and not _fills(config)):  # Accelerate would add 1
            yield key, value
        if filled or _is_argument(config, argument):
            said[field] = value
            program.append(f"set {argument} to {value:,}")
    if _is_number(config, whole):
        samples = config.value(whole) // max(1, now.micro_batch * now.accumulation) * choice.micro_batch * choice.accumulation
        if samples != config.value(whole):
            yield whole, samples


def _is_number(config: Config, key: str) -> bool:
    return config.has(key) and config.value(key) is not UNKNOWN and config.quote(key).strip("\"'") != "auto"


def _is_argument(config: Config, name: str) -> bool:
    """Whether the training arguments set a value: it has to be that of the config."""
    setup = config.context.setup
    return setup is not None and setup.arguments is not None and name in setup.arguments


def _fills(config: Config) -> bool:
    """Whether the integration fills what the config does not set."""
    return config.facts.integration in (Integration.TRANSFORMERS, Integration.ACCELERATE, Integration.LIGHTNING)


def _checkpointing(config: Config, every: int) -> str:
    words = f"{'enable' if every else 'disable'} activation checkpointing"
    setup = config.context.setup
    if setup is not None and setup.arguments is not None and workload_of(setup.arguments).checkpoints is not None:
        return f"{words} (disable_gradient_checkpointing: {'false' if every else 'true'})"  # checkpointing is its default
    trainer = config.facts.integration in (None, Integration.TRANSFORMERS)
    return words + (f" (gradient_checkpointing={bool(every)})" if trainer else "")
