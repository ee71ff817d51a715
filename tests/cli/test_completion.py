"""Shell completion, as the documents set it up, in the shells that are here."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.command import ROOT


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """One in which `dslint` is a program of this environment."""
    program = tmp_path / "dslint"
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -c "from dslint.cli import main; main()" "$@"\n', encoding="utf-8")
    program.chmod(0o755)
    return {**os.environ, "PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}", "PYTHONPATH": str(ROOT)}


@pytest.mark.skipif(sys.platform == "win32" or not shutil.which("bash"), reason="there is no bash")
@pytest.mark.parametrize(
    ("words", "offered"),
    [
        (["dslint", "ch"], {"check"}),
        (["dslint", "check", "--int"], {"--integration"}),
        (["dslint", "check", "--integration", "tr"], {"transformers"}),
        (["dslint", "check", "--select", "offload-param"], {"offload-param-below-stage-3"}),
        (["dslint", "check", "--ignore", "DS501,DS50"], {"DS501,DS501", "DS501,DS502", "DS501,DS503", "DS501,DS504"}),
        (["dslint", "check", "--output-format", "sa"], {"sarif"}),
        (["dslint", "check", "--gpu", "a100"], {"a100", "a100-40gb"}),
        (["dslint", "estimate", "x.json", "--model", "llama-3-"], {"llama-3-8b", "llama-3-70b"}),
        (["dslint", "check", "--model", "llama-3-"], {"llama-3-8b"}),
        (["dslint", "rule", "--key", "zero_optimization.offload_p"], {"zero_optimization.offload_param"}),
        (["dslint", "rule", "ds50"], {"DS501", "DS502", "DS503", "DS504"}),
    ],
)
def test_bash(environment: dict[str, str], words: list[str], offered: set[str]) -> None:
    listed = " ".join(f"'{word}'" for word in words)
    script = (
        'eval "$(_DSLINT_COMPLETE=bash_source dslint)"\n'
        f"COMP_WORDS=({listed}); COMP_CWORD={len(words) - 1}\n"
        f"_dslint_completion dslint\nprintf '%s\\n' \"${{COMPREPLY[@]}}\"\n"
    )
    done = subprocess.run(["bash", "-c", script], env=environment, capture_output=True, text=True, check=False)
    assert "rror" not in done.stderr, done.stderr
    assert offered <= set(done.stdout.split())


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_the_set_up_of_other_shells_is_printed(environment: dict[str, str], shell: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", "from dslint.cli import main; main()"],
        env={**environment, "_DSLINT_COMPLETE": f"{shell}_source"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0
    assert "_DSLINT_COMPLETE" in done.stdout
    if shutil.which(shell):
        assert subprocess.run([shell, "-n"], input=done.stdout, text=True, check=False).returncode == 0
