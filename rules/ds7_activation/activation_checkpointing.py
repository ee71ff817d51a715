"""DS7: activation checkpointing and memory."""

from __future__ import annotations

from collections.abc import Iterator

from dslint.config import Config
from dslint.diagnostics import Applicability, Effect, Phase, Severity
from dslint.facts import Integration
from dslint.rule import Finding, bad, good, rule
from dslint.rules.helpers.fixes import without, write

SECTION = "activation_checkpointing"
DOCS = "https://deepspeed.readthedocs.io/en/latest/activation-checkpointing.html"
SOURCE = "deepspeed/runtime/activation_checkpointing/checkpointing.py, configure"
SWITCHES = ("partition_activations", "cpu_checkpointing", "contiguous_memory_optimization")


def _switched_on(config: Config) -> list[str]:
    return [key for key in SWITCHES if config.value(f"{SECTION}.{key}") is True]


@rule(
    "DS701",
    "activation-checkpointing-not-applied",
    effect=Effect.IGNORED,
    watches=(
        "activation_checkpointing.partition_activations",
        "activation_checkpointing.cpu_checkpointing",
        "activation_checkpointing.contiguous_memory_optimization",
    ),
    references=(DOCS, SOURCE),
)
@bad('{"train_batch_size": "auto", "activation_checkpointing": {"partition_activations": true}}', at=SECTION, integration="transformers")
@bad('{"train_micro_batch_size_per_gpu": 4, "activation_checkpointing": {"cpu_checkpointing": true}}', at=SECTION)
@good('{"train_batch_size": "auto", "zero_optimization": {"stage": 2}}', integration="transformers")
@good('{"train_micro_batch_size_per_gpu": 4, "activation_checkpointing": {"partition_activations": false}}')
def activation_checkpointing_not_applied(config: Config) -> Iterator[Finding]:
    """The engine does not checkpoint activations, whatever this section says.

    `deepspeed.initialize` reads `activation_checkpointing` and applies none of it. The section only sets how
    `deepspeed.checkpointing.checkpoint` works once the program has called `deepspeed.checkpointing.configure`, as Megatron-DeepSpeed and DeepSpeed's
    pipeline modules do. A model that never calls it keeps every activation, and runs out of memory as before.

    Under the Hugging Face Trainer and Accelerate, switch on gradient checkpointing in the model instead: `gradient_checkpointing=True` in
    `TrainingArguments`, or `model.gradient_checkpointing_enable()`. In a program of your own, call `deepspeed.checkpointing.configure`
    and wrap the layers in `deepspeed.checkpointing.checkpoint`, or use `torch.utils.checkpoint`. Lightning forwards the section to
    `configure`; the model still has to call `checkpoint`.
    """
    on = _switched_on(config)
    if not on:
        return
    hugging_face = config.facts.integration in (Integration.TRANSFORMERS, Integration.ACCELERATE)
    if hugging_face:
        assert config.facts.integration is not None
        message = f"activation_checkpointing has no effect under {config.facts.integration.label}: DeepSpeed's engine checkpoints no activations by itself, and nothing calls deepspeed.checkpointing."
        yield Finding(
            SECTION,
            message,
            help="Set gradient_checkpointing=True in TrainingArguments (or call model.gradient_checkpointing_enable()), and remove the section.",
            fix=without(config, SECTION, Applicability.UNSAFE),
        )
        return
    yield Finding(
        SECTION,
        "activation_checkpointing saves no memory by itself: the engine reads the section and applies none of it. It takes effect only where the model calls deepspeed.checkpointing.checkpoint, after deepspeed.checkpointing.configure.",
        help="If the model does not do that, use its own switch (gradient_checkpointing_enable(), torch.utils.checkpoint) and remove the section.",
        effect=Effect.ADVICE,
    )


@rule(
    "DS702",
    "contiguous-memory-without-number-checkpoints",
    effect=Effect.CRASH,
    phase=Phase.INITIALIZE,
    watches=("activation_checkpointing.contiguous_memory_optimization",),
    references=(DOCS, SOURCE),
    untried="raised by deepspeed.checkpointing.configure, which the program calls; a test of its own calls it",
)
@bad(
    '{"train_micro_batch_size_per_gpu": 4, "activation_checkpointing": {"partition_activations": true, "contiguous_memory_optimization": true}}',
    at="activation_checkpointing.contiguous_memory_optimization",
)
@good(
    '{"train_micro_batch_size_per_gpu": 4, "activation_checkpointing": {"partition_activations": true, "contiguous_memory_optimization": true, "number_checkpoints": 24}}'
)
def contiguous_memory_without_number_checkpoints(config: Config) -> Iterator[Finding]:
    """contiguous_memory_optimization needs number_checkpoints, and partition_activations.

    It copies the checkpoints into one buffer that is allocated up front, and so has to know how many there will be. Without
    `number_checkpoints`, `deepspeed.checkpointing.configure` raises `AssertionError: Must specify the number of layers with contiguous memory
    checkpointing`; without `partition_activations` it raises too. A program that never calls `configure` is not affected, since the whole
    section does nothing there.

    The buffer is emptied in the backward pass. A program that evaluates has to call `deepspeed.checkpointing.reset()` after each forward
    pass there, or the buffer runs over.

    Set `number_checkpoints` to the number of checkpointed layers per rank, or leave `contiguous_memory_optimization` out.
    """
    key = f"{SECTION}.contiguous_memory_optimization"
    if config.value(key) is not True or config.facts.integration in (Integration.TRANSFORMERS, Integration.ACCELERATE):
        return
    if config.value(f"{SECTION}.partition_activations") is False:
        yield Finding(
            key,
            'contiguous_memory_optimization works only with partition_activations: deepspeed.checkpointing.configure raises "Contiguous Checkpointing is only available with partitioned activations".',
            help='Set "partition_activations": true and "number_checkpoints", or leave contiguous_memory_optimization out.',
            fix=without(config, key, Applicability.UNSAFE)
            if config.value(f"{SECTION}.number_checkpoints") is None
            else write(config, f"{SECTION}.partition_activations", "true"),
            severity=Severity.WARNING,  # only the program knows whether it calls configure
        )
    elif config.value(f"{SECTION}.number_checkpoints") is None:
        yield Finding(
            key,
            'contiguous_memory_optimization is on without number_checkpoints: deepspeed.checkpointing.configure raises "Must specify the number of layers with contiguous memory checkpointing".',
            help='Add "number_checkpoints": the number of checkpointed layers per rank, or leave contiguous_memory_optimization out.',
            fix=without(config, key, Applicability.UNSAFE),
            severity=Severity.WARNING,  # only the program knows whether it calls configure
        )


@rule(
    "DS703",
    "partition-activations-without-model-parallelism",
    effect=Effect.ADVICE,
    watches=("activation_checkpointing.partition_activations",),
    references=(DOCS, SOURCE),
)
@bad(
    '{"train_micro_batch_size_per_gpu": 4, "activation_checkpointing": {"partition_activations": true}}',
    at="activation_checkpointing.partition_activations",
)
@good(
    '{"train_micro_batch_size_per_gpu": 4, "activation_checkpointing": {"partition_activations": true}, "tensor_parallel": {"autotp_size": 4}}'
)
@good('{"train_micro_batch_size_per_gpu": 4, "activation_checkpointing": {"partition_activations": false}}')
def partition_activations_without_model_parallelism(config: Config) -> Iterator[Finding]:
    """partition_activations divides activations among tensor-parallel ranks, and with one such rank divides nothing.

    The checkpointed activations are split into as many parts as the program's `mpu` has model-parallel ranks. Nothing in the config
    brings such ranks: unless the program hands an `mpu` to `deepspeed.checkpointing.configure`, as Megatron does, every rank keeps its activations whole.

    Data-parallel ranks do not count, ZeRO or not. To save activation memory without tensor parallelism, checkpoint more layers, or
    move the checkpoints to the host with `cpu_checkpointing`, which works without it.
    """
    key = f"{SECTION}.partition_activations"
    if config.value(key) is not True or config.facts.integration in (Integration.TRANSFORMERS, Integration.ACCELERATE):
        return
    if config.value("tensor_parallel.autotp_size") > 1:
        return
    yield Finding(
        key,
        "partition_activations divides activations among tensor-parallel ranks, and this config has none: unless the program brings its own mpu (as Megatron does), nothing is divided.",
        help="Remove it, or run with tensor parallelism. Data-parallel ranks, ZeRO's included, do not count.",
        fix=None if config.value(f"{SECTION}.contiguous_memory_optimization") is True else without(config, key, Applicability.UNSAFE),
    )


@rule(
    "DS704",
    "number-checkpoints-not-read",
    effect=Effect.IGNORED,
    watches=("activation_checkpointing.number_checkpoints",),
    references=(SOURCE,),
)
@bad(
    '{"train_micro_batch_size_per_gpu": 4, "activation_checkpointing": {"cpu_checkpointing": true, "number_checkpoints": 24}}',
    at="activation_checkpointing.number_checkpoints",
)
@good(
    '{"train_micro_batch_size_per_gpu": 4, "activation_checkpointing": {"partition_activations": true, "contiguous_memory_optimization": true, "number_checkpoints": 24}}'
)
def number_checkpoints_not_read(config: Config) -> Iterator[Finding]:
    """`number_checkpoints` is the size of the contiguous buffer, and without that buffer it is not read.

    It does not say how many layers are checkpointed: the model does, by what it wraps in `deepspeed.checkpointing.checkpoint`.

    Remove it, or set `contiguous_memory_optimization`.
    """
    key = f"{SECTION}.number_checkpoints"
    if config.facts.integration in (Integration.TRANSFORMERS, Integration.ACCELERATE) or not _switched_on(config):
        return
    if config.has(key) and isinstance(config.value(key), int) and config.value(f"{SECTION}.contiguous_memory_optimization") is False:
        yield Finding(
            key,
            f"number_checkpoints {config.quote(key)} does nothing without contiguous_memory_optimization: the model decides how many layers are checkpointed.",
            help="Remove it.",
            fix=without(config, key),
        )


@rule(
    "DS705",
    "checkpointing-measured",
    effect=Effect.SLOW,
    watches=("activation_checkpointing.profile", "activation_checkpointing.synchronize_checkpoint_boundary"),
    references=(SOURCE,),
)
@bad('{"train_micro_batch_size_per_gpu": 4, "activation_checkpointing": {"profile": true}}', at="activation_checkpointing.profile")
@bad(
    '{"train_micro_batch_size_per_gpu": 4, "activation_checkpointing": {"synchronize_checkpoint_boundary": true}}',
    at="activation_checkpointing.synchronize_checkpoint_boundary",
)
@good('{"train_micro_batch_size_per_gpu": 4, "activation_checkpointing": {"profile": false}}')
def checkpointing_measured(config: Config) -> Iterator[Finding]:
    """`profile` and `synchronize_checkpoint_boundary` wait for the GPU at every checkpointed layer.

    `profile` prints the time of each forward and backward pass of a layer, and so has to wait for its end; the other only waits. The GPU idles while the next layer is launched.

    Switch them off once the numbers are known.
    """
    if config.facts.integration in (Integration.TRANSFORMERS, Integration.ACCELERATE):
        return
    for name, cost in (
        ("profile", "waits for the GPU and prints two times for every checkpointed layer"),
        ("synchronize_checkpoint_boundary", "waits for the GPU before and after every checkpointed layer"),
    ):
        key = f"{SECTION}.{name}"
        if config.has(key) and config.value(key) is True:
            yield Finding(
                key,
                f"{name} {cost}, where the program configures activation checkpointing.",
                help="Switch it off for the real run.",
                fix=write(config, key, "false"),
            )
