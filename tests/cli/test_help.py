"""Help pages: every option is in a group, every example runs, and what other tools call a command is understood."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from dslint.cli import COMMANDS, OTHER_WORDS, cli
from dslint.cli.check import CheckCommand
from dslint.cli.check import command as check
from dslint.cli.help import Group

ROOT = Path(__file__).resolve().parents[2]


def test_every_option_of_check_is_in_one_group() -> None:
    context = click.Context(check, info_name="check")
    named = [name for group in CheckCommand.groups for name in group.options]
    options = [max(param.opts, key=len) for param in check.get_params(context) if isinstance(param, click.Option)]
    assert sorted(named) == sorted(options)
    page = CliRunner().invoke(cli, ["check", "--help"], prog_name="dslint").stdout
    assert all(f"{group.title}:\n" in page for group in CheckCommand.groups)
    assert [name for name in options if f"{name} " not in page] == []


@pytest.mark.parametrize("group", CheckCommand.groups, ids=lambda group: group.title)
def test_the_example_of_a_group_is_a_command(group: Group, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    words = shlex.split(group.example)
    assert any(word.partition("=")[0] in group.options for word in words)
    check.make_context("check", words)


@pytest.mark.parametrize("word", [*OTHER_WORDS, "chek", "diagnoze"])
def test_another_word_for_a_command_leads_to_it(word: str) -> None:
    done = CliRunner().invoke(cli, [word, "x"], prog_name="dslint")
    assert done.exit_code == 2
    suggested = done.stderr.split("Did you mean `dslint ")[1].split("`")[0].split()[0]
    assert suggested in COMMANDS or suggested == "--version"


@pytest.mark.parametrize(
    ("key", "said"),
    [
        ("offload_optimizer", "zero_optimization.offload_optimizer"),
        ("stage3_max_live_parameters", "zero_optimization.stage3_max_live_parameters"),
        ("offload_param.device", "zero_optimization.offload_param.device"),
    ],
)
def test_a_key_is_found_without_its_sections(key: str, said: str) -> None:
    done = CliRunner().invoke(cli, ["rule", "--key", key])
    assert (done.exit_code, done.stderr) == (0, f'"{key}" is {said}.\n')
    assert done.stdout == CliRunner().invoke(cli, ["rule", "--key", said]).stdout


def test_a_key_of_several_sections_is_asked_for() -> None:
    done = CliRunner().invoke(cli, ["rule", "--key", "device"])
    assert done.exit_code == 1
    assert "zero_optimization.offload_optimizer.device, zero_optimization.offload_param.device" in done.stderr


def test_a_number_of_parameters_needs_its_unit() -> None:
    done = CliRunner().invoke(cli, ["init", "-", "--integration", "transformers", "--params", "8"])
    assert done.exit_code == 2
    assert "write 8B for 8 billion" in done.stderr


def test_no_help_has_a_type_of_click_in_the_place_of_a_value() -> None:
    for name in COMMANDS:
        said = CliRunner().invoke(cli, [name, "--help"]).output
        assert not re.search(r"\b(INTEGER|FLOAT|RANGE)\b", said), name
