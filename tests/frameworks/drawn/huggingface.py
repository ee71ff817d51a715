"""Jobs of the Trainer and of Accelerate."""

from __future__ import annotations

import json
from typing import Any

from tests.frameworks.drawn.configs import ABSENT, Draw, config, pick, text, written
from tests.frameworks.jobs import Job

TRAINER = """from transformers import AutoModelForCausalLM, HfArgumentParser, Trainer, TrainingArguments

{arguments}
{model}
data = [{{"input_ids": [1, 2, 3], "labels": [1, 2, 3]}}] * 64
trainer = Trainer(model=model, args=args, train_dataset=data, eval_dataset=data)
trainer.train()
"""

LOOP = """import torch
from accelerate import Accelerator
{imports}from transformers import AutoModelForCausalLM

{accelerator}
model = AutoModelForCausalLM.from_pretrained("model")
{optimizer}
loader = torch.utils.data.DataLoader(torch.zeros(64, 8, dtype=torch.long), batch_size={micro})
{prepare}
"""

LOAD = 'model = AutoModelForCausalLM.from_pretrained("model")'
PARSE = {
    "flags": "(args,) = HfArgumentParser(TrainingArguments).parse_args_into_dataclasses()",
    "yaml": '(args,) = HfArgumentParser(TrainingArguments).parse_yaml_file("args.yaml")',
    "json": '(args,) = HfArgumentParser(TrainingArguments).parse_json_file("args.json")',
}
RELEASES = {"transformers": "5.23.0", "accelerate": "1.15.0", "deepspeed": "0.19.8", "torch": "2.13.0"}


def sizes(rng: Draw) -> tuple[int, int, int]:
    """Micro batch size, accumulation steps, ranks."""
    return rng.choice([1, 2, 4]), rng.choice([1, 2, 4, 8]), rng.choice([1, 2, 4, 8])


def arguments(rng: Draw, micro: int, steps: int) -> dict[str, Any]:
    """Arguments of the Trainer."""
    found = {
        "output_dir": "out",
        "per_device_train_batch_size": pick(rng, (micro, 12), (ABSENT, 1)),
        "gradient_accumulation_steps": pick(rng, (steps, 12), (ABSENT, 1)),
        "learning_rate": pick(rng, (1e-4, 9), (ABSENT, 2), (5e-5, 1)),
        "max_grad_norm": pick(rng, (ABSENT, 12), (1.0, 2), (0.3, 1), (0, 0.3)),
        "bf16": pick(rng, (True, 7), (ABSENT, 4), (False, 1)),
        "fp16": pick(rng, (ABSENT, 12), (True, 2), (False, 1)),
        "weight_decay": pick(rng, (ABSENT, 8), (0.0, 2), (0.01, 1), (0.1, 1)),
        "adam_beta2": pick(rng, (ABSENT, 12), (0.95, 2)),
        "adam_epsilon": pick(rng, (ABSENT, 19), (1e-8, 1), (1e-6, 0.5)),
        "lr_scheduler_type": pick(rng, (ABSENT, 8), ("cosine", 5), ("linear", 2), ("constant_with_warmup", 1), ("cosin", 0.1)),
        "warmup_steps": pick(rng, (ABSENT, 8), (10, 3), (0, 1), (1, 1), (0.1, 0.5)),
        "max_steps": pick(rng, (ABSENT, 8), (20, 4)),
        "num_train_epochs": pick(rng, (ABSENT, 6), (3, 4), (1.0, 2)),
        "save_strategy": pick(rng, (ABSENT, 8), ("steps", 3), ("epoch", 2), ("no", 1)),
        "eval_strategy": pick(rng, (ABSENT, 10), ("steps", 2), ("epoch", 1)),
        "save_steps": pick(rng, (ABSENT, 8), (500, 3)),
        "logging_steps": pick(rng, (ABSENT, 5), (10, 5), (1, 3)),
        "gradient_checkpointing": pick(rng, (ABSENT, 6), (True, 4)),
        "load_best_model_at_end": pick(rng, (ABSENT, 30), (True, 1)),
        "optim": pick(rng, (ABSENT, 15), ("adamw_torch", 3), ("adafactor", 0.3), ("adamw_torch_fused", 0.7), ("adamw", 0.15)),
        "auto_find_batch_size": pick(rng, (ABSENT, 60), (True, 1)),
        "torch_compile": pick(rng, (ABSENT, 60), (True, 0.5)),
        "fsdp": pick(rng, (ABSENT, 100), ("full_shard", 1)),
        "seed": pick(rng, (ABSENT, 5), (42, 2)),
        "report_to": pick(rng, ("none", 9), (ABSENT, 1)),
        "remove_unused_columns": pick(rng, (ABSENT, 9), (False, 1)),
        "ddp_find_unused_parameters": pick(rng, (ABSENT, 19), (False, 1)),
        "tf32": pick(rng, (ABSENT, 30), (True, 1)),
        "deepspeed": "ds.json",
    }
    found = written(found)
    if pick(rng, (False, 20.0), (True, 0.99)):
        wrong = {"gradient_acumulation_steps": 4, "evaluation_strategy": "steps", "warmup_ratio": 0.03, "per_gpu_train_batch_size": 2}
        wrong |= {"no_cuda": True, "group_by_length": True, "overwrite_output_dir": True, "logging_dir": "logs", "learning_rat": 0.1}
        name = rng.choice(list(wrong))
        found[name] = wrong[name]
    return found


def as_yaml(values: dict[str, Any], rng: Draw) -> str:
    """Values as YAML, floats as people write them."""
    lines = []
    for key, value in values.items():
        if isinstance(value, float) and value < 0.001 and value:
            shown = pick(rng, (f"{value:.9f}".rstrip("0"), 6), (f"{value:.1e}", 4), (f"{value:.0e}", 0.5))
        else:
            shown = value if isinstance(value, str) else json.dumps(value)
        if value == "no":
            shown = pick(rng, ('"no"', 9), ("no", 0.9))
        lines.append(f"{key}: {shown}\n")
    return "".join(lines)


def as_flags(rng: Draw, values: dict[str, Any]) -> list[str]:
    """Values as flags. A switch needs no value, but for one that may also be None."""
    bare = {
        key
        for key, value in values.items()
        if value is True and rng.random() < 0.6 and (key != "tf32" or pick(rng, (False, 9), (True, 0.9)))
    }
    return [word for key, value in values.items() for word in ([f"--{key}"] if key in bare else [f"--{key}", str(value)])]


def launch(rng: Draw, ranks: int, script: list[str]) -> list[str]:
    """A command that starts ranks."""
    nodes = 2 if ranks == 8 and rng.random() < 0.3 else 1
    torchrun = ["torchrun", *(["--nnodes", "2", "--node_rank", "0"] if nodes == 2 else []), "--nproc_per_node", str(ranks // nodes)]
    return pick(
        rng,
        ([*torchrun, *script], 5),
        (["deepspeed", "--num_gpus", str(ranks), *script], 3),
        (["accelerate", "launch", "--num_processes", str(ranks), *pick(rng, (["--use_deepspeed"], 1), ([], 1)), *script], 1),
    )


def job(
    name: str, framework: str, files: dict[str, str], command: list[str], env: dict[str, str], ranks: int, release: dict[str, str]
) -> Job:
    """A job with the script that starts it and the file that pins releases."""
    exports = "".join(f"export {key}={value}\n" for key, value in env.items())
    files |= {"run.sh": f"#!/bin/bash\n{exports}{' '.join(command)}\n"}
    files |= {"requirements.txt": "".join(f"{package}=={number}\n" for package, number in release.items())}
    return Job(name, framework, release, files, command, env, ranks)


def transformers(rng: Draw, name: str) -> Job:
    """A job of the Trainer."""
    micro, steps, ranks = sizes(rng)
    given, way = arguments(rng, micro, steps), pick(rng, ("yaml", 4), ("flags", 4), ("json", 1), ("python", 2))
    files = {"ds.json": text(rng, config(rng, given, ranks))}
    if pick(rng, (False, 50.0), (True, 0.99)):
        files.pop("ds.json")
    words = ["train.py"]
    if way == "flags":
        words += as_flags(rng, given)
    elif way == "yaml":
        files["args.yaml"] = as_yaml(given, rng)
    elif way == "json":
        files["args.json"] = json.dumps(given, indent=1)
    passed = "".join(f"    {key}={value!r},\n" for key, value in given.items())
    parts = [PARSE.get(way, f"args = TrainingArguments(\n{passed})"), LOAD]
    program = TRAINER.format(arguments=parts[0], model=parts[1])
    command = launch(rng, ranks, words)
    if command[0] == "accelerate" or pick(rng, (False, 8.3), (True, 1)):
        block = accelerate_block(rng, steps, own_file=False)
        files["accelerate.yaml"] = accelerate_file(rng, ranks, block)
        command = ["accelerate", "launch", "--config_file", "accelerate.yaml", *words]
        if rng.random() < 0.7:  # the block instead of the config
            for one in ("deepspeed: ds.json\n", '"deepspeed": "ds.json",', "    deepspeed='ds.json',\n"):
                program = program.replace(one, "")
            files = {
                key: value.replace("deepspeed: ds.json\n", "").replace(',\n "deepspeed": "ds.json"', "") for key, value in files.items()
            }
            command = [word for word in command if word not in ("--deepspeed", "ds.json")]
    return job(name, "transformers", {**files, "train.py": program}, command, {}, ranks, RELEASES)


def accelerate_block(rng: Draw, steps: int, *, own_file: bool) -> dict[str, Any]:
    """The block `deepspeed_config` of Accelerate's file."""
    if own_file:
        more = pick(rng, ({}, 8), ({"zero_stage": 3}, 0.5), ({"gradient_clipping": 1.0}, 0.3), ({"offload_optimizer_device": "none"}, 0.3))
        return {"deepspeed_config_file": "ds.json", "zero3_init_flag": rng.choice([True, False]), **more}
    stage = pick(rng, (1, 1), (2, 5), (3, 5), ("'3'", 0.2), (ABSENT, 0.4))
    return written(
        {
            "gradient_accumulation_steps": pick(rng, (steps, 7), (1, 4), (ABSENT, 2), ("auto", 0.3)),
            "gradient_clipping": pick(rng, (1.0, 6), (ABSENT, 3), (0.5, 1), ("auto", 0.3)),
            "offload_optimizer_device": pick(rng, ("none", 6), ("cpu", 2), (ABSENT, 2), ("nvme", 0.2)),
            "offload_param_device": pick(rng, ("none", 6), ("cpu", 1), (ABSENT, 2)),
            "zero3_init_flag": pick(rng, (False, 4), (True, 4), (ABSENT, 1)),
            "zero3_save_16bit_model": pick(rng, (ABSENT, 4), (True, 4), (False, 1)),
            "deepspeed_multinode_launcher": pick(rng, (ABSENT, 4), ("standard", 2)),
            "zero_hpz_partition_size": pick(rng, (ABSENT, 60), (2, 0.5)),
            "zero_stage": stage,
        }
    )


def accelerate_file(rng: Draw, ranks: int, block: dict[str, Any]) -> str:
    """Accelerate's file."""
    top = written(
        {
            "compute_environment": "LOCAL_MACHINE",
            "debug": pick(rng, (False, 3), (ABSENT, 1)),
            "distributed_type": pick(rng, ("DEEPSPEED", 40), ("MULTI_GPU", 0.5)),
            "downcast_bf16": pick(rng, ("'no'", 3), (ABSENT, 1)),
            "machine_rank": 0,
            "main_training_function": pick(rng, ("main", 3), (ABSENT, 1)),
            "mixed_precision": pick(rng, (ABSENT, 9), ("bf16", 0.9))
            if "deepspeed_config_file" in block
            else pick(rng, ("bf16", 6), ("'no'", 3), ("fp16", 2), (ABSENT, 2), ("no", 1), ("bfloat16", 0.15)),
            "num_machines": 1,
            "num_processes": pick(rng, (ranks, 30), (ABSENT, 0.5)),
            "rdzv_backend": pick(rng, ("static", 3), (ABSENT, 1)),
            "same_network": pick(rng, ("true", 3), (ABSENT, 1)),
            "use_cpu": pick(rng, (False, 9), (ABSENT, 3), (True, 0.2)),
            "use_deepspeed": pick(rng, (ABSENT, 60), (True, 0.5)),
        }
    )  # fmt: skip
    lines = [f"{key}: {value if isinstance(value, str) else json.dumps(value)}\n" for key, value in top.items()]
    inner = [f"  {key}: {value if isinstance(value, str) else json.dumps(value)}\n" for key, value in block.items()]
    return "".join([*lines, "deepspeed_config:\n", *inner])


def accelerate(rng: Draw, name: str) -> Job:
    """A job with a loop of its own under Accelerate."""
    micro, steps, ranks = sizes(rng)
    way = pick(rng, ("file", 5), ("block", 6), ("flags", 2), ("plugin", 3))
    given = {"per_device_train_batch_size": micro, "gradient_accumulation_steps": steps, "learning_rate": 1e-4, "weight_decay": 0.01}
    values = config(rng, given | {"warmup_steps": 10, "max_steps": 100, "bf16": True}, ranks)
    files, imports, made = {}, [], {}
    made["mixed_precision"] = pick(rng, (ABSENT, 8), ('"bf16"', 2), ('"fp16"', 0.7), ('"no"', 0.4))
    made["gradient_accumulation_steps"] = pick(rng, (ABSENT, 6), (steps, 5), (steps + 1, 0.5))
    command, env = launch(rng, ranks, ["train.py"]), {}
    if way in ("file", "block"):
        files["accelerate.yaml"] = accelerate_file(rng, ranks, accelerate_block(rng, steps, own_file=way == "file"))
        flags = pick(
            rng, ([], 9), (["--num_processes", str(2 * ranks)], 1), (["--mixed_precision", "bf16"], 1), (["--zero_stage", "3"], 0.5)
        )
        command = ["accelerate", "launch", "--config_file", "accelerate.yaml", *flags, "train.py"]
    elif way == "flags":
        flags = ["--use_deepspeed", *pick(rng, (["--num_processes", str(ranks)], 9), ([], 0.5))]
        flags += pick(rng, ([], 4), (["--zero_stage", "3"], 3), (["--deepspeed_config_file", "ds.json"], 4))
        flags += pick(
            rng, ([], 4), (["--mixed_precision", "bf16"], 3), (["--gradient_clipping", "1.0"], 2), (["--gradient_clippin", "1.0"], 0.2)
        )
        command = ["accelerate", "launch", *flags, "train.py"]
    else:
        imports.append("DeepSpeedPlugin")
        stage, clip = pick(rng, (ABSENT, 2), (2, 4), (3, 3)), pick(rng, (ABSENT, 5), (1.0, 2), (0.5, 1))
        own = {"zero_stage": stage, "gradient_clipping": clip, "gradient_accumulation_steps": pick(rng, (ABSENT, 5), (steps, 3))}
        own |= {"offload_optimizer_device": pick(rng, (ABSENT, 5), ('"cpu"', 2)), "zero3_init_flag": pick(rng, (ABSENT, 5), (False, 2))}
        plugin = pick(rng, ({"hf_ds_config": '"ds.json"'}, 5), (written(own), 6))
        made["deepspeed_plugin"] = f"DeepSpeedPlugin({', '.join(f'{key}={value}' for key, value in plugin.items())})"
        env = pick(rng, ({}, 9), ({"ACCELERATE_MIXED_PRECISION": "bf16"}, 1), ({"ACCELERATE_GRADIENT_ACCUMULATION_STEPS": "4"}, 1))
    if pick(rng, (True, 30), (False, 0.9)):
        files["ds.json"] = text(rng, values)
    stands_in = ("optimizer" in values) == pick(rng, (True, 12), (False, 0.9))
    schedule = ("scheduler" in values) == pick(rng, (True, 12), (False, 0.9))
    more = pick(rng, ("", 3), (", weight_decay=0.01", 1))
    optimizer = f"optimizer = {'DummyOptim' if stands_in else 'torch.optim.AdamW'}(model.parameters(), lr=1e-4{more})"
    objects = ["model", "optimizer", "loader"]
    if schedule:
        counts = pick(rng, ("", 1), (", total_num_steps=100, warmup_num_steps=10", 4), (", warmup_num_steps=10", 1))
        optimizer += f"\nscheduler = DummyScheduler(optimizer{counts})"
        objects.append("scheduler")
    dummies = [kind for kind in ("DummyOptim", "DummyScheduler") if kind in optimizer]
    if pick(rng, (False, 25.0), (True, 0.99)):
        objects.remove("loader")
    lines = "".join(
        [f"from accelerate import {one}\n" for one in imports] + [f"from accelerate.utils import {', '.join(dummies)}\n"] * bool(dummies)
    )
    parts = ", ".join(objects)
    program = LOOP.format(
        imports=lines,
        accelerator=f"accelerator = Accelerator({', '.join(f'{key}={value}' for key, value in written(made).items())})",
        optimizer=optimizer,
        micro=micro,
        prepare=f"{parts} = accelerator.prepare({parts})",
    )
    return job(name, "accelerate", {**files, "train.py": program}, command, env, ranks, RELEASES)
