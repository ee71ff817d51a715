"""Decoders with LayerNorm and biases: OPT, BLOOM, GPT-J."""

from __future__ import annotations

from dslint.memory.decoders import decoder
from dslint.memory.reader import ModelReader, copies, linear, norm
from dslint.memory.shapes import Block, BlockStep, Model, Norm, Weight


def opt(r: ModelReader) -> Model:
    """OPT, with learned positions (two more than the file states)."""
    hidden, heads, inner = r.size("hidden_size"), r.parts(r.size("hidden_size"), "num_attention_heads"), r.size("ffn_dim")
    width = r.optional("word_embed_proj_dim") or hidden

    def block(index: int) -> Block:
        at = f"model.decoder.layers.{index}"
        weights = (
            *linear(f"{at}.self_attn.k_proj", hidden, hidden, BlockStep.INTO_ATTENTION, bias=True),
            *linear(f"{at}.self_attn.v_proj", hidden, hidden, BlockStep.INTO_ATTENTION, bias=True),
            *linear(f"{at}.self_attn.q_proj", hidden, hidden, BlockStep.INTO_ATTENTION, bias=True),
            *linear(f"{at}.self_attn.out_proj", hidden, hidden, BlockStep.OUT_OF_ATTENTION, bias=True),
            *norm(f"{at}.self_attn_layer_norm", hidden),
            *linear(f"{at}.fc1", inner, hidden, BlockStep.INTO_FEED, bias=True),
            *linear(f"{at}.fc2", hidden, inner, BlockStep.OUT_OF_FEED, bias=True),
            *norm(f"{at}.final_layer_norm", hidden, BlockStep.BEFORE_FEED),
        )
        return Block(weights, hidden, heads, hidden, hidden, inner, dropout=bool(r.get("dropout", 0.1)))

    at = "model.decoder"
    positions = r.size("max_position_embeddings")
    first = [
        Weight(f"{at}.embed_tokens.weight", (r.size("vocab_size"), width), divided=True),
        Weight(f"{at}.embed_positions.weight", (positions + 2, hidden)),
    ]
    if width != hidden:
        first += [*linear(f"{at}.project_out", width, hidden), *linear(f"{at}.project_in", hidden, width)]
    if r.get("do_layer_norm_before", True):
        first += norm(f"{at}.final_layer_norm", hidden)
    blocks = tuple(block(index) for index in range(r.size("num_hidden_layers")))
    return Model(r.name, r.family, tuple(first), blocks, (), hidden, r.size("vocab_size"), tied=True, positions=positions)


def bloom(r: ModelReader) -> Model:
    """BLOOM, with a norm after its embedding."""
    hidden, heads = r.size("hidden_size", "n_embed"), r.size("n_head", "num_attention_heads")

    def block(index: int) -> Block:
        at = f"transformer.h.{index}"
        weights = (
            *norm(f"{at}.input_layernorm", hidden),
            *linear(f"{at}.self_attention.query_key_value", 3 * hidden, hidden, BlockStep.INTO_ATTENTION, bias=True),
            *linear(f"{at}.self_attention.dense", hidden, hidden, BlockStep.OUT_OF_ATTENTION, bias=True),
            *norm(f"{at}.post_attention_layernorm", hidden, BlockStep.BEFORE_FEED),
            *linear(f"{at}.mlp.dense_h_to_4h", 4 * hidden, hidden, BlockStep.INTO_FEED, bias=True),
            *linear(f"{at}.mlp.dense_4h_to_h", hidden, 4 * hidden, BlockStep.OUT_OF_FEED, bias=True),
        )
        # no release up to transformers 5.23 has another attention: modeling_bloom.py computes the softmax in fp32
        return Block(weights, hidden, heads, hidden, hidden, 4 * hidden, fused=True, eager=True)

    blocks = [block(index) for index in range(r.size("n_layer", "num_hidden_layers"))]
    also = tuple(norm("transformer.word_embeddings_layernorm", hidden))
    first = "transformer.word_embeddings"
    return decoder(r, hidden, r.size("vocab_size"), blocks, Norm.LAYER, first=first, norm="transformer.ln_f", also=also)


def gptj(r: ModelReader) -> Model:
    """GPT-J: attention and feed-forward layer run in parallel after one norm."""
    hidden, heads = r.size("n_embd"), r.parts(r.size("n_embd"), "n_head")
    inner = r.optional("n_inner") or 4 * hidden

    def block(index: int) -> Block:
        at = f"transformer.h.{index}"
        weights = (
            *norm(f"{at}.ln_1", hidden),
            *linear(f"{at}.attn.k_proj", hidden, hidden, BlockStep.INTO_ATTENTION),
            *linear(f"{at}.attn.v_proj", hidden, hidden, BlockStep.INTO_ATTENTION),
            *linear(f"{at}.attn.q_proj", hidden, hidden, BlockStep.INTO_ATTENTION),
            *linear(f"{at}.attn.out_proj", hidden, hidden, BlockStep.OUT_OF_ATTENTION),
            *linear(f"{at}.mlp.fc_in", inner, hidden, BlockStep.INTO_FEED, bias=True),
            *linear(f"{at}.mlp.fc_out", hidden, inner, BlockStep.OUT_OF_FEED, bias=True),
        )
        return Block(weights, hidden, heads, hidden, hidden, inner, norms=1, copies=copies(r.get("activation_function", "gelu_new")))

    blocks = [block(index) for index in range(r.size("n_layer"))]
    how = {"first": "transformer.wte", "norm": "transformer.ln_f", "head_bias": True}
    return decoder(r, hidden, r.size("vocab_size"), blocks, Norm.LAYER, **how)
