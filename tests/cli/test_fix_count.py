"""How many findings `--fix` says that it fixed, and what its title says before."""

from __future__ import annotations

from pathlib import Path

from tests.command import dslint

CONFIG = """{
    "train_micro_batch_size_per_gpu": 1,
    "bf16": {
        "enabled": true,
        "loss_scale": 0,
        "initial_scale_power": 10,
        "loss_scale_window": 1000,
        "hysteresis": 2,
        "min_loss_scale": 1
    }
}
"""


def test_keys_of_one_cause_are_one_finding_and_all_of_them_are_named(tmp_path: Path) -> None:
    (tmp_path / "ds.json").write_text(CONFIG, encoding="utf-8")
    found = dslint("check", "ds.json", cwd=tmp_path)
    assert 'fix: remove "loss_scale"' in found.stdout
    assert "and 2 more" in " ".join(found.stdout.split())
    assert "1 fixable" in found.stdout
    assert "would fix 1 finding." in dslint("check", "ds.json", "--diff", cwd=tmp_path).stderr
    assert "fixed 1 finding." in dslint("check", "ds.json", "--fix", cwd=tmp_path).stderr
    assert "min_loss_scale" not in (tmp_path / "ds.json").read_text(encoding="utf-8")
