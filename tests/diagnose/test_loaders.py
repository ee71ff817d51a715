"""Which loader the lines of a log show, and that the rules on the config are those of this loader."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from dslint.cli import cli
from tests.diagnose.logs import diagnosed, traceback

SITE = "/opt/conda/lib/python3.10/site-packages"
OWN = ("/home/u/train.py", 60, "<module>", "main()")
TRAINER = (f"{SITE}/transformers/trainer.py", 2200, "train", "return inner_training_loop(")
LIGHTNING = (f"{SITE}/pytorch_lightning/trainer/trainer.py", 544, "fit", "call._call_and_handle_interrupt(")
FABRIC = (f"{SITE}/lightning/fabric/strategies/deepspeed.py", 350, "setup_module_and_optimizers", "self._deepspeed_engine, optimizer = ...")
PREPARE = (f"{SITE}/accelerate/accelerator.py", 1700, "_prepare_deepspeed", "engine, optimizer, _, lr_scheduler = ds_initialize(**kwargs)")
INITIALIZE = (f"{SITE}/deepspeed/__init__.py", 181, "initialize", "engine = DeepSpeedEngine(args=args,")
BACKWARD = (f"{SITE}/deepspeed/runtime/engine.py", 1900, "backward", "self.optimizer.backward(loss)")

AUTO = json.dumps(
    {
        "train_micro_batch_size_per_gpu": "auto",
        "gradient_accumulation_steps": "auto",
        "activation_checkpointing": {"partition_activations": "auto"},
        "zero_optimization": {"stage": 2},
    }
)


@pytest.mark.parametrize(
    ("frames", "loader"),
    [
        ((OWN, TRAINER, BACKWARD), "transformers"),
        ((OWN, LIGHTNING), "lightning"),
        ((OWN, FABRIC, INITIALIZE), "lightning"),
        ((OWN, PREPARE, INITIALIZE), "accelerate"),
        ((OWN, TRAINER, PREPARE, INITIALIZE), "transformers"),
        ((OWN, INITIALIZE), "deepspeed"),
        ((OWN, BACKWARD), "deepspeed"),
        ((OWN, (f"{SITE}/trl/trainer/dpo_trainer.py", 20, "_prepare_deepspeed", "deepspeed.initialize()"), INITIALIZE), None),
        ((OWN, (f"{SITE}/other/engine.py", 20, "prepare", "deepspeed.initialize()"), INITIALIZE), None),
        ((OWN, (f"{SITE}/lightning_fabric/__init__.py", 40, "<module>", "import pkg_resources")), None),
        ((OWN,), None),
    ],
)
def test_the_frames_of_an_error_show_the_loader(frames: tuple[tuple[str, int, str, str], ...], loader: str | None) -> None:
    found = diagnosed(traceback("ValueError: of the program", *frames))
    assert found.job.get("integration") == loader


@pytest.mark.parametrize(
    "line",
    [
        "GPU available: True (cuda), used: True",
        "initializing deepspeed distributed: GLOBAL_RANK: 0, MEMBER: 1/2",
        "[rank: 1] Initializing distributed: GLOBAL_RANK: 1, MEMBER: 2/2",
        "LOCAL_RANK: 0 - CUDA_VISIBLE_DEVICES: [0,1]",
        f"{SITE}/lightning/pytorch/strategies/deepspeed.py:450: Inferring the batch size for internal deepspeed logging",
    ],
)
def test_lines_of_lightning_outweigh_those_that_programs_copy(line: str) -> None:
    found = diagnosed("Number of trainable parameters = 1,000", line, traceback("ValueError: of the program"), config=AUTO)
    assert found.job.get("integration") == "lightning"
    said = [finding.message for finding in found.findings]
    assert said
    assert not any("Hugging Face Trainer" in message for message in said)


def test_an_import_of_lightning_shows_no_loader() -> None:
    line = f"{SITE}/lightning_fabric/__init__.py:40: Deprecated call to `pkg_resources.declare_namespace('lightning_fabric')`."
    assert diagnosed(line, traceback("ValueError: of the program")).job.get("integration") is None


@pytest.mark.parametrize(
    "parts",
    [
        (
            "using world size: 16, data-parallel-size: 16, tensor-model-parallel size: 1, pipeline-model-parallel size: 1",
            traceback("ValueError: no"),
        ),
        (traceback("ValueError: no", OWN, INITIALIZE),),
    ],
)
def test_a_program_that_calls_deepspeed_itself_is_not_judged_as_the_trainer(parts: tuple[str, ...]) -> None:
    """What it puts in the place of "auto" is not known: nothing is said of that."""
    found = diagnosed(*parts, config=AUTO)
    assert [finding.message for finding in found.findings] == []
    assert any(finding.code == "DS903" for finding in diagnosed(traceback("ValueError: no"), config=AUTO).findings)


@pytest.mark.parametrize(
    ("program", "frames", "loader"),
    [
        ("import deepspeed\nengine, *_ = deepspeed.initialize(model=model, config='ds_config.json')\n", (), "deepspeed"),
        (
            "import deepspeed\nengine, *_ = deepspeed.initialize(model=model, config='ds_config.json')\n",
            (OWN, TRAINER, BACKWARD),
            "transformers",
        ),
        (
            "from transformers import Trainer, TrainingArguments\nTrainer(args=TrainingArguments('o', deepspeed='ds_config.json'))\n",
            (),
            "transformers",
        ),
    ],
)
def test_a_given_program_outweighs_lines_that_it_prints_like_the_trainer(
    tmp_path: Path, program: str, frames: tuple[tuple[str, int, str, str], ...], loader: str
) -> None:
    (tmp_path / "train.py").write_text(program)
    (tmp_path / "ds_config.json").write_text(AUTO)
    log = "[INFO] [config.py:1000:print] DeepSpeedEngine configuration:\n{'loss': 1.2, 'learning_rate': 1e-05, 'epoch': 0.1}\n"
    (tmp_path / "job.log").write_text(log + traceback("ValueError: of the program", *(frames or (OWN,))))
    arguments = ["diagnose", str(tmp_path / "job.log"), "--program", str(tmp_path / "train.py"), "--output-format", "json"]
    (job,) = json.loads(CliRunner().invoke(cli, arguments).stdout)["jobs"]
    assert job["facts"]["loader"] == (None if loader == "deepspeed" else loader)
