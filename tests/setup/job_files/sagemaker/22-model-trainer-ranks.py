from sagemaker.train.configs import Compute, SourceCode
from sagemaker.train.distributed import Torchrun
from sagemaker.train.model_trainer import ModelTrainer

trainer = ModelTrainer(
    training_image="image",
    source_code=SourceCode(source_dir="src", entry_script="train.py"),
    compute=Compute(instance_type="ml.p4d.24xlarge", instance_count=2),
    distributed=Torchrun(process_count_per_node=4),
    hyperparameters={"deepspeed_config": "ds.json"},
)
trainer.train()
