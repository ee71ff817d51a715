trl sft --config train.yaml
