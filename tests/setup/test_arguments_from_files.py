"""Arguments of the Trainer that a program reads from a file, and a config that it sets in them when they are made."""

from __future__ import annotations

import pytest

from tests.setup.folder import Folder

CONFIG = '{"train_micro_batch_size_per_gpu": 4, "train_batch_size": 8, "fp16": {"enabled": true}, "zero_optimization": {"stage": 2}}'
LAUNCH = "deepspeed --num_gpus 2 train.py --training training.json --output_dir out --deepspeed ds.json\n"
HEAD = "import argparse\nimport json\nimport sys\nfrom transformers import HfArgumentParser, Trainer, TrainingArguments\n"
TRAINED = "Trainer(model=model, args=args, train_dataset=data).train()\n"
OWN = "parser = argparse.ArgumentParser()\nfor name in names:\n    parser.add_argument(name)\nown = parser.parse_args()\n"


@pytest.mark.parametrize(
    ("reads", "is_found"),
    [
        (f"{OWN}(args,) = HfArgumentParser(TrainingArguments).parse_json_file(json_file=own.training)\n", False),
        ("(args,) = HfArgumentParser(TrainingArguments).parse_args_into_dataclasses()\n", True),
        (
            (
                "hf = HfArgumentParser(TrainingArguments)\nif len(sys.argv) == 2:\n    (args,) = hf.parse_json_file(sys.argv[1])\n"
                "else:\n    (args,) = hf.parse_args_into_dataclasses()\n"
            ),
            True,
        ),
    ],
)
def test_a_file_that_a_flag_names_may_hold_more_arguments(folder: Folder, reads: str, *, is_found: bool) -> None:
    folder.write({"ds.json": CONFIG, "train.py": f"{HEAD}{reads}{TRAINED}", "run.sh": LAUNCH})
    found = [one.message for one in folder.diagnostics("run.sh") if one.code == "DS904" and one.certain]
    assert any("fp16.enabled is true" in message for message in found) is is_found, found


@pytest.mark.parametrize(("again", "certain"), [("", False), ("args.__post_init__()\n", False), (None, True)])
def test_a_config_that_is_set_too_late(folder: Folder, again: str | None, *, certain: bool) -> None:
    """Only where the arguments are made with the config is a mismatch certain."""
    given = '"out", deepspeed="ds.json", fp16=False' if again is None else '"out", fp16=False'
    sets = "" if again is None else f'args.deepspeed = "ds.json"\n{again}'
    folder.write({"ds.json": CONFIG, "train.py": f"{HEAD}args = TrainingArguments({given})\n{sets}{TRAINED}"})
    found = [one for one in folder.diagnostics("train.py", "ds.json") if one.code in ("DS904", "DS906")]
    assert any(one.certain for one in found) is certain, found
