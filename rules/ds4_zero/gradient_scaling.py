"""DS4: how gradients are scaled: summed or averaged, and divided before or after the sum."""

from __future__ import annotations

from collections.abc import Iterator

from dslint.config import UNKNOWN, Config
from dslint.diagnostics import Applicability, Effect, Phase
from dslint.facts import Release
from dslint.frameworks.engine_optimizer import runs_without_optimizer
from dslint.rule import Finding, bad, good, rule
from dslint.rules.helpers.examples import trained
from dslint.rules.helpers.fixes import without
from dslint.rules.helpers.precision import uses_bf16_optimizer
from dslint.rules.helpers.zero import STAGE, ZERO, related_stage

ALLREDUCE_OP = "gradient_allreduce_op"
PREDIVIDE = "gradient_predivide_factor"
PRESCALE = "prescale_gradients"


NAMES_STAGE = Release(0, 13, 0)
"""The release from which stage 1 accepts scaled gradients with reduce_scatter, and the error of stage 2 says "ZeRO-2", not the code of its name."""


def _refuses_scaling(config: Config) -> bool:
    """Whether the optimizer of the stage refuses scaled gradients, because it averages them with reduce_scatter."""
    stage = config.value(STAGE)
    of_stage = stage in (2, 3) or (stage == 1 and config.release < NAMES_STAGE and not uses_bf16_optimizer(config))
    return of_stage and config.value(f"{ZERO}.reduce_scatter") is True


def _sums(config: Config) -> bool:
    """Whether gradients are summed instead of averaged."""
    operation = config.value(ALLREDUCE_OP)
    return isinstance(operation, str) and operation.lower() == "sum"


@rule(
    "DS401",
    effect=Effect.CRASH,
    phase=Phase.PARSE,
    watches=("gradient_allreduce_op",),
    references=("deepspeed/runtime/config.py, DeepSpeedConfig._do_error_check",),
)
@bad(
    '{"train_micro_batch_size_per_gpu": 4, "gradient_allreduce_op": "sum", "zero_optimization": {"stage": 3}}',
    at="gradient_allreduce_op",
    message='gradient_allreduce_op "sum" conflicts with ZeRO stage 3: DeepSpeed raises ValueError "gradient_allreduce_op=\'sum\' is not supported with ZeRO stage 3".',
    fixed='{"train_micro_batch_size_per_gpu": 4, "zero_optimization": {"stage": 3}}',
)
@bad(
    '{"train_micro_batch_size_per_gpu": 4, "gradient_allreduce_op": "sum", "compile": {"deepcompile": true}}',
    at="gradient_allreduce_op",
    message='gradient_allreduce_op "sum" conflicts with DeepCompile: DeepSpeed raises ValueError "gradient_allreduce_op=\'sum\' is not supported with DeepCompile".',
    fixed='{"train_micro_batch_size_per_gpu": 4, "compile": {"deepcompile": true}}',
)
@good('{"train_micro_batch_size_per_gpu": 4, "gradient_allreduce_op": "sum", "zero_optimization": {"stage": 2}}')
def summed_gradients_unsupported(config: Config) -> Iterator[Finding]:
    """DeepSpeed cannot sum gradients instead of averaging them at ZeRO stage 3, with ZenFlow or with DeepCompile.

    `gradient_allreduce_op: "sum"` works at ZeRO stages 0 to 2 without ZenFlow and DeepCompile. Otherwise DeepSpeed raises a `ValueError` while it parses
    the config.

    Remove the key, which averages gradients. If you need a sum, scale the loss in the program.
    """
    zenflow = f"{ZERO}.zenflow"
    if not _sums(config):
        return
    if config.value(STAGE) == 3:
        what, where = "ZeRO stage 3", STAGE
    elif config.has(zenflow) and not config.is_null(zenflow) and not config.is_auto(zenflow):
        what, where = "ZenFlow", zenflow
    elif config.value("compile.deepcompile") is True:
        what, where = "DeepCompile", "compile.deepcompile"
    else:
        return
    yield Finding(
        ALLREDUCE_OP,
        f"gradient_allreduce_op {config.quote(ALLREDUCE_OP)} conflicts with {what}: DeepSpeed raises ValueError \"gradient_allreduce_op='sum' is not supported with {what}\".",
        help="Remove the key: DeepSpeed then averages gradients.",
        fix=without(config, ALLREDUCE_OP, Applicability.UNSAFE),
        related=((where, f"{what} is set here"),),
    )


@rule(
    "DS416",
    effect=Effect.CRASH,
    phase=Phase.INITIALIZE,
    watches=("gradient_predivide_factor", "prescale_gradients"),
    references=(
        "deepspeed/runtime/zero/stage_1_and_2.py, DeepSpeedZeroOptimizer.__init__",
        "deepspeed/runtime/zero/stage3.py, DeepSpeedZeroOptimizer_Stage3.__init__",
    ),
)
@bad(
    trained('"prescale_gradients": true, "zero_optimization": {"stage": 2}'),
    at="prescale_gradients",
    message='prescale_gradients true conflicts with reduce_scatter, which stage 2 uses: DeepSpeed raises AssertionError "pre-scale gradients is not yet supported with ZeRO-2 with reduce scatter enabled".',
    fixed='{"train_micro_batch_size_per_gpu": 4, "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}}, "zero_optimization": {"stage": 2}}',
)
@bad(
    trained('"gradient_predivide_factor": 2, "zero_optimization": {"stage": 3}'),
    at="gradient_predivide_factor",
    message='gradient_predivide_factor 2 conflicts with reduce_scatter, which stage 3 uses: DeepSpeed raises AssertionError "gradient_predivide_factor != 1.0 is not yet supported with ZeRO-3 with reduce scatter enabled".',
    fixed='{"train_micro_batch_size_per_gpu": 4, "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}}, "zero_optimization": {"stage": 3}}',
)
@bad(
    trained('"prescale_gradients": true, "zero_optimization": {"stage": 1}'),
    at="prescale_gradients",
    deepspeed="0.12.6",
    message='prescale_gradients true conflicts with reduce_scatter, which stage 1 uses: DeepSpeed raises AssertionError "pre-scale gradients is not yet supported with {self.zero_stage_string} with reduce scatter enabled".',
    fixed='{"train_micro_batch_size_per_gpu": 4, "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}}, "zero_optimization": {"stage": 1}}',
)
@good(trained('"prescale_gradients": true, "zero_optimization": {"stage": 1}'), deepspeed="0.14.5")
@good(trained('"prescale_gradients": true, "zero_optimization": {"stage": 2, "reduce_scatter": false}'))
@good(trained('"gradient_predivide_factor": 2, "zero_optimization": {"stage": 1}'))
@good(trained('"gradient_predivide_factor": 1.0, "zero_optimization": {"stage": 3}'))
@good(
    '{"train_micro_batch_size_per_gpu": 4, "prescale_gradients": true, "zero_optimization": {"stage": 3}}',
    program="import deepspeed\nengine, *_ = deepspeed.initialize(model=model, config='ds_config.json')\n",
    integration="deepspeed",
)
def scaled_gradients_with_reduce_scatter(config: Config) -> Iterator[Finding]:
    """`prescale_gradients` and `gradient_predivide_factor` conflict with the reduce-scatter of ZeRO stages 2 and 3.

    Stages 2 and 3, and stage 1 before DeepSpeed 0.13.0, average gradients with reduce-scatter unless `reduce_scatter` is false. Reduce-scatter supports neither `prescale_gradients` nor a
    `gradient_predivide_factor` other than 1: DeepSpeed raises an `AssertionError` when it builds the optimizer.

    Remove them (averages over a few hundred ranks need no scaling in bf16 or fp32), or write `"reduce_scatter": false`.
    """
    stage = config.value(STAGE)
    if stage not in (1, 2, 3) or not _refuses_scaling(config) or _sums(config):
        return
    factor = config.value(PREDIVIDE)
    if isinstance(factor, int | float) and factor != 1:
        key, name = PREDIVIDE, "gradient_predivide_factor != 1.0"
    elif config.value(PRESCALE) is True:
        key, name = PRESCALE, "pre-scale gradients"
    else:
        return
    if stage == 3 and runs_without_optimizer(config):
        return
    written = f"ZeRO-{stage}" if stage == 3 or config.release >= NAMES_STAGE else "{self.zero_stage_string}"
    yield Finding(
        key,
        f'{key} {config.quote(key)} conflicts with reduce_scatter, which stage {stage} uses: DeepSpeed raises AssertionError "{name} is not yet supported with {written} with reduce scatter enabled".',
        help='Remove it, or write "reduce_scatter": false in zero_optimization.',
        fix=without(config, key, Applicability.UNSAFE),
        related=related_stage(config),
    )


@rule(
    "DS417",
    effect=Effect.IGNORED,
    watches=("gradient_predivide_factor", "prescale_gradients"),
    references=("deepspeed/runtime/engine.py, DeepSpeedEngine.allreduce_bucket",),
)
@bad(
    trained('"gradient_predivide_factor": 8, "prescale_gradients": true'),
    at="gradient_predivide_factor",
    message="DeepSpeed does not read gradient_predivide_factor 8 with prescale_gradients, which divides by the number of ranks before the sum.",
    fixed='{"train_micro_batch_size_per_gpu": 4, "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}}, "prescale_gradients": true}',
)
@bad(
    trained('"gradient_predivide_factor": 8, "gradient_allreduce_op": "sum"'),
    at="gradient_predivide_factor",
    message='DeepSpeed does not read gradient_predivide_factor 8: gradient_allreduce_op "sum" adds gradients without a division.',
    fixed='{"train_micro_batch_size_per_gpu": 4, "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}}, "gradient_allreduce_op": "sum"}',
)
@good(trained('"gradient_predivide_factor": 8'))
@good(trained('"prescale_gradients": true'))
def predivide_factor_not_read(config: Config) -> Iterator[Finding]:
    """DeepSpeed ignores `gradient_predivide_factor` with `prescale_gradients`, and both when gradients are summed.

    The factor splits the division by the number of ranks: one part before gradients are summed, the rest after. With `prescale_gradients` DeepSpeed does the
    whole division before the sum. With `gradient_allreduce_op` "sum" it does not divide.

    Keep one of the two keys.
    """
    if not _sums(config):
        yield from _predivide_with_prescale(config)
    elif config.value(STAGE) in (0, 1, 2):
        for key, default in ((PREDIVIDE, 1), (PRESCALE, False)):
            if config.has(key) and config.value(key) != default and config.value(key) is not UNKNOWN:
                yield Finding(
                    key,
                    f'DeepSpeed does not read {key} {config.quote(key)}: gradient_allreduce_op "sum" adds gradients without a division.',
                    help="Keep one of the two.",
                    fix=without(config, key),
                    related=((ALLREDUCE_OP, "gradients are summed here"),),
                )


def _predivide_with_prescale(config: Config) -> Iterator[Finding]:
    """The factor, where `prescale_gradients` does the whole division."""
    factor, stage = config.value(PREDIVIDE), config.value(STAGE)
    if config.value(PRESCALE) is not True or not isinstance(factor, int | float) or factor == 1:
        return
    if stage == 0 or (stage == 1 and not _refuses_scaling(config)) or (stage == 2 and config.value(f"{ZERO}.reduce_scatter") is False):
        yield Finding(
            PREDIVIDE,
            f"DeepSpeed does not read gradient_predivide_factor {config.quote(PREDIVIDE)} with prescale_gradients, which divides by the number of ranks before the sum.",
            help="Keep one of the two.",
            fix=without(config, PREDIVIDE),
            related=((PRESCALE, "gradients are divided before the sum here"),),
        )
