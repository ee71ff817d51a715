"""Rules about the optimizer's section, where a program changes what DeepSpeed gets of it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.command import dslint

_HEAD = (
    "import argparse\nimport json\nimport deepspeed\nfrom net import build, make\nparser = argparse.ArgumentParser()\n"
    "parser.add_argument('--rate', type=float, default=1e-4)\nargs = parser.parse_args()\nmodel = make()\n"
)
_LOOP = "for batch in loader:\n    engine.backward(engine(batch))\n    engine.step()\n"
_FILE = "config='ds_config.json'"
_WARMUP = {"type": "WarmupDecayLR", "params": {"total_num_steps": 9000, "warmup_max_lr": 1e-3}}


def _program(given: str, before: str = "") -> str:
    return f"{_HEAD}{before}engine, *_ = deepspeed.initialize(model=model, {given})\n{_LOOP}"


@pytest.mark.parametrize(
    ("code", "optimizer", "program", "certain"),
    [
        ("DS605", {"type": "AdamW"}, _program(f"model_parameters=model.parameters(), {_FILE}"), False),
        ("DS605", {"type": "AdamW", "lr": 1e-5}, _program(f"model_parameters=model.parameters(), {_FILE}"), True),
        ("DS605", {"type": "AdamW"}, _program(f"model_parameters=build(model), {_FILE}"), False),
        (
            "DS605",
            {"type": "AdamW", "params": {}},
            _program(
                "model_parameters=model.parameters(), config=config",
                "config = json.load(open('ds_config.json'))\nconfig['optimizer']['params']['lr'] = args.rate\n",
            ),
            None,
        ),
        ("DS606", {"type": "AdamW", "params": {"lr": 1e-5}}, _program(f"model_parameters=model.parameters(), {_FILE}"), True),
        ("DS606", {"type": "AdamW", "params": {"lr": 1e-5}}, _program(f"optimizer=build(model), {_FILE}"), None),
        ("DS626", {"type": "AdamW", "params": {"lr": 0}}, _program(f"model_parameters=model.parameters(), {_FILE}"), True),
        ("DS626", {"type": "AdamW", "params": {"lr": 0}}, _program(f"model_parameters=build(model), {_FILE}"), None),
        (
            "DS654",
            None,
            (
                f"{_HEAD}if args.rate > 0.1:\n    engine, *_ = deepspeed.initialize(model=model, optimizer=build(model), {_FILE})\n"
                f"else:\n    engine, *_ = deepspeed.initialize(model=model, {_FILE})\n"
            ),
            False,
        ),
        (
            "DS612",
            {"type": "SGD", "params": {"lr": 0.1}},
            _HEAD + f"def start(optimizer):\n    return deepspeed.initialize(model=model, optimizer=optimizer, {_FILE})\n",
            False,
        ),
    ],
)
def test_a_program_that_changes_what_deepspeed_gets(
    tmp_path: Path, code: str, optimizer: dict[str, Any] | None, program: str, certain: bool | None
) -> None:
    config: dict[str, Any] = {"train_micro_batch_size_per_gpu": 4, "zero_optimization": {"stage": 2}}
    if optimizer is not None:
        config["optimizer"] = optimizer
    if code == "DS606":
        config["scheduler"] = _WARMUP
    (tmp_path / ".git").mkdir()
    (tmp_path / "ds_config.json").write_text(json.dumps(config), encoding="utf-8")
    (tmp_path / "train.py").write_text(program, encoding="utf-8")
    done = dslint("check", ".", "--deepspeed", "0.19.8", "--select", code, "--output-format", "json", cwd=tmp_path)
    found = {one["severity"] for one in json.loads(done.stdout)["diagnostics"] if one["code"] == code}
    assert found == (set() if certain is None else {"error" if certain else "warning"}), done.stdout


@pytest.mark.parametrize(
    ("release", "passed", "severity"), [("0.19.8", "None", "error"), ("0.19.8", "given", "warning"), ("0.14.4", "given", "error")]
)
def test_a_schedule_that_the_program_may_pass(tmp_path: Path, release: str, passed: str, severity: str) -> None:
    """Releases before 0.14.5 read the section even where they are passed a schedule."""
    config = {"train_micro_batch_size_per_gpu": 4, "optimizer": {"type": "AdamW"}, "scheduler": {"type": "Cosine", "params": {}}}
    (tmp_path / ".git").mkdir()
    (tmp_path / "ds_config.json").write_text(json.dumps(config), encoding="utf-8")
    program = f"{_HEAD}def start(given):\n    return deepspeed.initialize(model=model, lr_scheduler={passed}, {_FILE})\n"
    (tmp_path / "train.py").write_text(program, encoding="utf-8")
    done = dslint("check", ".", "--deepspeed", release, "--select", "DS603", "--output-format", "json", cwd=tmp_path)
    assert {one["severity"] for one in json.loads(done.stdout)["diagnostics"]} == {severity}, done.stdout


_MAKES = "engine, _, _, schedule = deepspeed.initialize(model=model, optimizer=optimizer, lr_scheduler=schedule, config='ds_config.json')\n"
_IMPORTS = "import deepspeed\nimport torch\n"
_STEPS = "engine.backward(engine(batch))\n{0}engine.step()\n"
STEPPED = {
    "per epoch, in the function that makes the engine": _IMPORTS
    + "def epoch(engine):\n    for batch in loader:\n        "
    + _STEPS.format("        ")
    + "def main():\n    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 10)\n    "
    + _MAKES
    + "    for _ in range(3):\n        epoch(engine)\n        schedule.step()\nmain()\n",
    "in the function of the engine's step": _IMPORTS
    + "def epoch(engine, schedule):\n    for batch in loader:\n        "
    + _STEPS.format("        ")
    + "        schedule.step()\nschedule = torch.optim.lr_scheduler.StepLR(optimizer, 10)\n"
    + _MAKES
    + "epoch(engine, schedule)\n",
    "in another method": _IMPORTS
    + "class Run:\n    def __init__(self):\n        schedule = torch.optim.lr_scheduler.StepLR(optimizer, 10)\n        "
    + _MAKES.replace("engine,", "self.engine,").replace("_, schedule", "_, self.schedule")
    + "    def fit(self):\n        for batch in loader:\n            self.one(batch)\n            self.schedule.step()\n"
    + "    def one(self, batch):\n        self.engine.backward(self.engine(batch))\n        self.engine.step()\nRun().fit()\n",
}


@pytest.mark.parametrize("name", STEPPED)
def test_a_schedule_that_is_stepped_elsewhere(tmp_path: Path, name: str) -> None:
    (tmp_path / ".git").mkdir()
    (tmp_path / "ds_config.json").write_text('{"train_micro_batch_size_per_gpu": 4, "zero_optimization": {"stage": 2}}', encoding="utf-8")
    (tmp_path / "train.py").write_text(STEPPED[name], encoding="utf-8")
    done = dslint("check", ".", "--select", "DS660", "--output-format", "json", cwd=tmp_path)
    assert [one["code"] for one in json.loads(done.stdout)["diagnostics"]] == ["DS660"]


_BOTH = (
    _IMPORTS
    + "from torch.optim.lr_scheduler import CosineAnnealingLR\n%shead = torch.nn.Linear(8, 8).cuda()\n%s"
    + "engine, *_ = deepspeed.initialize(model=model, optimizer=optimizer, lr_scheduler=schedule, config='ds_config.json')\n"
    + "for batch in loader:\n    engine.backward(engine(batch))\n    engine.step()\n    head(batch).mean().backward()\n"
    + "    other.step()\n    falling.step()\n"
)
"""A program that trains a head beside the engine, with optimizers and schedules that helpers make."""
BESIDE = {
    "two helpers": (
        "def adam(module):\n    return torch.optim.AdamW(module.parameters())\ndef cosine(optimizer):\n    return CosineAnnealingLR(optimizer, 100)\n",
        "optimizer, other = adam(model), adam(head)\nschedule, falling = cosine(optimizer), cosine(other)\n",
    ),
    "both from one helper": (
        "def ready(module):\n    optimizer = torch.optim.AdamW(module.parameters())\n    return optimizer, CosineAnnealingLR(optimizer, 100)\n",
        "optimizer, schedule = ready(model)\nother, falling = ready(head)\n",
    ),
    "a helper of a helper": (
        (
            "def falls(optimizer, steps):\n    return CosineAnnealingLR(optimizer, steps)\ndef ready(module):\n"
            "    optimizer = torch.optim.AdamW(module.parameters())\n    return optimizer, falls(optimizer, 100)\n"
        ),
        "optimizer, schedule = ready(model)\nother, falling = ready(head)\n",
    ),
}


@pytest.mark.parametrize("name", BESIDE)
def test_a_schedule_beside_that_of_the_engine(tmp_path: Path, name: str) -> None:
    """What a helper makes at its second call is another object, so the engine does not step it."""
    text = _BOTH % BESIDE[name]
    (tmp_path / ".git").mkdir()
    (tmp_path / "ds_config.json").write_text('{"train_micro_batch_size_per_gpu": 4, "zero_optimization": {"stage": 2}}', encoding="utf-8")
    for stepped, expected in (("falling", []), ("schedule", ["DS660"])):
        (tmp_path / "train.py").write_text(text.replace("falling.step()", f"{stepped}.step()"), encoding="utf-8")
        done = dslint("check", ".", "--select", "DS660", "--output-format", "json", cwd=tmp_path)
        assert [one["code"] for one in json.loads(done.stdout)["diagnostics"]] == expected
