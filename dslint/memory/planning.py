"""Plans the training step of a config: reads the values that affect memory, and records assumptions for unknown ones."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from dslint.config import UNKNOWN, Config
from dslint.config.context import Context
from dslint.facts import Facts, Integration, Release
from dslint.job.events import LOADS, is_true
from dslint.job.model import Program
from dslint.memory.optimizers import ON_CPU, used_optimizer
from dslint.memory.plan import (
    FUSED_DEFAULT,
    HOST,
    NVME,
    PLAIN_BF16,
    STACKED_EXPERTS,
    STATES,
    UNFUSED,
    Plan,
    PlanError,
    Workload,
)

_BYTES = {"fp32": 4, "float32": 4, "float": 4, "fp16": 2, "float16": 2, "half": 2, "bf16": 2, "bfloat16": 2}


Z = "zero_optimization."

LARGEST = 2.0**63
"""The largest number in a config that is estimated: no size in bytes, elements or samples is larger."""


class _ConfigReading:
    """Reads values of a config and records assumptions."""

    def __init__(self, config: Config, hidden: int) -> None:
        self.config, self.hidden = config, hidden
        self.assumed: list[str] = []

    def get(self, path: str, assumed: Any, shown: str | None = None) -> Any:
        """The effective value; if it is unknown, `assumed`, which is recorded."""
        value = self.config.value(path)
        if isinstance(value, int | float) and not abs(value) <= LARGEST:
            raise PlanError(f"{path} is larger than {LARGEST:.0e}: no memory can be estimated for it")
        if value is not UNKNOWN:
            return value
        if any(violation.raises and ".".join(map(str, violation.path)) == path for violation in self.config.violations):
            raise PlanError(f"{path} is {self.config.quote(path)}, which DeepSpeed rejects; run `dslint check`")
        self.assumed.append(f"{path} is {shown or assumed}, because its value is unknown")
        return assumed

    def number(self, path: str, assumed: int, per_width: float = 0.0, power: int = 1) -> int:
        """An integer. If it is "auto", Hugging Face fills it with a multiple of a power of the hidden size."""
        if per_width and self.config.value(path) is UNKNOWN and self.config.quote(path).strip("\"'") == "auto":
            return int(per_width * self.hidden**power)
        value = self.get(path, assumed)
        return int(value) if value is not None else assumed


def make_plan(config: Config, workload: Workload, hidden: int, *, micro_batch: int | None = None, accumulation: int | None = None) -> Plan:
    """The plan of a resolved config for a model with this hidden size.

    Raises:
        PlanError: the world size is unknown or does not match the parallel sizes, or DeepSpeed rejects a relevant value.
    """
    facts, r = config.facts, _ConfigReading(config, hidden)
    if facts.world_size is None:
        raise PlanError("No world size given: pass --world-size N")
    tensor, sequence = _divisions(r, facts)
    stage, types = _stage_and_types(r, sequence)
    offloaded = _offload(r, stage)
    batch = _batch(r, facts.world_size, micro_batch, accumulation)
    return Plan(
        workload=workload,
        world=facts.world_size,
        local=_local(facts, facts.world_size, r.assumed),
        replicas=facts.world_size // tensor,
        tensor=tensor,
        sequence=sequence,
        stage=stage,
        **batch,
        **types,
        **_optimizer(r, types, offloaded["optimizer_device"]),
        **offloaded,
        **_buffers(r, stage, offloads=offloaded["optimizer_device"] is not None),
        partitions_activations=r.config.value("activation_checkpointing.partition_activations") is True,
        activations_on_host=r.config.value("activation_checkpointing.cpu_checkpointing") is True,
        gpu=facts.gpu,
        calibration=config.context.calibration,
        host_memory=facts.host_memory,
        release=facts.deepspeed,
        unmodelled=tuple(_unmodelled(r, stage)),
        resumes=_resumes(config),
        assumed=tuple(r.assumed),
    )


def _resumes(config: Config) -> bool:
    """Whether an argument or the program says that the run begins from a checkpoint."""
    given = config.arguments.get("resume_from_checkpoint") if config.arguments is not None else None
    if given is not None and given.value not in (None, UNKNOWN, False, "", "false", "False", "none", "None"):
        return True
    program = config.setup.program if config.setup else None
    return program is not None and any(one.certain and not one.flow for one in program.events.of(_LOADS_CHECKPOINT))


_LOADS_CHECKPOINT = r"deepspeed\.initialize\.load_checkpoint|accelerate\.(\w+\.)*Accelerator\.load_state"


def _stage_and_types(r: _ConfigReading, sequence: int) -> tuple[int, dict[str, Any]]:
    """The ZeRO stage, and bytes per element of the model, master weights, accumulated and reduced gradients."""
    stage = int(r.get(Z + "stage", 0))
    half = bool(r.get("bf16.enabled", assumed=True)) or bool(r.get("fp16.enabled", assumed=False))
    model_bytes = 2 if half else 4
    low = half and any(r.config.value(f"{name}.{name}_master_weights_and_grads") is True for name in ("bf16", "fp16"))
    gradient = r.config.value("data_types.grad_accum_dtype")
    if stage == 0 and r.config.facts.deepspeed < PLAIN_BF16 and r.config.value("bf16.enabled") is True:
        stage, gradient = 1, "fp32"
        r.assumed.append(
            f"DeepSpeed {r.config.facts.deepspeed} runs bf16 without ZeRO in BF16_Optimizer: like stage 1, with fp32 gradients of the "
            "whole model"
        )
    wire = r.config.value("communication_data_type")
    return stage, {
        "model_bytes": model_bytes,
        "fp16": half and r.config.value("fp16.enabled") is True,
        "master_bytes": 2 if low else 4,
        "gradient_bytes": _BYTES.get(str(gradient).removeprefix("torch."), model_bytes),
        "wire_bytes": _BYTES.get(str(wire).removeprefix("torch."), 4 if sequence > 1 else model_bytes),
    }


def _batch(r: _ConfigReading, world: int, micro_batch: int | None, accumulation: int | None) -> dict[str, Any]:
    """The micro batch size and the accumulation steps."""
    before = len(r.assumed)
    if micro_batch is None:
        micro_batch = r.number("train_micro_batch_size_per_gpu", 1)
    if accumulation is None:
        accumulation = r.number("gradient_accumulation_steps", 1)
    if micro_batch < 1 or accumulation < 1:
        train = r.config.value("train_batch_size")
        raise PlanError(
            f"the batch sizes do not match: train_batch_size {train} leaves a micro batch size of {micro_batch} and {accumulation} "
            f"accumulation steps for {world} ranks; run `dslint check --world-size {world}`"
        )
    return {"micro_batch": micro_batch, "accumulation": accumulation, "batch_assumed": len(r.assumed) > before}


def _offload(r: _ConfigReading, stage: int) -> dict[str, Any]:
    """Where optimizer and parameters are, and the buffers of offload."""
    optimizer = _device(r, "offload_optimizer") if stage else None
    if optimizer == NVME and stage < 3:
        optimizer = HOST  # stages 1 and 2 offload to the host, whatever the device
    parameters = _device(r, "offload_param") if stage == 3 else None
    return {
        "optimizer_device": optimizer,
        "parameter_device": parameters,
        "offload_ratio": _ratio(r.config.value(Z + "offload_optimizer.ratio")) if optimizer and stage == 3 else 1.0,
        "lists_experts": bool(lists_experts(r.config.facts)),
        "super_offload": optimizer == HOST and stage == 3 and r.config.value(Z + "offload_optimizer.super_offload") is True,
        "clips": r.config.value("gradient_clipping") not in (0, None),
        **_zenflow(r, stage, optimizer),
        "swap_buffers": int(r.config.value(Z + "offload_optimizer.buffer_count") or 4),
        "parameter_buffers": _swap_elements(r) if parameters == NVME else 0,
        "host_parameters": r.number(Z + "offload_param.max_in_cpu", 10**9) if parameters == NVME else 0,
        "pinned": bool(r.config.value(Z + "offload_optimizer.pin_memory")),
    }


def _has_zenflow(r: _ConfigReading) -> bool:
    return r.config.has(Z + "zenflow") and r.config.quote(Z + "zenflow") != "null"


def _zenflow(r: _ConfigReading, stage: int, optimizer: str | None) -> dict[str, Any]:
    """What ZenFlow keeps on the device at stages 1 and 2. DeepSpeed has no ZenFlow without an offloaded optimizer."""
    if optimizer is None or stage > 2 or not _has_zenflow(r):
        return {}
    share = r.config.value(Z + "zenflow.topk_ratio")
    return {
        "zenflow": float(share) if isinstance(share, int | float) else 0.1,
        "zenflow_on_host": r.config.value(Z + "zenflow.offload") is True,
    }


def _ratio(value: Any) -> float:
    """The share of the optimizer that runs on the host; 1 if it is unknown."""
    return float(value) if isinstance(value, int | float) and 0 <= value <= 1 else 1.0


def _buffers(r: _ConfigReading, stage: int, *, offloads: bool) -> dict[str, Any]:
    """Buckets, and what stage 3 gathers. Stages 1 and 2 with an offloaded optimizer always have a contiguous bucket."""
    overlap = r.config.value(Z + "overlap_comm")
    return {
        "contiguous": bool(r.get(Z + "contiguous_gradients", assumed=True)) or (stage in (1, 2) and offloads),
        "overlap": (stage == 3) if overlap is None or overlap is UNKNOWN else bool(overlap),
        "reduce_scatter": bool(r.get(Z + "reduce_scatter", assumed=True)),
        "reduce_bucket": r.number(Z + "reduce_bucket_size", 500_000_000, 1.0, 2),
        "prefetch_bucket": r.number(Z + "stage3_prefetch_bucket_size", 50_000_000, 0.9, 2),
        "plain_linear": r.config.value(Z + "memory_efficient_linear") is False,
        "leaves": (leaf_classes(r.config) if stage == 3 else None) or (),
        "persistence": r.number(Z + "stage3_param_persistence_threshold", 100_000, 10.0),
        "persistence_limit": r.number(Z + "stage3_model_persistence_threshold", 2**63 - 1),
        "max_live": r.number(Z + "stage3_max_live_parameters", 10**9),
        "max_reuse": r.number(Z + "stage3_max_reuse_distance", 10**9),
        "sub_group": r.number(Z + "sub_group_size", 10**9),
        "secondary": r.number(Z + "zero_hpz_partition_size", 1) if stage == 3 else 1,
        "quantized_weights": stage == 3 and r.config.value(Z + "zero_quantized_weights") is True,
        "quantized_gradients": stage == 3 and r.config.value(Z + "zero_quantized_gradients") is True,
        "norm": r.config.value(Z + "compute_grad_norm") is not False,
    }


def leaf_classes(config: Config) -> tuple[str, ...] | None:
    """The classes of leaf modules that a config names or has by default, without their packages; None if the release has no such key."""
    classes = config.value(Z + "leaf_module.classes")
    return tuple(str(name).rpartition(".")[-1] for name in classes) if isinstance(classes, list) else None


def _unmodelled(r: _ConfigReading, stage: int) -> Iterator[tuple[str, float]]:
    """Features that the estimate leaves out, and the share by which the peak may be higher: for Muon and ZenFlow rounded up from
    differences to the real engine, for torch_autocast a guess.
    """
    if stage == 3 and str(r.config.value("optimizer.type")).lower() == "muon":
        yield "temporary tensors of Muon at stage 3", 0.1
    if stage == 3 and _has_zenflow(r):
        yield "ZenFlow's copies of important gradients", 0.2
    if stage == 3 and r.config.value("torch_autocast.enabled") is True:
        yield "the casts of torch_autocast at stage 3", 0.3


def _divisions(r: _ConfigReading, facts: Facts) -> tuple[int, int]:
    """The tensor and sequence parallel sizes."""
    world = facts.world_size or 1
    written = r.config.value("tensor_parallel.autotp_size")
    tensor = facts.tensor_parallel or (written if isinstance(written, int) and written > 1 else 1)
    split = r.config.value("sequence_parallel_size")
    sequence = facts.sequence_parallel or (split if isinstance(split, int) and split > 1 else 1)
    if (facts.pipeline_parallel or 1) > 1:
        raise PlanError("the estimate does not support --pipeline-parallel: only the program knows the pipeline stages")
    for number, what in ((tensor, "tensor"), (sequence, "sequence"), (tensor * sequence, "tensor and sequence")):
        if world % number:
            raise PlanError(f"--world-size {world} is not divisible by the {what} parallel size {number}")
    return tensor, sequence


def _local(facts: Facts, world: int, assumed: list[str]) -> int:
    """The ranks of one machine."""
    if facts.nodes is not None:
        if world % facts.nodes:
            raise PlanError(f"--world-size {world} is not divisible by --nodes {facts.nodes}")
        return world // facts.nodes
    if world > 8:
        assumed.append("8 ranks per machine (pass --nodes to change)")
    return min(world, 8)


def _device(r: _ConfigReading, section: str) -> str | None:
    """The device of an offload section: CPU, NVMe, or None."""
    path = f"zero_optimization.{section}.device"
    passed = r.config.replaced.get("optimizer") if section == "offload_optimizer" and r.config.value(path) is UNKNOWN else None
    if passed is not None and str(passed.value).rpartition(".")[2] in ON_CPU:
        r.assumed.append(f"{path} is {HOST}, because the optimizer that the program passes is for it ({passed.where})")
        return HOST
    device = r.get(path, "none")
    return str(device) if device in (HOST, NVME) else None


def _swap_elements(r: _ConfigReading) -> int:
    count = r.config.value("zero_optimization.offload_param.buffer_count")
    size = r.config.value("zero_optimization.offload_param.buffer_size")
    return int(count) * int(size) if count is not UNKNOWN and size is not UNKNOWN else 5 * 10**8


def _optimizer(r: _ConfigReading, types: dict[str, Any], device: str | None) -> dict[str, Any]:
    """The optimizer's name, and per element the bytes of its states and those that its step allocates."""
    written = r.config.value("optimizer.type")
    torch_adam, step, doubtful = False, 0, 0
    if not isinstance(written, str) or "optimizer" in r.config.replaced:
        used = used_optimizer(r.config)
        name, states = used.name, STATES[used.name] if used.states is None else used.states
        step = UNFUSED if name == "torch_adamw" else 0
        if name == "adamw" and not used.known:
            step, doubtful = (UNFUSED, UNFUSED) if _loader_is_before(r.config.facts, FUSED_DEFAULT) else (0, UNFUSED)
        r.assumed.append(used.why)
    else:
        name = written.lower()
        params = r.config.value("optimizer.params")
        params = params if isinstance(params, dict) else {}
        if name not in STATES:
            r.assumed.append(f'the optimizer "{written}" has two fp32 states per parameter, because its states are unknown')
        states = 4.0 if name in ("sgd", "musgd") and params.get("momentum") else STATES.get(name, 8.0)
        torch_adam = bool(params.get("torch_adam"))
        # torch's Adagrad also makes the product of gradient and rate
        step = 2 * UNFUSED if name == "adagrad" else UNFUSED if torch_adam else 0
    if name == "lion" and device:
        states = STATES["adam"]  # DeepSpeed's CPU Lion allocates a second moment that it never uses
    if types["master_bytes"] == 2 and r.config.value("bf16.bf16_optimizer_states") is True:
        states /= 2
    return {
        "optimizer": name,
        "optimizer_bytes": states,
        "torch_adam": torch_adam,
        "step_bytes": step,
        "doubtful_step_bytes": doubtful,
    }


def _loader_is_before(facts: Facts, release: Release) -> bool:
    """Whether the program has an earlier release of transformers, for certain."""
    return facts.integration is Integration.TRANSFORMERS and facts.loader_release is not None and facts.loader_release < release


def lists_experts(facts: Facts) -> bool | None:
    """Whether each expert is a module of its own; None if the release of transformers is unknown."""
    known = facts.integration is Integration.TRANSFORMERS and facts.loader_release is not None
    return _loader_is_before(facts, STACKED_EXPERTS) if known else None


def builds_partitioned(config: Config) -> bool:
    """Whether the program certainly enters `zero.Init`, under which it builds its model, or tells transformers of the config first."""
    program = config.setup.program if config.setup else None
    return program is not None and (_enters_zero_init(program) or _tells_before_loading(program))


def _tells_before_loading(program: Program) -> bool:
    """Whether the program certainly makes an `HfDeepSpeedConfig` of transformers before each model that it loads."""
    loads = list(program.events.of(LOADS))
    tells = [one for one in program.events.of(r"transformers\.(\w+\.)*HfDeepSpeedConfig") if one.certain and not one.flow]
    return bool(loads and tells) and all(one.certain and not one.flow and one.start > tells[0].start for one in loads)


def _enters_zero_init(program: Program) -> bool:
    calls = program.events.of(r"deepspeed\.(\w+\.)*zero\.(\w+\.)*Init")
    enabled = (call.argument("enabled", 7) for call in calls if call.certain)
    return any(given is None or is_true(given) for given in enabled)


def loads_partitioned(context: Context) -> bool:
    """Whether the program certainly divides its model at ZeRO stage 3 while it builds or loads it: it enters `zero.Init`, or loads the
    model after transformers knows the config.
    """
    program = context.setup.program if context.setup else None
    if program is None:
        return False
    late = context.facts.integration is Integration.TRANSFORMERS and program.loaded_early is None
    told = _tells_before_loading(program) or (late and any(call.certain for call in program.events.of(LOADS)))
    return _enters_zero_init(program) or told


def trains_with(integration: Integration | None) -> bool:
    """Whether the loader partitions a stage-3 model while it is built (`zero.Init`)."""
    return integration is not Integration.DEEPSPEED
