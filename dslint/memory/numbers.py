"""Models given by numbers, and LoRA adapters."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import accumulate
from typing import Any

from dslint.memory.families import ALWAYS_STACKED, read_shape
from dslint.memory.reader import ShapeError
from dslint.memory.shapes import Block, Model, Weight, in_digits, rounded

USUAL_ASPECT = 128
"""The usual ratio of a decoder's hidden size to its number of layers."""


def of_numbers(
    params: float | None,
    *,
    hidden: int | None = None,
    layers: int | None = None,
    heads: int | None = None,
    kv_heads: int | None = None,
    inner: int | None = None,
    vocabulary: int | None = None,
) -> Model:
    """A decoder like Llama with these sizes. Missing sizes are derived: the hidden size from the number of parameters, the number of layers
    from that or else from the hidden size, the intermediate size from the remaining parameters. If the sizes have `params` parameters only
    without a gate, as in GPT-NeoX, or with a tied embedding, the model is built that way.

    Raises:
        ShapeError: the numbers do not describe a model, or no such model has about `params` parameters.
    """
    for name, value in (("params", params), ("hidden-size", hidden), ("layers", layers), ("heads", heads), ("vocab-size", vocabulary)):
        if value is not None and value < 1:
            raise ShapeError(f"--{name} is {value:g}, but must be at least 1")
    vocabulary = vocabulary or 32000
    if hidden is None:
        if params is None:
            raise ShapeError("no model given: pass --model FILE or NAME, or --params, --hidden-size and --layers")
        hidden = max(128, round((params * USUAL_ASPECT / 12) ** (1 / 3) / 128) * 128)
    heads = heads or max(1, hidden // 128)
    kv_heads = kv_heads or heads
    layers_derived = layers is None
    if layers is None:
        layers = max(1, round((params - 2 * vocabulary * hidden) / (12 * hidden**2))) if params else usual_layers(hidden)
    if inner is None:
        inner = _inner(params, hidden, layers, kv_heads / heads, vocabulary) if params else 4 * hidden
    data = {
        "model_type": "llama",
        "hidden_size": hidden,
        "intermediate_size": inner,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "num_key_value_heads": kv_heads,
        "vocab_size": vocabulary,
    }
    model = _closest(data, params)
    if params and abs(model.size / params - 1) > (0.5 if layers_derived else STATED):
        raise ShapeError(
            f"--hidden-size {hidden}, --layers {layers}, --ffn-size {inner} and --vocab-size {vocabulary} give {model.size:,} parameters, "
            f"and --params says {params:,.0f}: correct the sizes, or leave one of them out"
        )
    name = f"{in_digits(params) if params else f'about {rounded(model.size)}'} parameters"
    return replace(model, name=name, family="numbers", exact=False, stated=params)


def usual_layers(hidden: int) -> int:
    """The number of layers that decoders with this hidden size usually have."""
    return max(1, round(hidden / USUAL_ASPECT))


STATED = 0.05
"""How far sizes may be from a stated number of parameters: people round it, and biases and positions are not among the sizes."""


def _closest(data: dict[str, Any], params: float | None) -> Model:
    """The model of these sizes; without a gate or with a tied embedding, if only then it has `params` parameters."""
    model = read_shape(data, "of numbers")
    if not params or abs(model.size / params - 1) <= STATED:
        return model
    families = ("llama", "gpt_neox") if data["num_key_value_heads"] == data["num_attention_heads"] else ("llama",)
    variants = ({"model_type": family, "tie_word_embeddings": tied} for family in families for tied in (True, False))
    others = (read_shape(data | variant, "of numbers") for variant in variants)
    return next((other for other in others if abs(other.size / params - 1) <= STATED), model)


def _inner(params: float, hidden: int, layers: int, groups: float, vocabulary: int) -> int:
    """The intermediate size that leads to this number of parameters, or the smallest one."""
    attention = (2 + 2 * groups) * hidden**2
    left = params - 2 * vocabulary * hidden - layers * (attention + 2 * hidden) - hidden
    return max(1, round(left / (3 * hidden * layers)))


BYTES = {4: 0.5 + 4 / 64, 8: 1.0}
"""Bytes per element of a weight quantized to 4 or 8 bits: 4 bits have an fp32 scale for every 64 elements."""


def with_quantized(model: Model, bits: int, *, listed: bool = False) -> Model:
    """The model with the frozen linear layers of its blocks quantized, as bitsandbytes does; embedding, norms and head stay as they are.

    With `listed`, transformers keeps each expert as linear layers, which are quantized, too. Experts that are stacked in one parameter are
    not: bitsandbytes replaces modules (transformers 5, `replace_with_bnb_linear`).
    """
    listed = listed and model.family not in ALWAYS_STACKED

    def stored(weight: Weight) -> Weight:
        linear = len(weight.shape) == 2 and weight.name.endswith(".weight") and not weight.trained
        linear = linear or (listed and weight.is_stacked and not weight.trained)
        return weight._replace(quantized=BYTES[bits]) if linear and ".lora_" not in weight.name else weight

    blocks = tuple(replace(block, weights=tuple(map(stored, block.weights))) for block in model.blocks)
    return replace(model, name=f"{model.name}, quantized to {bits} bits", blocks=blocks)


def stacks_experts(model: Model) -> bool:
    """Whether the model has experts in one parameter that earlier releases of transformers keep as linear layers."""
    return model.family not in ALWAYS_STACKED and any(weight.is_stacked for block in model.blocks for weight in block.weights)


_PLACES = tuple(
    frozenset(names.split())
    for names in (
        "q_proj k_proj v_proj query_key_value W_pack qkv_proj c_attn Wqkv wqkv in_proj",
        "o_proj dense out_proj wo",
        "gate_proj up_proj dense_h_to_4h gate_up_proj fc1 fc_in w1 w3",
        "down_proj dense_4h_to_h fc2 fc_out w2",
    )
)
"""The names that families have for the layers in one place of a block: queries, keys and values; the output of the attention; the layers
into the MLP; the layer out of it.
"""

_OUTSIDE = frozenset(["embed_tokens", "embed_in", "wte", "word_embeddings", "lm_head", "embed_out"])
"""Embeddings and heads. They are in no block, and adapters in them are not counted for any model."""


def standing_for(model: Model, targets: Iterable[str]) -> dict[str, tuple[str, ...]]:
    """For each target that no layer of a model given by numbers has: the layers that stand for it, as its real layers are unknown.

    A name that says nothing counts as one layer of the attention. The sizes are about those of the real layers.
    """
    modules = list(dict.fromkeys(w.module for w in model.blocks[0].weights if len(w.shape) == 2))
    layers = list(dict.fromkeys(one.rpartition(".")[2] for one in modules))
    found = {}
    for name in dict.fromkeys(targets):
        if name not in _OUTSIDE and not any(one.endswith(f".{name}") for one in modules):
            place = next((one for one in _PLACES if name in one), frozenset[str]())
            found[name] = tuple(layer for layer in layers if layer in place) or (layers[0],)
    return found


def with_adapters(model: Model, rank: int, targets: Iterable[str] = (), saved: Iterable[str] = ()) -> Model:
    """The model with LoRA adapters in its linear layers (those that one of `targets` names, such as "q_proj" or "self_attn.q_proj"; all if
    there are none), and all other weights frozen. Modules with names that end in one of `saved` have a trained copy (peft's
    `modules_to_save`).

    Raises:
        ShapeError: no layer has such a name.
    """
    targets, saved = tuple(targets), tuple(saved)
    adapted = [tuple(_adapted(block, rank, targets)) for block in model.blocks]
    if not any(weight.trained for weights in adapted for weight in weights):
        names = sorted({w.module.rpartition(".")[2] for w in model.blocks[0].weights if len(w.shape) == 2})
        raise ShapeError(f"no layer is named {', '.join(targets)}; the layers of a block are {', '.join(names)}")
    blocks = tuple(replace(block, weights=tuple(_saved(weights, saved))) for block, weights in zip(model.blocks, adapted, strict=True))
    first, last = (tuple(_saved((w._replace(trained=False) for w in weights), saved)) for weights in (model.first, model.last))
    own_head = model.tied and any("lm_head".endswith(name) for name in saved)
    if own_head:
        last = (*last, Weight("lm_head.modules_to_save.weight", model.weights[model.embedding].shape, divided=True))
    name = f"{model.name} with LoRA of rank {rank}"
    return replace(model, name=name, first=first, blocks=blocks, last=last, tied=model.tied and not own_head)


def without_logits(model: Model) -> Model:
    """The model without its head: it returns an embedding or a few scores."""
    last = tuple(weight for weight in model.last if weight.shape[0] != model.vocabulary)
    return replace(model, last=last, vocabulary=0, tied=False, returns_logits=False)


def with_value_model(model: Model) -> Model:
    """The model with a second stack of layers of the same size, as PPO trains its value model beside the policy in one engine.

    Source: trl, PPOTrainer: `PolicyAndValueWrapper`. The value model has its own embedding, and no logits.
    """
    return replace(model, name=f"{model.name} with a value model", stated=None, first=model.first * 2, blocks=model.blocks * 2)


def unknown_modules(model: Model, names: Iterable[str]) -> list[str]:
    """The names in which the name of no module of a model ends."""
    modules = {module for weight in model.weights for module in _modules_of(weight)} | ({"lm_head"} if model.tied else set())
    return [name for name in names if not any(module.endswith(name) for module in modules)]


def _modules_of(weight: Weight) -> Iterator[str]:
    """The names of the modules that contain a weight."""
    return accumulate(weight.module.split("."), "{}.{}".format)


def _saved(weights: Iterable[Weight], names: tuple[str, ...]) -> Iterator[Weight]:
    """The weights, and trained copies of those of the modules to save, which have no adapters. peft compares the ends of names."""
    for weight in weights:
        copied = any(module.endswith(names) for module in _modules_of(weight))
        if not (copied and weight.trained):
            yield weight
        if copied and not weight.trained:
            yield weight._replace(name=f"{weight.module}.modules_to_save.{weight.name.rpartition('.')[2]}", trained=True)


def _adapted(block: Block, rank: int, targets: tuple[str, ...]) -> Iterator[Weight]:
    ends = tuple(f".{target}" for target in targets)
    for weight in block.weights:
        yield weight._replace(trained=False)
        name = weight.module.rpartition(".")[2]
        if len(weight.shape) != 2 or not weight.name.endswith(".weight") or (targets and not f".{weight.module}".endswith(ends)):
            continue
        if not targets and name in ("gate", "shared_expert_gate", "relative_attention_bias"):
            continue
        out, into = weight.shape
        yield Weight(f"{weight.module}.lora_A.weight", (rank, into), weight.step)
        yield Weight(f"{weight.module}.lora_B.weight", (out, rank), weight.step)
