"""The real transformers, Accelerate and Lightning say what the rules say they say: each setup goes to both, bad ones and good ones."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from dslint.diagnostics import Effect, Phase
from dslint.facts import Facts, Integration
from dslint.facts.model_config import describe
from tests.setup.folder import Folder

pytestmark = pytest.mark.integrations

ROOT = Path(__file__).resolve().parents[2]
ZERO = {"zero_optimization": {"stage": 2}}
AUTO = {"train_batch_size": "auto", "train_micro_batch_size_per_gpu": "auto", "gradient_accumulation_steps": "auto"}
CLIPPED = {"gradient_clipping": "auto"}
HEAD = "compute_environment: LOCAL_MACHINE\ndistributed_type: DEEPSPEED\nnum_machines: 1\nnum_processes: 8\n"


@dataclass(frozen=True)
class Case:
    """A setup: for the real thing, and as files for dslint. `code` is what dslint finds, None for nothing; `says` is part of the error."""

    name: str
    kind: str
    data: dict[str, Any]
    code: str | None
    says: str = ""
    model: dict[str, Any] | None = None
    integration: Integration | None = None
    files: dict[str, str] = field(default_factory=dict)
    what: str = "train.yaml"


def trainer(name: str, config: dict[str, Any], arguments: dict[str, Any], code: str | None = None, says: str = "", **more: Any) -> Case:
    """A config and training arguments."""
    training = {"stage": "sft", "model_name_or_path": "m", "dataset": "d", "deepspeed": "ds.json", "output_dir": "out", **arguments}
    training.setdefault("learning_rate", 5e-5)
    text = "".join(f"{key}: {json.dumps(value)}\n" for key, value in training.items())
    data = {"config": config, "arguments": arguments, **({"model": more["model"]} if "model" in more else {})}
    return Case(name, more.pop("kind", "trainer"), data, code, says, files={"train.yaml": text, "ds.json": json.dumps(config)}, **more)


def launched(name: str, text: str, code: str | None = None, says: str = "", arguments: dict[str, Any] | None = None) -> Case:
    """An Accelerate file; with arguments, one that a training is launched with."""
    text = HEAD + text
    files = {"accelerate.yaml": text, "ds_config.json": json.dumps({**ZERO, "train_micro_batch_size_per_gpu": 1})}
    if arguments is None:
        return Case(name, "launch", {"text": text}, code, says, files=files, what="accelerate.yaml")
    flags = " ".join(f"--{key} {value}" for key, value in {"output_dir": "out", "learning_rate": 5e-5, **arguments}.items())
    files["train.py"] = "from transformers import Trainer\n\nTrainer()\n"
    files["run.sh"] = f"accelerate launch --config_file accelerate.yaml train.py {flags}\n"
    return Case(name, "launched_trainer", {"text": text, "arguments": arguments}, code, says, files=files, what="run.sh")


def alone(
    name: str, config: dict[str, Any], code: str | None = None, says: str = "", program: str = "dummy", schedule: str = "none", **more: Any
) -> Case:
    """A program that uses Accelerate without the Trainer, and prepares an optimizer and a schedule."""
    make = {"torch": "torch.optim.AdamW(p)", "dummy": "DummyOptim(p)", "none": "None"}[program]
    plan = {"torch": "torch.optim.lr_scheduler.ConstantLR(o)", "dummy": "DummyScheduler(o)", "none": "None"}[schedule]
    text = (
        "import torch\nfrom accelerate import Accelerator, DeepSpeedPlugin\nfrom accelerate.utils import DummyOptim, DummyScheduler\n"
        f"plugin = DeepSpeedPlugin(hf_ds_config='ds.json')\naccelerator = Accelerator(deepspeed_plugin=plugin)\noptimizer = {make}\n"
        f"schedule = {plan}\naccelerator.prepare(model, loader, optimizer, schedule)\n"
    )
    data = {"config": config, "optimizer": program, "schedule": schedule, **({"model": more["model"]} if "model" in more else {})}
    return Case(name, "prepare", data, code, says, files={"train.py": text, "ds.json": json.dumps(config)}, what="train.py", **more)


def lightning(name: str, config: dict[str, Any], code: str | None = None, says: str = "") -> Case:
    """A config for Lightning's strategy."""
    text = "from lightning.pytorch.strategies import DeepSpeedStrategy\nstrategy = DeepSpeedStrategy(config='ds.json')\n"
    data = {"config": config, "arguments": {}}
    return Case(name, "lightning", data, code, says, files={"train.py": text, "ds.json": json.dumps(config)}, what="train.py")


def adamw(**params: Any) -> dict[str, Any]:
    return {"optimizer": {"type": "AdamW", "params": {"lr": "auto", **params}}}


def decay(**params: Any) -> dict[str, Any]:
    return {"scheduler": {"type": "WarmupDecayLR", "params": {"warmup_max_lr": "auto", **params}}}


FULL = {**AUTO, **CLIPPED, **ZERO}
PLAIN = {"train_micro_batch_size_per_gpu": 1, "gradient_accumulation_steps": 1, **ZERO}
ADAMW = {**PLAIN, "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}}}
WITH_SCHEDULE = {**ADAMW, "scheduler": {"type": "WarmupLR", "params": {"warmup_num_steps": 10}}}
STAGE3 = {"stage": 3, "stage3_gather_16bit_weights_on_model_save": True}
MISMATCH = "Please correct the following DeepSpeed config values"

CASES = [
    # X4: every key that the Trainer compares.
    trainer("all-auto", {**FULL, **adamw(betas="auto", eps="auto", weight_decay="auto")}, {"gradient_accumulation_steps": 2}),
    trainer("steps", {**FULL, "gradient_accumulation_steps": 4}, {"gradient_accumulation_steps": 2}, "DS904", MISMATCH),
    trainer("steps-default", {**FULL, "gradient_accumulation_steps": 4}, {}, "DS904", MISMATCH),
    trainer("steps-equal", {**FULL, "gradient_accumulation_steps": 4}, {"gradient_accumulation_steps": 4}),
    trainer("micro", {**FULL, "train_micro_batch_size_per_gpu": 4}, {"per_device_train_batch_size": 2}, "DS904", MISMATCH),
    trainer("micro-default", {**FULL, "train_micro_batch_size_per_gpu": 4}, {}, "DS904", MISMATCH),
    trainer("micro-is-default", {**FULL, "train_micro_batch_size_per_gpu": 8}, {}),
    trainer("clipping", {**FULL, "gradient_clipping": 0.5}, {}, "DS904", MISMATCH),
    trainer("clipping-integer", {**FULL, "gradient_clipping": 1}, {}),
    trainer("lr", {**FULL, **adamw(lr=1e-5)}, {"learning_rate": 2e-5}, "DS904", MISMATCH),
    trainer("lr-equal", {**FULL, **adamw(lr=2e-5)}, {"learning_rate": 0.00002}),
    trainer("betas", {**FULL, **adamw(betas=[0.9, 0.95])}, {}, "DS904", MISMATCH),
    trainer("betas-equal", {**FULL, **adamw(betas=[0.9, 0.95])}, {"adam_beta2": 0.95}),
    trainer("eps", {**FULL, **adamw(eps=1e-6)}, {}, "DS904", MISMATCH),
    trainer("weight-decay", {**FULL, **adamw(weight_decay=0.1)}, {}, "DS904", MISMATCH),
    trainer("warmup-lr", {**FULL, **adamw(), **decay(warmup_max_lr=1e-3, total_num_steps="auto")}, {}, "DS904", MISMATCH),
    trainer(
        "warmup-steps", {**FULL, **adamw(), **decay(warmup_num_steps=10, total_num_steps="auto")}, {"warmup_steps": 5}, "DS904", MISMATCH
    ),
    trainer("warmup-equal", {**FULL, **adamw(), **decay(warmup_num_steps=5, total_num_steps="auto")}, {"warmup_steps": 5}),
    trainer("warmup-none", {**FULL, **adamw(), **decay(warmup_num_steps=1, total_num_steps="auto")}, {}),
    trainer("total-steps", {**FULL, **adamw(), **decay(total_num_steps=500)}, {"max_steps": 100}, "DS904", MISMATCH),
    trainer("total-steps-equal", {**FULL, **adamw(), **decay(total_num_steps=100)}, {"max_steps": 100}),
    trainer("bf16-not-asked", {**FULL, "bf16": {"enabled": True}}, {}, "DS904", MISMATCH),
    trainer("bf16-not-on", {**FULL, "bf16": {"enabled": False}}, {"bf16": True}, "DS904", MISMATCH),
    trainer("bf16-on", {**FULL, "bf16": {"enabled": True}}, {"bf16": True}),
    trainer("fp16-not-asked", {**FULL, "fp16": {"enabled": True}}, {}, "DS904", MISMATCH),
    trainer("precision-auto", {**FULL, "fp16": {"enabled": "auto"}, "bf16": {"enabled": "auto"}}, {"bf16": True}),
    # X10
    trainer(
        "fp16-and-bf16", {**FULL, "fp16": {"enabled": True}}, {"bf16": True}, "DS905", "`--mixed_precision` arg cannot be set to `bf16`"
    ),
    trainer(
        "bf16-and-fp16", {**FULL, "bf16": {"enabled": True}}, {"fp16": True}, "DS905", "`--mixed_precision` arg cannot be set to `fp16`"
    ),
    # X17
    trainer("no-zero", {**AUTO, **CLIPPED}, {}, "DS910", "Please specify the ZeRO optimization config in the DeepSpeed config"),
    trainer("zero-0", {**AUTO, **CLIPPED, "zero_optimization": {"stage": 0}}, {}),
    # A stage that DeepSpeed reads, and its loader does not.
    trainer("stage-in-quotes", {**FULL, "zero_optimization": {**STAGE3, "stage": "3"}}, {}, "DS934", "not stage 3", kind="zero3"),
    trainer("stage-as-number", {**FULL, "zero_optimization": STAGE3}, {}, kind="zero3"),
    # X24
    trainer(
        "no-hidden-size",
        {**FULL, "zero_optimization": {"stage": 2, "reduce_bucket_size": "auto"}},
        {},
        "DS928",
        "The model's config file has neither `hidden_size` nor `hidden_sizes` entry",
        model={"model_type": "odd"},
    ),
    trainer(
        "text-config",
        {**FULL, "zero_optimization": {"stage": 2, "reduce_bucket_size": "auto"}},
        {},
        model={"text_config": {"hidden_size": 64}},
    ),
    alone(
        "text-config-alone",
        {**PLAIN, "zero_optimization": {"stage": 2, "reduce_bucket_size": "auto"}},
        "DS928",
        "Can find neither `model.config.hidden_size` nor `model.config.hidden_sizes`",
        model={"text_config": {"hidden_size": 64}},
        program="none",
    ),
    # X27, X28
    trainer("fsdp", FULL, {"fsdp": "full_shard"}, "DS920", "Using --fsdp xxx together with --deepspeed is not possible", kind="init"),
    trainer(
        "auto-batch",
        {**FULL, "zero_optimization": STAGE3},
        {"auto_find_batch_size": True},
        "DS921",
        "`auto_find_batch_size` isn't supported yet with DeepSpeed Zero-3",
        kind="init",
    ),
    trainer("auto-batch-stage-2", FULL, {"auto_find_batch_size": True}, kind="init"),
    trainer(
        "only-model-and-best",
        FULL,
        {"save_only_model": True, "load_best_model_at_end": True, "eval_strategy": "steps", "save_strategy": "steps"},
        "DS922",
        "DeepSpeed can't be used with `save_only_model` along with `load_best_model_at_end`",
        kind="init",
    ),
    trainer("only-model", FULL, {"save_only_model": True}, kind="init"),
    # X1, X2, X3, X20
    alone("betas-alone", {**PLAIN, **adamw(lr=1e-4, betas="auto")}, "DS903", "not found in kwargs"),
    alone("lr-alone", {**PLAIN, **adamw()}),
    alone(
        "short-name", {**PLAIN, "zero_optimization": {"stage": 2, "prefetch_bucket_size": "auto"}}, "DS903", "not found in kwargs", "none"
    ),
    alone("breakdown", {**PLAIN, "wall_clock_breakdown": "auto"}, "DS903", "not found in kwargs", "none"),
    alone(
        "two-optimizers",
        {**PLAIN, **adamw(lr=1e-4)},
        "DS926",
        "You cannot specify an optimizer in the config file and in the code",
        "torch",
    ),
    alone("one-optimizer", PLAIN, program="torch"),
    alone("no-section", PLAIN, "DS926", "You cannot create a `DummyOptim` without specifying an optimizer in the config file"),
    alone("no-schedule-section", ADAMW, "DS926", "Either specify a scheduler in the config file", schedule="dummy"),
    alone("no-section-for-torch", PLAIN, "DS926", "Either specify a scheduler in the config file", "torch", "dummy"),
    alone(
        "two-schedules",
        WITH_SCHEDULE,
        "DS926",
        "You cannot specify a scheduler in the config file and in the code at the same time",
        schedule="torch",
    ),
    alone("own-schedule", ADAMW, "DS926", "You can only specify `accelerate.utils.DummyScheduler` in the code", schedule="torch"),
    alone("both-sections", WITH_SCHEDULE, schedule="dummy"),
    alone("no-sections", PLAIN, program="torch", schedule="torch"),
    # X8, X13, X14, X33 and X11
    launched("file", "deepspeed_config:\n  deepspeed_config_file: ds_config.json\n"),
    launched(
        "file-and-fields",
        "deepspeed_config:\n  deepspeed_config_file: ds_config.json\n  zero_stage: 2\n",
        "DS911",
        "When using `deepspeed_config_file`, the following accelerate config variables will be ignored",
    ),
    launched(
        "file-and-precision",
        "mixed_precision: bf16\ndeepspeed_config:\n  deepspeed_config_file: ds_config.json\n",
        "DS911",
        "When using `deepspeed_config_file`, the following accelerate config variables will be ignored",
    ),
    launched("no-unquoted", "mixed_precision: no\ndeepspeed_config:\n  zero_stage: 2\n", "DS914", "'bool' object has no attribute 'lower'"),
    launched("no-quoted", "mixed_precision: 'no'\ndeepspeed_config:\n  zero_stage: 2\n"),
    launched(
        "odd-precision",
        "mixed_precision: bfloat16\ndeepspeed_config:\n  zero_stage: 2\n",
        "DS914",
        "Unknown mixed_precision mode: bfloat16",
    ),
    launched("path-for-block", "deepspeed_config: ds_config.json\n", "DS956", "'str' object has no attribute 'keys'"),
    launched("no-block", "mixed_precision: bf16\n"),
    launched("unknown-at-top", "foo: 1\ndeepspeed_config:\n  zero_stage: 2\n", "DS915", "had unknown keys (['foo'])"),
    launched("stage-in-words", "deepspeed_config:\n  zero_stage: three\n", "DS916", "invalid literal for int() with base 10: 'three'"),
    launched("clipping-in-words", "deepspeed_config:\n  gradient_clipping: some\n", "DS916", "could not convert string to float: 'some'"),
    launched("numbers-in-quotes", "deepspeed_config:\n  zero_stage: '2'\n  gradient_clipping: auto\n"),
    launched("bf16-in-yaml-alone", "mixed_precision: bf16\ndeepspeed_config:\n  zero_stage: 2\n", "DS904", MISMATCH, {"bf16": False}),
    launched("bf16-in-both", "mixed_precision: bf16\ndeepspeed_config:\n  zero_stage: 2\n", arguments={"bf16": True}),
    launched("arguments-win", "mixed_precision: fp16\ndeepspeed_config:\n  zero_stage: 2\n", arguments={"bf16": True}),
    launched(
        "steps-in-yaml",
        "deepspeed_config:\n  zero_stage: 2\n  gradient_accumulation_steps: 4\n",
        "DS904",
        MISMATCH,
        {"gradient_accumulation_steps": 2},
    ),
    launched("steps-auto", "deepspeed_config:\n  zero_stage: 2\n", arguments={"gradient_accumulation_steps": 2}),
    # X26
    lightning(
        "lightning-steps",
        {**ZERO, "gradient_accumulation_steps": 4},
        "DS927",
        "Do not set `gradient_accumulation_steps` in the DeepSpeed config",
    ),
    lightning("lightning", ZERO),
]


@pytest.fixture(scope="module")
def answers() -> dict[str, str | None]:
    """What the real thing says of each case, asked once."""
    needed = [name for name in ("transformers", "accelerate", "deepspeed", "lightning") if importlib.util.find_spec(name) is None]
    if needed:
        if os.environ.get("REQUIRE_INTEGRATIONS"):
            pytest.fail(f"REQUIRE_INTEGRATIONS is set, and these are not installed: {', '.join(needed)}")
        pytest.skip(f"not installed: {', '.join(needed)}")
    done = subprocess.run(
        [sys.executable, "-m", "tests.setup.real"],
        input=json.dumps([(case.kind, case.data) for case in CASES]),
        capture_output=True,
        text=True,
        cwd=ROOT,
        env={**os.environ, "DS_ACCELERATOR": "cpu", "PYTHONPATH": str(ROOT)},
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return {case.name: answer for case, answer in zip(CASES, json.loads(done.stdout), strict=True)}


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_the_real_thing_says_what_the_rule_says(case: Case, folder: Folder, answers: dict[str, str | None]) -> None:
    said = answers[case.name]
    folder.write(case.files)
    facts = Facts(model=describe(case.model) if case.model is not None else None)
    found = folder.diagnostics(case.what, facts=facts)
    raising = [d for d in found if d.phase is Phase.LOAD or d.code == case.code]
    if case.code is None:
        assert said is None
        assert raising == []
        return
    assert said is not None
    assert case.says in said
    assert case.code in [d.code for d in raising]
    for line in (line for d in raising for line in re.findall(r"- ds [^\"]*", d.message)):
        assert line.strip() in said
    own = [d for d in raising if d.code == case.code]
    assert any(case.says in d.message or case.says == MISMATCH or d.effect is not Effect.CRASH for d in own), [d.message for d in raising]


def test_names_are_unique() -> None:
    assert len({case.name for case in CASES}) == len(CASES)


def test_a_device_map_raises_at_stage_3() -> None:
    """The crash of DS946."""
    code = (
        "from transformers.integrations import HfDeepSpeedConfig\n"
        "from transformers.integrations.accelerate import check_and_set_device_map\n"
        "for stage in (2, 3):\n"
        "    config = HfDeepSpeedConfig({'zero_optimization': {'stage': stage}})\n"
        "    check_and_set_device_map('auto')\n"
        "    print(stage)\n"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300, check=False)
    assert ran.stdout.split() == ["2"]
    assert "not compatible with passing a `device_map`" in ran.stderr
