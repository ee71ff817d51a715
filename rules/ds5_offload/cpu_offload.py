"""DS5: offload to host memory: how much it needs, and how fast it is."""

from __future__ import annotations

from collections.abc import Iterator

from dslint.config import UNKNOWN, Config
from dslint.diagnostics import Effect
from dslint.frameworks.engine_optimizer import runs_without_optimizer
from dslint.rule import Finding, bad, good, rule
from dslint.rules.helpers.cost import optimizer_on_host, slower
from dslint.rules.helpers.examples import trained
from dslint.rules.helpers.fixes import write
from dslint.rules.helpers.host_offload import need_of_adam
from dslint.rules.helpers.least_plan import least_estimate
from dslint.rules.helpers.model import counted, may_train_part, trains_part
from dslint.rules.helpers.offload import OFFLOAD_DOCS, OFFLOAD_OPTIMIZER, OFFLOAD_PARAM, offload_to_cpu, offloads_optimizer, to_nvme
from dslint.rules.helpers.precision import model_dtype
from dslint.rules.helpers.zero import IN_HALF_PRECISION, STAGE, ZERO, assumed_local_ranks, ranks_assumed

TUTORIAL = "https://www.deepspeed.ai/tutorials/zero-offload/"

_SWAPPED = (
    '"bf16": {"enabled": true}, "zero_optimization": {"stage": 3, "offload_optimizer": {"device": "nvme", "nvme_path": "/local_nvme"}, '
    '"offload_param": {"device": "nvme", "nvme_path": "/local_nvme", "buffer_size": 2e8}}'
)
LLAMA_7B = {
    "model_type": "llama",
    "hidden_size": 4096,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "intermediate_size": 11008,
    "vocab_size": 32000,
}
"""The `config.json` of a model of 7B parameters."""


@rule(
    "DS523",
    effect=Effect.MEMORY,
    watches=("zero_optimization.offload_optimizer",),
    needs=("model", "host_memory", "world_size"),
    references=(TUTORIAL, "https://github.com/deepspeedai/DeepSpeed/issues/4239"),
)
@bad(
    trained('"bf16": {"enabled": true}, "zero_optimization": {"stage": 2, "offload_optimizer": {"device": "cpu"}}'),
    at="zero_optimization.offload_optimizer",
    model=LLAMA_7B,
    host_memory=64 * 2**30,
    world_size=8,
    nodes=1,
    message="With its optimizer offloaded, config.json needs at least 142 GiB on each node (6,738,415,616 parameters x 18 bytes, 12 GiB for the processes, 17.2 GiB because PyTorch rounds page-locked buffers up to powers of two), which has 64 GiB: the system kills the process without a message from Python, or an allocation fails.",
)
@bad(
    trained('"bf16": {"enabled": true}, "zero_optimization": {"stage": 2, "offload_optimizer": {"device": "nvme", "nvme_path": "/nvme"}}'),
    at="zero_optimization.offload_optimizer",
    model=LLAMA_7B,
    host_memory=64 * 2**30,
    world_size=8,
    nodes=1,
    message="With its optimizer offloaded, config.json needs at least 142 GiB on each node (6,738,415,616 parameters x 18 bytes, 12 GiB for the processes, 17.2 GiB because PyTorch rounds page-locked buffers up to powers of two), which has 64 GiB: the system kills the process without a message from Python, or an allocation fails.",
)
@bad(
    trained('"bf16": {"enabled": true}, "zero_optimization": {"stage": 2, "offload_optimizer": {"device": "cpu"}}'),
    at="zero_optimization.offload_optimizer",
    model=LLAMA_7B,
    host_memory=64 * 2**30,
    world_size=8,
    message="With its optimizer offloaded, config.json needs at least 142 GiB on each node (6,738,415,616 parameters x 18 bytes, 12 GiB for the processes, 17.2 GiB because PyTorch rounds page-locked buffers up to powers of two), which has 64 GiB (8 ranks on a node assumed; pass --nodes): the system may kill the process without a message from Python, or an allocation fails.",
)
@bad(
    trained('"bf16": {"enabled": true}, "zero_optimization": {"stage": 2, "offload_optimizer": {"device": "cpu"}}'),
    at="zero_optimization.offload_optimizer",
    model=LLAMA_7B,
    host_memory=64 * 2**30,
    world_size=16,
    message="With its optimizer offloaded, config.json needs at least 77.1 GiB on each node (6,738,415,616 parameters x 18 bytes x 8/16 ranks on a node, 12 GiB for the processes, 8.62 GiB because PyTorch rounds page-locked buffers up to powers of two), which has 64 GiB (8 ranks on a node assumed; pass --nodes): the system may kill the process without a message from Python, or an allocation fails.",
)
@good(
    trained('"bf16": {"enabled": true}, "zero_optimization": {"stage": 2, "offload_optimizer": {"device": "cpu"}}'),
    model=LLAMA_7B,
    host_memory=64 * 2**30,
    world_size=32,
)
@good(
    trained('"bf16": {"enabled": true}, "zero_optimization": {"stage": 2, "offload_optimizer": {"device": "cpu"}}'),
    model=LLAMA_7B,
    host_memory=512 * 2**30,
    world_size=8,
    nodes=1,
)
@good(
    trained('"bf16": {"enabled": true}, "zero_optimization": {"stage": 2, "offload_optimizer": {"device": "cpu"}}'),
    model=LLAMA_7B,
    host_memory=64 * 2**30,
    world_size=64,
    nodes=8,
)
@bad(
    trained('"bf16": {"enabled": true}, "zero_optimization": {"stage": 2, "offload_optimizer": {"device": "cpu"}}'),
    at="zero_optimization.offload_optimizer",
    model=LLAMA_7B,
    launch="#SBATCH --gres=gpu:4\n#SBATCH --mem=96G\ntorchrun --nproc_per_node 4 train.py --deepspeed ds_config.json\n",
    message="With its optimizer offloaded, config.json needs at least 136 GiB on each node (6,738,415,616 parameters x 18 bytes, 6 GiB for the processes, 17.2 GiB because PyTorch rounds page-locked buffers up to powers of two), of which the job may use 96 GiB (#SBATCH --mem=96G (run.sh:2)): the system kills the process without a message from Python, or an allocation fails.",
)
@good(
    trained('"bf16": {"enabled": true}, "zero_optimization": {"stage": 2, "offload_optimizer": {"device": "cpu"}}'),
    model=LLAMA_7B,
    launch="#SBATCH --gres=gpu:4\n#SBATCH --mem=0\ntorchrun --nproc_per_node 4 train.py --deepspeed ds_config.json\n",
)
@bad(
    trained('"bf16": {"enabled": true}, "zero_optimization": {"stage": 2, "offload_optimizer": {"device": "cpu"}}'),
    at="zero_optimization.offload_optimizer",
    host_memory=64 * 2**30,
    world_size=4,
    nodes=1,
    training="stage: sft\nmodel_name_or_path: meta-llama/Llama-2-7b-hf\nfinetuning_type: full\nper_device_train_batch_size: 4\nbf16: true\nlearning_rate: 1e-4\n",
    message="With its optimizer offloaded, meta-llama/Llama-2-7b-hf needs at least 136 GiB on each node (6,738,415,616 parameters x 18 bytes, 6 GiB for the processes, 17.2 GiB because PyTorch rounds page-locked buffers up to powers of two), which has 64 GiB: the system kills the process without a message from Python, or an allocation fails.",
)
@good(
    trained('"bf16": {"enabled": true}, "zero_optimization": {"stage": 2, "offload_optimizer": {"device": "cpu"}}'),
    host_memory=64 * 2**30,
    world_size=4,
    nodes=1,
    training="stage: sft\nmodel_name_or_path: meta-llama/Llama-2-7b-hf\nfinetuning_type: lora\nper_device_train_batch_size: 4\nbf16: true\nlearning_rate: 1e-4\n",
)
@bad(
    trained('"bf16": {"enabled": true}, "zero_optimization": {"stage": 2, "offload_optimizer": {"device": "cpu"}}'),
    at="zero_optimization.offload_optimizer",
    model=LLAMA_7B,
    host_memory=64 * 2**30,
    world_size=4,
    nodes=1,
    deepspeed="0.16.9",
    message="With its optimizer offloaded, config.json needs at least 106 GiB on each node (6,738,415,616 parameters x 16 bytes, 6 GiB for the processes), which has 64 GiB: the system kills the process without a message from Python, or an allocation fails.",
)
@bad(
    trained('"bf16": {"enabled": true}, "zero_optimization": {"stage": 2, "offload_optimizer": {"device": "cpu", "pin_memory": true}}'),
    at="zero_optimization.offload_optimizer",
    model=LLAMA_7B,
    host_memory=64 * 2**30,
    world_size=4,
    nodes=1,
    deepspeed="0.14.0",
    message="With its optimizer offloaded, config.json needs at least 113 GiB on each node (6,738,415,616 parameters x 16 bytes, 6 GiB for the processes, 6.9 GiB because PyTorch rounds page-locked buffers up to powers of two), which has 64 GiB: the system kills the process without a message from Python, or an allocation fails.",
)
@bad(
    trained('"bf16": {"enabled": true}, "zero_optimization": {"stage": 2, "offload_optimizer": {"device": "cpu", "pin_memory": true}}'),
    at="zero_optimization.offload_optimizer",
    model=LLAMA_7B,
    host_memory=64 * 2**30,
    world_size=4,
    nodes=1,
    deepspeed="0.14.1",
    message="With its optimizer offloaded, config.json needs at least 120 GiB on each node (6,738,415,616 parameters x 16 bytes, 6 GiB for the processes, 13.8 GiB because PyTorch rounds page-locked buffers up to powers of two), which has 64 GiB: the system kills the process without a message from Python, or an allocation fails.",
)
@good(
    trained(
        '"bf16": {"enabled": true, "bf16_master_weights_and_grads": true, "bf16_optimizer_states": true}, "zero_optimization": {"stage": 2, "offload_optimizer": {"device": "cpu"}}'
    ),
    model=LLAMA_7B,
    host_memory=128 * 2**30,
    world_size=4,
    nodes=1,
)
@bad(
    trained(_SWAPPED),
    at="zero_optimization.offload_optimizer",
    model=LLAMA_7B,
    host_memory=32 * 2**30,
    world_size=1,
    message="NVMe offload keeps its swap buffers in host memory: config.json needs at least 33.7 GiB on each node (for each rank buffers 16.8 GiB, gradients 12.6 GiB, parameters 1.9 GiB), which has 32 GiB: the system kills the process without a message from Python, or an allocation fails.",
)
@bad(
    trained(_SWAPPED),
    at="zero_optimization.offload_optimizer",
    model=LLAMA_7B,
    host_memory=35 * 2**30,
    world_size=1,
    message="NVMe offload keeps its swap buffers in host memory: config.json needs about 36.6 GiB, and at least 33.7 GiB, on each node (for each rank buffers 16.8 GiB, gradients 12.6 GiB, parameters 1.9 GiB), which has 35 GiB: the system may kill the process without a message from Python, or an allocation fails.",
)
@good(trained(_SWAPPED), model=LLAMA_7B, host_memory=40 * 2**30, world_size=1)
@good(trained(_SWAPPED.replace('"stage": 3', '"stage": 3, "sub_group_size": 1e8')), model=LLAMA_7B, host_memory=35 * 2**30, world_size=1)
def host_memory_too_small(config: Config) -> Iterator[Finding]:
    """The offloaded optimizer does not fit into the memory of a node.

    An offloaded Adam keeps at least 18 bytes on the host for each parameter that it trains: master weight, gradient and two moments in fp32, and the updated
    weight that goes back to the GPU, in 16 bits (at stages 1 and 2 since DeepSpeed 0.17.0). ZeRO divides them among all ranks, and each node holds the shares of its own ranks. With `pin_memory`, PyTorch
    rounds each page-locked buffer up to a power of two. If the memory runs out, the system kills the process with exit code -9 and no message from Python, or an allocation fails with "can't allocate memory".

    With NVMe, at stage 3, the states leave the host, but the gradients stay there, and page-locked buffers through which the states go: `buffer_count`
    times 4 bytes for each element of the rank's partition, or of a sub group of it. A small machine may have too little memory for them.
    The figures and the verdict are those of `dslint estimate`.

    Use more nodes, which divide the states further, or NVMe at stage 3, which moves most of them off the host. If you train only adapters, little of this
    memory is needed.
    """
    from dslint.facts.gpus import in_words

    if to_nvme(config, OFFLOAD_OPTIMIZER):
        yield from _swapped(config)
        return
    device = config.value(f"{OFFLOAD_OPTIMIZER}.device")
    on_host = device == "cpu" or (device == "nvme" and config.value(STAGE) in (1, 2))  # DS503
    need = need_of_adam(config) if on_host else None
    memory = config.facts.host_memory
    if need is None or memory is None or need.size <= memory:
        return
    assumed = ranks_assumed(config)
    yield Finding(
        OFFLOAD_OPTIMIZER,
        f"With its optimizer offloaded, {config.facts.model} needs at least {in_words(need.size)} on each node ({', '.join(need.parts)}), "
        f"{_of_host(config, memory)}{assumed}: the system {'may kill' if assumed else 'kills'} the process without a message from Python, "
        "or an allocation fails.",
        help='Use more nodes, or ZeRO stage 3 with "device": "nvme" and an nvme_path. If you train only adapters, ignore this.',
        on="key",
        certain=not assumed,
    )


def _swapped(config: Config) -> Iterator[Finding]:
    """The finding for an optimizer on NVMe whose swap buffers, gradients and weights exceed the host, by the verdict of the estimate."""
    from dslint.facts.gpus import GIB
    from dslint.memory.estimate import Verdict
    from dslint.memory.host import host_range
    from dslint.memory.plan import PlanError, Workload
    from dslint.memory.planning import make_plan

    facts = config.facts
    model, memory = facts.model, facts.host_memory
    assumed = ranks_assumed(config)
    if model is None or memory is None or assumed_local_ranks(config) is None or facts.divided_by_program or config.document.problems:
        return
    if any(config.value(key) is UNKNOWN for key in _SIZES_ON_HOST) or config.value("aio.use_gds") is not False:
        return
    if (facts.tensor_parallel or 1) > 1 or trains_part(config) or may_train_part(config) or model.quantization is not None:
        return
    found = counted(model)
    try:
        plan = make_plan(config, Workload(1, checkpoint_every=1, zero_init=True), found.hidden, micro_batch=1, accumulation=1)
    except (PlanError, ValueError, TypeError):
        return
    plan = plan.but(host_used=0 if config.evidence.get("host_memory") else None)  # other programs have their own limit
    result = least_estimate(config, found, plan, lambda one: one.host.total)
    verdict = result.host_verdict(memory, loading=False)
    if verdict not in (Verdict.NO, Verdict.UNLIKELY):
        return
    needs = host_range(result.plan, result.host, loading=False)
    listed = ", ".join(f"{name} {size / GIB:,.1f} GiB" for name, size in sorted(result.host.parts.items(), key=lambda part: -part[1]))
    least = f"at least {needs.low / GIB:,.1f} GiB"
    most = least if verdict is Verdict.NO else f"about {needs.expected / GIB:,.1f} GiB, and {least},"
    yield Finding(
        OFFLOAD_OPTIMIZER,
        f"NVMe offload keeps its swap buffers in host memory: {model} needs {most} on each node (for each rank {listed}), "
        f"{_of_host(config, memory)}{assumed}: the system "
        f"{'kills' if verdict is Verdict.NO and not assumed else 'may kill'} the process without a message from Python, or an allocation fails.",
        help="Write a smaller sub_group_size, which is the size of the optimizer's buffers, a smaller buffer_size in offload_param, or use more "
        "nodes. If you train only adapters, ignore this.",
        on="key",
        certain=verdict is Verdict.NO and not assumed,
    )


def _of_host(config: Config, memory: int) -> str:
    """What a job has of the memory of a node, after the need of it: "which has 64 GiB"."""
    from dslint.facts.gpus import in_words

    limit = config.evidence.get("host_memory")
    return f"of which the job may use {in_words(memory)} ({limit})" if limit else f"which has {in_words(memory)}"


_SIZES_ON_HOST = (
    f"{ZERO}.sub_group_size",
    f"{OFFLOAD_OPTIMIZER}.buffer_count",
    *(f"{OFFLOAD_PARAM}.{key}" for key in ("device", "max_in_cpu", "buffer_count", "buffer_size")),
)
"""What decides how much NVMe offload keeps on the host."""


@rule(
    "DS524",
    effect=Effect.SLOW,
    watches=("zero_optimization.offload_param",),
    references=(OFFLOAD_DOCS, "https://github.com/deepspeedai/DeepSpeed/issues/3901"),
)
@bad(
    trained('"zero_optimization": {"stage": 3, "offload_param": {"device": "cpu"}}'),
    at="zero_optimization.offload_param",
    message="Parameters (4 bytes each) are offloaded, but the optimizer states (12 bytes each) stay on the GPU: they are three times larger and cheaper to move.",
    fixed='{"train_micro_batch_size_per_gpu": 4, "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}}, "zero_optimization": {"stage": 3, "offload_param": {"device": "cpu"}, "offload_optimizer": {"device": "cpu"}}}',
)
@bad(
    trained('"bf16": {"enabled": true}, "zero_optimization": {"stage": 3, "offload_param": {"device": "cpu"}}'),
    at="zero_optimization.offload_param",
    message="Parameters (2 bytes each in half precision) are offloaded, but the optimizer states (12 bytes each) stay on the GPU: they are six times larger and cheaper to move.",
    fixed='{"train_micro_batch_size_per_gpu": 4, "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}}, "bf16": {"enabled": true}, "zero_optimization": {"stage": 3, "offload_param": {"device": "cpu"}, "offload_optimizer": {"device": "cpu"}}}',
)
@good(trained('"zero_optimization": {"stage": 3, "offload_param": {"device": "cpu"}, "offload_optimizer": {"device": "cpu"}}'))
@good('{"train_micro_batch_size_per_gpu": 4, "zero_optimization": {"stage": 3, "offload_param": {"device": "cpu"}}}')
@good(
    '{"train_micro_batch_size_per_gpu": 4, "optimizer": {"type": "Lion", "params": {"lr": 1e-4}}, "zero_optimization": {"stage": 3, "offload_param": {"device": "cpu"}}}'
)
@good(
    trained('"zero_optimization": {"stage": 3, "offload_param": {"device": "cpu"}}'),
    program="import deepspeed\nfrom peft import LoraConfig, get_peft_model\nmodel = get_peft_model(model, LoraConfig(r=8))\n"
    "engine, *_ = deepspeed.initialize(model=model, config='ds_config.json')\n",
    integration="deepspeed",
)
def param_offload_without_optimizer_offload(config: Config) -> Iterator[Finding]:
    """Parameters are offloaded, but not the optimizer states, which are several times larger.

    In half precision a parameter is 2 bytes, in fp32 4; its master weight and two moments are 12. Parameter offload costs a transfer in every forward and backward pass,
    optimizer offload only one in every step.

    Offload the optimizer first, and parameters only if that is not enough.
    """
    device = config.value(f"{OFFLOAD_OPTIMIZER}.device")
    optimizer_stays = device == "none" or (device is None and not config.has(OFFLOAD_OPTIMIZER))
    offloads_param = config.value(STAGE) == 3 and config.value(f"{OFFLOAD_PARAM}.device") in ("cpu", "nvme")
    size, times = ("4 bytes each", "three") if model_dtype(config) == "fp32" else ("2 bytes each in half precision", "six")
    if any(config.value(key) is True for key in IN_HALF_PRECISION):
        return
    if offloads_param and optimizer_stays and _is_adam(config) and not trains_part(config) and not runs_without_optimizer(config):
        yield Finding(
            OFFLOAD_PARAM,
            f"Parameters ({size}) are offloaded, but the optimizer states (12 bytes each) stay on the GPU: they are {times} times larger and cheaper to move.",
            help='Offload the optimizer states first: add "offload_optimizer": {"device": "cpu"}.'
            + slower(config, lambda job: job.but(parameters_on=None)),
            fix=offload_to_cpu(config, OFFLOAD_OPTIMIZER),
            on="key",
        )


def _is_adam(config: Config) -> bool:
    """Whether the config's optimizer is an Adam whose states DeepSpeed can offload."""
    name = config.value("optimizer.type")
    return config.has("optimizer.type") and isinstance(name, str) and name.lower() in ("adam", "adamw")


@rule(
    "DS527",
    effect=Effect.SLOW,
    watches=("zero_optimization.offload_optimizer", "zero_optimization.offload_param"),
    pedantic=True,
    references=("https://www.deepspeed.ai/docs/config-json/#optimizer-offloading", "https://github.com/deepspeedai/DeepSpeed/pull/8207"),
)
@bad(
    trained('"zero_optimization": {"stage": 2, "offload_optimizer": {"device": "cpu"}}'),
    at="zero_optimization.offload_optimizer",
    deepspeed="0.16.9",
    message="offload_optimizer has pin_memory false, the default of DeepSpeed 0.16.9: copies between host and GPU are slow and do not overlap with computation.",
    fixed='{"train_micro_batch_size_per_gpu": 4, "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}}, "zero_optimization": {"stage": 2, "offload_optimizer": {"device": "cpu", "pin_memory": true}}}',
)
@good(trained('"zero_optimization": {"stage": 2, "offload_optimizer": {"device": "cpu", "pin_memory": true}}'), deepspeed="0.16.9")
@good(trained('"zero_optimization": {"stage": 2, "offload_optimizer": {"device": "cpu"}}'))
@good(
    trained('"zero_optimization": {"stage": 2, "offload_optimizer": {"device": "cpu"}}'),
    deepspeed="0.16.9",
    kernel="5.15.167.4-microsoft-standard-WSL2",
)
def offload_not_pinned(config: Config) -> Iterator[Finding]:
    """Offload without `pin_memory` copies slowly between host and GPU.

    The GPU copies pinned memory at the full speed of the bus, and while it computes. `pin_memory` is true by default since 0.19.5, and false before. The system
    cannot page out pinned memory, so false is right if memory or the limit of locked memory (`ulimit -l`) is short, and on WSL (DS963).

    Write `"pin_memory": true` if the host has enough memory.
    """
    if config.context.kernel is not None:
        return
    for section, lowest_stage in ((OFFLOAD_OPTIMIZER, 1), (OFFLOAD_PARAM, 3)):
        key = f"{section}.pin_memory"
        if config.value(f"{section}.device") == "cpu" and config.value(key) is False and config.value(STAGE) >= lowest_stage:
            default = "" if config.has(key) else f", the default of DeepSpeed {config.release}"
            yield Finding(
                key if config.has(key) else section,
                f"{section.partition('.')[2]} has pin_memory false{default}: copies between host and GPU are slow and do not overlap with computation.",
                help='Write "pin_memory": true if the host has enough memory.' + slower(config, lambda job: job.but(pinned=True)),
                fix=write(config, key, "true"),
                on="member" if config.has(key) else "key",
            )


@rule(
    "DS528",
    effect=Effect.SLOW,
    watches=("zero_optimization.offload_optimizer",),
    pedantic=True,
    references=("https://github.com/deepspeedai/DeepSpeed/issues/6695",),
)
@bad(
    trained('"zero_optimization": {"stage": 2, "offload_optimizer": {"device": "cpu"}}'),
    at="zero_optimization.offload_optimizer",
    message="The offloaded optimizer steps on the CPU after every micro batch, and the GPU waits for each step.",
)
@good(
    trained('"gradient_accumulation_steps": 16, "zero_optimization": {"stage": 2, "offload_optimizer": {"device": "cpu"}}'),
)
def offload_step_dominates(config: Config) -> Iterator[Finding]:
    """An offloaded optimizer steps after every micro batch or every second one.

    The step on the CPU takes about the same time for every batch size. With few accumulation steps the GPU waits for it after each. More accumulation steps, or
    a larger micro batch, spread its cost.

    Raise `gradient_accumulation_steps` if the batch may grow, and lower the number of steps of the learning rate schedule with it.
    """
    steps = config.value("gradient_accumulation_steps")
    if config.value(f"{OFFLOAD_OPTIMIZER}.super_offload") is True or config.has("zero_optimization.zenflow"):
        return  # they update while the GPU computes
    if offloads_optimizer(config) and steps in (1, 2):
        yield Finding(
            OFFLOAD_OPTIMIZER,
            f"The offloaded optimizer steps on the CPU after every {'micro batch' if steps == 1 else 'two micro batches'}, and the GPU waits for each step.",
            help="Raise gradient_accumulation_steps if the batch may grow." + optimizer_on_host(config),
            on="key",
        )
