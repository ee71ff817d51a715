"""Nothing in a file, a name or an option reaches a terminal or a CI log as they would act on it: in no command, no format, on neither stream."""

from __future__ import annotations

import json
import random
import re
from pathlib import Path

import pytest
from click.testing import CliRunner

from dslint.cli import cli
from dslint.report.style import printable
from dslint.settings.table import FORMATS
from tests.command import dslint

HOSTILE = ("\x1b[31mred", "a\n::error::injected", "\r::warning::x", "\x9b2J", "\u202ekey", "##[error]x", "::error::x", "\x07\x7f")

COMMANDS = {
    "check": ["check", "ds_config.json", "--no-group", "-v"],
    "statistics": ["check", "ds_config.json", "--statistics"],
    "diff": ["check", "ds_config.json", "--unsafe-fixes", "--diff"],
    "show": ["show", "ds_config.json", "--all"],
    "show JSON": ["show", "ds_config.json", "--output-format", "json"],
    "show the config": ["show", "ds_config.json", "--output-format", "config"],
    "estimate": ["estimate", "ds_config.json", "--model", "llama-2-7b", "--world-size", "8"],
    "fit": ["fit", "ds_config.json", "--model", "llama-2-7b", "--world-size", "8", "--gpu", "a100-80gb"],
    "config": ["config", "ds_config.json"],
    "diagnose": ["diagnose", "job.log"],
    "the script": ["check", "run.sh"],
    "a config that is broken": ["show", "broken.json"],
}

OPTIONS = {
    "a path": ["check", "{}"],
    "a config": ["show", "{}"],
    "a setting": ["check", "ds_config.json", "--world-size", "{}"],
    "an option": ["check", "ds_config.json", "--{}"],
    "a command": ["{}"],
    "a rule": ["rule", "{}"],
    "a key": ["rule", "--key", "{}"],
    "an error": ["rule", "--error", "ValueError: {}"],
    "a model": ["estimate", "ds_config.json", "--model", "{}", "--world-size", "8"],
    "a settings file": ["check", "--config", "{}"],
    "a baseline": ["check", "ds_config.json", "--baseline", "{}"],
    "a selection": ["check", "ds_config.json", "--select", "{}"],
    "a release": ["schema", "--deepspeed", "{}"],
    "an output": ["check", "ds_config.json", "--output", "json={}/x"],
    "a reason": ["check", "ds_config.json", "--add-ignores", "{}"],
    "a launch": ["check", "--command", "deepspeed {} --deepspeed {}"],
    "a file to write": ["init", "{}.json", "--integration", "deepspeed"],
    "a word in place of a file to write": ["init", "{}", "--integration", "deepspeed"],
}


def assert_inert(text: str) -> None:
    """A text that neither a terminal nor a CI runner acts on."""
    assert [character for character in text if not character.isprintable() and character not in "\n\t"] == []
    assert re.findall(r"(?m)^\s*::[^:]", text) == []
    assert "##[" not in text


@pytest.fixture(params=HOSTILE, ids=ascii)
def hostile(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A hostile word, and a folder in which files hold it everywhere."""
    word = str(request.param)
    monkeypatch.chdir(tmp_path)
    config = {
        "train_micro_batch_size_per_gpu": 4,
        word: word,
        "zero_optimisation": {word: 1},
        "optimizer": {"type": word},
        "fp16": {word: True},
        "zero_optimization": {"stage": 2, "offload_param": {"device": "nvme", "nvme_path": word}, word: {word: word}},
    }
    (tmp_path / "ds_config.json").write_text(json.dumps(config, indent=2), encoding="utf-8")
    (tmp_path / "broken.json").write_text(json.dumps(config)[:-40] + f' // {word}\n"{word}" 1', encoding="utf-8")
    (tmp_path / "run.sh").write_text(f"deepspeed --hostfile '{word}' train.py --deepspeed ds_config.json --lr '{word}'\n", encoding="utf-8")
    (tmp_path / "job.log").write_text(f"[rank0]: ValueError: {word} is wrong\nRuntimeError: {word}: {word}\n", encoding="utf-8")
    (tmp_path / "requirements.txt").write_text(f"deepspeed==0.16.9 # {word}\n", encoding="utf-8")
    return word


LONG = ("estimate", "fit")
"""Commands that take as long as all others together: their tests of all but one word are slow ones."""
VALUES = [
    pytest.param(word, command, marks=pytest.mark.slow if command in LONG and word != HOSTILE[1] else ())
    for word in HOSTILE
    for command in COMMANDS
]


@pytest.mark.parametrize(("hostile", "command"), VALUES, indirect=["hostile"], ids=ascii)
def test_values_in_files(hostile: str, command: str) -> None:
    done = CliRunner().invoke(cli, COMMANDS[command], standalone_mode=True)
    assert_inert(done.output.replace("##[", "") if "json" in COMMANDS[command] or "config" in COMMANDS[command][3:] else done.output)


@pytest.mark.parametrize("output_format", FORMATS)
def test_every_format(hostile: str, output_format: str) -> None:
    done = CliRunner().invoke(cli, ["check", "ds_config.json", "run.sh", "broken.json", "--output-format", output_format])
    text = re.sub(r"(?m)^::(?:error|warning|notice) .*$", "", done.output) if output_format == "github" else done.output
    text = re.sub(r"(?ms)^::stop-commands::(\w+)$.*^::\1::$", "", text)
    assert_inert(text.replace("##[", "") if output_format in ("json", "jsonl", "sarif", "gitlab", "markdown", "junit") else text)


@pytest.mark.parametrize("output_format", FORMATS)
def test_names_of_files_in_every_format(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, output_format: str) -> None:
    monkeypatch.chdir(tmp_path)
    for number, word in enumerate(HOSTILE):
        text = '{"train_micro_batch_size_per_gpu": "4"' + "}" * (number % 3 > 0) + "\n"  # some are broken, some have a finding
        (tmp_path / f"ds_{word}.json".replace("/", "_")).write_text(text, encoding="utf-8")
        (tmp_path / f"{word}.sh".replace("/", "_")).write_text(f"deepspeed train.py --deepspeed 'ds_{word}.json'\n", encoding="utf-8")
    done = CliRunner().invoke(cli, ["check", ".", "--output-format", output_format, "--no-group", "-v"])
    assert done.exit_code in (1, 2)
    assert "DS104" in done.output
    assert [character for character in done.output if not character.isprintable() and character not in "\n\t"] == []
    for line in done.output.splitlines():
        assert not re.match(r"\s*::", line) or re.match(r"::(error|warning|notice) (?!:)|::stop-commands::|::\w{64}::$", line), line
        assert "::error::injected" not in line or not line.startswith("::error::injected")


@pytest.mark.parametrize("option", OPTIONS)
def test_words_of_the_command_line(hostile: str, option: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    from dslint.cli import main

    monkeypatch.setattr("sys.argv", ["dslint", *(word.replace("{}", hostile) for word in OPTIONS[option])])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code in (0, 1, 2)
    said = capsys.readouterr()
    assert "Traceback" not in said.err
    assert "internal error" not in said.err
    assert_inert(said.err)
    assert_inert(said.out)


@pytest.mark.parametrize("key", ["\\u001b[31mred", "a\\n::error::injected"])
def test_settings_names(tmp_path: Path, key: str) -> None:
    (tmp_path / "dslint.toml").write_text(f'"{key}" = 1\n', encoding="utf-8")
    (tmp_path / "ds_config.json").write_text("{}", encoding="utf-8")
    done = dslint("check", "ds_config.json", cwd=tmp_path)
    assert done.returncode == 2
    assert_inert(done.stderr)


def test_pages_of_any_characters() -> None:
    rng = random.Random(15)
    pieces = [*HOSTILE, "a", " ", "\n", "\x1b[1m", "\x1b[0m", "##vso[", "\u2028", "\ud800", ":", "::", "\x1b[2J", "\x1b]0;x\x07"]
    for _ in range(2_000):
        text = "".join(rng.choice(pieces) for _ in range(rng.randrange(12)))
        assert_inert(printable(text))
        colored = re.sub(r"\x1b\[[\d;]*m", "", printable(text, color=True))
        assert [character for character in colored if not character.isprintable() and character != "\n"] == []


def test_a_diff_is_still_a_patch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "ds_config.json").write_bytes(
        b'{\r\n\t"train_micro_batch_size_per_gpu": 4,\r\n\t"zero_optimisation": {"stage": 2}\r\n}\r\n'
    )
    done = CliRunner().invoke(cli, ["check", "ds_config.json", "--unsafe-fixes", "--diff"])
    assert '-\t"zero_optimisation": {"stage": 2}\r\n' in done.stdout_bytes.decode()
    assert '+\t"zero_optimization": {"stage": 2}\r\n' in done.stdout_bytes.decode()
