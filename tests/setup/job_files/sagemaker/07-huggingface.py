from sagemaker.huggingface import HuggingFace

hyperparameters = {"epochs": 3, "deepspeed_config": "ds.json"}

huggingface_estimator = HuggingFace(
    entry_point="train.py",
    source_dir="./src",
    instance_type="ml.p4d.24xlarge",
    instance_count=1,
    role="arn:aws:iam::123456789012:role/SageMaker",
    transformers_version="4.28.1",
    pytorch_version="2.0.0",
    py_version="py310",
    hyperparameters=hyperparameters,
    distribution={"torch_distributed": {"enabled": True}},
)
huggingface_estimator.fit({"train": "s3://bucket/train"})
