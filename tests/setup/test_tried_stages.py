"""Programs whose config is not known, tried with ZeRO stages 2 and 3: what an unknown config may make of them is said as that."""

from __future__ import annotations

import json

from dslint.diagnostics import Severity
from tests.cases import table
from tests.command import dslint
from tests.setup.folder import Folder

ENGINE = (
    "import argparse, copy, deepspeed, torch\nparser = deepspeed.add_config_arguments(argparse.ArgumentParser())\nargs = parser.parse_args()\n"
    "model = torch.nn.Linear(4, 4)\n"
    "engine, *_ = deepspeed.initialize(args=args, model=model, model_parameters=model.parameters())\n"
    "if torch.distributed.get_rank() == 0:\n    torch.save(engine.module.state_dict(), 'w.pt')\n"
)
TRAINER = (
    "import torch\nfrom transformers import AutoModelForCausalLM, HfArgumentParser, Trainer, TrainingArguments\n"
    "(args,) = HfArgumentParser(TrainingArguments).parse_args_into_dataclasses()\n"
    "model = AutoModelForCausalLM.from_pretrained('m', device_map='auto')\ntrainer = Trainer(model=model, args=args)\ntrainer.train()\n"
)
ACCELERATOR = (
    "import torch\nfrom accelerate import Accelerator\nfrom transformers import AutoModelForCausalLM\naccelerator = Accelerator()\n"
    "model = AutoModelForCausalLM.from_pretrained('m', device_map='auto')\noptimizer = torch.optim.AdamW(model.parameters())\n"
    "model, optimizer = accelerator.prepare(model, optimizer)\nfor batch in data:\n    accelerator.backward(model(batch).loss)\n"
    "    optimizer.step()\n"
)
MISSING = TRAINER.replace(
    "(args,) = HfArgumentParser(TrainingArguments).parse_args_into_dataclasses()", "args = TrainingArguments('o', deepspeed='no.json')"
)
STAGE_3 = "That is so if the config, which is not known, sets ZeRO stage 3."
BY_LAUNCH = "That is so if the launch uses DeepSpeed at ZeRO stage 3."
ZERO_2 = '{"train_micro_batch_size_per_gpu": 1, "zero_optimization": {"stage": 2}}'


def said(folder: Folder, code: str, *names: str) -> list[str]:
    """How the messages of a rule end, all of which are infos."""
    found = [one for one in folder.diagnostics(*names) if one.code == code]
    assert all((one.severity, one.certain, one.fix) == (Severity.INFO, False, None) for one in found)
    return [one.message[one.message.rindex("That is so") :] for one in found]


@table(
    "files, checked, code, end",
    [
        ({"train.py": ENGINE}, "train.py", "DS967", STAGE_3),
        ({"train.py": ENGINE, "run.sh": 'deepspeed train.py --deepspeed_config "$1"\n'}, "run.sh", "DS967", STAGE_3),
        ({"train.py": MISSING}, "train.py", "DS946", STAGE_3),
        ({"train.py": TRAINER, "run.sh": 'deepspeed train.py --output_dir o "$@"\n'}, "run.sh", "DS946", STAGE_3),
        ({"train.py": TRAINER, "run.sh": 'deepspeed train.py --output_dir o "$@"\n'}, "train.py", "DS946", BY_LAUNCH),
        ({"train.py": ACCELERATOR, "run.sh": "accelerate launch --config_file ds.yaml train.py\n"}, "run.sh", "DS946", STAGE_3),
        ({"train.py": ACCELERATOR, "install.sh": "pip install deepspeed\n"}, "train.py", "DS946", BY_LAUNCH),
    ],
)
def test_what_stage_3_makes_wrong(folder: Folder, files: dict[str, str], checked: str, code: str, end: str) -> None:
    folder.write({"run.sh": "", "install.sh": "", **files})
    assert said(folder, code, checked) == [end]


@table(
    "files",
    [
        {"train.py": TRAINER},
        {"train.py": ACCELERATOR},
        {"train.py": TRAINER, "run.sh": "python train.py --output_dir o\n", "install.sh": "pip install deepspeed\n"},
        {"train.py": TRAINER, "run.sh": "deepspeed train.py --output_dir o\n"},
        {"train.py": ACCELERATOR.replace("import torch\n", "import torch  # FSDP\n"), "install.sh": "pip install deepspeed\n"},
        {"train.py": TRAINER.replace(", device_map='auto'", ""), "run.sh": 'deepspeed train.py --output_dir o "$@"\n'},
    ],
)
def test_programs_that_stay_silent(folder: Folder, files: dict[str, str]) -> None:
    folder.write({"run.sh": "", "install.sh": "", **files})
    assert folder.diagnostics("train.py") == []


def test_a_config_of_a_launch_is_the_only_one(folder: Folder) -> None:
    folder.write({"train.py": ENGINE, "run.sh": "deepspeed train.py --deepspeed_config z.json\n", "z.json": ZERO_2})
    assert said(folder, "DS967", "train.py", "run.sh") == []
    folder.write({"other.sh": 'deepspeed train.py --deepspeed_config "$1"\n'})
    assert said(folder, "DS967", "run.sh", "other.sh") == []


def test_stages_that_no_config_of_the_project_has_are_not_tried(folder: Folder) -> None:
    others = {f"a/{name}.json": ZERO_2 for name in "abc"}
    folder.write({"train.py": ENGINE, "a/other.py": 'NAMES = ["a.json", "b.json", "c.json"]', **others})
    assert said(folder, "DS967", "train.py") == []
    folder.write({"a/d.json": ZERO_2.replace("2}", "3}"), "a/more.py": 'NAMES = ["d.json"]'})
    assert said(folder, "DS967", "train.py") == [STAGE_3]


def test_a_module_is_judged_with_the_program_that_imports_it(folder: Folder) -> None:
    module = (
        "import deepspeed, torch\ndef train(model, config):\n    engine, *_ = deepspeed.initialize(model=model, config=config)\n"
        "    if torch.distributed.get_rank() == 0:\n"
        "        torch.save(engine.module.state_dict(), 'w.pt')\n"
    )
    folder.write({"loop.py": module})
    assert said(folder, "DS967", "loop.py") == [STAGE_3]
    folder.write({"train.py": "from loop import train\nfrom company import read\ntrain(read.model, read('x'))\n"})
    assert said(folder, "DS967", "loop.py") == []
    folder.write({"train.py": "import loop\nloop.train(object(), 'z.json')\n", "z.json": ZERO_2})
    assert said(folder, "DS967", "loop.py", "train.py") == []


COMPUTED = (
    "import os, deepspeed, torch\nconfig = {'train_micro_batch_size_per_gpu': 1, 'zero_optimization': {'stage': %s}}\n"
    "engine, *_ = deepspeed.initialize(model=net, optimizer=torch.optim.AdamW(net.parameters()), config=config)\n"
    "if torch.distributed.get_rank() == 0:\n    torch.save(engine.module.state_dict(), 'w.pt')\n"
)


@table(
    "stage, ends",
    [
        ("int(os.environ['STAGE'])", ["That is so if int(os.environ['STAGE']) is 3."]),
        ("choose(net)", ["That is so if choose(net) is 3."]),
        ("2", []),
        ("1 + 1", []),
    ],
)
def test_a_config_whose_stage_is_computed(folder: Folder, stage: str, ends: list[str]) -> None:
    folder.write({"train.py": COMPUTED % stage})
    assert said(folder, "DS967", "train.py") == ends
    assert {one.code for one in folder.diagnostics("train.py")} <= {"DS967"}
    folder.write({"train.py": COMPUTED % stage + "if stage != 3:\n    stage = 0\n"})
    assert said(folder, "DS967", "train.py") == []


def test_the_name_of_a_config_says_its_stage(folder: Folder) -> None:
    for name, ends in (("conf/zero3.json", [STAGE_3]), ("ds_z2_config.json", []), ("stage2.json", []), ("a100.json", [STAGE_3])):
        folder.write({"train.py": MISSING.replace("no.json", name)})
        assert said(folder, "DS946", "train.py") == ends, name


def test_what_is_right_at_a_stage_is_not_said(folder: Folder) -> None:
    guarded = "from transformers.integrations import is_deepspeed_zero3_enabled\n" + TRAINER.replace(
        "device_map='auto'", "device_map=None if is_deepspeed_zero3_enabled() else 'auto'"
    )
    folder.write({"train.py": guarded, "run.sh": 'deepspeed train.py --output_dir o "$@"\n'})
    assert said(folder, "DS946", "train.py") == []
    folder.write({"train.py": ENGINE.replace("torch.save(engine.module.state_dict(), 'w.pt')", "print('done')")})
    assert folder.diagnostics("train.py") == []


def test_what_is_as_wrong_without_deepspeed_is_not_said_of_a_program_that_may_train_without(folder: Folder) -> None:
    """transformers 4.46 passes its Trainer's method an argument that this one does not take, on one GPU, too."""
    method = "class Own(Trainer):\n    def compute_loss(self, model, inputs, return_outputs=False):\n        return model(**inputs).loss\n"
    program = TRAINER.replace("model = Auto", f"{method}model = Auto").replace("trainer = Trainer(", "trainer = Own(")
    folder.write({"train.py": program, "requirements.txt": "transformers==4.46.3\ndeepspeed\n"})
    found = dslint("check", "train.py", "--output-format", "json", cwd=folder.path).stdout
    assert {one["code"] for one in json.loads(found)["diagnostics"]} == {"DS946", "DS957"}
