"""Pins of two libraries that do not fit each other."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

from dslint.cli import cli
from dslint.facts import Release
from dslint.rules.helpers.library_pairs import PAIRS, LibraryPair
from tests.setup.folder import Folder

TRAINER = (
    "from transformers import AutoModelForCausalLM, HfArgumentParser, Trainer, TrainingArguments\n"
    "arguments, = HfArgumentParser(TrainingArguments).parse_args_into_dataclasses()\n"
    'Trainer(AutoModelForCausalLM.from_pretrained("m"), arguments).train()\n'
)
CONFIG = '{"train_micro_batch_size_per_gpu": "auto", "gradient_accumulation_steps": "auto", "zero_optimization": {"stage": 2}}'


ADAPTED = (
    "from peft import LoraConfig, get_peft_model\nfrom transformers import AutoModelForCausalLM, HfArgumentParser, Trainer, TrainingArguments\n"
    "arguments, = HfArgumentParser(TrainingArguments).parse_args_into_dataclasses()\n"
    'model = get_peft_model(AutoModelForCausalLM.from_pretrained("m"), LoraConfig(r=8))\nTrainer(model, arguments).train()\n'
)
"""A program of the Trainer with an adapter, which has no weights without decay."""


def program_of(pair: LibraryPair) -> str:
    """A program that uses what the pair is about."""
    if pair.package == "trl":
        kind = next((kind for kind in ("Reward", "GRPO") if kind in pair.error), "DPO")
        return TRAINER.replace("\n", f"\nfrom trl import {kind}Trainer\n", 1).replace("\nTrainer(", f"\n{kind}Trainer(")
    return ADAPTED if "adapter" in pair.error else TRAINER


def errors(folder: Folder, pair: LibraryPair, one: Release, other: Release) -> list[str]:
    folder.write({"ds.json": CONFIG, "train.py": program_of(pair)})
    folder.write(
        {"run.sh": "deepspeed --num_gpus 2 train.py --deepspeed ds.json --output_dir out --resume_from_checkpoint out/checkpoint-10\n"}
    )
    folder.write({"requirements.txt": f"{pair.package}=={one}\n{pair.other}=={other}\n"})
    found = json.loads(CliRunner().invoke(cli, ["check", ".", "--output-format", "json"]).stdout)["diagnostics"]
    return [
        d["severity"]
        for d in found
        if d["code"] == "DS986" and f"{pair.package} {one} with {pair.other} {other}: {pair.error}" in d["message"]
    ]


@pytest.mark.parametrize("pair", PAIRS, ids=lambda pair: f"{pair.package}-{pair.first}-{pair.other}")
def test_the_limits_of_a_pair(folder: Folder, pair: LibraryPair) -> None:
    limits = [limit for limit in (pair.other_first, pair.other_last) if limit is not None]
    for one in (pair.first, pair.last):
        for other in limits:
            assert errors(folder, pair, one, other) == ["error"]
    if pair.other_first is not None:
        major, minor, _ = (int(part) for part in str(pair.other_first).split("."))
        below = Release(major, minor - 1, 0) if minor else Release(major - 1, 99, 0)
        assert errors(folder, pair, pair.last, below) == []
    if pair.other_last is not None:
        last = [int(part) for part in str(pair.other_last).split(".")]
        assert errors(folder, pair, pair.last, Release(last[0], last[1], last[2] + 9)) == []


@pytest.mark.parametrize(("pin", "codes"), [("4.31.0", ["DS986"]), ("4.28.0.dev0", [])])
def test_pins_of_another_release_than_the_given_one_prove_nothing(folder: Folder, pin: str, codes: list[str]) -> None:
    folder.write(
        {"ds.json": CONFIG, "train.py": TRAINER, "run.sh": "deepspeed --num_gpus 2 train.py --deepspeed ds.json --output_dir out\n"}
    )
    folder.write({"requirements.txt": f"transformers=={pin}\naccelerate==0.18.0\n"})
    options = ["check", ".", "--integration", "transformers==4.31.0", "--output-format", "json"]
    found = json.loads(CliRunner().invoke(cli, options).stdout)["diagnostics"]
    assert [d["code"] for d in found if d["code"] == "DS986"] == codes


@pytest.mark.parametrize(
    ("transformers", "deepspeed", "severities"),
    [
        ("==4.42.4", "==0.15.0", ["error"]),
        ("==4.42.4", ">=0.15.0", ["error"]),
        (">=4.38,<4.45", "==0.16.3", ["error"]),
        ("<=4.44.2", "", ["warning"]),
        ("==4.42.4", ">=0.9", ["warning"]),
        ("==4.42.4", ">=0.9,<0.15", []),
        ("==4.42.4", "==0.14.5", []),
        (">=4.38", "==0.16.3", []),
        (">=4.45,<5", "==0.16.3", []),
        ("", "==0.16.3", []),
        ("==4.25.1", "==0.8.3", []),
        ("==4.25.1", "<0.9", []),
        ("==4.25.1", ">=0.8.3", ["warning"]),
    ],
)
def test_a_fractional_bucket_size_by_what_the_project_allows(
    folder: Folder, transformers: str, deepspeed: str, severities: list[str]
) -> None:
    filled = '{"train_micro_batch_size_per_gpu": "auto", "zero_optimization": {"stage": 3, "stage3_prefetch_bucket_size": "auto"}}'
    folder.write({"ds.json": filled, "train.py": TRAINER, "m/config.json": '{"model_type": "llama", "hidden_size": 4096}'})
    folder.write({"run.sh": "deepspeed --num_gpus 2 train.py --deepspeed ds.json --output_dir out\n"})
    folder.write({"requirements.txt": f"transformers{transformers}\ndeepspeed{deepspeed}\n"})
    found = json.loads(CliRunner().invoke(cli, ["check", ".", "--output-format", "json"]).stdout)["diagnostics"]
    assert [d["severity"] for d in found if d["code"] == "DS932"] == severities


@pytest.mark.parametrize(
    ("options", "severities"), [(["--deepspeed", "0.15.0"], ["error"]), (["--deepspeed", "0.14.5"], []), ([], ["warning"])]
)
def test_a_fractional_bucket_size_where_the_project_names_no_deepspeed(folder: Folder, options: list[str], severities: list[str]) -> None:
    filled = '{"train_micro_batch_size_per_gpu": "auto", "zero_optimization": {"stage": 3, "stage3_prefetch_bucket_size": "auto"}}'
    folder.write({"ds.json": filled, "train.py": TRAINER, "m/config.json": '{"model_type": "llama", "hidden_size": 4096}'})
    folder.write({"run.sh": "deepspeed --num_gpus 2 train.py --deepspeed ds.json --output_dir out\n"})
    folder.write({"requirements.txt": "transformers>=4.40.1,<=4.42.3\n"})
    options = ["check", ".", *options, "--output-format", "json"]
    found = json.loads(CliRunner().invoke(cli, options).stdout)["diagnostics"]
    assert [d["severity"] for d in found if d["code"] == "DS932"] == severities


_COPY = (
    "from transformers import Trainer\nfrom transformers.deepspeed import deepspeed_init, is_deepspeed_zero3_enabled\n"
    "class OwnTrainer(Trainer):\n    def _inner_training_loop(self, max_steps, resume_from_checkpoint=None):\n"
    "        engine, optimizer, scheduler = deepspeed_init(\n            self, num_training_steps=int(max_steps){}\n        )\n"
)


@pytest.mark.parametrize(
    ("pin", "argument", "imported", "found"),
    [
        ("4.30.2", ", resume_from_checkpoint=resume_from_checkpoint", True, True),
        ("4.29.2", ", resume_from_checkpoint=resume_from_checkpoint", True, False),
        ("4.30.2", "", True, False),
        ("4.30.2", ", resume_from_checkpoint=resume_from_checkpoint", False, False),
    ],
)
def test_a_copy_of_an_older_trainer(folder: Folder, pin: str, argument: str, imported: bool, found: bool) -> None:
    program = TRAINER.replace("\n", "\nfrom seq2seq import OwnTrainer\n", 1) if imported else TRAINER
    folder.write({"ds.json": CONFIG, "train.py": program, "seq2seq.py": "from own_trainer import OwnTrainer\n"})
    folder.write({"own_trainer.py": _COPY.format(argument), "requirements.txt": f"transformers=={pin}\n"})
    folder.write({"run.sh": "deepspeed --num_gpus 2 train.py --deepspeed ds.json --output_dir out\n"})
    diagnostics = json.loads(CliRunner().invoke(cli, ["check", ".", "--output-format", "json"]).stdout)["diagnostics"]
    assert any(d["code"] == "DS986" and "(own_trainer.py:5)" in d["message"] for d in diagnostics) is found


@pytest.mark.parametrize(
    "branch",
    [
        "# {}\n",
        "if is_old_version(version):\n            if self.args.deepspeed:\n                {}\n",
        "if 'resume' in signature(deepspeed_init):\n            {}\n",
        "if is_old_version(version):\n            {}\n",
        "if False:\n            {}\n",
        "try:\n            {}\n        except TypeError:\n            pass\n",
    ],
)
def test_a_trainer_that_calls_deepspeed_init_by_the_release(folder: Folder, branch: str) -> None:
    call = "deepspeed_init(self, num_training_steps=1, resume_from_checkpoint=None)"
    text = _COPY.format("") + "        " + branch.format(call)
    folder.write(
        {"ds.json": CONFIG, "train.py": TRAINER.replace("\n", "\nfrom own_trainer import OwnTrainer\n", 1), "own_trainer.py": text}
    )
    folder.write(
        {"run.sh": "deepspeed --num_gpus 2 train.py --deepspeed ds.json --output_dir out\n", "requirements.txt": "transformers==4.30.2\n"}
    )
    diagnostics = json.loads(CliRunner().invoke(cli, ["check", ".", "--output-format", "json"]).stdout)["diagnostics"]
    assert not [d for d in diagnostics if d["code"] == "DS986"]


@pytest.mark.parametrize(
    "line", ["from own.train.trainer import OwnTrainer", "from own.train import trainer", "import own.train.trainer as t"]
)
def test_a_copy_of_an_older_trainer_that_another_folder_imports(folder: Folder, line: str) -> None:
    call = _COPY.format(", resume_from_checkpoint=resume_from_checkpoint")
    folder.write({"own/train/trainer.py": call, "own/__init__.py": "", "own/train/__init__.py": ""})
    folder.write({"train.py": TRAINER.replace("\n", f"\n{line}\n", 1), "ds.json": CONFIG, "requirements.txt": "transformers==4.45.2\n"})
    folder.write({"run.sh": "deepspeed --num_gpus 2 train.py --deepspeed ds.json --output_dir out\n"})
    diagnostics = json.loads(CliRunner().invoke(cli, ["check", ".", "--output-format", "json"]).stdout)["diagnostics"]
    assert [d for d in diagnostics if d["code"] == "DS986"]


def test_a_copy_of_an_older_trainer_in_another_folder(folder: Folder) -> None:
    call = _COPY.format(", resume_from_checkpoint=resume_from_checkpoint")
    folder.write({"old/trainer.py": call, "new/trainer.py": "from transformers import Trainer\nclass OwnTrainer(Trainer):\n    pass\n"})
    program = TRAINER.replace("\n", "\nfrom trainer import OwnTrainer\n", 1)
    folder.write({"new/train.py": program, "new/ds.json": CONFIG, "requirements.txt": "transformers==4.45.2\n"})
    folder.write({"new/run.sh": "deepspeed --num_gpus 2 train.py --deepspeed ds.json --output_dir out\n"})
    diagnostics = json.loads(CliRunner().invoke(cli, ["check", ".", "--output-format", "json"]).stdout)["diagnostics"]
    assert not [d for d in diagnostics if d["code"] == "DS986"]


@pytest.mark.parametrize(
    "files",
    [
        {"run.yaml": "experiment:\n  deepspeed_config: ds.json\n"},
        {"run.yaml": "experiment:\n  deepspeed_config: ds.json\n", "train.py": "from accelerate import Accelerator\nmain = Accelerator\n"},
        {"launch.sh": "torchrun --nproc_per_node 8 pretrain.py --ds ds.json\n", "pretrain.py": "import deepspeed, sys\nrun(sys.argv)\n"},
    ],
    ids=("section", "accelerate", "own program"),
)
def test_only_auto_shows_no_trainer(folder: Folder, files: dict[str, str]) -> None:
    """Accelerate alone fills "auto", too: what the Trainer requires is no matter there."""
    folder.write({**files, "ds.json": CONFIG, "requirements.txt": "transformers==4.51.0\naccelerate==0.21.0\ndeepspeed==0.14.2\n"})
    found = json.loads(CliRunner().invoke(cli, ["check", ".", "--output-format", "json"]).stdout)["diagnostics"]
    messages = {d["code"]: d["message"] for d in found}
    assert "DS986" not in messages
    assert "under the Hugging Face Trainer" not in messages["DS632"]
