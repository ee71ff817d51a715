from sagemaker.pytorch import PyTorch

PyTorch(
    entry_point="train.py",
    source_dir="src",
    role="SageMaker",
    instance_type="ml.p4d.24xlarge",
    instance_count=2,
    framework_version="1.13.1",
    py_version="py39",
    hyperparameters={"deepspeed_config": "ds.json"},
    distribution={"pytorchddp": {"enabled": True}},
).fit()
