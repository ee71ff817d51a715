"""DS8: data efficiency: curriculum learning and random layer token drop."""

from __future__ import annotations

from collections.abc import Iterator

from dslint.config import UNKNOWN, Config
from dslint.diagnostics import Applicability, Effect, Phase
from dslint.rule import Finding, bad, good, rule, safe
from dslint.rules.helpers.fixes import json_text, spelling, write
from dslint.source.change import Remove
from dslint.source.tree import Mapping

DOCS = "https://www.deepspeed.ai/docs/config-json/#data-efficiency"
LTD = "data_efficiency.data_routing.random_ltd"
CURRICULUM = "data_efficiency.data_sampling.curriculum_learning"
BATCHING = "data_efficiency.data_sampling.dynamic_batching"
LTD_SOURCE = "deepspeed/runtime/data_pipeline/data_routing/scheduler.py"
CURRICULUM_SOURCE = "deepspeed/runtime/data_pipeline/curriculum_scheduler.py"
MINIMAL = '"train_micro_batch_size_per_gpu": 4'


def _ltd(inner: str) -> str:
    return f'{{{MINIMAL}, "data_efficiency": {{"enabled": true, "data_routing": {{"enabled": true, "random_ltd": {{"enabled": true, {inner}}}}}}}}}'


def _schedule(inner: str, layers: str = '"total_layer_num": 24, "random_ltd_layer_num": 2, "random_ltd_layer_id": [1, 2]') -> str:
    return _ltd(f'{layers}, "random_ltd_schedule": {{{inner}}}')


WHOLE = (
    '"min_value": 128, "max_value": 2048, "schedule_type": "fixed_linear", "schedule_config": {"require_steps": 20000, "seq_per_step": 16}'
)


@rule("DS810", "data-efficiency-switch-not-read", effect=Effect.SILENT, references=("deepspeed/runtime/data_pipeline/config.py", DOCS))
@bad(
    f'{{{MINIMAL}, "data_efficiency": {{"enabled": false, "data_routing": {{"random_ltd": {{"enabled": true, "total_layer_num": 24, "random_ltd_layer_num": 2, "random_ltd_layer_id": [1, 2], "random_ltd_schedule": {{{WHOLE}}}}}}}}}}}',
    at="data_efficiency.enabled",
)
@good(_schedule(WHOLE))
@good(f'{{{MINIMAL}, "data_efficiency": {{"enabled": false, "data_routing": {{"random_ltd": {{"enabled": false}}}}}}}}')
def data_efficiency_switch_not_read(config: Config) -> Iterator[Finding]:
    """The outer switches of `data_efficiency` switch nothing: what is enabled inside is on.

    DeepSpeed reads `enabled` of `data_efficiency`, `data_sampling` and `data_routing`, and asks none of them. Curriculum learning and random layer token drop follow
    their own `enabled` alone.

    Write `"enabled": false` in the section of the feature.
    """
    for outer in ("data_efficiency", "data_efficiency.data_sampling", "data_efficiency.data_routing"):
        key = f"{outer}.enabled"
        if not config.has(key) or config.value(key) is not False:
            continue
        for feature in (CURRICULUM, LTD):
            if feature.startswith(f"{outer}.") and config.value(f"{feature}.enabled") is True:
                name = feature.rpartition(".")[2]
                yield Finding(
                    key,
                    f"{key} {config.quote(key)} does not switch {name} off: it is enabled in its own section, and DeepSpeed looks at nothing else.",
                    help=f'Write "enabled": false in {name}.',
                    related=((f"{feature}.enabled", "switched on here"),),
                    fix=write(config, f"{feature}.enabled", "false"),
                )
                return


@rule("DS811", "data-efficiency-without-a-feature", effect=Effect.IGNORED, references=("deepspeed/runtime/data_pipeline/config.py", DOCS))
@bad(f'{{{MINIMAL}, "data_efficiency": {{"enabled": true, "seed": 7}}}}', at="data_efficiency.enabled")
@good(_schedule(WHOLE))
@good(f'{{{MINIMAL}, "data_efficiency": {{"enabled": false}}}}')
def data_efficiency_without_a_feature(config: Config) -> Iterator[Finding]:
    """`data_efficiency` is enabled, and nothing in it is.

    Curriculum learning, dynamic batching and random layer token drop have an `enabled` each, and only those count.

    Enable what is meant, or remove the section.
    """
    key = "data_efficiency.enabled"
    features = [config.value(f"{feature}.enabled") for feature in (CURRICULUM, BATCHING, LTD)]
    if config.has(key) and config.value(key) is True and all(on is False for on in features):
        yield Finding(
            key,
            "data_efficiency is enabled, but none of curriculum_learning, dynamic_batching and random_ltd is: it does nothing.",
            help='Write "enabled": true in the section of the feature, or remove data_efficiency.',
            fix=write(config, key, "false", Applicability.SAFE),
        )


def _missing(config: Config, section: str, names: tuple[str, ...]) -> list[str]:
    """The names that a section lacks; none where it is not a section, or where a misspelling may stand for one."""
    if not isinstance(config.node(section), Mapping):
        return []
    path = tuple(section.split("."))
    meant = {violation.meant[-1] for violation in config.violations if violation.meant and violation.meant[:-1] == path}
    return [name for name in names if not config.has(f"{section}.{name}") and name not in meant]


@rule("DS812", "random-ltd-incomplete", effect=Effect.CRASH, phase=Phase.INITIALIZE, references=(LTD_SOURCE, DOCS))
@bad(_ltd('"random_ltd_layer_num": 2'), at=LTD)
@bad(_schedule('"min_value": 128, "max_value": 2048'), at=f"{LTD}.random_ltd_schedule")
@good(_schedule(WHOLE))
def random_ltd_incomplete(config: Config) -> Iterator[Finding]:
    """Random layer token drop lacks a setting that DeepSpeed looks up without a default.

    It needs `total_layer_num`, `random_ltd_layer_num` and `random_ltd_schedule` with `min_value`, `max_value`, `schedule_type` and `schedule_config`. At the first
    that is missing DeepSpeed raises a `KeyError`.

    Add them all.
    """
    if config.value(f"{LTD}.enabled") is not True:
        return
    schedule = f"{LTD}.random_ltd_schedule"
    outer = _missing(config, LTD, ("total_layer_num", "random_ltd_layer_num", "random_ltd_schedule"))
    inner = _missing(config, schedule, ("min_value", "max_value", "schedule_config", "schedule_type"))
    for section, missing in ((LTD, outer), (schedule, inner)):
        if missing:
            names = ", ".join(f'"{name}"' for name in missing)
            yield Finding(
                section,
                f"{section.rpartition('.')[2]} has no {names}: DeepSpeed raises KeyError \"'{missing[0]}'\" in deepspeed.initialize.",
                help=f"Add {names}.",
                on="key",
            )
            return


@rule("DS813", "random-ltd-schedule-stops", effect=Effect.CRASH, phase=Phase.STEP, references=(LTD_SOURCE, DOCS))
@bad(_schedule(WHOLE.replace("fixed_linear", "fixed_root")), at=f"{LTD}.random_ltd_schedule.schedule_type")
@bad(
    _schedule('"min_value": 128, "max_value": 2048, "schedule_type": "fixed_linear", "schedule_config": {"seq_per_step": 16}'),
    at=f"{LTD}.random_ltd_schedule.schedule_config",
)
@good(_schedule(WHOLE))
def random_ltd_schedule_stops(config: Config) -> Iterator[Finding]:
    """The schedule of random layer token drop cannot be computed.

    The only type is "fixed_linear", with `require_steps` and `seq_per_step` in `schedule_config`. DeepSpeed looks at them in the first forward pass, and raises there.

    Write `"schedule_type": "fixed_linear"` and both settings.
    """
    schedule = f"{LTD}.random_ltd_schedule"
    low, high = config.value(f"{schedule}.min_value"), config.value(f"{schedule}.max_value")
    if (
        config.value(f"{LTD}.enabled") is not True
        or not isinstance(config.node(schedule), Mapping)
        or low is None
        or high is None
        or not low < high
    ):
        return
    key = f"{schedule}.schedule_type"
    written = getattr(config.node(key), "value", None)
    if isinstance(written, str) and written != "fixed_linear":
        yield Finding(
            key,
            f'schedule_type {config.quote(key)} is not "fixed_linear", the only one there is: DeepSpeed raises RuntimeError "Unsupported random LTD schedule type" at the first step.',
            help='Write "fixed_linear".',
            fix=write(config, key, '"fixed_linear"', Applicability.SAFE if spelling(written, ["fixed_linear"]) else Applicability.UNSAFE),
        )
        return
    missing = _missing(config, f"{schedule}.schedule_config", ("require_steps", "seq_per_step"))
    if missing:
        names = ", ".join(f'"{name}"' for name in missing)
        yield Finding(
            f"{schedule}.schedule_config",
            f"schedule_config has no {names}: DeepSpeed raises KeyError \"'{missing[0]}'\" at the first step.",
            help=f"Add {names}.",
            on="key",
        )


@rule("DS814", "random-ltd-lr-schedule", effect=Effect.CRASH, phase=Phase.INITIALIZE, references=(LTD_SOURCE,))
@bad(
    _ltd(
        f'"total_layer_num": 24, "random_ltd_layer_num": 2, "layer_token_lr_schedule": {{"enabled": true}}, "random_ltd_schedule": {{{WHOLE}}}'
    ),
    at=f"{LTD}.layer_token_lr_schedule.enabled",
)
@good(
    _ltd(
        f'"total_layer_num": 24, "random_ltd_layer_num": 2, "layer_token_lr_schedule": {{"enabled": false}}, "random_ltd_schedule": {{{WHOLE}}}'
    )
)
def random_ltd_lr_schedule(config: Config) -> Iterator[Finding]:
    """The learning rate schedule by layer tokens was never finished.

    DeepSpeed logs "Work In Progress" and raises `NotImplementedError`.

    Write `"enabled": false`, or leave the section out.
    """
    key = f"{LTD}.layer_token_lr_schedule.enabled"
    if config.value(f"{LTD}.enabled") is True and config.has(key) and config.value(key) is True:
        yield Finding(
            key,
            "layer_token_lr_schedule is not implemented: DeepSpeed raises NotImplementedError in deepspeed.initialize.",
            help='Write "enabled": false.',
            fix=write(config, key, "false", Applicability.SAFE),
        )


@rule(
    "DS815",
    "random-ltd-layers-do-not-match",
    effect=Effect.CRASH,
    phase=Phase.INITIALIZE,
    references=("deepspeed/runtime/engine.py, DeepSpeedEngine.random_ltd_initialize",),
    untried="raised by engine.random_ltd_initialize, which convert_to_random_ltd calls for a model whose layers drop tokens",
)
@bad(
    _schedule(WHOLE, layers='"total_layer_num": 24, "random_ltd_layer_num": 22, "random_ltd_layer_id": [1, 2, 3]'),
    at=f"{LTD}.random_ltd_layer_num",
)
@good(_schedule(WHOLE))
def random_ltd_layers_do_not_match(config: Config) -> Iterator[Finding]:
    """`random_ltd_layer_num` is not the number of layers in `random_ltd_layer_id`.

    DeepSpeed counts the layers of the model that the list names, and raises a `ValueError` where the count is another. Layers that are not listed see every token.

    Write the length of the list.
    """
    key = f"{LTD}.random_ltd_layer_num"
    count, layers = config.value(key), config.value(f"{LTD}.random_ltd_layer_id")
    if config.value(f"{LTD}.enabled") is True and isinstance(layers, list) and isinstance(count, int) and count != len(layers):
        yield Finding(
            key,
            f"random_ltd_layer_num {config.quote(key)}, but random_ltd_layer_id names {len(layers)} layers: DeepSpeed raises ValueError when it converts the model.",
            help=f'Write "random_ltd_layer_num": {len(layers)}, or complete the list.',
            related=((f"{LTD}.random_ltd_layer_id", "the layers"),),
            fix=write(config, key, str(len(layers))),
        )


@rule("DS816", "random-ltd-drops-nothing", effect=Effect.SILENT, references=(LTD_SOURCE,))
@bad(_schedule(WHOLE.replace('"min_value": 128', '"min_value": 2048')), at=f"{LTD}.random_ltd_schedule.min_value")
@good(_schedule(WHOLE))
def random_ltd_drops_nothing(config: Config) -> Iterator[Finding]:
    """The schedule starts where it ends, or above.

    `min_value` is the number of tokens that the layers see at first, `max_value` the sequence length, where nothing is dropped any more. Where the first is not below
    the second, the number never changes.

    Write a `min_value` below `max_value`.
    """
    low, high = (config.value(f"{LTD}.random_ltd_schedule.{name}") for name in ("min_value", "max_value"))
    if config.value(f"{LTD}.enabled") is True and low is not None and high is not None and low >= high:
        key = f"{LTD}.random_ltd_schedule.min_value"
        yield Finding(
            key,
            f"min_value {config.quote(key)} is not below max_value {high}: the layers see {low} tokens from the first step to the last.",
            help="Write the number of tokens to begin with, below max_value.",
            related=((f"{LTD}.random_ltd_schedule.max_value", "the end of the schedule"),),
        )


def _metric(
    inner: str,
    path: str = '"index_to_sample_path": "a", "index_to_metric_path": "b", "difficulty_type": "value", "clustering_type": "single_cluster"',
) -> str:
    return f'{{{MINIMAL}, "data_efficiency": {{"enabled": true, "data_sampling": {{"enabled": true, "curriculum_learning": {{"enabled": true, "data_cluster_path": "c", "curriculum_metrics": {{"seqlen": {{{path}, {inner}}}}}}}}}}}}}'


SETTINGS = {
    "fixed_discrete": ("difficulty", "max_step"),
    "fixed_linear": ("total_curriculum_step", "difficulty_step"),
    "fixed_root": ("total_curriculum_step", "difficulty_step", "root_degree"),
    "custom": (),
}
"""What each type of schedule wants in `schedule_config`."""
LINEAR = '"min_difficulty": 64, "max_difficulty": 2048, "schedule_type": "fixed_linear", "schedule_config": {"total_curriculum_step": 9000, "difficulty_step": 8}'
METRIC = f"{CURRICULUM}.curriculum_metrics.seqlen"


def _metrics(config: Config) -> list[str]:
    """The paths of the metrics, where curriculum learning is on."""
    node = config.node(f"{CURRICULUM}.curriculum_metrics")
    if config.value(f"{CURRICULUM}.enabled") is not True or not isinstance(node, Mapping):
        return []
    return [
        f"{CURRICULUM}.curriculum_metrics.{member.key.value}"
        for member in node.members
        if isinstance(member.value, Mapping) and "." not in member.key.value
    ]


@rule(
    "DS817",
    "curriculum-schedule-incomplete",
    effect=Effect.CRASH,
    phase=Phase.INITIALIZE,
    references=(CURRICULUM_SOURCE, DOCS),
    untried="raised where deepspeed.initialize is given training data; a test of its own builds the schedule",
)
@bad(_metric('"min_difficulty": 64, "schedule_type": "fixed_linear"'), at=METRIC)
@bad(_metric(LINEAR.replace("fixed_linear", "linear")), at=f"{METRIC}.schedule_type")
@bad(
    _metric(
        '"min_difficulty": 1, "max_difficulty": 3, "schedule_type": "fixed_discrete", "schedule_config": {"difficulty": [1, 2, 3], "max_step": [5, 10, 15]}'
    ),
    at=f"{METRIC}.schedule_config",
)
@good(_metric(LINEAR))
@good(
    _metric(
        '"min_difficulty": 1, "max_difficulty": 3, "schedule_type": "fixed_discrete", "schedule_config": {"difficulty": [1, 2, 3], "max_step": [5, 10]}'
    )
)
def curriculum_schedule_incomplete(config: Config) -> Iterator[Finding]:
    """A metric of the curriculum has no schedule that DeepSpeed can follow.

    Each metric needs `min_difficulty`, `max_difficulty`, `schedule_type` and a `schedule_config`: `total_curriculum_step` and `difficulty_step` for "fixed_linear",
    `root_degree` too for "fixed_root", and for "fixed_discrete" the lists `difficulty` and `max_step`, the second one shorter by one. DeepSpeed asserts it
    when it builds the sampler over the training data that `deepspeed.initialize` is given.

    Complete the metric.
    """
    for metric in _metrics(config):
        name = metric.rpartition(".")[2]
        missing = _missing(config, metric, ("min_difficulty", "max_difficulty", "schedule_type"))
        if missing:
            yield Finding(
                metric,
                f"The metric {name} has no {', '.join(missing)}: DeepSpeed raises AssertionError \"Curriculum learning requires the config '{missing[0]}'\" when it builds the sampler.",
                help=f"Add {', '.join(missing)}.",
                on="key",
            )
            continue
        key, at = f"{metric}.schedule_type", f"{metric}.schedule_config"
        kind = getattr(config.node(key), "value", None)
        if not isinstance(kind, str):
            continue
        if kind not in SETTINGS:
            yield Finding(
                key,
                f'schedule_type {config.quote(key)} is none of {", ".join(SETTINGS)}: DeepSpeed raises RuntimeError "Unsupported curriculum schedule type" when it builds the sampler.',
                help='Write "fixed_linear", "fixed_root", "fixed_discrete" or "custom".',
                fix=write(config, key, json_text(close.word), Applicability.SAFE)
                if (close := spelling(kind, SETTINGS)) and close.sure
                else None,
            )
            continue
        missing = _missing(config, at, SETTINGS[kind]) if config.has(at) else list(SETTINGS[kind])
        if missing:
            yield Finding(
                at if config.has(at) else metric,
                f"The schedule {kind} has no {', '.join(missing)}: DeepSpeed raises an error when it builds the sampler.",
                help=f"Add {', '.join(missing)} to schedule_config.",
                on="key",
            )
        elif kind == "fixed_discrete":
            levels, ends = config.value(f"{at}.difficulty"), config.value(f"{at}.max_step")
            if isinstance(levels, list) and isinstance(ends, list) and (not ends or len(levels) != len(ends) + 1):
                yield Finding(
                    at,
                    f"difficulty has {len(levels)} entries and max_step {len(ends)}; max_step has to be shorter by one, since the last difficulty stays to the end: DeepSpeed raises AssertionError when it builds the sampler.",
                    help="Leave out the last entry of max_step." if len(ends) == len(levels) else "Write one difficulty more than steps.",
                    on="key",
                    fix=safe("leave out the last entry of max_step", Remove((*at.split("."), "max_step", len(ends) - 1)))
                    if len(ends) == len(levels) > 1
                    else None,
                )


@rule("DS818", "curriculum-off-the-tensor-cores", effect=Effect.SLOW, references=(CURRICULUM_SOURCE,))
@bad(_metric(LINEAR.replace('"difficulty_step": 8', '"difficulty_step": 10')), at=f"{METRIC}.schedule_config.difficulty_step")
@good(_metric(LINEAR))
def curriculum_off_the_tensor_cores(config: Config) -> Iterator[Finding]:
    """Sequence lengths that are no multiples of 8 keep 16-bit matrix products off the tensor cores.

    With the metric "seqlen" the difficulty is the sequence length, and `difficulty_step` what it is a multiple of. DeepSpeed warns about it.

    Write 8, or a multiple of it.
    """
    for metric in _metrics(config):
        key = f"{metric}.schedule_config.difficulty_step"
        step = config.value(key) if config.has(key) else UNKNOWN
        if "seqlen" in metric.rpartition(".")[2] and isinstance(step, int) and step % 8:
            yield Finding(
                key,
                f"difficulty_step {config.quote(key)} makes sequence lengths that are no multiples of 8, which keeps 16-bit matrix products off the tensor cores.",
                help="Write 8, or a multiple of it.",
                fix=write(config, key, str(max(8, 8 * round(step / 8)))),
            )
