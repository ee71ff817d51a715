"""Which loader replaces the string "auto" in which keys, and with what. Plain data for `check`.

The tables hold for transformers 4 and 5 and for Accelerate from 0.24 on. A key that is not in the table of a Hugging Face loader must
not be "auto": the loader raises "not found in kwargs", even for keys where DeepSpeed itself supports "auto".
"""

from __future__ import annotations

_BOTH = {
    "zero_optimization.reduce_bucket_size": "the model's hidden_size squared",
    "zero_optimization.stage3_prefetch_bucket_size": "0.9 x the model's hidden_size squared",
    "zero_optimization.stage3_param_persistence_threshold": "10 x the model's hidden_size",
    "zero_optimization.stage": "ACCELERATE_DEEPSPEED_ZERO_STAGE, otherwise 2",
    "zero_optimization.offload_optimizer.device": "ACCELERATE_DEEPSPEED_OFFLOAD_OPTIMIZER_DEVICE, otherwise none",
    "zero_optimization.offload_optimizer.nvme_path": "ACCELERATE_DEEPSPEED_OFFLOAD_OPTIMIZER_NVME_PATH, otherwise none",
    "zero_optimization.offload_param.device": "ACCELERATE_DEEPSPEED_OFFLOAD_PARAM_DEVICE, otherwise none",
    "zero_optimization.offload_param.nvme_path": "ACCELERATE_DEEPSPEED_OFFLOAD_PARAM_NVME_PATH, otherwise none",
    "zero_optimization.stage3_gather_16bit_weights_on_model_save": "ACCELERATE_DEEPSPEED_ZERO3_SAVE_16BIT_MODEL, otherwise false",
    "steps_per_print": "infinity, whatever is written",
}

FILLED: dict[str, dict[str, str]] = {
    "transformers": {
        "train_micro_batch_size_per_gpu": "per_device_train_batch_size",
        "gradient_accumulation_steps": "gradient_accumulation_steps",
        "train_batch_size": "world size x per_device_train_batch_size x gradient_accumulation_steps",
        "gradient_clipping": "max_grad_norm",
        "optimizer.params.lr": "learning_rate",
        "optimizer.params.betas": "[adam_beta1, adam_beta2]",
        "optimizer.params.eps": "adam_epsilon",
        "optimizer.params.weight_decay": "weight_decay",
        "scheduler.params.warmup_min_lr": "0",
        "scheduler.params.warmup_max_lr": "learning_rate",
        "scheduler.params.warmup_num_steps": "warmup_steps or warmup_ratio",
        "scheduler.params.total_num_steps": "the number of training steps",
        "fp16.enabled": "fp16 or fp16_full_eval",
        "bf16.enabled": "bf16 or bf16_full_eval",
        "zero_allow_untested_optimizer": "true, if the file has no optimizer section",
        **_BOTH,
    },
    "accelerate": {
        "train_micro_batch_size_per_gpu": "the batch size of the data loader",
        "gradient_accumulation_steps": "Accelerator(gradient_accumulation_steps=...)",
        "train_batch_size": "the data loader's batch size x gradient_accumulation_steps x num_processes",
        "gradient_clipping": "gradient_clipping of the plugin, otherwise 1.0",
        "optimizer.params.lr": "DummyOptim(lr=...)",
        "optimizer.params.weight_decay": "DummyOptim(weight_decay=...)",
        "scheduler.params.warmup_min_lr": "0, with DummyScheduler",
        "scheduler.params.warmup_max_lr": "the learning rate of DummyOptim",
        "scheduler.params.warmup_num_steps": "DummyScheduler(warmup_num_steps=...)",
        "scheduler.params.total_num_steps": "DummyScheduler(total_num_steps=...)",
        "fp16.enabled": "mixed_precision being fp16",
        "bf16.enabled": "mixed_precision being bf16 or fp8",
        "zero_allow_untested_optimizer": "true, if the program has its own optimizer",
        **_BOTH,
    },
    "lightning": {},
    "deepspeed": {},
}
"""By integration and dotted key: the argument (or computation) that replaces "auto". Lightning replaces nothing."""

FILLED_WITHOUT = {"zero_allow_untested_optimizer": "optimizer"}
"""Keys that both Hugging Face loaders fill only if the config does not have another top-level key."""

MISMATCH_CHECKED: dict[str, frozenset[str]] = {
    "transformers": frozenset(
        {
            "train_micro_batch_size_per_gpu",
            "gradient_accumulation_steps",
            "train_batch_size",
            "gradient_clipping",
            "optimizer.params.lr",
            "optimizer.params.betas",
            "optimizer.params.eps",
            "optimizer.params.weight_decay",
            "scheduler.params.warmup_max_lr",
            "scheduler.params.warmup_num_steps",
            "scheduler.params.total_num_steps",
            "fp16.enabled",
            "bf16.enabled",
        }
    ),
}
"""Keys with a written value that the Hugging Face Trainer compares with its argument; it raises if they differ."""

ACCELERATE_FIELDS = {
    "zero_optimization.stage": "zero_stage",
    "zero_optimization.offload_optimizer.device": "offload_optimizer_device",
    "zero_optimization.offload_param.device": "offload_param_device",
    "zero_optimization.stage3_gather_16bit_weights_on_model_save": "zero3_save_16bit_model",
}
"""Keys of the config that Accelerate builds from its block, each with the field of the block that sets it, if that has another name."""
