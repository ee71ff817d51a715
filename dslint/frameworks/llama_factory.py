"""LLaMA-Factory: a YAML file with `stage` and `finetuning_type`, started with `llamafactory-cli train`."""

from __future__ import annotations

from dslint.facts import Integration
from dslint.frameworks.base import Framework, Uses, Workload
from dslint.schemas.recognition import TRAINER_KEYS


def _recognises(names: frozenset[str], uses: Uses) -> bool:  # noqa: ARG001 - other frameworks ask for packages
    own = names & {"stage", "finetuning_type"} and names & {"model_name_or_path", "dataset", "template"}
    return bool(own) and len(names & TRAINER_KEYS) >= 2


FRAMEWORK = Framework(
    "LLaMA-Factory",
    Integration.TRANSFORMERS,
    packages=("llamafactory",),
    commands=("llamafactory-cli", "lmf"),
    mentions=("llamafactory-cli",),
    recognises=_recognises,
    generated="llama_factory",
    refuses_unknown="Some keys are not used by the HfArgumentParser: ['{name}']",
    is_sure=True,
    starts_ranks=True,
    starts_all=True,
    takes_file=True,
    workload=Workload(
        checkpoints="LLaMA-Factory",
        trains_adapters=True,
        lora_rank=8,
        lora_dropout=0.0,
        freezes="freeze_vision_tower",
        zero_init=True,
    ),
)
