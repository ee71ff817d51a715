"""A config with one misspelt key, judged by the real DeepSpeed: what raises is called a crash, and what runs is not."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest

from dslint.diagnostics import Effect
from dslint.facts import Facts, Integration
from dslint.lint.document import lint_text
from dslint.registry.rules import default_rules
from tests.engine.harness import Case, Engine

BASE: tuple[dict[str, Any], ...] = (
    {
        "train_micro_batch_size_per_gpu": 4,
        "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}},
        "scheduler": {"type": "WarmupLR", "params": {}},
    },
    {"train_batch_size": 4, "gradient_accumulation_steps": 2, "bf16": {"enabled": True}, "zero_optimization": {"stage": 2}},
    {
        "train_micro_batch_size_per_gpu": 4,
        "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}},
        "scheduler": {"type": "WarmupDecayLR", "params": {"total_num_steps": 100}},
        "zero_optimization": {"stage": 1},
        "bf16": {"enabled": True},
        "fp16": {"enabled": False},
    },
    {
        "train_micro_batch_size_per_gpu": 4,
        "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}},
        "bf16": {"enabled": True},
        "zero_optimization": {"stage": 2},
        "fp16": {"enabled": False, "fp16_master_weights_and_grads": True},
    },
    {
        "train_micro_batch_size_per_gpu": 4,
        "optimizer": {"type": "Adam", "params": {}},
        "scheduler": {"type": "OneCycle", "params": {"cycle_min_lr": 1e-5, "cycle_max_lr": 1e-3}},
    },
)


def slips(config: dict[str, Any], rng: random.Random) -> list[tuple[str, str]]:
    """The config with one key misspelt, once for each key at the top level and in sections that ignore unknown keys."""
    found = []
    for section, keys in (((), config), *(((name,), config[name]) for name in ("optimizer", "scheduler") if name in config)):
        for key in keys:
            at = rng.randrange(1, len(key) - 1)
            slip = key[:at] + key[at + 1] + key[at] + key[at + 2 :] if key[at] != key[at + 1] else key[:at] + key[at + 1 :]
            inner = {slip if name == key else name: value for name, value in keys.items()}
            found.append((".".join((*section, slip)), json.dumps({**config, section[0]: inner} if section else inner)))
    return found


@pytest.mark.deepspeed
@pytest.mark.slow
def test_what_a_misspelt_key_leads_to_is_said(engine: Engine) -> None:
    rng = random.Random(30)
    cases = [case for config in BASE for case in slips(config, rng)]
    outcomes = engine.ask(
        Case(str(number), text=text, world_size=1, upto="initialize", optimizer=True) for number, (_, text) in enumerate(cases)
    )
    wrong = []
    for (slip, text), outcome in zip(cases, outcomes, strict=True):
        found = lint_text(text, "c.json", Facts(1, Integration.DEEPSPEED), default_rules()).diagnostics
        crash = [d for d in found if d.effect is Effect.CRASH]
        if bool(crash) is not (outcome.error is not None):
            wrong.append((slip, outcome.error, [d.message for d in found]))
    assert not wrong, wrong
