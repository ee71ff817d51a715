"""Jobs that a real framework refuses: dslint names the error first, and calls it certain."""

from __future__ import annotations

import pytest

from tests.frameworks.jobs import Job
from tests.frameworks.score import ask_dslint

PROGRAM = """
from transformers import AutoModelForCausalLM, HfArgumentParser, Trainer, TrainingArguments

(args,) = HfArgumentParser(TrainingArguments).parse_args_into_dataclasses()
model = AutoModelForCausalLM.from_pretrained("model")
Trainer(model=model, args=args).train()
"""

CONFIG = '{"train_batch_size": "auto", "train_micro_batch_size_per_gpu": "auto", "zero_optimization": {"stage": 2}}'
LAUNCH = "torchrun --nproc_per_node 4 train.py --output_dir out --per_device_train_batch_size 2 --deepspeed ds.json"
BLOCK = "compute_environment: LOCAL_MACHINE\ndistributed_type: DEEPSPEED\nnum_processes: 4\ndeepspeed_config:\n"
TRL = "model_name_or_path: model\ndataset_name: data\nper_device_train_batch_size: 2\nlearning_rate: 1e-4\nbf16: true\ndeepspeed: ds.json\n"


def trainer(config: str | None = CONFIG, launch: str = LAUNCH, **files: str) -> dict[str, str]:
    """The files of a job with a program that uses the Trainer."""
    found = {"train.py": PROGRAM, "run.sh": f"#!/bin/bash\n{launch}\n", **{name.replace("_", "."): text for name, text in files.items()}}
    return found if config is None else {**found, "ds.json": config}


def errors(files: dict[str, str]) -> list[tuple[str, str]]:
    """The crashes that `check run.sh` calls errors."""
    said = ask_dslint(Job("job", "transformers", {}, files, [], {}, 4))
    return [(one["code"], one["message"]) for one in said.findings if one["effect"] == "crash" and one["severity"] == "error"]


@pytest.mark.parametrize(
    ("files", "code", "error"),
    [
        (trainer(CONFIG[:-2] + ', "sub_group_size": "auto"}}'), "DS903", "not found in kwargs"),
        (trainer(CONFIG.replace("zero_optimization", "zero_optimisation")), "DS102", "Please specify the ZeRO optimization config"),
        (trainer("{}"), "DS910", "Please specify the ZeRO optimization config"),
        (trainer(None), "DS919", "Expected a string path to an existing deepspeed config"),
        (
            trainer(launch=LAUNCH.replace("torchrun --nproc_per_node 4", "accelerate launch --config_file a.yaml"), a_yaml=BLOCK + "  zero_stage: 3\n"),
            "DS925",
            "the following accelerate config variables will be ignored",
        ),
        (
            {"ds.json": CONFIG[:-1] + ', "bf16": {"enabled": false}}', "train.yaml": TRL, "run.sh": "trl sft --config train.yaml\n"},
            "DS904",
            "- ds bf16.enabled=False vs hf bf16|bf16_full_eval=True",
        ),
    ],
    ids=["auto", "misspelt", "empty", "missing", "block", "trl"],
)  # fmt: skip
def test_raises(files: dict[str, str], code: str, error: str) -> None:
    found = errors(files)
    assert found
    assert found[0][0] == code
    assert error in found[0][1]


@pytest.mark.parametrize(
    "files",
    [
        trainer(),
        trainer(None, launch=f"python write_config.py\n{LAUNCH}"),
        trainer(None, launch=f"cp ../configs/*.json .\n{LAUNCH}"),
        trainer(
            launch=LAUNCH.replace("torchrun --nproc_per_node 4", "accelerate launch --config_file a.yaml"),
            a_yaml=BLOCK + "  zero3_init_flag: false\n",
        ),
    ],
    ids=["right", "written before", "copied before", "block without fields of a config"],
)
def test_runs(files: dict[str, str]) -> None:
    assert not errors(files)
