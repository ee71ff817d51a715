"""What is said of the configs that are taken for that of a program: which ones they are, and why none is."""

from __future__ import annotations

from dslint.config.context import Context
from dslint.diagnostics import Diagnostic, Effect, Place, Range, Severity
from dslint.job.model import Setup
from dslint.lint.discovery import discover
from dslint.lint.files import lint_all
from dslint.lint.results import FileResult
from dslint.lint.setups import merged
from dslint.not_judged import Why
from dslint.settings import Finder
from tests.cases import table
from tests.setup.folder import Folder

STAGE_2 = '{"train_micro_batch_size_per_gpu": 4, "zero_optimization": {"stage": 2}}'
STAGE_3 = STAGE_2.replace("2}", "3}")
OWN = """\
import argparse, deepspeed
parser = argparse.ArgumentParser()
parser.add_argument("--config")
engine, *_ = deepspeed.initialize(model=model, model_parameters=model.parameters(), config=parser.parse_args().config)
engine.backward(engine(batch))
engine.step()
"""
ACCELERATED = """\
import torch
from accelerate import Accelerator
accelerator = Accelerator()
model, optimizer, loader = accelerator.prepare(model, torch.optim.AdamW(model.parameters(), lr=1e-4), loader)
for batch in loader:
    accelerator.backward(model(**batch).loss)
    optimizer.step()
if accelerator.is_main_process:
    torch.save(accelerator.get_state_dict(model), "x.pt")
"""
FILE = "distributed_type: DEEPSPEED\ndeepspeed_config:\n  zero_stage: 2\n  zero_stages: 3\nmixed_precision: bf16\nnum_processes: {}\n"


def checked(*names: str) -> dict[str, FileResult]:
    """What `dslint check` says of files and folders, by path."""
    return {one.path: one for one in lint_all(discover(names, Finder()).targets, Finder(), jobs=1)}


@table(
    "others, said",
    [
        ({}, "conf/ds_a.json, the only candidate that dslint sees,"),
        ({"conf/data.json": "["}, "conf/ds_a.json, the only candidate that dslint sees,"),
        ({"conf/ds_b.json": ""}, "conf/ds_a.json, the only candidate that dslint sees,"),
        ({"conf/ds_b.json": "{train_batch_size: 3"}, "conf/ds_a.json, the only candidate that dslint can read,"),
        ({"conf/ds_b.json": STAGE_3[:-1]}, "one of 2 candidates that dslint sees."),
        (
            {"conf/ds_b.json": STAGE_3, "run.sh": "deepspeed x.py --deepspeed ds_b.json\n"},
            "conf/ds_a.json, the only candidate that no other file names,",
        ),
        (
            {"conf/ds_b.json": STAGE_3, "train.py": f"# deepspeed train.py --config ds_a.json\n{OWN}"},
            "the only candidate that the program names,",
        ),
    ],
)
def test_which_config_is_taken(folder: Folder, others: dict[str, str], said: str) -> None:
    for old in (folder.path / "conf").glob("*"):
        old.unlink()
    (folder.path / "run.sh").unlink(missing_ok=True)
    folder.write({"train.py": OWN, "conf/ds_a.json": STAGE_2, **others})
    (one,) = [one for one in folder.diagnostics("train.py") if one.code == "DS654" and one.path == "conf/ds_a.json"]
    assert said in one.message


def test_more_configs_than_are_tried(folder: Folder) -> None:
    configs = {f"zero{number}.json": STAGE_2 for number in range(8)}
    folder.write({"own.py": OWN, "accelerated.py": ACCELERATED.replace("import torch", "import torch  # deepspeed", 1), **configs})
    assert not any("more than 8" in one.reason for name in ("own.py", "accelerated.py") for one in checked(name)[name].not_judged)
    folder.write({"zero8.json": STAGE_2})
    for name in ("own.py", "accelerated.py"):
        (said,) = [one.reason for one in checked(name)[name].not_judged if "more than 8" in one.reason]
        assert said.startswith("the program may run with more than 8 configs")
        assert said.endswith(f"dslint check {name} CONFIG.")


def test_a_program_for_accelerate_that_a_person_names(folder: Folder) -> None:
    folder.write({"train.py": ACCELERATED, "zero2.json": STAGE_2, "zero3.json": STAGE_3})
    (one,) = [one for one in folder.diagnostics("train.py") if one.code == "DS964"]
    assert one.message.endswith("That is so if train.py runs with zero3.json, one of 2 candidates that dslint sees.")
    assert checked("train.py", "zero3.json")["train.py"].not_judged == ()
    parsed = ACCELERATED.replace(
        "import torch", "import torch, transformers\ntransformers.HfArgumentParser(A).parse_args_into_dataclasses()", 1
    )
    folder.write({"parses.py": parsed.replace("accelerate import", "accelerate import DeepSpeedPlugin,")})
    assert checked("parses.py", "zero3.json")["parses.py"].not_judged == ()
    assert checked("train.py")["train.py"].note == "a program that names no config; checked with zero2.json and with zero3.json."


TRAINED = """\
from transformers import Trainer, TrainingArguments
args = TrainingArguments(output_dir="o", per_device_train_batch_size=2)
Trainer(model=model, args=args, train_dataset=data).train()
"""
AUTO = '{"train_micro_batch_size_per_gpu": 4, "gradient_accumulation_steps": "auto", "zero_optimization": {"stage": 2}}'


@table("program, code", [(ACCELERATED, "DS964"), (TRAINED, "DS904")])
def test_a_program_beside_a_config_is_judged_with_it_in_a_folder_as_alone(folder: Folder, program: str, code: str) -> None:
    """Nothing says which launch ties the two: what rests on the config may be so, and says why."""
    folder.write({"train.py": program, "plain.py": "print(1)\n", "zero2.json": STAGE_3 if code == "DS964" else AUTO})
    for name in (".", "train.py"):
        results = checked(name)
        (one,) = [one for result in results.values() for one in result.diagnostics if one.code == code]
        assert not one.certain
        assert "zero2.json, the only candidate that dslint sees, is taken for that of train.py." in one.message
        assert results["train.py"].note == "a program that names no config; checked with zero2.json."


@table(
    "script",
    ["python train.py\n", "deepspeed x.py --deepspeed zero2.json\n", "python train.py --lr 1\ndeepspeed x.py --deepspeed zero2.json\n"],
)
def test_a_config_that_a_script_rules_out_is_not_taken(folder: Folder, script: str) -> None:
    folder.write({"train.py": TRAINED, "zero2.json": AUTO, "run.sh": script})
    assert not any(one.code == "DS904" for result in checked(".").values() for one in result.diagnostics)


def test_a_program_among_many_beside_a_config_counts_as_not_checked(folder: Folder) -> None:
    others = {f"train_{number}.py": TRAINED for number in range(5)}
    folder.write({"train.py": TRAINED, "plain.py": "print(1)\n", "ds.json": AUTO, **others})
    results = checked(".")
    assert sorted(results) == ["ds.json", "train.py", *sorted(others)]
    assert {one.why for name in ("train.py", *others) for one in results[name].not_judged} == {Why.MAY_USE_DEEPSPEED}
    folder.write({"other.sh": "deepspeed x.py --deepspeed ds.json\n"})  # it is the config of another one
    assert "train.py" not in checked(".")


@table("place, config", [("src/train.py", "ds.json"), ("src/train.py", "conf/ds.json"), ("tools/a/train.py", "conf/zero/ds.json")])
def test_the_config_of_a_small_project_may_lie_anywhere(folder: Folder, place: str, config: str) -> None:
    for old in [*folder.path.rglob("*.py"), *folder.path.rglob("*.json")]:
        old.unlink()
    folder.write({place: TRAINED, config: AUTO})
    (one,) = [one for result in checked(".").values() for one in result.diagnostics if one.code == "DS904"]
    assert f"{config}, the only candidate that dslint sees, is taken for that of {place}." in one.message


@table(
    "script, line",
    [
        ("C=(\n  torchrun --nproc_per_node 4 train.py\n  --deepspeed ds.json\n)\necho ${C[@]}\n", 2),
        ("if false; then\n  deepspeed train.py --deepspeed ds.json\nfi\n", 2),
        ("exit 0\naccelerate launch --use_deepspeed train.py\n", 2),
        ("# DeepSpeed\n$LAUNCH train.py --deepspeed ds.json\n", 2),
    ],
)
def test_a_script_that_reaches_no_launch_says_so_in_a_folder_as_alone(folder: Folder, script: str, line: int) -> None:
    flags = "FLAGS='--backend deepspeed --stage 3'\npip install deepspeed\n"
    folder.write({"run.sh": script, "ds.json": AUTO, "ordinary.sh": "# for DeepSpeed\npip install deepspeed\n", "flags.sh": flags})
    alone, found = checked("run.sh")["run.sh"], checked(".")
    assert [one.reason for one in alone.not_judged] == [one.reason for one in found["run.sh"].not_judged]
    assert found["run.sh"].not_judged[0].reason.startswith(f"line {line} starts ")
    assert not {"ordinary.sh", "flags.sh"} & set(found)


def test_a_config_beside_a_program_is_one_by_its_content(folder: Folder) -> None:
    folder.write({"train.py": TRAINED, "settings.json": AUTO, "data.json": "[1, 2]"})
    assert "DS904" in {one.code for result in checked(".").values() for one in result.diagnostics}
    folder.write({"settings.json": '{"per_gpu": 4}'})
    assert "train.py" not in checked(".")


def test_a_call_over_several_lines_has_a_name_in_the_message(folder: Folder) -> None:
    model = "from transformers import AutoModel\naccelerator = Accelerator()\nmodel = AutoModel.from_pretrained('m')\n"
    program = (
        ACCELERATED.replace("accelerator = Accelerator()\n", model).partition("    torch.save")[0] + "    model(\n        batch,\n    )\n"
    )
    folder.write({"train.py": program, "zero3.json": STAGE_3})
    (one,) = [one for one in folder.diagnostics("train.py") if one.code == "DS964"]
    assert one.message.startswith("train.py:11 calls the model only where")
    assert one.help == "Call the model on every rank."


def test_a_mistake_of_a_config_is_said_once(folder: Folder) -> None:
    folder.write({"train.py": ACCELERATED, "a.yaml": FILE.format(8), "b.yaml": FILE.format(4)})
    for names in ((".",), ("train.py",), ("train.py", "a.yaml", "b.yaml")):
        found = [one for result in checked(*names).values() for one in result.diagnostics if one.code == "DS915"]
        assert [one.path for one in found] == ["a.yaml", "b.yaml"], names
        assert not any("That is so" in one.message for one in found), names


def test_a_mistake_that_the_config_has_by_itself_is_said_once_in_a_folder(folder: Folder) -> None:
    """Alone it is one of the Trainer or of Accelerate, with the program one of Accelerate: one place, two messages."""
    program = ACCELERATED.replace("import torch", "import argparse, torch\nargparse.ArgumentParser().parse_args()", 1)
    auto = STAGE_3.replace("4", '"auto"', 1)
    folder.write({"train.py": f"{program}# deepspeed\n", "zero2.json": auto.replace("3}", "2}"), "zero3.json": auto})
    (one,) = [one for one in checked(".")["zero3.json"].diagnostics if one.code == "DS819"]
    assert "That is so" not in one.message


def _found(path: str, message: str, help_: str = "Gather it.", *, certain: bool = False) -> FileResult:
    place = Range(Place(3, 1, 20), Place(3, 9, 28))
    one = Diagnostic(path, "DS968", "n", Severity.WARNING, Effect.SILENT, None, message, help_, range=place, certain=certain)
    setup = Setup(config=f"{message}.json", starts_here=True)
    return FileResult(path, "python", None, (one,), context=Context(setup=setup))


@table(
    "results, messages",
    [
        ([_found("t.py", "divided by then"), _found("t.py", "divided as it is loaded")], ["divided by then"]),
        ([_found("t.py", "may fail"), _found("t.py", "fails here", certain=True)], ["fails here"]),
        ([_found("c.json", "4 here, 2 in a.sh"), _found("c.json", "4 here, 8 in b.sh")], ["4 here, 2 in a.sh", "4 here, 8 in b.sh"]),
        ([_found("t.py", "4 here", "Write 2."), _found("t.py", "4 here again", "Write 8.")], ["4 here", "4 here again"]),
        ([_found("t.py", "a", certain=True), _found("t.py", "b", certain=True)], ["a", "b"]),
    ],
)
def test_what_two_setups_say_of_a_place_in_other_words_is_said_once(results: list[FileResult], messages: list[str]) -> None:
    (result,) = merged(results)
    assert [one.message for one in result.diagnostics] == messages


def test_a_trainer_with_another_name_is_a_program(folder: Folder) -> None:
    program = "from trl import SFTTrainer\nimport torch\ntrainer = SFTTrainer(model, train_dataset=data)\ntrainer.train()\n"
    folder.write({"train.py": program, "a.yaml": FILE.format(8)})
    assert "train.py" in checked(".")


def test_flags_that_are_read_as_those_of_a_framework(folder: Folder) -> None:
    """The config of a program that is not there is a guess, whatever is found in it."""
    folder.write({"run.sh": "deepspeed main.py --deepspeed --data_split 2,4,4 --zero_stage 0\n"})
    assert [one.reason for one in checked("run.sh")["run.sh"].not_judged] == [
        "main.py builds the DeepSpeed config itself, and what it writes is not known: the flags were checked as those of DeepSpeed-Chat."
    ]
    built = (
        "import argparse, deepspeed\np = argparse.ArgumentParser()\np.add_argument('--data_split')\np.add_argument('--zero_stage', type=int)\n"
        "a = deepspeed.add_config_arguments(p).parse_args()\n"
        "deepspeed.initialize(a, model, config={'train_batch_size': 4, 'zero_optimization': {'stage': a.zero_stage}})\n"
    )
    folder.write({"main.py": built})
    assert checked("run.sh")["run.sh"].not_judged == ()


def test_a_config_among_other_programs_is_theirs(folder: Folder) -> None:
    config = {"summary/conf/ds.json": STAGE_2}
    folder.write({"train.py": OWN, **config, "summary/main.py": "import lib\nlib.run()\n"})
    assert [one.code for one in folder.diagnostics("train.py") if one.code == "DS654"] == []
    (folder.path / "summary/main.py").unlink()
    assert [one.code for one in folder.diagnostics("train.py") if one.code == "DS654"] == ["DS654"]


def test_a_launch_that_selects_a_strategy_of_lightning_says_so(folder: Folder) -> None:
    program = "import lightning as L\nargs = parse()\nif args.strategy == 'deepspeed_stage_3':\n    check(args)\nL.Trainer.from_argparse_args(args)\n"
    folder.write({"train.py": program, "run.sh": "python train.py --strategy deepspeed_stage_2 --devices 8\n"})
    (reason,) = checked("run.sh")["run.sh"].not_judged
    assert reason.reason.endswith("--strategy deepspeed_stage_2 selects a strategy of Lightning, which builds the config.")


@table(
    "part, kept",
    [
        ("from transformers import Trainer\nclass OwnTrainer(Trainer):\n    pass\n", False),
        ("from transformers import Trainer\ndef make(**given):\n    return Trainer(**given)\n", False),
        (
            "from transformers import Trainer\nclass OwnTrainer(Trainer):\n    pass\nif __name__ == '__main__':\n    OwnTrainer().train()\n",
            True,
        ),
        ("from transformers import Trainer\ntrainer = Trainer(model=model)\ntrainer.train()\n", True),
    ],
)
def test_a_part_of_a_program_is_not_taken_for_a_launch(folder: Folder, part: str, kept: bool) -> None:
    """Among many programs each says that nothing tells how it is launched. What one of them imports is not launched."""
    others = {f"train_{number}.py": TRAINED for number in range(5)}
    folder.write({"parts.py": part, "main.py": f"from parts import *\n{TRAINED}", "ds.json": AUTO, **others})
    assert ("parts.py" in checked(".")) == kept
    folder.write({"main.py": "from parts import make\n"})  # makes no loader itself
    assert "parts.py" in checked(".")


def test_what_a_script_says_of_a_launch_is_not_said_to_be_missing(folder: Folder) -> None:
    others = {f"train_{number}.py": TRAINED for number in range(5)}
    folder.write({"train.py": TRAINED, "ds.json": AUTO, **others, "run.sh": "deepspeed /workspace/train.py --deepspeed zero.json\n"})
    missing = {path for path, one in checked(".").items() if Why.MAY_USE_DEEPSPEED in {why.why for why in one.not_judged}}
    assert missing == set(others)


def test_a_program_whose_text_names_a_config_is_judged_with_it_among_many(folder: Folder) -> None:
    others = {f"train_{number}.py": TRAINED for number in range(5)}
    folder.write({"train.py": f"# deepspeed train.py --deepspeed zero.json\n{TRAINED}", "zero.json": AUTO, **others})
    results = checked(".")
    assert "checked with zero.json" in (results["train.py"].note or "")
    assert not results["train.py"].not_judged


def test_without_zero_in_the_project_a_saved_optimizer_is_whole(folder: Folder) -> None:
    folder.write(
        {"train.py": f"import torch\n{OWN}".replace("engine, *_", "engine, optimizer, *_") + "torch.save(optimizer.state_dict(), 'o.pt')\n"}
    )
    for stage, found in ((STAGE_2, True), ('{"train_batch_size": 4}', False)):
        folder.write({"conf/a.json": stage, "conf/b.json": stage})
        codes = {one.code for result in checked("train.py").values() for one in result.diagnostics}
        assert ("DS896" in codes) == found, codes


def test_what_is_slow_with_a_config_is_kept_where_a_launch_and_a_program_that_may_use_it_agree(folder: Folder) -> None:
    slow = '{"train_micro_batch_size_per_gpu": "auto", "zero_optimization": {"stage": 2, "overlap_comm": true}}'
    part = "trainer = Trainer(model=model, args=args)\ntrainer.train()\n"
    folder.write({"requirements.txt": "deepspeed==0.18.4\n", "ds.json": slow, "part.py": part})
    folder.write({"run.sh": "deepspeed --num_gpus 2 train.py --deepspeed ds.json\n"})
    assert "DS977" in [d.code for d in checked(".")["ds.json"].diagnostics]
