"""An invented framework: a loop of its own around Accelerate, with arguments of its own in a file and in flags."""

from __future__ import annotations

from dslint.facts import Integration
from dslint.frameworks.base import Framework, Uses
from dslint.frameworks.own_arguments import OwnArgument, OwnArguments


def _recognises(names: frozenset[str], uses: Uses) -> bool:
    return {"clay", "learning_rate"} <= names and uses("kiln")


FRAMEWORK = Framework(
    "Kiln",
    Integration.ACCELERATE,
    packages=("kiln",),
    files=("kiln/fire.py",),
    mentions=("kiln.fire",),
    recognises=_recognises,
    config_keys=("ds_file",),
    own=OwnArguments(
        {"clay": OwnArgument(str), "learning_rate": OwnArgument(float, 1e-4), "batch": OwnArgument(int, 1)},
        estimates={"model": "clay", "micro_batch": "batch"},
    ),
)
