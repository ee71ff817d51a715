"""What people call keys of DeepSpeed by other names. Read only where there is an unknown key."""

from __future__ import annotations

NICKNAMES = {
    "lr_scheduler": "scheduler",
    "optim": "optimizer",
    "checkpointing": "activation_checkpointing",
    "gradient_checkpointing": "activation_checkpointing",
    "zero": "zero_optimization",
    "zero_stage": "zero_optimization.stage",
    "zero_config": "zero_optimization",
    "mixed_precision": "bf16",
    "bfloat": "bf16",
    "half": "fp16",
    "batch_size": "train_batch_size",
    "micro_batch_size": "train_micro_batch_size_per_gpu",
    "per_device_train_batch_size": "train_micro_batch_size_per_gpu",
    "accumulation_steps": "gradient_accumulation_steps",
    "grad_accumulation_steps": "gradient_accumulation_steps",
    "gradient_accumulation": "gradient_accumulation_steps",
    "max_grad_norm": "gradient_clipping",
    "grad_clip": "gradient_clipping",
    "clip_grad": "gradient_clipping",
    "gradient_clip_val": "gradient_clipping",
    "offload": "zero_optimization.offload_optimizer",
    "load_universal_checkpoint": "checkpoint.load_universal",
    "fp32_allreduce": "communication_data_type",
    "thread_count": "aio.intra_op_parallelism",
    "tensor_parallel.tp_size": "tensor_parallel.autotp_size",
    "tensor_parallel.tp_degree": "tensor_parallel.autotp_size",
    "tensor_parallel.size": "tensor_parallel.autotp_size",
    "tensor_parallel.degree": "tensor_parallel.autotp_size",
    "tensor_parallel.world_size": "tensor_parallel.autotp_size",
    "tensor_parallel.tensor_parallel_size": "tensor_parallel.autotp_size",
    "tensor_parallel.tensor_parallel_degree": "tensor_parallel.autotp_size",
}
"""Names from other tools, similar in meaning rather than spelling: at the top level, or in a section (`section.name`)."""
