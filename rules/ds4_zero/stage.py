"""DS4: the ZeRO stage itself: whether it is written, what it means, whether it helps."""

from __future__ import annotations

import re
from collections.abc import Iterator

from dslint.config import UNKNOWN, Config
from dslint.diagnostics import Applicability, Effect, Phase
from dslint.facts import Integration
from dslint.frameworks.engine_optimizer import runs_without_optimizer
from dslint.rule import Finding, FixPlan, bad, good, rule
from dslint.rules.helpers.cost import slower
from dslint.rules.helpers.examples import trained
from dslint.rules.helpers.fixes import write
from dslint.rules.helpers.keys import is_on
from dslint.rules.helpers.model import exceeds_gpu
from dslint.rules.helpers.zero import STAGE, STAGE_3_KEYS, ZERO, requires_zero


@rule(
    "DS402",
    effect=Effect.SILENT,
    watches=("zero_optimization",),
    references=("deepspeed/runtime/zero/config.py, DeepSpeedZeroConfig",),
)
@bad(
    '{"train_micro_batch_size_per_gpu": 4, "zero_optimization": {"overlap_comm": true, "reduce_bucket_size": 5e8}}',
    at="zero_optimization",
    message="zero_optimization has no stage: DeepSpeed uses stage 0, so ZeRO is off and the other settings in this section do nothing.",
)
@bad(
    '{"train_micro_batch_size_per_gpu": 4, "zero_optimization": {"offload_param": {"device": "cpu"}}}',
    at="zero_optimization",
    message="zero_optimization has no stage: DeepSpeed uses stage 0, so ZeRO is off and the other settings in this section do nothing.",
    fixed='{"train_micro_batch_size_per_gpu": 4, "zero_optimization": {"offload_param": {"device": "cpu"}, "stage": 3}}',
)
@good('{"train_micro_batch_size_per_gpu": 4, "zero_optimization": {"stage": 0, "overlap_comm": true}}')
@good('{"train_micro_batch_size_per_gpu": 4}')
def zero_without_stage(config: Config) -> Iterator[Finding]:
    """`zero_optimization` has no `stage`, so ZeRO is off.

    Without `stage` DeepSpeed uses stage 0 and partitions nothing. The buckets and offload settings in the section have no effect, and DeepSpeed prints
    neither an error nor a warning.

    Write the stage: 1 partitions the optimizer states, 2 also the gradients, 3 also the parameters. Write `"stage": 0` to state that ZeRO is off.
    """
    members = getattr(config.node(ZERO), "members", None)
    if members is None or config.has(STAGE) or config.resolved(STAGE).value is UNKNOWN:
        return
    if any(violation.raises or violation.meant == ("zero_optimization", "stage") for violation in config.violations):
        return
    yield Finding(
        ZERO,
        "zero_optimization has no stage: DeepSpeed uses stage 0, so ZeRO is off"
        + (" and the other settings in this section do nothing." if members else "."),
        help='Add "stage": 1, 2 or 3, or add "stage": 0 to keep ZeRO off.',
        fix=_write_stage_3(config),
        on="key",
        effect=None if members else Effect.ADVICE,
    )


def _write_stage_3(config: Config) -> FixPlan | None:
    """Write stage 3, where the config sets something that works only at stage 3."""
    offloads = config.value(f"{ZERO}.offload_param.device") in ("cpu", "nvme")
    return write(config, STAGE, "3") if offloads or any(is_on(config, key) for key in STAGE_3_KEYS) else None


@rule(
    "DS439",
    effect=Effect.SILENT,
    watches=("zero_optimization.stage",),
    references=("deepspeed/runtime/zero/config.py, ZeroStageEnum",),
)
@bad(
    trained('"zero_optimization": {"stage": true}'),
    at=STAGE,
    message="DeepSpeed reads stage true as stage 1: it partitions the optimizer states, but not the gradients or the parameters.",
    fixed='{"train_micro_batch_size_per_gpu": 4, "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}}, "zero_optimization": {"stage": 1}}',
)
@good(trained('"zero_optimization": {"stage": 1}'))
@good(trained('"zero_optimization": {"stage": false}'))
def stage_is_a_boolean(config: Config) -> Iterator[Finding]:
    """DeepSpeed reads `"stage": true` as stage 1.

    ZeRO has numbered stages and no on/off switch. DeepSpeed looks up `true` among the numbers 0 to 3 and finds 1: it partitions the optimizer states, but not
    the gradients or the parameters.

    Write the stage you want.
    """
    if config.literal(STAGE) is True and config.release >= (0, 15, 0):
        yield Finding(
            STAGE,
            "DeepSpeed reads stage true as stage 1: it partitions the optimizer states, but not the gradients or the parameters.",
            help='Write "stage": 1, 2 or 3.',
            fix=write(config, STAGE, "1"),
        )


@rule(
    "DS441",
    effect=Effect.SILENT,
    watches=("zero_optimization",),
    references=("deepspeed/runtime/zero/config.py, read_zero_config_deprecated",),
)
@bad(
    trained('"zero_optimization": true'),
    at="zero_optimization",
    message="DeepSpeed reads zero_optimization true as stage 1, which does not partition gradients or parameters.",
    fixed='{"train_micro_batch_size_per_gpu": 4, "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}}, "zero_optimization": {"stage": 1}}',
)
@bad(
    '{"train_batch_size": "auto", "zero_optimization": false}',
    at="zero_optimization",
    integration="transformers",
    message="DeepSpeed reads zero_optimization false as stage 0, and the Hugging Face Trainer raises AttributeError \"'bool' object has no attribute 'get'\".",
    fixed='{"train_batch_size": "auto", "zero_optimization": {"stage": 0}}',
)
@good(trained('"zero_optimization": {"stage": 1}'))
@good(trained('"zero_optimization": false'))
def zero_is_a_boolean(config: Config) -> Iterator[Finding]:
    """`zero_optimization` is a boolean, the form of the first releases: `true` means stage 1.

    DeepSpeed still reads this form, with a warning: it partitions the optimizer states, but not the gradients or the parameters. The Hugging Face
    integrations look for the stage inside the value and raise an `AttributeError`, for `false` as well.

    Write a section with the stage you want.
    """
    value = config.literal(ZERO)
    if not isinstance(value, bool):
        return
    refused = config.facts.integration in (Integration.TRANSFORMERS, Integration.ACCELERATE)
    if not value and not refused:
        return
    meaning = "stage 1, which does not partition gradients or parameters" if value else "stage 0"
    raised = f", and {config.facts.integration.label} raises AttributeError \"'bool' object has no attribute 'get'\"" if refused else ""  # type: ignore[union-attr]
    yield Finding(
        ZERO,
        f"DeepSpeed reads zero_optimization {config.quote(ZERO)} as {meaning}{raised}.",
        help='Write "zero_optimization": {"stage": N} with the stage you want.',
        fix=write(config, ZERO, f'{{"stage": {int(value)}}}', Applicability.SAFE),
        effect=Effect.CRASH if refused else None,
        phase=Phase.LOAD if refused else None,
    )


@rule(
    "DS409",
    effect=Effect.SLOW,
    watches=("zero_optimization.stage",),
    needs=("world_size",),
    references=("https://www.deepspeed.ai/tutorials/zero/", "https://github.com/huggingface/trl/issues/2784"),
)
@bad(
    trained('"zero_optimization": {"stage": 3}'),
    at="zero_optimization.stage",
    world_size=1,
    message="ZeRO stage 3 on one GPU saves no memory: it partitions across GPUs, and there is only one.",
)
@good(trained('"zero_optimization": {"stage": 3, "offload_optimizer": {"device": "cpu"}}'), world_size=1)
@good(trained('"zero_optimization": {"stage": 3}'), world_size=2)
def zero_on_one_gpu(config: Config) -> Iterator[Finding]:
    """ZeRO partitions across GPUs, so on one GPU it saves no memory.

    On a single GPU a partition is the whole model, at every stage. Stages 2 and 3 still add the cost of their buckets and hooks, and in fp32 ZeRO adds a
    second copy of the parameters. To save memory on one GPU, offload to the CPU. Stages 1 and 2 lose little there, and a launch for debugging or an example
    is small on purpose: both are reported only with `--pedantic`; a config that another launch starts on several GPUs is not reported.

    Offload the optimizer, or set the stage to 0.
    """
    stage = config.value(STAGE)
    devices = [config.value(f"{ZERO}.{name}.device") for name in ("offload_optimizer", "offload_param")]
    if config.facts.world_size != 1 or not stage >= 1 or not all(device in (None, "none") for device in devices) or not config.has(STAGE):
        return
    if config.has(f"{ZERO}.cpu_offload"):
        return
    section = "offload_param" if runs_without_optimizer(config) else "offload_optimizer"
    stays = requires_zero(config) or exceeds_gpu(config, BYTES_WITHOUT_ZERO) is not None
    without = "." if stays else ', or set "stage": 0.' + slower(config, lambda job: job.but(stage=0))
    yield Finding(
        STAGE,
        f"ZeRO stage {stage} on one GPU saves no memory: it partitions across GPUs, and there is only one.",
        help=f'Add "{section}": {{"device": "cpu"}}{without}',
        pedantic=stage < 3 or _is_trial(config),
    )


BYTES_WITHOUT_ZERO = 16
"""Bytes for each weight with its gradient, its fp32 copy and the two states of Adam, without ZeRO."""

_TRIAL = re.compile(r"(?:^|[^a-z])(?:debug|tests?|smoke|demos?|examples?|tutorials?|toy|try)(?:[^a-z]|$)", re.IGNORECASE)
"""The name of a file or folder for a run that trains nothing: in public repositories all one-GPU launches of a config for several GPUs
that readers called intended were `run_training_debug.sh` and files below `examples/`."""


def _is_trial(config: Config) -> bool:
    """Whether a file of the setup is named as a trial or an example, which is small on purpose. A program of Python does not tell: a script of
    a person may start one that a library has as an example.
    """
    setup = config.setup
    if setup is None:
        return False
    return any(_TRIAL.search(name) for name in (*(one for one in setup.documents if not one.endswith(".py")), setup.config or ""))
