"""What starts dslint in a repository runs nothing of that repository: it is full of modules, plug-ins and start-up files that tell."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
CONFIG = '{"train_micro_batch_size_per_gpu": 4, "zero_optimisation": {"stage": 2}}'
OTHERS = (
    "click",
    "deepspeed_lint",
    "dslint",
    "packaging",
    "pathspec",
    "pip",
    "pydantic",
    "setuptools",
    "sitecustomize",
    "usercustomize",
    "yaml",
)
"""Modules outside of the standard library that a start of dslint or pip imports."""


@pytest.fixture
def traps(tmp_path: Path) -> Path:
    """A repository with a wrong config, and a module for each name that Python, pip or dslint may import. Each leaves a file `sprung`."""
    folder = tmp_path / "repository"
    folder.mkdir()
    trap = f"import io, os\nio.open(os.path.join({str(folder)!r}, 'sprung'), 'a').write(__name__ + '\\n')\nraise SystemExit(77)\n"
    for name in {*sys.stdlib_module_names, *OTHERS}:
        (folder / f"{name}.py").write_text(trap, encoding="utf-8")
    (folder / "ds_config.json").write_text(CONFIG, encoding="utf-8")
    (folder / "dslint.toml").write_text('exclude = ["*.py"]\n', encoding="utf-8")
    return folder


def run(command: list[str], folder: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run a command in the repository, whose workflow has put the repository on PYTHONPATH."""
    programs = str(Path(sys.executable).parent)
    environment = {**os.environ, "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}", "PYTHONPATH": f".{os.pathsep}{folder}"}
    done = subprocess.run(
        command,
        cwd=folder,
        env=environment | variables,
        capture_output=True,
        encoding="utf-8",
        stdin=subprocess.DEVNULL,
        check=False,
        timeout=300,
    )
    sprung = folder / "sprung"
    assert not sprung.exists(), f"sprung: {sprung.read_text(encoding='utf-8')}"
    return done


def test_the_traps_work(traps: Path) -> None:
    with pytest.raises(AssertionError, match="sprung"):
        run([sys.executable, "-c", "import json"], traps)


HOOKS = yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text(encoding="utf-8"))


@pytest.mark.parametrize("hook", HOOKS, ids=[hook["id"] for hook in HOOKS])
def test_hooks(traps: Path, hook: dict[str, str]) -> None:
    done = run([*shlex.split(hook["entry"]), "ds_config.json"], traps)
    assert done.returncode == 1, done.stderr
    assert "DS102" in done.stdout


def test_security_recommends_the_command_of_the_hooks() -> None:
    assert "run `python -I -m deepspeed_lint check .`" in (ROOT / "SECURITY.md").read_text(encoding="utf-8")
    assert all(hook["entry"].startswith("python -I -m deepspeed_lint check") for hook in HOOKS)


def test_the_container(traps: Path) -> None:
    text = (ROOT / "Containerfile").read_text(encoding="utf-8")
    (entry,) = re.findall(r"^ENTRYPOINT (\[.*\])$", text, re.MULTILINE)
    done = run([*yaml.safe_load(entry), "check", "."], traps)
    assert done.returncode == 1, done.stderr
    assert "DS102" in done.stdout


def test_the_extension(traps: Path) -> None:
    pytest.importorskip("pygls")
    source = (ROOT / "editors" / "vscode" / "src" / "interpreter.ts").read_text(encoding="utf-8")
    (safe,) = re.findall(r"^export const SAFE = (\[.*\]);$", source, re.MULTILINE)
    assert run([sys.executable, *yaml.safe_load(safe), "-c", "import dslint.server, pygls"], traps).returncode == 0
    assert run([sys.executable, *yaml.safe_load(safe), "-m", "dslint", "--version"], traps).stdout.startswith("dslint ")


STARTS = ("action.yml", "scripts/action.sh", "scripts/action_install.sh", "templates/dslint.yml", "Containerfile", ".pre-commit-hooks.yaml")
"""The files that start Python in a repository, or install what does."""


@pytest.mark.parametrize("file", STARTS)
def test_every_start_of_python_is_isolated(file: str) -> None:
    """Also where another guard, such as the folder, would do: two keep what one of them loses."""
    text = (ROOT / file).read_text(encoding="utf-8")
    text = "\n".join(line for line in text.splitlines() if not line.lstrip().startswith("#"))
    started = re.findall(r"""(?:"\$PYTHON"|"\$candidate"|/python"|\bpython3?|"python",)[ ]("?-\w+)""", text)
    assert started
    assert {flag.strip('"') for flag in started} == {"-I"}


BASH = pytest.mark.skipif(not shutil.which("bash") or sys.platform == "win32", reason="bash scripts")


def in_action(traps: Path, script: list[str], **variables: str) -> dict[str, str]:
    """Run a script of the action; what it puts out."""
    temp = traps.parent / "temp"
    temp.mkdir(exist_ok=True)
    outputs = temp / "outputs"
    outputs.write_text("", encoding="utf-8")
    given = {"RUNNER_TEMP": str(temp), "GITHUB_OUTPUT": str(outputs), "ACTION": str(ROOT), "PYTHON": sys.executable}
    done = run(["bash", "--noprofile", "--norc", "-eo", "pipefail", *script], traps, **given | variables)
    assert done.returncode in (0, 1), done.stdout + done.stderr
    return {"stdout": done.stdout} | dict(line.split("=", 1) for line in outputs.read_text(encoding="utf-8").splitlines())


@pytest.mark.slow
@BASH
def test_the_action_finds_names_and_runs(traps: Path) -> None:
    action = yaml.safe_load((ROOT / "action.yml").read_text(encoding="utf-8"))
    find = next(step["run"] for step in action["runs"]["steps"] if step["id"] == "find")
    assert Path(in_action(traps, ["-c", find], PYTHON="")["python"]).is_absolute()
    (traps / "python").symlink_to(sys.executable)
    assert in_action(traps, ["-c", find], PYTHON="./python")["python"].startswith(str(traps))
    assert in_action(traps, [str(ROOT / "scripts" / "action_install.sh"), "name"])["key"].startswith("dslint-")
    names = next(step["env"] for step in action["runs"]["steps"] if step["id"] == "check")
    inputs = {name: "" for name in names if name not in ("ACTION", "PYTHON")}
    assert "DS102" in in_action(traps, [str(ROOT / "scripts" / "action.sh")], **inputs | {"PATHS": "."})["stdout"]


@BASH
@pytest.mark.build
def test_the_action_installs(traps: Path) -> None:
    python = in_action(traps, [str(ROOT / "scripts" / "action_install.sh"), "install"])["python"]
    assert run([python, "-I", "-m", "deepspeed_lint", "--version"], traps).stdout.startswith("dslint ")


@BASH
@pytest.mark.build
def test_the_gitlab_component(traps: Path) -> None:
    spec, job = yaml.safe_load_all((ROOT / "templates" / "dslint.yml").read_text(encoding="utf-8"))
    inputs = {name: str(one["default"]) for name, one in spec["spec"]["inputs"].items()} | {"package": str(ROOT)}
    lines = [re.sub(r"\$\[\[ inputs\.(\w+) \]\]", lambda match: inputs[match[1]], line) for line in job["dslint"]["script"]]
    subprocess.run(
        [sys.executable, "-m", "venv", str(traps.parent / "image")], check=True, cwd=traps.parent, env={**os.environ, "PYTHONPATH": ""}
    )
    done = run(["bash", "-ec", "\n".join(lines)], traps, PATH=f"{traps.parent / 'image' / 'bin'}{os.pathsep}{os.environ['PATH']}")
    assert done.returncode == 1, done.stdout + done.stderr
    assert "DS102" in (traps / "gl-code-quality-report.json").read_text(encoding="utf-8")
