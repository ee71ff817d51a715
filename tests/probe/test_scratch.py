"""The temporary folders of runs: each removes its own, and those of runs that were killed."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from dslint.probe.scratch import SETTLED, scratch_folder
from tests.command import ROOT

KILLED = """
import os, signal
from dslint.probe.scratch import scratch_folder
with scratch_folder() as folder:
    print(folder, flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    return tmp_path


def _age(path: Path) -> None:
    then = time.time() - 2 * SETTLED
    os.utime(path, (then, then))


@pytest.mark.skipif(sys.platform == "win32", reason="locks of POSIX")
def test_the_folder_of_a_killed_run_is_removed_by_the_next(place: Path) -> None:
    environment = {**os.environ, "TMPDIR": str(place), "PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, "-c", KILLED], capture_output=True, text=True, env=environment, check=False)
    left = Path(done.stdout.strip())
    assert left.parent == place
    with scratch_folder():
        assert left.is_dir()  # it may be one that is just being made
    _age(left)
    with scratch_folder() as own:
        assert sorted(place.iterdir()) == [Path(own)]
    assert list(place.iterdir()) == []


def test_what_is_in_use_or_of_somebody_else_stays(place: Path) -> None:
    (place / "dslint-probe-other").mkdir()  # without the file that a run locks
    (place / "dslint-probe-link").symlink_to(place / "dslint-probe-other")
    with scratch_folder() as first:
        for path in place.iterdir():
            _age(path)
        with scratch_folder() as second:
            assert {path.name for path in place.iterdir()} == {
                "dslint-probe-other",
                "dslint-probe-link",
                Path(first).name,
                Path(second).name,
            }
