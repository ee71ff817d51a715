"""Former names of rules, which keep working in selections, ignores and settings until the next minor release."""

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
"""The code of the rule that had the name."""
