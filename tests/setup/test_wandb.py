"""What Weights & Biases writes: sweeps and the arguments of finished runs are no files of a training."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.command import dslint

SWEEP = """\
command: ["deepspeed", "train.py", "${args}"]
method: bayes
parameters:
  learning_rate: {min: 0.000001, max: 0.00001}
  per_device_train_batch_size: {values: [1, 2]}
  output_dir: {value: out}
  num_train_epochs: {value: 1}
  deepspeed:
    value: ds_config.json
"""
RUN = "wandb_version: 1\n" + "".join(
    f"{name}:\n  desc: null\n  value: {value}\n"
    for name, value in {"output_dir": "out", "deepspeed": "ds.json", "num_train_epochs": 1, "per_device_train_batch_size": 4}.items()
)


@pytest.mark.parametrize("text", [SWEEP, RUN])
def test_their_values_are_no_config(tmp_path: Path, text: str) -> None:
    (tmp_path / "sweep.yaml").write_text(text, encoding="utf-8")
    done = dslint("check", "sweep.yaml", "--output-format", "json", cwd=tmp_path)
    (file,) = json.loads(done.stdout)["files"]
    assert json.loads(done.stdout)["diagnostics"] == []
    assert "Weights & Biases" in file["not_judged"][0]["reason"]
    (tmp_path / "ds_config.json").write_text('{"train_micro_batch_size_per_gpu": 4, "zero_optimization": {"stage": 2}}', encoding="utf-8")
    assert dslint("check", "--strict", cwd=tmp_path).returncode != 0


def test_arguments_of_the_same_form_that_a_training_reads_are_read(tmp_path: Path) -> None:
    text = "output_dir: out\nnum_train_epochs: 1\nper_device_train_batch_size: 4\ndeepspeed:\n  value: 1\n  zero_optimization: {stage: 9}\n"
    (tmp_path / "train.yaml").write_text(text, encoding="utf-8")
    assert "zero_optimization.stage" in dslint("check", "train.yaml", cwd=tmp_path).stdout


def test_the_folder_of_finished_runs_is_not_searched(tmp_path: Path) -> None:
    files = tmp_path / "wandb" / "run-20260412_101500-a1b2c3d4" / "files"
    files.mkdir(parents=True)
    for folder in (tmp_path, tmp_path / "wandb", files):
        (folder / "ds_config.json").write_text('{"train_batch_size": "8", "zero_optimization": {"stage": 2}}', encoding="utf-8")
    printed = json.loads(dslint("check", "--output-format", "json", cwd=tmp_path).stdout)
    assert {one["path"] for one in printed["diagnostics"]} == {"ds_config.json", "wandb/ds_config.json"}


@pytest.mark.parametrize(
    ("line", "made"),
    [
        ('scontrol show hostname $L | while read l; do echo "$l slots=8" >> hostfile; done', True),
        ("make_hosts | tee hostfile", True),
        ("echo > other/hostfile", False),
        ("cat hostfile.old > hosts", False),
        ("", False),
    ],
)
def test_a_hostfile_that_the_script_fills_is_not_missing(tmp_path: Path, line: str, *, made: bool) -> None:
    (tmp_path / "job.sh").write_text(f"{line}\ndeepspeed --hostfile=hostfile train.py --deepspeed ds_config.json\n", encoding="utf-8")
    (tmp_path / "ds_config.json").write_text('{"train_batch_size": "auto", "zero_optimization": {"stage": 2}}', encoding="utf-8")
    assert ("hostfile does not exist" not in dslint("check", "--pedantic", cwd=tmp_path).stdout) is made


@pytest.mark.parametrize(("name", "found"), [("./ds_config.json", []), ("other.json", ["DS925"])])
def test_a_config_that_both_files_name_is_not_passed_over(tmp_path: Path, name: str, found: list[str]) -> None:
    block = f"distributed_type: DEEPSPEED\ncompute_environment: LOCAL_MACHINE\nnum_processes: 8\ndeepspeed_config:\n  deepspeed_config_file: {name}\n"
    (tmp_path / "accelerate.yaml").write_text(block, encoding="utf-8")
    (tmp_path / "run.sh").write_text(
        "accelerate launch --config_file accelerate.yaml train.py --output_dir out --per_device_train_batch_size 4 "
        "--num_train_epochs 1 --deepspeed ds_config.json\n",
        encoding="utf-8",
    )
    for config in ("ds_config.json", "other.json"):
        text = '{"train_batch_size": "auto", "train_micro_batch_size_per_gpu": "auto", "zero_optimization": {"stage": 2}}'
        (tmp_path / config).write_text(text, encoding="utf-8")
    printed = json.loads(dslint("check", "run.sh", "--output-format", "json", cwd=tmp_path).stdout)
    assert [one["code"] for one in printed["diagnostics"] if one["code"] == "DS925"] == found
