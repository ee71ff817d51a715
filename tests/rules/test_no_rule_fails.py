"""No rule fails, whatever a file holds."""

from __future__ import annotations

import json
import random
import re
from pathlib import Path
from typing import Any

import pytest

from dslint import rules
from dslint.config.load import take
from dslint.diagnostics import Effect
from dslint.errors import TRACEBACK
from dslint.facts import NEWEST, Facts, Integration, Release
from dslint.lint.document import lint_document, lint_loaded
from dslint.lint.guard import INTERNAL_ERROR
from dslint.registry.rules import all_rules, loaded_rules
from dslint.schemas.key_table import KEYS, OPTIMIZERS, SCHEDULERS
from dslint.source.parse import parse
from tests.bad_input.test_nothing_is_skipped import misspelt
from tests.cases import table
from tests.setup.beside import context_of

VALUES: tuple[Any, ...] = (None, True, False, 0, 1, -1, 2, 0.5, 1e30, "", "auto", "false", "none", "x", [], [1], [0.9, 0.99], {}, {"a": 1})


def odd_config(seed: int) -> dict[str, Any]:
    """A config of known keys with values that may be of any kind, and types of optimizers and schedules with parameters of any type's."""
    draw = random.Random(seed)
    config: dict[str, Any] = {}
    for key in draw.sample(list(KEYS), 25):
        place = config
        *above, name = key.replace("*", "m").replace("[]", "").split(".")
        for section in above:
            inner = place.setdefault(section, {})
            if not isinstance(inner, dict):
                break
            place = inner
        else:
            place.setdefault(name, draw.choice(VALUES))
    for section, types in (("optimizer", OPTIMIZERS), ("scheduler", SCHEDULERS)):
        names = [name for entry in types.values() for name in entry["params"]]
        params: Any = {name: draw.choice(VALUES) for name in draw.sample(names, 6)}
        config[section] = {"type": draw.choice([*types, "x", None]), "params": draw.choice([params, params, params, None, "x"])}
    return config


@table("seed", range(150))
def test_no_rule_fails_on_an_odd_config(seed: int) -> None:
    text = json.dumps(odd_config(seed))
    integration = [None, *Integration][seed % 5]
    release = [NEWEST, Release(0, 18, 9), Release(0, 9, 0)][seed % 3]
    facts = Facts(world_size=[None, 8][seed % 2], integration=integration, deepspeed=release)
    found = lint_document(parse(text), "c.json", facts, all_rules()).diagnostics
    assert [d.message for d in found if d.code == INTERNAL_ERROR] == [], text


@pytest.mark.usefixtures("empty_folder")
@pytest.mark.parametrize("step", [pytest.param(30, id="every thirtieth key"), pytest.param(1, id="every key", marks=pytest.mark.slow)])
def test_no_rule_fails_on_its_examples_with_a_misspelt_key(monkeypatch: pytest.MonkeyPatch, step: int) -> None:
    """A rule that asks for a setting after it found it not to be missing: the misspelt key only stands for it, or for nothing."""
    monkeypatch.setenv(TRACEBACK, "1")  # a rule is tried with and without the key that was meant, and that one reports nothing
    rng = random.Random(30)
    crashing = [rule for rule in loaded_rules() if rule.effect is Effect.CRASH]
    examples = [(rule, example) for rule in crashing for example in (*rule.bad, *rule.good)]
    for number, (rule, example) in enumerate(examples):
        keys = [*re.finditer(r'"(\w{4,})"\s*:', example.text)][number % step :: step]
        context = context_of(example) if keys else None
        for key in keys:
            assert context is not None
            text = example.text[: key.start(1)] + misspelt(key[1], rng) + example.text[key.end(1) :]
            lint_loaded(take(parse(text), context), "ds_config.json", (rule,))


LEAVES = re.compile(r"^( *)if [^\n]*\bconfig\.value\([^()]*\) != [^\n]*:\n\1    (?:return|continue)$", re.MULTILINE)


def test_no_rule_takes_the_unknown_for_what_it_looks_for() -> None:
    """`if config.value(...) != 3: return` goes on with UNKNOWN, which is not unequal to anything either."""
    folder = Path(rules.__file__).parent
    found = [
        f"{path.name}: {match[0]}" for path in sorted(folder.rglob("*.py")) for match in LEAVES.finditer(path.read_text(encoding="utf-8"))
    ]
    assert found == []
