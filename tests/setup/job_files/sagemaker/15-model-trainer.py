from sagemaker.modules.configs import Compute, SourceCode
from sagemaker.modules.distributed import Torchrun
from sagemaker.modules.train import ModelTrainer

ModelTrainer(
    training_image="763104351884.dkr.ecr.us-west-2.amazonaws.com/pytorch-training:2.3",
    source_code=SourceCode(source_dir="src", entry_script="train.py"),
    compute=Compute(instance_type="ml.p4d.24xlarge", instance_count=1),
    distributed=Torchrun(),
    hyperparameters={"deepspeed_config": "ds.json"},
).train()
