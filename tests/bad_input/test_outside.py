"""A config that a file names is opened only inside the project, and what is not opened is said."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.command import dslint

SECRET = '{"train_micro_batch_size_per_gpu": 4, "zero_optimisation": {"password": "hunter2"}}'

NAMING: dict[str, tuple[str, Callable[[str], str]]] = {
    "a training": ("train.yaml", lambda path: f"deepspeed: {path}\noutput_dir: x\nper_device_train_batch_size: 1\n"),
    "an Accelerate config": (
        "accelerate.yaml",
        lambda path: (
            f"compute_environment: LOCAL_MACHINE\ndistributed_type: DEEPSPEED\ndeepspeed_config:\n  deepspeed_config_file: {path}\n"
        ),
    ),
    "a script": ("run.sh", lambda path: f"deepspeed --num_gpus 8 train.py --deepspeed {path}\n"),
    "a program": ("train.py", lambda path: f"import deepspeed\ndeepspeed.initialize(config={path!r})\n"),
}


@pytest.mark.parametrize("named_by", NAMING)
@pytest.mark.parametrize("way", ["above", "absolute", "by a symbolic link"])
def test_what_is_outside_is_not_opened(tmp_path: Path, named_by: str, way: str) -> None:
    if way == "by a symbolic link" and sys.platform == "win32":
        pytest.skip("only some users may make symbolic links there")
    project, outside = tmp_path / "project", tmp_path / "secret.json"
    (project / ".git").mkdir(parents=True)
    outside.write_text(SECRET, encoding="utf-8")
    path = {"above": "../secret.json", "absolute": outside.as_posix(), "by a symbolic link": "linked.json"}[way]
    if way == "by a symbolic link":
        (project / "linked.json").symlink_to(outside)
    name, text = NAMING[named_by]
    (project / name).write_text(text(path), encoding="utf-8")
    done = dslint("check", name, "-v", cwd=project)
    said = " ".join((done.stdout + done.stderr).split())
    assert "hunter2" not in said
    assert "DS919" not in said
    assert Path(path).name in said
    assert "outside this project" in said


def test_what_is_inside_is_opened(tmp_path: Path) -> None:
    project = tmp_path / "project"
    (project / ".git").mkdir(parents=True)
    (project / "conf").mkdir()
    (project / "ds.json").write_text(SECRET, encoding="utf-8")
    (project / "conf" / "run.sh").write_text("deepspeed --num_gpus 8 train.py --deepspeed ../ds.json\n", encoding="utf-8")
    assert "password" in dslint("check", "conf/run.sh", cwd=project).stdout
