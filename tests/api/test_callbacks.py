"""`dslint.guard` as a callback: the real frameworks call it before they start the engine."""

from __future__ import annotations

import json
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import pytest

import dslint
from dslint import callbacks

BAD = {"train_micro_batch_size_per_gpu": "auto", "fp16": {"enabled": True}, "bf16": {"enabled": True}, "zero_optimization": {"stage": 2}}
GOOD = {"train_micro_batch_size_per_gpu": "auto", "bf16": {"enabled": "auto"}, "zero_optimization": {"stage": 2}}

pytestmark = pytest.mark.integrations


class Seen(Exception):
    """What a stand-in for the engine raises."""


class Arguments:
    """What a Trainer passes to its callbacks, as far as the guard reads it."""

    def __init__(self, config: object) -> None:
        self.deepspeed = config
        self.world_size = 1
        self.bf16 = True


def test_a_trainer_is_stopped_when_it_is_made(tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    path = tmp_path / "ds_config.json"
    path.write_text(json.dumps(BAD), encoding="utf-8")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from transformers.trainer_callback import CallbackHandler, TrainerCallback, TrainerControl, TrainerState

        made = callbacks.for_trainer()
        assert isinstance(made, TrainerCallback)
        handler = CallbackHandler([made], None, None, None, None)
        for config in (str(path), BAD):
            made.checked = False
            with pytest.raises(dslint.ConfigError, match="DS301"):
                handler.on_init_end(Arguments(config), TrainerState(), TrainerControl())
        handler.on_train_begin(Arguments(BAD), TrainerState(), TrainerControl())  # it was checked before
        for config in (None, GOOD):
            handler = CallbackHandler([callbacks.for_trainer()], None, None, None, None)
            handler.on_init_end(Arguments(config), TrainerState(), TrainerControl())


def test_the_trainer_calls_it_before_the_engine(tmp_path: Path) -> None:
    """The real Trainer, made with a config that it can load."""
    transformers = pytest.importorskip("transformers")
    torch = pytest.importorskip("torch")
    pytest.importorskip("deepspeed")
    seen: list[Any] = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        made = callbacks.for_trainer(warn=True)
        made._check = lambda args, model: seen.append((args.output_dir, model))
        arguments = transformers.TrainingArguments(output_dir=str(tmp_path), use_cpu=True, report_to=[])
        model = torch.nn.Linear(2, 2)
        transformers.Trainer(model=model, args=arguments, callbacks=[made])
    assert seen == [(str(tmp_path), model)]


def test_lightning_is_stopped_before_the_engine_starts(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    pytest.importorskip("lightning")
    pytest.importorskip("deepspeed")
    monkeypatch.chdir(tmp_path)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from lightning.pytorch import Callback
        from lightning.pytorch.strategies import DeepSpeedStrategy

        made = callbacks.for_lightning()
        assert isinstance(made, Callback)

        class Trainer:
            world_size = 2
            strategy: Any = None

        trainer = Trainer()
        trainer.strategy = type("Strategy", (), {"config": {**BAD, "train_micro_batch_size_per_gpu": 1}})()
        with pytest.raises(dslint.ConfigError, match="DS301"):
            made.setup(trainer, None, "fit")
        made.setup(trainer, None, "validate")
        trainer.strategy = type("Strategy", (), {})()  # not DeepSpeed's
        made.setup(trainer, None, "fit")
        assert isinstance(DeepSpeedStrategy(stage=2).config, dict), "the attribute that the callback reads"


def test_the_line_for_accelerate(monkeypatch: pytest.MonkeyPatch) -> None:
    accelerate = pytest.importorskip("accelerate")
    pytest.importorskip("deepspeed")
    for name, value in {"RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0"}.items():
        monkeypatch.setenv(name, value)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        plugin = accelerate.DeepSpeedPlugin(hf_ds_config={**BAD, "train_micro_batch_size_per_gpu": 1})
    with pytest.raises(dslint.ConfigError, match="DS301"):
        dslint.guard(plugin.deepspeed_config, integration="accelerate")


def test_callbacks_need_no_import_of_their_own() -> None:
    code = "import dslint; print(dslint.callbacks.for_trainer.__name__)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout == "for_trainer\n", done.stderr
