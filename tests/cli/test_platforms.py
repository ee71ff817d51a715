"""What differs on Windows and macOS, simulated here: separators, line ends, consoles, new processes, folders and names."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from dslint.cli import main
from dslint.lint import patterns
from dslint.lint.discovery import shown
from dslint.lint.files import lint_given
from dslint.settings import Settings
from tests.command import ROOT, dslint

pytestmark = pytest.mark.usefixtures("own_folder")

WRONG = '{"train_micro_batch_size_per_gpu": "4", "zero_optimisation": {"stage": 2}}'
PARTS = {
    "ds_config.json": '{\n  // note\n  "train_micro_batch_size_per_gpu": "4",\n  "zero_optimisation": {"stage": 2}\n}\n',
    "train.yaml": "output_dir: o\nlearning_rate: 1e-5\nper_device_train_batch_size: 4\ndeepspeed:\n  zero_optimisation:\n    stage: 2\n",
    "train.py": "import deepspeed\ndeepspeed.initialize(\n    model=m,\n    config={'train_batch_size': 8, 'zero_optimisation': {'stage': 2}},\n)\n",
    "run.sh": 'cat > ds.json <<EOF\n{"train_batch_size": 8, "zero_optimisation": {}}\nEOF\ndeepspeed --num_gpus 8 \\\n  train.py --deepspeed ds.json\n',
}


def findings(folder: Path, *arguments: str, before: str = "", **environment: str) -> list[tuple[str, str, int]]:
    """The code, file and line of what a check finds, in a process that first runs some Python."""
    done = subprocess.run(
        [
            sys.executable,
            "-c",
            f"{before}\nfrom dslint.cli import main\nmain()",
            "check",
            *arguments,
            "--isolated",
            "--output-format",
            "json",
        ],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT), **environment},
        capture_output=True,
        encoding="utf-8",
        check=False,
        timeout=300,
    )
    assert done.returncode in (0, 1), done.stderr
    assert not done.stderr
    return [(one["code"], one["path"], one["range"]["start"]["line"]) for one in json.loads(done.stdout)["diagnostics"]]


@pytest.mark.parametrize("name", PARTS)
def test_line_ends_change_no_finding(name: str) -> None:
    def found(text: str) -> list[Any]:
        results = lint_given(text, name, Settings())
        return [(d.code, d.message, d.range.start.line, d.range.start.column) for r in results for d in r.diagnostics if d.range]

    of_windows = found(PARTS[name].replace("\n", "\r\n"))
    if name.endswith(".sh"):  # for bash a carriage return is a part of the last word, which is a finding of its own
        of_windows = [one for one in of_windows if one[0] != "DS978"]
    assert found(PARTS[name])
    assert of_windows == found(PARTS[name])


SPAWNS = "import multiprocessing\nmultiprocessing.set_start_method('spawn')\n"
"""Processes start as by default on macOS and Windows."""

NO_FORK = f"{SPAWNS}multiprocessing.get_all_start_methods = lambda: ['spawn']\n"
"""As on Windows, which cannot fork."""


def many(folder: Path) -> Path:
    """A folder with so many configs that several processes check them."""
    folder.mkdir()
    for number in range(90):
        (folder / f"ds_{number}.json").write_text(WRONG, encoding="utf-8")
    return folder


def run_script(script: Path, folder: Path) -> str:
    """What a script prints that calls `main`, as an installed command does: its own folder is what Python imports from, not the working directory."""
    command = [sys.executable, str(script), "check", ".", "--isolated", "--jobs", "2", "--output-format", "concise"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, encoding="utf-8", check=False, timeout=100)
    assert not done.stderr, done.stderr
    return done.stdout


@pytest.mark.slow
def test_processes_that_are_not_forked(tmp_path: Path) -> None:
    folder = many(tmp_path / "configs")
    assert findings(folder, ".", "--jobs", "2", before=NO_FORK) == findings(folder, ".", "--jobs", "1")


@pytest.mark.slow
def test_processes_are_forked_where_python_would_not(tmp_path: Path) -> None:
    """A script without `if __name__ == "__main__"` may check many files: a new Python would run it again."""
    if not hasattr(os, "fork"):
        pytest.skip("this system cannot fork")
    (tmp_path / "own.py").write_text(f"{SPAWNS}from dslint.cli import main\nmain()\n", encoding="utf-8")
    assert "in 90 files" in run_script(tmp_path / "own.py", many(tmp_path / "configs"))


@pytest.mark.slow
def test_new_processes_import_nothing_of_the_checked_folder(tmp_path: Path) -> None:
    folder = many(tmp_path / "configs")
    for name in ("multiprocessing", "struct", "signal", "dslint"):
        (folder / f"{name}.py").write_text("open('executed', 'w').close()\n", encoding="utf-8")
    lines = [*NO_FORK.splitlines(), "import os", "from dslint.cli import main", "try:", "    main()", "finally:"]
    lines.append("    assert 'PYTHONSAFEPATH' not in os.environ")  # what the process starts afterwards is not dslint's to decide
    guarded = "".join(f"    {line}\n" for line in lines)
    (tmp_path / "own.py").write_text(f"if __name__ == '__main__':\n{guarded}", encoding="utf-8")
    assert "in 90 files" in run_script(tmp_path / "own.py", folder)
    assert not (folder / "executed").exists()


@pytest.mark.parametrize("encoding", ["cp1252", "ascii", "cp932"])
def test_a_console_of_another_encoding(tmp_path: Path, encoding: str) -> None:
    """Names and keys that the code page lacks are printed as UTF-8, and files are read as UTF-8."""
    (tmp_path / "ds_漢é.json").write_text('{"train_micro_batch_size_per_gpu": "4", "größe漢": 1}', encoding="utf-8")
    environment = {"PYTHONIOENCODING": encoding, "PYTHONUTF8": "0"}
    done = dslint("check", ".", "--isolated", cwd=tmp_path, env=environment)
    assert done.returncode == 1
    assert "ds_漢é.json" in done.stdout
    assert "größe漢" in done.stdout


@pytest.mark.slow
@pytest.mark.parametrize("command", [["check", "."], ["check", ".", "--fix"], ["show", "ds_config.json"], ["estimate", "ds_config.json"]])
def test_no_file_is_read_or_written_in_the_encoding_of_the_system(tmp_path: Path, command: list[str]) -> None:
    for name, text in PARTS.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    (tmp_path / "dslint.toml").write_text("deepspeed = '0.19.8'\n", encoding="utf-8")
    warned = {"PYTHONWARNDEFAULTENCODING": "1", "PYTHONWARNINGS": "error::EncodingWarning"}
    done = dslint(*command, cwd=tmp_path, env=warned)
    assert "EncodingWarning" not in done.stdout + done.stderr
    assert done.returncode in (0, 1, 2)


def test_backslashes_between_folders(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sep", "\\")
    assert shown("conf\\deep\\ds.json") == "conf/deep/ds.json"
    monkeypatch.setattr(os.path, "relpath", lambda path, base: path[len(base) + 1 :])
    monkeypatch.setattr(os.path, "abspath", lambda path: f"C:\\work\\{path}")
    assert patterns.matches("tests\\ds.json", "C:\\work", ["tests/"])
    assert not patterns.matches("src\\ds.json", "C:\\work", ["tests/"])


def test_a_read_only_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """Permissions do not bind root, so the call itself is refused."""
    file = tmp_path / "ds_config.json"
    file.write_text(WRONG, encoding="utf-8")
    real = os.open

    def refuse(path: Any, flags: int, *more: Any, **options: Any) -> int:
        if flags & os.O_CREAT:
            raise OSError(errno.EROFS, os.strerror(errno.EROFS), path)
        return real(path, flags, *more, **options)

    monkeypatch.setattr("dslint.fixes.atomic_write.os.open", refuse)
    monkeypatch.setattr(sys, "argv", ["dslint", "check", str(file), "--fix"])
    with pytest.raises(SystemExit) as end:
        main()
    said = capsys.readouterr()
    assert end.value.code == 2
    assert "Read-only file system" in said.err
    assert "DS102" in said.out
    assert file.read_text(encoding="utf-8") == WRONG


@pytest.mark.slow
@pytest.mark.parametrize("name", ["DS_CONFIG.JSON", "Ds_Config.Json", "TRAIN.PY", "RUN.SH", "TRAIN.YAML"])
def test_names_in_capitals(tmp_path: Path, name: str) -> None:
    """A disk that ignores case keeps the letters that a file was created with."""
    (tmp_path / name).write_text(PARTS[name.lower()], encoding="utf-8")
    assert findings(tmp_path, ".")
