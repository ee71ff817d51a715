#!/bin/bash
#SBATCH --nodes=2
#SBATCH --gpus-per-node=4

srun torchrun --nnodes $SLURM_NNODES --nproc_per_node 8 finetune.py \
    --deepspeed ds_config.json \
    --per_device_train_batch_size 2 \
    --gradient_accumulation_steps 4 \
    --max_grad_norm 0.5 \
    --bf16
