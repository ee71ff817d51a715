"""DS2: batch sizes that are missing or too large, and sequence parallel sizes that split the batch unevenly."""

from __future__ import annotations

from collections.abc import Iterator

from dslint.config import UNKNOWN, Config
from dslint.config.detect import wrapper_of
from dslint.diagnostics import Effect, LoadStep, Phase
from dslint.facts import Integration, Release
from dslint.rule import Finding, bad, good, rule
from dslint.rules.helpers.batch import BATCH_DOCS, BATCH_KEYS, elasticity_computes_batch, written_batch_keys
from dslint.rules.helpers.fixes import write
from dslint.rules.helpers.loaders import HUGGING_FACE, NOT_INSTALLED, is_loader_certain, is_program_unseen
from dslint.rules.helpers.project import project_around
from dslint.schemas.derive import MICRO, TRAIN, batch_world_size
from dslint.source.tree import Mapping


@rule(
    "DS204",
    effect=Effect.CRASH,
    phase=Phase.PARSE,
    step=LoadStep.BATCH,
    references=(BATCH_DOCS, "deepspeed/runtime/config.py, DeepSpeedConfig._set_batch_related_parameters"),
    watches=("!train_micro_batch_size_per_gpu",),
)
@bad(
    '{"zero_optimization": {"stage": 2}, "bf16": {"enabled": true}}',
    at="",
    integration="deepspeed",
    message='No batch size is written: DeepSpeed raises "Either train_batch_size or train_micro_batch_size_per_gpu needs to be provided".',
)
@bad(
    '{"gradient_accumulation_steps": 8, "zero_optimization": {"stage": 2}}',
    at="",
    integration="transformers",
    message='No batch size is written: DeepSpeed raises "Either train_batch_size or train_micro_batch_size_per_gpu needs to be provided".',
    fixed='{"gradient_accumulation_steps": 8, "zero_optimization": {"stage": 2}, "train_micro_batch_size_per_gpu": "auto"}',
)
@bad(
    '{"train_batch_size": null, "train_micro_batch_size_per_gpu": null}',
    at="",
    integration="deepspeed",
    message='No batch size is written: DeepSpeed raises "Either train_batch_size or train_micro_batch_size_per_gpu needs to be provided".',
)
@bad(
    '{"zero_optimization": {"stage": 2}}',
    at="",
    integration="accelerate",
    pins={"accelerate": Release(0, 25, 0)},
    message="No batch size is written: Accelerate 0.25.0 raises KeyError 'train_micro_batch_size_per_gpu'.",
    fixed='{"zero_optimization": {"stage": 2}, "train_micro_batch_size_per_gpu": "auto"}',
)
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
    Trainer and Accelerate replace "auto" but add no key, so they do not help. Lightning adds the micro batch size itself, and up to
    release 0.19.7 an enabled `elasticity` computes it.

    Write `train_micro_batch_size_per_gpu` with a number, or "auto" under the Trainer. If your program adds a batch size before it calls
    `deepspeed.initialize`, ignore the rule for this file. Where nothing says what loads the file, or a program that takes its config from
    elsewhere may run with it, and a program of the project writes one of these keys, the finding is reported only with `--pedantic`. Where only
    `--integration` or a setting says what loads it, the finding is a warning.
    """
    if config.facts.integration is Integration.LIGHTNING or config.document.problems or not isinstance(config.document.root, Mapping):
        return
    if elasticity_computes_batch(config) or any(config.has(key) and not config.is_null(key) for key in (TRAIN, MICRO)):
        return
    if any(config.is_misspelt(key) or config.is_set_later(key) for key in (TRAIN, MICRO)) or wrapper_of(config.document) is not None:
        return
    setup = config.setup
    if setup is not None and not config.document.root.members and config.facts.passes_accelerate:
        return  # the loader refuses an empty config before it: DS910
    open_program = setup is not None and setup.accelerate is not None and setup.program is None  # Accelerate advises to add it there
    by_neighbours = setup is None and "integration" in config.evidence
    known_loader = config.facts.integration is not None and not open_program and not by_neighbours and not is_program_unseen(config)
    is_taken = setup is not None and setup.program is not None and setup.program.assumed is not None
    may_be_added = (setup is None or is_taken) and _program_may_add_one(config)
    no_key_added = known_loader and not may_be_added
    hugging_face = config.facts.integration in HUGGING_FACE
    reads_it = _accelerate_that_reads_it(config)
    raised = 'DeepSpeed raises "Either train_batch_size or train_micro_batch_size_per_gpu needs to be provided"'
    if reads_it is not None:
        raised = f"Accelerate {reads_it} raises {_error_without_it(reads_it)}"
    yield Finding(
        "",
        f"No batch size is written: {'' if no_key_added else 'unless the program adds one, '}{raised}.",
        help='Add "train_micro_batch_size_per_gpu": "auto".' if hugging_face else 'Add "train_micro_batch_size_per_gpu" with a number.',
        fix=write(config, MICRO, '"auto"') if hugging_face else None,
        phase=Phase.LOAD if reads_it is not None else None,
        certain=no_key_added,
        pedantic=(is_taken or not known_loader) and not is_program_unseen(config) and _program_may_add_one(config),
    )


def _program_may_add_one(config: Config) -> bool:
    """Whether a program of the project writes a batch size, or Lightning does.

    In seven public projects where the loader is not known, each added it; in an eighth Lightning did.
    """
    project = project_around(config)
    return project is not None and (
        project.program_that_sets(TRAIN, MICRO) is not None or any(map(project.uses, ("lightning", "pytorch_lightning")))
    )


def _accelerate_that_reads_it(config: Config) -> Release | None:
    """The pinned release of Accelerate if it prepares the model and requires the micro batch size, before DeepSpeed sees the config."""
    release = config.context.pinned("accelerate")
    requires = release is not None and Release(0, 16, 0) <= release < Release(1, 0, 0)
    return release if requires and config.facts.passes_accelerate else None


_MULTIPLIES_SINCE = Release(0, 26, 0)


def _error_without_it(accelerate: Release) -> str:
    """What such a release raises without the micro batch size."""
    if accelerate < _MULTIPLIES_SINCE:
        return f"KeyError '{MICRO}'"
    return "TypeError \"unsupported operand type(s) for *: 'NoneType' and 'int'\""


_ONLY_WHOLE = '{"train_batch_size": 32, "zero_optimization": {"stage": 2}}'


@rule(
    "DS208",
    effect=Effect.CRASH,
    phase=Phase.LOAD,
    references=(
        "accelerate/accelerator.py, Accelerator._prepare_deepspeed of 0.25.0, 0.34.2 and 1.0.0",
        "https://github.com/huggingface/accelerate/issues/1248",
    ),
    watches=("!train_micro_batch_size_per_gpu",),
    untried=NOT_INSTALLED,
)
@bad(
    _ONLY_WHOLE,
    at="train_batch_size",
    integration="accelerate",
    pins={"accelerate": Release(0, 34, 2)},
    message="train_batch_size is written without train_micro_batch_size_per_gpu, which Accelerate 0.34.2 multiplies to compute it: TypeError \"unsupported operand type(s) for *: 'NoneType' and 'int'\".",
)
@bad(
    '{"train_batch_size": "auto", "zero_optimization": {"stage": 2}}',
    at="train_batch_size",
    integration="transformers",
    pins={"accelerate": Release(0, 25, 0)},
    message="train_batch_size is written without train_micro_batch_size_per_gpu, which Accelerate 0.25.0 reads: KeyError 'train_micro_batch_size_per_gpu'.",
)
@good(_ONLY_WHOLE, integration="accelerate", pins={"accelerate": Release(1, 0, 0)})
@good(_ONLY_WHOLE, integration="accelerate")
@good(_ONLY_WHOLE, integration="deepspeed", pins={"accelerate": Release(0, 34, 2)})
@good(
    '{"train_batch_size": 32, "train_micro_batch_size_per_gpu": 4, "zero_optimization": {"stage": 2}}',
    integration="accelerate",
    pins={"accelerate": Release(0, 34, 2)},
)
@good(_ONLY_WHOLE, integration="transformers", loader_release=Release(4, 29, 2), pins={"accelerate": Release(0, 25, 0)})
def whole_batch_for_old_accelerate(config: Config) -> Iterator[Finding]:
    """Accelerate before 1.0.0 requires `train_micro_batch_size_per_gpu`, also where `train_batch_size` is written.

    DeepSpeed computes the micro batch size from `train_batch_size`. Accelerate, and with it the Trainer of transformers 4.30 and newer, reads
    the micro batch size itself while it prepares the model, data loader or not: Accelerate 0.16 to 0.25 raises KeyError, 0.26 to 0.34
    raises TypeError.

    Set both keys to "auto", or write the micro batch size as a number.
    """
    accelerate = _accelerate_that_reads_it(config)
    if (
        accelerate is None
        or not config.has(TRAIN)
        or config.is_null(TRAIN)
        or not config.lacks(MICRO)
        or wrapper_of(config.document) is not None
    ):
        return
    if (
        config.is_misspelt(MICRO)
        or config.is_set_later(MICRO)
        or (config.is_auto(TRAIN) and config.facts.integration is Integration.ACCELERATE)
    ):
        return  # DS903 has the "auto" that Accelerate alone cannot fill
    program = config.setup.program if config.setup else None
    if program is not None and any(MICRO in path for path in program.sets):
        return
    reads = "reads" if accelerate < _MULTIPLIES_SINCE else "multiplies to compute it"
    yield Finding(
        TRAIN,
        f"{TRAIN} is written without {MICRO}, which Accelerate {accelerate} {reads}: {_error_without_it(accelerate)}.",
        help=f'Set both {TRAIN} and {MICRO} to "auto".',
        certain=is_loader_certain(config),
    )


@rule(
    "DS205",
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
    message="sequence_parallel_size 3 does not divide the world size 8: DeepSpeed continues with 2.67 data-parallel ranks and computes batch sizes that are not integers.",
)
@good(
    '{"train_micro_batch_size_per_gpu": 4, "sequence_parallel_size": 4, "zero_optimization": {"stage": 0}}',
    world_size=8,
    integration="transformers",
)
def sequence_parallel_size_not_a_divisor(config: Config) -> Iterator[Finding]:
    """The sequence parallel size does not divide the world size.

    DeepSpeed divides the world size by it and continues with the fraction: with 8 GPUs and a size of 3 it counts 2.67 data-parallel ranks,
    and computes a train batch size that is not an integer. DeepSpeed reads the key only from a dict, which is what the integrations pass;
    given the path of a file, it ignores the key.

    Write a divisor of the world size.
    """
    if not config.has("sequence_parallel_size") or config.facts.integration is Integration.DEEPSPEED:
        return
    size, ranks = config.value("sequence_parallel_size"), config.facts.world_size
    if config.arguments is None and _is_no_product(config):
        return  # DeepSpeed raises for the batch sizes, which another rule reports
    if isinstance(size, int) and ranks is not None and size > 0 and ranks % size:
        yield Finding(
            "sequence_parallel_size",
            f"sequence_parallel_size {size} does not divide the world size {ranks:,}: DeepSpeed continues with {ranks / size:.3g} data-parallel ranks and computes batch sizes that are not integers.",
            help=f"Write a divisor of {ranks:,}.",
        )


def _is_no_product(config: Config) -> bool:
    """Whether DeepSpeed rejects a written train batch size because it is not the product of its factors."""
    train, micro, steps = (config.value(key) for key in BATCH_KEYS)
    ranks = batch_world_size(config)
    known = all(value is not UNKNOWN for value in (train, micro, steps, ranks))
    return known and config.has(TRAIN) and bool(train != micro * steps * ranks)


LARGE_MICRO_BATCH = 64
"""Samples per GPU and step from which a micro batch size is unlikely to be meant for a large model."""


@rule(
    "DS206",
    effect=Effect.MEMORY,
    needs=("world_size",),
    pedantic=True,
    references=(BATCH_DOCS, "deepspeed/runtime/config.py, DeepSpeedConfig._set_batch_related_parameters"),
    watches=("train_batch_size",),
)
@bad(
    '{"train_batch_size": 1024}',
    at="train_batch_size",
    world_size=8,
    message="train_batch_size 1024 is the only batch key: the micro batch is 128 samples on each GPU, without gradient accumulation.",
)
@good('{"train_batch_size": 1024, "train_micro_batch_size_per_gpu": 8}', world_size=8)
@good('{"train_batch_size": 64}', world_size=8)
def whole_batch_at_once(config: Config) -> Iterator[Finding]:
    """Only the train batch size is written, so each GPU processes its whole share in one step.

    If `train_batch_size` is the only batch key, DeepSpeed uses 1 gradient accumulation step and divides the batch by the number of GPUs. A
    batch that was meant to be accumulated over many steps has to fit into memory at once.

    Also write `train_micro_batch_size_per_gpu`, the samples that fit. DeepSpeed then computes the gradient accumulation steps.
    """
    written, micro = written_batch_keys(config), config.value(MICRO)
    if config.arguments is not None or written is None or set(written) != {TRAIN}:
        return
    if isinstance(micro, int) and micro >= LARGE_MICRO_BATCH:
        batch = f"{written[TRAIN]:,}" if written[TRAIN] >= 10_000 else str(written[TRAIN])
        yield Finding(
            TRAIN,
            f"train_batch_size {batch} is the only batch key: the micro batch is {micro:,} samples on each GPU, without gradient accumulation.",
            help='Add "train_micro_batch_size_per_gpu", the samples that fit into memory.',
        )
