"""DS9, continued: arguments of Lightning's Trainer and strategy beside a config."""

from __future__ import annotations

from collections.abc import Iterator

from dslint.config import Config
from dslint.diagnostics import Effect, Phase
from dslint.facts import Integration
from dslint.rule import Finding, bad, good, rule
from dslint.setup.model import Program

SOURCE = "lightning/pytorch/strategies/deepspeed.py, DeepSpeedStrategy"
ZERO = '{"zero_optimization": {"stage": 2}}'
CLIPPED = '{"gradient_clipping": 0.5, "zero_optimization": {"stage": 2}}'
HEAD = "from lightning.pytorch import Trainer\nfrom lightning.pytorch.strategies import DeepSpeedStrategy\n"


def program_of(*, trainer: str = "", strategy: str = "") -> str:
    """A program with arguments for Lightning's Trainer and its strategy."""
    return f"{HEAD}trainer = Trainer(strategy=DeepSpeedStrategy(config='ds_config.json'{strategy}){trainer})\n"


def _program(config: Config) -> Program | None:
    setup = config.setup
    return setup.program if setup and config.facts.integration is Integration.LIGHTNING else None


@rule(
    "DS936",
    "clipping-under-lightning",
    effect=Effect.IGNORED,
    watches=("setup",),
    references=(f"{SOURCE}._format_batch_size_and_grad_accum_config",),
)
@bad(CLIPPED, at="", program=program_of(trainer=", gradient_clip_val=1.0"))
@good(CLIPPED, program=program_of(trainer=", gradient_clip_val=0.5"))
@good(ZERO, program=program_of(trainer=", gradient_clip_val=1.0"))
def clipping_under_lightning(config: Config) -> Iterator[Finding]:
    """Lightning's Trainer is told to clip gradients, and the config says another number.

    Lightning writes `gradient_clip_val` into the config where that has no `gradient_clipping`. One that is there it leaves as it is, and DeepSpeed clips by it: the argument
    does nothing.

    Keep one of the two.
    """
    program = _program(config)
    given = program.trainer.get("gradient_clip_val") if program else None
    used = config.value("gradient_clipping")
    if (
        given is None
        or not config.has("gradient_clipping")
        or not isinstance(given.value, int | float)
        or not isinstance(used, int | float)
    ):
        return
    if given.value != used:
        yield Finding(
            "",
            f"{given.shown} has no effect: the config says gradient_clipping {config.quote('gradient_clipping')}, which Lightning leaves as it is.",
            help="Take gradient_clipping out of the config, or this argument out of the program.",
            elsewhere=given.related(""),
            related=(("gradient_clipping", "counts"),),
        )


@rule(
    "DS937",
    "clipping-by-value",
    effect=Effect.CRASH,
    phase=Phase.LOAD,
    watches=("setup",),
    references=(f"{SOURCE}.init_deepspeed",),
    untried="raised by Lightning, not by DeepSpeed",
)
@bad(ZERO, at="", program=program_of(trainer=", gradient_clip_val=0.5, gradient_clip_algorithm='value'"))
@good(ZERO, program=program_of(trainer=", gradient_clip_val=0.5, gradient_clip_algorithm='norm'"))
def clipping_by_value(config: Config) -> Iterator[Finding]:
    """Lightning's Trainer is told to clip each gradient by its value, which DeepSpeed cannot.

    It clips by the norm of all gradients. Lightning raises `MisconfigurationException: DeepSpeed does not support clipping gradients by value.`

    Leave `gradient_clip_algorithm` out, or write "norm".
    """
    program = _program(config)
    given = program.trainer.get("gradient_clip_algorithm") if program else None
    if given is not None and given.value == "value":
        yield Finding(
            "",
            'gradient_clip_algorithm is "value": Lightning raises "DeepSpeed does not support clipping gradients by value".',
            help='Leave it out, or write "norm".',
            elsewhere=given.related(""),
        )


@rule("DS938", "strategy-arguments-beside-config", effect=Effect.IGNORED, watches=("setup",), references=(f"{SOURCE}.__init__",))
@bad(ZERO, at="", program=program_of(strategy=", stage=3, offload_optimizer=True"))
@good(ZERO, program=program_of(strategy=", load_full_weights=True"))
def strategy_arguments_beside_config(config: Config) -> Iterator[Finding]:
    """Lightning's `DeepSpeedStrategy` gets a config, and arguments of which it would have made one.

    `stage`, `offload_optimizer` and some thirty others are for strategies without a config. Beside one they are not looked at, without a word: `stage=3` trains with the
    stage of the config.

    Write what they say in the config, and take them out.
    """
    program = _program(config)
    if program is None or not program.strategy:
        return
    first, *others = program.strategy
    names = ", ".join(given.name for given in program.strategy)
    yield Finding(
        "",
        f"{names} {'has' if not others else 'have'} no effect: the strategy is given a config, and then makes none of its arguments.",
        help="Say it in the config, and take the arguments out.",
        elsewhere=first.related(""),
        related=tuple(given.related("this one too") for given in others),
    )
