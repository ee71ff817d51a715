"""An invented framework: its flags say everything, and it writes the config for DeepSpeed from them."""

from __future__ import annotations

from dslint.facts import Facts, Integration
from dslint.frameworks.base import Framework, Uses
from dslint.frameworks.own_arguments import Fill, OwnArgument, OwnArguments
from dslint.job.arguments import Arguments


def _recognises(names: frozenset[str], uses: Uses) -> bool:
    return ("shard_level" in names or "shard-level" in names) and "samples" in names and uses("forge")


def _uses_deepspeed(arguments: Arguments) -> bool:
    return arguments.value("backend") == "deepspeed"


def _type(facts: Facts, kind: str) -> str:
    return {"adam": "AdamW"}.get(kind, kind)


FRAMEWORK = Framework(
    "Forge",
    Integration.DEEPSPEED,
    packages=("forge",),
    commands=("forge-train",),
    mentions=("forge-train", "shard_level"),
    files=("forge/__main__.py",),
    recognises=_recognises,
    config_keys=("engine.deepspeed",),
    starts_ranks=True,
    is_sure=True,
    own=OwnArguments(
        {
            "backend": OwnArgument(str, "deepspeed"),
            "shard_level": OwnArgument(int, 2),
            "samples": OwnArgument(int, 8),
            "step_every": OwnArgument(int, 1),
            "optim": OwnArgument(str, "adam"),
            "lr": OwnArgument(float, 1e-4),
            "half": OwnArgument(bool, default=True),
            "offload": OwnArgument(bool, default=False),
        },
        uses_deepspeed=_uses_deepspeed,
        builds={
            "train_micro_batch_size_per_gpu": Fill(("samples",)),
            "gradient_accumulation_steps": Fill(("step_every",)),
            "zero_optimization.stage": Fill(("shard_level",)),
            "zero_optimization.offload_param.device": Fill(("offload",), lambda _, offload: "cpu" if offload else None),
            "optimizer.type": Fill(("optim",), _type),
            "optimizer.params.lr": Fill(("lr",)),
            "bf16.enabled": Fill(("half",)),
        },
    ),
)
