"""DS9: arguments of Lightning's Trainer and strategy, and a config for the strategy."""

from __future__ import annotations

from collections.abc import Iterator

from dslint.config import UNKNOWN, Config
from dslint.diagnostics import Effect, Phase
from dslint.facts import Integration
from dslint.rule import Finding, bad, good, rule
from dslint.rules.helpers.loaders import RAISED_BY_LIGHTNING, lightning_program
from dslint.source.tree import Mapping

SOURCE = "lightning/pytorch/strategies/deepspeed.py, DeepSpeedStrategy"
_STAGE_2 = '{"zero_optimization": {"stage": 2}}'
_CLIPPING = '{"gradient_clipping": 0.5, "zero_optimization": {"stage": 2}}'


def _program(*, trainer: str = "", strategy: str = "") -> str:
    """A program with these arguments for Lightning's Trainer and its strategy, for examples."""
    return (
        "from lightning.pytorch import Trainer\nfrom lightning.pytorch.strategies import DeepSpeedStrategy\n"
        f"trainer = Trainer(strategy=DeepSpeedStrategy(config='ds_config.json'{strategy}){trainer})\n"
    )


@rule(
    "DS927",
    effect=Effect.CRASH,
    phase=Phase.LOAD,
    watches=("fact:integration",),
    references=(f"{SOURCE}._format_batch_size_and_grad_accum_config",),
    untried=RAISED_BY_LIGHTNING,
)
@bad(
    '{"gradient_accumulation_steps": 4, "zero_optimization": {"stage": 2}}',
    at="gradient_accumulation_steps",
    integration="lightning",
    message='Lightning\'s Trainer raises "Do not set `gradient_accumulation_steps` in the DeepSpeed config as this will be set with the `accumulate_grad_batches` argument". Only Lightning Fabric accepts the key.',
)
@bad(
    '{"gradient_accumulation_steps": 4, "zero_optimization": {"stage": 2}}',
    at="gradient_accumulation_steps",
    program=_program(),
    message='Lightning\'s Trainer raises "Do not set `gradient_accumulation_steps` in the DeepSpeed config as this will be set with the `accumulate_grad_batches` argument". Only Lightning Fabric accepts the key.',
)
@good(_STAGE_2, integration="lightning")
@good(
    '{"gradient_accumulation_steps": 4, "zero_optimization": {"stage": 2}}',
    program="import lightning as L\nfrom lightning.fabric.strategies import DeepSpeedStrategy\n"
    "L.Fabric(strategy=DeepSpeedStrategy(config='ds_config.json'))\n",
)
def accumulation_under_lightning(config: Config) -> Iterator[Finding]:
    """The config sets `gradient_accumulation_steps`, which Lightning's Trainer sets itself.

    The Trainer raises "Do not set `gradient_accumulation_steps` in the DeepSpeed config as this will be set with the
    `accumulate_grad_batches` argument passed via the Lightning Trainer." Lightning Fabric has no such argument and accepts the key.

    Remove the key, and pass `accumulate_grad_batches` to the Trainer.
    """
    program = lightning_program(config)
    if program is not None and program.fabric:
        return
    if config.facts.integration is Integration.LIGHTNING and config.has("gradient_accumulation_steps"):
        yield Finding(
            "gradient_accumulation_steps",
            "Lightning's Trainer raises \"Do not set `gradient_accumulation_steps` in the DeepSpeed config as this will be set with the "
            '`accumulate_grad_batches` argument". Only Lightning Fabric accepts the key.',
            help="Remove it, and pass accumulate_grad_batches to the Trainer.",
            certain=program is not None and program.lightning_trainer,
        )


@rule(
    "DS933",
    effect=Effect.SILENT,
    watches=("setup",),
    references=("lightning/fabric/strategies/deepspeed.py, _format_precision_config",),
)
@bad(
    '{"bf16": {"enabled": false}, "zero_optimization": {"stage": 2}}',
    at="bf16.enabled",
    program=_program(trainer=", precision='bf16-mixed'"),
    message="train.py:3 sets precision 'bf16-mixed', but the config has a section bf16 that is not enabled: Lightning does not change it, and DeepSpeed trains in fp32.",
)
@good(_STAGE_2, program=_program(trainer=", precision='bf16-mixed'"))
def precision_under_lightning(config: Config) -> Iterator[Finding]:
    """Lightning's Trainer gets a precision, but the config has the section of that precision and does not enable it.

    Lightning writes the section `bf16` or `fp16` only if the config has none, and does not change an existing one: DeepSpeed then trains in
    fp32, and Lightning casts the model's inputs to the precision of the argument.

    Remove the section, or set `"enabled": true`.
    """
    program = lightning_program(config)
    given = program.trainer.get("precision") if program else None
    if given is None or not isinstance(config.document.root, Mapping):
        return
    kind = next((kind for word, kind in (("bf16", "bf16"), ("16", "fp16")) if str(given.value).startswith(word)), None)
    if kind is None or not config.has(kind) or config.enabled(kind) is UNKNOWN or config.enabled(kind) is True:
        return
    if config.is_auto(f"{kind}.enabled"):
        return  # DS901 reports it
    yield Finding(
        f"{kind}.enabled",
        f"{given.where} sets precision {given.raw}, but the config has a section {kind} that is not enabled: "
        "Lightning does not change it, and DeepSpeed trains in fp32.",
        help=f'Remove the section {kind}, so that Lightning writes it, or set "enabled": true.',
        related=(given.related(f"selects {kind}"),),
    )


@rule(
    "DS936",
    effect=Effect.IGNORED,
    watches=("setup",),
    references=(f"{SOURCE}._format_batch_size_and_grad_accum_config",),
)
@bad(
    _CLIPPING,
    at="",
    program=_program(trainer=", gradient_clip_val=1.0"),
    message="gradient_clip_val=1.0 has no effect: the config sets gradient_clipping to 0.5, which Lightning does not change.",
)
@good(_CLIPPING, program=_program(trainer=", gradient_clip_val=0.5"))
@good(_STAGE_2, program=_program(trainer=", gradient_clip_val=1.0"))
def clipping_under_lightning(config: Config) -> Iterator[Finding]:
    """Lightning's Trainer gets a value for gradient clipping, and the config sets another one.

    Lightning writes `gradient_clip_val` into the config only if it has no `gradient_clipping`. Otherwise DeepSpeed clips at the value of the
    config, and the argument has no effect.

    Keep one of the two.
    """
    program = lightning_program(config)
    given = program.trainer.get("gradient_clip_val") if program else None
    used = config.value("gradient_clipping")
    if given is None or not config.has("gradient_clipping"):
        return
    if not isinstance(given.value, int | float) or not isinstance(used, int | float) or given.value == used:
        return
    yield Finding(
        "",
        f"{given.shown} has no effect: the config sets gradient_clipping to {config.quote('gradient_clipping')}, "
        "which Lightning does not change.",
        help="Remove gradient_clipping from the config, or this argument from the program.",
        elsewhere=given.related(""),
        related=(("gradient_clipping", "this value is used"),),
    )


@rule(
    "DS937",
    effect=Effect.CRASH,
    phase=Phase.LOAD,
    watches=("setup",),
    references=(f"{SOURCE}.init_deepspeed",),
    untried=RAISED_BY_LIGHTNING,
)
@bad(
    _STAGE_2,
    at="",
    program=_program(trainer=", gradient_clip_val=0.5, gradient_clip_algorithm='value'"),
    message='gradient_clip_algorithm is "value": Lightning raises "DeepSpeed does not support clipping gradients by value".',
)
@good(_STAGE_2, program=_program(trainer=", gradient_clip_val=0.5, gradient_clip_algorithm='norm'"))
def clipping_by_value(config: Config) -> Iterator[Finding]:
    """Lightning's Trainer should clip each gradient by value, which DeepSpeed does not support.

    DeepSpeed clips by the norm of all gradients. Lightning raises `MisconfigurationException: DeepSpeed does not support clipping gradients
    by value.`

    Remove `gradient_clip_algorithm`, or write "norm".
    """
    program = lightning_program(config)
    given = program.trainer.get("gradient_clip_algorithm") if program else None
    if given is not None and given.value == "value":
        yield Finding(
            "",
            'gradient_clip_algorithm is "value": Lightning raises "DeepSpeed does not support clipping gradients by value".',
            help='Remove it, or write "norm".',
            elsewhere=given.related(""),
        )


@rule(
    "DS938",
    effect=Effect.IGNORED,
    watches=("setup",),
    references=(f"{SOURCE}.__init__",),
)
@bad(
    _STAGE_2,
    at="",
    program=_program(strategy=", stage=3, offload_optimizer=True"),
    message="stage, offload_optimizer have no effect: the strategy is given a config and ignores the arguments that would build one.",
)
@good(_STAGE_2, program=_program(strategy=", load_full_weights=True"))
def strategy_arguments_beside_config(config: Config) -> Iterator[Finding]:
    """Lightning's `DeepSpeedStrategy` gets a config, and arguments that it uses only without a config.

    The strategy builds a config from `stage`, `offload_optimizer` and some thirty other arguments if it is given none. With a config it
    silently ignores them: `stage=3` trains with the stage of the config.

    Set the same in the config, and remove the arguments.
    """
    program = lightning_program(config)
    if program is None or not program.strategy:
        return
    first, *others = program.strategy
    names = ", ".join(given.name for given in program.strategy)
    yield Finding(
        "",
        f"{names} {'have' if others else 'has'} no effect: the strategy is given a config and ignores the arguments that would build one.",
        help="Set the same in the config, and remove the arguments.",
        elsewhere=first.related(""),
        related=tuple(given.related("also ignored") for given in others),
    )
