"""DS8: saving checkpoints and model weights."""

from __future__ import annotations

import re
from collections.abc import Iterator

from dslint.config import Config, ViolationKind
from dslint.diagnostics import Effect, Phase
from dslint.facts import Integration, Release
from dslint.rule import Finding, bad, good, rule
from dslint.rules.helpers.examples import MINIMAL
from dslint.rules.helpers.fixes import without, write
from dslint.rules.helpers.model import trains_part
from dslint.rules.helpers.project import programs_of
from dslint.rules.helpers.zero import STAGE
from dslint.schemas.derive import MICRO, TRAIN
from dslint.source.tree import Mapping, Scalar, plain
from dslint.source.unknown import UnknownInConfig

GATHER = "zero_optimization.stage3_gather_16bit_weights_on_model_save"
GATHER_OTHER_NAME = "zero_optimization.gather_16bit_weights_on_model_save"
TENSOR_PARALLEL = "tensor_parallel.autotp_size"
WRITER = "checkpoint.writer"
DATA_PARALLEL = "checkpoint.writer.data_parallel"
BUFFER_SIZE = "checkpoint.writer.io_buffer_size"
PARALLEL_WRITE = "checkpoint.parallel_write.pipeline_stage"

_WRITES_FAST = Release(0, 17, 1)
"""The first release with `checkpoint.writer`."""

GATHERS_ADAPTERS = Release(5, 0, 0)
"""The first release whose Trainer saves the adapters of PEFT at stage 3 in any case (transformers/trainer.py, save_model; 4.57.6 does not)."""

_ADAPTERS = (
    "from peft import LoraConfig, get_peft_model\nfrom transformers import AutoModelForCausalLM, Trainer, TrainingArguments\n"
    'arguments = TrainingArguments("out", deepspeed="ds_config.json")\n'
    'model = get_peft_model(AutoModelForCausalLM.from_pretrained("m"), LoraConfig(r=8))\n'
    "trainer = Trainer(model, arguments)\ntrainer.train()\ntrainer.save_model()\n"
)


_WRITER = '{"train_micro_batch_size_per_gpu": 4, "checkpoint": {"writer": {"type": "FAST", "data_parallel": "REPLICA"}}}'


@rule(
    "DS819",
    effect=Effect.SILENT,
    watches=(STAGE, TENSOR_PARALLEL),
    references=(
        "https://huggingface.co/docs/transformers/deepspeed",
        "accelerate/accelerator.py, Accelerator.get_state_dict",
        "deepspeed/runtime/engine.py, DeepSpeedEngine.save_16bit_model",
    ),
)
@bad(
    '{"train_batch_size": "auto", "zero_optimization": {"stage": 3}}',
    at="zero_optimization",
    integration="transformers",
    message="stage3_gather_16bit_weights_on_model_save defaults to false. At ZeRO stage 3 each rank holds only a part of every weight, so a call to the Trainer's save_model writes no weights that from_pretrained can load.",
    fixed='{"train_batch_size": "auto", "zero_optimization": {"stage": 3, "stage3_gather_16bit_weights_on_model_save": true}}',
)
@bad(
    '{"train_micro_batch_size_per_gpu": "auto", "zero_optimization": {"stage": 3}}',
    at="zero_optimization",
    message="stage3_gather_16bit_weights_on_model_save defaults to false. At ZeRO stage 3 each rank holds only a part of every weight, so neither the Trainer's save_model nor Accelerate's get_state_dict gives weights that from_pretrained can load.",
    fixed='{"train_micro_batch_size_per_gpu": "auto", "zero_optimization": {"stage": 3, "stage3_gather_16bit_weights_on_model_save": true}}',
)
@bad(
    '{"train_micro_batch_size_per_gpu": 4, "tensor_parallel": {"autotp_size": 2}, "zero_optimization": {"stage": 1}}',
    at="tensor_parallel.autotp_size",
    integration="accelerate",
    message='stage3_gather_16bit_weights_on_model_save defaults to false. With autotp_size 2 each rank holds only a part of every weight, so a call to Accelerate\'s get_state_dict raises ValueError "Cannot get 16bit model weights".',
    fixed='{"train_micro_batch_size_per_gpu": 4, "tensor_parallel": {"autotp_size": 2}, "zero_optimization": {"stage": 1, "stage3_gather_16bit_weights_on_model_save": true}}',
)
@good(
    '{"train_batch_size": "auto", "zero_optimization": {"stage": 3, "stage3_gather_16bit_weights_on_model_save": true}}',
    integration="transformers",
)
@good(
    '{"train_batch_size": "auto", "zero_optimization": {"stage": 3, "gather_16bit_weights_on_model_save": true}}',
    integration="transformers",
)
@good(
    '{"train_batch_size": "auto", "zero_optimization": {"stage": 3, "stage3_gather_16bit_weights_on_model_save": false}}',
    integration="transformers",
)
@good('{"train_micro_batch_size_per_gpu": 4, "zero_optimization": {"stage": 3}}')
@good(
    '{"train_batch_size": "auto", "zero_optimization": {"stage": 3}}',
    program=_ADAPTERS,
    integration="transformers",
    pins={"transformers": Release(5, 0, 0)},
)
@bad(
    '{"train_batch_size": "auto", "zero_optimization": {"stage": 3}}',
    at="zero_optimization",
    program=_ADAPTERS,
    integration="transformers",
    pins={"transformers": Release(4, 57, 6)},
    message="stage3_gather_16bit_weights_on_model_save defaults to false. At ZeRO stage 3 each rank holds only a part of every weight, so a call to the Trainer's save_model writes no weights that from_pretrained can load.",
    fixed='{"train_batch_size": "auto", "zero_optimization": {"stage": 3, "stage3_gather_16bit_weights_on_model_save": true}}',
)
@good(
    '{"train_batch_size": "auto", "zero_optimization": {"stage": 3}}',
    program="from transformers import AutoModelForCausalLM, Trainer, TrainingArguments\n"
    'arguments = TrainingArguments("out", deepspeed="ds_config.json", save_strategy="no")\n'
    'trainer = Trainer(AutoModelForCausalLM.from_pretrained("m"), arguments)\ntrainer.train()\n',
    training="save_strategy: 'no'\nper_device_train_batch_size: 1\nlearning_rate: 1e-4\noutput_dir: out\n",
    integration="transformers",
)
@good(
    '{"train_batch_size": "auto", "zero_optimization": {"stage": 3}}',
    program="from transformers import AutoModelForSeq2SeqLM, Seq2SeqTrainer, Seq2SeqTrainingArguments\n"
    'arguments = Seq2SeqTrainingArguments("out", deepspeed="ds_config.json")\n'
    'trainer = Seq2SeqTrainer(AutoModelForSeq2SeqLM.from_pretrained("m"), arguments)\nprint(trainer.evaluate())\n',
    training="per_device_eval_batch_size: 1\noutput_dir: out\n",
    integration="transformers",
)
@good(
    '{"train_batch_size": "auto", "zero_optimization": {"stage": 3}}',
    training="do_eval: true\nper_device_eval_batch_size: 1\noutput_dir: out\n",
    integration="transformers",
)
def weights_not_gathered(config: Config) -> Iterator[Finding]:
    """The model is partitioned across ranks, and its weights are not gathered when the model is saved.

    At ZeRO stage 3, and with tensor parallelism, no rank holds a complete weight. `save_model` of the Hugging Face Trainer then writes no
    weights that `from_pretrained` can load, only DeepSpeed's own checkpoint with one shard per rank. `Accelerator.get_state_dict` raises a
    `ValueError`. From transformers 5.0 on, the Trainer gathers the adapters of PEFT without this setting.

    A program that reads a parameter itself, for example to resize embeddings, has the same problem: at stage 3 the parameter is empty
    outside of `deepspeed.zero.GatheredParameters`.

    Write `"stage3_gather_16bit_weights_on_model_save": true`. It takes time, and host memory for a complete 16-bit copy on rank 0. If that
    is too much, leave it false and convert the checkpoint afterwards with `zero_to_fp32.py`, which DeepSpeed saves with it.
    """
    loader, stage, tensor = config.facts.integration, config.value(STAGE), config.value(TENSOR_PARALLEL)
    if loader not in (Integration.TRANSFORMERS, Integration.ACCELERATE):
        return
    if not (stage == 3 or tensor > 1) or config.value(GATHER) is not False:
        return
    if config.has(GATHER_OTHER_NAME) and config.value(GATHER_OTHER_NAME) is not False:
        return  # DeepSpeed reads both names
    program = config.setup.program if config.setup else None
    if program is not None and program.loader == Integration.ACCELERATE and not program.saves:
        return
    written = next((key for key in (GATHER, GATHER_OTHER_NAME) if config.has(key)), None)
    if written and loader is Integration.TRANSFORMERS:
        return  # a decision: nothing raises, and the checkpoint can be converted
    if loader is Integration.TRANSFORMERS and stage == 3 and trains_part(config):
        release = config.context.pinned("transformers")
        if release is None or release >= GATHERS_ADAPTERS:
            return
    if loader is Integration.TRANSFORMERS and _never_calls_save_model(config):
        return
    value = "is false" if written else "defaults to false"
    cause = "At ZeRO stage 3" if stage == 3 else f"With autotp_size {tensor}"
    setup = config.setup
    alone = setup is None or not (setup.arguments or setup.accelerate or setup.program or setup.launch)
    gathers = program is None or program.loader != Integration.ACCELERATE or _may_gather(config)
    consequence = (
        "neither the Trainer's save_model nor Accelerate's get_state_dict gives weights that from_pretrained can load"
        if "integration" in config.evidence and alone  # either of the two replaces the "auto" of this config
        else "a call to the Trainer's save_model writes no weights that from_pretrained can load"
        if loader is Integration.TRANSFORMERS
        else "state_dict() and save_pretrained() of the model give no whole weights, and this program calls no get_state_dict of Accelerate"
        if not gathers
        else 'a call to Accelerate\'s get_state_dict raises ValueError "Cannot get 16bit model weights"'
    )
    write_it = f"rite {config.assignment(GATHER, 'true')}"
    place = written or ("zero_optimization" if stage == 3 else TENSOR_PARALLEL)
    yield Finding(
        place,
        f"{config.name_of(GATHER).rpartition('.')[2]} {value}. {cause} each rank holds only a part of every weight, so {consequence}.",
        help=(f"W{write_it}" if gathers else f"Save what accelerator.get_state_dict(model) returns on all ranks, and w{write_it}")
        + ", or convert checkpoints with zero_to_fp32.py afterwards.",
        on="key" if place == "zero_optimization" else "member",
        fix=None if written else write(config, GATHER, "true"),
        effect=Effect.ADVICE if written or not _optimizes(config) else None,
        certain=bool(written),
    )


_GATHERING = re.compile(r"(?<!\w)(?:get_state_dict|save_model|save_16bit_model|save_fp16_model|_zero3_consolidated\w*)\b")
"""Calls that read the key: not `zero3_save_16bit_model`, an argument of Accelerate's plugin."""


def _may_gather(config: Config) -> bool:
    """Whether a program of the setup names a call that reads this key. A plain `state_dict()` gathers nothing, whatever its value is."""
    texts = programs_of(config)
    return not texts or any(map(_GATHERING.search, texts))


_TRAINS_OR_SAVES = re.compile(r"\btrain\w*\(|\bfit\(|save_model|save_checkpoint|push_to_hub")
_STARTS = re.compile(r"(?<!def )\b(run\w*|main)\(")
"""The call of a function that may train or save, where it is one of a module that is not read."""


def _may_train_or_save(texts: list[str]) -> bool:
    """Whether a program trains or saves, or calls a function of another module that may."""
    called = {name for text in texts for name in _STARTS.findall(text)}
    elsewhere = {name for name in called if not any(f"def {name}(" in text for text in texts)}
    return bool(elsewhere) or any(_TRAINS_OR_SAVES.search(text) for text in texts)


def _never_calls_save_model(config: Config) -> bool:
    """Whether the Trainer saves nothing: the run only evaluates, or it saves no checkpoints and gathers the weights in its own way."""
    arguments = config.setup.arguments if config.setup else None
    if arguments is None:
        return False
    from dslint.frameworks.evaluation import evaluates_by_arguments  # loads the frameworks, which a check of one config does not need

    if evaluates_by_arguments(config) is not None:
        return True
    texts = programs_of(config)
    if texts and not _may_train_or_save(texts):
        return True
    saves = any("save_model" in text or "push_to_hub" in text for text in texts)
    return arguments.value("save_strategy") == "no" and bool(texts) and not saves


def _optimizes(config: Config) -> bool:
    """Whether the config has a setting of training steps. A config for inference has none, and saves no model."""
    keys = ("optimizer", "scheduler", "gradient_accumulation_steps", "gradient_clipping", "zero_optimization.offload_optimizer")
    unpartitioned = config.value("zero_optimization.stage3_max_live_parameters") == 0  # gathers one layer at a time, as for inference
    return any(config.has(key) for key in keys) or (not unpartitioned and (config.is_auto(TRAIN) or config.is_auto(MICRO)))


@rule(
    "DS822",
    effect=Effect.CRASH,
    phase=Phase.INITIALIZE,
    watches=("datastates_ckpt",),
    references=("deepspeed/runtime/checkpoint_engine/datastates_checkpoint_engine.py", "deepspeed/datastates/config.py"),
)
@bad(
    '{"train_micro_batch_size_per_gpu": 4, "datastates_ckpt": {"enabled": false}}',
    at="datastates_ckpt",
    message='datastates_ckpt {"enabled": false} enables DataStates, as does every value except false. Without its package DeepSpeed raises RuntimeError "Please install DataStates" in deepspeed.initialize.',
    fixed='{"train_micro_batch_size_per_gpu": 4}',
)
@bad(
    '{"train_micro_batch_size_per_gpu": 4, "datastates_ckpt": null}',
    at="datastates_ckpt",
    message='datastates_ckpt null enables DataStates, as does every value except false. Without its package DeepSpeed raises RuntimeError "Please install DataStates" in deepspeed.initialize.',
    fixed='{"train_micro_batch_size_per_gpu": 4}',
)
@good('{"train_micro_batch_size_per_gpu": 4, "datastates_ckpt": false}')
def datastates_cannot_be_switched_off(config: Config) -> Iterator[Finding]:
    """Every value of `datastates_ckpt` except false enables the DataStates checkpoint engine.

    DeepSpeed only checks whether the value itself is `false`, so `{"enabled": false}` and null enable the engine. Without the DataStates
    package `deepspeed.initialize` raises a `RuntimeError`.

    Remove the key, or write `"datastates_ckpt": false`.
    """
    key = "datastates_ckpt"
    node = config.node(key)
    if node is None or any(violation.path == (key,) and violation.kind is ViolationKind.TOO_NEW for violation in config.violations):
        return
    if isinstance(config.node(WRITER), Mapping):
        return  # the engine of the writer is chosen first
    enabled = config.node(f"{key}.enabled")
    switch = node if enabled is None else enabled
    if not isinstance(switch, Scalar) or switch.value not in (None, False, "false", 0):
        return
    if switch is not node or switch.value is not False:
        yield Finding(
            key,
            f'datastates_ckpt {config.quote(key)} enables DataStates, as does every value except false. Without its package DeepSpeed raises RuntimeError "Please install DataStates" in deepspeed.initialize.',
            help='Remove it, or write "datastates_ckpt": false.',
            fix=without(config, key),
        )


@rule(
    "DS823",
    effect=Effect.CRASH,
    phase=Phase.INITIALIZE,
    watches=(WRITER,),
    references=("deepspeed/runtime/model_checkpointing/utils.py", "deepspeed/launcher/launch.py"),
    untried="the launcher sets the variables, and so does the suite",
)
@bad(
    _WRITER,
    at="checkpoint.writer",
    message="checkpoint.writer reads the environment variables CROSS_SIZE and CROSS_RANK, which only the deepspeed launcher sets: deepspeed.initialize may raise KeyError \"'CROSS_SIZE'\".",
)
@bad(
    _WRITER,
    at="checkpoint.writer",
    launch="deepspeed --launcher openmpi train.py --deepspeed_config ds_config.json\n",
    integration="deepspeed",
    message="checkpoint.writer reads the environment variables CROSS_SIZE and CROSS_RANK, which only the deepspeed launcher sets: deepspeed.initialize may raise KeyError \"'CROSS_SIZE'\".",
)
@good('{"train_micro_batch_size_per_gpu": 4, "checkpoint": {"tag_validation": "WARN"}}')
@good(_WRITER, launch="deepspeed --num_gpus 2 train.py --deepspeed_config ds_config.json\n", integration="deepspeed")
def fast_writer_outside_the_launcher(config: Config) -> Iterator[Finding]:
    """`checkpoint.writer` requires environment variables that only the `deepspeed` launcher sets.

    `CROSS_SIZE` and `CROSS_RANK` are the number of machines and the index of this one. Under torchrun, Slurm or MPI they are missing, and
    DeepSpeed raises `KeyError: 'CROSS_SIZE'`. The type FAST also compiles an operator that requires libaio.

    Start the run with `deepspeed`, export both variables, or remove the writer.
    """
    if not config.has(WRITER) or config.is_null(WRITER) or config.is_auto(WRITER):
        return
    if any(violation.path == ("checkpoint", "writer") for violation in config.violations) or _has_no_ranks(config):
        return
    launch = config.setup.launch if config.setup else None
    if launch is not None and launch.launcher == "deepspeed":
        runner = launch.flags.get("launcher")
        if runner is None or runner.value == "pdsh":
            return  # its launch.py sets both; other runners start the ranks without it
    yield Finding(
        WRITER,
        "checkpoint.writer reads the environment variables CROSS_SIZE and CROSS_RANK, which only the deepspeed launcher sets: deepspeed.initialize may raise KeyError \"'CROSS_SIZE'\".",
        help="Start the run with deepspeed, export both variables (number of machines, index of this machine), or remove the writer.",
        certain=False,
    )


def _has_no_ranks(config: Config) -> bool:
    """Whether a writer does not say which ranks write, where that is read."""
    silent = config.lacks(DATA_PARALLEL) or config.is_null(DATA_PARALLEL)
    return config.release >= _WRITES_FAST and isinstance(config.node(WRITER), Mapping) and silent and bool(config.value(STAGE) < 3)


@rule(
    "DS863",
    effect=Effect.CRASH,
    phase=Phase.INITIALIZE,
    watches=(WRITER,),
    references=("deepspeed/runtime/model_checkpointing/data_parallel_writer_factory.py, DataParallelWriterFactory",),
)
@bad(
    '{"train_micro_batch_size_per_gpu": 4, "checkpoint": {"writer": {"type": "PYTHON"}}}',
    at="checkpoint.writer",
    message="checkpoint.writer has no data_parallel: below ZeRO stage 3 DeepSpeed raises AttributeError \"'UniversalParallelInfo' object has no attribute 'dp_rank'\" in deepspeed.initialize.",
    fixed='{"train_micro_batch_size_per_gpu": 4, "checkpoint": {"writer": {"type": "PYTHON", "data_parallel": "REPLICA"}}}',
)
@bad(
    '{"train_micro_batch_size_per_gpu": 4, "checkpoint": {"writer": {"data_parallel": null}}, "zero_optimization": {"stage": 2}}',
    at=WRITER,
    message="checkpoint.writer has no data_parallel: below ZeRO stage 3 DeepSpeed raises AttributeError \"'UniversalParallelInfo' object has no attribute 'dp_rank'\" in deepspeed.initialize.",
    fixed='{"train_micro_batch_size_per_gpu": 4, "checkpoint": {"writer": {"data_parallel": "REPLICA"}}, "zero_optimization": {"stage": 2}}',
)
@good('{"train_micro_batch_size_per_gpu": 4, "checkpoint": {"writer": null}}')
@good('{"train_micro_batch_size_per_gpu": 4, "checkpoint": {"writer": {"type": "PYTHON"}}}', deepspeed="0.16.9")
def writer_without_data_parallel(config: Config) -> Iterator[Finding]:
    """Below ZeRO stage 3, `checkpoint.writer` requires `data_parallel`.

    `data_parallel` says which ranks write a part of the checkpoint. Without it DeepSpeed looks for the data-parallel rank in an object that
    has none, and raises an `AttributeError`. Only programs that pass their own `mpu`, or models with experts, get past it. At stage 3 every
    rank writes its own part, and the key is not read.

    Write `"data_parallel": "REPLICA"` (all ranks), `"MACHINE"` or `"SOCKET"` (one rank of each), or remove the writer.
    """
    if _has_no_ranks(config):
        yield Finding(
            WRITER,
            "checkpoint.writer has no data_parallel: below ZeRO stage 3 DeepSpeed raises AttributeError \"'UniversalParallelInfo' object has no attribute 'dp_rank'\" in deepspeed.initialize.",
            help='Add "data_parallel": "REPLICA", or remove the writer.',
            fix=write(config, DATA_PARALLEL, '"REPLICA"'),
        )


@rule(
    "DS864",
    effect=Effect.CRASH,
    phase=Phase.INITIALIZE,
    watches=(BUFFER_SIZE,),
    references=("deepspeed/runtime/model_checkpointing/writer_factory.py, CheckpointWriterFactory._setup_for_aio",),
)
@bad(
    '{"train_micro_batch_size_per_gpu": 4, "checkpoint": {"writer": {"data_parallel": "REPLICA", "io_buffer_size": "64MB"}}}',
    at=BUFFER_SIZE,
    message='io_buffer_size "64MB" is not a number of bytes: DeepSpeed raises TypeError "empty(): argument \'size\' must be tuple of ints, not str" in deepspeed.initialize.',
)
@bad(
    '{"train_micro_batch_size_per_gpu": 4, "checkpoint": {"writer": {"data_parallel": "REPLICA", "io_buffer_size": -1}}}',
    at=BUFFER_SIZE,
    message='io_buffer_size -1 is not a number of bytes: DeepSpeed raises RuntimeError "Trying to create tensor with negative dimension" in deepspeed.initialize.',
)
@good('{"train_micro_batch_size_per_gpu": 4, "checkpoint": {"tag_validation": "WARN"}}')
def writer_buffer_not_a_size(config: Config) -> Iterator[Finding]:
    """The fast checkpoint writer allocates a buffer of `io_buffer_size` bytes, which has to be an integer.

    DeepSpeed does not check the value, and torch raises a `TypeError` or a `RuntimeError` that does not name the key. A float such as `64e6`
    is an integer in a file that DeepSpeed reads, and a float in a dict. Only the type FAST, the default, has the buffer.

    Write the number of bytes as an integer.
    """
    node, kind = config.node(BUFFER_SIZE), config.value(f"{WRITER}.type")
    if node is None or not isinstance(kind, str) or kind.upper() != "FAST":
        return
    size = plain(node, as_json=bool(config.facts.is_dict))
    if isinstance(size, list | UnknownInConfig) or (isinstance(size, int) and not isinstance(size, bool) and size >= 0):
        return
    error = f"TypeError \"empty(): argument 'size' must be tuple of ints, not {type(size).__name__}\""
    if isinstance(size, int) and size < 0:
        error = 'RuntimeError "Trying to create tensor with negative dimension"'
    yield Finding(
        BUFFER_SIZE,
        f"io_buffer_size {config.quote(BUFFER_SIZE)} is not a number of bytes: DeepSpeed raises {error} in deepspeed.initialize.",
        help="Write the number of bytes as an integer, such as 67108864.",
        on="value",
    )


@rule(
    "DS825",
    effect=Effect.IGNORED,
    watches=(PARALLEL_WRITE,),
    references=("deepspeed/runtime/pipe/module.py, PipelineModule.save_state_dict",),
)
@bad(
    '{"train_micro_batch_size_per_gpu": 4, "checkpoint": {"parallel_write": {"pipeline_stage": true}}, "zero_optimization": {"stage": 3}}',
    at="checkpoint.parallel_write.pipeline_stage",
    message="parallel_write.pipeline_stage has no effect at ZeRO stage 3, which does not support pipelines.",
    fixed='{"train_micro_batch_size_per_gpu": 4, "checkpoint": {"parallel_write": {}}, "zero_optimization": {"stage": 3}}',
)
@good(
    '{"train_micro_batch_size_per_gpu": 4, "checkpoint": {"parallel_write": {"pipeline_stage": true}}, "zero_optimization": {"stage": 1}}'
)
def parallel_write_without_a_pipeline(config: Config) -> Iterator[Finding]:
    """`parallel_write.pipeline_stage` is set, but this ZeRO stage does not support pipelines.

    With it, the data-parallel ranks of a pipeline stage share the writing of the layers. Pipelines work only with ZeRO stages 0 and 1.

    Remove it.
    """
    stage = config.value(STAGE)
    if config.has(PARALLEL_WRITE) and config.value(PARALLEL_WRITE) in (True, 1) and stage >= 2:
        yield Finding(
            PARALLEL_WRITE,
            f"parallel_write.pipeline_stage has no effect at ZeRO stage {stage}, which does not support pipelines.",
            help="Remove it.",
            related=((STAGE, "the stage is set here"),),
            fix=without(config, PARALLEL_WRITE),
        )


@rule(
    "DS860",
    effect=Effect.ADVICE,
    needs=("nodes",),
    watches=(STAGE,),
    references=("https://www.deepspeed.ai/docs/config-json/#checkpoint-options", "https://github.com/deepspeedai/DeepSpeed/issues/2319"),
    pedantic=True,
)
@bad(
    f'{{{MINIMAL}, "zero_optimization": {{"stage": 2}}}}',
    at="",
    nodes=2,
    message="2 machines each save a part of the checkpoint: unless they save to shared storage, no machine can resume from it.",
)
@good(f'{{{MINIMAL}, "checkpoint": {{"use_node_local_storage": true}}, "zero_optimization": {{"stage": 2}}}}', nodes=2)
def checkpoints_on_several_machines(config: Config) -> Iterator[Finding]:
    """With several machines, a checkpoint requires storage that all of them share.

    Each rank writes its part of the optimizer states. If every machine writes to its own disk, each has only some of the files, and a
    resume fails because the others are missing. With `use_node_local_storage` each machine also writes the model states and loads from its
    own disk; on shared storage the machines then overwrite each other's files.

    Save to shared storage. If each machine has its own disk, write `"checkpoint": {"use_node_local_storage": true}`.
    """
    nodes, local = config.facts.nodes, config.value("checkpoint.use_node_local_storage")
    if nodes is not None and nodes > 1 and local is False and config.value(STAGE) >= 1:
        yield Finding(
            "",
            f"{nodes} machines each save a part of the checkpoint: unless they save to shared storage, no machine can resume from it.",
            help='Save to shared storage, or add "checkpoint": {"use_node_local_storage": true} if each machine has its own disk.',
        )
