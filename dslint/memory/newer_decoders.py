"""Decoders with RMSNorm that differ from Llama: GLM, OLMo 2, and the experts of gpt-oss, DeepSeek and Llama 4."""

from __future__ import annotations

from dslint.memory.decoders import decoder, gated
from dslint.memory.reader import ModelReader, copies, linear, norm
from dslint.memory.shapes import Block, BlockStep, Experts, Latent, Model, Norm, Weight


def glm(r: ModelReader) -> Model:
    """GLM and GLM 4, with fused feed-forward projections; and ChatGLM, the same model with its own names for sizes."""
    hidden, heads = r.size("hidden_size"), r.size("num_attention_heads")
    head = r.optional("head_dim") or r.optional("kv_channels") or hidden // heads
    query, keys = heads * head, (r.optional("multi_query_group_num") or r.optional("num_key_value_heads") or heads) * head
    inner = r.size("ffn_hidden_size", "intermediate_size") if r.family == "chatglm" else r.size("intermediate_size")
    bias = bool(r.get("add_qkv_bias", r.get("attention_bias", True)))
    norms = 4 if r.family == "glm4" else 2

    def block(index: int) -> Block:
        at = f"model.layers.{index}"
        weights = [
            *linear(f"{at}.self_attn.q_proj", query, hidden, BlockStep.INTO_ATTENTION, bias=bias),
            *linear(f"{at}.self_attn.k_proj", keys, hidden, BlockStep.INTO_ATTENTION, bias=bias),
            *linear(f"{at}.self_attn.v_proj", keys, hidden, BlockStep.INTO_ATTENTION, bias=bias),
            *linear(f"{at}.self_attn.o_proj", hidden, query, BlockStep.OUT_OF_ATTENTION),
            *linear(f"{at}.mlp.gate_up_proj", 2 * inner, hidden, BlockStep.INTO_FEED),
            *linear(f"{at}.mlp.down_proj", hidden, inner, BlockStep.OUT_OF_FEED),
            *norm(f"{at}.input_layernorm", hidden, bias=False),
            *norm(f"{at}.post_attention_layernorm", hidden, BlockStep.BEFORE_FEED, bias=False),
        ]
        if norms == 4:
            weights += norm(f"{at}.post_self_attn_layernorm", hidden, BlockStep.OUT_OF_ATTENTION, bias=False)
            weights += norm(f"{at}.post_mlp_layernorm", hidden, BlockStep.OUT_OF_FEED, bias=False)
        return Block(tuple(weights), hidden, heads, query, keys, inner, gated=True, norm=Norm.RMS, norms=norms)

    blocks = [block(index) for index in range(r.size("num_layers" if r.family == "chatglm" else "num_hidden_layers"))]
    return decoder(r, hidden, r.size("padded_vocab_size", "vocab_size"), blocks, Norm.RMS)


def olmo2(r: ModelReader) -> Model:
    """OLMo 2: norms after attention and feed-forward layer, and over all heads of query and key."""
    hidden, heads, inner = r.size("hidden_size"), r.parts(r.size("hidden_size"), "num_attention_heads"), r.size("intermediate_size")
    keys = (r.optional("num_key_value_heads") or heads) * (hidden // heads)

    def block(index: int) -> Block:
        at = f"model.layers.{index}"
        weights = (
            *linear(f"{at}.self_attn.q_proj", hidden, hidden, BlockStep.INTO_ATTENTION),
            *linear(f"{at}.self_attn.k_proj", keys, hidden, BlockStep.INTO_ATTENTION),
            *linear(f"{at}.self_attn.v_proj", keys, hidden, BlockStep.INTO_ATTENTION),
            *linear(f"{at}.self_attn.o_proj", hidden, hidden, BlockStep.OUT_OF_ATTENTION),
            *norm(f"{at}.self_attn.q_norm", hidden, BlockStep.INTO_ATTENTION, bias=False),
            *norm(f"{at}.self_attn.k_norm", keys, BlockStep.INTO_ATTENTION, bias=False),
            *gated(f"{at}.mlp", hidden, inner),
            *norm(f"{at}.post_attention_layernorm", hidden, BlockStep.OUT_OF_ATTENTION, bias=False),
            *norm(f"{at}.post_feedforward_layernorm", hidden, BlockStep.OUT_OF_FEED, bias=False),
        )
        return Block(weights, hidden, heads, hidden, keys, inner, gated=True, norm=Norm.RMS, head_norms=True)

    return decoder(r, hidden, r.size("vocab_size"), [block(index) for index in range(r.size("num_hidden_layers"))], Norm.RMS)


def gpt_oss(r: ModelReader) -> Model:
    """gpt-oss: experts in every layer, biases everywhere."""
    hidden, heads, inner = r.size("hidden_size"), r.size("num_attention_heads"), r.size("intermediate_size")
    head = r.size("head_dim")
    query, keys = heads * head, r.size("num_key_value_heads") * head
    experts = Experts(r.size("num_local_experts"), r.size("num_experts_per_tok"), inner, biased=True)

    def block(index: int) -> Block:
        at, number = f"model.layers.{index}", experts.number
        weights = (
            Weight(f"{at}.self_attn.sinks", (heads,), BlockStep.INTO_ATTENTION, divided=True),
            *linear(f"{at}.self_attn.q_proj", query, hidden, BlockStep.INTO_ATTENTION, bias=True),
            *linear(f"{at}.self_attn.k_proj", keys, hidden, BlockStep.INTO_ATTENTION, bias=True),
            *linear(f"{at}.self_attn.v_proj", keys, hidden, BlockStep.INTO_ATTENTION, bias=True),
            *linear(f"{at}.self_attn.o_proj", hidden, query, BlockStep.OUT_OF_ATTENTION, bias=True),
            *linear(f"{at}.mlp.router", number, hidden, BlockStep.INTO_FEED, bias=True),
            Weight(f"{at}.mlp.experts.gate_up_proj", (number, hidden, 2 * inner), BlockStep.INTO_FEED, divided=True),
            Weight(f"{at}.mlp.experts.gate_up_proj_bias", (number, 2 * inner), BlockStep.INTO_FEED, divided=True),
            Weight(f"{at}.mlp.experts.down_proj", (number, inner, hidden), BlockStep.INTO_FEED, divided=True),
            Weight(f"{at}.mlp.experts.down_proj_bias", (number, hidden), BlockStep.INTO_FEED),
            *norm(f"{at}.input_layernorm", hidden, bias=False),
            *norm(f"{at}.post_attention_layernorm", hidden, BlockStep.BEFORE_FEED, bias=False),
        )
        kind = Norm.RMS_IN_FP32
        return Block(weights, hidden, heads, query, keys, inner, gated=True, norm=kind, sinks=True, copies=4, experts=experts)

    blocks = [block(index) for index in range(r.size("num_hidden_layers"))]
    return decoder(r, hidden, r.size("vocab_size"), blocks, Norm.RMS_IN_FP32)


def deepseek(r: ModelReader) -> Model:
    """DeepSeek V2 and V3: attention with compressed queries, keys and values; shared experts."""
    hidden, heads, inner = r.size("hidden_size"), r.size("num_attention_heads"), r.size("intermediate_size")
    rank, into = r.size("kv_lora_rank"), r.optional("q_lora_rank")
    rope, plain, value = r.size("qk_rope_head_dim"), r.size("qk_nope_head_dim"), r.size("v_head_dim")
    width = r.size("moe_intermediate_size")
    shared = width * r.size("n_shared_experts")
    experts = Experts(r.size("n_routed_experts"), r.size("num_experts_per_tok"), width, shared, shared_gate=False, routed_in_fp32=True)
    latent = Latent(into or 0, rank, heads * (plain + value), heads * value)
    dense = r.get("first_k_dense_replace", 0)

    def queries(at: str) -> list[Weight]:
        out = heads * (plain + rope)
        if into is None:
            return list(linear(f"{at}.q_proj", out, hidden, BlockStep.INTO_ATTENTION))
        return [
            *linear(f"{at}.q_a_proj", into, hidden, BlockStep.INTO_ATTENTION),
            *norm(f"{at}.q_a_layernorm", into, BlockStep.INTO_ATTENTION, bias=False),
            *linear(f"{at}.q_b_proj", out, into, BlockStep.INTO_ATTENTION),
        ]

    def block(index: int) -> Block:
        at = f"model.layers.{index}"
        feed = gated(f"{at}.mlp", hidden, inner)
        if index >= dense:
            feed = [
                Weight(
                    f"{at}.mlp.experts.gate_up_proj", (experts.number, 2 * width, hidden), BlockStep.INTO_FEED, divided=True, viewed=True
                ),
                Weight(f"{at}.mlp.experts.down_proj", (experts.number, hidden, width), BlockStep.INTO_FEED, divided=True, viewed=True),
                Weight(f"{at}.mlp.gate.weight", (experts.number, hidden), BlockStep.INTO_FEED),
                *gated(f"{at}.mlp.shared_experts", hidden, experts.shared),
            ]
        weights = (
            *queries(f"{at}.self_attn"),
            *linear(f"{at}.self_attn.kv_a_proj_with_mqa", rank + rope, hidden, BlockStep.INTO_ATTENTION),
            *norm(f"{at}.self_attn.kv_a_layernorm", rank, BlockStep.INTO_ATTENTION, bias=False),
            *linear(f"{at}.self_attn.kv_b_proj", heads * (plain + value), rank, BlockStep.INTO_ATTENTION),
            *linear(f"{at}.self_attn.o_proj", hidden, heads * value, BlockStep.OUT_OF_ATTENTION),
            *feed,
            *norm(f"{at}.input_layernorm", hidden, bias=False),
            *norm(f"{at}.post_attention_layernorm", hidden, BlockStep.BEFORE_FEED, bias=False),
        )
        each = heads * (plain + rope)
        more = experts if index >= dense else None
        return Block(weights, hidden, heads, each, each, inner, gated=True, norm=Norm.RMS, experts=more, latent=latent)

    return decoder(r, hidden, r.size("vocab_size"), [block(index) for index in range(r.size("num_hidden_layers"))], Norm.RMS)


def llama4(r: ModelReader) -> Model:
    """The language model of Llama 4: experts in every layer, or in every second one."""
    hidden, heads, inner = r.size("hidden_size"), r.size("num_attention_heads"), r.size("intermediate_size")
    head = r.optional("head_dim") or hidden // heads
    query, keys = heads * head, r.size("num_key_value_heads") * head
    experts = Experts(r.size("num_local_experts"), r.size("num_experts_per_tok"), inner, inner)
    step = r.size("interleave_moe_layer_step")

    def block(index: int) -> Block:
        at, mixed = f"model.layers.{index}", (index + 1) % step == 0
        feed = gated(f"{at}.feed_forward", hidden, r.size("intermediate_size_mlp"))
        if mixed:
            feed = [
                Weight(f"{at}.feed_forward.experts.gate_up_proj", (experts.number, hidden, 2 * inner), BlockStep.INTO_FEED, divided=True),
                Weight(f"{at}.feed_forward.experts.down_proj", (experts.number, inner, hidden), BlockStep.INTO_FEED, divided=True),
                *linear(f"{at}.feed_forward.router", experts.number, hidden, BlockStep.INTO_FEED),
                *gated(f"{at}.feed_forward.shared_expert", hidden, inner),
            ]
        weights = (
            *linear(f"{at}.self_attn.q_proj", query, hidden, BlockStep.INTO_ATTENTION),
            *linear(f"{at}.self_attn.k_proj", keys, hidden, BlockStep.INTO_ATTENTION),
            *linear(f"{at}.self_attn.v_proj", keys, hidden, BlockStep.INTO_ATTENTION),
            *linear(f"{at}.self_attn.o_proj", hidden, query, BlockStep.OUT_OF_ATTENTION),
            *feed,
            *norm(f"{at}.input_layernorm", hidden, bias=False),
            *norm(f"{at}.post_attention_layernorm", hidden, BlockStep.BEFORE_FEED, bias=False),
        )
        wide = inner if mixed else r.size("intermediate_size_mlp")
        kept = copies(r.get("hidden_act"))
        more = experts if mixed else None
        return Block(weights, hidden, heads, query, keys, wide, gated=True, norm=Norm.RMS, copies=kept, experts=more)

    return decoder(r, hidden, r.size("vocab_size"), [block(index) for index in range(r.size("num_hidden_layers"))], Norm.RMS)
