"""An invented framework: it reads a YAML recipe with keys of its own, fills "auto" from them, and calls DeepSpeed itself.

Some of its keys have the names of the Trainer's arguments, and other defaults.
"""

from __future__ import annotations

from dslint.facts import Facts, Integration
from dslint.frameworks.base import Framework, Uses
from dslint.frameworks.own_arguments import Fill, OwnArgument, OwnArguments
from dslint.frameworks.refusals import Refusal
from dslint.source.unknown import UNKNOWN


def _recognises(names: frozenset[str], uses: Uses) -> bool:
    return {"engine_file", "rows_per_gpu"} <= names or {"net", "rows_per_gpu"} <= names


def _whole_batch(facts: Facts, rows: int, rounds: int) -> object:
    return rows * rounds * facts.world_size if facts.world_size else UNKNOWN


FRAMEWORK = Framework(
    "Quill",
    Integration.DEEPSPEED,
    packages=("quill",),
    commands=("quill",),
    files=("quill/fit.py",),
    recognises=_recognises,
    config_keys=("engine_file",),
    file_flags=("recipe",),
    rank_flag="gpus",
    node_flag="machines",
    other_tasks=frozenset({"print"}),
    is_sure=True,
    passes=frozenset({"model", "model_parameters", "config"}),
    refuses_unknown="recipe: unknown field {name}",
    refusals=(Refusal("ema needs the whole weights", {"ema": True}, "Remove ema, or use ZeRO stage 2.", stages=(3,)),),
    own=OwnArguments(
        {
            "net": OwnArgument(str),
            "rows_per_gpu": OwnArgument(int, 1),
            "rounds": OwnArgument(int, 1, changed={"2.0": 4}),
            "learning_rate": OwnArgument(float, 3e-4),
            "weight_decay": OwnArgument(float, 0.1),
            "warmup_steps": OwnArgument(int, 100),
            "max_steps": OwnArgument(int, 1000),
            "bf16": OwnArgument(bool, default=True),
            "limits.norm": OwnArgument(float, 0.5),
            "words": OwnArgument(int, 2048),
            "ema": OwnArgument(bool, default=False, since="1.4"),
            "output_dir": OwnArgument(str),
            "gpus": OwnArgument(int),
            "machines": OwnArgument(int, 1),
        },
        fills={
            "train_micro_batch_size_per_gpu": Fill(("rows_per_gpu",)),
            "gradient_accumulation_steps": Fill(("rounds",)),
            "train_batch_size": Fill(("rows_per_gpu", "rounds"), _whole_batch),
            "gradient_clipping": Fill(("limits.norm",)),
            "optimizer.params.lr": Fill(("learning_rate",)),
            "bf16.enabled": Fill(("bf16",)),
        },
        estimates={"model": "net", "length": "words", "micro_batch": "rows_per_gpu", "accumulation": "rounds"},
    ),
)
