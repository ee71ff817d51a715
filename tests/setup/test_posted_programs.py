"""Programs as people post them: without imports, as the body of a function, in the middle of which they end."""

from __future__ import annotations

import textwrap

import pytest

from dslint.diagnostics import Severity
from dslint.lint.discovery import discover
from dslint.lint.files import lint_all
from dslint.settings import Finder
from tests.cases import table
from tests.setup.folder import Folder

IMPORTS = "import torch\nfrom transformers import AutoModelForCausalLM, Trainer, TrainingArguments\n"
CONFIG = '{"train_micro_batch_size_per_gpu": 4, "bf16": {"enabled": True}, "zero_optimization": {"stage": 3}}'
TRAINER = f"""\
args = TrainingArguments("out", per_device_train_batch_size=4, fp16=True, deepspeed={CONFIG})
model = AutoModelForCausalLM.from_pretrained("m", device_map="auto")
trainer = Trainer(model=model, args=args, train_dataset=data)
trainer.train()
"""
LOOP = f"""\
engine, optimizer, _, _ = deepspeed.initialize(model=model, model_parameters=model.parameters(), config={CONFIG})
for batch in loader:
    loss = engine(batch)
    engine.backward(loss)
    torch.nn.utils.clip_grad_norm_(engine.parameters(), 1.0)
    engine.step()
"""


def severities(folder: Folder, text: str) -> dict[str, Severity]:
    folder.write({"train.py": text})
    return {one.code: one.severity for one in folder.diagnostics("train.py")}


def reasons(folder: Folder) -> list[str]:
    return [one.reason for one in folder.results("train.py")["train.py"].not_judged]


@pytest.mark.parametrize(
    "text",
    [
        TRAINER,
        textwrap.indent(TRAINER, "        "),
        textwrap.indent(TRAINER, "        ").lstrip(),
        "\n".join(f">>> {line}" for line in TRAINER.splitlines()),
        f"```python\n{TRAINER}```\n",
        "@@ -1,4 +1,5 @@\n-args = None\n" + "\n".join(f"{' +'[number % 2]}{line}" for number, line in enumerate(TRAINER.splitlines())),
        TRAINER.replace("train_dataset=data", "..."),
        TRAINER + "metrics = trainer.evaluate(\n    data",
    ],
)
def test_a_mistake_in_a_posted_program_is_found_and_not_certain(folder: Folder, text: str) -> None:
    assert severities(folder, IMPORTS + TRAINER)["DS905"] is Severity.ERROR
    assert {"DS905": Severity.WARNING, "DS946": Severity.WARNING}.items() <= severities(folder, text).items()
    assert reasons(folder)[-1] == (
        "what this part of a program leaves out. It has no imports: dslint takes TrainingArguments, AutoModelForCausalLM and Trainer for "
        "those of transformers. No finding that rests on this is certain."
    )


@pytest.mark.parametrize("text", [LOOP, textwrap.indent(LOOP, "    "), LOOP + "if step % 100 == 0:\n    # save\n"])
def test_a_loop_without_imports_is_judged_as_one_with_them(folder: Folder, text: str) -> None:
    whole = severities(folder, "import deepspeed\nimport torch\n" + LOOP)
    assert severities(folder, text).keys() == whole.keys()
    assert "deepspeed and torch for the libraries of these names" in reasons(folder)[-1]


@pytest.mark.parametrize(
    ("before", "code"),
    [
        ("from modeling import *\n", False),
        ("from swift import AutoModelForCausalLM\n", False),
        ("class AutoModelForCausalLM(Base):\n    pass\n", False),
        ("AutoModelForCausalLM = registry['model']\n", False),
        ("def load():\n    global AutoModelForCausalLM\n", False),
        ("match registry:\n    case {'model': _, **AutoModelForCausalLM}:\n        pass\n", False),
        ("def pick(AutoModelForCausalLM):\n    pass\n", False),
        ("from transformers import Trainer, TrainingArguments\n", True),
    ],
)
def test_a_name_that_something_binds_is_not_assumed(folder: Folder, before: str, code: bool) -> None:
    assert ("DS946" in severities(folder, before + TRAINER)) is code
    assert ("AutoModelForCausalLM" in " ".join(reasons(folder))) is code


def test_a_whole_program_is_as_certain_as_before(folder: Folder) -> None:
    assert severities(folder, IMPORTS + TRAINER)["DS905"] is Severity.ERROR
    assert reasons(folder) == []


def test_what_the_config_shows_by_itself_stays_certain(folder: Folder) -> None:
    found = severities(folder, LOOP.replace("zero_optimization", "zero_optimisation"))
    assert found["DS102"] is Severity.ERROR


def test_a_trainer_with_arguments_of_lightning_is_lightnings(folder: Folder) -> None:
    text = "trainer = Trainer(strategy='deepspeed_stage_3', devices=4, max_epochs=1)\ntrainer.fit(model)\nmodel = AutoModel.from_pretrained('m')\n"
    folder.write({"train.py": text})
    assert "Trainer for that of pytorch_lightning" in " ".join(reasons(folder))


STRATEGY = "trainer = {}(strategy=DeepSpeedStrategy(config={{'train_micro_batch_size_per_gpu': 'auto', 'zero_optimization': {{}}}}))\n"


@pytest.mark.parametrize(
    ("text", "taken", "severity"),
    [
        (STRATEGY.format("Trainer"), "Trainer and DeepSpeedStrategy for those of pytorch_lightning", Severity.WARNING),
        ("import pytorch_lightning as pl\n" + STRATEGY.format("pl.Trainer"), "DeepSpeedStrategy for that of", Severity.WARNING),
        ("from lightning.pytorch.strategies import *\n" + STRATEGY.format("T"), "", Severity.ERROR),
        ("from ray.train.lightning import RayDeepSpeedStrategy as DeepSpeedStrategy\n" + STRATEGY.format("T"), "", Severity.ERROR),
        ("from mmengine._strategy import DeepSpeedStrategy\n" + STRATEGY.format("T"), "", None),
        ("from mypkg import *\n" + STRATEGY.format("T"), "", None),
        (STRATEGY.format("Runner"), "", None),
    ],
)
def test_a_strategy_is_lightnings_if_something_says_so(folder: Folder, text: str, taken: str, severity: Severity | None) -> None:
    """MMEngine has a strategy of the same name, and projects have their own. What rests on the name is not certain."""
    assert severities(folder, text).get("DS902") is severity
    assert taken in " ".join(reasons(folder))
    assert bool(reasons(folder)) is bool(taken) or severity is None


@pytest.mark.parametrize(("called", "is_taken"), [("pl.Trainer", True), ("pl.MpDeviceLoader", False)])
def test_a_short_name_is_lightning_where_something_of_lightning_stands_behind_it(folder: Folder, called: str, is_taken: bool) -> None:
    """torch_xla's loader has the same short name."""
    severities(folder, f"loader = {called}(loader)\n{LOOP}")
    assert ("pl for pytorch_lightning" in " ".join(reasons(folder))) is is_taken


@pytest.mark.parametrize(("given", "finds"), [('"out", ', True), ('"out", ..., ', False)])
def test_dots_among_arguments_stand_for_those_that_are_left_out(folder: Folder, given: str, finds: bool) -> None:
    """The Trainer refuses to load the best model with the default strategies, which the dots may replace."""
    text = TRAINER.replace('"out", ', f"{given}load_best_model_at_end=True, ")
    assert ("DS975" in severities(folder, text)) is finds


def test_an_accelerator_that_is_made_elsewhere_is_accelerates(folder: Folder) -> None:
    yaml = "compute_environment: LOCAL_MACHINE\ndistributed_type: DEEPSPEED\ndeepspeed_config:\n  zero_stage: 3\nnum_processes: 4\nmixed_precision: bf16\n"
    loop = "model, optimizer, loader = accelerator.prepare(model, optimizer, loader)\nif accelerator.is_main_process:\n    accelerator.save_state('out')\n"
    folder.write({"train.py": loop, "acc.yaml": yaml, "run.sh": "accelerate launch --config_file acc.yaml train.py\n"})
    found = {one.code: one.severity for one in folder.diagnostics("run.sh", "train.py")}
    whole = "from accelerate import Accelerator\naccelerator = Accelerator()\n" + loop
    folder.write({"train.py": whole})
    assert found.keys() == {one.code for one in folder.diagnostics("run.sh", "train.py")}


def test_a_text_that_breaks_off_says_so(folder: Folder) -> None:
    severities(folder, IMPORTS + TRAINER + "metrics = trainer.evaluate(\n    data")
    assert reasons(folder) == ["the text ends inside a bracket in line 8; what stands before that was read."]


def test_a_part_of_a_program_without_deepspeed_is_not_shown(folder: Folder) -> None:
    folder.write({"part.py": "model = AutoModel.from_pretrained('m')\nmodel.to('cuda')\n"})
    assert folder.results("part.py", named=False) == {} or not folder.results("part.py", named=False)["part.py"].not_judged


def test_the_places_in_a_diff_are_those_of_the_text(folder: Folder) -> None:
    text = "--- a/train.py\n+++ b/train.py\n-import os\n" + "\n".join(f"+{line}" for line in TRAINER.splitlines())
    folder.write({"train.py": text})
    (found,) = (one.range for one in folder.diagnostics("train.py") if one.code == "DS946")
    assert found is not None
    assert text[found.start.offset : found.end.offset] == '"stage": 3'


PART = "model = AutoModelForCausalLM.from_pretrained('m', device_map='auto')\ntrainer = Trainer(model=model, args=args)\ntrainer.train()\n"
ZERO_3 = '{"train_micro_batch_size_per_gpu": "auto", "zero_optimization": {"stage": 3}}'
LAUNCH = "deepspeed --num_gpus 2 train.py --deepspeed z3.json\n"
FILE = "distributed_type: DEEPSPEED\ndeepspeed_config:\n  zero_stage: 3\nnum_processes: 2\n"
BY_LAUNCH = "if the launch uses DeepSpeed at ZeRO stage 3."
TAKEN = "{}, the only candidate that dslint sees, is taken for that of part.py."


@table(
    "files, ends",
    [
        ({}, [BY_LAUNCH]),
        ({"run.sh": LAUNCH}, [BY_LAUNCH]),
        ({"run.sh": LAUNCH, "z3.json": ZERO_3}, [TAKEN.format("z3.json")]),
        ({"run.sh": "accelerate launch --config_file a.yaml train.py\n", "a.yaml": FILE}, [TAKEN.format("a.yaml")]),
        ({"net.py": "import torch\n\nclass Net(torch.nn.Module):\n    pass\n"}, [BY_LAUNCH]),
        ({"part.py": PART.replace(", device_map='auto'", "")}, []),
        ({"part.py": f"from transformers import AutoModelForCausalLM, Trainer\n{PART}"}, []),  # a whole program, and nothing says DeepSpeed
        ({"part.py": f"# with FSDP\n{PART}"}, []),
        ({"part.py": PART.replace("Trainer(", "Trainer(devices=2, ").replace(".train()", ".fit(model)")}, []),
        ({"train.py": f"{IMPORTS}{PART}", "run.sh": LAUNCH, "z3.json": ZERO_3}, []),  # that one is launched with the config
    ],
)
def test_a_part_of_a_program_is_judged_where_nothing_in_it_says_deepspeed(folder: Folder, files: dict[str, str], ends: list[str]) -> None:
    """It has no name by which its launch could be known. The config of a launch whose program is missing is taken for its own."""
    for old in ("run.sh", "z3.json", "a.yaml", "net.py", "train.py"):
        (folder.path / old).unlink(missing_ok=True)
    folder.write({"part.py": PART, **files})
    found = [one for one in lint_all(discover(["."], Finder()).targets, Finder(), jobs=1) for one in one.diagnostics if one.code == "DS946"]
    assert [one.message[-len(end) :] for one, end in zip(found, ends or [""], strict=False) if "part.py" in one.message] == ends


PREPARES = "opt = torch.optim.Adam(a.parameters())\na, b, opt, loader = accelerator.prepare(a, b, opt, loader)\n"
MODELS = "a = torch.nn.Linear(4, 4)\nb = torch.nn.Linear(4, 4)\n"


@table(
    "files, found",
    [
        ({"part.py": MODELS + PREPARES}, True),
        ({"part.py": MODELS + PREPARES, "a.yaml": FILE}, True),
        ({"part.py": MODELS + PREPARES.replace("a, b, opt", "a, opt")}, False),
        ({"part.py": f"import torch\n{MODELS}{PREPARES}"}, False),  # a module, whose program may give it anything
    ],
)
def test_a_part_that_prepares_with_an_accelerator_of_the_rest_is_judged(folder: Folder, files: dict[str, str], found: bool) -> None:
    (folder.path / "a.yaml").unlink(missing_ok=True)
    folder.write(files)
    codes = [d.code for one in lint_all(discover(["."], Finder()).targets, Finder(), jobs=1) for d in one.diagnostics]
    assert codes.count("DS965") == found


def test_a_mistake_of_a_config_is_said_once_for_its_launch_and_a_part_of_a_program(folder: Folder) -> None:
    folder.write({"part.py": PART, "run.sh": LAUNCH, "z3.json": ZERO_3})
    results = lint_all(discover(["."], Finder()).targets, Finder(), jobs=1)
    assert [d.code for one in results for d in one.diagnostics].count("DS819") == 1
    assert "the program is not in this project" in " ".join(one.reason for result in results for one in result.not_judged)
