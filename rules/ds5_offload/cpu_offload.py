"""DS5: the host's side of offload: its memory, and the optimizers that run there."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from dslint.config import Config
from dslint.diagnostics import Applicability, Effect, Phase, Severity
from dslint.facts import Integration
from dslint.rule import Finding, bad, good, rule
from dslint.rules.helpers.examples import trained
from dslint.rules.helpers.fixes import without, write
from dslint.rules.helpers.offload import OFFLOAD_OPTIMIZER, OFFLOAD_PARAM, offload_to_cpu
from dslint.rules.helpers.precision import cpu_adam
from dslint.rules.helpers.zero import STAGE, local_ranks, related_stage

ZERO_3 = "deepspeed/runtime/zero/stage3.py, DeepSpeedZeroOptimizer_Stage3"
SUPER = f"{OFFLOAD_OPTIMIZER}.super_offload"
CORES = f"{OFFLOAD_OPTIMIZER}.cpuadam_cores_perc"

ADAM_BYTES = 16
"""Bytes that the host holds for a parameter whose Adam is offloaded: master weight, gradient and two moments, in fp32."""


def is_offloaded(config: Config) -> bool:
    """Whether optimizer states leave the GPU for certain."""
    return config.value(f"{OFFLOAD_OPTIMIZER}.device") in ("cpu", "nvme") and bool(config.value(STAGE) >= 1)


@rule(
    "DS520",
    "offload-ratio-without-cpu-adam",
    effect=Effect.CRASH,
    phase=Phase.INITIALIZE,
    watches=("zero_optimization.offload_optimizer.ratio",),
    references=(f"{ZERO_3}.__init__",),
)
@bad(
    '{"train_micro_batch_size_per_gpu": 4, "optimizer": {"type": "Lion", "params": {"lr": 1e-4}}, "zero_optimization": {"stage": 3, "offload_optimizer": {"device": "cpu", "ratio": 0.5}}}',
    at="zero_optimization.offload_optimizer.ratio",
)
@bad(
    '{"train_micro_batch_size_per_gpu": 4, "optimizer": {"type": "AdamW", "params": {"lr": 1e-4, "torch_adam": true}}, "zero_optimization": {"stage": 3, "offload_optimizer": {"device": "cpu", "ratio": 0.5}}}',
    at="zero_optimization.offload_optimizer.ratio",
)
@good(trained('"zero_optimization": {"stage": 3, "offload_optimizer": {"device": "cpu", "ratio": 0.5}}'))
def offload_ratio_without_cpu_adam(config: Config) -> Iterator[Finding]:
    """A part of the optimizer is to be offloaded, and the optimizer is not DeepSpeed's CPU Adam.

    With `offload_optimizer.ratio` below 1 some partitions are updated on the GPU by torch's AdamW. It has to have the parameters of the other half, and DeepSpeed
    asserts that this is its CPU Adam: no Lion, no Adagrad, no torch Adam, no ZenFlow.

    Take Adam or AdamW without `torch_adam`, or remove the ratio.
    """
    key = f"{OFFLOAD_OPTIMIZER}.ratio"
    ratio = config.value(key)
    if config.release >= (0, 12, 3) and config.value(STAGE) == 3 and is_offloaded(config) and ratio < 1 and cpu_adam(config) is False:
        yield Finding(
            key,
            f'offload_optimizer.ratio {config.quote(key)} needs DeepSpeed\'s CPU Adam: DeepSpeed raises AssertionError "Hybrid Optimizer Only Supports DeepSpeedCPUAdam".',
            help='Use the type "AdamW" without torch_adam, or remove "ratio".',
            fix=without(config, key, Applicability.UNSAFE),
            related=(("optimizer.type", "the optimizer is set here"),),
        )


@rule(
    "DS521",
    "offload-setting-not-read",
    effect=Effect.IGNORED,
    watches=(
        "zero_optimization.offload_optimizer.super_offload",
        "zero_optimization.offload_optimizer.cpuadam_cores_perc",
        "zero_optimization.offload_optimizer.ratio",
    ),
    references=("deepspeed/runtime/zero/offload_config.py", ZERO_3),
)
@bad(
    trained('"zero_optimization": {"stage": 2, "offload_optimizer": {"device": "cpu", "super_offload": true}}'),
    at="zero_optimization.offload_optimizer.super_offload",
)
@bad(
    trained('"zero_optimization": {"stage": 3, "offload_optimizer": {"device": "cpu", "cpuadam_cores_perc": 0.5}}'),
    at="zero_optimization.offload_optimizer.cpuadam_cores_perc",
)
@bad(
    trained('"zero_optimization": {"stage": 3, "offload_optimizer": {"device": "none", "ratio": 0.5}}'),
    at="zero_optimization.offload_optimizer.ratio",
)
@good(
    trained('"zero_optimization": {"stage": 3, "offload_optimizer": {"device": "cpu", "super_offload": true, "cpuadam_cores_perc": 0.5}}')
)
@good(trained('"zero_optimization": {"stage": 2, "offload_optimizer": {"device": "cpu", "super_offload": false}}'))
def offload_setting_not_read(config: Config) -> Iterator[Finding]:
    """A setting of optimizer offload that nothing reads in this config.

    `super_offload` is for ZeRO stage 3, `cpuadam_cores_perc` for `super_offload`, and `ratio` for a device other than "none". DeepSpeed says nothing.

    Remove it, or add what it needs.
    """
    stage, on = config.value(STAGE), config.value(SUPER)
    if config.value(SUPER) is True and stage in (0, 1, 2):
        yield Finding(
            SUPER,
            f"super_offload is for ZeRO stage 3, and the stage is {stage}: the optimizer is offloaded as always.",
            help='Set "stage": 3, or remove it.',
            fix=without(config, SUPER),
            related=related_stage(config),
        )
    if config.release >= (0, 18, 0) and config.has(CORES) and on is False and config.value(CORES) != 0.8:
        yield Finding(
            CORES,
            "cpuadam_cores_perc is read with super_offload alone: here nothing reads it.",
            help="Remove it.",
            fix=without(config, CORES),
        )
    ratio = f"{OFFLOAD_OPTIMIZER}.ratio"
    if config.has(ratio) and config.value(ratio) < 1 and stage == 3 and config.value(f"{OFFLOAD_OPTIMIZER}.device") == "none":
        yield Finding(
            ratio,
            'ratio says how much of the optimizer is offloaded, and the device is "none": nothing is.',
            help='Write "device": "cpu", or remove it.',
            fix=without(config, ratio),
            related=((f"{OFFLOAD_OPTIMIZER}.device", "the device is set here"),) if config.has(f"{OFFLOAD_OPTIMIZER}.device") else (),
        )


@rule(
    "DS522",
    "super-offload-cannot-start",
    effect=Effect.CRASH,
    phase=Phase.INITIALIZE,
    watches=("zero_optimization.offload_optimizer.super_offload",),
    untried="it takes an NVIDIA GPU",
    references=("deepspeed/runtime/superoffload/superoffload_stage3.py, SuperOffloadOptimizer_Stage3.__init__",),
)
@bad(
    trained('"zero_optimization": {"stage": 3, "offload_optimizer": {"device": "cpu", "super_offload": true, "cpuadam_cores_perc": 0}}'),
    at="zero_optimization.offload_optimizer.cpuadam_cores_perc",
)
@bad(
    '{"train_micro_batch_size_per_gpu": 4, "optimizer": {"type": "Lion", "params": {"lr": 1e-4}}, "zero_optimization": {"stage": 3, "offload_optimizer": {"device": "cpu", "super_offload": true}}}',
    at="zero_optimization.offload_optimizer.super_offload",
)
@bad(
    trained('"zero_optimization": {"stage": 3, "offload_optimizer": {"device": "cpu", "super_offload": true}}'),
    at="zero_optimization.offload_optimizer.super_offload",
    gpu="mi300x",
)
@good(trained('"zero_optimization": {"stage": 3, "offload_optimizer": {"device": "cpu", "super_offload": true}}'), gpu="gh200")
def super_offload_cannot_start(config: Config) -> Iterator[Finding]:
    """SuperOffload, with what it cannot work with.

    It runs its CPU Adam in a process of its own, on `cpuadam_cores_perc` of the cores: 0 raises a `ValueError`. It copies the parameters of Adam: an optimizer without
    betas or epsilon raises a `KeyError`. On GPUs other than NVIDIA's it raises an `AssertionError`.

    Take Adam or AdamW, and leave `cpuadam_cores_perc` out.
    """
    if config.value(SUPER) is not True or not config.value(STAGE) >= 3 or config.release < (0, 18, 0):
        return
    name, gpu = config.value("optimizer.type"), config.facts.gpu
    if config.value(CORES) == 0:
        yield Finding(
            CORES,
            "cpuadam_cores_perc 0 leaves SuperOffload no core: DeepSpeed raises ValueError in deepspeed.initialize.",
            help="Leave it out; 0.8 is the default.",
            fix=without(config, CORES),
        )
    if config.has("optimizer.type") and isinstance(name, str) and name.lower() in ("lion", "adagrad"):
        yield Finding(
            SUPER,
            f'SuperOffload copies the parameters of Adam, which "{name}" does not have: DeepSpeed raises KeyError in deepspeed.initialize.',
            help='Use the type "AdamW", or remove super_offload.',
            fix=without(config, SUPER, Applicability.UNSAFE),
            related=(("optimizer.type", "the optimizer is set here"),),
        )
    elif gpu is not None and gpu.capability is None:
        yield Finding(
            SUPER,
            f'SuperOffload is for NVIDIA GPUs, and {gpu} is none: DeepSpeed raises AssertionError "SuperOffload only supports NVIDIA CUDA GPUs".',
            help="Remove super_offload.",
            fix=without(config, SUPER),
        )


def _llama() -> Any:
    from dslint.facts.model_config import describe

    sizes = {"hidden_size": 4096, "num_hidden_layers": 32, "num_attention_heads": 32, "intermediate_size": 11008, "vocab_size": 32000}
    return describe({"model_type": "llama", **sizes}, "llama-7b/config.json")


@rule(
    "DS523",
    "host-memory-too-small",
    effect=Effect.MEMORY,
    watches=("zero_optimization.offload_optimizer",),
    needs=("model", "host_memory", "world_size"),
    references=("https://www.deepspeed.ai/tutorials/zero-offload/", "https://github.com/deepspeedai/DeepSpeed/issues/4239"),
)
@bad(
    trained('"bf16": {"enabled": true}, "zero_optimization": {"stage": 2, "offload_optimizer": {"device": "cpu"}}'),
    at="zero_optimization.offload_optimizer",
    model=_llama(),
    host_memory=64 * 2**30,
    world_size=8,
    nodes=1,
)
@good(
    trained('"bf16": {"enabled": true}, "zero_optimization": {"stage": 2, "offload_optimizer": {"device": "cpu"}}'),
    model=_llama(),
    host_memory=512 * 2**30,
    world_size=8,
    nodes=1,
)
@good(
    trained('"bf16": {"enabled": true}, "zero_optimization": {"stage": 2, "offload_optimizer": {"device": "cpu"}}'),
    model=_llama(),
    host_memory=64 * 2**30,
    world_size=64,
    nodes=8,
)
def host_memory_too_small(config: Config) -> Iterator[Finding]:
    """What is offloaded does not fit into the memory of the machine.

    An offloaded Adam keeps 16 bytes on the host for each parameter that it trains: master weight, gradient and two moments in fp32. They are divided among all
    ranks, and each machine holds the shares of its own. Where the memory runs out the system kills the process: exit code -9, no message from Python.

    More machines divide it further; NVMe at stage 3 takes most of it off the host. Where only adapters are trained, little of this is needed.
    """
    from dslint.facts.gpus import in_words
    from dslint.memory.families import read_shape
    from dslint.memory.reader import ShapeError

    model, memory, ranks = config.facts.model, config.facts.host_memory, config.facts.world_size
    local = local_ranks(config)
    to_host = config.value(f"{OFFLOAD_OPTIMIZER}.device") == "cpu"
    if model is None or memory is None or not ranks or local is None or not is_offloaded(config) or not to_host:
        return
    if cpu_adam(config) is False or (config.facts.tensor_parallel or 1) > 1 or config.value(f"{OFFLOAD_OPTIMIZER}.ratio") < 1:
        return
    try:
        parameters = read_shape(model.data, model.path).size
    except ShapeError:
        return
    share = parameters * local // ranks
    needed = share * ADAM_BYTES
    if needed > memory:
        over = f" x {local}/{ranks} ranks on a machine" if local != ranks else ""
        yield Finding(
            OFFLOAD_OPTIMIZER,
            f"The offloaded optimizer of {model} needs {parameters:,} parameters x {ADAM_BYTES} bytes{over} = {in_words(needed)} on each machine, which has {in_words(memory)}: "
            "the system kills such a process with no message from Python.",
            help='Take more machines, or ZeRO stage 3 with "device": "nvme". Where only adapters are trained, ignore this.',
            on="key",
        )


@rule(
    "DS524",
    "param-offload-alone",
    effect=Effect.SLOW,
    watches=("zero_optimization.offload_param",),
    references=("https://www.deepspeed.ai/docs/config-json/#parameter-offloading", "https://github.com/deepspeedai/DeepSpeed/issues/3901"),
)
@bad(trained('"zero_optimization": {"stage": 3, "offload_param": {"device": "cpu"}}'), at="zero_optimization.offload_param")
@good(trained('"zero_optimization": {"stage": 3, "offload_param": {"device": "cpu"}, "offload_optimizer": {"device": "cpu"}}'))
@good('{"train_micro_batch_size_per_gpu": 4, "zero_optimization": {"stage": 3, "offload_param": {"device": "cpu"}}}')
def param_offload_alone(config: Config) -> Iterator[Finding]:
    """Parameters are offloaded, and the optimizer states, six times as large, are not.

    In half precision a parameter is 2 bytes; its master weight and two moments are 12. Offloading parameters costs a transfer in every forward and backward pass,
    offloading the optimizer one in every step.

    Offload the optimizer first, and parameters where that is not enough.
    """
    device = config.value(f"{OFFLOAD_OPTIMIZER}.device")
    off = device == "none" or (device is None and not config.has(OFFLOAD_OPTIMIZER))
    if config.value(STAGE) == 3 and config.value(f"{OFFLOAD_PARAM}.device") in ("cpu", "nvme") and off and config.has("optimizer.type"):
        yield Finding(
            OFFLOAD_PARAM,
            "Parameters are offloaded, 2 bytes each in half precision, and the optimizer states, 12 bytes each, stay on the GPU: it is the other way round that saves most and costs least.",
            help='Add "offload_optimizer": {"device": "cpu"}.',
            fix=offload_to_cpu(config, OFFLOAD_OPTIMIZER),
            on="key",
        )


@rule(
    "DS525",
    "client-optimizer-with-offload",
    effect=Effect.ADVICE,
    watches=("zero_optimization.offload_optimizer",),
    references=("deepspeed/runtime/engine.py, DeepSpeedEngine._configure_optimizer", "https://www.deepspeed.ai/tutorials/zero-offload/"),
)
@bad(
    '{"train_micro_batch_size_per_gpu": 4, "zero_optimization": {"stage": 2, "offload_optimizer": {"device": "cpu"}}}',
    at="zero_optimization.offload_optimizer",
    integration="deepspeed",
)
@good(
    '{"train_micro_batch_size_per_gpu": 4, "zero_force_ds_cpu_optimizer": false, "zero_optimization": {"stage": 2, "offload_optimizer": {"device": "cpu"}}}',
    integration="deepspeed",
)
@good(trained('"zero_optimization": {"stage": 2, "offload_optimizer": {"device": "cpu"}}'), integration="deepspeed")
@good(
    '{"train_micro_batch_size_per_gpu": 4, "zero_optimization": {"stage": 2, "offload_optimizer": {"device": "cpu"}}}',
    integration="transformers",
)
def client_optimizer_with_offload(config: Config) -> Iterator[Finding]:
    """The optimizer comes from the program, and offload takes few of those.

    Without an `optimizer` section the program passes one to `deepspeed.initialize`. With offload it has to be `DeepSpeedCPUAdam` or `DeepSpeedCPULion`: DeepSpeed raises
    `ZeRORuntimeException: You are using ZeRO-Offload with a client provided optimizer` for any other, such as torch's AdamW. Accelerate exchanges it by itself.

    Build `deepspeed.ops.adam.DeepSpeedCPUAdam` in the program, or write an `optimizer` section. `"zero_force_ds_cpu_optimizer": false` lets any pass, slower.
    """
    if config.facts.integration is not Integration.DEEPSPEED or config.has("optimizer") or not is_offloaded(config):
        return
    if config.value("zero_force_ds_cpu_optimizer") is True:
        yield Finding(
            OFFLOAD_OPTIMIZER,
            'The optimizer comes from the program, which has to be DeepSpeedCPUAdam or DeepSpeedCPULion here: for any other DeepSpeed raises ZeRORuntimeException "You are using ZeRO-Offload with a client provided optimizer".',
            help="Build DeepSpeedCPUAdam in the program, or write an optimizer section.",
            on="key",
        )


@rule(
    "DS526",
    "unforced-cpu-optimizer",
    effect=Effect.SLOW,
    watches=("zero_force_ds_cpu_optimizer",),
    references=("https://github.com/deepspeedai/DeepSpeed/pull/2971", "https://github.com/deepspeedai/DeepSpeed/issues/6695"),
)
@bad(
    '{"train_micro_batch_size_per_gpu": 4, "zero_force_ds_cpu_optimizer": false, "zero_optimization": {"stage": 2, "offload_optimizer": {"device": "cpu"}}}',
    at="zero_force_ds_cpu_optimizer",
)
@bad(
    trained('"zero_force_ds_cpu_optimizer": false, "zero_optimization": {"stage": 2, "offload_optimizer": {"device": "cpu"}}'),
    at="zero_force_ds_cpu_optimizer",
)
@good('{"train_micro_batch_size_per_gpu": 4, "zero_optimization": {"stage": 2, "offload_optimizer": {"device": "cpu"}}}')
@good('{"train_micro_batch_size_per_gpu": 4, "zero_force_ds_cpu_optimizer": false, "zero_optimization": {"stage": 2}}')
def unforced_cpu_optimizer(config: Config) -> Iterator[Finding]:
    """`zero_force_ds_cpu_optimizer: false` lets an optimizer pass that is slow on the CPU.

    DeepSpeed's CPU Adam and Lion use the vector units of the CPU and all its cores. torch's optimizers work on the offloaded states too, at a fraction of the
    speed, and the GPU waits for them in every step. With an `optimizer` section DeepSpeed takes its own, and does not read the key.

    Build `deepspeed.ops.adam.DeepSpeedCPUAdam` in the program, and remove the key.
    """
    key = "zero_force_ds_cpu_optimizer"
    if config.value(key) is not False or not is_offloaded(config):
        return
    if config.has("optimizer.type"):
        yield Finding(
            key,
            "zero_force_ds_cpu_optimizer is about optimizers of the program; with an optimizer section nothing reads it.",
            help="Remove it.",
            fix=without(config, key),
            effect=Effect.IGNORED,
            severity=Severity.INFO,
        )
    elif config.facts.integration not in (Integration.TRANSFORMERS, Integration.ACCELERATE):  # Accelerate exchanges torch's Adam
        yield Finding(
            key,
            "zero_force_ds_cpu_optimizer false lets any optimizer run on the offloaded states; those of torch are several times slower there than DeepSpeed's CPU Adam.",
            help="Build DeepSpeedCPUAdam in the program, and remove the key.",
        )


@rule(
    "DS527",
    "offload-not-pinned",
    effect=Effect.SLOW,
    watches=("zero_optimization.offload_optimizer", "zero_optimization.offload_param"),
    pedantic=True,
    references=("https://www.deepspeed.ai/docs/config-json/#optimizer-offloading", "https://github.com/deepspeedai/DeepSpeed/pull/8207"),
)
@bad(
    trained('"zero_optimization": {"stage": 2, "offload_optimizer": {"device": "cpu"}}'),
    at="zero_optimization.offload_optimizer",
    deepspeed="0.16.9",
)
@good(trained('"zero_optimization": {"stage": 2, "offload_optimizer": {"device": "cpu", "pin_memory": true}}'), deepspeed="0.16.9")
@good(trained('"zero_optimization": {"stage": 2, "offload_optimizer": {"device": "cpu"}}'))
def offload_not_pinned(config: Config) -> Iterator[Finding]:
    """What is offloaded lies in memory that is not pinned, which copies slowly.

    The GPU copies pinned memory at the full speed of the bus, and while it computes. `pin_memory` is true by default since 0.19.5, and false before. Pinned memory
    cannot be paged out, so that false is right where memory or the limit of locked memory (`ulimit -l`) is short.

    Write `"pin_memory": true` where the host has the memory.
    """
    for block in (OFFLOAD_OPTIMIZER, OFFLOAD_PARAM):
        key = f"{block}.pin_memory"
        if (
            config.value(f"{block}.device") == "cpu"
            and config.value(key) is False
            and config.value(STAGE) >= (1 if block == OFFLOAD_OPTIMIZER else 3)
        ):
            default = "" if config.has(key) else f", the default of DeepSpeed {config.release}"
            yield Finding(
                key if config.has(key) else block,
                f"pin_memory of {block.partition('.')[2]} is false{default}: copies between host and GPU are slow, and wait for the GPU.",
                help='Write "pin_memory": true where the host has the memory.',
                fix=write(config, key, "true"),
                on="member" if config.has(key) else "key",
            )


@rule(
    "DS528",
    "offload-step-dominates",
    effect=Effect.SLOW,
    watches=("zero_optimization.offload_optimizer",),
    pedantic=True,
    needs=("model",),
    references=("https://github.com/deepspeedai/DeepSpeed/issues/6695",),
)
@bad(
    trained('"zero_optimization": {"stage": 2, "offload_optimizer": {"device": "cpu"}}'),
    at="zero_optimization.offload_optimizer",
    model=_llama(),
)
@good(
    trained('"gradient_accumulation_steps": 16, "zero_optimization": {"stage": 2, "offload_optimizer": {"device": "cpu"}}'),
    model=_llama(),
)
def offload_step_dominates(config: Config) -> Iterator[Finding]:
    """An offloaded optimizer steps after every micro batch or two.

    The step on the CPU takes about as long whatever the batch. With few accumulation steps the GPU waits for it after each; more of them, or a larger micro
    batch, spread it.

    Raise `gradient_accumulation_steps` and lower the learning rate schedule's steps with it, where the batch may grow.
    """
    steps = config.value("gradient_accumulation_steps")
    if is_offloaded(config) and steps in (1, 2):
        yield Finding(
            OFFLOAD_OPTIMIZER,
            f"The offloaded optimizer steps on the CPU after every {'micro batch' if steps == 1 else 'two micro batches'}, and the GPU waits for it each time.",
            help="Raise gradient_accumulation_steps, where the batch may grow.",
            on="key",
        )
