"""The VS Code extension: its manifest and its documents agree with dslint."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tomllib

import pytest

from dslint import project
from dslint.settings.table import SETTINGS
from dslint.source.read import SCRIPTS
from tests.editor.programs import ROOT

FOLDER = ROOT / "editors" / "vscode"
MANIFEST = json.loads((FOLDER / "package.json").read_text(encoding="utf-8"))
SOURCES = {path.name: path.read_text(encoding="utf-8") for path in (FOLDER / "src").glob("*.ts")}


def test_the_settings_are_those_of_dslint() -> None:
    done = subprocess.run([sys.executable, "scripts/vscode_settings.py", "--check"], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{done.stderr}run python scripts/generate.py settings"


def test_every_command_of_the_manifest_is_registered_and_no_other() -> None:
    declared = {command["command"] for command in MANIFEST["contributes"]["commands"]}
    assert declared == {f"dslint.{name}" for name in re.findall(r'register\("(\w+)"', SOURCES["extension.ts"])}


@pytest.mark.parametrize("page", ["editors/vscode/README.md", "docs/editors.md"])
def test_documented_settings_exist(page: str) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    named = set(re.findall(r"dslint\.[a-z][A-Za-z]+\b(?!\.)", text)) - {"dslint.toml"}
    commands = {command["command"] for command in MANIFEST["contributes"]["commands"]}
    assert {name for name in named if f'"{name}"' in text or f"`{name}`" in text} <= {
        *MANIFEST["contributes"]["configuration"]["properties"],
        *commands,
    }


def test_documented_configurations_of_other_editors_can_be_read() -> None:
    text = (ROOT / "docs" / "editors.md").read_text(encoding="utf-8")
    readers = {"json": json.loads, "toml": tomllib.loads}
    blocks = re.findall(r"^```(json|toml)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    assert {kind for kind, _ in blocks} == readers.keys()
    known = SETTINGS.keys()
    for kind, block in blocks:
        content = readers[kind](block)
        servers = [*content.get("clients", {}).values(), *content.get("language-server", {}).values()]
        for server in servers:
            options = server.get("initializationOptions") or server["config"]
            assert options["settings"].keys() <= known


def test_scripts_of_batch_systems_are_looked_at() -> None:
    """VS Code has the other endings in its language for shell scripts."""
    (pattern,) = re.findall(r"pattern: \"\*\*/\*\.\{([\w,]+)\}\"", SOURCES["relevance.ts"])
    of_shells = {".sh", ".bash", ".zsh", ".ksh"}
    assert {f".{ending}" for ending in pattern.split(",")} == {".hjson", *SCRIPTS} - of_shells


def test_facts_of_the_quick_pick_are_settings() -> None:
    settings = re.findall(r'setting: "(\w+)"', SOURCES["facts.ts"])
    assert len(settings) == 4
    assert {f"dslint.{name}" for name in settings} <= MANIFEST["contributes"]["configuration"]["properties"].keys()


def test_no_address_is_invented() -> None:
    assert MANIFEST.get("repository", {}).get("url", "") == project.REPOSITORY
    assert not {"homepage", "bugs"} & MANIFEST.keys()
