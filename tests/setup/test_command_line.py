"""`dslint check` of setups, as a person calls it: exit codes, and directories in which pairs are found."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from dslint.cli import cli

CONFIG = {"train_batch_size": "auto", "gradient_accumulation_steps": 4, "gradient_clipping": "auto", "zero_optimization": {"stage": 2}}
TRAINING = "base_model: m\nmicro_batch_size: 2\ngradient_accumulation_steps: 2\ndeepspeed: ds.json\n"


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "ds.json").write_text(json.dumps(CONFIG), encoding="utf-8")
    (tmp_path / "train.yaml").write_text(TRAINING, encoding="utf-8")
    (tmp_path / "other.yaml").write_text("a: [deepspeed\n", encoding="utf-8")
    (tmp_path / "compose.yml").write_text("services: {}\n", encoding="utf-8")
    return tmp_path


def check(*arguments: str) -> Result:
    return CliRunner().invoke(cli, ["check", "--output-format", "concise", *arguments])


def test_a_directory_has_its_pairs_found(here: Path) -> None:
    done = check(".")
    assert done.exit_code == 1
    lines = [line for line in done.stdout.splitlines() if "DS904" in line]
    assert len(lines) == 1
    assert lines[0].startswith("ds.json:1:")
    assert "from train.yaml:3 (gradient_accumulation_steps: 2)" in lines[0]
    assert "train.yaml:1:1" not in done.stdout  # a state has no line in the form of a finding
    assert "training arguments for axolotl; DeepSpeed config: ds.json." in check(".", "--output-format", "full").stdout
    assert "other.yaml" not in done.stdout
    assert "compose.yml" not in done.stdout


def test_several_processes_find_the_same(here: Path) -> None:
    assert check(".", "--jobs", "2").stdout == check(".").stdout


def test_a_command(here: Path) -> None:
    assert check("--command", "torchrun --nproc_per_node 8 t.py --deepspeed ds.json --gradient_accumulation_steps 2").exit_code == 1
    assert check("--command", "torchrun --nproc_per_node 8 t.py --deepspeed ds.json --gradient_accumulation_steps 4").exit_code == 0
    assert check("--command", "torchrun t.py --deepspeed ds.json", "ds.json").exit_code == 2


def test_the_release_of_the_integration(here: Path) -> None:
    assert check("train.yaml", "--integration", "transformers==4.40.0").exit_code == 1
    for wrong in ("transformers==x", "keras==1.0", "transformers=="):
        done = check("train.yaml", "--integration", wrong)
        assert done.exit_code == 2
        assert "Traceback" not in done.output


def test_broken_yaml_that_is_named(here: Path) -> None:
    done = check("other.yaml")
    assert done.exit_code == 2
    assert "invalid YAML" in done.output


def test_what_a_hook_names_and_is_about_something_else_is_silent(here: Path) -> None:
    (here / "run.sh").write_text("echo hello\n", encoding="utf-8")
    nothing = check("--force-exclude", "compose.yml", "run.sh")
    assert (nothing.exit_code, nothing.stdout, nothing.stderr) == (0, "", "")
    found = check("--force-exclude", "compose.yml", "train.yaml")
    assert found.exit_code == 1
    assert "compose.yml" not in found.stdout


def test_why_something_was_assumed_is_said_on_request(here: Path) -> None:
    why = "--integration transformers: train.yaml sets arguments of axolotl"
    short, verbose = (CliRunner().invoke(cli, ["check", "train.yaml", *flags]).stdout for flags in ([], ["-v"]))
    assert why not in short
    assert why in verbose
