"""What depends on the release of Accelerate that a project pins."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

from dslint.cli import cli
from tests.setup.folder import Folder

NVME = (
    "distributed_type: DEEPSPEED\nnum_machines: 1\nnum_processes: 2\n"
    "deepspeed_config:\n  zero_stage: 3\n  offload_optimizer_device: nvme\n  offload_param_device: nvme\n"
)
PROGRAM = (
    "from accelerate import Accelerator\naccelerator = Accelerator(dispatch_batches=False)\n"
    "model, optimizer, loader = accelerator.prepare(model, optimizer, loader)\n"
)


def found_in(folder: Folder, code: str, files: dict[str, str]) -> list[dict[str, str]]:
    folder.write({name: text for name, text in files.items() if text})
    found = json.loads(CliRunner().invoke(cli, ["check", ".", "--output-format", "json"]).stdout)["diagnostics"]
    return [one for one in found if one["code"] == code]


@pytest.mark.parametrize(
    ("pin", "ends"),
    [
        ("accelerate==0.19.0\n", ('NoneType".', 'cannot be None".')),
        ("accelerate==0.20.0\n", ("in the working directory.", "in the working directory.")),
        ("", ("in the working directory.", "in the working directory.")),
    ],
)
def test_the_path_of_an_offload_to_nvme(folder: Folder, pin: str, ends: tuple[str, str]) -> None:
    command = "accelerate launch --config_file acc.yaml train.py\n"
    found = [one["message"] for one in found_in(folder, "DS913", {"acc.yaml": NVME, "run.sh": command, "requirements.txt": pin})]
    assert len(found) == 2
    assert all(message.endswith(end) for message, end in zip(found, ends, strict=True))


@pytest.mark.parametrize(
    ("pin", "severities"),
    [("accelerate==0.34.2\n", []), ("accelerate==1.0.0\n", ["error"]), ("", ["warning"]), ("accelerate==2.0.0\n", [])],
)
def test_an_argument_that_a_release_removed(folder: Folder, pin: str, severities: list[str]) -> None:
    command = "accelerate launch --use_deepspeed --zero_stage 2 --num_processes 2 train.py\n"
    files = {"train.py": PROGRAM, "run.sh": command, "requirements.txt": pin}
    assert [one["severity"] for one in found_in(folder, "DS983", files)] == severities


@pytest.mark.parametrize(("arguments", "expected"), [("zero_stage=2", 0), ("hf_ds_config='ds.json'", 1)])
def test_a_plugin_without_a_file_clips_gradients(folder: Folder, arguments: str, expected: int) -> None:
    program = (
        f"from accelerate import Accelerator, DeepSpeedPlugin\naccelerator = Accelerator(deepspeed_plugin=DeepSpeedPlugin({arguments}))\n"
        "model, optimizer, loader = accelerator.prepare(model, optimizer, loader)\n"
        "accelerator.clip_grad_norm_(model.parameters(), 1.0)\n"
    )
    config = '{"train_batch_size": "auto", "zero_optimization": {"stage": 2}}'
    files = {"train.py": program, "ds.json": config if expected else "", "requirements.txt": "deepspeed==0.18.9\n"}
    assert len(found_in(folder, "DS632", files)) == expected


_TOP = "distributed_type: %s\nnum_machines: 2\nnum_processes: 16\nmixed_precision: bf16\n"
_CLASHING = _TOP + "deepspeed_config:\n  deepspeed_config_file: ds.json\n  zero_stage: 2\n"
_OWN_ENGINE = "import deepspeed\nengine, *_ = deepspeed.initialize(model=model, optimizer=optimizer, config='ds.json')\n"
_CONFIG = '{"train_micro_batch_size_per_gpu": 4, "bf16": {"enabled": true}, "zero_optimization": {"stage": 2}}'


@pytest.mark.parametrize(
    ("kind", "flags", "program", "expected"),
    [
        ("DEEPSPEED", "", PROGRAM, {"DS911", "DS987"}),
        ("DEEPSPEED", "", _OWN_ENGINE, {"DS987"}),
        ("DEEPSPEED", "", "from accelerate import Accelerator\naccelerator = Accelerator()\n" + _OWN_ENGINE, {"DS911", "DS987"}),
        ("DEEPSPEED", "--multi_gpu", PROGRAM, {"DS950"}),
        ("MULTI_GPU", "", PROGRAM, {"DS950"}),
        ("MULTI_GPU", "--use_deepspeed", PROGRAM, {"DS911"}),
        ("DEEPSPEED", "$MORE", PROGRAM, {"DS911"}),
    ],
)
def test_the_block_counts_only_where_the_launcher_exports_it(
    folder: Folder, kind: str, flags: str, program: str, expected: set[str]
) -> None:
    command = f"accelerate launch --config_file acc.yaml {flags} train.py\n"
    folder.write({"acc.yaml": _CLASHING % kind, "run.sh": command, "train.py": program, "ds.json": _CONFIG})
    found = json.loads(CliRunner().invoke(cli, ["check", ".", "--output-format", "json"]).stdout)["diagnostics"]
    assert {one["code"] for one in found} & {"DS911", "DS950", "DS987"} == expected


@pytest.mark.parametrize(
    ("pin", "expected"),
    [("accelerate==0.18.0\n", 1), ("accelerate==0.19.0\n", 0), ("accelerate==0.33.0\n", 0), ("accelerate==0.34.0\n", 1)],
)
def test_no_without_quotes(folder: Folder, pin: str, expected: int) -> None:
    file = NVME.replace("deepspeed_config:", "mixed_precision: no\ndeepspeed_config:")
    assert len(found_in(folder, "DS914", {"acc.yaml": file, "requirements.txt": pin})) == expected


def test_a_precision_that_the_program_may_set(folder: Folder) -> None:
    files = {
        "acc.yaml": NVME.partition("  zero_stage")[0] + "  deepspeed_config_file: ds.json\n",
        "run.sh": "accelerate launch --config_file acc.yaml train.py\n",
        "ds.json": _CONFIG.replace("true", '"auto"'),
    }
    made = "from accelerate import Accelerator\naccelerator = Accelerator(%s)\nmodel = accelerator.prepare(model)\n"
    before = 'import os\nos.environ["ACCELERATE_MIXED_PRECISION"] = "bf16"\n'
    for program, severities in ((made % "", ["error"]), (made % "**options", ["info"]), (before + made % "", [])):
        assert [one["severity"] for one in found_in(folder, "DS912", files | {"train.py": program})] == severities


@pytest.mark.parametrize(("flags", "severities"), [("", ["error"]), ("--multi_gpu", ["warning"])])
def test_fields_beside_the_config_of_the_trainer(folder: Folder, flags: str, severities: list[str]) -> None:
    files = {
        "acc.yaml": NVME,
        "run.sh": f"accelerate launch --config_file acc.yaml {flags} train.py --output_dir o --deepspeed ds.json\n",
        "ds.json": _CONFIG.replace("4", '"auto"').replace("true", '"auto"'),
        "train.py": "from transformers import HfArgumentParser, Trainer, TrainingArguments\n"
        "(args,) = HfArgumentParser(TrainingArguments).parse_args_into_dataclasses()\nTrainer(model, args).train()\n",
    }
    assert [one["severity"] for one in found_in(folder, "DS925", files)] == severities


_JOB = "#SBATCH --nodes=1\n#SBATCH --gpus-per-node=8\n"
_HALF = "torchrun --nproc_per_node 4 train.py"


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        (f"{_HALF}\n", 1),
        (f"{_HALF} &\n{_HALF} &\nwait\n", 0),
        (f"CUDA_VISIBLE_DEVICES=7 trl vllm-serve --model m &\n{_HALF}\n", 0),
        (f"prepare && {_HALF} 2>&1\n", 1),
        (f"{_HALF} \\\n  --seed 1 > log 2>&1 &\nwait\n", 1),
        (f"{_HALF} & {_HALF} &\nwait\n", 0),
        (f"for seed in 1 2; do\n  {_HALF} --seed $seed &\ndone\nwait\n", 0),
        (f"train() {{\n  {_HALF} --seed 1 &\n}}\ntrain\ntrain\n", 0),
        (f"{_HALF} &\npython generate.py &\nwait\n", 0),
        (f"pip install vllm\n# no vllm here\n{_HALF}\n", 1),
    ],
)
def test_gpus_that_something_else_may_use(folder: Folder, script: str, expected: int) -> None:
    program = "import deepspeed\nengine, *_ = deepspeed.initialize(model=model, optimizer=optimizer, config='ds.json')\n"
    assert len(found_in(folder, "DS930", {"run.sh": _JOB + script, "train.py": program, "ds.json": _CONFIG})) == expected


@pytest.mark.parametrize(
    ("flags", "steps", "expected"),
    [
        ("", "auto", 1),
        ("--gradient_accumulation_steps 4", "auto", 0),
        ("", "<STEPS>", 0),
        ("", "GRAD_ACC_STEPS", 0),
        ("", "four", 1),
        ("--gradient_accumulation_steps 4", "four", 0),
    ],
)
def test_a_number_that_a_flag_or_a_person_writes(folder: Folder, flags: str, steps: str, expected: int) -> None:
    files = {
        "acc.yaml": NVME.replace("nvme", "cpu") + f"  gradient_accumulation_steps: {steps}\n",
        "run.sh": f"accelerate launch --config_file acc.yaml {flags} train.py\n",
        "train.py": "from accelerate import Accelerator\naccelerator = Accelerator()\nmodel = accelerator.prepare(model)\n",
    }
    assert len(found_in(folder, "DS916", files)) == expected


@pytest.mark.parametrize(
    ("key", "top", "advice"),
    [
        ("bf16:enabled", "mixed_precision: bf16\n", "Remove it: mixed_precision: bf16 sets the precision."),
        ("fp16:enabled", "", "Write mixed_precision: fp16 at the top level."),
        ("bf16", "", "Write mixed_precision: bf16 at the top level."),
    ],
)
def test_a_section_of_a_precision_is_told_where_accelerate_has_it(folder: Folder, key: str, top: str, advice: str) -> None:
    folder.write({"acc.yaml": f"distributed_type: DEEPSPEED\n{top}deepspeed_config:\n  zero_stage: 2\n  {key}: true\n"})
    assert [one.help for one in folder.diagnostics("acc.yaml") if one.code == "DS915"] == [advice]


@pytest.mark.parametrize(("device_map", "expected"), [("", 1), (", device_map={'': 0}", 1), (", device_map='auto'", 0)])
def test_gpus_that_the_model_is_divided_over(folder: Folder, device_map: str, expected: int) -> None:
    """A rank loads such a model on all the GPUs that it sees."""
    program = (
        "from transformers import AutoModelForCausalLM, Trainer, TrainingArguments\n"
        f"arguments = TrainingArguments('o', deepspeed='ds.json')\nmodel = AutoModelForCausalLM.from_pretrained('m'{device_map})\n"
        "Trainer(model, arguments).train()\n"
    )
    assert len(found_in(folder, "DS930", {"run.sh": f"{_JOB}{_HALF}\n", "train.py": program, "ds.json": _CONFIG})) == expected
