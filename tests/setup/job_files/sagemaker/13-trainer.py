from sagemaker.huggingface import HuggingFace

hyperparameters = {
    "output_dir": "/opt/ml/model",
    "per_device_train_batch_size": 4,
    "gradient_accumulation_steps": 1,
    "deepspeed": "ds.json",
}

HuggingFace(
    entry_point="train_hf.py",
    source_dir="src",
    role="SageMaker",
    instance_type="ml.p4de.24xlarge",
    instance_count=4,
    transformers_version="4.36",
    pytorch_version="2.1",
    py_version="py310",
    hyperparameters=hyperparameters,
    distribution={"torch_distributed": {"enabled": True}},
).fit({"training": "s3://bucket/data"})
