"""The extension in VS Code, looked at as a user sees it. `UPDATE_PICTURES=1` writes the pictures of the extension's README."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.editor.programs import ROOT, npm

pytest.importorskip("playwright", reason="playwright is not installed")

from tests.editor.vscode_session import PATIENCE, VsCode, install, session  # needs playwright

if TYPE_CHECKING:
    from playwright.sync_api import Browser

pytestmark = pytest.mark.slow

CONFIG = """\
{
  "train_micro_batch_size_per_gpu": 4,
  "gradient_accumulation_steps": 8,
  "gradient_clipping": 1.0,
  "bf16": true,
  "zero_optimization": {
    "stage": 2,
    "reduce_bucket_size": 500000000,
    "offload_param": {"device": "cpu"}
  }
}
"""
OLD = """\
{
  "train_micro_batch_size_per_gpu": 4,
  "zero_optimization": {"stage": 2, "cpu_offload": true}
}
"""
PROGRAM = """\
import deepspeed

config = {
    "train_micro_batch_size_per_gpu": 4,
    "zero_optimization": {"stage": 2, "offload_param": {"device": "cpu"}},
}
engine, *_ = deepspeed.initialize(model=None, optimizer=make_optimizer(), config=config)
"""
SCRIPT = "deepspeed --num_gpus 8 train.py --deepspeed_config ds_config.json\n"
PICTURES = ROOT / "editors" / "vscode" / "images"


def look(code: VsCode, pictures: Path) -> dict[str, Any]:
    """What VS Code shows in a session: a config is opened, asked about and fixed; facts are set; pages are opened."""
    return (
        _edit(code, pictures)
        | _set_facts(code, pictures)
        | _open_pages(code, pictures)
        | _save(code)
        | _programs(code)
        | _lose_server(code)
    )


def _edit(code: VsCode, pictures: Path) -> dict[str, Any]:
    seen: dict[str, Any] = {}
    code.open("ds_config.json")
    code.page.keyboard.press("Control+Shift+M")
    seen["problems"] = code.problems("DS104")
    seen["hover"] = code.hover('"reduce_bucket_size"', "Gradient elements")
    code.picture(pictures / "hover.png")

    seen["fixes"] = code.fixes("bf16", "Write")
    code.picture(pictures / "fix.png")
    code.page.keyboard.press("Enter")
    code.wait_for_text('"bf16": {"enabled": true}')
    code.gone(".markers-panel .monaco-list-row", "DS104")

    code.go_behind("reduce_bucket_size")
    code.page.keyboard.press("End")
    code.page.keyboard.press("Enter")
    code.page.keyboard.type('"overl', delay=30)
    code.page.keyboard.press("Control+Space")
    seen["completions"] = code.rows(".suggest-widget", "overlap_comm")
    code.page.keyboard.press("Tab")
    code.wait_for_text('"overlap_comm": true')
    return seen


def _set_facts(code: VsCode, pictures: Path) -> dict[str, Any]:
    seen: dict[str, Any] = {}
    code.status("DeepSpeed 0.").click()
    seen["facts"] = code.rows(".quick-input-list", "World size")
    code.picture(pictures / "facts.png")
    code.choose("facts about the run", "World size")
    code.choose("World size", "16")
    code.status("16 ranks")
    code.run("dslint: Set Facts")
    code.choose("facts about the run", "GPU")
    code.choose("GPU", "h100")
    seen["status"] = code.status("h100").inner_text()
    code.page.locator(".codelens-decoration", has_text="peak").first.wait_for(timeout=PATIENCE)
    seen["lenses"] = code.texts(".codelens-decoration")
    seen["settings"] = json.loads((code.workspace / ".vscode" / "settings.json").read_text(encoding="utf-8"))
    return seen


def _open_pages(code: VsCode, pictures: Path) -> dict[str, Any]:
    seen: dict[str, Any] = {}
    code.page.keyboard.press("Control+J")  # closes the panel
    code.page.keyboard.press("Control+B")  # and the explorer
    code.run("dslint: Estimate Memory")
    seen["estimate"] = code.webview("backward")
    code.picture(pictures / "estimate.png")
    code.focus("ds_config.json")
    code.run("dslint: Show Effective Config")
    page = code.page.locator(".view-lines", has_text="derived").first
    page.wait_for(timeout=PATIENCE)
    seen["effective"] = page.inner_text()
    code.focus("ds_config.json")
    code.run("dslint: Explain Rule")
    code.answer("DS501")
    seen["rule"] = code.webview("Parameter offload works only at ZeRO stage 3")
    return seen


def _save(code: VsCode) -> dict[str, Any]:
    code.page.keyboard.press("Control+B")
    code.open("ds_old.json")
    code.page.locator(".editor-group-container.active .squiggly-info").first.wait_for(timeout=PATIENCE)
    code.page.locator(".editor-group-container.active .view-line").last.click(timeout=PATIENCE)
    code.page.keyboard.press("Control+End")
    code.page.keyboard.type(" ")
    code.page.keyboard.press("Control+S")
    code.wait_for_text('"offload_optimizer"')
    return {"saved": code.text()}


def _programs(code: VsCode) -> dict[str, Any]:
    code.open("train.py")
    code.page.keyboard.press("Control+Shift+M")
    seen = {"program": code.problems("Ln 5")}
    code.open("run.sh")
    seen["link"] = code.hover_at_cursor(("Control+Home", "End", "ArrowLeft"), "DeepSpeed config")  # the name of the config
    return seen


def _lose_server(code: VsCode) -> dict[str, Any]:
    code.configure({"dslint.interpreter": "no-such-python"})
    message = code.page.locator(".notification-toast", has_text="no-such-python").first
    message.wait_for(timeout=PATIENCE)
    return {"lost": message.inner_text(), "facts without a server": code.texts(".statusbar-item")}


def test_the_extension_is_packaged_and_works_in_vs_code(tmp_path: Path, browser: Browser) -> None:
    """One test, because the parts share a package and a session that take long to make."""
    package = build(tmp_path / "checkout")
    check_package(package)
    workspace = tmp_path / "project"
    workspace.mkdir()
    for name, text in {"ds_config.json": CONFIG, "ds_old.json": OLD, "train.py": PROGRAM, "run.sh": SCRIPT}.items():
        (workspace / name).write_text(text, encoding="utf-8")
    (workspace / "dslint.toml").write_text('model = "llama-3-8b"\nextend-select = ["DS111"]\n', encoding="utf-8")
    (workspace / "json.py").write_text("raise SystemExit", encoding="utf-8")  # must not be taken for Python's own
    with session(browser, tmp_path, install(tmp_path, package), workspace) as code:
        seen = look(code, tmp_path)
    if os.environ.get("UPDATE_PICTURES"):
        for file in tmp_path.glob("*.png"):
            shutil.copy(file, PICTURES)
    check_language_features(seen)
    check_facts(seen)
    check_pages(seen)


def build(checkout: Path) -> Path:
    """The extension as a file to install: types and lint checked, bundled and packaged, from a clean folder."""
    folder = checkout / "editors" / "vscode"
    shutil.copytree(PICTURES.parent, folder, ignore=shutil.ignore_patterns("node_modules", "dist", "*.vsix", "LICENSE"))
    shutil.copy(ROOT / "LICENSE", checkout)
    npm(folder, "ci", "--no-audit", "--no-fund", "--silent")
    done = subprocess.run(["npm", "run", "package"], cwd=folder, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    (built,) = folder.glob("*.vsix")
    return built


def check_package(package: Path) -> None:
    """One program, the texts and the pictures are in it, and nothing else."""
    with zipfile.ZipFile(package) as archive:
        names = {name for name in archive.namelist() if name.startswith("extension/")}
    pictures = {f"extension/images/{path.name}" for path in PICTURES.glob("*.png")}
    assert names == {f"extension/{name}" for name in ("LICENSE.txt", "package.json", "readme.md", "dist/extension.js")} | pictures
    assert package.stat().st_size < 1_500_000


def check_language_features(seen: dict[str, Any]) -> None:
    """Problems are those of `dslint check`; hover and completion know the keys; fixes are offered, and applied on save."""
    rows = "\n".join(seen["problems"])
    assert "DS104\n[Ln 5, Col 11]" in rows
    assert "DS501\n[Ln 9, Col 5]" in rows
    assert "zero_optimization.reduce_bucket_size" in seen["hover"]
    assert "500000000" in seen["hover"]
    assert seen["completions"][0].startswith("overlap_comm")
    assert 'Write "bf16": {"enabled": true}' in seen["fixes"]
    assert any("Explain DS104" in title for title in seen["fixes"])
    assert '"offload_optimizer": {"device": "cpu"}' in seen["saved"]
    assert "cpu_offload" not in seen["saved"]
    assert any("DS501\n[Ln 5, Col 39]" in row for row in seen["program"])
    assert "DeepSpeed config" in seen["link"]


def check_facts(seen: dict[str, Any]) -> None:
    """Facts are set in the workspace and shown; without a server none are shown, and a message says what to do."""
    rows = [row.split("\n")[0] for row in seen["facts"]]
    assert rows[0] == "World size8"  # as the script launches it
    assert rows[-1] == "GPUnot known"
    assert seen["settings"] == {"dslint.worldSize": 16, "dslint.gpu": "h100"}
    assert "DeepSpeed 0." in seen["status"]
    assert any("h100" in lens for lens in seen["lenses"])
    assert "dslint is not installed with its language server in no-such-python" in seen["lost"]
    assert "Install" in seen["lost"]
    assert not any("DeepSpeed 0." in item for item in seen["facts without a server"])


def check_pages(seen: dict[str, Any]) -> None:
    """The commands open their pages."""
    assert "llama-3-8b" in seen["estimate"]
    assert "train_batch_size" in seen["effective"]
    assert "stage 3" in seen["rule"]
