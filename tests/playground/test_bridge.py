"""What the page's worker calls: the findings of `dslint check`, and what commands print."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from dslint.facts import NEWEST
from tests.command import dslint

ROOT = Path(__file__).resolve().parents[2]
BROKEN = (ROOT / "examples/broken.json").read_text(encoding="utf-8")
ZERO3 = (ROOT / "examples/zero3.json").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def bridge() -> ModuleType:
    spec = importlib.util.spec_from_file_location("bridge", ROOT / "playground" / "bridge.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def ask(bridge: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Asks about some files, in an empty folder, which must be empty again afterwards."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.argv", ["dslint"])
    monkeypatch.setenv("COLUMNS", "80")

    def answer(files: dict[str, str], facts: dict[str, str] | None = None, **view: Any) -> dict[str, Any]:
        answered: dict[str, Any] = json.loads(bridge.answer(json.dumps({"files": files, "facts": facts or {}, **view})))
        assert list(tmp_path.iterdir()) == []
        return answered

    return answer


def test_the_findings_are_those_of_the_command(ask: Any, tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("command")
    (folder / "ds_config.json").write_text(BROKEN, encoding="utf-8")
    options = ["--integration", "transformers", "--world-size", "8", "--deepspeed", str(NEWEST)]
    expected = json.loads(dslint("check", "ds_config.json", "--output-format", "json", *options, cwd=folder).stdout)["diagnostics"]
    check = ask({"ds_config.json": BROKEN}, {"integration": "transformers", "world-size": "8", "deepspeed": str(NEWEST)})["check"]
    assert [(one["code"], one["message"], one["range"]["from"]) for one in check["findings"]] == [
        (one["code"], one["message"], one["range"]["start"]["offset"]) for one in expected
    ]
    assert check["findings"][0]["fix"]["changes"]
    assert check["verdict"].startswith("Found 3 errors")


def test_offsets_are_those_of_the_browser(ask: Any) -> None:
    text = '{"_comment": "é😀", "zero_optimisation": {"stage": 3}}'
    mark = next(one for one in ask({"c.json": text})["check"]["marks"] if one["code"] == "DS102")
    units = text.encode("utf-16-le")
    assert units[2 * mark["range"]["from"] : 2 * mark["range"]["to"]].decode("utf-16-le") == '"zero_optimisation"'
    (change,) = mark["fix"]["changes"]
    fixed = units[: 2 * change["from"]] + change["insert"].encode("utf-16-le") + units[2 * change["to"] :]
    assert json.loads(fixed.decode("utf-16-le"))["zero_optimization"] == {"stage": 3}


AS_JSON = ("--output-format", "json")


@pytest.mark.slow
@pytest.mark.parametrize(
    "words",
    [
        ["show", "ds_config.json", "--world-size", "4", *AS_JSON],
        ["estimate", "ds_config.json", "--model", "llama-3-8b", "--world-size", "8", *AS_JSON],
        ["fit", "ds_config.json", "--model", "llama-3-8b", "--gpu", "a100-40gb", "--world-size", "8", *AS_JSON],
        ["estimate", "ds_config.json", *AS_JSON],
    ],
)
def test_a_view_is_what_the_command_prints(ask: Any, tmp_path_factory: pytest.TempPathFactory, words: list[str]) -> None:
    folder = tmp_path_factory.mktemp("command")
    (folder / "ds_config.json").write_text(ZERO3, encoding="utf-8")
    done = dslint(*words, cwd=folder)
    output = ask({"ds_config.json": ZERO3}, run=words)["output"]
    assert (output["text"], output["errors"], output["code"]) == (done.stdout, done.stderr, done.returncode)


def test_an_estimate_is_drawn(ask: Any) -> None:
    words = ["estimate", "ds_config.json", "--model", "llama-3-8b", "--world-size", "8", "--plot", "chart.svg"]
    assert ask({"ds_config.json": ZERO3}, run=words)["output"]["chart"].startswith("<svg")


@pytest.mark.slow
def test_a_log_is_read_once(ask: Any) -> None:
    log = (ROOT / "examples/logs/out-of-memory.log").read_text(encoding="utf-8")
    output = ask({"ds_config.json": ZERO3}, run=["diagnose", "job.log"], input={"job.log": log})["output"]
    assert output["text"].startswith("GPU 2 ran out of memory")  # the cause comes first
    assert "The job failed." in output["text"]


def test_an_upgrade_has_its_own_findings(ask: Any) -> None:
    answered = ask({"ds_config.json": ZERO3}, upgrade="0.14.0..0.19.8")
    assert answered["check"]["findings"] == []
    assert answered["upgrade"]["findings"] != []


def test_fixed_texts_come_back(ask: Any) -> None:
    answered = ask({"a.json": BROKEN, "b.json": ZERO3}, fix=["check", "--fix", "--fix-only", "a.json", "b.json"])
    assert "offload_optimizer" in answered["texts"]["a.json"]
    assert answered["texts"]["b.json"] == ZERO3
    assert answered["output"]["errors"] == "dslint: fixed 4 findings.\n"


def test_a_training_is_checked_with_its_config(ask: Any) -> None:
    folder = ROOT / "examples/setups"
    files = {name: (folder / name).read_text(encoding="utf-8") for name in ("train.yaml", "ds_config.json")}
    assert [(one["path"], one["code"]) for one in ask(files)["check"]["findings"]] == [("ds_config.json", "DS904")]


def test_a_key_is_explained(ask: Any) -> None:
    text = '{"_comment": "é😀", "zero_optimization": {"stage": 2}}'
    units = text.encode("utf-16-le")
    key = ask({"c.json": text}, hover=["c.json", units.index('"stage"'.encode("utf-16-le")) // 2 + 1])["key"]
    assert units[2 * key["from"] : 2 * key["to"]].decode("utf-16-le") == '"stage"'
    assert key["paragraphs"][0] == "**`zero_optimization.stage`**"
    assert any("(written)" in one for one in key["paragraphs"])
    assert ask({"c.json": text}, hover=["c.json", 0])["key"] is None
    assert ask({"train.yaml": "deepspeed: ds_config.json"}, hover=["train.yaml", 3])["key"] is None


def test_a_request_leaves_nothing_to_the_next(ask: Any) -> None:
    assert ask({"folder/ds_config.json": BROKEN})["check"]["findings"]
    clean = ask({"ds_config.json": '{"train_micro_batch_size_per_gpu": 4}'})["check"]
    assert clean["findings"] == clean["marks"] == []


def test_a_wrong_fact_is_explained(ask: Any) -> None:
    assert ask({"c.json": "{}"}, {"world-size": "0"})["check"]["error"] == '--world-size: "0" must be a positive integer'


def test_no_source_of_the_page_is_long() -> None:
    sources = [path for path in (ROOT / "playground").iterdir() if path.suffix in (".py", ".mjs", ".html", ".css")]
    sources += (ROOT / "playground/src").iterdir()
    assert [path.name for path in sources if len(path.read_text(encoding="utf-8").splitlines()) > 300] == []
