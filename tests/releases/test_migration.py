"""`check --deepspeed OLD..NEW --fix` on configs of an old release: the new release takes them, and holds what the old one held."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from dslint.diagnostics import Applicability
from dslint.facts import NEWEST, Facts, Integration, Release
from dslint.fixes.apply import fix
from dslint.lint.document import lint_text
from dslint.lint.results import FileResult
from dslint.registry.rules import default_rules
from tests.releases.test_old_release import environment

BATCH = {"train_batch_size": 8}
CONFIGS: list[dict[str, Any]] = [
    {},
    {"gradient_clipping": 0.5, "steps_per_print": 50},
    {"elasticity": {"enabled": False}, "amp": {"enabled": False}, "fp16": {"enabled": True, "opt_level": "O2"}},
    {"bf16": {"enabled": True, "loss_scale": 0, "min_loss_scale": 1}, "nebula": {"enabled": False}},
    {"bf16": {"enabled": True}, "curriculum_learning": {"enabled": False}, "progressive_layer_drop": {"enabled": False}},
    {"zero_optimization": {"stage": 2, "offload_optimizer": {"device": "cpu"}}},
    {"zero_optimization": {"stage": 3, "cpu_offload": True, "offload_param": {"device": "cpu", "pin_memory": True}}},
    {"zero_optimization": {"stage": 3, "mics_shard_size": -1}, "aio": {"thread_count": 4, "queue_depth": 16}},
    {"seq_parallel_comm_data_type": "bf16", "graph_harvesting": False},
]


def migrated(config: dict[str, Any], start: str, *kinds: Applicability) -> dict[str, Any]:
    facts = Facts(1, Integration.DEEPSPEED, NEWEST, upgrade_from=Release.parse(start))

    def lint(text: str) -> FileResult:
        result = lint_text(text, "ds.json", facts, default_rules())
        assert result is not None
        return result

    return json.loads(fix(json.dumps(config, indent=2), lint, set(kinds or (Applicability.SAFE,))).text)  # type: ignore[no-any-return]


def test_a_migrated_config_keeps_the_old_defaults_and_the_new_names() -> None:
    old = BATCH | {
        "steps_per_print": 10,
        "seq_parallel_comm_data_type": "fp32",
        "zero_optimization": {"stage": 3, "cpu_offload": True},
        "elasticity": {"enabled": False},
        "fp16": {"enabled": True, "opt_level": "O2"},
    }
    new = BATCH | {
        "steps_per_print": 10,
        "seq_parallel_communication_data_type": "fp32",
        "zero_optimization": {"stage": 3, "offload_optimizer": {"device": "cpu", "pin_memory": False}},
        "fp16": {"enabled": True},
        "gradient_clipping": 0.0,
    }
    assert migrated(old, "0.14.5") == new
    assert migrated(new, "0.14.5") == new


def test_a_feature_that_was_on_is_left_to_the_user() -> None:
    old = BATCH | {"gradient_clipping": 1.0, "steps_per_print": 10, "sparse_gradients": True, "amp": {"enabled": True}}
    assert migrated(old, "0.14.5") == old
    old.pop("sparse_gradients")
    assert migrated(old | {"sparse_gradients": True}, "0.14.5", Applicability.SAFE, Applicability.UNSAFE) == old


def test_a_correction_that_changes_the_training_is_unsafe_in_an_upgrade() -> None:
    old = BATCH | {"gradient_clipping": 1.0, "steps_per_print": 10, "fp16": {"enabled": True, "loss_scal": 128}}
    assert migrated(old, "0.14.5") == old
    corrected = old | {"fp16": {"enabled": True, "loss_scale": 128}}
    assert migrated(old, "0.14.5", Applicability.SAFE, Applicability.UNSAFE) == corrected


def answers(python: str, source: str, configs: list[dict[str, Any]], folder: Path) -> list[Any]:
    """What a release says of the configs."""
    asked = subprocess.run(
        [python, str(Path(__file__).parent / "held.py")],
        input="".join(json.dumps(config) + "\n" for config in configs),
        capture_output=True,
        text=True,
        check=True,
        timeout=600,
        env={**os.environ, "PYTHONPATH": source},
        cwd=folder,
    )
    return [json.loads(line) for line in asked.stdout.splitlines()]


def differences(old: Any, new: Any, path: str = "") -> list[str]:
    """The settings of the old release that the new one holds with another value."""
    if isinstance(old, dict) and isinstance(new, dict):
        return [found for name in old.keys() & new.keys() for found in differences(old[name], new[name], f"{path}/{name}")]
    return [] if old == new else [f"{path}: {old} -> {new}"]


DEPRECATED = {"/zero/cpu_offload", "/zero/cpu_offload_param", "/zero/cpu_offload_use_pin_memory"}


@pytest.mark.release_sources
@pytest.mark.deepspeed
@pytest.mark.parametrize("release", ["0.14.5", "0.16.9"])
def test_the_new_release_holds_what_the_old_one_held(release: str, tmp_path: Path) -> None:
    pytest.importorskip("deepspeed")
    python, source = environment(release, tmp_path / "env")
    before = [BATCH | config for config in CONFIGS]
    after = [migrated(config, release) for config in before]
    were, unmigrated, now = (
        answers(python, source, before, tmp_path),
        *(answers(sys.executable, "", one, tmp_path) for one in (before, after)),
    )
    assert sum(isinstance(answer, str) for answer in unmigrated) >= 3, "the new release refuses some of the old configs"
    for config, was, becomes in zip(after, were, now, strict=True):
        assert isinstance(was, dict), (config, was)
        assert isinstance(becomes, dict), (config, becomes)
        if not was["fp16.enabled"]:
            was.pop("fp16.loss_scale")
        assert [found for found in differences(was, becomes) if found.partition(":")[0] not in DEPRECATED] == [], config
