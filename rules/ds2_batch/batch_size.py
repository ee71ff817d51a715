"""DS2: the batch triad and the world size.

train_batch_size = train_micro_batch_size_per_gpu x gradient_accumulation_steps x ranks. DeepSpeed fills in what is not written
(`schemas/derive.py` does the same) and then asserts the equation.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from dslint.config import UNKNOWN, Config
from dslint.diagnostics import Applicability, Effect, Phase, Severity
from dslint.facts import Integration, Release
from dslint.rule import Finding, FixPlan, bad, good, rule
from dslint.rules.helpers.fixes import without, write
from dslint.schemas.derive import ACCUMULATION, MICRO, TRAIN, batch_world_size
from dslint.schemas.key_table import KEYS
from dslint.source.tree import Mapping, Scalar

TRIAD = (TRAIN, MICRO, ACCUMULATION)
DOCS = "https://www.deepspeed.ai/docs/config-json/#batch-size-related-parameters"
SOURCE = "deepspeed/runtime/config.py, DeepSpeedConfig._batch_assertion"


def _written(config: Config) -> dict[str, Any] | None:
    """The keys of the triad that are written, or None if one of them has no value that can be judged, or elasticity computes them."""
    if _elastic(config):
        return None
    values = {key: config.value(key) for key in TRIAD if config.has(key) and config.value(key) is not None and config.quote(key) != "null"}
    return values if all(isinstance(value, int | float) for value in values.values()) else None


def _elastic(config: Config) -> bool:
    """Whether the batch sizes come from an enabled `elasticity`, in a release that has it."""
    enabled = config.node("elasticity.enabled")
    last = Release.parse(KEYS["elasticity"]["until"]["release"])
    return config.release <= last and isinstance(enabled, Scalar) and bool(enabled.value)


def _places(written: dict[str, Any], but: str) -> tuple[tuple[str, str], ...]:
    return tuple((key, "a part of the product") for key in written if key != but)


def _number(value: Any) -> str:
    return f"{value:,}" if isinstance(value, int) and value >= 10_000 else str(value)


@rule(
    "DS201",
    "batch-size-product",
    effect=Effect.CRASH,
    phase=Phase.PARSE,
    needs=("world_size",),
    references=(DOCS, SOURCE),
    watches=("train_batch_size",),
)
@bad('{"train_batch_size": 32, "train_micro_batch_size_per_gpu": 4, "gradient_accumulation_steps": 2}', at="train_batch_size", world_size=8)
@bad('{"train_batch_size": 16, "train_micro_batch_size_per_gpu": 4}', at="train_batch_size", world_size=8)
@bad('{"train_batch_size": 4, "gradient_accumulation_steps": 1}', at="train_batch_size", world_size=8)
@bad('{"train_batch_size": 100}', at="train_batch_size", world_size=8)
@bad(
    '{"train_batch_size": 2, "train_micro_batch_size_per_gpu": 1, "gradient_accumulation_steps": 1, "sequence_parallel_size": 4}',
    at="train_batch_size",
    world_size=4,
    integration="transformers",
)
@good('{"train_batch_size": 64, "train_micro_batch_size_per_gpu": 4, "gradient_accumulation_steps": 2}', world_size=8)
@good('{"train_batch_size": 64, "train_micro_batch_size_per_gpu": 4}', world_size=8)
@good('{"train_micro_batch_size_per_gpu": 3, "gradient_accumulation_steps": 5}', world_size=7)
def batch_size_product(config: Config) -> Iterator[Finding]:
    """The train batch size is not micro batch size x gradient accumulation steps x world size.

    DeepSpeed computes the keys that are not written from the others with whole-number division, and then asserts the product. When it
    does not come out, every rank dies with `AssertionError: Check batch related parameters`, or with one of the three being 0.

    Write the micro batch size and the accumulation steps alone and let DeepSpeed compute the train batch size: such a config runs on
    any number of GPUs. With a sequence parallel size the world size is divided by it first.
    """
    if config.arguments is not None:
        return  # the Trainer compares the batch with its arguments before DeepSpeed sees it: argument-mismatch
    written, ranks = _written(config), batch_world_size(config)
    if not written or ranks is UNKNOWN or TRAIN not in written or any(value <= 0 for value in written.values()):
        return
    train, micro, steps = (config.value(key) for key in TRIAD)
    if UNKNOWN in (train, micro, steps) or any(value is UNKNOWN for value in (train, micro, steps)):
        return
    if train == micro * steps * ranks and micro > 0 and steps > 0:
        return
    gpus = f"{config.facts.world_size:,} GPU{'' if config.facts.world_size == 1 else 's'}"
    if ranks != config.facts.world_size:
        gpus = f"{ranks:.3g} data-parallel ranks on {gpus}"
    if micro < 1:
        message = f"train_batch_size {_number(train)} is too small for {gpus}: it leaves a micro batch size of {micro}, and DeepSpeed asserts that it is greater than 0."
        yield Finding(
            TRAIN, message, help=_completed(written, ranks), fix=_multiplied(config, written, ranks), related=_places(written, TRAIN)
        )
        return
    if steps < 1:
        message = f"train_batch_size {_number(train)} is less than one micro batch of {_number(micro)} on each of {gpus}: DeepSpeed computes {steps} accumulation steps and asserts that there is at least one."
        yield Finding(
            TRAIN, message, help=_completed(written, ranks), fix=_multiplied(config, written, ranks), related=_places(written, TRAIN)
        )
        return
    product = f"{_number(micro)} x {_number(steps)} x {_number(ranks)} = {_number(micro * steps * ranks)}"
    derived = " (with the missing key computed)" if len(written) < 3 else ""
    message = f"train_batch_size is {_number(train)}, but micro batch x accumulation steps x world size is {product}{derived}; DeepSpeed raises an AssertionError."
    yield Finding(TRAIN, message, help=_completed(written, ranks), fix=_multiplied(config, written, ranks), related=_places(written, TRAIN))


def _multiplied(config: Config, written: dict[str, Any], ranks: float) -> FixPlan | None:
    """The train batch size nearest to the written one that multiplies out."""
    if not all(isinstance(number, int) for number in (*written.values(), ranks)):
        return None
    train, micro, steps = (written.get(key) for key in TRIAD)
    if micro is not None and steps is not None:
        return write(config, TRAIN, str(micro * steps * ranks))
    return write(config, TRAIN, str(_nearest(train, (micro or steps or 1) * ranks)))


def _nearest(number: Any, unit: Any) -> int:
    """The multiple of a unit nearest to a number, and at least the unit."""
    return int(max(1, round((number or 0) / unit)) * unit)


def _completed(written: dict[str, Any], ranks: float) -> str:
    """What to write: values that multiply out, keeping the micro batch size, which is what has to fit in memory."""
    if not isinstance(ranks, int):
        return "Make sequence_parallel_size a divisor of the world size."
    train, micro, steps = (written.get(key) for key in TRIAD)
    if micro is not None and steps is not None:
        return f"Write {_number(micro * steps * ranks)}, or leave train_batch_size out: DeepSpeed computes it."
    per_step = (micro or steps or 1) * ranks
    unit = f"{_number(micro or steps)} x {ranks:,} = {_number(per_step)}" if micro or steps else f"{ranks:,}"
    return f"Write a multiple of {unit}, such as {_number(_nearest(train, per_step))}."


@rule(
    "DS202", "batch-size-never-multiplies", effect=Effect.CRASH, phase=Phase.PARSE, references=(DOCS, SOURCE), watches=("train_batch_size",)
)
@bad('{"train_batch_size": 30, "train_micro_batch_size_per_gpu": 4, "gradient_accumulation_steps": 2}', at="train_batch_size")
@bad('{"train_batch_size": 30, "train_micro_batch_size_per_gpu": 4}', at="train_batch_size")
@good('{"train_batch_size": 32, "train_micro_batch_size_per_gpu": 4, "gradient_accumulation_steps": 8}')
@good('{"train_micro_batch_size_per_gpu": 4, "gradient_accumulation_steps": 7}')
def batch_size_never_multiplies(config: Config) -> Iterator[Finding]:
    """The train batch size is no multiple of the other two, so that it comes out on no number of GPUs.

    For every world size DeepSpeed's assertion `train_batch_size == micro_batch_per_gpu * gradient_acc_step * world_size` fails while the
    config is parsed. With a world size given, `batch-size-product` says what it would be there.
    """
    written = _written(config)
    if not written or TRAIN not in written or config.facts.world_size is not None or any(value <= 0 for value in written.values()):
        return
    others = {key: value for key, value in written.items() if key != TRAIN}
    unit = 1
    for value in others.values():
        unit *= value
    train = written[TRAIN]
    if not others or train % unit == 0:
        return
    factors = " x ".join(_number(value) for value in others.values())
    shown = f"{factors} = {_number(unit)}" if len(others) > 1 else f"{next(iter(others))} {factors}"
    nearest = _nearest(train, unit)
    yield Finding(
        TRAIN,
        f"train_batch_size {_number(train)} is not a multiple of {shown}: on no number of GPUs does the batch multiply out, and DeepSpeed raises an AssertionError.",
        help=f"Write a multiple of {_number(unit)}, such as {_number(nearest)}, or leave train_batch_size out: DeepSpeed computes it.",
        fix=without(config, TRAIN, Applicability.UNSAFE) if len(others) == 2 else write(config, TRAIN, str(nearest)),
        related=_places(written, TRAIN),
    )


@rule("DS203", "batch-size-fixes-world-size", effect=Effect.ADVICE, references=(DOCS,), watches=("train_batch_size",))
@bad('{"train_batch_size": 16, "train_micro_batch_size_per_gpu": 4, "gradient_accumulation_steps": 4}', at="train_batch_size")
@bad('{"train_batch_size": 256, "train_micro_batch_size_per_gpu": 4, "gradient_accumulation_steps": 2}', at="train_batch_size")
@good('{"train_batch_size": 16, "train_micro_batch_size_per_gpu": 4, "gradient_accumulation_steps": 4}', world_size=1)
@good('{"train_micro_batch_size_per_gpu": 4, "gradient_accumulation_steps": 4}')
def batch_size_fixes_world_size(config: Config) -> Iterator[Finding]:
    """All three batch keys are written, so the config runs on exactly one number of GPUs.

    On any other number DeepSpeed raises `AssertionError: Check batch related parameters` before training starts. Configs that are copied
    from a guide often multiply out on one GPU alone, because world size was forgotten in the product.

    Leave `train_batch_size` out, and DeepSpeed computes it for the number of GPUs there is; or give `--world-size` to have the product checked.
    """
    written = _written(config)
    if not written or len(written) < 3 or config.facts.world_size is not None or any(value <= 0 for value in written.values()):
        return
    train, micro, steps = (written[key] for key in TRIAD)
    if train % (micro * steps):
        return
    ranks = int(train // (micro * steps))
    on = "one GPU" if ranks == 1 else f"{ranks:,} GPUs"
    product = f"{_number(train)} = {_number(micro)} x {_number(steps)} x {ranks:,}"
    eight = 16 if ranks == 8 else 8
    yield Finding(
        TRAIN,
        f"The batch multiplies out on exactly {on} ({product}); on any other number DeepSpeed raises an AssertionError.",
        help=f"Leave train_batch_size out and DeepSpeed computes it (on {eight} GPUs: {_number(micro * steps * eight)}), or pass --world-size {ranks} if that is what will run it.",
        fix=without(config, TRAIN, Applicability.UNSAFE),
        related=_places(written, TRAIN),
    )


@rule(
    "DS204",
    "no-batch-size",
    effect=Effect.CRASH,
    phase=Phase.PARSE,
    references=(DOCS, SOURCE),
    watches=("!train_micro_batch_size_per_gpu",),
)
@bad('{"zero_optimization": {"stage": 2}, "bf16": {"enabled": true}}', at="", integration="deepspeed")
@bad('{"gradient_accumulation_steps": 8, "zero_optimization": {"stage": 2}}', at="", integration="transformers")
@bad('{"train_batch_size": null, "train_micro_batch_size_per_gpu": null}', at="", integration="deepspeed")
@good('{"train_micro_batch_size_per_gpu": 4, "zero_optimization": {"stage": 0}}')
@good('{"train_batch_size": "auto", "zero_optimization": {"stage": 2}}', integration="transformers")
@good('{"zero_optimization": {"stage": 2}}', integration="lightning")
@good(
    '{"elasticity": {"enabled": true, "max_train_batch_size": 2000, "micro_batch_sizes": [2, 4], "min_gpus": 1, "max_gpus": 64, "version": 0.1}}',
    integration="deepspeed",
    deepspeed="0.19.7",
)
def no_batch_size(config: Config) -> Iterator[Finding]:
    """Neither train_batch_size nor train_micro_batch_size_per_gpu is written.

    DeepSpeed raises `AssertionError: Either train_batch_size or train_micro_batch_size_per_gpu needs to be provided`. The Hugging Face
    Trainer and Accelerate replace "auto" but add no key, so it is the same under them. Lightning adds the micro batch size itself,
    and up to release 0.19.7 an enabled `elasticity` computes it.

    Write `train_micro_batch_size_per_gpu`, with a number, or "auto" under the Trainer. If the program adds a batch size before it calls
    `deepspeed.initialize`, nothing is wrong, and the rule can be ignored for this file.
    """
    if config.facts.integration is Integration.LIGHTNING or config.document.problems or not isinstance(config.document.root, Mapping):
        return
    if _elastic(config) or any(config.has(key) and config.quote(key) != "null" for key in (TRAIN, MICRO)):
        return
    if any(config.resolved(key).note == "misspelt" for key in (TRAIN, MICRO)):
        return
    known = config.facts.integration is not None
    hugging_face = config.facts.integration in (Integration.TRANSFORMERS, Integration.ACCELERATE)
    yield Finding(
        "",
        'No batch size is written: unless the program adds one, DeepSpeed raises "Either train_batch_size or train_micro_batch_size_per_gpu needs to be provided".',
        help=f'Add "train_micro_batch_size_per_gpu": {chr(34) + "auto" + chr(34) if hugging_face else "a number"}.',
        fix=write(config, MICRO, '"auto"') if hugging_face else None,
        severity=None if known else Severity.WARNING,
    )


@rule(
    "DS205",
    "sequence-parallel-size-not-a-divisor",
    effect=Effect.SILENT,
    needs=("world_size",),
    references=("deepspeed/runtime/config.py, DeepSpeedConfig.__init__",),
    watches=("sequence_parallel_size",),
)
@bad(
    '{"train_micro_batch_size_per_gpu": 4, "sequence_parallel_size": 3}',
    at="sequence_parallel_size",
    world_size=8,
    integration="transformers",
)
@good(
    '{"train_micro_batch_size_per_gpu": 4, "sequence_parallel_size": 4, "zero_optimization": {"stage": 0}}',
    world_size=8,
    integration="transformers",
)
def sequence_parallel_size_not_a_divisor(config: Config) -> Iterator[Finding]:
    """The sequence parallel size does not divide the world size.

    DeepSpeed divides one by the other and goes on with the fraction: with 8 GPUs and a size of 3 it counts 2.67 data-parallel ranks, and
    computes a train batch size that is no whole number. (Given the path of the file, and not a dict, DeepSpeed overlooks the key; the
    integrations hand it a dict.)

    Choose a divisor of the world size.
    """
    if not config.has("sequence_parallel_size") or config.facts.integration is Integration.DEEPSPEED:
        return
    share, ranks = config.value("sequence_parallel_size"), config.facts.world_size
    if isinstance(share, int) and ranks is not None and share > 0 and ranks % share:
        yield Finding(
            "sequence_parallel_size",
            f"sequence_parallel_size {share} does not divide the world size {ranks:,}: DeepSpeed goes on with {ranks / share:.3g} data-parallel ranks, and batch sizes that are no whole numbers.",
            help=f"Write a divisor of {ranks:,}.",
        )


LARGE_MICRO_BATCH = 64
"""Samples at once that nobody chooses for a large model."""


@rule(
    "DS206",
    "whole-batch-at-once",
    effect=Effect.MEMORY,
    needs=("world_size",),
    pedantic=True,
    references=(DOCS, "deepspeed/runtime/config.py, DeepSpeedConfig._set_batch_related_parameters"),
    watches=("train_batch_size",),
)
@bad('{"train_batch_size": 1024}', at="train_batch_size", world_size=8)
@good('{"train_batch_size": 1024, "train_micro_batch_size_per_gpu": 8}', world_size=8)
@good('{"train_batch_size": 64}', world_size=8)
def whole_batch_at_once(config: Config) -> Iterator[Finding]:
    """The train batch size alone leaves no accumulation: each GPU takes its whole share at once.

    With one of the three batch keys DeepSpeed takes 1 for the accumulation steps, and divides the rest by the number of GPUs. A batch that was meant to be collected
    over many steps has to fit into memory in one.

    Write `train_micro_batch_size_per_gpu` as well, the samples that fit; DeepSpeed then computes the accumulation steps.
    """
    written, micro = _written(config), config.value(MICRO)
    if (
        written is not None
        and set(written) == {TRAIN}
        and isinstance(micro, int)
        and micro >= LARGE_MICRO_BATCH
        and config.arguments is None
    ):
        yield Finding(
            TRAIN,
            f"train_batch_size {_number(written[TRAIN])} alone makes a micro batch of {_number(micro)} samples on each GPU, and no accumulation.",
            help='Add "train_micro_batch_size_per_gpu", the samples that fit into memory.',
        )
