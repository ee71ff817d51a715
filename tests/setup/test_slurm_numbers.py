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


@pytest.mark.parametrize(("script", "found"), [*((one, True) for one in _BY_THE_SCRIPT), *((one, False) for one in _BY_EACH_TASK)])
def test_a_number_is_0_only_where_the_script_expands_it(script: str, found: bool, tmp_path: Path) -> None:
    (tmp_path / "job.sbatch").write_text(_HEAD + script + "\n", encoding="utf-8")
    (tmp_path / "ds_config.json").write_text('{"train_micro_batch_size_per_gpu": "auto"}', encoding="utf-8")
    done = dslint("check", "job.sbatch", "--output-format", "concise", cwd=tmp_path)
    assert ("DS999" in done.stdout) is found
