"""DS5: ZenFlow, which updates the important parameters on the GPU in every step and the others on the host from time to time."""

from __future__ import annotations

from collections.abc import Iterator

from dslint.config import Config
from dslint.diagnostics import Applicability, Effect, Phase
from dslint.rule import Finding, bad, good, rule
from dslint.rules.helpers.examples import trained
from dslint.rules.helpers.fixes import without, write
from dslint.rules.helpers.offload import OFFLOAD_OPTIMIZER, offload_to_cpu
from dslint.rules.helpers.zero import STAGE, ZERO, related_stage

ZENFLOW = f"{ZERO}.zenflow"
CONFIGURE = "deepspeed/runtime/zenflow/engine.py, configure_zenflow"
STAGE_1_AND_2 = "deepspeed/runtime/zenflow/zenflow_stage_1_and_2.py, ZenFlowZeroOptimizer"
OFFLOADED_WITH_OVERLAP = '"offload_optimizer": {"device": "cpu"}, "overlap_comm": true'
"""Members of `zero_optimization` that the examples share."""


STAGE_3_RELEASE = (0, 18, 1)
"""The first release that has ZenFlow at stage 3."""


def has_zenflow(config: Config) -> bool:
    """Whether ZenFlow is on: the section is written, even if empty, and the release supports it."""
    return config.release >= (0, 17, 5) and getattr(config.node(ZENFLOW), "members", None) is not None


@rule(
    "DS515",
    effect=Effect.CRASH,
    phase=Phase.INITIALIZE,
    watches=("zero_optimization.zenflow",),
    references=(f"{STAGE_1_AND_2}._configure_zenflow",),
)
@bad(
    trained('"zero_optimization": {"stage": 2, "zenflow": {"topk_ratio": 0.1}}'),
    at="zero_optimization.zenflow",
    message='zenflow requires optimizer offload: DeepSpeed raises ValueError "Zenflow must be used with cpu offload".',
    fixed='{"train_micro_batch_size_per_gpu": 4, "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}}, "zero_optimization": {"stage": 2, "zenflow": {"topk_ratio": 0.1}, "offload_optimizer": {"device": "cpu"}}}',
)
@bad(
    trained('"zero_optimization": {"stage": 0, "zenflow": {"topk_ratio": 0.1}}'),
    at="zero_optimization.zenflow",
    message="zenflow requires ZeRO, and the stage is 0: the first step raises AttributeError, because the optimizer has no ZenFlow methods.",
)
@good(trained('"zero_optimization": {"stage": 2}'))
def zenflow_without_offload(config: Config) -> Iterator[Finding]:
    """ZenFlow requires optimizer offload and a ZeRO stage.

    Without offload DeepSpeed raises `ValueError: Zenflow must be used with cpu offload` at stages 1 and 2. At stage 0 the optimizer has no ZenFlow methods, and
    the first backward pass raises an `AttributeError`.

    Add `"offload_optimizer": {"device": "cpu"}` and a ZeRO stage, or remove `zenflow`.
    """
    stage, device = config.value(STAGE), config.value(f"{OFFLOAD_OPTIMIZER}.device")
    if not has_zenflow(config):
        return
    if (
        stage in (1, 2)
        and (device == "none" or (device is None and not config.has(OFFLOAD_OPTIMIZER)))
        and not config.has(f"{ZERO}.cpu_offload")
    ):
        yield Finding(
            ZENFLOW,
            'zenflow requires optimizer offload: DeepSpeed raises ValueError "Zenflow must be used with cpu offload".',
            help='Add "offload_optimizer": {"device": "cpu"}, or remove zenflow.',
            fix=offload_to_cpu(config, OFFLOAD_OPTIMIZER),
            on="key",
            related=related_stage(config),
        )
    elif stage == 0:
        yield Finding(
            ZENFLOW,
            "zenflow requires ZeRO, and the stage is 0: the first step raises AttributeError, because the optimizer has no ZenFlow methods.",
            help='Set "stage": 1, 2 or 3 with "offload_optimizer": {"device": "cpu"}, or remove zenflow.',
            on="key",
            related=related_stage(config),
            phase=Phase.STEP,
        )


@rule(
    "DS516",
    effect=Effect.CRASH,
    phase=Phase.INITIALIZE,
    watches=("zero_optimization.zenflow",),
    references=(CONFIGURE,),
)
@bad(
    trained(f'"zero_optimization": {{"stage": 2, {OFFLOADED_WITH_OVERLAP}, "zenflow": {{"select_interval": 5}}}}'),
    at="zero_optimization.zenflow.select_interval",
    message='select_interval 5 conflicts with the strategy "auto": DeepSpeed raises Warning "If use auto select strategy, select_interval will be set to 1", which ends the program.',
    fixed='{"train_micro_batch_size_per_gpu": 4, "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}}, "zero_optimization": {"stage": 2, "offload_optimizer": {"device": "cpu"}, "overlap_comm": true, "zenflow": {}}}',
)
@bad(
    trained(f'"zero_optimization": {{"stage": 2, {OFFLOADED_WITH_OVERLAP}, "zenflow": {{"select_strategy": "step"}}}}'),
    at="zero_optimization.zenflow.select_strategy",
    message='select_strategy "step" requires a number in select_interval: DeepSpeed raises ValueError "If don\'t use auto select strategy, select_interval must be a number".',
    fixed='{"train_micro_batch_size_per_gpu": 4, "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}}, "zero_optimization": {"stage": 2, "offload_optimizer": {"device": "cpu"}, "overlap_comm": true, "zenflow": {}}}',
)
@bad(
    trained(
        f'"zero_optimization": {{"stage": 2, {OFFLOADED_WITH_OVERLAP}, "zenflow": {{"select_strategy": "step", "select_interval": 4, "update_interval": 8}}}}'
    ),
    at="zero_optimization.zenflow.select_interval",
    message='select_interval 4 is less than update_interval 8: DeepSpeed raises ValueError "Select interval must be greater or equal to update interval".',
    fixed='{"train_micro_batch_size_per_gpu": 4, "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}}, "zero_optimization": {"stage": 2, "offload_optimizer": {"device": "cpu"}, "overlap_comm": true, "zenflow": {"select_strategy": "step", "select_interval": 8, "update_interval": 8}}}',
)
@good(trained('"zero_optimization": {"stage": 2}'))
def zenflow_intervals(config: Config) -> Iterator[Finding]:
    """ZenFlow's `select_strategy` and its intervals contradict each other.

    With the strategy "auto" DeepSpeed chooses the interval and rejects a number. With "step" or "epoch" the interval must be a number, and with "step" it must
    be at least `update_interval`. DeepSpeed raises an exception in `deepspeed.initialize`. In the first case it is a `Warning`, which also ends the program.

    Remove both keys, or write both.
    """
    if not has_zenflow(config):
        return
    strategy, interval, update = (config.value(f"{ZENFLOW}.{name}") for name in ("select_strategy", "select_interval", "update_interval"))
    key = f"{ZENFLOW}.select_interval"
    if strategy == "auto" and isinstance(interval, int):
        yield Finding(
            key,
            f'select_interval {interval} conflicts with the strategy "auto": DeepSpeed raises Warning "If use auto select strategy, select_interval will be set to 1", which ends the program.',
            help='Remove it, or write "select_strategy": "step".',
            fix=without(config, key, Applicability.SAFE if config.has(f"{ZENFLOW}.select_strategy") else Applicability.UNSAFE),
        )
    elif strategy in ("step", "epoch") and interval == "auto":
        yield Finding(
            f"{ZENFLOW}.select_strategy",
            f'select_strategy "{strategy}" requires a number in select_interval: DeepSpeed raises ValueError "If don\'t use auto select strategy, select_interval must be a number".',
            help='Add "select_interval", a number, or remove select_strategy.',
            fix=without(config, f"{ZENFLOW}.select_strategy", Applicability.UNSAFE),
        )
    elif strategy == "step" and isinstance(interval, int) and isinstance(update, int) and 0 != interval < update:
        yield Finding(
            key,
            f'select_interval {interval} is less than update_interval {update}: DeepSpeed raises ValueError "Select interval must be greater or equal to update interval".',
            help=f"Write {update} or more.",
            fix=write(config, key, str(update)),
            related=((f"{ZENFLOW}.update_interval", "the update interval is set here"),),
        )


@rule(
    "DS517",
    effect=Effect.CRASH,
    phase=Phase.INITIALIZE,
    watches=("zero_optimization.zenflow.offload",),
    references=(f"{STAGE_1_AND_2}.__init__", "deepspeed/runtime/zenflow/engine_stage3.py, _initialize_zenflow_stage3_epilogue"),
)
@bad(
    trained('"zero_optimization": {"stage": 2, "offload_optimizer": {"device": "cpu"}, "zenflow": {"offload": true}}'),
    at="zero_optimization.zenflow.offload",
    message='zenflow.offload requires overlap_comm, which is false at stage 2 by default: DeepSpeed raises AssertionError "offload selective optimizer should be used with overlap_comm".',
    fixed='{"train_micro_batch_size_per_gpu": 4, "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}}, "zero_optimization": {"stage": 2, "offload_optimizer": {"device": "cpu"}, "zenflow": {"offload": true}, "overlap_comm": true}}',
)
@good(trained('"zero_optimization": {"stage": 2, "offload_optimizer": {"device": "cpu"}}'))
@good(
    trained(
        '"zero_allow_untested_optimizer": true, "zero_optimization": {"stage": 3, "overlap_comm": false, "offload_optimizer": {"device": "cpu", "pin_memory": true}, "zenflow": {"offload": true}}'
    ),
    deepspeed="0.18.0",
)
def zenflow_offload_without_overlap(config: Config) -> Iterator[Finding]:
    """`zenflow.offload` requires `overlap_comm`.

    `zenflow.offload` also moves the states of the important parameters to the host, and fetches them while DeepSpeed reduces gradients. Without `overlap_comm`,
    which is false by default at stages 1 and 2, DeepSpeed raises an `AssertionError`.

    Write `"overlap_comm": true` in `zero_optimization`.
    """
    key, stage, overlap = f"{ZENFLOW}.offload", config.value(STAGE), f"{ZERO}.overlap_comm"
    offloaded = config.release >= STAGE_3_RELEASE if stage == 3 else config.value(f"{OFFLOAD_OPTIMIZER}.device") in ("cpu", "nvme")
    if has_zenflow(config) and stage >= 1 and offloaded and config.value(key) is True and config.value(overlap) is False:
        yield Finding(
            key,
            f'zenflow.offload requires overlap_comm, which is false{"" if config.has(overlap) else f" at stage {stage} by default"}: DeepSpeed raises AssertionError "offload selective optimizer should be used with overlap_comm".',
            help='Write "overlap_comm": true in zero_optimization.',
            fix=write(config, overlap, "true", Applicability.UNSAFE if config.has(overlap) else Applicability.SAFE),
            related=((overlap, "overlap_comm is false here"),) if config.has(overlap) else (),
        )


@rule("DS518", effect=Effect.SILENT, watches=("zero_optimization.zenflow",), references=(CONFIGURE,))
@bad(
    trained(
        f'"gradient_accumulation_steps": 8, "zero_optimization": {{"stage": 2, {OFFLOADED_WITH_OVERLAP}, "zenflow": {{"select_strategy": "step", "select_interval": 16, "update_interval": 4}}}}'
    ),
    at="gradient_accumulation_steps",
    message="ZenFlow replaces gradient_accumulation_steps 8 by zenflow.update_interval, 4.",
)
@bad(
    trained(
        f'"gradient_accumulation_steps": 8, "zero_optimization": {{"stage": 2, {OFFLOADED_WITH_OVERLAP}, "zenflow": {{"topk_ratio": 0.1}}}}'
    ),
    at="gradient_accumulation_steps",
    message='ZenFlow does not use gradient_accumulation_steps 8: with update_interval "auto" it determines the number of steps between updates during training.',
)
@good(
    trained(
        f'"gradient_accumulation_steps": 4, "zero_optimization": {{"stage": 2, {OFFLOADED_WITH_OVERLAP}, "zenflow": {{"select_strategy": "step", "select_interval": 16, "update_interval": 4}}}}'
    )
)
@good(trained(f'"zero_optimization": {{"stage": 2, {OFFLOADED_WITH_OVERLAP}, "zenflow": {{"topk_ratio": 0.1}}}}'))
def zenflow_sets_accumulation(config: Config) -> Iterator[Finding]:
    """ZenFlow replaces `gradient_accumulation_steps` by its own update interval.

    DeepSpeed overwrites `gradient_accumulation_steps` with `zenflow.update_interval` when it builds the engine. With "auto", the default, ZenFlow determines the
    number of steps between updates during training, and DeepSpeed does not use the written number.

    Write the same number in both, or remove `gradient_accumulation_steps`.
    """
    key = "gradient_accumulation_steps"
    steps, update = config.value(key), config.value(f"{ZENFLOW}.update_interval")
    if not has_zenflow(config) or not config.value(STAGE) >= 1 or not config.has(key) or not isinstance(steps, int | float) or steps == 1:
        return
    if isinstance(update, int) and update != steps:
        message = f"ZenFlow replaces gradient_accumulation_steps {config.quote(key)} by zenflow.update_interval, {update}."
    elif update == "auto":
        message = (
            f"ZenFlow does not use gradient_accumulation_steps {config.quote(key)}: "
            'with update_interval "auto" it determines the number of steps between updates during training.'
        )
    else:
        return
    yield Finding(
        key,
        message,
        help=f'Write "update_interval": {steps:g} in zenflow.'
        if config.is_auto(key)
        else f'Write "update_interval": {config.quote(key)} in zenflow, or remove gradient_accumulation_steps.',
        related=((ZENFLOW, "ZenFlow is on here"),),
    )


CPU_ADAM_PARAMS = {"bias_correction": True, "adam_w_mode": True, "fp32_optimizer_states": True, "torch_adam": False}
"""Parameters of DeepSpeed's Adam that torch's AdamW does not accept, with their defaults."""

TAKEN_OUT = ("adam_w_mode", "torch_adam")
"""Those that releases before 0.19.1 take out of `optimizer.params`, so that ZenFlow's AdamW does not get them."""


@rule(
    "DS519",
    effect=Effect.CRASH,
    phase=Phase.INITIALIZE,
    watches=("zero_optimization.zenflow",),
    references=(f"{STAGE_1_AND_2}.__init__", "deepspeed/ops/adam/zenflow_torch_adam.py, ZenFlowSelectiveAdamW"),
)
@bad(
    f'{{"train_micro_batch_size_per_gpu": 4, "optimizer": {{"type": "AdamW", "params": {{"lr": 1e-4, "bias_correction": true}}}}, "zero_optimization": {{"stage": 2, {OFFLOADED_WITH_OVERLAP}, "zenflow": {{"topk_ratio": 0.1}}}}}}',
    at="optimizer.params.bias_correction",
    message="ZenFlow's AdamW does not accept bias_correction: DeepSpeed raises TypeError \"AdamW.__init__() got an unexpected keyword argument 'bias_correction'\".",
    fixed='{"train_micro_batch_size_per_gpu": 4, "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}}, "zero_optimization": {"stage": 2, "offload_optimizer": {"device": "cpu"}, "overlap_comm": true, "zenflow": {"topk_ratio": 0.1}}}',
)
@bad(
    f'{{"train_micro_batch_size_per_gpu": 4, "optimizer": {{"type": "AdamW", "params": {{"lr": 1e-4, "fp32_optimizer_states": true}}}}, "zero_optimization": {{"stage": 2, {OFFLOADED_WITH_OVERLAP}, "zenflow": {{"topk_ratio": 0.1}}}}}}',
    at="optimizer.params.fp32_optimizer_states",
    message="ZenFlow's AdamW does not accept fp32_optimizer_states: DeepSpeed raises TypeError \"AdamW.__init__() got an unexpected keyword argument 'fp32_optimizer_states'\".",
    fixed='{"train_micro_batch_size_per_gpu": 4, "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}}, "zero_optimization": {"stage": 2, "offload_optimizer": {"device": "cpu"}, "overlap_comm": true, "zenflow": {"topk_ratio": 0.1}}}',
)
@bad(
    f'{{"train_micro_batch_size_per_gpu": 4, "optimizer": {{"type": "AdamW"}}, "zero_optimization": {{"stage": 2, {OFFLOADED_WITH_OVERLAP}, "zenflow": {{"topk_ratio": 0.1}}}}}}',
    at="zero_optimization.zenflow",
    message='ZenFlow builds a second optimizer from optimizer.params, which is missing: DeepSpeed raises TypeError "argument after ** must be a mapping, not NoneType".',
)
@good(trained('"zero_optimization": {"stage": 2, "offload_optimizer": {"device": "cpu"}}'))
@good(
    f'{{"train_micro_batch_size_per_gpu": 4, "optimizer": {{"type": "AdamW", "params": {{"lr": 1e-4, "adam_w_mode": true}}}}, "zero_allow_untested_optimizer": true, "zero_optimization": {{"stage": 2, {OFFLOADED_WITH_OVERLAP}, "zenflow": {{"topk_ratio": 0.1}}}}}}',
    deepspeed="0.19.0",
)
def zenflow_optimizer(config: Config) -> Iterator[Finding]:
    """ZenFlow's selective AdamW does not accept these `optimizer.params`.

    At stages 1 and 2 DeepSpeed passes `optimizer.params` to two optimizers: its CPU Adam on the host, and ZenFlow's AdamW for the important parameters. The
    latter accepts the parameters of torch's AdamW. It raises a `TypeError` for any other, and if `params` is missing.

    Remove the parameters that only DeepSpeed's Adam accepts. Write `params` with at least `lr`.
    """
    if not has_zenflow(config) or config.value(STAGE) not in (1, 2) or config.value(f"{OFFLOAD_OPTIMIZER}.device") not in ("cpu", "nvme"):
        return
    if config.has("optimizer.type") and config.lacks("optimizer.params"):
        yield Finding(
            ZENFLOW,
            'ZenFlow builds a second optimizer from optimizer.params, which is missing: DeepSpeed raises TypeError "argument after ** must be a mapping, not NoneType".',
            help='Add "params" with at least "lr" to the optimizer.',
            on="key",
            related=(("optimizer", "the optimizer is set here"),),
        )
        return
    for name, default in CPU_ADAM_PARAMS.items():
        key = f"optimizer.params.{name}"
        if config.has(key) and not (name in TAKEN_OUT and config.release < (0, 19, 1)):
            yield Finding(
                key,
                f"ZenFlow's AdamW does not accept {name}: DeepSpeed raises TypeError \"AdamW.__init__() got an unexpected keyword argument '{name}'\".",
                help="Remove it.",
                fix=without(config, key, Applicability.SAFE if config.literal(key) is default else Applicability.UNSAFE),
                related=((ZENFLOW, "ZenFlow is on here"),),
            )
            return
