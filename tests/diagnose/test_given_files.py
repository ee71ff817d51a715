"""Given files are judged as `dslint check` judges them: a config with its program, and a program with the config that it leads to."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from dslint.cli.diagnose import command

AUTO = (
    '{"train_micro_batch_size_per_gpu": 1, "optimizer": {"type": "AdamW", "params": {"lr": "auto"}}, "scheduler": {"type": "WarmupLR",'
    ' "params": {"warmup_max_lr": "auto", "warmup_num_steps": 10}}, "zero_optimization": {"stage": 2}}'
)
FILLS = (
    "import json, deepspeed\n"
    "ds = json.load(open('ds_config.json'))\n"
    "ds['optimizer']['params']['lr'] = 1e-4\n"
    "ds['scheduler']['params']['warmup_max_lr'] = 1e-4\n"
    "deepspeed.initialize(model=net, config=ds)\n"
)
KILLED = "[2026-01-01 00:00:00,000] [ERROR] [launch.py:325:sigkill_handler] ['python', 'fit.py'] exits with return code = -9\n"


def _said(folder: Path, files: dict[str, str], *options: str) -> str:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")
    return " ".join(CliRunner().invoke(command, ["job.log", *options]).stdout.split())


@pytest.fixture(autouse=True)
def in_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_a_program_fills_the_config_that_is_given(tmp_path: Path) -> None:
    files = {"ds_config.json": AUTO, "job.log": KILLED}
    said = _said(tmp_path, {**files, "fit.py": FILLS}, "--config", "ds_config.json")
    assert "DS902" not in said
    left = FILLS.replace("ds['optimizer']['params']['lr'] = 1e-4\n", "")
    said = _said(tmp_path, {**files, "fit.py": left}, "--config", "ds_config.json")
    assert "optimizer.params.lr" in said
    assert "warmup_max_lr" not in said


def test_the_file_of_a_finding_is_named(tmp_path: Path) -> None:
    """The config is only the one that lies in the project: the job may have had another one."""
    program = "import argparse, deepspeed\np = argparse.ArgumentParser()\ndeepspeed.add_config_arguments(p)\nargs = p.parse_args()\n"
    config = '{"train_batch_size": 8, "zero_optimisation": {"stage": 2}}'
    files = {"fit.py": f"{program}deepspeed.initialize(args, net, model_parameters=net.parameters())\n", "conf/ds_config.json": config}
    said = _said(tmp_path, {**files, "job.log": KILLED}, "--program", "fit.py")
    assert "Rules on the given files" in said
    assert 'conf/ds_config.json:1: Unknown top-level key "zero_optimisation"' in said
    said = _said(tmp_path, {"ds.json": config}, "--config", "ds.json")
    assert "Rules on the config of this job" in said
    assert "ds.json:1:" not in said


def test_an_info_about_the_error_is_found(tmp_path: Path) -> None:
    """`dslint check` reports it, so that the diagnosis cannot say that its rule finds nothing."""
    script = "cd $HOME\ndeepspeed --num_gpus 2 fit.py --deepspeed conf/zero.json\n"
    program = "from transformers import HfArgumentParser, Trainer, TrainingArguments\n(args,) = HfArgumentParser(TrainingArguments).parse_args_into_dataclasses()\nTrainer(net, args).train()\n"
    error = "ValueError: Expected a string path to an existing deepspeed config, or a dictionary, or a base64 encoded string. Received: conf/zero.json\n"
    script = script.replace("cd $HOME\n", "")
    said = _said(tmp_path, {"run.sh": script, "fit.py": program, "job.log": error}, "--program", "run.sh")
    assert "find nothing" not in said
    assert "DS919 finds in line 1 of run.sh" in said


OOM = "torch.cuda.OutOfMemoryError: CUDA out of memory.\n"
SEGFAULT = KILLED.replace("-9", "-11")


@pytest.mark.parametrize(
    ("zero", "told", "untold"),
    [
        ('"stage": 3, "offload_optimizer": {"device": "cpu"}', "offload the parameters, too", "higher ZeRO stage"),
        ('"stage": 3', "offload the optimizer and the parameters", "higher ZeRO stage"),
        ('"stage": 3, "offload_optimizer": {"device": "cpu"}, "offload_param": {"device": "cpu"}', "Lower the micro batch", "offload"),
        ('"stage": 2, "offload_optimizer": {"device": "cpu"}', "use a higher ZeRO stage or offload", "offload the parameters"),
    ],
)
def test_what_is_not_offloaded_yet_stays_advised(tmp_path: Path, zero: str, told: str, untold: str) -> None:
    files = {"ds.json": f'{{"train_batch_size": 8, "zero_optimization": {{{zero}}}}}', "job.log": OOM}
    said = _said(tmp_path, files, "--config", "ds.json")
    assert told in said
    assert untold not in said


@pytest.mark.parametrize("offload", [True, False])
def test_host_memory_can_end_a_process_with_sigsegv(tmp_path: Path, *, offload: bool) -> None:
    section = ', "offload_optimizer": {"device": "cpu"}' if offload else ""
    files = {"ds.json": f'{{"train_batch_size": 8, "zero_optimization": {{"stage": 2{section}}}}}', "job.log": SEGFAULT}
    said = _said(tmp_path, files, "--config", "ds.json")
    assert "SIGSEGV" in said
    assert ("Compare the host memory" in said) is offload


@pytest.mark.parametrize("loader", ["transformers", "accelerate"])
def test_accelerate_in_a_traceback_does_not_deny_the_trainer_of_the_program(tmp_path: Path, loader: str) -> None:
    """The Trainer calls Accelerate, and the frames above that call may be cut off."""
    own = "from transformers import Trainer, TrainingArguments\nTrainer(net, TrainingArguments('o', deepspeed='ds.json')).train()\n"
    other = "from accelerate import Accelerator, DeepSpeedPlugin\nAccelerator(deepspeed_plugin=DeepSpeedPlugin(hf_ds_config='ds.json')).prepare(net)\n"
    error = (
        '  File "/env/site-packages/accelerate/accelerator.py", line 1468, in _prepare_deepspeed\n    raise ValueError(\n'
        "ValueError: You cannot create a `DummyScheduler` without specifying a scheduler in the config file.\n"
    )
    config = '{"train_batch_size": 8, "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}}, "zero_optimization": {"stage": 2}}'
    files = {"ds.json": config, "job.log": error, "fit.py": own if loader == "transformers" else other}
    said = _said(tmp_path, files, "--program", "fit.py", "--package", "accelerate==0.21.0", "--package", "transformers==4.37.2")
    assert ("DS656 finds this" in said) is (loader == "transformers")
