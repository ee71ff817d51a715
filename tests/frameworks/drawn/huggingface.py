"""Jobs of the Trainer, and the parts of a job that other frameworks share."""

from __future__ import annotations

import json
import shlex
from typing import Any

from tests.frameworks.drawn.accelerate_file import accelerate_block, accelerate_file
from tests.frameworks.drawn.configs import ABSENT, Draw, config, pick, text, written
from tests.frameworks.jobs import Job

TRAINER = """{imports}
{arguments}
model = AutoModelForCausalLM.from_pretrained("model")
data = [{{"input_ids": [1, 2, 3], "labels": [1, 2, 3]}}] * 64
{trainer}
trainer.train()
"""

OF_MODEL = """@dataclasses.dataclass
class ModelArguments:
    model_name: str = "model"
    lora_rank: int = 8

"""

PARSE = {
    "flags": "(args,) = HfArgumentParser({kind}).parse_args_into_dataclasses()",
    "own": OF_MODEL + "model_args, args = HfArgumentParser((ModelArguments, {kind})).parse_args_into_dataclasses()",
    "yaml": '(args,) = HfArgumentParser({kind}).parse_yaml_file("args.yaml")',
    "json": '(args,) = HfArgumentParser({kind}).parse_json_file("args.json")',
    "named": "(args,) = HfArgumentParser({kind}).parse_json_file(sys.argv[1])",
    "dict": '(args,) = HfArgumentParser({kind}).parse_dict(yaml.safe_load(open("args.yaml")))',
}
"""How programs read their arguments, from flags or from a file."""

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
        "adam_beta1": pick(rng, (ABSENT, 20), (0.8, 1)),
        "adam_beta2": pick(rng, (ABSENT, 12), (0.95, 2)),
        "adam_epsilon": pick(rng, (ABSENT, 19), (1e-8, 1), (1e-6, 0.5)),
        "lr_scheduler_type": pick(
            rng, (ABSENT, 8), ("cosine", 5), ("linear", 2), ("constant_with_warmup", 1), ("constant", 1), ("cosin", 0.1)
        ),
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
        "bf16_full_eval": pick(rng, (ABSENT, 30), (True, 1)),
        "use_cpu": pick(rng, (ABSENT, 40), (True, 0.4)),
        "dataloader_drop_last": pick(rng, (ABSENT, 20), (True, 1)),
        "neftune_noise_alpha": pick(rng, (ABSENT, 30), (5, 1)),
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
            shown = pick(rng, (f"{value:.9f}".rstrip("0"), 6), (f"{value:.1e}", 4), (f"{value:.0e}", 0.9))
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
    name: str,
    framework: str,
    files: dict[str, str],
    command: list[str],
    env: dict[str, str],
    ranks: int,
    release: dict[str, str],
    rng: Draw | None = None,
) -> Job:
    """A job with the script that starts it and the file that pins releases. `rng` draws how the script is written."""
    files |= {"run.sh": f"#!/bin/bash\n{script(command, env) if rng is None else drawn_script(rng, command, env)}\n"}
    files |= {"requirements.txt": "".join(f"{package}=={number}\n" for package, number in release.items())}
    return Job(name, framework, release, files, command, env, ranks)


def script(command: list[str], env: dict[str, str]) -> str:
    """The lines that export variables and run a command."""
    return "".join(f"export {key}={value}\n" for key, value in env.items()) + shlex.join(command)


def drawn_script(rng: Draw, command: list[str], env: dict[str, str]) -> str:
    """The same as one of the scripts that people write for it."""
    words, before = [shlex.quote(word) for word in command], ""
    flag = next((flag for flag in ("--nproc_per_node", "--num_gpus", "--num_processes") if flag in words), None)
    if flag is not None and rng.random() < 0.3:
        at = words.index(flag) + 1
        before += pick(rng, (f"GPUS={words[at]}\n", 2), (f"GPUS=${{GPUS:-{words[at]}}}\n", 1), (f'NODES=1\nGPUS="{words[at]}"\n', 1))
        words[at] = pick(rng, ("$GPUS", 2), ('"$GPUS"', 1), ("${GPUS}", 1))
    if words[0] == "torchrun":
        words[:1] = pick(rng, (["torchrun"], 9), (["python", "-m", "torch.distributed.run"], 1))
    broken = rng.random() < 0.3
    line = "".join(f" \\\n    {word}" if broken and word.startswith("--") else f" {word}" for word in words)[1:]
    if env and rng.random() < 0.3:
        return before + " ".join(f"{key}={value}" for key, value in env.items()) + " " + line
    return "".join(f"export {key}={value}\n" for key, value in env.items()) + before + line


def transformers(rng: Draw, name: str) -> Job:
    """A job of the Trainer."""
    micro, steps, ranks = sizes(rng)
    given = arguments(rng, micro, steps)
    way = pick(rng, ("yaml", 4), ("flags", 4), ("own", 1), ("json", 1), ("named", 1), ("dict", 1), ("python", 3))
    files = {"ds.json": text(rng, config(rng, given, ranks))}
    if pick(rng, (False, 50.0), (True, 0.99)):
        files.pop("ds.json")
    words = ["train.py"]
    if pick(rng, (False, 9), (True, 1)):  # the block of Accelerate's file instead of the config
        given.pop("deepspeed")
    with_file = "deepspeed" not in given or pick(rng, (False, 12), (True, 0.9))
    if way in ("flags", "own"):
        words += as_flags(rng, given) + pick(rng, ([], 2), (["--lora_rank", "16"] if way == "own" else [], 1))
    elif way in ("yaml", "dict"):
        files["args.yaml"] = as_yaml(given, rng)
    elif way in ("json", "named"):
        files["args.json"] = json.dumps(given, indent=1)
        words += ["args.json"] if way == "named" else []
    files["train.py"] = _program(rng, way, given)
    command = launch(rng, ranks, words)
    if with_file:
        files["accelerate.yaml"] = accelerate_file(rng, ranks, accelerate_block(rng, steps, own_file=False))
        command = ["accelerate", "launch", "--config_file", "accelerate.yaml", *words]
    env = pick(rng, ({}, 20), ({"ACCELERATE_MIXED_PRECISION": "fp16"}, 1), ({"ACCELERATE_GRADIENT_ACCUMULATION_STEPS": "4"}, 1))
    env |= pick(rng, ({}, 20), ({"ACCELERATE_DEEPSPEED_ZERO_STAGE": "3"}, 1), ({"WANDB_MODE": "offline", "OMP_NUM_THREADS": "1"}, 1))
    return job(name, "transformers", files, command, env, ranks, RELEASES, rng)


def _program(rng: Draw, way: str, given: dict[str, Any]) -> str:
    """A program that reads its arguments in one of the ways of `PARSE`, or holds them."""
    kind = pick(rng, ("TrainingArguments", 9), ("Seq2SeqTrainingArguments", 1))
    modules = [name for name in ("dataclasses", "sys", "yaml") if f"{name}." in PARSE.get(way, "")]
    if way == "python":
        ways = (("named", 3), ("read", 1), ("rest", 1))
        how = pick(rng, *ways) if "deepspeed" in given else "named"
        shown = {key: repr(value) for key, value in given.items()}
        lines = []
        if how == "read":
            modules.append("json")
            lines.append('with open("ds.json") as stream:\n    settings = json.load(stream)')
            shown["deepspeed"] = "settings"
        elif how == "rest":
            lines.append(f"common = {dict(list(given.items())[1:4])!r}")
            shown = {key: value for key, value in shown.items() if key not in list(given)[1:4]} | {"**common": ""}
        passed = "".join(f"    {key}={value},\n" if value else f"    {key},\n" for key, value in shown.items())
        parsed = "\n".join([*lines, f"args = {kind}(\n{passed})"])
    else:
        parsed = PARSE[way].format(kind=kind)
    imports = [f"import {name}" for name in sorted(modules)]
    imports.append(f"from transformers import AutoModelForCausalLM, HfArgumentParser, Trainer, {kind}")
    trainer = pick(
        rng,
        ("trainer = Trainer(model=model, args=args, train_dataset=data, eval_dataset=data)", 9),
        (_OWN_OPTIMIZER, 1),
    )
    if trainer is _OWN_OPTIMIZER:
        imports.insert(len(modules), "import torch")
    return TRAINER.format(imports="\n".join(imports) + "\n", arguments=parsed, trainer=trainer)


_OWN_OPTIMIZER = """optimizer = torch.optim.AdamW(model.parameters(), lr=2e-4)
trainer = Trainer(model=model, args=args, train_dataset=data, eval_dataset=data, optimizers=(optimizer, None))"""
