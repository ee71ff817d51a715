"""Jobs of the frameworks that a YAML file drives: LLaMA-Factory, axolotl, ms-swift."""

from __future__ import annotations

from typing import Any

from tests.frameworks.drawn.configs import ABSENT, Draw, config, pick, text, written
from tests.frameworks.drawn.huggingface import arguments, as_yaml, job, sizes
from tests.frameworks.jobs import Job

LLAMA_FACTORY = {"llamafactory": "0.9.5", "transformers": "5.6.0", "accelerate": "1.11.0", "deepspeed": "0.19.8", "torch": "2.13.0"}
AXOLOTL = {"axolotl": "0.19.0", "transformers": "5.16.1", "accelerate": "1.13.0", "deepspeed": "0.19.8", "torch": "2.13.0"}
MS_SWIFT = {"ms-swift": "4.6.0", "transformers": "5.19.0", "accelerate": "1.15.0", "deepspeed": "0.19.8", "torch": "2.13.0"}


def shared_arguments(rng: Draw, micro: int, steps: int) -> dict[str, Any]:
    """Arguments of the Trainer that these frameworks share, fewer than a program of one's own has."""
    found = arguments(rng, micro, steps)
    rare = {"tf32", "fsdp", "torch_compile", "auto_find_batch_size", "remove_unused_columns", "seed", "ddp_find_unused_parameters"}
    dropped = {name for name in rare if rng.random() < 0.6} | {
        name for name in ("eval_strategy", "load_best_model_at_end") if rng.random() < 0.8
    }
    return {key: value for key, value in found.items() if key not in dropped}


def llama_factory(rng: Draw, name: str) -> Job:
    """A job of LLaMA-Factory."""
    micro, steps, ranks = sizes(rng)
    kind = pick(rng, ("full", 4), ("lora", 6), ("freeze", 0.5))
    values = {
        "model_name_or_path": "model",
        "stage": "sft",
        "do_train": True,
        "finetuning_type": kind,
        "dataset_dir": "data",
        "dataset": "tiny",
        "template": "default",
        "cutoff_len": 64,
        **shared_arguments(rng, micro, steps),
    }
    own = {
        "lora_target": pick(rng, ("all", 5), (ABSENT, 1)) if kind == "lora" else ABSENT,
        "flash_attn": pick(rng, (ABSENT, 6), ("auto", 1), ("sdpa", 1)),
        "overwrite_cache": pick(rng, (ABSENT, 3), (True, 2)),
        "preprocessing_num_workers": pick(rng, (ABSENT, 3), (1, 2)),
        "pure_bf16": pick(rng, (ABSENT, 30), (True, 1)),
        "use_galore": pick(rng, (ABSENT, 40), (True, 1)),
        "use_apollo": pick(rng, (ABSENT, 40), (True, 1)),
        "use_badam": pick(rng, (ABSENT, 40), (True, 1)),
        "use_muon": pick(rng, (ABSENT, 40), (True, 1)),
        "quantization_bit": pick(rng, (ABSENT, 20), (4, 1)),
        "predict_with_generate": pick(rng, (ABSENT, 30), (True, 1)),
        "packing": pick(rng, (ABSENT, 10), (True, 1)),
        "neat_packing": pick(rng, (ABSENT, 30), (True, 1)),
        "val_size": pick(rng, (ABSENT, 6), (0.1, 1)),
        "use_unsloth": pick(rng, (ABSENT, 40), (True, 1)),
        "low_cpu_mem_usage": pick(rng, (ABSENT, 20), (False, 1)),
        "enable_liger_kernel": pick(rng, (ABSENT, 20), (False, 1)),
    }
    values |= written(own)
    files = {"ds.json": text(rng, config(rng, values, ranks)), "train.yaml": as_yaml(values, rng)}
    if pick(rng, (False, 50.0), (True, 0.99)):
        files.pop("ds.json")
    env = {"FORCE_TORCHRUN": "1", "NPROC_PER_NODE": str(ranks)} | pick(rng, ({}, 9), ({"NNODES": "2", "NODE_RANK": "0"}, 1))
    return job(name, "llamafactory", files, ["llamafactory-cli", "train", "train.yaml"], env, ranks, LLAMA_FACTORY)


def axolotl(rng: Draw, name: str) -> Job:
    """A job of axolotl."""
    micro, steps, ranks = sizes(rng)
    values = {
        "base_model": "model",
        "datasets": "[{path: data/messages.jsonl, ds_type: json, type: chat_template, field_messages: messages}]",
        "val_set_size": pick(rng, (0, 9), (0.2, 1)),
        "output_dir": "out",
        "sequence_len": 64,
        "micro_batch_size": pick(rng, (micro, 12), (ABSENT, 1)),
        "gradient_accumulation_steps": pick(rng, (steps, 12), (ABSENT, 1)),
        "num_epochs": 1,
        "optimizer": pick(rng, ("adamw_torch", 8), ("adamw_torch_fused", 3), ("adamw_bnb_8bit", 0.5), ("muon", 0.3), (ABSENT, 1)),
        "learning_rate": pick(rng, (1e-4, 9), (2e-4, 3)),
        "lr_scheduler": pick(rng, ("cosine", 8), (ABSENT, 1), ("constant", 0.5)),
        "bf16": pick(rng, (True, 6), ("auto", 5), (ABSENT, 2), (False, 0.5), ("full", 0.3)),
        "fp16": pick(rng, (ABSENT, 9), (False, 2), (True, 0.7)),
        "tf32": pick(rng, (ABSENT, 3), (True, 1), (False, 2)),
        "warmup_steps": pick(rng, (ABSENT, 6), (10, 5), (1, 1), (0, 0.3)),
        "warmup_ratio": pick(rng, (ABSENT, 12), (0.1, 1)),
        "weight_decay": pick(rng, (ABSENT, 4), (0.0, 5), (0.01, 1)),
        "max_grad_norm": pick(rng, (ABSENT, 9), (1.0, 1), (0.3, 0.5)),
        "gradient_checkpointing": pick(rng, (ABSENT, 4), (True, 5)),
        "saves_per_epoch": pick(rng, (ABSENT, 4), (1, 4)),
        "save_steps": pick(rng, (ABSENT, 12), (10, 1)),
        "evals_per_epoch": pick(rng, (ABSENT, 12), (1, 1)),
        "eval_steps": pick(rng, (ABSENT, 20), (10, 1)),
        "save_strategy": pick(rng, (ABSENT, 20), ("epoch", 1), ("no", 0.5)),
        "logging_steps": pick(rng, (ABSENT, 3), (1, 5)),
        "sample_packing": pick(rng, (ABSENT, 6), (False, 3), (True, 1)),
        "torch_compile": pick(rng, (ABSENT, 20), (True, 0.7), (False, 1)),
        "deepcompile": pick(rng, (ABSENT, 30), (True, 1)),
        "adapter": pick(rng, (ABSENT, 5), ("lora", 4), ("qlora", 0.3)),
        "load_in_8bit": pick(rng, (ABSENT, 12), (False, 3)),
        "fsdp": pick(rng, (ABSENT, 30), ("[full_shard]", 0.5), ("null", 1)),
        "adam_beta2": pick(rng, (ABSENT, 12), (0.95, 2)),
        "batch_size": pick(rng, (ABSENT, 40), (micro * steps, 1)),
        "dataset_prepared_path": "prepared",
        "special_tokens": pick(rng, (ABSENT, 3), ('{pad_token: "<pad>"}', 1)),
        "deepspeed": pick(rng, ("ds.json", 20), ("missing.json", 0.4), ("deepspeed_configs/zero2.json", 0.4)),
    }
    if values["adapter"] in ("lora", "qlora"):
        values |= {"lora_r": 8, "lora_alpha": 16, "lora_target_linear": True}
    if values["adapter"] == "qlora":
        values["load_in_4bit"] = pick(rng, (True, 3), (ABSENT, 1))
    if pick(rng, (False, 25.0), (True, 0.99)):
        values |= rng.choice(
            [{"gradient_acumulation_steps": 4}, {"eval_batch_size": 2}, {"per_device_train_batch_size": 2}, {"relora": True}]
        )
    shared = {name: values.get(name, ABSENT) for name in ("learning_rate", "weight_decay", "adam_beta2", "max_grad_norm", "warmup_steps")}
    sizes_given = {name: 1 if value is ABSENT else value for name, value in (
        ("per_device_train_batch_size", values["micro_batch_size"]),
        ("gradient_accumulation_steps", values["gradient_accumulation_steps"]),
    )}  # fmt: skip
    given = written(shared) | sizes_given | {"bf16": values["bf16"] is not False}
    files = {"ds.json": text(rng, config(rng, given, ranks)), "train.yaml": as_yaml(written(values), rng)}
    flags = pick(rng, ([], 9), (["--micro-batch-size", "2"], 1))
    command = ["axolotl", "train", "train.yaml", *flags]
    return job(name, "axolotl", files, command, {}, ranks, AXOLOTL)


def ms_swift(rng: Draw, name: str) -> Job:
    """A job of ms-swift."""
    micro, steps, ranks = sizes(rng)
    values = shared_arguments(rng, micro, steps)
    values["deepspeed"] = pick(
        rng,
        ("ds.json", 6),
        ("zero2", 4),
        ("zero3", 4),
        ("zero0", 0.3),
        ("zero1", 0.5),
        ("zero2_offload", 1),
        ("zero3_offload", 1),
        ("zero4", 0.2),
    )
    values = {"model": "model", "model_type": "llama", "template": "llama3", "dataset": "data/messages.jsonl", "max_length": 512, **values}
    own = {
        "tuner_type": pick(rng, ("full", 4), ("lora", 6), (ABSENT, 1)),
        "torch_dtype": pick(rng, (ABSENT, 4), ("bfloat16", 5), ("float16", 1), ("float32", 1)),
        "zero_hpz_partition_size": pick(rng, (ABSENT, 25), (2, 1)),
        "deepspeed_autotp_size": pick(rng, (ABSENT, 40), (2, 1)),
        "padding_free": pick(rng, (ABSENT, 20), (True, 1)),
        "packing": pick(rng, (ABSENT, 20), (True, 1)),
        "lora_rank": pick(rng, (ABSENT, 3), (8, 2)),
        "split_dataset_ratio": pick(rng, (ABSENT, 3), (0, 2)),
        "attn_impl": pick(rng, (ABSENT, 12), ("sdpa", 1)),
        "quant_bits": pick(rng, (ABSENT, 40), (4, 1)),
        "save_total_limit": pick(rng, (ABSENT, 2), (2, 2)),
    }
    values |= written(own)
    files = {"ds.json": text(rng, config(rng, values, ranks)), "train.yaml": as_yaml(values, rng)}
    env = pick(rng, ({"NPROC_PER_NODE": str(ranks)}, 9), ({"NPROC_PER_NODE": str(ranks), "NNODES": "2", "NODE_RANK": "0"}, 1))
    return job(name, "ms-swift", files, ["swift", "sft", "train.yaml"], env, ranks, MS_SWIFT)
