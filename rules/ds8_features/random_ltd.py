"""DS8: random layer token drop (random-LTD) of data efficiency."""

from __future__ import annotations

from collections.abc import Iterator

from dslint.config import Config
from dslint.diagnostics import Applicability, Effect, Phase
from dslint.rule import Finding, bad, good, rule
from dslint.rules.helpers.data_efficiency import DATA_EFFICIENCY_DOCS, RANDOM_LTD, SCHEDULE, missing_settings, random_ltd, with_schedule
from dslint.rules.helpers.fixes import spelling, write
from dslint.source.tree import Mapping

SOURCE = "deepspeed/runtime/data_pipeline/data_routing/scheduler.py, RandomLTDScheduler"
SCHEDULER = "deepspeed/runtime/data_pipeline/data_routing/scheduler.py, BaseScheduler.get_value"
ENABLED = f"{RANDOM_LTD}.enabled"
SCHEDULE_SECTION = f"{RANDOM_LTD}.random_ltd_schedule"
MIN_VALUE, MAX_VALUE = f"{SCHEDULE_SECTION}.min_value", f"{SCHEDULE_SECTION}.max_value"
LAYER_COUNT, LAYER_IDS = f"{RANDOM_LTD}.random_ltd_layer_num", f"{RANDOM_LTD}.random_ltd_layer_id"
LR_SCHEDULE = f"{RANDOM_LTD}.layer_token_lr_schedule.enabled"


def _quoted(names: list[str]) -> str:
    return ", ".join(f'"{name}"' for name in names)


@rule(
    "DS812",
    effect=Effect.CRASH,
    phase=Phase.INITIALIZE,
    watches=(ENABLED,),
    references=(SOURCE, DATA_EFFICIENCY_DOCS),
)
@bad(
    random_ltd('"random_ltd_layer_num": 2'),
    at=RANDOM_LTD,
    message='random_ltd has no "total_layer_num", "random_ltd_schedule": DeepSpeed raises KeyError "\'total_layer_num\'" in deepspeed.initialize.',
)
@bad(
    with_schedule('"min_value": 128, "max_value": 2048'),
    at=SCHEDULE_SECTION,
    message='random_ltd_schedule has no "schedule_config", "schedule_type": DeepSpeed raises KeyError "\'schedule_config\'" in deepspeed.initialize.',
)
@good(with_schedule(SCHEDULE))
def random_ltd_incomplete(config: Config) -> Iterator[Finding]:
    """Random layer token drop lacks a setting that has no default.

    DeepSpeed requires `total_layer_num`, `random_ltd_layer_num` and `random_ltd_schedule`, and in the schedule `min_value`, `max_value`,
    `schedule_type` and `schedule_config`. For the first that is missing it raises a `KeyError`.

    Add them all.
    """
    if config.value(ENABLED) is not True:
        return
    outer = missing_settings(config, RANDOM_LTD, ("total_layer_num", "random_ltd_layer_num", "random_ltd_schedule"))
    inner = missing_settings(config, SCHEDULE_SECTION, ("min_value", "max_value", "schedule_config", "schedule_type"))
    for section, missing in ((RANDOM_LTD, outer), (SCHEDULE_SECTION, inner)):
        if missing:
            yield Finding(
                section,
                f"{section.rpartition('.')[2]} has no {_quoted(missing)}: DeepSpeed raises KeyError \"'{missing[0]}'\" in deepspeed.initialize.",
                help=f"Add {_quoted(missing)}.",
                on="key",
            )
            return


@rule(
    "DS813",
    effect=Effect.CRASH,
    phase=Phase.STEP,
    watches=(ENABLED,),
    references=(SCHEDULER, DATA_EFFICIENCY_DOCS),
)
@bad(
    with_schedule(SCHEDULE.replace("fixed_linear", "fixed_root")),
    at=f"{SCHEDULE_SECTION}.schedule_type",
    message='schedule_type "fixed_root" is not "fixed_linear", the only type: DeepSpeed raises RuntimeError "Unsupported random LTD schedule type" at the first step.',
    fixed='{"train_micro_batch_size_per_gpu": 4, "data_efficiency": {"enabled": true, "data_routing": {"enabled": true, "random_ltd": {"enabled": true, "total_layer_num": 24, "random_ltd_layer_num": 2, "random_ltd_layer_id": [1, 2], "random_ltd_schedule": {"min_value": 128, "max_value": 2048, "schedule_type": "fixed_linear", "schedule_config": {"require_steps": 20000, "seq_per_step": 16}}}}}}',
)
@bad(
    with_schedule('"min_value": 128, "max_value": 2048, "schedule_type": "fixed_linear", "schedule_config": {"seq_per_step": 16}'),
    at=f"{SCHEDULE_SECTION}.schedule_config",
    message='schedule_config has no "require_steps": DeepSpeed raises KeyError "\'require_steps\'" at the first step.',
)
@good(with_schedule(SCHEDULE))
def random_ltd_schedule_stops(config: Config) -> Iterator[Finding]:
    """DeepSpeed cannot compute the schedule of random layer token drop, and raises at the first step.

    The only `schedule_type` is "fixed_linear", which requires `require_steps` and `seq_per_step` in `schedule_config`. DeepSpeed reads them
    in the first forward pass, so the run crashes there and not while parsing.

    Write `"schedule_type": "fixed_linear"` and both settings.
    """
    low, high = config.value(MIN_VALUE), config.value(MAX_VALUE)
    if config.value(ENABLED) is not True or not isinstance(config.node(SCHEDULE_SECTION), Mapping):
        return
    if low is None or high is None or not low < high:
        return
    key = f"{SCHEDULE_SECTION}.schedule_type"
    schedule_type = config.literal(key)
    if isinstance(schedule_type, str) and schedule_type != "fixed_linear":
        misspelt = spelling(schedule_type, ["fixed_linear"]) is not None
        yield Finding(
            key,
            f'schedule_type {config.quote(key)} is not "fixed_linear", the only type: DeepSpeed raises RuntimeError "Unsupported random LTD schedule type" at the first step.',
            help='Write "fixed_linear".',
            fix=write(config, key, '"fixed_linear"', Applicability.SAFE if misspelt else Applicability.UNSAFE),
        )
        return
    missing = missing_settings(config, f"{SCHEDULE_SECTION}.schedule_config", ("require_steps", "seq_per_step"))
    if missing:
        yield Finding(
            f"{SCHEDULE_SECTION}.schedule_config",
            f"schedule_config has no {_quoted(missing)}: DeepSpeed raises KeyError \"'{missing[0]}'\" at the first step.",
            help=f"Add {_quoted(missing)}.",
            on="key",
        )


@rule(
    "DS814",
    effect=Effect.CRASH,
    phase=Phase.INITIALIZE,
    watches=(LR_SCHEDULE,),
    references=(SOURCE,),
)
@bad(
    random_ltd(
        f'"total_layer_num": 24, "random_ltd_layer_num": 2, "layer_token_lr_schedule": {{"enabled": true}}, "random_ltd_schedule": {{{SCHEDULE}}}'
    ),
    at=LR_SCHEDULE,
    message="layer_token_lr_schedule is not implemented: DeepSpeed raises NotImplementedError in deepspeed.initialize.",
    fixed='{"train_micro_batch_size_per_gpu": 4, "data_efficiency": {"enabled": true, "data_routing": {"enabled": true, "random_ltd": {"enabled": true, "total_layer_num": 24, "random_ltd_layer_num": 2, "layer_token_lr_schedule": {"enabled": false}, "random_ltd_schedule": {"min_value": 128, "max_value": 2048, "schedule_type": "fixed_linear", "schedule_config": {"require_steps": 20000, "seq_per_step": 16}}}}}}',
)
@good(
    random_ltd(
        f'"total_layer_num": 24, "random_ltd_layer_num": 2, "layer_token_lr_schedule": {{"enabled": false}}, "random_ltd_schedule": {{{SCHEDULE}}}'
    )
)
def random_ltd_lr_schedule(config: Config) -> Iterator[Finding]:
    """DeepSpeed does not implement the learning rate schedule by layer tokens.

    If it is enabled, DeepSpeed logs "Work In Progress" and raises `NotImplementedError`.

    Write `"enabled": false`, or remove the section.
    """
    if config.value(ENABLED) is True and config.has(LR_SCHEDULE) and config.value(LR_SCHEDULE) is True:
        yield Finding(
            LR_SCHEDULE,
            "layer_token_lr_schedule is not implemented: DeepSpeed raises NotImplementedError in deepspeed.initialize.",
            help='Write "enabled": false.',
            fix=write(config, LR_SCHEDULE, "false", Applicability.SAFE),
        )


@rule(
    "DS815",
    effect=Effect.CRASH,
    phase=Phase.INITIALIZE,
    watches=(LAYER_COUNT,),
    references=("deepspeed/runtime/engine.py, DeepSpeedEngine.random_ltd_initialize",),
    untried="raised by engine.random_ltd_initialize, which convert_to_random_ltd calls for a model with layers that drop tokens",
)
@bad(
    with_schedule(SCHEDULE, layers='"total_layer_num": 24, "random_ltd_layer_num": 22, "random_ltd_layer_id": [1, 2, 3]'),
    at=LAYER_COUNT,
    message="random_ltd_layer_num is 22, but random_ltd_layer_id names 3 layers: DeepSpeed raises ValueError when it converts the model.",
    fixed='{"train_micro_batch_size_per_gpu": 4, "data_efficiency": {"enabled": true, "data_routing": {"enabled": true, "random_ltd": {"enabled": true, "total_layer_num": 24, "random_ltd_layer_num": 3, "random_ltd_layer_id": [1, 2, 3], "random_ltd_schedule": {"min_value": 128, "max_value": 2048, "schedule_type": "fixed_linear", "schedule_config": {"require_steps": 20000, "seq_per_step": 16}}}}}}',
)
@good(with_schedule(SCHEDULE))
def random_ltd_layers_do_not_match(config: Config) -> Iterator[Finding]:
    """`random_ltd_layer_num` differs from the number of layers in `random_ltd_layer_id`.

    DeepSpeed counts the layers of the model that the list names, and raises a `ValueError` if the count is not `random_ltd_layer_num`.
    Layers that are not listed process every token.

    Write the length of the list.
    """
    count, layers = config.value(LAYER_COUNT), config.value(LAYER_IDS)
    if config.value(ENABLED) is True and isinstance(layers, list) and isinstance(count, int) and count != len(layers):
        yield Finding(
            LAYER_COUNT,
            f"random_ltd_layer_num is {config.quote(LAYER_COUNT)}, but random_ltd_layer_id names {len(layers)} layers: DeepSpeed raises ValueError when it converts the model.",
            help=f'Write "random_ltd_layer_num": {len(layers)}, or complete the list.',
            related=((LAYER_IDS, "the layers"),),
            fix=write(config, LAYER_COUNT, str(len(layers))),
        )


@rule(
    "DS816",
    effect=Effect.SILENT,
    watches=(MIN_VALUE,),
    references=(SOURCE,),
)
@bad(
    with_schedule(SCHEDULE.replace('"min_value": 128', '"min_value": 2048')),
    at=MIN_VALUE,
    message="min_value 2048 is not below max_value 2048: the layers process 2048 tokens at every step.",
)
@good(with_schedule(SCHEDULE))
def random_ltd_drops_nothing(config: Config) -> Iterator[Finding]:
    """The schedule of random layer token drop does not start below its end, so the number of tokens never changes.

    The layers first process `min_value` tokens. The number grows to `max_value`, the sequence length, where nothing is dropped. If
    `min_value` is not below `max_value`, DeepSpeed never updates it.

    Write a `min_value` below `max_value`.
    """
    low, high = config.value(MIN_VALUE), config.value(MAX_VALUE)
    if config.value(ENABLED) is True and low is not None and high is not None and low >= high:
        yield Finding(
            MIN_VALUE,
            f"min_value {config.quote(MIN_VALUE)} is not below max_value {high}: the layers process {low} tokens at every step.",
            help="Write the number of tokens at the first step, below max_value.",
            related=((MAX_VALUE, "the end of the schedule"),),
        )
