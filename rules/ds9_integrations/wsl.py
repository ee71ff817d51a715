"""DS9: what CUDA cannot do on the Windows Subsystem for Linux."""

from __future__ import annotations

from collections.abc import Iterator

from dslint.config import Config
from dslint.diagnostics import Effect
from dslint.rule import Finding, bad, good, rule
from dslint.rules.helpers.examples import trained
from dslint.rules.helpers.fixes import write
from dslint.rules.helpers.offload import OFFLOAD_OPTIMIZER, OFFLOAD_PARAM
from dslint.rules.helpers.zero import STAGE

_KERNEL = "5.15.167.4-microsoft-standard-WSL2"
_PINNED = trained('"zero_optimization": {"stage": 2, "offload_optimizer": {"device": "cpu", "pin_memory": true}}')


@rule(
    "DS963",
    effect=Effect.ADVICE,
    watches=(OFFLOAD_OPTIMIZER, OFFLOAD_PARAM),
    references=(
        "https://docs.nvidia.com/cuda/wsl-user-guide/index.html#known-limitations-for-linux-cuda-applications",
        "https://github.com/deepspeedai/DeepSpeed/issues/2977",
        "https://github.com/microsoft/WSL/issues/8447",
        "deepspeed/runtime/zero/stage3.py, _create_param_groups_fp16_flat_cpu_memory",
    ),
)
@bad(
    _PINNED,
    at=f"{OFFLOAD_OPTIMIZER}.pin_memory",
    kernel=_KERNEL,
    message='This machine runs WSL (kernel 5.15.167.4-microsoft-standard-WSL2), where CUDA can pin only little host memory: with pin_memory true, DeepSpeed may raise "CUDA error: out of memory" while it initializes.',
    fixed='{"train_micro_batch_size_per_gpu": 4, "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}}, "zero_optimization": {"stage": 2, "offload_optimizer": {"device": "cpu", "pin_memory": false}}}',
)
@bad(
    trained('"zero_optimization": {"stage": 2, "offload_optimizer": {"device": "cpu"}}'),
    at=OFFLOAD_OPTIMIZER,
    kernel=_KERNEL,
    message='This machine runs WSL (kernel 5.15.167.4-microsoft-standard-WSL2), where CUDA can pin only little host memory: with pin_memory true, the default of DeepSpeed 0.19.8, DeepSpeed may raise "CUDA error: out of memory" while it initializes.',
    fixed='{"train_micro_batch_size_per_gpu": 4, "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}}, "zero_optimization": {"stage": 2, "offload_optimizer": {"device": "cpu", "pin_memory": false}}}',
)
@bad(
    trained('"zero_optimization": {"stage": 3, "offload_param": {"device": "cpu", "pin_memory": false}}'),
    at=OFFLOAD_PARAM,
    kernel=_KERNEL,
    message='This machine runs WSL (kernel 5.15.167.4-microsoft-standard-WSL2), where CUDA can pin only little host memory: DeepSpeed pins the parameters of offload_param whatever pin_memory says, and may raise "CUDA error: out of memory" while it initializes.',
)
@good(_PINNED)
@good(_PINNED, kernel=_KERNEL, nodes=4)
@good(_PINNED.replace('"pin_memory": true', '"pin_memory": false'), kernel=_KERNEL)
@good(trained('"zero_optimization": {"stage": 2, "offload_optimizer": {"device": "cpu"}}'), kernel=_KERNEL, deepspeed="0.16.9")
def pinned_memory_on_wsl(config: Config) -> Iterator[Finding]:
    """On WSL, CUDA can pin only a small part of the host memory, and offload with pinned memory may run out of it.

    The limit depends on the driver and the version of Windows; users report limits of less than 1 GiB on machines with much more memory. Beyond it DeepSpeed raises
    `RuntimeError: CUDA error: out of memory` while it initializes, although the GPU has free memory. `pin_memory` of `offload_optimizer` is true by default since 0.19.5.
    At ZeRO stage 3 DeepSpeed pins the parameters that `offload_param` moves to the host, whatever `pin_memory` says.

    The rule runs if the kernel of this machine is that of WSL, and its environment has DeepSpeed. Disable it if the training runs on another machine.

    Write `"pin_memory": false` in `offload_optimizer`, or train on Linux without WSL.
    """
    kernel = config.context.kernel
    if kernel is None or (config.facts.nodes is not None and config.facts.nodes > 1):
        return
    limit = f"This machine runs WSL (kernel {kernel}), where CUDA can pin only little host memory"
    raised = 'DeepSpeed may raise "CUDA error: out of memory" while it initializes'
    if config.value(STAGE) >= 3 and config.value(f"{OFFLOAD_PARAM}.device") in ("cpu", "nvme"):
        yield Finding(
            OFFLOAD_PARAM,
            f"{limit}: DeepSpeed pins the parameters of offload_param whatever pin_memory says, and {raised.removeprefix('DeepSpeed ')}.",
            help='Offload only the optimizer, with "pin_memory": false, or train on Linux without WSL.',
            on="key",
            certain=False,
        )
        return
    key = f"{OFFLOAD_OPTIMIZER}.pin_memory"
    device = config.value(f"{OFFLOAD_OPTIMIZER}.device")
    if config.value(STAGE) >= 1 and device in ("cpu", "nvme") and config.value(key) is True:
        default = "" if config.has(key) else f", the default of DeepSpeed {config.release}"
        yield Finding(
            key if config.has(key) else OFFLOAD_OPTIMIZER,
            f"{limit}: with pin_memory true{default}, {raised}.",
            help='Write "pin_memory": false in offload_optimizer.',
            fix=write(config, key, "false"),
            on="member" if config.has(key) else "key",
            certain=False,
        )
