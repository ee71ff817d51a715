"""Names of transformers' classes for a layer of experts."""

from __future__ import annotations

EXPERT_BLOCKS = {
    "mixtral": "MixtralSparseMoeBlock",
    "qwen2_moe": "Qwen2MoeSparseMoeBlock",
    "qwen3_moe": "Qwen3MoeSparseMoeBlock",
    "deepseek_v2": "DeepseekV2MoE",
    "deepseek_v3": "DeepseekV3MoE",
    "olmoe": "OlmoeSparseMoeBlock",
    "phimoe": "PhimoeSparseMoeBlock",
    "jamba": "JambaSparseMoeBlock",
    "qwen3_next": "Qwen3NextSparseMoeBlock",
    "qwen3_omni_moe": "Qwen3OmniMoeThinkerTextSparseMoeBlock",
    "qwen3_omni_moe_thinker": "Qwen3OmniMoeThinkerTextSparseMoeBlock",
    "glm4_moe": "Glm4MoeMoE",
    "ernie4_5_moe": "Ernie4_5_MoeSparseMoeBlock",
}
"""By model family: the class in transformers of the block that holds the experts, each of them a module of its own in transformers 4."""
