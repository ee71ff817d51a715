"""Fixes write the config that was meant: the section for a single value, the type for a class, the batch that was wanted."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from dslint.facts import Facts, Integration
from dslint.lint.document import lint_text
from dslint.registry.rules import default_rules
from dslint.source.edit import apply
from tests.command import dslint


def fixed(config: dict[str, Any], code: str, world_size: int | None = None) -> dict[str, Any] | None:
    """The config with the fix of its only finding of a rule; None if there is no fix."""
    text = json.dumps({"train_micro_batch_size_per_gpu": 4} | config)
    result = lint_text(text, "ds.json", Facts(world_size, Integration.DEEPSPEED), default_rules())
    assert result is not None
    (found,) = (d for d in result.diagnostics if d.code == code)
    if found.fix is None:
        return None
    changed: dict[str, Any] = json.loads(apply(text, [(edit.start, edit.end, edit.content) for edit in found.fix.edits]))
    return {key: changed[key] for key in changed if changed[key] != {"train_micro_batch_size_per_gpu": 4}.get(key)}


@pytest.mark.parametrize(
    ("config", "code", "meant"),
    [
        ({"bf16": True}, "DS104", {"bf16": {"enabled": True}}),
        ({"fp16": "true"}, "DS104", {"fp16": {"enabled": True}}),
        ({"zero_optimization": 2}, "DS104", {"zero_optimization": {"stage": 2}}),
        ({"fp16": {"enabled": True, "loss_scale": "dynamic"}}, "DS104", {"fp16": {"enabled": True, "loss_scale": 0}}),
        ({"optimizer": "AdamW"}, "DS104", {"optimizer": {"type": "AdamW"}}),
        ({"optimizer": {"type": "FusedAdam"}}, "DS602", {"optimizer": {"type": "AdamW"}}),
        ({"optimizer": {"type": "adamw_torch"}}, "DS602", {"optimizer": {"type": "AdamW"}}),
        ({"optimizer": {"type": "adam_w"}}, "DS602", {"optimizer": {"type": "AdamW"}}),
        ({"optimizer": {"type": "FusedLamb"}}, "DS602", {"optimizer": {"type": "Lamb"}}),
        (
            {"bf16": {"enabled": True, "loss_scale": 0}, "fp16": {"loss_scale": 0}},
            "DS101",
            {"bf16": {"enabled": True}, "fp16": {"loss_scale": 0}},
        ),
        ({"load_universal_checkpoint": True}, "DS102", {"checkpoint": {"load_universal": True}}),
        ({"logging": {"steps_per_print": 5, "wall_clock_breakdown": True}}, "DS103", {"steps_per_print": 5, "wall_clock_breakdown": True}),
        (
            {"zero_optimization": {"stage": 3, "cpu_offload_params": True}},
            "DS109",
            {"zero_optimization": {"stage": 3, "offload_param": {"device": "cpu"}}},
        ),
        ({"zero_optimization": {"stage": 3, "cpu_offload_params": False}}, "DS109", {"zero_optimization": {"stage": 3}}),
        ({"logging": {"steps_per_print": 5, "mine": 1}}, "DS103", None),
        ({"gradient_checkpointing": True}, "DS103", None),
    ],
)
def test_what_was_meant(config: dict[str, Any], code: str, meant: dict[str, Any] | None) -> None:
    assert fixed(config, code) == meant


@pytest.mark.parametrize(
    ("train", "steps", "meant"),
    [
        (32, 2, {"train_batch_size": 32, "gradient_accumulation_steps": 1}),
        (16, 1, {"train_batch_size": 16, "train_micro_batch_size_per_gpu": 2, "gradient_accumulation_steps": 1}),
        (100, 1, None),
    ],
)
def test_the_train_batch_size_is_kept(train: int, steps: int, meant: dict[str, Any] | None) -> None:
    assert fixed({"train_batch_size": train, "gradient_accumulation_steps": steps}, "DS201", world_size=8) == meant


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("chek", "x.json"), "dslint check"),
        (("ds_config.json",), "dslint check ds_config.json"),
        (("check", "--integration", "hf"), "transformers"),
        (("check", "--integration", "trl"), "transformers"),
        (("check", "--deepspeed", "0.14.6"), "0.14.5"),
    ],
)
def test_a_wrong_word_on_the_command_line_names_the_right_one(arguments: tuple[str, ...], said: str) -> None:
    done = dslint(*arguments)
    assert done.returncode == 2
    assert said in done.stderr


def test_python_words_are_fixed_and_the_other_fixes_too(tmp_path: Path) -> None:
    (tmp_path / "ds.json").write_text(
        '{\n  "train_micro_batch_size_per_gpu": 4,\n  "fp16": {\n    "enabled": True,\n    "loss_scale": "dynamic"\n  },\n'
        '  "zero_optimization": {"stage": 2, "overlap_comm": True}\n}\n',
        encoding="utf-8",
    )
    dslint("check", "ds.json", "--fix", "--integration", "transformers", cwd=tmp_path)
    assert json.loads((tmp_path / "ds.json").read_text(encoding="utf-8")) == {
        "train_micro_batch_size_per_gpu": 4,
        "fp16": {"enabled": True, "loss_scale": 0},
        "zero_optimization": {"stage": 2, "overlap_comm": True},
    }
