"""What eleven real releases said of the same configs, beside what dslint says for each of them.

`verdicts.jsonl` was recorded by running the releases: a config (handed over as a dict), and the releases whose `DeepSpeedConfig` refused it.
Only configs are in it that some of the releases refuse and others take.
"""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest

from dslint.api import check
from dslint.diagnostics import Effect, Phase

pytestmark = pytest.mark.slow

RELEASES = ("0.9.5", "0.10.3", "0.11.2", "0.12.6", "0.13.5", "0.14.5", "0.15.4", "0.16.9", "0.17.6", "0.18.9", "0.19.8")
RECORDS = [json.loads(line) for line in (Path(__file__).parent / "verdicts.jsonl").read_text(encoding="utf-8").splitlines()]


def is_read_otherwise(config: dict[str, object]) -> bool:
    """What only a dict can do: dslint judges a config as the file it is in, where this key is overlooked and a whole float is an integer."""
    return "sequence_parallel_size" in config or any(isinstance(value, float) and value.is_integer() for value in config.values())


@pytest.mark.parametrize("release", RELEASES)
def test_dslint_agrees_with_the_release(release: str) -> None:
    wrong: list[str] = []
    counts: Counter[str] = Counter()
    for record in RECORDS:
        found = check(record["config"], world_size=record["world_size"], integration="deepspeed", deepspeed=release)
        crashes = [d for d in found if d.effect is Effect.CRASH and d.phase in (Phase.LOAD, Phase.PARSE)]
        refused = release in record["refused"]
        counts["refused" if refused else "taken"] += 1
        if refused and not crashes and not is_read_otherwise(record["config"]):
            wrong.append(f"missed: {json.dumps(record['config'])}")
        elif crashes and not refused:
            wrong.append(f"claimed {crashes[0].code}: {json.dumps(record['config'])}")
    print(f"{release}: {counts['refused']} refused, {counts['taken']} taken, {len(wrong)} judged otherwise")
    assert not wrong, "\n".join(wrong[:10])
    assert min(counts.values()) > 50
