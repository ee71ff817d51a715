"""A Trainer of Lightning for several machines that plain Python starts: it waits for ranks that nobody starts."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.command import dslint

_PROGRAM = """import hydra
import lightning as L


@hydra.main(version_base=None, config_path="conf", config_name="config")
def main(cfg):
    trainer = L.Trainer(**cfg.trainer)
    trainer.fit(Model(cfg))


main()
"""
_TRAINER = "accelerator: gpu\ndevices: 8\nnum_nodes: 2\nstrategy: deepspeed_stage_2\nprecision: bf16-mixed\n"


@pytest.mark.parametrize(
    ("script", "found"),
    [
        ("python train.py trainer=ds\n", True),
        ("python train.py trainer=ds trainer.num_nodes=1\n", False),
        ("python train.py trainer=one\n", False),
        ("#SBATCH --nodes=2\npython train.py trainer=ds\n", False),
        ("#SBATCH --nodes=2\n#SBATCH --ntasks-per-node=8\nsrun python train.py trainer=ds\n", False),
        ("export NODE_RANK=$1 MASTER_ADDR=10.0.0.4\npython train.py trainer=ds\n", False),
        ("torchrun --nnodes 2 --nproc_per_node 8 train.py trainer=ds\n", False),
        ("mpirun -np 16 python train.py trainer=ds\n", False),
    ],
)
def test_values_of_a_group_of_hydra(tmp_path: Path, script: str, found: bool) -> None:
    (tmp_path / "conf" / "trainer").mkdir(parents=True)
    (tmp_path / "train.py").write_text(_PROGRAM, encoding="utf-8")
    (tmp_path / "conf" / "config.yaml").write_text("defaults:\n  - trainer: one\n  - _self_\n", encoding="utf-8")
    (tmp_path / "conf" / "trainer" / "ds.yaml").write_text(_TRAINER, encoding="utf-8")
    (tmp_path / "conf" / "trainer" / "one.yaml").write_text(_TRAINER.replace("num_nodes: 2\n", ""), encoding="utf-8")
    (tmp_path / "run.sh").write_text(script, encoding="utf-8")
    shown = dslint("check", "run.sh", "--output-format", "concise", cwd=tmp_path).stdout
    assert ("[devices-do-not-match-launcher]" in shown) is found
