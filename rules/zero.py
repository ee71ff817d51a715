"""DS4: ZeRO and communication."""

from __future__ import annotations

from collections.abc import Iterator

from dslint.config import UNKNOWN, Config
from dslint.diagnostics import Effect, Phase
from dslint.rule import Finding, bad, good, rule

SOURCE = "deepspeed/runtime/config.py, DeepSpeedConfig._do_error_check"
STAGE = "zero_optimization.stage"


@rule("DS401", "summed-gradients-unsupported", effect=Effect.CRASH, phase=Phase.PARSE, references=(SOURCE,))
@bad(
    '{"train_micro_batch_size_per_gpu": 4, "gradient_allreduce_op": "sum", "zero_optimization": {"stage": 3}}',
    at="gradient_allreduce_op",
)
@bad('{"train_micro_batch_size_per_gpu": 4, "gradient_allreduce_op": "sum", "compile": {"deepcompile": true}}', at="gradient_allreduce_op")
@good('{"train_micro_batch_size_per_gpu": 4, "gradient_allreduce_op": "sum", "zero_optimization": {"stage": 2}}')
def summed_gradients_unsupported(config: Config) -> Iterator[Finding]:
    """Gradients are to be summed instead of averaged, where DeepSpeed cannot.

    `gradient_allreduce_op: "sum"` is implemented for ZeRO stages 0 to 2 without ZenFlow and DeepCompile; elsewhere DeepSpeed raises a
    `ValueError` while it parses the config.

    Leave the key out, which averages, and scale the loss in the program if a sum is meant.
    """
    op = config.value("gradient_allreduce_op")
    if not isinstance(op, str) or op.lower() != "sum":
        return
    if config.value(STAGE) == 3:
        what, where = "ZeRO stage 3", STAGE
    elif config.has("zero_optimization.zenflow") and config.quote("zero_optimization.zenflow") not in ("null", '"auto"'):
        what, where = "ZenFlow", "zero_optimization.zenflow"
    elif config.value("compile.deepcompile") is True:
        what, where = "DeepCompile", "compile.deepcompile"
    else:
        return
    yield Finding(
        "gradient_allreduce_op",
        f"gradient_allreduce_op {config.quote('gradient_allreduce_op')} does not go with {what}: DeepSpeed raises ValueError \"gradient_allreduce_op='sum' is not supported with {what}\".",
        help="Leave the key out: gradients are then averaged.",
        related=((where, f"{what} is set here"),),
    )


@rule("DS402", "zero-without-stage", effect=Effect.SILENT, references=("deepspeed/runtime/zero/config.py, DeepSpeedZeroConfig",))
@bad(
    '{"train_micro_batch_size_per_gpu": 4, "zero_optimization": {"overlap_comm": true, "reduce_bucket_size": 5e8}}', at="zero_optimization"
)
@good('{"train_micro_batch_size_per_gpu": 4, "zero_optimization": {"stage": 0, "overlap_comm": true}}')
@good('{"train_micro_batch_size_per_gpu": 4, "zero_optimization": {}}')
def zero_without_stage(config: Config) -> Iterator[Finding]:
    """ZeRO's settings are written, but not its stage, which is 0: ZeRO stays off.

    Without `stage` DeepSpeed takes 0 and partitions nothing. Buckets and offload beside it do nothing; no error, no warning.

    Write the stage: 1 partitions optimizer states, 2 gradients too, 3 parameters too. `"stage": 0` says that none is meant.
    """
    node = config.node("zero_optimization")
    members = getattr(node, "members", [])
    if not members or config.has(STAGE) or config.resolved(STAGE).value is UNKNOWN:
        return
    if any(violation.raises or violation.meant == ("zero_optimization", "stage") for violation in config.violations):
        return
    yield Finding(
        "zero_optimization",
        "zero_optimization has no stage, which makes it 0: ZeRO stays off, and the other settings here do nothing.",
        help='Add "stage": 1, 2 or 3; or 0, if ZeRO is to be off.',
        on="key",
    )
