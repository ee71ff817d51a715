"""Nothing in a file reaches standard error as a terminal or a CI log would act on it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.command import dslint


@pytest.mark.parametrize("key", ["\\u001b[31mred", "a\\n::error::injected"])
def test_settings_names(tmp_path: Path, key: str) -> None:
    (tmp_path / "dslint.toml").write_text(f'"{key}" = 1\n', encoding="utf-8")
    (tmp_path / "ds_config.json").write_text("{}", encoding="utf-8")
    done = dslint("check", "ds_config.json", cwd=tmp_path)
    assert done.returncode == 2
    assert "\x1b" not in done.stderr
    assert not any(line.startswith("::") for line in done.stderr.splitlines())
