"""The exported schema in the JSON language service of VS Code: what it marks, completes and explains."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dslint.facts import Release
from dslint.schemas.export import json_schema

HERE = Path(__file__).parent

CONFIG = """\
{
  "train_micro_batch_size_per_gpu": 4,
  "zero_optimisation": {"stage": 3},
  "zero_optimization": {
    "stage": 4,
    "reduce_bucket_size": "5e8",
    "offload_param": {"device": "gpu"},
    #
  },
  "fp16": {"enabled": true, "initial_scale_pwer": 16},
  "optimizer": {"type": "AdamW", "params": {"weight_deacy": 0.1}}
}
"""

CONFIG = CONFIG.replace("    #\n", "    \n")  # blanks alone, where a key is to be completed

Ask = Callable[..., dict[str, Any]]


@pytest.fixture(scope="module")
def ask(tmp_path_factory: pytest.TempPathFactory) -> Ask:
    """Asks the service about a text: what it marks, and what it offers and says at some offsets."""
    folder = tmp_path_factory.mktemp("editor")
    for name in ("package.json", "ask.js"):
        shutil.copy(HERE / name, folder / name)
    required = os.environ.get("REQUIRE_EDITOR")
    if not shutil.which("npm"):
        pytest.fail("npm is missing") if required else pytest.skip("npm is missing")
    command = ["npm", "install", "--no-package-lock", "--no-audit", "--no-fund", "--silent"]
    if subprocess.run(command, cwd=folder, capture_output=True, check=False, timeout=300).returncode:
        pytest.fail("npm cannot install") if required else pytest.skip("the language service cannot be installed")

    def asks(text: str, *offsets: int, integration: str | None = None, release: str = "0.19.8") -> dict[str, Any]:
        (folder / "schema.json").write_text(json.dumps(json_schema(integration, Release.parse(release))), encoding="utf-8")
        (folder / "ds_config.json").write_text(text, encoding="utf-8")
        command = ["node", "ask.js", "schema.json", "ds_config.json", *map(str, offsets)]
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True, timeout=60)
        answer = json.loads(done.stdout)
        assert isinstance(answer, dict)
        return answer

    return asks


def test_what_is_wrong_is_marked_where_it_stands(ask: Ask) -> None:
    problems = {(p["line"], p["text"]): p["message"] for p in ask(CONFIG)["problems"]}
    assert problems[3, '"zero_optimisation"'] == "Property zero_optimisation is not allowed."
    assert "Valid values: 0, 1, 2, 3" in problems[5, "4"]
    assert problems[6, '"5e8"'] == 'Incorrect type. Expected "integer".'
    assert '"none", "cpu", "nvme"' in problems[7, '"gpu"']
    assert problems[10, '"initial_scale_pwer"'] == "Property initial_scale_pwer is not allowed."
    assert problems[11, '"weight_deacy"'] == "Property weight_deacy is not allowed."
    assert {3, 5, 6, 7, 10, 11} <= {line for line, _ in problems} <= {3, 5, 6, 7, 9, 10, 11}


def test_a_good_config_is_not_marked(ask: Ask) -> None:
    good = '{"_comment": "y", "train_batch_size": "auto", "zero_optimization": {"stage": 2}, "bf16": {"enabled": "auto"}}'
    assert ask(good, integration="transformers")["problems"] == []
    assert ask(good, integration="deepspeed")["problems"] != []


def test_keys_are_offered_with_what_they_mean(ask: Ask) -> None:
    offset = CONFIG.index("    \n") + 4
    offered = {c["label"]: c["documentation"] for c in ask(CONFIG, offset)["asked"][0]["completions"]}
    assert {"overlap_comm", "offload_optimizer", "stage3_prefetch_bucket_size"} <= offered.keys()
    assert not {"stage", "reduce_bucket_size"} & offered.keys(), "what is written is not offered again"
    undocumented = [label for label, words in offered.items() if not words]
    assert not undocumented
    values = ask(CONFIG, CONFIG.index('"gpu"') + 1)["asked"][0]["completions"]
    assert {'"cpu"', '"nvme"'} <= {c["label"] for c in values}


def test_a_key_is_explained_on_hover(ask: Ask) -> None:
    hover = ask(CONFIG, CONFIG.index('"reduce_bucket_size"') + 3)["asked"][0]["hover"]
    assert "zero_optimization.reduce_bucket_size" in hover.replace("\\", "")
    assert len(hover) > 60


def test_each_release_has_its_own_keys(ask: Ask) -> None:
    config = '{"train_batch_size": 8, "elasticity": {"enabled": false}, "zero_optimization": {"zenflow": {}}}'
    assert [p["text"] for p in ask(config, release="0.14.5")["problems"]] == ['"zenflow"']
    assert [p["text"] for p in ask(config, release="0.19.8")["problems"]] == ['"elasticity"']
