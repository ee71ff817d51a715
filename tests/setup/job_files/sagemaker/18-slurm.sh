#!/bin/bash
#SBATCH --nodes=2
#SBATCH --job-name=llama-hyperpod
#SBATCH --exclusive
#SBATCH --output=logs/%x_%j.out
export FI_PROVIDER=efa
AUTO_RESUME=""
if [ -d "/opt/sagemaker_cluster" ]; then
    AUTO_RESUME="--auto-resume=1"
fi
srun ${AUTO_RESUME} -l torchrun \
    --nproc_per_node=8 \
    --nnodes=2 \
    --rdzv_id=$SLURM_JOB_ID \
    --rdzv_backend=c10d \
    --rdzv_endpoint=$(hostname) \
    train.py --deepspeed_config ds.json
