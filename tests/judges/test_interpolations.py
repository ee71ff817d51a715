"""What is read of interpolations in YAML agrees with OmegaConf; `python -m tests.judges interpolations` asks it with a fresh seed."""

from __future__ import annotations

import json

import pytest

from dslint.evaluate.interpolation import interpolated
from dslint.source.tree import Mapping, plain
from dslint.source.yaml_tree import parse_yaml
from tests.judges import interpolations
from tests.judges.interpolations import case

READ = 0.9
"""The least part of the values that are read; resolvers other than oc.env and nested interpolations are not."""


@pytest.mark.slow
def test_recorded_answers() -> None:
    """`python -m tests.judges interpolations --record` asks OmegaConf again, after a change of the generator."""
    recorded = json.loads(interpolations.RECORDED.read_text(encoding="utf-8"))
    verdicts = {seed: interpolations.compare(case(int(seed)), answer) for seed, answer in recorded.items()}
    assert {seed: wrong for seed, (_, _, wrong) in verdicts.items() if wrong} == {}
    found, read = (sum(one[index] for one in verdicts.values()) for index in (0, 1))
    assert found > 3_000
    assert read > READ * found


@pytest.mark.parametrize(
    ("text", "value"), [("a: 1e-4\nb: ${oc.decode:${a}}\n", 1e-4), ("a: 1e-4\nb: ${lr}\n", "1e-4"), ("a: 1e-4\n", "1e-4")]
)
def test_numbers_are_omegaconfs_where_it_reads_the_file(text: str, value: object) -> None:
    node = interpolated(parse_yaml(text), {}).root
    assert isinstance(node, Mapping)
    assert plain(node)["a"] == value


@pytest.mark.integrations
@pytest.mark.skipif(bool(interpolations.missing()), reason=interpolations.missing())
def test_omegaconf_still_says_so() -> None:
    recorded = json.loads(interpolations.RECORDED.read_text(encoding="utf-8"))
    seeds = list(recorded)[:20]
    assert [interpolations.answer(case(int(seed))) for seed in seeds] == [recorded[seed] for seed in seeds]
