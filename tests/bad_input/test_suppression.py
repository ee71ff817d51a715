"""What dslint failed on stays visible: neither comments, settings, the baseline nor a selection of rules hide an internal error or an unreadable file."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from dslint.cli import cli
from dslint.rules.ds0_files import structure

BROKEN = '// dslint: ignore-file[DS000, internal-error, DS003] r\n{"train_batch_size": 8}'


@pytest.fixture
def failing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a config on which a rule fails."""

    def fail(config: object) -> None:
        raise KeyError("made to fail")

    monkeypatch.setattr(structure.duplicate_key, "check", fail)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "ds_config.json").write_text(BROKEN, encoding="utf-8")
    return tmp_path


def found(*arguments: str) -> tuple[int, list[str]]:
    done = CliRunner().invoke(cli, ["check", "ds_config.json", "--output-format", "json", *arguments])
    return done.exit_code, [diagnostic["code"] for diagnostic in json.loads(done.stdout)["diagnostics"]]


@pytest.mark.parametrize(
    "flags", [(), ("--ignore", "DS1"), ("--select", "DS003"), ("--exit-zero",), ("--fail-on", "never"), ("--severity", "DS003=info")]
)
def test_options(failing: Path, flags: tuple[str, ...]) -> None:
    code, codes = found(*flags)
    assert code == 2
    assert "DS000" in codes


def test_settings_entries(failing: Path) -> None:
    (failing / "dslint.toml").write_text('[[ignores]]\nfile = "*.json"\nrules = ["DS003"]\nreason = "r"\n', encoding="utf-8")
    assert "DS000" in found()[1]
    (failing / "dslint.toml").write_text('[[ignores]]\nfile = "*.json"\nrules = ["DS000"]\nreason = "r"\n', encoding="utf-8")
    done = CliRunner().invoke(cli, ["check", "ds_config.json"])
    assert done.exit_code != 0


def test_baselines(failing: Path) -> None:
    known = failing / "known.json"
    code, _ = found("--baseline", "known.json", "--write-baseline")
    assert code == 2
    assert '"code": "DS000"' not in known.read_text(encoding="utf-8")
    known.write_text('{"version": 1, "findings": {"ds_config.json": [{"code": "DS000", "place": "", "count": 9}]}}', encoding="utf-8")
    code, codes = found("--baseline", "known.json")
    assert code == 2
    assert "DS000" in codes


def test_added_ignores(failing: Path) -> None:
    done = CliRunner().invoke(cli, ["check", "ds_config.json", "--add-ignores", "because", "--output-format", "json"])
    assert done.exit_code == 2
    assert "DS000" in done.stdout


@pytest.mark.parametrize(
    "flags", [(), ("--select", "DS1"), ("--ignore", "ALL"), ("--exit-zero",), ("--baseline", "known.json", "--write-baseline")]
)
def test_what_cannot_be_read_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, flags: tuple[str, ...]) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "ds_config.json").write_bytes(b"\xff\xfe{}")
    (tmp_path / "dslint.toml").write_text('[per-file-ignores]\n"*" = ["DS0", "DS1"]\n', encoding="utf-8")
    done = CliRunner().invoke(cli, ["check", "ds_config.json", *flags])
    assert done.exit_code == 2
    assert "UTF-16" in done.stdout


@pytest.mark.parametrize("reason", ["a\nb", "a\x1bb", "a\u2028b", 'a\r\n"fp16": 1'])
def test_a_reason_of_several_lines_writes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reason: str) -> None:
    monkeypatch.chdir(tmp_path)
    config = tmp_path / "ds_config.hjson"
    config.write_text('{"train_batch_size": 8,\n"zero_optimisation": {}}', encoding="utf-8")
    done = CliRunner().invoke(cli, ["check", "ds_config.hjson", "--add-ignores", reason])
    assert done.exit_code == 2
    assert config.read_text(encoding="utf-8") == '{"train_batch_size": 8,\n"zero_optimisation": {}}'
