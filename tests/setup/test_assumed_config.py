"""A program that gets its config from elsewhere is checked with the only config of its project, and nothing that rests on that is certain."""

from __future__ import annotations

import pytest

from dslint.diagnostics import Diagnostic, Severity
from tests.setup.folder import Folder

CONFIG = '{"train_micro_batch_size_per_gpu": 4, "zero_optimization": {"stage": 3}, "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}}}'
OWN = """\
import deepspeed
from company.recipes import load
config = load("run7")
engine, *_ = deepspeed.initialize(model=model, model_parameters=model.parameters(), config=config)
for batch in loader:
    engine.backward(engine(batch))
    engine.step()
"""
TRAINER = """\
from company.recipes import load
from transformers import AutoModelForCausalLM, Trainer, TrainingArguments
arguments = TrainingArguments("out", per_device_train_batch_size=4, learning_rate=1e-4, deepspeed=load("run7"))
model = AutoModelForCausalLM.from_pretrained("m", device_map="auto")
Trainer(model, arguments, train_dataset=data).train()
"""
CALLED = "import deepspeed\ndef train(config):\n    return deepspeed.initialize(model=model, model_parameters=model.parameters(), config=config)\n"


def found(folder: Folder, code: str) -> list[Diagnostic]:
    return [one for one in folder.diagnostics("train.py") if one.code == code]


@pytest.mark.parametrize("name", ["ds_config.json", "conf/ds_zero3.json", "configs/deepspeed/stage3.json", "conf/deepspeed.json"])
def test_the_only_config_is_taken(folder: Folder, name: str) -> None:
    is_named_so = name != "configs/deepspeed/stage3.json"
    folder.write({"train.py": TRAINER, name: CONFIG})
    said = [one.message for one in found(folder, "DS946")]
    assert [one.endswith(f"{name}, the only config that dslint sees here, is taken for that of train.py:3.") for one in said] == [
        True
    ] * is_named_so


def test_what_rests_on_the_program_is_not_certain(folder: Folder) -> None:
    folder.write({"train.py": OWN, "ds_config.json": '{"train_micro_batch_size_per_gpu": 4, "zero_optimization": {"stage": 2}}'})
    (one,) = found(folder, "DS654")
    assert (one.severity, one.certain) == (Severity.WARNING, False)
    assert "may raise" in one.message
    assert one.message.endswith("ds_config.json, the only config that dslint sees here, is taken for that of train.py:4.")


def test_what_is_wrong_under_any_config_stays_certain(folder: Folder) -> None:
    folder.write({"train.py": OWN.replace("engine, *_ =", "engine ="), "ds_config.json": CONFIG})
    (one,) = found(folder, "DS889")
    assert one.certain
    assert "taken for" not in one.message


def test_what_the_config_shows_by_itself_stays_certain(folder: Folder) -> None:
    folder.write({"train.py": OWN, "ds_config.json": CONFIG.replace('"stage"', '"stages": 1, "stage"')})
    (one,) = found(folder, "DS101")
    assert one.certain
    assert "taken for" not in one.message


def test_the_loader_of_the_program_counts_for_the_config(folder: Folder) -> None:
    """Lightning fills the batch size in: without the program the config has none."""
    program = "from company.recipes import load\nfrom lightning.pytorch import Trainer\nfrom lightning.pytorch.strategies import DeepSpeedStrategy\ntrainer = Trainer(strategy=DeepSpeedStrategy(config=load('r')))\n"
    folder.write({"train.py": program, "ds_config.json": '{"zero_optimization": {"stage": 2}}'})
    assert found(folder, "DS204") == []


OTHERS = {
    "another config": {"ds_zero2.json": CONFIG},
    "another program names it": {"other.py": 'import deepspeed\ndeepspeed.initialize(config="ds_config.json")\n'},
    "a script names it": {"run.sh": "deepspeed other.py --deepspeed ds_config.json\n"},
    "a YAML file names it": {"recipe.yaml": "deepspeed: ds_config.json\n"},
    "data": {f"part{number}.json": "{}" for number in range(25)},
}


@pytest.mark.parametrize("other", OTHERS)
def test_a_config_that_may_be_meant_for_something_else_is_not_taken(folder: Folder, other: str) -> None:
    folder.write({"train.py": TRAINER, "ds_config.json": CONFIG, **OTHERS[other]})
    assert found(folder, "DS946") == []


def test_a_program_with_an_engine_of_its_own_fills_auto_in_itself(folder: Folder) -> None:
    folder.write({"train.py": OWN, "ds_config.json": CONFIG.replace("1e-4", '"auto"')})
    assert not any("taken for" in one.message for one in folder.diagnostics("train.py"))


def test_the_config_of_a_function_that_nothing_calls(folder: Folder) -> None:
    folder.write({"train.py": CALLED, "ds_config.json": '{"train_micro_batch_size_per_gpu": 4, "zero_optimization": {"stage": 2}}'})
    (one,) = found(folder, "DS654")
    assert one.message.endswith("is taken for that of train.py:3.")
    assert folder.results("train.py")["train.py"].not_judged


@pytest.mark.parametrize("name", ["ds_config.json", "conf/ds.json"])
def test_the_config_named_alone_has_the_same_findings(folder: Folder, name: str) -> None:
    folder.write({"train.py": OWN, name: '{"train_micro_batch_size_per_gpu": 4, "zero_optimization": {"stage": 2}}'})
    assert folder.found(name) == folder.found("train.py") == [("DS654", name, 1)]


def test_a_config_is_found_from_a_program_in_any_folder_that_names_it(folder: Folder) -> None:
    program = OWN.replace('load("run7")', '"conf/ds.json"')
    folder.write({"src/work/train.py": program, "conf/ds.json": '{"train_micro_batch_size_per_gpu": 4, "zero_optimization": {"stage": 2}}'})
    assert folder.found("conf/ds.json") == [("DS654", "conf/ds.json", 1)]


def test_a_recipe_that_a_program_reads_does_not_judge_the_config_without_the_program(folder: Folder) -> None:
    """The program passes an optimizer: the file with the path of the config alone does not know that."""
    recipe = "name: run\ntrain:\n  epochs: 3\n  deepspeed: ds_config.json\n"
    program = (
        "import deepspeed\nfrom omegaconf import OmegaConf\ncfg = OmegaConf.load('recipe.yaml')\n"
        "deepspeed.initialize(model=model, config=cfg.train.deepspeed)\ndeepspeed.comm.all_reduce(loss, prof=True)\n"
    )
    config = '{"train_micro_batch_size_per_gpu": 4, "comms_logger": {"enabled": true, "prof_all": false}}'
    folder.write({"recipe.yaml": recipe, "ds_config.json": config})
    assert [code for code, _, _ in folder.found("recipe.yaml", "ds_config.json")] == ["DS807"]
    folder.write({"train.py": program})
    assert folder.found("recipe.yaml", "ds_config.json", "train.py") == []
