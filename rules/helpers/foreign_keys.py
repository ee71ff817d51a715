"""Keys of other files that people write into a DeepSpeed config, and where each belongs."""

from __future__ import annotations

from dslint.source.tree import Path

ACCELERATE = "the Accelerate config file"
ACCELERATE_DEEPSPEED = "the `deepspeed_config` block of the Accelerate config file"
OF_ACCELERATE = (ACCELERATE, ACCELERATE_DEEPSPEED)
TRAINING_ARGUMENTS = "the training arguments (TrainingArguments)"
LAUNCHER = "the command line of the launcher"

_KEYS = {
    ACCELERATE: "compute_environment debug distributed_type downcast_bf16 dynamo_backend machine_rank main_process_ip main_process_port "
    "main_training_function num_machines num_processes rdzv_backend same_network tpu_env tpu_use_cluster tpu_use_sudo use_cpu",
    ACCELERATE_DEEPSPEED: "deepspeed_config_file deepspeed_hostfile deepspeed_moe_layer_cls_names deepspeed_multinode_launcher "
    "offload_optimizer_device offload_optimizer_nvme_path offload_param_device offload_param_nvme_path zero3_init_flag "
    "zero3_save_16bit_model zero_stage",
    TRAINING_ARGUMENTS: "adam_beta1 adam_beta2 adam_epsilon ddp_find_unused_parameters do_eval do_train eval_steps eval_strategy "
    "evaluation_strategy gradient_checkpointing gradient_checkpointing_kwargs group_by_length learning_rate load_best_model_at_end "
    "logging_dir logging_steps logging_strategy lr_scheduler_type max_steps num_train_epochs optim output_dir overwrite_output_dir "
    "per_device_eval_batch_size per_device_train_batch_size push_to_hub remove_unused_columns report_to run_name save_steps save_strategy save_total_limit seed "
    "tf32 warmup_ratio warmup_steps weight_decay",
    LAUNCHER: "hostfile master_addr master_port num_gpus num_nodes",
}

_OWNERS = {key: owner for owner, keys in _KEYS.items() for key in keys.split()}


def owner_of(path: Path) -> str | None:
    """Where a top-level key belongs that DeepSpeed does not know; None for a key of no other tool."""
    return _OWNERS.get(str(path[0])) if len(path) == 1 else None
