deepspeed --num_gpus ${1:-$NUM_GPUS} train.py --deepspeed_config ds.json
