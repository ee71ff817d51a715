"""Runs of the real engine for tests. Without it they are skipped, or fail where REQUIRE_DEEPSPEED is set, as in CI.

Importing torch and DeepSpeed takes longer than a small run, so a server imports them once and forks. What the probe's own start of a
process does is tested on real ones (`program`).
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from dslint.probe import trial
from dslint.probe.answer import Answer
from dslint.probe.question import Question
from dslint.probe.session import Progress
from tests.command import ROOT

needs_engine = pytest.mark.skipif(
    find_spec("deepspeed") is None and not os.environ.get("REQUIRE_DEEPSPEED"), reason="deepspeed is not installed"
)


def environment(**more: str) -> dict[str, str]:
    """The variables for a program. One thread: more wait for each other when several tests run at a time."""
    kept = {name: value for name, value in os.environ.items() if name not in ("RANK", "WORLD_SIZE", "LOCAL_RANK")}
    return {**kept, "PYTHONPATH": str(ROOT), "COLUMNS": "100", "OMP_NUM_THREADS": "1", **more}


@cache
def _server() -> subprocess.Popen[str]:
    """Ends when this process does, with its standard input."""
    return subprocess.Popen(
        [sys.executable, "-W", "ignore", "-m", "tests.probe.server"],
        cwd=ROOT,
        env=environment(),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )


def found(question: Question, by: str) -> dict[str, Any]:
    """What a fresh process finds: by "probe" the data of an answer, by "allocator" what `tests.probe.allocator` counts."""
    server = _server()
    assert server.stdin is not None
    assert server.stdout is not None
    server.stdin.write(json.dumps({"question": question.to_json(), "by": by}) + "\n")
    server.stdin.flush()
    data: dict[str, Any] = json.loads(server.stdout.readline())
    return data


def ask(question: Question, *, timeout: float, progress: Progress) -> Answer:
    """In the place of `dslint.probe.session.ask`."""
    return Answer.from_data(found(question, "probe"))


def run(path: Path, *options: str) -> Result:
    """`dslint probe` in the folder of the config, with the server's forks for its processes."""
    from dslint.cli.probe import command

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(trial, "ask", ask)
        patch.chdir(path.parent)
        result = CliRunner().invoke(command, [str(path), *options], env={"COLUMNS": "100"})
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result


def asked(path: Path, *options: str) -> dict[str, Any]:
    """The JSON of a run."""
    result = run(path, *options, "--output-format", "json")
    assert result.stdout, result.output
    data: dict[str, Any] = json.loads(result.stdout)
    assert data["exit_code"] == result.exit_code
    return data


def program(path: Path, *options: str, **env: str) -> subprocess.CompletedProcess[str]:
    """`dslint probe` as a program, with all that it starts."""
    done = subprocess.run(
        [sys.executable, "-m", "dslint", "probe", str(path), *options],
        cwd=path.parent,
        env=environment(**env),
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert "Traceback" not in done.stdout + done.stderr, done.stderr
    return done
