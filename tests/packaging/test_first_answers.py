"""A stranger who has only a clone and the documents: the first answer by each way in, from an environment with nothing in it.

What is run, and what is configured, is what the README says, or the page that it leads to for the way.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import socket
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import yaml

from tests.action.test_action import Runner
from tests.editor.programs import program
from tests.hooks.test_hooks import tracked
from tests.site.conftest import lock

if TYPE_CHECKING:
    from playwright.sync_api import Browser

pytestmark = [
    pytest.mark.build,
    pytest.mark.skipif(sys.platform == "win32", reason="the README's commands are for a shell"),
    pytest.mark.skipif(not (Path(__file__).resolve().parents[2] / ".git").exists(), reason="not a git checkout"),
]

WRONG = '{"train_micro_batch_size_per_gpu": 4, "zero_optimisation": {"stage": 2}}'
NOT_A_SECTION = '{"train_micro_batch_size_per_gpu": 4, "bf16": true, "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}}}'
MOST_SECONDS = 120
"""What a stranger waits for a first answer."""

PROGRAM = """\
import argparse, deepspeed, torch
parser = deepspeed.add_config_arguments(argparse.ArgumentParser())
parser.add_argument("--local_rank", type=int)
args = parser.parse_args()
model = torch.nn.Linear(4, 4)
engine, *_ = deepspeed.initialize(args=args, model=model, model_parameters=model.parameters())
"""


@dataclass
class Stranger:
    """Somebody with a clone, and with what the README's first command installed."""

    folder: Path

    @property
    def clone(self) -> Path:
        return self.folder / "dslint"

    @property
    def environment(self) -> dict[str, str]:
        """The variables of a new shell in which the environment is active."""
        own = str(Path(sys.executable).parent)
        others = [path for path in os.environ["PATH"].split(os.pathsep) if path != own]
        kept = {name: value for name, value in os.environ.items() if name.startswith(("PIP_", "UV_", "SSL_", "LANG", "npm_"))}
        return {**kept, "PATH": os.pathsep.join([str(self.folder / "venv" / "bin"), *others]), "HOME": str(self.folder / "home")}

    def shell(self, command: str, folder: Path | None = None, **more: str) -> subprocess.CompletedProcess[str]:
        """Run a line as it stands in a document."""
        return subprocess.run(
            ["bash", "-c", command],
            cwd=folder or self.clone,
            env={**self.environment, **more},
            capture_output=True,
            text=True,
            check=False,
            timeout=MOST_SECONDS,
        )

    def read(self, name: str) -> str:
        return (self.clone / name).read_text(encoding="utf-8")

    def line(self, name: str, pattern: str) -> str:
        """The only text in a document with this form."""
        (found,) = re.findall(pattern, self.read(name), re.MULTILINE)
        return str(found)

    def blocks(self, name: str, language: str) -> list[str]:
        return re.findall(rf"^```{language}\n(.*?)^```$", self.read(name), re.MULTILINE | re.DOTALL)

    def project(self, name: str, config: str) -> Path:
        """A folder beside the clone with a config."""
        folder = self.folder / name
        folder.mkdir(exist_ok=True)  # a test that timed out runs again
        (folder / "ds_config.json").write_text(config, encoding="utf-8")
        return folder


@pytest.fixture(scope="session")
def stranger(tmp_path_factory: pytest.TempPathFactory) -> Stranger:
    """One clone and one environment for the processes of a run, with the README's first command and the extras it names."""
    shared = tmp_path_factory.getbasetemp()
    shared = shared.parent if "PYTEST_XDIST_WORKER" in os.environ else shared
    one = Stranger(shared / "stranger")
    with (shared / "stranger.lock").open("w") as held:
        lock(held)
        if not (one.folder / "first.json").exists():
            _begin(one)
    return one


def _begin(one: Stranger) -> None:
    (one.folder / "home").mkdir(parents=True)
    tracked(one.clone)
    subprocess.run(["git", "branch", "-qM", "main"], cwd=one.clone, check=True)
    subprocess.run([sys.executable, "-m", "venv", str(one.folder / "venv")], check=True)
    first = one.shell(one.line("README.md", r"^\$ (pip install \. && .*)$"))
    extras = one.line("README.md", r'`(pip install "deepspeed-lint\[EXTRA\]")`')
    for extra in ("server", "mcp"):
        assert f"| `{extra}` |" in one.read("README.md")
        added = one.shell(extras.replace("EXTRA", extra))
        assert added.returncode == 0, added.stderr
    (one.folder / "first.json").write_text(json.dumps([first.returncode, first.stdout, first.stderr]), encoding="utf-8")


def test_in_a_terminal(stranger: Stranger) -> None:
    code, printed, errors = json.loads((stranger.folder / "first.json").read_text(encoding="utf-8"))
    assert code == 1, errors
    assert "error[DS102]" in printed
    assert str(stranger.folder) in stranger.shell("command -v dslint").stdout, "it is the installed one"


def test_before_a_commit(stranger: Stranger) -> None:
    pytest.importorskip("pre_commit")
    (block,) = (block for block in stranger.blocks("README.md", "yaml") if "hooks:" in block)
    project = stranger.project("committed", WRONG)
    (project / ".pre-commit-config.yaml").write_text(block, encoding="utf-8")
    stranger.shell("git init -q && git add -A", project)
    done = stranger.shell(shlex.join([sys.executable, "-m", "pre_commit", "run", "--all-files"]), project)
    assert done.returncode == 1, done.stderr
    assert "DS102" in done.stdout


def test_in_the_action(stranger: Stranger, tmp_path: Path) -> None:
    (block,) = (block for block in stranger.blocks("docs/ci.md", "yaml") if "runs-on:" in block)
    (job,) = yaml.safe_load(block)["jobs"].values()
    (inputs,) = (step["with"] for step in job["steps"] if step["uses"].startswith("OWNER/dslint@"))
    workspace, temp = stranger.project("pushed", "{}"), tmp_path / "temp"
    temp.mkdir()
    (workspace / inputs["paths"]).mkdir()
    (workspace / inputs["paths"] / "ds_config.json").write_text(WRONG, encoding="utf-8")
    given = {name.replace("-", "_"): str(value).lower() if isinstance(value, bool) else str(value) for name, value in inputs.items()}
    step = Runner(stranger.clone, workspace, temp, base="", path=stranger.environment["PATH"]).run(**given)
    assert step.code == 1, step.output
    assert "::error file=configs/ds_config.json" in step.output
    assert "DS102" in step.summary


def test_in_an_editor(stranger: Stranger) -> None:
    nvim = program("nvim")
    version = subprocess.run([nvim, "--version"], capture_output=True, text=True, check=True).stdout
    is_new = tuple(map(int, re.findall(r"\d+", version)[:2])) >= (0, 11)
    project = stranger.project("edited", NOT_A_SECTION)
    block = next(
        block for block in stranger.blocks("docs/editors.md", "lua") if ("vim.lsp.config(" if is_new else "start_client(") in block
    )
    (project / "init.lua").write_text(block, encoding="utf-8")
    (project / "look.lua").write_text(
        "vim.cmd('edit ds_config.json')\n"
        "vim.wait(60000, function() return #vim.diagnostic.get(0) > 0 end, 50)\n"
        "for _, one in ipairs(vim.diagnostic.get(0)) do io.stdout:write(one.code .. ' ') end\n"
        "vim.cmd('qall!')\n",
        encoding="utf-8",
    )
    done = stranger.shell(f"{nvim} --headless -i NONE -u init.lua -S look.lua", project)
    assert "DS104" in done.stdout, done.stderr


def test_on_the_page(stranger: Stranger, browser: Browser) -> None:
    from tests.site.playing import Play

    program("node")
    program("npm")
    built = stranger.shell(stranger.line("README.md", r"in a clone, `(python scripts/build_playground\.py)`"))
    assert built.returncode == 0, built.stdout + built.stderr
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with subprocess.Popen(
        ["dslint", "playground", "--port", str(port)],
        cwd=stranger.clone,
        env={**stranger.environment, "PYTHONUNBUFFERED": "1"},
        executable=shutil.which("dslint", path=stranger.environment["PATH"]),
        stdout=subprocess.PIPE,
        text=True,
    ) as served:
        try:
            assert served.stdout is not None
            said = served.stdout.readline()
            assert f" http://localhost:{port}/playground/ " in said
            play = Play(browser, f"http://localhost:{port}/")
            assert play.findings(), "the first example has mistakes"
            play.check()
            play.context.close()
        finally:
            served.terminate()


def test_in_an_assistant(stranger: Stranger) -> None:
    pytest.importorskip("mcp")
    from mcp import Client, StdioServerParameters
    from mcp.client.stdio import stdio_client

    from tests.mcp.client import in_a_loop

    (server,) = json.loads(next(block for block in stranger.blocks("docs/assistants.md", "json") if "mcpServers" in block))[
        "mcpServers"
    ].values()
    project = stranger.project("assisted", WRONG)
    command = shutil.which(server["command"], path=stranger.environment["PATH"])
    assert command is not None

    async def main() -> str:
        started = StdioServerParameters(command=command, args=server["args"], env=stranger.environment, cwd=project)
        async with Client(stdio_client(started)) as client:
            await client.list_tools()
            return str((await client.call_tool("check", {"path": "ds_config.json"})).content)

    assert "DS102" in in_a_loop(main)


def test_where_a_job_starts(stranger: Stranger) -> None:
    project = stranger.project("started", NOT_A_SECTION)
    (project / "train.py").write_text(PROGRAM, encoding="utf-8")
    programs = project / "bin"
    programs.mkdir()
    (programs / "deepspeed").write_text("#!/bin/sh\necho training\nexit 7\n", encoding="utf-8")
    (programs / "deepspeed").chmod(0o755)
    command = stranger.line("README.md", r"`(dslint run -- deepspeed train\.py) \.\.\.`") + " --deepspeed --deepspeed_config ds_config.json"
    path = f"{programs}{os.pathsep}{stranger.environment['PATH']}"
    refused = stranger.shell(command, project, PATH=path)
    assert (refused.returncode, refused.stdout) == (1, ""), refused.stderr
    assert "DS104" in refused.stderr
    (project / "ds_config.json").write_text(NOT_A_SECTION.replace("true", '{"enabled": true}'), encoding="utf-8")
    started = stranger.shell(command, project, PATH=path)
    assert (started.returncode, started.stdout) == (7, "training\n"), started.stderr
