"""Releases of libraries that a framework refuses when it starts."""

from __future__ import annotations

import re
from collections.abc import Iterator

from dslint.config import Config
from dslint.facts import Release
from dslint.frameworks.registry import of_arguments
from dslint.record import Record
from dslint.rules.helpers.releases import release_of
from dslint.rules.helpers.zero import STAGE

_OLD = {"transformers": ">=4.41.2", "accelerate": ">=0.30.1", "peft": ">=0.11.1", "trl": ">=0.8.6"}
_BAD_TRANSFORMERS = ",!=4.46.0,!=4.46.1,!=4.46.2,!=4.46.3,!=4.47.0,!=4.47.1,!=4.48.0"

_FACTORY = {
    (0, 8, 0): _OLD,
    (0, 8, 1): _OLD,
    (0, 8, 2): _OLD,
    (0, 8, 3): _OLD,
    (0, 9, 0): {
        "transformers": ">=4.41.2,<=4.45.0",
        "accelerate": ">=0.30.1,<=0.33.0",
        "peft": ">=0.11.1,<=0.12.0",
        "trl": ">=0.8.6,<=0.9.6",
    },
    (0, 9, 1): {
        "transformers": ">=4.41.2,<=4.46.1",
        "accelerate": ">=0.34.0,<=1.0.1",
        "peft": ">=0.11.1,<=0.12.0",
        "trl": ">=0.8.6,<=0.9.6",
    },
    (0, 9, 2): {
        "transformers": f">=4.41.2,<=4.49.0{_BAD_TRANSFORMERS}",
        "accelerate": ">=0.34.0,<=1.2.1",
        "peft": ">=0.11.1,<=0.12.0",
        "trl": ">=0.8.6,<=0.9.6",
    },
    (0, 9, 3): {
        "transformers": f">=4.45.0,<=4.52.4{_BAD_TRANSFORMERS},!=4.52.0",
        "accelerate": ">=0.34.0,<=1.7.0",
        "peft": ">=0.14.0,<=0.15.2",
        "trl": ">=0.8.6,<=0.9.6",
        "deepspeed": ">=0.10.0,<=0.16.9",
    },
    (0, 9, 4): {
        "transformers": ">=4.51.0,<=4.57.1",
        "accelerate": ">=1.3.0,<=1.11.0",
        "peft": ">=0.14.0,<=0.17.1",
        "trl": ">=0.18.0,<=0.24.0",
        "deepspeed": ">=0.10.0,<=0.16.9",
    },
    (0, 9, 5): {
        "transformers": ">=4.55.0,<=5.6.0",
        "accelerate": ">=1.3.0,<=1.15.0",
        "peft": ">=0.18.0,<=0.20.0",
        "trl": ">=0.18.0,<=0.24.0",
    },
}
"""What LLaMA-Factory requires of libraries, by its release; of DeepSpeed only with a config."""

SOURCE = "llamafactory/extras/misc.py, check_dependencies, and hparams/parser.py, _check_extra_dependencies of 0.8.0 to 0.9.5"

_MANDATORY = {("deepspeed", (0, 9, 3))}
"""What it requires even if the variable DISABLE_VERSION_CHECK is set, with its release."""


class CrossedLimit(Record):
    """A library of a release that a framework refuses: the framework's `name` with its release, and what it requires."""

    name: str
    package: str
    release: Release
    required: str
    can_be_disabled: bool


def crossed_limits(config: Config) -> Iterator[CrossedLimit]:
    """The libraries whose known releases the framework of the training refuses."""
    framework = of_arguments(config.arguments)
    if framework is None or framework.packages[0] != "llamafactory":
        return
    own = config.context.pinned("llamafactory")
    if own is None:
        return
    from packaging.specifiers import SpecifierSet  # slow to import, and few projects pin the framework

    documents = config.setup.documents.values() if config.setup is not None else ()
    is_disabled = any("DISABLE_VERSION_CHECK" in document.text for document in documents)
    limits = _FACTORY.get((own.major, own.minor, own.patch), {})
    every = [(package, required, (package, (own.major, own.minor, own.patch)) not in _MANDATORY) for package, required in limits.items()]
    for package, required, can_be_disabled in (*every, *_of_this_job(config, own)):
        release = release_of(config, package)
        if release is None or (is_disabled and can_be_disabled) or SpecifierSet(required).contains(str(release), prereleases=True):
            continue
        yield CrossedLimit(f"{framework.name} {own}", package, release, required, can_be_disabled)


def newest_of_framework(config: Config, package: str) -> tuple[str, Release] | None:
    """The newest release of a package that the pinned framework of the training takes, with the name and release of that framework."""
    own = config.context.pinned("llamafactory")
    framework = of_arguments(config.arguments) if own is not None else None
    if own is None or framework is None or framework.packages[0] != "llamafactory":
        return None
    newest = re.search(r"<=(\d+\.\d+\.\d+)", _FACTORY.get((own.major, own.minor, own.patch), {}).get(package, ""))
    return (f"{framework.name} {own}", Release.parse(newest[1])) if newest else None


def _of_this_job(config: Config, own: Release) -> Iterator[tuple[str, str, bool]]:
    """What LLaMA-Factory requires only of some jobs: the library, its releases, and whether the check can be disabled.

    Sources: llamafactory/model/model_utils/moe.py (in 0.5.2 to 0.6.3 llmtuner/model/patcher.py), add_z3_leaf_module;
    llamafactory/train/ppo/trainer.py of 0.9.4.
    """
    family = config.facts.model.family if config.facts.model is not None else None
    with_experts = own >= _LEAVES.get(family or "", _NEVER)
    if config.value(STAGE) == 3 and (with_experts or Release(0, 7, 0) <= own < Release(0, 8, 2)):
        yield "deepspeed", ">=0.13.0", own >= Release(0, 9, 2)
    stage = config.arguments.get("stage") if config.arguments is not None else None
    if stage is not None and stage.value == "ppo" and own >= Release(0, 9, 4):
        yield "trl", ">=0.8.6,<=0.9.6", False


_LEAVES = {"mixtral": Release(0, 5, 2), "qwen2_moe": Release(0, 6, 2)}
"""By family: the first release that sets leaf modules at ZeRO stage 3 and requires a DeepSpeed that has them. From 0.7.0 to 0.8.1 it
requires that for each model.
"""

_NEVER = Release(99, 0, 0)
