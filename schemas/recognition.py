"""Keys that identify kinds of files."""

from __future__ import annotations

from dslint.schemas.framework_commands import MENTIONS

TELLING_KEYS = frozenset(
    {
        "train_micro_batch_size_per_gpu",
        "zero_optimization",
        "zero_allow_untested_optimizer",
        "zero_force_ds_cpu_optimizer",
        "activation_checkpointing",
        "wall_clock_breakdown",
        "steps_per_print",
        "prescale_gradients",
        "flops_profiler",
        "csv_monitor",
        "comms_logger",
        "data_efficiency",
    }
)
"""Top-level keys that only a training config has."""

TELLING_IN_YAML = TELLING_KEYS | {"train_batch_size"}
"""Keys of which a YAML file of settings has one if it is a config. The other top-level keys are words of every program with such a file."""

FRAGMENTS = tuple(f"template_zero{stage}.json" for stage in range(4))
"""Ends of the names of configs that DeepSpeed's autotuner completes (deepspeed/autotuning/config_templates)."""

INFERENCE_KEYS = frozenset(
    {
        "replace_with_kernel_inject",
        "kernel_inject",
        "enable_cuda_graph",
        "injection_policy",
        "injection_policy_tuple",
        "replace_method",
        "max_out_tokens",
        "min_out_tokens",
        "max_tokens",
        "return_tuple",
        "set_empty_params",
        "mp_size",
        "tp_size",
        "tensor_parallel",
        "dtype",
        "quant",
        "moe",
        "triangular_masking",
        "keep_module_on_host",
        "save_mp_checkpoint_path",
        "checkpoint_config",
        "base_dir",
    }
)
"""Top-level keys of a config for `deepspeed.init_inference`."""

TRAINER_KEYS = frozenset(
    [
        "per_device_train_batch_size",
        "gradient_accumulation_steps",
        "learning_rate",
        "num_train_epochs",
        "lr_scheduler_type",
        "warmup_ratio",
        "warmup_steps",
        "output_dir",
        "save_steps",
        "logging_steps",
        "gradient_checkpointing",
        "per_device_eval_batch_size",
        "optim",
        "bf16",
        "fp16",
        "max_grad_norm",
        "weight_decay",
        "save_strategy",
        "max_steps",
    ]
)
"""Arguments of the Hugging Face Trainer that identify a file with training arguments."""

ACCELERATE_KEYS = frozenset({"compute_environment", "distributed_type", "num_machines", "num_processes", "machine_rank"})
"""Top-level keys that identify a config of Accelerate."""

MODEL_KEYS = frozenset({"architectures", "model_type"})
"""Keys that the config.json of a model in the format of Hugging Face has."""

SECTIONS = frozenset({"deepspeed", "deepspeed_config", "deepspeed_cfg", "ds_config", "ds_cfg"})
"""Names under which files of other programs hold a config, or the path of one."""

WORDS = (
    "deepspeed",
    "zero_optimization",
    "train_micro_batch_size_per_gpu",
    "ds_config",
    "zero_stage",
    "accelerate launch",
    *MENTIONS,
)
"""Words, in lower case, of which every training, program or script that concerns DeepSpeed contains one."""

GENERIC = frozenset({"aio"})
"""Sections with keys that many programs use for something else, such as `block_size`."""
