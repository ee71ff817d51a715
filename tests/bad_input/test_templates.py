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
        ('{"train_batch_size": "<BATCH_SIZE>", "fp16": {}}', True),
        ('{"train_batch_size": 8, "optimizer": {"type": "<adam>"}, "note": "a <B> c"}', False),
        ('{"<PAD>": 0, "train_batch_size": 8, "fp16": {}}', False),
        (json.dumps({f"word{number}": number for number in range(500)} | {"$MESS": 500, "optimizer": 501, "scheduler": 502}), False),
    ],
)
def test_placeholders(text: str, *, is_template: bool) -> None:
    kind, _ = detect_kind(parse(text), named=False)
    assert (kind is FileKind.TEMPLATE) is is_template


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ('{"the": 12, "optimizer": 3, "scheduler": 2, "fp16": 1, "gradient_clipping": 1, "dataset": 3}', FileKind.UNRELATED),
        ('{"train_batch_size": 8, "fp16": 1, "optimizer": 3}', FileKind.DS_CONFIG),
        ('{"train_batch_size": 8, "gradient_clipping": 1, "lr": 3}', FileKind.DS_CONFIG),
        ('{"train_batch_size": 8, "fp16": 1, "bf16": true, "lr": 3, "seed": 1}', FileKind.DS_CONFIG),
    ],
)
@pytest.mark.parametrize("named", [True, False])
def test_counts_of_words(text: str, kind: FileKind, *, named: bool) -> None:
    assert detect_kind(parse(text), named=named)[0] is kind


@pytest.mark.parametrize(
    ("text", "is_config"),
    [
        ('{"optimizer": {"type": "Adam", "lr": 0.001}, "scheduler": {"type": "StepLR", "step_size": 10}, "batch_size": 8}', False),
        ('{"optimizer": "adam", "scheduler": "cosine", "gradient_clipping": 1.0, "hidden": 256}', False),
        ('{"train_batch_size": 16, "optimizer": "adam", "fp16": true, "epochs": 3}', False),
        ('{"wandb": {"project": "x"}, "optimizer": {"type": "Adam"}, "data": "x"}', False),
        ('{"optimizer": {"type": "Adam", "params": {"lr": 0.001}}, "fp16": true, "epochs": 3}', True),
        ('{"optimizer": {"type": "Adam"}, "fp16": {"enabled": true}, "epochs": 3}', True),
        ('{"optimizer": {"type": "Adam", "lr": 0.001}, "scheduler": {"type": "StepLR"}}', True),
        ('{"optimizer": "adam", "scheduler": "auto", "epochs": 3}', True),
        ('{"optimizer": "adam", "fp16": true, "zero_optimisation": {"stage": 2}}', True),
    ],
)
def test_words_of_every_program_are_no_config(text: str, *, is_config: bool) -> None:
    """A file that nobody names is one only if a word has the form that DeepSpeed reads."""
    assert detect_kind(parse(text), named=False)[0] is (FileKind.DS_CONFIG if is_config else FileKind.UNRELATED)
    assert detect_kind(parse(text), named=True)[0] is FileKind.DS_CONFIG
    assert detect_kind(parse(text), named=False, hinted=True)[0] is FileKind.DS_CONFIG
