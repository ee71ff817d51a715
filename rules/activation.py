"""DS7: activation checkpointing and memory."""

from __future__ import annotations

from collections.abc import Iterator

from dslint.config import Config
from dslint.diagnostics import Effect, Phase, Severity
from dslint.facts import Integration
from dslint.rule import Finding, bad, good, rule

SECTION = "activation_checkpointing"
DOCS = "https://deepspeed.readthedocs.io/en/latest/activation-checkpointing.html"
SOURCE = "deepspeed/runtime/activation_checkpointing/checkpointing.py, configure"
SWITCHES = ("partition_activations", "cpu_checkpointing", "contiguous_memory_optimization")


def _switched_on(config: Config) -> list[str]:
    return [key for key in SWITCHES if config.value(f"{SECTION}.{key}") is True]


@rule("DS701", "activation-checkpointing-not-applied", effect=Effect.IGNORED, references=(DOCS, SOURCE))
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

    Set `number_checkpoints` to the number of checkpointed layers per rank, or leave `contiguous_memory_optimization` out.
    """
    key = f"{SECTION}.contiguous_memory_optimization"
    if config.value(key) is not True or config.facts.integration in (Integration.TRANSFORMERS, Integration.ACCELERATE):
        return
    severity = None if config.facts.integration is Integration.DEEPSPEED else Severity.WARNING
    if config.value(f"{SECTION}.partition_activations") is False:
        yield Finding(
            key,
            'contiguous_memory_optimization works only with partition_activations: deepspeed.checkpointing.configure raises "Contiguous Checkpointing is only available with partitioned activations".',
            help='Set "partition_activations": true and "number_checkpoints", or leave contiguous_memory_optimization out.',
            severity=severity,
        )
    elif config.value(f"{SECTION}.number_checkpoints") is None:
        yield Finding(
            key,
            'contiguous_memory_optimization is on without number_checkpoints: deepspeed.checkpointing.configure raises "Must specify the number of layers with contiguous memory checkpointing".',
            help='Add "number_checkpoints": the number of checkpointed layers per rank, or leave contiguous_memory_optimization out.',
            severity=severity,
        )


@rule("DS703", "partition-activations-without-model-parallelism", effect=Effect.ADVICE, references=(DOCS, SOURCE))
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
    )
