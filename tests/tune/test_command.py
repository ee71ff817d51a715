"""`dslint tune` as a command."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from dslint.cli import cli
from dslint.facts import NEWEST
from tests.tune.setups import CONFIG

OPTIONS = (
    *("--model", "llama-3-8b", "--gpu", "a100", "--world-size", "8", "--sequence-length", "2048", "--integration", "deepspeed"),
    "--isolated",
)


def tune(*arguments: str) -> Result:
    return CliRunner().invoke(cli, ["tune", *arguments, *OPTIONS], env={"COLUMNS": "80"})


@pytest.fixture
def config(tmp_path: Path) -> Path:
    file = tmp_path / "ds_config.json"
    file.write_text(json.dumps(CONFIG, indent=2).replace('"bf16"', '// mixed precision\n  "bf16"'), encoding="utf-8")
    return file


def test_the_page(config: Path) -> None:
    result = tune(str(config))
    assert result.exit_code == 0, result.output
    assert "Fastest configs that fit by estimate" in result.output
    assert "the present config" in result.output
    assert "Not among them" in result.output
    assert max(map(len, result.output.splitlines())) <= 80


@pytest.mark.slow
def test_apply_writes_what_the_list_shows(config: Path) -> None:
    data = json.loads(tune(str(config), "--output-format", "json").output)
    result = tune(str(config), "--apply", "1")
    assert result.exit_code == 0, result.output
    written = config.read_text(encoding="utf-8")
    assert "// mixed precision" in written
    stage = data["best"][0]["choice"]["stage"]
    assert f'"stage": {stage}' in written
    assert "offload_optimizer" not in written
    again = json.loads(tune(str(config), "--output-format", "json").output)
    assert again["now"]["step"]["seconds"] == pytest.approx(data["best"][0]["step"]["seconds"])


def test_apply_outside_of_the_list_writes_nothing(config: Path) -> None:
    before = config.read_text(encoding="utf-8")
    result = tune(str(config), "--apply", "99")
    assert result.exit_code != 0
    assert config.read_text(encoding="utf-8") == before


def test_json_has_ranges_parts_and_hours(config: Path) -> None:
    data = json.loads(tune(str(config), "--output-format", "json", "--tokens", "1e9").output)
    for one in [data["now"], *data["best"]]:
        step = one["step"]
        assert step["low"] < step["seconds"] < step["high"]
        assert sum(part["seconds"] for part in step["parts"].values()) == pytest.approx(step["seconds"])
        assert step["training"]["hours"] == pytest.approx(1e9 / step["tokens_per_second"] / 3600)
    speeds = [one["samples"] / one["step"]["seconds"] for one in data["best"]]
    assert speeds[0] >= 0.95 * max(speeds)


@pytest.mark.slow
def test_a_faster_network_makes_training_faster(config: Path) -> None:
    def seconds(network: str) -> float:
        arguments = ("--output-format", "json", "--world-size", "32", "--nodes", "4", "--network", network)
        result = CliRunner().invoke(cli, ["tune", str(config), *OPTIONS, *arguments])
        return float(json.loads(result.output)["now"]["step"]["seconds"])

    assert seconds("8x400Gb/s") < seconds("10Gb/s")


def test_nothing_fits(config: Path) -> None:
    result = CliRunner().invoke(cli, ["tune", str(config), *OPTIONS, "--limit", "1GiB"])
    assert result.exit_code == 4
    assert "No config that dslint tried fits by estimate" in " ".join(result.output.split())


@pytest.mark.slow
def test_a_model_that_is_built_whole_is_named_as_the_reason(config: Path) -> None:
    """A model of 262 GiB in fp32 on every rank: no choice of a config helps before it is built in another way."""
    config.write_text(json.dumps({"train_micro_batch_size_per_gpu": 1, "bf16": {"enabled": True}, "zero_optimization": {"stage": 3}}))
    more = ("--model", "llama-3-70b", "--world-size", "64", "--nodes", "8")
    result = CliRunner().invoke(cli, ["tune", str(config), *OPTIONS, *more, "--no-zero-init"])
    assert result.exit_code == 4
    assert "deepspeed.zero.Init()" in result.output
    result = CliRunner().invoke(cli, ["tune", str(config), *OPTIONS, *more, "--zero-init"])
    assert result.exit_code == 0, result.output


@pytest.mark.parametrize(
    ("arguments", "said"),
    [(("--network", "fast"), "is not a bandwidth"), (("--pcie", "x"), "is not a rate"), (("--apply", "0"), "0 is not in the range")],
)
def test_wrong_options(config: Path, arguments: tuple[str, ...], said: str) -> None:
    result = tune(str(config), *arguments)
    assert result.exit_code == 2
    assert said in result.output


def test_a_memory_limit_is_needed(config: Path) -> None:
    result = CliRunner().invoke(cli, ["tune", str(config), "--model", "gpt2", "--world-size", "8", "--isolated"])
    assert result.exit_code == 2
    assert "No memory limit given" in result.output


def test_a_link_that_leaves_the_project_is_not_written_through(tmp_path: Path) -> None:
    project, outside = tmp_path / "project", tmp_path / "elsewhere.json"
    (project / ".git").mkdir(parents=True)
    outside.write_text(json.dumps(CONFIG), encoding="utf-8")
    before = outside.read_text(encoding="utf-8")
    (project / "ds.json").symlink_to(outside)
    result = tune(str(project / "ds.json"), "--apply", "1")
    assert "it leads out of this project" in str(result.exception)
    assert outside.read_text(encoding="utf-8") == before
    assert tune(str(outside), "--apply", "1").exit_code == 0
    assert outside.read_text(encoding="utf-8") != before


BATCHES = {
    "auto": {"train_batch_size": "auto", "train_micro_batch_size_per_gpu": "auto", "gradient_accumulation_steps": "auto"},
    "numbers": {"train_micro_batch_size_per_gpu": 32, "gradient_accumulation_steps": 1},
    "whole": {"train_batch_size": 256},
}


@pytest.mark.slow
@pytest.mark.parametrize("name", BATCHES)
def test_batch_sizes_change_where_flags_fill_them(tmp_path: Path, name: str) -> None:
    """The present micro batch is too large: the same samples in smaller ones fit, whether the config or the Trainer's flags say it."""
    data = {"bf16": {"enabled": True}, "zero_optimization": {"stage": 3}, **BATCHES[name]}
    (tmp_path / "ds.json").write_text(json.dumps(data), encoding="utf-8")
    (tmp_path / "train.py").write_text(
        "from transformers import HfArgumentParser, Trainer, TrainingArguments\n"
        "args, = HfArgumentParser(TrainingArguments).parse_args_into_dataclasses()\nTrainer(args=args).train()\n",
        encoding="utf-8",
    )
    flags = "--bf16 --per_device_train_batch_size 32 --gradient_accumulation_steps 1 --gradient_checkpointing True"
    (tmp_path / "run.sh").write_text(f"deepspeed --num_gpus 8 train.py --deepspeed ds.json {flags}\n", encoding="utf-8")
    options = ("--model", "llama-3-8b", "--gpu", "a100", "--sequence-length", "4096", "--output-format", "json", "--isolated")
    result = CliRunner().invoke(cli, ["tune", str(tmp_path / "run.sh"), *options])
    best = json.loads(result.stdout)["best"]
    assert best
    for one in best:
        choice = one["choice"]
        assert choice["micro_batch"] * choice["accumulation"] == 32 * choice["tensor"]
    assert best[0]["choice"]["micro_batch"] < 32
    assert any("per_device_train_batch_size" in sentence for sentence in best[0]["program"])


def test_a_config_without_a_file_of_its_own_is_shown_and_not_written(tmp_path: Path) -> None:
    file = tmp_path / "accelerate.yaml"
    text = "distributed_type: DEEPSPEED\nmixed_precision: bf16\nnum_processes: 8\ndeepspeed_config:\n  zero_stage: 3\n"
    file.write_text(text, encoding="utf-8")
    options = ("--model", "llama-3-8b", "--gpu", "a100", "--sequence-length", "2048", "--isolated", str(file))

    def run(*arguments: str) -> Result:
        return CliRunner().invoke(cli, ["tune", *options, *arguments])

    result = run()
    assert "A diff of JSON shows the config that DeepSpeed gets from" in " ".join(result.output.split())
    assert "file of its own" in str(run("--measure", str(tmp_path / "out.jsonl"), "--", "accelerate", "launch").exception)
    assert file.read_text(encoding="utf-8") == text


@pytest.mark.slow
def test_checkpointing_is_switched_by_the_argument_that_its_framework_reads(tmp_path: Path) -> None:
    text = (
        "stage: sft\nfinetuning_type: full\ntemplate: llama3\ndataset: alpaca\ncutoff_len: 2048\nbf16: true\noutput_dir: x\n"
        "deepspeed: ds.json\nper_device_train_batch_size: 1\ngradient_accumulation_steps: 8\n"
    )
    (tmp_path / "full.yaml").write_text(text, encoding="utf-8")
    (tmp_path / "ds.json").write_text('{"bf16": {"enabled": "auto"}, "zero_optimization": {"stage": 3}}', encoding="utf-8")
    options = ("--model", "llama-3-8b", "--gpu", "a100", "--world-size", "8", "--output-format", "json", "--isolated")
    result = CliRunner().invoke(cli, ["tune", str(tmp_path / "full.yaml"), *options])
    sentences = [sentence for one in json.loads(result.stdout)["best"] for sentence in one["program"]]
    assert "disable activation checkpointing (disable_gradient_checkpointing: true)" in sentences


YAML = """# our config
train_micro_batch_size_per_gpu: 1   # small
gradient_accumulation_steps: 8
bf16:
  enabled: true
zero_optimization:
  stage: 3
  # saves memory
  offload_optimizer:
    device: cpu
optimizer:
  type: AdamW
  params:
    lr: 1.0e-5
"""


@pytest.mark.slow
def test_a_config_in_yaml_is_written_as_yaml(tmp_path: Path) -> None:
    file = tmp_path / "ds.yaml"
    file.write_text(YAML, encoding="utf-8")
    shown = json.loads(tune(str(file), "--output-format", "json").stdout)["best"][0]
    assert "-  offload_optimizer:" in shown["diff"].splitlines()
    assert tune(str(file), "--apply", "1").exit_code == 0
    after = file.read_text(encoding="utf-8")
    assert "# our config" in after
    assert "# small" in after
    assert "offload_optimizer" not in after
    again = json.loads(tune(str(file), "--output-format", "json").stdout)
    assert again["now"]["step"]["seconds"] == pytest.approx(shown["step"]["seconds"])


def test_yaml_that_cannot_be_edited_is_left_as_it_is(tmp_path: Path) -> None:
    """The section would be empty: it is the alias of one that others use."""
    file = tmp_path / "ds.yaml"
    text = YAML.replace("zero_optimization:", "x-zero: &zero").replace("optimizer:\n  type", "zero_optimization: *zero\noptimizer:\n  type")
    file.write_text(text, encoding="utf-8")
    result = tune(str(file), "--apply", "1")
    assert "Write the diff by hand" in str(result.exception)
    assert file.read_text(encoding="utf-8") == text


ACCELERATE = """# for our cluster
distributed_type: DEEPSPEED
mixed_precision: bf16
num_processes: 8
deepspeed_config:
  zero_stage: 3   # divided
  gradient_accumulation_steps: 8
  offload_optimizer_device: cpu
"""


@pytest.mark.slow
def test_accelerates_file_is_written_where_it_has_the_keys(tmp_path: Path) -> None:
    """Only configs without further keys can be written; the others leave the file as it is."""
    file = tmp_path / "accelerate.yaml"
    file.write_text(ACCELERATE, encoding="utf-8")
    options = ("--model", "llama-3-8b", "--gpu", "h100", "--micro-batch", "1", "--sequence-length", "2048", "--isolated", str(file))

    def run(*arguments: str) -> Result:
        return CliRunner().invoke(cli, ["tune", *options, *arguments])

    best = enumerate(json.loads(run("--output-format", "json").stdout)["best"], 1)
    kinds = {one["choice"]["overlap"] and one["choice"]["stage"] < 3: (number, one) for number, one in best}
    assert len(kinds) == 2
    for needs_a_key, (number, one) in kinds.items():
        result = run("--apply", str(number))
        text = file.read_text(encoding="utf-8")
        if needs_a_key:
            assert "the file has no key for a value" in str(result.exception)
            assert text == ACCELERATE
        else:
            assert result.exit_code == 0
            assert text == ACCELERATE.replace("steps: 8", f"steps: {one['choice']['accumulation']}").replace(
                "  offload_optimizer_device: cpu\n", ""
            )
            file.write_text(ACCELERATE, encoding="utf-8")


def test_apply_keeps_no_error(config: Path) -> None:
    """A key that stops DeepSpeed does so after the edit, too."""
    config.write_text(json.dumps({**CONFIG, "compression_training": {}}), encoding="utf-8")
    before = config.read_text(encoding="utf-8")
    result = tune(str(config), "--apply", "1", "--deepspeed", str(NEWEST))
    assert "it has errors that the edit keeps (DS109)" in str(result.exception)
    assert config.read_text(encoding="utf-8") == before
