"""Nothing that a client sends ends the server, and a failure is one diagnostic or one line."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

pytest.importorskip("pygls", reason="the language server requires pygls")

from dslint.lint.guard import INTERNAL_ERROR
from dslint.server import checking
from dslint.server.diagnostics import diagnostics_of
from dslint.server.features import create
from dslint.server.files import OpenFile
from tests.server.client import Client
from tests.server.opened import opened

METHODS = (
    "textDocument/didOpen",
    "textDocument/didChange",
    "textDocument/didClose",
    "textDocument/didSave",
    "textDocument/hover",
    "textDocument/completion",
    "textDocument/codeAction",
    "textDocument/inlayHint",
    "textDocument/codeLens",
    "textDocument/definition",
    "textDocument/references",
    "textDocument/documentSymbol",
    "workspace/didChangeConfiguration",
    "workspace/didChangeWatchedFiles",
    "workspace/didChangeWorkspaceFolders",
    "workspace/executeCommand",
    "dslint/effectiveConfig",
    "dslint/estimate",
    "dslint/facts",
    "dslint/rule",
    "$/cancelRequest",
    "initialized",
    "no/such/method",
)
LEAVES = st.none() | st.booleans() | st.integers(-5, 2**40) | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=8)
NAMES = st.sampled_from(["uri", "textDocument", "position", "line", "character", "range", "start", "end", "set", "text", "version", "rule"])
VALUES = st.recursive(LEAVES, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES | st.text(max_size=3), inner, max_size=4))
POSITIONS = st.fixed_dictionaries({"line": st.integers(0, 2**31 - 1), "character": st.integers(0, 2**31 - 1)})
WELL_FORMED = st.fixed_dictionaries(
    {
        "textDocument": st.just({"uri": "file:///nowhere/ds_config.json", "version": 3}),
        "position": POSITIONS,
        "range": st.fixed_dictionaries({"start": POSITIONS, "end": POSITIONS}),
        "context": st.just({"diagnostics": [], "includeDeclaration": True}),
        "contentChanges": st.lists(
            st.fixed_dictionaries({"text": st.text(max_size=9), "range": st.fixed_dictionaries({"start": POSITIONS, "end": POSITIONS})}),
            max_size=3,
        ),
    }
)
TEXT = '{"train_batch_size": 8, "fp16": {"enabled": true}}'


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    with Client(tmp_path_factory.mktemp("fuzzed")) as started:
        started.start()
        started.open("file:///nowhere/ds_config.json", TEXT)
        yield started


def is_alive(client: Client) -> bool:
    answer = client.ask("dslint/rule", {"rule": "DS501"})
    return bool(answer["code"] == "DS501")


@pytest.mark.slow
@settings(max_examples=60, derandomize=True, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.tuples(st.sampled_from(METHODS), VALUES | WELL_FORMED, st.none() | st.integers(10**6, 10**9)), max_size=6))
def test_fuzzed_messages_do_not_end_it(client: Client, messages: list[tuple[str, Any, int | None]]) -> None:
    for method, params, number in messages:
        message = {"jsonrpc": "2.0", "method": method, "params": params}
        client.send(message if number is None else {**message, "id": number})
    assert is_alive(client)


@pytest.mark.slow
@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"[]",
        b"null",
        b"3",
        b'"x"',
        b"\xff\xfe",
        b'{"jsonrpc": "2.0"}',
        b'{"jsonrpc": "1.0", "id": 1}',
        b"[" * 3000,
        b'{"id": []}',
    ],
)
def test_broken_messages_do_not_end_it(client: Client, body: bytes) -> None:
    client.send_bytes(body)
    assert is_alive(client)


@pytest.mark.parametrize(
    "text",
    ["\0", "\ud83d", "{" * 5000, "[" * 100_000, '{"a": ' + "9" * 5000 + "}"],
    ids=["nul", "surrogate", "braces", "brackets", "digits"],
)
def test_any_text_has_diagnostics(client: Client, text: str) -> None:
    uri = "file:///nowhere/zero.json"
    client.open(uri, text)
    assert isinstance(client.diagnostics(uri), list)
    client.notes.clear()


def test_sections_that_are_nested_deep_have_an_outline(client: Client) -> None:
    uri = "file:///nowhere/ds_config.json"
    client.open(uri, '{"train_batch_size": 8, "fp16": ' + '{"a": ' * 300 + "1" + "}" * 301)
    assert [symbol["name"] for symbol in client.ask("textDocument/documentSymbol", {"textDocument": {"uri": uri}})] == [
        "train_batch_size",
        "fp16",
    ]


def test_a_check_that_fails_is_one_diagnostic(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise RuntimeError("the dog ate it")

    monkeypatch.setattr(checking, "lint_given", fail)
    (found,) = diagnostics_of(opened(tmp_path, "ds_config.json", TEXT).checked)
    assert found.code == INTERNAL_ERROR
    assert "the dog ate it" in found.message


def test_a_request_that_fails_is_one_line(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    app, lines = create(), []
    monkeypatch.setattr(app.server, "log", lambda line, _kind: lines.append(line))
    app.workspace.files["file:///x"] = OpenFile("file:///x", str(tmp_path / "ds_config.json"), TEXT, 1, "utf-16")

    def fail(*_: object) -> str:
        raise RuntimeError("the dog ate it")

    assert asyncio.run(app.answer("file:///x", fail, "nothing")) == "nothing"
    app.close()
    assert len(lines) == 1
    assert "the dog ate it" in lines[0]


def test_a_request_can_be_cancelled(client: Client) -> None:
    uri = (client.folder / "ds_config.json").as_uri()
    client.open(uri, TEXT)
    number = client.request("textDocument/hover", {"textDocument": {"uri": uri}, "position": {"line": 0, "character": 3}})
    client.tell("$/cancelRequest", {"id": number})
    answer = client.answer(number)
    assert answer.get("error", {}).get("code") == -32800 or "result" in answer  # it may be done already
    assert is_alive(client)


@pytest.mark.slow
def test_nothing_is_printed_between_messages(tmp_path: Path) -> None:
    """The program of a person is read, and never run."""
    program = "print('hello')\nopen('made', 'w').close()\nimport deepspeed\nds = {'train_batch_size': 8}\ndeepspeed.initialize(config=ds)\n"
    with Client(tmp_path) as client:
        client.start()
        uri = (tmp_path / "train.py").as_uri()
        client.open(uri, program, language="python")
        client.diagnostics(uri)
        assert client.stop() == 0
    assert not (tmp_path / "made").exists()


MALFORMED: list[dict[str, Any]] = [
    {"method": "textDocument/hover", "params": {"textDocument": {"uri": "file:///x.json"}}},
    {"method": "textDocument/hover", "params": None},
    {"method": "textDocument/hover", "params": []},
    {"method": "textDocument/hover", "params": "x"},
    {"method": "textDocument/completion", "params": {"x": 1}},
    {"method": "textDocument/hover", "params": {"textDocument": {"uri": "file:///x.json"}, "position": {"line": -1, "character": 0}}},
    {"method": "workspace/executeCommand", "params": {"arguments": 3}},
    {"method": "initialize", "params": {}},
    {"method": 5, "params": {}},
    {"method": "no/such", "params": {}},
    {"params": {}},
    {"jsonrpc": "1.0", "method": "textDocument/hover", "params": {}},
]


def test_every_request_is_answered(client: Client) -> None:
    for number, message in enumerate(MALFORMED, 90_000):
        client.send({"jsonrpc": "2.0", "id": number, **message})
        assert client.answer(number)["error"]["code"] < 0, message
    client.send({"id": 91_000, "method": "textDocument/hover", "params": {}})
    assert client.answer(91_000)["error"]["code"] == -32600
    client.send_bytes(b'{"jsonrpc": "2.0", "id": 91_001, "method"')
    assert client.answer(None)["error"]["code"] in (-32700, -32600)  # type: ignore[arg-type] # such a text has no id
    assert client.ask("dslint/facts", {})["facts"]


@pytest.mark.slow
def test_diagnostics_of_a_deleted_file_go(tmp_path: Path) -> None:
    file = tmp_path / "ds_config.json"
    file.write_text('{"train_batch_size": "8"}', encoding="utf-8")
    with Client(tmp_path) as client:
        client.start()
        client.open(file.as_uri(), file.read_text(encoding="utf-8"))
        assert client.diagnostics(file.as_uri())
        file.unlink()
        client.tell("workspace/didChangeWatchedFiles", {"changes": [{"uri": file.as_uri(), "type": 3}]})
        client.ask("dslint/facts", {})
        said = [note["params"] for note in client.notes if note["method"] == "textDocument/publishDiagnostics"]
        assert said[-1]["diagnostics"] == []
