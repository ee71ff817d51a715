"""Ranks that no flag of the launcher gives: torchrun's variables, and files of Accelerate that start no DeepSpeed themselves."""

from __future__ import annotations

import pytest

from tests.setup.folder import Folder

CONFIG = '{"train_batch_size": 8, "zero_optimization": {"stage": 1}}'
ACCELERATE = "compute_environment: LOCAL_MACHINE\ndistributed_type: {kind}\nmachine_rank: 0\nnum_machines: {machines}\nnum_processes: {processes}\nuse_cpu: false\n"


def ranks(folder: Folder, script: str) -> tuple[int | None, int | None]:
    folder.write({"run.sh": f"{script} --deepspeed_config ds.json\n", "ds.json": CONFIG, "train.py": "import deepspeed\n"})
    facts = folder.results("run.sh")["ds.json"].facts
    return facts.world_size, facts.nodes


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        ("PET_NPROC_PER_NODE=4 torchrun train.py", (4, 1)),
        ("export PET_NPROC_PER_NODE=4 PET_NNODES=2\ntorchrun train.py", (8, 2)),
        ("PET_NPROC_PER_NODE=4 torchrun --nproc_per_node 2 train.py", (2, 1)),
        ("PET_NPROC_PER_NODE=gpu torchrun train.py", (None, 1)),
        ("PET_NNODES=1:2 torchrun --nproc_per_node 2 train.py", (None, None)),
        ("PET_NPROC_PER_NODE=4 deepspeed train.py", (None, None)),
    ],
)
def test_variables_of_torchrun(folder: Folder, script: str, expected: tuple[int | None, int | None]) -> None:
    assert ranks(folder, script) == expected


@pytest.mark.parametrize(
    ("kind", "flags", "expected"),
    [
        ("MULTI_GPU", "", (4, 2)),
        ("MULTI_GPU", "--num_processes 2", (2, 2)),
        ("MULTI_GPU", "--num_machines 1", (4, 1)),
        ("MULTI_CPU", "", (None, None)),
        ("FSDP", "", (None, None)),
    ],
)
def test_files_of_accelerate_without_deepspeed(folder: Folder, kind: str, flags: str, expected: tuple[int | None, int | None]) -> None:
    folder.write({"acc.yaml": ACCELERATE.format(kind=kind, machines=2, processes=4)})
    assert ranks(folder, f"accelerate launch --config_file acc.yaml {flags} train.py") == expected


@pytest.mark.parametrize(
    ("number", "expected"),
    [
        ("$(echo $GPUS | awk -F, '{print NF}')", 3),
        ("$(awk -F ',' '{ print NF; }' <<< $GPUS)", 3),
        ("$(echo $GPUS | awk -F',' '{print $2}')", 1),
        ("$(echo 5 6 | awk '{print $1}')", 5),
        ("$(($(echo $GPUS | grep -o , | wc -l) + 1))", 3),
        ("$(echo $GPUS | tr ',' '\\n' | wc -l)", 3),
        ("$(printf 0,1,2 | awk '{print $0}' | wc -l)", 1),
        ("$(echo ${GPUS//,/&&} | wc -c)", None),
        ("$((${#SIGNS} + 1))", 3),
        ("$(echo $GPUS | awk -F, '{n=NF; print n}')", None),
        ("$(echo $GPUS | awk -v k=2 '{print $k}')", None),
    ],
)
def test_ranks_counted_from_the_list_of_gpus(folder: Folder, number: str, expected: int | None) -> None:
    start = "GPUS=0,1,2\nSIGNS=${GPUS//[^,]/}\n"
    assert ranks(folder, f"{start}torchrun --nproc_per_node={number} train.py") == (expected, 1)


@pytest.mark.parametrize(
    ("array", "known"),
    [
        ("$(scontrol show hostnames $SLURM_JOB_NODELIST)", False),
        ("$(cat hosts) last", False),
        ("a b", True),
        ('"$(hostname)" b', True),
    ],
)
@pytest.mark.parametrize("count", ["M=${#NODES[@]}\nN=$((M * 4))", "N=$((${#NODES[@]} * 4))"])
def test_an_array_of_an_unknown_output_has_no_known_length(folder: Folder, array: str, known: bool, count: str) -> None:
    script = f"#SBATCH --nodes=2\n#SBATCH --gres=gpu:4\nNODES=( {array} )\n{count}\n"
    launch = "accelerate launch --use_deepspeed --deepspeed_config_file ds.json --num_machines 2 --num_processes $N train.py\n"
    folder.write({"ds.json": '{"zero_optimization": {"stage": 2}}', "run.sh": f"#!/bin/bash\n{script}{launch}"})
    note = folder.results("run.sh")["run.sh"].note or ""
    assert ("on 8 ranks" in note) is known
