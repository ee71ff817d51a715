"""What a help line says, or whether there is a finding, depends on what programs and launchers of the project can do."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

from dslint.cli import cli
from dslint.diagnostics import Diagnostic
from tests.setup.folder import Folder

_AUTO = {"train_batch_size": "auto", "zero_optimization": {"stage": 2}}
_OFFLOADED = {"train_micro_batch_size_per_gpu": 4, "zero_optimization": {"stage": 2, "offload_optimizer": {"device": "cpu"}}}
_MEGATRON = (
    "torchrun --nproc_per_node 4 pretrain_gpt.py --num-layers 2 --hidden-size 64 --num-attention-heads 4 --seq-length 128 "
    "--micro-batch-size 1 {} --deepspeed --deepspeed_config ds.json\n"
)


def _only(folder: Folder, code: str, name: str = "run.sh") -> Diagnostic:
    (one,) = [one for one in folder.diagnostics(name) if one.code == code]
    return one


@pytest.mark.parametrize(
    ("program", "said"),
    [
        ("model = GPTModelPipe(args) if args.deepspeed else GPTModel(args)\n", "Use ZeRO stage 1: this program has no flag"),
        ("model = GPTModelPipe() if args.deepspeed and not args.no_pipeline_parallel else GPTModel()\n", "Pass --no-pipeline-parallel, or"),
        (None, "if the program has this flag"),
    ],
)
def test_a_flag_that_only_some_forks_of_megatron_have(folder: Folder, program: str | None, said: str) -> None:
    config = {"train_micro_batch_size_per_gpu": 1, "zero_optimization": {"stage": 3}}
    folder.write({"run.sh": _MEGATRON.format("--zero-stage 3"), "ds.json": json.dumps(config)})
    if program is not None:
        folder.write({"pretrain_gpt.py": "import deepspeed\nfrom megatron import get_args\nargs = get_args()\n" + program})
    assert said in (_only(folder, "DS996").help or "")


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        ("--optimizer adam --no-pipeline-parallel", "Pass --cpu-optimizer."),
        (
            "--cpu-optimizer --cpu_torch_adam --no-pipeline-parallel",
            'Remove --cpu_torch_adam, or write "zero_force_ds_cpu_optimizer": false.',
        ),
    ],
)
def test_only_an_optimizer_that_runs_on_the_cpu_need_not_be_deepspeeds(folder: Folder, flags: str, said: str) -> None:
    folder.write({"run.sh": _MEGATRON.format(flags), "ds.json": json.dumps(_OFFLOADED)})
    assert _only(folder, "DS525").help == said


@pytest.mark.parametrize(
    ("launcher", "said"),
    [
        ("torchrun --nproc_per_node 2", "Remove it: torchrun takes ranks and addresses from flags of its own."),
        ("deepspeed --num_gpus 2", "Move it to the command line of the launcher."),
    ],
)
def test_flags_of_deepspeeds_launcher_in_the_config(folder: Folder, launcher: str, said: str) -> None:
    folder.write({"run.sh": f"{launcher} train.py --deepspeed ds.json\n", "ds.json": json.dumps({**_AUTO, "num_gpus": 2})})
    assert _only(folder, "DS103").help == said


@pytest.mark.parametrize(
    ("read", "count"),
    [
        ('os.path.join(CONFIGS, "deepspeed", args.deepspeed_config)', 0),
        ("pathlib.Path(CONFIGS) / args.deepspeed_config", 0),
        ('f"{CONFIGS}/{args.deepspeed_config}"', 0),
        ("args.deepspeed_config", 1),
    ],
)
def test_a_folder_that_the_program_joins_before_the_name(folder: Folder, read: str, count: int) -> None:
    program = f"import os, pathlib\nimport deepspeed\ndeepspeed.initialize(model=model, config={read})\n"
    folder.write({"scripts/run.sh": "deepspeed ../src/train.py --deepspeed_config stage3.json\n", "src/train.py": program})
    folder.write({"src/configs/deepspeed/stage3.json": json.dumps(_AUTO)})
    assert [one.code for one in folder.diagnostics("scripts/run.sh")].count("DS919") == count


@pytest.mark.parametrize(
    ("program", "count"), [("config['tensorboard']['job_name'] = now\n", 0), ("print(config['tensorboard'])\n", 0), ("print(config)\n", 1)]
)
def test_a_program_that_names_the_runs_itself(folder: Folder, program: str, count: int) -> None:
    config = {"train_micro_batch_size_per_gpu": 4, "tensorboard": {"enabled": True, "output_path": "out"}}
    folder.write({"train.py": f"import deepspeed\n{program}", "ds.json": json.dumps(config)})
    assert CliRunner().invoke(cli, ["check", "ds.json", "--output-format", "concise"]).output.count("DS803") == count


_EVALUATED = {
    "train_micro_batch_size_per_gpu": 1,
    "fp16": {"enabled": True, "initial_scale_power": 32, "hysteresis": 1000},
    "data_types": {"grad_accum_dtype": "fp32"},
}


@pytest.mark.parametrize(("optimizer", "codes"), [("", set()), (", optimizer=torch.optim.AdamW(m.parameters())", {"DS302", "DS316"})])
def test_an_engine_without_optimizer_scales_no_loss(folder: Folder, optimizer: str, codes: set[str]) -> None:
    program = f"import deepspeed, torch\nfrom nets import m\nengine = deepspeed.initialize(model=m, config='ds.json'{optimizer})[0]\n"
    folder.write({"eval.py": program, "ds.json": json.dumps(_EVALUATED)})
    assert {one.code for one in folder.diagnostics("eval.py") if one.code.startswith("DS3")} == codes


@pytest.mark.parametrize(("stages", "said"), [("", 'Set "stage": 2'), (" --pipeline-model-parallel-size 2", "Remove them.")])
def test_stage_2_is_no_way_out_for_a_pipeline(folder: Folder, stages: str, said: str) -> None:
    zero = {"stage": 1, "reduce_bucket_size": 5e8}
    config = {
        "train_micro_batch_size_per_gpu": 1,
        "bf16": {"enabled": True},
        "data_types": {"grad_accum_dtype": "fp32"},
        "zero_optimization": zero,
    }
    folder.write({"run.sh": _MEGATRON.format(f"--bf16 --zero-stage 1{stages}"), "ds.json": json.dumps(config)})
    assert (_only(folder, "DS328").help or "").startswith(said)
