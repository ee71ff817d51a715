"""YAML files of programs that share words with a DeepSpeed config: `optimizer`, `checkpoint`, `seed`."""

from __future__ import annotations

import json

import pytest

from dslint.config.detect import FileKind, detect_kind
from dslint.not_judged import Why
from dslint.source.yaml_tree import parse_yaml
from tests.setup.folder import Folder

HYDRA = "seed: 42\noptimizer:\n  _target_: torch.optim.AdamW\n  lr: 1e-5\ncheckpoint:\n  enabled: true\nmodel:\n  _target_: package.Model\n"
IN_YAML = "train_batch_size: 8\noptimizer: {type: AdamW, params: {lr: 1.0e-5}}\n"


@pytest.mark.parametrize(("text", "kind"), [(HYDRA, FileKind.UNRELATED), (IN_YAML, FileKind.DS_CONFIG)])
@pytest.mark.parametrize("named", [True, False])
def test_only_a_key_of_deepspeeds_makes_a_config(text: str, kind: FileKind, *, named: bool) -> None:
    assert detect_kind(parse_yaml(text), named=named)[0] is kind


GRIDS = (
    "{'train_micro_batch_size_per_gpu': [1, 2, 4]}\n",
    "{'model_parallel_size': [8], 'train_micro_batch_size_per_gpu': [1], 'zero_optimization': {'stage': [1], 'overlap_comm': true}}\n",
)
"""Grids that a program expands with itertools.product."""


@pytest.mark.parametrize("text", GRIDS)
def test_the_grid_of_a_search_is_not_judged(folder: Folder, text: str) -> None:
    folder.write({"grid.yml": text})
    result = folder.results("grid.yml")["grid.yml"]
    assert result.diagnostics == ()
    assert [one.why for one in result.not_judged] == [Why.OF_GRID]


def test_arguments_of_lightnings_strategy_are_no_config(folder: Folder) -> None:
    folder.write({"stage_2.yaml": "stage: 2\noffload_optimizer: false\noffload_parameters: false\n"})
    result = folder.results("stage_2.yaml")["stage_2.yaml"]
    assert result.diagnostics == ()
    assert [one.why for one in result.not_judged] == [Why.OF_STRATEGY]


def test_an_option_of_hydra_that_holds_arguments_of_lightnings_strategy_is_no_config(folder: Folder) -> None:
    folder.write({"deepspeed/stage_2.yaml": "stage: 2\noffload_parameters: false\n", "config.yaml": "defaults:\n  - deepspeed: stage_2\n"})
    results = folder.results("config.yaml", "deepspeed/stage_2.yaml")
    assert [d.code for one in results.values() for d in one.diagnostics] == []
    assert Why.OF_STRATEGY.value in results["config.yaml"].not_judged[0].reason


def test_one_list_is_a_wrong_type(folder: Folder) -> None:
    folder.write({"ds.yml": "train_micro_batch_size_per_gpu: [4]\nzero_optimization: {stage: 2}\n"})
    assert "DS104" in {code for code, *_ in folder.found("ds.yml")}


def test_a_short_file_of_a_fork_of_neox_is_one_of_neox(folder: Folder) -> None:
    own = "num_gpus: 1\nnum_layers: 1\nhidden_size: 768\nnum_attention_heads: 12\noperator-config: [[[flash], 1]]\n"
    folder.write({"model.yml": f"train_micro_batch_size_per_gpu: 1\n{own}bf16: {{enabled: true}}\n"})
    assert [code for code, *_ in folder.found("model.yml")] == []


def test_the_config_of_a_program_behind_accelerates_file(folder: Folder) -> None:
    folder.write(
        {
            "run.sh": "accelerate launch --config_file accelerate.yaml train.py --config distil.yaml\n",
            "accelerate.yaml": "distributed_type: DEEPSPEED\ndeepspeed_config:\n  zero_stage: 2\nmixed_precision: bf16\n",
            "distil.yaml": HYDRA,
            "train.py": "from accelerate import Accelerator\naccelerator = Accelerator()\n",
        }
    )
    assert "distil.yaml" not in {path for _, path, _ in folder.found("run.sh", "train.py", "accelerate.yaml")}


def _of_a_trainer(section: str) -> str:
    """A training file of a program with its own sections, of which one has the name of a section of DeepSpeed."""
    return (
        "launcher: accelerate\nconfig_file: accelerate.yaml\nnum_processes: 8\nmixed_precision: bf16\nrun_name: first\nproject: p\n"
        "logging_backend: wandb\ndata:\n  folder: data\nmodel:\n  path: m\nlog:\n  folder: out\ntrain:\n  learning_rate: 1.0e-4\n"
        f"{section}\neval:\n  every: 4\n"
    )


@pytest.mark.parametrize(
    "section",
    [
        "scheduler:\n  name: flow\n  steps: [1, 2]\n  seed: 42",
        "optimizer:\n  name: adam\n  betas: [0.9, 0.99]",
        "checkpoint:\n  every: 100",
        "tensorboard:\n  folder: logs",
        "data_types:\n  images: float",
    ],
)
def test_one_section_with_a_common_name_makes_no_config_of_a_named_file(folder: Folder, section: str) -> None:
    folder.write(
        {"train.yaml": _of_a_trainer(section), "accelerate.yaml": "distributed_type: DEEPSPEED\ndeepspeed_config:\n  zero_stage: 2\n"}
    )
    results = folder.results("train.yaml", "accelerate.yaml")
    assert results["train.yaml"].diagnostics == ()
    assert results["accelerate.yaml"].diagnostics == ()


def test_nor_does_it_in_json_beside_many_keys_of_the_program(folder: Folder) -> None:
    data = {f"own_{number}": number for number in range(12)} | {"scheduler": {"name": "flow", "steps": 4}}
    folder.write({"train.json": json.dumps(data)})
    assert folder.results("train.json")["train.json"].diagnostics == ()


@pytest.mark.parametrize("others", [0, 12])
def test_a_section_in_the_form_of_deepspeed_makes_a_named_file_a_config(folder: Folder, others: int) -> None:
    scheduler = {"typ": "WarmupLR", "params": {"warmup_num_steps": 10}}
    folder.write({"ds.json": json.dumps({f"own_{number}": number for number in range(others)} | {"scheduler": scheduler})})
    assert folder.results("ds.json")["ds.json"].diagnostics != ()


def test_a_misspelt_section_of_yaml_is_still_found(folder: Folder) -> None:
    text = "zero_optimisation:\n  stage: 2\nscheduler:\n  type: WarmupLR\n"
    assert detect_kind(parse_yaml(text), named=True) == (FileKind.DS_CONFIG, None)
    folder.write({"ds.yaml": text})
    assert "DS102" in {code for code, *_ in folder.found("ds.yaml")}
