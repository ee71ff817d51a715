"""Commands of frameworks that do not train: they refuse the argument for a DeepSpeed config."""

from __future__ import annotations

import pytest

from tests.setup.folder import Folder

_TRAINING = (
    "stage: sft\nmodel_name_or_path: m\ndo_train: true\nfinetuning_type: lora\ndataset: d\ntemplate: qwen\noutput_dir: out\n"
    "per_device_train_batch_size: 1\nlearning_rate: 1.0e-4\nbf16: true\ndeepspeed: ds.json\n"
)
_INFERENCE = "model_name_or_path: m\nadapter_name_or_path: out\ntemplate: qwen\nfinetuning_type: lora\n"
_CONFIG = '{"train_micro_batch_size_per_gpu": "auto", "bf16": {"enabled": "auto"}, "zero_optimization": {"stage": 2}}'


def _write(folder: Folder, command: str, training: str = _TRAINING) -> list[tuple[str, str, int]]:
    folder.write({"train.yaml": training, "infer.yaml": _INFERENCE, "ds.json": _CONFIG, "run.sh": f"{command}\n"})
    return [one for one in folder.found("run.sh") if one[0] == "DS974"]


@pytest.mark.parametrize(
    ("command", "place"),
    [
        ("llamafactory-cli chat train.yaml", ("train.yaml", 11)),
        ("CUDA_VISIBLE_DEVICES=0 llamafactory-cli export train.yaml", ("train.yaml", 11)),
        ("API_PORT=8000 llamafactory-cli api train.yaml infer_backend=vllm", ("train.yaml", 11)),
        ("llamafactory-cli webchat --model_name_or_path m --template qwen --deepspeed ds.json", ("run.sh", 1)),
        ("llamafactory-cli train train.yaml\nllamafactory-cli export train.yaml", ("train.yaml", 11)),
        ("swift infer --adapters out --deepspeed zero3", ("run.sh", 1)),
        ("NPROC_PER_NODE=4 swift infer --model m --val_dataset d.jsonl --deepspeed ds.json", ("run.sh", 1)),
        ("swift export --adapters out --merge_lora true \\\n  --deepspeed zero2", ("run.sh", 2)),
        ("swift deploy --model m --deepspeed=zero3", ("run.sh", 1)),
        ("python src/export_model.py --model_name_or_path m --template qwen --deepspeed ds.json", ("run.sh", 1)),
        ("deepspeed --num_gpus 4 src/api_demo.py --model_name_or_path m --template qwen", ("run.sh", 1)),
    ],
)
def test_the_config_is_refused(folder: Folder, command: str, place: tuple[str, int]) -> None:
    assert _write(folder, command) == [("DS974", *place)]


@pytest.mark.parametrize(
    "command",
    [
        "llamafactory-cli train train.yaml",
        "llamafactory-cli chat infer.yaml",
        "llamafactory-cli train train.yaml\nllamafactory-cli export infer.yaml",
        "ALLOW_EXTRA_ARGS=1 llamafactory-cli chat train.yaml",
        "export ALLOW_EXTRA_ARGS=true\nllamafactory-cli export train.yaml",
        "llamafactory-cli chat missing.yaml",
        'llamafactory-cli chat "$1"',
        "llamafactory-cli webui",
        "llamafactory-cli version",
        "swift infer --adapters out --infer_backend pt",
        "swift infer --adapters out --deepspeed zero3 --ignore_args_error true",
        "swift sft --model m --dataset d --deepspeed zero2",
        "swift export --adapters out --merge_lora true",
        'swift infer "$@"',
        "axolotl inference train.yaml",
        "python src/export_model.py --model_name_or_path m --template qwen --export_dir out",
        "deepspeed --num_gpus 4 --no_local_rank src/api_demo.py --model_name_or_path m --template qwen",
        "deepspeed --num_gpus 4 src/evaluate.py --model m --deepspeed ds.json",
        "deepspeed --num_gpus 4 evaluate.py --model_name_or_path m --template qwen --deepspeed ds.json",
        "deepspeed --num_gpus 4 src/web_demo.py --model_name_or_path m --deepspeed ds.json",
    ],
)
def test_other_commands_are_not_touched(folder: Folder, command: str) -> None:
    assert _write(folder, command) == []


def test_the_message_names_the_command(folder: Folder) -> None:
    _write(folder, "llamafactory-cli chat train.yaml")
    (found,) = [one for one in folder.diagnostics("run.sh") if one.code == "DS974"]
    assert found.message == (
        'llamafactory-cli chat (run.sh:1) does not train, and has no argument "deepspeed": it raises "Some keys are not used by the '
        'HfArgumentParser: ...".'
    )


def test_a_script_that_only_infers_launches_nothing(folder: Folder) -> None:
    folder.write({"infer.yaml": _INFERENCE, "run.sh": "llamafactory-cli chat infer.yaml\n"})
    result = folder.results("run.sh")["run.sh"]
    assert not result.diagnostics
    assert "no command in this file launches a DeepSpeed training" in str(result.note)


@pytest.mark.parametrize(
    ("program", "codes"),
    [
        ("from llmtuner import export_model\nexport_model()\n", ["DS974"]),
        ("import deepspeed\ndeepspeed.initialize(model=m, config='ds.json')\n", []),
    ],
)
def test_a_program_of_the_project_may_have_the_same_name(folder: Folder, program: str, codes: list[str]) -> None:
    folder.write({"src/export_model.py": program})
    found = _write(
        folder, "deepspeed --num_gpus 4 --no_local_rank src/export_model.py --model_name_or_path m --template t --deepspeed ds.json"
    )
    assert [code for code, _, _ in found] == codes
