"""That rules find nothing is said of files that they could judge. Of others the error is as certain as the log alone tells it."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from dslint.cli.diagnose import command
from tests.diagnose.logs import traceback

ERROR = traceback("ValueError: DeepSpeed Zero-3 is not compatible with passing a `device_map`.")
STAGE_3 = '{"train_micro_batch_size_per_gpu": 1, "zero_optimization": {"stage": 3}}'
TRAINER = (
    "from transformers import AutoModelForCausalLM, Trainer, TrainingArguments\n"
    "args = TrainingArguments('out', deepspeed='ds.json', per_device_train_batch_size=1)\n"
    "model = AutoModelForCausalLM.from_pretrained('m'%s)\n"
    "Trainer(model, args).train()\n"
)
LOADS = "from transformers import AutoModelForCausalLM\nnet = AutoModelForCausalLM.from_pretrained('m', device_map='auto')\n"
ELSEWHERE = "from own import load\n" + (TRAINER % "").replace("AutoModelForCausalLM.from_pretrained", "load")
CHECK = "Run `dslint check .` in the project; rules about this error: DS946"


@pytest.fixture(autouse=True)
def in_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def _said(files: dict[str, str], *options: str, log: str = ERROR) -> str:
    for name, text in {"job.log": log, **files}.items():
        Path(name).parent.mkdir(parents=True, exist_ok=True)
        Path(name).write_text(text, encoding="utf-8")
    return " ".join(CliRunner().invoke(command, ["job.log", *options]).stdout.split())


@pytest.mark.parametrize(
    ("files", "options"),
    [
        ({}, ()),
        ({"ds.json": STAGE_3}, ("--config", "ds.json")),
        ({"ds.json": STAGE_3, "fit.py": f"{TRAINER % ''}if (\n"}, ("--program", "fit.py")),
        ({"ds.json": STAGE_3, "run.sh": "deepspeed --num_gpus 2 fit.py --deepspeed ds.json\n"}, ("--program", "run.sh")),
        ({"run.sh": "torchrun --nproc_per_node 4 fit.py --lr 1e-4\n"}, ("--program", "run.sh")),
        ({"ds.json": STAGE_3.replace("}}", ""), "fit.py": TRAINER % ", device_map='auto'"}, ("--program", "fit.py")),
        ({"fit.py": TRAINER % ", device_map='auto'"}, ("--program", "fit.py")),
        ({"ds.json": STAGE_3, "fit.py": ELSEWHERE}, ("--program", "fit.py")),
    ],
    ids=["log", "config", "broken program", "script without program", "no launch", "broken config", "no config", "loaded elsewhere"],
)
def test_files_that_rules_cannot_judge_deny_nothing(files: dict[str, str], options: tuple[str, ...]) -> None:
    said = _said(files, *options)
    assert said.startswith("ValueError: DeepSpeed Zero-3 is not compatible")
    assert "find nothing" not in said
    assert CHECK in said or "DS946 finds" in said


@pytest.mark.parametrize("launched", [False, True])
def test_a_program_that_was_judged_is_said_to_have_no_such_mistake(*, launched: bool) -> None:
    files = {"ds.json": STAGE_3, "fit.py": TRAINER % "", "run.sh": "deepspeed --num_gpus 2 fit.py\n"}
    said = _said(files, "--program", "run.sh" if launched else "fit.py")
    assert said.startswith("Most likely: ValueError: DeepSpeed Zero-3 is not compatible")
    assert "In the given files, rules about this error find nothing (DS946" in said
    assert CHECK not in said


def test_a_config_is_judged_with_the_program_that_uses_it() -> None:
    said = _said({"ds.json": STAGE_3, "fit.py": TRAINER % ""}, "--config", "ds.json")
    assert "in the config and its program, rules about this error find nothing (DS946" in said


def test_the_mistake_of_a_program_with_its_config_is_found() -> None:
    said = _said({"ds.json": STAGE_3, "fit.py": TRAINER % ", device_map='auto'"}, "--program", "fit.py")
    assert said.startswith("ValueError: DeepSpeed Zero-3 is not compatible")
    assert "DS946 finds this" in said


@pytest.mark.parametrize("program", [LOADS, "".join(f"    {line}\n" for line in LOADS.splitlines())], ids=["program", "fragment"])
@pytest.mark.parametrize("folder", ["", "src/"])
def test_the_line_of_a_program_without_config_is_named_where_the_error_proves_the_stage(program: str, folder: str) -> None:
    said = _said({f"{folder}fit.py": program}, "--program", f"{folder}fit.py")
    assert "DS946 finds in line 2 of fit.py what may be the cause:" in said
    assert "<command>" not in said
    assert "find nothing" not in said


@pytest.mark.parametrize(
    ("program", "log"),
    [
        (LOADS.replace(", device_map='auto'", ""), ERROR),
        (LOADS, traceback("ValueError: Expected a string path to an existing deepspeed config")),
    ],
    ids=["no device_map", "another error"],
)
def test_a_program_without_config_is_not_blamed_for_what_it_does_not_do(program: str, log: str) -> None:
    said = _said({"fit.py": program}, "--program", "fit.py", log=log)
    assert "DS946 finds" not in said
    assert "find nothing" not in said


AUTO_BATCH = '{"train_batch_size": %s, "train_micro_batch_size_per_gpu": 4, "gradient_accumulation_steps": 1}'
UNEQUAL = "AssertionError: Check batch related parameters. train_batch_size is not equal to micro_batch_per_gpu * gradient_acc_step * world_size 64 != 4 * 1 * 8"


@pytest.mark.parametrize(("ranks", "is_judged"), [((), False), (("--world-size", "16"), True)])
def test_a_rule_that_needs_a_fact_judges_with_it(ranks: tuple[str, ...], *, is_judged: bool) -> None:
    """64 is right on 16 ranks: the job had 8."""
    said = _said({"ds.json": AUTO_BATCH % 64}, "--config", "ds.json", *ranks, log=UNEQUAL)
    assert said.startswith("Most likely: ") is is_judged
    assert ("rules about this error find nothing (DS201, DS202)" in said) is is_judged
    assert ("rules about this error: DS201" in said) is not is_judged


def test_a_value_that_a_program_computes_is_not_judged() -> None:
    program = (
        "import deepspeed, os\nds = %s\nds['train_batch_size'] = int(os.environ['BATCH'])\n"
        "deepspeed.initialize(model=net, model_parameters=net.parameters(), config=ds)\n"
    )
    said = _said({"fit.py": program % (AUTO_BATCH % 64)}, "--program", "fit.py", "--world-size", "16", log=UNEQUAL)
    assert "find nothing" not in said
    assert not said.startswith("Most likely: ")
