"""DS5: SuperOffload, and settings of optimizer offload that DeepSpeed does not read."""

from __future__ import annotations

from collections.abc import Iterator

from dslint.config import Config
from dslint.diagnostics import Applicability, Effect, Phase
from dslint.facts import Release
from dslint.frameworks.engine_optimizer import runs_without_optimizer
from dslint.rule import Finding, bad, good, rule
from dslint.rules.helpers.examples import trained
from dslint.rules.helpers.fixes import without
from dslint.rules.helpers.offload import OFFLOAD_OPTIMIZER
from dslint.rules.helpers.zero import STAGE, excludes_stage_3, related_stage

SUPER = f"{OFFLOAD_OPTIMIZER}.super_offload"
CORES = f"{OFFLOAD_OPTIMIZER}.cpuadam_cores_perc"
RATIO = f"{OFFLOAD_OPTIMIZER}.ratio"
DEVICE = f"{OFFLOAD_OPTIMIZER}.device"

_STARTS = Release(0, 18, 4)
"""The first release whose SuperOffload is built: 0.18.0, 0.18.1 and 0.18.3 raised, asked by running them."""

_ASKS_FOR_GPU = Release(0, 18, 9)
"""The first release that asserts an NVIDIA GPU."""


@rule(
    "DS521",
    effect=Effect.IGNORED,
    watches=(
        "zero_optimization.offload_optimizer.super_offload",
        "zero_optimization.offload_optimizer.cpuadam_cores_perc",
        "zero_optimization.offload_optimizer.ratio",
    ),
    references=("deepspeed/runtime/zero/offload_config.py", "deepspeed/runtime/zero/stage3.py, DeepSpeedZeroOptimizer_Stage3"),
)
@bad(
    trained('"zero_optimization": {"stage": 2, "offload_optimizer": {"device": "cpu", "super_offload": true}}'),
    at="zero_optimization.offload_optimizer.super_offload",
    message="super_offload requires ZeRO stage 3, and the stage is 2: DeepSpeed uses ordinary offload.",
)
@bad(
    trained('"zero_optimization": {"stage": 0, "offload_optimizer": {"super_offload": true}}'),
    at="zero_optimization.offload_optimizer.super_offload",
    message="super_offload requires ZeRO stage 3, and the stage is 0: DeepSpeed ignores it.",
)
@bad(
    trained('"zero_optimization": {"stage": 3, "offload_optimizer": {"device": "cpu", "cpuadam_cores_perc": 0.5}}'),
    at="zero_optimization.offload_optimizer.cpuadam_cores_perc",
    message="DeepSpeed reads cpuadam_cores_perc 0.5 only with super_offload, which is false.",
    fixed='{"train_micro_batch_size_per_gpu": 4, "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}}, "zero_optimization": {"stage": 3, "offload_optimizer": {"device": "cpu"}}}',
)
@bad(
    trained('"zero_optimization": {"stage": 3, "offload_optimizer": {"device": "none", "ratio": 0.5}}'),
    at="zero_optimization.offload_optimizer.ratio",
    message='ratio 0.5 does nothing with the device "none": DeepSpeed does not offload the optimizer.',
    fixed='{"train_micro_batch_size_per_gpu": 4, "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}}, "zero_optimization": {"stage": 3, "offload_optimizer": {"device": "none"}}}',
)
@good(
    trained('"zero_optimization": {"stage": 3, "offload_optimizer": {"device": "cpu", "super_offload": true, "cpuadam_cores_perc": 0.5}}')
)
@good(trained('"zero_optimization": {"stage": 2, "offload_optimizer": {"device": "cpu", "super_offload": false}}'))
def offload_setting_not_read(config: Config) -> Iterator[Finding]:
    """DeepSpeed ignores `super_offload`, `cpuadam_cores_perc` or `ratio` without the setting that each requires.

    `super_offload` requires ZeRO stage 3, `cpuadam_cores_perc` requires `super_offload`, and `ratio` requires a device other than "none". DeepSpeed ignores
    them silently.

    A leftover that changes nothing (`cpuadam_cores_perc`, or `ratio` with an explicit device "none") is reported only with `--pedantic`.

    Remove the setting, or add what it requires.
    """
    stage, super_offload = config.value(STAGE), config.value(SUPER)
    if super_offload is True and stage in (0, 1, 2):
        offloads = stage > 0 and config.value(DEVICE) in ("cpu", "nvme")
        yield Finding(
            SUPER,
            f"super_offload requires ZeRO stage 3, and the stage is {stage}: DeepSpeed {'uses ordinary offload' if offloads else 'ignores it'}.",
            help="Remove it." if excludes_stage_3(config) else 'Set "stage": 3, or remove it.',
            related=related_stage(config),
        )
    if config.release >= (0, 18, 0) and config.has(CORES) and super_offload is False and config.value(CORES) != 0.8:
        yield Finding(
            CORES,
            f"DeepSpeed reads cpuadam_cores_perc {config.quote(CORES)} only with super_offload, which is false.",
            help="Remove it.",
            fix=without(config, CORES),
            effect=Effect.ADVICE,
            pedantic=True,
        )
    if config.has(RATIO) and config.value(RATIO) < 1 and stage == 3 and config.value(DEVICE) == "none":
        yield Finding(
            RATIO,
            f'ratio {config.quote(RATIO)} does nothing with the device "none": DeepSpeed does not offload the optimizer.',
            help='Write "device": "cpu", or remove it.',
            fix=without(config, RATIO),
            related=((DEVICE, "the device is set here"),) if config.has(DEVICE) else (),
            effect=Effect.ADVICE if config.has(DEVICE) else None,
            pedantic=config.has(DEVICE),
        )


@rule(
    "DS522",
    effect=Effect.CRASH,
    phase=Phase.INITIALIZE,
    watches=("zero_optimization.offload_optimizer.super_offload",),
    untried="it requires an NVIDIA GPU",
    references=("deepspeed/runtime/superoffload/superoffload_stage3.py, SuperOffloadOptimizer_Stage3.__init__",),
)
@bad(
    trained('"zero_optimization": {"stage": 3, "offload_optimizer": {"device": "cpu", "super_offload": true, "cpuadam_cores_perc": 0}}'),
    at="zero_optimization.offload_optimizer.cpuadam_cores_perc",
    message="cpuadam_cores_perc 0 leaves no CPU core to SuperOffload: DeepSpeed raises ValueError in deepspeed.initialize.",
    fixed='{"train_micro_batch_size_per_gpu": 4, "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}}, "zero_optimization": {"stage": 3, "offload_optimizer": {"device": "cpu", "super_offload": true}}}',
)
@bad(
    '{"train_micro_batch_size_per_gpu": 4, "optimizer": {"type": "Lion", "params": {"lr": 1e-4}}, "zero_optimization": {"stage": 3, "offload_optimizer": {"device": "cpu", "super_offload": true}}}',
    at="zero_optimization.offload_optimizer.super_offload",
    message='SuperOffload copies the parameters of Adam, and "Lion" does not have all of them: DeepSpeed raises KeyError in deepspeed.initialize.',
    fixed='{"train_micro_batch_size_per_gpu": 4, "optimizer": {"type": "Lion", "params": {"lr": 1e-4}}, "zero_optimization": {"stage": 3, "offload_optimizer": {"device": "cpu"}}}',
)
@bad(
    trained('"zero_optimization": {"stage": 3, "offload_optimizer": {"device": "cpu", "super_offload": true}}'),
    at="zero_optimization.offload_optimizer.super_offload",
    gpu="mi300x",
    message='SuperOffload requires an NVIDIA GPU, and mi300x is from another vendor: DeepSpeed raises AssertionError "SuperOffload only supports NVIDIA CUDA GPUs".',
    fixed='{"train_micro_batch_size_per_gpu": 4, "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}}, "zero_optimization": {"stage": 3, "offload_optimizer": {"device": "cpu"}}}',
)
@bad(
    trained('"zero_optimization": {"stage": 3, "offload_optimizer": {"device": "cpu", "super_offload": true}}'),
    at="zero_optimization.offload_optimizer.super_offload",
    deepspeed="0.18.3",
    message="SuperOffload cannot start before DeepSpeed 0.18.4: the engine passes it `timers` twice, and it raises TypeError in deepspeed.initialize.",
)
@good(trained('"zero_optimization": {"stage": 3, "offload_optimizer": {"device": "cpu", "super_offload": true}}'), gpu="gh200")
@good(
    trained('"zero_optimization": {"stage": 3, "offload_optimizer": {"device": "cpu", "super_offload": true}}'),
    gpu="mi300x",
    deepspeed="0.18.8",
)
def super_offload_cannot_start(config: Config) -> Iterator[Finding]:
    """SuperOffload requires Adam, at least one CPU core and an NVIDIA GPU.

    It runs its CPU Adam in a separate process, on `cpuadam_cores_perc` of the cores: 0 raises a `ValueError`. It copies the parameters of Adam: an optimizer
    without betas or epsilon raises a `KeyError`. On GPUs of other vendors it raises an `AssertionError` since 0.18.9.

    Use Adam or AdamW, and remove `cpuadam_cores_perc`.
    """
    if config.value(SUPER) is not True or not config.value(STAGE) >= 3 or config.release < (0, 18, 0) or runs_without_optimizer(config):
        return
    name, gpu = config.value("optimizer.type"), config.facts.gpu
    if config.release < _STARTS:
        yield Finding(
            SUPER,
            f"SuperOffload cannot start before DeepSpeed {_STARTS}: the engine passes it `timers` twice, and it raises TypeError in deepspeed.initialize.",
            help=f"Install DeepSpeed {_STARTS} or newer, or remove super_offload.",
        )
        return
    if config.value(CORES) == 0:
        yield Finding(
            CORES,
            "cpuadam_cores_perc 0 leaves no CPU core to SuperOffload: DeepSpeed raises ValueError in deepspeed.initialize.",
            help="Remove it: the default is 0.8.",
            fix=without(config, CORES),
        )
    if config.has("optimizer.type") and isinstance(name, str) and name.lower() in ("lion", "adagrad"):
        yield Finding(
            SUPER,
            f'SuperOffload copies the parameters of Adam, and "{name}" does not have all of them: DeepSpeed raises KeyError in deepspeed.initialize.',
            help='Use the type "AdamW", or remove super_offload.',
            fix=without(config, SUPER, Applicability.UNSAFE),
            related=(("optimizer.type", "the optimizer is set here"),),
        )
    elif gpu is not None and gpu.capability is None and config.release >= _ASKS_FOR_GPU:
        yield Finding(
            SUPER,
            f'SuperOffload requires an NVIDIA GPU, and {gpu} is from another vendor: DeepSpeed raises AssertionError "SuperOffload only supports NVIDIA CUDA GPUs".',
            help="Remove super_offload.",
            fix=without(config, SUPER),
        )
