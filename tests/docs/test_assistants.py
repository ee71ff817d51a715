"""What coding assistants read: the skill and llms.txt. test_documents.py runs the commands of the skill and of the section for AGENTS.md."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT / "scripts"))

import build_site  # noqa: E402 - a script, found by the line above
import docs_pages  # noqa: E402 - the same


def test_the_skill_has_the_head_that_assistants_read() -> None:
    folder = ROOT / "skills/deepspeed-config"
    _, head, body = (folder / "SKILL.md").read_text(encoding="utf-8").split("---\n", 2)
    about = yaml.safe_load(head)
    assert about["name"] == folder.name
    assert 100 < len(about["description"]) <= 1024
    assert body.count("```console") >= 6


@pytest.mark.slow
def test_llms_txt_has_the_commands_and_leads_to_the_pages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # It has no page of a rule but the index, and to write them takes seconds: test_pages.py reads them.
    monkeypatch.setattr(docs_pages, "rule_pages", lambda *_, **__: {"README.md": "# Rules\n"})
    monkeypatch.setattr(build_site, "site_pages", docs_pages.site_pages.__wrapped__)
    pages = build_site.collect(tmp_path / "pages")
    text = (tmp_path / "pages/llms.txt").read_text(encoding="utf-8")
    assert text.startswith("# dslint\n\n> ")
    assert "$ dslint check ds_config.json --world-size 8" in text
    links = dict(line[3:].removesuffix(")").split("](") for line in text.splitlines() if line.startswith("- ["))
    built = {build_site.on_disk(name) for name in pages if name.endswith(".md")}
    assert {"assistants.html", "index.html", "rules/index.html"} <= set(links.values()) <= built
