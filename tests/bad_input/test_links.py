"""Links that lead out of a project: one that is found is named and not opened, one that a person names is read and never written through."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

import dslint as api
from tests.command import dslint

SECRET = '{"train_micro_batch_size_per_gpu": "4", "zero_optimisation": {"password": "hunter2"}}'

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="only some users may make symbolic links there")

LINKS = {"a config": "ds_config.json", "a program": "train.py", "a script": "run.sh", "a training": "train.yaml"}


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A repository whose files of every kind are links to a secret beside it, and one good config."""
    folder = tmp_path / "project"
    (folder / ".git").mkdir(parents=True)
    (folder / "ds_good.json").write_text('{"train_micro_batch_size_per_gpu": 4, "zero_optimization": {"stage": 2}}', encoding="utf-8")
    for name in LINKS.values():
        (tmp_path / name).write_text(f"# deepspeed\n{SECRET}\n" if name != "ds_config.json" else SECRET, encoding="utf-8")
        (folder / name).symlink_to(Path("..") / name)
    return folder


def judged(project: Path, *arguments: str) -> tuple[int, dict[str, str]]:
    """The exit code, and the reason for each file that was not checked."""
    done = dslint("check", *arguments, "--output-format", "json", cwd=project)
    assert "hunter2" not in done.stdout + done.stderr
    found = json.loads(done.stdout)
    return done.returncode, {one["path"]: " ".join(map(str, one["not_judged"])) for one in found["files"] if one["not_judged"]}


@pytest.mark.parametrize("way", [["."], ["*"], ["--files-from", "names"], [". above"]], ids=["folder", "pattern", "list", "from above"])
def test_a_link_that_is_found_is_named_and_not_opened(project: Path, way: list[str]) -> None:
    (project / "names").write_text("\n".join([*LINKS.values(), "ds_good.json"]), encoding="utf-8")
    folder, way = (project.parent / "elsewhere", [str(project)]) if way == [". above"] else (project, way)
    folder.mkdir(exist_ok=True)
    for fix in ([], ["--fix"], ["--unsafe-fixes"]):
        code, reasons = judged(folder, *way, *fix)
        assert code == 0
        assert {Path(path).name for path in reasons} == {*LINKS.values()}
        assert all("leads out of the project" in reason for reason in reasons.values())
    assert judged(folder, *way, "--strict")[0] == 1
    assert {(project.parent / name).read_text(encoding="utf-8").count(SECRET) for name in LINKS.values()} == {1}


def test_a_link_that_is_named_is_read_and_not_written_through(project: Path) -> None:
    assert "DS104" in dslint("check", "ds_config.json", cwd=project).stdout
    done = dslint("check", "ds_config.json", "--fix", "--unsafe-fixes", cwd=project)
    assert done.returncode == 2
    assert "leads out of this project" in done.stderr
    assert (project.parent / "ds_config.json").read_text(encoding="utf-8") == SECRET
    assert (project / "ds_config.json").is_symlink()


def test_no_settings_are_written_through_a_link_that_leaves(project: Path) -> None:
    (project / "ds_wrong.json").write_text('{"train_micro_batch_size_per_gpu": "4"}', encoding="utf-8")
    (project / "dslint.toml").symlink_to("../new.toml")
    done = dslint("check", "ds_wrong.json", "--add-ignores", "because", cwd=project)
    assert done.returncode == 2
    assert "leads out of this project" in done.stderr
    assert not (project.parent / "new.toml").exists()


def test_no_settings_are_written_into_a_pipe(project: Path) -> None:
    """Nobody reads from it, so opening it would not end."""
    (project / "ds_wrong.json").write_text('{"train_micro_batch_size_per_gpu": "4"}', encoding="utf-8")
    os.mkfifo(project / "dslint.toml")
    done = dslint("check", "ds_wrong.json", "--add-ignores", "because", cwd=project)
    assert done.returncode == 2
    assert "cannot write dslint.toml: this is not a regular file" in done.stderr


def test_no_baseline_is_written_through_a_link_that_leaves(project: Path) -> None:
    """The settings of a stranger's repository may name the link."""
    (project / "ds_wrong.json").write_text('{"train_micro_batch_size_per_gpu": "4"}', encoding="utf-8")
    (project / "dslint.toml").write_text('baseline = "known.json"\n', encoding="utf-8")
    (project / "known.json").symlink_to("../new.json")
    done = dslint("check", "ds_wrong.json", "--write-baseline", cwd=project)
    assert done.returncode == 2
    assert "leads out of this project" in done.stderr
    assert not (project.parent / "new.json").exists()


def test_the_api_writes_no_fix_through_a_link_that_leaves(project: Path) -> None:
    link = project / "ds_config.json"
    assert api.fix(link).fixed
    with pytest.raises(OSError, match="leads out of this project"):
        api.fix(link, write=True)
    with pytest.raises(OSError, match="leads out of this project"):
        api.fix(SimpleNamespace(deepspeed=str(link)), write=True)
    assert (project.parent / "ds_config.json").read_text(encoding="utf-8") == SECRET


def test_a_pattern_for_all_folders_follows_no_cycle(project: Path) -> None:
    """Each of these links leads to all of them, so a walk that follows them has no end."""
    for number in range(12):
        (project / f"again{number}").symlink_to(".")
    done = dslint("check", "**/ds_*.json", cwd=project)
    assert done.returncode == 0
    assert "again" not in done.stdout


def test_links_inside_of_the_project_are_followed(project: Path) -> None:
    (project / "conf").mkdir()
    (project / "conf" / "ds_wrong.json").write_text(SECRET.replace("isation", "ization").replace("password", "stage"), encoding="utf-8")
    (project / "ds_link.json").symlink_to("conf/ds_wrong.json")
    done = dslint("check", "ds_link.json", "--fix", cwd=project)
    assert done.returncode == 1, done.stderr  # the stage is a word
    assert '"train_micro_batch_size_per_gpu": 4' in (project / "conf" / "ds_wrong.json").read_text(encoding="utf-8")
    assert (project / "ds_link.json").is_symlink()


def test_a_project_may_itself_be_reached_by_a_link(project: Path) -> None:
    (project / "ds_wrong.json").write_text('{"train_micro_batch_size_per_gpu": "4"}', encoding="utf-8")
    (project.parent / "home").symlink_to("project")
    done = dslint("check", str(project.parent / "home"), "--fix", cwd=project.parent)
    assert "DS104" not in done.stdout
    assert (project / "ds_wrong.json").read_text(encoding="utf-8") == '{"train_micro_batch_size_per_gpu": 4}'


def test_what_is_read_as_evidence_is_inside_as_well(project: Path) -> None:
    """A link beside a config that is named: its text, which names the config, is not looked at."""
    (project / "run.sh").unlink()
    (project.parent / "launch.sh").write_text("deepspeed --num_gpus 3 train.py --deepspeed ds_good.json\n", encoding="utf-8")
    before = dslint("check", "ds_good.json", "-v", cwd=project).stdout
    (project / "launch.sh").symlink_to("../launch.sh")
    assert dslint("check", "ds_good.json", "-v", cwd=project).stdout == before
    (project / "launch.sh").unlink()
    (project / "launch.sh").write_text((project.parent / "launch.sh").read_text(encoding="utf-8"), encoding="utf-8")
    assert dslint("check", "ds_good.json", "-v", cwd=project).stdout != before
