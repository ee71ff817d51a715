"""Numbers of machines and ranks in scripts of Slurm: which shell expands them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.command import dslint

_HEAD = "#!/bin/bash\n#SBATCH --nodes=2\n#SBATCH --ntasks-per-node=1\n#SBATCH --gpus-per-node=8\nexport MASTER_ADDR=host\n"
_RUN = "torchrun --nnodes 2 --nproc_per_node 8 --master_addr $MASTER_ADDR"
_REST = "train.py --deepspeed ds_config.json --per_device_train_batch_size 1"

_BY_THE_SCRIPT = (
    f'srun {_RUN} --node_rank "$SLURM_NODEID" {_REST}',
    f'export NODE_RANK=$SLURM_NODEID\nCMD="{_RUN} --node_rank $NODE_RANK {_REST}"\nsrun --jobid $SLURM_JOBID bash -c "$CMD" 2>&1 | tee log',
    f'ARGS=(--node_rank $SLURM_NODEID)\nsrun {_RUN} "${{ARGS[@]}}" {_REST}',
    f"srun singularity exec --nv x.sif {_RUN} --node_rank $SLURM_NODEID {_REST}",
    f"srun --nodes=$SLURM_NNODES --ntasks=2 {_RUN} --node_rank $SLURM_PROCID {_REST}",
    f'srun bash -lc "{_RUN} --node_rank ${{SLURM_NODEID}} {_REST}"',
    f'export LAUNCHER="{_RUN} --node_rank \\$SLURM_NODEID"\nsrun $LAUNCHER {_REST}',
)

_BY_EACH_TASK = (
    f"srun bash -c '{_RUN} --node_rank $SLURM_NODEID {_REST}'",
    f'export LAUNCHER="{_RUN} --node_rank \\$SLURM_PROCID"\nsrun bash -c "$LAUNCHER {_REST}"',
    f"CMD='{_RUN} --node_rank $SLURM_NODEID {_REST}'\nsrun bash -c \"$CMD\"",
    f"cat > go.sh <<'EOF'\n{_RUN} --node_rank $SLURM_NODEID {_REST}\nEOF\nsrun bash go.sh",
    f"cat > go.sh <<EOF\n{_RUN} --node_rank \\$SLURM_NODEID {_REST}\nEOF\nsrun bash go.sh",
    f"run() {{ {_RUN} --node_rank $SLURM_NODEID {_REST}; }}\nexport -f run\nsrun bash -c run",
    f'if [ -n "$SLURM_STEP_ID" ]; then {_RUN} --node_rank $SLURM_NODEID {_REST}; else srun bash $0; fi',
    f"for i in 0 1; do srun -N1 -n1 --nodelist=n$i {_RUN} --node_rank $SLURM_NODEID {_REST} & done; wait",
    f"srun {_RUN} --rdzv_backend c10d --rdzv_endpoint $MASTER_ADDR:29500 --node_rank $SLURM_NODEID {_REST}",
)


_TO_FILL_IN = "# replace <YOUR_TRAINING_NAME>\nDATA=<the folder of your data>\n"
"""dslint reads less in its place, so that places in the script and in what is read differ."""


@pytest.mark.parametrize(
    ("script", "found"),
    [
        *((one, True) for one in _BY_THE_SCRIPT),
        *((one, False) for one in _BY_EACH_TASK),
        *((_TO_FILL_IN + one, True) for one in _BY_THE_SCRIPT[:2]),
        *((_TO_FILL_IN + one, False) for one in _BY_EACH_TASK[:4]),
    ],
)
def test_a_number_is_0_only_where_the_script_expands_it(script: str, found: bool, tmp_path: Path) -> None:
    (tmp_path / "job.sbatch").write_text(_HEAD + script + "\n", encoding="utf-8")
    (tmp_path / "ds_config.json").write_text('{"train_micro_batch_size_per_gpu": "auto"}', encoding="utf-8")
    done = dslint("check", "job.sbatch", "--output-format", "concise", cwd=tmp_path)
    assert ("DS999" in done.stdout) is found


_ACCELERATE = "accelerate launch --num_processes 8 --use_deepspeed --deepspeed_config_file ds_config.json train.py"
_ON_EACH = (
    f"srun torchrun --nproc_per_node 8 {_REST}",
    f"srun torchrun --standalone --nproc_per_node 8 {_REST}",
    f"srun bash -c 'torchrun --nproc_per_node 8 {_REST}'",
    f"srun {_ACCELERATE}",
    f"srun bash -c 'deepspeed {_REST}'",
)
_ON_ONE = (
    f"srun torchrun --nnodes 2 --rdzv_backend c10d --rdzv_endpoint $MASTER_ADDR:1 --nproc_per_node 8 {_REST}",
    f"srun torchrun --nnodes $SLURM_NNODES --rdzv_backend c10d --rdzv_endpoint $MASTER_ADDR:1 --nproc_per_node 8 {_REST}",
    f"srun torchrun $ARGS --nproc_per_node 8 {_REST}",
    f"srun -N 1 torchrun --nproc_per_node 8 {_REST}",
    f"srun -w $FIRST torchrun --nproc_per_node 8 {_REST}",
    f"srun bash -c 'torchrun --nproc_per_node 8 {_REST} --seed $SLURM_NODEID'",
    f"export PET_NNODES=2\nsrun torchrun --nproc_per_node 8 {_REST}",
    f"srun {_ACCELERATE.replace('--num_processes 8', '--num_processes 16 --num_machines 2 --machine_rank $R --main_process_ip $MASTER_ADDR')}",
    f"srun {_ACCELERATE.replace('launch', 'launch --config_file elsewhere.yaml')}",
)


@pytest.mark.parametrize(("script", "found"), [*((one, True) for one in _ON_EACH), *((one, False) for one in _ON_ONE)])
def test_a_launcher_for_one_machine_on_several(script: str, found: bool, tmp_path: Path) -> None:
    """Each of them then trains by itself, and no GPU of the other machines is idle."""
    (tmp_path / "job.sbatch").write_text(_HEAD + script + "\n", encoding="utf-8")
    (tmp_path / "ds_config.json").write_text('{"train_micro_batch_size_per_gpu": "auto"}', encoding="utf-8")
    done = dslint("check", "job.sbatch", "--output-format", "concise", cwd=tmp_path)
    assert ("DS988" in done.stdout) is found
    assert not found or "idle" not in done.stdout


_POD = (
    "replicas: {replicas}\n      template:\n        spec:\n          containers:\n            - name: pytorch\n              image: i\n"
    "              command: [{command}]\n              resources:\n                limits:\n                  nvidia.com/gpu: 8\n"
)


@pytest.mark.parametrize(
    ("command", "workers", "found"),
    [
        ("deepspeed, train.py, --deepspeed, ds_config.json", 3, True),
        ("accelerate, launch, --use_deepspeed, --deepspeed_config_file, ds_config.json, train.py", 3, True),
        ("torchrun, --nproc_per_node, '8', train.py, --deepspeed, ds_config.json", 3, False),
        ("deepspeed, --hostfile, /etc/hosts.ds, train.py, --deepspeed, ds_config.json", 3, True),
        ("deepspeed, --no_ssh, --node_rank, $(RANK), train.py, --deepspeed, ds_config.json", 3, False),
    ],
)
def test_a_launcher_in_each_pod(command: str, workers: int, found: bool, tmp_path: Path) -> None:
    """torchrun takes the machines from the variables of the operator; the other launchers do not."""
    pods = (("Master", 1), ("Worker", workers))
    specs = "".join(f"    {name}:\n      {_POD.format(replicas=count, command=command)}" for name, count in pods)
    job = f"apiVersion: kubeflow.org/v1\nkind: PyTorchJob\nmetadata:\n  name: t\nspec:\n  pytorchReplicaSpecs:\n{specs}"
    (tmp_path / "job.yaml").write_text(job, encoding="utf-8")
    (tmp_path / "ds_config.json").write_text('{"train_micro_batch_size_per_gpu": "auto"}', encoding="utf-8")
    done = dslint("check", "job.yaml", "--output-format", "concise", cwd=tmp_path)
    assert ("DS988" in done.stdout) is found
