"""Containers that have only the shared memory which docker and Kubernetes give by default."""

from __future__ import annotations

import pytest

from tests.setup.folder import Folder

CONFIG = '{"train_micro_batch_size_per_gpu": 4, "bf16": {"enabled": true}, "zero_optimization": {"stage": 2}}'
COMMAND = "deepspeed --num_gpus 8 train.py --deepspeed --deepspeed_config ds_config.json"
COMPOSE = f"services:\n  train:\n    image: pytorch/pytorch\n    command: {COMMAND}\n"
KUBERNETES = (
    "apiVersion: batch/v1\nkind: Job\nspec:\n  template:\n    spec:\n      containers:\n        - name: train\n          image: i\n"
    "          command: [deepspeed, train.py, --deepspeed, --deepspeed_config, ds_config.json]\n"
    "          resources: {limits: {nvidia.com/gpu: 8}}\n"
)
MOUNT = "          volumeMounts: [{name: m, mountPath: /dev/shm}]\n"


@pytest.mark.parametrize(
    ("file", "text", "found"),
    [
        ("run.sh", f"docker run --gpus all image {COMMAND}\n", True),
        ("run.sh", f"sudo docker run --rm --gpus=all -v $PWD:/w image {COMMAND}\n", True),
        ("run.sh", f'docker run --gpus all image bash -c "{COMMAND}"\n', True),
        ("run.sh", f"docker run --gpus '\"device=0,1\"' image {COMMAND}\n", True),
        ("run.sh", f"docker run --gpus all --shm-size 8g image {COMMAND}\n", False),
        ("run.sh", f'OPTIONS="--ipc=host"\ndocker run --gpus all $OPTIONS image {COMMAND}\n', False),
        ("run.sh", f"docker run $1 image {COMMAND}\n", False),
        ("run.sh", f"docker exec box {COMMAND}\n", False),
        ("run.sh", f"docker build -t image .\n{COMMAND}\n", False),
        ("run.sh", f"{COMMAND}\n", False),
        ("run.sh", f"docker run --gpus 1 image {COMMAND.replace('--num_gpus 8 ', '')}\n", False),
        ("docker-compose.yml", COMPOSE, True),
        ("docker-compose.yml", COMPOSE + "    shm_size: 16gb\n", False),
        ("docker-compose.yml", COMPOSE + "    ipc: host\n", False),
        ("job.yaml", KUBERNETES, True),
        ("job.yaml", KUBERNETES + MOUNT, False),
        ("job.yaml", KUBERNETES.replace("gpu: 8", "gpu: 1"), False),
    ],
)
def test_a_container_with_little_shared_memory(folder: Folder, file: str, text: str, *, found: bool) -> None:
    folder.write({"ds_config.json": CONFIG, file: text, "train.py": "import deepspeed\n"})
    assert ("DS894" in {one.code for one in folder.diagnostics(file)}) == found
