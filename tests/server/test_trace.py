"""A session as an editor has it, replayed against the recorded answers: `UPDATE_GOLDEN=1 pytest tests/server` records them anew.

Texts that people read (messages, documentation) are left out of the record: they change with the rules and the schema.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pygls", reason="the language server requires pygls")

from tests.server.client import Client

GOLDEN = Path(__file__).parent / "session.json"
PROSE = {"message", "documentation", "tooltip", "markdown", "html", "svg", "table", "detail", "meaning", "title", "serverInfo", "choices"}
MOST = 4
"""How many items of a list of completions are recorded."""

CONFIG = """{
  // the micro batch of the 😀 job
  "train_micro_batch_size_per_gpu": 4,
  "bf16": {"enabled": true, "loss_scale": 0},
  "zero_optimization": {
    "stage": 2,
    "cpu_offload": true,
    "reduce_bucket_size": 500000000
  }
}
"""
TRAINING = "output_dir: o\nlearning_rate: 1e-5\nbf16: true\ndeepspeed: ds_config.hjson\n"
RECORDED = {"DS101", "DS111"}
"""The rules of which findings are recorded: a new rule does not change the record."""

SETTINGS = {
    "deepspeed": "0.19.8",
    "integration": "deepspeed",
    "world-size": 8,
    "gpu": "h100",
    "model": "llama-3-8b",
    "extend-select": ["DS111"],
}


def place(line: int, character: int) -> dict[str, int]:
    return {"line": line, "character": character}


def span(line: int, start: int, end: int) -> dict[str, dict[str, int]]:
    return {"start": place(line, start), "end": place(line, end)}


REQUESTS: list[tuple[str, dict[str, Any]]] = [
    ("textDocument/hover", {"position": place(5, 6)}),
    ("textDocument/completion", {"position": place(5, 13)}),
    ("textDocument/completion", {"position": place(6, 4)}),
    ("textDocument/codeAction", {"range": span(6, 5, 5), "context": {"diagnostics": []}}),
    ("textDocument/codeAction", {"range": span(0, 0, 0), "context": {"diagnostics": [], "only": ["source.fixAll"]}}),
    ("textDocument/inlayHint", {"range": {"start": place(0, 0), "end": place(99, 0)}}),
    ("textDocument/codeLens", {}),
    ("textDocument/definition", {"position": place(0, 0)}),
    ("textDocument/documentSymbol", {}),
    ("textDocument/foldingRange", {}),
    ("dslint/effectiveConfig", {}),
    ("dslint/estimate", {}),
    ("dslint/facts", {}),
]


def without_prose(value: Any) -> Any:
    """What a machine reads of an answer."""
    if isinstance(value, dict):
        if value.get("kind") == "markdown":
            return value["value"].split("\n")[0]
        return {key: without_prose(inner) for key, inner in value.items() if key not in PROSE}
    if isinstance(value, list):
        return [without_prose(inner) for inner in value]
    return value


def recorded(found: list[dict[str, Any]]) -> Any:
    """The diagnostics, or the actions for them, of the rules that are recorded."""
    return without_prose([one for one in found if {*_codes(one)} <= RECORDED])


def _codes(one: dict[str, Any]) -> list[str]:
    return [one["code"]] if "code" in one else [about["code"] for about in one.get("diagnostics", [])]


def short(method: str, answer: Any) -> Any:
    if method == "textDocument/completion":
        return without_prose(answer["items"][:MOST])
    if method == "textDocument/codeAction":
        return recorded(answer)
    if method == "dslint/effectiveConfig":
        return json.loads(answer["text"])
    if method == "dslint/estimate":
        return sorted(answer)
    if method == "dslint/facts":
        return {fact["name"]: fact["value"] for fact in answer["facts"]}
    return without_prose(answer)


@pytest.mark.slow
def test_the_answers_are_those_recorded(tmp_path: Path) -> None:
    (tmp_path / "ds_config.hjson").write_text(CONFIG, encoding="utf-8")
    (tmp_path / "train.yaml").write_text(TRAINING, encoding="utf-8")
    uri, training = ((tmp_path / name).as_uri() for name in ("ds_config.hjson", "train.yaml"))
    record: list[Any] = []
    with Client(tmp_path) as client:
        creates = {"workspaceEdit": {"resourceOperations": ["create"], "documentChanges": True}}
        snippets = {"completion": {"completionItem": {"snippetSupport": True}}}
        started = client.start(capabilities={"workspace": creates, "textDocument": snippets}, settings=SETTINGS)
        record.append(["initialize", without_prose(started)])
        client.open(uri, CONFIG)
        record.append(["open", recorded(client.diagnostics(uri))])
        for method, params in REQUESTS:
            answer = client.ask(method, {"textDocument": {"uri": uri}, **params})
            record.append([method, params, short(method, answer)])
        client.change(uri, 2, {"range": span(6, 4, 24), "text": ""}, {"range": span(1, 26, 28), "text": "😀😀"})
        record.append(["change", recorded(client.diagnostics(uri, 2))])
        client.open(training, TRAINING, language="yaml")
        record.append(["open", recorded(client.diagnostics(training))])
        record.append(
            ["textDocument/documentLink", without_prose(client.ask("textDocument/documentLink", {"textDocument": {"uri": training}}))]
        )
        assert client.stop() == 0
        assert client.log == ""
    text = json.dumps(record, indent=1, ensure_ascii=False).replace(tmp_path.as_uri(), "file:///FOLDER") + "\n"
    if os.environ.get("UPDATE_GOLDEN"):
        GOLDEN.write_text(text, encoding="utf-8")
    assert json.loads(text) == json.loads(GOLDEN.read_text(encoding="utf-8"))
