"""`dslint show` and `dslint schema`, end to end."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from dslint import project
from tests.command import dslint

CONFIG = """{
  "train_micro_batch_size_per_gpu": 4,
  "gradient_accumulation_steps": 8,
  "zero_optimization": {"stage": "2", "cpu_offload": true, "no_such_key": "auto"},
  "bf16": {"enabled": "auto"},
  "elasticity": null,
  "my_key": 1
}
"""


@pytest.fixture
def config(tmp_path: Path) -> Path:
    file = tmp_path / "ds_config.json"
    file.write_text(CONFIG, encoding="utf-8")
    return file


def rows(config: Path, *options: str) -> dict[str, dict[str, object]]:
    done = dslint("show", config, "--output-format", "json", *options)
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report["version"] == 1
    return {".".join(row["path"]): row for row in report["keys"]}


def test_every_origin_is_told(config: Path) -> None:
    keys = rows(config, "--integration", "deepspeed", "--world-size", "4")
    expected = {
        "train_micro_batch_size_per_gpu": (4, "written"),
        "train_batch_size": (128, "derived"),
        "gradient_clipping": (1.0, "default"),
        "zero_optimization.stage": (2, "written"),
        "zero_optimization.overlap_comm": (False, "derived"),
        "zero_optimization.offload_optimizer.device": ("cpu", "mapped"),
        "bf16.enabled": (False, "dropped"),
        "elasticity": (None, "refused"),
        "my_key": (None, "dropped"),
        "zero_optimization.no_such_key": (None, "dropped"),
    }
    assert {key: (keys[key]["value"], keys[key]["origin"]) for key in expected} == expected
    assert keys["train_batch_size"]["note"] == "4 x 8 x 4"
    assert (keys["zero_optimization.stage"]["line"], keys["zero_optimization.stage"]["column"]) == (4, 25)


def test_what_is_unknown_is_symbolic_and_never_guessed(config: Path) -> None:
    keys = rows(config, "--integration", "transformers")
    assert keys["train_batch_size"]["known"] is False
    assert keys["train_batch_size"]["note"] == "4 x 8 x world size"
    assert keys["bf16.enabled"]["known"] is False
    assert keys["bf16.enabled"]["origin"] == "filled"
    assert "bf16" in str(keys["bf16.enabled"]["note"])


def test_all_is_every_key(config: Path) -> None:
    assert len(rows(config, "--all")) > 300 > len(rows(config))


def test_the_table_strikes_out_what_is_lost(config: Path) -> None:
    colored = dslint("show", config, "--integration", "deepspeed", "--color", "always").stdout
    assert "\x1b[9mmy_key\x1b[0m" in colored
    plain = dslint("show", config, "--integration", "deepspeed").stdout
    assert "\x1b" not in plain
    line = next(line for line in plain.splitlines() if line.startswith("my_key"))
    assert "dropped: unknown key" in line
    assert max(map(len, dslint("show", config, env={"COLUMNS": "80"}).stdout.splitlines())) <= 80


def test_a_key_that_another_one_enables_says_so_and_cut_values_are_named(tmp_path: Path) -> None:
    file = tmp_path / "ds_config.json"
    file.write_text('{"train_batch_size": 8, "flops_profiler": {"enabled": false, "profile_step": 3}}', encoding="utf-8")
    assert rows(file)["flops_profiler.profile_step"]["note"] == "not read unless enabled is set"
    assert "--output-format json" not in dslint("show", file).stdout
    file.write_text('{"train_batch_size": 8, "wandb": {"project": "a name that is longer than the table"}}', encoding="utf-8")
    assert "--output-format json" in dslint("show", file).stdout


def test_the_config_as_deepspeed_sees_it(config: Path) -> None:
    done = dslint("show", config, "--integration", "deepspeed", "--world-size", "2", "--output-format", "config")
    assert json.loads(done.stdout) == {
        "train_micro_batch_size_per_gpu": 4,
        "gradient_accumulation_steps": 8,
        "zero_optimization": {"stage": 2, "offload_optimizer": {"device": "cpu"}},
        "bf16": {},
        "train_batch_size": 64,
    }
    unknown = dslint("show", config, "--integration", "transformers", "--output-format", "config")
    assert "bf16.enabled" in unknown.stderr


def test_the_schema_goes_to_a_file_or_to_standard_output(tmp_path: Path) -> None:
    printed = json.loads(dslint("schema", "--integration", "transformers").stdout)
    assert printed["$schema"].endswith("2020-12/schema")
    file = tmp_path / "s.json"
    assert dslint("schema", "--integration", "transformers", "--output", file).returncode == 0
    assert json.loads(file.read_text(encoding="utf-8")) == printed
    refused = dslint("schema", "--output", tmp_path / "no" / "s.json")
    assert refused.returncode == 2
    assert "cannot write" in refused.stderr


def test_the_schema_in_draft_07_and_the_catalog_entry() -> None:
    assert json.loads(dslint("schema", "--draft", "07").stdout)["$schema"] == "http://json-schema.org/draft-07/schema#"
    entry = json.loads(dslint("schema", "--catalog").stdout)
    assert "ds_config*.json" in entry["fileMatch"]
    assert bool(project.SITE) == ("url" in entry)
    refused = dslint("schema", "--catalog", "--settings")
    assert refused.returncode == 2
    assert "exclude each other" in refused.stderr


def test_what_training_arguments_fill_is_in_the_config(tmp_path: Path) -> None:
    (tmp_path / "ds.json").write_text('{"train_micro_batch_size_per_gpu": "auto", "zero_optimization": {"stage": 2}}', encoding="utf-8")
    training = tmp_path / "train.yaml"
    training.write_text("base_model: m\nmicro_batch_size: 3\ndeepspeed: ds.json\n", encoding="utf-8")
    assert json.loads(dslint("show", training, "--output-format", "config").stdout)["train_micro_batch_size_per_gpu"] == 3


def test_the_time_of_a_step_is_an_option(config: Path, tmp_path: Path) -> None:
    file = tmp_path / "timed.json"
    file.write_text('{"train_micro_batch_size_per_gpu": 1, "bf16": {"enabled": true}, "zero_optimization": {"stage": 2}}', encoding="utf-8")
    options = ("--model", "gpt2", "--gpu", "h100", "--world-size", "8", "--integration", "deepspeed", "--isolated")
    table = dslint("show", file, "--time", *options).stdout
    assert "Time of a step" in table
    assert "8 samples of" in table
    step = json.loads(dslint("show", file, "--time", *options, "--output-format", "json").stdout)["step"]
    assert step["low"] < step["seconds"] < step["high"]
    assert json.loads(dslint("show", file, *options, "--output-format", "json").stdout)["step"] is None
    refused = dslint("show", file, "--time", "--world-size", "8", "--isolated")
    assert refused.returncode == 2
    assert "--time needs the GPU" in refused.stderr


@pytest.mark.parametrize(("integration", "origin"), [("transformers", "filled"), ("accelerate", "filled"), ("deepspeed", "written")])
def test_accelerate_overwrites_a_written_value(tmp_path: Path, integration: str, origin: str) -> None:
    file = tmp_path / "ds_config.json"
    file.write_text('{"train_micro_batch_size_per_gpu": 4, "steps_per_print": 1}', encoding="utf-8")
    assert rows(file, "--integration", integration)["steps_per_print"]["origin"] == origin
