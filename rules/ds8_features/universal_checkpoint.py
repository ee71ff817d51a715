"""DS8: universal checkpoints, which `ds_to_universal.py` makes and any number of ranks can load."""

from __future__ import annotations

from collections.abc import Iterator

from dslint.config import Config
from dslint.diagnostics import Effect, Phase
from dslint.facts.checkpoint import CheckpointFacts
from dslint.rule import Finding, bad, good, rule
from dslint.rules.helpers.checkpoint import (
    CONVERTED,
    FROM_STAGE_2,
    LOAD_UNIVERSAL,
    LOADING,
    UNIVERSAL_GUIDE,
    UNTRIED,
    WITHOUT_ZERO,
    error_without_states,
)
from dslint.rules.helpers.fixes import write
from dslint.rules.helpers.precision import model_dtype
from dslint.rules.helpers.zero import STAGE, related_stage


@rule(
    "DS820",
    effect=Effect.CRASH,
    phase=Phase.RESUME,
    watches=(LOAD_UNIVERSAL,),
    references=(LOADING, UNIVERSAL_GUIDE),
    untried="raised by load_checkpoint; tests/checkpoint loads one",
)
@bad(
    '{"train_micro_batch_size_per_gpu": 4, "checkpoint": {"load_universal": true}, "zero_optimization": {"stage": 0}}',
    at=LOAD_UNIVERSAL,
    message="load_universal requires ZeRO, but the stage is 0: load_checkpoint raises AttributeError \"'NoneType' object has no attribute 'copy'\", because only ZeRO's optimizers can load a universal checkpoint.",
    fixed='{"train_micro_batch_size_per_gpu": 4, "checkpoint": {"load_universal": true}, "zero_optimization": {"stage": 1}}',
)
@bad(
    '{"train_micro_batch_size_per_gpu": 4, "checkpoint": {"load_universal": true}, "fp16": {"enabled": true}}',
    at=LOAD_UNIVERSAL,
    message="load_universal requires ZeRO, but the stage is 0: load_checkpoint raises TypeError \"'NoneType' object is not subscriptable\", because only ZeRO's optimizers can load a universal checkpoint.",
    fixed='{"train_micro_batch_size_per_gpu": 4, "checkpoint": {"load_universal": true}, "fp16": {"enabled": true}, "zero_optimization": {"stage": 1}}',
)
@good('{"train_micro_batch_size_per_gpu": 4, "checkpoint": {"load_universal": true}, "zero_optimization": {"stage": 1}}')
@good('{"train_micro_batch_size_per_gpu": 4, "checkpoint": {"load_universal": true}, "bf16": {"enabled": true}}', deepspeed="0.16.2")
def universal_checkpoint_without_zero(config: Config) -> Iterator[Finding]:
    """Loading a universal checkpoint requires ZeRO, but the stage is 0.

    ZeRO's optimizers restore the weights and optimizer states of a universal checkpoint. At stage 0 there is no such optimizer, and
    `load_checkpoint` raises. Before DeepSpeed 0.18.0, bf16 had such an optimizer at stage 0, too.

    Write `"stage": 1`, the closest stage, or load an ordinary checkpoint.
    """
    checkpoint = config.checkpoint
    if checkpoint is not None and checkpoint.universal is None:
        return  # load_checkpoint raises earlier: DS830
    if config.release < WITHOUT_ZERO and model_dtype(config) == "bf16":
        return  # BF16_Optimizer is one of ZeRO's, and load_checkpoint asks it
    if config.has(LOAD_UNIVERSAL) and config.value(LOAD_UNIVERSAL) is True and config.value(STAGE) == 0:
        yield Finding(
            LOAD_UNIVERSAL,
            f"load_universal requires ZeRO, but the stage is 0: load_checkpoint raises {error_without_states(config)}, because only ZeRO's optimizers can load a universal checkpoint.",
            help='Write "stage": 1, or load an ordinary checkpoint.',
            related=related_stage(config),
            fix=write(config, STAGE, "1"),
        )


@rule("DS821", effect=Effect.ADVICE, pedantic=True, watches=(LOAD_UNIVERSAL,), references=(UNIVERSAL_GUIDE,))
@bad(
    '{"train_micro_batch_size_per_gpu": 4, "checkpoint": {"load_universal": true}, "zero_optimization": {"stage": 1}}',
    at=LOAD_UNIVERSAL,
    message='load_universal loads only converted checkpoints: for a checkpoint that this run saves, load_checkpoint raises ValueError "Invalid for universal checkpoint".',
)
@good('{"train_micro_batch_size_per_gpu": 4, "checkpoint": {"load_universal": false}, "zero_optimization": {"stage": 1}}')
def load_universal_left_on(config: Config) -> Iterator[Finding]:
    """`load_universal` is only for the run that resumes from a converted checkpoint.

    While it is true, `load_checkpoint` requires the file `latest_universal` and the folder `zero`, which `ds_to_universal.py` creates. The
    checkpoints that this run saves have neither, so the run cannot load them.

    Write false again after that run.
    """
    enabled = config.has(LOAD_UNIVERSAL) and config.value(LOAD_UNIVERSAL) is True
    if enabled and config.value(STAGE) >= 1 and config.checkpoint is None:
        yield Finding(
            LOAD_UNIVERSAL,
            'load_universal loads only converted checkpoints: for a checkpoint that this run saves, load_checkpoint raises ValueError "Invalid for universal checkpoint".',
            help="Keep it for the run that resumes from a converted checkpoint, then write false.",
        )


@rule(
    "DS830",
    effect=Effect.CRASH,
    phase=Phase.RESUME,
    needs=("checkpoint",),
    watches=("fact:checkpoint",),
    references=(LOADING, UNIVERSAL_GUIDE),
    untried=UNTRIED,
)
@bad(
    '{"train_micro_batch_size_per_gpu": 4, "checkpoint": {"load_universal": true}, "zero_optimization": {"stage": 2}}',
    at=LOAD_UNIVERSAL,
    checkpoint=FROM_STAGE_2,
    message='load_universal is true, but run has no universal checkpoint: load_checkpoint raises ValueError "Invalid for universal checkpoint: run/latest_universal does not exist".',
    fixed='{"train_micro_batch_size_per_gpu": 4, "checkpoint": {"load_universal": false}, "zero_optimization": {"stage": 2}}',
)
@bad(
    '{"train_micro_batch_size_per_gpu": 4, "zero_optimization": {"stage": 2}}',
    at="",
    checkpoint=CheckpointFacts("run", "step9_universal", (0,), None, 1, None, universal="step9_universal"),
    message="run/step9_universal is a universal checkpoint, but load_universal is not true: load_checkpoint raises because it looks for the files of an ordinary checkpoint.",
    fixed='{"train_micro_batch_size_per_gpu": 4, "zero_optimization": {"stage": 2}, "checkpoint": {"load_universal": true}}',
)
@good(
    '{"train_micro_batch_size_per_gpu": 4, "checkpoint": {"load_universal": true}, "zero_optimization": {"stage": 2}}', checkpoint=CONVERTED
)
@good('{"train_micro_batch_size_per_gpu": 4, "zero_optimization": {"stage": 2}}', checkpoint=CONVERTED)
def checkpoint_not_universal(config: Config) -> Iterator[Finding]:
    """`load_universal` does not match the kind of checkpoint that is there.

    With `load_universal`, DeepSpeed reads the file `latest_universal` and raises a `ValueError` if it is missing. Without it, DeepSpeed
    does not look into the folder `zero`, where a universal checkpoint keeps everything.

    Run `ds_to_universal.py` on the checkpoint, or change `load_universal`.
    """
    checkpoint, universal = config.checkpoint, config.value(LOAD_UNIVERSAL)
    if checkpoint is None:
        return
    if universal is True and checkpoint.universal is None:
        yield Finding(
            LOAD_UNIVERSAL,
            f'load_universal is true, but {checkpoint.path} has no universal checkpoint: load_checkpoint raises ValueError "Invalid for universal checkpoint: {checkpoint.path}/latest_universal does not exist".',
            help="Run ds_to_universal.py on the checkpoint, or write false.",
            fix=write(config, LOAD_UNIVERSAL, "false"),
        )
    elif universal is False and checkpoint.universal == checkpoint.tag and config.value(STAGE) >= 1:
        yield Finding(
            "",
            f"{checkpoint.place} is a universal checkpoint, but load_universal is not true: load_checkpoint raises because it looks for the files of an ordinary checkpoint.",
            help='Add "checkpoint": {"load_universal": true}.',
            fix=write(config, LOAD_UNIVERSAL, "true"),
        )
