"""The Hugging Face Trainer: programs with `TrainingArguments`."""

from __future__ import annotations

from dslint.facts import Integration
from dslint.frameworks.base import Framework, Uses
from dslint.schemas.key_table import KEYS
from dslint.schemas.recognition import TELLING_KEYS, TRAINER_KEYS

TRAINER = Integration.TRANSFORMERS.label


def has_arguments(names: frozenset[str]) -> bool:
    """Whether the keys of a file are arguments of the Trainer, and not a DeepSpeed config with some that it shares."""
    is_config = names & TELLING_KEYS and len(names & TRAINER_KEYS - KEYS.keys()) < 3
    return len(names & TRAINER_KEYS) >= 3 and not is_config


def _recognises(names: frozenset[str], uses: Uses) -> bool:  # noqa: ARG001 - other frameworks ask for packages
    return has_arguments(names)


FRAMEWORK = Framework(
    TRAINER,
    Integration.TRANSFORMERS,
    packages=("transformers",),
    recognises=_recognises,
    rank=2,
    has_own_loop=False,
    generated="huggingface",
)
