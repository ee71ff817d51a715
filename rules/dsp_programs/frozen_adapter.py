"""DSP: an adapter that a program loads frozen, and then trains."""

from __future__ import annotations

import re
from collections.abc import Iterator

from dslint.config import Config
from dslint.diagnostics import Effect, Phase
from dslint.facts import Release
from dslint.job.events import ENGINE, TRAINERS, Event, Events, GivenArgument
from dslint.rule import Finding, bad, good, rule
from dslint.rules.helpers.examples import trained
from dslint.rules.helpers.loaders import RAISED_BY_LOADER
from dslint.rules.helpers.prepare import BACKWARD, PREPARE
from dslint.rules.helpers.zero import STAGE
from dslint.source.unknown import UNKNOWN

_STAGE_2 = trained('"zero_optimization": {"stage": 2}')
_OF_TRAINER = '{"train_micro_batch_size_per_gpu": "auto", "zero_optimization": {"stage": 2}}'
_LOADED = (
    "from transformers import AutoModelForCausalLM\nfrom peft import PeftModel\n"
    "model = PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained('m'), 'old-lora')\n"
)
_OWN = _LOADED + (
    "import deepspeed\nengine, *_ = deepspeed.initialize(model=model, model_parameters=model.parameters(), config='ds_config.json')\n"
    "for batch in data:\n    engine.backward(engine(**batch).loss)\n    engine.step()\n"
)
_TRAINED = _LOADED + (
    "from transformers import Trainer, TrainingArguments\ntrainer = Trainer(model, TrainingArguments('out', deepspeed='ds_config.json'))\n"
    "trainer.train()\n"
)
_EITHER = _TRAINED.replace(
    "model = PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained('m'), 'old-lora')\n",
    "from peft import LoraConfig, get_peft_model\nbase = AutoModelForCausalLM.from_pretrained('m')\n"
    "if old:\n    model = PeftModel.from_pretrained(base, old)\nelse:\n    model = get_peft_model(base, LoraConfig(r=8))\n",
)
_AUTO = _TRAINED.replace("PeftModel", "AutoPeftModelForCausalLM").replace("AutoModelForCausalLM.from_pretrained('m'), ", "")


@rule(
    "DSP06",
    effect=Effect.CRASH,
    phase=Phase.INITIALIZE,
    watches=("setup",),
    references=(
        "peft/peft_model.py, PeftModel.from_pretrained: is_trainable=False",
        "deepspeed/runtime/zero/stage_1_and_2.py, DeepSpeedZeroOptimizer.__init__: bit16_groups",
        "https://github.com/ymcui/Chinese-LLaMA-Alpaca-2/pull/577",
        "https://github.com/huggingface/trl/issues/3031",
    ),
    untried=RAISED_BY_LOADER,
    anywhere=True,
    setup=True,
)
@bad(
    _STAGE_2,
    at="",
    program=_OWN,
    integration="deepspeed",
    message="train.py:3 loads an adapter without is_trainable=True, and train.py:5 trains the model: PEFT freezes the adapter, too, so no weight is left to train, and making the optimizer or the first backward pass raises an error.",
)
@bad(
    _OF_TRAINER,
    at="",
    program=_TRAINED,
    integration="transformers",
    message="train.py:3 loads an adapter without is_trainable=True, and train.py:5 trains the model: PEFT freezes the adapter, too, so no weight is left to train, and making the optimizer or the first backward pass raises an error.",
)
@bad(
    _OF_TRAINER,
    at="",
    program=_EITHER,
    integration="transformers",
    message="train.py:6 loads an adapter without is_trainable=True, and train.py:10 trains the model: PEFT freezes the adapter, too, so no weight is left to train, and making the optimizer or the first backward pass may raise an error.",
)
@bad(
    _OF_TRAINER,
    at="",
    program=_AUTO,
    integration="transformers",
    message="train.py:3 loads an adapter without is_trainable=True, and train.py:5 trains the model: PEFT freezes the adapter, too, so no weight is left to train, and making the optimizer or the first backward pass raises an error.",
)
@bad(
    _OF_TRAINER,
    at="",
    program=_TRAINED.replace("from transformers import Trainer,", "model = model.merge_and_unload()\nfrom transformers import Trainer,"),
    integration="transformers",
    message="train.py:3 loads an adapter, the program merges it, and train.py:6 trains the model: the merged weights stay frozen, so no weight is left to train, and making the optimizer or the first backward pass raises an error.",
)
@good(
    _OF_TRAINER,
    program=_TRAINED.replace(
        "from transformers import Trainer,", "model = model.merge_and_unload().requires_grad_(True)\nfrom transformers import Trainer,"
    ),
    integration="transformers",
)
@good(_STAGE_2, program=_OWN.replace("'old-lora')", "'old-lora', is_trainable=True)"), integration="deepspeed")
@good(_STAGE_2, program=_OWN.replace("'old-lora')", "'old-lora', 'default', True)"), integration="deepspeed")
@good(_STAGE_2, program=_OWN.replace("'old-lora')", "'old-lora', is_trainable=not only_test)"), integration="deepspeed")
@good(_STAGE_2, program=_OWN.replace("'old-lora')", "'old-lora', **options)"), integration="deepspeed")
@good(_OF_TRAINER, program=_AUTO.replace("'old-lora')", "'old-lora', 'default', True)"), integration="transformers")
@good(
    _STAGE_2,
    program=_OWN.replace("import deepspeed\n", "import deepspeed\nfor p in model.parameters():\n    p.requires_grad = True\n"),
    integration="deepspeed",
)
@good(_STAGE_2, program=_OWN.replace("import deepspeed\n", "import deepspeed\nmodel.set_adapter('default')\n"), integration="deepspeed")
@good(_STAGE_2, program=_OWN.replace("engine.backward(engine(**batch).loss)", "print(engine(**batch).loss)"), integration="deepspeed")
@good(_OF_TRAINER, program=_TRAINED.replace("trainer.train()", "print(trainer)"), integration="transformers")
@good(
    _OF_TRAINER,
    program=_TRAINED.replace("Trainer(model,", "Trainer(get_peft_model(model.merge_and_unload(), LoraConfig(r=8)),").replace(
        "import PeftModel", "import LoraConfig, PeftModel, get_peft_model"
    ),
    integration="transformers",
)
@good(
    _OF_TRAINER,
    program=_TRAINED.replace("transformers import Trainer, TrainingArguments", "trl import SFTConfig, SFTTrainer")
    .replace("trainer = Trainer(model, TrainingArguments(", "trainer = SFTTrainer(model, SFTConfig(")
    .replace("'ds_config.json'))", "'ds_config.json'), peft_config=options)"),
    integration="transformers",
)
@good(
    _OF_TRAINER,
    program=_EITHER.replace("if old", "if args.old is not None"),
    launch="deepspeed train.py --deepspeed ds_config.json",
    integration="transformers",
)
@good(_OF_TRAINER, program=_TRAINED, integration="transformers", pins={"peft": Release(0, 2, 0)})
def adapter_loaded_frozen(config: Config) -> Iterator[Finding]:
    """The program loads an adapter with `PeftModel.from_pretrained` without `is_trainable=True`, and trains the model.

    PEFT freezes the weights of the model as always, and since 0.3.0 also those of the adapter that it loads, unless `is_trainable` is true.
    Then no weight requires a gradient, unless it is one for prompt tuning. An optimizer that gets only those that do raises "optimizer got an
    empty parameter list". ZeRO stages 1 and 2 raise IndexError and stage 3 AssertionError in `deepspeed.initialize`; without ZeRO the first
    backward pass raises.

    What `merge_and_unload` returns is frozen as well, with or without `is_trainable`.

    Pass `is_trainable=True`; behind `merge_and_unload` call `requires_grad_(True)`, or `get_peft_model` for a new adapter.
    """
    program = config.setup.program if config.setup else None
    if config.setup is None or program is None:
        return
    pinned = config.context.pinned("peft")
    if pinned is not None and pinned < _FREEZES:
        return
    loads = [one for one in program.events.of(_LOADS) if _is_frozen(one) and not _lacks_flag(config, one)]
    if not loads or any(_UNFREEZES.search(one.text) for one in config.setup.documents.values()):
        return
    for load in loads:
        for training in _trainings(program.events):
            models = training.arguments.values() if training.name.endswith("prepare") else [_model(training)]
            if not any(one is not None and load.start in (one.origin, *one.others) for one in models):
                continue
            is_lora = any(re.search("lora", one.text, re.IGNORECASE) for one in config.setup.documents.values())
            certain = is_lora and all(one.always and not one.unlikely for one in (load, training))
            is_merged = any(one.origin == load.start for one in program.events.of(_MERGES))
            how = "loads an adapter, the program merges it" if is_merged else "loads an adapter without is_trainable=True"
            why = "the merged weights stay frozen" if is_merged else "PEFT freezes the adapter, too"
            yield Finding(
                "",
                f"{load.at.where} {how}, and {training.at.where} trains the model: {why}, so no weight is "
                "left to train, and making the optimizer or the first backward pass raises an error.",
                help="Call requires_grad_(True) of the merged model." if is_merged else "Pass is_trainable=True.",
                elsewhere=load.at.related(""),
                related=(training.at.related("trained here"),),
                phase=Phase.INITIALIZE if config.value(STAGE) >= 1 else Phase.LATER,
                certain=certain,
            )
            return


_LOADS = r"peft\.(\w+\.)*(Auto)?PeftModel\w*\.from_pretrained"
_MERGES = rf"{_LOADS}\.(merge_and_unload|unload)"
_FREEZES = Release(0, 3, 0)
"""The first release of PEFT that loads an adapter frozen."""

_UNFREEZES = re.compile(
    r"\.requires_grad\s*=(?!=|\s*False)|(?<!output)\.requires_grad_\((?!\s*False)|setattr\([^\n]{0,80}requires_grad"
    r"|\.(set|add|load|enable|train)_adapters?\(|mark_only_lora|unfreeze"
)
"""What may make weights of an adapter train again, or adds another one."""


def _is_frozen(load: Event) -> bool:
    """Whether a call that loads an adapter certainly leaves it frozen."""
    trainable = load.argument("is_trainable", 2 if ".Auto" in load.name else 3)
    is_off = trainable is None or (trainable.value is not UNKNOWN and not trainable.value)
    return is_off and load.complete and not load.unlikely and not load.tells_setups_apart


def _lacks_flag(config: Config, load: Event) -> bool:
    """Whether a branch asks for a flag, as `if args.adapter is not None`, and the launch does not give it."""
    launch = config.setup.launch if config.setup is not None else None
    asked = [match[1] for one in load.conditions if one.holds and (match := _ASKS_FOR.fullmatch(one.text))]
    given = {name.replace("-", "_") for name in launch.passed.flags} if launch is not None and launch.passed is not None else asked
    return any(name not in given and (config.arguments is None or name not in config.arguments) for name in asked)


_ASKS_FOR = re.compile(r"\w+\.(\w+)( is not None)?")


def _trainings(events: Events) -> Iterator[Event]:
    """The calls that get a model which the program trains."""
    engines = {one.origin for one in events.of(rf"{ENGINE}\.backward")}
    for event in events.of(re.escape(ENGINE), PREPARE, TRAINERS):
        if event.name == ENGINE:
            trains = event.start in engines
        elif event.name.endswith("prepare"):
            trains = any(events.of(BACKWARD))
        else:
            started = any(one.origin == event.start for one in events.of(rf"{re.escape(event.name)}\.train"))
            trains = started and event.argument("peft_config") is None
        if trains and not event.unlikely:
            yield event


def _model(training: Event) -> GivenArgument | None:
    return training.argument("model", 1 if training.name == ENGINE else 0)
