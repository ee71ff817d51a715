"""The GitHub action: its steps are run as a runner runs them, on a repository with a pull request."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
import yaml

from dslint.settings.table import FACTS
from tests.hooks.test_hooks import tracked
from tests.report.runner import read

ROOT = Path(__file__).resolve().parents[2]
ACTION = yaml.safe_load((ROOT / "action.yml").read_text(encoding="utf-8"))
WRONG = '{"train_micro_batch_size_per_gpu": 4, "zero_optimisation": {"stage": 2}}'

pytestmark = [
    pytest.mark.build,
    pytest.mark.skipif(not shutil.which("bash") or not shutil.which("git"), reason="the action needs bash and git"),
    pytest.mark.skipif(not (ROOT / ".git").exists(), reason="not a git checkout"),
]


@dataclass
class Step:
    """What a step left behind."""

    code: int
    output: str
    outputs: dict[str, str]
    summary: str


@dataclass
class Runner:
    """As much of GitHub's runner as a composite action of shell steps needs."""

    action: Path
    workspace: Path
    temp: Path
    base: str
    path: str = os.environ["PATH"]

    def run(self, **inputs: str) -> Step:
        """Run all steps with these inputs; the last one's outcome."""
        given = {name: spec.get("default", "") for name, spec in ACTION["inputs"].items()}
        given |= {name.replace("_", "-"): value for name, value in inputs.items()}
        steps: dict[str, dict[str, str]] = {}
        last = None
        for number, step in enumerate(ACTION["runs"]["steps"]):
            if step["id"] == "cache":  # GitHub's own action: it restores the folder, which here is still there from the run before
                assert step["with"]["path"] == "${{ runner.temp }}/dslint"
                assert steps["name"]["key"].startswith("dslint-")
                continue
            if step["id"] == "python":  # GitHub's own action: it runs where its condition holds, and says where its Python is
                assert step["if"] == "steps.find.outputs.python == ''"
                steps["python"] = {} if steps["find"].get("python") else {"python-path": sys.executable}
                continue
            last = self._step(step, number, given, steps)
            steps[step["id"]] = last.outputs
            if last.code:
                break
        assert last is not None
        return last

    def _step(self, step: dict[str, object], number: int, given: dict[str, str], steps: dict[str, dict[str, str]]) -> Step:
        def value(match: re.Match[str]) -> str:
            return next((found for expression in match[1].split(" || ") if (found := named(expression))), "")

        def named(expression: str) -> str:
            kind, _, name = expression.partition(".")
            if kind == "inputs":
                return given[name]
            if kind == "steps":
                of, _, output = name.split(".", 2)
                return steps[of].get(output, "")
            return {"github.action_path": str(self.action), "github.event.pull_request.base.sha": self.base}[expression]

        outputs, summary = self.temp / f"output{number}", self.temp / f"summary{number}"
        for file in (outputs, summary):
            file.write_text("", encoding="utf-8")
        assert isinstance(step["env"], dict)
        assert "${{" not in str(step["run"]), "an input must never become a part of a script"
        environment = {name: re.sub(r"\$\{\{\s*(.+?)\s*\}\}", value, text) for name, text in step["env"].items()}
        script = self.temp / "step.sh"
        script.write_text(str(step["run"]), encoding="utf-8")
        done = subprocess.run(
            ["bash", "--noprofile", "--norc", "-eo", "pipefail", str(script)],
            cwd=self.workspace,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
            timeout=300,
            env={
                "PATH": self.path,
                "HOME": str(self.temp),
                **{name: text for name, text in os.environ.items() if name.startswith(("PIP_", "UV_", "SSL_"))},
                "GITHUB_WORKSPACE": str(self.workspace),
                "RUNNER_TEMP": str(self.temp),
                "GITHUB_OUTPUT": str(outputs),
                "GITHUB_STEP_SUMMARY": str(summary),
                "GITHUB_ACTIONS": "true",
                **environment,
            },
        )
        pairs = (line.split("=", 1) for line in outputs.read_text(encoding="utf-8").splitlines())
        return Step(done.returncode, done.stdout, dict(pairs), summary.read_text(encoding="utf-8"))  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def runner(tmp_path_factory: pytest.TempPathFactory) -> Runner:
    """A repository with a wrong config, and a pull request that adds another and touches a file that is none; checked out shallowly."""
    folder = tmp_path_factory.mktemp("action")
    origin, workspace, temp = folder / "origin", folder / "workspace", folder / "temp"
    for made in (origin / "conf", temp):
        made.mkdir(parents=True)
    git = ["git", "-c", "user.name=t", "-c", "user.email=t@example.invalid", "-c", "commit.gpgsign=false"]

    def in_origin(*command: str) -> str:
        return subprocess.run([*git, *command], cwd=origin, check=True, capture_output=True, text=True).stdout.strip()

    in_origin("init", "-q", "-b", "main")
    in_origin("config", "uploadpack.allowAnySHA1InWant", "true")
    (origin / "conf" / "old.json").write_text(WRONG, encoding="utf-8")
    in_origin("add", "-A")
    in_origin("commit", "-qm", "old")
    base = in_origin("rev-parse", "HEAD")
    (origin / "conf" / "new one.json").write_text(WRONG, encoding="utf-8")
    (origin / "package.json").write_text('{"name": "x"}', encoding="utf-8")
    in_origin("add", "-A")
    in_origin("commit", "-qm", "new")
    subprocess.run(["git", "clone", "-q", "--depth=1", origin.as_uri(), str(workspace)], check=True, capture_output=True)
    return Runner(tracked(folder / "action"), workspace, temp, base)


def test_everything_is_annotated_and_summed_up(runner: Runner) -> None:
    step = runner.run(args="--isolated")
    assert step.code == 1, step.output
    assert step.outputs == {"exit-code": "1"}
    commands, log = read(step.output)
    assert {c.properties["file"] for c in commands if c.name == "error"} == {"conf/old.json", "conf/new one.json"}
    assert "error[DS102] misspelt-key-dropped" in "\n".join(log)
    assert "DS102" in step.summary
    assert "conf/old.json" in step.summary


def test_only_what_a_pull_request_touches(runner: Runner) -> None:
    step = runner.run(changed_only="true")
    assert step.code == 1, step.output
    assert {c.properties["file"] for c in read(step.output)[0] if c.name == "error"} == {"conf/new one.json"}
    assert runner.run(changed_only="true", paths="package.json").code == 0


def test_a_sarif_file_and_a_step_that_does_not_fail(runner: Runner) -> None:
    step = runner.run(
        sarif_file="found.sarif", fail_on="never", summary="false", world_size="8", integration="transformers", deepspeed="0.16.9"
    )
    assert step.code == 0, step.output
    assert step.summary == ""
    sarif = json.loads((runner.workspace / "found.sarif").read_text(encoding="utf-8"))
    assert {r["locations"][0]["physicalLocation"]["artifactLocation"]["uri"] for r in sarif["runs"][0]["results"]} >= {"conf/old.json"}


def test_every_fact_of_the_command_has_an_input(runner: Runner) -> None:
    assert {*FACTS, "checkpoint", "env", "fail-on", "strict", "baseline"} <= set(ACTION["inputs"])
    facts = {"nodes": "2", "tensor_parallel": "1", "pipeline_parallel": "1", "sequence_parallel": "1", "model": "llama-3-8b"}
    sizes = {
        "gpu": "h100",
        "gpu_memory": "80GiB",
        "host_memory": "1TiB",
        "env": "A=1 B=2",
        "strict": "true",
        "world_size": "16",
        "package": "torch==2.10.0 peft==0.17.0",
    }
    assert runner.run(**facts, **sizes, fail_on="never", args="--isolated").code == 0
    for name, wrong in {
        "nodes": "0",
        "gpu_memory": "much",
        "host_memory": "much",
        "env": "A",
        "package": "torch",
        "baseline": "none.json",
        "checkpoint": "none",
    }.items():
        assert runner.run(**{name: wrong}).code == 2, name
    assert 'dslint: --gpu "abacus" is not a known GPU' in runner.run(gpu="abacus").output


def test_the_environment_is_kept(runner: Runner) -> None:
    runner.run()
    (program,) = (runner.temp / "dslint").rglob("deepspeed_lint.py")
    made = program.stat().st_mtime_ns
    runner.run()
    assert program.stat().st_mtime_ns == made
    program.write_text("raise SystemExit(3)\n", encoding="utf-8")  # restored from a machine where it worked
    assert runner.run(args="--isolated").code == 1
    assert program.stat().st_mtime_ns != made


def test_inputs_are_words_and_never_commands(runner: Runner) -> None:
    step = runner.run(paths="conf/old.json;touch$IFS/pwned `touch pwned` $(touch pwned)")
    assert step.code == 2
    assert not (runner.workspace / "pwned").exists()


def found_python(runner: Runner, programs: Path, old: Iterable[str], python: str = "") -> Step:
    """What the first step says on a runner on which these programs are a Python that is too old."""
    programs.mkdir()
    for name in old:
        (programs / name).write_text("#!/bin/sh\nexit 1\n", encoding="utf-8")
        (programs / name).chmod(0o755)
    runner = replace(runner, path=f"{programs}{os.pathsep}{runner.path}")
    first = ACTION["runs"]["steps"][0]
    return runner._step(first, 9, {**dict.fromkeys(ACTION["inputs"], ""), "python": python}, {})


@pytest.mark.skipif(sys.platform == "win32", reason="bash scripts")
def test_a_python_that_is_too_old_is_not_taken(runner: Runner, tmp_path: Path) -> None:
    names = [f"python{minor}" for minor in ("", "3", "3.11", "3.12", "3.13", "3.14")]
    assert found_python(runner, tmp_path / "none", [], sys.executable).outputs == {"python": sys.executable}
    assert Path(found_python(runner, tmp_path / "some", ["python3"]).outputs["python"]).parent != tmp_path / "some"
    every = found_python(runner, tmp_path / "every", names)
    assert every.code == 0
    assert every.outputs == {}
    refused = found_python(runner, tmp_path / "given", ["old"], "old")
    assert refused.code == 2
    assert "3.11" in refused.output


@pytest.mark.skipif(sys.platform == "win32", reason="bash scripts")
def test_the_scripts_are_ones_that_bash_reads() -> None:
    for script in ("action.sh", "action_install.sh"):
        subprocess.run(["bash", "-n", str(ROOT / "scripts" / script)], check=True)
