"""DS2: the data that each rank of a training loop gets."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence

from dslint.config import Config
from dslint.diagnostics import Effect
from dslint.facts import Integration
from dslint.job.events import DATA_LOADER, ENGINE, Event
from dslint.rule import Finding, bad, good, rule
from dslint.rules.helpers.prepare import PREPARE
from dslint.rules.helpers.syntax import statements_around, tree_of
from dslint.source.unknown import UNKNOWN

_CONFIG = '{"train_micro_batch_size_per_gpu": 4, "optimizer": {"type": "AdamW", "params": {"lr": 1e-5}}, "zero_optimization": {"stage": 2}}'
_PROGRAM = (
    "import deepspeed\nfrom datasets import load_dataset\nfrom torch.utils.data import DataLoader\ndata = load_dataset('json')\n"
    "loader = DataLoader(data, batch_size=4%s)\n"
    "engine, *_ = deepspeed.initialize(model=model, model_parameters=model.parameters(), config='ds_config.json'%s)\n"
    "for batch in loader:\n    engine.backward(engine(batch))\n    engine.step()\n"
)


@rule(
    "DS207",
    effect=Effect.SILENT,
    watches=("setup",),
    references=(
        "deepspeed/runtime/dataloader.py, DeepSpeedDataLoader",
        "https://docs.pytorch.org/docs/stable/data.html#torch.utils.data.distributed.DistributedSampler",
        "https://github.com/huggingface/transformers/issues/16125",
        "https://github.com/X-LANCE/SLAM-LLM/issues/93",
    ),
    setup=True,
)
@bad(
    _CONFIG,
    at="",
    program=_PROGRAM % (", shuffle=True", ""),
    integration="deepspeed",
    world_size=8,
    message="train.py:5 makes the data loader of the training without a sampler, and DeepSpeed divides only data that deepspeed.initialize gets: each of the 8 ranks may go through all samples, and an epoch takes as many steps as on one GPU.",
)
@bad(
    _CONFIG,
    at="",
    program=_PROGRAM % ("", ""),
    integration="deepspeed",
    world_size=8,
    message="train.py:5 makes the data loader of the training without a sampler, and DeepSpeed divides only data that deepspeed.initialize gets: the 8 ranks may train on the same batches, which has the effect of one GPU.",
)
@good(_CONFIG, program=_PROGRAM % ("", ""), integration="deepspeed", world_size=1)
@good(_CONFIG, program=_PROGRAM % (", sampler=DistributedSampler(data)", ""), integration="deepspeed", world_size=8)
@good(_CONFIG, program=_PROGRAM % ("", ", training_data=data"), integration="deepspeed", world_size=8)
@good(
    _CONFIG,
    program=(_PROGRAM % ("", "")).replace("loader = ", "data = data[rank::8]\nloader = "),
    integration="deepspeed",
    world_size=8,
)
@good(
    _CONFIG,
    program=(_PROGRAM % ("", "")).replace(
        "loader = ", "deepspeed.init_distributed()\ntorch.manual_seed(42 + torch.distributed.get_rank())\nloader = "
    ),
    integration="deepspeed",
    world_size=8,
)
@good(
    _CONFIG,
    program="from accelerate import Accelerator\naccelerator = Accelerator()\n"
    + (_PROGRAM % ("", "")).replace("for batch", "loader = accelerator.prepare(loader)\nfor batch"),
    integration="deepspeed",
    world_size=8,
)
@good(
    _CONFIG,
    program=(_PROGRAM % ("", "")).replace("loader = ", "eval_loader = ").replace("in loader", "in batches()"),
    integration="deepspeed",
    world_size=8,
)
def data_not_divided(config: Config) -> Iterator[Finding]:
    """The data loader of a training loop gives each rank all of the data.

    DeepSpeed divides only the data set that `deepspeed.initialize` gets as `training_data`: it makes a `DistributedSampler` for it. A
    `DataLoader` of the program goes through the whole data set on each rank. Shuffled, an epoch takes as many steps as on one GPU, and the
    model sees each sample once per rank. In the same order, the ranks compute the same gradients, and all but one of them are of no use.

    Pass `sampler=DistributedSampler(data)` in place of `shuffle=True`, and call its `set_epoch` at the start of each epoch; or pass
    `training_data` to `deepspeed.initialize` and use the loader that it returns.
    """
    program, ranks = config.setup.program if config.setup else None, config.facts.world_size
    if program is None or program.divides_data or config.facts.integration is not Integration.DEEPSPEED or ranks == 1:
        return
    events = program.events
    makers = list(events.of(re.escape(ENGINE)))
    trained = next((one for one in events.of(rf"{re.escape(ENGINE)}\.backward") if one.loops), None)
    if trained is None or program.pipeline is not None or any(not one.complete or _gives_data(one) for one in makers):
        return
    if any(events.of(_DIVIDES)):
        return
    loader = _loader_of(config, trained, list(events.of(DATA_LOADER)))
    if loader is None or not loader.complete or loader.tells_setups_apart or loader.unlikely:
        return
    shuffled = loader.argument("shuffle", 2)
    in_order = shuffled is None or shuffled.value is False
    several = f"the {ranks} ranks" if isinstance(ranks, int) else "the ranks"
    outcome = (
        f"{several} may train on the same batches, which has the effect of one GPU"
        if in_order
        else f"each of {several} may go through all samples, and an epoch takes as many steps as on one GPU"
    )
    yield Finding(
        "",
        f"{loader.at.where} makes the data loader of the training without a sampler, and DeepSpeed divides only data that deepspeed.initialize "
        f"gets: {outcome}.",
        help="Pass sampler=DistributedSampler(data) instead of shuffle, or training_data to deepspeed.initialize.",
        elsewhere=loader.at.related(""),
        certain=False,
    )


_PASSED = _PROGRAM.replace("DataLoader(data, ", "DataLoader(data, sampler=DistributedSampler(data), ")


@rule(
    "DS209",
    effect=Effect.SILENT,
    watches=("setup",),
    references=(
        "deepspeed/runtime/engine.py, DeepSpeedEngine.forward: the engine passes a batch on as it is",
        "https://github.com/deepspeedai/DeepSpeed/issues/62",
        "https://github.com/deepspeedai/DeepSpeed/issues/152",
    ),
    setup=True,
)
@bad(
    _CONFIG,
    at="",
    program=_PASSED.replace("batch_size=4", "batch_size=16") % ("", ""),
    integration="deepspeed",
    world_size=8,
    message="train.py:5 makes batches of 16 samples for the training loop, and train_micro_batch_size_per_gpu is 4: DeepSpeed takes a batch as it is, so a step trains on 128 samples instead of 32.",
)
@bad(
    _CONFIG[:-1] + ', "gradient_accumulation_steps": 4}',
    at="",
    program=_PASSED.replace("batch_size=4", "batch_size=1") % ("", ""),
    integration="deepspeed",
    message="train.py:5 makes batches of 1 sample for the training loop, and train_micro_batch_size_per_gpu is 4: DeepSpeed takes a batch as it is, so a step trains on 0.25 times the samples that the config says.",
)
@good(_CONFIG, program=_PASSED % ("", ""), integration="deepspeed", world_size=8)
@good(
    _CONFIG,
    program=(_PASSED.replace("batch_size=4", "batch_size=16") % ("", "")).replace(
        "    engine.backward(engine(batch))\n    engine.step()\n",
        "    for part in batch.chunk(4):\n        engine.backward(engine(part))\n        engine.step()\n",
    ),
    integration="deepspeed",
    world_size=8,
)
@good(
    _CONFIG,
    program=_PASSED.replace("batch_size=4", "batch_size=engine.train_micro_batch_size_per_gpu()") % ("", ""),
    integration="deepspeed",
    world_size=8,
)
@good(_CONFIG, program=_PASSED.replace("batch_size=4", "batch_size=16") % ("", ", training_data=data"), integration="deepspeed")
@good(
    _CONFIG,
    program=(_PASSED.replace("batch_size=4", "batch_size=16") % ("", ""))
    .replace("loader = ", "eval_loader = ")
    .replace("in loader", "in batches()"),
    integration="deepspeed",
)
def batch_of_loader(config: Config) -> Iterator[Finding]:
    """The data loader of a training loop makes batches of another size than the config says.

    In a loop of its own a program gives the engine its batches, and DeepSpeed neither divides nor counts them: it takes
    `train_micro_batch_size_per_gpu` for granted. The training then has another batch size than the config, and the throughput and the number of
    samples that DeepSpeed reports are wrong.

    Pass `batch_size=engine.train_micro_batch_size_per_gpu()` to the data loader.
    """
    program, micro = config.setup.program if config.setup else None, config.value("train_micro_batch_size_per_gpu")
    if program is None or config.facts.integration is not Integration.DEEPSPEED or not isinstance(micro, int) or not micro >= 1:
        return
    events = program.events
    makers = list(events.of(re.escape(ENGINE)))
    trained = [one for one in events.of(rf"{re.escape(ENGINE)}\.backward") if one.loops]
    if len(trained) != 1 or len(makers) != 1 or program.pipeline is not None or not makers[0].complete or _gives_data(makers[0]):
        return
    bound = [one for one in events.of(DATA_LOADER) if one.bound]
    names = _looped_over(config, trained[0], innermost=True) if bound and not any(events.of(_DIVIDES)) else ()
    loaders = [one for one in bound if one.bound in names]
    if len(loaders) != 1:
        return
    (loader,) = loaders
    given = loader.argument("batch_size", 1)
    size = given.value if given is not None else UNKNOWN
    if not loader.complete or not loader.certain or loader.conditions or loader.argument("batch_sampler", 4) is not None:
        return
    if not isinstance(size, int) or isinstance(size, bool) or size == micro or size < 1:
        return
    steps, ranks = config.value("gradient_accumulation_steps"), config.facts.world_size
    outcome = f"{size / micro:g} times the samples that the config says"
    if isinstance(steps, int) and isinstance(ranks, int):
        outcome = f"{size * steps * ranks:,} samples instead of {micro * steps * ranks:,}"
    yield Finding(
        "",
        f"{loader.at.where} makes batches of {size} sample{'s' * (size != 1)} for the training loop, and train_micro_batch_size_per_gpu is "
        f"{micro}: DeepSpeed takes a batch as it is, so a step trains on {outcome}.",
        help="Pass batch_size=engine.train_micro_batch_size_per_gpu() to the data loader, or write its size into the config.",
        elsewhere=loader.at.related(""),
        certain=False,
    )


_DIVIDES = rf"{PREPARE}|accelerate\.(\w+\.)*prepare_data_loader|lightning(\.|_)(fabric\.)?Fabric\.setup_dataloaders"
"""What divides the batches of a data loader among the ranks. `benchmarks/fp8` of Accelerate prepares loaders for an engine of its own."""
_EVALUATION = re.compile(r"val|test|eval|dev", re.IGNORECASE)
_OF_LIBRARIES = re.compile(r"(|(torch|torchvision|datasets|transformers)\..*)")
"""What makes a data set that no rank gets a part of: a class or function of the project, or of these libraries."""


def _gives_data(maker: Event) -> bool:
    """Whether `deepspeed.initialize` gets data to divide, or groups of ranks that get the same data."""
    given = (maker.argument("training_data", 4), maker.argument("mpu"))
    return any(one is not None and one.value is not None for one in given)


def _loader_of(config: Config, trained: Event, loaders: Sequence[Event]) -> Event | None:
    """The data loader that the loop around a backward pass goes through; None if it is not certain, or has a sampler or a batch of its own."""
    if any(one.argument(name, index) is not None for one in loaders for name, index in (("sampler", 3), ("batch_sampler", 4))):
        return None
    names = _looped_over(config, trained)
    named = [one for one in loaders if one.bound and one.bound in names]
    rest = [one for one in loaders if not _EVALUATION.search(one.bound) and not _EVALUATION.search(one.function)]
    found = named or (rest if len(rest) == 1 and (not names or not rest[0].bound) else [])
    data = found[0].argument("dataset", 0) if found else None
    return found[0] if len(found) == 1 and data is not None and _OF_LIBRARIES.fullmatch(data.made) else None


def _looped_over(config: Config, event: Event, *, innermost: bool = False) -> set[str]:
    """The names in what the loops around a call go through, or the innermost of them: `loader` of `for step, batch in enumerate(loader)`."""
    loops = [one for one in statements_around(tree_of(config, event.at.path), event) if isinstance(one, ast.For)]
    return {
        one.attr if isinstance(one, ast.Attribute) else one.id
        for loop in (loops[-1:] if innermost else loops)
        for one in ast.walk(loop.iter)
        if isinstance(one, ast.Name | ast.Attribute)
    }
