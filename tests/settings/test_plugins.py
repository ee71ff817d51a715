"""Rules of a team's own, from an installed package; a broken one is a diagnostic and no traceback."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from dslint.registry.plugins import load
from tests.command import ROOT, dslint

RULES = '''\
"""Rules of a team's own."""
from dslint.diagnostics import Effect
from dslint.rule import Finding, bad, good, rule


@rule("ACME001", effect=Effect.ADVICE)
@bad('{"zero_optimization": {"stage": 3}}', at="zero_optimization.stage")
@good('{"zero_optimization": {"stage": 2}}')
def no_stage_3(config):
    """Stage 3 is not for our network."""
    if config.value("zero_optimization.stage") == 3:
        yield Finding("zero_optimization.stage", "stage 3 is not for our network.", help="Write 2.")


@rule("ACME002", effect=Effect.ADVICE)
def fails(config):
    """A rule with a mistake in it."""
    raise KeyError("oh")
'''
CONFIG = '{"train_micro_batch_size_per_gpu": 4, "zero_optimization": {"stage": 3}, "bf16": {"enabled": true}}'


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """A folder with an installed package: its module, and what an installer writes of its entry points."""
    (tmp_path / "acme_rules.py").write_text(RULES, encoding="utf-8")
    told = tmp_path / "acme_rules-1.0.dist-info"
    told.mkdir()
    (told / "METADATA").write_text("Metadata-Version: 2.1\nName: acme-rules\nVersion: 1.0\n", encoding="utf-8")
    points = ["acme = acme_rules", "one = acme_rules:no_stage_3", "gone = acme_gone", "empty = json", "bad = acme_bad"]
    (told / "entry_points.txt").write_text("\n".join(["[dslint.rules]", *points]), encoding="utf-8")
    (tmp_path / "acme_bad.py").write_text("import os\nos._exit_(1)\n", encoding="utf-8")
    return tmp_path


def installed(site: Path, *arguments: str, cwd: Path, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    """Run dslint in an environment that has the packages of a folder installed."""
    program = f"import site; site.addsitedir({str(site)!r}); from dslint.cli import main; main()"
    return subprocess.run(
        [sys.executable, "-c", program, *arguments],
        env={**os.environ, "PYTHONPATH": str(ROOT), **(env or {})},
        cwd=cwd,
        capture_output=True,
        encoding="utf-8",
        check=False,
        timeout=300,
    )


def check(site: Path, settings: str, *options: str, config: str = CONFIG) -> tuple[int, list[dict[str, Any]]]:
    work = site / "work"
    work.mkdir(exist_ok=True)
    (work / "dslint.toml").write_text(settings, encoding="utf-8")
    (work / "ds.json").write_text(config, encoding="utf-8")
    done = installed(site, "check", "ds.json", "--output-format", "json", *options, cwd=work)
    assert done.returncode in (0, 1, 2), done.stderr
    return done.returncode, json.loads(done.stdout)["diagnostics"]


def test_a_teams_rule_finds_and_one_that_fails_is_said(site: Path) -> None:
    code, found = check(site, 'plugins = ["acme"]\n')
    assert code == 2  # a rule that fails is a failure of the tool
    assert {d["code"]: (d["severity"], d["pointer"]) for d in found} == {
        "ACME001": ("info", "/zero_optimization/stage"),
        "DS000": ("error", ""),
    }
    (failed,) = (d for d in found if d["code"] == "DS000")
    assert "ACME002 (fails)" in failed["message"]
    assert "KeyError: 'oh'" in failed["message"]
    assert "acme_rules" in failed["help"]
    assert "defect of dslint" not in failed["help"]


def test_without_the_setting_nothing_is_loaded(site: Path) -> None:
    assert check(site, "") == (0, [])


@pytest.mark.slow
def test_its_rules_can_be_spoken_of(site: Path) -> None:
    settings = 'ignore = ["ACME002"]\nplugins = ["acme"]\nseverity = {"no-stage-3" = "error"}\n'
    assert [(d["code"], d["severity"]) for d in check(site, settings)[1]] == [("ACME001", "error")]
    ignoring = CONFIG.replace("{", "{ // dslint: ignore-file[no-stage-3] agreed\n", 1)
    assert check(site, settings, "--integration", "deepspeed", config=ignoring) == (0, [])
    assert [d["code"] for d in check(site, 'plugins = ["acme"]\nselect = ["ACME001"]\n')[1]] == ["ACME001"]


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("gone", "ModuleNotFoundError: No module named 'acme_gone'"),
        ("empty", "contains no rule"),
        ("bad", "AttributeError: module 'os' has no attribute '_exit_'"),
        ("nobody", "no installed package has an entry point 'nobody'"),
    ],
)
def test_a_broken_plug_in_is_a_diagnostic(site: Path, name: str, said: str) -> None:
    code, found = check(site, f'plugins = ["{name}"]\n')
    assert code == 2
    ((message, help_),) = [(d["message"], d["help"]) for d in found]
    assert said in message
    assert name in help_


@pytest.mark.slow
def test_one_rule_alone_can_be_the_entry_point(site: Path) -> None:
    assert [d["code"] for d in check(site, 'plugins = ["one"]\n')[1]] == ["ACME001"]


def test_its_documentation_is_shown_like_dslints_own(site: Path) -> None:
    (site / "elsewhere").mkdir()
    done = installed(site, "rule", "no-stage-3", cwd=site / "elsewhere", env={"DSLINT_PLUGINS": "acme"})
    assert done.returncode == 0, done.stderr
    assert "Stage 3 is not for our network." in done.stdout


EVIL = f"import pathlib; pathlib.Path(__file__).with_name('sprung').touch()\n{RULES}"


def brought(folder: Path, metadata: str) -> None:
    """A repository that brings its own plug-in, with the metadata that a build or an installer would write."""
    (folder / metadata).mkdir(parents=True)
    (folder / metadata / "PKG-INFO").write_text("Metadata-Version: 2.1\nName: evil\nVersion: 1.0\n", encoding="utf-8")
    (folder / metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: evil\nVersion: 1.0\n", encoding="utf-8")
    (folder / metadata / "entry_points.txt").write_text("[dslint.rules]\nevil = acme_rules\n", encoding="utf-8")
    (folder / "acme_rules.py").write_text(EVIL, encoding="utf-8")
    (folder / "dslint.toml").write_text('plugins = ["evil"]\n', encoding="utf-8")
    (folder / "ds.json").write_text(CONFIG, encoding="utf-8")


@pytest.mark.slow
@pytest.mark.parametrize("metadata", ["evil.egg-info", "evil-1.0.dist-info"])
@pytest.mark.parametrize("path", [str(ROOT), f".{os.pathsep}{ROOT}", "the folder"])
def test_the_repository_brings_none(tmp_path: Path, metadata: str, path: str) -> None:
    brought(tmp_path, metadata)
    path = f"{tmp_path}{os.pathsep}{ROOT}" if path == "the folder" else path
    done = dslint("check", "ds.json", "--output-format", "json", cwd=tmp_path, env={"PYTHONPATH": path})
    assert not (tmp_path / "sprung").exists()
    assert done.returncode == 2
    (found,) = json.loads(done.stdout)["diagnostics"]
    assert 'The plug-in "evil" was not loaded' in found["message"] or "no installed package has an entry point" in found["message"]


@pytest.mark.slow
def test_an_egg_info_that_an_old_editable_installation_names_is_not_enough(tmp_path: Path) -> None:
    brought(tmp_path / "repository", "evil.egg-info")
    (tmp_path / "elsewhere").mkdir()  # neither in the working directory nor on PYTHONPATH
    done = installed(tmp_path / "repository", "check", str(tmp_path / "repository" / "ds.json"), cwd=tmp_path / "elsewhere")
    assert not (tmp_path / "repository" / "sprung").exists()
    assert 'The plug-in "evil" was not loaded: it is not installed, but lies in' in " ".join(done.stdout.split())


@pytest.mark.slow
def test_a_module_of_the_repository_does_not_take_the_place_of_the_plug_ins(site: Path) -> None:
    work = site / "work"
    work.mkdir()
    (work / "acme_rules.py").write_text(EVIL, encoding="utf-8")
    (work / "dslint.toml").write_text('plugins = ["one"]\n', encoding="utf-8")
    (work / "ds.json").write_text(CONFIG, encoding="utf-8")
    done = installed(site, "check", "ds.json", "--output-format", "json", cwd=work, env={"PYTHONPATH": f"{work}{os.pathsep}{ROOT}"})
    assert [d["code"] for d in json.loads(done.stdout)["diagnostics"]] == ["ACME001"]
    assert not (work / "sprung").exists()


@pytest.mark.parametrize("name", ["click", "json", "importlib.metadata", "packaging"])
def test_the_module_dslint_imports_nothing_from_the_working_directory(tmp_path: Path, name: str) -> None:
    module = tmp_path / f"{name.replace('.', '/')}.py"
    module.parent.mkdir(exist_ok=True)
    module.write_text("import pathlib; pathlib.Path(__file__).with_name('sprung').touch()\n", encoding="utf-8")
    brought(tmp_path / "evil", "evil.egg-info")
    done = dslint("check", ".", "-v", cwd=tmp_path)
    assert not list(tmp_path.rglob("sprung"))
    assert done.returncode == 2


def test_an_error_that_is_raised_for_each_file_keeps_no_frames_of_the_last_one() -> None:
    rule = load("missing")[0]
    frames = set()
    for _ in range(3):
        with pytest.raises(LookupError) as raised:
            rule.check(None)  # type: ignore[arg-type] # it looks at nothing
        frames.add(len(raised.traceback))
    assert len(frames) == 1
