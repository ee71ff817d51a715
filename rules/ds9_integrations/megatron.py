"""DS9: what Megatron-DeepSpeed refuses in its own arguments."""

from __future__ import annotations

from collections.abc import Iterator

from dslint.config import Config
from dslint.diagnostics import Effect, Phase
from dslint.job.arguments import Arguments, SourcedValue
from dslint.rule import Finding, bad, good, rule
from dslint.rules.helpers.zero import STAGE
from dslint.source.integers import integer

_CONFIG = '{"train_micro_batch_size_per_gpu": 1, "zero_optimization": {"stage": 1}, "bf16": {"enabled": true}}'
_LAUNCH = (
    "deepspeed --num_gpus 8 pretrain_gpt.py --num-layers 2 --hidden-size 64 --num-attention-heads 4 --seq-length 128 "
    "--micro-batch-size 1 %s --deepspeed --deepspeed_config ds_config.json\n"
)


@rule(
    "DS992",
    effect=Effect.CRASH,
    phase=Phase.LOAD,
    watches=("setup",),
    references=(
        "Megatron-DeepSpeed, megatron/core/parallel_state.py, initialize_model_parallel",
        "Megatron-DeepSpeed, megatron/arguments.py, validate_args",
    ),
    untried="raised by Megatron-DeepSpeed, before the engine exists",
    setup=True,
)
@bad(
    _CONFIG,
    at="",
    launch=_LAUNCH % "--ds-sequence-parallel-size 2 --tensor-model-parallel-size 2",
    integration="deepspeed",
    message='--ds-sequence-parallel-size 2 with --tensor-model-parallel-size 2: Megatron-DeepSpeed raises AssertionError "DeepSpeed\'s sequence parallel does not work with tensor parallel or pipeline parallel".',
)
@bad(
    _CONFIG,
    at="",
    launch=_LAUNCH % "--pipeline-model-parallel-size 2 --no-pipeline-parallel",
    integration="deepspeed",
    message='--no-pipeline-parallel with --pipeline-model-parallel-size 2: Megatron-DeepSpeed raises AssertionError "pipeline_model_parallel_size must be 1 if pipeline parallel is disabled".',
)
@good(_CONFIG, launch=_LAUNCH % "--ds-sequence-parallel-size 2 --no-pipeline-parallel", integration="deepspeed")
@good(_CONFIG, launch=_LAUNCH % "--tensor-model-parallel-size 2 --pipeline-model-parallel-size 2", integration="deepspeed")
@good(
    _CONFIG,
    launch=(_LAUNCH % "--pipeline-model-parallel-size 2 --no-pipeline-parallel").replace("num_gpus 8", "num_gpus 1"),
    integration="deepspeed",
    world_size=1,
)
def parallel_sizes_of_megatron(config: Config) -> Iterator[Finding]:
    """Megatron-DeepSpeed refuses a combination of its parallel sizes.

    DeepSpeed's sequence parallelism divides a sequence among ranks that hold the whole model: it works neither with tensor nor with pipeline
    parallelism. `--no-pipeline-parallel` builds the model without pipeline stages.

    Set the other size to 1, or use another kind of parallelism.
    """
    arguments = _arguments(config)
    if arguments is None:
        return
    tensor, pipeline = (_above_1(arguments, f"{name}_model_parallel_size") for name in ("tensor", "pipeline"))
    ranks = config.facts.world_size
    if ranks is not None and tensor is not None and ranks < int(str(tensor.value)):
        return  # Megatron lowers both sizes to what the ranks allow
    if ranks is not None and pipeline is not None and ranks // (int(str(tensor.value)) if tensor is not None else 1) < 2:
        pipeline = None
    sequence, without = _above_1(arguments, "ds_sequence_parallel_size"), arguments.get("no_pipeline_parallel")
    if sequence is not None and (other := tensor or pipeline) is not None:
        yield _refusal(sequence, other, "DeepSpeed's sequence parallel does not work with tensor parallel or pipeline parallel")
    elif pipeline is not None and without is not None:
        yield _refusal(without, pipeline, "pipeline_model_parallel_size must be 1 if pipeline parallel is disabled")


_PIPELINES = ("pretrain_gpt.py", "pretrain_prefix_lm.py", "finetune_llama.py", "finetune_t0_non_causal_decoder.py")
"""The programs of both forks that build a PipelineModule with --deepspeed."""


@rule(
    "DS996",
    effect=Effect.CRASH,
    phase=Phase.INITIALIZE,
    watches=("setup",),
    references=(
        "Megatron-DeepSpeed, pretrain_gpt.py, model_provider",
        "deepspeed/runtime/pipe/engine.py, PipelineEngine.__init__",
        "https://github.com/bigscience-workshop/Megatron-DeepSpeed/issues/407",
    ),
    untried="the program of Megatron-DeepSpeed decides it",
    setup=True,
)
@bad(
    _CONFIG.replace('"stage": 1', '"stage": 3'),
    at="",
    launch=_LAUNCH % "--zero-stage 3",
    integration="deepspeed",
    message='--zero-stage 3 without --no-pipeline-parallel: Megatron-DeepSpeed builds a PipelineModule, also for one stage, and DeepSpeed raises AssertionError "ZeRO-2 and ZeRO-3 are incompatible with pipeline parallelism".',
)
@good(_CONFIG.replace('"stage": 1', '"stage": 3'), launch=_LAUNCH % "--zero-stage 3 --no-pipeline-parallel", integration="deepspeed")
@good(_CONFIG, launch=_LAUNCH % "--zero-stage 1", integration="deepspeed")
@good(
    _CONFIG.replace('"stage": 1', '"stage": 3'),
    launch=(_LAUNCH % "--zero-stage 3").replace("--deepspeed --deepspeed_config", "--deepspeed_config"),
    integration="deepspeed",
)
def pipeline_of_megatron_with_zero_2(config: Config) -> Iterator[Finding]:
    """Megatron-DeepSpeed builds a pipeline of one stage, and ZeRO stages 2 and 3 exclude pipelines.

    With `--deepspeed`, pretrain_gpt.py builds the model as a `PipelineModule` whatever the number of stages, and DeepSpeed raises
    `AssertionError: ZeRO-2 and ZeRO-3 are incompatible with pipeline parallelism`. The stage is that of the config; where the config is not
    known, `--zero-stage` tells it.

    Use stage 1, or pass `--no-pipeline-parallel`. bigscience's Megatron-DeepSpeed does not have this flag: its program always builds a pipeline.
    """
    arguments = _arguments(config)
    if (
        arguments is None
        or arguments.task not in _PIPELINES
        or arguments.get("no_pipeline_parallel") is not None
        or not _uses_engine(config)
        or (config.facts.pipeline_parallel or 1) > 1
    ):
        return
    given, stage = _above_1(arguments, "zero_stage"), config.value(STAGE) if config.document.root is not None else None
    if given is None or stage in (0, 1):
        return
    has_flag = _has_no_pipeline(config)
    yield Finding(
        "",
        f"{given.shown}{'' if has_flag is False else ' without --no-pipeline-parallel'}: Megatron-DeepSpeed builds a PipelineModule, also for "
        'one stage, and DeepSpeed raises AssertionError "ZeRO-2 and ZeRO-3 are incompatible with pipeline parallelism".',
        help=_WITHOUT_PIPELINE[has_flag],
        elsewhere=given.related(""),
        certain=stage is not None and stage in (2, 3),
    )


def _uses_engine(config: Config) -> bool:
    """Whether the launch may pass `--deepspeed`: without this flag the program makes neither a pipeline nor an engine."""
    launch = config.setup.launch if config.setup is not None else None
    passed = launch.passed if launch is not None else None
    return passed is None or not passed.complete or "deepspeed" in passed.flags


_WITHOUT_PIPELINE = {
    True: "Pass --no-pipeline-parallel, or use ZeRO stage 1.",
    False: "Use ZeRO stage 1: this program has no flag --no-pipeline-parallel.",
    None: "Use ZeRO stage 1, or pass --no-pipeline-parallel if the program has this flag: that of bigscience does not.",
}


def _has_no_pipeline(config: Config) -> bool | None:
    """Whether the program reads --no-pipeline-parallel, which only some forks do; None if the program was not found."""
    documents = config.setup.documents.values() if config.setup is not None else ()
    texts = [one.text for one in documents if one.language == "python"]
    return any("no_pipeline_parallel" in text or "no-pipeline-parallel" in text for text in texts) if texts else None


def _arguments(config: Config) -> Arguments | None:
    found = config.setup.of_framework if config.setup is not None else None
    return found if found is not None and found.framework == "Megatron" else None


def _refusal(first: SourcedValue, other: SourcedValue, error: str) -> Finding:
    return Finding(
        "",
        f'{first.shown} with {other.shown}: Megatron-DeepSpeed raises AssertionError "{error}".',
        help=f"Set {other.name} to 1, or remove {first.name}.",
        elsewhere=first.related(""),
        related=(other.related("together with this"),),
    )


def _above_1(arguments: Arguments, name: str) -> SourcedValue | None:
    """An argument that is certainly a number above 1."""
    given = arguments.get(name)
    size = integer(str(given.value)) if given is not None else None
    return given if size is not None and size > 1 else None
