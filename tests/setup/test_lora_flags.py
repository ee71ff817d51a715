"""A program that can train with LoRA, by a flag that another file of its project adds."""

from __future__ import annotations

import pytest

from dslint.facts import Facts
from dslint.facts.model_config import sized_model
from tests.setup.folder import Folder

CONFIG = (
    '{"train_micro_batch_size_per_gpu": 1, "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}}, "bf16": {"enabled": true}, '
    '"zero_optimization": {"stage": 3, "offload_optimizer": {"device": "cpu"}}}'
)
PROGRAM = """import deepspeed
from tools.opts import parsed
from tools.layers import with_lora
args = parsed()
model = make(args)
if args.use_lora:
    model = with_lora(model)
engine, *_ = deepspeed.initialize(args=args, model=model, model_parameters=model.parameters())
for batch in loader:
    engine.backward(engine(batch))
    engine.step()
"""
OPTIONS = """import argparse
import deepspeed
def parsed():
    parser = argparse.ArgumentParser()
    parser.add_argument("--local_rank", type=int)
    parser.add_argument("--use{}lora", {})
    return deepspeed.add_config_arguments(parser).parse_args()
"""
OFF = 'action="store_true", help="Train LoRA"'


@pytest.mark.parametrize(
    ("dash", "default", "given", "finds"),
    [
        ("_", OFF, "", True),
        ("-", OFF, "", True),
        ("_", OFF, "--use_lora", False),
        ("_", "default=True", "", False),
    ],
)
def test_a_flag_that_is_off_leaves_all_weights_to_train(folder: Folder, dash: str, default: str, given: str, finds: bool) -> None:
    launch = f"deepspeed --num_gpus 1 train.py {given} --deepspeed --deepspeed_config ds_config.json\n"
    options = OPTIONS.format(dash, default)
    folder.write({"run.sh": launch, "train.py": PROGRAM, "tools/opts.py": options, "tools/layers.py": "", "ds_config.json": CONFIG})
    found = folder.diagnostics("run.sh", facts=Facts(model=sized_model(6.74e9), host_memory=64 * 2**30, world_size=1, nodes=1))
    assert ("DS523" in [one.code for one in found]) == finds


def test_a_flag_that_only_merges_does_not_say_whether_lora_is_used(folder: Folder) -> None:
    program = PROGRAM.replace(
        "if args.use_lora:\n    model = with_lora(model)", "model = with_lora(model)\nif args.merge_lora:\n    merge(model)"
    )
    options = OPTIONS.format("_", OFF).replace("use_lora", "merge_lora")
    launch = "deepspeed --num_gpus 1 train.py --deepspeed --deepspeed_config ds_config.json\n"
    folder.write({"run.sh": launch, "train.py": program, "tools/opts.py": options, "tools/layers.py": "", "ds_config.json": CONFIG})
    found = folder.diagnostics("run.sh", facts=Facts(model=sized_model(6.74e9), host_memory=64 * 2**30, world_size=1, nodes=1))
    assert "DS523" not in [one.code for one in found]


@pytest.mark.parametrize(("switch", "finds"), [("use_lora: true", False), ("use_lora: false", True), ("lora_alpha: 16", True)])
def test_a_recipe_that_switches_adapters_on(folder: Folder, switch: str, finds: bool) -> None:
    """A recipe in sections of its own, which a program reads that dslint does not follow."""
    recipe = (
        f"model:\n  base_model_name: meta-llama/Llama-2-7b-hf\n  {switch}\ntraining:\n  output_dir: o\n  deepspeed_config: ds.json\n"
        "  per_device_train_batch_size: 1\n  learning_rate: 1.0e-5\n  num_train_epochs: 1\n  bf16: true\n"
    )
    config = (
        '{"train_batch_size": "auto", "bf16": {"enabled": true}, "zero_optimization": {"stage": 3, "offload_optimizer": {"device": "cpu"}}}'
    )
    folder.write({"ds.json": config, "recipe.yaml": recipe})
    facts = Facts(world_size=2, nodes=1, host_memory=64 * 2**30, model=sized_model(6.74e9))
    found = folder.diagnostics("recipe.yaml", facts=facts)
    assert ("DS523" in [one.code for one in found]) == finds


_OF_CLASSES = """from dataclasses import dataclass
import transformers
@dataclass
class Own(transformers.TrainingArguments):
    use_lora: bool = {default}
def train():
    args, = transformers.HfArgumentParser(Own).parse_args_into_dataclasses()
    model = transformers.AutoModelForCausalLM.from_pretrained("m")
    if args.use_lora:
        from peft import LoraConfig, get_peft_model
        model = get_peft_model(model, LoraConfig())
    transformers.Trainer(model, args, train_dataset=data).train()
"""


@pytest.mark.parametrize(("given", "default", "finds"), [("", "False", True), ("--use_lora True", "False", False), ("", "True", False)])
def test_a_start_file_leaves_the_flags_to_the_module_that_it_imports(folder: Folder, given: str, default: str, finds: bool) -> None:
    config = '{"train_batch_size": "auto", "train_micro_batch_size_per_gpu": "auto", "bf16": {"enabled": true}, "zero_optimization": {"stage": 3}}'
    launch = f"deepspeed --num_gpus 1 start.py --deepspeed ds_config.json --output_dir o --bf16 True {given}\n"
    folder.write({"run.sh": launch, "start.py": "from training.steps import train\ntrain()\n", "ds_config.json": config})
    folder.write({"training/__init__.py": "", "training/steps.py": _OF_CLASSES.format(default=default)})
    found = folder.diagnostics("run.sh", facts=Facts(model=sized_model(6.74e9), gpu_memory=80 * 2**30, world_size=1))
    assert ("DS706" in [one.code for one in found]) == finds
