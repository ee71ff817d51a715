"""Reads the sizes of a model by any of their usual names, with the defaults and traits of its family.

`TRAITS` states what distinguishes a family and is in no `config.json`; families listed there have the exact number of parameters in
transformers 5, as the test suite checks against the real classes.
"""

from __future__ import annotations

import json
from functools import cache
from importlib.resources import files
from typing import Any

from dslint.memory.reader import ModelReader
from dslint.memory.shapes import Norm

HIDDEN = ("hidden_size", "n_embd", "d_model", "dim", "n_embed", "model_dim", "emb_dim", "embed_dim")
LAYERS = ("num_hidden_layers", "n_layer", "num_layers", "n_layers", "decoder_layers", "num_decoder_layers", "encoder_layers", "layers")
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
state_size ssm_state_size conv_kernel expand n_groups mamba_num_heads mamba_head_dim use_conv_bias moe_latent_size
""".split()  # fmt: skip # noqa: SIM905 - names, not sentences
DEFAULTED = (*HIDDEN, *LAYERS, *HEADS, *GROUPS, *HEAD, *INNER, *VOCABULARY, *EXPERTS, *ACTIVE, *WIDTH, *SHARED, *SHARED_WIDTH, *_FLAGS)
"""The values of a `config.json` that are read here, for the table of defaults."""

LISTS = ("layer_types", "mlp_layer_types", "layers_block_type")
"""Lists with an entry per layer; their default is kept as the shortest list that repeats."""

TWO = ("input_layernorm", "post_attention_layernorm")
_PLAIN = {"gated": False}
_AFTER = {"norms": ("post_attention_layernorm", "post_feedforward_layernorm")}
_FOUR = {"norms": (*TWO, "pre_feedforward_layernorm", "post_feedforward_layernorm")}
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
    "apertus1p5_text": {**_PLAIN, "head_norms": "head", "activation": 2},
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
    "falcon_mamba": {"single": True, "linear": "mamba1"},
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
    "mamba": {"single": True, "linear": "mamba1"},
    "mamba2": {"single": True, "linear": "mamba2"},
    "minicpm3": {},
    "minimax": {"linear": "lightning"},
    "minimax_m2": {"head_norms": "whole"},
    "ministral3": {},
    "mpt": {**_PLAIN, "norm": Norm.LAYER, "norm_bias": False},
    "nemotron": {**_PLAIN, "norm": Norm.LAYER, "norm_bias": True},
    "nemotron_h": {**_PLAIN, "single": True, "linear": "mamba2"},
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
feed-forward layers are `gated`, whether a `norm` has a bias, whether a layer is a `single` part, ..."""


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
