"""The job of a planned training step: what the step-time model reads, from a model, a plan and the rates of the machines."""

from __future__ import annotations

from functools import lru_cache

from dslint.config import Config
from dslint.facts.calibration import Calibration
from dslint.facts.gpus import Gpu
from dslint.memory.costs import Seconds, Speeds
from dslint.memory.estimate import Estimate
from dslint.memory.layout import lay_out, share_on_host
from dslint.memory.plan import Plan
from dslint.memory.shapes import Model
from dslint.record import Record
from dslint.speed.constants import FITTED
from dslint.speed.hardware import TO_HOST, assumed_network, hardware_of, host_memory
from dslint.speed.job import EXPERT_MODULES, Job
from dslint.speed.optimizer import ADAM
from dslint.speed.step import COPIES, DISK, FETCHED, HOST, NETWORK, SEQUENCE, TENSOR, UPDATED, StepTime, step


class Rates(Record):
    """Bandwidths that were given, in bytes per second: `link` between the GPUs of a machine, `network` between machines (of a machine),
    `pcie` between GPU and host, `nvme` of a machine's disks. None: that of the GPU's data sheet, or assumed.
    """

    link: float | None = None
    network: float | None = None
    pcie: float | None = None
    nvme: float | None = None


NO_RATES = Rates()

NVME = 6e9
"""Bytes per second of a machine's NVMe disks, where none was given: two disks of PCIe 4 in writing."""

PRECISIONS = {False: "fp32", True: "bf16"}


def precision_of(config: Config, plan: Plan) -> str:
    """The precision of the model: `fp16`, `bf16` or `fp32`."""
    return "fp16" if config.value("fp16.enabled") is True else PRECISIONS[plan.half]


def job_of(model: Model, plan: Plan, precision: str, rates: Rates = NO_RATES, passed: int | None = None) -> Job:
    """The job of a plan. `passed` are the parameters that a token passes, if they are known already."""
    hardware, measured = hardware_of(plan.gpu), plan.calibration
    workload, block = plan.workload, model.blocks[0]
    given = {"pcie": rates.pcie or (measured and measured.pcie), "link": rates.link}
    length = (model.tokens or workload.length) * (2 if workload.pairs else 1)
    return Job(
        hardware=hardware,
        precision=precision,
        params=float(model.size),
        active=float(active(model) if passed is None else passed),
        trained=float(model.trained),
        layers=len(model.blocks),
        hidden=model.hidden,
        heads=block.heads,
        vocabulary=model.vocabulary,
        length=length,
        attended=model.tokens or workload.length,
        micro_batch=plan.micro_batch,
        accumulation=plan.accumulation,
        gpus=plan.world,
        local=plan.local,
        link=rates.link or hardware.link * 1e9,
        network=rates.network or assumed_network(hardware, plan.local),
        pcie=given["pcie"] or hardware.host * 1e9,
        nvme=rates.nvme or NVME,
        tensor=plan.tensor,
        sequence=plan.sequence,
        stage=plan.stage,
        recomputed=1 / workload.checkpoint_every if workload.checkpoint_every else 0.0,
        flash=not (workload.eager or model.softcap),
        kernel=workload.attention,
        masked=workload.padded,
        fused=workload.fused,
        copies=workload.copies,
        modules=modules(model, listed=plan.lists_experts),
        adapted=float(adapted(model)),
        optimizer_on=plan.optimizer_device,
        parameters_on=plan.parameter_device,
        activations_on_host=plan.activations_on_host,
        offloaded=share_on_host(lay_out(model, plan), plan) if plan.offload_ratio < 1 else 1.0,
        beside_backward=plan.super_offload and not plan.clips,
        pinned=plan.pinned,
        overlap=plan.overlap,
        secondary=plan.secondary,
        quantized_weights=plan.quantized_weights,
        quantized_gradients=plan.quantized_gradients,
        wire_bytes=float(plan.wire_bytes),
        optimizer_bytes=min(ADAM, 2 * (plan.master_bytes + plan.optimizer_bytes) + 2 * plan.model_bytes),
        host_rate=measured.adam if measured else None,
        given=tuple(name for name, rate in given.items() if rate),
    )


def step_of(config: Config, found: Estimate, rates: Rates = NO_RATES) -> StepTime | None:
    """The step of an estimate; None if the GPU is unknown, or the layers of the model are."""
    if found.plan.gpu is None or not found.model.blocks or found.is_lower_bound:
        return None
    return step(job_of(found.model, found.plan, precision_of(config, found.plan), rates))


def seconds_of(config: Config, found: Estimate, rates: Rates = NO_RATES) -> Seconds:
    """The step of an estimate by what takes the time, for the comparisons of `fit`. An unknown GPU counts as an A100."""
    job = job_of(found.model, found.plan, precision_of(config, found.plan), rates)
    done = step(job)
    link = sum(done.of(kind) for kind in (TENSOR, SEQUENCE, NETWORK, UPDATED))
    moved = done.of(COPIES) + done.of(FETCHED)
    rest = done.seconds - link - moved - done.of(DISK) - done.of(HOST)
    return Seconds(rest, link, moved, done.of(DISK), done.of(HOST))


def speeds_of(rates: Rates, calibration: Calibration | None, gpu: Gpu | None) -> Speeds:
    """The speeds that a report of `fit` states."""
    pcie, host = (calibration.pcie, calibration.adam) if calibration else (None, None)
    return Speeds(
        rates.pcie or pcie or hardware_of(gpu).host * TO_HOST * 1e9,
        rates.nvme or NVME,
        host or FITTED.adam * host_memory(hardware_of(gpu), 1),
    )


@lru_cache(maxsize=32)
def modules(model: Model, *, listed: bool) -> int:
    """The modules with weights of a model's layers; `listed`: each expert is a module of its own."""
    found = 0
    for block in model.blocks:
        found += len({weight.module for weight in block.weights})
        if listed and block.experts:
            found += EXPERT_MODULES * block.experts.number
    return found


@lru_cache(maxsize=32)
def adapted(model: Model) -> int:
    """The features of the inputs and outputs of the modules that have adapters: each has a matrix from or to its rank."""
    return sum(max(weight.shape) for weight in model.weights if ".lora_" in weight.name)


def active(model: Model) -> int:
    """The parameters that a token passes: those of its layers, without the experts that it skips, and of the head."""
    found = model.vocabulary * model.hidden
    for block in model.blocks:
        weights = sum(weight.size for weight in block.weights)
        if block.experts:
            stacked = sum(weight.size for weight in block.weights if len(weight.shape) == 3)
            weights -= round(stacked * (1 - block.experts.active / block.experts.number))
        found += weights
    return found
