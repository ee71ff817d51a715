"""Fixing loses nothing: comments, what others write meanwhile, modes, links; and no file is left behind."""

from __future__ import annotations

import errno
import os
import secrets
import signal
import stat
import struct
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from dslint.cli import cli
from dslint.diagnostics import Applicability
from dslint.fixes.atomic_write import ChangedSinceRead, write_whole
from dslint.fixes.run import FixOptions, fix_text
from dslint.lint.place import _fix
from dslint.rule import safe
from dslint.settings import Finder
from dslint.source.change import Replace
from dslint.source.parse import parse
from dslint.source.tree import Span
from tests.command import ROOT, dslint

pytestmark = pytest.mark.usefixtures("own_folder")

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


def _write(tmp_path: Path, before: str, program: str = "") -> subprocess.CompletedProcess[str]:
    """Write a file in a process of its own, after a program has prepared it."""
    (tmp_path / "ds.json").write_text(before, encoding="utf-8")
    text = f"from dslint.fixes.atomic_write import write_whole\n{program}\nwrite_whole('ds.json', '{{\"new\": 1}}' * 100_000, before={before!r})\n"
    return subprocess.run(
        [sys.executable, "-c", text], cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True, check=False
    )


KILLED_AT = """
import os, signal, sys
left = {number}
def kill(frame, event, function):
    global left
    if event == "c_call" and frame.f_code.co_filename.endswith(("atomic_write.py", "read.py")):
        left -= 1
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
sys.setprofile(kill)
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="there is no SIGKILL")
def test_kill_9_at_any_moment_leaves_the_old_file_or_the_new_one(tmp_path: Path) -> None:
    """Before each call into the system in turn."""
    codes = []
    for number in range(1, 200):
        codes.append(_write(tmp_path, "{}", KILLED_AT.format(number=number)).returncode)
        assert (tmp_path / "ds.json").read_text(encoding="utf-8") in ("{}", '{"new": 1}' * 100_000)
        if codes[-1] == 0:
            break
    assert len(codes) > 10
    assert set(codes[:-1]) == {-9}
    assert codes[-1] == 0


@pytest.mark.skipif(sys.platform == "win32", reason="there are no such limits")
def test_a_full_disk_leaves_the_old_file_and_no_other(tmp_path: Path) -> None:
    full = "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, 50_000))"
    done = _write(tmp_path, "{}", full)
    assert "File too large" in done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["ds.json"]
    assert (tmp_path / "ds.json").read_text(encoding="utf-8") == "{}"


def test_a_full_disk_is_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "ds.json").write_text('{"train_batch_size": "8"}', encoding="utf-8")
    monkeypatch.chdir(tmp_path)

    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    done = CliRunner().invoke(cli, ["check", "ds.json", "--fix"])
    assert done.exit_code == 2
    assert "cannot write ds.json: No space left on device" in done.output
    assert [path.name for path in tmp_path.iterdir()] == ["ds.json"]


@pytest.mark.slow
def test_two_writers_at_once(tmp_path: Path) -> None:
    """Two runs of --fix on one folder: every file is whole, and each run says which ones the other has changed."""
    wrong = '{"train_micro_batch_size_per_gpu": "4"}'
    for number in range(30):
        (tmp_path / f"ds_{number}.json").write_text(wrong, encoding="utf-8")
    command = [sys.executable, "-m", "dslint", "check", ".", "--fix", "--output-format", "json"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    runs = [subprocess.Popen(command, cwd=tmp_path, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE) for _ in range(2)]
    for run in runs:
        _, errors = run.communicate(timeout=120)
        assert run.returncode in (0, 2)
        assert all("cannot write" in line or line.startswith("dslint: fixed ") for line in errors.decode().splitlines()), errors
    assert {path.read_text(encoding="utf-8") for path in tmp_path.iterdir()} == {wrong.replace('"4"', "4")}
    assert len([*tmp_path.iterdir()]) == 30


@pytest.mark.skipif(not hasattr(os, "setxattr"), reason="the system has no extended attributes")
def test_extended_attributes_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "ds.json"
    file.write_text("{}", encoding="utf-8")
    try:
        os.setxattr(file, "user.owner", b"team")
    except OSError:
        pytest.skip("the file system has no extended attributes")
    write_whole(str(file), '{"a": 1}')
    assert os.getxattr(file, "user.owner") == b"team"

    def refuse(*_: object) -> None:
        raise OSError(errno.ENOTSUP, os.strerror(errno.ENOTSUP))

    monkeypatch.setattr(os, "setxattr", refuse)
    with pytest.raises(OSError, match=r"user\.owner cannot be kept"):
        write_whole(str(file), "{}")
    assert file.read_text(encoding="utf-8") == '{"a": 1}'
    assert [path.name for path in tmp_path.iterdir()] == ["ds.json"]


@pytest.mark.skipif(not hasattr(os, "setxattr"), reason="the system has no extended attributes")
def test_an_access_control_list_stays(tmp_path: Path) -> None:
    file = tmp_path / "ds.json"
    file.write_text("{}", encoding="utf-8")
    # Version 2; entries of owner, a named user, group, mask and others, each with tag, permissions and number.
    entries = ((1, 6, 2**32 - 1), (2, 4, 1), (4, 4, 2**32 - 1), (16, 4, 2**32 - 1), (32, 0, 2**32 - 1))
    access = struct.pack("<I", 2) + b"".join(struct.pack("<HHI", *entry) for entry in entries)
    try:
        os.setxattr(file, "system.posix_acl_access", access)
    except OSError:
        pytest.skip("the file system has no access control lists")
    write_whole(str(file), '{"a": 1}')
    assert os.getxattr(file, "system.posix_acl_access") == access


@pytest.mark.parametrize("ends", ["\r\n", "\n"])
@pytest.mark.parametrize(
    "text",
    [
        '{# note\n"train_batch_size": "8",}\n',
        'train_batch_size: "8"\nfp16: {enabled: true}\n',
        '{\n  "train_batch_size": 8,\n  "optimizer": {"type": "adam", "params": {"lr": "1e-4"}}\n}\n',
    ],
)
@pytest.mark.parametrize("integration", ["deepspeed", "transformers"])
def test_a_fix_keeps_the_line_ends(tmp_path: Path, text: str, ends: str, integration: str) -> None:
    """The Hugging Face loaders read strict JSON, so there a fix adds the braces that are missing, in lines of their own."""
    for name in ("ds_config.json", "ds_config.hjson"):
        (tmp_path / name).write_bytes(text.replace("\n", ends).encode())
        dslint("check", name, "--unsafe-fixes", "--integration", integration, "--pedantic", cwd=tmp_path)
        after = (tmp_path / name).read_bytes().decode()
        assert after != text
        assert after.count("\n") == after.count(ends)
        assert after.count("\r") == (after.count("\n") if ends == "\r\n" else 0)


@pytest.mark.parametrize(
    "text",
    [
        '{"train_batch_size": 8, "bf16": {"enabled": true,\n "loss_scale": 0 None // note\n}}',
        '{"train_batch_size": 8, "bf16": {"enabled": true, "loss_scale": 0 /* note */}}',
        "train_batch_size: 8\nbf16: {enabled: true\n loss_scale: null // note\n}",
        '{"train_batch_size": 8, "bf16": {"enabled": true, # note\n "loss_scale": 0}}',
    ],
)
def test_what_its_writer_takes_for_a_comment_is_not_dropped(text: str) -> None:
    fixed = fix_text(text, "ds_config.json", Finder([]), FixOptions())
    assert fixed is not None
    assert "note" in fixed.after


@pytest.mark.parametrize("release", ["0.14.0", "0.16.9", "0.19.8"])
@pytest.mark.parametrize(
    "section",
    [
        '"tensor_parallel": {"autotp_size": 4, "tp": {"tp_size": 4}}',
        '"elasticity": {"enabled": false, "micro_batch_sizes": [2, 4]}',
        '"zero_optimization": {"stage": 2, "zenflow": {"topk_ratio": 0.1}}',
        '"torch_autocast": {"enabled": true}',
        '"amp": {"enabled": false, "opt_level": "O1"}',
        '"sparse_attention": {"mode": "fixed", "block": 16}',
        '"progressive_layer_drop": {"enabled": true, "theta": 0.5}',
        '"curriculum_learning": {"enabled": true}',
    ],
)
def test_what_another_release_uses_is_not_removed_as_safe(tmp_path: Path, section: str, release: str) -> None:
    text = f'{{"train_batch_size": 8, {section}}}'
    (tmp_path / "ds.json").write_text(text, encoding="utf-8")
    dslint("check", "ds.json", "--fix", "--deepspeed", release, cwd=tmp_path)
    assert (tmp_path / "ds.json").read_text(encoding="utf-8") == text
