"""The baseline: what it holds back, and that it only shrinks."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.command import dslint

ONE = '{"train_micro_batch_size_per_gpu": 4, "zero_optimization": {"stage": 2, "offload_param": {"device": "cpu"}}, "bf61": {}}'


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf" / "ds.json").write_text(ONE, encoding="utf-8")
    (tmp_path / "dslint.toml").write_text('baseline = "known.json"\nfail-on = "info"\n', encoding="utf-8")
    assert dslint("check", "--write-baseline", cwd=tmp_path).returncode == 0
    return tmp_path


def codes(project: Path, *arguments: str) -> list[str]:
    done = dslint("check", *arguments, "--output-format", "json", cwd=project)
    return [d["code"] for d in json.loads(done.stdout)["diagnostics"]]


def test_what_was_there_is_not_reported_from_wherever_it_is_run(project: Path) -> None:
    assert codes(project) == []
    assert codes(project / "conf", "--config", "../dslint.toml") == []
    quiet = dslint("check", cwd=project)
    assert "2 findings suppressed" in quiet.stdout
    assert codes(project, "--no-ignores") == ["DS102", "DS501"]


def test_it_holds_no_lines_and_no_values(project: Path) -> None:
    data = json.loads((project / "known.json").read_text(encoding="utf-8"))
    assert data == {
        "version": 1,
        "findings": {
            "conf/ds.json": [{"code": "DS102", "place": "/bf61"}, {"code": "DS501", "place": "/zero_optimization/offload_param"}],
        },
    }
    (project / "conf" / "ds.json").write_text("\n\n" + ONE.replace('"stage": 2', '"stage": 1'), encoding="utf-8")
    assert codes(project) == []


def test_a_new_finding_is_reported_and_never_added(project: Path) -> None:
    (project / "conf" / "ds.json").write_text(ONE.replace("{", '{"wandb_project": "x", ', 1), encoding="utf-8")
    before = (project / "known.json").read_text(encoding="utf-8")
    assert codes(project) == ["DS103"]
    done = dslint("check", "--write-baseline", cwd=project)
    assert done.returncode == 1
    assert (project / "known.json").read_text(encoding="utf-8") == before


def test_it_shrinks_by_what_is_gone(project: Path) -> None:
    (project / "conf" / "ds.json").write_text(ONE.replace(', "bf61": {}', ""), encoding="utf-8")
    assert "1 baseline entry no longer matches" in dslint("check", cwd=project).stderr
    assert "dropped 1 baseline entry" in dslint("check", "--write-baseline", cwd=project).stderr
    left = json.loads((project / "known.json").read_text(encoding="utf-8"))
    assert [entry["code"] for entry in left["findings"]["conf/ds.json"]] == ["DS501"]
    (project / "conf" / "ds.json").write_text(ONE, encoding="utf-8")
    assert codes(project) == ["DS102"]


def test_files_that_were_not_checked_stay_in_it(project: Path) -> None:
    (project / "other.json").write_text('{"train_micro_batch_size_per_gpu": 4}', encoding="utf-8")
    before = json.loads((project / "known.json").read_text(encoding="utf-8"))
    dslint("check", "other.json", "--write-baseline", cwd=project)
    assert json.loads((project / "known.json").read_text(encoding="utf-8")) == before
    (project / "conf" / "ds.json").unlink()
    dslint("check", "other.json", "--write-baseline", cwd=project)
    assert json.loads((project / "known.json").read_text(encoding="utf-8"))["findings"] == {}


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"version": 2, "findings": {}}', '{"version": 1, "findings": {"a": [{}]}}', "\x00"])
def test_what_is_no_baseline_is_said(project: Path, text: str) -> None:
    (project / "known.json").write_text(text, encoding="utf-8")
    done = dslint("check", cwd=project)
    assert done.returncode == 2
    assert "known.json" in done.stderr
    assert (project / "known.json").read_text(encoding="utf-8") == text


def test_a_missing_baseline_and_none_named(project: Path) -> None:
    (project / "known.json").unlink()
    done = dslint("check", cwd=project)
    assert done.returncode == 2
    assert "--write-baseline" in done.stderr
    assert "--baseline FILE" in dslint("check", "--isolated", "--write-baseline", cwd=project).stderr


def test_a_disk_that_is_full_leaves_the_old_one(project: Path) -> None:
    (project / "conf" / "ds.json").write_text('{"train_micro_batch_size_per_gpu": 4}', encoding="utf-8")
    before = (project / "known.json").read_text(encoding="utf-8")
    folder = project / "known.json"
    program = (
        "import os, sys\n"
        "def full(fd):\n    raise OSError(28, 'No space left on device')\n"
        "os.fsync = full\nfrom dslint.cli import main\nsys.argv = ['dslint', 'check', '--write-baseline']\nmain()\n"
    )
    import subprocess
    import sys

    done = subprocess.run([sys.executable, "-c", program], cwd=project, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "No space left on device" in done.stderr
    assert "Traceback" not in done.stderr
    assert folder.read_text(encoding="utf-8") == before
    assert [path.name for path in project.iterdir() if path.suffix == ".tmp"] == []
