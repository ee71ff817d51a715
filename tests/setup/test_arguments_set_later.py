"""Arguments that a program sets when they have replaced "auto" in the config."""

from __future__ import annotations

import pytest

from tests.setup.folder import Folder

MADE = "arguments = TrainingArguments('out', deepspeed='ds.json')\n"
PARSED = "(arguments,) = HfArgumentParser(TrainingArguments).parse_args_into_dataclasses()\n"
PROGRAM = "from transformers import AutoModel, HfArgumentParser, Trainer, TrainingArguments\n{}{}Trainer(AutoModel.from_pretrained('m'), arguments).train()\n"
AUTO = '{"train_micro_batch_size_per_gpu": "auto", "optimizer": {"type": "AdamW", "params": {"lr": "auto"}}, "zero_optimization": {"stage": 2}}'


@pytest.mark.parametrize(
    ("made", "line", "config", "words"),
    [
        (MADE, "arguments.learning_rate = 1e-4\n", AUTO, ["sets learning_rate", "with 5e-05 by then: DeepSpeed does not use 0.0001."]),
        (MADE, "arguments.per_device_train_batch_size = 2\n", AUTO, ["with 8 by then: DeepSpeed does not use 2."]),
        (PARSED, "arguments.learning_rate = 1e-4\n", AUTO, ["with 3e-05 by then"]),
        (PARSED, "arguments.learning_rate = 3e-5\n", AUTO, []),
        (MADE, "arguments.learning_rate = 5e-5\n", AUTO, []),
        (MADE, "arguments.learning_rate = rate\n", AUTO, []),
        (MADE, "arguments.logging_steps = 5\n", AUTO, []),
        (MADE, "arguments.weight_decay = 0.1\n", AUTO, []),
        (MADE, "arguments.learning_rate = 1e-4\n", AUTO.replace('"params": {"lr": "auto"}', '"params": {"lr": 5e-5}'), []),
        (MADE.replace("'ds.json'", "'ds.json', auto_find_batch_size=True"), "arguments.learning_rate = 1e-4\n", AUTO, []),
        (MADE.replace("'ds.json'", "'ds.json', learning_rate=1e-4"), "", AUTO, []),
        (MADE, "arguments.learning_rate = 1e-4\narguments.__post_init__()\n", AUTO, []),
    ],
)
def test_what_comes_too_late(folder: Folder, made: str, line: str, config: str, words: list[str]) -> None:
    run = "deepspeed train.py --output_dir out --learning_rate 3e-5 --deepspeed ds.json\n" if made == PARSED else "deepspeed train.py\n"
    folder.write({"train.py": PROGRAM.format(made, line), "ds.json": config, "run.sh": run})
    found = [one.message for one in folder.diagnostics("run.sh") if one.code == "DS908"]
    assert len(found) == bool(words)
    assert all(word in found[0] for word in words)
