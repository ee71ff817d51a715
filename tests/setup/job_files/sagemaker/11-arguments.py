import argparse

from sagemaker.pytorch import PyTorch

parser = argparse.ArgumentParser()
parser.add_argument("--instance-type", required=True)
parser.add_argument("--instance-count", type=int, required=True)
args = parser.parse_args()

PyTorch(
    entry_point="train.py",
    source_dir="src",
    role="SageMaker",
    instance_type=args.instance_type,
    instance_count=args.instance_count,
    framework_version="2.1",
    py_version="py310",
    hyperparameters={"deepspeed_config": "ds.json"},
    distribution={"torch_distributed": {"enabled": True}},
).fit()
