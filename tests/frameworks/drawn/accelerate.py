"""Jobs of Accelerate with a loop of their own."""

from __future__ import annotations

from typing import Any

from tests.frameworks.drawn.accelerate_file import accelerate_block, accelerate_file
from tests.frameworks.drawn.configs import ABSENT, Draw, config, pick, text, written
from tests.frameworks.drawn.huggingface import RELEASES, job, launch, sizes
from tests.frameworks.jobs import Job

LOOP = """{imports}
{accelerator}
model = AutoModelForCausalLM.from_pretrained("model")
{optimizer}
loader = torch.utils.data.DataLoader(torch.zeros(64, 8, dtype=torch.long), batch_size={micro})
{prepare}
"""


def accelerate(rng: Draw, name: str) -> Job:
    """A job with a loop of its own under Accelerate."""
    micro, steps, ranks = sizes(rng)
    way = pick(rng, ("file", 5), ("block", 6), ("flags", 3), ("plugin", 4), ("variables", 2))
    given = {"per_device_train_batch_size": micro, "gradient_accumulation_steps": steps, "learning_rate": 1e-4, "weight_decay": 0.01}
    values = config(rng, given | {"warmup_steps": 10, "max_steps": 100, "bf16": True}, ranks)
    files, made = {}, {}
    imports = ["import torch", "from accelerate import Accelerator", "from transformers import AutoModelForCausalLM"]
    made["mixed_precision"] = pick(rng, (ABSENT, 8), ('"bf16"', 2), ('"fp16"', 0.7), ('"no"', 0.4))
    made["gradient_accumulation_steps"] = pick(rng, (ABSENT, 6), (steps, 5), (steps + 1, 0.5))
    made["split_batches"] = pick(rng, (ABSENT, 30), (True, 1))
    words: list[str] = ["train.py"]
    before, batch = [], str(micro)
    if rng.random() < 0.3:
        imports.insert(0, "import argparse")
        before = [
            "parser = argparse.ArgumentParser()",
            f'parser.add_argument("--batch_size", type=int, default={micro})',
            f'parser.add_argument("--steps", type=int, default={steps})',
            "args = parser.parse_args()",
        ]
        batch = "args.batch_size"
        if made["gradient_accumulation_steps"] is not ABSENT:
            made["gradient_accumulation_steps"] = "args.steps"
        words += pick(rng, ([], 2), (["--batch_size", str(micro)], 2), (["--steps", str(steps)], 1))
    command, env = launch(rng, ranks, words), {}
    if way in ("file", "block"):
        files["accelerate.yaml"] = accelerate_file(rng, ranks, accelerate_block(rng, steps, own_file=way == "file"))
        command = ["accelerate", "launch", "--config_file", "accelerate.yaml", *_over_file(rng, ranks), *words]
    elif way == "flags":
        command = ["accelerate", "launch", *_flags(rng, ranks, steps), *words]
    elif way == "variables":
        env = _variables(rng, steps)
    else:
        plugin, more = _plugin(rng, steps)
        imports += ["from accelerate import DeepSpeedPlugin", *(["import json"] if "json.load" in more else [])]
        before += [one for one in [more] if one]
        made["deepspeed_plugin"] = plugin
    if way in ("plugin", "block") and pick(rng, (False, 6), (True, 1)):
        env |= _variables(rng, steps, enough=False)
    if pick(rng, (True, 30), (False, 0.9)):
        files["ds.json"] = text(rng, values)
    after = []
    if pick(rng, (False, 12), (True, 1)):
        key = "train_micro_batch_size_per_gpu"
        after = [f'accelerator.state.deepspeed_plugin.deepspeed_config["{key}"] = {micro}']
    files["train.py"] = _program(rng, values, imports, [*before, _call("accelerator = Accelerator", made), *after], batch)
    return job(name, "accelerate", files, command, env, ranks, RELEASES, rng)


def _call(name: str, values: dict[str, Any]) -> str:
    return f"{name}({', '.join(f'{key}={value}' for key, value in written(values).items())})"


def _over_file(rng: Draw, ranks: int) -> list[str]:
    """Flags beside Accelerate's file."""
    return pick(
        rng,
        ([], 9),
        (["--num_processes", str(2 * ranks)], 1),
        (["--mixed_precision", "bf16"], 1),
        (["--zero_stage", "3"], 1),
        (["--gradient_clipping", "0.5"], 1),
        (["--gradient_accumulation_steps", "4"], 1),
        (["--offload_optimizer_device", "cpu"], 1),
        (["--use_deepspeed", "--zero_stage", "3"], 1),
        (["--deepspeed_config_file", "ds.json"], 0.5),
    )


def _flags(rng: Draw, ranks: int, steps: int) -> list[str]:
    """Flags of `accelerate launch` without a file."""
    flags = ["--use_deepspeed", *pick(rng, (["--num_processes", str(ranks)], 9), ([], 0.5))]
    flags += pick(rng, ([], 4), (["--zero_stage", "3"], 3), (["--zero_stage=2"], 2), (["--deepspeed_config_file", "ds.json"], 5))
    flags += pick(
        rng, ([], 4), (["--mixed_precision", "bf16"], 3), (["--gradient_clipping", "1.0"], 2), (["--gradient_clippin", "1.0"], 0.2)
    )
    flags += pick(rng, ([], 5), (["--gradient_accumulation_steps", str(steps)], 3), (["--offload_optimizer_device", "cpu"], 1))
    return flags + pick(rng, ([], 6), (["--zero3_init_flag", "true"], 1), (["--zero3_save_16bit_model", "true"], 1))


def _variables(rng: Draw, steps: int, *, enough: bool = True) -> dict[str, str]:
    """Variables of the environment from which Accelerate reads its settings."""
    found = {
        "ACCELERATE_USE_DEEPSPEED": pick(rng, ("true", 9), (ABSENT, 0.9)) if enough else ABSENT,
        "ACCELERATE_DEEPSPEED_CONFIG_FILE": pick(rng, ("ds.json", 3), (ABSENT, 3)) if enough else ABSENT,
        "ACCELERATE_DEEPSPEED_ZERO_STAGE": pick(rng, (ABSENT, 2), ("3", 2)),
        "ACCELERATE_GRADIENT_CLIPPING": pick(rng, (ABSENT, 3), ("1.0", 1), ("0.5", 1)),
        "ACCELERATE_GRADIENT_ACCUMULATION_STEPS": pick(rng, (ABSENT, 2), (str(steps), 2), (str(steps + 1), 0.5)),
        "ACCELERATE_MIXED_PRECISION": pick(rng, (ABSENT, 2), ("bf16", 3), ("fp16", 0.5)),
        "ACCELERATE_DEEPSPEED_OFFLOAD_OPTIMIZER_DEVICE": pick(rng, (ABSENT, 6), ("cpu", 1)),
        "ACCELERATE_DEEPSPEED_ZERO3_SAVE_16BIT_MODEL": pick(rng, (ABSENT, 6), ("true", 1)),
    }
    return written(found)


def _plugin(rng: Draw, steps: int) -> tuple[str, str]:
    """The call of a plug-in, and what stands before it."""
    own = {
        "zero_stage": pick(rng, (ABSENT, 2), (2, 4), (3, 3)),
        "gradient_clipping": pick(rng, (ABSENT, 5), (1.0, 2), (0.5, 1)),
        "gradient_accumulation_steps": pick(rng, (ABSENT, 5), (steps, 3)),
        "offload_optimizer_device": pick(rng, (ABSENT, 5), ('"cpu"', 2)),
        "zero3_init_flag": pick(rng, (ABSENT, 5), (False, 2)),
        "zero3_save_16bit_model": pick(rng, (ABSENT, 5), (True, 1)),
    }
    file, read = {"hf_ds_config": '"ds.json"'}, {"hf_ds_config": "settings"}
    asked, before = pick(
        rng,
        ((file, ""), 5),
        ((read, 'settings = json.load(open("ds.json"))'), 2),
        ((read, 'with open("ds.json") as stream:\n    settings = json.load(stream)\nsettings["gradient_accumulation_steps"] = 2'), 1),
        ((own, ""), 6),
        (({}, ""), 1),
        ((file | {"zero_stage": 3}, ""), 1),
    )
    return _call("DeepSpeedPlugin", asked), before


def _program(rng: Draw, values: dict[str, Any], imports: list[str], start: list[str], batch: str) -> str:
    """A program for a config: with stand-ins for what the config has, in few cases for the other."""
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
    imports = [*imports, *([f"from accelerate.utils import {', '.join(dummies)}"] if dummies else [])]
    parts = ", ".join(objects)
    return LOOP.format(
        imports="\n".join(imports) + "\n",
        accelerator="\n".join(start),
        optimizer=optimizer,
        micro=batch,
        prepare=f"{parts} = accelerator.prepare({parts})",
    )
