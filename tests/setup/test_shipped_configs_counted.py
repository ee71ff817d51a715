"""How many files a report counts where a config comes with a framework."""

from __future__ import annotations

from pathlib import Path

from tests.command import dslint


def test_a_config_that_ships_with_a_framework_is_not_counted_as_a_file(tmp_path: Path) -> None:
    (tmp_path / "run.sh").write_text("NPROC_PER_NODE=2 swift sft --model m --deepspeed zero2\n", encoding="utf-8")
    done = dslint("check", "run.sh", cwd=tmp_path)
    assert "in 1 file." in " ".join(done.stdout.split()), done.stdout
