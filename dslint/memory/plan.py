"""The values of a config that affect memory, and the workload: sample length, activation checkpointing."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from dslint.config import UNKNOWN, Config
from dslint.errors import UserError
from dslint.facts import Facts, Integration, Release

HOST, NVME = "cpu", "nvme"

PLAIN_BF16 = Release(0, 17, 6)
"""The first release that runs bf16 without ZeRO like fp16. Earlier ones partition master weights and states, and keep fp32 gradients."""


class PlanError(UserError):
    """A config or facts for which no training step can be planned. The text is a sentence for the user."""


@dataclass(frozen=True, slots=True)
class Workload:
    """Properties of the program that the config does not contain.

    `length` is the number of tokens per sample. Every `checkpoint_every`-th block is checkpointed, 0 for none. `eager`: attention keeps its
    scores. `padded`: attention uses a mask. `full_loss`: logits are cast to fp32 before the loss. `loss_chunk` is the number of tokens with
    logits at a time, 0 for all. `zero_init`: a stage-3 model is partitioned while it is built.
    """

    length: int
    checkpoint_every: int = 0
    eager: bool = False
    padded: bool = False
    full_loss: bool = True
    loss_chunk: int = 0
    zero_init: bool = True


@dataclass(frozen=True, slots=True)
class Plan:
    """The choices that determine memory. Bucket sizes are in elements; names that end in `_bytes` are bytes per element.

    `replicas` is the number of data-parallel ranks; `local` the ranks of one machine. `optimizer_bytes` are the optimizer states per
    trained element. `host_parameters` are the NVMe-offloaded elements that stay on the host. `assumed` lists assumptions as sentences.
    """

    workload: Workload
    world: int
    local: int
    replicas: int
    tensor: int = 1
    sequence: int = 1
    stage: int = 0
    micro_batch: int = 1
    accumulation: int = 1
    model_bytes: int = 2
    master_bytes: int = 4
    optimizer_bytes: float = 8.0
    gradient_bytes: int = 2
    wire_bytes: int = 2
    optimizer: str = "adamw"
    foreach: bool = False
    optimizer_device: str | None = None
    parameter_device: str | None = None
    offload_ratio: float = 1.0
    swap_buffers: int = 4
    parameter_buffers: int = 0
    host_parameters: int = 1_000_000_000
    pinned: bool = True
    contiguous: bool = True
    overlap: bool = False
    reduce_scatter: bool = True
    reduce_bucket: int = 500_000_000
    prefetch_bucket: int = 50_000_000
    persistence: int = 100_000
    persistence_limit: int = 2**63 - 1
    max_live: int = 1_000_000_000
    max_reuse: int = 1_000_000_000
    sub_group: int = 1_000_000_000
    secondary: int = 1
    quantized_weights: bool = False
    norm: bool = True
    partitions_activations: bool = False
    activations_on_host: bool = False
    release: Release = field(default_factory=lambda: Facts().deepspeed)
    assumed: tuple[str, ...] = ()

    @property
    def half(self) -> bool:
        """Whether the model is in 16 bits."""
        return self.model_bytes == 2

    @property
    def tokens(self) -> int:
        """Tokens of a micro batch on one rank."""
        return self.micro_batch * self.workload.length // self.sequence

    @property
    def samples(self) -> int:
        """Samples of an optimizer step over all ranks."""
        return self.micro_batch * self.accumulation * self.replicas // self.sequence

    @property
    def keeps_full_gradients(self) -> bool:
        """Whether stage 1 runs with DeepSpeed's BF16_Optimizer, which keeps fp32 gradients of the whole model."""
        return self.stage == 1 and self.half and self.gradient_bytes == 4 and self.optimizer_device is None

    @property
    def compact(self) -> bool:
        """Whether gradients are accumulated in fp32, in a buffer of the size of the rank's partition."""
        return self.stage in (1, 2) and self.half and self.gradient_bytes == 4

    def but(self, **changes: Any) -> Plan:
        """The plan with other values, including those of the workload."""
        inner = {key: value for key, value in changes.items() if key in Workload.__slots__}
        outer = {key: value for key, value in changes.items() if key not in Workload.__slots__}
        return replace(self, **outer, workload=replace(self.workload, **inner))


STATES = {
    "adam": 8.0,
    "adamw": 8.0,
    "muadam": 8.0,
    "muadamw": 8.0,
    "lamb": 8.0,
    "onebitadam": 16.0,
    "onebitlamb": 16.0,
    "zerooneadam": 16.0,
    "lion": 4.0,
    "adagrad": 4.0,
    "muon": 4.0,
    "sgd": 0.0,
    "musgd": 0.0,
    "adam8bit": 2.0 + 2 * 4 / 256,
}
"""Bytes of optimizer states per trained element in fp32. 8-bit Adam keeps one byte for each of two moments and a scale per 256 of them.
Muon keeps one momentum for matrices; Adam's states for other weights are added from the model."""

_BYTES = {"fp32": 4, "float32": 4, "float": 4, "fp16": 2, "float16": 2, "half": 2, "bf16": 2, "bfloat16": 2}


LARGEST = 2.0**63
"""The largest number in a config that is estimated: no size in bytes, elements or samples is larger."""


class _Reading:
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
    facts, r = config.facts, _Reading(config, hidden)
    if facts.world_size is None:
        raise PlanError("No world size given: pass --world-size N")
    world = facts.world_size
    tensor, sequence = _divisions(r, facts)
    stage = int(r.get("zero_optimization.stage", 0))
    half = bool(r.get("bf16.enabled", assumed=True)) or bool(r.get("fp16.enabled", assumed=False))
    model_bytes = 2 if half else 4
    low = half and bool(
        r.config.value("bf16.bf16_master_weights_and_grads") is True or r.config.value("fp16.fp16_master_weights_and_grads") is True
    )
    gradient = r.config.value("data_types.grad_accum_dtype")
    if stage == 0 and facts.deepspeed < PLAIN_BF16 and r.config.value("bf16.enabled") is True:
        stage, gradient = 1, "fp32"
        r.assumed.append(
            f"DeepSpeed {facts.deepspeed} runs bf16 without ZeRO in BF16_Optimizer: like stage 1, with fp32 gradients of the whole model"
        )
    wire = r.config.value("communication_data_type")
    name, state_bytes, foreach = _optimizer(r)
    offload = _device(r, "offload_optimizer") if stage else None
    if name == "lion" and offload:
        state_bytes = STATES["adam"]  # DeepSpeed's CPU Lion allocates a second moment that it never uses
    parameters = _device(r, "offload_param") if stage == 3 else None
    z = "zero_optimization."
    if micro_batch is None:
        micro_batch = r.number("train_micro_batch_size_per_gpu", 1)
    if accumulation is None:
        accumulation = r.number("gradient_accumulation_steps", 1)
    if micro_batch < 1 or accumulation < 1:
        raise PlanError(
            f"the batch sizes do not match: micro batch size {micro_batch}, {accumulation} accumulation steps, {world} ranks; "
            "run `dslint check`"
        )
    overlap = r.config.value(z + "overlap_comm")
    return Plan(
        workload=workload,
        world=world,
        local=_local(facts, world, r.assumed),
        replicas=world // tensor,
        tensor=tensor,
        sequence=sequence,
        stage=stage,
        micro_batch=micro_batch,
        accumulation=accumulation,
        model_bytes=model_bytes,
        master_bytes=2 if low else 4,
        optimizer_bytes=state_bytes / 2 if low and r.config.value("bf16.bf16_optimizer_states") is True else state_bytes,
        gradient_bytes=_BYTES.get(str(gradient).removeprefix("torch."), model_bytes),
        wire_bytes=_BYTES.get(str(wire).removeprefix("torch."), 4 if sequence > 1 else model_bytes),
        optimizer=name,
        foreach=foreach,
        optimizer_device=offload,
        parameter_device=parameters,
        offload_ratio=float(r.config.value(z + "offload_optimizer.ratio") or 1.0) if offload and stage == 3 else 1.0,
        swap_buffers=int(r.config.value(z + "offload_optimizer.buffer_count") or 4),
        parameter_buffers=_swap_elements(r) if parameters == NVME else 0,
        host_parameters=r.number(z + "offload_param.max_in_cpu", 10**9) if parameters == NVME else 0,
        pinned=bool(r.config.value(z + "offload_optimizer.pin_memory")),
        contiguous=bool(r.get(z + "contiguous_gradients", assumed=True)),
        overlap=(stage == 3) if overlap is None or overlap is UNKNOWN else bool(overlap),
        reduce_scatter=bool(r.get(z + "reduce_scatter", assumed=True)),
        reduce_bucket=r.number(z + "reduce_bucket_size", 500_000_000, 1.0, 2),
        prefetch_bucket=r.number(z + "stage3_prefetch_bucket_size", 50_000_000, 0.9, 2),
        persistence=r.number(z + "stage3_param_persistence_threshold", 100_000, 10.0),
        persistence_limit=r.number(z + "stage3_model_persistence_threshold", 2**63 - 1),
        max_live=r.number(z + "stage3_max_live_parameters", 10**9),
        max_reuse=r.number(z + "stage3_max_reuse_distance", 10**9),
        sub_group=r.number(z + "sub_group_size", 10**9),
        secondary=r.number(z + "zero_hpz_partition_size", 1) if stage == 3 else 1,
        quantized_weights=stage == 3 and r.config.value(z + "zero_quantized_weights") is True,
        norm=r.config.value(z + "compute_grad_norm") is not False,
        partitions_activations=r.config.value("activation_checkpointing.partition_activations") is True,
        activations_on_host=r.config.value("activation_checkpointing.cpu_checkpointing") is True,
        release=facts.deepspeed,
        assumed=tuple(r.assumed),
    )


def _divisions(r: _Reading, facts: Facts) -> tuple[int, int]:
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


def _device(r: _Reading, section: str) -> str | None:
    """The device of an offload section: CPU, NVMe, or None."""
    device = r.get(f"zero_optimization.{section}.device", "none")
    return str(device) if device in (HOST, NVME) else None


def _swap_elements(r: _Reading) -> int:
    count = r.config.value("zero_optimization.offload_param.buffer_count")
    size = r.config.value("zero_optimization.offload_param.buffer_size")
    return int(count) * int(size) if count is not UNKNOWN and size is not UNKNOWN else 5 * 10**8


def _optimizer(r: _Reading) -> tuple[str, float, bool]:
    """The optimizer's name, the bytes of its states per element, and whether it uses torch's foreach implementation."""
    written = r.config.value("optimizer.type")
    if not isinstance(written, str):
        r.assumed.append("the program uses AdamW with two fp32 states per parameter, because the config has no optimizer")
        return "adamw", STATES["adamw"], False
    name = written.lower()
    params = r.config.value("optimizer.params")
    params = params if isinstance(params, dict) else {}
    if name not in STATES:
        r.assumed.append(f'the optimizer "{written}" has two fp32 states per parameter, because its states are unknown')
    states = STATES.get(name, 8.0)
    if name in ("sgd", "musgd") and params.get("momentum"):
        states = 4.0
    return name, states, bool(params.get("torch_adam"))


def trains_with(integration: Integration | None) -> bool:
    """Whether the loader partitions a stage-3 model while it is built (`zero.Init`)."""
    return integration is not Integration.DEEPSPEED
