"""The configurations for Helix and Zed in docs/editors.md are ones: these editors do not run in the suite."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path
from typing import Any

import click

from dslint.cli import cli
from dslint.schemas.catalog import entry
from dslint.settings.table import SETTINGS

PAGE = (Path(__file__).resolve().parents[2] / "docs/editors.md").read_text(encoding="utf-8")

OF_HELIX = {"json": {"vscode-json-language-server"}, "yaml": {"yaml-language-server", "ansible-language-server"}}
"""The servers of these languages in Helix' own languages.toml (release 25.07)."""


def block(heading: str, language: str) -> str:
    """The first block of a language under a heading."""
    section = PAGE.split(f"\n## {heading}\n", 1)[1].split("\n## ", 1)[0]
    found = re.search(rf"^```{language}\n(.*?)^```", section, re.DOTALL | re.MULTILINE)
    assert found is not None
    return found[1]


def test_helix_starts_a_command_that_exists_with_settings_that_exist() -> None:
    data = tomllib.loads(block("Helix", "toml"))
    assert set(data) == {"language-server", "language"}
    (server,) = data["language-server"].values()
    assert server["command"] == "dslint"
    assert server["args"][0] in cli.list_commands(click.Context(cli))
    assert set(server["config"]) == {"settings"}
    assert set(server["config"]["settings"]) <= set(SETTINGS)


def test_helix_keeps_the_servers_that_a_language_has() -> None:
    data = tomllib.loads(block("Helix", "toml"))
    for language in data["language"]:
        assert set(language) == {"name", "language-servers"}
        names = set(language["language-servers"])
        assert "dslint" in names
        assert names - {"dslint"} <= OF_HELIX[language["name"]]
        assert len(names) > 1


def test_zed_gets_the_schema_for_patterns_of_the_catalog() -> None:
    data: dict[str, Any] = json.loads(block("Zed", "json"))
    (schema,) = data["lsp"]["json-language-server"]["settings"]["json"]["schemas"]
    assert set(schema) == {"fileMatch", "url"}
    assert set(schema["fileMatch"]) <= set(entry()["fileMatch"])
    assert f"dslint schema --output {schema['url'].removeprefix('./')}" in PAGE
