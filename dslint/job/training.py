"""The training arguments that dslint reads, by the names of the Trainer and of the frameworks built on it."""

from __future__ import annotations

ARGUMENTS = frozenset(
    """
    per_device_train_batch_size gradient_accumulation_steps max_grad_norm learning_rate weight_decay adam_beta1 adam_beta2 adam_epsilon
    warmup_steps warmup_ratio fp16 bf16 fp16_full_eval bf16_full_eval max_steps num_train_epochs auto_find_batch_size save_only_model
    load_best_model_at_end optim lr_scheduler_type do_train do_eval fsdp fsdp_config deepspeed fp16_backend half_precision_backend
    fp16_opt_level model_name_or_path base_model output_dir predict_with_generate ds3_gather_for_generation
    gradient_checkpointing finetuning_type quantization_bit load_in_4bit load_in_8bit use_unsloth pure_bf16 pissa_init do_predict
    resume_from_checkpoint torch_dtype bfloat16 deepcompile zero_hpz_partition_size deepspeed_autotp_size save_strategy logging_strategy
    dataloader_drop_last
    """.split()
)
"""The arguments that dslint reads."""

MODEL_ARGUMENTS = ("model_name_or_path", "base_model", "model")
"""The arguments that name the model, in several frameworks."""

OWN_MODEL_ARGUMENTS = ("pretrain", "model_id", "input_model", "pretrained_model_name_or_path", "model_id_or_path")
"""What programs with flags of their own call the name of the model, too."""

OWN_LENGTHS = ("seq_length", "seq_len", "max_len", "max_seq_length", "max_token_length", "maxlen")
"""What they call the limit of tokens per sample, besides the names of frameworks."""

PROMPT_AND_ANSWER = (
    ("max_prompt_length", "max_completion_length"),
    ("prompt_max_len", "generate_max_len"),
    ("max_prompt_seq_len", "max_answer_seq_len"),
)
"""The two limits of methods that generate: a sample is a prompt with its answer. Those of TRL, of OpenRLHF, of DeepSpeed-Chat's step 3."""

WORKLOAD = frozenset(
    """
    model cutoff_len sequence_len max_seq_length max_length model_max_length block_size max_source_length disable_gradient_checkpointing
    lora_rank lora_r lora_dim lora_module_name only_optimize_lora lora_target target_modules lora_target_modules lora_enable use_peft
    use_lora adapter train_type tuner_type
    sft_type enable_liger_kernel use_liger_kernel use_liger liger_fused_linear_cross_entropy flash_attn attn_impl attn_implementation
    use_flash_attn use_flash_attention_2
    sample_packing sample_packing_eff_est packing neat_packing eval_strategy evaluation_strategy per_device_eval_batch_size
    eval_batch_size val_set_size
    lora_dropout additional_target lora_modules_to_save modules_to_save quant_bits quant_method bnb_4bit_quant_storage
    freeze_vision_tower freeze_vit stage rl rlhf_type
    use_vllm vllm_mode vllm_device vllm_gpu_memory_utilization vllm_enable_sleep_mode sleep_level sequence_parallel_size
    context_parallel_size
    sequence_parallel_degree use_peft_lora use_4bit_quantization use_8bit_quantization teacher_model teacher_model_name_or_path
    task_type beta precompute_ref_log_probs pref_loss ref_model ref_model_quantization_bit
    adapter_name_or_path lora_model_dir adapters max_seq_len only_optimize_lora
    num_generations generation_batch_size steps_per_generation quantization_method dtype resume_only_model
    cut_cross_entropy chunked_cross_entropy image_max_pixels max_pixels max_target_length
    """.split()
).union(OWN_MODEL_ARGUMENTS, OWN_LENGTHS, *PROMPT_AND_ANSWER)
"""The arguments that only the estimate and rules about a framework read."""

RESUMED_ADAPTERS = ("adapter_name_or_path", "lora_model_dir", "adapters")
"""The arguments that name a trained adapter, which keeps its own target modules."""
