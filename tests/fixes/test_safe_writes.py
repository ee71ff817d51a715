"""Fixing loses nothing: comments, what others write meanwhile, modes, links; and no file is left behind."""

from __future__ import annotations

import os
import secrets
import signal
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from dslint.diagnostics import Applicability
from dslint.fixes.atomic_write import ChangedSinceRead, write_whole
from dslint.lint.place import _fix
from dslint.rule import safe
from dslint.source.change import Replace
from dslint.source.parse import parse
from dslint.source.tree import Span
from tests.command import ROOT, dslint

BROKEN = '{"train_micro_batch_size_per_gpu": 4, "zero_optimisation": {"stage": 2}}'


def test_the_mode_stays_and_nothing_is_left_beside(tmp_path: Path) -> None:
    file = tmp_path / "ds.json"
    file.write_text(BROKEN, encoding="utf-8")
    file.chmod(0o640)
    write_whole(str(file), "{}", before=BROKEN)
    assert file.read_text(encoding="utf-8") == "{}"
    assert stat.S_IMODE(file.stat().st_mode) == 0o640
    assert list(tmp_path.iterdir()) == [file]


def test_a_new_file_is_never_more_open_than_the_old_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "ds.json"
    file.write_text(BROKEN, encoding="utf-8")
    file.chmod(0o600)
    modes: list[int] = []
    real = os.fsync

    def fsync(file: int) -> None:
        modes.append(stat.S_IMODE(os.fstat(file).st_mode))
        real(file)

    monkeypatch.setattr(os, "fsync", fsync)
    write_whole(str(file), "{}")
    assert modes == [0o600]


def test_a_changed_file_is_not_overwritten(tmp_path: Path) -> None:
    file = tmp_path / "ds.json"
    file.write_text("other", encoding="utf-8")
    with pytest.raises(ChangedSinceRead):
        write_whole(str(file), "{}", before=BROKEN)
    assert file.read_text(encoding="utf-8") == "other"
    assert list(tmp_path.iterdir()) == [file]


def test_fix_says_that_a_file_changed_and_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from click.testing import CliRunner

    from dslint.cli import cli
    from dslint.fixes import run

    for name in ("a.json", "b.json"):
        (tmp_path / name).write_text(BROKEN, encoding="utf-8")
    real = run.fix_text

    def interrupted(text: str, path: str, *rest: object, **options: object) -> object:
        fixed = real(text, path, *rest, **options)  # type: ignore[arg-type]
        if path == "a.json":
            (tmp_path / "a.json").write_text(BROKEN + "\n", encoding="utf-8")
        return fixed

    monkeypatch.setattr(run, "fix_text", interrupted)
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(cli, ["check", "--fix", "--unsafe-fixes", "a.json", "b.json"])
    assert done.exit_code == 2
    assert "a.json" in done.stderr
    assert (tmp_path / "a.json").read_text(encoding="utf-8") == BROKEN + "\n"
    assert "zero_optimization" in (tmp_path / "b.json").read_text(encoding="utf-8")


@pytest.mark.skipif(not hasattr(os, "link"), reason="needs hard links")
def test_hard_links_and_read_only_files_are_refused(tmp_path: Path) -> None:
    linked, locked = tmp_path / "linked.json", tmp_path / "locked.json"
    for file in (linked, locked):
        file.write_text(BROKEN, encoding="utf-8")
    os.link(linked, tmp_path / "other.txt")
    locked.chmod(0o444)
    done = dslint("check", "--fix", "--unsafe-fixes", linked, locked)
    assert done.returncode == 2
    assert "hard links" in done.stderr
    assert "read-only" in done.stderr
    assert linked.read_text(encoding="utf-8") == locked.read_text(encoding="utf-8") == BROKEN


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs POSIX signals")
def test_sigterm_leaves_no_file_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "ds.json"
    file.write_text(BROKEN, encoding="utf-8")
    child = os.fork()
    if child == 0:
        monkeypatch.setattr(os, "fsync", lambda _: os.kill(os.getpid(), signal.SIGTERM))
        try:
            write_whole(str(file), "{}")
        finally:
            os._exit(0)
    _, status = os.waitpid(child, 0)
    assert os.WTERMSIG(status) == signal.SIGTERM
    assert list(tmp_path.iterdir()) == [file]
    assert file.read_text(encoding="utf-8") == BROKEN


def test_a_link_in_the_place_of_the_temporary_file_is_not_followed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file, victim = tmp_path / "ds.json", tmp_path / "victim"
    victim.write_text("mine", encoding="utf-8")
    monkeypatch.setattr(secrets, "token_hex", lambda _: "known")
    (tmp_path / "ds.json.known.tmp").symlink_to(victim)
    with pytest.raises(FileExistsError):
        write_whole(str(file), "{}")
    assert victim.read_text(encoding="utf-8") == "mine"


def test_a_safe_fix_drops_no_comment() -> None:
    text = '{"train_micro_batch_size_per_gpu": 1, "train_micro_batch_size_per_gpu": 2 /* keep me */, /* me too */ "zero_optimization": {"stage": 1}}'
    document = parse(text)
    found = document.lookup(("zero_optimization",))
    assert found is not None
    plan = safe("remove it", Replace(Span(0, found.span.start), "{"))
    fix = _fix(plan, document)
    assert fix is not None
    assert fix.applicability is Applicability.UNSAFE
    kept = _fix(safe("replace it", Replace(found.span, '"x": 1')), document)
    assert kept is not None
    assert kept.applicability is Applicability.SAFE


@pytest.mark.parametrize("outputs", [("json=report", "sarif=./report"), ("json=ds.json",)], ids=["one path twice", "an input"])
def test_reports_do_not_overwrite_each_other_or_the_config(tmp_path: Path, outputs: tuple[str, ...]) -> None:
    (tmp_path / "ds.json").write_text(BROKEN, encoding="utf-8")
    flags = [word for output in outputs for word in ("--output", output)]
    done = dslint("check", "ds.json", *flags, cwd=tmp_path)
    assert done.returncode == 2
    assert "--output" in done.stderr
    assert [file.name for file in tmp_path.iterdir()] == ["ds.json"]
    assert (tmp_path / "ds.json").read_text(encoding="utf-8") == BROKEN


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs a POSIX shell")
def test_a_closed_pipe_is_141_and_quiet(tmp_path: Path) -> None:
    (tmp_path / "ds.json").write_text("{" + ", ".join(f'"unknown{n}": 1' for n in range(3000)) + "}", encoding="utf-8")
    read, write = os.pipe()
    os.close(read)
    done = subprocess.run(
        [sys.executable, "-m", "dslint", "check", "ds.json"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=write,
        stderr=subprocess.PIPE,
        check=False,
    )
    os.close(write)
    assert done.returncode == 141
    assert done.stderr == b""
