"""DS9: releases of DeepSpeed and of its loaders that do not work together."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from dslint.config import Config
from dslint.diagnostics import Effect, Phase, Severity
from dslint.facts import Integration, Release
from dslint.rule import Finding, bad, good, rule
from dslint.rules.helpers.examples import BF16_ZERO_2
from dslint.rules.helpers.loaders import HUGGING_FACE


class Pair(NamedTuple):
    """Releases that do not work together: DeepSpeed from `first` to `last`, and the loaders from `loader_from` on (None: all)."""

    first: Release
    last: Release
    loaders: tuple[Integration, ...]
    loader_from: Release | None
    outcome: str
    advice: str


PAIRS = (
    Pair(
        Release(0, 9, 0),
        Release(0, 9, 0),
        HUGGING_FACE,
        None,
        "DeepSpeed takes the world size as 1, and the batch does not fit (issue 3228)",
        "Use DeepSpeed 0.9.1 or later.",
    ),
    Pair(
        Release(0, 9, 0),
        Release(0, 9, 2),
        (Integration.ACCELERATE,),
        Release(0, 21, 0),
        'Accelerate raises ImportError "DeepSpeed version must be >= 0.9.3. Please update DeepSpeed"',
        "Use DeepSpeed 0.9.3 or later.",
    ),
)
"""Known pairs, each with what happens."""


@rule(
    "DS952",
    "known-bad-releases",
    effect=Effect.CRASH,
    phase=Phase.INITIALIZE,
    watches=("fact:integration",),
    references=("https://github.com/deepspeedai/DeepSpeed/issues/3228", "accelerate/accelerator.py, Accelerator.__init__"),
    untried="requires releases that the tests do not install; taken from the issue and from Accelerate's source",
)
@bad(BF16_ZERO_2, at="", integration="accelerate", deepspeed="0.9.0")
@bad(BF16_ZERO_2, at="", integration="accelerate", deepspeed="0.9.2", loader_release=Release(0, 21, 0))
@good(BF16_ZERO_2, integration="accelerate", deepspeed="0.9.1", loader_release=Release(0, 18, 0))
@good(BF16_ZERO_2, integration="deepspeed", deepspeed="0.9.0")
def known_bad_releases(config: Config) -> Iterator[Finding]:
    """The release of DeepSpeed is known not to work with the integration, or with its release.

    DeepSpeed 0.9.0 takes the world size as 1 under Accelerate and the Trainer; 0.9.1 fixed it. Accelerate from 0.21 on refuses DeepSpeed
    below 0.9.3. Give the release of the integration for rules that depend on it: `--integration accelerate==0.21.0`.

    Use another release.
    """
    facts = config.facts
    loader = facts.integration
    for pair in PAIRS:
        if loader not in pair.loaders or not pair.first <= facts.deepspeed <= pair.last:
            continue
        if pair.loader_from is not None and (facts.loader_release is None or facts.loader_release < pair.loader_from):
            continue
        detected = "deepspeed" in config.evidence
        yield Finding(
            "",
            f"DeepSpeed {facts.deepspeed} with {loader.label if loader else ''}: {pair.outcome}.",
            help=pair.advice,
            severity=Severity.WARNING if detected else None,
            certain=not detected,
        )
        return
