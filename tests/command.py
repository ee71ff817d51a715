"""Runs the command line as a person would: in a process of its own. Outputs in JSON are held to their published schemas."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from tests.forks import Forks
from tests.report.outputs import assert_valid

ROOT = Path(__file__).resolve().parent.parent


# For a process to be interrupted: one that was started in the background of a script ignores SIGINT, and so would its children.
INTERRUPTIBLE = [
    sys.executable,
    "-c",
    "import signal; signal.signal(signal.SIGINT, signal.default_int_handler); from dslint.cli import main; main()",
]


FORKS = Forks()
AT_START = ("PYTHON", "LC_", "LANG")
"""Names of variables that only a starting Python reads."""


def dslint(*arguments: str | os.PathLike[str], env: dict[str, str] | None = None, **options: Any) -> subprocess.CompletedProcess[str]:
    """Run `dslint`; both streams come back as text. However it ends, it ends without a traceback.

    The options are those of `subprocess.run`. A fork of a process that has imported dslint runs it, unless an option or a variable needs a
    Python of its own.
    """
    words = [os.fspath(one) for one in arguments]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "COLUMNS": "100", **(env or {})}
    if hasattr(os, "fork") and options.keys() <= {"cwd", "input"} and not any(name.startswith(AT_START) for name in env or {}):
        done = forked(words, environment, **options)
    else:
        options.setdefault("encoding", "utf-8")
        options.setdefault("errors", "backslashreplace")
        command = [sys.executable, "-m", "dslint", *words]
        done = subprocess.run(command, env=environment, capture_output=True, check=False, timeout=300, **options)
    assert "Traceback" not in done.stdout + done.stderr, done.stderr
    assert_valid(words, done.stdout)
    return done


def forked(
    words: list[str],
    environment: dict[str, str],
    cwd: str | os.PathLike[str] | None = None,
    input: str | None = None,  # noqa: A002 - as in subprocess.run
) -> subprocess.CompletedProcess[str]:
    """Run `dslint` in a fork, in exactly this environment."""
    with tempfile.TemporaryFile() as given, tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        given.write((input or "").encode())
        given.seek(0)
        code = FORKS.run(words, os.fspath(cwd or Path.cwd()), environment, [given, out, err])
        texts = []
        for stream in (out, err):
            stream.seek(0)
            text = stream.read().decode("utf-8", "backslashreplace")
            texts.append(text.replace("\r\n", "\n"))
    return subprocess.CompletedProcess(["dslint", *words], code, *texts)
