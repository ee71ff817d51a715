"""`check` and `estimate` say the same of a job: what does not fit by the one is a finding of the other."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.command import dslint

_AUTO = '{"train_micro_batch_size_per_gpu": "auto", "train_batch_size": "auto", "bf16": {"enabled": "auto"}, "zero_optimization": {"stage": %s}}'
_BY_PARSER = (
    "from transformers import AutoModelForCausalLM, HfArgumentParser, Trainer, TrainingArguments\nfrom dataclasses import dataclass\n"
    "@dataclass\nclass Own:\n    model_name_or_path: str = 'm'\n    block_size: int = 2048\n    %s\n"
    "own, args = HfArgumentParser((Own, TrainingArguments)).parse_args_into_dataclasses()\n"
    "model = AutoModelForCausalLM.from_pretrained(own.model_name_or_path)\n%s"
    "Trainer(model=model, args=args, train_dataset=blocks(own.block_size)).train()\n"
)
_OWN = (
    "import argparse\nimport deepspeed\nimport torch\nfrom transformers import AutoModelForCausalLM\n"
    "parser = argparse.ArgumentParser()\nparser.add_argument('--block_size', type=int, default=2048)\n"
    "parser.add_argument('--model_name_or_path')\nparser.add_argument('--gradient_checkpointing', action='store_true')\n"
    "parser.add_argument('--local_rank', type=int)\nargs = parser.parse_args()\nmodel = AutoModelForCausalLM.from_pretrained(args.model_name_or_path)\n"
    "if args.gradient_checkpointing:\n    model.gradient_checkpointing_enable()\noptimizer = torch.optim.AdamW(model.parameters(), lr=1e-5)\n"
    "engine, *_ = deepspeed.initialize(args=args, model=model, optimizer=optimizer, config='ds.json')\n"
    "for batch in blocks(args.block_size):\n    engine.backward(engine(**batch).loss)\n    engine.step()\n"
)
_OF_FACTORY = (
    "model_name_or_path: meta-llama/Llama-2-7b-hf\nstage: sft\ndo_train: true\nfinetuning_type: %s\ndeepspeed: ds.json\ndataset: x\n"
    "template: llama2\npacking: true\ncutoff_len: %d\noutput_dir: o\nper_device_train_batch_size: %d\nlearning_rate: 1.0e-4\nbf16: true\n"
)
_LORA = "from peft import LoraConfig, get_peft_model\nmodel = get_peft_model(model, LoraConfig(r=8, target_modules=['q_proj']))\n"
_BY_TRAINER = (
    "deepspeed --num_gpus 8 train.py --model_name_or_path meta-llama/Llama-2-7b-hf --block_size 4096 --per_device_train_batch_size %d "
    "--bf16 True --output_dir o --deepspeed ds.json %s\n"
)
_BY_ITSELF = "deepspeed --num_gpus 8 train.py --model_name_or_path meta-llama/Llama-2-7b-hf --block_size 4096 %s\n"
_FACTORY = "FORCE_TORCHRUN=1 NPROC_PER_NODE=8 llamafactory-cli train train.yaml\n"
_HALF = '{"train_micro_batch_size_per_gpu": %d, "bf16": {"enabled": true}, "zero_optimization": {"stage": 3}}'
_CHECKPOINTED = "--gradient_checkpointing True"

_JOBS = {
    "Trainer": ({"ds.json": _AUTO % 3, "train.py": _BY_PARSER % ("", "")}, _BY_TRAINER % (8, "")),
    "Trainer, few samples": ({"ds.json": _AUTO % 3, "train.py": _BY_PARSER % ("", "")}, _BY_TRAINER % (1, _CHECKPOINTED)),
    "Trainer, checkpointed": ({"ds.json": _AUTO % 3, "train.py": _BY_PARSER % ("", "")}, _BY_TRAINER % (32, _CHECKPOINTED)),
    "LoRA": ({"ds.json": _AUTO % 2, "train.py": _BY_PARSER % ("", _LORA)}, _BY_TRAINER % (8, "")),
    "LoRA, checkpointed": ({"ds.json": _AUTO % 2, "train.py": _BY_PARSER % ("", _LORA)}, _BY_TRAINER % (1, _CHECKPOINTED)),
    "LLaMA-Factory": ({"ds.json": _AUTO % 3, "train.yaml": _OF_FACTORY % ("full", 8192, 8)}, _FACTORY),
    "LLaMA-Factory, one sample": ({"ds.json": _AUTO % 3, "train.yaml": _OF_FACTORY % ("full", 4096, 1)}, _FACTORY),
    "LLaMA-Factory, LoRA": ({"ds.json": _AUTO % 2, "train.yaml": _OF_FACTORY % ("lora", 8192, 16)}, _FACTORY),
    "own loop": ({"ds.json": _HALF % 8, "train.py": _OWN}, _BY_ITSELF % ""),
    "own loop, checkpointed": ({"ds.json": _HALF % 8, "train.py": _OWN}, _BY_ITSELF % "--gradient_checkpointing"),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", _JOBS)
def test_check_and_estimate_agree(tmp_path: Path, name: str) -> None:
    files, launch = _JOBS[name]
    for file, text in {**files, "run.sh": launch}.items():
        (tmp_path / file).write_text(text, encoding="utf-8")
    facts = ("--gpu", "a100-80gb", "--isolated", "--output-format", "json")
    verdict = json.loads(dslint("estimate", "run.sh", *facts, cwd=tmp_path).stdout)["verdict"]
    found = json.loads(dslint("check", ".", *facts, cwd=tmp_path).stdout)["diagnostics"]
    severities = {one["severity"] for one in found if one["code"] == "DS706"}
    assert severities == {"does not fit": {"error"}, "unlikely to fit": {"warning"}}.get(verdict, set()), (verdict, found)


def test_check_assumes_nothing_that_the_flags_of_an_own_config_say(tmp_path: Path) -> None:
    """OpenRLHF has no config file: its flags say how long samples are, and whether activations are checkpointed."""
    flags = "--zero_stage 2 --micro_train_batch_size 1 --train_batch_size 1 --max_len 128 --gradient_checkpointing --bf16"
    (tmp_path / "run.sh").write_text(f"deepspeed --num_gpus 1 --module openrlhf.cli.train_sft --pretrain m {flags}\n", encoding="utf-8")
    facts = ("--gpu", "a100-80gb", "--model", "llama-3-8b", "--isolated", "--output-format", "json")
    assert json.loads(dslint("estimate", "run.sh", *facts, cwd=tmp_path).stdout)["verdict"] == "does not fit"
    (found,) = (one for one in json.loads(dslint("check", ".", *facts, cwd=tmp_path).stdout)["diagnostics"] if one["code"] == "DS712")
    assert found["message"].startswith("The training needs about ")


def test_a_job_with_models_that_are_not_counted_is_not_green_about_memory(tmp_path: Path) -> None:
    flags = "--pretrain a --reward_pretrain b --zero_stage 2 --micro_train_batch_size 1 --train_batch_size 4 --bf16 --adam_offload"
    (tmp_path / "run.sh").write_text(f"deepspeed --num_gpus 4 --module openrlhf.cli.train_ppo {flags}\n", encoding="utf-8")
    facts = ("--gpu", "a40", "--model", "llama-3-8b", "--isolated", "--output-format", "json")
    assert json.loads(dslint("estimate", "run.sh", *facts, cwd=tmp_path).stdout)["verdict"] == "not judged"
    reasons = [one["reason"] for one in json.loads(dslint("check", ".", *facts, cwd=tmp_path).stdout)["files"][0]["not_judged"]]
    assert any("whether the training fits in the GPU is not judged" in reason for reason in reasons), reasons


@pytest.mark.parametrize(
    ("padded", "verdict", "severities"), [("", "not judged", set()), (", padding='max_length'", "does not fit", {"warning"})]
)
def test_a_limit_of_lengths_does_not_judge_a_job(tmp_path: Path, padded: str, verdict: str, severities: set[str]) -> None:
    """With samples of 256 tokens it fits; a program may pad all to the limit, though not certainly those that it trains on."""
    own = (
        _OWN.replace("block_size", "max_seq_len") + f"def tokens(text):\n    return tokenizer(text, max_length=args.max_seq_len{padded})\n"
    )
    for file, text in {"ds.json": _HALF % 8, "train.py": own, "run.sh": _BY_ITSELF.replace("block_size", "max_seq_len") % ""}.items():
        (tmp_path / file).write_text(text, encoding="utf-8")
    facts = ("--gpu", "a100-80gb", "--isolated", "--output-format", "json")
    answer = json.loads(dslint("estimate", "run.sh", *facts, cwd=tmp_path).stdout)
    assert answer["verdict"] == verdict
    assert any("--sequence-length is a limit" in note for note in answer["assumed"]) is not bool(padded)
    found = json.loads(dslint("check", ".", *facts, cwd=tmp_path).stdout)["diagnostics"]
    assert {one["severity"] for one in found if one["code"] == "DS706"} == severities


def help_of(folder: Path, *options: str) -> str:
    done = dslint("check", ".", "--isolated", "--output-format", "json", *options, cwd=folder).stdout
    return next((one["help"] for one in json.loads(done)["diagnostics"] if one["code"] == "DS706"), "")


@pytest.mark.slow
def test_the_help_names_what_fits(tmp_path: Path) -> None:
    """First gradient checkpointing, then the largest micro batch size, then both."""
    for file, text in {"ds.json": _AUTO % 3, "train.py": _BY_PARSER % ("", "")}.items():
        (tmp_path / file).write_text(text, encoding="utf-8")
    for launch, words in (
        (_BY_TRAINER % (8, ""), "Enable gradient checkpointing: the job then needs about "),
        (_BY_TRAINER % (40, _CHECKPOINTED), "The largest micro batch size that likely fits is "),
        (_BY_TRAINER % (200, ""), "The largest micro batch size that likely fits is 2, which needs about "),
    ):
        (tmp_path / "run.sh").write_text(launch, encoding="utf-8")
        assert help_of(tmp_path, "--gpu", "a100-80gb").startswith(words), (launch, help_of(tmp_path, "--gpu", "a100-80gb"))


@pytest.mark.slow
def test_what_may_checkpoint_counts_as_if_it_did(tmp_path: Path) -> None:
    """A module of the project may compute activations again; then only what does not fit with that is a finding."""
    own = "from blocks import Block\n"
    for file, text in {"ds.json": _HALF % 8, "train.py": own + _OWN, "run.sh": _BY_ITSELF % ""}.items():
        (tmp_path / file).write_text(text, encoding="utf-8")
    for module, found in (
        ("class Block:\n    pass\n", True),
        ("from torch.utils.checkpoint import checkpoint\nx = checkpoint(f, y)\n", False),
        ("from ring_flash_attn import zigzag_ring_flash_attn_func\n", False),  # divides the tokens of a sample
    ):
        (tmp_path / "blocks.py").write_text(module, encoding="utf-8")
        assert bool(help_of(tmp_path, "--gpu", "a100-80gb")) is found
