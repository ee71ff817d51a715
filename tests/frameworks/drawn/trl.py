"""Jobs of TRL: its command with a YAML file, and programs with its trainers."""

from __future__ import annotations

from typing import Any

from tests.frameworks.drawn.accelerate_file import accelerate_block, accelerate_file
from tests.frameworks.drawn.configs import ABSENT, Draw, config, pick, text, written
from tests.frameworks.drawn.huggingface import as_flags, as_yaml, job, launch, sizes
from tests.frameworks.drawn.yaml_files import shared_arguments
from tests.frameworks.jobs import Job

RELEASES = {"trl": "1.16.0", "transformers": "5.23.0", "accelerate": "1.15.0", "deepspeed": "0.19.8", "torch": "2.13.0"}

PROGRAM = """from datasets import load_dataset
from trl import {names}

{arguments}
data = load_dataset("json", data_files="data/messages.jsonl", split="train")
trainer = SFTTrainer(model="model", args=args, train_dataset=data, eval_dataset=data)
trainer.train()
"""


def trl(rng: Draw, name: str) -> Job:
    """A job of TRL."""
    return pick(rng, (_by_command, 4), (_by_program, 1))(rng, name)


def _by_command(rng: Draw, name: str) -> Job:
    """A job of the command `trl`."""
    micro, steps, ranks = sizes(rng)
    task = pick(rng, ("sft", 5), ("dpo", 2))
    values, files = _arguments(rng, micro, steps), {}
    way = pick(rng, ("file", 5), ("preset", 6), ("own", 3))
    data = {"sft": "[{path: json, data_files: data/messages.jsonl}]", "dpo": "[{path: json, data_files: data/pairs.jsonl}]"}
    values = {"model_name_or_path": "model", "datasets": data[task], **values}
    values |= written({"packing": pick(rng, (ABSENT, 6), (True, 1)) if task == "sft" else ABSENT})
    if way != "file":
        del values["deepspeed"]
    if way == "preset":
        values["accelerate_config"] = pick(rng, ("zero1", 2), ("zero2", 5), ("zero3", 5), ("zero4", 0.2), ("multi_gpu", 0.3))
    elif way == "own":
        values["accelerate_config"] = "accelerate.yaml"
        files["accelerate.yaml"] = accelerate_file(rng, ranks, accelerate_block(rng, steps, own_file=rng.random() < 0.3))
    else:
        values |= pick(rng, ({"accelerate_config": "multi_gpu"}, 2), ({}, 1))
    values |= pick(rng, ({"num_processes": ranks}, 8), ({}, 2 if way == "own" else 0.5))
    values |= pick(rng, ({}, 12), ({"mixed_precision": "bf16"}, 1), ({"zero_stage": 3}, 0.5), ({"gradient_clipping": 0.5}, 0.5))
    values |= pick(rng, ({}, 12), ({"env": "{WANDB_MODE: offline}"}, 1), ({"env": "{ACCELERATE_MIXED_PRECISION: fp16}"}, 0.5))
    values |= pick(rng, ({}, 20), ({"test_split_size": 0.2}, 1))
    files |= {"ds.json": text(rng, config(rng, values, ranks)), "train.yaml": as_yaml(values, rng)}
    if pick(rng, (False, 50.0), (True, 0.99)):
        files.pop("ds.json")
    flags = pick(
        rng,
        ([], 12),
        (["--gradient_accumulation_steps", "2"], 1),
        (["--num_processes", "2"], 1),
        (["--learning_rate", "3e-4"], 1),
        (["--zero_stage", "1"], 0.5),
        (["--gradient_acumulation_steps", "2"], 0.3),
    )
    if rng.random() < 0.2:  # all of it as flags
        plain = {key: value for key, value in values.items() if key not in ("env", "datasets")}
        files["train.yaml"] = as_yaml({"datasets": values["datasets"]}, rng)
        flags = as_flags(rng, plain) + flags
    return job(name, "trl", files, ["trl", task, "--config", "train.yaml", *flags], {}, ranks, RELEASES, rng)


def _by_program(rng: Draw, name: str) -> Job:
    """A job of a program with `SFTTrainer`."""
    micro, steps, ranks = sizes(rng)
    values, way = _arguments(rng, micro, steps), pick(rng, ("held", 2), ("parsed", 2))
    words = ["train.py"]
    passed = "".join(f"    {key}={value!r},\n" for key, value in values.items() if key != "use_peft")
    arguments, names = f"args = SFTConfig(\n{passed})", "SFTConfig, SFTTrainer"
    files = {"ds.json": text(rng, config(rng, values, ranks))}
    if way == "parsed":
        values.pop("use_peft", None)
        arguments, names = "(args,) = TrlParser((SFTConfig,)).parse_args_and_config()", "SFTConfig, SFTTrainer, TrlParser"
        files["train.yaml"] = as_yaml(values, rng)
        words += ["--config", "train.yaml"]
    files["train.py"] = PROGRAM.format(names=names, arguments=arguments)
    return job(name, "trl", files, launch(rng, ranks, words), {}, ranks, RELEASES, rng)


def _arguments(rng: Draw, micro: int, steps: int) -> dict[str, Any]:
    """Arguments of the Trainer, and some of TRL."""
    values = shared_arguments(rng, micro, steps)
    own = {"max_length": pick(rng, (ABSENT, 3), (64, 3)), "use_peft": pick(rng, (ABSENT, 6), (True, 1))}
    return values | written(own)
