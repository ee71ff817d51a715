"""The configs that ship with a framework, which a training file names and a project often leaves out."""

from __future__ import annotations

import pytest

from dslint.config.context import Context
from dslint.setups.open import open_text
from dslint.source.tree import plain
from tests.setup.folder import Folder

TRAINING = "base_model: m\nmicro_batch_size: 1\nadapter: lora\nbf16: true\ndeepspeed: %s\n"


def stage_of(folder: Folder, name: str) -> object:
    folder.write({"train.yaml": TRAINING % name})
    opened = open_text(TRAINING % name, "train.yaml", Context())
    assert opened is not None
    configs = [plain(one.loaded.document.root) for one in opened.configs]
    return configs[0]["zero_optimization"]["stage"] if configs else None


@pytest.mark.parametrize(
    ("name", "stage"),
    [("deepspeed_configs/zero2.json", 2), ("deepspeed/zero3.json", 3), ("deepspeed_configs/mine.json", None), ("configs/zero2.json", None)],
)
def test_a_config_of_axolotls_is_known_by_its_path(folder: Folder, name: str, stage: int | None) -> None:
    assert stage_of(folder, name) == stage


def test_a_file_of_the_project_counts_more(folder: Folder) -> None:
    folder.write({"deepspeed_configs/zero2.json": '{"zero_optimization": {"stage": 3}, "train_micro_batch_size_per_gpu": 1}'})
    assert stage_of(folder, "deepspeed_configs/zero2.json") == 3


FACTORY = """
model_name_or_path: m
stage: sft
finetuning_type: full
dataset: d
template: t
do_train: true
output_dir: o
learning_rate: 1e-5
deepspeed: %s
"""


@pytest.mark.parametrize(
    ("name", "zero"),
    [
        ("examples/deepspeed/ds_z0_config.json", (0, False, False)),
        ("examples/deepspeed/ds_z2_offload_config.json", (2, True, False)),
        ("./examples/deepspeed/ds_z3_config.json", (3, False, False)),
        ("cache/ds_z3_config.json", (3, False, False)),
        ("cache/ds_z0_config.json", None),
        ("examples/deepspeed/ds_z3_offload_config.json", (3, True, True)),
        ("examples/deepspeed/ds_z0_offload_config.json", None),
        ("deepspeed_configs/zero2.json", None),
        ("default-zero3", None),
        ("deepspeed_zero3", None),
    ],
)
def test_the_configs_of_llama_factory(folder: Folder, name: str, zero: tuple[int, bool, bool] | None) -> None:
    folder.write({"train.yaml": FACTORY % name})
    opened = open_text(FACTORY % name, "train.yaml", Context())
    assert opened is not None
    found = [plain(one.loaded.document.root)["zero_optimization"] for one in opened.configs]
    assert [(one["stage"], "offload_optimizer" in one, "offload_param" in one) for one in found] == ([zero] if zero else [])


PROGRAM = """
from transformers import AutoModelForCausalLM, HfArgumentParser, Trainer, TrainingArguments
(args,) = HfArgumentParser(TrainingArguments).parse_args_into_dataclasses()
Trainer(AutoModelForCausalLM.from_pretrained("m"), args).train()
"""
LAUNCH = "torchrun --nproc_per_node 2 %s --output_dir o --per_device_train_batch_size 1 --learning_rate 1e-5 --deepspeed zero3\n"


def test_a_name_of_a_framework_is_a_missing_file_of_a_program_without_it(folder: Folder) -> None:
    folder.write({"train.py": PROGRAM, "run.sh": LAUNCH % "train.py"})
    assert [code for code, *_ in folder.found("run.sh")] == ["DS919"]
    folder.write({"train.py": f"import swift\n{PROGRAM}"})
    assert folder.found("run.sh") == []
    folder.write({"run.sh": LAUNCH % "elsewhere.py"})
    assert folder.found("run.sh") == []


@pytest.mark.parametrize("program", ["llm_sft.py", "examples/pytorch/llm/llm_rlhf.py"])
def test_programs_of_ms_swift_before_its_release_3(folder: Folder, program: str) -> None:
    flags = (
        "--model_type qwen-7b-chat --sft_type lora --dataset d --batch_size 3 --learning_rate 1e-4 --output_dir o --deepspeed default-zero3"
    )
    folder.write({"run.sh": f"torchrun --nproc_per_node 2 {program} {flags}\n"})
    assert folder.found("run.sh") == []
    folder.write({"run.sh": f"deepspeed --num_gpus 2 {program} {flags}\n"})
    assert [code for code, *_ in folder.found("run.sh")] == ["DS973"]
    ds = '{"train_micro_batch_size_per_gpu": 4, "gradient_accumulation_steps": "auto", "zero_optimization": {"stage": 2}}'
    folder.write({"ds.json": ds, "run.sh": f"torchrun --nproc_per_node 2 {program} {flags.replace('default-zero3', 'ds.json')}\n"})
    assert folder.found("run.sh") == [("DS904", "ds.json", 1)]


def test_a_launch_resolves_what_its_training_file_names(folder: Folder) -> None:
    folder.write(
        {"train.yaml": FACTORY % "examples/deepspeed/ds_z3_config.json", "run.sh": "FORCE_TORCHRUN=1 llamafactory-cli train train.yaml\n"}
    )
    assert folder.found("run.sh") == []
    folder.write({"train.yaml": FACTORY % "examples/deepspeed/ds_z3_config.json" + "predict_with_generate: true\nval_size: 0.1\n"})
    assert "DS975" in [code for code, *_ in folder.found("run.sh")]


def test_the_default_of_ms_swift_holds_beside_its_former_name(folder: Folder) -> None:
    ds = '{"train_micro_batch_size_per_gpu": %d, "gradient_accumulation_steps": "auto", "zero_optimization": {"stage": 2}}'
    launch = "NPROC_PER_NODE=2 swift sft --model m --train_type full --output_dir o --learning_rate 1e-5 --deepspeed ds.json\n"
    folder.write({"ds.json": ds % 1, "run.sh": launch})
    assert folder.found("run.sh") == []
    folder.write({"ds.json": ds % 8})
    assert folder.found("run.sh") == [("DS904", "ds.json", 1)]


def test_python_starts_a_program_of_ms_swift_without_ranks(folder: Folder) -> None:
    flags = "--model m --train_type full --output_dir o --learning_rate 1e-5 --deepspeed zero2"
    folder.write({"run.sh": f"python swift/cli/sft.py {flags}\n"})
    assert [code for code, *_ in folder.found("run.sh")] == ["DS962"]
    folder.write({"run.sh": f"CUDA_VISIBLE_DEVICES=0,1 python swift/cli/sft.py {flags}\n"})
    assert [code for code, *_ in folder.found("run.sh")] == ["DS982"]
    for start in ("torchrun --nproc_per_node 2 swift/cli/sft.py", "NPROC_PER_NODE=2 swift sft"):
        folder.write({"run.sh": f"{start} {flags}\n"})
        assert folder.found("run.sh") == []


def test_a_file_where_the_launch_runs_counts_more(folder: Folder) -> None:
    flags = "--stage sft --model_name_or_path m --dataset d --finetuning_type full --output_dir o"
    script = f"cd work\nllamafactory-cli train {flags} --deepspeed examples/deepspeed/ds_z3_config.json\n"
    own = '{"zero_optimization": {"stage": 1}, "train_micro_batch_size_per_gpu": 1}'
    folder.write({"run.sh": script, "work/examples/deepspeed/ds_z3_config.json": own})
    opened = open_text(script, "run.sh", Context())
    assert opened is not None
    assert [plain(one.loaded.document.root)["zero_optimization"]["stage"] for one in opened.configs] == [1]


def test_a_config_that_a_flag_replaces_is_not_counted(folder: Folder) -> None:
    config = '{"zero_optimization": {"stage": 2}, "train_micro_batch_size_per_gpu": 1, "bf16": {"enabled": true}}'
    script = "axolotl train train.yaml --deepspeed two.json\n"
    folder.write({"run.sh": script, "train.yaml": TRAINING % "one.json", "one.json": config, "two.json": config})
    opened = open_text(script, "run.sh", Context())
    assert opened is not None
    assert opened.trainings is not None
    (read,) = opened.trainings.setups
    assert read.setup.config == "two.json"
    assert set(read.documents) == {"run.sh", "train.yaml", "two.json"}
