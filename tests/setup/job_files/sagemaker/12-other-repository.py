from sagemaker.pytorch import PyTorch

PyTorch(
    entry_point="train.py",
    source_dir="src",
    git_config={"repo": "https://github.com/example/other.git", "branch": "main"},
    role="SageMaker",
    instance_type="ml.p4d.24xlarge",
    instance_count=1,
    framework_version="2.1",
    py_version="py310",
    hyperparameters={"deepspeed_config": "ds.json"},
    distribution={"torch_distributed": {"enabled": True}},
).fit()
