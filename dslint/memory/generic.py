"""Decoders with layers that follow from sizes: the families of transformers that are built of the same parts, and unknown ones.

Families with `TRAITS` have the exact weights. Every other one is read by the usual names of sizes, as a decoder with gated feed-forward
layers (before Llama: plain ones with biases), and counts as a guess.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from dslint.memory.mixers import compressed, delta, latent, lightning, mamba1, mamba2, short_convolution
from dslint.memory.reader import ShapeError, copies, linear, norm
from dslint.memory.shapes import Block, BlockStep, Experts, Model, Weight
from dslint.memory.sizes import ACTIVE, BIASED, EXPERTS, SHARED, SHARED_WIDTH, TRAITS, TWO, VOCABULARY, WIDTH, Sizes, family_defaults

OTHERWISE = "pass --params, --hidden-size, --layers, --heads and --vocab-size, or name a folder that also has its safetensors files"


def generic(data: dict[str, Any], name: str, family: str) -> Model:
    """A decoder by its sizes.

    Raises:
        ShapeError: hidden size, layers or vocabulary are missing.
    """
    try:
        r = Sizes(data, name, family)
    except ShapeError as error:
        raise ShapeError(f"{error.args[0]}; {OTHERWISE}") from None
    blocks = tuple(_block(r, index) for index in range(r.layers))
    encoding = r.first("encoder_layers", "num_encoder_layers") if r.first("decoder_layers", "num_decoder_layers") else None
    if encoding and r.get("is_encoder_decoder") is not False:
        blocks = (*(_named(_block(r, index), "encoder") for index in range(encoding)), *map(_with_cross, blocks))
    tied = r.get("tie_word_embeddings")
    tied = bool(family in family_defaults() if tied is None else tied) if family not in TRAITS else bool(tied)
    first = [Weight("model.embed_tokens.weight", (r.vocabulary, r.hidden), divided=True), *_inputs_of_layers(r)]
    positions = r.first("max_position_embeddings", "n_positions")
    if r.traits.get("positions") and positions:
        first.append(Weight("model.positions.weight", (positions, r.hidden)))
    last: list[Weight] = []
    if r.traits.get("final_norm", True):
        last += norm("model.norm", r.hidden, bias=bool(r.traits.get("norm_bias", False)))
    if not tied:
        last += linear("lm_head", r.vocabulary, r.hidden, bias=bool(r.get("lm_head_bias")))
    attends = all(r.traits.get("linear") is None and block.query for block in blocks)
    return Model(
        name,
        family,
        tuple(first),
        blocks,
        tuple(last),
        r.hidden,
        r.vocabulary,
        tied,
        positions=positions,
        norm=r.norm,
        softcap=bool(r.get("final_logit_softcapping")),
        exact=family in TRAITS and attends,
        generic=family not in TRAITS,
    )


def _named(block: Block, side: str) -> Block:
    return replace(block, weights=tuple(w._replace(name=w.name.replace("model.", f"model.{side}.", 1)) for w in block.weights))


def _with_cross(block: Block) -> Block:
    """A decoder's block of an encoder-decoder: its attention once more, for what the encoder found."""
    again = [w._replace(name=w.name.replace("self_attn", "encoder_attn")) for w in block.weights if ".self_attn." in w.name]
    normed = [
        w._replace(name=w.name.replace("input_layernorm", "encoder_attn_layer_norm"))
        for w in block.weights
        if ".input_layernorm." in w.name
    ]
    return replace(block, weights=(*block.weights, *again, *normed), cross=True, norms=3)


def _inputs_of_layers(r: Sizes) -> Iterator[Weight]:
    """Gemma's second embedding: each layer reads a part of its rows."""
    width = r.first("hidden_size_per_layer_input")
    if width is None:
        return
    whole = width * r.layers
    yield Weight("model.embed_tokens_per_layer.weight", (r.size("vocab_size_per_layer_input", *VOCABULARY), whole), divided=True)
    yield from linear("model.per_layer_model_projection", whole, r.hidden)
    yield from norm("model.per_layer_projection_norm", width, bias=False)
    for index in range((r.first("altup_num_inputs") or 1) - 1):
        yield from linear(f"model.altup_projections.{index}", r.hidden, r.hidden)
        yield from linear(f"model.altup_unembed_projections.{index}", r.hidden, r.hidden)


_OF_PATTERN = {"M": "mamba", "*": "attention", "-": "mlp", "E": "moe"}
"""The letters of Nemotron-H's `hybrid_override_pattern`."""


def _single(r: Sizes, index: int) -> Block:
    """A layer that is only one part, with a norm before it: Mamba, and Nemotron-H's attention, feed-forward layers and experts."""
    at = f"model.layers.{index}"
    pattern = r.get("hybrid_override_pattern")
    kind = r.kind(index, "layers_block_type", "layer_types") or "mamba"
    if isinstance(pattern, str) and index < len(pattern):
        kind = _OF_PATTERN.get(pattern[index], kind)
    weights: list[Weight] = [*norm(f"{at}.norm", r.hidden, bias=False)]
    query, keys, experts = 0, 0, None
    if kind in ("attention", "full_attention"):
        found, query, keys = attention(r, at, index)
        weights += found
    elif kind == "moe":
        number, width = r.size(*EXPERTS), r.size(*WIDTH)
        into = r.first("moe_latent_size") or r.hidden
        experts = Experts(number, min(number, r.first(*ACTIVE) or 2), width, r.first(*SHARED_WIDTH) or 0)
        for name, shape in (("up_proj", (number, width, into)), ("down_proj", (number, into, width))):
            weights.append(Weight(f"{at}.mixer.experts.{name}", shape, BlockStep.INTO_FEED, divided=True, viewed=True))
        weights += linear(f"{at}.mixer.gate", number, r.hidden, BlockStep.INTO_FEED)
        weights += _feed(r, f"{at}.mixer.shared_experts", experts.shared, biased=_biased(r, "mlp_bias"))
        if into != r.hidden:
            weights += linear(f"{at}.mixer.fc1_latent_proj", into, r.hidden, BlockStep.INTO_FEED, bias=_biased(r, "mlp_bias"))
            weights += linear(f"{at}.mixer.fc2_latent_proj", r.hidden, into, BlockStep.OUT_OF_FEED, bias=_biased(r, "mlp_bias"))
    elif kind == "mlp":
        weights += _feed(r, f"{at}.mixer", r.inner, biased=_biased(r, "mlp_bias"))
    else:
        weights += (mamba1 if r.traits["linear"] == "mamba1" else mamba2)(r, at)
    inner = r.inner if kind == "mlp" else 0
    return Block(tuple(weights), r.hidden, r.heads, query, keys, inner, norm=r.norm, norms=1, experts=experts)


def _block(r: Sizes, index: int) -> Block:
    if r.traits.get("single"):
        return _single(r, index)
    at = f"model.layers.{index}"
    kind = _mixer(r, index)
    weights: list[Weight] = []
    query, keys, heads = 0, 0, r.heads
    if kind == "attention":
        found, query, keys = attention(r, at, index)
        weights += found
    else:
        weights += {"delta": delta, "mamba1": mamba1, "mamba2": mamba2, "conv": short_convolution, "lightning": lightning}[kind](r, at)
    experts = _experts(r, index)
    inner = _inner(r, index)
    weights += _expert_weights(r, at, experts) if experts else list(_feed(r, f"{at}.mlp", inner, biased=_biased(r, "mlp_bias", "use_bias")))
    names = r.traits.get("norms", TWO)
    steps = {0: BlockStep.BEFORE_ATTENTION, len(names) - 1: BlockStep.BEFORE_FEED if len(names) < 3 else BlockStep.OUT_OF_FEED}
    for place, name in enumerate(names):
        weights += norm(f"{at}.{name}", r.hidden, steps.get(place, BlockStep.BEFORE_FEED), bias=bool(r.traits.get("norm_bias", False)))
    weights += _inputs_of_layer(r, at)
    return Block(
        tuple(weights),
        r.hidden,
        heads,
        query,
        keys,
        inner,
        gated=r.traits.get("gated", True),
        norm=r.norm,
        norms=max(2, len(names)) if not r.traits.get("parallel") else 1,
        head_norms=bool(r.traits.get("head_norms")),
        parallel=bool(r.traits.get("parallel")),
        softcap=bool(r.get("attn_logit_softcapping")),
        copies=r.traits.get("activation", copies(r.get("hidden_act", r.get("hidden_activation")))),
        experts=experts,
        latent=compressed(r) if kind == "attention" else None,
    )


def _inner(r: Sizes, index: int) -> int:
    values = r.get("intermediate_size")
    if isinstance(values, list) and index < len(values) and isinstance(values[index], int) and values[index] > 0:
        return int(values[index])
    if r.get("block_auto_adjust_ff_dim"):  # LFM 2 states what Llama's formula starts from
        multiple = r.first("block_multiple_of") or 256
        adjusted = int((r.get("block_ffn_dim_multiplier") or 1.0) * int(2 * r.inner / 3))
        return multiple * -(-adjusted // multiple)
    shared = r.first("num_kv_shared_layers") or 0
    return 2 * r.inner if r.get("use_double_wide_mlp") and index >= r.layers - shared > 0 else r.inner


def _mixer(r: Sizes, index: int) -> str:
    """What mixes the tokens of a layer: attention or something linear in the length."""
    kind = r.kind(index, "layer_types", "layers_block_type")
    period = r.first("attn_layer_period", "full_attention_interval")
    if kind is None and period is not None:
        offset = r.get("attn_layer_offset", period - 1)
        kind = "attention" if index % period == offset else "linear_attention"
    if kind is None and r.family == "bamba":
        kind = "attention" if index in (r.get("attn_layer_indices") or ()) else "mamba"
    if kind == "conv":
        return "conv"
    if kind not in ("linear_attention", "mamba"):
        return "attention"
    if r.traits.get("linear"):
        return str(r.traits["linear"])
    return "mamba2" if r.first("mamba_n_heads") else "mamba1" if r.first("mamba_d_state") else "delta"


def attention(r: Sizes, at: str, index: int) -> tuple[list[Weight], int, int]:
    """The weights of a layer's attention, with the sizes of its queries and keys."""
    if r.first("kv_lora_rank"):
        each = r.heads * (r.size("qk_nope_head_dim") + (r.first("qk_rope_head_dim") or 0))
        return list(latent(r, f"{at}.self_attn")), each, each
    full = r.first("global_head_dim") or r.traits.get("wide_head")
    wide = full is not None and r.kind(index, "layer_types") == "full_attention"
    head = full if wide and full else r.head
    groups = (r.first("num_global_key_value_heads") or r.groups) if wide and r.get("attention_k_eq_v") else r.groups
    query, keys = r.heads * head, groups * head
    bias = bool(r.traits.get("biased") or _biased(r, *BIASED))
    written = r.get("attention_out_bias", r.get("use_bias", bias)) if r.traits.get("output_bias", "") is None else bias
    out = r.traits["output_bias"] if r.traits.get("output_bias") is False else bool(written)
    into = BlockStep.INTO_ATTENTION
    weights = [*linear(f"{at}.self_attn.q_proj", query * (2 if r.traits.get("gated_query") else 1), r.hidden, into, bias=bias)]
    shares = index >= r.layers - (r.first("num_kv_shared_layers") or 0)  # Gemma's last layers use the keys of earlier ones
    if not shares:
        weights += linear(f"{at}.self_attn.k_proj", keys, r.hidden, into, bias=bias)
        if not (wide and r.get("attention_k_eq_v")):
            weights += linear(f"{at}.self_attn.v_proj", keys, r.hidden, into, bias=bias)
    weights += linear(f"{at}.self_attn.o_proj", r.hidden, query, BlockStep.OUT_OF_ATTENTION, bias=out)
    normed = r.traits.get("head_norms") if r.get("use_qk_norm") is None else "head" if r.get("use_qk_norm") else None
    if normed:
        sizes = (query, keys) if normed == "whole" else (head, head)
        for name, size in zip("qk"[: 1 if shares else 2], sizes, strict=False):
            weights += norm(f"{at}.self_attn.{name}_norm", size, into, bias=normed == "biased")
    if r.traits.get("attention_norm"):
        weights += norm(f"{at}.self_attn.attn_sub_norm", r.hidden, BlockStep.OUT_OF_ATTENTION, bias=False)
    return weights, query, keys


def _biased(r: Sizes, *names: str) -> bool:
    """Whether linear layers have a bias, as the first of these values says."""
    return bool(next((value for name in names if (value := r.get(name)) is not None), False))


def _feed(r: Sizes, at: str, inner: int, *, biased: bool) -> Iterator[Weight]:
    biased = biased or bool(r.traits.get("biased"))
    if r.traits.get("gated", True):
        yield from linear(f"{at}.gate_proj", inner, r.hidden, bias=biased)
    yield from linear(f"{at}.up_proj", inner, r.hidden, bias=biased)
    yield from linear(f"{at}.down_proj", r.hidden, inner, BlockStep.OUT_OF_FEED, bias=biased)
    if r.family in {"apertus", "apertus1p5_text"}:
        yield Weight(f"{at}.act_fn.alpha_p", (1,), BlockStep.INTO_FEED)
        yield Weight(f"{at}.act_fn.alpha_n", (1,), BlockStep.INTO_FEED)
    if r.traits.get("feed_norm"):
        yield from norm(f"{at}.ffn_sub_norm", inner, BlockStep.OUT_OF_FEED, bias=False)


def _experts(r: Sizes, index: int) -> Experts | None:
    """The experts of a layer; None if it has none."""
    number = r.first(*EXPERTS)
    if number is None or number < 2 or r.get("enable_moe_block", r.get("is_moe")) is False:
        return None
    kind = r.kind(index, "mlp_layer_types")
    dense = r.get("first_k_dense_replace", r.get("num_dense_layers", r.get("moe_layer_start_index"))) or 0
    start, last = (dense if isinstance(dense, int) else 0), r.get("moe_layer_end_index")
    step, offset = r.first("decoder_sparse_step", "moe_layer_interval", "expert_layer_period", "moe_layer_freq") or 1, 0
    if r.first("expert_layer_period"):
        offset = (r.get("expert_layer_offset") or 0) + 1
    only = r.get("mlp_only_layers")
    outside = index < start or (isinstance(last, int) and last > 0 and index > last) or (isinstance(only, list) and index in only)
    if kind == "dense" or (kind is None and (outside or (index + 1 - offset) % step)):
        return None
    width = r.first(*WIDTH) or r.inner
    shared = r.first(*SHARED_WIDTH) or (r.first(*SHARED) or 0) * width
    return Experts(number, min(number, r.first(*ACTIVE) or 2), width, shared)


def _expert_weights(r: Sizes, at: str, experts: Experts) -> list[Weight]:
    gated = 2 if r.traits.get("gated", True) else 1
    found = [
        Weight(f"{at}.mlp.gate.weight", (experts.number, r.hidden), BlockStep.INTO_FEED),
        Weight(
            f"{at}.mlp.experts.gate_up_proj",
            (experts.number, gated * experts.width, r.hidden),
            BlockStep.INTO_FEED,
            divided=True,
            viewed=True,
        ),
        Weight(f"{at}.mlp.experts.down_proj", (experts.number, r.hidden, experts.width), BlockStep.INTO_FEED, divided=True, viewed=True),
    ]
    if r.traits.get("correction"):
        found.append(Weight(f"{at}.mlp.gate.moe_statics.e_score_correction_bias", (1, experts.number), BlockStep.INTO_FEED, trained=False))
    if experts.shared:
        found += _feed(r, f"{at}.mlp.shared_experts", experts.shared, biased=False)
    if r.first("shared_expert_intermediate_size"):
        found.append(Weight(f"{at}.mlp.shared_expert_gate.weight", (1, r.hidden), BlockStep.OUT_OF_FEED))
    return found


def _inputs_of_layer(r: Sizes, at: str) -> Iterator[Weight]:
    """What a layer of Gemma 3n and 4 does with its part of the second embedding, and the parallel streams of 3n."""
    width = r.first("hidden_size_per_layer_input")
    if width is None:
        return
    yield from linear(f"{at}.per_layer_input_gate", width, r.hidden, BlockStep.OUT_OF_FEED)
    yield from linear(f"{at}.per_layer_projection", r.hidden, width, BlockStep.OUT_OF_FEED)
    yield from norm(f"{at}.post_per_layer_input_norm", r.hidden, BlockStep.OUT_OF_FEED, bias=False)
    streams, rank = r.first("altup_num_inputs"), r.first("laurel_rank")
    if streams and rank:
        before = BlockStep.BEFORE_ATTENTION
        yield Weight(f"{at}.altup.correct_output_scale", (r.hidden,), BlockStep.OUT_OF_FEED)
        yield from linear(f"{at}.altup.correction_coefs", streams, streams, BlockStep.OUT_OF_FEED)
        yield from linear(f"{at}.altup.prediction_coefs", streams**2, streams, before)
        yield from linear(f"{at}.altup.modality_router", streams, r.hidden, before)
        yield from norm(f"{at}.altup.router_norm", r.hidden, before, bias=False)
        yield from linear(f"{at}.laurel.linear_left", rank, r.hidden, before)
        yield from linear(f"{at}.laurel.linear_right", r.hidden, rank, before)
        yield from norm(f"{at}.laurel.post_laurel_norm", r.hidden, before, bias=False)
