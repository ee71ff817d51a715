"""Decoders with layers that follow from sizes: the families of transformers that are built of the same parts, and unknown ones.

`TRAITS` states what distinguishes a family and is in no `config.json`; families listed there have the exact number of parameters in
transformers 5, as the test suite checks against the real classes. Every other family is read by the usual names of sizes, as a
decoder with gated feed-forward layers, and counts as a guess.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from importlib.resources import files
from typing import Any

from dslint.memory.mixers import delta, latent, lightning, mamba1, mamba2, short_convolution
from dslint.memory.reader import ModelReader, ShapeError, copies, linear, norm
from dslint.memory.shapes import Block, Experts, Model, Norm, Step, Weight

HIDDEN = ("hidden_size", "n_embd", "d_model", "dim", "n_embed", "model_dim", "emb_dim")
LAYERS = ("num_hidden_layers", "n_layer", "num_layers", "n_layers", "decoder_layers", "num_decoder_layers", "encoder_layers")
HEADS = (
    "num_attention_heads",
    "n_head",
    "num_heads",
    "n_heads",
    "decoder_attention_heads",
    "num_decoder_attention_heads",
    "attention_heads",
)
GROUPS = ("num_key_value_heads", "num_kv_heads", "n_kv_heads", "multi_query_group_num")
HEAD = ("head_dim", "attention_head_dim", "kv_channels", "d_kv")
INNER = (
    "intermediate_size",
    "ffn_dim",
    "n_inner",
    "ffn_hidden_size",
    "decoder_ffn_dim",
    "encoder_ffn_dim",
    "d_ff",
    "inner_dim",
    "d_inner",
    "dff",
    "dim_ff",
)
VOCABULARY = ("vocab_size", "padded_vocab_size", "n_vocab")
EXPERTS = ("num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts")
ACTIVE = ("num_experts_per_tok", "num_experts_per_token", "moe_topk", "moe_k", "moe_top_k", "top_k_experts")
WIDTH = ("moe_intermediate_size", "expert_ffn_hidden_size", "moe_ffn_hidden_size", "expert_intermediate_size")
SHARED = ("n_shared_experts", "num_shared_experts", "moe_num_shared_experts")
SHARED_WIDTH = ("shared_expert_intermediate_size", "shared_intermediate_size", "moe_shared_expert_intermediate_size")
BIASED = ("qkv_bias", "use_qkv_bias", "attention_bias", "use_bias", "add_bias_linear", "bias")

REQUIRED = frozenset((*HIDDEN, *LAYERS, *HEADS, *GROUPS, *HEAD, *INNER, *VOCABULARY, "q_lora_rank"))
"""Sizes that the file of an exactly known family states if it has them."""

_FLAGS = """
tie_word_embeddings attention_bias qkv_bias use_qkv_bias use_bias bias mlp_bias attention_out_bias add_bias_linear multi_query
parallel_attn new_decoder_architecture num_ln_in_parallel_attn use_qk_norm use_qk_layernorm attn_output_gate conv_bias lm_head_bias
first_k_dense_replace decoder_sparse_step moe_layer_start_index moe_layer_end_index moe_layer_interval num_dense_layers moe_layer_freq
expert_layer_period expert_layer_offset attn_layer_period attn_layer_offset full_attention_interval kv_lora_rank q_lora_rank
qk_rope_head_dim qk_nope_head_dim v_head_dim index_n_heads index_head_dim linear_num_key_heads linear_num_value_heads
linear_key_head_dim linear_value_head_dim linear_conv_kernel_dim mamba_n_heads mamba_d_head mamba_n_groups mamba_d_state mamba_d_conv
mamba_expand mamba_dt_rank mamba_conv_bias mamba_d_ssm mamba_rms_norm conv_L_cache block_auto_adjust_ff_dim block_multiple_of
block_ffn_dim_multiplier hidden_size_per_layer_input vocab_size_per_layer_input num_kv_shared_layers global_head_dim
num_global_key_value_heads laurel_rank altup_num_inputs attention_k_eq_v use_double_wide_mlp max_position_embeddings n_positions
hidden_act hidden_activation attn_logit_softcapping final_logit_softcapping enable_moe_block is_moe is_encoder_decoder encoder_layers
num_encoder_layers activation_function hidden_dropout_prob resid_pdrop layer_norm_epsilon linear_num_heads linear_head_dim
""".split()  # fmt: skip # noqa: SIM905 - names, not sentences
DEFAULTED = (*HIDDEN, *LAYERS, *HEADS, *GROUPS, *HEAD, *INNER, *VOCABULARY, *EXPERTS, *ACTIVE, *WIDTH, *SHARED, *SHARED_WIDTH, *_FLAGS)
"""The values of a `config.json` that are read here, for the table of defaults."""

LISTS = ("layer_types", "mlp_layer_types", "layers_block_type")
"""Lists with an entry per layer; their default is kept as the shortest list that repeats."""

_TWO = ("input_layernorm", "post_attention_layernorm")
_PLAIN = {"gated": False}
_AFTER = {"norms": ("post_attention_layernorm", "post_feedforward_layernorm")}
_FOUR = {"norms": (*_TWO, "pre_feedforward_layernorm", "post_feedforward_layernorm")}
_MOE = {"router": "gate"}

_OLD: dict[str, Any] = {**_PLAIN, "norm": Norm.LAYER, "norm_bias": True, "biased": True, "positions": True}
_OF_OLD = (
    "n_embd",
    "activation_function",
    "hidden_dropout_prob",
    "decoder_ffn_dim",
    "resid_pdrop",
    "layer_norm_epsilon",
    "use_post_layernorm",
)
"""Values of families before Llama: of 36 such families in transformers 5.23 each has one, of those with gates Phi 3 and its likes."""

TRAITS: dict[str, dict[str, Any]] = {
    "apertus": {**_PLAIN, "head_norms": "head", "activation": 2},
    "arcee": _PLAIN,
    "bitnet": {"attention_norm": True, "feed_norm": True},
    "cohere": {"norms": ("input_layernorm",), "parallel": True, "norm": Norm.LAYER, "norm_bias": False},
    "cohere2": {"norms": ("input_layernorm",), "parallel": True, "norm": Norm.LAYER, "norm_bias": False},
    "cohere2_moe": {"norms": ("input_layernorm",), "parallel": True, "norm": Norm.LAYER, "norm_bias": False},
    "cwm": {},
    "deepseek_v32": {},
    "emu3_text_model": {},
    "ernie4_5": {"output_bias": None},
    "ernie4_5_moe": {"output_bias": None, "correction": True},
    "exaone4": {**_AFTER, "head_norms": "head"},
    "exaone_moe": {**_AFTER, "head_norms": "head"},
    "falcon": {**_PLAIN, "norms": ("input_layernorm",), "parallel": True, "norm": Norm.LAYER, "norm_bias": True},
    "flex_olmo": {**_AFTER, "head_norms": "whole"},
    "gpt_bigcode": _OLD,
    "gemma3n_text": {**_FOUR, "head_norms": "head", "norm": Norm.RMS_IN_FP32},
    "gemma4_text": {"wide_head": 512, **_FOUR, "head_norms": "head", "norm": Norm.RMS_IN_FP32},
    "glm4_moe": {"output_bias": False},
    "glm4_moe_lite": {},
    "glm_moe_dsa": {},
    "granite": {},
    "granitemoe": {},
    "granitemoehybrid": {},
    "granitemoeshared": {},
    "helium": {},
    "hunyuan_v1_dense": {"head_norms": "head"},
    "hy_v3": {"head_norms": "head"},
    "internlm3": {},
    "jais2": {**_PLAIN, "norm": Norm.LAYER, "norm_bias": True},
    "jamba": {"linear": "mamba1"},
    "bamba": {},
    "lfm2": {"head_norms": "head"},
    "minicpm3": {},
    "minimax": {"linear": "lightning"},
    "minimax_m2": {"head_norms": "whole"},
    "ministral3": {},
    "mpt": {**_PLAIN, "norm": Norm.LAYER, "norm_bias": False},
    "nemotron": {**_PLAIN, "norm": Norm.LAYER, "norm_bias": True},
    "olmo": {"norms": (), "final_norm": False},
    "olmo3": {**_AFTER, "head_norms": "whole"},
    "olmoe": {"head_norms": "whole"},
    "persimmon": {**_PLAIN, "norm": Norm.LAYER, "norm_bias": True, "biased": True, "head_norms": "biased"},
    "phimoe": {"norm": Norm.LAYER, "norm_bias": True},
    "qwen3_5_text": {"head_norms": "head", "gated_query": True},
    "qwen3_5_moe_text": {"head_norms": "head", "gated_query": True},
    "qwen3_next": {"head_norms": "head", "gated_query": True},
    "seed_oss": {"output_bias": None},
    "smollm3": {},
    "solar_open": {},
    "stablelm": {"norm": Norm.LAYER, "norm_bias": True, "output_bias": False},
    "starcoder2": {**_PLAIN, "norm": Norm.LAYER, "norm_bias": True},
    "vaultgemma": {"norm": Norm.RMS_IN_FP32},
    "youtu": {},
}
"""What distinguishes a family: `norms` of a layer by name, `head_norms` over the size of a head ("head") or all heads ("whole"), whether
feed-forward layers are `gated`, whether a `norm` has a bias, ..."""


OTHERWISE = "pass --params, --hidden-size, --layers, --heads and --vocab-size, or name a folder that also has its safetensors files"


@cache
def family_defaults() -> dict[str, dict[str, Any]]:
    """The default sizes of the families of transformers."""
    text = files("dslint.memory").joinpath("_generated/model_defaults.json").read_text(encoding="utf-8")
    found: dict[str, dict[str, Any]] = json.loads(text)
    return found


class Sizes(ModelReader):
    """Reads sizes by any of their usual names. `traits` are those of the family."""

    def __init__(self, data: dict[str, Any], name: str, family: str) -> None:
        super().__init__(data, name, family, family_defaults().get(family, {}))
        self.traits: dict[str, Any] = TRAITS.get(family) or (_OLD if self._is_old() else {})
        stated = ModelReader(data, name, family, {})  # a file without these is incomplete
        self.hidden, self.vocabulary = self._of_any(stated, HIDDEN), self.size(*VOCABULARY)
        listed = next((len(data[name]) for name in LISTS if isinstance(data.get(name), list)), 0)
        self.layers = listed if listed and not any(n in data for n in LAYERS) else self._of_any(stated, LAYERS)
        self.heads = self.first(*HEADS) or max(1, self.hidden // 128)
        single = self.get("multi_query") is True and not self.get("new_decoder_architecture")
        self.groups = 1 if single else self.first(*GROUPS) or self.heads
        self.head = self.first(*HEAD) or max(1, self.hidden // self.heads)
        self.inner = self.first(*INNER) or 4 * self.hidden
        self.norm: Norm = self.traits.get("norm", Norm.RMS)

    @staticmethod
    def _of_any(stated: ModelReader, names: tuple[str, ...]) -> int:
        return next((size for name in names if (size := stated.optional(name)) is not None), 0) or stated.size(*names)

    def _is_old(self) -> bool:
        """Whether an unknown family is of the kind before Llama: LayerNorm, biases, no gates."""
        return self.family not in TRAITS and any(self.get(name) is not None for name in _OF_OLD)

    def size(self, *names: str) -> int:
        """A required size, by the name that the file has before any default."""
        return self.first(*names) or super().size(*names)

    def get(self, name: str, default: Any = None) -> Any:
        """A value that may be missing; one that the file states as null has no default of its family."""
        value = self.data[name] if name in self.data else self.defaults.get(name)
        return default if value is None else value

    def first(self, *names: str) -> int | None:
        """An optional size: one that the file states counts before the defaults of the family."""
        for source in (self.data, {name: self.get(name) for name in names}):
            for name in names:
                if isinstance(source.get(name), int) and not isinstance(source[name], bool) and source[name] > 0:
                    return self.optional(name)
        return None

    def kind(self, index: int, *names: str) -> str | None:
        """The kind of a layer in one of the lists; a default repeats."""
        for name in names:
            values = self.get(name)
            if isinstance(values, list) and values and (name not in self.data or index < len(values)):
                return str(values[index % len(values)])
        return None


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


def _block(r: Sizes, index: int) -> Block:
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
    names = r.traits.get("norms", _TWO)
    steps = {0: Step.BEFORE_ATTENTION, len(names) - 1: Step.BEFORE_FEED if len(names) < 3 else Step.OUT_OF_FEED}
    for place, name in enumerate(names):
        weights += norm(f"{at}.{name}", r.hidden, steps.get(place, Step.BEFORE_FEED), bias=bool(r.traits.get("norm_bias", False)))
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
    into = Step.INTO_ATTENTION
    weights = [*linear(f"{at}.self_attn.q_proj", query * (2 if r.traits.get("gated_query") else 1), r.hidden, into, bias=bias)]
    shares = index >= r.layers - (r.first("num_kv_shared_layers") or 0)  # Gemma's last layers use the keys of earlier ones
    if not shares:
        weights += linear(f"{at}.self_attn.k_proj", keys, r.hidden, into, bias=bias)
        if not (wide and r.get("attention_k_eq_v")):
            weights += linear(f"{at}.self_attn.v_proj", keys, r.hidden, into, bias=bias)
    weights += linear(f"{at}.self_attn.o_proj", r.hidden, query, Step.OUT_OF_ATTENTION, bias=out)
    normed = r.traits.get("head_norms") if r.get("use_qk_norm") is None else "head" if r.get("use_qk_norm") else None
    if normed:
        sizes = (query, keys) if normed == "whole" else (head, head)
        for name, size in zip("qk"[: 1 if shares else 2], sizes, strict=False):
            weights += norm(f"{at}.self_attn.{name}_norm", size, into, bias=normed == "biased")
    if r.traits.get("attention_norm"):
        weights += norm(f"{at}.self_attn.attn_sub_norm", r.hidden, Step.OUT_OF_ATTENTION, bias=False)
    return weights, query, keys


def _biased(r: Sizes, *names: str) -> bool:
    """Whether linear layers have a bias, as the first of these values says."""
    return bool(next((value for name in names if (value := r.get(name)) is not None), False))


def _feed(r: Sizes, at: str, inner: int, *, biased: bool) -> Iterator[Weight]:
    biased = biased or bool(r.traits.get("biased"))
    if r.traits.get("gated", True):
        yield from linear(f"{at}.gate_proj", inner, r.hidden, bias=biased)
    yield from linear(f"{at}.up_proj", inner, r.hidden, bias=biased)
    yield from linear(f"{at}.down_proj", r.hidden, inner, Step.OUT_OF_FEED, bias=biased)
    if r.family == "apertus":
        yield Weight(f"{at}.act_fn.alpha_p", (1,), Step.INTO_FEED)
        yield Weight(f"{at}.act_fn.alpha_n", (1,), Step.INTO_FEED)
    if r.traits.get("feed_norm"):
        yield from norm(f"{at}.ffn_sub_norm", inner, Step.OUT_OF_FEED, bias=False)


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
        Weight(f"{at}.mlp.gate.weight", (experts.number, r.hidden), Step.INTO_FEED),
        Weight(f"{at}.mlp.experts.gate_up_proj", (experts.number, gated * experts.width, r.hidden), Step.INTO_FEED, divided=True),
        Weight(f"{at}.mlp.experts.down_proj", (experts.number, r.hidden, experts.width), Step.INTO_FEED, divided=True),
    ]
    if r.traits.get("correction"):
        found.append(Weight(f"{at}.mlp.gate.moe_statics.e_score_correction_bias", (1, experts.number), Step.INTO_FEED, trained=False))
    if experts.shared:
        found += _feed(r, f"{at}.mlp.shared_experts", experts.shared, biased=False)
    if r.first("shared_expert_intermediate_size"):
        found.append(Weight(f"{at}.mlp.shared_expert_gate.weight", (1, r.hidden), Step.OUT_OF_FEED))
    return found


def _inputs_of_layer(r: Sizes, at: str) -> Iterator[Weight]:
    """What a layer of Gemma 3n and 4 does with its part of the second embedding, and the parallel streams of 3n."""
    width = r.first("hidden_size_per_layer_input")
    if width is None:
        return
    yield from linear(f"{at}.per_layer_input_gate", width, r.hidden, Step.OUT_OF_FEED)
    yield from linear(f"{at}.per_layer_projection", r.hidden, width, Step.OUT_OF_FEED)
    yield from norm(f"{at}.post_per_layer_input_norm", r.hidden, Step.OUT_OF_FEED, bias=False)
    streams, rank = r.first("altup_num_inputs"), r.first("laurel_rank")
    if streams and rank:
        before = Step.BEFORE_ATTENTION
        yield Weight(f"{at}.altup.correct_output_scale", (r.hidden,), Step.OUT_OF_FEED)
        yield from linear(f"{at}.altup.correction_coefs", streams, streams, Step.OUT_OF_FEED)
        yield from linear(f"{at}.altup.prediction_coefs", streams**2, streams, before)
        yield from linear(f"{at}.altup.modality_router", streams, r.hidden, before)
        yield from norm(f"{at}.altup.router_norm", r.hidden, before, bias=False)
        yield from linear(f"{at}.laurel.linear_left", rank, r.hidden, before)
        yield from linear(f"{at}.laurel.linear_right", r.hidden, rank, before)
        yield from norm(f"{at}.laurel.post_laurel_norm", r.hidden, before, bias=False)
