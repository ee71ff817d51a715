"""The workflows of this repository, and the action that it is: what they run is pinned, and what they may do is little."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
PINNED = re.compile(r"[\w.-]+/[\w./-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+")


@pytest.mark.parametrize("file", [*WORKFLOWS, ROOT / "action.yml", ROOT / "docs" / "ci.md"], ids=lambda file: file.name)
def test_every_action_is_pinned_by_its_commit(file: Path) -> None:
    used = re.findall(r"^\s*(?:- )?uses: (.+)$", file.read_text(encoding="utf-8"), re.MULTILINE)
    assert used
    assert [one for one in used if not PINNED.fullmatch(one) and "dslint@" not in one] == []


@pytest.mark.parametrize("file", WORKFLOWS, ids=lambda file: file.name)
def test_jobs_may_write_only_what_they_say(file: Path) -> None:
    workflow = yaml.safe_load(file.read_text(encoding="utf-8"))
    assert set(workflow["permissions"].values() if workflow["permissions"] else ()) <= {"read"}
    for name, job in workflow["jobs"].items():
        writes = {scope for scope, access in job.get("permissions", {}).items() if access == "write"}
        assert writes <= {"issues", "pages", "id-token", "attestations"}, name
        runs = " ".join(str(step.get("run", "")) for step in job["steps"])
        assert "issues" not in writes or "python" not in runs, "code of the repository runs without permission to write"
        assert "${{" not in runs, "a value must never become a part of a script"
        assert job["timeout-minutes"] <= 120


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "files"), [("github-workflows", WORKFLOWS), ("github-actions", [ROOT / "action.yml"])])
def test_github_takes_them(kind: str, files: list[Path]) -> None:
    pytest.importorskip("check_jsonschema")
    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", f"vendor.{kind}", *map(str, files)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


@pytest.mark.slow
def test_zizmor_finds_nothing() -> None:
    program = shutil.which("zizmor", path=str(Path(sys.executable).parent)) or shutil.which("zizmor")
    if program is None:
        pytest.skip("zizmor is not installed")
    command = [program, "--offline", "--persona", "auditor", "--no-progress", str(ROOT / ".github" / "workflows"), str(ROOT / "action.yml")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
