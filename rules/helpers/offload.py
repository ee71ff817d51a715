"""What rules about offload share: its sections, the references, the device."""

from __future__ import annotations

from dslint.config import Config
from dslint.diagnostics import LoadStep, Phase
from dslint.frameworks.engine_optimizer import runs_without_optimizer
from dslint.record import Record
from dslint.rule import FixPlan
from dslint.rules.helpers.fixes import write
from dslint.rules.helpers.zero import STAGE, ZERO

OFFLOAD_OPTIMIZER = f"{ZERO}.offload_optimizer"
OFFLOAD_PARAM = f"{ZERO}.offload_param"
OFFLOAD_SECTIONS = (OFFLOAD_PARAM, OFFLOAD_OPTIMIZER)

OFFLOAD_DOCS = "https://www.deepspeed.ai/docs/config-json/#parameter-offloading"
PARAM_SWAPPER = "deepspeed/runtime/swap_tensor/partitioned_param_swapper.py, AsyncPartitionedParameterSwapper"

CPU_OPTIMIZERS = {"adam": "CPUAdam", "adamw": "CPUAdam", "adagrad": "CPUAdagrad", "lion": "CPULion"}
"""By optimizer type: the name of DeepSpeed's optimizer for the CPU, as its assertion gives it."""


def offloads_optimizer(config: Config) -> bool:
    """Whether ZeRO certainly offloads optimizer states."""
    offloads = config.value(f"{OFFLOAD_OPTIMIZER}.device") in ("cpu", "nvme") and bool(config.value(STAGE) >= 1)
    return offloads and not runs_without_optimizer(config)


def to_nvme(config: Config, section: str) -> bool:
    """Whether an offload section sends something to NVMe, which only ZeRO stage 3 does."""
    offloads = bool(config.value(STAGE) == 3 and config.value(f"{section}.device") == "nvme")
    return offloads and not (section == OFFLOAD_OPTIMIZER and runs_without_optimizer(config))


def offload_to_cpu(config: Config, section: str) -> FixPlan | None:
    """Write the device "cpu" into an offload section; None where DeepSpeed has no CPU version of the config's optimizer."""
    name = config.value("optimizer.type") if config.has("optimizer") else "adamw"
    if section == OFFLOAD_OPTIMIZER and not (isinstance(name, str) and name.lower() in CPU_OPTIMIZERS):
        return None
    return write(config, f"{section}.device", '"cpu"')


class When(Record):
    """When DeepSpeed raises: in words, and as the phase of a finding."""

    words: str
    phase: Phase
    step: LoadStep | None = None


def when_of(config: Config, section: str) -> When:
    """When DeepSpeed raises for the settings of an offload section: the swapper of parameters is made before the model."""
    from dslint.rules.helpers.models import parses_while_loading  # a plain check does not import what programs need

    if section != OFFLOAD_PARAM:
        return When("in deepspeed.initialize", Phase.INITIALIZE)
    if parses_while_loading(config):
        return When("while the model is loaded", Phase.LOAD, LoadStep.MODEL)
    return When("in deepspeed.initialize, or in deepspeed.zero.Init if that builds the model", Phase.INITIALIZE)
