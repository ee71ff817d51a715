"""Which kernel of attention programs, training files and commands choose, and where."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from dslint.frameworks import axolotl, huggingface, llama_factory, ms_swift, trl
from dslint.frameworks.workload import told_by
from dslint.job.arguments import Arguments, SourcedValue
from tests.command import dslint

PROGRAM = """import os
from transformers import AutoConfig, AutoModelForCausalLM, LlamaForCausalLM, Trainer, TrainingArguments
from transformers.utils import is_flash_attn_2_available

class Mine(LlamaForCausalLM):
    pass

def main():
    args = TrainingArguments(output_dir="o", deepspeed="ds.json", per_device_train_batch_size=1)
    config = AutoConfig.from_pretrained("x")
    {}
    Trainer(model=model, args=args).train()

main()
"""
LOAD = 'model = AutoModelForCausalLM.from_pretrained("x", {})'


def assumed(folder: Path, *arguments: str) -> list[str]:
    """What an estimate of a folder assumes of attention."""
    done = dslint("estimate", *arguments, "--model", "llama-2-7b", "--world-size", "8", "--output-format", "json", cwd=folder)
    assert done.returncode == 0, done.stderr
    return [note for note in json.loads(done.stdout)["assumed"] if "attention" in note]


def of_program(folder: Path, body: str, **modules: str) -> list[str]:
    (folder / "ds.json").write_text('{"zero_optimization": {"stage": 3}}', encoding="utf-8")
    (folder / "train.py").write_text(PROGRAM.format(body.replace("\n", "\n    ")), encoding="utf-8")
    for name, text in modules.items():
        (folder / f"{name}.py").write_text(text, encoding="utf-8")
    return assumed(folder, "train.py")


@pytest.mark.parametrize(
    ("body", "kernel"),
    [
        (LOAD.format('attn_implementation="flash_attention_2"'), "flash_attention_2"),
        (LOAD.format('attn_implementation="sdpa"'), "sdpa"),
        (LOAD.format('attn_implementation="eager"'), "eager"),
        (LOAD.format("use_flash_attention_2=True"), "flash_attention_2"),
        (LOAD.format("use_flash_attention_2=False"), None),
        (LOAD.format('attn_implementation=os.environ["KERNEL"]'), None),
        (LOAD.format('attn_implementation="flash_attention_2" if is_flash_attn_2_available() else "sdpa"'), None),
        (LOAD.format('**{"attn_implementation": "flash_attention_3"}'), "flash_attention_3"),
        ('model = Mine.from_pretrained("x", attn_implementation="flash_attention_2")', "flash_attention_2"),
        ('model = AutoModelForCausalLM.from_config(config, attn_implementation="sdpa")', "sdpa"),
        ('config = AutoConfig.from_pretrained("x", attn_implementation="sdpa")\n' + LOAD.format("config=config"), "sdpa"),
        ('config._attn_implementation = "flash_attention_2"\n' + LOAD.format("config=config"), "flash_attention_2"),
        (
            LOAD.format('attn_implementation="sdpa"') + '\nref = AutoModelForCausalLM.from_pretrained("y", attn_implementation="eager")',
            None,
        ),
        (
            "from fastchat.train.llama2_flash_attn_monkey_patch import replace_llama_attn_with_flash_attn\n"
            "replace_llama_attn_with_flash_attn()\n" + LOAD.format(""),
            "flash_attention_2",
        ),
        ("import modeling\n" + LOAD.format(""), "flash_attention_2"),
        ("import modeling\n" + LOAD.format('attn_implementation="eager"'), "eager"),
        ("import trying\n" + LOAD.format(""), None),
    ],
)
def test_a_program_chooses_its_kernel(tmp_path: Path, body: str, kernel: str | None) -> None:
    modeling = "from flash_attn import flash_attn_func\n"
    trying = "try:\n    from flash_attn import flash_attn_func\nexcept ImportError:\n    flash_attn_func = None\n"
    found = of_program(tmp_path, body, modeling=modeling, trying=trying)
    assert len(found) == (kernel is not None)
    for note in found:
        place = "modeling.py:1" if "modeling" in body and kernel != "eager" else "train.py:"
        assert note.startswith(f"--attention is {kernel}, from {place}")


FRAMEWORKS = {one.FRAMEWORK.name: one.FRAMEWORK for one in (axolotl, huggingface, llama_factory, ms_swift, trl)}
AXOLOTL, TRAINER, LLAMA_FACTORY, SWIFT, TRL = FRAMEWORKS


@pytest.mark.parametrize(
    ("framework", "values", "kernel"),
    [
        (LLAMA_FACTORY, {"flash_attn": "fa2"}, "flash_attention_2"),
        (LLAMA_FACTORY, {"flash_attn": "sdpa"}, "sdpa"),
        (LLAMA_FACTORY, {"flash_attn": "disabled"}, "eager"),
        (LLAMA_FACTORY, {"flash_attn": "auto"}, None),
        (AXOLOTL, {"flash_attention": True}, "flash_attention_2"),
        (AXOLOTL, {"flash_attention": False}, None),
        (AXOLOTL, {"sdp_attention": True}, "sdpa"),
        (AXOLOTL, {"eager_attention": True}, "eager"),
        (AXOLOTL, {"flex_attention": True}, "flex_attention"),
        (SWIFT, {"attn_impl": "flash_attn"}, "flash_attention_2"),
        (SWIFT, {"attn_impl": "flash_attention_3"}, "flash_attention_3"),
        (SWIFT, {"attn_impl": "sdpa"}, "sdpa"),
        (SWIFT, {"use_flash_attn": "true"}, "flash_attention_2"),
        (TRL, {"attn_implementation": "flash_attention_2"}, "flash_attention_2"),
        (TRL, {"attn_implementation": "kernels-community/vllm-flash-attn3"}, "flash_attention_3"),
        (TRAINER, {"use_flash_attn": True}, "flash_attention_2"),
        (TRAINER, {"use_flash_attn": "False"}, None),
        (TRAINER, {"flash_attention": True}, None),
    ],
)
def test_each_framework_has_its_own_names(framework: str, values: dict[str, Any], kernel: str | None) -> None:
    given = {name: SourcedValue(value, name, str(value), "train.yaml") for name, value in values.items()}
    found = told_by(Arguments(framework, "train.yaml", given)).options.get("attention")
    assert (found and found[0]) == kernel


def test_a_training_file_and_a_command_say_it(tmp_path: Path) -> None:
    (tmp_path / "ds.json").write_text('{"zero_optimization": {"stage": 3}}', encoding="utf-8")
    (tmp_path / "axolotl.yaml").write_text(
        "base_model: meta-llama/Llama-2-7b-hf\ndatasets:\n  - path: a.jsonl\n    type: alpaca\nmicro_batch_size: 1\n"
        "gradient_accumulation_steps: 1\nnum_epochs: 1\noptimizer: adamw_torch\nlearning_rate: 1e-5\nflash_attention: true\ndeepspeed: ds.json\n",
        encoding="utf-8",
    )
    assert assumed(tmp_path, "axolotl.yaml") == ["--attention is flash_attention_2, from axolotl.yaml:10"]
    (tmp_path / "run.sh").write_text(
        "deepspeed --num_gpus 8 pretrain_gpt.py --num-layers 24 --hidden-size 2048 --num-attention-heads 16 --seq-length 2048 "
        "--micro-batch-size 1 --global-batch-size 8 --use-flash-attn-v2 --deepspeed --deepspeed_config ds.json --zero-stage 1\n",
        encoding="utf-8",
    )
    assert assumed(tmp_path, "run.sh") == ["--attention is flash_attention_2, from run.sh:1"]


def test_with_the_kernel_known_the_range_is_narrower(tmp_path: Path) -> None:
    (tmp_path / "ds.json").write_text(
        '{"bf16": {"enabled": true}, "zero_optimization": {"stage": 3}, "train_batch_size": 8}', encoding="utf-8"
    )
    command = ("estimate", "ds.json", "--model", "llama-3-8b", "--world-size", "8", "--gpu", "h200", "--sequence-length", "8192")
    widths = {}
    for kernel in (None, "sdpa", "flash_attention_2", "flash_attention_3"):
        given = ("--attention", kernel) if kernel else ()
        done = dslint(*command, "--activation-checkpointing", *given, "--output-format", "json", cwd=tmp_path)
        time = json.loads(done.stdout)["step"]
        widths[kernel] = (time["high"] - time["low"]) / time["seconds"], time["seconds"]
    assert widths[None] == widths["sdpa"]
    assert widths["flash_attention_2"][0] < widths[None][0] > widths["flash_attention_3"][0]
    assert widths["flash_attention_2"][1] > widths[None][1] > widths["flash_attention_3"][1]


def test_checkpointing_of_a_program_counts(tmp_path: Path) -> None:
    (tmp_path / "ds.json").write_text('{"zero_optimization": {"stage": 3}, "train_batch_size": 8}', encoding="utf-8")
    program = "import deepspeed\nfrom transformers import AutoModelForCausalLM\nmodel = AutoModelForCausalLM.from_pretrained('m')\n{}\n"
    program += "engine, *_ = deepspeed.initialize(model=model, config='ds.json')\n"
    command = ("estimate", "train.py", "--model", "llama-2-7b", "--world-size", "8", "--output-format", "json")
    found = {}
    for line in ("model.gradient_checkpointing_enable()", "pass"):
        (tmp_path / "train.py").write_text(program.format(line), encoding="utf-8")
        found[line] = json.loads(dslint(*command, cwd=tmp_path).stdout)["assumed"]
    enabled, missing = (" ".join(one) for one in found.values())
    assert "--activation-checkpointing is 1, from train.py:4" in enabled
    assert "does not use activation checkpointing" not in enabled
    assert "does not use activation checkpointing" in missing


def test_flags_for_attention_that_contradict(tmp_path: Path) -> None:
    (tmp_path / "ds.json").write_text('{"zero_optimization": {"stage": 3}, "train_batch_size": 8}', encoding="utf-8")
    given = ("estimate", "ds.json", "--model", "llama-2-7b", "--world-size", "8", "--eager-attention", "--attention")
    assert "contradict each other" in dslint(*given, "sdpa", cwd=tmp_path).stderr
    assert dslint(*given, "eager", cwd=tmp_path).returncode == 0


def test_flash_attention_has_no_mask_for_padded_samples(tmp_path: Path) -> None:
    (tmp_path / "ds.json").write_text('{"zero_optimization": {"stage": 3}, "train_batch_size": 8}', encoding="utf-8")
    given = ("estimate", "ds.json", "--model", "llama-3-8b", "--world-size", "8", "--sequence-length", "4096", "--output-format", "json")
    peaks = {}
    for options in ((), ("--attention", "flash_attention_2", "--padded"), ("--attention", "sdpa", "--padded")):
        peaks[options] = json.loads(dslint(*given, *options, cwd=tmp_path).stdout)["tensors"]["expected"]
    plain, flash, masked = peaks.values()
    assert plain == flash < masked
