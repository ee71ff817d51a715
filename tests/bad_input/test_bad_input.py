"""Bad input is normal input: a diagnostic or a clear sentence, the right exit code, no traceback, and the other files still reported."""

from __future__ import annotations

import json
import os
import sys
import threading
from pathlib import Path

import pytest

from dslint.cli.check import exit_code
from dslint.lint.discovery import Target
from dslint.lint.files import lint_target
from dslint.settings import Settings
from tests.command import dslint

NEIGHBOUR = '{"train_micro_batch_size_per_gpu": 4, "zero_optimisation": {"stage": 2}}'
"""A config with a finding, linted beside every bad one."""

CONTENTS = {
    "unclosed": (b'{"train_micro_batch_size_per_gpu": 4, "zero_optimization": {"stage": 2}', 1, "never closed"),
    "no colon": (b'{"train_micro_batch_size_per_gpu" 4}', 1, '":"'),
    "words": (b"just some words", 1, "DS00"),
    "a list": (b"[1, 2]", 1, "a list"),
    "empty": (b"", 1, "No batch size"),
    "only blanks": (b" \n\t\n", 1, "No batch size"),
    "binary": (bytes(range(256)) * 16, 2, "binary"),
    "NUL": (b'{"train_batch_size": 1}\0', 2, "binary"),
    "UTF-16": ('{"train_batch_size": 1}'.encode("utf-16"), 2, "UTF-16"),
    "not UTF-8": (b'{"train_batch_size": 1, "_note": "caf\xe9"}', 2, "UTF-8"),
    "10,000 deep": (b'{"a": ' * 10_000, 1, "400 deep"),
    "10,000 lists deep": (b'{"train_batch_size": ' + b"[" * 10_000 + b"]" * 10_000 + b"}", 1, "400 deep"),
    "5,000 digits": (b'{"train_batch_size": ' + b"9" * 5_000 + b"}", 1, "digits"),
    "a huge exponent": (b'{"train_batch_size": 1e999999}', 1, "train_batch_size"),
    "4,000 digits": (b'{"train_micro_batch_size_per_gpu": ' + b"9" * 4_000 + b"}", 0, ""),
    "control characters": (b'{"train_micro_batch_size_per_gpu": 1, "\\u001b[31m": 1}', 0, "DS103"),
    "a lone surrogate": (b'{"train_micro_batch_size_per_gpu": 1, "\\ud800": "\\udc00"}', 0, "DS103"),
    "a very long line": (b'{"train_micro_batch_size_per_gpu": 1, "x": "' + b"y" * 300_000 + b'"}', 0, "DS103"),
    "100,000 keys": (b'{"train_micro_batch_size_per_gpu": 1' + b"".join(b', "_%d": %d' % (n, n) for n in range(100_000)) + b"}", 0, ""),
}


@pytest.mark.parametrize("output_format", ["full", "json"])
@pytest.mark.parametrize("name", [pytest.param(name, marks=pytest.mark.slow if name == "100,000 keys" else ()) for name in CONTENTS])
def test_any_content(tmp_path: Path, name: str, output_format: str) -> None:
    content, code, words = CONTENTS[name]
    bad, neighbour = tmp_path / "bad.json", tmp_path / "neighbour.json"
    bad.write_bytes(content)
    neighbour.write_text(NEIGHBOUR, encoding="utf-8")
    done = dslint("check", bad, neighbour, "--output-format", output_format)
    assert done.returncode == max(code, 1)
    assert "zero_optimisation" in done.stdout
    if output_format == "json":
        report = json.loads(done.stdout)
        said = json.dumps([d for d in report["diagnostics"] if d["path"].endswith("bad.json")] + report["files"], ensure_ascii=False)
        assert json.dumps(words, ensure_ascii=False)[1:-1] in said
    else:
        assert words in " ".join((done.stdout + done.stderr).split())
    alone = dslint("check", bad, "--output-format", output_format)
    assert alone.returncode == code


def test_one_hundred_megabytes_are_refused_unread(tmp_path: Path) -> None:
    huge = tmp_path / "ds_config.json"
    with huge.open("wb") as file:
        file.truncate(100 * 2**20)
    done = dslint("check", huge)
    assert done.returncode == 2
    assert "too large" in " ".join((done.stdout + done.stderr).split())  # a long path wraps anywhere


def test_an_endless_standard_input_is_refused() -> None:
    done = dslint("check", "-", input=" " * (17 * 2**20))
    assert done.returncode == 2
    assert "too large" in " ".join((done.stdout + done.stderr).split())  # a long path wraps anywhere


def special(folder: Path) -> dict[str, tuple[Path, str]]:
    """Paths that are no readable file, with a word of what is said about them."""
    (folder / "folder.json").mkdir()
    os.mkfifo(folder / "fifo.json")
    (folder / "dangling.json").symlink_to("nowhere")
    (folder / "loop.json").symlink_to("loop.json")
    return {
        "missing": (folder / "missing.json", "no such file"),
        "fifo": (folder / "fifo.json", "pipe"),
        "dangling": (folder / "dangling.json", ""),
        "loop": (folder / "loop.json", ""),
        "too long": (folder / ("x" * 400 + ".json"), ""),
    }


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no such files")
@pytest.mark.parametrize("name", ["missing", "fifo", "dangling", "loop", "too long"])
def test_what_is_no_readable_file(tmp_path: Path, name: str) -> None:
    path, words = special(tmp_path)[name]
    neighbour = tmp_path / "neighbour.json"
    neighbour.write_text(NEIGHBOUR, encoding="utf-8")
    done = dslint("check", path, neighbour)
    assert done.returncode == 2
    assert "zero_optimisation" in done.stdout
    assert words in " ".join((done.stdout + done.stderr).lower().split())
    assert path.name[:30] in done.stdout + done.stderr


def test_a_folder_with_the_name_of_a_file(tmp_path: Path) -> None:
    (tmp_path / "ds_config.json").mkdir()
    done = dslint("check", tmp_path / "ds_config.json")
    assert done.returncode == 2
    assert "nothing to check" in done.stderr


@pytest.mark.skipif(not hasattr(os, "geteuid"), reason="needs users")
def test_no_permission(tmp_path: Path) -> None:
    secret = tmp_path / "ds_config.json"
    secret.write_text(NEIGHBOUR, encoding="utf-8")
    secret.chmod(0)
    if os.access(secret, os.R_OK):  # root reads everything
        pytest.skip("this user may read every file")
    done = dslint("check", secret)
    assert done.returncode == 2
    assert "permission" in (done.stdout + done.stderr).lower()


def test_a_refusal_by_the_system_is_a_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What root cannot try: the system says no, or the file goes away between being found and being read."""
    file = tmp_path / "ds_config.json"
    file.write_text(NEIGHBOUR, encoding="utf-8")
    for error, words in ((PermissionError(13, "Permission denied"), "permission"), (FileNotFoundError(2, "No such file"), "no such file")):

        def refuse(*_: object, error: OSError = error, **__: object) -> int:
            raise error

        with monkeypatch.context() as patch:
            patch.setattr(os, "open", refuse)
            patch.setattr("builtins.open", refuse)
            patch.setattr("io.open", refuse)
            (result,) = lint_target(Target(str(file), named=True), Settings())
        assert result.error is not None
        assert words in result.error.lower()
        assert exit_code((result,), failed=False, forgiving=True, strict=False, left_out=False) == 2


@pytest.mark.skipif(sys.platform != "linux", reason="file systems elsewhere refuse such names")
@pytest.mark.parametrize("output_format", ["full", "concise", "json", "github"])
def test_names_that_no_terminal_should_see(tmp_path: Path, output_format: str) -> None:
    names = [b"ds_\x1b[31mred.json", b"ds_\xff\xfe.json", b"ds_new\nline.json", "ds_größe漢.json".encode()]
    for name in names:
        (tmp_path / os.fsdecode(name)).write_text(NEIGHBOUR, encoding="utf-8")
    done = dslint("check", tmp_path, "--no-group", "--output-format", output_format)
    assert done.returncode == 1
    assert done.stdout.count("DS102") >= len(names)
    if output_format != "github":  # which needs the name as it is, to find the file
        assert "\x1b[31mred" not in done.stdout


def test_a_file_that_is_written_while_it_is_read(tmp_path: Path) -> None:
    file = tmp_path / "ds_config.json"
    file.write_text(NEIGHBOUR, encoding="utf-8")
    stop = threading.Event()

    def write() -> None:
        while not stop.is_set():
            file.write_text(NEIGHBOUR * 50, encoding="utf-8")
            file.write_text("", encoding="utf-8")

    writer = threading.Thread(target=write)
    writer.start()
    try:
        for _ in range(50):
            assert lint_target(Target(str(file), named=True), Settings()) != []
    finally:
        stop.set()
        writer.join()
