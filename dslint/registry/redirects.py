"""Former names and codes of rules. They keep working in selections, ignores, settings and baselines until the next minor release."""

from __future__ import annotations

RENAMED = {
    "swallowed-line": "DS005",
    "wrong-type-taken-otherwise": "DS105",
    "replaced-beside-deprecated": "DS114",
    "value-taken-otherwise": "DS117",
    "autocast-beside-fp16": "DS322",
    "nvme-path-is-no-disk": "DS506",
    "param-offload-alone": "DS524",
    "one-bit-optimizer-outside-its-ground": "DS617",
    "learning-rate-destroys": "DS627",
    "late-schedule": "DS640",
    "one-cycle-upside-down": "DS641",
    "range-test-stands-still": "DS645",
    "monitor-beside-report-to": "DS804",
    "elasticity-beside-batch-sizes": "DS852",
    "accelerate-no-number": "DS916",
}
"""Former names and codes, in lower case, and the code that the rule has now."""


def current(word: str) -> str:
    """The word; for a former name or code of a rule its present code."""
    return RENAMED.get(word.lower(), word)
