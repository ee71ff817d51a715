deepspeed --num_gpus 8 main.py --zero_stage 2 --per_device_train_batch_size 4 --offload --deepspeed --data_split 2,4,4
