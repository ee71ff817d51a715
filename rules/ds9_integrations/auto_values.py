"""DS9: "auto" for which an integration computes a value that DeepSpeed refuses, or finds none."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from dslint.config import Config, Origin
from dslint.diagnostics import Effect, Phase
from dslint.facts import NEWEST, OLDEST, RELEASES, Integration, Release
from dslint.rule import Finding, bad, good, rule, unsafe
from dslint.rules.helpers.loaders import HUGGING_FACE, NOT_INSTALLED, RAISED_BY_LOADER, names_its_release, releases_belong_together
from dslint.rules.helpers.precision import half_types
from dslint.rules.helpers.releases import allowed_ends, requires_at_most
from dslint.rules.helpers.schedule import REQUIRES_WARMUP
from dslint.source.change import Remove
from dslint.source.tree import Mapping

TRAINER_FINALIZE = "transformers/integrations/deepspeed.py, trainer_config_finalize"
ACCELERATE_PREPARE = "accelerate/accelerator.py, _prepare_deepspeed"

WARMUP = "scheduler.params.warmup_num_steps"
PREFETCH = "zero_optimization.stage3_prefetch_bucket_size"

_FROM_HIDDEN_SIZE = ("zero_optimization.reduce_bucket_size", PREFETCH, "zero_optimization.stage3_param_persistence_threshold")
_HIDDEN_SIZE_NAMES = ("hidden_size", "hidden_sizes", "n_embd", "n_embed", "d_model", "dim")

_MULTIMODAL = {"model_type": "llava", "text_config": {"hidden_size": 4096}}


@rule(
    "DS928",
    effect=Effect.CRASH,
    phase=Phase.LOAD,
    watches=("fact:model",),
    references=(TRAINER_FINALIZE, ACCELERATE_PREPARE),
    untried=RAISED_BY_LOADER,
)
@bad(
    '{"train_batch_size": "auto", "zero_optimization": {"stage": 3, "reduce_bucket_size": "auto"}}',
    at="zero_optimization.reduce_bucket_size",
    integration="accelerate",
    model=_MULTIMODAL,
    message='zero_optimization.reduce_bucket_size is "auto", which is computed from the hidden size, but config.json has none at the top level: Accelerate raises "Can find neither `model.config.hidden_size` nor `model.config.hidden_sizes`".',
)
@good(
    '{"train_batch_size": "auto", "zero_optimization": {"stage": 2, "reduce_bucket_size": "auto"}}',
    integration="transformers",
    model=_MULTIMODAL,
)
def no_hidden_size(config: Config) -> Iterator[Finding]:
    """An "auto" is computed from the model's hidden size, but the model's config has none.

    The integrations compute the bucket sizes from `hidden_size`, or from the largest of `hidden_sizes`. The Trainer also looks in
    `text_config`; Accelerate does not, and raises "Can find neither `model.config.hidden_size` nor `model.config.hidden_sizes`" for a
    model of text and images.

    Write numbers.
    """
    model, integration = config.facts.model, config.facts.integration
    if model is None or model.parameters is not None or integration not in HUGGING_FACE:
        return
    from dslint.facts.model_config import trained_part
    from dslint.frameworks.filling import hidden_size  # a plain check does not import what arguments need

    if hidden_size(config.facts) is not None:
        return
    trained = trained_part(model.data)
    text: Any = trained.get("text_config")
    searched = [trained, *([text] if isinstance(text, dict) and integration is Integration.TRANSFORMERS else [])]
    if any(name in data for data in searched for name in _HIDDEN_SIZE_NAMES) or not isinstance(config.document.root, Mapping):
        return  # the model's class may map another name to hidden_size
    if "auto_map" in model.data:
        return  # the class comes with the model, and may define the attribute
    keys = [key for key in _FROM_HIDDEN_SIZE if config.is_auto(key)]
    if not keys:
        return
    error = (
        "Can find neither `model.config.hidden_size` nor `model.config.hidden_sizes`"
        if integration is Integration.ACCELERATE
        else "The model's config file has neither `hidden_size` nor `hidden_sizes` entry"
    )
    first, *others = keys
    also = f", also for {', '.join(key.rpartition('.')[2] for key in others)}" if others else ""
    yield Finding(
        first,
        f'{first} is "auto", which is computed from the hidden size, but {model.path} has none at the top level: '
        f'{integration.label} raises "{error}".',
        help=f"Write a number{also}.",
        on="value",
        related=tuple((key, 'also "auto"') for key in others),
    )


_DECAY = (
    '{"train_batch_size": "auto", "optimizer": {"type": "AdamW", "params": {"lr": "auto"}}, "scheduler": {"type": "WarmupDecayLR", "params": '
    '{"warmup_max_lr": "auto", "warmup_num_steps": "auto", "total_num_steps": "auto"}}, "zero_optimization": {"stage": 2}}'
)


@rule(
    "DS931",
    effect=Effect.CRASH,
    phase=Phase.INITIALIZE,
    watches=(WARMUP,),
    references=("transformers/training_args.py, get_warmup_steps", "deepspeed/runtime/lr_schedules.py"),
    untried=NOT_INSTALLED,
)
@bad(
    _DECAY,
    at=WARMUP,
    training="stage: sft\nmodel_name_or_path: m\nper_device_train_batch_size: 2\nlearning_rate: 1e-4\n",
    integration="transformers",
    loader_release=Release(4, 57, 6),
    message='warmup_num_steps is "auto", and the warm-up in train.yaml has 0 steps: transformers 4.57.6 fills in 0, and DeepSpeed raises "warmup_num_steps must be a positive integer, got 0".',
)
@good(_DECAY, training="base_model: m\nmicro_batch_size: 2\n", integration="transformers", loader_release=Release(5, 23, 0))
@good(
    '{"train_micro_batch_size_per_gpu": 4, "zero_optimization": {"stage": 2}}',
    training="base_model: m\nmicro_batch_size: 4\n",
    integration="transformers",
    loader_release=Release(4, 57, 6),
)
@good(
    _DECAY, training="base_model: m\nmicro_batch_size: 2\nwarmup_steps: 10\n", integration="transformers", loader_release=Release(4, 57, 6)
)
def warmup_of_no_steps(config: Config) -> Iterator[Finding]:
    """An older transformers fills in 0 warm-up steps, but DeepSpeed requires at least 1.

    transformers up to 5.16 fills in `warmup_num_steps` from the warm-up arguments as they are, and their default is 0. DeepSpeed from 0.19.3
    on raises `ValueError: warmup_num_steps must be a positive integer, got 0`. Later releases of transformers fill in at least 1. This rule
    runs only if the project pins the release, or it is given: `--integration transformers==4.57`.

    Set `warmup_steps` to 1 or more in the arguments, or remove the section `scheduler`.
    """
    release, arguments = config.facts.loader_release, config.arguments
    if release is None or arguments is None or config.facts.integration is not Integration.TRANSFORMERS or not config.has(WARMUP):
        return
    if not releases_belong_together(config):
        return
    from dslint.frameworks.filling import AT_LEAST_ONE, from_arguments  # a plain check does not import what arguments need

    if release >= AT_LEAST_ONE or config.release < REQUIRES_WARMUP or config.origin(WARMUP) is not Origin.FILLED:
        return
    filled = from_arguments(WARMUP, arguments, config.facts)
    if filled.value == 0 and filled.sure:
        yield Finding(
            WARMUP,
            f'warmup_num_steps is "auto", and the warm-up in {arguments.path} has 0 steps: transformers {release} fills in 0, and DeepSpeed '
            'raises "warmup_num_steps must be a positive integer, got 0".',
            help="Set warmup_steps to 1 or more in the arguments, or use transformers 5.17 or later.",
            on="value",
            related=tuple(given.related("no warm-up") for given in filled.givens),
        )


_STAGE_3 = (
    '{"train_batch_size": "auto", "zero_optimization": {"stage": 3, "stage3_prefetch_bucket_size": "auto", '
    '"stage3_gather_16bit_weights_on_model_save": true}}'
)


@rule(
    "DS932",
    effect=Effect.CRASH,
    phase=Phase.PARSE,
    watches=(PREFETCH,),
    references=(TRAINER_FINALIZE, ACCELERATE_PREPARE, "https://github.com/huggingface/transformers/pull/33402"),
    untried=NOT_INSTALLED,
)
@bad(
    _STAGE_3,
    at=PREFETCH,
    integration="transformers",
    loader_release=Release(4, 36, 2),
    message='zero_optimization.stage3_prefetch_bucket_size is "auto", and transformers 4.36.2 fills in 0.9 times the squared hidden size, which is rarely a whole number: DeepSpeed may raise "Input should be a valid integer, got a number with a fractional part".',
)
@bad(
    _STAGE_3,
    at=PREFETCH,
    integration="accelerate",
    loader_release=Release(0, 30, 0),
    model={"hidden_size": 4096},
    message='zero_optimization.stage3_prefetch_bucket_size is "auto", and accelerate 0.30.0 fills in 0.9 times the squared hidden size, 15,099,494.4: DeepSpeed raises "Input should be a valid integer, got a number with a fractional part".',
)
@bad(
    _STAGE_3,
    at=PREFETCH,
    integration="transformers",
    loader_release=Release(4, 44, 2),
    message='zero_optimization.stage3_prefetch_bucket_size is "auto", and transformers 4.44.2 fills in 0.9 times the squared hidden size, which is rarely a whole number: DeepSpeed may raise "Input should be a valid integer, got a number with a fractional part".',
)
@good(_STAGE_3, integration="transformers", loader_release=Release(4, 45, 0))
@good(_STAGE_3, integration="transformers", loader_release=Release(4, 36, 2), model={"hidden_size": 5120})
def fractional_bucket_size(config: Config) -> Iterator[Finding]:
    """An older integration fills in a bucket size with a fractional part, which DeepSpeed refuses.

    The bucket size is 0.9 times the squared hidden size: 15,099,494.4 for 4096. transformers up to 4.44 and Accelerate up to 0.30 do not
    round it, and DeepSpeed from 0.15 on raises "Input should be a valid integer, got a number with a fractional part". This rule runs only
    if the project limits the release (`transformers==4.44.2`, `transformers<4.45`), or it is given: `--integration transformers==4.44`.

    Write a whole number.
    """
    integration = config.facts.integration
    if integration is None or integration not in _LAST_UNROUNDED:
        return
    if config.origin(PREFETCH) is not Origin.FILLED or not config.value("zero_optimization.stage") >= 3:
        return
    loader = _unrounding_loader(config, integration, _LAST_UNROUNDED[integration])
    if not loader:
        return
    if names_its_release(config) or (releases_belong_together(config) and config.facts.loader_release is not None):
        oldest = newest = config.release
    else:
        oldest, newest = allowed_ends(config, "deepspeed", RELEASES) or (OLDEST, NEWEST)
        if requires_at_most(config, "deepspeed", _LAST_ROUNDING):  # `deepspeed==0.8.3` is older than all of RELEASES
            return
    if newest < _WHOLE_NUMBERS:
        return
    from dslint.frameworks.filling import hidden_size  # a plain check does not import what arguments need

    size = hidden_size(config.facts)
    if size is not None and (0.9 * size * size).is_integer():
        return
    number = f"{0.9 * size * size:,}" if size is not None else "which is rarely a whole number"
    refuses = oldest >= _WHOLE_NUMBERS
    deepspeed = "DeepSpeed" if refuses else f"DeepSpeed from {_WHOLE_NUMBERS} on"
    raising = "raises" if size is not None else "may raise"
    yield Finding(
        PREFETCH,
        f'{PREFETCH} is "auto", and {loader} fills in 0.9 times the squared hidden size, {number}: '
        f'{deepspeed} {raising} "Input should be a valid integer, got a number with a fractional part".',
        help="Write a whole number, such as 15000000.",
        on="value",
        certain=size is not None and refuses,
    )


_LAST_UNROUNDED = {Integration.TRANSFORMERS: Release(4, 44, 99), Integration.ACCELERATE: Release(0, 30, 99)}
_WHOLE_NUMBERS = Release(0, 15, 0)
"""The first DeepSpeed that refuses a bucket size with a fractional part."""
_LAST_ROUNDING = Release(0, 14, 99)


def _unrounding_loader(config: Config, integration: Integration, last: Release) -> str:
    """What messages call the loader, if it is one of the releases up to `last`; "" if it may be another one."""
    release = config.facts.loader_release
    if release is not None:
        return f"{integration.value} {release}" if release <= last else ""
    required = config.context.requirement(integration.value)
    if required is None or not requires_at_most(config, integration.value, last):
        return ""
    return f"{integration.value}{required[1].partition(';')[0].strip()} of {required[0]}"


_AMP = '{"train_batch_size": "auto", "gradient_clipping": "auto", "amp": {"enabled": "auto"}, "zero_optimization": {"stage": 2}}'


@rule(
    "DS935",
    effect=Effect.CRASH,
    phase=Phase.LOAD,
    watches=("amp",),
    references=(
        "transformers/integrations/deepspeed.py, trainer_config_process",
        "accelerate/utils/dataclasses.py, deepspeed_config_process",
    ),
    untried=RAISED_BY_LOADER,
)
@bad(
    _AMP,
    at="amp.enabled",
    integration="transformers",
    loader_release=Release(5, 2, 0),
    deepspeed="0.18.9",
    message='amp.enabled is "auto", but transformers 5.2.0 has no value for it: it raises ValueError "not found in kwargs" after the model is loaded.',
    fixed='{"train_batch_size": "auto", "gradient_clipping": "auto", "zero_optimization": {"stage": 2}}',
)
@good(_AMP, integration="transformers", loader_release=Release(4, 57, 6), deepspeed="0.18.9")
def auto_in_amp(config: Config) -> Iterator[Finding]:
    """The section `amp` contains an "auto", which only transformers 4 fills in.

    `amp` configures NVIDIA's apex. transformers 5 and Accelerate do not fill it in, and raise `ValueError: ... not found in kwargs` for an
    "auto" that is left. DeepSpeed itself refuses the section from 0.19.8 on.

    Remove the section, and use `bf16` or `fp16`.
    """
    release, integration = config.facts.loader_release, config.facts.integration
    if integration not in HUGGING_FACE or not config.has("amp") or config.origin("amp") is Origin.REFUSED:
        return
    if integration is Integration.TRANSFORMERS and release is not None and release < Release(5, 0, 0):
        return
    key = next((key for key in ("amp.enabled", "amp.opt_level") if config.is_auto(key)), None)
    if key is None:
        return
    known = integration is Integration.ACCELERATE or release is not None
    loader = f"transformers {release}" if release is not None else integration.label
    error = 'ValueError "not found in kwargs" after the model is loaded'
    half = half_types(config)
    yield Finding(
        key,
        f'{key} is "auto", but {loader} has no value for it: it raises {error}.'
        if known
        else f'{key} is "auto", which only transformers 4 fills in: transformers 5 raises {error}.',
        help=f"Remove the section amp, and use {half}." if half else "Remove the section amp.",
        on="value",
        fix=unsafe('remove "amp"', Remove(("amp",))),
        certain=known,
    )
