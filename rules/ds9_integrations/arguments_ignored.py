"""DS9: training arguments that have no effect, because the config lacks the key or sets something else."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from dslint.config import UNKNOWN, Config
from dslint.diagnostics import Effect, LoadStep, Phase
from dslint.facts import Integration, Release
from dslint.frameworks.filling import FILLED_AT_START, as_read_by_trainer, from_arguments
from dslint.frameworks.registry import of_arguments
from dslint.frameworks.training import bare
from dslint.job.arguments import Arguments, SourcedValue
from dslint.job.model import Setup
from dslint.rule import Finding, bad, good, rule, unsafe
from dslint.rules.helpers.examples import ZERO_2
from dslint.rules.helpers.loaders import ACCELERATE_SOURCE, TRAINER_SOURCE, made_without_config, makes_plugin, trainer_arguments
from dslint.rules.helpers.models import adds_one_step, knows_arguments
from dslint.rules.helpers.offload import OFFLOAD_OPTIMIZER
from dslint.rules.helpers.releases import allows, requires_at_most
from dslint.schemas.derive import ACCUMULATION, MICRO, TRAIN
from dslint.schemas.trainer import FILLINGS
from dslint.source.change import Insert
from dslint.source.tree import Mapping

_AXOLOTL = "base_model: m\nmicro_batch_size: 2\n"
_FACTORY = "stage: sft\nmodel_name_or_path: m\nper_device_train_batch_size: 2\n"
_OFFLOADING = (
    '{"train_batch_size": "auto", "bf16": {"enabled": "auto"}, "zero_optimization": {"stage": 2, "offload_optimizer": {"device": "cpu"}}}'
)


@rule("DS906", effect=Effect.SILENT, watches=("setup",), references=(ACCELERATE_SOURCE,))
@bad(
    f'{{"train_micro_batch_size_per_gpu": "auto", {ZERO_2}}}',
    at=ACCUMULATION,
    training=_AXOLOTL + "gradient_accumulation_steps: 8\n",
    message="train.yaml:3 sets 8 gradient accumulation steps (gradient_accumulation_steps: 8), but the config has no gradient_accumulation_steps: Accelerate adds it with the value 1, and before Accelerate 1.8.0 the batch is silently 8 times smaller than intended.",
    fixed='{"train_micro_batch_size_per_gpu": "auto", "zero_optimization": {"stage": 2}, "gradient_accumulation_steps": "auto"}',
)
@bad(
    f'{{"train_batch_size": "auto", "train_micro_batch_size_per_gpu": "auto", {ZERO_2}}}',
    at=ACCUMULATION,
    training=_AXOLOTL + "gradient_accumulation_steps: 8\n",
    message='train.yaml:3 sets 8 gradient accumulation steps (gradient_accumulation_steps: 8), but the config has no gradient_accumulation_steps: Accelerate adds it with the value 1, which contradicts train_batch_size, and DeepSpeed raises "Check batch related parameters".',
    fixed='{"train_batch_size": "auto", "train_micro_batch_size_per_gpu": "auto", "zero_optimization": {"stage": 2}, "gradient_accumulation_steps": "auto"}',
)
@bad(
    f'{{"train_micro_batch_size_per_gpu": 2, {ZERO_2}}}',
    at=ACCUMULATION,
    program="from accelerate import Accelerator\naccelerator = Accelerator(gradient_accumulation_steps=4)\n",
    integration="accelerate",
    message="train.py:2 sets 4 gradient accumulation steps (gradient_accumulation_steps=4), but the config has no gradient_accumulation_steps: Accelerate adds it with the value 1, and the batch is silently 4 times smaller than intended.",
    fixed='{"train_micro_batch_size_per_gpu": 2, "zero_optimization": {"stage": 2}, "gradient_accumulation_steps": "auto"}',
)
@bad(
    f'{{"train_batch_size": "auto", "train_micro_batch_size_per_gpu": 2, {ZERO_2}}}',
    at=ACCUMULATION,
    program="from accelerate import Accelerator\naccelerator = Accelerator(gradient_accumulation_steps=4)\n",
    integration="accelerate",
    message="train.py:2 sets 4 gradient accumulation steps (gradient_accumulation_steps=4), but the config has no gradient_accumulation_steps: Accelerate adds it with the value 1, and the batch is silently 4 times smaller than intended.",
    fixed='{"train_batch_size": "auto", "train_micro_batch_size_per_gpu": 2, "zero_optimization": {"stage": 2}, "gradient_accumulation_steps": "auto"}',
)
@bad(
    f'{{"train_micro_batch_size_per_gpu": 2, "gradient_accumulation_steps": 8, {ZERO_2}}}',
    at=ACCUMULATION,
    program="from accelerate import Accelerator\naccelerator = Accelerator()\n",
    integration="accelerate",
    pins={"accelerate": Release(0, 21, 0)},
    message="gradient_accumulation_steps is 8, but the Accelerator in train.py:2 has 1: Accelerate 0.21.0 replaces the value of the config by 1.",
)
@good(
    f'{{"train_micro_batch_size_per_gpu": 2, "gradient_accumulation_steps": 8, {ZERO_2}}}',
    program="from accelerate import Accelerator\naccelerator = Accelerator()\n",
    integration="accelerate",
    pins={"accelerate": Release(0, 23, 0)},
)
@good(
    f'{{"train_micro_batch_size_per_gpu": 2, {ZERO_2}}}',
    program="from accelerate import Accelerator\naccelerator = Accelerator(gradient_accumulation_steps=4)\n",
    integration="accelerate",
    pins={"accelerate": Release(0, 21, 0)},
)
@bad(
    f'{{"train_micro_batch_size_per_gpu": "auto", {ZERO_2}}}',
    at=ACCUMULATION,
    training=_AXOLOTL + "gradient_accumulation_steps: 8\n",
    integration="transformers",
    loader_release=Release(4, 27, 1),
    message="train.yaml:3 sets 8 gradient accumulation steps (gradient_accumulation_steps: 8), but the config has no gradient_accumulation_steps: DeepSpeed uses 1, and the batch is silently 8 times smaller than intended.",
    fixed='{"train_micro_batch_size_per_gpu": "auto", "zero_optimization": {"stage": 2}, "gradient_accumulation_steps": "auto"}',
)
@good(
    f'{{"train_batch_size": "auto", "train_micro_batch_size_per_gpu": "auto", {ZERO_2}}}',
    training=_AXOLOTL + "gradient_accumulation_steps: 8\n",
    integration="transformers",
    loader_release=Release(4, 27, 1),
)
@bad(
    f'{{"train_micro_batch_size_per_gpu": 2, "gradient_accumulation_steps": 1, {ZERO_2}}}',
    at=ACCUMULATION,
    program="from accelerate import Accelerator\naccelerator = Accelerator(gradient_accumulation_steps=4)\n",
    integration="accelerate",
    message="The Accelerator in train.py:2 gets gradient_accumulation_steps=4, but the config has 1: Accelerate lets DeepSpeed use the value of the config.",
)
@good(
    f'{{"train_micro_batch_size_per_gpu": 2, "gradient_accumulation_steps": 4, {ZERO_2}}}',
    program="from accelerate import Accelerator\naccelerator = Accelerator(gradient_accumulation_steps=4)\n",
    integration="accelerate",
)
@good(
    f'{{"train_micro_batch_size_per_gpu": 2, "gradient_accumulation_steps": "auto", {ZERO_2}}}',
    program="from accelerate import Accelerator\naccelerator = Accelerator(gradient_accumulation_steps=4)\n",
    integration="accelerate",
)
@good(
    f'{{"train_micro_batch_size_per_gpu": "auto", "gradient_accumulation_steps": "auto", {ZERO_2}}}',
    training=_AXOLOTL + "gradient_accumulation_steps: 8\n",
)
def accumulation_not_taken_over(config: Config) -> Iterator[Finding]:
    """Gradient accumulation steps are set outside of the config, which lacks the key or loses its value.

    The Hugging Face integrations replace "auto", and add only this key if it is missing, with the value 1. If the config has both batch
    sizes, DeepSpeed then raises `AssertionError: Check batch related parameters`.

    Otherwise a program with its own training loop gets one accumulation step: Accelerate takes over the value of the config. The batch is
    a fraction of the intended one. The Hugging Face Trainer counts its steps itself, and since Accelerate 1.8.0 it also says when DeepSpeed
    updates the parameters: the training is the intended one, and the finding is an info. Before, DeepSpeed updated them after every micro
    batch. So does a Trainer before transformers 4.30, which does not use Accelerate, where the config has only one batch size.

    Up to release 0.22, Accelerate does it the other way: it replaces the value of the config by that of the program's `Accelerator`, which
    is 1 if it gets none.

    The argument of `Accelerator` also has no effect where the launch exports another value: `gradient_accumulation_steps` in the block of the
    Accelerate file, as `accelerate config` writes it, the flag of `accelerate launch`, or the variable. From release 0.23 on a number in
    the config counts more than both; from 1.8.0 on Accelerate warns "Gradient accumulation steps mismatch".

    Add `"gradient_accumulation_steps": "auto"`, and write the number in one place.
    """
    yield from _replaced(config)
    yield from _outvoted(config)
    arguments = trainer_arguments(config)
    if arguments is not None and made_without_config(arguments):
        return  # DS998
    given = arguments.get(ACCUMULATION) if arguments else _of_accelerator(config)
    steps = given.value if given else arguments.value(ACCUMULATION) if arguments else UNKNOWN
    if not isinstance(steps, int) or steps <= 1:
        return
    if not config.lacks(ACCUMULATION) or not isinstance(config.document.root, Mapping):
        return
    if config.document.problems or config.is_misspelt(ACCUMULATION) or adds_one_step(config):
        return  # DS904 reports that the Trainer compares the added value
    if arguments is None and _replaces(config):
        return
    if config.lacks(TRAIN) and config.lacks(MICRO):
        return  # DS204: DeepSpeed raises
    by_accelerate = config.facts.passes_accelerate and not _requires_old_trainer(config)
    either = by_accelerate and _allows_old_trainer(config)
    filled = arguments is None and config.is_auto(TRAIN)  # Accelerate computes it of the value that it adds
    both = all(config.has(key) and not config.is_null(key) for key in (TRAIN, MICRO))
    if both and not by_accelerate:
        return  # DeepSpeed computes the steps of the batch sizes, which the Trainer has filled in or compared
    crashes = both and not filled
    counted = arguments is not None and not crashes and by_accelerate
    if counted and given is None:
        return
    train = config.literal(TRAIN)
    compared = arguments is not None and config.facts.world_size is None and isinstance(train, int)
    first = f'the Trainer raises "- ds train_batch_size={train} vs hf train_batch_size (calculated)=...", or ' if compared else ""
    outcome = (
        f'which contradicts train_batch_size, and {first}DeepSpeed raises "Check batch related parameters"'
        if crashes
        else f"and before Accelerate 1.8.0 the batch is silently {steps} times smaller than intended"
        if counted
        else f"and the batch is silently {steps} times smaller than intended"
    )
    yield Finding(
        ACCUMULATION,
        f"{_who_sets(steps, given, arguments)}, but the config has no gradient_accumulation_steps: "
        f"{'since transformers 4.30 ' if either else ''}{'Accelerate adds it with the value 1' if by_accelerate else 'DeepSpeed uses 1'}, {outcome}.",
        help='Add "gradient_accumulation_steps": "auto".',
        related=(given.related("the number of steps is set here" if counted else "not used"),) if given is not None else (),
        fix=unsafe('add "gradient_accumulation_steps": "auto"', Insert((), ACCUMULATION, '"auto"')),
        effect=Effect.CRASH if crashes else Effect.ADVICE if counted else None,
        phase=_phase_of_added(arguments) if crashes else None,
        step=LoadStep.BATCH if crashes else None,
        certain=not (crashes and either),
    )


def _allows_old_trainer(config: Config) -> bool:
    """Whether the project allows releases of transformers with and without Accelerate in the Trainer: `transformers>=4.21`."""
    is_open = config.facts.integration is Integration.TRANSFORMERS and config.facts.loader_release is None
    return is_open and allows(config, "transformers", Release(4, 29, 0))


def _requires_old_trainer(config: Config) -> bool:
    """Whether the project allows only releases of transformers whose Trainer does not use Accelerate: `transformers~=4.27.0`."""
    is_open = config.facts.integration is Integration.TRANSFORMERS and config.facts.loader_release is None
    return is_open and requires_at_most(config, "transformers", Release(4, 29, 99))


def _replaces(config: Config) -> bool:
    """Whether Accelerate replaces the accumulation steps of the config, and the Trainer has no part in it.

    Source: accelerate/accelerator.py, Accelerator._prepare_deepspeed, of 0.17.1 to 0.22.0; 0.23.0 only fills "auto" in.
    """
    release = config.context.pinned("accelerate")
    return config.facts.integration is Integration.ACCELERATE and release is not None and Release(0, 17, 1) <= release < Release(0, 23, 0)


def _replaced(config: Config) -> Iterator[Finding]:
    """The finding for accumulation steps of the config that Accelerate replaces by those of the program's `Accelerator`."""
    setup, written = config.setup, config.value(ACCUMULATION)
    program = setup.program if setup is not None else None
    if (
        setup is None
        or setup.made
        or program is None
        or not _replaces(config)
        or not config.has(ACCUMULATION)
        or not isinstance(written, int)
    ):
        return
    made = list(program.events.of(r"accelerate\.(\w+\.)?Accelerator"))
    if len(made) != 1 or not made[0].complete or made[0].argument("gradient_accumulation_plugin") is not None:
        return
    from dslint.frameworks.filling import accumulation  # a plain check does not import what arguments need

    steps = accumulation(setup)
    if not isinstance(steps, int) or steps == written or (setup.accelerate is not None and ACCUMULATION in setup.accelerate.block):
        return
    crashes = all(isinstance(config.value(key), int) and config.has(key) for key in (TRAIN, MICRO))
    outcome = ', which contradicts the batch sizes, and DeepSpeed raises "Check batch related parameters"' if crashes else ""
    yield Finding(
        ACCUMULATION,
        f"gradient_accumulation_steps is {config.quote(ACCUMULATION)}, but the Accelerator in {made[0].at.where} has {steps}: "
        f"Accelerate {config.context.pinned('accelerate')} replaces the value of the config by {steps}{outcome}.",
        help=f"Pass gradient_accumulation_steps={written} to Accelerator, or write {steps} here.",
        related=(made[0].at.related("this value is used"),),
        effect=Effect.CRASH if crashes else None,
        phase=Phase.PARSE if crashes else None,
        step=LoadStep.BATCH if crashes else None,
        certain=made[0].certain and not made[0].flow,
    )


def _outvoted(config: Config) -> Iterator[Finding]:
    """The finding for the argument of a program's `Accelerator` that the launch or the config overrides.

    Source: accelerate/accelerator.py, Accelerator.__init__ (parse_choice_from_env) and _prepare_deepspeed.
    """
    setup, given, written = config.setup, _of_accelerator(config), config.value(ACCUMULATION)
    release = config.context.pinned("accelerate")
    if setup is None or given is None or setup.program is None or (release is not None and release < Release(0, 17, 1)):
        return
    made = list(setup.program.events.of(r"accelerate\.(\w+\.)?Accelerator"))
    if len(made) != 1 or not made[0].complete or made[0].argument("gradient_accumulation_plugin") is not None:
        return
    from dslint.frameworks.filling import accumulation, exported_accumulation  # a plain check does not import what arguments need

    exported, steps = exported_accumulation(setup), accumulation(setup)
    if type(given.value) is not int or type(steps) is not int:
        return
    certain = made[0].certain and not made[0].flow
    gets = f"The Accelerator in {made[0].at.where} gets gradient_accumulation_steps={given.value}"
    if not setup.made and config.has(ACCUMULATION) and isinstance(written, int) and not config.is_auto(ACCUMULATION):
        if written not in (given.value, steps) and not _replaces(config):
            yield Finding(
                ACCUMULATION,
                f"{gets}, but the config has {written}: Accelerate lets DeepSpeed use the value of the config.",
                help=f'Write {given.value} or "auto" here, or pass {written} to Accelerator.',
                related=(given.related("not used"),),
                certain=certain,
            )
    elif exported is not None and steps != given.value and not makes_plugin(config) and not _sets_variable(setup):
        yield Finding(
            "",
            f"{gets}, but {exported.where} sets {steps} ({exported.shown}): Accelerator reads that from its environment, and uses {steps}.",
            help=f"Set {exported.name} to {given.value}, or remove it.",
            elsewhere=exported.related(""),
            related=(given.related("not used"),),
            certain=certain,
        )


def _sets_variable(setup: Setup) -> bool:
    """Whether the program sets the variable itself."""
    return any("ACCELERATE_GRADIENT_ACCUMULATION_STEPS" in one.text for one in setup.documents.values())


def _who_sets(steps: int, given: SourcedValue | None, arguments: Arguments | None) -> str:
    """The beginning of a sentence: what sets the gradient accumulation steps, or computes them from others."""
    if given is not None:
        return f"{given.where} sets {steps} gradient accumulation steps ({given.shown})"
    return f"{arguments.framework if arguments is not None else 'The framework'} computes {steps} gradient accumulation steps"


def _phase_of_added(arguments: Arguments | None) -> Phase:
    """When DeepSpeed meets the value that Accelerate adds: not yet while a framework loads the model by itself."""
    framework = of_arguments(arguments)
    return Phase.INITIALIZE if framework is not None and framework.loads_by_itself else Phase.PARSE


def _of_accelerator(config: Config) -> SourcedValue | None:
    """`Accelerator(gradient_accumulation_steps=...)` in a program without the Trainer."""
    program = config.setup.program if config.setup else None
    return program.accumulation if program and config.facts.integration is Integration.ACCELERATE else None


@rule(
    "DS907",
    effect=Effect.SILENT,
    watches=("setup",),
    references=(TRAINER_SOURCE, "deepspeed/runtime/config.py, get_gradient_clipping"),
)
@bad(
    f'{{"train_batch_size": "auto", {ZERO_2}}}',
    at="gradient_clipping",
    training=_AXOLOTL + "max_grad_norm: 0.3\n",
    message="train.yaml:3 sets gradient clipping to 0.3 (max_grad_norm: 0.3), but the config has no gradient_clipping: DeepSpeed 0.19.8 clips at its default, 1.",
    fixed='{"train_batch_size": "auto", "zero_optimization": {"stage": 2}, "gradient_clipping": "auto"}',
)
@bad(
    f'{{"train_batch_size": "auto", {ZERO_2}}}',
    at="gradient_clipping",
    training=_AXOLOTL + "max_grad_norm: 1.0\n",
    deepspeed="0.18.9",
    message="train.yaml:3 sets gradient clipping to 1 (max_grad_norm: 1.0), but the config has no gradient_clipping: DeepSpeed 0.18.9 does not clip.",
    fixed='{"train_batch_size": "auto", "zero_optimization": {"stage": 2}, "gradient_clipping": "auto"}',
)
@good(f'{{"train_batch_size": "auto", "gradient_clipping": "auto", {ZERO_2}}}', training=_AXOLOTL + "max_grad_norm: 0.3\n")
@good(f'{{"train_batch_size": "auto", {ZERO_2}}}', training=_AXOLOTL + "max_grad_norm: 1.0\n")
def clipping_not_taken_over(config: Config) -> Iterator[Finding]:
    """The training arguments set gradient clipping, and the config does not have the key.

    With DeepSpeed the engine clips gradients, and it reads only the config: without `gradient_clipping`, `max_grad_norm` has no effect.
    By default DeepSpeed does not clip up to release 0.19.2, and clips at 1.0 from 0.19.3 on.

    Add `"gradient_clipping": "auto"`.
    """
    arguments = trainer_arguments(config)
    given = arguments.get("max_grad_norm") if arguments else None
    if given is None or config.has("gradient_clipping") or not isinstance(config.document.root, Mapping):
        return
    used = config.value("gradient_clipping")
    if not isinstance(given.value, int | float) or not isinstance(used, int | float) or given.value == used:
        return
    outcome = f"clips at its default, {used:g}" if used else "does not clip"
    yield Finding(
        "gradient_clipping",
        f"{given.where} sets gradient clipping to {given.value:g} ({given.shown}), but the config has no gradient_clipping: "
        f"DeepSpeed {config.release} {outcome}.",
        help='Add "gradient_clipping": "auto".',
        fix=unsafe('add "gradient_clipping": "auto"', Insert((), "gradient_clipping", '"auto"')),
        related=(given.related("not used"),),
    )


_SAME_OPTIMIZER = {
    "adamw": ("adam", "adamw", "onebitadam"),
    "adafactor": (),
    "sgd": ("sgd",),
    "lion": ("lion",),
    "adagrad": ("adagrad",),
    "muon": ("muon",),
}
"""Beginnings of the Trainer's `optim`, each with DeepSpeed's types that do the same."""

_OTHERS_THAN_ADAM = re.compile(
    r"adafactor|sgd|rmsprop(_bnb\w*)?|(paged_)?lion_8bit|(paged_)?ademamix(_8bit)?|galore_\w+|stable_adamw|grokadamw"
)
_ADAMW_IN_8_BITS = re.compile(r"adamw_8bit|adamw_bnb_8bit|paged_adamw_8bit")
"""Values of `optim` for which Accelerate makes DeepSpeedCPUAdam of an offloaded optimizer; of the others, some are AdamW, and since 1.2 it has
DeepSpeed's optimizers for Adagrad and Lion in 32 bits. From its releases 0.34.2, 1.0.1, 1.3.0 and 1.15.0.
"""
_COUPLES_DECAY = Release(1, 2, 0)
"""The first Accelerate that makes Adam, and not AdamW, of an optimizer that is not AdamW in 32 bits."""

_SAME_SCHEDULE = {
    "linear": ("warmupdecaylr",),
    "constant_with_warmup": ("warmuplr",),
    "cosine": ("warmupcosinelr",),
    "cosine_with_restarts": (),
    "cosine_with_min_lr": ("warmupcosinelr",),
    "cosine_warmup_with_min_lr": ("warmupcosinelr",),
    "polynomial": ("warmupdecaylr",),
    "inverse_sqrt": (),
    "warmup_stable_decay": (),
    "reduce_lr_on_plateau": (),
    "greedy": (),
    "constant": (),
}
"""Values of the Trainer's `lr_scheduler_type`, each with DeepSpeed's types that may do the same, depending on their parameters."""


@rule(
    "DS908",
    effect=Effect.IGNORED,
    watches=("setup",),
    references=(
        "transformers/integrations/deepspeed.py, deepspeed_optim_sched",
        "accelerate/utils/deepspeed.py, map_pytorch_optim_to_deepspeed",
    ),
)
@bad(
    f'{{"train_batch_size": "auto", "optimizer": {{"type": "AdamW", "params": {{"lr": "auto"}}}}, {ZERO_2}}}',
    at=("optimizer",),
    training=_AXOLOTL + "optimizer: adafactor\n",
    message="optimizer: adafactor has no effect: the config ds_config.json has a section optimizer, and the training uses DeepSpeed's AdamW.",
)
@bad(
    f'{{"train_batch_size": "auto", "scheduler": {{"type": "WarmupLR", "params": {{"warmup_max_lr": "auto"}}}}, {ZERO_2}}}',
    at=("lr_scheduler_type",),
    training="stage: sft\nmodel_name_or_path: m\nper_device_train_batch_size: 2\nlr_scheduler_type: cosine\n",
    message="lr_scheduler_type: cosine has no effect: the config ds_config.json has a section scheduler, and the training uses DeepSpeed's WarmupLR.",
)
@bad(
    f'{{"train_batch_size": "auto", "scheduler": {{"type": "WarmupLR", "params": {{"warmup_max_lr": "auto"}}}}, {ZERO_2}}}',
    at=("lr_scheduler_type",),
    training="stage: sft\nmodel_name_or_path: m\nper_device_train_batch_size: 2\nlr_scheduler_type: warmup_stable_decay\n",
    message="lr_scheduler_type: warmup_stable_decay has no effect: the config ds_config.json has a section scheduler, and the training uses DeepSpeed's WarmupLR.",
)
@good(
    f'{{"train_batch_size": "auto", "scheduler": {{"type": "WarmupCosineLR", "params": {{"total_num_steps": "auto"}}}}, {ZERO_2}}}',
    training="stage: sft\nmodel_name_or_path: m\nper_device_train_batch_size: 2\nlr_scheduler_type: cosine_with_min_lr\n",
)
@good(
    f'{{"train_batch_size": "auto", "optimizer": {{"type": "AdamW", "params": {{"lr": "auto"}}}}, {ZERO_2}}}',
    training=_AXOLOTL + "optimizer: adamw_torch\n",
)
@bad(
    _OFFLOADING,
    at=("optimizer",),
    training=_AXOLOTL + "optimizer: adafactor\n",
    message="optimizer: adafactor has no effect: the config offloads the optimizer, and Accelerate replaces the Trainer's by DeepSpeedCPUAdam: the training uses Adam.",
)
@bad(
    _OFFLOADING,
    at=("optim",),
    training=_FACTORY + "optim: adamw_8bit\nweight_decay: 0.1\n",
    message="optim: adamw_8bit has no effect: the config offloads the optimizer, and Accelerate replaces the Trainer's by DeepSpeedCPUAdam: its states have 32 bits, and weight_decay is added to the gradients, as Adam does and AdamW does not.",
)
@good(_OFFLOADING, training=_FACTORY + "optim: adamw_torch\n")
@good(_OFFLOADING, training=_FACTORY + "optim: paged_adamw_32bit\n")
@good(_OFFLOADING.replace('"bf16"', '"zero_force_ds_cpu_optimizer": false, "bf16"'), training=_FACTORY + "optim: adafactor\n")
@good(f'{{"train_batch_size": "auto", {ZERO_2}}}', training=_AXOLOTL + "optimizer: adafactor\nlr_scheduler: cosine\n")
def argument_overridden(config: Config) -> Iterator[Finding]:
    """The training arguments name an optimizer or a schedule, and the config sets another one.

    If the config has a section `optimizer`, the Hugging Face Trainer lets DeepSpeed create the optimizer and silently ignores `optim`; the
    same holds for `scheduler` and `lr_scheduler_type`.

    If the config has no section `optimizer` and offloads the optimizer, Accelerate makes a `DeepSpeedCPUAdam` of what the Trainer has made:
    Adafactor and SGD become Adam, and AdamW in 8 bits has states in 32 bits.

    The object of the arguments replaces each "auto" of the config while it is made. What a program sets in it afterwards, as
    `arguments.learning_rate = 1e-4`, does not reach DeepSpeed.

    Remove the section from the config to use the argument, or remove the argument.
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
            continue  # an unknown word, or one that means the same
        owner = f"the config {config.setup.config}" if config.setup and config.setup.config else "the config"
        yield Finding(
            section,
            f"{given.shown} has no effect: {owner} has a section {section}, and the training uses DeepSpeed's {kind}.",
            help=f"Remove the section {section} from the config to use this argument, or remove the argument.",
            elsewhere=given.related(""),
            related=((f"{section}.type", "this one is used"),),
        )
    yield from _replaced_with_offload(config, arguments)
    yield from _set_after_filling(config, arguments)


def _set_after_filling(config: Config, arguments: Arguments) -> Iterator[Finding]:
    """The arguments that a program sets when the Trainer's arguments are made, and have replaced "auto" with what they were made with."""
    program = config.setup.program if config.setup is not None else None
    if program is None or program.makes_again or not knows_arguments(config) or arguments.said("auto_find_batch_size").value is True:
        return
    for key in FILLINGS:
        if not config.is_auto(key) or key in FILLED_AT_START:
            continue
        filled = from_arguments(key, as_read_by_trainer(key, arguments, program), config.facts)
        wanted = from_arguments(key, arguments, config.facts)
        late = [given for given in wanted.givens if bare(given) in arguments.before]
        known = filled.sure and wanted.sure and UNKNOWN not in (filled.value, wanted.value)
        if late and known and filled.value != wanted.value and key != TRAIN:
            yield Finding(
                key,
                f'{late[0].where} sets {late[0].name} when the arguments are made already, and these have replaced "auto" with {filled.value:g} by '
                f"then: DeepSpeed does not use {_shown(wanted.value)}.",
                help=f"Pass {bare(late[0])} to the class of the arguments, or on the command line.",
                related=(late[0].related("set here"),),
                effect=Effect.SILENT,
                certain=False,
            )


def _shown(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else json.dumps(value)


def _replaced_with_offload(config: Config, arguments: Arguments) -> Iterator[Finding]:
    """The optimizer of the arguments that Accelerate replaces, because its states are on the host."""
    given, device = arguments.get("optim"), config.value(f"{OFFLOAD_OPTIMIZER}.device")
    is_replaced = device in ("cpu", "nvme") and config.value("zero_force_ds_cpu_optimizer") is True and config.lacks("optimizer")
    if given is None or not isinstance(given.value, str) or not is_replaced:
        return
    word, release = given.value.strip("\"'").lower(), config.context.pinned("accelerate")
    if _OTHERS_THAN_ADAM.fullmatch(word):
        outcome = "the training uses Adam"
    elif _ADAMW_IN_8_BITS.fullmatch(word):
        decays = arguments.value("weight_decay") not in (UNKNOWN, 0) and (release is None or release >= _COUPLES_DECAY)
        outcome = (
            f"its states have 32 bits{', and weight_decay is added to the gradients, as Adam does and AdamW does not' if decays else ''}"
        )
    else:
        return
    yield Finding(
        OFFLOAD_OPTIMIZER,
        f"{given.shown} has no effect: the config offloads the optimizer, and Accelerate replaces the Trainer's by DeepSpeedCPUAdam: {outcome}.",
        help="Remove offload_optimizer to use this argument, or write optim: adamw_torch, which stays AdamW.",
        elsewhere=given.related(""),
        related=((OFFLOAD_OPTIMIZER, "offloaded here"),),
    )
