"""What mixes the tokens of a layer besides plain attention: latent attention, gated delta nets, Mamba, short convolutions."""

from __future__ import annotations

from collections.abc import Iterator

from dslint.memory.reader import linear, norm
from dslint.memory.shapes import BlockStep, Latent, Weight
from dslint.memory.sizes import Sizes

STATE, KERNEL, EXPAND = ("mamba_d_state", "ssm_state_size", "state_size"), ("mamba_d_conv", "conv_kernel"), ("mamba_expand", "expand")
"""The names of Mamba's sizes."""

INTO, OUT = BlockStep.INTO_ATTENTION, BlockStep.OUT_OF_ATTENTION


def latent(r: Sizes, at: str) -> Iterator[Weight]:
    """Attention with compressed queries, keys and values (MLA), with the indexer of DeepSeek V3.2 if it has one."""
    rank, into, value = r.size("kv_lora_rank"), r.first("q_lora_rank"), r.size("v_head_dim")
    rope, plain = r.first("qk_rope_head_dim") or 0, r.size("qk_nope_head_dim")
    if into is None:
        yield from linear(f"{at}.q_proj", r.heads * (plain + rope), r.hidden, INTO)
    else:
        yield from linear(f"{at}.q_a_proj", into, r.hidden, INTO, bias=bool(r.get("attention_bias")))
        yield from norm(f"{at}.q_a_layernorm", into, INTO, bias=False)
        yield from linear(f"{at}.q_b_proj", r.heads * (plain + rope), into, INTO)
    yield from linear(f"{at}.kv_a_proj_with_mqa", rank + rope, r.hidden, INTO, bias=bool(r.get("attention_bias")))
    yield from norm(f"{at}.kv_a_layernorm", rank, INTO, bias=False)
    yield from linear(f"{at}.kv_b_proj", r.heads * (plain + value), rank, INTO)
    yield from linear(f"{at}.o_proj", r.hidden, r.heads * value, OUT, bias=bool(r.get("attention_bias")))
    indexers, width = r.first("index_n_heads"), r.first("index_head_dim")
    if indexers and width and into is not None:
        yield from linear(f"{at}.indexer.wq_b", indexers * width, into, INTO)
        yield from linear(f"{at}.indexer.wk", width, r.hidden, INTO)
        yield from norm(f"{at}.indexer.k_norm", width, INTO)
        yield from linear(f"{at}.indexer.weights_proj", indexers, r.hidden, INTO)


def compressed(r: Sizes) -> Latent | None:
    """The sizes of such an attention; None for another one."""
    rank = r.first("kv_lora_rank")
    if not rank:
        return None
    value = r.size("v_head_dim")
    return Latent(r.first("q_lora_rank") or 0, rank, r.heads * (r.size("qk_nope_head_dim") + value), r.heads * value)


def delta(r: Sizes, at: str) -> Iterator[Weight]:
    """The gated delta net of Qwen3-Next and Qwen3.5."""
    number = r.first("linear_num_value_heads", "linear_num_heads") or r.heads
    each = r.first("linear_value_head_dim", "linear_head_dim") or r.head
    keys = (r.first("linear_num_key_heads") or number) * (r.first("linear_key_head_dim") or each)
    values = number * each
    yield Weight(f"{at}.linear_attn.dt_bias", (number,), INTO)
    yield Weight(f"{at}.linear_attn.A_log", (number,), INTO)
    yield Weight(f"{at}.linear_attn.conv1d.weight", (2 * keys + values, 1, r.first("linear_conv_kernel_dim") or 4), INTO)
    yield from linear(f"{at}.linear_attn.in_proj_qkvz", 2 * keys + 2 * values, r.hidden, INTO)
    yield from linear(f"{at}.linear_attn.in_proj_ba", 2 * number, r.hidden, INTO)
    yield from norm(f"{at}.linear_attn.norm", each, OUT, bias=False)
    yield from linear(f"{at}.linear_attn.out_proj", r.hidden, values, OUT)


def mamba2(r: Sizes, at: str) -> Iterator[Weight]:
    """Mamba 2, alone and in Bamba, hybrid Granite and Nemotron-H."""
    heads, groups = r.size("mamba_n_heads", "mamba_num_heads", "num_heads"), r.first("mamba_n_groups", "n_groups") or 1
    state, own = r.size(*STATE), r.first("mamba_num_heads")
    whole = r.first("mamba_d_ssm") or (own * r.size("mamba_head_dim") if own else (r.first(*EXPAND) or 2) * r.hidden)
    mixed = whole + 2 * groups * state
    bias = r.get("mamba_conv_bias", r.get("use_conv_bias", default=True)) is not False
    projected = bool(r.get("mamba_proj_bias", r.get("use_bias")))
    yield Weight(f"{at}.mamba.dt_bias", (heads,), INTO)
    yield Weight(f"{at}.mamba.A_log", (heads,), INTO)
    yield Weight(f"{at}.mamba.D", (heads,), INTO)
    yield Weight(f"{at}.mamba.conv1d.weight", (mixed, 1, r.first(*KERNEL) or 4), INTO)
    if bias:
        yield Weight(f"{at}.mamba.conv1d.bias", (mixed,), INTO)
    yield from linear(f"{at}.mamba.in_proj", whole + mixed + heads, r.hidden, INTO, bias=projected)
    if r.get("mamba_rms_norm") is not False:
        yield from norm(f"{at}.mamba.norm", whole, OUT, bias=False)
    yield from linear(f"{at}.mamba.out_proj", r.hidden, whole, OUT, bias=projected)


def mamba1(r: Sizes, at: str) -> Iterator[Weight]:
    """The first Mamba, alone and in Jamba."""
    state, whole = r.size(*STATE), (r.first(*EXPAND) or 2) * r.hidden
    rank = r.first("mamba_dt_rank", "time_step_rank") or -(-r.hidden // 16)
    bias = bool(r.get("mamba_proj_bias", r.get("use_bias")))
    yield Weight(f"{at}.mamba.A_log", (whole, state), INTO)
    yield Weight(f"{at}.mamba.D", (whole,), INTO)
    yield Weight(f"{at}.mamba.conv1d.weight", (whole, 1, r.first(*KERNEL) or 4), INTO)
    yield Weight(f"{at}.mamba.conv1d.bias", (whole,), INTO)
    yield from linear(f"{at}.mamba.in_proj", 2 * whole, r.hidden, INTO, bias=bias)
    yield from linear(f"{at}.mamba.x_proj", rank + 2 * state, whole, INTO)
    yield from linear(f"{at}.mamba.dt_proj", whole, rank, INTO, bias=True)
    yield from linear(f"{at}.mamba.out_proj", r.hidden, whole, OUT, bias=bias)
    for name, size in (("dt", rank), ("b", state), ("c", state)) if r.family == "jamba" else ():
        yield from norm(f"{at}.mamba.{name}_layernorm", size, INTO, bias=False)


def short_convolution(r: Sizes, at: str) -> Iterator[Weight]:
    """The short convolution of LFM 2."""
    bias = bool(r.get("conv_bias"))
    yield Weight(f"{at}.conv.conv.weight", (r.hidden, 1, r.first("conv_L_cache") or 3), INTO)
    if bias:
        yield Weight(f"{at}.conv.conv.bias", (r.hidden,), INTO)
    yield from linear(f"{at}.conv.in_proj", 3 * r.hidden, r.hidden, INTO, bias=bias)
    yield from linear(f"{at}.conv.out_proj", r.hidden, r.hidden, OUT, bias=bias)


def lightning(r: Sizes, at: str) -> Iterator[Weight]:
    """The linear attention of MiniMax."""
    whole = r.heads * r.head
    yield from norm(f"{at}.self_attn.norm", whole, OUT, bias=False)
    yield from linear(f"{at}.self_attn.qkv_proj", 3 * whole, r.hidden, INTO)
    yield from linear(f"{at}.self_attn.out_proj", r.hidden, whole, OUT)
    yield from linear(f"{at}.self_attn.output_gate", whole, r.hidden, OUT)
