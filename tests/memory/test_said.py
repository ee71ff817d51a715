"""What an estimate says of a job is what its files say, and no more."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.command import dslint

HALF = {"train_micro_batch_size_per_gpu": 1, "bf16": {"enabled": True}}


def words(*arguments: str, folder: Path) -> str:
    """The output of a command in one line."""
    done = dslint(*arguments, "--isolated", cwd=folder)
    return " ".join((done.stdout + done.stderr).split())


def write(folder: Path, stage: int = 2, program: str = "", launch: str = "", **more: Any) -> None:
    (folder / "ds.json").write_text(json.dumps({**HALF, "zero_optimization": {"stage": stage}, **more}), encoding="utf-8")
    if program:
        (folder / "train.py").write_text(program, encoding="utf-8")
    if launch:
        (folder / "run.sh").write_text(launch, encoding="utf-8")


@pytest.mark.parametrize(
    ("given", "options", "expected"),
    [
        ("7.07e9", (), " 7.07B parameters 1 rank"),
        ("6738415616", (), " 6,738,415,616 parameters 1 rank"),
        ("125M", (), " 125M parameters 1 rank"),
        ("7.07e9", ("--lora-rank", "8"), "7.07B parameters with LoRA of rank 8: about 7.09B parameters, about 20.4M of them trained"),
    ],
)
def test_a_number_of_parameters_is_printed_as_it_was_given(tmp_path: Path, given: str, options: tuple[str, ...], expected: str) -> None:
    """The model that stands for it has other digits."""
    write(tmp_path)
    assert expected in words("estimate", "ds.json", "--params", given, "--world-size", "1", *options, folder=tmp_path)


def test_a_check_prints_the_number_of_parameters_as_it_was_given(tmp_path: Path) -> None:
    write(tmp_path, zero_optimization={"stage": 2, "offload_optimizer": {"device": "cpu"}})
    options = ("--params", "7.07e9", "--world-size", "1", "--host-memory", "64GiB")
    assert "(7.07B parameters x 18 bytes" in words("check", "ds.json", *options, folder=tmp_path)


_PLAIN = (
    "import argparse\nimport deepspeed\nimport torch\nfrom transformers import Adafactor\nparser = argparse.ArgumentParser()\n"
    "parser.add_argument('--local_rank', type=int)\nparser.add_argument('--optimizer', default='adamw')\n"
    "parser = deepspeed.add_config_arguments(parser)\nargs = parser.parse_args()\noptimizer = %s\n"
    "engine, *_ = deepspeed.initialize(args=args, model=model, optimizer=optimizer)\n"
    "for batch in loader:\n    engine.backward(engine(batch))\n    engine.step()\n"
)
_LAUNCH = "deepspeed --num_gpus 8 train.py --deepspeed --deepspeed_config ds.json%s\n"
_TRAINER = (
    "from transformers import HfArgumentParser, Trainer, TrainingArguments\nargs, = HfArgumentParser(TrainingArguments).parse_args_into_dataclasses()\n"
    "Trainer(model, args, train_dataset=data).train()\n"
)
_TRAINS = "deepspeed --num_gpus 8 train.py --deepspeed ds.json --output_dir o --bf16 True --per_device_train_batch_size 1%s\n"
_OWN = {"optimizer": {"type": "AdamW", "params": {"lr": 1e-5}}}


@pytest.mark.parametrize(
    ("program", "launch", "more", "name", "why"),
    [
        (_PLAIN % "torch.optim.SGD(model.parameters(), lr=1e-3)", _LAUNCH % "", {}, "sgd", "--optimizer is sgd, from train.py:10"),
        (_PLAIN % "torch.optim.SGD(p, lr=1e-3, momentum=0.9)", _LAUNCH % "", {}, "sgd", "from train.py:10, with momentum"),
        (_PLAIN % "Adafactor(model.parameters())", _LAUNCH % "", {}, "adafactor", "--optimizer is adafactor, from train.py:10"),
        (_PLAIN % "torch.optim.AdamW(model.parameters())", _LAUNCH % "", {}, "torch_adamw", "--optimizer is torch_adamw, from train.py:10"),
        (_PLAIN % "build(args)", _LAUNCH % "", {}, "adamw", "the program's optimizer build (train.py:11) counts as AdamW"),
        (_PLAIN % "build(args)", _LAUNCH % "", _OWN, "adamw", "the program's optimizer build (train.py:11) counts as AdamW"),
        (_TRAINER, _TRAINS % "", {}, "adamw", "two fp32 states per parameter, the default of the Trainer"),
        (_TRAINER, _TRAINS % ' --optim="adafactor"', {}, "adafactor", "--optimizer is adafactor, from run.sh:1"),
        (_TRAINER, _TRAINS % " --optim adamw_8bit", _OWN, "adamw", ""),
        (
            _TRAINER,
            _TRAINS % " --optim paged_adamw_32bit",
            {},
            "adamw",
            "the optimizer is AdamW with two fp32 states per parameter: --optim",
        ),
        (
            _TRAINER,
            _TRAINS % " --optim schedule_free_radam",
            {},
            "adamw",
            'the optimizer "schedule_free_radam" counts as AdamW, because its',
        ),
        ("", "", {}, "adamw", "the optimizer is assumed to be AdamW with two fp32 states per parameter: the config has none"),
        ("", "", {"optimizer": {"params": {}}}, "adamw", "the config has no type that is known"),
        ("", "", _OWN, "adamw", ""),
    ],
)
def test_the_optimizer_is_the_one_that_the_files_name(
    tmp_path: Path, program: str, launch: str, more: dict[str, Any], name: str, why: str
) -> None:
    write(tmp_path, 2, program, launch, **more)
    subject = ("run.sh",) if launch else ("ds.json", "--world-size", "8")
    said = words("estimate", *subject, "--params", "7e9", folder=tmp_path)
    assert f"ZeRO stage 2, 16-bit model, {name} " in said
    assert (why in said) if why else ("states per parameter" not in said and "--optimizer is" not in said), said
    assert "because the config has no optimizer" not in said
