"""DS8: what is written when a run saves, and what it takes to load it."""

from __future__ import annotations

from collections.abc import Iterator

from dslint.config import Config
from dslint.diagnostics import Effect, Phase, Severity
from dslint.facts import Integration
from dslint.rule import Finding, bad, good, rule
from dslint.rules.helpers.fixes import without, write
from dslint.source.tree import Scalar

STAGE = "zero_optimization.stage"
GATHER = "zero_optimization.stage3_gather_16bit_weights_on_model_save"
OTHER_NAME = "zero_optimization.gather_16bit_weights_on_model_save"
HUGGING_FACE = (Integration.TRANSFORMERS, Integration.ACCELERATE)


@rule(
    "DS819",
    "weights-not-gathered",
    effect=Effect.SILENT,
    references=(
        "https://huggingface.co/docs/transformers/deepspeed",
        "accelerate/accelerator.py, Accelerator.get_state_dict",
        "deepspeed/runtime/engine.py, DeepSpeedEngine.save_16bit_model",
    ),
)
@bad('{"train_batch_size": "auto", "zero_optimization": {"stage": 3}}', at="zero_optimization", integration="transformers")
@bad(
    '{"train_micro_batch_size_per_gpu": 4, "tensor_parallel": {"autotp_size": 2}, "zero_optimization": {"stage": 1}}',
    at="tensor_parallel.autotp_size",
    integration="accelerate",
)
@good(
    '{"train_batch_size": "auto", "zero_optimization": {"stage": 3, "stage3_gather_16bit_weights_on_model_save": true}}',
    integration="transformers",
)
@good(
    '{"train_batch_size": "auto", "zero_optimization": {"stage": 3, "gather_16bit_weights_on_model_save": true}}',
    integration="transformers",
)
@good('{"train_micro_batch_size_per_gpu": 4, "zero_optimization": {"stage": 3}}')
def weights_not_gathered(config: Config) -> Iterator[Finding]:
    """The model is divided among the ranks, and is not put together when it is saved.

    At ZeRO stage 3, and with tensor parallelism, no rank has a whole weight. `save_model` of the Hugging Face Trainer then writes no weights that
    `from_pretrained` could load, only DeepSpeed's own checkpoint with a shard for each rank; `Accelerator.get_state_dict` raises a `ValueError`.

    It is the same for a program that looks at a parameter itself, say to resize embeddings: at stage 3 it is empty outside of
    `deepspeed.zero.GatheredParameters`.

    Write `"stage3_gather_16bit_weights_on_model_save": true`. It costs host memory for a whole 16-bit copy on rank 0, and time. Where that is too much, leave it
    false, and turn the checkpoint into weights afterwards with `zero_to_fp32.py`, which DeepSpeed puts beside it.
    """
    loader, stage, tensor = config.facts.integration, config.value(STAGE), config.value("tensor_parallel.autotp_size")
    if loader not in HUGGING_FACE or not (stage == 3 or tensor > 1) or config.value(GATHER) is not False:
        return
    if config.has(OTHER_NAME) and config.value(OTHER_NAME) is not False:
        return  # DeepSpeed takes both names
    assert loader is not None
    written = next((key for key in (GATHER, OTHER_NAME) if config.has(key)), None)
    why = "at ZeRO stage 3" if stage == 3 else f"with autotp_size {tensor}"
    what = (
        "the Trainer's save_model writes no weights that from_pretrained can load"
        if loader is Integration.TRANSFORMERS
        else 'Accelerate\'s get_state_dict raises ValueError "Cannot get 16bit model weights"'
    )
    place = written or ("zero_optimization" if stage == 3 else "tensor_parallel.autotp_size")
    yield Finding(
        place,
        f"stage3_gather_16bit_weights_on_model_save is {'false' if written else 'not written, which makes it false'}: {why} every rank has a part of each weight, and {what}.",
        help='Write "stage3_gather_16bit_weights_on_model_save": true, or convert checkpoints with zero_to_fp32.py afterwards.',
        on="key" if place == "zero_optimization" else "member",
        fix=None if written else write(config, GATHER, "true"),
        effect=Effect.ADVICE if written else None,
        severity=None if written else Severity.WARNING,
    )


@rule(
    "DS820",
    "universal-checkpoint-without-zero",
    effect=Effect.CRASH,
    phase=Phase.RESUME,
    references=(
        "deepspeed/runtime/engine.py, DeepSpeedEngine.load_checkpoint",
        "https://www.deepspeed.ai/tutorials/universal-checkpointing/",
    ),
    untried="raised by load_checkpoint; tests/checkpoint loads one",
)
@bad(
    '{"train_micro_batch_size_per_gpu": 4, "checkpoint": {"load_universal": true}, "zero_optimization": {"stage": 0}}',
    at="checkpoint.load_universal",
)
@good('{"train_micro_batch_size_per_gpu": 4, "checkpoint": {"load_universal": true}, "zero_optimization": {"stage": 1}}')
def universal_checkpoint_without_zero(config: Config) -> Iterator[Finding]:
    """A universal checkpoint is to be loaded, at ZeRO stage 0.

    Its weights and optimizer states are restored by the optimizers of ZeRO. At stage 0 there is none of them, and `load_checkpoint` raises.

    Set `"stage": 1`, which is the closest, or load an ordinary checkpoint.
    """
    key = "checkpoint.load_universal"
    if config.checkpoint is not None and config.checkpoint.universal is None:
        return  # it raises for another reason before it comes to this
    if config.has(key) and config.value(key) is True and config.value(STAGE) == 0:
        yield Finding(
            key,
            "load_universal needs ZeRO, and the stage is 0: load_checkpoint raises AttributeError \"'NoneType' object has no attribute 'copy'\", since nothing restores the optimizer from a universal checkpoint.",
            help='Set "stage": 1, or load an ordinary checkpoint.',
            related=((STAGE, "the stage is set here"),) if config.has(STAGE) else (),
            fix=write(config, STAGE, "1"),
        )


@rule("DS821", "load-universal-left-on", effect=Effect.ADVICE, references=("https://www.deepspeed.ai/tutorials/universal-checkpointing/",))
@bad(
    '{"train_micro_batch_size_per_gpu": 4, "checkpoint": {"load_universal": true}, "zero_optimization": {"stage": 1}}',
    at="checkpoint.load_universal",
)
@good('{"train_micro_batch_size_per_gpu": 4, "checkpoint": {"load_universal": false}, "zero_optimization": {"stage": 1}}')
def load_universal_left_on(config: Config) -> Iterator[Finding]:
    """`load_universal` is for the one run that resumes from a converted checkpoint.

    While it is true, `load_checkpoint` looks for the file `latest_universal` and a folder `zero` that `ds_to_universal.py` makes; the checkpoints that this very run saves
    have neither, and cannot be loaded by it.

    Write false again for the runs after it.
    """
    key = "checkpoint.load_universal"
    if config.has(key) and config.value(key) is True and config.value(STAGE) >= 1 and config.checkpoint is None:
        yield Finding(
            key,
            'load_universal loads converted checkpoints alone: on one that this run saves, load_checkpoint raises ValueError "Invalid for universal checkpoint".',
            help="Keep it for the run that resumes from a converted checkpoint, and write false afterwards.",
        )


@rule(
    "DS822",
    "datastates-cannot-be-switched-off",
    effect=Effect.CRASH,
    phase=Phase.INITIALIZE,
    references=("deepspeed/runtime/checkpoint_engine/datastates_checkpoint_engine.py", "deepspeed/datastates/config.py"),
)
@bad('{"train_micro_batch_size_per_gpu": 4, "datastates_ckpt": {"enabled": false}}', at="datastates_ckpt")
@bad('{"train_micro_batch_size_per_gpu": 4, "datastates_ckpt": null}', at="datastates_ckpt")
@good('{"train_micro_batch_size_per_gpu": 4, "datastates_ckpt": false}')
def datastates_cannot_be_switched_off(config: Config) -> Iterator[Finding]:
    """`datastates_ckpt` is on unless it is false itself.

    DeepSpeed asks only whether the value is `false`. `{"enabled": false}` and null switch the DataStates engine on; without its package `deepspeed.initialize` raises
    a `RuntimeError`.

    Remove the key, or write `"datastates_ckpt": false`.
    """
    key = "datastates_ckpt"
    node = config.node(key)
    if node is None or any(violation.path == (key,) and violation.kind == "too-new" for violation in config.violations):
        return
    inner = config.node(f"{key}.enabled")
    off = inner if inner is not None else node
    if isinstance(off, Scalar) and off.value in (None, False, "false", 0) and not (off is node and off.value is False):
        yield Finding(
            key,
            f'datastates_ckpt {config.quote(key) if off is node else config.document.text[node.span.start : node.span.end]} switches DataStates on: everything but false does. Without its package DeepSpeed raises RuntimeError "Please install DataStates" in deepspeed.initialize.',
            help='Remove it, or write "datastates_ckpt": false.',
            fix=without(config, key),
        )


@rule(
    "DS823",
    "fast-writer-outside-the-launcher",
    effect=Effect.CRASH,
    phase=Phase.INITIALIZE,
    references=("deepspeed/runtime/model_checkpointing/utils.py", "deepspeed/launcher/launch.py"),
)
@bad('{"train_micro_batch_size_per_gpu": 4, "checkpoint": {"writer": {"type": "FAST"}}}', at="checkpoint.writer")
@good('{"train_micro_batch_size_per_gpu": 4, "checkpoint": {"tag_validation": "WARN"}}')
def fast_writer_outside_the_launcher(config: Config) -> Iterator[Finding]:
    """The writer reads environment variables that only the launcher `deepspeed` sets.

    `CROSS_SIZE` and `CROSS_RANK` count the machines. Under torchrun, Slurm or MPI they are missing, and DeepSpeed raises `KeyError: 'CROSS_SIZE'`. The type FAST also
    compiles an operation that needs libaio.

    Start the run with `deepspeed`, or export both variables, or leave the writer out.
    """
    key = "checkpoint.writer"
    if (
        config.has(key)
        and config.quote(key) not in ("null", '"auto"')
        and not any(v.path == ("checkpoint", "writer") for v in config.violations)
    ):
        yield Finding(
            key,
            "checkpoint.writer needs the environment variables CROSS_SIZE and CROSS_RANK, which only the launcher deepspeed sets: elsewhere DeepSpeed raises KeyError \"'CROSS_SIZE'\" in deepspeed.initialize.",
            help="Start with deepspeed, or export both (machines, and the number of this one), or leave the writer out.",
            severity=Severity.WARNING,
        )


@rule(
    "DS825",
    "parallel-write-without-a-pipeline",
    effect=Effect.IGNORED,
    references=("deepspeed/runtime/pipe/module.py, PipelineModule.save_state_dict",),
)
@bad(
    '{"train_micro_batch_size_per_gpu": 4, "checkpoint": {"parallel_write": {"pipeline_stage": true}}, "zero_optimization": {"stage": 3}}',
    at="checkpoint.parallel_write.pipeline_stage",
)
@good(
    '{"train_micro_batch_size_per_gpu": 4, "checkpoint": {"parallel_write": {"pipeline_stage": true}}, "zero_optimization": {"stage": 1}}'
)
def parallel_write_without_a_pipeline(config: Config) -> Iterator[Finding]:
    """Parallel writing of a pipeline's layers, in a run that can have no pipeline.

    `parallel_write.pipeline_stage` lets the data-parallel ranks of a pipeline stage share the writing. A pipeline goes with ZeRO stages 0 and 1 only.

    Remove it.
    """
    key, stage = "checkpoint.parallel_write.pipeline_stage", config.value(STAGE)
    if config.has(key) and config.value(key) in (True, 1) and stage >= 2:
        yield Finding(
            key,
            f"parallel_write.pipeline_stage does nothing at ZeRO stage {stage}, with which there is no pipeline.",
            help="Remove it.",
            related=((STAGE, "the stage is set here"),),
            fix=without(config, key),
        )
