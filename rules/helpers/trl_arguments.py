"""Arguments that the config classes of TRL have in some releases only."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache

from dslint.facts import Release
from dslint.rules.helpers.trainer_arguments import Taken

_GONE: Mapping[str, tuple[tuple[str, str, str], ...]] = {
    "SFTConfig": (
        ("max_seq_length", "0.20.0", "Write max_length."),
        ("use_liger", "0.18.0", "Write use_liger_kernel."),
        ("chars_per_token dataset_batch_size num_of_sequences", "0.18.0", "Remove it."),
    ),
    "DPOConfig": (
        ("is_encoder_decoder", "0.15.0", "Remove it."),
        ("max_target_length", "0.14.0", "Remove it."),
        ("padding_value", "0.26.0", "Remove it."),
        ("use_num_logits_to_keep", "0.17.0", "Remove it."),
        ("use_liger_loss", "0.28.0", "Write use_liger_kernel."),
        ("max_prompt_length max_completion_length", "0.29.0", "Write max_length, which limits prompt and completion together."),
        (
            (
                "base_model_attribute_name force_use_ref_model generate_during_eval label_pad_token_id model_adapter_name ref_adapter_name "
                "ref_model_init_kwargs reference_free rpo_alpha tools use_logits_to_keep"
            ),
            "0.29.0",
            "Remove it.",
        ),
    ),
    "GRPOConfig": (
        ("vllm_device vllm_dtype vllm_enable_prefix_caching", "0.18.0", "Remove it: vLLM runs in a server, or beside the training."),
        ("vllm_max_model_len", "0.18.0", "Remove it; from 0.26.0 on write vllm_max_model_length."),
        ("wandb_log_unique_prompts", "0.27.0", "Write log_unique_prompts."),
        ("max_prompt_length", "0.28.0", "Remove it, and shorten the prompts of the dataset."),
        ("use_liger_loss", "0.28.0", "Write use_liger_kernel."),
        ("vllm_guided_decoding_regex", "0.28.0", "Write vllm_structured_outputs_regex."),
    ),
}
"""By class: arguments, the first release without them, and what to write instead."""

_NEW: Mapping[str, tuple[tuple[str, str], ...]] = {
    "SFTConfig": (
        ("max_length padding_free", "0.16.0"),
        ("completion_only_loss", "0.17.0"),
        ("activation_offloading", "0.18.0"),
        ("assistant_only_loss chat_template_path packing_strategy", "0.19.0"),
        ("loss_type", "0.23.0"),
    ),
    "GRPOConfig": (
        ("ds3_gather_for_generation log_completions reward_weights sync_ref_model", "0.15.0"),
        ("epsilon epsilon_high num_iterations repetition_penalty scale_rewards top_k top_p vllm_server_host vllm_server_port", "0.16.0"),
        ("loss_type mask_truncated_completions num_completions_to_print", "0.17.0"),
        ("generation_batch_size steps_per_generation vllm_mode vllm_server_base_url vllm_tensor_parallel_size", "0.18.0"),
        ("importance_sampling_level", "0.20.0"),
        ("vllm_enable_sleep_mode vllm_importance_sampling_correction", "0.23.0"),
    ),
    "DPOConfig": (("padding_free", "0.14.0"), ("ld_alpha", "0.18.0"), ("loss_weights", "0.20.0")),
}
"""By class: arguments, and the first release with them."""


@cache
def _arguments() -> dict[str, dict[str, Taken]]:
    """Source: trl/trainer/sft_config.py, dpo_config.py, grpo_config.py and base_config.py of 33 releases, 0.9.6 to 1.16.0."""
    found: dict[str, dict[str, Taken]] = {name: {} for name in _GONE}
    for kind, rows in _NEW.items():
        for names, first in rows:
            needed = Taken(None, _BEFORE[first], f"Remove it, or use TRL {first} or later.")
            found[kind] |= dict.fromkeys(names.split(), needed)
    for kind, removed in _GONE.items():
        for names, first, advice in removed:
            found[kind] |= dict.fromkeys(names.split(), Taken(Release.parse(first), None, advice))
    return found


_BEFORE = {
    "0.14.0": Release(0, 13, 0),
    "0.15.0": Release(0, 14, 0),
    "0.16.0": Release(0, 15, 2),
    "0.17.0": Release(0, 16, 1),
    "0.18.0": Release(0, 17, 0),
    "0.19.0": Release(0, 18, 2),
    "0.20.0": Release(0, 19, 1),
    "0.23.0": Release(0, 22, 2),
}
"""The last release before another one."""


def of_class(name: str) -> Mapping[str, Taken]:
    """The arguments of a class that not every release takes; none for a class that is not known."""
    return _arguments().get(name, {})


def configs() -> Iterator[tuple[str, str, str, Mapping[str, Taken]]]:
    """The classes as `trainers` gives those of trainers: the library, a pattern of events, the name, and the arguments."""
    for name in _GONE:
        yield "trl", rf"trl\.(\w+\.)*{name}", name, of_class(name)
