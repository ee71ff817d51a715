"""What `show` prints is what DeepSpeed holds: every value that the effective config claims to know equals the attribute of `DeepSpeedConfig`.

The configs are those of the generator of mistakes that DeepSpeed accepts: with odd spellings, quoted numbers, "auto", nulls and misplaced keys.
"""

from __future__ import annotations

import random
from typing import Any

import pytest

from dslint.config import Config, resolve
from dslint.config.effective import effective
from dslint.facts import Facts, Integration
from dslint.schemas.key_table import KEYS
from dslint.source.parse import parse
from tests.differential.mistakes import mistakes
from tests.engine.harness import Case, Engine

pytestmark = pytest.mark.deepspeed

SECTIONS = {
    "zero_optimization": ("zero_config",),
    "fp16": ("float16_config",),
    "activation_checkpointing": ("activation_checkpointing_config",),
    "aio": ("aio_config",),
    "flops_profiler": ("flops_profiler_config",),
    "comms_logger": ("comms_config", "comms_logger"),
    "tensorboard": ("monitor_config", "tensorboard"),
    "wandb": ("monitor_config", "wandb"),
    "csv_monitor": ("monitor_config", "csv_monitor"),
    "comet": ("monitor_config", "comet"),
    "hybrid_engine": ("hybrid_engine",),
    "compile": ("compile_config",),
    "autotuning": ("autotuning_config",),
}
"""Where DeepSpeed keeps a section. A section that it only builds when it is written (weight_quantization, writer) is left out."""

SCALARS = {
    "train_batch_size",
    "train_micro_batch_size_per_gpu",
    "gradient_accumulation_steps",
    "managed_gradient_accumulation",
    "gradient_clipping",
    "gradient_predivide_factor",
    "steps_per_print",
    "prescale_gradients",
    "disable_allgather",
    "dump_state",
    "memory_breakdown",
    "dataloader_drop_last",
    "zero_allow_untested_optimizer",
    "zero_force_ds_cpu_optimizer",
}

MISSING = object()


def attribute(held: dict[str, Any], key: str) -> Any:
    """What DeepSpeed holds for a key of the table, or MISSING where it holds nothing of the kind."""
    if key in SCALARS:
        return held[key]
    section, _, rest = key.partition(".")
    if section not in SECTIONS or not rest:
        return MISSING
    node: Any = held
    for name in SECTIONS[section]:
        node = node.get(name)
    path = ""
    for name in rest.split("."):
        path = f"{path}.{name}" if path else f"{section}.{name}"
        if not isinstance(node, dict):
            return MISSING
        names = [name, *KEYS[path].get("also", ())]
        node = next((node[other] for other in names if other in node), MISSING)
        if node is MISSING:
            return MISSING
    return node


def same(ours: Any, theirs: Any, spec: dict[str, Any]) -> bool:
    if spec.get("wrong") == ("truthy",):
        return bool(ours) == bool(theirs)
    return bool(ours == theirs) or (isinstance(ours, float | int) and repr(ours) == repr(theirs))


def test_every_known_value_is_deepspeeds(engine: Engine) -> None:
    cases = list({(m.text, m.world_size): m for m in mistakes(11)}.values())
    random.Random(5).shuffle(cases)
    cases = cases[:1200]
    outcomes = engine.ask(Case(str(number), text=m.text, world_size=m.world_size) for number, m in enumerate(cases))
    compared, wrong = 0, []
    for mistake, outcome in zip(cases, outcomes, strict=True):
        if outcome.raised:
            continue
        config: Config = resolve(parse(mistake.text), Facts(mistake.world_size, Integration.DEEPSPEED))
        for entry in effective(config, everything=True):
            if not entry.known or entry.lost or entry.key not in KEYS:
                continue
            theirs = attribute(outcome.effective, entry.key)
            if theirs is MISSING:
                continue
            compared += 1
            if not same(entry.value, theirs, KEYS[entry.key]):
                wrong.append(f"{mistake.kind}: {entry.key} is {theirs!r}, show says {entry.value!r} ({entry.origin})\n  {mistake.text!r}")
    print(f"\n{compared} values compared, {len(wrong)} differ")
    assert compared > 50_000
    assert not wrong, "\n".join(wrong[:20])
