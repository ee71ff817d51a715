"""The host memory of a run that begins from a checkpoint."""

from __future__ import annotations

from pathlib import Path

import pytest

from dslint.memory.estimate import estimate
from dslint.memory.families import read_shape
from dslint.memory.plan import Plan, Workload
from tests.command import dslint

MODEL = read_shape(
    {
        "model_type": "llama",
        "hidden_size": 512,
        "intermediate_size": 1024,
        "num_hidden_layers": 4,
        "num_attention_heads": 8,
        "vocab_size": 1000,
    },
    "config.json",
)
CONFIG = (
    '{"train_micro_batch_size_per_gpu": 2, "gradient_accumulation_steps": 1, "bf16": {"enabled": true}, '
    '"zero_optimization": {"stage": 3, "offload_optimizer": {"device": "cpu"}}}'
)
PROGRAM = (
    "import deepspeed\nimport torch\nnet = torch.nn.Linear(8, 8)\n"
    "engine, *_ = deepspeed.initialize(model=net, model_parameters=net.parameters(), config='ds.json')\n%s"
)
ARGUMENTS = (
    "deepspeed --num_gpus 4 run.py --deepspeed ds.json --bf16 --per_device_train_batch_size 2 --learning_rate 1e-5 --output_dir out%s\n"
)


@pytest.mark.parametrize(("stage", "each"), [(0, 14), (1, 3), (2, 3), (3, 3)])
def test_a_rank_reads_its_share_of_a_checkpoint(stage: int, each: int) -> None:
    """Two bytes for each weight of the model, twelve for its optimizer states: four ranks divide these from stage 1 on."""
    found = [estimate(MODEL, Plan(Workload(128), world=4, local=2, replicas=4, stage=stage, resumes=resumes)) for resumes in (True, False)]
    assert [one.resuming for one in found] == [pytest.approx(each * MODEL.size, rel=0.05), 0]


def test_the_page_says_what_a_machine_needs_as_it_resumes(tmp_path: Path) -> None:
    (tmp_path / "ds.json").write_text(CONFIG)
    for more, is_said in ((" --resume_from_checkpoint out/checkpoint-40", True), ("", False), (" --resume_from_checkpoint False", False)):
        (tmp_path / "run.sh").write_text(ARGUMENTS % more)
        printed = " ".join(dslint("estimate", "run.sh", "--params", "7b", "--host-memory", "100GiB", cwd=tmp_path).stdout.split())
        assert ("resumes from a checkpoint" in printed) is is_said
        assert ("more than it has" in printed) is is_said


@pytest.mark.parametrize(
    ("last", "is_said"),
    [("engine.load_checkpoint('out')\n", True), ("", False), ("if unknown():\n    engine.load_checkpoint('out')\n", False)],
)
def test_a_program_that_loads_a_checkpoint_resumes(tmp_path: Path, last: str, *, is_said: bool) -> None:
    (tmp_path / "ds.json").write_text(CONFIG)
    (tmp_path / "train.py").write_text(PROGRAM % last)
    (tmp_path / "run.sh").write_text("deepspeed --num_gpus 4 train.py\n")
    printed = " ".join(dslint("estimate", "run.sh", "--params", "7b", cwd=tmp_path).stdout.split())
    assert ("resumes from a checkpoint" in printed) is is_said
