"""Templates are told from files in which a dollar sign and a brace stand next to each other."""

from __future__ import annotations

import json

import pytest

from dslint.config.detect import FileKind, detect_kind
from dslint.source.parse import parse


@pytest.mark.parametrize(
    ("text", "is_template"),
    [
        ('{"train_batch_size": ${BATCH}}', True),
        ('{"train_batch_size": "${BATCH}", "fp16": {}}', True),
        ('{"train_batch_size": {{ batch | default("8") }}}', True),
        ('{"${": 25597, "train_batch_size": 8, "}": 1}', False),
        (json.dumps({f"word{number}": number for number in range(500)} | {"$MESS": 500, "optimizer": 501, "scheduler": 502}), False),
    ],
)
def test_placeholders(text: str, *, is_template: bool) -> None:
    kind, _ = detect_kind(parse(text), named=False)
    assert (kind is FileKind.TEMPLATE) is is_template
