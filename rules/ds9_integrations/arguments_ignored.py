"""DS9, continued: training arguments that DeepSpeed never hears of, because the config is silent or says something else."""

from __future__ import annotations

from collections.abc import Iterator

from dslint.config import UNKNOWN, Config
from dslint.diagnostics import Effect, Phase
from dslint.facts import Integration
from dslint.rule import Finding, bad, good, rule, unsafe
from dslint.rules.helpers.loaders import ACCELERATE_SOURCE, TRAINER_SOURCE, ZERO_2, trainer_arguments
from dslint.schemas.derive import ACCUMULATION, TRAIN
from dslint.setup.arguments import SourcedValue
from dslint.source.change import Insert
from dslint.source.tree import Mapping


@rule("DS906", "accumulation-not-taken-over", effect=Effect.SILENT, watches=("setup",), references=(ACCELERATE_SOURCE,))
@bad(
    f'{{"train_micro_batch_size_per_gpu": "auto", {ZERO_2}}}',
    at=ACCUMULATION,
    training="base_model: m\nmicro_batch_size: 2\ngradient_accumulation_steps: 8\n",
)
@bad(
    f'{{"train_batch_size": "auto", "train_micro_batch_size_per_gpu": "auto", {ZERO_2}}}',
    at=ACCUMULATION,
    training="base_model: m\nmicro_batch_size: 2\ngradient_accumulation_steps: 8\n",
)
@bad(
    f'{{"train_micro_batch_size_per_gpu": 2, {ZERO_2}}}',
    at=ACCUMULATION,
    program="from accelerate import Accelerator\naccelerator = Accelerator(gradient_accumulation_steps=4)\n",
    integration="accelerate",
)
@good(
    f'{{"train_micro_batch_size_per_gpu": "auto", "gradient_accumulation_steps": "auto", {ZERO_2}}}',
    training="base_model: m\nmicro_batch_size: 2\ngradient_accumulation_steps: 8\n",
)
def accumulation_not_taken_over(config: Config) -> Iterator[Finding]:
    """The training accumulates gradients, and the config does not have the key.

    The Hugging Face integrations replace "auto" and add no key but this one, with the value 1. Without a `train_batch_size` DeepSpeed then runs with one accumulation
    step, a fraction of the batch that was meant, and nobody says so. With a `train_batch_size` it raises `AssertionError: Check batch related parameters`.

    Add `"gradient_accumulation_steps": "auto"`.
    """
    arguments = trainer_arguments(config)
    given = arguments.get(ACCUMULATION) if arguments else _of_accelerator(config)
    steps = given.value if given else UNKNOWN
    if (
        given is None
        or not isinstance(steps, int)
        or steps <= 1
        or config.has(ACCUMULATION)
        or not isinstance(config.document.root, Mapping)
    ):
        return
    if config.document.problems or config.resolved(ACCUMULATION).note == "misspelt":
        return
    crashes = config.has(TRAIN) and config.quote(TRAIN) != "null"
    outcome = (
        'which does not multiply out with train_batch_size: DeepSpeed raises "Check batch related parameters"'
        if crashes
        else f"and nothing says so: the batch is {steps} times smaller than was meant"
    )
    yield Finding(
        ACCUMULATION,
        f"{given.where} accumulates {steps} steps ({given.shown}), but the config has no gradient_accumulation_steps: Accelerate adds it with the value 1, {outcome}.",
        help='Add "gradient_accumulation_steps": "auto".',
        related=(given.related("not taken over"),),
        fix=unsafe('add "gradient_accumulation_steps": "auto"', Insert((), ACCUMULATION, '"auto"')),
        effect=Effect.CRASH if crashes else None,
        phase=Phase.PARSE if crashes else None,
    )


def _of_accelerator(config: Config) -> SourcedValue | None:
    """`Accelerator(gradient_accumulation_steps=...)` of a program without the Trainer."""
    program = config.setup.program if config.setup else None
    return program.accumulation if program and config.facts.integration is Integration.ACCELERATE else None


@rule(
    "DS907",
    "clipping-not-taken-over",
    effect=Effect.SILENT,
    watches=("setup",),
    references=(TRAINER_SOURCE, "deepspeed/runtime/config.py, get_gradient_clipping"),
)
@bad(
    f'{{"train_batch_size": "auto", {ZERO_2}}}',
    at="gradient_clipping",
    training="base_model: m\nmicro_batch_size: 2\nmax_grad_norm: 0.3\n",
)
@bad(
    f'{{"train_batch_size": "auto", {ZERO_2}}}',
    at="gradient_clipping",
    training="base_model: m\nmicro_batch_size: 2\nmax_grad_norm: 1.0\n",
    deepspeed="0.18.9",
)
@good(
    f'{{"train_batch_size": "auto", "gradient_clipping": "auto", {ZERO_2}}}',
    training="base_model: m\nmicro_batch_size: 2\nmax_grad_norm: 0.3\n",
)
@good(f'{{"train_batch_size": "auto", {ZERO_2}}}', training="base_model: m\nmicro_batch_size: 2\nmax_grad_norm: 1.0\n")
def clipping_not_taken_over(config: Config) -> Iterator[Finding]:
    """The training clips gradients, and the config does not have the key.

    Under DeepSpeed the engine clips, and it knows its config alone: `max_grad_norm` is not looked at where `gradient_clipping` is missing. DeepSpeed's default is no
    clipping up to release 0.19.2, and 1.0 from 0.19.3 on.

    Add `"gradient_clipping": "auto"`.
    """
    arguments = trainer_arguments(config)
    given = arguments.get("max_grad_norm") if arguments else None
    if given is None or config.has("gradient_clipping") or not isinstance(config.document.root, Mapping):
        return
    used = config.value("gradient_clipping")
    if not isinstance(given.value, int | float) or not isinstance(used, int | float) or given.value == used:
        return
    does = f"clips at its own default, {used:g}" if used else "does not clip at all"
    yield Finding(
        "gradient_clipping",
        f"{given.where} wants gradients clipped at {given.value:g} ({given.shown}), but the config has no gradient_clipping: DeepSpeed {config.release} {does}.",
        help='Add "gradient_clipping": "auto".',
        fix=unsafe('add "gradient_clipping": "auto"', Insert((), "gradient_clipping", '"auto"')),
        related=(given.related("not taken over"),),
    )


_SAME_OPTIMIZER = {
    "adamw": ("adam", "adamw", "onebitadam"),
    "adafactor": (),
    "sgd": ("sgd",),
    "lion": ("lion",),
    "adagrad": ("adagrad",),
    "muon": ("muon",),
}
_SAME_SCHEDULE = {
    "linear": ("warmupdecaylr",),
    "constant_with_warmup": ("warmuplr",),
    "cosine": ("warmupcosinelr",),
    "constant": (),
}


@rule(
    "DS908",
    "argument-overridden",
    effect=Effect.IGNORED,
    watches=("setup",),
    references=("transformers/integrations/deepspeed.py, deepspeed_optim_sched",),
)
@bad(
    f'{{"train_batch_size": "auto", "optimizer": {{"type": "AdamW", "params": {{"lr": "auto"}}}}, {ZERO_2}}}',
    at=("optimizer",),
    training="base_model: m\nmicro_batch_size: 2\noptimizer: adafactor\n",
)
@bad(
    f'{{"train_batch_size": "auto", "scheduler": {{"type": "WarmupLR", "params": {{"warmup_max_lr": "auto"}}}}, {ZERO_2}}}',
    at=("lr_scheduler_type",),
    training="stage: sft\nmodel_name_or_path: m\nper_device_train_batch_size: 2\nlr_scheduler_type: cosine\n",
)
@good(
    f'{{"train_batch_size": "auto", "optimizer": {{"type": "AdamW", "params": {{"lr": "auto"}}}}, {ZERO_2}}}',
    training="base_model: m\nmicro_batch_size: 2\noptimizer: adamw_torch\n",
)
@good(
    f'{{"train_batch_size": "auto", {ZERO_2}}}', training="base_model: m\nmicro_batch_size: 2\noptimizer: adafactor\nlr_scheduler: cosine\n"
)
def argument_overridden(config: Config) -> Iterator[Finding]:
    """The training names an optimizer or a schedule, and the config has another one.

    Where the config has a section `optimizer`, the Hugging Face Trainer leaves the optimizer to DeepSpeed and does not look at `optim`; the same with `scheduler` and
    `lr_scheduler_type`. The training runs with what the config says, without a word.

    Take the section out of the config, so that the argument counts; or take out the argument.
    """
    arguments = trainer_arguments(config)
    if arguments is None:
        return
    for section, name, same in (("optimizer", "optim", _SAME_OPTIMIZER), ("scheduler", "lr_scheduler_type", _SAME_SCHEDULE)):
        given = arguments.get(name)
        kind = config.value(f"{section}.type")
        if given is None or not isinstance(given.value, str) or not isinstance(kind, str):
            continue
        word = given.value.strip("\"'").lower()
        family = next(
            (kinds for beginning, kinds in same.items() if word == beginning or (section == "optimizer" and word.startswith(beginning))),
            None,
        )
        if family is None or kind.lower() in family:
            continue  # not a word that is known, or one that means the same
        yield Finding(
            section,
            f"{given.shown} has no effect: the config {config.setup.config if config.setup else ''} has a section {section}, and DeepSpeed's {kind} is what trains.".replace(
                "  ", " "
            ),
            help=f"Take the section {section} out of the config, or this argument out of the training.",
            elsewhere=given.related(""),
            related=((f"{section}.type", "counts"),),
        )
