from sagemaker.pytorch import PyTorch
from sagemaker.tuner import ContinuousParameter, HyperparameterTuner

estimator = PyTorch(
    entry_point="train.py",
    source_dir="src",
    role="SageMaker",
    instance_type="ml.p5.48xlarge",
    instance_count=1,
    framework_version="2.3",
    py_version="py311",
    hyperparameters={"deepspeed_config": "ds.json"},
    distribution={"torch_distributed": {"enabled": True}},
)
HyperparameterTuner(estimator, "loss", {"lr": ContinuousParameter(1e-6, 1e-4)}, max_jobs=8).fit()
