"""The model of a command: given as a file, a name, or numbers."""

from __future__ import annotations

import os
from collections.abc import Iterator

from dslint.facts.model_config import ModelConfig, load_model
from dslint.memory.families import ShapeError, read_shape
from dslint.memory.headers import shape_of_headers
from dslint.memory.numbers import (
    BYTES,
    of_numbers,
    stacks_experts,
    standing_for,
    unknown_modules,
    usual_layers,
    with_adapters,
    with_quantized,
)
from dslint.memory.shapes import Model, rounded
from dslint.memory.towers import is_tower, with_frozen_towers
from dslint.record import Record


class ModelRequest(Record):
    """The options that describe the model. `name` is a path or a known model name. `listed_experts`: each expert is a module of its own, as
    in transformers before release 5; None if the release is unknown.
    """

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
    lora_saves: tuple[str, ...] = ()
    base_bits: int | None = None
    frozen_towers: bool = False
    listed_experts: bool | None = None

    @property
    def has_numbers(self) -> bool:
        """Whether enough numbers are given to describe a model."""
        return self.params is not None or self.hidden is not None


class FoundModel(Record):
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
    bits = given.base_bits or quantized_bits(found.config)
    if given.lora_rank is None:
        return found._replace(assumed=(*found.assumed, *_needs_adapters(given, bits)))
    is_guessed = found.model.family == "numbers" or (found.config is not None and "auto_map" in found.config.data)
    stands = standing_for(found.model, given.lora_targets) if is_guessed else {}
    targets = tuple(dict.fromkeys(layer for name in given.lora_targets for layer in stands.get(name, (name,))))
    model = with_adapters(found.model, given.lora_rank, targets, given.lora_saves)
    why = "only numbers are given" if found.config is None else "the model's own code names its layers"
    said = tuple(f"--lora-targets: {name} is taken as {', '.join(layers)}, because {why}" for name, layers in stands.items())
    if unknown := unknown_modules(found.model, given.lora_saves):
        said = (*said, f"--lora-saves: {', '.join(unknown)} is not counted, because no module of the model has this name")
    if bits not in BYTES:
        return found._replace(model=model, assumed=(*found.assumed, *said))
    if given.listed_experts is None and stacks_experts(model):
        said = (*said, EXPERTS_ARE_WHOLE)
    return found._replace(model=with_quantized(model, bits, listed=bool(given.listed_experts)), assumed=(*found.assumed, *said))


EXPERTS_ARE_WHOLE = (
    "the experts are not quantized, because transformers 5 keeps them in one parameter, which bitsandbytes skips; earlier releases "
    "quantize them (--integration transformers==4.57.0)"
)


def _needs_adapters(given: ModelRequest, bits: int | None) -> Iterator[str]:
    """What to say of options that need adapters, if there are none."""
    if bits not in (None, 16):
        yield f"the quantized base ({bits} bits) counts as unquantized: without --lora-rank all its weights are trained"
    for option, value in (("--lora-targets", given.lora_targets), ("--lora-saves", given.lora_saves)):
        if value:
            yield f"{option} has no effect without --lora-rank: all weights are trained"


def quantized_bits(config: ModelConfig | None) -> int | None:
    """The bits of the weights of a quantized model, as its `quantization_config` says; None if they are not quantized."""
    section = config.data.get("quantization_config") if config is not None else None
    if not isinstance(section, dict):
        return None
    if section.get("load_in_4bit") or section.get("bits") == 4 or section.get("w_bit") == 4:
        return 4
    if section.get("load_in_8bit") or section.get("bits") == 8 or section.get("quant_method") == "fp8":
        return 8
    return 4 if section.get("quant_method") in ("bitsandbytes", "awq", "gptq") else None


def _whole(given: ModelRequest, config: ModelConfig | None) -> FoundModel:
    found = load_model(given.name) if given.name is not None else config
    if found is not None:
        try:
            model: Model | None = read_shape(found.data, found.path)
            why = f"the family {model.family} is unknown" if model else ""
        except ShapeError as error:
            model, why = None, error.args[0].partition(";")[0]
            if not given.has_numbers and _counted(found) is None:
                raise
        if model is not None and not model.generic:
            return FoundModel(
                with_frozen_towers(model) if given.frozen_towers else model, found, (*_unused_sizes(given, found), *_towers(model))
            )
        if given.has_numbers:
            numbered = _numbers(given)
            return FoundModel(numbered, found, (f"{why}; using the numbers given", *_difference(given, numbered)))
        counted = _counted(found)
        if counted is not None:
            said = f"{counted.family} is an unknown family: its weights are those of its safetensors files, its layers like Llama's"
            return FoundModel(counted, found, (said, *_unused_sizes(given, found)))
        assert model is not None
        return FoundModel(
            with_frozen_towers(model) if given.frozen_towers else model,
            found,
            (_guessed(model), *_unused_sizes(given, found), *_towers(model)),
        )
    model = _numbers(given)
    return FoundModel(model, None, ("layers like those of Llama, because only numbers are given", *_difference(given, model)))


def _counted(found: ModelConfig) -> Model | None:
    """The model by the safetensors files next to its `config.json`."""
    return shape_of_headers(os.path.dirname(found.path), found.data, found.path)  # noqa: PTH120 - a path of the user


def _guessed(model: Model) -> str:
    """What to say of a model that is known by its sizes only."""
    if not model.vocabulary:
        return f"{model.family} has about {model.size:,} parameters by its sizes; its activations are not counted: this is a lower bound"
    return (
        f"the family {model.family} is unknown: its layers are guessed from its sizes, {model.size:,} parameters in total; if this is not "
        "the size of the model, pass --params with --hidden-size and --layers"
    )


def _towers(model: Model) -> Iterator[str]:
    """What to say of the towers of a model."""
    count = sum(weight.size for weight in model.first if is_tower(weight))
    if count:
        yield f"towers for images and sound have {count:,} parameters, to a few percent"


_SIZES = {
    "params": "--params",
    "hidden": "--hidden-size",
    "layers": "--layers",
    "heads": "--heads",
    "kv_heads": "--kv-heads",
    "inner": "--ffn-size",
    "vocabulary": "--vocab-size",
}
"""The options for the sizes of a model without a `config.json`."""


def _unused_sizes(given: ModelRequest, found: ModelConfig) -> Iterator[str]:
    """What to say of options for sizes beside a `config.json` that has them."""
    unused = [option for name, option in _SIZES.items() if getattr(given, name) is not None]
    if unused:
        yield f"{', '.join(unused)} {'have' if len(unused) > 1 else 'has'} no effect: the sizes are those of {found.path}"


def _difference(given: ModelRequest, model: Model) -> Iterator[str]:
    """What to say if the number of layers is only usual, or no shape has the given number of parameters."""
    if given.layers is None and not given.params:
        assert given.hidden is not None  # without it and without a number of parameters there is no model
        usual = f"--layers is {usual_layers(given.hidden):,}, as usual for this hidden size"
        yield f"{usual}: {rounded(model.size)} parameters (--layers or --params says otherwise)"
    if given.params and abs(model.size / given.params - 1) > 0.01:
        yield f"the closest shape with these sizes has {model.size:,} parameters, not {given.params:,.0f}"


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
