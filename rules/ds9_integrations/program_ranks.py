"""DS9: calls that every rank has to make, and that a program makes on some ranks only."""

from __future__ import annotations

import re
from collections.abc import Iterator

from dslint.config import Config
from dslint.diagnostics import Effect, LoadStep, Phase
from dslint.facts import Integration, Release
from dslint.frameworks.whole_load import lost_teller
from dslint.job.events import ENGINE, HELD_WEAKLY, MODELS, TRAINERS, Event, Events
from dslint.record import Record
from dslint.rule import Finding, bad, good, rule
from dslint.rules.helpers.models import ENGINES, divides_at_load, gone_before, managed_models
from dslint.rules.helpers.zero import STAGE

_STAGE_2 = '{"train_micro_batch_size_per_gpu": 4, "zero_optimization": {"stage": 2}}'
_STAGE_3 = '{"train_micro_batch_size_per_gpu": 4, "zero_optimization": {"stage": 3, "stage3_gather_16bit_weights_on_model_save": true}}'

_WITH_OPTIMIZER = (
    '{"train_micro_batch_size_per_gpu": 4, "optimizer": {"type": "AdamW", "params": {"lr": 1e-5}}, "zero_optimization": {"stage": 2}}'
)

_ENGINE = (
    "import deepspeed\n"
    'engine, *_ = deepspeed.initialize(model=model, model_parameters=model.parameters(), config="ds_config.json")\n'
    "rank = deepspeed.comm.get_rank()\n"
)
_ACCELERATOR = (
    "from accelerate import Accelerator\n"
    "accelerator = Accelerator()\n"
    "model, optimizer, loader = accelerator.prepare(model, optimizer, loader)\n"
)
_TRAINED = (
    "from transformers import AutoModelForCausalLM, Trainer, TrainerCallback, TrainingArguments\n"
    "arguments = TrainingArguments('out', deepspeed='ds_config.json')\n"
    "model = AutoModelForCausalLM.from_pretrained('m')\nother = AutoModelForCausalLM.from_pretrained('o')\n"
)
_SAMPLES = (
    f"{_TRAINED}class Sample(TrainerCallback):\n    def on_step_end(self, args, state, control, model=None, **kwargs):\n        if %s:\n"
    "            model.generate(**inputs, synced_gpus=True)\nTrainer(model, arguments, callbacks=[Sample()]).train()\n"
)
_AFTERWARDS = f"{_TRAINED}Trainer(model, arguments).train()\nif arguments.local_rank == 0:\n    %s.generate(**inputs)\n"


class Collective(Record):
    """Calls that all ranks have to make: their names, from which ZeRO stage on, what the ranks do together, and when."""

    names: str
    stage: int
    does: str
    phase: Phase = Phase.SAVE


_WAITS = r"accelerate\.(\w+\.)?Accelerator\.wait_for_everyone|(torch\.distributed|deepspeed\.comm)\.barrier"

_GATHERS = "ZeRO stage 3 gathers the weights from all ranks"

_COLLECTIVES = (
    Collective(r"deepspeed\.initialize\.save_checkpoint", 0, "each rank writes its part of the checkpoint, and they wait for each other"),
    Collective(
        r"accelerate\.(\w+\.)?Accelerator\.save_state",
        0,
        "DeepSpeed saves a part of the checkpoint on each rank, and they wait for each other",
    ),
    Collective(r"deepspeed\.initialize\.train_batch", 0, "the stages of the pipeline pass their results to each other", Phase.STEP),
    Collective(r"deepspeed\.initialize\.eval_batch", 0, "the stages of the pipeline pass their results to each other", Phase.LATER),
    Collective(rf"{TRAINERS}\.train", 0, "the ranks share the data, and average the gradients", Phase.STEP),
    Collective(
        rf"{TRAINERS}\.(evaluate|predict)",
        0,
        "the ranks share the data, and gather the results",
        Phase.LATER,
    ),
    Collective(
        r"accelerate\.(\w+\.)?Accelerator\.(gather|gather_for_metrics|reduce)", 0, "it collects a tensor from every rank", Phase.LATER
    ),
    Collective(_WAITS, 0, "it waits for every rank", Phase.LATER),
    Collective(r"deepspeed\.initialize\.(save_16bit_model|save_fp16_model)", 3, _GATHERS),
    Collective(r"accelerate\.(\w+\.)?Accelerator\.(get_state_dict|save_model)", 3, _GATHERS),
    Collective(rf"{TRAINERS}\.save_model", 3, _GATHERS),
    Collective(r"deepspeed\.(runtime\.)?zero\.(\w+\.)*GatheredParameters", 3, _GATHERS, Phase.LATER),
    Collective(rf"(deepspeed\.initialize|{TRAINERS}\.model)\.(__call__|generate)", 3, _GATHERS, Phase.LATER),
)
"""Read in the sources of DeepSpeed, Accelerate and transformers: each of these ends in a barrier, a gather or a broadcast."""


@rule(
    "DS964",
    effect=Effect.CRASH,
    phase=Phase.SAVE,
    watches=("setup",),
    references=(
        "deepspeed/runtime/engine.py, DeepSpeedEngine.save_checkpoint: all processes must call this method",
        "accelerate/accelerator.py, Accelerator.save_state and Accelerator.get_state_dict",
        "https://github.com/deepspeedai/DeepSpeed/issues/797",
    ),
    untried="the run hangs instead of raising, and only with several ranks",
    setup=True,
)
@bad(
    _WITH_OPTIMIZER,
    at="",
    program=f'{_ENGINE}if rank == 0:\n    engine.save_checkpoint("out")\n',
    integration="deepspeed",
    message='train.py:5 calls engine.save_checkpoint only where "rank == 0" is true. Every rank has to call it: each rank writes its part of the checkpoint, and they wait for each other. With several ranks, those that call it wait for the others, and the run hangs.',
)
@bad(
    _WITH_OPTIMIZER,
    at="",
    program=f'{_ENGINE}if rank == 0:\n    engine.save_checkpoint("out")\n',
    integration="deepspeed",
    world_size=8,
    message='train.py:5 calls engine.save_checkpoint only where "rank == 0" is true. Every rank has to call it: each rank writes its part of the checkpoint, and they wait for each other. The ranks that call it wait for the others, and the run hangs.',
)
@bad(
    _STAGE_2,
    at="",
    program=f'{_ACCELERATOR}if step % 500 == 0 and accelerator.is_main_process:\n    accelerator.save_state("out")\n',
    integration="accelerate",
    world_size=8,
    message='train.py:5 calls accelerator.save_state only where "step % 500 == 0 and accelerator.is_main_process" is true. Every rank has to call it: DeepSpeed saves a part of the checkpoint on each rank, and they wait for each other. The ranks that call it wait for the others, and the run hangs.',
)
@bad(
    _STAGE_3,
    at="",
    program=f"{_ACCELERATOR}if not accelerator.is_main_process:\n    exit()\nelse:\n    state = accelerator.get_state_dict(model)\n",
    integration="accelerate",
    world_size=8,
    message='train.py:7 calls accelerator.get_state_dict only where "not accelerator.is_main_process" is false. Every rank has to call it: ZeRO stage 3 gathers the weights from all ranks. The ranks that call it wait for the others, and the run hangs.',
)
@bad(
    _STAGE_3,
    at="",
    program="from transformers import Trainer, TrainingArguments\n"
    'trainer = Trainer(model=model, args=TrainingArguments("out", deepspeed="ds_config.json"))\ntrainer.train()\n'
    "if trainer.is_world_process_zero():\n    trainer.save_model()\n",
    integration="transformers",
    world_size=8,
    message='train.py:5 calls trainer.save_model only where "trainer.is_world_process_zero()" is true. Every rank has to call it: ZeRO stage 3 gathers the weights from all ranks. The ranks that call it wait for the others, and the run hangs.',
)
@bad(
    _STAGE_2,
    at="",
    program=f"{_ACCELERATOR}if accelerator.is_main_process:\n    evaluate(model)\n    accelerator.wait_for_everyone()\n",
    integration="accelerate",
    world_size=8,
    message='train.py:6 calls accelerator.wait_for_everyone only where "accelerator.is_main_process" is true. Every rank has to call it: it waits for every rank. The ranks that call it wait for the others, and the run hangs.',
)
@bad(
    _STAGE_3,
    at="",
    program="from transformers import AutoModelForCausalLM, Trainer, TrainingArguments\n"
    'arguments = TrainingArguments("out", deepspeed="ds_config.json")\nwith arguments.main_process_first(desc="load"):\n'
    '    model = AutoModelForCausalLM.from_pretrained("m")\ntrainer = Trainer(model, arguments)\n',
    integration="transformers",
    world_size=8,
    message="train.py:4 loads a model inside main_process_first, where one rank comes first and the others wait: ZeRO stage 3 divides the weights among all ranks as they are loaded, so the first rank waits, too, and the run hangs.",
)
@good(
    _WITH_OPTIMIZER,
    program=f"import torch\n{_ENGINE}if rank != 0:\n    torch.distributed.barrier()\nload()\nif rank == 0:\n    torch.distributed.barrier()\n",
    integration="deepspeed",
    world_size=8,
)
@good(
    _WITH_OPTIMIZER,
    program=f'{_ENGINE}engine.save_checkpoint("out")\nif rank == 0:\n    print("saved")\n',
    integration="deepspeed",
    world_size=8,
)
@good(
    _STAGE_2,
    program=f"{_ACCELERATOR}if accelerator.is_main_process:\n    state = accelerator.get_state_dict(model)\n",
    integration="accelerate",
    world_size=8,
)
@good(_WITH_OPTIMIZER, program=f'{_ENGINE}if rank == 0:\n    engine.save_checkpoint("out")\n', integration="deepspeed", world_size=1)
@good(
    _STAGE_2,
    program=f"{_ACCELERATOR}def show(given=None):\n    if not accelerator.is_main_process:\n        return\n"
    "    print(accelerator.gather(x) if given is None else given)\nshow(accelerator.gather(x))\nshow({'loss': 1})\n",
    integration="accelerate",
    world_size=8,
)
@good(
    _WITH_OPTIMIZER,
    program=f'{_ENGINE}if rank == 0:\n    engine.save_checkpoint("best")\nelse:\n    engine.save_checkpoint("best")\n',
    integration="deepspeed",
    world_size=8,
)
@bad(
    _STAGE_3,
    at="",
    program=_SAMPLES % "state.is_world_process_zero",
    integration="transformers",
    world_size=4,
    message='train.py:8 calls model.generate only where "state.is_world_process_zero" is true. Every rank has to call it: ZeRO stage 3 gathers the weights from all ranks. The ranks that call it wait for the others, and the run hangs.',
)
@good(_STAGE_3, program=_SAMPLES % "state.global_step % 100 == 0", integration="transformers", world_size=4)
@good(_WITH_OPTIMIZER, program=_SAMPLES % "state.is_world_process_zero", integration="transformers", world_size=4)
@good(_STAGE_3, program=(_SAMPLES % "state.is_world_process_zero").replace("[Sample()]", "[]"), integration="transformers", world_size=4)
@bad(
    _STAGE_3,
    at="",
    program=_AFTERWARDS % "model",
    integration="transformers",
    world_size=4,
    message='train.py:7 calls model.generate only where "arguments.local_rank == 0" is true. Every rank has to call it: ZeRO stage 3 gathers the weights from all ranks. The ranks that call it wait for the others, and the run hangs.',
)
@good(_STAGE_3, program=_AFTERWARDS % "other", integration="transformers", world_size=4)
@good(
    _STAGE_3, program=(_AFTERWARDS % "model").replace("if arguments.local_rank == 0:\n    ", ""), integration="transformers", world_size=4
)
def collective_on_some_ranks(config: Config) -> Iterator[Finding]:
    """The program makes a call on some ranks only that all ranks have to make.

    `engine.save_checkpoint`, `accelerator.save_state` and at ZeRO stage 3 whatever gathers the weights are collectives: each rank has its
    part, and waits until the others make the same call; so does a barrier. Behind `if rank == 0` the others never come. The run hangs, until the timeout of
    the process group ends it after 10 to 30 minutes.

    Loading a model inside `main_process_first` is one, too, at ZeRO stage 3: `zero.Init` divides each weight among all ranks.

    Make the call on every rank. What only one rank should do, as to write the gathered weights, stays behind the condition.
    """
    program = config.setup.program if config.setup else None
    if program is None or config.facts.world_size == 1:
        return
    found: dict[str, Event] = {}
    for one in _COLLECTIVES:
        if one.stage == 0 or config.value(STAGE) >= one.stage:
            for event in program.events.of(one.names):
                if event.argument("enabled") is None and _condition(program.events, event, one) is not None:
                    found.setdefault(f"{event.at.path}:{event.at.range}", event)
    for event in _uses_of_trained(config, program.events):
        if _condition(program.events, event, _USES) is not None:
            found.setdefault(f"{event.at.path}:{event.at.range}", event)
    yield from _loads_in_turn(config, program.events)
    for event in found.values():
        collective = next((one for one in _COLLECTIVES if re.fullmatch(one.names, event.name)), _USES)
        condition = program.events.on_some_ranks(event)
        assert condition is not None
        call = event.called
        yield Finding(
            "",
            f'{event.at.where} calls {call} only where "{condition.text}" is {str(condition.holds).lower()}. Every rank has to call it: {collective.does}. '
            f"{'The ranks' if config.facts.world_size is not None else 'With several ranks, those'} that call it wait for the others, and the run hangs.",
            help=f"Call {call} on every rank.",
            elsewhere=event.at.related(""),
            phase=collective.phase,
            certain=config.facts.world_size is not None and not event.unlikely,
        )


_USES = Collective(f"({MODELS})\\.(__call__|generate)", 3, _GATHERS, Phase.LATER)


def _uses_of_trained(config: Config, events: Events) -> Iterator[Event]:
    """The calls of a model that DeepSpeed has made an engine of, and whose layers gather their weights at ZeRO stage 3."""
    if not config.value(STAGE) >= _USES.stage:
        return
    managed, made = managed_models(events, *ENGINES, TRAINERS), re.compile("|".join((*ENGINES, rf"{TRAINERS}\.train")))
    begins = next((number for number, one in enumerate(events.all) if made.fullmatch(one.name) and one.certain), len(events.all))
    for event in events.of(_USES.names):
        number = events.all.index(event)
        if managed.get(event.origin or 0, number) < number and begins < number:
            yield event


def _loads_in_turn(config: Config, events: Events) -> Iterator[Finding]:
    """Models that one rank is to load before the others, while ZeRO stage 3 divides them as they are loaded."""
    if not config.value(STAGE) >= 3 or not divides_at_load(config):
        return
    for event in events.of(rf"({MODELS})"):
        turn = next((one for one in event.within if one.endswith("main_process_first")), None)
        if turn is None or event.tells_setups_apart:
            continue
        yield Finding(
            "",
            f"{event.at.where} loads a model inside {turn.rpartition('.')[2]}, where one rank comes first and the others wait: ZeRO stage 3 divides "
            "the weights among all ranks as they are loaded, so the first rank waits, too, and the run hangs.",
            help="Load the model outside, on all ranks at once.",
            elsewhere=event.at.related(""),
            phase=Phase.LOAD,
            step=LoadStep.MODEL,
            certain=config.facts.world_size is not None and event.certain,
        )


def _condition(events: Events, event: Event, collective: Collective) -> str | None:
    """The condition on the rank, unless another one asks for the stage that makes the call a collective."""
    if collective.stage and event.tells_setups_apart:
        return None
    if collective.names == _WAITS and _others_wait_elsewhere(events, event):
        return None
    condition = events.on_some_ranks(event)
    return condition.text if condition is not None else None


def _others_wait_elsewhere(events: Events, event: Event) -> bool:
    """Whether the others may wait in a call of their own, as in `if rank != 0: barrier()` before and `if rank == 0: barrier()` behind what
    one rank does first, or only a group of ranks waits.
    """
    if event.arguments:
        return True
    return any(one is not event and one.at != event.at and events.on_some_ranks(one) is not None for one in events.of(_WAITS))


_GENERATES = (
    "import deepspeed\nfrom transformers import AutoModelForCausalLM\n{before}"
    'model = AutoModelForCausalLM.from_pretrained("m")\n'
    'engine, *_ = deepspeed.initialize(model=model, model_parameters=model.parameters(), config="ds_config.json")\n'
    "tokens = engine.module.generate(**inputs{more})\n"
)
_LOADS_IN_FUNCTION = (
    "import deepspeed\nfrom transformers import AutoModelForCausalLM\nfrom transformers.integrations import HfDeepSpeedConfig\n"
    "def load(name):\n    kept = HfDeepSpeedConfig('ds_config.json')\n    model = AutoModelForCausalLM.from_pretrained(name)\n    return model\n"
    "engine, *_ = deepspeed.initialize(model=load('m'), config='ds_config.json')\nengine.module.generate(**inputs)\n"
)
_IN_LIGHTNING = (
    "import lightning as L\nfrom lightning.pytorch.strategies import DeepSpeedStrategy\nfrom transformers import AutoModelForCausalLM\n"
    "class Model(L.LightningModule):\n    def configure_model(self):\n        self.net = AutoModelForCausalLM.from_config(config)\n"
    "    def validation_step(self, batch, index):\n        return self.net.generate(batch)\n"
    "trainer = L.Trainer(strategy=DeepSpeedStrategy(config='ds_config.json'))\ntrainer.fit(Model(), loader)\n"
)
GENERATES = re.compile(f"({MODELS}|deepspeed\\.initialize|{TRAINERS}\\.model)\\.generate")
_INPUTS = re.compile(r"\(\*\*\w*(input|batch|encod|token)\w*\)?")
"""What is passed on besides the names: what a tokenizer made has no `synced_gpus`."""
_SYNCED_SINCE = Release(4, 28, 0)
_LIBRARIES = ("transformers.", "peft.", "trl.")


def _is_in_module(config: Config, event: Event) -> bool:
    """Whether a method that Lightning calls uses a part of its LightningModule."""
    is_called = event.flow != 0 and _HOOKS.fullmatch(event.function.rpartition(".")[2]) is not None
    return config.facts.integration is Integration.LIGHTNING and is_called and event.called.startswith("self.")


_HOOKS = re.compile(r"(training|validation|test|predict)_step|on_\w+|\w+_epoch_end|_\w*step|_?(shared|eval|generat|validat)\w*")
"""The methods in which Lightning uses a model on all ranks, and the names of those that they share."""


def _is_of_own_class(events: Events, event: Event) -> bool:
    """Whether an engine has a model that no library of Hugging Face made: its `generate` may take other arguments, and pass `synced_gpus` itself."""
    engine = next((one for one in events.of(r"deepspeed\.initialize") if one.start == event.origin), None)
    model = engine.argument("model", 1) if engine is not None else None
    return model is not None and bool(model.made) and not model.made.startswith(_LIBRARIES)


@rule(
    "DS985",
    effect=Effect.CRASH,
    phase=Phase.LATER,
    watches=("setup",),
    references=(
        "transformers/generation/utils.py, GenerationMixin.generate, synced_gpus",
        "https://github.com/huggingface/transformers/pull/22242",
        "https://github.com/huggingface/transformers/issues/20130",
    ),
    untried="several ranks that wait for each other",
    setup=True,
)
@bad(
    _STAGE_3,
    at="",
    program=_GENERATES.format(before="", more=""),
    integration="deepspeed",
    message="train.py:5 calls engine.module.generate without synced_gpus at ZeRO stage 3, and transformers does not know the config here: a rank that ends its text earlier leaves the others waiting for its part of the weights, and the run may hang.",
)
@bad(
    _STAGE_3,
    at="",
    program="from accelerate import Accelerator\nfrom transformers import AutoModelForCausalLM\naccelerator = Accelerator()\n"
    'model = accelerator.prepare(AutoModelForCausalLM.from_pretrained("m"))\naccelerator.unwrap_model(model).generate(tokens)\n',
    integration="accelerate",
    pins={"transformers": Release(4, 24, 0)},
    message="train.py:5 calls generate without synced_gpus at ZeRO stage 3, and transformers 4.24.0 does not keep the ranks together by itself: a rank that ends its text earlier leaves the others waiting for its part of the weights, and the run may hang.",
)
@bad(
    _STAGE_3,
    at="",
    program=_LOADS_IN_FUNCTION,
    integration="deepspeed",
    message="train.py:9 calls engine.module.generate without synced_gpus at ZeRO stage 3, and the HfDeepSpeedConfig of train.py:5, a local variable of load, is gone by then: a rank that ends its text earlier leaves the others waiting for its part of the weights, and the run may hang.",
)
@bad(
    _STAGE_3,
    at="",
    program=_IN_LIGHTNING,
    integration="lightning",
    message="train.py:8 calls self.net.generate without synced_gpus at ZeRO stage 3, and transformers does not know the config here: a rank that ends its text earlier leaves the others waiting for its part of the weights, and the run may hang.",
)
@good(_STAGE_3, program=_IN_LIGHTNING.replace("generate(batch)", "generate(batch, synced_gpus=True)"), integration="lightning")
@good(_STAGE_3, program=_IN_LIGHTNING.replace("def validation_step", "def chat"), integration="lightning")
@good(_STAGE_3, program=_LOADS_IN_FUNCTION.replace("return model", "return model, kept"), integration="deepspeed")
@good(_STAGE_3, program=_LOADS_IN_FUNCTION.replace("    kept =", "    global kept\n    kept ="), integration="deepspeed")
@good(_STAGE_3, program=_LOADS_IN_FUNCTION.replace("    kept =", "    load.kept ="), integration="deepspeed")
@good(_STAGE_3, program=_LOADS_IN_FUNCTION.replace("    kept =", "    held[0] ="), integration="deepspeed")
@good(_STAGE_3, program=_GENERATES.format(before="", more=", synced_gpus=True"), integration="deepspeed")
@good(
    _STAGE_3,
    program=_GENERATES.format(
        before='from transformers.integrations import HfDeepSpeedConfig\nkept = HfDeepSpeedConfig("ds_config.json")\n', more=""
    ),
    integration="deepspeed",
)
@good(_WITH_OPTIMIZER, program=_GENERATES.format(before="", more=""), integration="deepspeed")
@good(
    _STAGE_3,
    program="import deepspeed, torch\nfrom transformers import AutoModelForCausalLM\nclass Net(torch.nn.Module):\n    def generate(self, tokens):\n"
    "        return self.inner.generate(tokens, synced_gpus=True)\nmodel = Net()\n"
    'engine, *_ = deepspeed.initialize(model=model, model_parameters=model.parameters(), config="ds_config.json")\nengine.generate(tokens)\n',
    integration="deepspeed",
)
def generation_not_synced(config: Config) -> Iterator[Finding]:
    """At ZeRO stage 3 the program generates text on several ranks without `synced_gpus=True`.

    Each step of generation gathers the weights of every layer from all ranks. A rank that ends its text earlier than the others stops, and the
    others wait for it. From transformers 4.28 on `generate` keeps all ranks going by itself, but only while transformers knows the
    config: where a `TrainingArguments`, an `HfDeepSpeedConfig` or Accelerate's plugin of it is alive. transformers does not keep the
    `HfDeepSpeedConfig`: one in a local variable is gone when its function returns. Lightning tells transformers nothing.

    Pass `synced_gpus=True` to `generate`.
    """
    program = config.setup.program if config.setup else None
    if program is None or not config.value(STAGE) >= 3 or config.facts.world_size == 1:
        return
    release = config.context.pinned("transformers")
    is_old = release is not None and release < _SYNCED_SINCE
    tells = r"transformers\.(\w+\.)*\w*TrainingArguments|accelerate\.(\w+\.)?Accelerator"
    untold = config.facts.integration in (Integration.DEEPSPEED, Integration.LIGHTNING)
    if not is_old and (not untold or any(program.events.of(tells))):
        return
    kept = {one.start: one for one in program.events.of(HELD_WEAKLY)}
    managed = managed_models(program.events, *ENGINES, TRAINERS)
    for number, event in enumerate(program.events.all):
        if GENERATES.fullmatch(event.name) is None or event.argument("synced_gpus") is not None:
            continue
        if not event.complete and _INPUTS.search(event.at.raw) is None:
            continue
        if event.tells_setups_apart or not (
            event.name.startswith(ENGINE) or managed.get(event.origin or 0, number) < number or _is_in_module(config, event)
        ):
            continue
        if _is_of_own_class(program.events, event) or (not is_old and kept.keys() - gone_before(program.events, number)):
            continue
        why = (
            f"transformers {release} does not keep the ranks together by itself" if is_old else "transformers does not know the config here"
        )
        if kept and not is_old:
            why = lost_teller(next(iter(kept.values())))
        yield Finding(
            "",
            f"{event.at.where} calls {event.called} without synced_gpus at ZeRO stage 3, and {why}: a rank that ends its text earlier "
            "leaves the others waiting for its part of the weights, and the run may hang.",
            help="Pass synced_gpus=True.",
            elsewhere=event.at.related(""),
            certain=False,
        )
        return
