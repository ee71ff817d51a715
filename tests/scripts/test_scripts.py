"""The scripts do what they say, each in a folder of its own."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest


def run(script: str, *arguments: str, root: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(root / "scripts" / script), *arguments]
    return subprocess.run(command, env={**os.environ, "PYTHONPATH": str(root)}, capture_output=True, text=True, check=False, timeout=120)


@pytest.fixture
def checkout(root: Path, tmp_path: Path) -> Path:
    """A copy of what the scripts work on."""
    for name in ("dslint", "rules", "schemas", "scripts"):
        shutil.copytree(root / name, tmp_path / name, symlinks=True, ignore=shutil.ignore_patterns("__pycache__"))
    return tmp_path


@pytest.mark.slow  # it compiles all rules, three times
def test_a_new_rule_gets_the_next_code_and_fails_until_filled_in(checkout: Path) -> None:
    before = (checkout / "rules/ds5_offload/offload_device.py").read_text(encoding="utf-8")
    done = run(
        "new_rule.py",
        "DS5",
        "nvme-on-a-network-disk",
        "--effect",
        "crash",
        "--phase",
        "initialize",
        "--module",
        "offload_device",
        root=checkout,
    )
    assert done.returncode == 0, done.stderr
    module, line = done.stdout.splitlines()[0].split(": ")[1].rsplit(":", 1)
    text = Path(module).read_text(encoding="utf-8")
    assert text.startswith(before)  # it has all imports
    assert text.splitlines()[int(line) - 1].startswith("@rule(")
    assert run("build_rule_index.py", root=checkout).returncode == 1, "watches and references have to be filled in"
    Path(module).write_text(
        text.replace("FILL.IN", "train_micro_batch_size_per_gpu").replace("references=()", 'references=("x",)'), encoding="utf-8"
    )
    assert run("build_rule_index.py", root=checkout).returncode == 0
    config = checkout / "ds_config.json"
    config.write_text('{"train_micro_batch_size_per_gpu": 4}', encoding="utf-8")
    lint = [sys.executable, "-m", "dslint", "check", str(config), "--output-format", "concise"]
    found = subprocess.run(lint, env={**os.environ, "PYTHONPATH": str(checkout)}, capture_output=True, text=True, check=False, cwd=checkout)
    assert found.returncode == 2
    assert "nvme-on-a-network-disk" in found.stdout
    assert "fill in the rule" in found.stdout


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("DS5", "offload-param-below-stage-3", "--effect", "ignored"), "already"),
        (("DS5", "Not_A_Name", "--effect", "ignored"), "malformed name"),
        (("DS5", "a-crash", "--effect", "crash"), "--phase"),
        (("DS77", "a-name", "--effect", "ignored"), "unknown chapter"),
        (("DS9", "a-name", "--effect", "ignored", "--module", "launcher"), "all codes of DS9 are used"),
        (("DS5", "a-name", "--effect", "ignored"), "nvme "),
        (("DS5", "a-name", "--effect", "ignored", "--module", "not a name"), "nvme "),
    ],
)
def test_what_makes_no_rule_is_refused(root: Path, arguments: tuple[str, ...], words: str) -> None:
    done = run("new_rule.py", *arguments, root=root)
    assert done.returncode == 2
    assert words in done.stderr


def test_corpus_check_counts_and_compares(root: Path, tmp_path: Path) -> None:
    files = {
        "good.json": ('{"train_micro_batch_size_per_gpu": 4}', None),
        "rejected.json": ('{"train_micro_batch_size_per_gpu": 4, "zero_optimization": {"stage": 7}}', "ValidationError"),
        "missed.json": ('{"train_micro_batch_size_per_gpu": 4}', "ValueError: a lie"),
        "wrong.json": ('{"train_micro_batch_size_per_gpu": 4, "amp": {}}', None),
        "template.json": ('{"train_micro_batch_size_per_gpu": {{ micro }}}', "JSONDecodeError"),
    }
    manifest, verdicts = [], []
    for name, (text, error) in files.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
        manifest.append(json.dumps({"id": name, "file": name}))
        verdicts.append(json.dumps({"id": name, "error": error, "world_size": 8}))
    (tmp_path / "manifest.jsonl").write_text("\n".join(manifest), encoding="utf-8")
    (tmp_path / "verdicts.jsonl").write_text("\n".join(verdicts), encoding="utf-8")
    done = run(
        *("corpus_check.py", str(tmp_path), "--manifest", str(tmp_path / "manifest.jsonl"), "--verdicts", str(tmp_path / "verdicts.jsonl")),
        root=root,
    )
    assert done.returncode == 1, done.stderr
    assert "checked 4 files; skipped: 1 template" in done.stdout
    assert "missed (DeepSpeed rejects, no error): 1" in done.stdout
    assert "missed.json: ValueError: a lie" in done.stdout
    assert "claimed wrongly (DeepSpeed accepts): 1" in done.stdout
    assert "wrong.json" in done.stdout
