from sagemaker.pytorch import PyTorch

PyTorch(
    entry_point="train.py",
    source_dir="src",
    role="SageMaker",
    instance_type="local_gpu",
    instance_count=1,
    framework_version="2.1",
    py_version="py310",
    hyperparameters={"deepspeed_config": "ds.json"},
    distribution={"torch_distributed": {"enabled": True}},
).fit()
