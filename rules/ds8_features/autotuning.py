"""DS8: autotuning, elasticity, the hybrid engine, and what has no reader."""

from __future__ import annotations

from collections.abc import Iterator

from dslint.config import Config
from dslint.diagnostics import Applicability, Effect, Phase, Severity
from dslint.facts import Release
from dslint.rule import Finding, bad, good, rule
from dslint.rules.helpers.fixes import without, write
from dslint.schemas.key_table import KEYS
from dslint.source.tree import Mapping

MINIMAL = '"train_micro_batch_size_per_gpu": 4'
STAGE = "zero_optimization.stage"
WITHOUT_ELASTICITY, WITHOUT_COMPRESSION = Release(0, 19, 8), Release(0, 19, 7)
"""The first releases without them."""
BATCH_SIZES = ("train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps")


@rule(
    "DS850",
    "autotuning-ends-the-run",
    effect=Effect.SILENT,
    references=("deepspeed/runtime/engine.py, DeepSpeedEngine._autotuning_exit", "https://www.deepspeed.ai/tutorials/autotuning/"),
)
@bad(f'{{{MINIMAL}, "autotuning": {{"enabled": true}}}}', at="autotuning.enabled")
@bad(f'{{{MINIMAL}, "autotuning": {{"enabled": true, "end_profile_step": 20}}}}', at="autotuning.enabled")
@good(f'{{{MINIMAL}, "autotuning": {{"enabled": false}}}}')
def autotuning_ends_the_run(config: Config) -> Iterator[Finding]:
    """A config with autotuning enabled is one for the tuner: a run with it measures a few steps and exits.

    After `end_profile_step` (5 unless it is written) and one step more, the engine writes its measurements and calls `exit()`, with the exit code of success. Nothing is saved.
    The flops profiler is on until then.

    Start it with `deepspeed --autotuning`, and train with the config that it puts into `autotuning_results`; or write `"enabled": false`.
    """
    key, last = "autotuning.enabled", config.value("autotuning.end_profile_step")
    if config.has(key) and config.value(key) is True and isinstance(last, int):
        yield Finding(
            key,
            f"autotuning is enabled: unless it is started with deepspeed --autotuning, training exits after step {last + 1}, with the exit code 0 and nothing saved.",
            help='Write "enabled": false for the real run.',
            fix=write(config, key, "false"),
            severity=Severity.WARNING,
        )


@rule(
    "DS851",
    "profile-before-autotuning-ends",
    effect=Effect.CRASH,
    phase=Phase.STEP,
    references=("deepspeed/runtime/engine.py, DeepSpeedEngine._autotuning_exit",),
)
@bad(
    f'{{{MINIMAL}, "autotuning": {{"enabled": true, "start_profile_step": 3, "end_profile_step": 1}}}}',
    at="autotuning.end_profile_step",
)
@good(f'{{{MINIMAL}, "autotuning": {{"enabled": false, "start_profile_step": 3, "end_profile_step": 1}}}}')
def profile_before_autotuning_ends(config: Config) -> Iterator[Finding]:
    """Autotuning ends before it has profiled anything.

    The engine profiles step `start_profile_step` (3 unless it is written) and exits after `end_profile_step`. Where that comes first, it has no measurement to write, and raises
    an `AttributeError`.

    Write an `end_profile_step` above `start_profile_step`.
    """
    key = "autotuning.end_profile_step"
    start, end = config.value("autotuning.start_profile_step"), config.value(key)
    if config.enabled("autotuning") is True and isinstance(start, int) and isinstance(end, int) and end + 1 < start:
        yield Finding(
            key if config.has(key) else "autotuning.start_profile_step",
            f"autotuning ends after step {end + 1}, before step {start} is profiled: DeepSpeed raises AttributeError \"'DeepSpeedEngine' object has no attribute 'flops'\".",
            help='Write an "end_profile_step" above "start_profile_step".',
            fix=without(config, key, Applicability.UNSAFE) if config.has(key) and KEYS[key]["default"] > start else None,
        )


@rule(
    "DS852",
    "elasticity-beside-batch-sizes",
    effect=Effect.CRASH,
    phase=Phase.PARSE,
    references=("https://www.deepspeed.ai/docs/config-json/#elastic-training-config-v01-and-v02",),
    untried="elasticity was removed in 0.19.8, and the suite runs 0.19.8",
)
@bad(
    f'{{{MINIMAL}, "elasticity": {{"enabled": true, "max_train_batch_size": 2000, "micro_batch_sizes": [2, 4]}}}}',
    at="elasticity.enabled",
    deepspeed="0.18.9",
)
@good(
    f'{{{MINIMAL}, "elasticity": {{"enabled": true, "max_train_batch_size": 2000, "micro_batch_sizes": [2, 4], "ignore_non_elastic_batch_info": true}}}}',
    deepspeed="0.18.9",
)
@good(f'{{{MINIMAL}, "elasticity": {{"enabled": false}}}}', deepspeed="0.18.9")
def elasticity_beside_batch_sizes(config: Config) -> Iterator[Finding]:
    """Elasticity computes the batch sizes, and DeepSpeed refuses any that are written beside it.

    Up to release 0.19.7 it raises `ElasticityConfigError`, unless `ignore_non_elastic_batch_info` is true, which makes it overwrite them. Later releases have no elasticity.

    Remove the batch sizes, or elasticity.
    """
    node = config.node("elasticity")
    values = {member.key.value: getattr(member.value, "value", None) for member in node.members} if isinstance(node, Mapping) else {}
    written = [key for key in BATCH_SIZES if config.has(key)]
    if (
        config.release < WITHOUT_ELASTICITY
        and values.get("enabled") is True
        and written
        and not values.get("ignore_non_elastic_batch_info")
    ):
        yield Finding(
            "elasticity.enabled",
            f"elasticity computes the batch sizes, and {written[0]} is written too: DeepSpeed {config.release} raises ElasticityConfigError while parsing.",
            help="Remove the batch sizes, or elasticity, which 0.19.8 and newer do not have.",
            related=tuple((key, "excluded by elasticity") for key in written),
        )


@rule(
    "DS853",
    "elasticity-incomplete",
    effect=Effect.CRASH,
    phase=Phase.PARSE,
    references=("https://www.deepspeed.ai/docs/config-json/#elastic-training-config-v01-and-v02",),
    untried="elasticity was removed in 0.19.8, and the suite runs 0.19.8",
)
@bad('{"elasticity": {"enabled": true, "micro_batch_sizes": [2, 4]}}', at="elasticity", deepspeed="0.18.9")
@good(
    f'{{{MINIMAL}, "elasticity": {{"enabled": true, "max_train_batch_size": 2000, "micro_batch_sizes": [2, 4], "ignore_non_elastic_batch_info": true}}}}',
    deepspeed="0.18.9",
)
def elasticity_incomplete(config: Config) -> Iterator[Finding]:
    """Elasticity wants to know the largest batch and the micro batches to choose from.

    Without `max_train_batch_size` or `micro_batch_sizes` DeepSpeed (up to 0.19.7) raises `ElasticityConfigError`.

    Add both.
    """
    node = config.node("elasticity")
    if not isinstance(node, Mapping) or config.release >= WITHOUT_ELASTICITY:
        return
    values = {member.key.value: getattr(member.value, "value", None) for member in node.members}
    missing = [name for name in ("max_train_batch_size", "micro_batch_sizes") if name not in values]
    if values.get("enabled") is True and missing:
        yield Finding(
            "elasticity",
            f"elasticity is enabled without {' and '.join(missing)}: DeepSpeed {config.release} raises ElasticityConfigError while parsing.",
            help=f"Add {' and '.join(missing)}.",
            on="key",
        )


@rule(
    "DS854",
    "cuda-graph-not-used",
    effect=Effect.IGNORED,
    references=("deepspeed/runtime/hybrid_engine_graph.py, validate_cuda_graph_support",),
)
@bad(
    f'{{{MINIMAL}, "hybrid_engine": {{"enabled": true, "enable_cuda_graph": true}}, "zero_optimization": {{"stage": 3}}}}',
    at="hybrid_engine.enable_cuda_graph",
)
@good(f'{{{MINIMAL}, "hybrid_engine": {{"enabled": true, "enable_cuda_graph": true}}, "zero_optimization": {{"stage": 2}}}}')
def cuda_graph_not_used(config: Config) -> Iterator[Finding]:
    """The hybrid engine takes no CUDA graphs here.

    A graph replays the buffers it was recorded with. At ZeRO stage 3 the weights are gathered into new ones, with `release_inference_cache` the cache is, and with an
    `inference_tp_size` above 1 the ranks exchange theirs: DeepSpeed logs a warning and generates without graphs.

    Remove it, or what stands against it.
    """
    key = "hybrid_engine.enable_cuda_graph"
    if config.enabled("hybrid_engine") is not True or not config.has(key) or config.value(key) is not True:
        return
    against = (
        (STAGE, config.value(STAGE) == 3, "at ZeRO stage 3"),
        (
            "hybrid_engine.release_inference_cache",
            config.value("hybrid_engine.release_inference_cache") is True,
            "with release_inference_cache",
        ),
        ("hybrid_engine.inference_tp_size", config.value("hybrid_engine.inference_tp_size") > 1, "with an inference_tp_size above 1"),
    )
    for other, excluded, when in against:
        if excluded:
            yield Finding(
                key,
                f"enable_cuda_graph does nothing {when}: the hybrid engine generates without graphs.",
                help="Remove it, or what stands against it.",
                related=((other, "set here"),),
                fix=without(config, key),
            )
            return


UNREAD = {
    "pipeline.stages": "the number of stages is an argument of PipelineModule",
    "pipeline.partition": "how layers are divided is an argument of PipelineModule, partition_method",
    "pipeline.seed_layers": "that is an argument of PipelineModule",
    "vocabulary_size": "DeepSpeed only looks whether it is a multiple of 8, and warns",
    "disable_allgather": "no release has a reader for it",
}
"""Keys that DeepSpeed parses, with who says instead what they seem to say."""


@rule(
    "DS855", "key-without-a-reader", effect=Effect.IGNORED, references=("deepspeed/runtime/config.py", "deepspeed/runtime/pipe/module.py")
)
@bad(f'{{{MINIMAL}, "pipeline": {{"stages": 4}}}}', at="pipeline.stages")
@bad(f'{{{MINIMAL}, "vocabulary_size": 50257}}', at="vocabulary_size")
@bad(f'{{{MINIMAL}, "disable_allgather": true}}', at="disable_allgather")
@good(f'{{{MINIMAL}, "pipeline": {{"activation_checkpoint_interval": 1}}, "disable_allgather": false}}')
def key_without_a_reader(config: Config) -> Iterator[Finding]:
    """DeepSpeed takes this key, and nothing in it reads the value.

    `pipeline.stages` and its like look as if they built a pipeline: what builds one is the program, with `PipelineModule` and its arguments.

    Remove it, and say it where it is read.
    """
    for key, instead in UNREAD.items():
        if (
            config.has(key)
            and config.quote(key) not in ("null", "false", '"auto"')
            and not any(violation.path == tuple(key.split(".")) for violation in config.violations)
        ):
            yield Finding(key, f"{key} {config.quote(key)} has no effect: {instead}.", help="Remove it.", fix=without(config, key))


@rule("DS856", "weight-quantization-not-read", effect=Effect.IGNORED, references=("deepspeed/runtime/zero/partition_parameters.py, Init",))
@bad(f'{{{MINIMAL}, "weight_quantization": {{"enabled": true, "num_bits": 8}}}}', at="weight_quantization")
@good(f'{{{MINIMAL}, "weight_quantization": {{"quantized_initialization": {{"num_bits": 8}}}}}}')
def weight_quantization_not_read(config: Config) -> Iterator[Finding]:
    """Of `weight_quantization` only `quantized_initialization` is read in training.

    `zero.Init` takes it to build the model quantized. `enabled`, `num_bits`, `q_type`, `q_groups` and `post_init_quant` belong to inference: the weights stay as they are.

    Put what is meant into `quantized_initialization`, or remove the section.
    """
    node = config.node("weight_quantization")
    if not isinstance(node, Mapping) or config.release < Release(0, 19, 0) or config.has("weight_quantization.quantized_initialization"):
        return
    names = [member.key.value for member in node.members]
    if names and not any(violation.path[:1] == ("weight_quantization",) for violation in config.violations):
        yield Finding(
            "weight_quantization",
            f"weight_quantization has {', '.join(names)}, and training reads quantized_initialization alone: no weight is quantized.",
            help='Write "quantized_initialization": {...}, or remove the section.',
            on="key",
            fix=without(config, "weight_quantization"),
        )


@rule(
    "DS857",
    "hybrid-engine-with-grouped-queries",
    effect=Effect.ADVICE,
    needs=("model",),
    references=("https://github.com/deepspeedai/DeepSpeedExamples/issues/864",),
)
@bad(
    f'{{{MINIMAL}, "hybrid_engine": {{"enabled": true}}, "zero_optimization": {{"stage": 3}}}}',
    at="hybrid_engine.enabled",
    model={"num_attention_heads": 32, "num_key_value_heads": 8, "hidden_size": 4096},
)
@good(
    f'{{{MINIMAL}, "hybrid_engine": {{"enabled": true}}, "zero_optimization": {{"stage": 3}}}}',
    model={"num_attention_heads": 32, "num_key_value_heads": 32, "hidden_size": 4096},
)
def hybrid_engine_with_grouped_queries(config: Config) -> Iterator[Finding]:
    """The hybrid engine's kernels were reported to generate garbage for models with grouped queries at ZeRO stage 3.

    Llama 2 70B and its like share key and value heads among queries. People saw the same tokens over and over.

    Compare a few generations with those of a run without it, or switch it off and generate with another engine.
    """
    model, key = config.facts.model, "hybrid_engine.enabled"
    if model is None or not config.has(key) or config.value(key) is not True or not config.value(STAGE) >= 3:
        return
    if model.heads and model.kv_heads and model.kv_heads < model.heads:
        yield Finding(
            key,
            f"The model shares {model.kv_heads} key-value heads among {model.heads} query heads, for which the hybrid engine at stage 3 was reported to generate repeated tokens.",
            help="Compare some of its generations with those of a run without it.",
        )


TECHNIQUES = ("weight_quantization", "activation_quantization", "sparse_pruning", "row_pruning", "head_pruning", "channel_pruning")


@rule(
    "DS858",
    "compression-without-groups",
    effect=Effect.CRASH,
    phase=Phase.PARSE,
    references=("deepspeed/compression/config.py", "https://www.deepspeed.ai/docs/config-json/#compression"),
    untried="compression was removed in 0.19.7, and the suite runs 0.19.8",
)
@bad(
    f'{{{MINIMAL}, "compression_training": {{"row_pruning": {{"shared_parameters": {{"enabled": true, "method": "topk"}}}}}}}}',
    at="compression_training.row_pruning",
    deepspeed="0.18.9",
)
@good(
    f'{{{MINIMAL}, "compression_training": {{"row_pruning": {{}}}}}}',
    deepspeed="0.18.9",
)
def compression_without_groups(config: Config) -> Iterator[Finding]:
    """A way of compression has settings for all layers, and no groups of layers that it is for.

    Up to release 0.19.6 DeepSpeed wants `different_groups` beside `shared_parameters`: it asserts them where the technique is enabled, and raises a `KeyError` where it is not.
    Later releases have no compression.

    Add `different_groups`, with the modules and what is wanted of them.
    """
    if config.release >= WITHOUT_COMPRESSION:
        return
    for technique in TECHNIQUES:
        at = f"compression_training.{technique}"
        shared = config.node(f"{at}.shared_parameters")
        values = (
            {member.key.value: getattr(member.value, "value", None) for member in shared.members} if isinstance(shared, Mapping) else {}
        )
        if not values or values.get("method") == "snip_momentum" or config.has(f"{at}.different_groups"):
            continue
        error = "AssertionError" if values.get("enabled") is True else "KeyError \"'different_groups'\""
        yield Finding(
            at,
            f"{technique} has shared_parameters and no different_groups: DeepSpeed {config.release} raises {error} while parsing.",
            help='Add "different_groups": {...}.',
            on="key",
            fix=write(config, f"{at}.different_groups", "{}", Applicability.SAFE) if values.get("enabled") is not True else None,
        )


@rule(
    "DS859",
    "wandb-newer-than-deepspeed",
    effect=Effect.ADVICE,
    references=("https://github.com/deepspeedai/DeepSpeed/issues/7381",),
)
@bad(f'{{{MINIMAL}, "wandb": {{"enabled": true}}}}', at="wandb.enabled", deepspeed="0.16.9")
@good(f'{{{MINIMAL}, "wandb": {{"enabled": true}}}}', deepspeed="0.18.9")
def wandb_newer_than_deepspeed(config: Config) -> Iterator[Finding]:
    """Releases up to 0.17.1 hand wandb an argument that wandb 0.20 took away.

    The first thing that is logged then raises a `TypeError` about `sync`.

    Pin wandb below 0.20, or upgrade DeepSpeed.
    """
    if config.has("wandb.enabled") and config.enabled("wandb") is True and config.release <= Release(0, 17, 1):
        yield Finding(
            "wandb.enabled",
            f"DeepSpeed {config.release} does not go with wandb 0.20 and newer: the first thing it logs raises TypeError about the argument sync.",
            help="Pin wandb below 0.20, or upgrade DeepSpeed to 0.17.2 or newer.",
        )


@rule(
    "DS860",
    "checkpoints-on-several-machines",
    effect=Effect.ADVICE,
    needs=("nodes",),
    references=("https://www.deepspeed.ai/docs/config-json/#checkpoint-options", "https://github.com/deepspeedai/DeepSpeed/issues/2319"),
    pedantic=True,
)
@bad(f'{{{MINIMAL}, "zero_optimization": {{"stage": 2}}}}', at="", nodes=2)
@good(f'{{{MINIMAL}, "checkpoint": {{"use_node_local_storage": true}}, "zero_optimization": {{"stage": 2}}}}', nodes=2)
def checkpoints_on_several_machines(config: Config) -> Iterator[Finding]:
    """On several machines a checkpoint has to go to a disk that all of them share.

    Each rank writes its part of the optimizer. Where the folder is on the machines' own disks, every machine has some of the files, and a resume finds that the others are missing.
    With `use_node_local_storage` each machine also writes the model's states and loads from its own disk; on a shared disk they then write over each other.

    Save to shared storage, or write `"checkpoint": {"use_node_local_storage": true}` for disks of their own.
    """
    nodes, local = config.facts.nodes, config.value("checkpoint.use_node_local_storage")
    if nodes is not None and nodes > 1 and local is False and config.value(STAGE) >= 1:
        yield Finding(
            "",
            f"{nodes} machines save parts of one checkpoint: unless its folder is on storage that they share, none of them can resume.",
            help='Save to shared storage, or add "checkpoint": {"use_node_local_storage": true} where each has its own disk.',
        )
