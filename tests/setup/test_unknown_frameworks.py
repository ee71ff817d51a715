"""Training files of frameworks that nobody has written: dslint says that it does not know them, and takes them for no other."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random

import pytest
from click.testing import CliRunner

from dslint.cli import cli
from dslint.facts import Integration
from dslint.frameworks.registry import frameworks
from dslint.schemas.key_table import KEYS
from dslint.schemas.recognition import TRAINER_KEYS
from dslint.setups.project import Project
from tests.setup.folder import Folder

SYLLABLES = ("ro", "llo", "ut", "pa", "ck", "gra", "sam", "ple", "ex", "pert", "bu", "cket", "mi", "xer")
VALUES = {
    "per_device_train_batch_size": 4,
    "gradient_accumulation_steps": 2,
    "learning_rate": 0.00001,
    "max_grad_norm": 0.5,
    "weight_decay": 0.1,
    "fp16": True,
    "bf16": True,
    "max_steps": 100,
    "warmup_steps": 10,
}
CONFIG = {
    "train_batch_size": 64,
    "train_micro_batch_size_per_gpu": 8,
    "gradient_clipping": 1.0,
    "bf16": {"enabled": True},
    "zero_optimization": {"stage": 2},
}
"""It contradicts each value of a training file, if these were arguments of the Trainer."""

SEEDS = range(25)


def arguments(random: Random) -> dict[str, object]:
    """Arguments of a framework that shares names with the Trainer and has others of its own."""
    shared = random.sample(sorted(TRAINER_KEYS - KEYS.keys()), 3)  # fewer would be a DeepSpeed config with unknown keys
    shared += random.sample(sorted(TRAINER_KEYS - set(shared)), random.randint(0, 5))
    own = ["".join(random.choices(SYLLABLES, k=3)) + random.choice(("", "_size", "_steps", "_path")) for _ in range(random.randint(1, 6))]
    names = [*shared, *own]
    random.shuffle(names)
    return {name: VALUES.get(name, random.choice((1, 0.5, "word", True))) for name in names}


def written(values: dict[str, object], random: Random) -> tuple[str, str]:
    """A training file in YAML, plain or with a section, or in JSON."""
    kind = random.choice(("yaml", "section", "json"))
    if kind == "json":
        return "train.json", json.dumps(values, indent=1)
    lines = [f"{name}: {json.dumps(value)}" for name, value in values.items()]
    return ("train.yaml", "\n".join(lines)) if kind == "yaml" else ("train.yaml", "trainer:\n" + "\n".join(f"  {line}" for line in lines))


@pytest.mark.parametrize("launched", [False, True])
@pytest.mark.parametrize("seed", SEEDS)
def test_a_made_up_framework_is_not_the_trainer(folder: Folder, seed: int, launched: bool) -> None:
    random = Random(seed)
    values = arguments(random)
    values["deepspeed"] = "ds.json"
    name, text = written(values, random)
    folder.write({name: text, "ds.json": json.dumps(CONFIG)})
    if launched:
        folder.write({"train.py": "import made_up\n\nmade_up.main()\n", "run.sh": f"torchrun --nproc_per_node 4 train.py {name}\n"})
    for one in (name, "ds.json", *(("run.sh", "train.py") if launched else ())):
        results = folder.results(one)
        assert not [d for result in results.values() for d in result.diagnostics if d.code >= "DS9" or "Trainer" in d.message], one
        assert {result.facts.integration for result in results.values()} <= {None}, one
    said = folder.results(name)[name]
    assert [one.reason for one in said.not_judged if "no known framework uses these keys" in one.reason], said
    first = next(key for key in values if key not in TRAINER_KEYS | {"deepspeed"})
    assert first in said.not_judged[-1].reason


@pytest.mark.parametrize("seed", SEEDS)
def test_without_a_config_it_is_not_checked(folder: Folder, seed: int) -> None:
    random = Random(seed)
    name, text = written(arguments(random), random)
    folder.write({name: text})
    (result,) = folder.results(name).values()
    assert result.diagnostics == ()
    assert ["no known framework uses these keys" in one.reason for one in result.not_judged] == [True]


def test_the_same_file_is_the_trainers_where_a_program_uses_it(folder: Folder) -> None:
    """A program may add arguments of its own."""
    values = {**VALUES, "bf16": False, "rollout": 3, "deepspeed": "ds.json"}
    folder.write({"train.yaml": json.dumps(values), "ds.json": json.dumps(CONFIG)})
    assert folder.results("train.yaml")["ds.json"].facts.integration is None
    folder.write({"train.py": "from transformers import HfArgumentParser, Trainer, TrainingArguments\n"})
    assert folder.results("train.yaml")["ds.json"].facts.integration is Integration.TRANSFORMERS


def test_no_framework_takes_a_file_by_shared_names_alone() -> None:
    """Names that all have in common are no sign of any of them but the Trainer, whose names they are."""
    for framework in frameworks():
        if framework.recognises is not None and framework.name != Integration.TRANSFORMERS.label:
            assert not framework.recognises(TRAINER_KEYS | {"deepspeed", "model"}, lambda _: False), framework.name


@pytest.mark.parametrize(("reader", "found"), [("yaml", ["DS104"]), ("omegaconf", []), ("ruamel.yaml", [])])
def test_a_loop_of_ones_own_is_not_the_trainers_and_its_file_is_read_as_its_reader_reads_it(
    folder: Folder, reader: str, found: list[str]
) -> None:
    """A file as programs made from nanoGPT have it: some names are the Trainer's, and a line of a script installs transformers."""
    own = "out_dir: out\nlearning_rate: 0.0003\nweight_decay: 0.1\ngradient_accumulation_steps: 1\nmax_steps: 10\ngrad_clip: 1.0\n"
    section = "deepspeed:\n  train_micro_batch_size_per_gpu: 4\n  zero_optimization:\n    stage: 2\n    reduce_bucket_size: 2e8\n"
    folder.write({"conf.yaml": own + section, "train.py": f"import {reader}\n", "setup.sh": "pip install transformers deepspeed\n"})
    assert [code for code, _, _ in folder.found("conf.yaml") if code in ("DS104", "DS632", "DS907")] == found


@pytest.mark.parametrize(("line", "used"), [("python -m omegaconf.tool\n", True), ("pip install omegaconf\n", False), ("true\n", False)])
def test_the_scripts_of_a_project_are_searched_once_for_a_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, line: str, *, used: bool
) -> None:
    """Each of many YAML files asks for it: searching the scripts every time took 20 seconds for 60 files."""
    (tmp_path / "run.sh").write_text(line, encoding="utf-8")
    project = Project(str(tmp_path))
    assert project.uses("omegaconf") is used
    monkeypatch.setattr(Project, "text", lambda *_: pytest.fail("the scripts are read again"))
    assert project.uses("omegaconf") is used


OWN_ARGUMENTS = (
    "model_name_or_path: m\nstage: sft\nfinetuning_type: lora\ndataset: d\ntemplate: qwen\nper_device_train_batch_size: 1\n"
    "gradient_accumulation_steps: 2\nlearning_rate: 5.0e-5\nbf16: true\noutput_dir: out\ndeepspeed: ds.json\n"
)
"""A file with names of LLaMA-Factory."""


@pytest.mark.parametrize(
    "section", ["trainer:\n  backend: deepspeed\n", "optim_groups: {head: {lr: 0.001}}\n", "callbacks:\n  early_stop:\n    patience: 3\n"]
)
def test_a_section_that_the_framework_does_not_have(folder: Folder, section: str) -> None:
    """A file with such a section is another program's, which may add the batch size that the config lacks."""
    folder.write({"train.yaml": OWN_ARGUMENTS + section, "ds.json": '{"zero_optimization": {"stage": 2}, "bf16": {"enabled": true}}'})
    assert checked() == {("DS204", False)}
    folder.write({"train.yaml": OWN_ARGUMENTS + "learning_rat: 1.0e-4\n"})
    assert checked() == {("DS204", True), ("DS974", True)}


def checked() -> set[tuple[str, bool]]:
    """Whether what is found about a missing batch size and unknown arguments is certain."""
    found = json.loads(CliRunner().invoke(cli, ["check", ".", "--output-format", "json"]).stdout)["diagnostics"]
    return {(one["code"], one["certain"]) for one in found if one["code"] in ("DS204", "DS974")}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("deepspeed_config: {{ config }}\nmodel: m\n", "a template: it contains the placeholder {{ config }}"),
        ("foo: {{ config }}\nmodel: m\n", ""),
        ("use_deepspeed: true\nmodel: m\n", ""),
    ],
)
def test_a_template_about_deepspeed_is_named_in_a_folder(folder: Folder, text: str, said: str) -> None:
    folder.write({"job.yaml": text})
    found = [one.reason for result in folder.results("job.yaml", named=False).values() for one in result.not_judged]
    assert [one.startswith(said) for one in found] == [True] * bool(said)
