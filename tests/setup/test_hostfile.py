"""A hostfile that a person names by itself, and those that scripts name."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.command import dslint

_RUN = "deepspeed --hostfile {} train.py --deepspeed_config ds_config.json\n"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "ds_config.json").write_text(
        '{"train_micro_batch_size_per_gpu": 2, "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}}, "zero_optimization": {"stage": 2}}',
        encoding="utf-8",
    )
    return tmp_path


@pytest.mark.parametrize(
    ("text", "says", "code"),
    [
        ("gpu-a slots=8\ngpu-b slots=4\n", "a hostfile of DeepSpeed's launcher, 2 machines with 12 GPUs", None),
        ("# the first\ngpu-a slots=8\n\ngpu-b slots=8\n", "2 machines with 16 GPUs", None),
        ("10.0.0.4 slots=8  # spare\n10.0.0.5 slots=8\n", "2 machines with 16 GPUs", None),
        ("node1 slots=8\nnode2 slots=8\n", "2 machines with 16 GPUs", None),
        ("user@gpu-a slots=8\nuser@gpu-b slots=8\n", "2 machines with 16 GPUs", None),
        ("worker-1 slots=8\nworker-2 slots=8\n", "2 machines with 16 GPUs", "DS897"),
        ("gpu-a slots=8\ngpu-a slots=8\n", "a hostfile of DeepSpeed's launcher.", "DS955"),
        ("gpu-a slots=8\ngpu-b\n", "a hostfile of DeepSpeed's launcher.", "DS955"),
        ("gpu-a slots=8\ngpu-b slots = 8\n", "a hostfile of DeepSpeed's launcher.", "DS955"),
        ("gpu-a\ngpu-b\n", "not a DeepSpeed config", None),
        ("some notes\nabout a run\n", "not a DeepSpeed config", None),
    ],
)
def test_by_itself(tmp_path: Path, text: str, says: str, code: str | None) -> None:
    (tmp_path / "hostfile").write_text(text, encoding="utf-8")
    ran = dslint("check", "hostfile", cwd=tmp_path)
    shown = " ".join(ran.stdout.split())
    assert says in shown
    assert [one for one in ("DS897", "DS955") if f"[{one}]" in shown] == ([code] if code else [])
    assert ran.returncode == (1 if code else 0)


def test_it_names_the_script_that_uses_it(project: Path) -> None:
    (project / "hosts").write_text("gpu-a slots=8\ngpu-b slots=8\n", encoding="utf-8")
    (project / "run.sh").write_text(_RUN.format("hosts"), encoding="utf-8")
    (project / "other.sh").write_text(_RUN.format("hosts_of_test"), encoding="utf-8")
    assert "Check the training with dslint check run.sh." in " ".join(dslint("check", "hosts", cwd=project).stdout.split())


@pytest.mark.parametrize(
    ("hosts", "flags", "severity"),
    [
        ("worker-1 slots=8\nworker-2 slots=8\n", "", "warning"),
        ("localhost slots=8\n", "", "info"),
        ("gpu-a slots=8\n", "", "info"),
        ("gpu-a slots=8\ngpu-b slots=8\n", "", None),
        ("node0 slots=8\nnode1 slots=8\n", "", None),
        ("worker-1 slots=8\ngpu-b slots=8\n", "", None),
        ("worker-1 slots=8\nworker-2 slots=8\n", "--no_ssh --node_rank 0 --master_addr 10.0.0.4 ", None),
        ("localhost slots=8\n", "--no_ssh_check --master_addr localhost ", None),
        ("gpu-a slots=8\n", "--force_multi ", None),
        ("job-worker-0 slots=8\njob-worker-1 slots=8\n", "", None),
        ("worker-10 slots=8\nworker-11 slots=8\n", "", None),
        ("<hostname> slots=8\n", "", None),
    ],
)
def test_ssh_to_the_first_machine(project: Path, hosts: str, flags: str, severity: str | None) -> None:
    (project / "hosts").write_text(hosts, encoding="utf-8")
    (project / "run.sh").write_text(_RUN.format("hosts").replace("train.py", f"{flags}train.py"), encoding="utf-8")
    lines = dslint("check", "run.sh", "--output-format", "concise", cwd=project).stdout.splitlines()
    found = [line for line in lines if " DS897 " in line]
    assert [line.split(": ")[1].split()[0] for line in found] == ([severity] if severity else [])
