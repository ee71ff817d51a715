"""The commands in advice name the files, the model and the GPU of the job."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.command import dslint

LOG = (
    "torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 3.14 GiB (GPU 5; 31.75 GiB total capacity; 28.28 GiB already allocated; "
    "1.95 GiB free; 28.28 GiB reserved in total by PyTorch)\n"
)
FLAGS = "--deepspeed ds.json --stage sft --do_train --finetuning_type full --output_dir o --per_device_train_batch_size 1 --bf16"


def advice(folder: Path, model: str, *options: str) -> str:
    """What is advised for a job that ran out of memory, in one line."""
    config = {"bf16": {"enabled": "auto"}, "train_micro_batch_size_per_gpu": "auto", "zero_optimization": {"stage": 2}}
    (folder / "ds.json").write_text(json.dumps(config), encoding="utf-8")
    launch = f"deepspeed --num_gpus 8 src/train_bash.py {FLAGS} --model_name_or_path {model}\n"
    (folder / "run it.sh").write_text(launch, encoding="utf-8")
    (folder / "job.log").write_text(LOG, encoding="utf-8")
    said = " ".join(dslint("diagnose", "job.log", *options, cwd=folder).stdout.split())
    return said[said.index("What to do") : said.index("What ran")]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("model", "options", "command"),
    [
        ("/data/llama-7b", ("--program", "run it.sh"), "dslint fit 'run it.sh' --gpu-memory 31.75GiB"),
        ("/data/mine", ("--program", "run it.sh"), "dslint fit 'run it.sh' --model MODEL --gpu-memory 31.75GiB"),
        ("/data/mine", ("--config", "ds.json"), "dslint fit ds.json --model MODEL --gpu-memory 31.75GiB"),
        ("/data/llama-7b", (), "dslint fit CONFIG --model MODEL --gpu-memory SIZE"),
    ],
)
def test_advice_names_the_files_of_the_job(tmp_path: Path, model: str, options: tuple[str, ...], command: str) -> None:
    assert f"Run `{command}` for changes that fit" in advice(tmp_path, model, *options)


def test_a_report_to_publish_names_no_path(tmp_path: Path) -> None:
    folder = tmp_path / "customers-of-acme"
    folder.mkdir()
    said = advice(folder, "/data/llama-7b", "--program", str(folder / "run it.sh"), "--redact")
    assert "dslint fit " in said
    assert "acme" not in said


@pytest.mark.slow
def test_the_advice_can_be_followed(tmp_path: Path) -> None:
    advice(tmp_path, "/data/llama-7b", "--program", "run it.sh")
    done = dslint("fit", "run it.sh", "--gpu-memory", "31.75GiB", "--isolated", cwd=tmp_path)
    assert "/data/llama-7b: 6,738,415,616 parameters" in done.stdout, done.stdout + done.stderr
