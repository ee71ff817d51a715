"""DSP: a checkpoint of Lightning's DeepSpeed strategy that is loaded as if it were a file."""

from __future__ import annotations

import re
from collections.abc import Iterator

from dslint.config import Config
from dslint.diagnostics import Effect, Phase
from dslint.job.arguments import SourcedValue
from dslint.rule import Finding, bad, good, rule
from dslint.rules.helpers.examples import trained
from dslint.rules.helpers.loaders import RAISED_BY_LIGHTNING, lightning_program
from dslint.source.ranges import range_of
from dslint.source.tree import Span

_STAGE_2 = '{"zero_optimization": {"stage": 2}}'
_TRAINED = (
    "from lightning.pytorch import LightningModule, Trainer\nfrom lightning.pytorch.callbacks import ModelCheckpoint\n"
    "class Model(LightningModule):\n    pass\nsaved = ModelCheckpoint(monitor='loss')\n"
    "trainer = Trainer(strategy=%s, devices=4, callbacks=[saved])\ntrainer.fit(Model())\n"
)
_WITH_DEEPSPEED = _TRAINED % "'deepspeed_stage_2'"

_LOADS = re.compile(r"\b[A-Za-z_][\w.]*\.load_from_checkpoint\(\s*(?:checkpoint_path\s*=\s*)?([^,()\n]{1,100}?)\s*[,)]")
_SAVES = re.compile(r"\.save_checkpoint\(\s*(?:filepath\s*=\s*)?([^,()\n]{1,100}?)\s*[,)]")
_BEST = re.compile(r"[\w.\[\]]*\.(?:best|last)_model_path")


@rule(
    "DSP22",
    effect=Effect.CRASH,
    phase=Phase.LATER,
    watches=("setup",),
    references=(
        "lightning/pytorch/strategies/deepspeed.py, DeepSpeedStrategy.save_checkpoint",
        "lightning/fabric/utilities/cloud_io.py, _load",
        "lightning/pytorch/utilities/deepspeed.py, convert_zero_checkpoint_to_fp32_state_dict",
    ),
    untried=RAISED_BY_LIGHTNING,
    setup=True,
)
@bad(
    _STAGE_2,
    at="",
    program=_WITH_DEEPSPEED + "best = Model.load_from_checkpoint(saved.best_model_path)\n",
    integration="lightning",
    message="train.py:8 loads saved.best_model_path, which is a folder under Lightning's DeepSpeed strategy, with the part of each rank: load_from_checkpoint may raise IsADirectoryError.",
)
@bad(
    _STAGE_2,
    at="",
    program=_WITH_DEEPSPEED + "trainer.save_checkpoint('last.ckpt')\nbest = Model.load_from_checkpoint('last.ckpt')\n",
    integration="lightning",
    message="train.py:9 loads 'last.ckpt', which is a folder under Lightning's DeepSpeed strategy, with the part of each rank: load_from_checkpoint may raise IsADirectoryError.",
)
@good(_STAGE_2, program=_WITH_DEEPSPEED + "best = Model.load_from_checkpoint('pretrained.ckpt')\n", integration="lightning")
@good(_STAGE_2, program=_WITH_DEEPSPEED + "trainer.test(ckpt_path=saved.best_model_path)\n", integration="lightning")
@good(
    _STAGE_2,
    program="from lightning.pytorch.utilities.deepspeed import convert_zero_checkpoint_to_fp32_state_dict\n"
    + _WITH_DEEPSPEED
    + "convert_zero_checkpoint_to_fp32_state_dict(saved.best_model_path, 'best.pt')\nbest = Model.load_from_checkpoint('best.pt')\n",
    integration="lightning",
)
@good(
    trained('"zero_optimization": {"stage": 2}'), program=_TRAINED % "'ddp'" + "best = Model.load_from_checkpoint(saved.best_model_path)\n"
)
def folder_as_checkpoint(config: Config) -> Iterator[Finding]:
    """A program trains with Lightning's DeepSpeed strategy, and loads its checkpoint with `load_from_checkpoint`.

    With this strategy a checkpoint is a folder with the part of each rank, also where its name ends with `.ckpt`. `Trainer` reads it as
    `ckpt_path`; `load_from_checkpoint` opens a file, and raises IsADirectoryError after the training.

    Convert the folder first, with `convert_zero_checkpoint_to_fp32_state_dict` of `lightning.pytorch.utilities.deepspeed`.
    """
    setup = config.setup
    if setup is None or lightning_program(config) is None:
        return
    programs = [(path, one) for path, one in setup.documents.items() if one.language == "python"]
    if any("fp32_state_dict" in one.text for _, one in programs):
        return
    for path, document in programs:
        saved = {match[1] for match in _SAVES.finditer(document.text)}
        for match in _LOADS.finditer(document.text):
            if match[1] not in saved and _BEST.fullmatch(match[1]) is None:
                continue
            at = SourcedValue(None, "", match[0], path, range_of(document, Span(*match.span())))
            yield Finding(
                "",
                f"{at.where} loads {match[1]}, which is a folder under Lightning's DeepSpeed strategy, with the part of each rank: "
                "load_from_checkpoint may raise IsADirectoryError.",
                help="Convert it with convert_zero_checkpoint_to_fp32_state_dict of lightning.pytorch.utilities.deepspeed, and load the file. "
                "trainer.test and trainer.predict read the folder: pass it as ckpt_path.",
                elsewhere=at.related(""),
                certain=False,
            )
            return
