"""Every command in the documents runs, and prints what the document says it prints.

A command is in a `console` block after `$`; its output follows up to the next `$` or the end of the block. UPDATE_DOCS=1 rewrites the
outputs. The footer of `dslint check` (detected release, skipped rules) is not part of an output: it changes with every new rule. Commands
that install or test the project itself are not run here, but in .ci/run. A shell runs what needs one, the rest is run in a fork of a Python that has imported dslint.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

from dslint.config.load import take
from dslint.facts import Facts, Integration
from dslint.lint.document import lint_loaded
from dslint.registry.rules import default_rules
from dslint.settings.sources import read_file
from dslint.source.parse import parse
from dslint.suppress.comments import apply_comments
from tests.command import FORKS

ROOT = Path(__file__).resolve().parents[2]
DOCUMENTS = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    ROOT / "CHANGELOG.md",
    *sorted((ROOT / "docs").rglob("*.md")),
    *sorted((ROOT / "skills").rglob("*.md")),
]
LINK = re.compile(r"\]\((?![a-z]+:|#)([^)\s#]+)")
BLOCK = re.compile(r"^```console\n(.*?)^```$", re.MULTILINE | re.DOTALL)
RUN_BY_CI = ("pip install", "git clone", "pre-commit")
FOOTER = re.compile(r"^(?:Assuming |Inferred --|[\d,]+ rules? skipped\b).*\Z", re.MULTILINE | re.DOTALL)
CLEAN_FOOTER = re.compile(r"(?<=\.) (?:Assuming\s|[\d,]+ rules? skipped).*?Use\s+-v\s+for\s+details\.", re.DOTALL)
ASSUMED_RELEASE = re.compile(r"^dslint: assuming DeepSpeed .*\n", re.MULTILINE)


ALONE = "import dslint.facts.find_release as r; r.installed = lambda: None"
"""dslint as it is where no DeepSpeed is installed beside it."""
PROGRAM = f"{ALONE}; from dslint.cli import main; main()"
EXPANDED = frozenset("$`*")
"""What a shell replaces; operators it knows by where they stand, see `words_of`."""


class Command(NamedTuple):
    """A command of a document, with the output that the document shows (None: it shows none)."""

    document: Path
    line: int
    text: str
    output: str | None


def commands() -> list[Command]:
    found = []
    for document in DOCUMENTS:
        text = document.read_text(encoding="utf-8")
        for block in BLOCK.finditer(text):
            line = text.count("\n", 0, block.start()) + 2
            for part in re.split(r"^(?=\$ )", block[1], flags=re.MULTILINE):
                if part.startswith("$ "):
                    command, _, output = part.partition("\n")
                    found.append(Command(document, line, command[2:], output or None))
                line += part.count("\n")
    return found


def words_of(command: str) -> list[str] | None:
    """The words of a command of dslint, without the comment behind it; None if it needs a shell."""
    lexer = shlex.shlex(command, posix=True, punctuation_chars="|<>&;()")
    lexer.whitespace_split = True
    words = [*lexer]
    operators = [word for word in words if word and set(word) <= set("|<>&;()")]
    return None if words[0] != "dslint" or operators or not EXPANDED.isdisjoint(command) else words[1:]


def run(command: str, folder: Path) -> str:
    """What a shell prints for the command, both streams together, with dslint being the one under test."""
    binary = folder / "bin"
    binary.mkdir()
    work = folder / "work"
    work.mkdir()
    for name in ("examples", "schemas"):
        shutil.copytree(ROOT / name, work / name, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "examples/ds_config.json", work / "ds_config.json")
    environment = {
        **os.environ,
        "PATH": f"{binary}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT),
        "COLUMNS": "100",
        "NO_COLOR": "1",
    }
    with (folder / "output").open("w+b") as output:
        words = words_of(command)
        if words is not None:
            with Path(os.devnull).open("rb") as nothing:
                code = FORKS.run(words, str(work), environment, [nothing, output, output], before=ALONE)
        else:
            (binary / "dslint").write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -c "{PROGRAM}" "$@"\n', encoding="utf-8")
            (binary / "dslint").chmod(0o755)
            (binary / "python").symlink_to(sys.executable)
            code = subprocess.run(
                ["bash", "-c", command], cwd=work, env=environment, stdout=output, stderr=subprocess.STDOUT, check=False, timeout=120
            ).returncode
        output.seek(0)
        printed = output.read().decode("utf-8")
    assert "Traceback" not in printed
    assert code in (0, 1), printed
    return FOOTER.sub("", CLEAN_FOOTER.sub("", ASSUMED_RELEASE.sub("", printed)))


COMMANDS = commands()


def _as_case(command: Command) -> object:
    """A command as a test: the README is tried by every run of the tests, the other documents by the slow ones."""
    marks = () if command.document.name == "README.md" else (pytest.mark.slow,)
    return pytest.param(command, id=f"{command.document.name}:{command.line}", marks=marks)


def test_there_are_commands() -> None:
    assert any(command.document.name == "README.md" for command in COMMANDS)


@pytest.mark.skipif(not shutil.which("bash"), reason="the documents' commands are written for a shell")
@pytest.mark.parametrize("command", [_as_case(command) for command in COMMANDS])
def test_a_command_prints_what_the_document_says(command: Command, tmp_path: Path) -> None:
    if any(word in command.text for word in RUN_BY_CI):
        script = (ROOT / ".ci/run").read_text(encoding="utf-8")
        assert "pip install" in script
        assert "pytest" in script
        return
    output = run(command.text, tmp_path)
    if command.output is None:
        return
    if os.environ.get("UPDATE_DOCS"):
        text = command.document.read_text(encoding="utf-8")
        old = f"$ {command.text}\n{command.output}"
        assert old in text
        command.document.write_text(text.replace(old, f"$ {command.text}\n{output}"), encoding="utf-8")
        return
    assert output == command.output


@pytest.mark.slow
@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda document: document.name)
def test_python_in_a_document_runs(document: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    blocks = [*re.finditer(r"^```python\n(.*?)^```$", document.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)]
    if blocks:
        shutil.copytree(ROOT / "examples", tmp_path / "examples")
        monkeypatch.chdir(tmp_path)
    for block in blocks:
        if not block[1].startswith("@rule"):  # a rule shown on its own has no imports
            exec(compile(block[1], f"{document.name}", "exec"), {})


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda document: document.name)
def test_settings_in_a_document_are_settings(document: Path, tmp_path: Path) -> None:
    for block in re.finditer(r"^```toml\n(.*?)^```$", document.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL):
        if "[language-server." in block[1]:
            continue  # settings of an editor
        (tmp_path / "pyproject.toml").write_text(block[1], encoding="utf-8")
        assert read_file(str(tmp_path / "pyproject.toml")) is not None


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda document: document.name)
def test_relative_links_lead_to_files_of_the_repository(document: Path) -> None:
    links = LINK.findall(re.sub(r"^```.*?^```$", "", document.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL))
    assert [link for link in links if not (document.parent / link).exists()] == []


def test_the_comments_in_the_page_on_suppressing_suppress_findings() -> None:
    page = (ROOT / "docs" / "suppressing.md").read_text(encoding="utf-8")
    (block,) = re.findall(r"^```hjson\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    linted = apply_comments(lint_loaded(take(parse(block), Facts(integration=Integration.DEEPSPEED)), "c.hjson", default_rules()))
    assert linted.diagnostics == ()
    assert [suppressed.diagnostic.code for suppressed in linted.suppressed] == ["DS501", "DS102"]
