"""A program that names no config is checked with those that it may run with, and nothing that rests on that is certain."""

from __future__ import annotations

import pytest

from dslint.diagnostics import Diagnostic, Severity
from dslint.facts import Facts, Integration, Release
from dslint.lint.discovery import discover
from dslint.lint.files import lint_all
from dslint.settings import Finder
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
    return [one for one in taken(folder, "train.py") if one.code == code]


def taken(folder: Folder, *names: str) -> list[Diagnostic]:
    """What is found without what rests on configs that are only tried: none is taken for that of the program then."""
    return [
        one
        for one in folder.diagnostics(*names)
        if not one.message.endswith((" sets ZeRO stage 2.", " sets ZeRO stage 3.", " args.zero_stage is 3."))
    ]


@pytest.mark.parametrize("name", ["ds_config.json", "conf/ds_zero3.json", "configs/deepspeed/stage3.json", "conf/deepspeed.json"])
def test_the_only_config_is_taken(folder: Folder, name: str) -> None:
    is_named_so = name != "configs/deepspeed/stage3.json"
    folder.write({"train.py": TRAINER, name: CONFIG})
    said = [one.message for one in found(folder, "DS946")]
    assert [one.endswith(f"{name}, the only candidate that dslint sees, is taken for that of train.py:3.") for one in said] == [
        True
    ] * is_named_so


def test_what_rests_on_the_program_is_not_certain(folder: Folder) -> None:
    folder.write({"train.py": OWN, "ds_config.json": '{"train_micro_batch_size_per_gpu": 4, "zero_optimization": {"stage": 2}}'})
    (one,) = found(folder, "DS654")
    assert (one.severity, one.certain) == (Severity.WARNING, False)
    assert "may raise" in one.message
    assert one.message.endswith("ds_config.json, the only candidate that dslint sees, is taken for that of train.py:4.")


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


SAVES = """\
import argparse, deepspeed, torch
parser = argparse.ArgumentParser()
parser.add_argument("--local_rank")
parser.add_argument("--ds_config")
engine, *_ = deepspeed.initialize(model=model, model_parameters=model.parameters(), config=parser.parse_args().ds_config)
for batch in loader:
    engine.backward(engine(batch))
    engine.step()
if engine.global_rank == 0:
    torch.save(engine.module.state_dict(), "x.pt")
"""
ACCELERATED = """\
from accelerate import Accelerator
accelerator = Accelerator()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
model, reference, optimizer, loader = accelerator.prepare(model, reference, optimizer, loader)
for batch in loader:
    accelerator.backward(model(**batch).loss)
    optimizer.step()
"""
PREPARES_TWO = ACCELERATED.replace("(model, reference,", "(Net(), Net(),").replace(
    "from acc", "import torch\nclass Net(torch.nn.Module):\n    pass\nfrom acc", 1
)
FILE = (
    "compute_environment: LOCAL_MACHINE\ndistributed_type: DEEPSPEED\ndeepspeed_config:\n  gradient_accumulation_steps: 1\n"
    "  zero_stage: 2\n  zero3_init_flag: false\nmixed_precision: bf16\nnum_machines: 1\nnum_processes: 8\n"
)
TWO = {"zero2.json": CONFIG.replace('"stage": 3', '"stage": 2'), "zero3.json": CONFIG}


def checked(*names: str) -> list[Diagnostic]:
    """What `dslint check` finds, of folders, too."""
    return [one for result in lint_all(discover(names, Finder()).targets, Finder(), jobs=1) for one in result.diagnostics]


def said(folder: Folder, code: str, *names: str) -> list[tuple[str, bool, str]]:
    """The severity of the findings of a rule, whether they are certain, and how their messages end."""
    ends = [(one, one.message.partition("That is so ")[2]) for one in taken(folder, *names) if one.code == code]
    return [(str(one.severity), one.certain, end) for one, end in ends]


def test_what_one_of_several_configs_makes_wrong(folder: Folder) -> None:
    folder.write({"train.py": SAVES, **TWO})
    assert said(folder, "DS967", "train.py") == [
        ("warning", False, "if train.py:5 runs with zero3.json, one of 2 candidates that dslint sees.")
    ]
    folder.write({"zero3_offload.json": CONFIG})
    assert said(folder, "DS967", "train.py") == [
        ("warning", False, "if train.py:5 runs with zero3.json or zero3_offload.json, 2 of 3 candidates that dslint sees.")
    ]


def test_what_one_of_several_configs_has_wrong_by_itself(folder: Folder) -> None:
    folder.write({"train.py": SAVES, **TWO, "zero2.json": CONFIG.replace('"stage": 3', '"stage": 7')})
    wrong = [(one.path, str(one.severity), one.certain) for one in folder.diagnostics("train.py") if one.code == "DS107"]
    assert wrong == [("zero2.json", "error", True)]


def test_what_all_of_several_configs_make_wrong_is_said_once(folder: Folder) -> None:
    folder.write({"train.py": SAVES, **TWO, "zero2.json": CONFIG})
    assert said(folder, "DS967", "train.py") == [
        ("warning", False, "with each of the 2 candidates that dslint sees: zero2.json, zero3.json.")
    ]


def test_the_same_is_said_of_a_whole_folder(folder: Folder) -> None:
    folder.write({"train.py": SAVES, **TWO})
    assert [one.message for one in checked(".") if one.code == "DS967"] == [one.message for one in found(folder, "DS967")] != []


def test_configs_that_other_files_name_are_not_candidates(folder: Folder) -> None:
    folder.write({"train.py": SAVES, **TWO, "other.sh": "deepspeed other.py --deepspeed zero3.json\n"})
    assert said(folder, "DS967", "train.py") == []


def test_a_folder_with_examples_for_everything_is_not_judged(folder: Folder) -> None:
    folder.write({"train.py": SAVES, **{f"zero{number}.json": CONFIG for number in range(9)}})
    assert said(folder, "DS967", "train.py") == []
    assert folder.results("train.py")["train.py"].not_judged


def test_configs_above_a_folder_belong_to_few_programs(folder: Folder) -> None:
    folder.write({"src/train.py": SAVES, "conf/zero2.json": TWO["zero2.json"], "conf/zero3.json": CONFIG})
    assert len(said(folder, "DS967", "src/train.py")) == 1
    folder.write({f"src/train{number}.py": SAVES for number in range(4)})
    assert said(folder, "DS967", "src/train.py") == []


LAUNCHES = {
    "a variable": "deepspeed --num_gpus 8 train.py --ds_config $DS_CONFIG\n",
    "a part of the path": "STAGE=$1\ndeepspeed --num_gpus 8 train.py --ds_config zero${STAGE}.json\n",
}


@pytest.mark.parametrize("run", LAUNCHES)
def test_a_launch_with_a_config_that_only_the_run_knows(folder: Folder, run: str) -> None:
    folder.write({"train.py": SAVES, **TWO, "run.sh": LAUNCHES[run]})
    line = LAUNCHES[run].count("\n")
    which = "that dslint sees" if run == "a variable" else "with a name that fits"
    for name in ("run.sh", "train.py"):
        assert said(folder, "DS967", name) == [("warning", False, f"if run.sh:{line} runs with zero3.json, one of 2 candidates {which}.")]
    result = folder.results("run.sh")["run.sh"]
    assert result.not_judged
    assert folder.results("run.sh")["zero3.json"].context.facts.world_size == 8


READS = (
    SAVES.replace("import argparse,", "import argparse, json,")
    .replace("engine, *_ =", "with open(parser.parse_args().settings) as file:\n    config = json.load(file)\nengine, *_ =", 1)
    .replace("config=parser.parse_args().ds_config", "config=config")
    .replace("--ds_config", "--settings")
)


@pytest.mark.parametrize(
    ("line", "count"), [("", 1), ('config["train_batch_size"] = size\n', 0), ('size = config["train_batch_size"]\n', 1)]
)
def test_a_batch_size_that_the_program_adds(folder: Folder, line: str, count: int) -> None:
    folder.write({"train.py": OWN.replace("engine, *_", f"{line}engine, *_"), "ds_config.json": '{"zero_optimization": {"stage": 0}}'})
    assert len([one for one in checked("train.py") if one.code == "DS204"]) == count


def test_a_launch_of_a_program_that_reads_the_file_itself(folder: Folder) -> None:
    folder.write({"train.py": READS, **TWO, "run.sh": LAUNCHES["a part of the path"].replace("ds_config", "settings")})
    end = ("warning", False, "if run.sh:2 runs with zero3.json, one of 2 candidates with a name that fits.")
    assert said(folder, "DS967", "run.sh") == [end]
    assert said(folder, "DS967", "train.py") == [end]


def test_a_launch_with_an_unknown_config_does_not_answer_for_those_that_are_tried(folder: Folder) -> None:
    folder.write({"train.py": READS, **TWO, "run.sh": "deepspeed train.py --settings ${A}.json --other ${B}.json\n"})
    alone = [one.message for one in checked("train.py") if one.code == "DS967"]
    assert [one.message for one in checked("train.py", "run.sh") if one.code == "DS967"] == alone != []


def test_a_path_with_a_variable_means_only_what_fits(folder: Folder) -> None:
    folder.write({"train.py": SAVES, **TWO, "run.sh": "deepspeed train.py --ds_config conf/ds_${KIND}.json\n"})
    assert said(folder, "DS967", "run.sh") == []


@pytest.mark.parametrize("named", ["train.py", "."])
def test_a_program_for_accelerate_beside_its_file(folder: Folder, named: str) -> None:
    folder.write({"train.py": PREPARES_TWO, "zero2.yaml": FILE})
    (one,) = [one for one in checked(named) if one.code == "DS965"]
    assert (one.severity, one.certain) == (Severity.WARNING, False)
    assert one.message.endswith("zero2.yaml, the only candidate that dslint sees, is taken for that of train.py.")


OTHER_FILES = {
    "a file for many GPUs without DeepSpeed": FILE.replace("DEEPSPEED", "MULTI_GPU"),
    "a file for FSDP": FILE.replace("DEEPSPEED", "FSDP"),
}


@pytest.mark.parametrize("other", OTHER_FILES)
def test_a_program_beside_a_file_without_deepspeed(folder: Folder, other: str) -> None:
    folder.write({"train.py": PREPARES_TWO, "multi.yaml": OTHER_FILES[other]})
    assert folder.diagnostics("train.py") == []


def test_a_part_of_a_program_that_uses_an_accelerator_made_elsewhere(folder: Folder) -> None:
    program = PREPARES_TWO.replace("from accelerate import Accelerator\naccelerator = Accelerator()\n", "")
    folder.write({"train.py": program, "zero2.yaml": FILE})
    assert "DS965" in [one.code for one in folder.diagnostics("train.py")]


def test_a_program_for_another_way_to_divide_the_model(folder: Folder) -> None:
    folder.write({"train_fsdp.py": PREPARES_TWO, "train.py": f"{PREPARES_TWO}# with FSDP\n", "zero2.yaml": FILE})
    assert checked(".") == checked("train.py") == checked("train_fsdp.py") == []


def test_a_program_for_accelerate_with_files_elsewhere(folder: Folder) -> None:
    folder.write({"src/train.py": PREPARES_TWO, "conf/zero2.yaml": FILE})
    for name in (".", "src/train.py"):
        (one,) = [one for one in checked(name) if one.code == "DS965"]
        assert not one.certain
        assert "conf/zero2.yaml, the only candidate that dslint sees, is taken for that of src/train.py." in one.message
    folder.write({f"src/other_{number}.py": PREPARES_TWO for number in range(4)})
    assert [one.code for one in checked(".")] == []  # it may be for any of them


def test_a_program_and_a_config_that_are_named_together(folder: Folder) -> None:
    program = TRAINER.replace(', deepspeed=load("run7")', "")
    folder.write({"train.py": program, "ds.json": CONFIG, "conf/ds2.json": CONFIG})
    assert len(found(folder, "DS946")) == 2  # it may run with each
    (one,) = [one for one in checked("train.py", "conf/ds2.json") if one.code == "DS946"]
    assert one.path == "conf/ds2.json"
    assert one.message.endswith("conf/ds2.json, named with it, is taken for that of train.py.")


def test_a_config_that_is_named_answers_what_the_launch_says(folder: Folder) -> None:
    folder.write({"train.py": SAVES, **TWO})
    targets = discover(("train.py", "zero3.json"), Finder()).targets
    results = {one.path: one for one in lint_all(targets, Finder(), jobs=1)}
    assert results["train.py"].not_judged == ()
    assert [one.code for one in results["train.py"].diagnostics] == ["DS967"]


def test_a_program_that_names_its_config_keeps_it(folder: Folder) -> None:
    program = TRAINER.replace('load("run7")', '"ds.json"')
    folder.write({"train.py": program, "ds.json": TWO["zero2.json"], "other.json": CONFIG})
    assert [one for one in checked("train.py", "other.json") if one.code == "DS946"] == []


def test_a_program_that_a_person_says_is_for_the_trainer(folder: Folder) -> None:
    program = TRAINER.replace(', deepspeed=load("run7")', "").replace("Trainer(model", "trainer = Trainer(model").replace(".train()", "")
    folder.write({"train.py": program + 'trainer.train()\nimport torch; torch.save(trainer.model.state_dict(), "w.pt")\n'})
    assert folder.found("train.py") == []
    assert folder.found("train.py", facts=Facts(integration=Integration.TRANSFORMERS)) == [
        ("DS946", "train.py", 4),
        ("DS957", "train.py", 4),
        ("DS895", "train.py", 7),
    ]
    (reason,) = folder.results("train.py", facts=Facts(integration=Integration.TRANSFORMERS))["train.py"].not_judged
    assert "the DeepSpeed config for the Trainer is given at launch with --deepspeed or accelerate launch --config_file." in reason.reason


BY_STAGE = """\
import argparse, deepspeed, torch
parser = argparse.ArgumentParser()
parser.add_argument("--local_rank")
parser.add_argument("--zero_stage", type=int, required=True)
args = parser.parse_args()
ds = {"train_micro_batch_size_per_gpu": 4, "zero_optimization": {"stage": args.zero_stage}, "optimizer": {"type": "AdamW"}}
engine, *_ = deepspeed.initialize(model=model, model_parameters=model.parameters(), config=ds)
for batch in loader:
    engine.backward(engine(batch))
    engine.step()
if engine.global_rank == 0:
    torch.save(engine.module.state_dict(), "x.pt")
"""


@pytest.mark.parametrize(
    ("flag", "of"),
    [("required=True", "one of 4"), ("choices=[2, 3]", "one of 2"), ("choices=(1, 2)", ""), ("default=2", ""), ("choices=[3]", "")],
)
def test_a_stage_that_a_flag_says(folder: Folder, flag: str, of: str) -> None:
    folder.write({"train.py": BY_STAGE.replace("required=True", flag)})
    ends = [("warning", False, f"if train.py:7 runs with ZeRO stage 3, {of} that args.zero_stage may be.")] if of else []
    assert said(folder, "DS967", "train.py") == ends


@pytest.mark.parametrize(
    ("added", "of"),
    [
        ('"-z", "--zero-stage", dest="zero_stage", required=True', "one of 4"),
        ('"--zero_stage", type=int, choices=[int("2"), 3], help="(see the paper)"', "one of 2"),
        ('"--zero_stage", type=int, nargs="?"', ""),
    ],
)
def test_a_flag_counts_as_the_parser_has_it(folder: Folder, added: str, of: str) -> None:
    folder.write({"train.py": BY_STAGE.replace('"--zero_stage", type=int, required=True', added)})
    ends = [("warning", False, f"if train.py:7 runs with ZeRO stage 3, {of} that args.zero_stage may be.")] if of else []
    assert said(folder, "DS967", "train.py") == ends


def test_what_is_right_at_one_stage_is_not_written(folder: Folder) -> None:
    offloads = '{"stage": args.zero_stage, "offload_optimizer": {"device": "cpu"}}'
    folder.write({"train.py": BY_STAGE.replace('{"stage": args.zero_stage}', offloads)})
    told = [one for one in folder.diagnostics("train.py") if "ZeRO stage" in one.message.partition("That is so")[2]]
    assert told
    assert [one.fix for one in told if one.fix is not None] == []


def test_a_stage_that_the_launch_says(folder: Folder) -> None:
    folder.write({"train.py": BY_STAGE, "run.sh": "deepspeed train.py --zero_stage 2\n"})
    assert said(folder, "DS967", "train.py") == []
    folder.write({"run.sh": "deepspeed train.py --zero_stage 3\n"})
    assert [(severity, end) for severity, _, end in said(folder, "DS967", "train.py")] == [("error", "")]


def test_a_program_that_asks_for_its_stage_knows_what_to_do(folder: Folder) -> None:
    saves = 'if engine.global_rank == 0 and args.zero_stage != 3:\n    torch.save(engine.module.state_dict(), "x.pt")\n'
    folder.write({"train.py": BY_STAGE.partition("if engine")[0] + saves})
    assert said(folder, "DS967", "train.py") == []


def test_what_only_costs_time_is_said_of_a_config_that_programs_may_use(folder: Folder) -> None:
    """The config shows it by itself: that the programs that may use it say it, too, is no other opinion."""
    config = '{"train_micro_batch_size_per_gpu": "auto", "zero_optimization": {"stage": 2, "overlap_comm": true}}'
    program = "from transformers import Trainer, TrainingArguments\nTrainer(model, TrainingArguments('out')).train()\n"
    files = {"zero2.json": config, "zero3.json": config.replace('"stage": 2', '"stage": 3'), "train.py": program}
    folder.write(files)
    found = folder.diagnostics(*files, facts=Facts(deepspeed=Release(0, 18, 4)))
    assert ("DS977", "zero2.json") in {(one.code, one.path) for one in found}
