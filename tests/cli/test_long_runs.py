"""Many files: several processes, a progress bar, an interrupt, a full disk, watching, and reports to files."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Self

import pytest

from tests.command import INTERRUPTIBLE, ROOT, dslint

WRONG = '{"train_micro_batch_size_per_gpu": 4, "zero_optimisation": {"stage": %d}}'
MANY = 600  # more than it takes for a progress bar and for several processes

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="terminals and signals of POSIX")


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("many")
    for number in range(MANY):
        (folder / f"ds_{number:04}.json").write_text(WRONG % (number % 4), encoding="utf-8")
    return folder


class Terminal:
    """A process whose standard error is a terminal."""

    def __init__(self, *arguments: str, cwd: Path) -> None:
        ours, theirs = os.openpty()
        self.terminal = ours
        environment = {**os.environ, "PYTHONPATH": str(ROOT), "TERM": "xterm", "COLUMNS": "80"}
        command = [*INTERRUPTIBLE, *arguments]
        self.process = subprocess.Popen(command, cwd=cwd, stdout=subprocess.PIPE, stderr=theirs, env=environment, start_new_session=True)
        os.close(theirs)
        self.said = ""
        self.read = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait()
        assert self.process.stdout is not None
        self.process.stdout.close()
        os.close(self.terminal)

    def read_until(self, word: str, seconds: float = 280) -> bool:
        """Read on until a word was said; False when the process ends, or the time, before."""
        end = time.monotonic() + seconds
        while word not in self.said[self.read :] and time.monotonic() < end:
            if select.select([self.terminal], [], [], 0.1)[0]:
                try:
                    self.said += os.read(self.terminal, 65536).decode("utf-8", "replace")
                except OSError:
                    break
        at = self.said.find(word, self.read)
        self.read = at + len(word) if at >= 0 else self.read
        return at >= 0


@pytest.mark.slow
def test_many_files_with_a_progress_bar(many: Path) -> None:
    with Terminal("check", ".", "--output-format", "json", cwd=many) as terminal:
        assert terminal.read_until(f"{MANY}/{MANY}")
        out, _ = terminal.process.communicate(timeout=280)
    assert terminal.process.returncode == 1
    data = json.loads(out)
    assert data["summary"]["error"] == MANY
    assert [file["path"] for file in data["files"]] == [f"ds_{number:04}.json" for number in range(MANY)]
    assert "Checking" in terminal.said
    assert f"{MANY}/{MANY}" in terminal.said


@pytest.mark.slow
def test_one_process_and_several_say_the_same(many: Path) -> None:
    one = dslint("check", ".", "--output-format", "concise", "--jobs", "1", cwd=many)
    several = dslint("check", ".", "--output-format", "concise", "--jobs", "3", cwd=many)
    assert one.stdout == several.stdout
    assert one.stderr == several.stderr == ""
    assert one.stdout.count("error DS102") == MANY


@pytest.mark.parametrize("jobs", ["1", "2"])
def test_an_interrupt_ends_the_run_cleanly(many: Path, jobs: str) -> None:
    with Terminal("check", ".", "--jobs", jobs, cwd=many) as terminal:
        assert terminal.read_until(f"/{MANY}")
        os.killpg(terminal.process.pid, signal.SIGINT)
        out, _ = terminal.process.communicate(timeout=280)
        terminal.read_until("no findings are reported", 2)
    assert terminal.process.returncode == 130
    assert out == b""
    assert "Traceback" not in terminal.said
    assert f"of {MANY:,} files; no findings are reported." in terminal.said


@pytest.mark.skipif(os.name != "posix", reason="closes descriptors in a shell")
@pytest.mark.parametrize("closed", [">&-", "2>&-", "<&-", "<&- >&- 2>&-"])
def test_closed_streams(tmp_path: Path, closed: str) -> None:
    (tmp_path / "ds.json").write_text('{"zero_optimisation": {}}', encoding="utf-8")
    command = f'"{sys.executable}" -m dslint check ds.json {closed}'
    done = subprocess.run(
        ["sh", "-c", command], cwd=tmp_path, capture_output=True, text=True, check=False, env={**os.environ, "PYTHONPATH": str(ROOT)}
    )
    assert (done.returncode, done.stderr) == (1, "")


@pytest.mark.skipif(os.name != "posix", reason="elsewhere a working directory cannot be removed")
def test_a_working_directory_that_is_gone(tmp_path: Path) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    command = f'rmdir ../gone; "{sys.executable}" -m dslint check .'
    done = subprocess.run(
        ["sh", "-c", command], cwd=gone, capture_output=True, text=True, check=False, env={**os.environ, "PYTHONPATH": str(ROOT)}
    )
    assert done.returncode == 2
    assert "the working directory cannot be used" in done.stderr


@pytest.mark.slow
@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full")
@pytest.mark.parametrize("output_format", ["full", "json", "sarif"])
def test_a_full_disk_on_output(many: Path, output_format: str) -> None:
    command = [sys.executable, "-m", "dslint", "check", ".", "--output-format", output_format]
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(
            command, cwd=many, stdout=full, stderr=subprocess.PIPE, text=True, check=False, env={**os.environ, "PYTHONPATH": str(ROOT)}
        )
    assert done.returncode == 2
    assert done.stderr == "dslint: cannot write the output: No space left on device\n"
    done = dslint("check", "ds_0001.json", "--output", "json=/dev/full", cwd=many)
    assert done.returncode == 2
    assert done.stderr == "dslint: cannot write /dev/full: No space left on device\n"
    assert "DS102" in done.stdout


@pytest.mark.slow
def test_a_reader_that_goes_away(many: Path) -> None:
    done = subprocess.run(
        f"{sys.executable} -m dslint check . --output-format concise | head -n 1",
        shell=True,
        cwd=many,
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert done.stdout.count("\n") == 1
    assert done.stderr == ""


def test_reports_to_files_beside_the_log(tmp_path: Path) -> None:
    (tmp_path / "ds.json").write_text(WRONG % 2, encoding="utf-8")
    (tmp_path / "old.json").write_text("old", encoding="utf-8")
    (tmp_path / "old.json").chmod(0o640)
    (tmp_path / "link").symlink_to("old.json")
    done = dslint("check", "ds.json", "--output", "json=link", "--output", "sarif=new.sarif", cwd=tmp_path)
    assert "error[DS102]" in done.stdout
    assert json.loads((tmp_path / "old.json").read_text(encoding="utf-8"))["summary"]["error"] == 1
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "old.json").stat().st_mode & 0o777 == 0o640
    assert json.loads((tmp_path / "new.sarif").read_text(encoding="utf-8"))["version"] == "2.1.0"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["ds.json", "link", "new.sarif", "old.json"]
    done = dslint("check", "ds.json", "--output", "json=no/such/folder.json", "--output", "jsonl=fine.jsonl", cwd=tmp_path)
    assert done.returncode == 2
    assert "cannot write no/such/folder.json: No such file or directory" in done.stderr
    assert (tmp_path / "fine.jsonl").exists()
    done = dslint("check", "ds.json", "--output", "xml=a", cwd=tmp_path)
    assert "is not of the form FORMAT=FILE" in done.stderr


def test_statistics_and_exit_zero(many: Path) -> None:
    done = dslint("check", "ds_0000.json", "ds_0001.json", "--statistics", "--exit-zero", cwd=many)
    assert done.returncode == 0
    assert done.stdout.splitlines() == ["     2  error    DS102  misspelt-key-dropped (2 files)", "     2  in 2 files"]
    (many / "x").mkdir(exist_ok=True)
    assert dslint("check", "missing.json", "--exit-zero", cwd=many).returncode == 2


@pytest.mark.slow
def test_watching(tmp_path: Path) -> None:
    config, settings = tmp_path / "ds.json", tmp_path / "dslint.toml"
    config.write_text(WRONG % 2, encoding="utf-8")
    with Terminal("check", ".", "--watch", "--output-format", "concise", cwd=tmp_path) as terminal:
        assert terminal.read_until("Press Ctrl-C to stop")
        config.write_text('{"train_micro_batch_size_per_gpu": 4}', encoding="utf-8")
        assert terminal.read_until("changed: ds.json")
        assert terminal.read_until("Press Ctrl-C to stop")
        settings.write_text("world-siz = 8", encoding="utf-8")
        assert terminal.read_until('unknown setting "world-siz"')
        settings.unlink()
        (tmp_path / "new.json").write_text(WRONG % 1, encoding="utf-8")
        assert terminal.read_until("new.json")
        assert terminal.read_until("Press Ctrl-C to stop")
        os.killpg(terminal.process.pid, signal.SIGINT)
        out, _ = terminal.process.communicate(timeout=280)
    assert terminal.process.returncode == 0
    lines = out.decode("utf-8").splitlines()
    assert lines[0].startswith("ds.json:1:39: error DS102")
    assert [line for line in lines if ": error " in line][-1].startswith("new.json:1:39: error DS102")


def test_files_from_a_list(tmp_path: Path) -> None:
    for name in ("a b.json", "c.json", "package.json"):
        (tmp_path / name).write_text('{"x": 1}' if name == "package.json" else WRONG % 2, encoding="utf-8")
    (tmp_path / "list").write_text("a b.json\npackage.json\ngone.json\n", encoding="utf-8")
    done = dslint("check", "--files-from", "list", "--output-format", "concise", cwd=tmp_path)
    assert [line.split(":")[0] for line in done.stdout.splitlines() if ": error " in line] == ["a b.json"]
    done = dslint("check", "--files-from", "-", "--output-format", "concise", cwd=tmp_path, input="a b.json\0c.json\0")
    assert [line.split(":")[0] for line in done.stdout.splitlines() if ": error " in line] == ["a b.json", "c.json"]
    done = dslint("check", "--files-from", "-", cwd=tmp_path, input="package.json\n")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert "cannot read no-list" in dslint("check", "--files-from", "no-list", cwd=tmp_path).stderr
    assert dslint("check", "--files-from", "list", "c.json", cwd=tmp_path).returncode == 2
