import sagemaker
from sagemaker.pytorch.estimator import PyTorch

session = sagemaker.Session()
role = sagemaker.get_execution_role()
INSTANCE = "ml.g5.12xlarge"
NODES = 2

estimator = PyTorch(
    base_job_name="finetune",
    entry_point="train.py",
    source_dir="finetune",
    role=role,
    sagemaker_session=session,
    image_uri="763104351884.dkr.ecr.us-west-2.amazonaws.com/pytorch-training:2.1.0-gpu-py310",
    instance_type=INSTANCE,
    instance_count=NODES,
    hyperparameters={"deepspeed_config": "ds.json", "lr": 1e-5},
    distribution={"torch_distributed": {"enabled": True}},
    environment={"NCCL_DEBUG": "INFO"},
)
estimator.fit({"train": "s3://bucket/train"}, wait=False)
