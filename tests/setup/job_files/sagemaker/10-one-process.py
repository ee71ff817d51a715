from sagemaker.huggingface import HuggingFace

HuggingFace(
    entry_point="train.py",
    source_dir="./src",
    role="SageMaker",
    instance_type="ml.g5.2xlarge",
    instance_count=1,
    transformers_version="4.36",
    pytorch_version="2.1",
    py_version="py310",
    hyperparameters={"deepspeed_config": "ds.json"},
).fit()
