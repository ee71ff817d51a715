"""Options that are posted without their command: they are judged as those of the framework whose names they have."""

from __future__ import annotations

import pytest

from tests.setup.folder import Folder

_BOTH = "--deepspeed ds.json --bf16 true --fp16 true"
_CONFIG = '{"train_micro_batch_size_per_gpu": "auto", "zero_optimization": {"stage": 2}}'


@pytest.mark.parametrize(
    ("name", "text", "owner", "code"),
    [
        (
            "run.sh",
            "--pretrain m \\\n--zero_stage 3 \\\n--adam_offload \\\n--micro_train_batch_size 4 \\\n--train_batch_size 126\n",
            "OpenRLHF",
            "DS202",
        ),
        ("run.sh", f"--stage sft --template qwen --finetuning_type lora --model_name_or_path m {_BOTH}\n", "LLaMA-Factory", "DS960"),
        ("flags.txt", "--sft_type lora\n--model_type qwen2\n--deepspeed ds.json\n--bf16 true\n--fp16 true\n", "ms-swift", "DS960"),
        ("flags.txt", f"# mine\n--model_name_or_path m --output_dir out {_BOTH}\n", "a program with the Trainer", "DS960"),
        ("one.txt", f"torchrun train.py --output_dir out {_BOTH}\n", "", "DS960"),
    ],
)
def test_they_are_judged_as_those_of_their_owner(folder: Folder, name: str, text: str, owner: str, code: str) -> None:
    folder.write({name: text, "ds.json": _CONFIG})
    found = folder.results(name)[name]
    assert code in {one.code for one in found.diagnostics}
    assert ("options without their command" in (found.note or "")) is bool(owner)
    assert owner in (found.note or "")


@pytest.mark.parametrize("text", ["--foo 3\n--bar 4\n", "--zero_stage 2 --bf16\n", "worker-1 slots=4\n", "python 3.10 is what I use\n"])
def test_others_are_not_judged(folder: Folder, text: str) -> None:
    folder.write({"flags.txt": text})
    found = folder.results("flags.txt")["flags.txt"]
    assert found.not_judged
    assert "options without their command" not in (found.note or "")


def test_what_is_not_posted_is_not_missed(folder: Folder) -> None:
    """A part of the options does not show that an argument is missing."""
    folder.write(
        {"run.sh": f"--stage sft --do_train --template qwen --finetuning_type lora --model_name_or_path m {_BOTH}\n", "ds.json": _CONFIG}
    )
    assert "DS975" not in {one.code for one in folder.results("run.sh")["run.sh"].diagnostics}
