"""Neovim as the client of the language server, with the configuration of docs/editors.md."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.editor.programs import ROOT, program, with_dslint

pytestmark = pytest.mark.slow

CONFIG = """\
{
  "train_batch_size": 8,
  "bf16": true,
  "zero_optimization": {
    "stage": 2,
    "reduce_bucket_size": 500000000,
    "offload_optimizer": {"device": "cpu"},
    "offload_param": {"device": "cpu"}
  }
}
"""
BLOCKS = re.findall(r"^```lua\n(.*?)^```$", (ROOT / "docs" / "editors.md").read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)


def configuration() -> str:
    """The configuration that the installed release of Neovim reads."""
    version = subprocess.run([program("nvim"), "--version"], capture_output=True, text=True, check=True).stdout
    newer = tuple(map(int, re.findall(r"\d+", version)[:2])) >= (0, 11)
    return next(block for block in BLOCKS if ("vim.lsp.config(" if newer else "start_client(") in block)


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What Neovim saw when it opened a config, asked about it, fixed and edited it."""
    folder = tmp_path_factory.mktemp("neovim")
    (folder / "init.lua").write_text(configuration(), encoding="utf-8")
    (folder / "ds_config.json").write_text(CONFIG, encoding="utf-8")
    command = [program("nvim"), "--headless", "-i", "NONE", "-u", "init.lua", "-S", str(ROOT / "tests" / "editor" / "neovim.lua")]
    environment = with_dslint(folder / "bin") | {"XDG_STATE_HOME": str(folder), "XDG_CACHE_HOME": str(folder)}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False, timeout=180)
    assert (folder / "answers.json").exists(), done.stderr
    found: dict[str, Any] = json.loads((folder / "answers.json").read_text(encoding="utf-8"))
    assert "error" not in found, (found, done.stderr)
    return found


def places(found: list[dict[str, Any]]) -> set[tuple[str, int, int]]:
    assert {one["source"] for one in found} == {"dslint"}
    return {(one["code"], one["line"], one["column"]) for one in found}


def test_diagnostics_stand_where_check_reports_them(answers: dict[str, Any]) -> None:
    assert {("DS104", 3, 11), ("DS501", 8, 5)} <= places(answers["opened"])


def test_hover_explains_a_key(answers: dict[str, Any]) -> None:
    assert "reduce_bucket_size" in answers["hover"]


def test_completion_offers_the_values(answers: dict[str, Any]) -> None:
    assert any("nvme" in label for label in answers["completed"])


def test_a_quick_fix_is_applied_and_the_finding_goes(answers: dict[str, Any]) -> None:
    assert any(action["kind"] == "quickfix" for action in answers["actions"])
    assert answers["fixed"]["text"][2] == '  "bf16": {"enabled": true},'
    assert not any(one["code"] == "DS104" for one in answers["fixed"]["codes"])


def test_columns_count_utf16_units_after_an_edit(answers: dict[str, Any]) -> None:
    before = '  "🚀": 1, '
    columns = {one["column"] for one in answers["edited"] if one["line"] == 2}
    assert columns == {3, len(before.encode()) + 1}  # Neovim counts bytes, the protocol UTF-16 units


@pytest.mark.parametrize("block", BLOCKS, ids=range(len(BLOCKS)))
def test_every_documented_configuration_is_lua(block: str, tmp_path: Path) -> None:
    (tmp_path / "block.lua").write_text(block, encoding="utf-8")
    command = [
        program("nvim"),
        "--headless",
        "-u",
        "NONE",
        "-i",
        "NONE",
        "-c",
        "lua io.stdout:write(tostring(loadfile('block.lua') ~= nil))",
        "-c",
        "qall!",
    ]
    assert subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True, timeout=60).stdout == "true"


STUB = """\
local set_up
package.preload["lspconfig.configs"] = function() return {} end
package.preload["lspconfig.util"] = function() return { root_pattern = function() return vim.fn.getcwd end } end
package.preload["lspconfig"] = function() return { dslint = { setup = function(given) set_up = given end } } end
dofile("block.lua")
io.stdout:write(vim.fn.json_encode(set_up))
"""
"""As much of nvim-lspconfig as the documented configuration calls."""


def test_the_configuration_for_nvim_lspconfig_calls_what_it_has(tmp_path: Path) -> None:
    (block,) = (block for block in BLOCKS if 'require("lspconfig")' in block)
    (tmp_path / "block.lua").write_text(block, encoding="utf-8")
    (tmp_path / "stub.lua").write_text(STUB, encoding="utf-8")
    command = [program("nvim"), "--headless", "-u", "NONE", "-i", "NONE", "-c", "luafile stub.lua", "-c", "qall!"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True, timeout=60)
    assert json.loads(done.stdout) == {"init_options": {"settings": {"world-size": 8}}}, done.stderr
