"""What the rules find certainly in the config of a job comes before texts that hold for any program."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from dslint.cli.diagnose import command

ERROR = "ZeroDivisionError: float floor division by zero"
INFO = "[2026-11-01 10:00:00,000] [INFO] [logging.py:107:log_dist] [Rank 0] DeepSpeed info: version=0.19.5, git-hash=unknown, git-branch=unknown"


def _diagnosed(folder: Path, log: str, bucket: float) -> str:
    zero = {"stage": 2, "reduce_bucket_size": bucket}
    config = {"train_micro_batch_size_per_gpu": 1, "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}}, "zero_optimization": zero}
    (folder / "ds.json").write_text(json.dumps(config), encoding="utf-8")
    (folder / "job.log").write_text(f"{log}\n", encoding="utf-8")
    result = CliRunner().invoke(command, [str(folder / "job.log"), "--config", str(folder / "ds.json")])
    return " ".join(result.stdout.split())


@pytest.mark.parametrize("log", [ERROR, f"{INFO}\n{ERROR}"])
def test_a_crash_of_the_config_takes_the_place_of_a_general_text(tmp_path: Path, log: str) -> None:
    """Without a release in the log, it is the newest one that raises the error: later ones refuse the value."""
    found = _diagnosed(tmp_path, log, 0)
    assert "reduce_bucket_size is 0: the first backward pass of DeepSpeed 0.19.5 raises" in found.partition("What to do")[0]
    assert "data loader" not in found
    assert "DS106" not in found


def test_the_check_of_the_config_is_not_advised_where_it_has_run(tmp_path: Path) -> None:
    found = _diagnosed(tmp_path, ERROR, 5e8)
    assert "data loader" in found
    assert "Run `dslint check .` in the project: in the config alone, rules about this error find nothing (DS443)." in found


def test_a_mismatch_names_both_sides(tmp_path: Path) -> None:
    text = "ValueError: - ds gradient_accumulation_steps=4 vs hf gradient_accumulation_steps=2"
    assert "gradient_accumulation_steps is 4 in the config, and gradient_accumulation_steps of the arguments is 2" in _diagnosed(
        tmp_path, text, 5e8
    )


def test_a_host_without_ssh_may_be_the_own_machine(tmp_path: Path) -> None:
    text = "Command 'ssh -o PasswordAuthentication=no 10.0.0.1 hostname' returned non-zero exit status 255."
    assert "log in to a machine of the hostfile, 10.0.0.1, through ssh" in _diagnosed(tmp_path, text, 5e8)


RUN = "deepspeed --num_gpus 2 \\ \n    train.py --deepspeed ds.json\n"


def test_what_is_found_in_the_launch_script_is_the_cause(tmp_path: Path) -> None:
    """A blank behind a backslash: the launcher gets no program."""
    (tmp_path / "run.sh").write_text(RUN, encoding="utf-8")
    (tmp_path / "train.py").write_text("import deepspeed\n", encoding="utf-8")
    (tmp_path / "ds.json").write_text('{"train_micro_batch_size_per_gpu": 1}', encoding="utf-8")
    (tmp_path / "job.log").write_text("launch.py: error: the following arguments are required: training_script\n", encoding="utf-8")
    found = CliRunner().invoke(command, [str(tmp_path / "job.log"), "--program", str(tmp_path / "run.sh")]).stdout
    words = " ".join(found.split())
    assert "bash starts deepspeed without" in words.partition("What to do")[0]  # though the script leads to no config
    assert "1. Remove the blank." in words


def test_a_release_that_dslint_does_not_know_has_no_defects_of_another(tmp_path: Path) -> None:
    """DeepSpeed 0.8.3 is judged as 0.9.0, whose own defect is not its."""
    (tmp_path / "train.py").write_text(
        "from transformers import Trainer, TrainingArguments\n"
        'Trainer(model, TrainingArguments("out", deepspeed="ds.json", per_device_train_batch_size=1)).train()\n',
        encoding="utf-8",
    )
    (tmp_path / "ds.json").write_text('{"train_batch_size": "auto", "zero_optimization": {"stage": 2}}', encoding="utf-8")
    (tmp_path / "job.log").write_text("ValueError: no\n", encoding="utf-8")
    said = {}
    for pin in ("0.9.0", "0.8.3"):
        (tmp_path / "requirements.txt").write_text(f"deepspeed=={pin}\n", encoding="utf-8")
        options = [str(tmp_path / "job.log"), "--program", str(tmp_path / "train.py"), "--world-size", "8"]
        said[pin] = "DS952" in CliRunner().invoke(command, options).stdout
    assert said == {"0.9.0": True, "0.8.3": False}
