"""What Accelerate has no value for where the config has "auto", because of the program or of another key."""

from __future__ import annotations

from collections.abc import Iterator

from dslint.config import Config
from dslint.diagnostics import LoadStep
from dslint.facts import Integration
from dslint.frameworks.registry import of_arguments
from dslint.rule import Finding
from dslint.rules.helpers.loaders import is_loader_certain
from dslint.rules.helpers.prepare import PREPARE, kind_of, selects_plugin, without_loader
from dslint.schemas.derive import MICRO, TRAIN


def schedule_without_values(config: Config) -> Iterator[Finding]:
    """The first "auto" of a schedule that the only call of `prepare` leaves without a value."""
    program = config.setup.program if config.setup else None
    if program is None or program.loader != "accelerate" or selects_plugin(config):
        return
    if without_loader(config) is not None:
        return  # that call raises before
    calls = list(program.events.of(PREPARE))
    stand_ins = list(program.events.of(r"accelerate\.(.*\.)?DummyScheduler"))
    if len(calls) != 1 or not calls[0].complete or not calls[0].arguments or len(stand_ins) > 1:
        return
    made = [one.made for one in calls[0].arguments.values()]
    keys: tuple[str, ...]
    if stand_ins:
        given = stand_ins[0].argument("total_num_steps", 1)
        callable_ = stand_ins[0].argument("lr_scheduler_callable", 3)
        if not stand_ins[0].complete or callable_ is not None or (given is not None and given.value is not None):
            return
        keys, missing = ("scheduler.params.total_num_steps",), f"the DummyScheduler of {stand_ins[0].at.where} has no total_num_steps"
    elif all(made) and not any(kind_of(one) == "scheduler" for one in made):
        names = ("warmup_min_lr", "warmup_max_lr", "warmup_num_steps", "total_num_steps")
        keys, missing = tuple(f"scheduler.params.{name}" for name in names), f"{calls[0].at.where} prepares no DummyScheduler"
    else:
        return
    key = next((one for one in keys if config.is_auto(one)), None)
    if key is not None:
        yield Finding(
            key,
            f'{key} is "auto", and {missing}: Accelerate raises "`{key}` not found in kwargs".',
            help="Write a number, or pass total_num_steps and warmup_num_steps to a DummyScheduler that the program prepares.",
            on="value",
            related=(calls[0].at.related("prepared here"),),
            certain=calls[0].certain and calls[0].flow == 0 and not calls[0].tells_setups_apart,
        )


def batch_without_micro_batch(config: Config) -> Iterator[Finding]:
    """`train_batch_size`, which Accelerate computes of the micro batch size, where that is not written.

    Source: accelerate/accelerator.py, _prepare_deepspeed: it asks the data loaders only where the micro batch size is "auto".
    """
    program = config.setup.program if config.setup else None
    if config.facts.integration is not Integration.ACCELERATE or not config.is_auto(TRAIN) or config.has(MICRO):
        return
    if program is not None and any(MICRO in path or TRAIN in path for path in program.sets):
        return
    certain = is_loader_certain(config)
    yield Finding(
        TRAIN,
        f'{TRAIN} is "auto", and {MICRO} is not written: Accelerate {"raises" if certain else "may raise"} "`{TRAIN}` not found in kwargs".',
        help=f'Write "{MICRO}": "auto", too.',
        on="value",
        certain=certain,
    )


_OF_THE_PLUGIN = {"zero_optimization.stage": "zero_stage"} | {
    f"zero_optimization.offload_{kind}.device": f"offload_{kind}_device" for kind in ("optimizer", "param")
}


def auto_from_plugin(config: Config) -> Iterator[Finding]:
    """What a program's own plug-in fills with "auto" again, so that it is still "auto" in `prepare`.

    Source: accelerate/utils/dataclasses.py, DeepSpeedPlugin.__post_init__ and fill_match. Asked of Accelerate 1.15 on the CPU.
    """
    program = config.setup.program if config.setup else None
    calls = list(program.events.of(r"accelerate\.(\w+\.)*DeepSpeedPlugin")) if program is not None else []
    for key, name in _OF_THE_PLUGIN.items():
        given = [call for call in calls if (argument := call.argument(name)) is not None and argument.value == "auto"]
        if given and config.is_auto(key):
            yield Finding(
                key,
                f'{name} is "auto" in the DeepSpeedPlugin of {given[0].at.where}, which Accelerate does not replace: `prepare` raises '
                f'ValueError "`{key}` not found in kwargs".',
                help="Write a value, or leave the argument out: Accelerate then takes that of its launcher, or its default.",
                on="value",
                certain=len(calls) == 1 and given[0].certain and given[0].flow == 0,
            )


def refused_by_framework(config: Config) -> Iterator[Finding]:
    """What a framework hands on before Accelerate replaces "auto".

    Source: axolotl/utils/trainer.py, setup_deepspeed_env, and accelerate/utils/dataclasses.py, DeepSpeedPlugin.__post_init__.
    """
    framework = of_arguments(config.arguments)
    if framework is None:
        return
    for key, error in framework.not_auto.items():
        if config.is_auto(key):
            yield Finding(
                key,
                f'{key} is "auto", and {framework.name} passes it to Accelerate as it is: Accelerate raises "{error}".',
                help="Write a number.",
                on="value",
                step=LoadStep.PLUGIN,
                certain=is_loader_certain(config),
            )
