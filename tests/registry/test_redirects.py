"""Former names of rules select the rule that they named."""

from __future__ import annotations

import pytest

from dslint.registry.redirects import RENAMED
from dslint.registry.rules import own_rules
from dslint.registry.selection import Selection, choose
from tests.command import dslint


@pytest.mark.parametrize("name", RENAMED)
def test_a_former_name_selects_its_rule(name: str) -> None:
    assert [rule.code for rule in choose(own_rules(), [Selection((name,))])] == [RENAMED[name]]
    assert name not in {rule.name for rule in own_rules()}


def test_a_former_name_is_explained() -> None:
    page = dslint("rule", "late-schedule").stdout
    assert page.startswith("DS640 ")
    assert "Source: rules/ds6_optimizer/" in page


def test_rules_are_listed_by_key() -> None:
    done = dslint("rule", "--key", "zero_optimization.offload_param")
    assert done.returncode == 0
    assert "DS501" in done.stdout
    assert "DS801" not in done.stdout
    done = dslint("rule", "--key", "no.such.key")
    assert done.returncode == 1
    assert "no.such.key" in done.stderr
    assert dslint("rule", "DS501", "--key", "aio").returncode == 2
