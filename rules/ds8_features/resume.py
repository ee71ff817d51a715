"""DS8: whether the run can resume from a checkpoint."""

from __future__ import annotations

from collections.abc import Iterator

from dslint.config import UNKNOWN, Config
from dslint.diagnostics import Effect, Phase
from dslint.facts import Integration
from dslint.facts.checkpoint import CheckpointFacts
from dslint.rule import Finding, FixPlan, bad, good, rule, unsafe
from dslint.rules.helpers.checkpoint import (
    CONVERTED,
    FROM_STAGE_0,
    FROM_STAGE_2,
    FROM_STAGE_3,
    LOAD_UNIVERSAL,
    LOADING,
    UNIVERSAL_GUIDE,
    UNTRIED,
    error_without_states,
    loading_calls,
    loads_only_weights,
)
from dslint.rules.helpers.fixes import put, write
from dslint.rules.helpers.zero import STAGE

_WEIGHTS = (
    'import deepspeed\nengine, *_ = deepspeed.initialize(model=model, model_parameters=model.parameters(), config="ds_config.json")\n'
    'engine.load_checkpoint("run", load_module_only=True)\n'
)


def _ordinary_checkpoint(config: Config) -> CheckpointFacts | None:
    """The checkpoint to load; None if there is none, or if it is a universal one or the run loads a universal one."""
    checkpoint = config.checkpoint
    if checkpoint is None or config.value(LOAD_UNIVERSAL) is not False or checkpoint.universal == checkpoint.tag:
        return None
    return checkpoint


def _count(number: int, noun: str) -> str:
    """`1 rank`, `8 ranks`."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def _stages(checkpoint: CheckpointFacts) -> str:
    """The stages that may have written a checkpoint, in words."""
    return "ZeRO stage 1 or 2" if checkpoint.zero == (1, 2) else f"ZeRO stage {checkpoint.zero[0]}"


@rule(
    "DS826",
    effect=Effect.CRASH,
    phase=Phase.RESUME,
    needs=("checkpoint",),
    watches=("fact:checkpoint",),
    references=(LOADING, UNIVERSAL_GUIDE),
    untried=UNTRIED,
)
@bad(
    '{"train_micro_batch_size_per_gpu": 4, "zero_optimization": {"stage": 3}}',
    at=STAGE,
    checkpoint=FROM_STAGE_2,
    message="The checkpoint run/global_step500 was written at ZeRO stage 1 or 2, but the stage is 3: load_checkpoint raises AssertionError without a message.",
    fixed='{"train_micro_batch_size_per_gpu": 4, "zero_optimization": {"stage": 2}}',
)
@bad(
    '{"train_micro_batch_size_per_gpu": 4, "zero_optimization": {"stage": 1}}',
    at=STAGE,
    checkpoint=FROM_STAGE_0,
    message="The checkpoint run/global_step500 was written at ZeRO stage 0, but the stage is 1: load_checkpoint raises FileNotFoundError for its *_optim_states.pt.",
    fixed='{"train_micro_batch_size_per_gpu": 4, "zero_optimization": {"stage": 0}}',
)
@bad(
    '{"train_micro_batch_size_per_gpu": 4}',
    at=STAGE,
    checkpoint=FROM_STAGE_2,
    message="The checkpoint run/global_step500 was written at ZeRO stage 1 or 2, but the stage is 0, the default: load_checkpoint raises AttributeError \"'NoneType' object has no attribute 'copy'\".",
    fixed='{"train_micro_batch_size_per_gpu": 4, "zero_optimization": {"stage": 2}}',
)
@bad(
    '{"train_micro_batch_size_per_gpu": 4, "checkpoint": {"load_universal": true}, "zero_optimization": {"stage": 3}}',
    at=STAGE,
    checkpoint=CONVERTED,
    message="The checkpoint run/global_step500 was written at ZeRO stage 1 or 2, but the stage is 3: load_checkpoint raises AssertionError without a message.",
    fixed='{"train_micro_batch_size_per_gpu": 4, "checkpoint": {"load_universal": true}, "zero_optimization": {"stage": 2}}',
)
@good('{"train_micro_batch_size_per_gpu": 4, "zero_optimization": {"stage": 1}}', checkpoint=FROM_STAGE_2)
@good(
    '{"train_micro_batch_size_per_gpu": 4, "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}}, "zero_optimization": {"stage": 1}}',
    checkpoint=FROM_STAGE_0,
    program=_WEIGHTS,
    integration="deepspeed",
)
@good('{"train_micro_batch_size_per_gpu": 4, "bf16": {"enabled": true}, "zero_optimization": {"stage": 3}}', checkpoint=FROM_STAGE_3)
def checkpoint_of_another_stage(config: Config) -> Iterator[Finding]:
    """The checkpoint was written at another ZeRO stage.

    Stages 1 and 2 write the same files and load each other's. Stage 3 writes one file of weights per rank, and stage 0 writes no ZeRO
    optimizer states, so `load_checkpoint` does not find the files it expects and raises an error that does not name the cause. A universal
    checkpoint has the same limit: one converted from stage 2 does not load at stage 3, nor one from stage 3 at stage 2.

    Resume at the stage of the checkpoint, or load only the weights, which `zero_to_fp32.py` extracts.
    """
    checkpoint, stage = config.checkpoint, config.value(STAGE)
    universal = config.value(LOAD_UNIVERSAL)
    if checkpoint is None or stage is UNKNOWN or checkpoint.pipeline or stage in checkpoint.zero or not isinstance(universal, bool):
        return
    if universal and (checkpoint.universal is None or stage == 0):
        return  # DS830, DS820
    if not universal and checkpoint.universal == checkpoint.tag:
        return
    if universal and 3 not in (stage, *checkpoint.zero):
        return  # BF16_Optimizer writes stage 0, and stages 1 and 2 load what is converted from it
    if 3 not in (stage, *checkpoint.zero) and not universal and loads_only_weights(config):
        return  # stages 0 to 2 write the same files of weights
    if 3 in (stage, *checkpoint.zero):
        error = "AssertionError without a message"
    elif stage == 0:
        error = error_without_states(config)
    else:
        error = "FileNotFoundError for its *_optim_states.pt"
    current = f"{stage}" if config.has(STAGE) else f"{stage}, the default"
    weights = "load only the weights" if checkpoint.zero == (0,) else "start from the weights that zero_to_fp32.py extracts"
    yield Finding(
        STAGE,
        f"The checkpoint {checkpoint.place} was written at {_stages(checkpoint)}, but the stage is {current}: load_checkpoint raises {error}.",
        help=f'Resume with "stage": {checkpoint.zero[-1]}, or {weights}.',
        fix=write(config, STAGE, str(checkpoint.zero[-1])),
    )


def _model_parallel_ranks(config: Config, checkpoint: CheckpointFacts) -> int | None:
    """The run's model-parallel ranks (tensor times pipeline) by its facts and config; those of the checkpoint if neither gives them."""
    facts, tensor = config.facts, config.value("tensor_parallel.autotp_size")
    known = facts.tensor_parallel or (tensor if isinstance(tensor, int) and tensor > 1 else None)
    if known is None and facts.pipeline_parallel is None:
        return checkpoint.model_parallel
    return (known or 1) * (facts.pipeline_parallel or 1)


@rule(
    "DS827",
    effect=Effect.CRASH,
    phase=Phase.RESUME,
    needs=("checkpoint", "world_size"),
    watches=("fact:checkpoint",),
    references=("deepspeed/runtime/engine.py, DeepSpeedEngine._load_zero_checkpoint", UNIVERSAL_GUIDE),
    untried=UNTRIED,
)
@bad(
    '{"train_micro_batch_size_per_gpu": 4, "zero_optimization": {"stage": 2}}',
    at=STAGE,
    checkpoint=FROM_STAGE_2,
    world_size=16,
    message='The checkpoint run/global_step500 has the optimizer states of 8 data-parallel ranks, but the run has 16 ranks: load_checkpoint raises ZeRORuntimeException "The checkpoint being loaded used a DP world size of 8 but the current world size is 16". If 16 data-parallel ranks wrote it, files are missing, perhaps because other nodes saved to their own disks.',
)
@good('{"train_micro_batch_size_per_gpu": 4, "zero_optimization": {"stage": 2}}', checkpoint=FROM_STAGE_2, world_size=8)
@good(
    '{"train_micro_batch_size_per_gpu": 4, "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}}, "zero_optimization": {"stage": 2}}',
    checkpoint=FROM_STAGE_2,
    program=_WEIGHTS.replace("load_module_only=True", "load_optimizer_states=False"),
    integration="deepspeed",
    world_size=16,
)
@good('{"train_micro_batch_size_per_gpu": 4, "zero_optimization": {"stage": 0}}', checkpoint=FROM_STAGE_0, world_size=16)
def checkpoint_of_another_world_size(config: Config) -> Iterator[Finding]:
    """A ZeRO checkpoint holds one part of the optimizer states per rank, and only the same number of ranks can load it.

    With another number `load_checkpoint` raises `ZeRORuntimeException`. If there are fewer files than the run had ranks, its nodes probably
    saved to their own disks: use `checkpoint.use_node_local_storage`, or a folder that all nodes share.

    Resume with the same number of ranks, or convert the checkpoint with `ds_to_universal.py` and set `checkpoint.load_universal`.
    """
    checkpoint, ranks = _ordinary_checkpoint(config), config.facts.world_size
    if checkpoint is None or ranks is None or checkpoint.data_parallel is None or config.value(STAGE) not in checkpoint.zero:
        return
    model_parallel = _model_parallel_ranks(config, checkpoint)
    if loads_only_weights(config) or not model_parallel or ranks % model_parallel or checkpoint.data_parallel == ranks // model_parallel:
        return
    now, before = ranks // model_parallel, checkpoint.data_parallel
    run = f"{ranks:,} ranks make {_count(now, 'data-parallel rank')}" if model_parallel > 1 else f"the run has {_count(now, 'rank')}"
    lost = f" If {_count(now, 'data-parallel rank')} wrote it, files are missing, perhaps because other nodes saved to their own disks."
    yield Finding(
        STAGE,
        f'The checkpoint {checkpoint.place} has the optimizer states of {_count(before, "data-parallel rank")}, but {run}: load_checkpoint raises ZeRORuntimeException "The checkpoint being loaded used a DP world size of {before} but the current world size is {now}".{lost if before < now else ""}',
        help=f'Resume with {_count(before * model_parallel, "rank")}, or convert the checkpoint with ds_to_universal.py and set "load_universal": true in checkpoint.',
    )


@rule(
    "DS828",
    effect=Effect.CRASH,
    phase=Phase.RESUME,
    needs=("checkpoint",),
    watches=("fact:checkpoint",),
    references=(LOADING,),
    untried=UNTRIED,
)
@bad(
    '{"train_micro_batch_size_per_gpu": 4, "bf16": {"enabled": true}, "zero_optimization": {"stage": 2}}',
    at="bf16.enabled",
    checkpoint=FROM_STAGE_2,
    message="The checkpoint run/global_step500 was written without bf16, but the config enables it: load_checkpoint raises FileNotFoundError for bf16_zero_pp_rank_0_mp_rank_00_optim_states.pt.",
)
@bad(
    '{"train_micro_batch_size_per_gpu": 4, "fp16": {"enabled": true}, "zero_optimization": {"stage": 3}}',
    at="fp16.enabled",
    checkpoint=FROM_STAGE_3,
    message="The checkpoint run/global_step500 was written with bf16, but the config does not enable it: load_checkpoint raises FileNotFoundError for zero_pp_rank_0_mp_rank_00_optim_states.pt.",
    fixed='{"train_micro_batch_size_per_gpu": 4, "fp16": {"enabled": false}, "zero_optimization": {"stage": 3}, "bf16": {"enabled": true}}',
)
@good('{"train_micro_batch_size_per_gpu": 4, "bf16": {"enabled": true}, "zero_optimization": {"stage": 3}}', checkpoint=FROM_STAGE_3)
@good('{"train_micro_batch_size_per_gpu": 4, "fp16": {"enabled": true}, "zero_optimization": {"stage": 2}}', checkpoint=FROM_STAGE_2)
@good(
    '{"train_micro_batch_size_per_gpu": 4, "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}}, "bf16": {"enabled": true}, "zero_optimization": {"stage": 2}}',
    checkpoint=FROM_STAGE_2,
    program=_WEIGHTS,
    integration="deepspeed",
)
def checkpoint_of_another_precision(config: Config) -> Iterator[Finding]:
    """Checkpoints written with bf16 have other file names than those of fp16 and fp32.

    With bf16, ZeRO writes `bf16_zero_pp_rank_0_...`, otherwise `zero_pp_rank_0_...`. `load_checkpoint` looks for the name that matches the
    config and raises `FileNotFoundError`. fp16 and fp32 use the same names.

    Resume with the precision of the checkpoint, or convert it with `ds_to_universal.py`.
    """
    checkpoint, bf16 = _ordinary_checkpoint(config), config.value("bf16.enabled")
    if checkpoint is None or checkpoint.bf16 is None or not isinstance(bf16, bool) or bf16 is checkpoint.bf16:
        return
    if config.value(STAGE) not in checkpoint.zero or loads_only_weights(config):
        return
    expected = "bf16_zero_pp_rank_0_mp_rank_00_optim_states.pt" if bf16 else "zero_pp_rank_0_mp_rank_00_optim_states.pt"
    place = next((key for key in ("bf16.enabled", "fp16.enabled") if config.has(key)), STAGE)
    before, now = ("without", "enables") if bf16 else ("with", "does not enable")
    yield Finding(
        place,
        f"The checkpoint {checkpoint.place} was written {before} bf16, but the config {now} it: load_checkpoint raises FileNotFoundError for {expected}.",
        help=f"Resume {before} bf16, or convert the checkpoint with ds_to_universal.py.",
        fix=None if bf16 or config.has("bfloat16") else _enable_bf16(config),
    )


def _enable_bf16(config: Config) -> FixPlan:
    """Enable bf16, and disable fp16 if it is enabled."""
    changes = [put(config, "bf16.enabled", "true")]
    if config.has("fp16.enabled") and config.value("fp16.enabled") is not False:
        changes.append(put(config, "fp16.enabled", "false"))
    return unsafe("train in bf16", *changes)


@rule(
    "DS829",
    effect=Effect.CRASH,
    phase=Phase.RESUME,
    needs=("checkpoint",),
    watches=("fact:checkpoint",),
    references=(LOADING,),
    untried=UNTRIED,
)
@bad(
    '{"train_micro_batch_size_per_gpu": 4, "zero_optimization": {"stage": 2}}',
    at="",
    checkpoint=CheckpointFacts("run", "global_step500", (1, 2), 2, 1, bf16=False, missing=("zero_pp_rank_0_mp_rank_00_optim_states.pt",)),
    message="The checkpoint run/global_step500 lacks zero_pp_rank_0_mp_rank_00_optim_states.pt: load_checkpoint raises FileNotFoundError.",
)
@bad(
    '{"train_micro_batch_size_per_gpu": 4, "zero_optimization": {"stage": 2}}',
    at="",
    checkpoint=CheckpointFacts("run", "global_step500", (1, 2), 2, 1, bf16=False, missing=("mp_rank_00_model_states.pt",)),
    message="The checkpoint run/global_step500 lacks mp_rank_00_model_states.pt: load_checkpoint raises AssertionError where it looks for the weights.",
)
@good('{"train_micro_batch_size_per_gpu": 4, "zero_optimization": {"stage": 2}}', checkpoint=FROM_STAGE_2)
@good(
    '{"train_micro_batch_size_per_gpu": 4, "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}}, "zero_optimization": {"stage": 2}}',
    checkpoint=CheckpointFacts("run", "global_step500", (1, 2), 2, 1, bf16=False, missing=("zero_pp_rank_0_mp_rank_00_optim_states.pt",)),
    program=_WEIGHTS,
    integration="deepspeed",
)
def checkpoint_incomplete(config: Config) -> Iterator[Finding]:
    """Files of the checkpoint are missing.

    Common causes: the run was killed while it saved, the disk was full, someone copied only the weights, or each node saved its part to its
    own disk.

    Use the previous checkpoint, or collect the files from all nodes. To start from the weights only, load just the module.
    """
    checkpoint, stage = _ordinary_checkpoint(config), config.value(STAGE)
    if checkpoint is None or not checkpoint.missing or stage not in checkpoint.zero or stage == 0:
        return
    if loads_only_weights(config) and all("optim_states" in name for name in checkpoint.missing):
        return
    weights = any(name.endswith("_model_states.pt") for name in checkpoint.missing)  # which it reads first
    error = "AssertionError where it looks for the weights" if weights else "FileNotFoundError"
    missing, others = checkpoint.missing[0], len(checkpoint.missing) - 1
    if others:
        missing += f" and {_count(others, 'more file')}"
    yield Finding(
        "",
        f"The checkpoint {checkpoint.place} lacks {missing}: load_checkpoint raises {error}.",
        help="Use the previous checkpoint, or collect the files that the nodes saved.",
    )


_UNNAMED = CheckpointFacts("run", "global_step500", (1, 2), 8, 1, bf16=False, latest=False)


@rule(
    "DS831",
    effect=Effect.SILENT,
    needs=("checkpoint",),
    watches=("fact:checkpoint",),
    references=(LOADING,),
)
@bad(
    '{"train_micro_batch_size_per_gpu": 4, "zero_optimization": {"stage": 2}}',
    at="",
    checkpoint=_UNNAMED,
    integration="deepspeed",
    message="run has global_step500 but no file named latest: load_checkpoint without a tag loads nothing, and the run starts from step 0.",
)
@bad(
    '{"train_micro_batch_size_per_gpu": 4, "zero_optimization": {"stage": 2}}',
    at="",
    checkpoint=CheckpointFacts("run", "global_step500", (1, 2), 8, 1, bf16=False, dangling="global_step600"),
    message="run/latest names global_step600, which does not exist: load_checkpoint without a tag raises AssertionError.",
)
@bad(
    '{"train_micro_batch_size_per_gpu": 4, "zero_optimization": {"stage": 2}}',
    at="",
    checkpoint=_UNNAMED,
    integration="transformers",
    message='run has global_step500 but no file named latest: load_checkpoint without a tag loads nothing, and the Trainer raises ValueError "[deepspeed] failed to resume from checkpoint".',
)
@good('{"train_micro_batch_size_per_gpu": 4, "zero_optimization": {"stage": 2}}', checkpoint=FROM_STAGE_2)
@good('{"train_micro_batch_size_per_gpu": 4, "zero_optimization": {"stage": 2}}', checkpoint=_UNNAMED, integration="accelerate")
@good(
    '{"train_micro_batch_size_per_gpu": 4, "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}}, "zero_optimization": {"stage": 2}}',
    checkpoint=_UNNAMED,
    program=_WEIGHTS.replace("load_module_only=True", 'tag="global_step500"'),
    integration="deepspeed",
)
def checkpoint_not_found(config: Config) -> Iterator[Finding]:
    """There is a checkpoint, but `load_checkpoint` does not find it.

    Without a tag, `load_checkpoint` reads the file `latest`. If that file is missing, it logs a warning and returns None, and the run
    starts from its first step with fresh weights; few programs check the return value. The Trainer and Lightning do, and raise. If the file
    names a folder that does not exist, `load_checkpoint` raises. Accelerate and Fabric pass the tag, and do not need the file.

    Pass the tag to `load_checkpoint`, or write it into `latest`.
    """
    checkpoint, calls = _ordinary_checkpoint(config), loading_calls(config)
    program = config.setup.program if config.setup else None
    if checkpoint is None or not checkpoint.tag or config.facts.integration is Integration.ACCELERATE:
        return  # Accelerate passes the tag
    if (program is not None and program.fabric) or (
        calls and all((tag := one.argument("tag", 1)) and tag.value is not None for one in calls)
    ):
        return
    if checkpoint.dangling is not None:
        yield Finding(
            "",
            f"{checkpoint.path}/latest names {checkpoint.dangling}, which does not exist: load_checkpoint without a tag raises AssertionError.",
            help=f"Write {checkpoint.tag} into latest, or pass it to load_checkpoint as tag.",
            effect=Effect.CRASH,
            phase=Phase.RESUME,
        )
    elif not checkpoint.latest:
        loader = config.facts.integration
        error = _RAISED_BY_LOADER.get(loader) if loader is not None else None
        yield Finding(
            "",
            f"{checkpoint.path} has {checkpoint.tag} but no file named latest: load_checkpoint without a tag loads nothing, and "
            + (f"{error}." if error else "the run starts from step 0."),
            help=f"Write {checkpoint.tag} into {checkpoint.path}/latest{'' if error else ', or pass it to load_checkpoint as tag'}.",
            effect=Effect.CRASH if error else None,
            phase=Phase.RESUME if error else None,
            certain=loader is not None,
        )


_RAISED_BY_LOADER = {
    Integration.TRANSFORMERS: 'the Trainer raises ValueError "[deepspeed] failed to resume from checkpoint"',
    Integration.LIGHTNING: 'Lightning raises MisconfigurationException "DeepSpeed was unable to load the checkpoint"',
}


@rule(
    "DS832",
    effect=Effect.CRASH,
    phase=Phase.RESUME,
    needs=("checkpoint",),
    watches=("fact:checkpoint",),
    references=("deepspeed/runtime/state_dict_factory.py", UNIVERSAL_GUIDE),
    untried="needs several tensor-parallel ranks with a model that they divide",
)
@bad(
    '{"train_micro_batch_size_per_gpu": 4, "zero_optimization": {"stage": 2}}',
    at="",
    checkpoint=CheckpointFacts("run", "global_step500", (1, 2), 4, 2, bf16=False),
    tensor_parallel=4,
    message="The checkpoint run/global_step500 was written by 2 model-parallel ranks, but the run has 4: load_checkpoint cannot combine the weights.",
)
@good(
    '{"train_micro_batch_size_per_gpu": 4, "zero_optimization": {"stage": 2}}',
    checkpoint=CheckpointFacts("run", "global_step500", (1, 2), 4, 2, bf16=False),
    tensor_parallel=2,
)
def checkpoint_of_another_model_parallelism(config: Config) -> Iterator[Finding]:
    """The checkpoint was written by another number of model-parallel ranks.

    Each model-parallel rank (tensor-parallel times pipeline-parallel) saves weights of its own shapes to its own file. DeepSpeed can split
    and merge them only for Megatron layers, and never splits or merges the optimizer states.

    Resume with the same sizes, or convert the checkpoint with `ds_to_universal.py`.
    """
    checkpoint = _ordinary_checkpoint(config)
    if checkpoint is None or checkpoint.model_parallel is None or checkpoint.pipeline:
        return
    now, before = _model_parallel_ranks(config, checkpoint), checkpoint.model_parallel
    if now is not None and now != before:
        uncertain = before == 1
        yield Finding(
            "",
            f"The checkpoint {checkpoint.place} was written by {_count(before, 'model-parallel rank')}, but the run has {now:,}: load_checkpoint {'may fail to' if uncertain else 'cannot'} combine the weights.",
            help="Resume with the same tensor and pipeline sizes, or convert the checkpoint with ds_to_universal.py.",
            certain=not uncertain,
        )
