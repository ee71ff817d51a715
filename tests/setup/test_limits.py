"""The host memory that Slurm or Kubernetes gives to a job."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from dslint.config.context import Context
from dslint.setups.read import read_setups
from tests.command import dslint

GIB = 2**30
LAUNCH = "torchrun --nproc_per_node 4 train.py --deepspeed ds_config.json\n"


def limit_of(text: str, name: str = "job.sh") -> int | None:
    found = read_setups(text, name, name, Context(), named=True)
    assert found is not None
    (loaded,) = found.setups
    return loaded.context.facts.host_memory


@pytest.mark.parametrize(
    ("lines", "limit"),
    [
        ("--mem=64G", 64 * GIB),
        ("--mem 64000", 64000 * 2**20),
        ("--mem=1T", 1024 * GIB),
        ("--mem=500GB", 500 * GIB),
        ("--mem=0", None),
        ("--mem=${MEM}", None),
        ("--mem={{ memory }}", None),
        ("--mem-per-gpu=60G|--gres=gpu:a100:4", 240 * GIB),
        ("--mem-per-gpu=60G", None),
        ("--mem-per-cpu=4G|--cpus-per-task=16|--ntasks-per-node=4", 256 * GIB),
        ("--mem-per-cpu=4G|-c 16|-N 2|-n 8", 256 * GIB),
        ("--mem-per-cpu=4G|-c16", 64 * GIB),
        ("--mem-per-cpu=4G|--cpus-per-gpu=8|--gpus-per-node=4", 128 * GIB),
        ("--mem-per-cpu=4G|--cpus-per-task=16|--ntasks=3", None),
        ("--mem-per-cpu=4G|--ntasks-per-node=4", None),
        ("--mem-per-cpu=4G|--cpus-per-task=16|--exclusive", None),
        ("--mem=64G|hetjob|--mem=8G", None),
    ],
)
def test_slurm(lines: str, limit: int | None) -> None:
    text = "#!/bin/bash\n" + "".join(f"#SBATCH {line}\n" for line in lines.split("|")) + LAUNCH
    assert limit_of(text) == limit


def test_the_command_of_a_framework(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    training = "model_name_or_path: gpt2\nstage: sft\ndeepspeed: ds_config.json\noutput_dir: o\nper_device_train_batch_size: 1\n"
    (tmp_path / "train.yaml").write_text(training, encoding="utf-8")
    (tmp_path / "ds_config.json").write_text('{"zero_optimization": {"stage": 2}}', encoding="utf-8")
    assert limit_of("#!/bin/bash\n#SBATCH --mem=64G\nllamafactory-cli train train.yaml\n") == 64 * GIB


CONTAINER = """
apiVersion: v1
kind: Pod
spec:
  containers:
    - name: train
      image: train
      command: [torchrun, --nproc_per_node, "4", train.py, --deepspeed, ds_config.json]
      resources:
        {resources}
"""


@pytest.mark.parametrize(
    ("resources", "limit"),
    [
        ("limits: {nvidia.com/gpu: 4, memory: 64Gi}", 64 * GIB),
        ("limits: {memory: 64G}", 64 * 10**9),
        ("limits: {memory: 68719476736}", 64 * GIB),
        ("limits: {memory: 1.5Ti}", 1536 * GIB),
        ("limits: {memory: '{{ memory }}'}", None),
        ("limits: {cpu: 8}", None),
        ("requests: {memory: 64Gi}", None),
    ],
)
def test_kubernetes(resources: str, limit: int | None) -> None:
    assert limit_of(CONTAINER.replace("{resources}", resources), "job.yaml") == limit


def test_the_limit_is_that_of_the_container_that_trains() -> None:
    beside = "\n    - name: log\n      image: log\n      command: [tail, -f, log]\n      resources: {limits: {memory: 1Gi}}\n"
    text = CONTAINER.replace("{resources}", "limits: {memory: 64Gi}").rstrip() + beside
    assert limit_of(text, "job.yaml") == 64 * GIB


def test_an_estimate_says_where_the_limit_is_from_and_counts_no_other_programs(tmp_path: Path) -> None:
    config = {"train_micro_batch_size_per_gpu": 1, "bf16": {"enabled": True}, "zero_optimization": {"stage": 2}}
    (tmp_path / "ds_config.json").write_text(json.dumps(config), encoding="utf-8")
    high = {}
    for name, lines in (("limited.sh", "#SBATCH --mem=40G\n"), ("free.sh", "")):
        (tmp_path / name).write_text("#!/bin/bash\n" + lines + LAUNCH, encoding="utf-8")
        done = dslint("estimate", name, "--model", "gpt2", "--output-format", "json", cwd=tmp_path)
        high[name] = json.loads(done.stdout)["host"]["machine"]["high"]
    assert high["limited.sh"] < high["free.sh"]
    said = " ".join(dslint("estimate", "limited.sh", "--model", "gpt2", cwd=tmp_path).stdout.split())
    assert "--host-memory is 40GiB, from #SBATCH --mem=40G (limited.sh:2)" in said
    given = dslint("estimate", "limited.sh", "--model", "gpt2", "--host-memory", "2TiB", cwd=tmp_path).stdout
    assert "A machine has 2 TiB" in given
    assert "--host-memory is" not in given
