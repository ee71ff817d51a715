"""A program that takes its config from its launch is judged with the launches of its project."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from argparse import ArgumentParser
from pathlib import Path

import pytest
from click.testing import CliRunner

from dslint.cli import cli
from dslint.config.detect import FileKind
from dslint.diagnostics import Severity
from dslint.lint.discovery import Target
from dslint.lint.files import lint_all
from dslint.settings import Finder
from tests.setup.folder import Folder

BY_FLAG = (
    "import argparse, deepspeed\nparser = deepspeed.add_config_arguments(argparse.ArgumentParser())\n"
    "deepspeed.initialize(args=parser.parse_args(), model=m%s)\n"
)
BROKEN = '{"train_batch_size": 8, "zero_optimization": {"stage": 2, "stagee": 3}}'

LAUNCHES = {
    "a script": {"run.sh": "deepspeed train.py --deepspeed_config ds.json\n"},
    "a script in another folder": {"scripts/run.sh": "cd ..\ntorchrun --nproc_per_node 8 train.py --deepspeed_config ds.json\n"},
    "a Makefile": {"Makefile": "run:\n\tdeepspeed train.py --deepspeed_config ds.json\n"},
    "a module": {"run.sh": "deepspeed --module pkg.start --deepspeed_config ds.json\n", "pkg/start.py": "import train\n"},
    "python -m": {"run.sh": "python -m pkg.start --deepspeed_config ds.json\n", "pkg/start.py": "import train\n"},
}


@pytest.mark.parametrize("name", LAUNCHES)
def test_the_config_of_a_launch(folder: Folder, name: str) -> None:
    folder.write({"train.py": BY_FLAG % "", "ds.json": BROKEN, **LAUNCHES[name]})
    assert ("DS101", "ds.json", 1) in folder.found("train.py")
    assert folder.results("train.py")["train.py"].not_judged == ()


def test_a_launch_of_another_program_is_not_said_to_launch_the_file(folder: Folder) -> None:
    folder.write({"train.py": BY_FLAG % "", "ds.json": BROKEN, **LAUNCHES["a module"]})
    imported = "a program: run.sh launches pkg/start.py, which imports it, with the DeepSpeed config ds.json."
    assert folder.results("train.py")["train.py"].note == imported
    of_start = "import deepspeed\nimport made\ndeepspeed.initialize(config=made.config, model=m)\n"
    folder.write({"made.py": "config = {'train_batch_size': 8, 'stage': 1}\n", "start.py": of_start, "go.sh": "deepspeed start.py\n"})
    assert folder.results("start.py")["start.py"].note == "a program: go.sh launches it."


def test_a_strategy_in_settings_of_several_programs_is_not_the_config_of_one(folder: Folder) -> None:
    """A program without a trainer of Lightning imports the settings of one that has it, and calls DeepSpeed itself."""
    settings = "from lightning.pytorch.strategies import DeepSpeedStrategy\ntrainer = dict(strategy=DeepSpeedStrategy(stage=3))\nsize = 8\n"
    program = f"import settings\n{BY_FLAG % ''}"
    folder.write(
        {"settings.py": settings, "train.py": program, "ds.json": BROKEN, "run.sh": "deepspeed train.py --deepspeed_config ds.json\n"}
    )
    assert folder.results("train.py")["train.py"].note == "a program: run.sh launches it with the DeepSpeed config ds.json."
    own = "from lightning.pytorch import Trainer\nimport settings\nTrainer(**settings.trainer).fit(model)\n"
    folder.write({"fit.py": own})
    assert folder.results("fit.py")["fit.py"].note == "a program: passes a config written in it to Lightning."


RUNS = 'import subprocess\nsubprocess.run(["deepspeed", "%s", "--deepspeed_config", "ds.json"], check=True)\n'


def _launched(folder: Folder, program: str) -> bool:
    """Whether a launch of the program is found, rather than its config only taken for it."""
    return "launches it with the DeepSpeed config ds.json" in (folder.results(program)[program].note or "")


def test_a_program_that_runs_commands_launches_what_it_names(folder: Folder) -> None:
    """`subprocess.run` does not name `run.py`."""
    folder.write({"run.py": BY_FLAG % "", "ds.json": BROKEN, "go.py": RUNS % "other.py"})
    assert not _launched(folder, "run.py")
    folder.write({"go.py": RUNS % "run.py"})
    assert _launched(folder, "run.py")


def test_a_test_launches_no_training(folder: Folder) -> None:
    """Tests launch programs with configs that are wrong on purpose. A program that is only named like one counts."""
    folder.write({"train.py": BY_FLAG % "", "ds.json": BROKEN, "test_train.py": RUNS % "train.py"})
    assert _launched(folder, "train.py")
    folder.write({"test_train.py": "import pytest\n" + RUNS % "train.py"})
    assert not _launched(folder, "train.py")


def test_every_launch_counts(folder: Folder) -> None:
    launch = "deepspeed train.py --deepspeed_config %s.json\n"
    folder.write({"train.py": BY_FLAG % "", "a.json": BROKEN, "b.json": BROKEN, "run.sh": launch % "a" + launch % "b"})
    assert {path for code, path, _ in folder.found("train.py") if code == "DS101"} == {"a.json", "b.json"}


def test_a_launch_tells_the_ranks_and_flags_of_a_config_in_the_program(folder: Folder) -> None:
    program = (
        "import argparse, deepspeed\nparser = argparse.ArgumentParser()\nparser.add_argument('--micro', type=int, default=4)\n"
        "config = {'train_batch_size': 64, 'gradient_accumulation_steps': 2}\n"
        "config['train_micro_batch_size_per_gpu'] = parser.parse_args().micro\ndeepspeed.initialize(config=config, model=m)\n"
    )
    folder.write({"train.py": program, "run.sh": "deepspeed --num_gpus 8 train.py\n"})
    assert [code for code, path, _ in folder.found("train.py") if path == "train.py" and code.startswith("DS2")] == []
    folder.write({"run.sh": "deepspeed --num_gpus 8 train.py --micro 8\n"})
    assert [code for code, path, _ in folder.found("train.py") if path == "train.py" and code.startswith("DS2")] == ["DS201"]
    result = folder.results("train.py")["train.py"]
    assert result.note == "a program: run.sh launches it."
    assert dict(result.context.evidence)["world_size"].endswith("(run.sh:1)")


def test_facts_of_the_program_count_in_its_launch(folder: Folder) -> None:
    """The optimizer that the program passes replaces the one in the config of its launch."""
    client = "import torch\nopt = torch.optim.AdamW(m.parameters())\n"
    folder.write({"train.py": client + BY_FLAG % ", optimizer=opt", "own.py": BY_FLAG % ""})
    folder.write({"ds.json": '{"train_batch_size": 8, "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}}}'})
    folder.write({"run.sh": "".join(f"deepspeed {name}.py --deepspeed_config ds.json\n" for name in ("train", "own"))})
    assert "DS945" in {code for code, _, _ in folder.found("train.py")} & {code for code, _, _ in folder.found("run.sh")}
    assert "DS945" not in {code for code, _, _ in folder.found("own.py")}


def test_a_module_with_the_config_behind_many_others(folder: Folder) -> None:
    """The program of Megatron-DeepSpeed imports 41 modules before the one that calls DeepSpeed."""
    others = "".join(f"import m{number}\n" for number in range(60))
    folder.write({f"m{number}.py": "SIZE = 1\n" for number in range(60)})
    folder.write({"engine.py": BY_FLAG % "", "train.py": f"{others}import engine\n", "ds.json": BROKEN})
    folder.write({"run.sh": "deepspeed train.py --deepspeed_config ds.json\n"})
    assert ("DS101", "ds.json", 1) in folder.found("engine.py")
    assert folder.results("engine.py")["engine.py"].not_judged == ()


@pytest.mark.parametrize(("above", "imports"), [("", "from parts.m59 import build"), ("parts/", "from .m59 import build")])
def test_a_value_from_a_module_behind_many_others(folder: Folder, above: str, imports: str) -> None:
    """The module is in the project, so that it is not said to be outside of it."""
    others = "".join(f"import parts.m{number}\n" for number in range(50))
    folder.write({f"parts/m{number}.py": "SIZE = 1\n" for number in range(59)} | {"parts/m59.py": "def build():\n    return {}\n"})
    folder.write({f"{above}train.py": f"import deepspeed\n{others}{imports}\ndeepspeed.initialize(model=m, config=build())\n"})
    (reason,) = folder.results(f"{above}train.py")[f"{above}train.py"].not_judged
    assert "parts/m59.py" in reason.reason
    assert "the program has more modules than dslint follows" in reason.reason


def test_a_program_with_many_launches_says_which_are_left_out(folder: Folder) -> None:
    launch = "deepspeed train.py --deepspeed_config ds.json\n"
    folder.write({"train.py": BY_FLAG % "", "ds.json": BROKEN, "run.sh": launch * 12})
    assert folder.results("train.py")["train.py"].not_judged == ()
    folder.write({"run.sh": launch * 14})
    (reason,) = folder.results("train.py")["train.py"].not_judged
    assert "more launches than the 12" in reason.reason
    assert "run.sh:13" in reason.reason
    results = {one.path: one for one in lint_all([Target("train.py", named=True), Target("run.sh", named=True)], Finder(), jobs=1)}
    assert results["train.py"].not_judged == ()  # a run that checks the launches, too, leaves nothing out


def test_a_training_file_with_many_launches_says_which_are_left_out(folder: Folder) -> None:
    training = "stage: sft\nmodel_name_or_path: m\nper_device_train_batch_size: 2\noutput_dir: o\ndeepspeed: ds.json\n"
    folder.write({"train.yaml": training, "ds.json": BROKEN, "run.sh": "llamafactory-cli train train.yaml\n" * 14})
    assert [one.reason for one in folder.results("train.yaml")["train.yaml"].not_judged if "more launches than the 12" in one.reason]


@pytest.mark.parametrize(
    ("importers", "said"), [(20, "dslint found no launch of a program that imports"), (21, "More than 20 programs import")]
)
def test_a_file_that_many_programs_import(folder: Folder, importers: int, said: str) -> None:
    """ "I found none" is said only where all were searched."""
    folder.write({"engine.py": BY_FLAG % ""} | {f"run{number}.py": "import engine\n" for number in range(importers)})
    (reason,) = folder.results("engine.py")["engine.py"].not_judged
    assert said in reason.reason


def test_a_module_of_a_launched_program(folder: Folder) -> None:
    engine = "import deepspeed\ndef start(args):\n    deepspeed.initialize(args=args)\n"
    main = "import argparse, deepspeed, engine\nengine.start(deepspeed.add_config_arguments(argparse.ArgumentParser()).parse_args())\n"
    folder.write({"engine.py": engine, "main.py": main, "ds.json": BROKEN, "run.sh": "deepspeed main.py --deepspeed_config ds.json\n"})
    assert ("DS101", "ds.json", 1) in folder.found("engine.py")


def test_a_module_that_a_program_gives_its_config(folder: Folder) -> None:
    """Without a launch, the arguments of the program that imports it count."""
    engine = "import deepspeed\ndef start(ds):\n    deepspeed.initialize(config=ds)\n"
    folder.write({"engine.py": engine, "main.py": "import engine\nengine.start({'zero_optimization': {'stagee': 3}})\n"})
    assert ("DS101", "main.py", 2) in folder.found("engine.py")


def test_a_program_that_no_script_launches(folder: Folder) -> None:
    folder.write({"train.py": BY_FLAG % "", "ds.json": BROKEN, "run.sh": "deepspeed other_train.py --deepspeed_config ds.json\n"})
    folder.write({"other_train.py": BY_FLAG % ""})
    result = folder.results("train.py")["train.py"]
    assert not result.is_judged
    assert "--deepspeed_config" in result.not_judged[0].reason
    assert not result.diagnostics


def test_a_loop_of_its_own_is_not_the_trainer(folder: Folder) -> None:
    """The program parses the Trainer's arguments, and hands the config to DeepSpeed itself: nothing compares them."""
    head = "import deepspeed\nfrom transformers import HfArgumentParser, Trainer, TrainingArguments\n"
    parse = "args, = HfArgumentParser((TrainingArguments,)).parse_args_into_dataclasses()\n"
    folder.write({"own.py": head + parse + "deepspeed.initialize(config=args.deepspeed, model=m)\n"})
    folder.write({"hf.py": head + parse + "Trainer(model=m, args=args).train()\n"})
    folder.write({"ds.json": '{"train_micro_batch_size_per_gpu": 2, "train_batch_size": "auto"}'})
    flags = "--deepspeed ds.json --per_device_train_batch_size 16\n"
    folder.write({"own.sh": f"deepspeed own.py {flags}", "hf.sh": f"deepspeed hf.py {flags}"})
    assert "DS904" in {code for code, _, _ in folder.found("hf.sh")}
    assert "DS904" not in {code for code, _, _ in folder.found("own.sh")}


def test_a_changed_script_is_read_again(folder: Folder) -> None:
    folder.write({"train.py": BY_FLAG % "", "configs/ds.json": BROKEN, "configs/other_ds.json": BROKEN})
    assert ("DS654", "configs/other_ds.json", 1) in folder.found("train.py")
    folder.write({"run.sh": "deepspeed train.py --deepspeed_config configs/ds.json\n"})
    assert "configs/other_ds.json" not in {path for _, path, _ in folder.found("train.py")}


def test_flags_of_a_launch_say_what_an_unknown_function_does(folder: Folder) -> None:
    """DeepSpeed-Chat's function builds the config from the stage; the program adds the batch size."""
    program = (
        "import argparse, deepspeed\nfrom elsewhere import get_train_ds_config, model\nparser = argparse.ArgumentParser()\n"
        "parser.add_argument('--zero_stage', type=int, default=0)\nargs = parser.parse_args()\n"
        "ds = get_train_ds_config(args.zero_stage)\nds['train_micro_batch_size_per_gpu'] = 4\ndeepspeed.initialize(model=model, config=ds)\n"
    )
    folder.write({"main.py": program, "run.sh": "deepspeed --num_gpus 1 main.py --deepspeed --zero_stage 3 --data_split 2,4,4\n"})
    assert {code for code, _, _ in folder.found("run.sh")} == {"DS409"}
    assert {code for code, _, _ in folder.found("main.py")} == set()


def test_a_launch_completes_what_the_program_leaves_open(folder: Folder) -> None:
    """The default of the flag names no file; the script gives one. A launch of the same name without DeepSpeed is another program."""
    program = (
        "import argparse, deepspeed\nfrom omegaconf import OmegaConf\np = argparse.ArgumentParser()\n"
        "p.add_argument('--cfg', default='none.yaml')\ncfg = OmegaConf.load(p.parse_args().cfg)\n"
        "deepspeed.initialize(config={'zero_optimization': cfg.zero})\n"
    )
    folder.write(
        {"a/train.py": program, "train.py": "", "c.yaml": "zero:\n  stagee: 3\n", "a/runs/run.sh": "deepspeed train.py --cfg c.yaml\n"}
    )
    result = folder.results("a/train.py")["a/train.py"]
    assert result.not_judged == ()
    assert ("DS101", "c.yaml", 2) in folder.found("a/train.py")


CHANGES = {
    "dataclass": "from dataclasses import dataclass\nfrom transformers import HfArgumentParser\n@dataclass\nclass A:\n    deepspeed: str = None\n"
    "args, = HfArgumentParser((A,)).parse_args_into_dataclasses()\n",
    "elsewhere": "from elsewhere import get_args\nargs = get_args()\n",
}


@pytest.mark.parametrize("name", CHANGES)
def test_a_program_changes_the_config_that_its_launch_names(folder: Folder, name: str) -> None:
    change = "with open(args.deepspeed) as f:\n    ds = json.load(f)\nds['train_batch_size'] = 8\ndeepspeed.initialize(config=ds)\n"
    folder.write({"train.py": "import deepspeed, json\n" + CHANGES[name] + change})
    folder.write({"ds.json": '{"train_batch_size": "auto", "zero_optimization": {"stagee": 3}}'})
    folder.write({"run.sh": "deepspeed train.py --deepspeed ds.json\n"})
    assert {code for code, _, _ in folder.found("run.sh")} & {"DS902", "DS101"} == {"DS101"}


def test_flags_of_training_arguments_have_their_types(folder: Folder) -> None:
    program = (
        "import deepspeed\nfrom transformers import HfArgumentParser, TrainingArguments\n"
        "args, = HfArgumentParser((TrainingArguments,)).parse_args_into_dataclasses()\n"
        "ds = {'train_micro_batch_size_per_gpu': args.per_device_train_batch_size, 'train_batch_size': 12}\ndeepspeed.initialize(config=ds)\n"
    )
    folder.write({"train.py": program})
    launch = "deepspeed --num_gpus 1 train.py --per_device_train_batch_size %d\n"
    folder.write({"bad.sh": launch % 24, "good.sh": launch % 12})
    assert "DS201" in {code for code, _, _ in folder.found("bad.sh")}
    assert "DS201" not in {code for code, _, _ in folder.found("good.sh")}


def test_a_device_map_that_a_flag_does_not_choose(folder: Folder) -> None:
    program = (
        "import argparse\nfrom transformers import AutoModelForCausalLM, Trainer, TrainingArguments\np = argparse.ArgumentParser()\n"
        "p.add_argument('--int8', action='store_true')\nif p.parse_args().int8:\n"
        "    m = AutoModelForCausalLM.from_pretrained('m', device_map='auto')\nelse:\n    m = own()\n"
        "Trainer(model=m, args=TrainingArguments(deepspeed='ds.json'))\n"
    )
    folder.write({"train.py": program, "ds.json": '{"train_batch_size": "auto", "zero_optimization": {"stage": 3}}'})
    assert "DS957" not in {code for code, _, _ in folder.found("train.py")}
    folder.write({"run.sh": "deepspeed train.py --int8\n"})
    assert "DS957" in {code for code, _, _ in folder.found("run.sh")}


def test_the_only_config_in_the_folder_of_a_program_that_takes_it_from_a_flag(folder: Folder) -> None:
    program = (
        "import argparse, deepspeed\np = deepspeed.add_config_arguments(argparse.ArgumentParser())\n"
        "deepspeed.initialize(args=p.parse_args(), model=m, optimizer=o)\n"
    )
    folder.write({"train.py": program, "ds.json": '{"zero_optimization": {"stagee": 2}}', "other.json": '{"name": "tokenizer"}'})
    assert ("DS101", "ds.json", 1) in folder.found("train.py")
    result = folder.results("train.py")["train.py"]
    assert result.not_judged == ()
    assert "ds.json, the only one in its folder" in str(result.note)
    folder.write({"second.json": '{"zero_optimization": {"stage": 2}}'})
    assert "--deepspeed_config" in folder.results("train.py")["train.py"].not_judged[0].reason
    folder.write({"run.sh": "deepspeed train.py --deepspeed_config second.json\n"})
    assert "DS101" not in {code for code, _, _ in folder.found("train.py")}


TWICE = "deepspeed train.py --deepspeed_config ds.json\n"


@pytest.mark.parametrize(
    ("arguments", "run", "codes"),
    [
        (", config={'train_batch_size': 8}", TWICE, ["DS959"]),
        (", config=args.deepspeed_config", TWICE, ["DS959"]),
        ("", TWICE, []),
        (", config={'train_batch_size': 8}", "deepspeed train.py\n", []),
        (", config=None if args.deepspeed_config else {'train_batch_size': 8}", TWICE, []),
    ],
)
def test_a_config_that_is_passed_twice(folder: Folder, arguments: str, run: str, codes: list[str]) -> None:
    program = BY_FLAG.replace("deepspeed.initialize(args=parser.parse_args()", "args = parser.parse_args()\ndeepspeed.initialize(args=args")
    folder.write({"train.py": program % arguments, "ds.json": '{"train_batch_size": 8}', "run.sh": run})
    assert [code for code, _, _ in folder.found("run.sh") if code == "DS959"] == codes
    (folder.path / "ds.json").unlink()
    without = {code for code, _, _ in folder.found("run.sh")} & {"DS919", "DS959"}
    assert without == (set(codes) or ({"DS919"} if run == TWICE else set()))  # DeepSpeed raises before it looks for the file


@pytest.mark.deepspeed
def test_deepspeed_raises_for_a_config_that_is_passed_twice(tmp_path: Path) -> None:
    pytest.importorskip("deepspeed")
    (tmp_path / "ds.json").write_text('{"train_batch_size": 1}')
    # Without the stand-in DeepSpeed compiles an extension first, and waits for ever for a lock that a killed build has left.
    program = (
        "import torch\nimport deepspeed.comm.torch as backend\nbackend.build_shm_op = lambda: None\nm = torch.nn.Linear(1, 1)\n"
        + BY_FLAG % ", config={'train_batch_size': 1}"
    )
    (tmp_path / "train.py").write_text(program)
    ranks = {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "0", "DS_ACCELERATOR": "cpu"}
    command = [sys.executable, "train.py", "--deepspeed_config", "ds.json"]
    run = subprocess.run(command, cwd=tmp_path, env=os.environ | ranks, capture_output=True, text=True, check=False, timeout=300)
    assert "Not sure how to proceed, we were given deepspeed configs in the deepspeed arguments" in run.stderr


DEFINED = (
    "def get_ds_config(stage=2, size=8):\n"
    "    return {'zero_optimization': {'stage': stage, 'zero_hpz_partition_size': size, 'reduce_bucket_size': 'auto'},\n"
    "        'fp16': {'enabled': True, 'opt_level': 'O2'}}\n"
)


def test_a_definition_is_not_judged_by_the_defaults_of_its_arguments(folder: Folder) -> None:
    """What calls the function may pass another stage, and add the batch size."""
    folder.write({"ds_utils.py": DEFINED})
    assert {code for code, _, _ in folder.found("ds_utils.py")} == {"DS101"}
    assert folder.results("ds_utils.py")["ds_utils.py"].not_judged == ()


def test_what_uses_a_definition_says_more_than_the_definition(folder: Folder) -> None:
    start = "import deepspeed\nfrom ds_utils import get_ds_config\nds = get_ds_config(3)\nds['train_batch_size'] = 8\n"
    folder.write({"ds_utils.py": DEFINED, "train.py": start + "deepspeed.initialize(model=m, config=ds)\n"})
    found = [(code, path) for code, path, _ in folder.found("ds_utils.py", "train.py") if path == "ds_utils.py"]
    assert sorted(found) == [("DS101", "ds_utils.py"), ("DS901", "ds_utils.py")]


def test_a_program_changes_the_config_that_accelerate_launch_gives(folder: Folder) -> None:
    files = {
        "ds.json": '{"zero_optimization": {"stage": 2}}',
        "accelerate.yaml": "distributed_type: DEEPSPEED\nnum_processes: 2\ndeepspeed_config:\n  deepspeed_config_file: ds.json\n",
        "run.sh": "accelerate launch --config_file accelerate.yaml train.py\n",
    }
    program = "from accelerate import Accelerator, DistributedType\naccelerator = Accelerator()\n"
    change = "accelerator.state.deepspeed_plugin.deepspeed_config['train_micro_batch_size_per_gpu'] = args.n\n"
    said = []
    for rest in ("", f"if accelerator.distributed_type == DistributedType.DEEPSPEED:\n    {change}"):
        folder.write({**files, "train.py": program + rest})
        said.append("DS204" in {code for code, _, _ in folder.found("run.sh")})
    assert said == [True, False]


STARTED = BY_FLAG % ""
WRONG_ON_16 = '{"train_batch_size": 72, "train_micro_batch_size_per_gpu": 4}'
ON_16 = "--deepspeed_config ds.json"
AZURE = (
    "$schema: https://azuremlschemas.azureedge.net/latest/commandJob.schema.json\ncode: src\ncommand: %s\n"
    "environment: azureml:deepspeed@latest\ncompute: azureml:gpu\ndistribution: {type: pytorch, process_count_per_instance: 8}\n"
    "resources: {instance_count: 2}\n"
)
SKY = "name: deepspeed\nworkdir: src\nresources: {accelerators: A100:16}\nrun: |\n  %s\n"


def notebook(*cells: str) -> str:
    return json.dumps({"cells": [{"cell_type": "code", "source": [cell]} for cell in cells], "nbformat": 4})


REACHING = {
    "a path": {"run.sh": f"torchrun --nproc_per_node 16 grpo.py {ON_16}\n"},
    "a module": {"run.sh": f"torchrun --nproc_per_node 16 -m grpo {ON_16}\n"},
    "a module of DeepSpeed's launcher": {"run.sh": f"deepspeed --num_gpus 16 --module grpo {ON_16}\n"},
    "a variable": {"run.sh": f"NAME=grpo\ntorchrun --nproc_per_node 16 $NAME.py {ON_16}\n"},
    "a makefile": {"Makefile": f"train:\n\ttorchrun --nproc_per_node 16 -m grpo {ON_16}\n"},
    "a notebook": {"start.ipynb": notebook(f"!deepspeed --num_gpus 16 grpo.py {ON_16}")},
    "a program": {"start.py": f"import subprocess\nsubprocess.run('torchrun --nproc_per_node 16 grpo.py {ON_16}', shell=True)\n"},
    "a job in the folder of its code": {"job.yml": AZURE % f"python grpo.py {ON_16}"},
    "a job with a working directory": {"job.yaml": SKY % f"torchrun --nproc_per_node 16 grpo.py {ON_16}"},
}


@pytest.mark.parametrize("way", REACHING)
@pytest.mark.parametrize("named", ["grpo.py", "ds.json", "the launch"])
def test_a_launch_counts_for_whatever_it_reaches(folder: Folder, way: str, named: str) -> None:
    below = "src/" if "src" in "".join(REACHING[way].values()) else ""
    folder.write({f"{below}grpo.py": STARTED, f"{below}ds.json": WRONG_ON_16, **REACHING[way]})
    name = next(iter(REACHING[way])) if named == "the launch" else below + named
    assert ("DS201", f"{below}ds.json") in {(code, path) for code, path, _ in folder.found(name)}


@pytest.mark.parametrize("text", ["echo grpo\n", "torchrun --nproc_per_node 16 -m other.grpo2 --deepspeed_config ds.json\n"])
def test_a_script_that_only_names_a_program_launches_it_not(folder: Folder, text: str) -> None:
    folder.write({"grpo.py": STARTED, "ds.json": WRONG_ON_16, "run.sh": text})
    result = folder.results("grpo.py")["grpo.py"]
    assert "launches it" not in (result.note or "")
    assert result.context.facts.world_size is None


def test_a_launch_with_a_missing_config_is_a_launch(folder: Folder) -> None:
    folder.write({"train.py": BY_FLAG % "", "run.sh": "deepspeed train.py --deepspeed_config ds.json\n", "conf/ds.json": "{}"})
    (reason,) = folder.results("train.py")["train.py"].not_judged
    assert "No launch" not in reason.reason
    assert "run.sh:1 launches it: the DeepSpeed config is ds.json, which does not exist; conf/ds.json has its name." in reason.reason
    (found,) = [one for one in folder.results("run.sh")["run.sh"].diagnostics if one.code == "DS919"]
    assert (found.help or "").startswith("Did you mean conf/ds.json? ")


def test_the_flags_of_an_own_parser_are_not_the_trainers(folder: Folder) -> None:
    program = (
        'import argparse\nparser = argparse.ArgumentParser()\nparser.add_argument("--deepspeed")\n'
        'parser.add_argument("--gradient_accumulation_steps")\nparser.add_argument("--local_rank")\n'
        "args = parser.parse_args()\nserve(args)\n"
    )
    config = '{"train_micro_batch_size_per_gpu": 1, "gradient_accumulation_steps": 1, "zero_optimization": {"stage": 2}}'
    folder.write({"run.sh": "deepspeed serve.py --deepspeed ds.json --gradient_accumulation_steps 4\n", "ds.json": config})
    assert "DS904" in [code for code, *_ in folder.found("run.sh")]  # the program is not there: the flags are the Trainer's
    folder.write({"serve.py": program})
    assert folder.found("run.sh") == []
    folder.write({"serve.py": program.replace("serve(args)", "Trainer(args)")})
    assert "DS904" in [code for code, *_ in folder.found("run.sh")]


@pytest.mark.parametrize(
    ("statement", "differs"),
    [
        ("args.run_name = 'x'", True),
        ("if flag():\n    args.run_name = 'x'", True),
        ("args.per_device_train_batch_size = 2", True),  # too late: the arguments have compared their flags
        ("args.per_device_train_batch_size = 4", True),
        ("args.per_device_train_batch_size = size()", True),
        ("args.per_device_train_batch_size = 2\nargs.__post_init__()", False),
        ("args.deepspeed = 'ds.json'", True),
        ("args.auto_find_batch_size = True", False),
        ("args = dataclasses.replace(args, per_device_train_batch_size=2)", False),
        ("args = dataclasses.replace(args, per_device_train_batch_size=4)", True),
        ("if flag():\n    args.per_device_train_batch_size = 4", True),
    ],
)
def test_a_program_that_sets_one_of_its_arguments_keeps_the_flags_of_the_others(folder: Folder, statement: str, *, differs: bool) -> None:
    parse = "import dataclasses\nfrom transformers import HfArgumentParser, Trainer, TrainingArguments\nargs, = HfArgumentParser(TrainingArguments)"
    folder.write({"hf.py": f"{parse}.parse_args_into_dataclasses()\n{statement}\nTrainer(model=m, args=args).train()\n"})
    folder.write({"ds.json": '{"train_micro_batch_size_per_gpu": 2, "train_batch_size": "auto"}'})
    folder.write({"hf.sh": "deepspeed hf.py --deepspeed ds.json --per_device_train_batch_size 16\n"})
    assert ("DS904" in {code for code, _, _ in folder.found("hf.sh")}) is differs


@pytest.mark.parametrize(
    ("keywords", "statement", "said"),
    [
        ("deepspeed='ds.json', per_device_train_batch_size=4", "args.per_device_train_batch_size = 2", None),
        ("deepspeed='ds.json', per_device_train_batch_size=8", "args.per_device_train_batch_size = 4\nargs.__post_init__()", None),
        ("per_device_train_batch_size=8", "args.deepspeed = 'ds.json'", None),
        ("deepspeed='ds.json', per_device_train_batch_size=2", "args.per_device_train_batch_size = 4", "2 from train.py:2"),
        (
            "deepspeed='ds.json'",
            "args.per_device_train_batch_size = 4",
            "train.py:3 sets per_device_train_batch_size when the arguments are made",
        ),
        ("deepspeed='ds.json', per_device_train_batch_size=4", "args.warmup_steps = 9", "9 from train.py:3"),
    ],
)
def test_the_trainer_compares_what_its_arguments_are_made_with(folder: Folder, keywords: str, statement: str, said: str | None) -> None:
    parts = ("from transformers import Trainer, TrainingArguments", f"args = TrainingArguments('o', {keywords})", statement)
    folder.write({"train.py": "\n".join([*parts, "Trainer(model=m, args=args).train()\n"])})
    scheduler = '"scheduler": {"type": "WarmupLR", "params": {"warmup_num_steps": 5}}' if "warmup" in statement else '"steps_per_print": 1'
    folder.write({"ds.json": f'{{"train_micro_batch_size_per_gpu": 4, "train_batch_size": "auto", {scheduler}}}'})
    found = [one.message for one in folder.diagnostics("train.py") if one.code == "DS904"]
    assert [said in one for one in found] == [True] if said else found == []


@pytest.mark.parametrize(
    ("statement", "micro", "warmup"),
    [
        ("args.per_device_train_batch_size = 2", 16, 3),
        ("name = 'a,b'.replace(',', '-')\nargs.per_device_train_batch_size = 2", 16, 3),
        ("args.per_device_train_batch_size = 2\nargs = dataclasses.replace(args, **more())", None, None),
        ("args.auto_find_batch_size, args.per_device_train_batch_size = True, 2", 2, 3),
        ("args.warmup_steps = 9", 16, 9),
    ],
)
def test_auto_is_filled_from_what_the_arguments_are_made_with(
    folder: Folder, statement: str, micro: int | None, warmup: int | None
) -> None:
    parse = "import dataclasses\nfrom transformers import HfArgumentParser, Trainer, TrainingArguments\nargs, = HfArgumentParser(TrainingArguments)"
    folder.write({"hf.py": f"{parse}.parse_args_into_dataclasses()\n{statement}\nTrainer(model=m, args=args).train()\n"})
    scheduler = '{"type": "WarmupLR", "params": {"warmup_num_steps": "auto"}}'
    folder.write({"ds.json": f'{{"train_micro_batch_size_per_gpu": "auto", "scheduler": {scheduler}}}'})
    folder.write({"hf.sh": "deepspeed hf.py --deepspeed ds.json --per_device_train_batch_size 16 --warmup_steps 3\n"})
    shown = json.loads(CliRunner().invoke(cli, ["show", "hf.sh", "--output-format", "json"]).stdout)
    values = {".".join(one["path"]): one["value"] for one in shown["keys"]}
    assert (values["train_micro_batch_size_per_gpu"], values["scheduler.params.warmup_num_steps"]) == (micro, warmup)


@pytest.mark.parametrize(("statement", "certain"), [("self.per_device_train_batch_size = 4", False), ("self.fp16 = False", True)])
@pytest.mark.parametrize("launched", [False, True])
def test_a_class_may_set_an_argument_before_the_trainer_compares_it(
    folder: Folder, statement: str, *, certain: bool, launched: bool
) -> None:
    parsed = "(args,) = HfArgumentParser((Own,)).parse_args_into_dataclasses()"
    made = parsed if launched else "args = Own(output_dir='o', deepspeed='ds.json', per_device_train_batch_size=2)"
    program = (
        "from dataclasses import dataclass\nfrom transformers import HfArgumentParser, Trainer, TrainingArguments\n"
        f"@dataclass\nclass Own(TrainingArguments):\n    def __post_init__(self):\n        {statement}\n        super().__post_init__()\n"
        f"{made}\n"
        "Trainer(model=m, args=args).train()\n"
    )
    folder.write({"train.py": program, "ds.json": '{"train_micro_batch_size_per_gpu": 4, "train_batch_size": "auto"}'})
    folder.write({"run.sh": "deepspeed train.py --deepspeed ds.json --per_device_train_batch_size 2\n"} if launched else {})
    found = [one.certain for one in folder.diagnostics("run.sh" if launched else "train.py") if one.code == "DS904"]
    assert found == [certain]


def test_a_trial_on_one_gpu_is_small_on_purpose(folder: Folder) -> None:
    config = '{"train_micro_batch_size_per_gpu": 4, "zero_optimization": {"stage": 3}}'
    folder.write({"train.py": "import deepspeed\ndeepspeed.initialize(model=m, config='ds.json')\n", "ds.json": config})
    for name, pedantic in (("run.sh", False), ("run_debug.sh", True), ("examples/run.sh", True), ("run_latest.sh", False)):
        folder.write(
            {
                name: "deepspeed --num_gpus 1 train.py\n",
                "examples/train.py": (folder.path / "train.py").read_text(),
                "examples/ds.json": config,
            }
        )
        (found,) = (one for one in folder.diagnostics(name) if one.code == "DS409")
        assert found.pedantic is pedantic, name
    folder.write({"run_lib.sh": "deepspeed --num_gpus 1 lib/examples/train.py\n"})
    folder.write({"lib/examples/train.py": (folder.path / "train.py").read_text()})
    (found,) = (one for one in folder.diagnostics("run_lib.sh") if one.code == "DS409")
    assert not found.pedantic  # a script of a person starts an example of a library


def test_another_launch_on_more_gpus_contradicts_what_is_slow_on_one(folder: Folder) -> None:
    config = '{"train_micro_batch_size_per_gpu": 4, "zero_optimization": {"stage": 3}}'
    folder.write({"train.py": "import deepspeed\ndeepspeed.initialize(model=m, config='ds.json')\n", "ds.json": config})
    for launches, expected in ((["1"], {"DS409"}), (["1", "8"], set()), (["1", "1"], {"DS409"})):
        folder.write({"run.sh": "".join(f"deepspeed --num_gpus {number} train.py\n" for number in launches)})
        assert {one.code for one in folder.results("run.sh")["ds.json"].diagnostics} & {"DS409"} == expected


def test_a_plugin_that_no_accelerator_gets_gives_no_config(folder: Folder) -> None:
    program = (
        "import torch\nfrom accelerate import Accelerator, DeepSpeedPlugin\n"
        "plugin = DeepSpeedPlugin(hf_ds_config={'train_micro_batch_size_per_gpu': 4, 'optimizer': {'type': 'Adam', 'params': {'lr': 1}}})\n"
        "accelerator = Accelerator(%s)\naccelerator.prepare(model, torch.optim.AdamW(model.parameters()))\n"
    )
    for given, expected in (("mixed_precision='bf16'", False), ("deepspeed_plugin=plugin", True), ("**{'deepspeed_plugin': plugin}", True)):
        folder.write({"train.py": program % given})
        assert ("DS926" in {code for code, _, _ in folder.found("train.py")}) is expected


def test_a_launch_above_gives_a_training_file_deepspeed(folder: Folder) -> None:
    """The training file names no config: the Accelerate file of its launch selects DeepSpeed."""
    folder.write(
        {
            "run.sh": "accelerate launch --config_file cfg/acc.yaml train.py cfg/train.yaml\n",
            "cfg/acc.yaml": "distributed_type: DEEPSPEED\nnum_processes: 2\nmixed_precision: bf16\ndeepspeed_config:\n  zero_stage: 3\n",
            "cfg/train.yaml": "output_dir: out\nper_device_train_batch_size: 2\nmodel_name_or_path: m\nbf16: true\nload_in_8bit: true\n"
            "learning_rate: 1e-4\n",
            "train.py": "from trl import ModelConfig, SFTConfig, SFTTrainer, TrlParser\n"
            "args, model = TrlParser((SFTConfig, ModelConfig)).parse_args_and_config()\nSFTTrainer(model.model_name_or_path, args=args)\n",
        }
    )
    assert "DS947" in {code for code, _, _ in folder.found("run.sh")}
    assert set(folder.found("cfg/train.yaml")) == set(folder.found("run.sh"))
    assert folder.results("cfg/train.yaml")["cfg/train.yaml"].note == "training arguments, which run.sh launches with DeepSpeed."


def test_a_launch_gives_an_accelerate_file_deepspeed(folder: Folder) -> None:
    folder.write(
        {
            "run.sh": "accelerate launch --config_file acc.yaml --use_deepspeed --deepspeed_config_file ds.json train.py\n",
            "acc.yaml": "compute_environment: LOCAL_MACHINE\ndistributed_type: MULTI_GPU\nnum_processes: 8\nmixed_precision: bf16\n",
            "ds.json": '{"train_micro_batch_size_per_gpu": 1}',
            "train.py": "from accelerate import Accelerator\naccelerator = Accelerator()\n",
        }
    )
    result = folder.results("acc.yaml")["acc.yaml"]
    assert (result.kind, result.note) == (FileKind.ACCELERATE, "an Accelerate config, which run.sh launches with DeepSpeed.")
    assert "DS911" in {one.code for one in result.diagnostics}


CHOOSES = (
    "import torch\nfrom accelerate import Accelerator\nfrom accelerate.utils import DummyOptim, DummyScheduler\n"
    "accelerator = Accelerator()\n%splugin = accelerator.state.deepspeed_plugin\n"
    "kind = torch.optim.AdamW if plugin is None or 'optimizer' not in plugin.deepspeed_config else DummyOptim\n"
    "optimizer = kind(model.parameters(), lr=1e-4)\n"
    "use_dummy = plugin is not None and 'scheduler' %s plugin.deepspeed_config\n"
    "if use_dummy:\n    schedule = DummyScheduler(optimizer)\n"
    "else:\n    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, rate)\n"
    "accelerator.prepare(model, optimizer, loader, schedule)\n"
)
BOTH_SECTIONS = (
    '{"optimizer": {"type": "AdamW", "params": {"lr": 1e-4}}, "scheduler": {"type": "WarmupLR"}, "train_micro_batch_size_per_gpu": 1}'
)
OF_PLUGIN = "accelerator.state.deepspeed_plugin.deepspeed_config"


@pytest.mark.parametrize(
    ("config", "before", "word", "expected"),
    [
        ("{}", "", "in", ""),
        ("{}", "", "not in", "prepares a DummyScheduler, and the config has no scheduler"),
        ("{}", f"{OF_PLUGIN}['scheduler'] = given()\n", "not in", ""),
        (BOTH_SECTIONS, "", "in", ""),
        (BOTH_SECTIONS, "", "not in", "The config has a scheduler, and train.py:13 prepares another one"),
        (BOTH_SECTIONS, f"if late:\n    del {OF_PLUGIN}['scheduler']\n", "not in", ""),
        (BOTH_SECTIONS, f"{OF_PLUGIN}.update(more())\n", "not in", ""),
        ("{}", f"{OF_PLUGIN}.update(more())\n", "not in", ""),
    ],
)
def test_the_config_of_a_launch_decides_which_objects_a_program_prepares(
    folder: Folder, config: str, before: str, word: str, expected: str
) -> None:
    """`accelerator.state.deepspeed_plugin` holds the config, and programs ask it which sections there are."""
    folder.write({"train.py": CHOOSES % (before, word), "ds.json": config})
    block = "  deepspeed_config_file: ds.json\n" if config != "{}" else "  zero_stage: 2\n"
    folder.write({"acc.yaml": f"distributed_type: DEEPSPEED\nnum_processes: 2\nmixed_precision: 'no'\ndeepspeed_config:\n{block}"})
    folder.write({"run.sh": "accelerate launch --config_file acc.yaml train.py\n"})
    found = [one.message for one in folder.diagnostics("run.sh") if one.code == "DS926"]
    assert len(found) == bool(expected), found
    assert not expected or expected in found[0]


@pytest.mark.parametrize(("writes", "severity"), [("", "error"), ("json.dump({}, open(args.deepspeed_config, 'w'))\n", "warning")])
def test_a_config_that_the_program_may_write_is_not_missing_for_certain(folder: Folder, writes: str, severity: str) -> None:
    head = (
        "import argparse, deepspeed, json\nparser = deepspeed.add_config_arguments(argparse.ArgumentParser())\nargs = parser.parse_args()\n"
    )
    folder.write({"train.py": f"{head}{writes}deepspeed.initialize(args=args, model=m)\n"})
    folder.write({"run.sh": "torchrun train.py --deepspeed_config ds.json\n"})
    assert [one.severity for one in folder.diagnostics("run.sh") if one.code == "DS919"] == [severity]


@pytest.mark.parametrize(("writes", "is_found"), [("", True), ("scontrol show hostnames | sed 's/$/ slots=8/' > /job/hostfile\n", False)])
def test_a_script_may_write_the_hostfile_of_the_launcher(folder: Folder, writes: str, *, is_found: bool) -> None:
    folder.write({"run.sh": f"{writes}deepspeed --num_nodes 2 --num_gpus 8 train.py --deepspeed_config ds.json\n"})
    folder.write({"ds.json": '{"train_micro_batch_size_per_gpu": 2}', "train.py": BY_FLAG % ""})
    assert ("DS954" in {one.code for one in folder.diagnostics("run.sh")}) == is_found


MEGATRON = {
    "pretrain.py": "import deepspeed\nfrom megatron.start import pretrain\nif __name__ == '__main__':\n    pretrain()\n",
    "megatron/arguments.py": "import argparse\ndef parse_args(extra=None, ignore=False):\n    parser = argparse.ArgumentParser(allow_abbrev=False)\n"
    "    parser = extra(parser) if extra else parser\n    parser.add_argument(%s, type=int, default=None)\n"
    "    return parser.parse_known_args()[0] if ignore else parser.parse_args()\n",
}


@pytest.mark.parametrize(
    ("flags", "launch", "found"),
    [
        ("'--local-rank'", "deepspeed --num_gpus 8", True),
        ("'--local_rank'", "deepspeed --num_gpus 8", False),
        ("'--local-rank', '--local_rank'", "deepspeed --num_gpus 8", False),
        ("'--local-rank'", "deepspeed --no_local_rank --num_gpus 8", False),
        ("'--local-rank'", "torchrun --nproc_per_node 8", False),
    ],
)
def test_the_rank_and_a_parser_in_another_file(folder: Folder, flags: str, launch: str, *, found: bool) -> None:
    files = {name: text % flags if "%" in text else text for name, text in MEGATRON.items()}
    folder.write({**files, "ds.json": BROKEN, "run.sh": f"{launch} pretrain.py --deepspeed_config ds.json\n"})
    messages = [one.message for one in folder.diagnostics("run.sh") if one.code == "DS973"]
    assert ["megatron/arguments.py:5 adds only --local-rank" in one for one in messages] == [True] * found


def test_a_package_that_is_not_imported_parses_nothing(folder: Folder) -> None:
    files = {"pretrain.py": "import deepspeed\nfrom other import pretrain\npretrain()\n"}
    files["megatron/arguments.py"] = MEGATRON["megatron/arguments.py"] % "'--local-rank'"
    folder.write({**files, "ds.json": BROKEN, "run.sh": "deepspeed --num_gpus 8 pretrain.py --deepspeed_config ds.json\n"})
    assert "DS973" not in [code for code, _, _ in folder.found("run.sh")]


_FLAGS = (
    "import argparse\nimport deepspeed\nparser = argparse.ArgumentParser()\n"
    "parser.add_argument('--local_rank', type=int)\nparser.add_argument('--a', type=int)\nparser.add_argument('--b', type=int)\n"
    "parser.add_argument('--c', required=True)\nargs = parser.parse_args()\ndeepspeed.initialize(model=m, optimizer=o, config='ds.json')\n"
)


@pytest.mark.parametrize("flags", ["--zz --b x --a", "--a --b x", "--zz", "--b 1 --zz", "--c 1 --zz --b x", "--c 1 --zz --yy"])
def test_argparse_ends_with_its_first_error(folder: Folder, flags: str, capsys: pytest.CaptureFixture[str]) -> None:
    """A report names one error as the one that ends each rank; those behind it come once it is corrected."""
    folder.write({"train.py": _FLAGS, "ds.json": '{"train_batch_size": 8}', "run.sh": f"torchrun --nproc_per_node 2 train.py {flags}\n"})
    found = [one.message for one in folder.diagnostics("run.sh") if one.code == "DS973"]
    parser = ArgumentParser()
    for name in ("--local_rank", "--a", "--b"):
        parser.add_argument(name, type=int)
    parser.add_argument("--c", required=True)
    with pytest.raises(SystemExit):
        parser.parse_args(flags.split())
    said = capsys.readouterr().err.rpartition("error: ")[2].strip()
    first = [one for one in found if "once the error before it is corrected" not in one]
    assert all(said.startswith(one.rpartition('"error: ')[2].rstrip('".')[:30].split(" --")[0]) for one in first)
    assert first
    assert len(first) == 1 or said.startswith("unrecognized")


@pytest.mark.parametrize(("flags", "severity"), [("--model m", "warning"), ("--output_dir o --do_train", "error")])
def test_a_program_that_nobody_sees_may_add_a_batch_size(folder: Folder, flags: str, severity: str) -> None:
    """A program with a parser of its own may have the Trainer's flag --deepspeed for a config, too."""
    folder.write({"ds.json": '{"zero_optimization": {"stage": 2}}', "run.sh": f"deepspeed gone.py --deepspeed ds.json {flags}\n"})
    assert [one.severity.value for one in folder.diagnostics("run.sh") if one.code == "DS204"] == [severity]


@pytest.mark.parametrize(
    ("config", "keys"),
    [
        ('{"train_micro_batch_size_per_gpu": 16, "gradient_accumulation_steps": 4}', ["accumulation_steps", "micro_batch_size_per_gpu"]),
        ('{"train_micro_batch_size_per_gpu": 8, "gradient_accumulation_steps": 1}', []),
        ('{"train_batch_size": "auto", "gradient_clipping": 0.5}', ["clipping"]),
        ('{"train_batch_size": "auto", "gradient_clipping": 1.0}', []),
        ('{"train_batch_size": "auto", "optimizer": {"type": "AdamW", "params": {"lr": 2e-5, "eps": 1e-6}}}', []),  # often redefined
    ],
)
def test_an_argument_that_a_launch_leaves_out_has_its_default(folder: Folder, config: str, keys: list[str]) -> None:
    folder.write(
        {"ds.json": config, "run.sh": "deepspeed absent.py --deepspeed ds.json --do_train --num_train_epochs 2 --output_dir out\n"}
    )
    found = [one for one in folder.diagnostics("run.sh") if one.code == "DS904" and one.severity is not Severity.INFO]
    named = ("accumulation_steps", "micro_batch_size_per_gpu", "clipping")
    assert sorted(key for key in named for one in found if key in one.message.partition(" is ")[0]) == keys
    assert not any(one.certain for one in found)  # the program, which is not there, may have a default of its own
    folder.write({"run.sh": "deepspeed absent.py --deepspeed ds.json --model_name_or_path m --output_dir out\n"})  # it may not train
    assert [one for one in folder.diagnostics("run.sh") if one.code == "DS904" and one.severity is not Severity.INFO] == []
