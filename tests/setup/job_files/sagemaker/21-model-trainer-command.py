from sagemaker.train import ModelTrainer
from sagemaker.train.configs import Compute, SourceCode

source = SourceCode(source_dir="./src", command="torchrun --nnodes 1 --nproc_per_node 4 train.py --deepspeed_config ds.json")
trainer = ModelTrainer(training_image="image", source_code=source, compute=Compute(instance_type="ml.g5.12xlarge", instance_count=1))
trainer.train()
