"""The project's name, and its address, which one file holds."""

from __future__ import annotations

import json
import os
import re
import runpy
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
import setuptools
import yaml
from click.testing import CliRunner

import dslint
from dslint import project
from dslint.cli import cli
from dslint.cli.playground import find_page
from dslint.errors import UserError
from dslint.report.style import Style, printable
from dslint.schemas.export import json_schema
from dslint.settings.table import FORMATS

ROOT = Path(__file__).resolve().parents[2]
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
SITE = "https://docs.example.org/lint"


def test_the_distribution_has_the_name_that_messages_give() -> None:
    assert PYPROJECT["project"]["name"] == project.DISTRIBUTION == dslint.__distribution__
    for extra in PYPROJECT["project"]["optional-dependencies"]:
        assert re.fullmatch(r'pip install "deepspeed-lint\[[a-z]+\]"', project.install_command(extra))


def test_no_document_or_message_installs_another_project() -> None:
    texts = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "dslint").rglob("*.py"), ROOT / "action.yml"]
    found = [path.name for path in texts if re.search(r"pip install(?: -\S+)* ['\"]?dslint\b", path.read_text(encoding="utf-8"))]
    assert found == []


def test_every_package_is_in_the_wheel() -> None:
    folders = {"dslint": ROOT / "dslint", "dslint.rules": ROOT / "rules", "dslint.schemas": ROOT / "schemas"}
    found = {
        ".".join([name, *file.parent.relative_to(folder).parts])
        for name, folder in folders.items()
        for file in folder.rglob("__init__.py")
        if name != "dslint" or file.relative_to(folder).parts[0] not in ("rules", "schemas")
    }
    assert found == set(PYPROJECT["tool"]["setuptools"]["packages"])


@pytest.mark.parametrize("content", ["", "def main(): raise SystemExit('checks speech')\n"], ids=["empty", "with a command"])
def test_another_package_of_the_same_name_is_named(tmp_path: Path, content: str) -> None:
    """On package indexes `dslint` is a linter of speech datasets."""
    other = tmp_path / "dslint"
    other.mkdir()
    (other / "__init__.py").write_text("", encoding="utf-8")
    (other / "cli.py").write_text(content, encoding="utf-8")
    (tmp_path / "deepspeed_lint.py").write_bytes((ROOT / "deepspeed_lint.py").read_bytes())
    command = [sys.executable, "-m", "deepspeed_lint", "check", "x.json"]
    done = subprocess.run(command, cwd=tmp_path, env={**os.environ, "PYTHONPATH": ""}, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "pip uninstall dslint" in done.stderr
    assert "Traceback" not in done.stderr


def test_the_launcher_starts_dslint() -> None:
    done = subprocess.run([sys.executable, "-m", "deepspeed_lint", "--version"], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.startswith("dslint ")


@pytest.mark.parametrize("address", ["", SITE], ids=["without", "with"])
def test_an_address_leads_to_pages_everywhere(address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every format that can carry the page of a rule carries it; Code Quality has no place for one."""
    config = tmp_path / "ds_config.json"
    config.write_text('{"train_micro_batch_size_per_gpu": 4, "elasticity": {}}', encoding="utf-8")
    monkeypatch.setattr(project, "SITE", address)
    page = f"{SITE}/rules/DS109.html"
    for form in [*FORMATS, "terminal"]:
        options = ["--output-format", "concise", "--color", "always"] if form == "terminal" else ["--output-format", form]
        written = CliRunner().invoke(cli, ["check", str(config), *options]).stdout
        assert (page in written) == (bool(address) and form not in ("gitlab", "concise")), form
    assert ("/rules/DS109.html" in CliRunner().invoke(cli, ["rule", "DS109"]).stdout) == bool(address)
    sarif = json.loads(CliRunner().invoke(cli, ["check", str(config), "--output-format", "sarif"]).stdout)["runs"][0]["tool"]["driver"]
    assert sarif.get("informationUri", "") == address
    assert [rule.get("helpUri") for rule in sarif["rules"] if rule["id"] == "DS109"] == [page if address else None]
    assert json_schema()["$id"].startswith(address or "urn:dslint:")


def test_an_address_reaches_editors_assistants_and_the_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("pygls", "mcp"):
        pytest.importorskip(module)
    from dslint.mcp.serve import server
    from dslint.server.diagnostics import diagnostics_of
    from tests.server.opened import opened

    monkeypatch.setattr(project, "SITE", SITE)
    (one, *_) = diagnostics_of(opened(tmp_path, "ds_config.json", '{"train_micro_batch_size_per_gpu": 4, "elasticity": {}}').checked)
    assert one.code_description is not None
    assert one.code_description.href == f"{SITE}/rules/DS109.html"
    assert server([str(tmp_path)]).website_url == SITE
    monkeypatch.setattr("dslint.cli.playground.SITE", SITE)
    with pytest.raises(UserError, match=f"It is also at {SITE}/playground/"):
        find_page(tmp_path)


def test_the_two_addresses_reach_the_metadata_and_the_site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As for a release: the two lines of dslint/project.py are all that is written."""
    repository = "https://git.example.org/lint"
    (tmp_path / "dslint").mkdir()
    text = (ROOT / "dslint/project.py").read_text(encoding="utf-8")
    for name, address in (("REPOSITORY", repository), ("SITE", SITE)):
        text, changed = re.subn(rf'^{name} = ".*"$', f'{name} = "{address}"', text, flags=re.MULTILINE)
        assert changed == 1
        monkeypatch.setattr(project, name, address)
    (tmp_path / "dslint/project.py").write_text(text, encoding="utf-8")
    for name in ("setup.py", "README.md", "pyproject.toml"):
        shutil.copy(ROOT / name, tmp_path)
    given: dict[str, Any] = {}
    monkeypatch.setattr(setuptools, "setup", given.update)
    runpy.run_path(str(tmp_path / "setup.py"))
    assert given["project_urls"]["Documentation"] == SITE
    assert f"({repository}/blob/main/docs/ci.md)" in given["long_description"]
    assert "![dslint check" in given["long_description"]

    monkeypatch.syspath_prepend(str(ROOT / "scripts"))
    import build_site
    import release_packages

    monkeypatch.setattr(release_packages, "ROOT", tmp_path)
    assert f"homepage: {repository}\n" in release_packages.recipe(tmp_path / "README.md", "1.2.3")
    pages = dict.fromkeys(("fixing.md", "rules/README.md", "keys/README.md", "upgrading/README.md"), "# A page")
    assert f"]({SITE}/fixing.html)" in build_site.for_assistants(pages)
    built = yaml.safe_load(build_site.write_config(tmp_path / "mkdocs.yml", pages, tmp_path / "site").read_text(encoding="utf-8"))
    assert (built["site_url"], built["repo_url"]) == (SITE, repository)


def test_only_links_to_the_site_reach_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(project, "SITE", SITE)
    link = Style(color=True, width=80).link("DS109", f"{SITE}/rules/DS109.html")
    assert printable(link, color=True) == link
    assert "\x1b" not in printable(link)
    assert "\x1b" not in printable("\x1b]8;;https://elsewhere.example\x1b\\x", color=True).replace("\x1b]8;;\x1b\\", "")


def test_both_commands_start_it() -> None:
    scripts = PYPROJECT["project"]["scripts"]
    assert scripts == {"dslint": "deepspeed_lint:main", project.DISTRIBUTION: "deepspeed_lint:main"}


def test_the_command_of_the_distribution_names_itself(tmp_path: Path) -> None:
    """With `uvx deepspeed-lint` there is no command `dslint` to name in a usage line."""
    for name in ("dslint", "deepspeed-lint"):
        (tmp_path / name).write_text("from deepspeed_lint import main\nmain()\n", encoding="utf-8")
        done = subprocess.run(
            [sys.executable, str(tmp_path / name), "check", "--nope"],
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 2
        assert done.stderr.startswith(f"Usage: {name} check ")


def test_no_address_is_written_anywhere_else() -> None:
    held = {"REPOSITORY": project.REPOSITORY, "SITE": project.SITE}
    for path in [*ROOT.glob("*.md"), ROOT / "mkdocs.yml", ROOT / "pyproject.toml", *(ROOT / "dslint").rglob("*.py")]:
        text = path.read_text(encoding="utf-8")
        assert path.name == "project.py" or not any(address and address in text for address in held.values()), path
