deepspeed --module openrlhf.cli.train_sft --zero_stage 3 --micro_train_batch_size 4 --train_batch_size 100 --bf16 --adam_offload
