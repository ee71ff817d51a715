"""Which of several batch values that are "auto" raises depends on the others: DeepSpeed computes one from another, or compares it."""

from __future__ import annotations

import itertools
import json

import pytest

from dslint.facts import Facts, Integration
from dslint.lint.document import lint_text
from dslint.lint.group import for_report
from dslint.registry.rules import default_rules

KEYS = ("train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps")


@pytest.mark.parametrize("keys", [c for n in (1, 2, 3) for c in itertools.combinations(KEYS, n)])
def test_the_report_names_no_key_of_several(keys: tuple[str, ...]) -> None:
    result = lint_text(json.dumps(dict.fromkeys(keys, "auto")), "ds.json", Facts(integration=Integration.DEEPSPEED), default_rules())
    assert result is not None
    found = next(one for one in for_report(result).diagnostics if one.code == "DS902")
    assert ("raises TypeError while parsing. The keys:" in found.message) is (len(keys) > 1)
