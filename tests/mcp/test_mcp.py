"""The server for coding assistants, asked by the client of the package that defines the protocol."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import click
import pytest

pytest.importorskip("mcp")

from jsonschema import Draft202012Validator
from mcp import Client, StdioServerParameters
from mcp.client.stdio import stdio_client
from mcp.shared.exceptions import MCPError

from dslint.cli import cli
from dslint.mcp.run import Roots
from dslint.mcp.tools import tools
from dslint.registry.rules import all_rules
from tests.mcp.client import Refused, Session, in_a_loop, session

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "examples"
LLAMA = {"model": "llama-3-8b", "world_size": 8, "gpu": "h100"}

CALLS: list[tuple[str, dict[str, Any], str]] = [
    ("check", {"path": "typo.hjson"}, "2 errors"),
    ("check", {"path": "setups/run.sh"}, "files checked"),
    ("check", {"text": '{"train_batch_size": 12}', "world_size": 8}, "ds_config.json:1:2: error DS201"),
    ("check", {"text": "deepspeed train.py --deepspeed zero3.json\n", "filename": "run.sh"}, "checked"),
    ("check", {"command": "deepspeed --num_gpus 8 train.py --deepspeed zero3.json"}, "checked"),
    ("check", {"path": "zero3.json", "select": ["DS5"], "pedantic": True, "env": {"A": "1"}}, "checked"),
    ("show", {"path": "zero3.json", "world_size": 8}, "train_batch_size"),
    ("show", {"text": '{"train_batch_size": 8}'}, "train_batch_size"),
    ("estimate", {"path": "zero3.json", **LLAMA}, "GiB"),
    ("fit", {"path": "zero3.json", **LLAMA, "gpu": "a100-40gb", "world_size": 2}, "GiB"),
    ("tune", {"path": "zero3.json", **LLAMA, "free_batch": True, "network": "8x400Gb/s"}, "Fastest configs"),
    ("init", {"integration": "transformers", **LLAMA}, '"stage"'),
    ("explain_rule", {"rule": "DS501"}, "Parameter offload"),
    ("explain_rule", {"key": "zero_optimization.offload_param"}, "DS501"),
    ("explain_error", {"text": "'>' not supported between instances of 'str' and 'int'"}, "DS104"),
    ("diagnose", {"path": "logs/out-of-memory.log"}, "memory"),
    ("diagnose", {"text": (EXAMPLES / "logs/out-of-memory.log").read_text(encoding="utf-8")}, "memory"),
]


@pytest.fixture(scope="module")
def examples(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The examples by themselves: within this repository, dslint would read its thousand programs for what launches a file."""
    return Path(shutil.copytree(EXAMPLES, tmp_path_factory.mktemp("project") / "examples"))


@pytest.mark.slow
def test_every_schema_is_one_and_every_tool_is_described() -> None:
    for tool in tools():
        Draft202012Validator.check_schema(tool.inputs)
        Draft202012Validator.check_schema(tool.answer)
        assert tool.inputs["additionalProperties"] is False
        assert all(schema.get("description") for schema in tool.inputs["properties"].values()), tool.name
    assert {name for name, _, _ in CALLS} == {tool.name for tool in tools()}


def _each_tool_once() -> list[Any]:
    """The calls; each starts a process, and all but the first of a tool are slow."""
    first = {name: number for number, (name, _, _) in reversed([*enumerate(CALLS)])}
    return [
        pytest.param(*call, id=f"{call[0]}-{number}", marks=() if number == first[call[0]] else pytest.mark.slow)
        for number, call in enumerate(CALLS)
    ]


@pytest.mark.slow
@pytest.mark.parametrize(("name", "arguments", "said"), _each_tool_once())
def test_a_tool_answers_shortly_and_by_its_schema(examples: Path, name: str, arguments: dict[str, Any], said: str) -> None:
    async def talk(client: Session) -> tuple[str, dict[str, Any]]:
        return await client.tool(name, **arguments)

    text, data = session(examples, talk)
    assert said in text
    assert len(text.splitlines()) <= 130
    schema = next(tool.answer for tool in tools() if tool.name == name)
    assert list(Draft202012Validator(schema).iter_errors(data)) == []


def test_every_argument_is_an_option_of_the_command() -> None:
    """Options are renamed; a call with an old name would be refused only when an assistant makes it."""
    values: dict[object, Any] = {"integer": 1, "boolean": True, "array": ["DS5"], "object": {"A": "1"}}
    for tool in tools():
        left_out = ("path", "text", "filename", "command", "key")
        given = {name: values.get(schema.get("type"), "7B") for name, schema in tool.inputs["properties"].items() if name not in left_out}
        given |= {"rule": "DS501"} if tool.name == "explain_rule" else {"text": "{}"}
        words = tool.call(given, Roots([str(EXAMPLES)])).words
        command = cli.get_command(click.Context(cli), words[0])
        assert command is not None
        known = {name for param in command.params for name in param.opts}
        assert {word.partition("=")[0] for word in words[1:] if word.startswith("--") and word != "--"} <= known, tool.name


@pytest.mark.slow
def test_the_data_of_check_is_the_json_output_of_the_command(tmp_path: Path) -> None:
    # The file stands alone: the command also asks the folders above it for the release, the server stays below its root.
    (tmp_path / "typo.hjson").write_bytes((EXAMPLES / "typo.hjson").read_bytes())
    command = [sys.executable, "-m", "dslint", "check", "typo.hjson", "--world-size", "8", "--output-format", "json"]
    written = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False).stdout

    async def talk(client: Session) -> dict[str, Any]:
        return (await client.tool("check", path="typo.hjson", world_size=8))[1]

    assert session(tmp_path, talk) == json.loads(written)


@pytest.mark.parametrize(
    ("name", "arguments", "why"),
    [
        ("check", {}, "valid under any"),
        ("check", {"path": "a", "text": "b"}, "valid under each"),
        ("check", {"path": "typo.hjson", "world_size": "8"}, "world_size"),
        ("check", {"path": "typo.hjson", "worldsize": 8}, "worldsize"),
        ("check", {"path": "typo.hjson", "integration": "abacus"}, "abacus"),
        ("check", {"path": "none.json"}, "none.json"),
        ("check", {"path": "x\0y"}, "null character"),
        ("show", {"text": "{"}, "1:"),
        ("estimate", {"path": "zero3.json"}, "model"),
        ("explain_rule", {"rule": "DS000"}, "DS000"),
        ("explain_error", {"text": " "}, "empty"),
        ("init", {"integration": "deepspeed", "model": "nothing-such"}, "nothing-such"),
    ],
)
def test_what_cannot_be_answered_is_said(examples: Path, name: str, arguments: dict[str, Any], why: str) -> None:
    async def talk(client: Session) -> None:
        with pytest.raises(Refused) as refused:
            await client.tool(name, **arguments)
        assert why in str(refused.value)
        assert "Traceback" not in str(refused.value)

    session(examples, talk)


@pytest.mark.slow
def test_what_the_command_warns_of_is_a_part_of_the_answer(examples: Path) -> None:
    async def talk(client: Session) -> str:
        return (await client.tool("diagnose", path="logs/out-of-memory.log", config="none.json"))[0]

    assert "none.json" in session(examples, talk)


def test_an_unknown_tool_and_an_unknown_resource() -> None:
    async def talk(client: Session) -> None:
        with pytest.raises(MCPError, match="no tool"):
            await client.tool("train")
        for uri in ("dslint://rules/DS000", "dslint://keys/nothing", "file:///etc/passwd"):
            with pytest.raises(MCPError, match="no resource"):
                await client.client.read_resource(uri)

    session(EXAMPLES, talk)


def test_rules_and_keys_are_resources() -> None:
    async def read(client: Session, uri: str) -> str:
        return (await client.client.read_resource(uri)).contents[0].text  # type: ignore[union-attr, no-any-return]

    async def talk(client: Session) -> None:
        listed = await read(client, "dslint://rules/")
        assert all(rule.code in listed for rule in all_rules())
        assert (await read(client, "dslint://rules/DS501")).startswith("DS501 offload-param-below-stage-3")
        assert "zero_optimization.offload_param.device" in await read(client, "dslint://keys/")
        key = await read(client, "dslint://keys/zero_optimization.stage")
        assert "default: 0" in key
        assert "DS406" in key

    session(EXAMPLES, talk)


# ------------------------------------------------------------------ what it may touch


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A repository with a secret above the folder of the server, which files in that folder lead to."""
    (tmp_path / ".git").mkdir()
    (tmp_path / "secret.json").write_text('{"train_batch_size": 12, "s3cret": 1}', encoding="utf-8")
    (tmp_path / "secret.log").write_text("ValueError: s3cret\n", encoding="utf-8")
    root = tmp_path / "root"
    root.mkdir()
    (root / "link.json").symlink_to(tmp_path / "secret.json")
    (root / "run.sh").write_text("deepspeed train.py --deepspeed_config ../secret.json\n", encoding="utf-8")
    (root / "train.py").write_text(
        "import json, deepspeed\ndeepspeed.initialize(config=json.load(open('../secret.json')))\n", encoding="utf-8"
    )
    (root / "acc.yaml").write_text(
        "distributed_type: DEEPSPEED\ndeepspeed_config:\n  deepspeed_config_file: ../secret.json\n", encoding="utf-8"
    )
    (root / "good.json").write_text('{"train_micro_batch_size_per_gpu": 1}', encoding="utf-8")
    return root


@pytest.mark.slow
def test_nothing_outside_the_roots_is_read(project: Path) -> None:
    calls: list[tuple[str, dict[str, Any]]] = [
        *(
            ("check", {"path": path})
            for path in (".", "run.sh", "train.py", "acc.yaml", "link.json", "../secret.json", str(project.parent))
        ),
        ("check", {"text": "deepspeed train.py --deepspeed_config ../secret.json\n", "filename": "run.sh"}),
        ("check", {"command": "deepspeed train.py --deepspeed_config ../secret.json"}),
        ("check", {"path": "good.json", "checkpoint": ".."}),
        ("show", {"path": "run.sh"}),
        ("show", {"path": "link.json"}),
        ("estimate", {"path": "good.json", "model": "../secret.json", "world_size": 1}),
        ("diagnose", {"path": "../secret.log"}),
        ("diagnose", {"text": "ValueError: x\n", "config": "../secret.json"}),
        ("explain_error", {"text": "../secret.log"}),
    ]

    async def talk(client: Session) -> None:
        for name, arguments in calls:
            try:
                answer = str(await client.tool(name, **arguments))
            except Refused as refused:
                answer = str(refused)
            assert "s3cret" not in answer, (name, arguments)

    session(project, talk)


@pytest.mark.slow
def test_without_the_guard_the_secret_would_be_read(project: Path) -> None:
    command = [sys.executable, "-m", "dslint", "check", "run.sh"]
    assert "s3cret" in subprocess.run(command, cwd=project, capture_output=True, text=True, check=False).stdout


def test_the_guard_lets_a_process_read_below_the_roots_and_nothing_else(project: Path) -> None:
    program = f"""
import os, socket, subprocess, sys
from dslint.mcp.child import guard
sys.addaudithook(guard([{str(project)!r}]))
def tried(what):
    try:
        what()
    except PermissionError:
        return "refused"
    return "allowed"
print(tried(lambda: open({str(project / "good.json")!r}).close()), tried(lambda: os.listdir({str(project)!r})), tried(lambda: __import__("wave")))
print(
    *map(tried, [
        lambda: open({str(project / "link.json")!r}),
        lambda: open({str(project.parent / "secret.json")!r}),
        lambda: os.listdir({str(project.parent)!r}),
        lambda: os.open({str(project / "new")!r}, os.O_WRONLY | os.O_CREAT),
        lambda: open({str(project / "new")!r}, "w"),
        lambda: open({str(project / "good.json")!r}, "r+"),
        lambda: os.remove({str(project / "good.json")!r}),
        lambda: os.rename({str(project / "good.json")!r}, {str(project / "new")!r}),
        lambda: os.system("true"),
        lambda: subprocess.run(["true"]),
        lambda: socket.create_connection(("127.0.0.1", 9)),
    ])
)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["allowed allowed allowed", " ".join(["refused"] * 11)]


def test_the_guard_follows_the_links_of_an_environment(project: Path) -> None:
    """An installer may link packages to its cache."""
    cache, site = project.parent / "cache", project.parent / "site"
    cache.mkdir()
    site.mkdir()
    (cache / "linked.py").write_text("VALUE = 'imported'\n", encoding="utf-8")
    (site / "linked.py").symlink_to(cache / "linked.py")
    program = f"""
import sys
sys.path.append({str(site)!r})
from dslint.mcp.child import guard
sys.addaudithook(guard([{str(project)!r}]))
sys.dont_write_bytecode = True
import linked
print(linked.VALUE)
try:
    open({str(cache / "linked.py")!r})
except PermissionError:
    print("refused")
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["imported", "refused"]


def test_a_slow_call_ends(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from dslint.mcp.run import Failed, Roots, run

    async def main() -> None:
        with pytest.raises(Failed, match="longer than 0"):
            await run(("check", "-"), Roots([str(tmp_path)]), "{}", seconds=0)

    in_a_loop(main)


def test_modules_of_the_checkout_are_not_imported(tmp_path: Path) -> None:
    """An assistant starts the server in the checkout, which may hold a json.py."""
    (tmp_path / "json.py").write_text("raise SystemExit('imported')\n", encoding="utf-8")
    (tmp_path / "ds_config.json").write_text('{"train_micro_batch_size_per_gpu": 1}', encoding="utf-8")

    async def talk(client: Session) -> str:
        return (await client.tool("check", path="ds_config.json"))[0]

    assert "no findings" in session(tmp_path, talk) or "1 file checked" in session(tmp_path, talk)


def test_it_speaks_on_standard_input_and_output(examples: Path) -> None:
    async def main() -> None:
        environment = {name: value for name, value in os.environ.items() if name in ("PATH", "HOME", "PYTHONPATH")}
        started = StdioServerParameters(
            command=sys.executable, args=["-m", "deepspeed_lint", "mcp", "--root", str(examples)], env=environment
        )
        async with Client(stdio_client(started)) as client:
            names = [tool.name for tool in (await client.list_tools()).tools]
            assert names == [tool.name for tool in tools()]
            found = await client.call_tool("check", {"path": "misspelt.json"})
            assert "zero_optimisation" in str(found.content)

    in_a_loop(main)


@pytest.mark.slow
def test_without_the_package_it_says_what_to_install() -> None:
    program = "import sys; sys.modules['mcp'] = None; from dslint.cli import main; sys.argv = ['dslint', 'mcp']; main()"
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert 'pip install "deepspeed-lint[mcp]"' in done.stderr
