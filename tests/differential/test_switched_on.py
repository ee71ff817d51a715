"""Single values of a section that DeepSpeed checks only where the section is enabled: dslint against the real DeepSpeed."""

from __future__ import annotations

import json

import pytest

from dslint.diagnostics import Effect
from dslint.facts import Facts, Integration
from dslint.lint.document import lint_document
from dslint.registry.rules import default_rules
from dslint.schemas.key_table import KEYS
from dslint.source.parse import parse
from tests.engine.harness import Case, Engine

pytestmark = pytest.mark.deepspeed

VALUES = (None, True, False, "auto", "x", "", "a.b", 0, -1, 1, 3, 0.5, 1.0, [], ["a"], {}, "softmax")
OF_THE_MODEL = "no MoE layers detected"
"""Words of an error that the model of the suite brings about, which has no experts."""


def with_values(section: str) -> list[str]:
    """A config for each key of the section and each value, with the section enabled."""
    keys = [key.rpartition(".")[2] for key in KEYS if key.startswith(f"{section}.") and key != f"{section}.enabled"]
    return [json.dumps({"train_micro_batch_size_per_gpu": 1, section: {"enabled": True, key: value}}) for key in keys for value in VALUES]


@pytest.mark.parametrize("section", ["expert_parallel"])
def test_each_value_as_deepspeed_takes_it(engine: Engine, section: str) -> None:
    texts = with_values(section)
    outcomes = engine.ask(Case(str(n), text=text, upto="initialize", optimizer=True) for n, text in enumerate(texts))
    differences = []
    for text, outcome in zip(texts, outcomes, strict=True):
        found = lint_document(parse(text), "ds_config.json", Facts(1, Integration.DEEPSPEED), default_rules()).diagnostics
        claims = [d for d in found if d.effect is Effect.CRASH and d.certain]
        if OF_THE_MODEL not in (outcome.error or "") and outcome.phase != (claims[0].phase.value if claims and claims[0].phase else None):
            differences.append((text, outcome.phase, outcome.error, [f"{d.code} {d.message}" for d in claims]))
    assert sum(outcome.raised for outcome in outcomes) > len(texts) / 2
    assert not differences, "\n".join(map(str, differences))
