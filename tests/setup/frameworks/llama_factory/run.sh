NPROC_PER_NODE=8 llamafactory-cli train train.yaml
