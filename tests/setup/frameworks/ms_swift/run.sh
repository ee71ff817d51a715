NPROC_PER_NODE=8 swift sft --config train.yaml
