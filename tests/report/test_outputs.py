"""Every command with a JSON output has a published schema; `tests.command.dslint` holds each output of the suite to it."""

from __future__ import annotations

import json
from pathlib import Path

import click
import pytest
from jsonschema import Draft202012Validator

from dslint.cli import cli
from dslint.facts import Integration
from tests.command import dslint
from tests.report.outputs import DOCS, SCHEMAS, assert_valid, validator

MODEL = ("--model", "llama-3-8b", "--world-size", "8", "--gpu", "a100-40gb")


def test_every_command_with_json_has_a_schema() -> None:
    context = click.Context(cli)
    found = set()
    for name in cli.list_commands(context):
        command = cli.get_command(context, name)
        assert command is not None
        kinds = [param.type for param in command.params if param.name == "output_format"]
        found |= {name for kind in kinds if isinstance(kind, click.Choice) and "json" in kind.choices}
    assert found <= set(SCHEMAS)


@pytest.mark.parametrize("command", SCHEMAS)
def test_a_schema_is_one_and_is_described(command: str) -> None:
    schema = validator(command).schema
    assert isinstance(schema, dict)
    Draft202012Validator.check_schema(schema)
    assert f"dslint {command} --output-format json" in schema["title"]
    assert f"{SCHEMAS[command]}.schema.json" in (DOCS / "ci.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("more", [(), ("--sweep", "stage=0..3"), ("--host-memory", "64GiB", "--eval-batch", "8")])
def test_estimates_of_every_kind(tmp_path: Path, more: tuple[str, ...]) -> None:
    (tmp_path / "ds_config.json").write_text('{"train_micro_batch_size_per_gpu": 1, "zero_optimization": {"stage": 2}}', encoding="utf-8")
    done = dslint("estimate", "ds_config.json", *MODEL, *more, "--output-format", "json", cwd=tmp_path)
    assert json.loads(done.stdout)["version"] == 1


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("DS501",), 0, "DS501"),
        ((), 0, "DS001"),
        (("--key", "offload_optimizer"), 0, "DS5"),
        (("--key", "no_such_key"), 1, '"rules": []'),
        (("--error", "'>' not supported between instances of 'str' and 'int'"), 0, "DS104"),
        (("--error", "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 7.83 GiB."), 0, "advice"),
        (("--error", "an error that nobody knows"), 1, '"causes": []'),
    ],
)
def test_rules_of_every_kind(words: tuple[str, ...], code: int, said: str) -> None:
    done = dslint("rule", *words, "--output-format", "json")
    assert done.returncode == code
    assert said in done.stdout


def test_the_json_of_a_rule_has_its_examples() -> None:
    rule = json.loads(dslint("rule", "DS501", "--output-format", "json").stdout)["rule"]
    assert {example["at"] is None for example in rule["bad"]} == {False}
    assert {example["at"] for example in rule["good"]} == {None}
    assert all(example["text"] for example in rule["bad"] + rule["good"])


# The integration decides what the notes and the command say, the other words which keys there are: each is asked once.
@pytest.mark.slow
@pytest.mark.parametrize(
    ("integration", "more"),
    [
        *((integration, ("--model", "llama-3-8b", "--world-size", "8", "--gpu", "h100")) for integration in Integration),
        ("accelerate", ()),
        ("transformers", ("--model", "llama-3-70b", "--world-size", "8", "--gpu", "a100-40gb", "--host-memory", "256GiB")),
        ("lightning", ("--params", "1B", "--gpu", "v100", "--world-size", "1", "--deepspeed", "0.15.0")),
        ("deepspeed", ("--stage", "3", "--model", "llama-3-70b", "--world-size", "2", "--gpu", "v100", "--host-memory", "64GiB")),
    ],
)
def test_configs_of_every_kind_are_as_the_schema_of_init_says(integration: str, more: tuple[str, ...]) -> None:
    done = dslint("init", "-", "--integration", integration, *more, "--output-format", "json")
    assert done.returncode in (0, 4), done.stderr
    assert json.loads(done.stdout)["zero_optimization"]


def test_an_output_with_a_key_that_nobody_described_is_noticed() -> None:
    words = ["show", "x.json", "--output-format", "json"]
    assert_valid(words, '{"version": 1, "keys": [], "step": null}')
    with pytest.raises(AssertionError, match="/more"):
        assert_valid(words, '{"version": 1, "keys": [], "step": null, "more": 1}')
    with pytest.raises(AssertionError, match="keys"):
        assert_valid(words, '{"version": 1, "step": null}')
