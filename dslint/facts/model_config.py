"""Reads the Hugging Face `config.json` of a model as plain data: without transformers, weights or code of the model."""

from __future__ import annotations

import json
import os
import re
from dataclasses import dataclass, field
from typing import Any

from dslint.errors import UserError
from dslint.source.read import ReadError, read
from dslint.source.similar import similar

_LARGEST = 2**48
"""No size of a model is larger. Numbers in a file may have thousands of digits."""

_HIDDEN = ("hidden_size", "n_embd", "d_model", "dim")
_LAYERS = ("num_hidden_layers", "n_layer", "num_layers", "n_layers")
_HEADS = ("num_attention_heads", "n_head", "num_heads", "n_heads")
_EXPERTS = ("num_local_experts", "num_experts", "n_routed_experts", "moe_num_experts")
_POSITIONS = ("max_position_embeddings", "n_positions", "max_sequence_length")


_MARKS = ("model_type", "architectures", "_class_name")
"""Keys of which the `config.json` of a model has one; the last is that of diffusers."""


class ModelError(UserError):
    """An unreadable model. The text is a sentence for the user."""


@dataclass(frozen=True, slots=True)
class ModelConfig:
    """The values of a `config.json`, None if absent. `data` is the whole file, for code that depends on the family."""

    path: str
    family: str | None = None
    inner_family: str | None = None
    """The family of the language model, if it is a part of the model."""
    hidden_size: int | None = None
    layers: int | None = None
    heads: int | None = None
    kv_heads: int | None = None
    vocab_size: int | None = None
    positions: int | None = None
    experts: int | None = None
    dtype: str | None = None
    quantization: str | None = None
    parameters: int | None = None
    """The number of parameters, of a model that is only given by it."""
    data: dict[str, Any] = field(default_factory=dict, compare=False, hash=False)

    def __str__(self) -> str:
        return self.path


def sized_model(parameters: float) -> ModelConfig:
    """A model of which only the number of parameters is known: rules about its shape find nothing."""
    return ModelConfig(f"a model of {parameters / 1e9:.3g} billion parameters", parameters=round(parameters))


def named_model(name: str) -> ModelConfig | None:
    """A known model by its name, or by the last folder of a path; None if the name is unknown."""
    from dslint.facts.known_models import preset

    data = preset(name)
    return describe(data, name) if data is not None else None


def load_model(path: str, name: str | None = None) -> ModelConfig:
    """Read a `config.json`, or the one in a directory. If there is no such file, `name` (default: the path) may name a known model.

    Raises:
        ModelError: it cannot be read, or is not a model.
    """
    if not os.path.exists(path) and not path.endswith(".json"):
        return _known(name or path)
    file = os.path.join(path, "config.json") if os.path.isdir(path) else path
    shown = file.replace(os.sep, "/")
    try:
        data = json.loads(read(file))
    except ReadError as error:
        raise ModelError(f"cannot read the model {shown}: {error}") from None
    except (ValueError, RecursionError):
        raise ModelError(f"the model {shown} is not JSON") from None
    if not isinstance(data, dict) or not (any(name in data for name in _MARKS) or _first(data, _HIDDEN)):
        raise ModelError(f"the model {shown} is not a Hugging Face config.json: it has no model_type")
    return describe(data, shown)


def _known(name: str) -> ModelConfig:
    from dslint.facts.known_models import PRESETS, preset

    data = preset(name)
    if data is not None:
        return describe(data, name)
    close = similar(name.lower().rpartition("/")[2], PRESETS)
    families = ", ".join(dict.fromkeys(re.sub(r"(?<=\w\w)\d[\d.]*$", "", known.partition("-")[0]) for known in PRESETS))
    raise ModelError(
        f"the model {name} is neither a file nor a known name.{f' Did you mean {close[0]}?' if close else ''} "
        f"dslint knows models of {families}; for every other one pass its config.json"
    )


def describe(data: dict[str, Any], path: str = "config.json") -> ModelConfig:
    """The values in the data of a `config.json`. For a model with several parts (vision and language), those of the language model."""
    text = _language_model(data)
    quantization = data.get("quantization_config")
    method = quantization.get("quant_method") if isinstance(quantization, dict) else None
    dtype = next((d.get(name) for d in (text, data) for name in ("dtype", "torch_dtype") if isinstance(d.get(name), str)), None)
    return ModelConfig(
        path,
        inner_family=text["model_type"] if text is not data and isinstance(text.get("model_type"), str) else None,
        family=data["model_type"] if isinstance(data.get("model_type"), str) else None,
        hidden_size=_first(text, _HIDDEN),
        layers=_first(text, _LAYERS),
        heads=_first(text, _HEADS),
        kv_heads=_first(text, ("num_key_value_heads", "num_kv_heads")),
        vocab_size=_first(text, ("vocab_size",)),
        positions=_first(text, _POSITIONS),
        experts=_first(text, _EXPERTS),
        dtype=dtype,
        quantization=method if isinstance(method, str) else ("unknown" if isinstance(quantization, dict) else None),
        data=data,
    )


def _language_model(data: dict[str, Any]) -> dict[str, Any]:
    """The part of a model with several parts that is the language model."""
    trained = trained_part(data)
    return next(
        (trained[name] for name in ("text_config", "llm_config", "language_config") if isinstance(trained.get(name), dict)), trained
    )


def trained_part(data: dict[str, Any]) -> dict[str, Any]:
    """The data of the part of a model that programs train: of a model that hears and speaks (Qwen Omni) the thinker, else the whole."""
    thinker = data.get("thinker_config")
    return thinker if isinstance(thinker, dict) else data


def _first(data: dict[str, Any], names: tuple[str, ...]) -> int | None:
    found = (data.get(name) for name in names)
    return next((value for value in found if isinstance(value, int) and not isinstance(value, bool) and 0 < value < _LARGEST), None)
