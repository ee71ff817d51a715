"""How much host memory an optimizer needs that ZeRO offloads to it."""

from __future__ import annotations

from dslint.config import Config
from dslint.record import Record
from dslint.rule import CannotJudge
from dslint.rules.helpers.model import counted, may_train_part, trains_part
from dslint.rules.helpers.offload import OFFLOAD_OPTIMIZER, offloads_optimizer
from dslint.rules.helpers.precision import cpu_adam
from dslint.rules.helpers.zero import IN_HALF_PRECISION, STAGE, assumed_local_ranks, ranks_assumed

OFFLOADED_ADAM_BYTES = 18
"""Bytes on the host for each parameter with an offloaded Adam: master weight, gradient and two moments in fp32, and the updated weight in
16 bits, which without fp16 and bf16 has 4 bytes."""

PROCESS_BYTES = 3 * 2**29
"""Bytes on the host for a process with Python, torch and the CUDA libraries, at least: 1.5 GiB in job logs."""


class HostNeed(Record):
    """The bytes that a node needs at least, and what they are for."""

    size: int
    parts: tuple[str, ...]


def exceeds_host(config: Config) -> bool:
    """Whether the host is known to have too little memory for the optimizer."""
    memory = config.facts.host_memory
    if memory is None:
        return False
    try:
        need = need_of_adam(config)
    except CannotJudge:  # the size of the model
        return False
    return need is not None and not ranks_assumed(config) and need.size > memory


def need_of_adam(config: Config) -> HostNeed | None:
    """What an Adam needs whose states all lie in host memory; None if it is not known that it has such states."""
    from dslint.facts.gpus import in_words

    model, ranks = config.facts.model, config.facts.world_size
    local = assumed_local_ranks(config)
    if model is None or not ranks or local is None or not offloads_optimizer(config):
        return None
    if cpu_adam(config) is False or (config.facts.tensor_parallel or 1) > 1 or config.value(f"{OFFLOAD_OPTIMIZER}.ratio") < 1:
        return None
    if any(config.value(key) is not False for key in IN_HALF_PRECISION) or _may_have_other_states(config):
        return None
    if trains_part(config) or may_train_part(config):
        return None
    found = counted(model)
    parameters = model.parameters or found.size
    rounding = local * _rounding(config, parameters // ranks)
    each = OFFLOADED_ADAM_BYTES if _keeps_updated_weights(config) else OFFLOADED_ADAM_BYTES - 2
    share = f" x {local}/{ranks} ranks on a node" if local != ranks else ""
    parts = [f"{found.count} parameters x {each} bytes{share}", f"{in_words(local * PROCESS_BYTES)} for the processes"]
    parts += [f"{in_words(rounding)} because PyTorch rounds page-locked buffers up to powers of two"] if rounding else []
    return HostNeed(parameters * local // ranks * each + rounding + local * PROCESS_BYTES, tuple(parts))


def _keeps_updated_weights(config: Config) -> bool:
    """Whether the host has a buffer for the updated weights in 16 bits: at stage 3, and below it since DeepSpeed 0.17.0."""
    return config.release >= (0, 17, 0) or bool(config.value(STAGE) == 3)


def _may_have_other_states(config: Config) -> bool:
    """Whether the states may be smaller than those of Adam in fp32."""
    if config.has("optimizer"):
        return config.has("optimizer.params.fp32_optimizer_states") and config.value("optimizer.params.fp32_optimizer_states") is not True
    chosen = config.arguments.get("optim") if config.arguments is not None else None
    return config.value("zero_force_ds_cpu_optimizer") is False or (chosen is not None and "adamw" not in str(chosen.value))


def _rounding(config: Config, parameters: int) -> int:
    """The bytes that PyTorch adds to the page-locked buffers of a rank below stage 3: fp32 gradients, since DeepSpeed 0.14.1 the fp32 weights,
    and since 0.17.0 the updated weights.

    Source: DeepSpeed 0.9.0 to 0.19.8, runtime/zero/stage_1_and_2.py, the calls of `pin_memory`; PyTorch since 1.11, CachingHostAllocator.
    """
    if config.value(f"{OFFLOAD_OPTIMIZER}.pin_memory") is not True or config.value(STAGE) not in (1, 2):
        return 0
    sizes = [4 * parameters]
    sizes += [4 * parameters] if config.release >= (0, 14, 1) else []
    sizes += [2 * parameters] if _keeps_updated_weights(config) else []
    return sum((1 << (size - 1).bit_length()) - size for size in sizes)
