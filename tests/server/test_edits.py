"""After any sequence of edits, the diagnostics are what `dslint check` finds in the final text."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

pytest.importorskip("pygls", reason="the language server requires pygls")

import dslint
from dslint.cli import cli
from dslint.diagnostics import Place
from dslint.server.positions import Positions
from tests.server.client import ROOT, Client

CONFIGS = (
    '{"train_batch_size": 8, "fp16": {"enabled": true}, "zero_optimization": {"stage": 2, "cpu_offload": true}}',
    '{\r\n  "train_micro_batch_size_per_gpu": 4, // 😀\r\n  "bf16": {"enabled": true},\r\n  "zero_optimisation": {"stage": 3}\r\n}\r\n',
    '{\n  "optimizer": {"type": "Adamw", "params": {"lr": 1e-3, "torch_adam": "e\u0301"}},\n  "train_batch_size": "auto"\n}',
)
WORDS = ["", "\n", "\r\n", "{", "}", '"', ",", ":", "1", "true", "null", "😀", "e\u0301", "\u2028", "// ", "/*", "#", "auto"]
MEMBERS = [
    '"stage": 3,',
    '"zero_optimization": {',
    '"fp16": {"enabled": true}, ',
    '"train_batch_size": 8\n',
    "// dslint: ignore[DS102] why\n",
]
PIECES = st.sampled_from([*WORDS, *MEMBERS])
EDITS = st.lists(st.tuples(st.integers(0, 200), st.integers(0, 6), PIECES), min_size=1, max_size=8)

TRAINING = "output_dir: o\nlearning_rate: 1e-5\nper_device_train_batch_size: 4\nfp16: true\ndeepspeed: ds_config.json\n"
"""A training near the config, which says more about it."""

versions = count(2)


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    folder = tmp_path_factory.mktemp("edited")
    (folder / "train.yaml").write_text(TRAINING, encoding="utf-8")
    (folder / "ds_config.json").write_text("{}", encoding="utf-8")
    with Client(folder) as started:
        started.start()
        yield started


def placed(text: str, place: Place) -> dict[str, int]:
    """A place as the protocol says it, by line and column."""
    lines = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    before = lines[place.line - 1][: place.column - 1]
    return {"line": place.line - 1, "character": len(before.encode("utf-16-le")) // 2}


def checked(folder: Path, text: str) -> list[Any]:
    """What a check of a saved file finds: code and place of each finding."""
    path = folder / "ds_config.json"
    path.write_bytes(text.encode("utf-8"))
    start = {"line": 0, "character": 0}
    return sorted(
        (
            one.code,
            json.dumps(
                {"start": placed(text, one.range.start), "end": placed(text, one.range.end)}
                if one.range
                else {"start": start, "end": start}
            ),
        )
        for one in dslint.check(path)
    )


@pytest.mark.slow
@settings(max_examples=60, derandomize=True, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.sampled_from(CONFIGS), EDITS, st.booleans())
def test_diagnostics_are_those_of_the_final_text(client: Client, config: str, edits: list[tuple[int, int, str]], together: bool) -> None:
    uri = (client.folder / "ds_config.json").as_uri()
    client.open(uri, config, version=next(versions))
    text, changes = config, []
    for at, length, new in edits:
        start = min(at, len(text))
        end = min(start + length, len(text))
        if any(text[offset - 1 : offset + 1] == "\r\n" for offset in (start, end)):
            continue  # the protocol knows no place between the two
        positions = Positions(text)
        first, last = positions.position(start), positions.position(end)
        place = {side: {"line": one.line, "character": one.character} for side, one in (("start", first), ("end", last))}
        changes.append({"range": place, "text": new})
        text = text[:start] + new + text[end:]
    version = next(versions)
    for number, change in enumerate(changes if not together else ()):
        client.change(uri, version if number == len(changes) - 1 else next(versions), change)
    if together or not changes:
        client.change(uri, version, *changes)
    client.notes.clear()
    found = client.diagnostics(uri, version)
    assert sorted((one["code"], json.dumps(one["range"])) for one in found) == checked(client.folder, text)
    client.tell("textDocument/didClose", {"textDocument": {"uri": uri}})


@pytest.mark.parametrize("step", [6, pytest.param(1, marks=pytest.mark.slow)], ids=["some", "all"])
def test_the_examples_have_the_findings_of_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: int) -> None:
    top = tmp_path / "examples"
    shutil.copytree(ROOT / "examples", top, ignore=shutil.ignore_patterns("__pycache__", "logs"))
    examples = sorted(path for path in top.rglob("*") if path.suffix in (".json", ".hjson", ".yaml", ".py", ".sh"))[::step]
    wanted: dict[Path, set[tuple[str, int]]] = {}
    for path in examples:
        monkeypatch.chdir(path.parent)
        printed = CliRunner().invoke(cli, ["check", path.name, "--output-format", "jsonl"]).stdout
        found = [json.loads(line) for line in printed.splitlines()]
        wanted[path] = {(one["code"], one["range"]["start"]["line"]) for one in found if one.get("path") == path.name and "code" in one}
    assert sum(map(len, wanted.values())) > len(examples)
    with Client(tmp_path) as client:
        client.start(folders=list({path.parent for path in examples}))
        for path, of_file in wanted.items():
            client.open(path.as_uri(), path.read_text(encoding="utf-8"))
            diagnostics = client.diagnostics(path.as_uri())
            assert {(one["code"], one["range"]["start"]["line"] + 1) for one in diagnostics} == of_file, path
