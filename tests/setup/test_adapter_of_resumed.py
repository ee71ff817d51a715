"""What loads a checkpoint of an adapter is reported only where an adapter is trained (DS986, transformers 4.37)."""

from __future__ import annotations

import pytest

from dslint.facts import Facts, Integration, Release
from tests.setup.folder import Folder

PINNED = Facts(integration=Integration.TRANSFORMERS, loader_release=Release(4, 37, 2))

MODULE = (
    "from dataclasses import dataclass\nimport transformers\nfrom transformers import AutoModelForCausalLM, Trainer\n"
    "@dataclass\nclass OwnArguments(transformers.TrainingArguments):\n    with_lora: bool = False\n"
    "def train():\n    (args,) = transformers.HfArgumentParser((OwnArguments,)).parse_args_into_dataclasses()\n"
    '    model = AutoModelForCausalLM.from_pretrained("m")\n'
    "%s    trainer = Trainer(model=model, args=args)\n    trainer.train(resume_from_checkpoint=True)\n"
)
ADAPTER = "{0}from peft import LoraConfig, get_peft_model\n{0}model = get_peft_model(model, LoraConfig(r=8))\n"
BY_FLAG = "    if args.with_lora:\n" + ADAPTER.format("        ")
LAUNCH = "deepspeed --num_gpus 2 start.py --deepspeed ds.json --per_device_train_batch_size 4 --bf16 True --output_dir out%s\n"


@pytest.mark.parametrize(
    ("makes", "flags", "is_found"),
    [
        (BY_FLAG, "", False),
        (BY_FLAG, " --with_lora False", False),
        ("", "", False),
        ("    # LoRA is in another program\n", "", False),
        (BY_FLAG, " --with_lora True", True),
        (ADAPTER.format("    "), "", True),
    ],
)
def test_only_an_adapter_that_is_trained_counts(folder: Folder, makes: str, flags: str, *, is_found: bool) -> None:
    folder.write(
        {
            "run.sh": LAUNCH % flags,
            "start.py": "from own import train\ntrain()\n",
            "own.py": MODULE % makes,
            "ds.json": '{"train_micro_batch_size_per_gpu": "auto", "zero_optimization": {"stage": 2}, "bf16": {"enabled": "auto"}}',
        }
    )
    messages = [d.message for d in folder.diagnostics("run.sh", facts=PINNED) if d.code == "DS986"]
    assert any("checkpoints of an adapter" in one for one in messages) == is_found
