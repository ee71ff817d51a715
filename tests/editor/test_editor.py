"""The exported schema in the JSON language service of VS Code: what it marks, completes and explains; and in Ajv, SchemaStore's validator."""

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
from dslint.schemas import catalog
from dslint.schemas.drafts import DRAFTS
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
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the programs of this folder and the packages that they need."""
    folder = tmp_path_factory.mktemp("editor")
    for name in ("package.json", "ask.js", "names.js", "strict.js"):
        shutil.copy(HERE / name, folder / name)
    required = os.environ.get("REQUIRE_EDITOR")
    if not shutil.which("npm"):
        pytest.fail("npm is missing") if required else pytest.skip("npm is missing")
    command = ["npm", "install", "--no-package-lock", "--no-audit", "--no-fund", "--silent"]
    if subprocess.run(command, cwd=folder, capture_output=True, check=False, timeout=300).returncode:
        pytest.fail("npm cannot install") if required else pytest.skip("the language service cannot be installed")
    return folder


def node(folder: Path, program: str, *arguments: str, given: str = "") -> Any:
    """The answer of a program, from JSON."""
    done = subprocess.run(["node", program, *arguments], cwd=folder, input=given, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.fixture(scope="module", params=DRAFTS)
def ask(request: pytest.FixtureRequest, folder: Path) -> Ask:
    """Asks the service about a text: what it marks, and what it offers and says at some offsets."""

    def asks(text: str, *offsets: int, integration: str | None = None, release: str = "0.19.8") -> dict[str, Any]:
        schema = json_schema(integration, Release.parse(release), request.param)
        (folder / "schema.json").write_text(json.dumps(schema), encoding="utf-8")
        (folder / "ds_config.json").write_text(text, encoding="utf-8")
        answer = node(folder, "ask.js", "schema.json", "ds_config.json", *map(str, offsets))
        assert isinstance(answer, dict)
        return answer

    return asks


@pytest.mark.slow
def test_what_is_wrong_is_marked_where_it_stands(ask: Ask) -> None:
    problems = {(p["line"], p["text"]): p["message"] for p in ask(CONFIG)["problems"]}
    assert problems[3, '"zero_optimisation"'] == "Property zero_optimisation is not allowed."
    assert "Valid values: 0, 1, 2, 3" in problems[5, "4"]
    assert problems[6, '"5e8"'] == 'Incorrect type. Expected "integer".'
    assert '"none", "cpu", "nvme"' in problems[7, '"gpu"']
    assert problems[10, '"initial_scale_pwer"'] == "Property initial_scale_pwer is not allowed."
    assert problems[11, '"weight_deacy"'] == "Property weight_deacy is not allowed."
    assert {3, 5, 6, 7, 10, 11} <= {line for line, _ in problems} <= {3, 5, 6, 7, 9, 10, 11}


@pytest.mark.slow
def test_a_good_config_is_not_marked(ask: Ask) -> None:
    good = '{"_comment": "y", "train_batch_size": "auto", "zero_optimization": {"stage": 2}, "bf16": {"enabled": "auto"}}'
    assert ask(good, integration="transformers")["problems"] == []
    assert ask(good, integration="deepspeed")["problems"] != []


@pytest.mark.slow
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


@pytest.mark.slow
def test_each_release_has_its_own_keys(ask: Ask) -> None:
    config = '{"train_batch_size": 8, "elasticity": {"enabled": false}, "zero_optimization": {"zenflow": {}}}'
    assert [p["text"] for p in ask(config, release="0.14.5")["problems"]] == ['"zenflow"']
    assert [p["text"] for p in ask(config, release="0.19.8")["problems"]] == ['"elasticity"']


def test_values_are_explained_and_sections_are_inserted_whole(ask: Ask) -> None:
    text = '{"zero_optimization": {"stage": 3, "offload_param": {"device": ""}}, "scheduler": }'
    devices, schedulers = ask(text, text.index('""') + 1, text.index("scheduler") + 12)["asked"]
    words = {c["label"]: c["documentation"] for c in devices["completions"]}
    assert words['"nvme"'] == "A local NVMe drive, in the directory `nvme_path`."
    inserted = {c["label"]: c["insert"] for c in schedulers["completions"]}["WarmupDecayLR"]
    assert '"type": "WarmupDecayLR"' in inserted
    assert '"total_num_steps": ${3:1000}' in inserted


def test_an_empty_config_is_completed_with_a_whole_one(ask: Ask) -> None:
    offered = {c["label"]: c["insert"] for c in ask("", 0)["asked"][0]["completions"]}
    assert '"nvme_path": "${3:/local_nvme}"' in offered["ZeRO stage 3, bf16, offload to NVMe"]


def test_hover_is_markdown_with_the_default(ask: Ask) -> None:
    hover = ask(CONFIG, CONFIG.index('"reduce_bucket_size"') + 3)["asked"][0]["hover"]
    assert "Default: `500000000`" in hover
    assert '- `"auto"` is filled by transformers: ' in hover


def test_a_deprecated_key_is_marked_with_what_to_write(ask: Ask) -> None:
    (problem,) = ask('{"zero_optimization": {"stage": 2, "cpu_offload": true}}')["problems"]
    assert problem["text"] == '"cpu_offload": true'
    assert "offload_optimizer" in problem["message"]


GOOD = [{"train_batch_size": 8}, {"zero_optimization": {"stage": 3, "offload_param": {"device": "cpu"}}}]
BAD = [{"train_batch_sizes": 8}, {"zero_optimization": {"stage": 3, "max_live_parameters": 1, "stage3_max_live_parameters": 2}}]


@pytest.mark.parametrize(
    ("integrations", "releases"),
    [
        (("transformers",), ("0.19.8",)),
        pytest.param((None, "transformers", "accelerate", "lightning", "deepspeed"), ("0.9.0", "0.19.8"), marks=pytest.mark.slow),
    ],
    ids=["one", "all"],
)
def test_ajv_compiles_every_schema_in_strict_mode(folder: Path, integrations: tuple[str | None, ...], releases: tuple[str, ...]) -> None:
    names = []
    for draft in DRAFTS:
        for integration in integrations:
            for release in releases:
                names.append(f"{draft}-{integration}-{release}.json")
                (folder / names[-1]).write_text(json.dumps(json_schema(integration, Release.parse(release), draft)), encoding="utf-8")
    assert node(folder, "strict.js", *names, given=json.dumps(GOOD + BAD)) == [[True, True, False, False]] * len(names)


CONFIGS = [
    "ds_config.json",
    "ds_config_zero3.json",
    "ds_config_gpt_TEMPLATE.json",
    "conf/ds_stage2.json",
    "ds_z3_bf16.json",
    "ds_flan_t5_z3_offload.json",
    "ds_offload_nvme_aio.json",
    "ds_batch_config.json",
    "ds_zero2_no_offload.json",
    "sp-alst.ds-config.json",
    "llama3_ds_zero1_config.json",
    "zero3.json",
    "zero_stage1_config.json",
    "zero_config_pretrain.json",
    "deepspeed.json",
    "deepspeed_bsz24_config.json",
    "deepspeed_stage3_zero_config.json",
    "data/deepspeed/stage2-offload.json",
    "zero_configs/adam_zero1_bf16.json",
    "deepspeed_configs/config.json",
    "ds_configs/stage2.json",
]
OTHERS = [
    "config.json",
    "package.json",
    "tokenizer_config.json",
    "generation_config.json",
    "baseline.json",
    "stage1.json",
    "ds_store.json",
    "dataset_info.json",
    "adapter_config.json",
    "conf/config.json",
    "zeros.json",
    "quantize_config.json",
    "train.json",
    "configs/default.json",
]


def test_the_catalog_entry_matches_configs_and_nothing_else(folder: Path) -> None:
    (folder / "entry.json").write_text(json.dumps(catalog.entry()), encoding="utf-8")
    assert node(folder, "names.js", "entry.json", *CONFIGS, *OTHERS) == CONFIGS
