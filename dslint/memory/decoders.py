"""Decoder families: Llama and similar models with their experts, GPT-2, GPT-NeoX, Phi."""

from __future__ import annotations

from typing import Any

from dslint.memory.reader import ModelReader, ShapeError, copies, linear, norm
from dslint.memory.shapes import Block, BlockStep, Experts, Model, Norm, Weight

_NORMS = {
    2: (("input_layernorm", BlockStep.BEFORE_ATTENTION), ("post_attention_layernorm", BlockStep.BEFORE_FEED)),
    4: (
        ("input_layernorm", BlockStep.BEFORE_ATTENTION),
        ("post_attention_layernorm", BlockStep.OUT_OF_ATTENTION),
        ("pre_feedforward_layernorm", BlockStep.BEFORE_FEED),
        ("post_feedforward_layernorm", BlockStep.OUT_OF_FEED),
    ),
}
"""The norms of a layer, by their number: Gemma 2 and 3 also have one after each part."""


def like_llama(r: ModelReader) -> Model:
    """Llama, and families with the same structure."""
    hidden, layers, vocabulary = r.size("hidden_size"), r.size("num_hidden_layers"), r.size("vocab_size")
    heads = r.size("num_attention_heads")
    groups = r.optional("num_key_value_heads") or heads
    head = r.optional("head_dim") or max(1, hidden // heads)
    if heads % groups:
        raise ShapeError(f"the model {r.name}: num_key_value_heads {groups} does not divide num_attention_heads {heads}")
    query, keys = heads * head, groups * head
    bias = bool(r.get("qkv_bias", r.get("attention_bias")))
    inner = r.size("intermediate_size")
    norms, kind = r.get("norms", 2), r.get("norm", Norm.RMS)

    def block(index: int) -> Block:
        at = f"model.layers.{index}"
        experts = _experts(r, index)
        weights = [
            *linear(f"{at}.self_attn.q_proj", query, hidden, BlockStep.INTO_ATTENTION, bias=bias),
            *linear(f"{at}.self_attn.k_proj", keys, hidden, BlockStep.INTO_ATTENTION, bias=bias),
            *linear(f"{at}.self_attn.v_proj", keys, hidden, BlockStep.INTO_ATTENTION, bias=bias),
            *linear(f"{at}.self_attn.o_proj", hidden, query, BlockStep.OUT_OF_ATTENTION, bias=bias and r.get("output_bias", True)),
        ]
        if r.get("head_norms"):
            weights += [
                *norm(f"{at}.self_attn.q_norm", head, BlockStep.INTO_ATTENTION, bias=False),
                *norm(f"{at}.self_attn.k_norm", head, BlockStep.INTO_ATTENTION, bias=False),
            ]
        weights += (
            _expert_weights(r, f"{at}.mlp", hidden, experts) if experts else gated(f"{at}.mlp", hidden, inner, bool(r.get("mlp_bias")))
        )
        for name, step in _NORMS[norms]:
            weights += norm(f"{at}.{name}", hidden, step, bias=False)
        return Block(
            tuple(weights),
            hidden,
            heads,
            query,
            keys,
            inner,
            gated=True,
            norm=kind,
            norms=norms,
            head_norms=bool(r.get("head_norms")),
            softcap=bool(r.get("attn_logit_softcapping")),
            copies=copies(r.get("hidden_act", r.get("hidden_activation"))),
            experts=experts,
        )

    return decoder(r, hidden, vocabulary, [block(index) for index in range(layers)], kind)


def gated(at: str, hidden: int, inner: int, bias: bool = False) -> list[Weight]:  # noqa: FBT001, FBT002 - passed on as read
    """A gated feed-forward layer."""
    return [
        *linear(f"{at}.gate_proj", inner, hidden, BlockStep.INTO_FEED, bias=bias),
        *linear(f"{at}.up_proj", inner, hidden, BlockStep.INTO_FEED, bias=bias),
        *linear(f"{at}.down_proj", hidden, inner, BlockStep.OUT_OF_FEED, bias=bias),
    ]


def _experts(r: ModelReader, index: int) -> Experts | None:
    """The experts of a layer; None if it has none."""
    if r.family == "mixtral":
        return Experts(r.size("num_local_experts"), r.size("num_experts_per_tok"), r.size("intermediate_size"))
    if not r.family.endswith("_moe") or index in r.get("mlp_only_layers", ()) or (index + 1) % (r.optional("decoder_sparse_step") or 1):
        return None
    shared = r.get("shared_expert_intermediate_size", 0)
    return Experts(r.size("num_experts"), r.size("num_experts_per_tok"), r.size("moe_intermediate_size"), shared)


def _expert_weights(r: ModelReader, at: str, hidden: int, experts: Experts) -> list[Weight]:
    router = [Weight(f"{at}.gate.weight", (experts.number, hidden), BlockStep.INTO_FEED)]
    stacked = [
        Weight(f"{at}.experts.gate_up_proj", (experts.number, 2 * experts.width, hidden), BlockStep.INTO_FEED, divided=True, viewed=True),
        Weight(f"{at}.experts.down_proj", (experts.number, hidden, experts.width), BlockStep.INTO_FEED, divided=True, viewed=True),
    ]
    weights = [*stacked, *router] if r.family == "qwen3_moe" else [*router, *stacked]
    if experts.shared:
        weights += [
            *gated(f"{at}.shared_expert", hidden, experts.shared),
            Weight(f"{at}.shared_expert_gate.weight", (1, hidden), BlockStep.OUT_OF_FEED),
        ]
    return weights


def decoder(r: ModelReader, hidden: int, vocabulary: int, blocks: list[Block], kind: Norm, **how: Any) -> Model:
    """A decoder with an embedding before its blocks, a norm after them, and a head that may be tied to the embedding."""
    tied = bool(r.get("tie_word_embeddings", False))
    first = how.get("first", "model.embed_tokens")
    last = [*norm(how.get("norm", "model.norm"), hidden, bias=kind is Norm.LAYER)]
    if not tied:
        last += linear(how.get("head", "lm_head"), vocabulary, hidden, bias=bool(how.get("head_bias")))
    return Model(
        r.name,
        r.family,
        (Weight(f"{first}.weight", (vocabulary, hidden), divided=True), *how.get("also", ())),
        tuple(blocks),
        tuple(last),
        hidden,
        vocabulary,
        tied,
        positions=r.optional("max_position_embeddings") or r.optional("n_positions"),
        norm=kind,
        softcap=bool(r.get("final_logit_softcapping")),
    )


def gpt2(r: ModelReader) -> Model:
    """GPT-2, which stores the weights of linear layers transposed."""
    hidden, layers, heads = r.size("n_embd"), r.size("n_layer"), r.parts(r.size("n_embd"), "n_head")
    inner = r.optional("n_inner") or 4 * hidden

    def block(index: int) -> Block:
        at = f"transformer.h.{index}"
        weights = (
            *norm(f"{at}.ln_1", hidden),
            Weight(f"{at}.attn.c_attn.weight", (hidden, 3 * hidden), BlockStep.INTO_ATTENTION, divided=True, transposed=True),
            Weight(f"{at}.attn.c_attn.bias", (3 * hidden,), BlockStep.INTO_ATTENTION, divided=True),
            Weight(f"{at}.attn.c_proj.weight", (hidden, hidden), BlockStep.OUT_OF_ATTENTION, divided=True, transposed=True),
            Weight(f"{at}.attn.c_proj.bias", (hidden,), BlockStep.OUT_OF_ATTENTION),
            *norm(f"{at}.ln_2", hidden, BlockStep.BEFORE_FEED),
            Weight(f"{at}.mlp.c_fc.weight", (hidden, inner), BlockStep.INTO_FEED, divided=True, transposed=True),
            Weight(f"{at}.mlp.c_fc.bias", (inner,), BlockStep.INTO_FEED, divided=True),
            Weight(f"{at}.mlp.c_proj.weight", (inner, hidden), BlockStep.OUT_OF_FEED, divided=True, transposed=True),
            Weight(f"{at}.mlp.c_proj.bias", (hidden,), BlockStep.OUT_OF_FEED),
        )
        kept = copies(r.get("activation_function", "gelu_new"))
        return Block(weights, hidden, heads, hidden, hidden, inner, copies=kept, dropout=bool(r.get("resid_pdrop", 0.1)))

    positions = Weight("transformer.wpe.weight", (r.size("n_positions"), hidden))
    blocks = [block(index) for index in range(layers)]
    return decoder(r, hidden, r.size("vocab_size"), blocks, Norm.LAYER, first="transformer.wte", norm="transformer.ln_f", also=(positions,))


def gpt_neox(r: ModelReader) -> Model:
    """GPT-NeoX and Pythia."""
    hidden, heads, inner = r.size("hidden_size"), r.parts(r.size("hidden_size"), "num_attention_heads"), r.size("intermediate_size")
    bias = bool(r.get("attention_bias", True))

    def block(index: int) -> Block:
        at = f"gpt_neox.layers.{index}"
        weights = (
            *norm(f"{at}.input_layernorm", hidden),
            *norm(f"{at}.post_attention_layernorm", hidden, BlockStep.BEFORE_FEED),
            *linear(f"{at}.attention.query_key_value", 3 * hidden, hidden, BlockStep.INTO_ATTENTION, bias=bias),
            *linear(f"{at}.attention.dense", hidden, hidden, BlockStep.OUT_OF_ATTENTION, bias=bias),
            *linear(f"{at}.mlp.dense_h_to_4h", inner, hidden, BlockStep.INTO_FEED, bias=True),
            *linear(f"{at}.mlp.dense_4h_to_h", hidden, inner, BlockStep.OUT_OF_FEED, bias=True),
        )
        kept, parallel = copies(r.get("hidden_act", "gelu")), bool(r.get("use_parallel_residual", True))
        return Block(weights, hidden, heads, hidden, hidden, inner, parallel=parallel, fused=True, copies=kept)

    blocks = [block(index) for index in range(r.size("num_hidden_layers"))]
    how = {"first": "gpt_neox.embed_in", "norm": "gpt_neox.final_layer_norm"}
    return decoder(r, hidden, r.size("vocab_size"), blocks, Norm.LAYER, **how)


def phi(r: ModelReader) -> Model:
    """Phi 1 and 2: attention and feed-forward layer run in parallel after one norm."""
    hidden, heads, inner = r.size("hidden_size"), r.parts(r.size("hidden_size"), "num_attention_heads"), r.size("intermediate_size")
    head = hidden // heads
    keys = (r.optional("num_key_value_heads") or heads) * head

    def block(index: int) -> Block:
        at = f"model.layers.{index}"
        weights = [
            *linear(f"{at}.self_attn.q_proj", hidden, hidden, BlockStep.INTO_ATTENTION, bias=True),
            *linear(f"{at}.self_attn.k_proj", keys, hidden, BlockStep.INTO_ATTENTION, bias=True),
            *linear(f"{at}.self_attn.v_proj", keys, hidden, BlockStep.INTO_ATTENTION, bias=True),
            *linear(f"{at}.self_attn.dense", hidden, hidden, BlockStep.OUT_OF_ATTENTION, bias=True),
        ]
        if r.get("qk_layernorm"):
            weights += [
                *norm(f"{at}.self_attn.q_layernorm", head, BlockStep.INTO_ATTENTION),
                *norm(f"{at}.self_attn.k_layernorm", head, BlockStep.INTO_ATTENTION),
            ]
        weights += [
            *linear(f"{at}.mlp.fc1", inner, hidden, BlockStep.INTO_FEED, bias=True),
            *linear(f"{at}.mlp.fc2", hidden, inner, BlockStep.OUT_OF_FEED, bias=True),
            *norm(f"{at}.input_layernorm", hidden),
        ]
        return Block(tuple(weights), hidden, heads, hidden, keys, inner, norms=1, copies=copies(r.get("hidden_act", "gelu_new")))

    blocks = [block(index) for index in range(r.size("num_hidden_layers"))]
    return decoder(r, hidden, r.size("vocab_size"), blocks, Norm.LAYER, norm="model.final_layernorm", head_bias=True)


def phi3(r: ModelReader) -> Model:
    """Phi 3 and 4, with fused projections."""
    hidden, heads, inner = r.size("hidden_size"), r.size("num_attention_heads"), r.size("intermediate_size")
    head = r.optional("head_dim") or max(1, hidden // heads)
    query, keys = heads * head, (r.optional("num_key_value_heads") or heads) * head

    def block(index: int) -> Block:
        at = f"model.layers.{index}"
        weights = (
            *linear(f"{at}.self_attn.o_proj", hidden, query, BlockStep.OUT_OF_ATTENTION),
            *linear(f"{at}.self_attn.qkv_proj", query + 2 * keys, hidden, BlockStep.INTO_ATTENTION),
            *linear(f"{at}.mlp.gate_up_proj", 2 * inner, hidden, BlockStep.INTO_FEED),
            *linear(f"{at}.mlp.down_proj", hidden, inner, BlockStep.OUT_OF_FEED),
            *norm(f"{at}.input_layernorm", hidden, bias=False),
            *norm(f"{at}.post_attention_layernorm", hidden, BlockStep.BEFORE_FEED, bias=False),
        )
        kept = copies(r.get("hidden_act"))
        return Block(weights, hidden, heads, query, keys, inner, gated=True, norm=Norm.RMS, fused=True, copies=kept)

    return decoder(r, hidden, r.size("vocab_size"), [block(i) for i in range(r.size("num_hidden_layers"))], Norm.RMS)
