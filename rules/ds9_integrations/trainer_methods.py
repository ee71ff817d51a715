"""DS9: methods of a project's Trainer that do not fit the release of transformers."""

from __future__ import annotations

import re
from collections.abc import Iterator

from dslint.config import Config
from dslint.diagnostics import Effect, Phase, Place, Range, Related
from dslint.facts import Release
from dslint.rule import Finding, bad, good, rule
from dslint.rules.helpers.loaders import RAISED_BY_LOADER
from dslint.rules.helpers.releases import newest_transformers, release_of
from dslint.rules.helpers.trainer_methods import Misfit

_STAGE_2 = '{"train_micro_batch_size_per_gpu": 4, "gradient_accumulation_steps": 1, "zero_optimization": {"stage": 2}}'
_OWN_LOSS = (
    "from transformers import AutoModelForCausalLM, Trainer, TrainingArguments\n"
    "class WeightedTrainer(Trainer):\n"
    "    def compute_loss(self, model, inputs, return_outputs=False):\n"
    "        return model(**inputs).loss\n"
    'arguments = TrainingArguments("out", deepspeed="ds_config.json")\n'
    'trainer = WeightedTrainer(AutoModelForCausalLM.from_pretrained("m"), arguments)\n'
    "trainer.train()\n"
)
_OWN_LOG = _OWN_LOSS.replace(
    "    def compute_loss(self, model, inputs, return_outputs=False):\n        return model(**inputs).loss\n",
    "    def log(self, logs):\n        super().log({**logs, 'lr': 0})\n",
)
_OWN_CHECKPOINT = _OWN_LOSS.replace(
    "    def compute_loss(self, model, inputs, return_outputs=False):\n        return model(**inputs).loss\n",
    "    def _save_checkpoint(self, model, trial, metrics=None):\n        super()._save_checkpoint(model, trial, metrics)\n",
)


@rule(
    "DS943",
    effect=Effect.CRASH,
    phase=Phase.STEP,
    watches=("setup",),
    references=(
        "transformers/trainer.py of 4.28.1 to 5.24.0, class Trainer",
        "https://github.com/huggingface/transformers/issues/36331",
        "https://github.com/QwenLM/Qwen3-Coder/issues/394",
    ),
    untried=RAISED_BY_LOADER,
    anywhere=True,
    setup=True,
)
@bad(
    _STAGE_2,
    at="",
    program=_OWN_LOSS,
    integration="transformers",
    pins={"transformers": Release(4, 46, 3)},
    message="train.py:3 defines WeightedTrainer.compute_loss, but transformers 4.46.3 passes it (model, inputs, num_items_in_batch=num_items_in_batch): Python raises TypeError \"WeightedTrainer.compute_loss() got an unexpected keyword argument 'num_items_in_batch'\".",
)
@bad(
    _STAGE_2,
    at="",
    program=_OWN_LOG,
    integration="transformers",
    pins={"transformers": Release(4, 47, 1)},
    message='train.py:3 defines WeightedTrainer.log, but transformers 4.47.1 passes it (logs, start_time): Python raises TypeError "WeightedTrainer.log() takes 2 positional arguments but 3 were given".',
)
@bad(
    _STAGE_2,
    at="",
    program=_OWN_CHECKPOINT,
    integration="transformers",
    pins={"transformers": Release(4, 47, 1)},
    message='train.py:4 calls super()._save_checkpoint, which takes (model, trial) in transformers 4.47.1: Python raises TypeError "Trainer._save_checkpoint() takes 3 positional arguments but 4 were given".',
)
@good(_STAGE_2, program=_OWN_LOSS, integration="transformers", pins={"transformers": Release(4, 45, 2)})
@good(_STAGE_2, program=_OWN_LOSS, integration="transformers")
@good(
    _STAGE_2,
    program=_OWN_LOSS.replace("return_outputs=False)", "return_outputs=False, **kwargs)"),
    integration="transformers",
    pins={"transformers": Release(4, 46, 3)},
)
@good(
    _STAGE_2,
    program=_OWN_LOSS.replace(
        "        return model(**inputs).loss\n",
        "        return model(**inputs).loss\n"
        "    def training_step(self, model, inputs, count=None):\n        self.accelerator.backward(self.compute_loss(model, inputs))\n",
    ),
    integration="transformers",
    pins={"transformers": Release(4, 46, 3)},
)
@good(
    _STAGE_2,
    program=_OWN_LOG.replace("= WeightedTrainer(", "= Trainer("),
    integration="transformers",
    pins={"transformers": Release(4, 47, 1)},
)
def trainer_of_other_release(config: Config) -> Iterator[Finding]:
    """A class of the project replaces a method of the Trainer as another release of transformers has it.

    The Trainer calls the methods that a class replaces with the arguments of its own release: since 4.46.0 `compute_loss` and
    `training_step` get the number of items in the batch, since 4.47.0 `log` gets the start of the training and `_save_checkpoint` no
    metrics, since 4.50.0 `get_batch_samples` the device, since 4.52.0 `_get_train_sampler` the dataset; `_maybe_log_save_evaluate` changed in
    4.38.0, 4.47.0 and 4.51.0. A method that does not take them raises `TypeError`, with DeepSpeed and without, and so does a call of
    the Trainer's own method with arguments that it does not take: `super()._save_checkpoint(model, trial, metrics)`.

    dslint compares the release that the project pins, or that is given (`--integration transformers==4.47.1`), or else the newest one that
    its requirements allow, which pip installs.

    Give the method the parameters of the release, or pin an older transformers.
    """
    setup = config.setup
    texts = [one.text for one in setup.documents.values() if one.language == "python"] if setup is not None else []
    if setup is None or not any("Trainer" in one for one in texts) or not any(map(_EXTENDS.search, texts)):
        return
    pinned = release_of(config, "transformers")
    allowed = newest_transformers(config) if pinned is None else None
    release = pinned if allowed is None else allowed[1]
    if release is None:
        return
    from dslint.rules.helpers.trainer_methods import misfits  # few projects have such a class

    for one in misfits(setup.documents, release):
        if pinned is None and not one.before:
            continue
        choice = (
            f", or use a transformers before {one.since}" if one.before else f", or use transformers {one.from_on}" if one.from_on else ""
        )
        yield Finding(
            "",
            _message(one, f"transformers {pinned}" if allowed is None else f"transformers {one.since} and later", allowed and allowed[0]),
            help=f"Write {one.wanted}{choice}.",
            phase=one.phase,
            elsewhere=Related(one.path, "", None, _range_of(setup.documents[one.path].text, one)),
            certain=pinned is not None,
        )


_EXTENDS = re.compile(r"^class \w+\(", re.MULTILINE)


def _message(one: Misfit, releases: str, allowed_by: str | None) -> str:
    where, takes = f"{one.path}:{one.node.lineno}", f"({one.takes})" if one.takes else "no arguments"
    raises = f'Python {"may raise" if allowed_by else "raises"} TypeError "{one.error}"'
    by = f" ({allowed_by} allows them)" if allowed_by else ""
    if one.by_super:
        return f"{where} calls {one.shown}, which takes {takes} in {releases}{by}: {raises}."
    passes = "pass it" if allowed_by else "passes it"
    return f"{where} defines {one.owner}.{one.method}, but {releases} {passes} {takes}{by}: {raises}."


def _range_of(text: str, one: Misfit) -> Range | None:
    """The place of a method's name, or of a call."""
    before = "".join(text.splitlines(keepends=True)[: one.node.lineno - 1])
    line = text[len(before) :].partition("\n")[0]
    column = line.find(one.shown)
    if column < 0:
        return None
    start = len(before) + column
    return Range(Place(one.node.lineno, column + 1, start), Place(one.node.lineno, column + 1 + len(one.shown), start + len(one.shown)))
