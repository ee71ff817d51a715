"""The rows of data that a training file names decide the number of steps, if all of them can be counted."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

from dslint.cli import cli
from tests.setup.folder import Folder

_TRL = (
    "model_name_or_path: m\noutput_dir: out\nper_device_train_batch_size: 2\nlearning_rate: 1.0e-4\ndeepspeed: ds.json\nnum_processes: 2\n"
)
_AXOLOTL = (
    "base_model: m\nsequence_len: 64\nmicro_batch_size: 1\ngradient_accumulation_steps: 2\nlearning_rate: 1.0e-4\ndeepspeed: ds.json\n"
)
_PINS = "transformers==5.16.1\ntrl==1.16.0\naxolotl==0.19.0\ndeepspeed==0.19.8\n"


def _config(kind: str, **params: object) -> str:
    return json.dumps(
        {
            "train_batch_size": "auto",
            "train_micro_batch_size_per_gpu": "auto",
            "gradient_accumulation_steps": "auto",
            "bf16": {"enabled": "auto"},
            "zero_optimization": {"stage": 2},
            "scheduler": {"type": kind, "params": {"warmup_min_lr": 0, "warmup_max_lr": "auto", **params}},
        }
    )


_LINES = '{"text": "a"}\n\n' * 10


@pytest.mark.parametrize(
    ("more", "data", "severities"),
    [
        ("datasets: [{path: json, data_files: rows.jsonl}]\n", _LINES, ["error"]),
        ("datasets: [{path: json, data_files: rows.jsonl}]\n", json.dumps([{"text": "a"}] * 10), ["error"]),
        ("datasets: [{path: json, data_files: rows.jsonl}, {path: d}]\n", _LINES, ["warning"]),
        ("datasets: [{path: json, data_files: rows.jsonl}]\npacking: true\n", _LINES, ["error"]),
        ("datasets: [{path: json, data_files: rows.jsonl}]\npacking: true\n", _LINES * 4, ["warning"]),
        ("datasets: [{path: json, data_files: rows.jsonl}]\ntest_split_size: 0.2\n", _LINES * 4, ["warning"]),
        ("datasets: [{path: json, data_files: rows.jsonl, split: 'train[:5]'}]\n", _LINES, ["warning"]),
        ("datasets: [{path: json, data_files: others.jsonl}]\n", _LINES, ["warning"]),
        ("datasets: [{path: json, data_files: rows.jsonl}]\n", "[", ["warning"]),
        ("dataset_name: d\n", _LINES, ["warning"]),
    ],
)
def test_trl_compares_the_steps_with_the_rows(folder: Folder, more: str, data: str, severities: list[str]) -> None:
    config = _config("WarmupDecayLR", warmup_num_steps=2, total_num_steps=100)
    folder.write({"run.sh": "trl sft --config train.yaml\n", "ds.json": config, "train.yaml": _TRL + more, "rows.jsonl": data})
    found = checked(folder)
    assert [one["severity"] for one in found if "total_num_steps" in one["message"]] == severities
    steps = [one["message"] for one in found if one["code"] == "DS904" and "total_num_steps" in one["message"]]
    assert all("but 9 from train.yaml" in one for one in steps)  # 10 rows, 2 ranks, 3 epochs


_LLAMA_FACTORY = (
    "model_name_or_path: m\nstage: sft\ndo_train: true\nfinetuning_type: full\ntemplate: default\ndataset: mine\noutput_dir: out\n"
    "per_device_train_batch_size: 2\nlearning_rate: 1.0e-4\nwarmup_steps: 2\ndeepspeed: ds.json\n"
)


@pytest.mark.parametrize(
    ("more", "entry", "severity"),
    [
        ("", {"file_name": "rows.json", "formatting": "alpaca"}, "error"),
        ("dataset_dir: data\n", {"file_name": "rows.json"}, "error"),
        ("dataset_dir: elsewhere\n", {"file_name": "rows.json"}, "warning"),
        ("max_samples: 5\nnum_train_epochs: 11\n", {"file_name": "rows.json"}, "warning"),
        ("packing: true\n", {"file_name": "rows.json"}, "error"),
        ("packing: true\nnum_train_epochs: 11\n", {"file_name": "rows.json"}, "warning"),
        ("", {"file_name": "rows.json", "num_samples": 5}, "warning"),
        ("", {"hf_hub_url": "someone/data"}, "warning"),
    ],
)
def test_llama_factory_finds_its_data_in_a_list(folder: Folder, more: str, entry: dict[str, object], severity: str) -> None:
    config = _config("WarmupDecayLR", warmup_num_steps=2, total_num_steps=100)
    folder.write({"run.sh": "FORCE_TORCHRUN=1 NPROC_PER_NODE=2 llamafactory-cli train train.yaml\n", "ds.json": config})
    folder.write({"data/dataset_info.json": json.dumps({"mine": entry}), "data/rows.json": json.dumps([{"instruction": "a"}] * 10)})
    folder.write({"train.yaml": _LLAMA_FACTORY + more})
    assert [one["severity"] for one in checked(folder) if "total_num_steps" in one["message"]] == [severity]


def test_a_row_of_grpo_is_trained_several_times(folder: Folder) -> None:
    config = _config("WarmupDecayLR", warmup_num_steps=2, total_num_steps=100)
    train = _TRL + "datasets: [{path: json, data_files: rows.jsonl}]\n"
    folder.write({"run.sh": "trl grpo --config train.yaml\n", "ds.json": config, "train.yaml": train, "rows.jsonl": _LINES})
    assert [one["severity"] for one in checked(folder) if one["code"] == "DS909"] == ["warning"]


def test_show_counts_the_steps_of_trl(folder: Folder) -> None:
    config = _config("WarmupDecayLR", warmup_num_steps="auto", total_num_steps="auto")
    train = _TRL + "warmup_steps: 0.5\ndatasets: [{path: json, data_files: rows.jsonl}]\n"
    folder.write({"run.sh": "trl sft --config train.yaml\n", "ds.json": config, "train.yaml": train, "rows.jsonl": _LINES})
    folder.write({"requirements.txt": _PINS})
    shown = json.loads(CliRunner().invoke(cli, ["show", "run.sh", "--output-format", "json"]).stdout)["keys"]
    values = {one["path"][-1]: one["value"] for one in shown if one["path"][:2] == ["scheduler", "params"]}
    assert (values["total_num_steps"], values["warmup_num_steps"]) == (9, 5)


@pytest.mark.parametrize(("more", "severity"), [("", "error"), ("num_epochs: 30\n", "warning")])
def test_axolotl_trains_no_more_samples_than_rows(folder: Folder, more: str, severity: str) -> None:
    data = "datasets: [{path: rows.jsonl, type: chat_template}]\nwarmup_steps: 2\n"
    folder.write({"run.sh": "axolotl train train.yaml\n", "ds.json": _config("WarmupDecayLR", warmup_num_steps=2, total_num_steps=100)})
    folder.write({"train.yaml": _AXOLOTL + data + more, "rows.jsonl": _LINES})
    assert [one["severity"] for one in checked(folder) if one["code"] == "DS909"] == [severity]


@pytest.mark.parametrize(
    ("kind", "more", "rows", "raises"),
    [
        ("chat_template", "", 10, True),
        ("chat_template", "", 66, True),
        ("chat_template", "", 68, False),
        ("chat_template", "num_epochs: 3\n", 66, False),
        ("chat_template", "max_steps: 30\n", 1000, True),
        ("chat_template", "warmup_steps: 0\n", 1000, True),
        ("completion", "warmup_steps: 0\nwarmup_ratio: 0.5\n", 1000, True),
        ("completion", "warmup_steps: 5\n", 1000, False),
        ("chat_template", "warmup_ratio: 0.1\n", 10, True),
        ("chat_template", "warmup_ratio: 0.5\n", 10, False),
        ("chat_template", "sample_packing: true\n", 10, True),
        ("chat_template", "sample_packing: true\n", 66, True),
        ("chat_template", "sample_packing: true\nnum_epochs: 34\n", 1, False),
        ("chat_template", "sample_packing: true\nsample_packing_eff_est: 0.1\n", 10, False),
        ("completion", "", 10, False),
    ],
)
def test_axolotl_warms_up_for_no_step_of_few_rows(folder: Folder, kind: str, more: str, rows: int, *, raises: bool) -> None:
    data = f"datasets: [{{path: rows.jsonl, type: {kind}}}]\n"
    folder.write({"run.sh": "axolotl train train.yaml\n", "ds.json": _config("WarmupLR", warmup_num_steps="auto")})
    folder.write({"train.yaml": _AXOLOTL + data + more, "rows.jsonl": '{"text": "a"}\n' * rows})
    assert ("DS931" in [one["code"] for one in checked(folder) if one["severity"] == "error"]) is raises


@pytest.mark.parametrize(
    ("more", "rows", "raises"),
    [
        ("dataloader_drop_last: true\n", 7, True),
        ("dataloader_drop_last: true\n", 8, False),
        ("dataloader_drop_last: true\ntest_split_size: 0.5\n", 7, True),
        ("dataloader_drop_last: true\nmax_steps: 10\n", 7, False),
        ("dataloader_drop_last: true\ndataset_streaming: true\n", 7, False),
        ("dataloader_drop_last: false\n", 7, False),
        ("", 1, False),
    ],
)
def test_rows_that_make_no_whole_batch_are_dropped(folder: Folder, more: str, rows: int, *, raises: bool) -> None:
    data = "datasets: [{path: json, data_files: rows.jsonl}]\nmax_grad_norm: 0.5\nbf16: true\n"
    config = '{"train_batch_size": "auto", "gradient_clipping": 0.1, "bf16": {"enabled": "auto"}, "zero_optimization": {"stage": 2}}'
    train = _TRL.replace("num_processes: 2", "num_processes: 4") + data + more
    folder.write(
        {"run.sh": "trl sft --config train.yaml\n", "ds.json": config, "train.yaml": train, "rows.jsonl": '{"text": "a"}\n' * rows}
    )
    found = sorted((one for one in checked(folder) if one["severity"] == "error"), key=lambda one: one["order"])
    assert [one["code"] for one in found] == (["DS975", "DS904"] if raises else ["DS904"])


def test_a_program_drops_rows_that_make_no_whole_batch(folder: Folder) -> None:
    program = _PROGRAM.replace("{data}", "[{'input_ids': [1]}] * 3").replace("{trainer}", "Trainer")
    found = _of_program(folder, program, "--dataloader_drop_last True", code="DS975")
    assert ["3 rows make no whole batch of 2 for each of 2 ranks" in one["message"] for one in found] == [True]


_PROGRAM = """
import json
import torch
from datasets import Dataset, load_dataset
from transformers import HfArgumentParser, Trainer, TrainingArguments

class Rows(torch.utils.data.Dataset):
    def __init__(self, count):
        self.count = count
    def __len__(self):
        return self.count

class Mine(Trainer):
    def compute_loss(self, model, inputs):
        return 0

class Longer(Trainer):
    def get_train_dataloader(self):
        return []

(args,) = HfArgumentParser(TrainingArguments).parse_args_into_dataclasses()
data = {data}
trainer = {trainer}(model=model, args=args, train_dataset=data)
trainer.train()
"""
_FLAGS = "--output_dir out --per_device_train_batch_size 2 --gradient_accumulation_steps 2 --num_train_epochs 2 --deepspeed ds.json"


@pytest.mark.parametrize(
    ("data", "more", "steps"),
    [
        ("[{'input_ids': [1]}] * 64", "", 16),
        ("[{'input_ids': [1]}] * 100000", "", 25000),
        ("[{'input_ids': [one]} for one in range(64)]", "", 16),
        ("[{'input_ids': [one]} for one in range(30) if one]", "", 8),
        ("[{'input_ids': [one]} for one in range(64) if one % 2]", "", None),
        ("list(range(1000))", "", 250),
        ("Rows(65)", "", 18),
        ("Rows(65)", "--dataloader_drop_last True", 16),
        ("Rows(len([1] * 64))", "", 16),
        ("Rows(int(input()))", "", None),
        ("Rows(900)", "--auto_find_batch_size True", None),
        ("Dataset.from_dict({'text': ['a'] * 64})", "", 16),
        ("Dataset.from_list([{'text': 'a'}] * 64).map(tokenize).shuffle()", "", 16),
        ("Dataset.from_list([{'text': 'a'}] * 64).map(tokenize, batched=True)", "", None),
        ("Dataset.from_list([{'text': 'a'}] * 64).filter(len)", "", None),
        ("Dataset.from_list([{'text': 'a'}] * 64).select(range(50))", "", 14),
        ("load_dataset('json', data_files='rows.jsonl', split='train')", "", 4),
        ("load_dataset('json', data_files='rows.jsonl')['train']", "", 4),
        ("load_dataset('json', data_files={'train': 'rows.jsonl', 'test': 'no.jsonl'})['train']", "", 4),
        ("load_dataset('json', data_files='rows.jsonl', split='train[:5]')", "", None),
        ("load_dataset('json', data_files='no.jsonl', split='train')", "", None),
        ("load_dataset('someone/data', split='train')", "", None),
        ("load_dataset('json', data_files='deep.json', split='train')", "", None),
        ("json.load(open('rows.json'))", "", 6),
    ],
)
def test_the_data_of_a_program_decide_the_steps(folder: Folder, data: str, more: str, steps: int | None) -> None:
    found = _of_program(folder, _PROGRAM.replace("{data}", data).replace("{trainer}", "Trainer"), more)
    said = f"hf num_training_steps (calculated)={steps}" if steps is not None else "(calculated)=..."
    assert [("error" if steps is not None else "warning", True)] == [(one["severity"], said in one["message"]) for one in found]


@pytest.mark.parametrize(("trainer", "severity"), [("Mine", "error"), ("Longer", "warning")])
def test_a_class_of_the_project_may_train_other_steps(folder: Folder, trainer: str, severity: str) -> None:
    found = _of_program(folder, _PROGRAM.replace("{data}", "Rows(64)").replace("{trainer}", trainer))
    assert [one["severity"] for one in found] == [severity]


def test_several_trainers_leave_the_steps_open(folder: Folder) -> None:
    program = _PROGRAM.replace("{data}", "Rows(64)").replace("{trainer}", "Trainer")
    found = _of_program(folder, f"{program}Trainer(model=model, args=args, train_dataset=Rows(9)).train()\n")
    assert [one["severity"] for one in found] == ["warning"]


def _of_program(folder: Folder, program: str, more: str = "", code: str = "") -> list[dict[str, str]]:
    """The findings about the number of steps of a program, or those of a rule."""
    config = _config("WarmupDecayLR", warmup_num_steps=2, total_num_steps=777)
    folder.write({"run.sh": f"torchrun --nproc_per_node 2 train.py {_FLAGS} {more}\n", "ds.json": config, "train.py": program})
    folder.write({"deep.json": "[" * 100_000, "rows.jsonl": _LINES + '{"text": "b"}\n' * 6, "rows.json": json.dumps([{"text": "a"}] * 23)})
    if code:
        return [one for one in checked(folder) if one["code"] == code]
    return [one for one in checked(folder) if one["code"] in ("DS904", "DS909") and "total_num_steps" in one["message"]]


def checked(folder: Folder) -> list[dict[str, str]]:
    """The findings of the script."""
    folder.write({"requirements.txt": _PINS})
    found: list[dict[str, str]] = json.loads(CliRunner().invoke(cli, ["check", "run.sh", "--output-format", "json"]).output)["diagnostics"]
    return found
