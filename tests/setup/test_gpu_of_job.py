"""The kind of GPU that a job asks Slurm or its platform for is the one that it is judged on."""

from __future__ import annotations

import pytest

from tests.setup.folder import Folder

CONFIG = '{"train_micro_batch_size_per_gpu": 1, "bf16": {"enabled": true}, "zero_optimization": {"stage": 2}}'
LAUNCH = "deepspeed --num_gpus 4 train.py --deepspeed ds.json"

SKY = f"resources:\n  accelerators: {{}}\nnum_nodes: 1\nrun: |\n  {LAUNCH}\n"
POD = (
    "apiVersion: v1\nkind: Pod\nspec:\n  nodeSelector:\n    {}\n  containers:\n  - image: i\n"
    f"    command: [bash, -c, '{LAUNCH}']\n    resources:\n      limits:\n        nvidia.com/gpu: 4\n"
)


def gpu_of(folder: Folder, files: dict[str, str]) -> str | None:
    folder.write({"ds.json": CONFIG, **files})
    found = {str(result.context.facts.gpu) for name in files for result in folder.results(name).values() if result.context.facts.gpu}
    assert len(found) < 2, found
    return next(iter(found), None)


@pytest.mark.parametrize(
    ("lines", "gpu"),
    [
        ("#SBATCH --gres=gpu:v100:4", "v100"),
        ("#SBATCH --gres=gpu:tesla_v100:4,tmpfs:100G", "v100"),
        ("#SBATCH --gpus-per-node=a100:4", "a100"),
        ("#SBATCH --gpus=rtx_3090:4", "rtx3090"),
        ("#SBATCH -C v100-32g\n#SBATCH --gres=gpu:4", "v100"),
        ("#SBATCH -C v100-16g\n#SBATCH --gres=gpu:4", "v100-16gb"),
        ("#SBATCH --gres=gpu:4", None),
        ("#SBATCH --gres=gpu:a100_1g.5gb:4", None),  # a part of one
        ("#SBATCH --gres=gpu:bigmem:4", None),
        ("#SBATCH --constraint=v100|a100\n#SBATCH --gres=gpu:4", None),
        ("#SBATCH --constraint=a100\n#SBATCH --gres=gpu:v100:4", None),
        ("#SBATCH --gres=gpu:v100:4\n#SBATCH hetjob\n#SBATCH --gres=gpu:a100:4", None),
    ],
)
def test_slurm(folder: Folder, lines: str, gpu: str | None) -> None:
    assert gpu_of(folder, {"job.sh": f"#!/bin/bash\n{lines}\n{LAUNCH}\n"}) == gpu


@pytest.mark.parametrize(
    ("kind", "gpu"), [("V100:4", "v100"), ("{A100-40GB: 4}", "a100-40gb"), ("{V100: 4, A100: 4}", None), ("tpu-v4:4", None)]
)
def test_skypilot(folder: Folder, kind: str, gpu: str | None) -> None:
    assert gpu_of(folder, {"job.yaml": SKY.format(kind)}) == gpu


@pytest.mark.parametrize(
    ("label", "gpu"),
    [
        ("nvidia.com/gpu.product: NVIDIA-A100-SXM4-80GB", "a100"),
        ("cloud.google.com/gke-accelerator: nvidia-tesla-t4", "t4"),
        ("disk: ssd", None),
    ],
)
def test_kubernetes(folder: Folder, label: str, gpu: str | None) -> None:
    assert gpu_of(folder, {"job.yaml": POD.format(label)}) == gpu


def test_what_is_judged_with_it(folder: Folder) -> None:
    folder.write({"ds.json": CONFIG, "job.sh": f"#!/bin/bash\n#SBATCH --gres=gpu:v100:4\n{LAUNCH}\n"})
    assert "DS323" in {one.code for one in folder.diagnostics("job.sh")}
    folder.write({"job.sh": f"#!/bin/bash\n#SBATCH --gres=gpu:a100:4\n{LAUNCH}\n"})
    assert "DS323" not in {one.code for one in folder.diagnostics("job.sh")}
