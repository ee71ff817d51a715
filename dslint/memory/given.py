"""The model of a command: given as a file, a name, or numbers."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from dslint.facts.model_config import ModelConfig, describe, load_model
from dslint.memory.families import ShapeError, read_shape
from dslint.memory.numbers import of_numbers, with_adapters
from dslint.memory.presets import PRESETS, preset
from dslint.memory.shapes import Model


@dataclass(frozen=True, slots=True)
class ModelRequest:
    """The options that describe the model. `name` is a path or a known model name."""

    name: str | None = None
    params: float | None = None
    hidden: int | None = None
    layers: int | None = None
    heads: int | None = None
    kv_heads: int | None = None
    inner: int | None = None
    vocabulary: int | None = None
    lora_rank: int | None = None
    lora_targets: tuple[str, ...] = ()

    @property
    def has_numbers(self) -> bool:
        """Whether enough numbers are given to describe a model."""
        return self.params is not None or self.hidden is not None


class FoundModel(NamedTuple):
    """The model, its `config.json` (None: the model is given by numbers), and the assumptions."""

    model: Model
    config: ModelConfig | None
    assumed: tuple[str, ...] = ()


def model_of(given: ModelRequest, config: ModelConfig | None = None) -> FoundModel:
    """The model that the options describe. `config` is the model of the settings, used if no name is given.

    Raises:
        UserError: the model does not exist, its family is unsupported and no numbers are given, or the numbers are invalid.
    """
    found = _whole(given, config)
    return found if given.lora_rank is None else found._replace(model=with_adapters(found.model, given.lora_rank, given.lora_targets))


def _whole(given: ModelRequest, config: ModelConfig | None) -> FoundModel:
    if given.name is not None and not Path(given.name).exists():
        data = preset(given.name)
        if data is None:
            from difflib import get_close_matches

            if given.name.endswith(".json"):
                raise ShapeError(f"the model {given.name} does not exist")
            close = get_close_matches(given.name.lower(), PRESETS, n=1)
            hint = f" Did you mean {close[0]}?" if close else ""
            raise ShapeError(f"the model {given.name} is neither a file nor a known name.{hint} Known names: {', '.join(PRESETS)}")
        return FoundModel(read_shape(data, given.name), describe(data, given.name))
    found = load_model(given.name) if given.name is not None else config
    if found is not None:
        try:
            return FoundModel(read_shape(found.data, found.path), found)
        except ShapeError as error:
            if not given.has_numbers:
                raise
            return FoundModel(_numbers(given), found, (f"{error.args[0].partition(';')[0]}; using the numbers given",))
    return FoundModel(_numbers(given), None, ("layers like those of Llama, because only numbers are given",))


def _numbers(given: ModelRequest) -> Model:
    return of_numbers(
        given.params,
        hidden=given.hidden,
        layers=given.layers,
        heads=given.heads,
        kv_heads=given.kv_heads,
        inner=given.inner,
        vocabulary=given.vocabulary,
    )
