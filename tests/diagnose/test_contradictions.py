"""What is given for a log is not silently unused, and does not silently replace what the log says."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from dslint.cli.diagnose import command

FAILED = "torch.OutOfMemoryError: CUDA out of memory."
CAPACITY = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 79.15 GiB of which 1.00 GiB is free."
PRINTED = (
    "[2026-11-01 10:00:00,000] [INFO] [config.py:1007:print]   json = {json}\n"
    "[2026-11-01 10:00:00,000] [INFO] [logging.py:107:log_dist] [Rank 0] step=1, skipped=0, lr=[0.0001], mom=[(0.9, 0.999)]"
)
NAMED = "[2026-11-01 10:00:00,000] [INFO] [runner.py:605:main] cmd = python -m deepspeed.launcher.launch train.py --deepspeed other.json"


def _config(stage: int) -> dict[str, object]:
    return {"train_micro_batch_size_per_gpu": 1, "zero_optimization": {"stage": stage}}


def _warned(folder: Path, log: str, *options: str, stage: int = 2) -> str:
    (folder / "ds.json").write_text(json.dumps(_config(stage)), encoding="utf-8")
    (folder / "job.log").write_text(f"{log}\n", encoding="utf-8")
    given = [str(folder / one) if one == "ds.json" else one for one in options]
    return " ".join(CliRunner().invoke(command, [str(folder / "job.log"), *given]).stderr.replace(str(folder), ".").split())


def test_a_config_that_replaces_that_of_the_log_is_said(tmp_path: Path) -> None:
    log = PRINTED.replace("{json}", json.dumps(_config(3), indent=4))
    assert _warned(tmp_path, log, "--config", "ds.json", stage=3) == ""
    said = _warned(tmp_path, log, "--config", "ds.json")
    assert "./ds.json is used, and not the config in the log (line 1): zero_optimization.stage is 2 (3 in the log)." in said


def test_a_config_beside_the_one_that_the_log_names_is_said(tmp_path: Path) -> None:
    (tmp_path / "other.json").write_text(json.dumps(_config(2)), encoding="utf-8")
    assert "./ds.json is used, and not ./other.json, which the log names." in _warned(tmp_path, f"{NAMED}\n{FAILED}", "--config", "ds.json")


@pytest.mark.parametrize("option", [("--gpu", "a100"), ("--world-size", "8")])
def test_a_fact_that_nothing_uses_is_said(tmp_path: Path, option: tuple[str, str]) -> None:
    assert "is not used: the log does not print the config; pass --config FILE." in _warned(tmp_path, FAILED, *option)
    assert _warned(tmp_path, FAILED, *option, "--config", "ds.json") == ""


def test_a_model_that_nothing_estimates_is_said(tmp_path: Path) -> None:
    said = _warned(tmp_path, FAILED, "--model", "llama-3.2-1b")
    assert "--model llama-3.2-1b is not used: the log does not print the config; pass --config FILE." in said
    assert _warned(tmp_path, FAILED, "--model", "llama-3.2-1b", "--config", "ds.json", "--world-size", "2") == ""


def test_a_gpu_of_another_size_is_said(tmp_path: Path) -> None:
    said = _warned(tmp_path, CAPACITY, "--gpu", "v100-16gb", "--config", "ds.json")
    assert "--gpu v100-16gb is not used: it has 15.8 GiB, and the log says 79.1 GiB." in said
    assert _warned(tmp_path, CAPACITY, "--gpu", "h100", "--config", "ds.json") == ""


def test_a_model_of_another_size_is_said(tmp_path: Path) -> None:
    log = f"[INFO|configuration_utils.py:100] loading configuration file config.json\nnum params: 8.03B\n{FAILED}"
    printed = (
        'Model config LlamaConfig {\n  "_name_or_path": "x/llama-8b",\n  "hidden_size": 4096,\n  "intermediate_size": 14336,\n  "model_type": "llama",\n'
        '  "num_attention_heads": 32,\n  "num_hidden_layers": 32,\n  "num_key_value_heads": 8,\n  "vocab_size": 128256\n}\n'
    )
    said = _warned(tmp_path, f"{printed}{log}", "--model", "llama-3.2-1b", "--config", "ds.json")
    assert "--model llama-3.2-1b is used, but the log says x/llama-8b" in said


@pytest.mark.parametrize("option", [("--gpu", "a100"), ("--world-size", "8")])
def test_facts_are_said_beside_what_cannot_be_used(tmp_path: Path, option: tuple[str, str]) -> None:
    (tmp_path / "run.sh").write_text("deepspeed --num_gpus 2 \\ \n  train.py --deepspeed ds.json\n", encoding="utf-8")
    (tmp_path / "job.log").write_text("ValueError: no\n", encoding="utf-8")
    for given in (("--config", "absent.json"), ("--program", str(tmp_path / "run.sh"))):
        done = CliRunner().invoke(command, [str(tmp_path / "job.log"), *given, *option])
        assert "ValueError: no" in done.stdout
        assert ("is not used: the log does not print the config" in done.stderr) is (given[0] == "--config")


def test_a_config_from_standard_input_beside_one_that_the_log_names(tmp_path: Path) -> None:
    (tmp_path / "other.json").write_text(json.dumps(_config(2)), encoding="utf-8")
    (tmp_path / "job.log").write_text(f"{NAMED}\n{FAILED}\n", encoding="utf-8")
    done = CliRunner().invoke(command, [str(tmp_path / "job.log"), "--config", "-"], input=json.dumps(_config(2)))
    assert "CUDA out of memory" in done.stdout


def test_values_of_a_log_are_redacted_in_what_is_said_of_it(tmp_path: Path) -> None:
    secret = "hf_" + "a1B2c3D4" * 5
    log = PRINTED.replace("{json}", json.dumps({**_config(2), "wandb": {"enabled": True, "team": secret}}, indent=4))
    (tmp_path / "job.log").write_text(f"{log}\n", encoding="utf-8")
    (tmp_path / "ds.json").write_text(json.dumps({**_config(2), "wandb": {"enabled": True, "team": "other"}}), encoding="utf-8")
    options = [str(tmp_path / "job.log"), "--config", str(tmp_path / "ds.json")]
    plain, clean = (CliRunner().invoke(command, [*options, *more]).stderr for more in ((), ("--redact",)))
    assert "wandb.team is other" in " ".join(plain.split())
    assert "wandb.team" in clean
    assert secret not in clean


def test_auto_and_padding_contradict_nothing(tmp_path: Path) -> None:
    log = PRINTED.replace("{json}", json.dumps({**_config(2), "gradient_accumulation_steps": 4}, indent=4))
    (tmp_path / "job.log").write_text(f"{log}\n", encoding="utf-8")
    (tmp_path / "ds.json").write_text(json.dumps({**_config(2), "gradient_accumulation_steps": "auto"}), encoding="utf-8")
    assert (
        "gradient_accumulation_steps"
        not in CliRunner().invoke(command, [str(tmp_path / "job.log"), "--config", str(tmp_path / "ds.json")]).stderr
    )


def test_a_stage_that_the_log_contradicts_is_said(tmp_path: Path) -> None:
    log = f"[2026-11-01 10:00:00,000] [INFO] [stage3.py:158:__init__] Creating fp16 ZeRO stage 3 optimizer\n{FAILED}"
    assert "./ds.json has ZeRO stage 2, but the log says stage 3" in _warned(tmp_path, log, "--config", "ds.json")


def test_a_gpu_that_the_log_contradicts_decides_nothing(tmp_path: Path) -> None:
    """A V100 has no bf16, but this job did not run on one."""
    (tmp_path / "ds.json").write_text(json.dumps({**_config(2), "bf16": {"enabled": True}}), encoding="utf-8")
    for log, expected in ((CAPACITY, False), (FAILED, True)):
        (tmp_path / "job.log").write_text(f"{log}\n", encoding="utf-8")
        options = [str(tmp_path / "job.log"), "--config", str(tmp_path / "ds.json"), "--gpu", "v100"]
        assert ("DS323" in CliRunner().invoke(command, options).stdout) is expected
