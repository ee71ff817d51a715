"""DS9: the data loaders that a program gives to Accelerate's `prepare`."""

from __future__ import annotations

import re
from collections.abc import Iterator

from dslint.config import Config
from dslint.diagnostics import Effect, Phase
from dslint.facts import Integration, Release
from dslint.job.events import DATA_LOADER, Event
from dslint.rule import Finding, bad, good, rule
from dslint.rules.helpers.loaders import RAISED_BY_LOADER
from dslint.rules.helpers.prepare import MICRO_BATCH, PREPARE, may_have_model, selects_plugin

_AUTO = '{"train_micro_batch_size_per_gpu": "auto", "gradient_accumulation_steps": 1, "zero_optimization": {"stage": 2}}'
_WRITTEN = _AUTO.replace('"auto"', "4")

_PREPARED = (
    "from accelerate import Accelerator\nfrom torch.utils.data import BatchSampler, DataLoader, SequentialSampler\n"
    "from transformers import AutoModelForCausalLM\naccelerator = Accelerator()\nmodel = AutoModelForCausalLM.from_pretrained('m')\n"
    "loader = DataLoader(data, %s)\nmodel, optimizer, loader = accelerator.prepare(model, optimizer, loader)\n"
)
_SAMPLED = _PREPARED % "batch_sampler=BatchSampler(SequentialSampler(data), 4, False)"
_BRANCHES = _SAMPLED.replace("loader = D", "if grouped:\n    loader = D").replace(
    "\nmodel, opt", "\nelse:\n    loader = DataLoader(data, %s)\nmodel, opt"
)
_ALONE = _SAMPLED.replace(
    "model, optimizer, loader = accelerator.prepare(model, optimizer, loader)", "loader = accelerator.prepare(loader)"
)


@rule(
    "DS979",
    effect=Effect.CRASH,
    phase=Phase.LOAD,
    watches=("setup",),
    references=(
        "accelerate/accelerator.py, Accelerator._prepare_deepspeed",
        "torch/utils/data/dataloader.py, DataLoader.__init__",
        "https://github.com/huggingface/accelerate/issues/841",
        "https://github.com/huggingface/accelerate/pull/2098",
    ),
    untried=RAISED_BY_LOADER,
    setup=True,
)
@bad(
    _AUTO,
    at="train_micro_batch_size_per_gpu",
    program=_SAMPLED,
    integration="accelerate",
    message='train.py:6 makes the data loader with batch_sampler, so its batch_size is None, and train_micro_batch_size_per_gpu is "auto": train.py:7 raises "At least one of the dataloaders passed to `accelerate.prepare()` has `None` as batch size".',
)
@bad(
    _AUTO,
    at="train_micro_batch_size_per_gpu",
    program=_PREPARED % "batch_size=None",
    integration="accelerate",
    message='train.py:6 makes the data loader with batch_size=None, so its batch_size is None, and train_micro_batch_size_per_gpu is "auto": train.py:7 raises "At least one of the dataloaders passed to `accelerate.prepare()` has `None` as batch size".',
)
@bad(
    _WRITTEN,
    at="train_micro_batch_size_per_gpu",
    program=_SAMPLED,
    integration="accelerate",
    pins={"accelerate": Release(0, 25, 0)},
    message='train.py:6 makes the data loader with batch_sampler, so its batch_size is None, which Accelerate 0.25.0 refuses: train.py:7 raises "At least one of the dataloaders passed to `accelerate.prepare()` has `None` as batch size".',
)
@bad(
    _AUTO,
    at="train_micro_batch_size_per_gpu",
    program=_BRANCHES % "batch_size=None",
    integration="accelerate",
    message='train.py:7 (and 1 more place) makes the data loader with batch_sampler, so its batch_size is None, and train_micro_batch_size_per_gpu is "auto": train.py:10 raises "At least one of the dataloaders passed to `accelerate.prepare()` has `None` as batch size".',
)
@good(_AUTO, program=_BRANCHES % "batch_size=8", integration="accelerate")
@good(_WRITTEN, program=_SAMPLED, integration="accelerate")
@good(_AUTO, program=_PREPARED % "batch_size=4", integration="accelerate")
@good(_AUTO, program=_PREPARED % "sampler=SequentialSampler(data)", integration="accelerate")
@good(_AUTO, program=_PREPARED % "batch_sampler=None, batch_size=4", integration="accelerate")
@good(_AUTO, program=_PREPARED % "batch_sampler=sampler if grouped else None", integration="accelerate")
@good(_AUTO, program=_ALONE, integration="accelerate")
@good(
    _AUTO,
    program=_SAMPLED.replace(
        "\nmodel, opt", "\naccelerator.state.deepspeed_plugin.deepspeed_config['train_micro_batch_size_per_gpu'] = 4\nmodel, opt"
    ),
    integration="accelerate",
)
@good(
    _AUTO,
    program=_SAMPLED.replace("optimizer, loader)", "optimizer)").replace("optimizer, loader =", "optimizer ="),
    integration="accelerate",
)
@good(_AUTO, program=_SAMPLED.replace("\nmodel, opt", "\nloader = Ours(loader)\nmodel, opt"), integration="accelerate")
def loader_without_batch_size(config: Config) -> Iterator[Finding]:
    """The micro batch size is "auto", and the program prepares a data loader that has no batch size.

    Accelerate fills an "auto" micro batch size from the `batch_size` of the data loaders that the same `prepare` gets. A `DataLoader` with a
    `batch_sampler`, or with `batch_size=None`, has None there: Accelerate raises ValueError "At least one of the dataloaders passed to
    `accelerate.prepare()` has `None` as batch size". Accelerate 0.19 to 0.25 raises it also if the config has a number.

    Set `train_micro_batch_size_per_gpu` to the number of samples in a batch.
    """
    program = config.setup.program if config.setup else None
    if program is None or config.facts.integration is not Integration.ACCELERATE or any(MICRO_BATCH in path for path in program.sets):
        return
    if selects_plugin(config):
        return
    accelerate = config.context.pinned("accelerate")
    auto = config.is_auto(MICRO_BATCH)
    refuses_all = accelerate is not None and Release(0, 19, 0) <= accelerate < Release(0, 26, 0)
    if not (auto or (refuses_all and config.has(MICRO_BATCH))):
        return
    calls = (event for event in program.events.of(PREPARE) if event.certain or event.likely or not event.conditions)
    # the first one with a model fills the micro batch size for those that follow
    event = next((one for one in calls if may_have_model(one)), None)
    if event is None or event.tells_setups_apart:
        return
    for given in event.arguments.values():
        makers = program.events.makers_of(given) if re.fullmatch(DATA_LOADER, given.made) else []
        ways = [how for one in makers if (how := _without_batch_size(one)) is not None]
        if not ways or len(ways) < len(makers) or any(one.tells_setups_apart for one in makers):
            continue
        made, how, others = makers[0], ways[0], len(makers) - 1
        lines = "" if not others else f" (and {others} more place{'s' if others > 1 else ''})"
        why = f'and {MICRO_BATCH} is "auto"' if auto else f"which Accelerate {accelerate} refuses"
        yield Finding(
            MICRO_BATCH,
            f'{made.at.where}{lines} makes the data loader with {how}, so its batch_size is None, {why}: {event.at.where} raises "At least one of the '
            'dataloaders passed to `accelerate.prepare()` has `None` as batch size".',
            help=f"Set {MICRO_BATCH} to the number of samples in a batch." if auto else "Use Accelerate 0.26 or newer.",
            related=(*(one.at.related("made here") for one in makers[:5]), event.at.related("prepared here")),
            certain=event.certain and (made.certain or others > 0),
        )
        return


def _without_batch_size(made: Event) -> str | None:
    """The argument that leaves a data loader without a batch size."""
    sampler, size = made.argument("batch_sampler", 4), made.argument("batch_size", 1)
    if sampler is not None and sampler.made:
        return "batch_sampler"
    return "batch_size=None" if size is not None and size.value is None else None
