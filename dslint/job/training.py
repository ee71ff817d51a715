"""Training files of frameworks built on the Hugging Face Trainer: axolotl, LLaMA-Factory, ms-swift, TRL. Recognised by their keys."""

from __future__ import annotations

from collections.abc import Callable

from dslint.job.arguments import LISTS, Arguments, SourcedValue, given_at
from dslint.schemas.key_table import KEYS
from dslint.schemas.recognition import TELLING_KEYS, TRAINER_KEYS
from dslint.source.tree import Document, Mapping, Node, Scalar, Sequence, plain
from dslint.source.unknown import UNKNOWN

AXOLOTL = "axolotl"
LLAMA_FACTORY = "LLaMA-Factory"
SWIFT = "ms-swift"
XTUNER = "xtuner"
TRL = "TRL"
TRAINER = "the Hugging Face Trainer"

SURE = frozenset({AXOLOTL, LLAMA_FACTORY})
"""Frameworks that keep transformers' default for every argument that is compared with a config."""

_AXOLOTL_NAMES = {"micro_batch_size": "per_device_train_batch_size", "optimizer": "optim", "lr_scheduler": "lr_scheduler_type"}
"""Axolotl's names for arguments of the Trainer; it shares the others."""

ARGUMENTS = frozenset(
    """
    per_device_train_batch_size gradient_accumulation_steps max_grad_norm learning_rate weight_decay adam_beta1 adam_beta2 adam_epsilon
    warmup_steps warmup_ratio fp16 bf16 fp16_full_eval bf16_full_eval max_steps num_train_epochs auto_find_batch_size save_only_model
    load_best_model_at_end optim lr_scheduler_type do_train do_eval fsdp fsdp_config deepspeed fp16_backend half_precision_backend
    fp16_opt_level model_name_or_path base_model output_dir predict_with_generate ds3_gather_for_generation
    gradient_checkpointing finetuning_type quantization_bit load_in_4bit load_in_8bit use_unsloth pure_bf16 pissa_init
    resume_from_checkpoint
    """.split()
)
"""The arguments that dslint reads."""

MODEL_ARGUMENTS = ("model_name_or_path", "base_model", "model")
"""The arguments that name the model, in several frameworks."""

WORKLOAD = frozenset(
    """
    model cutoff_len sequence_len max_seq_length max_length model_max_length block_size max_source_length disable_gradient_checkpointing
    lora_rank lora_r lora_dim lora_target target_modules lora_target_modules lora_enable use_peft use_lora adapter train_type tuner_type
    sft_type enable_liger_kernel use_liger_kernel use_liger liger_fused_linear_cross_entropy flash_attn attn_impl attn_implementation
    sample_packing packing neat_packing eval_strategy evaluation_strategy per_device_eval_batch_size eval_batch_size val_set_size
    lora_dropout additional_target lora_modules_to_save modules_to_save quant_bits freeze_vision_tower freeze_vit stage rl rlhf_type
    use_vllm vllm_mode vllm_gpu_memory_utilization vllm_enable_sleep_mode sleep_level sequence_parallel_size context_parallel_size
    sequence_parallel_degree
    """.split()
)
"""The arguments that only the estimate reads."""

_TRL_KEYS = frozenset("dataset_mixer dataset_mixture dataset_text_field accelerate_config".split())
_PERHAPS_TRL_KEYS = frozenset("dataset_name max_seq_length max_length torch_dtype use_peft beta".split())
"""Keys of TRL that other programs with the Hugging Face Trainer have, too."""


def framework_of(document: Document, uses: Callable[[str], bool]) -> str | None:
    """The framework that a YAML tree holds training arguments for; None for any other file.

    `uses` says whether the project of the file uses a package.
    """
    root = document.root
    if not isinstance(root, Mapping):
        return None
    names = {member.key.value for member in root.members}
    if "base_model" in names and names & {"micro_batch_size", "datasets", "sequence_len", "adapter"}:
        return AXOLOTL
    if names & {"stage", "finetuning_type"} and names & {"model_name_or_path", "dataset", "template"} and len(names & TRAINER_KEYS) >= 2:
        return LLAMA_FACTORY
    if "model" in names and names & {"train_type", "tuner_type", "swift_version", "target_modules"} and len(names & TRAINER_KEYS) >= 2:
        return SWIFT
    is_config = names & TELLING_KEYS and len(names & TRAINER_KEYS - KEYS.keys()) < 3
    if len(names & TRAINER_KEYS) >= 3 and not is_config:
        return TRL if names & _TRL_KEYS or (names & _PERHAPS_TRL_KEYS and uses("trl")) else TRAINER
    return None


def read_training(document: Document, shown: str, framework: str) -> Arguments:
    """The arguments of a training file."""
    values: dict[str, SourcedValue] = {}
    root = document.root
    for member in root.members if isinstance(root, Mapping) else ():
        written = member.key.value
        name = _AXOLOTL_NAMES.get(written, written) if framework == AXOLOTL else written
        if name not in ARGUMENTS | WORKLOAD:
            continue
        value = plain(member.value) if isinstance(member.value, Scalar) else _listed(member.value) if name in LISTS else UNKNOWN
        if framework == AXOLOTL and name in ("bf16", "fp16"):
            value = _axolotl_precision(value)
        given = given_at(document, shown, (written,), name, value)
        if given is not None and value is not None:
            values[name] = given
    if framework == AXOLOTL and "gradient_accumulation_steps" in values and values["gradient_accumulation_steps"].value == 0:
        del values["gradient_accumulation_steps"]
    return Arguments(framework, shown, values, sure=framework in SURE)


def _listed(node: Node) -> object:
    """A list of names as one text."""
    words = plain(node) if isinstance(node, Sequence) else None
    return ",".join(words) if isinstance(words, list) and all(isinstance(word, str) for word in words) else UNKNOWN


def _axolotl_precision(value: object) -> object:
    """Axolotl's `bf16: auto` depends on the GPU; `full` means bf16 weights without mixed precision."""
    return value if isinstance(value, bool) else UNKNOWN
