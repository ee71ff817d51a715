"""DS6: what the Trainer refuses or drops of an optimizer."""

from __future__ import annotations

import re
from collections.abc import Iterator

from dslint.config import Config
from dslint.diagnostics import Effect, LoadStep, Phase
from dslint.facts import Integration, Release
from dslint.rule import Finding, bad, good, rule
from dslint.rules.helpers.loaders import NOT_INSTALLED, is_loader_certain
from dslint.rules.helpers.releases import release_of

_TRAINER = (
    "import torch\nfrom transformers import AutoModelForCausalLM, Trainer, TrainingArguments\n"
    'model = AutoModelForCausalLM.from_pretrained("m")\nopt = torch.optim.AdamW(model.parameters(), lr=3e-4)\n'
    'trainer = Trainer(model, TrainingArguments("out", deepspeed="ds_config.json"), optimizers=%s)\n'
)
_AUTO = '{"train_batch_size": "auto", "zero_optimization": {"stage": 2}}'


_OWN_LOOP = re.compile(r"(PPO|RLOO)\w*Trainer$")
"""Trainers of TRL that prepare the optimizer they are given themselves, in releases with `optimizers` and without `deepspeed_init`."""


@rule(
    "DS655",
    effect=Effect.SILENT,
    watches=("setup",),
    references=("transformers/integrations/deepspeed.py, deepspeed_init and deepspeed_optim_sched of 4.43.4 and 5.23.0",),
    setup=True,
)
@bad(
    _AUTO,
    at="",
    program=_TRAINER % "(opt, None)",
    integration="transformers",
    message="train.py:5 gives the Trainer an optimizer: under DeepSpeed it silently drops it, with its learning rates and parameter groups, and trains with one that it makes from its own arguments.",
)
@good(_AUTO, program=_TRAINER % "(None, schedule)", integration="transformers")
@good(_AUTO, program=_TRAINER % "(None, None)", integration="transformers")
@good(
    _AUTO,
    program="import torch\nfrom trl import PPOConfig, PPOTrainer\nopt = torch.optim.AdamW(model.parameters(), lr=3e-4)\n"
    'trainer = PPOTrainer(PPOConfig("out", deepspeed="ds_config.json"), model=model, optimizers=(opt, None))\n',
    integration="transformers",
)
def optimizer_of_trainer_dropped(config: Config) -> Iterator[Finding]:
    """The program gives the Trainer an optimizer, which the Trainer drops under DeepSpeed.

    `deepspeed_init` sets the Trainer's optimizer to None when the training starts, and what `Trainer(optimizers=...)` got is lost silently.
    The training uses the config's section `optimizer`, or without one the optimizer that `create_optimizer` makes from the training arguments.

    Override `create_optimizer` in a subclass of the Trainer, and write no section `optimizer`, or set the optimizer in the training arguments.
    """
    program = config.setup.program if config.setup else None
    if program is None or config.facts.integration is not Integration.TRANSFORMERS:
        return
    from dslint.job.events import TRAINERS  # a plain check does not import what programs need

    for event in program.events.of(TRAINERS):
        if _OWN_LOOP.search(event.name):
            continue
        given = event.arguments.get("optimizers")
        none = given is None or given.value is None or (isinstance(given.value, tuple) and not any(given.value))
        if given is None or none or given.raw.replace(" ", "").startswith("(None,") or event.tells_setups_apart:
            continue
        by = (
            "the config's section describes"
            if config.document.root is not None and config.has("optimizer")
            else "it makes from its own arguments"
        )
        yield Finding(
            "",
            f"{event.at.where} gives the Trainer an optimizer: under DeepSpeed it silently drops it, with its learning rates and parameter groups, "
            f"and trains with one that {by}.",
            help="Override create_optimizer in a subclass of the Trainer, and write no section optimizer.",
            elsewhere=event.at.related(""),
            certain=False,
        )
        return


_OPTIMIZER = '{"train_micro_batch_size_per_gpu": "auto", "zero_optimization": {"stage": 2}, "optimizer": {"type": "AdamW", "params": {"lr": "auto"}}%s}'
_SCHEDULER_REQUIRED, _SCHEDULER_OPTIONAL = Release(4, 30, 0), Release(4, 33, 3)
"""The releases of transformers between which an optimizer section requires a scheduler section."""

_TAKES_SCHEDULE, _OLD_ACCELERATE_REFUSED = Release(0, 23, 0), Release(4, 42, 0)
"""The first release of Accelerate whose `DummyScheduler` takes the Trainer's schedule, and one of transformers that runs with no older one."""


@rule(
    "DS656",
    effect=Effect.CRASH,
    phase=Phase.LOAD,
    step=LoadStep.COMPARISON,
    watches=("optimizer",),
    references=(
        "transformers/deepspeed.py and transformers/integrations/deepspeed.py of 4.30.0 to 4.33.2, deepspeed_optim_sched",
        "accelerate/accelerator.py up to 0.22.0, _prepare_deepspeed",
    ),
    untried=NOT_INSTALLED,
)
@bad(
    _OPTIMIZER % "",
    at="optimizer",
    integration="transformers",
    loader_release=Release(4, 31, 0),
    message='The config has a section optimizer, but no scheduler: transformers 4.31.0 raises "Found `optimizer` configured in the DeepSpeed config, but no `scheduler`".',
)
@bad(
    _OPTIMIZER % "",
    at="optimizer",
    integration="transformers",
    loader_release=Release(4, 33, 2),
    message='The config has a section optimizer, but no scheduler: transformers 4.33.2 raises "Found `optimizer` configured in the DeepSpeed config, but no `scheduler`".',
)
@bad(
    _OPTIMIZER % "",
    at="optimizer",
    integration="transformers",
    loader_release=Release(4, 37, 2),
    pins={"accelerate": Release(0, 21, 0)},
    message='The config has a section optimizer, but no scheduler: Accelerate 0.21.0 with transformers 4.37.2 raises "You cannot create a `DummyScheduler` without specifying a scheduler in the config file.".',
)
@good(_OPTIMIZER % "", integration="transformers", loader_release=Release(4, 37, 2), pins={"accelerate": Release(0, 23, 0)})
@good(_OPTIMIZER % "", integration="transformers", loader_release=Release(4, 29, 2), pins={"accelerate": Release(0, 21, 0)})
@good(_OPTIMIZER % "", integration="transformers", loader_release=Release(4, 29, 2))
@good(_OPTIMIZER % "", integration="transformers", loader_release=Release(4, 33, 3))
@good(_OPTIMIZER % "", integration="transformers", loader_release=Release(4, 34, 0))
@good(_OPTIMIZER % "", integration="transformers")
@good(_OPTIMIZER % ', "scheduler": {"type": "WarmupLR", "params": {}}', integration="transformers", loader_release=Release(4, 31, 0))
@good('{"train_batch_size": "auto", "zero_optimization": {"stage": 2}}', integration="transformers", loader_release=Release(4, 31, 0))
@good(
    (_OPTIMIZER % "").replace('"stage": 2', '"stage": 3, "stage3_gather_16bit_weights_on_model_save": true'),
    program=_TRAINER % "(None, None)" + "print(trainer.evaluate())\n",
    integration="transformers",
    loader_release=Release(4, 31, 0),
)
@good(
    (_OPTIMIZER % "").replace('"stage": 2', '"stage": 3, "stage3_gather_16bit_weights_on_model_save": true'),
    training="per_device_eval_batch_size: 2\noutput_dir: o\neval_strategy: steps\nbf16: true\ndo_eval: true\ndeepspeed: ds_config.json\n",
    integration="transformers",
    loader_release=Release(4, 31, 0),
)
@bad(
    _OPTIMIZER % "",
    at="optimizer",
    program=_TRAINER % "(None, None)" + "trainer.train()\ntrainer.evaluate()\n",
    integration="transformers",
    loader_release=Release(4, 31, 0),
    message='The config has a section optimizer, but no scheduler: transformers 4.31.0 raises "Found `optimizer` configured in the DeepSpeed config, but no `scheduler`".',
)
def optimizer_without_scheduler(config: Config) -> Iterator[Finding]:
    """Transformers 4.30.0 to 4.33.2, and Accelerate before 0.23, refuse a section `optimizer` without a section `scheduler`.

    When the training starts, the Trainer of these releases raises ValueError "Found `optimizer` configured in the DeepSpeed config, but no
    `scheduler`"; an evaluation deletes the section. Releases before and after use the schedule of the training arguments with DeepSpeed's optimizer. This rule runs only if the
    project pins the release, or it is given: `--integration transformers==4.31`.

    From 4.33.3 on transformers passes its schedule to Accelerate's `DummyScheduler`. Accelerate before 0.23 does not know it, and raises ValueError
    "You cannot create a `DummyScheduler` without specifying a scheduler in the config file.".

    Remove the section `optimizer`, which lets the Trainer make the optimizer and the schedule, add a section `scheduler`, or use
    transformers 4.33.3 or later with Accelerate 0.23 or later.
    """
    release = config.facts.loader_release
    if release is None or config.facts.integration is not Integration.TRANSFORMERS:
        return
    accelerate = release_of(config, "accelerate") if _SCHEDULER_OPTIONAL <= release < _OLD_ACCELERATE_REFUSED else None
    by_accelerate = accelerate is not None and accelerate < _TAKES_SCHEDULE
    if not _SCHEDULER_REQUIRED <= release < _SCHEDULER_OPTIONAL and not by_accelerate:
        return
    if not config.has("optimizer") or config.has("scheduler"):
        return
    if config.is_misspelt("scheduler") or config.may_be_written("scheduler"):
        return
    from dslint.frameworks.evaluation import evaluation_before_training, only_evaluates  # load the frameworks, which few checks need

    if only_evaluates(config) or evaluation_before_training(config) is not None:
        return  # for which it deletes the section
    sure = is_loader_certain(config)
    who, text, update = (
        f"transformers {release}",
        "Found `optimizer` configured in the DeepSpeed config, but no `scheduler`",
        "transformers 4.33.3",
    )
    if by_accelerate:
        who, update = f"Accelerate {accelerate} with transformers {release}", "Accelerate 0.23"
        text = "You cannot create a `DummyScheduler` without specifying a scheduler in the config file."
    yield Finding(
        "optimizer",
        f'The config has a section optimizer, but no scheduler: {who} {"raises" if sure else "may raise"} "{text}".',
        help=f"Remove the section optimizer, add a section scheduler, or use {update} or later.",
        certain=sure,
    )
