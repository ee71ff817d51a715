"""What was not judged is recorded with its reason, counted, listed, and fails a strict run."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from dslint.cli import cli
from dslint.not_judged import Why
from tests.command import dslint
from tests.setup.folder import Folder

ELSEWHERE = "deepspeed train.py --deepspeed_config /mnt/shared/ds.json\n"


def check(*arguments: str) -> tuple[int, str]:
    result = CliRunner().invoke(cli, ["check", *arguments])
    return result.exit_code, result.output


def test_a_launch_with_a_config_elsewhere(folder: Folder) -> None:
    folder.write({"run.sh": ELSEWHERE})
    result = folder.results("run.sh")["run.sh"]
    assert not result.is_judged
    (one,) = result.not_judged
    assert "/mnt/shared/ds.json" in one.reason
    assert one.range is not None
    assert one.range.start.line == 1


@pytest.mark.parametrize(
    ("flag", "told"),
    [
        ("--trainer.strategy deepspeed_stage_2", "--trainer.strategy deepspeed_stage_2 selects a strategy of Lightning"),
        ("--strategy=deepspeed_stage_3_offload", "--strategy deepspeed_stage_3_offload selects a strategy of Lightning"),
        ("--trainer.strategy deepspeed", "--trainer.strategy deepspeed selects a strategy of Lightning"),
        ("--strategy deepspeed", "check the program"),
    ],
)
def test_a_flag_that_names_a_strategy_of_lightning(folder: Folder, flag: str, told: str) -> None:
    folder.write({"run.sh": f"python main.py fit {flag}\n", "main.py": "from lightning.pytorch.cli import LightningCLI\nLightningCLI()\n"})
    (one,) = folder.results("run.sh")["run.sh"].not_judged
    assert told in one.reason


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ("--deepspeed_config_path conf/z2.json", "passes --deepspeed_config_path conf/z2.json to its program"),
        ("--ds_cfg conf/base", "passes --ds_cfg conf/base to its program"),
        ("--settings conf/zero3_offload.yaml", "passes --settings conf/zero3_offload.yaml to its program"),
        ("engine.settings=conf/ds_a100.json", "passes engine.settings=conf/ds_a100.json to its program"),
        ("--deepspeed_checkpoint out/step5", "names no config"),
        ("--settings conf/model.json", "names no config"),
        ("--data records.json", "names no config"),
    ],
)
@pytest.mark.parametrize("program", [None, "import deepspeed\nfrom company import start\nstart()\n"])
def test_a_launch_that_may_name_a_config_is_not_said_to_name_none(folder: Folder, given: str, told: str, program: str | None) -> None:
    folder.write({"run.sh": f"deepspeed train.py {given}\n", **({"train.py": program} if program else {})})
    (one,) = folder.results("run.sh")["run.sh"].not_judged
    assert told in one.reason


def test_a_launch_stands_where_its_launcher_does(folder: Folder) -> None:
    launch = "code=examples\n\ndeepspeed \\\n  --num_gpus 8 \\\n  $code/main.py\n"
    folder.write({"run.sh": launch, "examples/main.py": "import deepspeed\n"})
    (one,) = folder.results("run.sh")["run.sh"].not_judged
    assert one.range is not None
    assert one.range.start.line == 3


def test_a_placeholder_is_no_missing_file(folder: Folder) -> None:
    folder.write({"train.yaml": "base_model: m\nmicro_batch_size: 2\ndeepspeed: <path to your config>\n"})
    assert folder.found("train.yaml") == []
    assert not folder.results("train.yaml")["train.yaml"].is_judged


def test_a_file_that_is_judged_in_part(folder: Folder) -> None:
    folder.write({"ds.json": '{"train_batch_size": 8}', "run.sh": ELSEWHERE + "deepspeed train.py --deepspeed_config ds.json\n"})
    result = folder.results("run.sh")["run.sh"]
    assert result.is_judged
    assert [one.why for one in result.not_judged] == [Why.PROGRAM_UNSEEN, Why.OUTSIDE_WITH_SAME_NAME]


def test_strict_fails_and_lists(folder: Folder) -> None:
    folder.write({"run.sh": ELSEWHERE})
    assert check("run.sh")[0] == 0
    assert check("run.sh", "--strict")[0] == 1
    assert "run.sh:1: the DeepSpeed config is /mnt/shared/ds.json" in check("run.sh", "-v")[1]
    folder.write({"dslint.toml": "strict = true\n"})
    assert check("run.sh")[0] == 1


def test_json_and_sarif_carry_the_reasons(folder: Folder) -> None:
    folder.write({"run.sh": ELSEWHERE})
    data = json.loads(check("run.sh", "--output-format", "json")[1])
    (file,) = data["files"]
    assert [one["range"]["start"]["line"] for one in file["not_judged"]] == [1]
    assert (data["summary"]["judged"], data["summary"]["not_judged"]) == (0, 1)
    log = json.loads(check("run.sh", "--output-format", "sarif")[1])
    kinds = [one["descriptor"]["id"] for one in log["runs"][0]["invocations"][0]["toolExecutionNotifications"]]
    assert "not-judged" in kinds


def test_a_model_that_cannot_be_counted_is_said_in_one_sentence(folder: Folder) -> None:
    offload = '"zero_optimization": {"stage": 2, "offload_optimizer": {"device": "cpu"}}'
    folder.write(
        {
            "ds.json": f'{{"train_micro_batch_size_per_gpu": 1, "bf16": {{"enabled": true}}, {offload}}}',
            "model/config.json": '{"model_type": "mamba3", "hidden_size": 4096, "num_hidden_layers": 32}',
            "known/config.json": '{"model_type": "gpt2", "n_embd": 768, "n_layer": 2, "n_head": 12}',
        }
    )
    facts = ("--gpu", "h100", "--world-size", "8", "--nodes", "1", "--host-memory", "1TiB", "--integration", "deepspeed")
    code, said = check("ds.json", *facts, "--model", "model")
    assert code == 0
    assert "1 file was checked only in part" in said
    assert said.count("mamba3") == 1
    assert check("ds.json", *facts, "--model", "model", "--strict")[0] == 1
    assert "only in part" not in check("ds.json", *facts, "--model", "known")[1]


def test_a_template_that_is_found_is_counted(folder: Folder) -> None:
    folder.write({"ds.json": '{"train_batch_size": ${BATCH}, "zero_optimization": {"stage": 2}}'})
    code, text = check(".", "-v", "--strict")
    assert code == 1
    assert "ds.json: a template" in text


PROGRAM = """\
import json
import deepspeed

def train(args, model):
    with open(args.deepspeed_config) as file:
        config = json.load(file)
    config["checkpoint"] = {"load_universal": True}
    deepspeed.initialize(model=model, config=config)
"""


def test_a_launch_of_a_program_that_completes_its_config_is_judged_in_part(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(PROGRAM, encoding="utf-8")
    (tmp_path / "run.sh").write_text("deepspeed --num_gpus 1 train.py --fp16\n", encoding="utf-8")
    done = dslint("check", "run.sh", "-v", cwd=tmp_path)
    said = " ".join(done.stdout.split())
    assert done.returncode == 0
    assert "1 file was checked only in part" in said
    assert "run.sh: train.py completes the DeepSpeed config at run time" in said
    assert "on 1 rank with the DeepSpeed config of train.py" in said
    assert dslint("check", "run.sh", "--strict", cwd=tmp_path).returncode == 1


def test_show_says_why_there_is_no_config(folder: Folder) -> None:
    folder.write({"run.sh": ELSEWHERE})
    done = dslint("show", "run.sh", cwd=folder.path)
    assert done.returncode == 2
    assert "run.sh:1: the DeepSpeed config is /mnt/shared/ds.json" in done.stderr


def test_findings_without_a_config_are_in_no_file(folder: Folder) -> None:
    folder.write({"run.sh": "deepspeed t.py --deepspeed gone.json\n"})
    assert "No config was checked." in check("run.sh")[1]
    assert "0 files" not in check("run.sh")[1]


def test_a_fix_in_a_file_that_was_not_named(folder: Folder) -> None:
    folder.write({"ds.json": '{"train_batch_size": "8"}', "run.sh": "deepspeed t.py --deepspeed_config ds.json\n"})
    assert "1 fixable if you also name ds.json" in check("run.sh")[1]
    assert "1 fixable with --fix" in check("run.sh", "ds.json")[1]


def test_the_default_of_a_flag_is_named_and_not_the_expression(folder: Folder) -> None:
    parser = (
        "from argparse import ArgumentParser\nparser = ArgumentParser()\nparser.add_argument('--deepspeed_config', default='ds.json')\n"
    )
    folder.write({"train.py": "import deepspeed\n" + parser + "deepspeed.initialize(args=parser.parse_args())\n"})
    (one,) = folder.results("train.py")["train.py"].not_judged
    assert "is ds.json, which does not exist" in one.reason


def test_a_place_that_many_classes_share_has_one_reason(folder: Folder) -> None:
    base = "import deepspeed\nclass Base:\n    def __init__(self, args):\n        deepspeed.DeepSpeedConfig(args.deepspeed_config)\n"
    others = "".join(
        f"class {name}(Base):\n    def __init__(self, args):\n        super().__init__(args)\n" for name in ("Encoder", "Model", "Head")
    )
    folder.write({"model.py": base + others})
    assert len(folder.results("model.py")["model.py"].not_judged) == 1


def test_calls_with_one_reason_are_one_line_that_names_their_file(folder: Folder) -> None:
    call = "deepspeed.initialize(args=args, model=m)\n"
    head = "import argparse, deepspeed\nparser = deepspeed.add_config_arguments(argparse.ArgumentParser())\nargs = parser.parse_args()\n"
    folder.write({"own.py": head + call + call, "main.py": "import engine\nengine.build()\n"})
    folder.write({"engine.py": f"{head}def build():\n    if args.a:\n        {call}    else:\n        {call}"})
    (own,) = folder.results("own.py")["own.py"].not_judged
    assert (own.range is not None, own.reason.partition(" is given")[0]) == (
        True,
        "the DeepSpeed config for deepspeed.initialize (also line 5)",
    )
    (other,) = folder.results("main.py")["main.py"].not_judged
    assert (other.range, other.reason.partition(" is given")[0]) == (
        None,
        "the DeepSpeed config for deepspeed.initialize (engine.py, line 6, line 8)",
    )


def test_a_path_that_is_empty_in_the_program_is_given_by_its_launch(folder: Folder) -> None:
    makes = "import json, deepspeed\nfrom dataclasses import dataclass\n@dataclass\nclass Args:\n    config: str = ''\n"
    opens = "def build(args):\n    with open(args.config) as file:\n        deepspeed.initialize(model=m, config=json.load(file))\nbuild(Args())\n"
    folder.write({"train.py": makes + opens})
    (one,) = folder.results("train.py")["train.py"].not_judged
    assert one.reason.startswith(
        "the DeepSpeed config for deepspeed.initialize is not in this program: its path is empty unless the launch gives one. dslint reached no command"
    )


UNREAD = "import deepspeed\nfrom elsewhere import config, model\ndeepspeed.initialize(model=model, config=config())\n"
"""A program with a config that is not in its project."""


@pytest.mark.parametrize("launcher", ["torchrun", "deepspeed --num_gpus 2", "accelerate launch --num_processes 2", "srun python", "python"])
@pytest.mark.parametrize(
    ("program", "reason"),
    [
        (UNREAD, "deepspeed.initialize (train.py, line 3) is not in this program"),
        ("from elsewhere import fit\nfit(ds_config={'zero_optimization': {'stage': 2}})\n", "(train.py, line 2) concerns DeepSpeed"),
        (
            "import argparse, deepspeed\np = argparse.ArgumentParser()\np.add_argument('--ds')\ndeepspeed.initialize(config=p.parse_args().ds)\n",
            "deepspeed.initialize (train.py, line 4) takes its config from --ds, and the command names none",
        ),
    ],
)
def test_a_launch_of_a_program_whose_config_is_not_known(folder: Folder, launcher: str, program: str, reason: str) -> None:
    folder.write({"run.sh": f"{launcher} train.py --lr 1e-4\n", "train.py": program})
    (one,) = folder.results("run.sh")["run.sh"].not_judged
    assert one.reason.startswith("the launch of train.py: ")
    assert reason in one.reason
    assert one.range is not None


def test_a_launch_of_a_program_that_gets_no_config(folder: Folder) -> None:
    trains = "from transformers import HfArgumentParser, Trainer, TrainingArguments\n"
    trains += "(args,) = HfArgumentParser(TrainingArguments).parse_args_into_dataclasses()\nTrainer(args=args).train()\n"
    folder.write({"run.sh": "torchrun train.py --output_dir out\n", "train.py": trains})
    (one,) = folder.results("run.sh")["run.sh"].not_judged
    assert "no command in this file launches a DeepSpeed training" in one.reason


@pytest.mark.parametrize(
    ("script", "flag"),
    [
        ("  --num_gpus_of_actor 4 \\\n  --zero_stage 3 \\\n  --bf16\n", "--num_gpus_of_actor"),
        ("# what I ran\n--deepspeed\n", "--deepspeed"),
        ("-- train\n", ""),
        ("echo --deepspeed ds.json\n", ""),
        ("-x --zero_stage 3\n", ""),
    ],
)
def test_flags_without_their_command_lack_it(folder: Folder, script: str, flag: str) -> None:
    folder.write({"run.sh": script})
    (one,) = folder.results("run.sh")["run.sh"].not_judged
    assert (f"it begins with {flag}, and the command that takes this flag is missing" in one.reason) is bool(flag)


@pytest.mark.parametrize(
    "script",
    [
        "USE_DEEPSPEED=0\nif [ $USE_DEEPSPEED -eq 1 ]; then\n  deepspeed --num_gpus 4 train.py --deepspeed ds.json\nfi\n",
        "echo done\nexit 0\nexport A=1 && true\n",
        "train() {\n  echo training\n  NCCL_DEBUG=INFO torchrun --nproc_per_node 4 train.py --deepspeed ds.json\n}\n",
    ],
)
def test_a_launch_that_the_script_does_not_come_to(folder: Folder, script: str) -> None:
    folder.write({"run.sh": script})
    (one,) = folder.results("run.sh")["run.sh"].not_judged
    starts = next((name for name in ("deepspeed", "torchrun") if f" {name} -" in script), None)
    if starts is None:
        assert one.reason == "no command in this file launches a DeepSpeed training; not checked."
    else:
        assert (
            one.reason
            == f"line 3 starts {starts}, but the script does not reach that line: the branch is not taken, or it ends before; not checked."
        )


def test_a_program_that_reads_a_checkpoint_is_not_said_to_set_a_config(folder: Folder) -> None:
    program = "import argparse, torch\np = argparse.ArgumentParser()\np.add_argument('--deepspeed_checkpoint')\n"
    program += "torch.load(p.parse_args().deepspeed_checkpoint)\n"
    folder.write({"run.sh": "python convert.py --deepspeed_checkpoint a.pt\n", "convert.py": program})
    (one,) = folder.results("run.sh")["run.sh"].not_judged
    assert "If the program trains with DeepSpeed, it sets the config" in one.reason


def test_a_file_that_a_launched_program_imports_is_not_said_to_have_no_launch(folder: Folder) -> None:
    loop = "import argparse, deepspeed\np = argparse.ArgumentParser()\np.add_argument('--ds')\n"
    loop += "deepspeed.initialize(config=p.parse_args().ds)\n"
    folder.write({"train.py": "import loop\n", "loop.py": loop, "run.sh": "python launch.py train.py\n"})
    reasons = folder.results("loop.py")["loop.py"].not_judged
    assert [one.advice for one in reasons if "reached no command" in one.advice] == []
    assert any("a program that imports this file" in one.advice for one in reasons)
    folder.write({"train.py": "print(1)\n"})
    assert any("reached no command" in one.advice for one in folder.results("loop.py")["loop.py"].not_judged)


def test_a_model_that_cannot_be_read_is_said(folder: Folder) -> None:
    launch = "deepspeed train.py --deepspeed ds.json --model_name_or_path m --per_device_train_batch_size 4 --output_dir out\n"
    config = '{"train_micro_batch_size_per_gpu": "auto", "zero_optimization": {"stage": 2}}'
    folder.write({"run.sh": launch, "ds.json": config, "m/config.json": "{"})
    _, said = check(".")
    assert "run.sh:1: the model m/config.json is not JSON, so no rule about the model ran." in " ".join(said.split())
    folder.write({"m/config.json": '{"model_type": "llama", "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4}'})
    assert "not JSON" not in check(".")[1]


def test_a_note_says_once_that_a_file_was_not_checked(folder: Folder) -> None:
    folder.write({"run.sh": "deepspeed train.py --deepspeed_config ds.json\n", "ds.json": '{"train_batch_size": 8}'})
    folder.write({"other.sh": "echo 1\n", "other.yaml": "a: 1\n", "broken.py": "def\n"})
    for name in ("other.sh", "other.yaml", "broken.py"):
        _, said = check(name, "ds.json")
        (line,) = " ".join(said.split()).split("Not checked: ")[1:]
        assert "checked" not in line.partition(": ")[2]


def test_what_a_finding_says_is_not_said_again(folder: Folder) -> None:
    (folder.path / ".git").mkdir(exist_ok=True)
    folder.write({"run.sh": "deepspeed train.py --deepspeed_config conf/ds.json\n", "ds_config.json": '{"train_batch_size": 8}'})
    code, said = check(".")
    assert code == 1
    assert "DS919" in said
    assert "Not checked" not in said
    (reason,) = (one["reason"] for file in json.loads(check(".", "--output-format", "json")[1])["files"] for one in file["not_judged"])
    assert "does not exist" in reason


def test_the_first_reasons_are_listed_and_the_others_counted(folder: Folder) -> None:
    lines = [f"deepspeed train.py --deepspeed_config /mnt/{number}.json\n" for number in range(5)]
    folder.write({"run.sh": "".join(lines), "ds_config.json": '{"train_batch_size": 8}'})
    _, said = check(".")
    assert said.count("Not checked:") == 3
    assert "Use -v for details and 2 more reasons" in " ".join(said.split())
    assert check(".", "-v")[1].count("Not checked:") == 5


@pytest.mark.parametrize(("word", "named"), [("DEEPSPEED", True), ("FSDP", False)])
def test_a_launch_that_takes_the_file_of_its_machine_is_named_where_deepspeed_is_used(folder: Folder, word: str, named: bool) -> None:
    program = f"from accelerate import Accelerator\nif Accelerator().distributed_type == DistributedType.{word}:\n    pass\n"
    folder.write({"train.py": program, "run.sh": "accelerate launch train.py\n", "ds_config.json": '{"train_batch_size": 8}'})
    _, said = check(".")
    assert ("run.sh:1: the launch of train.py: without --config_file" in " ".join(said.split())) is named


REFERENCE = (
    "from copy import deepcopy\nimport deepspeed\nfrom transformers import Trainer\n\n"
    "class OwnTrainer(Trainer):\n    def _prepare(self, model):\n        plugin = self.accelerator.state.deepspeed_plugin\n"
    "        config = deepcopy(plugin.deepspeed_config)\n%s        return deepspeed.initialize(model=model, config=config)\n"
)


@pytest.mark.parametrize(
    "change", ["", '        config["zero_optimization"]["stage"] = 0\n', '        config["optimizer"] = {"type": None}\n']
)
def test_a_config_that_is_in_use_is_not_left_unread(folder: Folder, change: str) -> None:
    """Trainers with a reference model give it a copy of the config in use: there is no file to check."""
    folder.write({"trainer.py": REFERENCE % change, "ds_config.json": '{"train_batch_size": 8}'})
    assert "Not checked" not in check(".")[1]
    folder.write({"trainer.py": (REFERENCE % change).replace("plugin.deepspeed_config", "read_config(model)")})
    assert "Not checked: trainer.py" in check(".")[1]


INFERENCE = "import deepspeed\nmodel = deepspeed.init_inference(m, config=dict(zero={'stage': 3}, dtype='fp16'))\n"


def test_a_program_for_inference(folder: Folder) -> None:
    """`init_inference` takes a config of its own: no call of a training is missing."""
    folder.write({"infer.py": INFERENCE, "run.sh": "deepspeed --num_gpus 2 infer.py\n"})
    for name in ("infer.py", "run.sh"):
        reasons = [one.reason for result in folder.results(name).values() for one in result.not_judged]
        assert any("deepspeed.init_inference" in reason and "dslint checks only training configs" in reason for reason in reasons)
        assert not any("knows no call" in reason or "names no config" in reason for reason in reasons)


def test_an_engine_beside_inference(folder: Folder) -> None:
    folder.write({"train.py": f'{INFERENCE}deepspeed.initialize(model=m, config={{"train_batch_size": 8}})\n'})
    assert folder.results("train.py")["train.py"].not_judged == ()


MMENGINE = (
    "import argparse\nfrom mmengine.config import Config\nfrom mmengine.runner import Runner\nparser = argparse.ArgumentParser()\n"
    "parser.add_argument('config')\nRunner.from_cfg(Config.fromfile(parser.parse_args().config)).train()\n"
)


@pytest.mark.parametrize(("strategy", "says"), [("DeepSpeedStrategy", "configs/a.py describes a training"), ("DDPStrategy", "no command")])
def test_settings_in_a_python_file(folder: Folder, strategy: str, says: str) -> None:
    """MMEngine's programs get the strategy from a file of settings, which names it; whether they train is not followed."""
    settings = f"strategy = dict(type='{strategy}', zero_optimization=dict(stage=3))  # deepspeed\ntrain_dataloader = dict(batch_size=4)\n"
    folder.write({"tools/test.py": MMENGINE, "configs/a.py": settings, "run.sh": "python tools/test.py configs/a.py last.pth\n"})
    assert says in check("run.sh")[1].replace("\n", " ")
    folder.write({"sub/run.sh": "python ../tools/test.py missing.py\n"})
    assert "no command in this file launches" in check("sub/run.sh")[1].replace("\n", " ")


def test_a_missing_file_with_the_other_ending_of_yaml_is_meant(folder: Folder) -> None:
    block = "distributed_type: DEEPSPEED\ndeepspeed_config:\n  zero_stage: 2\nnum_processes: 2\n"
    folder.write({"train.py": "from accelerate import Accelerator\nAccelerator().prepare(1)\n", "conf/zero2.yml": block})
    folder.write({"run.sh": "accelerate launch --config_file zero2.yaml train.py\n"})
    ((reason,),) = (one.not_judged for path, one in folder.results("run.sh").items() if path == "run.sh")
    assert reason.reason.endswith("is zero2.yaml, which is not a file in this project; did you mean conf/zero2.yml?")
    own = "import argparse, deepspeed\nargs = deepspeed.add_config_arguments(argparse.ArgumentParser()).parse_args()\ndeepspeed.initialize(args=args)\n"
    folder.write({"ds/zero.json": "{}", "own.py": own, "run.sh": "deepspeed own.py --deepspeed --deepspeed_config zero.json\n"})
    assert [one.help for one in folder.diagnostics("run.sh") if one.code == "DS919"] == [
        "Did you mean ds/zero.json? Correct the path. It is relative to the directory in which the job starts."
    ]


@pytest.mark.parametrize("words", ["--deepspeed $@", '--deepspeed "${@:2}"', "--deepspeed $*"])
def test_arguments_that_a_script_hands_on_are_no_value_of_a_flag(folder: Folder, words: str) -> None:
    program = """import argparse, deepspeed
args = deepspeed.add_config_arguments(argparse.ArgumentParser()).parse_args()
deepspeed.initialize(args=args, model=None, config={"train_batch_size": 8, "zero_optimization": {"stage": 9}})
"""
    folder.write({"train.py": program, "run.sh": f"deepspeed train.py {words}\n"})
    results = folder.results("run.sh", "train.py")
    assert [one.reason for result in results.values() for one in result.not_judged] == []
    assert "DS107" in [one.code for result in results.values() for one in result.diagnostics]


def test_a_config_that_another_file_names_has_its_place_there(folder: Folder) -> None:
    training = "base_model: m\ndatasets: [{path: d, type: alpaca}]\nmicro_batch_size: 2\nlearning_rate: 1e-4\ndeepspeed: deepspeed_configs/mine.json\n"
    folder.write({"train.yaml": training, "run.sh": "axolotl train train.yaml\n"})
    output = CliRunner().invoke(cli, ["check", "run.sh", "--output-format", "concise"]).output
    assert "train.yaml:5:" in output
    assert "run.sh:5" not in output


def test_lines_of_a_cell_come_with_the_cell(folder: Folder) -> None:
    call = "\n# COMMAND ----------\n\ntrain = 1\nDeepspeedTorchDistributor(numGpus=2, deepspeedConfig=make()).run(f)\n"
    head = "# Databricks notebook source\nfrom pyspark.ml.deepspeed.deepspeed_distributor import DeepspeedTorchDistributor\nfrom m import make\n"
    folder.write({"train.py": head + call + call})
    (one,) = folder.results("train.py")["train.py"].not_judged
    assert (one.path, one.range is not None and one.range.start.line) == ("train.py:cell 2", 4)
    assert "the DeepSpeed config for DeepspeedTorchDistributor (also line 4 of cell 3)" in one.reason
    assert "train.py:cell 2:4: the DeepSpeed config" in " ".join(check("train.py")[1].split())


def test_the_vocabulary_of_a_tokenizer_is_no_config(folder: Folder) -> None:
    words = ["dtype", "quant", "optimizer", "scheduler", "checkpoint", "amp", *(f"Ġword{number}" for number in range(100))]
    folder.write({"tokenizer/vocab.json": json.dumps({word: number for number, word in enumerate(words)})})
    assert "init_inference" not in check(".")[1]
    folder.write({"inference.json": '{"dtype": "fp16", "replace_with_kernel_inject": true, "tensor_parallel": {"tp_size": 2}}'})
    assert "inference.json: a config for deepspeed.init_inference" in check(".")[1]


@pytest.mark.parametrize(
    ("making", "said"),
    [("jq .a tpl.json > ds.json", "only known at run time"), ("echo stage 2 > ds.json", "what it writes is not JSON")],
)
def test_output_that_is_not_known_is_not_called_wrong(folder: Folder, making: str, said: str) -> None:
    folder.write({"run.sh": f"{making}\ndeepspeed train.py --deepspeed_config ds.json\n"})
    assert any(said in one.reason for one in folder.results("run.sh")["run.sh"].not_judged)


@pytest.mark.parametrize("words", ["--train_sets a b --lr 1", "train.py --lr 1", "--bf16 True train.py"])
@pytest.mark.parametrize("launcher", ["deepspeed", "torchrun"])
def test_a_config_that_is_given_to_the_launcher(folder: Folder, launcher: str, words: str) -> None:
    """The launcher refuses it, so it does not matter which program it would start, and a config is named."""
    folder.write({"run.sh": f"{launcher} --deepspeed ds.json {words}\n", "ds.json": '{"train_batch_size": 8}'})
    result = folder.results("run.sh")["run.sh"]
    assert [d.code for d in result.diagnostics] == ["DS961"]
    assert not any("names no config" in one.reason for one in result.not_judged)
