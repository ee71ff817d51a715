import sagemaker
from sagemaker.pytorch import PyTorch

estimator = PyTorch(
    entry_point="train.py",
    source_dir="src",
    role=sagemaker.get_execution_role(),
    instance_type="ml.p4d.24xlarge",
    instance_count=2,
    framework_version="2.1",
    py_version="py310",
    hyperparameters={"deepspeed_config": "ds.json"},
    distribution={"torch_distributed": {"enabled": True}},
)
estimator.fit()
