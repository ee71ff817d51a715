"""What is said of a script whose flags of `accelerate launch` describe the config."""

from __future__ import annotations

from pathlib import Path

from tests.command import dslint


def test_what_no_flag_sets_is_not_called_written(tmp_path: Path) -> None:
    (tmp_path / "run.sh").write_text("accelerate launch --use_deepspeed --num_processes 2 gone.py\n", encoding="utf-8")
    done = dslint("show", "run.sh", cwd=tmp_path)
    stage = next(line for line in done.stdout.splitlines() if line.split()[:1] == ["stage"])
    assert stage.split()[1:] == ["2", "filled"]
    said = " ".join((done.stdout + done.stderr).split())
    assert "run.sh starts DeepSpeed with accelerate launch" in said
    assert "is an Accelerate config" not in said


def test_what_a_flag_sets_is_written(tmp_path: Path) -> None:
    (tmp_path / "run.sh").write_text("accelerate launch --use_deepspeed --zero_stage 3 gone.py\n", encoding="utf-8")
    done = dslint("show", "run.sh", cwd=tmp_path)
    stage = next(line for line in done.stdout.splitlines() if line.split()[:1] == ["stage"])
    assert stage.split()[1:] == ["3", "written"]


def test_a_file_of_accelerate_is_one(tmp_path: Path) -> None:
    block = "deepspeed_config:\n  zero_stage: 2\n"
    (tmp_path / "acc.yaml").write_text(f"distributed_type: DEEPSPEED\n{block}num_processes: 2\n", encoding="utf-8")
    done = dslint("show", "acc.yaml", cwd=tmp_path)
    assert "acc.yaml is an Accelerate config" in " ".join((done.stdout + done.stderr).split())
