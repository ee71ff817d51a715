"""The size of a model by its name."""

from __future__ import annotations

import json

import pytest

from dslint.rules.helpers.named_size import billions_in
from tests.setup.folder import Folder


@pytest.mark.parametrize(
    ("name", "billions"),
    [
        ("/data/models/Qwen/Qwen3-235B-A22B", 235),
        ("zai-org/GLM-4.5-355B-A32B/", 355),
        ("meta-llama/Llama-2-70b-hf", 70),
        ("Qwen2.5_7B_Instruct", 7),
        ("mistralai/Mixtral-8x22B-v0.1", 132),
        ("bigscience/bloom-7b1", None),
        ("tencent/Hunyuan-A13B", None),
        ("Qwen/Qwen3-235B-A22B-FP8", None),
        ("Llama-3.1-405B-Instruct-AWQ-INT4", None),
        ("unsloth/llama-3-405b-bnb-4bit", None),
        ("ISTA-DASLab/Meta-Llama-3-70B-AQLM-2Bit-1x16", None),
        ("me/llama-405b-2-bit", None),
        ("me/Llama-405B-bitnet", None),
        ("me/reward-from-405b", None),
        ("me/trained-by-405b-judge", None),
        ("me/llama-405b-2-layers", None),
        ("me/pythia-1b-300b", None),
        ("me/model-160m-300b", None),
        ("me/300b-tokens", None),
        ("draft-for-405b", None),
        ("gpt2", None),
    ],
)
def test_size_in_a_name(name: str, billions: float | None) -> None:
    assert billions_in(name) == billions


_PROGRAM = """
from transformers import AutoModelForCausalLM, Trainer, TrainingArguments
model = AutoModelForCausalLM.from_pretrained("Qwen/Qwen3-235B-A22B"{})
Trainer(model=model, args=TrainingArguments("out", bf16=True, deepspeed="ds.json"), train_dataset=data).train()
"""


@pytest.mark.parametrize(
    ("others", "stage", "found"),
    [
        (', torch_dtype="bfloat16"', 2, True),
        (', torch_dtype="bfloat16"', 3, False),
        (', device_map="auto"', 2, False),
        (", num_hidden_layers=4", 2, False),
        (", load_in_4bit=True", 2, False),
    ],
)
def test_model_of_a_program(folder: Folder, others: str, stage: int, found: bool) -> None:
    ds = {"train_micro_batch_size_per_gpu": "auto", "bf16": {"enabled": "auto"}, "zero_optimization": {"stage": stage}}
    folder.write({"ds.json": json.dumps(ds), "train.py": _PROGRAM.format(others)})
    assert ("DS710" in {code for code, _, _ in folder.found("train.py")}) is found


@pytest.mark.parametrize(("device", "found"), [("cuda", True), ("meta", False)])
def test_a_word_in_the_name_of_a_model(folder: Folder, device: str, found: bool) -> None:
    ds = {"train_micro_batch_size_per_gpu": "auto", "bf16": {"enabled": "auto"}, "zero_optimization": {"stage": 2}}
    program = _PROGRAM.format("").replace("Qwen/Qwen3-235B-A22B", "meta-llama/Llama-3.1-405B")
    folder.write({"ds.json": json.dumps(ds), "train.py": f'{program}device = "{device}"\n'})
    assert ("DS710" in {code for code, _, _ in folder.found("train.py")}) is found
