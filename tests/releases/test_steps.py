"""What seven real releases did with the same configs up to the first training step, beside what dslint says for each of them.

`steps.jsonl` was recorded by running the releases on one rank, on a CPU with 16-bit types allowed and compiled operations replaced: the examples
of rules about crashes, and random configs, each with an optimizer of its own; and the releases that raised. Left out is what only that machine
refuses, and three kinds of values that dslint does not judge in old releases: a list as last_batch_iteration, an unknown comm_backend_name and
int8 as grad_accum_dtype.
"""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest

from dslint.diagnostics import Effect, Phase
from dslint.facts import Facts, Integration, Release
from dslint.lint.document import lint_document
from dslint.registry.rules import default_rules
from dslint.source.parse import parse

pytestmark = pytest.mark.slow

RELEASES = ("0.9.5", "0.12.6", "0.14.5", "0.16.9", "0.17.6", "0.18.3", "0.18.9")
RECORDS = [json.loads(line) for line in (Path(__file__).parent / "steps.jsonl").read_text(encoding="utf-8").splitlines()]
UP_TO_THE_STEP = (Phase.LOAD, Phase.PARSE, Phase.INITIALIZE, Phase.STEP)
UNTRIED = frozenset(rule.code for rule in default_rules() if rule.load().untried) | {"DS504"}
"""Rules whose crash needs a GPU, or several ranks."""


@pytest.mark.parametrize("release", RELEASES)
def test_dslint_agrees_with_the_release_up_to_the_step(release: str) -> None:
    wrong: list[str] = []
    counts: Counter[str] = Counter()
    facts = Facts(1, Integration.DEEPSPEED, deepspeed=Release.parse(release))
    for record in RECORDS:
        found = lint_document(parse(json.dumps(record["config"])), "ds_config.json", facts, default_rules()).diagnostics
        crashes = [d for d in found if d.effect is Effect.CRASH and d.phase in UP_TO_THE_STEP]
        claims = [d for d in crashes if d.certain and d.code not in UNTRIED]
        raised = release in record["raised"]
        counts["raised" if raised else "trained"] += 1
        if raised and not crashes:
            wrong.append(f"missed: {json.dumps(record['config'])}")
        elif claims and not raised:
            wrong.append(f"claimed {claims[0].code}: {json.dumps(record['config'])}")
    print(f"{release}: {counts['raised']} raised, {counts['trained']} trained, {len(wrong)} judged otherwise")
    assert not wrong, "\n".join(wrong)
    assert min(counts.values()) > 20
