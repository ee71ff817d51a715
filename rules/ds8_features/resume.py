"""DS8: whether the run can go on from the checkpoint it is to resume."""

from __future__ import annotations

from collections.abc import Iterator

from dslint.config import UNKNOWN, Config
from dslint.diagnostics import Effect, Phase, Severity
from dslint.facts.checkpoint import CheckpointFacts
from dslint.rule import Finding, FixPlan, bad, good, rule, unsafe
from dslint.rules.helpers.fixes import put, write

STAGE = "zero_optimization.stage"
UNIVERSAL = "checkpoint.load_universal"
LOADING = "deepspeed/runtime/engine.py, DeepSpeedEngine.load_checkpoint"
GUIDE = "https://www.deepspeed.ai/tutorials/universal-checkpointing/"
UNTRIED = "raised by load_checkpoint; tests/checkpoint writes and loads them"
STAGE_0 = CheckpointFacts("run", "global_step500", (0,), None, 1, None)
STAGE_2 = CheckpointFacts("run", "global_step500", (1, 2), 8, 1, bf16=False)
STAGE_3 = CheckpointFacts("run", "global_step500", (3,), 8, 1, bf16=True)
CONVERTED = CheckpointFacts("run", "global_step500", (1, 2), 8, 1, bf16=False, universal="global_step500_universal")


def _checkpoint(config: Config, *, universal: bool = False) -> CheckpointFacts | None:
    """The ordinary checkpoint that is to be loaded, or with `universal` the universal one; None where it is the other."""
    found = config.checkpoint
    if found is None or config.value(UNIVERSAL) is not universal:
        return None
    return None if found.universal == found.tag and not universal else found


def _count(number: int, noun: str) -> str:
    """`1 rank`, `8 ranks`."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def _stages(checkpoint: CheckpointFacts) -> str:
    return "at ZeRO stage 1 or 2" if checkpoint.zero == (1, 2) else f"at ZeRO stage {checkpoint.zero[0]}"


@rule(
    "DS826",
    "checkpoint-of-another-stage",
    effect=Effect.CRASH,
    phase=Phase.RESUME,
    needs=("checkpoint",),
    references=(LOADING, GUIDE),
    untried=UNTRIED,
)
@bad('{"train_micro_batch_size_per_gpu": 4, "zero_optimization": {"stage": 3}}', at=STAGE, checkpoint=STAGE_2)
@bad('{"train_micro_batch_size_per_gpu": 4, "zero_optimization": {"stage": 1}}', at=STAGE, checkpoint=STAGE_0)
@bad('{"train_micro_batch_size_per_gpu": 4}', at=STAGE, checkpoint=STAGE_2)
@bad(
    '{"train_micro_batch_size_per_gpu": 4, "checkpoint": {"load_universal": true}, "zero_optimization": {"stage": 3}}',
    at=STAGE,
    checkpoint=CONVERTED,
)
@good('{"train_micro_batch_size_per_gpu": 4, "zero_optimization": {"stage": 1}}', checkpoint=STAGE_2)
@good('{"train_micro_batch_size_per_gpu": 4, "bf16": {"enabled": true}, "zero_optimization": {"stage": 3}}', checkpoint=STAGE_3)
def checkpoint_of_another_stage(config: Config) -> Iterator[Finding]:
    """The checkpoint was written at another ZeRO stage.

    Stages 1 and 2 write the same files and load each other's. Stage 3 has a file of weights for every rank, and stage 0 has no optimizer states of ZeRO: between
    them `load_checkpoint` does not find what it looks for, and says so badly. A universal checkpoint keeps that difference: one made from stage 2 is not
    loaded at stage 3, nor the other way round.

    Resume at the stage of the checkpoint, or load the weights alone, which `zero_to_fp32.py` puts together.
    """
    checkpoint, stage = config.checkpoint, config.value(STAGE)
    universal = config.value(UNIVERSAL)
    if checkpoint is None or stage is UNKNOWN or checkpoint.pipeline or stage in checkpoint.zero or not isinstance(universal, bool):
        return
    if universal and (checkpoint.universal is None or stage == 0):
        return  # rules of their own
    if not universal and checkpoint.universal == checkpoint.tag:
        return
    if 3 in (stage, *checkpoint.zero):
        error = "AssertionError without a message"
    elif stage == 0:
        error = "AttributeError \"'NoneType' object has no attribute 'copy'\""
    else:
        error = "FileNotFoundError for its *_optim_states.pt"
    written = "" if config.has(STAGE) else ", the default"
    weights = "load the weights alone" if checkpoint.zero == (0,) else "start from the weights that zero_to_fp32.py puts together"
    yield Finding(
        STAGE,
        f"The checkpoint {checkpoint.place} was written {_stages(checkpoint)}, and the stage is {stage}{written}: load_checkpoint raises {error}.",
        help=f'Resume with "stage": {checkpoint.zero[-1]}, or {weights}.',
        fix=write(config, STAGE, str(checkpoint.zero[-1])),
    )


def _model_parallel(config: Config, checkpoint: CheckpointFacts) -> int | None:
    """The number of model-parallel ranks (tensor times pipeline) of the run, as far as facts and config tell; else that of the checkpoint."""
    facts, tensor = config.facts, config.value("tensor_parallel.autotp_size")
    known = facts.tensor_parallel or (tensor if isinstance(tensor, int) and tensor > 1 else None)
    if known is None and facts.pipeline_parallel is None:
        return checkpoint.model_parallel
    return (known or 1) * (facts.pipeline_parallel or 1)


@rule(
    "DS827",
    "checkpoint-of-another-world-size",
    effect=Effect.CRASH,
    phase=Phase.RESUME,
    needs=("checkpoint", "world_size"),
    references=("deepspeed/runtime/engine.py, DeepSpeedEngine._load_zero_checkpoint", GUIDE),
    untried=UNTRIED,
)
@bad('{"train_micro_batch_size_per_gpu": 4, "zero_optimization": {"stage": 2}}', at=STAGE, checkpoint=STAGE_2, world_size=16)
@good('{"train_micro_batch_size_per_gpu": 4, "zero_optimization": {"stage": 2}}', checkpoint=STAGE_2, world_size=8)
@good('{"train_micro_batch_size_per_gpu": 4, "zero_optimization": {"stage": 0}}', checkpoint=STAGE_0, world_size=16)
def checkpoint_of_another_world_size(config: Config) -> Iterator[Finding]:
    """ZeRO's checkpoint holds a part of the optimizer for each rank, and is loaded by as many ranks only.

    With another number `load_checkpoint` raises `ZeRORuntimeException`. Fewer files than the run had ranks are a sign of nodes that saved to disks of their
    own: `checkpoint.use_node_local_storage`, or a folder that all of them share.

    Resume with as many ranks, or convert the checkpoint with `ds_to_universal.py` and set `checkpoint.load_universal`.
    """
    checkpoint, ranks = _checkpoint(config), config.facts.world_size
    if checkpoint is None or ranks is None or checkpoint.data_parallel is None or config.value(STAGE) not in checkpoint.zero:
        return
    divided = _model_parallel(config, checkpoint)
    if not divided or ranks % divided or checkpoint.data_parallel == ranks // divided:
        return
    now, before = ranks // divided, checkpoint.data_parallel
    of = f"{ranks:,} ranks make {_count(now, 'data-parallel one')}" if divided > 1 else f"the run has {_count(now, 'rank')}"
    lost = " If the run that wrote it had as many, files are missing, perhaps on the disks of other nodes." if before < now else ""
    yield Finding(
        STAGE,
        f'The checkpoint {checkpoint.place} has the optimizer states of {_count(before, "data-parallel rank")}, and {of}: load_checkpoint raises ZeRORuntimeException "The checkpoint being loaded used a DP world size of {before} but the current world size is {now}".{lost}',
        help=f'Resume with {before * divided:,} ranks, or convert the checkpoint with ds_to_universal.py and set "load_universal": true in checkpoint.',
    )


@rule(
    "DS828",
    "checkpoint-of-another-precision",
    effect=Effect.CRASH,
    phase=Phase.RESUME,
    needs=("checkpoint",),
    references=(LOADING,),
    untried=UNTRIED,
)
@bad(
    '{"train_micro_batch_size_per_gpu": 4, "bf16": {"enabled": true}, "zero_optimization": {"stage": 2}}',
    at="bf16.enabled",
    checkpoint=STAGE_2,
)
@bad(
    '{"train_micro_batch_size_per_gpu": 4, "fp16": {"enabled": true}, "zero_optimization": {"stage": 3}}',
    at="fp16.enabled",
    checkpoint=STAGE_3,
)
@good('{"train_micro_batch_size_per_gpu": 4, "bf16": {"enabled": true}, "zero_optimization": {"stage": 3}}', checkpoint=STAGE_3)
@good('{"train_micro_batch_size_per_gpu": 4, "fp16": {"enabled": true}, "zero_optimization": {"stage": 2}}', checkpoint=STAGE_2)
def checkpoint_of_another_precision(config: Config) -> Iterator[Finding]:
    """bf16 has file names of its own, and a run with another precision does not find them.

    With bf16 ZeRO writes `bf16_zero_pp_rank_0_...`, otherwise `zero_pp_rank_0_...`. `load_checkpoint` looks for the name that goes with the config and raises
    `FileNotFoundError`. fp16 and fp32 share their names.

    Resume with the precision of the checkpoint, or convert it with `ds_to_universal.py`.
    """
    checkpoint, bf16 = _checkpoint(config), config.value("bf16.enabled")
    if checkpoint is None or checkpoint.bf16 is None or not isinstance(bf16, bool) or bf16 is checkpoint.bf16:
        return
    if config.value(STAGE) not in checkpoint.zero:
        return
    wanted = "bf16_zero_pp_rank_0_mp_rank_00_optim_states.pt" if bf16 else "zero_pp_rank_0_mp_rank_00_optim_states.pt"
    place = "bf16.enabled" if config.has("bf16.enabled") else "fp16.enabled" if config.has("fp16.enabled") else STAGE
    yield Finding(
        place,
        f"The checkpoint {checkpoint.place} was written {'without' if bf16 else 'with'} bf16, and the config has bf16 {'on' if bf16 else 'off'}: load_checkpoint raises FileNotFoundError for {wanted}.",
        help=f"Resume {'without' if bf16 else 'with'} bf16, or convert the checkpoint with ds_to_universal.py.",
        fix=None if bf16 or config.has("bfloat16") else _with_bf16(config),
    )


def _with_bf16(config: Config) -> FixPlan:
    """bf16, and not fp16 beside it."""
    changes = [put(config, "bf16.enabled", "true")]
    if config.has("fp16.enabled") and config.value("fp16.enabled") is not False:
        changes.append(put(config, "fp16.enabled", "false"))
    return unsafe("train in bf16", *changes)


@rule(
    "DS829", "checkpoint-incomplete", effect=Effect.CRASH, phase=Phase.RESUME, needs=("checkpoint",), references=(LOADING,), untried=UNTRIED
)
@bad(
    '{"train_micro_batch_size_per_gpu": 4, "zero_optimization": {"stage": 2}}',
    at="",
    checkpoint=CheckpointFacts("run", "global_step500", (1, 2), 2, 1, bf16=False, missing=("zero_pp_rank_0_mp_rank_00_optim_states.pt",)),
)
@good('{"train_micro_batch_size_per_gpu": 4, "zero_optimization": {"stage": 2}}', checkpoint=STAGE_2)
def checkpoint_incomplete(config: Config) -> Iterator[Finding]:
    """Files of the checkpoint are missing.

    A run that was killed while it saved leaves such a checkpoint, a full disk does, and so does a copy of the weights alone. Nodes that save to disks of their own have
    a part each.

    Take the checkpoint before it, or bring the files together. To start from the weights alone, load the module only.
    """
    checkpoint = _checkpoint(config)
    if checkpoint is None or not checkpoint.missing or config.value(STAGE) not in checkpoint.zero or config.value(STAGE) == 0:
        return
    first, more = checkpoint.missing[0], len(checkpoint.missing) - 1
    yield Finding(
        "",
        f"The checkpoint {checkpoint.place} lacks {first}{f' and {more:,} more' if more else ''}: load_checkpoint raises FileNotFoundError.",
        help="Take the checkpoint before it, or bring together what the nodes have saved.",
    )


@rule(
    "DS830",
    "checkpoint-not-universal",
    effect=Effect.CRASH,
    phase=Phase.RESUME,
    needs=("checkpoint",),
    references=(LOADING, GUIDE),
    untried=UNTRIED,
)
@bad(
    '{"train_micro_batch_size_per_gpu": 4, "checkpoint": {"load_universal": true}, "zero_optimization": {"stage": 2}}',
    at=UNIVERSAL,
    checkpoint=STAGE_2,
)
@bad(
    '{"train_micro_batch_size_per_gpu": 4, "zero_optimization": {"stage": 2}}',
    at="",
    checkpoint=CheckpointFacts("run", "step9_universal", (0,), None, 1, None, universal="step9_universal"),
)
@good(
    '{"train_micro_batch_size_per_gpu": 4, "checkpoint": {"load_universal": true}, "zero_optimization": {"stage": 2}}', checkpoint=CONVERTED
)
@good('{"train_micro_batch_size_per_gpu": 4, "zero_optimization": {"stage": 2}}', checkpoint=CONVERTED)
def checkpoint_not_universal(config: Config) -> Iterator[Finding]:
    """A universal checkpoint is expected where there is an ordinary one, or the other way round.

    With `load_universal` DeepSpeed goes by the file `latest_universal`, and raises a `ValueError` where it is missing. Without it, it does not look into the folder
    `zero` in which a universal checkpoint has everything.

    Run `ds_to_universal.py` on the checkpoint, or change `load_universal`.
    """
    found, wanted = config.checkpoint, config.value(UNIVERSAL)
    if found is None:
        return
    if wanted is True and found.universal is None:
        yield Finding(
            UNIVERSAL,
            f'load_universal is true, and {found.path} holds no universal checkpoint: load_checkpoint raises ValueError "Invalid for universal checkpoint: {found.path}/latest_universal does not exist".',
            help="Run ds_to_universal.py on it, or write false.",
            fix=write(config, UNIVERSAL, "false"),
        )
    elif wanted is False and found.universal == found.tag and config.value(STAGE) >= 1:
        yield Finding(
            "",
            f"{found.place} is a universal checkpoint, and load_universal is not true: load_checkpoint raises, since it looks for the files of an ordinary one.",
            help='Add "checkpoint": {"load_universal": true}.',
            fix=write(config, UNIVERSAL, "true"),
        )


@rule("DS831", "checkpoint-not-found", effect=Effect.SILENT, needs=("checkpoint",), references=(LOADING,))
@bad(
    '{"train_micro_batch_size_per_gpu": 4, "zero_optimization": {"stage": 2}}',
    at="",
    checkpoint=CheckpointFacts("run", "global_step500", (1, 2), 8, 1, bf16=False, latest=False),
)
@bad(
    '{"train_micro_batch_size_per_gpu": 4, "zero_optimization": {"stage": 2}}',
    at="",
    checkpoint=CheckpointFacts("run", "global_step500", (1, 2), 8, 1, bf16=False, dangling="global_step600"),
)
@good('{"train_micro_batch_size_per_gpu": 4, "zero_optimization": {"stage": 2}}', checkpoint=STAGE_2)
def checkpoint_not_found(config: Config) -> Iterator[Finding]:
    """There is a checkpoint, but `load_checkpoint` does not come upon it.

    Without a tag it goes by the file `latest`. Where that is missing, it logs a warning, returns None, and the run starts from its first step with fresh weights; programs
    seldom look at what it returns. Where it names a folder that is not there, it raises.

    Give `load_checkpoint` the tag, or write it into `latest`.
    """
    checkpoint = _checkpoint(config)
    if checkpoint is None or not checkpoint.tag:
        return
    if checkpoint.dangling is not None:
        yield Finding(
            "",
            f"{checkpoint.path}/latest names {checkpoint.dangling}, which is not there: load_checkpoint without a tag raises AssertionError.",
            help=f"Write {checkpoint.tag} into latest, or hand it to load_checkpoint as tag.",
            effect=Effect.CRASH,
            phase=Phase.RESUME,
        )
    elif not checkpoint.latest:
        yield Finding(
            "",
            f"{checkpoint.path} has {checkpoint.tag}, and no file latest that says so: load_checkpoint without a tag loads nothing, and the run starts from step 0.",
            help=f"Write {checkpoint.tag} into {checkpoint.path}/latest, or hand it to load_checkpoint as tag.",
        )


@rule(
    "DS832",
    "checkpoint-of-another-model-parallelism",
    effect=Effect.CRASH,
    phase=Phase.RESUME,
    needs=("checkpoint",),
    references=("deepspeed/runtime/state_dict_factory.py", GUIDE),
    untried="needs several tensor-parallel ranks with a model that they divide",
)
@bad(
    '{"train_micro_batch_size_per_gpu": 4, "zero_optimization": {"stage": 2}}',
    at="",
    checkpoint=CheckpointFacts("run", "global_step500", (1, 2), 4, 2, bf16=False),
    tensor_parallel=4,
)
@good(
    '{"train_micro_batch_size_per_gpu": 4, "zero_optimization": {"stage": 2}}',
    checkpoint=CheckpointFacts("run", "global_step500", (1, 2), 4, 2, bf16=False),
    tensor_parallel=2,
)
def checkpoint_of_another_model_parallelism(config: Config) -> Iterator[Finding]:
    """The checkpoint was written by another number of model-parallel ranks.

    Each of them (tensor-parallel times pipeline-parallel) has weights of other shapes in a file of its own. DeepSpeed splits and joins them for Megatron's layers alone, and the
    optimizer states not at all.

    Resume with the same sizes, or convert the checkpoint with `ds_to_universal.py`.
    """
    checkpoint = _checkpoint(config)
    if checkpoint is None or checkpoint.model_parallel is None or checkpoint.pipeline:
        return
    now, before = _model_parallel(config, checkpoint), checkpoint.model_parallel
    if now is not None and now != before:
        yield Finding(
            "",
            f"The checkpoint {checkpoint.place} was written by {_count(before, 'model-parallel rank')}, and the run has {now:,}: load_checkpoint cannot fit the weights together.",
            help="Resume with the same tensor and pipeline sizes, or convert the checkpoint with ds_to_universal.py.",
            severity=Severity.WARNING if before == 1 else None,
        )
