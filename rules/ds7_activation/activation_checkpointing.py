"""DS7: activation checkpointing."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from dslint.config import Config
from dslint.diagnostics import Effect, Phase
from dslint.facts import Integration
from dslint.rule import Finding, bad, good, rule
from dslint.rules.helpers.activation import SECTION, is_checkpointed, saves_memory
from dslint.rules.helpers.cost import waits
from dslint.rules.helpers.fixes import without, write
from dslint.rules.helpers.loaders import HUGGING_FACE, is_loader_certain
from dslint.rules.helpers.project import project_around

if TYPE_CHECKING:
    from dslint.job.events import Event

DOCS = "https://deepspeed.readthedocs.io/en/latest/activation-checkpointing.html"
CONFIGURE_SOURCE = "deepspeed/runtime/activation_checkpointing/checkpointing.py, configure"

_INSTEAD = {
    Integration.TRANSFORMERS: "Set gradient_checkpointing=True in TrainingArguments (or call model.gradient_checkpointing_enable())",
    Integration.ACCELERATE: "Call model.gradient_checkpointing_enable()",
}
"""What checkpoints activations under a loader of Hugging Face."""


@rule(
    "DS701",
    effect=Effect.IGNORED,
    watches=(
        "activation_checkpointing.partition_activations",
        "activation_checkpointing.cpu_checkpointing",
        "activation_checkpointing.contiguous_memory_optimization",
    ),
    references=(DOCS, CONFIGURE_SOURCE),
)
@bad(
    '{"train_batch_size": "auto", "activation_checkpointing": {"partition_activations": true}}',
    at=SECTION,
    integration="transformers",
    message="activation_checkpointing has no effect under the Hugging Face Trainer: DeepSpeed's engine does not checkpoint activations, and the loader does not call deepspeed.checkpointing.",
)
@bad(
    '{"train_micro_batch_size_per_gpu": 4, "activation_checkpointing": {"cpu_checkpointing": true}}',
    at=SECTION,
    message="DeepSpeed's engine does not apply activation_checkpointing. The section has an effect only if the model calls deepspeed.checkpointing.checkpoint, after deepspeed.checkpointing.configure.",
)
@good('{"train_batch_size": "auto", "zero_optimization": {"stage": 2}}', integration="transformers")
@good('{"train_micro_batch_size_per_gpu": 4, "activation_checkpointing": {"partition_activations": false}}')
@good(
    '{"train_micro_batch_size_per_gpu": 4, "activation_checkpointing": {"cpu_checkpointing": true}}',
    program="import deepspeed\ndeepspeed.checkpointing.configure(None, deepspeed_config='ds_config.json')\n"
    "engine, *_ = deepspeed.initialize(model=model, optimizer=optimizer, config='ds_config.json')\n",
    integration="deepspeed",
)
@bad(
    '{"train_micro_batch_size_per_gpu": 4, "activation_checkpointing": {"cpu_checkpointing": true, "partition_activations": true}}',
    at=SECTION,
    program="import deepspeed\ndeepspeed.checkpointing.configure(None, partition_activations=False)\n"
    "engine, *_ = deepspeed.initialize(model=model, optimizer=optimizer, config='ds_config.json')\n",
    integration="deepspeed",
    message="train.py:2 calls deepspeed.checkpointing.configure without deepspeed_config: only its arguments count, and partition_activations and cpu_checkpointing of this section have no effect.",
)
@good(
    '{"train_micro_batch_size_per_gpu": 4, "activation_checkpointing": {"cpu_checkpointing": true}}',
    program="import deepspeed\ndeepspeed.checkpointing.configure(None, checkpoint_in_cpu=True)\n"
    "engine, *_ = deepspeed.initialize(model=model, optimizer=optimizer, config='ds_config.json')\n",
    integration="deepspeed",
)
@good(
    '{"train_micro_batch_size_per_gpu": 4, "activation_checkpointing": {"cpu_checkpointing": true}}',
    program="import deepspeed\ndeepspeed.checkpointing.configure(None, **options)\n"
    "engine, *_ = deepspeed.initialize(model=model, optimizer=optimizer, config='ds_config.json')\n",
    integration="deepspeed",
)
def activation_checkpointing_not_applied(config: Config) -> Iterator[Finding]:
    """The engine does not checkpoint activations, whatever this section says.

    `deepspeed.initialize` reads `activation_checkpointing` and does not apply it. The section only configures
    `deepspeed.checkpointing.checkpoint`, once the program has called `deepspeed.checkpointing.configure`. Megatron-DeepSpeed and
    DeepSpeed's pipeline modules do so. A model that never calls `checkpoint` keeps every activation and runs out of memory as before.

    Under the Hugging Face Trainer and Accelerate, enable gradient checkpointing in the model instead: `gradient_checkpointing=True` in
    `TrainingArguments`, or `model.gradient_checkpointing_enable()`. In your own program, call `deepspeed.checkpointing.configure` and
    wrap the layers in `deepspeed.checkpointing.checkpoint`, or use `torch.utils.checkpoint`. Lightning passes the section to
    `configure`; the model still has to call `checkpoint`. `configure` reads the section only from its argument `deepspeed_config`. Where the training enables gradient checkpointing anyway, the section is a
    leftover, and reported only with `--pedantic`.
    """
    if not saves_memory(config) or _is_configured(config):
        return
    if (call := _configured_without(config)) is not None:
        written = [name for name in _KEYWORDS if config.value(f"{SECTION}.{name}") is True]
        given = {name: call.argument(*_KEYWORDS[name]) for name in written}
        lost = [name for name, one in given.items() if one is None or one.value is not True]
        known = all(one is None or one.value in (None, False) for name, one in given.items() if name in lost)
        if lost:
            yield Finding(
                SECTION,
                f"{call.at.where} calls deepspeed.checkpointing.configure without deepspeed_config: only its arguments count, and "
                f"{' and '.join(lost)} of this section {'has' if len(lost) == 1 else 'have'} no effect.",
                help="Pass deepspeed_config, the config of deepspeed.initialize, to configure.",
                related=(call.at.related("configured here"),),
                certain=known and call.certain and not call.unlikely,
            )
        return
    loader = config.facts.integration
    if loader is not None and loader in HUGGING_FACE:
        checkpointed = is_checkpointed(config)
        yield Finding(
            SECTION,
            f"activation_checkpointing has no effect under {loader.label}: DeepSpeed's engine does not checkpoint activations, "
            "and the loader does not call deepspeed.checkpointing."
            if is_loader_certain(config)
            else "activation_checkpointing has no effect unless the program calls deepspeed.checkpointing.configure: DeepSpeed's engine does "
            "not checkpoint activations, nor do the Hugging Face Trainer and Accelerate.",
            help=f"{_INSTEAD[loader]}, and remove the section.",
            fix=without(config, SECTION) if checkpointed else None,
            effect=Effect.ADVICE if checkpointed else None,
            pedantic=checkpointed,
        )
        return
    if _is_used_in_project(config):
        return
    yield Finding(
        SECTION,
        "DeepSpeed's engine does not apply activation_checkpointing. The section has an effect only if the model calls "
        "deepspeed.checkpointing.checkpoint, after deepspeed.checkpointing.configure.",
        help="If the model does not, enable its own checkpointing (gradient_checkpointing_enable(), torch.utils.checkpoint) "
        "and remove the section.",
        effect=Effect.ADVICE,
    )


def _is_used_in_project(config: Config) -> bool:
    """Whether a program of the project calls what the section configures, or may: Lightning and pipelines call `configure` themselves."""
    project = project_around(config)
    return project is not None and project.program_matching(_CHECKPOINTS, "checkpointing") is not None


_CHECKPOINTS = re.compile(
    r"deepspeed\.(?:\w+\.)*checkpointing\.(?:checkpoint|non_reentrant_checkpoint|configure|CheckpointFunction)\b"
    r"|from[ \t]+deepspeed(?:\.\w+)*[ \t]+import[ \t][^\n]*\bcheckpointing\b|from[ \t]+deepspeed(?:\.\w+)*\.checkpointing[ \t]+import\b"
)

_CONFIGURES = r"deepspeed\.(\w+\.)*checkpointing\.configure"


def _is_configured(config: Config) -> bool:
    """Whether the program gives its config to `deepspeed.checkpointing.configure`."""
    program = config.setup.program if config.setup is not None else None
    calls = program.events.of(_CONFIGURES) if program is not None else ()
    given = [(call, call.argument("deepspeed_config", 1)) for call in calls]
    return any((one is not None and one.value is not None) or not call.complete for call, one in given)


_KEYWORDS: dict[str, tuple[str, int]] = {
    "partition_activations": ("partition_activations", 2),
    "cpu_checkpointing": ("checkpoint_in_cpu", 5),
    "contiguous_memory_optimization": ("contiguous_checkpointing", 3),
}
"""The arguments of `configure` that stand for switches of the section, with their positions."""


def _configured_without(config: Config) -> Event | None:
    """The call of `deepspeed.checkpointing.configure` in a program, which gets no config."""
    program = config.setup.program if config.setup is not None else None
    return next(program.events.of(_CONFIGURES), None) if program is not None else None


@rule(
    "DS702",
    effect=Effect.CRASH,
    phase=Phase.INITIALIZE,
    watches=("activation_checkpointing.contiguous_memory_optimization",),
    references=(DOCS, CONFIGURE_SOURCE),
    untried="raised by deepspeed.checkpointing.configure, which the program calls; a test of its own calls it",
)
@bad(
    '{"train_micro_batch_size_per_gpu": 4, "activation_checkpointing": {"partition_activations": true, "contiguous_memory_optimization": true}}',
    at="activation_checkpointing.contiguous_memory_optimization",
    message='contiguous_memory_optimization requires number_checkpoints: deepspeed.checkpointing.configure, which the program may call, raises "Must specify the number of layers with contiguous memory checkpointing".',
)
@good(
    '{"train_micro_batch_size_per_gpu": 4, "activation_checkpointing": {"partition_activations": true, "contiguous_memory_optimization": true, "number_checkpoints": 24}}'
)
def contiguous_memory_without_number_checkpoints(config: Config) -> Iterator[Finding]:
    """`contiguous_memory_optimization` requires `number_checkpoints` and `partition_activations`.

    It copies the checkpoints into one buffer that it allocates up front, and so needs their number. Without `number_checkpoints`,
    `deepspeed.checkpointing.configure` raises `AssertionError: Must specify the number of layers with contiguous memory checkpointing`;
    without `partition_activations` it raises too. The program may pass the number to `configure` itself, as Megatron does, and if it never
    calls `configure` the section does nothing: the finding is an info.

    The backward pass empties the buffer. A program that evaluates has to call `deepspeed.checkpointing.reset()` after each forward pass
    there, or the buffer overflows.

    Set `number_checkpoints` to the number of checkpointed layers per rank, or remove `contiguous_memory_optimization`.
    """
    key = f"{SECTION}.contiguous_memory_optimization"
    if config.value(key) is not True or config.facts.integration in HUGGING_FACE:
        return
    if config.value(f"{SECTION}.partition_activations") is False:
        yield Finding(
            key,
            "contiguous_memory_optimization requires partition_activations: deepspeed.checkpointing.configure, which the program may call, "
            'raises "Contiguous Checkpointing is only available with partitioned activations".',
            help='Set "partition_activations": true and "number_checkpoints", or remove contiguous_memory_optimization.',
            fix=None
            if config.value(f"{SECTION}.number_checkpoints") is None
            else write(config, f"{SECTION}.partition_activations", "true"),
            effect=Effect.ADVICE,
            pedantic=saves_memory(config),  # DS701 says of the whole section that it needs the call
            certain=False,  # only the program knows whether it calls configure, and with which arguments
        )
    elif config.value(f"{SECTION}.number_checkpoints") is None:
        yield Finding(
            key,
            "contiguous_memory_optimization requires number_checkpoints: deepspeed.checkpointing.configure, which the program may call, "
            'raises "Must specify the number of layers with contiguous memory checkpointing".',
            help='Add "number_checkpoints", the number of checkpointed layers per rank, or remove contiguous_memory_optimization.',
            effect=Effect.ADVICE,
            pedantic=saves_memory(config),  # DS701 says of the whole section that it needs the call
            certain=False,  # only the program knows whether it calls configure, and with which arguments
        )


@rule(
    "DS703",
    effect=Effect.ADVICE,
    pedantic=True,
    watches=("activation_checkpointing.partition_activations",),
    references=(DOCS, CONFIGURE_SOURCE),
)
@bad(
    '{"train_micro_batch_size_per_gpu": 4, "activation_checkpointing": {"partition_activations": true}}',
    at="activation_checkpointing.partition_activations",
    message="partition_activations partitions activations among tensor-parallel ranks, and this config configures none: it does nothing unless the program passes its own mpu, as Megatron does.",
)
@good(
    '{"train_micro_batch_size_per_gpu": 4, "activation_checkpointing": {"partition_activations": true}, "tensor_parallel": {"autotp_size": 4}}'
)
@good('{"train_micro_batch_size_per_gpu": 4, "activation_checkpointing": {"partition_activations": false}}')
def partition_activations_without_model_parallelism(config: Config) -> Iterator[Finding]:
    """`partition_activations` partitions activations among tensor-parallel ranks, and this config configures none.

    DeepSpeed splits the checkpointed activations into as many parts as the program's `mpu` has model-parallel ranks. The config cannot
    provide an `mpu`: unless the program passes one to `deepspeed.checkpointing.configure`, as Megatron does, every rank keeps its
    activations whole.

    Data-parallel ranks do not count, with or without ZeRO. To save activation memory without tensor parallelism, checkpoint more layers,
    or move the checkpoints to the host with `cpu_checkpointing`, which works without it.
    """
    key = f"{SECTION}.partition_activations"
    if config.value(key) is not True or config.facts.integration in HUGGING_FACE:
        return
    if config.value("tensor_parallel.autotp_size") > 1:
        return
    yield Finding(
        key,
        "partition_activations partitions activations among tensor-parallel ranks, and this config configures none: "
        "it does nothing unless the program passes its own mpu, as Megatron does.",
        help="Remove it, or run with tensor parallelism. Data-parallel ranks do not count, with or without ZeRO.",
    )


@rule(
    "DS704",
    effect=Effect.ADVICE,
    pedantic=True,
    watches=("activation_checkpointing.number_checkpoints",),
    references=(CONFIGURE_SOURCE,),
)
@bad(
    '{"train_micro_batch_size_per_gpu": 4, "activation_checkpointing": {"cpu_checkpointing": true, "number_checkpoints": 24}}',
    at="activation_checkpointing.number_checkpoints",
    message="DeepSpeed ignores number_checkpoints 24 without contiguous_memory_optimization: the model decides how many layers it checkpoints.",
    fixed='{"train_micro_batch_size_per_gpu": 4, "activation_checkpointing": {"cpu_checkpointing": true}}',
)
@good(
    '{"train_micro_batch_size_per_gpu": 4, "activation_checkpointing": {"partition_activations": true, "contiguous_memory_optimization": true, "number_checkpoints": 24}}'
)
def number_checkpoints_not_read(config: Config) -> Iterator[Finding]:
    """`number_checkpoints` sets the size of the contiguous buffer; DeepSpeed ignores it without that buffer.

    It does not set how many layers are checkpointed. The model decides that, by what it wraps in `deepspeed.checkpointing.checkpoint`.

    Remove it, or set `contiguous_memory_optimization`.
    """
    key = f"{SECTION}.number_checkpoints"
    if config.facts.integration in HUGGING_FACE or not saves_memory(config):
        return
    if config.has(key) and isinstance(config.value(key), int) and config.value(f"{SECTION}.contiguous_memory_optimization") is False:
        yield Finding(
            key,
            f"DeepSpeed ignores number_checkpoints {config.quote(key)} without contiguous_memory_optimization: "
            "the model decides how many layers it checkpoints.",
            help="Remove it.",
            fix=without(config, key),
        )


@rule(
    "DS705",
    effect=Effect.SLOW,
    pedantic=True,
    watches=("activation_checkpointing.profile", "activation_checkpointing.synchronize_checkpoint_boundary"),
    references=(CONFIGURE_SOURCE,),
)
@bad(
    '{"train_micro_batch_size_per_gpu": 4, "activation_checkpointing": {"profile": true}}',
    at="activation_checkpointing.profile",
    message="profile waits for the GPU and logs two times for every checkpointed layer, if the program configures activation checkpointing.",
)
@bad(
    '{"train_micro_batch_size_per_gpu": 4, "activation_checkpointing": {"synchronize_checkpoint_boundary": true}}',
    at="activation_checkpointing.synchronize_checkpoint_boundary",
    message="synchronize_checkpoint_boundary waits for the GPU before and after every checkpointed layer, if the program configures activation checkpointing.",
)
@good('{"train_micro_batch_size_per_gpu": 4, "activation_checkpointing": {"profile": false}}')
def checkpointing_measured(config: Config) -> Iterator[Finding]:
    """`profile` and `synchronize_checkpoint_boundary` wait for the GPU at every checkpointed layer.

    `profile` logs the time of the forward and backward pass of each layer, and waits for the pass to end. The other key only waits. The
    GPU idles while the CPU launches the next layer.

    Disable them after profiling.
    """
    if config.facts.integration in HUGGING_FACE:
        return
    for name, cost in (
        ("profile", "waits for the GPU and logs two times for every checkpointed layer"),
        ("synchronize_checkpoint_boundary", "waits for the GPU before and after every checkpointed layer"),
    ):
        key = f"{SECTION}.{name}"
        if config.has(key) and config.value(key) is True:
            yield Finding(
                key,
                f"{name} {cost}, if the program configures activation checkpointing.",
                help=f"Disable it for the real run.{waits(config, lambda job: 2 * job.layers_here)}",
            )
