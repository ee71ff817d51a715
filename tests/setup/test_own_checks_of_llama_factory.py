"""A checkout of LLaMA-Factory refuses only what its own source refuses."""

from __future__ import annotations

import pytest

from tests.setup.folder import Folder

STAGE_3 = '{"train_batch_size": "auto", "zero_optimization": {"stage": 3, "stage3_gather_16bit_weights_on_model_save": true}}'
LAUNCH = (
    "deepspeed --num_gpus 4 src/train.py --deepspeed ds.json --stage sft --do_train --model_name_or_path m --dataset d --template t "
    "--finetuning_type lora --output_dir out %s\n"
)
CHECK = '    if args.use_unsloth:\n        raise ValueError("Unsloth is incompatible with DeepSpeed ZeRO-3.")\n'
PARSER = "def read(args):\n%s    return args\n"


@pytest.mark.parametrize(
    ("check", "flag", "found"),
    [
        (CHECK, "--use_unsloth true", {"Unsloth is incompatible"}),
        ("", "--use_unsloth true", {"does not check it"}),
        ("", "--use_unsloth false", set()),
        ("", "--pure_bf16 true", set()),
    ],
)
def test_the_source_beside_the_program_says_what_it_refuses(folder: Folder, check: str, flag: str, found: set[str]) -> None:
    folder.write(
        {
            "run.sh": LAUNCH % flag,
            "ds.json": STAGE_3,
            "src/train.py": "from llamafactory.hparams.parser import read\nread(None)\n",
            "src/llamafactory/__init__.py": "",
            "src/llamafactory/hparams/__init__.py": "",
            "src/llamafactory/hparams/parser.py": PARSER % check,
        }
    )
    diagnostics = [d for d in folder.diagnostics("run.sh") if d.code == "DS948"]
    says = ("Unsloth is incompatible", "does not check it")
    assert {one for one in says for d in diagnostics if one in d.message} == found
