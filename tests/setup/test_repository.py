"""`dslint check .` on a repository: programs and scripts are read, linked with their configs, and used as evidence."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

from dslint.cli import cli
from dslint.config.context import Context
from dslint.facts import Facts, Integration, find_release
from dslint.setups.graph import contexts_of
from tests.setup.folder import Folder

CONFIG = '{"train_batch_size": "auto", "gradient_accumulation_steps": 4,\n"zero_optimization": {"stage": 2}}'
TRAINER = (
    "from transformers import TrainingArguments\nTrainingArguments(output_dir='o', deepspeed='ds.json', gradient_accumulation_steps=2)\n"
)
PLAIN = "import deepspeed\ndeepspeed.initialize(model=m, config='ds.json')\n"
SCRIPT = "torchrun --nproc_per_node 8 train.py --deepspeed ds.json --gradient_accumulation_steps 2\n"


def checked(*arguments: str) -> dict[str, list[str]]:
    """The codes of the findings in each file that is reported."""
    result = CliRunner().invoke(cli, ["check", *arguments, "--output-format", "json", "--deepspeed", "0.19.8"])
    assert result.exit_code in (0, 1), result.output
    data = json.loads(result.stdout)
    found: dict[str, list[str]] = {file["path"]: [] for file in data["files"]}
    for diagnostic in data["diagnostics"]:
        found[diagnostic["path"]].append(diagnostic["code"])
    return found


@pytest.mark.parametrize(
    ("name", "text"), [("run.sh", SCRIPT), ("main.py", TRAINER), ("jobs/go.bash", SCRIPT), ("Makefile", "train:\n\t" + SCRIPT)]
)
def test_programs_and_scripts_in_a_directory_are_read(folder: Folder, name: str, text: str) -> None:
    folder.write({"ds.json": CONFIG, name: text, "other.py": "print('hello')\n", "notes.sh": "ls\n"})
    found = checked(".")
    assert found.keys() == {"ds.json", name}
    assert "DS904" in found["ds.json"]


def test_a_config_is_judged_once_for_each_way_it_is_used(folder: Folder) -> None:
    folder.write({"ds.json": CONFIG, "run.sh": SCRIPT, "again.sh": SCRIPT, "raw.py": PLAIN})
    found = checked(".")["ds.json"]
    assert found.count("DS904") == 1  # both scripts set 2 steps: one mistake, with the place in each
    assert "DS902" in found  # under DeepSpeed itself nothing replaces "auto"


def test_tests_in_a_directory_are_left_out(folder: Folder) -> None:
    test = f"import deepspeed\ndef test_x():\n    {PLAIN.splitlines()[-1]}\n"
    folder.write({"ds.json": CONFIG, "test_x.py": test, "x_test.py": f"import unittest\n{PLAIN}", "conftest.py": PLAIN})
    assert checked(".").keys() == {"ds.json"}
    assert "test_x.py" in checked("test_x.py")


def test_a_program_that_is_only_named_like_a_test_is_checked(folder: Folder) -> None:
    folder.write({"ds.json": CONFIG, "test_x.py": PLAIN, "x_test.py": PLAIN, "test_y.py": "print(1)\n"})
    assert checked(".").keys() == {"ds.json", "test_x.py", "x_test.py"}


def test_what_uses_a_config_is_evidence_when_only_the_config_is_checked(folder: Folder) -> None:
    folder.write({"configs/ds.json": CONFIG})
    assert "DS904" not in checked("configs/ds.json")["configs/ds.json"]
    folder.write({"scripts/run.sh": SCRIPT.replace("ds.json", "configs/ds.json")})
    found = checked("configs/ds.json")
    assert found.keys() == {"configs/ds.json"}
    assert "DS904" in found["configs/ds.json"]


def test_a_key_that_a_program_adds_is_not_missing_in_the_file(folder: Folder) -> None:
    program = "import deepspeed, json\nds = json.load(open('ds.json'))\n{}deepspeed.initialize(model=m, optimizer=o, config=ds)\n"
    folder.write({"ds.json": '{"zero_optimization": {"stagee": 2}}', "train.py": program.format("ds['steps_per_print'] = 4\n")})
    assert {"DS101", "DS204"} <= set(checked("ds.json")["ds.json"])
    folder.write({"train.py": program.format("ds['train_micro_batch_size_per_gpu'] = args.batch_size\n")})
    found = set(checked("ds.json")["ds.json"])
    assert "DS101" in found
    assert "DS204" not in found


def test_auto_does_not_show_the_trainer_where_the_program_gives_the_config_to_deepspeed(folder: Folder) -> None:
    program = "import deepspeed, json\nds = json.load(open('ds.json'))\nds['train_micro_batch_size_per_gpu'] = args.batch_size\n"
    program += "ds['optimizer']['params']['lr'] = args.lr\n"
    config = '{"zero_optimization": {"stage": 2, "offload_optimizer": {"device": "auto"}}, "optimizer": {"params": {"lr": "auto"}}}'
    folder.write({"ds.json": config, "train.py": program})
    assert "DS530" in checked("ds.json")["ds.json"]
    folder.write({"train.py": program + "deepspeed.initialize(model=m, config=ds)\n"})
    for named in ("ds.json", "."):
        found = checked(named)["ds.json"]
        assert "DS530" not in found
        assert "DS901" in found
        assert "DS902" not in found


@pytest.mark.parametrize(
    ("program", "names_trainer"),
    [
        ("import deepspeed\ndeepspeed.initialize(model=m, config=read(args.ds_file))\n", False),
        ("import deepspeed\ndeepspeed.initialize(model=m, config=read(args.ds_file))\nimport accelerate\n", True),
        ("import deepspeed\ndeepspeed.initialize(model=m, config=read(args.ds_file))\nTrainer(model=m)\n", True),
        ("print('hello')\n", True),
    ],
)
def test_auto_in_a_file_without_a_link_is_not_said_to_be_for_the_trainer_in_a_project_without_one(
    folder: Folder, program: str, names_trainer: bool
) -> None:
    config = '{"zero_optimization": {"stage": 2, "offload_optimizer": {"device": "auto"}}, "optimizer": {"params": {"lr": "auto"}}}'
    folder.write({"ds.json": config, "train.py": program})
    output = CliRunner().invoke(cli, ["check", ".", "--select", "DS530", "--output-format", "json"]).stdout
    (message,) = [one["message"] for one in json.loads(output)["diagnostics"]]
    assert ("the Hugging Face Trainer" in message) == names_trainer
    assert ("unless the program that reads the file replaces it" in message) != names_trainer


def test_what_is_given_counts_more_than_evidence(folder: Folder) -> None:
    folder.write({"ds.json": CONFIG, "run.sh": SCRIPT})
    (context,) = contexts_of("ds.json", Context(Facts(world_size=2)))
    assert (context.facts.world_size, context.facts.integration) == (2, Integration.TRANSFORMERS)


def test_evidence_is_about_this_config(folder: Folder) -> None:
    folder.write({"a/ds.json": CONFIG, "b/ds.json": CONFIG, "a/run.sh": SCRIPT, "b/README.md": SCRIPT})
    assert len(contexts_of("a/ds.json", Context())) == 1
    assert contexts_of("b/ds.json", Context()) == []


def test_a_fix_uses_the_same_evidence(folder: Folder) -> None:
    folder.write({"ds.json": CONFIG, "run.sh": SCRIPT})
    result = CliRunner().invoke(cli, ["check", "ds.json", "--fix", "--unsafe-fixes", "--deepspeed", "0.19.8"])
    assert '"gradient_accumulation_steps": "auto"' in (folder.path / "ds.json").read_text(), result.output


def test_a_program_whose_launch_is_judged_is_judged(folder: Folder) -> None:
    program = (
        "import argparse, deepspeed\nparser = argparse.ArgumentParser()\nparser = deepspeed.add_config_arguments(parser)\n"
        "args = parser.parse_args()\ndeepspeed.initialize(args=args, model=m)\n"
    )
    folder.write({"ds.json": CONFIG, "other.json": CONFIG, "train.py": program})
    (reason,) = folder.results("train.py")["train.py"].not_judged
    assert reason.at_launch
    folder.write({"run.sh": "deepspeed --num_gpus 2 train.py --deepspeed --deepspeed_config ds.json\n"})
    assert folder.results("train.py", "run.sh")["train.py"].not_judged == ()


RELEASES = {
    "requirements/train.txt": "torch\ndeepspeed==0.14.2\n",
    "environment.yml": "dependencies:\n  - pip:\n    - deepspeed==0.14.2\n",
    "Dockerfile": "FROM x\nRUN pip install torch 'deepspeed==0.14.2' && \\\n    echo\n",
    "train.Dockerfile": "RUN pip install deepspeed[ops]==0.14.2\n",
    "docker/Dockerfile": "RUN pip install deepspeed==0.14.2; ls\n",
    "Pipfile": '[dev-packages]\ndeepspeed = {version = "==0.14.2"}\n',
    "Pipfile.lock": '{"default": {"deepspeed": {"hashes": [], "version": "==0.14.2"}}}',
    "pdm.lock": '[[package]]\nname = "deepspeed"\nversion = "0.14.2"\n',
    "setup.cfg": "[options]\ninstall_requires =\n  deepspeed==0.14.2\n",
    "setup.py": "setup(\n  # 'deepspeed==0.9.0'\n  install_requires=['torch', 'deepspeed==0.14.2'],\n)\n",
    "train_requirements.txt": "deepspeed==0.14.2\n",
}


@pytest.mark.parametrize("name", RELEASES)
def test_a_release_is_found_in(folder: Folder, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setattr(find_release, "installed", lambda: None)
    folder.write({name: RELEASES[name]})
    found = find_release.find(str(folder.path))
    assert found is not None
    assert str(found.release) == "0.14.2"
    assert found.evidence.startswith(name)


def test_a_copy_of_deepspeed_in_the_project(folder: Folder) -> None:
    """Its sources may have been changed: gdGPT's copy reads keys of its own in `fp16` and `optimizer`."""
    config = {"train_batch_size": 8, "fp16": {"enabled": True, "fused_optimizer": False}, "optimizer": {"type": "Adam", "no_wd_kws": []}}
    folder.write({"configs/ds.json": json.dumps(config), "deepspeed/__init__.py": "", "deepspeed/runtime/engine.py": ""})

    def found(*more: str) -> dict[str, str]:
        result = CliRunner().invoke(cli, ["check", "configs", "--output-format", "json", *more])
        return {one["code"]: one["severity"] for one in json.loads(result.stdout)["diagnostics"]}

    assert not {"DS101", "DS103"} & found().keys()
    assert found("--pedantic")["DS101"] == "warning"
    assert found("--deepspeed", "0.19.8")["DS101"] == "error"


@pytest.mark.parametrize(("key", "says"), [("total_num_steps", False), ("warmup_num_steps", True)])
def test_a_required_parameter_that_a_program_adds(folder: Folder, key: str, says: bool) -> None:
    config = {"train_batch_size": 8, "scheduler": {"type": "WarmupCosineLR", "params": {"warmup_num_steps": 5}}}
    program = "import yaml, deepspeed\ncfg = yaml.safe_load(open(args.config))\n"
    program += f"cfg['scheduler']['params']['{key}'] = n\ndeepspeed.initialize(args=args, model=m, config=cfg)\n"
    folder.write({"ds.json": json.dumps(config), "train.py": program})
    assert ("DS610" in checked(".")["ds.json"]) is says
