from sagemaker.pytorch import PyTorch
from sagemaker.workflow.pipeline import Pipeline
from sagemaker.workflow.pipeline_context import PipelineSession
from sagemaker.workflow.steps import TrainingStep


def make(name: str) -> Pipeline:
    estimator = PyTorch(
        entry_point="train.py",
        source_dir="src",
        role="SageMaker",
        instance_type="ml.p3.8xlarge",
        instance_count=1,
        framework_version="2.1",
        py_version="py310",
        sagemaker_session=PipelineSession(),
        hyperparameters={"deepspeed_config": "ds.json"},
        distribution={"torch_distributed": {"enabled": True}},
    )
    return Pipeline(name=name, steps=[TrainingStep(name="train", step_args=estimator.fit())])


make("deepspeed").start()
