"""The server as an editor sees it: a process, spoken to over its standard streams."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytest.importorskip("pygls", reason="the language server requires pygls")

from tests.server.client import PATIENCE, ROOT, Client

BROKEN = '{"train_batch_size": 8, "bf16": true, "zero_optimisation": {"stage": 3}}'


def test_an_open_file_is_checked_as_it_is_edited(tmp_path: Path) -> None:
    with Client(tmp_path) as client:
        capabilities = client.start()["capabilities"]
        assert capabilities["positionEncoding"] == "utf-16"
        assert capabilities["textDocumentSync"]["change"] == 2  # incremental
        uri = (tmp_path / "ds_config.json").as_uri()
        client.open(uri, BROKEN)
        first = client.diagnostics(uri)
        assert [found["code"] for found in first] == ["DS104", "DS102"]
        assert first[0]["range"] == {"start": {"line": 0, "character": 32}, "end": {"line": 0, "character": 36}}
        client.change(uri, 2, {"range": first[0]["range"], "text": '{"enabled": true}'})
        assert [found["code"] for found in client.diagnostics(uri, 2)] == ["DS102"]
        client.tell("textDocument/didClose", {"textDocument": {"uri": uri}})
        assert client.stop() == 0
        assert client.notes[-1]["params"] == {"uri": uri, "diagnostics": []}
        assert client.log == ""


@pytest.mark.slow
def test_files_of_others_are_left_alone(tmp_path: Path) -> None:
    with Client(tmp_path) as client:
        client.start()
        uri = (tmp_path / "package.json").as_uri()
        client.open(uri, '{"name": "x", "version": 1,}')
        assert client.diagnostics(uri) == []


def test_without_its_extra_the_command_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    import importlib.util

    from dslint.cli.server import command
    from dslint.errors import UserError

    monkeypatch.setattr(importlib.util, "find_spec", lambda _name: None)
    with pytest.raises(UserError, match=r'pip install "deepspeed-lint\[server\]"'):
        command.main([], standalone_mode=False)


@pytest.mark.slow
def test_the_editor_says_the_settings_of_each_folder(tmp_path: Path) -> None:
    folders = [tmp_path / "a", tmp_path / "b"]
    text = '{"train_batch_size": 8, "train_micro_batch_size_per_gpu": 4, "gradient_accumulation_steps": 1}'
    dynamic = {"dynamicRegistration": True}
    capabilities = {"workspace": {"configuration": True, "didChangeConfiguration": dynamic, "didChangeWatchedFiles": dynamic}}
    with Client(tmp_path) as client:
        for folder, size in zip(folders, (2, 3), strict=True):
            folder.mkdir()
            client.settings[folder.as_uri()] = {"worldSize": size}
        client.start(capabilities=capabilities, folders=folders)

        def codes(folder: Path) -> set[str]:
            client.notes.clear()
            uri = (folder / "ds_config.json").as_uri()
            client.open(uri, text)
            return {found["code"] for found in client.diagnostics(uri)}

        client.wait_for("workspace/configuration")
        assert "DS201" not in codes(folders[0])
        assert "DS201" in codes(folders[1])
        client.settings[folders[1].as_uri()] = {"worldSize": 2}
        client.notes.clear()
        client.tell("workspace/didChangeConfiguration", {"settings": None})
        client.wait_for("workspace/configuration")
        assert "DS201" not in codes(folders[1])


@pytest.mark.slow
def test_what_other_files_say_is_read_when_they_change(tmp_path: Path) -> None:
    text = '{"train_micro_batch_size_per_gpu": "auto", "gradient_accumulation_steps": 2, "bf16": {"enabled": "auto"}}'
    training = "output_dir: o\nlearning_rate: 1e-5\nbf16: true\ngradient_accumulation_steps: 4\ndeepspeed: ds_config.json\n"
    config, yaml = tmp_path / "ds_config.json", tmp_path / "train.yaml"
    config.write_text(text, encoding="utf-8")
    with Client(tmp_path) as client:
        client.start()

        def codes() -> set[str]:
            return {found["code"] for found in client.diagnostics(config.as_uri())}

        client.open(config.as_uri(), text)
        assert "DS904" not in codes()
        client.notes.clear()
        yaml.write_text(training, encoding="utf-8")
        client.tell("workspace/didChangeWatchedFiles", {"changes": [{"uri": yaml.as_uri(), "type": 1}]})
        assert "DS904" in codes()
        client.open(yaml.as_uri(), training, language="yaml")
        client.change(
            yaml.as_uri(), 2, {"range": {"start": {"line": 3, "character": 29}, "end": {"line": 3, "character": 30}}, "text": "2"}
        )
        client.diagnostics(yaml.as_uri(), 2)
        client.notes.clear()
        client.tell("textDocument/didSave", {"textDocument": {"uri": yaml.as_uri()}})
        assert "DS904" not in codes()


@pytest.mark.slow
def test_the_check_of_a_large_file_holds_up_no_hover(tmp_path: Path) -> None:
    small, large = tmp_path / "ds_config.json", tmp_path / "ds_large.json"
    text = '{\n"train_batch_size": 8,\n"zero_optimization": {"stage": 2}\n}'
    wrong = ", ".join(f'"zero_optimisation_of_a_{n:05}": {{"stage": {n}}}' for n in range(4_000))
    with Client(tmp_path) as client:
        client.start()
        client.open(small.as_uri(), text)
        client.diagnostics(small.as_uri())
        where = {"textDocument": {"uri": small.as_uri()}, "position": {"line": 2, "character": 5}}
        client.ask("textDocument/hover", where)
        client.open(large.as_uri(), f'{{"train_batch_size": "8", {wrong}}}')
        for _ in range(3):
            assert "zero_optimization" in str(client.ask("textDocument/hover", where))
        assert not any(note.get("params", {}).get("uri") == large.as_uri() for note in client.notes)
        assert client.diagnostics(large.as_uri())


@pytest.mark.slow
def test_edits_of_a_program_are_seen_by_its_config_before_it_is_saved(tmp_path: Path) -> None:
    text = '{"train_micro_batch_size_per_gpu": "auto", "gradient_accumulation_steps": 2, "zero_optimization": {"stage": 2}}'
    program = (
        "from transformers import Trainer, TrainingArguments\n"
        'args = TrainingArguments("o", deepspeed="ds_config.json", gradient_accumulation_steps=2)\n'
        "Trainer(model=model, args=args).train()\n"
    )
    config, train = tmp_path / "ds_config.json", tmp_path / "train.py"
    config.write_text(text, encoding="utf-8")
    train.write_text(program, encoding="utf-8")
    with Client(tmp_path) as client:
        client.start()
        client.open(config.as_uri(), text)
        assert "DS904" not in {found["code"] for found in client.diagnostics(config.as_uri())}
        client.open(train.as_uri(), program, language="python")
        client.diagnostics(train.as_uri())
        client.notes.clear()
        end = program.splitlines()[1].index("=2)") + 1
        client.change(
            train.as_uri(), 2, {"range": {"start": {"line": 1, "character": end}, "end": {"line": 1, "character": end + 1}}, "text": "4"}
        )
        client.diagnostics(train.as_uri(), 2)
        assert "DS904" in {found["code"] for found in client.diagnostics(config.as_uri())}


@pytest.mark.slow
def test_it_serves_a_port(tmp_path: Path) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "dslint", "server", "--port", str(port)]
    with subprocess.Popen(command, cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(ROOT)}, stderr=subprocess.PIPE) as process:
        connection = connected(port)
        with connection, connection.makefile("rwb") as stream:
            for number, (method, params) in enumerate(
                [("initialize", {"processId": None, "rootUri": None, "capabilities": {}}), ("shutdown", None)]
            ):
                body = json.dumps({"jsonrpc": "2.0", "id": number, "method": method, "params": params}).encode()
                stream.write(b"Content-Length: %d\r\n\r\n" % len(body) + body)
                stream.flush()
                length = int(stream.readline().partition(b":")[2])
                while stream.readline().strip():
                    pass
                assert json.loads(stream.read(length))["id"] == number
            body = b'{"jsonrpc": "2.0", "method": "exit"}'
            stream.write(b"Content-Length: %d\r\n\r\n" % len(body) + body)
        assert process.wait(PATIENCE) == 0
        assert process.stderr is not None
        assert process.stderr.read() == b""


def connected(port: int) -> socket.socket:
    """A connection to a server that is just starting."""
    for _ in range(10 * PATIENCE):
        try:
            return socket.create_connection(("127.0.0.1", port))
        except ConnectionRefusedError:
            time.sleep(0.1)
    pytest.fail("the server does not open its port")
