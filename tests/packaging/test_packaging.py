"""What is built holds all that is needed, from any kind of checkout, and works outside of it."""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

from tests.hooks.test_hooks import ROOT, tracked

pytestmark = pytest.mark.build


def build(source: Path, out: Path, *kinds: str) -> None:
    subprocess.run(
        [sys.executable, "-m", "build", "--no-isolation", "--skip-dependency-check", "--outdir", str(out), *kinds, str(source)],
        check=True,
        capture_output=True,
        env={**os.environ, "PYTHONPATH": ""},
        cwd=out,
    )


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if not (ROOT / ".git").exists():
        pytest.skip("not a git checkout")
    pytest.importorskip("build")
    return tracked(tmp_path_factory.mktemp("source"))


def modules(package: str) -> set[str]:
    return {f"dslint/{package}/{file.name}" for file in (ROOT / package).glob("*.py")}


def wheel_names(folder: Path) -> set[str]:
    (wheel,) = folder.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        return set(archive.namelist())


def check_whole(names: set[str]) -> None:
    assert modules("rules") <= names
    assert modules("schemas") <= names
    assert {
        "dslint/py.typed",
        "dslint/schemas/ds_config.schema.json",
        "dslint/cli/check.py",
        "dslint/diagnose/known_texts/memory.json",
        "dslint/source/parse.py",
    } <= names
    assert not [name for name in names if name.split("/")[0] in ("tests", "rules", "schemas", "docs", "scripts", "benchmarks")]


def test_the_wheel_is_whole(source: Path, tmp_path: Path) -> None:
    build(source, tmp_path, "--wheel")
    check_whole(wheel_names(tmp_path))


def test_a_clone_without_symlinks_builds_the_same_wheel(source: Path, tmp_path: Path) -> None:
    """Where git makes no symlinks, they are small text files that hold their target."""
    clone, out = tmp_path / "clone", tmp_path / "out"
    out.mkdir()
    subprocess.run(["git", "clone", "-q", "-c", "core.symlinks=false", str(source), str(clone)], check=True, capture_output=True)
    assert (clone / "dslint/rules").is_file()
    build(clone, out, "--wheel")
    check_whole(wheel_names(out))


def test_the_source_distribution_builds_the_same_wheel(source: Path, tmp_path: Path) -> None:
    build(source, tmp_path, "--sdist")
    (archive,) = tmp_path.glob("*.tar.gz")
    with tarfile.open(archive) as tar:
        tar.extractall(tmp_path / "unpacked", filter="data")
    (unpacked,) = (tmp_path / "unpacked").iterdir()
    out = tmp_path / "out"
    out.mkdir()
    build(unpacked, out, "--wheel")
    check_whole(wheel_names(out))


def test_the_wheel_works_outside_the_checkout(source: Path, tmp_path: Path) -> None:
    build(source, tmp_path, "--wheel")
    (wheel,) = tmp_path.glob("*.whl")
    site = tmp_path / "site"
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(site)
    (tmp_path / "ds_config.json").write_text('{"train_micro_batch_size_per_gpu": 4, "elasticity": {}}', encoding="utf-8")
    environment = {**os.environ, "PYTHONPATH": str(site)}
    command = [sys.executable, "-m", "dslint", "check", "ds_config.json", "--output-format", "concise"]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.stdout.startswith("ds_config.json:1:39: error DS109"), done.stderr
    program = "import dslint, dslint.schemas.root; print(dslint.__file__)"
    where = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, env=environment, capture_output=True, text=True, check=True)
    assert where.stdout.startswith(str(site))


def test_the_source_distribution_holds_what_is_tracked_and_nothing_else(source: Path, tmp_path: Path) -> None:
    build(source, tmp_path, "--sdist")
    (archive,) = tmp_path.glob("*.tar.gz")
    with tarfile.open(archive) as tar:
        names = {member.name.partition("/")[2] for member in tar if not member.isdir()}
    listed = subprocess.run(["git", "ls-files"], cwd=source, check=True, capture_output=True, text=True).stdout.splitlines()
    links = {"dslint/rules", "dslint/schemas"}  # to folders that the distribution holds
    assert set(listed) - names == links
    made = {name for name in names - set(listed) if "egg-info/" not in name}
    assert made <= {"PKG-INFO", "setup.cfg"}


def test_tests_pass_in_the_unpacked_source_distribution(source: Path, tmp_path: Path) -> None:
    build(source, tmp_path, "--sdist")
    (archive,) = tmp_path.glob("*.tar.gz")
    with tarfile.open(archive) as tar:
        tar.extractall(tmp_path / "unpacked", filter="data")
    (unpacked,) = (tmp_path / "unpacked").iterdir()
    for package in ("rules", "schemas"):  # as an editable installation maps them
        (unpacked / "dslint" / package).symlink_to(Path("..") / package)
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-n",
        "0",
        "-p",
        "no:cacheprovider",
        "tests/test_imports.py",
        "tests/registry",
        "tests/report/test_golden.py",
    ]
    environment = {**os.environ, "PYTHONPATH": str(unpacked)}
    done = subprocess.run(command, cwd=unpacked, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-3_000:]
