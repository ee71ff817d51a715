"""DS8: a Trainer that evaluates before it trains, and a second Trainer of the same arguments."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from dslint.config import Config
from dslint.diagnostics import Effect, Phase
from dslint.facts import Integration, Release
from dslint.job.events import TRAINERS, Event
from dslint.rule import Finding, bad, good, rule
from dslint.rules.helpers.examples import trained
from dslint.rules.helpers.loaders import RAISED_BY_LOADER
from dslint.rules.helpers.project import programs_of
from dslint.rules.helpers.syntax import statements_around, tree_of
from dslint.rules.helpers.zero import STAGE

_STAGE_2 = trained('"zero_optimization": {"stage": 2}')
_STAGE_3 = trained('"zero_optimization": {"stage": 3, "stage3_gather_16bit_weights_on_model_save": true}')
_DECAYING = _STAGE_3.replace(
    '"zero_opt', '"scheduler": {"type": "WarmupDecayLR", "params": {"total_num_steps": "auto", "warmup_num_steps": "auto"}}, "zero_opt'
)
_HEAD = (
    "from transformers import AutoModelForCausalLM, Trainer, TrainingArguments\nargs = TrainingArguments('out', deepspeed='ds_config.json')\n"
    "trainer = Trainer(model=AutoModelForCausalLM.from_pretrained('m'), args=args, train_dataset=data)\n"
)
_EVALUATES = "print(trainer.evaluate())\n"
_TRAINS = "trainer.train()\n"
_OF_TRAINER = re.compile(r"class\s+\w+\s*\([^)]*Trainer\b")


@rule(
    "DS887",
    effect=Effect.CRASH,
    phase=Phase.STEP,
    watches=("setup",),
    references=(
        "transformers/trainer.py, Trainer.evaluation_loop and Trainer._inner_training_loop of 4.30.2 to 5.24.0",
        "transformers/integrations/deepspeed.py, deepspeed_init",
        "https://github.com/huggingface/transformers/pull/44889",
        "https://github.com/huggingface/transformers/issues/29348",
    ),
    untried=RAISED_BY_LOADER,
    setup=True,
)
@bad(
    _STAGE_3,
    at="zero_optimization.stage",
    program=_HEAD + _EVALUATES + _TRAINS,
    integration="transformers",
    message="train.py:4 calls trainer.evaluate before train.py:5 trains: at ZeRO stage 3 the Trainer makes an engine without an optimizer for it, "
    "and trains with that one: the first step raises AttributeError \"'NoneType' object has no attribute 'backward'\".",
)
@bad(
    _DECAYING,
    at="scheduler.params.total_num_steps",
    program=_HEAD + _EVALUATES + _TRAINS,
    integration="transformers",
    message='train.py:4 calls trainer.evaluate before train.py:5 trains: the Trainer fills total_num_steps with 0 for it, and the training raises ValueError "Please correct the following DeepSpeed config values that mismatch TrainingArguments values".',
)
@good(_STAGE_3, program=_HEAD + _TRAINS + _EVALUATES, integration="transformers")
@good(_STAGE_3, program=_HEAD + _EVALUATES, integration="transformers")
@good(_STAGE_3, program=_HEAD + "if baseline:\n    " + _EVALUATES + _TRAINS, integration="transformers")
@good(_STAGE_3, program=_HEAD + _EVALUATES + "if False:\n    " + _TRAINS, integration="transformers")
@good(
    _STAGE_3,
    program=_HEAD
    + _EVALUATES
    + "args = TrainingArguments('out', deepspeed='ds_config.json')\nother = Trainer(model=model, args=args)\nother.train()\n",
    integration="transformers",
)
@good(_STAGE_3, program=_HEAD + _EVALUATES + _TRAINS, integration="transformers", loader_release=Release(4, 29, 2))
@good(
    _STAGE_3,
    program=(_HEAD + _TRAINS).replace("'ds_config.json')", "'ds_config.json', eval_on_start=True)"),
    integration="transformers",
)
def trained_after_evaluation(config: Config) -> Iterator[Finding]:
    """At ZeRO stage 3 a Trainer evaluates or predicts before it trains.

    For an evaluation before the training the Trainer makes an engine that has no optimizer, and keeps it as its wrapped model. `train` takes
    the wrapped model for the engine of the training and does not prepare the model again, so Accelerate has no engine for the backward pass:
    AttributeError "'NoneType' object has no attribute 'backward'". Before that, the evaluation has filled each "auto" of the schedule for
    a training of 0 steps, and the training raises ValueError for a `total_num_steps` of 0. So in transformers 4.30 to 5.24.

    Set `eval_on_start=True` in the training arguments, or evaluate in a run of its own.
    """
    if not config.value(STAGE) >= 3 or not config.facts.passes_accelerate or config.facts.integration is not Integration.TRANSFORMERS:
        return
    from dslint.frameworks.evaluation import evaluation_before_training  # load the frameworks, which few checks need

    event = evaluation_before_training(config)
    program = config.setup.program if config.setup else None
    if event is None or program is None or event.origin is None:
        return
    begins = program.events.all.index(event)
    trains = program.events.of(rf"{TRAINERS}\.train")
    training = next((one for one in trains if one.origin == event.origin and program.events.all.index(one) > begins), None)
    if training is None or training.unlikely or training.tells_setups_apart:
        return
    steps = "scheduler.params.total_num_steps"
    fails = (
        "at ZeRO stage 3 the Trainer makes an engine without an optimizer for it, and trains with that one: the first step raises "
        "AttributeError \"'NoneType' object has no attribute 'backward'\"."
    )
    if config.is_auto(steps):
        fails = (
            "the Trainer fills total_num_steps with 0 for it, and the training raises ValueError "
            '"Please correct the following DeepSpeed config values that mismatch TrainingArguments values".'
        )
    yield Finding(
        steps if config.is_auto(steps) else STAGE,
        f"{event.at.where} calls {event.called} before {training.at.where} trains: {fails}",
        help="Set eval_on_start=True in the training arguments, or evaluate in a run of its own.",
        related=(event.at.related("evaluates here"), training.at.related("trains here")),
        certain=training.certain and not training.conditions and not _has_own_trainer(config),
    )


def _has_own_trainer(config: Config) -> bool:
    """Whether the project has a Trainer of its own, whose methods may do otherwise."""
    return any(map(_OF_TRAINER.search, programs_of(config)))


_TWO = _HEAD + "trainer.train()\nfiner = Trainer(model=other, args=args, train_dataset=rest)\nfiner.train()\n"
_LOOP = (
    "from transformers import AutoModelForCausalLM, Trainer, TrainingArguments\nargs = TrainingArguments('out', deepspeed='ds_config.json')\n"
    "for fold in folds:\n%s    trainer = Trainer(model=AutoModelForCausalLM.from_pretrained('m'), args=args, train_dataset=fold)\n    trainer.train()\n"
)
_SECOND = '"You cannot pass in a `deepspeed_plugin` when creating a second `Accelerator`"'


@rule(
    "DS888",
    effect=Effect.CRASH,
    phase=Phase.LOAD,
    watches=("setup",),
    references=(
        "accelerate/accelerator.py, Accelerator.__init__ of 1.0.0 to 1.15.0",
        "transformers/training_args.py, TrainingArguments._setup_devices",
        "https://github.com/huggingface/transformers/issues/35073",
    ),
    untried=RAISED_BY_LOADER,
    setup=True,
)
@bad(
    _STAGE_2,
    at="",
    program=_TWO,
    integration="transformers",
    pins={"accelerate": Release(1, 0, 1)},
    message=f"train.py:5 makes a second Trainer of the arguments of train.py:3: Accelerate raises NotImplementedError {_SECOND}.",
)
@bad(
    _STAGE_2,
    at="",
    program=_LOOP % "",
    integration="transformers",
    message='train.py:4 makes a Trainer in a loop, each of the same arguments: the second one may make Accelerate raise NotImplementedError "You cannot pass in a `deepspeed_plugin` when creating a second `Accelerator`".',
)
@bad(
    _STAGE_2,
    at="",
    program=_HEAD.replace("args = ", "def arguments():\n    return ").replace("trainer = ", "args = arguments()\ntrainer = ")
    + _TRAINS
    + "same = args\nfiner = Trainer(model=other, args=same, train_dataset=rest)\nfiner.train()\n",
    integration="transformers",
    pins={"accelerate": Release(1, 0, 1)},
    message=f"train.py:8 makes a second Trainer of the arguments of train.py:5: Accelerate raises NotImplementedError {_SECOND}.",
)
@good(_STAGE_2, program=_TWO, integration="transformers", pins={"accelerate": Release(0, 34, 2)})
@good(
    _STAGE_2,
    program="from transformers import AutoModelForCausalLM, Trainer, TrainingArguments\n"
    "def train(fold):\n    args = TrainingArguments('out', deepspeed='ds_config.json')\n"
    "    trainer = Trainer(model=AutoModelForCausalLM.from_pretrained('m'), args=args, train_dataset=fold)\n    trainer.train()\n"
    "for fold in folds:\n    train(fold)\n",
    integration="transformers",
)
@good(
    _STAGE_2,
    program="import dataclasses\n" + _TWO.replace("finer = T", "args = dataclasses.replace(args, output_dir='finer')\nfiner = T"),
    integration="transformers",
)
@good(
    _STAGE_2,
    program=_TWO.replace("finer = ", "args = TrainingArguments('finer', deepspeed='ds_config.json')\nfiner = "),
    integration="transformers",
)
@good(_STAGE_2, program=_LOOP % "    args = TrainingArguments('out', deepspeed='ds_config.json')\n", integration="transformers")
@good(_STAGE_2, program=_HEAD + _TRAINS + _EVALUATES, integration="transformers")
@good(
    _STAGE_2,
    program="from transformers import Trainer, TrainingArguments\nargs = TrainingArguments('out', deepspeed='ds_config.json')\n"
    "if packed:\n    trainer = Trainer(model=model, args=args, train_dataset=packs)\nelse:\n"
    "    trainer = Trainer(model=model, args=args, train_dataset=data)\ntrainer.train()\n",
    integration="transformers",
)
@good(
    _STAGE_2,
    program=_TWO.replace("finer = ", "AcceleratorState._reset_state(True)\nfiner = "),
    integration="transformers",
)
@good(_STAGE_2, program=_TWO.replace("args=args, train_dataset=rest", "args=args_of(rest)"), integration="transformers")
def second_trainer_of_arguments(config: Config) -> Iterator[Finding]:
    """A program makes two Trainers of the same training arguments, under DeepSpeed.

    Each Trainer makes an `Accelerator` with the DeepSpeed plugin of its arguments. Accelerate 1.0.0 and newer takes a plugin only for the first
    one, and raises NotImplementedError "You cannot pass in a `deepspeed_plugin` when creating a second `Accelerator`". New
    training arguments reset Accelerate's state, so a Trainer with arguments of its own works.

    Make new training arguments for each Trainer, or use one run for each training.
    """
    program = config.setup.program if config.setup else None
    accelerate = config.context.pinned("accelerate")
    if program is None or config.facts.integration is not Integration.TRANSFORMERS or not config.facts.passes_accelerate:
        return
    if (accelerate is not None and accelerate < Release(1, 0, 0)) or any(map(_RESETS.search, programs_of(config))):
        return
    seen: dict[tuple[int, int], Event] = {}
    for trainer in program.events.of(TRAINERS):
        given = trainer.argument("args", 1 if trainer.name.startswith("transformers.") else None)
        if given is None or given.origin is None or trainer.tells_setups_apart or trainer.handled:
            continue
        if not (trainer.certain or trainer.likely):
            continue
        first = seen.setdefault((trainer.flow, given.origin), trainer)
        sure = accelerate is not None and trainer.certain and first.certain
        if first is not trainer and first.at.where != trainer.at.where and not first.excludes(trainer):
            what = f"makes a second Trainer of the arguments of {first.at.where}: Accelerate raises NotImplementedError {_SECOND}"
        elif trainer.loops and _is_set_before_loop(config, trainer, given.raw):
            what = f"makes a Trainer in a loop, each of the same arguments: the second one may make Accelerate raise NotImplementedError {_SECOND}"
            sure = False
        else:
            continue
        yield Finding(
            "",
            f"{trainer.at.where} {what}.",
            help="Make new training arguments for each Trainer.",
            elsewhere=trainer.at.related(""),
            certain=sure,
        )
        return


_RESETS = re.compile(r"_reset_state|deepspeed_plugin")


def _is_set_before_loop(config: Config, trainer: Event, name: str) -> bool:
    """Whether the function that makes a Trainer in a loop sets the variable with its arguments once, and before the loop."""
    tree = tree_of(config, trainer.at.path)
    around = statements_around(tree, trainer)
    loop = next((one for one in around if isinstance(one, ast.For | ast.While)), None)
    if tree is None or loop is None:
        return False  # the loop calls the function
    scope = next((one for one in reversed(around) if isinstance(one, ast.FunctionDef)), tree)
    sets = [one.lineno for one in ast.walk(scope) if isinstance(one, ast.Name) and one.id == name and isinstance(one.ctx, ast.Store)]
    return len(sets) == 1 and sets[0] < loop.lineno
