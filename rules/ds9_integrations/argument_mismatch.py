"""DS9, continued: the config against the arguments of the training that uses it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from dslint.config import UNKNOWN, Config, Origin
from dslint.config.fill import LABELS, SOURCES, Filled, from_arguments
from dslint.diagnostics import Effect, Phase, Related, Severity
from dslint.facts import Integration
from dslint.rule import Finding, bad, good, path_of, rule, unsafe
from dslint.rules.helpers.loaders import ACCELERATE_SOURCE, RAISED_BY_LOADER, TRAINER_SOURCE, ZERO_2, trainer_arguments
from dslint.schemas.auto import MISMATCH_CHECKED
from dslint.schemas.derive import ACCUMULATION, MICRO, TRAIN
from dslint.setup.arguments import Arguments
from dslint.source.change import Set
from dslint.source.tree import plain

PRECISIONS = ("fp16.enabled", "bf16.enabled")


def _value(config: Config, key: str) -> Any:
    """The value of a key as the Trainer compares it: as it is written, not filled, not null and not refused; otherwise `UNKNOWN`."""
    node = config.node(key)
    if node is None or config.origin(key) in (Origin.REFUSED, Origin.DROPPED, Origin.FILLED):
        return UNKNOWN
    value = plain(node)
    return UNKNOWN if value is None or value == "auto" or isinstance(value, str | dict) else value


def _where(filled: Filled, arguments: Arguments, key: str) -> str:
    """The other value and its place, for a message."""
    if filled.givens:
        places = " and ".join(f"{given.where} ({given.shown})" for given in filled.givens)
        ranks = " and the world size" if key == TRAIN else ""
        return f"{_json(filled.value)} by {places}{ranks}"
    return f"{_json(filled.value)} in the arguments: {arguments.path} does not set {' or '.join(SOURCES[key][:2])}, and that is the default"


def _json(value: Any) -> str:
    return json.dumps(value) if not isinstance(value, float) else f"{value:g}"


def _conflict(config: Config, arguments: Arguments) -> str | None:
    """The precision that the config has on while the arguments ask for the other one: "fp16" or "bf16"."""
    for kind, other in (("fp16", "bf16"), ("bf16", "fp16")):
        if config.value(f"{kind}.enabled") is True and arguments.value(other) is True and arguments.value(kind) is not True:
            return kind
    return None


@rule(
    "DS904",
    "argument-mismatch",
    effect=Effect.CRASH,
    phase=Phase.LOAD,
    watches=("setup",),
    references=(TRAINER_SOURCE,),
    untried=RAISED_BY_LOADER,
)
@bad(
    f'{{"train_micro_batch_size_per_gpu": "auto", "gradient_accumulation_steps": 4, {ZERO_2}}}',
    at="gradient_accumulation_steps",
    training="stage: sft\nmodel_name_or_path: m\nper_device_train_batch_size: 2\ngradient_accumulation_steps: 2\n",
)
@bad(
    f'{{"train_batch_size": "auto", "optimizer": {{"type": "AdamW", "params": {{"lr": 1e-5}}}}, {ZERO_2}}}',
    at="optimizer.params.lr",
    training="base_model: m\nmicro_batch_size: 2\nlearning_rate: 2e-5\n",
)
@bad(
    f'{{"train_batch_size": 32, "train_micro_batch_size_per_gpu": "auto", "gradient_accumulation_steps": "auto", {ZERO_2}}}',
    at="train_batch_size",
    training="base_model: m\nmicro_batch_size: 2\ngradient_accumulation_steps: 4\n",
    world_size=8,
)
@bad(
    f'{{"train_batch_size": "auto", "gradient_clipping": 0.5, {ZERO_2}}}',
    at="gradient_clipping",
    training="stage: sft\nmodel_name_or_path: m\nper_device_train_batch_size: 2\n",
)
@bad(
    f'{{"train_batch_size": "auto", "bf16": {{"enabled": true}}, {ZERO_2}}}',
    at="bf16.enabled",
    training="stage: sft\nmodel_name_or_path: m\nper_device_train_batch_size: 2\n",
)
@good(
    f'{{"train_batch_size": "auto", "gradient_accumulation_steps": "auto", "gradient_clipping": 1, "optimizer": {{"type": "AdamW", "params": {{"lr": 2e-5}}}}, {ZERO_2}}}',
    training="base_model: m\nmicro_batch_size: 2\ngradient_accumulation_steps: 4\nlearning_rate: 0.00002\n",
)
def argument_mismatch(config: Config) -> Iterator[Finding]:
    """A value that the training arguments say otherwise.

    The Hugging Face Trainer compares thirteen keys of the config with its own arguments, and raises `ValueError: Please correct the following DeepSpeed config values that mismatch
    TrainingArguments values` where they differ: batch sizes, accumulation, clipping, learning rate, betas, eps, weight decay, warm-up, total steps, and whether fp16 and bf16 are on.
    It does so once the model is loaded, which can be half an hour into the job. An argument that is not set has its default in the comparison.

    Write "auto" in the config: the Trainer then puts its own value there, and the two cannot differ.
    """
    arguments = trainer_arguments(config)
    if arguments is None:
        return
    conflict = _conflict(config, arguments)
    broken = False
    for key in sorted(MISMATCH_CHECKED["transformers"], key=_triad_last):
        value = _value(config, key)
        if value is UNKNOWN or (conflict and key in PRECISIONS) or (key == TRAIN and broken):
            continue
        filled = from_arguments(key, arguments, config.facts)
        if filled.value is UNKNOWN or value == filled.value or (key == "scheduler.params.total_num_steps" and not filled.givens):
            continue
        broken = broken or key in (MICRO, ACCUMULATION)
        label = LABELS.get(key, SOURCES[key][0])
        error = f"- ds {key}={value!r} vs hf {label}={filled.value!r}"
        yield Finding(
            key,
            f"{key} is {config.quote(key)} here and {_where(filled, arguments, key)}. Once the model is loaded, the Hugging Face Trainer raises "
            f'"Please correct the following DeepSpeed config values that mismatch TrainingArguments values: {error}".',
            help=_help(config, key, filled),
            on="value",
            related=tuple(given.related(f"makes {_json(filled.value)}") for given in filled.givens),
            fix=unsafe('write "auto"', Set(path_of(key), '"auto"')),
            severity=None if filled.sure else Severity.WARNING,
        )


def _triad_last(key: str) -> tuple[bool, int]:
    return key == TRAIN, list(SOURCES).index(key)


def _help(config: Config, key: str, filled: Filled) -> str:
    if config.setup is not None and config.setup.made:
        name = {"bf16.enabled": "bf16: true", "fp16.enabled": "fp16: true"}.get(key)
        return f"Set {name} in the training arguments, or change mixed_precision." if name else 'Write "auto", or leave the key out.'
    unsure = "" if filled.sure else " If the program has another default, and it is the same as here, nothing is wrong."
    return f'Write "auto": the Trainer puts its own value there.{unsure}'


@rule(
    "DS905",
    "precision-conflict",
    effect=Effect.CRASH,
    phase=Phase.LOAD,
    watches=("setup",),
    references=(ACCELERATE_SOURCE,),
    untried=RAISED_BY_LOADER,
)
@bad(
    f'{{"train_batch_size": "auto", "fp16": {{"enabled": true}}, {ZERO_2}}}',
    at="fp16.enabled",
    training="base_model: m\nmicro_batch_size: 2\nbf16: true\n",
)
@good(
    f'{{"train_batch_size": "auto", "fp16": {{"enabled": "auto"}}, "bf16": {{"enabled": "auto"}}, {ZERO_2}}}',
    training="base_model: m\nmicro_batch_size: 2\nbf16: true\n",
)
def precision_conflict(config: Config) -> Iterator[Finding]:
    """The config turns on fp16 where the training asks for bf16, or the other way round.

    Accelerate, which the Trainer uses, raises ``ValueError: `--mixed_precision` arg cannot be set to `bf16` when `fp16` is set in the DeepSpeed config file.``

    Write "auto" for `enabled` in both sections, or the same precision in both places.
    """
    arguments = trainer_arguments(config)
    if arguments is not None:
        kind = _conflict(config, arguments)
        other = {"fp16": "bf16", "bf16": "fp16"}.get(kind or "")
        given = arguments.get(other) if other else None
        if kind and given:
            yield _conflicting(kind, f"{given.where} asks for {other} ({given.shown})", str(other), given.related(f"asks for {other}"))
        return
    file = config.setup.accelerate if config.setup else None
    given = file.get("mixed_precision") if file else None
    if file is None or given is None or config.setup is None or config.setup.made or config.facts.integration is not Integration.ACCELERATE:
        return
    for kind, other in (("fp16", "bf16"), ("bf16", "fp16")):
        if config.value(f"{kind}.enabled") is True and file.precision == other and file.config_file is None:
            yield _conflicting(kind, f"{given.where} asks for {other} ({given.shown})", other, given.related(f"asks for {other}"))


def _conflicting(kind: str, asks: str, other: str, related: Related) -> Finding:
    return Finding(
        f"{kind}.enabled",
        f'{kind} is on here, and {asks}: Accelerate raises "`--mixed_precision` arg cannot be set to `{other}` when `{kind}` is set in the DeepSpeed config file".',
        help='Write "auto" for enabled in both sections, fp16 and bf16.',
        related=(related,),
        fix=unsafe('write "auto"', Set((kind, "enabled"), '"auto"')),
    )


@rule(
    "DS909",
    "total-steps-written",
    effect=Effect.CRASH,
    phase=Phase.LOAD,
    watches=("setup",),
    references=(TRAINER_SOURCE,),
    untried=RAISED_BY_LOADER,
)
@bad(
    f'{{"train_batch_size": "auto", "scheduler": {{"type": "WarmupDecayLR", "params": {{"warmup_max_lr": "auto", "warmup_num_steps": "auto", "total_num_steps": 10000}}}}, {ZERO_2}}}',
    at="scheduler.params.total_num_steps",
    training="base_model: m\nmicro_batch_size: 2\nnum_train_epochs: 3\n",
)
@good(
    f'{{"train_batch_size": "auto", "scheduler": {{"type": "WarmupDecayLR", "params": {{"warmup_max_lr": "auto", "warmup_num_steps": "auto", "total_num_steps": "auto"}}}}, {ZERO_2}}}',
    training="base_model: m\nmicro_batch_size: 2\n",
)
@good(
    f'{{"train_batch_size": "auto", "scheduler": {{"type": "WarmupDecayLR", "params": {{"warmup_max_lr": "auto", "warmup_num_steps": "auto", "total_num_steps": 500}}}}, {ZERO_2}}}',
    training="base_model: m\nmicro_batch_size: 2\nmax_steps: 500\n",
)
def total_steps_written(config: Config) -> Iterator[Finding]:
    """The number of steps of the schedule is written, where the Trainer computes it.

    The Hugging Face Trainer compares `scheduler.params.total_num_steps` with the number of training steps that it computes from the length of the data, the batch and the epochs,
    and raises when they differ by one.

    Write "auto", or set `max_steps` to the same number.
    """
    key = "scheduler.params.total_num_steps"
    arguments = trainer_arguments(config)
    if arguments is None or not isinstance(_value(config, key), int) or "max_steps" in arguments or not arguments.complete:
        return
    yield Finding(
        key,
        f"total_num_steps is {config.quote(key)} here, and {arguments.path} sets no max_steps: the Trainer computes the number from the data, and raises "
        f'"- ds {key}={config.quote(key)} vs hf num_training_steps (calculated)=..." unless it is exactly this one.',
        help='Write "auto".',
        on="value",
        fix=unsafe('write "auto"', Set(path_of(key), '"auto"')),
        severity=Severity.WARNING,
    )
