"""Names of transformers' classes for a layer of experts."""

from __future__ import annotations

import re

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

_BY_NAME = (
    (r"mixtral", "mixtral"),
    (r"qwen1\.5-moe|qwen2-57b-a14b", "qwen2_moe"),
    (r"qwen3-\d+b-a\d+b", "qwen3_moe"),
    (r"qwen3-next", "qwen3_next"),
    (r"qwen3-omni", "qwen3_omni_moe"),
    (r"deepseek-(coder-)?v2", "deepseek_v2"),
    (r"deepseek-(v3|r1)(?!.*distill)", "deepseek_v3"),
    (r"olmoe", "olmoe"),
    (r"phi-3\.5-moe", "phimoe"),
    (r"jamba", "jamba"),
    (r"glm-4\.[567](?!v)", "glm4_moe"),
)


def family_by_name(name: str) -> str | None:
    """The family of a mixture of experts by the last folder of its name, also of one trained further: `/data/my_mixtral_sft`."""
    last = re.sub(r"[\s_]+", "-", re.sub(r"(?<=\d)___(?=\d)", ".", name.strip().rstrip("/").rpartition("/")[2].lower()))
    return next((family for pattern, family in _BY_NAME if re.search(rf"(?<![a-z]){pattern}", last)), None)
