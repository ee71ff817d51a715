"""DS4: `deepspeed.zero.Init`, which reads the config before the engine does."""

from __future__ import annotations

import re
from collections.abc import Iterator
from posixpath import normpath

from dslint.config import Config
from dslint.diagnostics import Effect, Phase
from dslint.facts import Integration, Release
from dslint.job.events import DROPPED, ENGINE, LOADS, MODELS, TRAINER_ARGUMENTS, Event, Events, GivenArgument
from dslint.rule import Finding, bad, good, rule
from dslint.rules.helpers.project import programs_of
from dslint.rules.helpers.zero import STAGE, ZERO_INIT

_KEYS = ("train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps")
_TELLS = r"transformers\.(\w+\.)*HfDeepSpeedConfig"
_STARTS = (
    r"deepspeed\.(\w+\.)*init_distributed|deepspeed\.initialize|accelerate\.(\w+\.)*(Accelerator|PartialState|AcceleratorState)"
    rf"|{TRAINER_ARGUMENTS}|(transformers|trl)\.(\w+\.)*(HfArgumentParser|TrlParser)(\.\w+)?"
)
"""What initializes deepspeed.comm. `torch.distributed.init_process_group` does not: the ranks are those that DeepSpeed itself knows."""

_ALL = '{"train_batch_size": 64, "train_micro_batch_size_per_gpu": 4, "gradient_accumulation_steps": 2, "zero_optimization": {"stage": 3}, "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}}}'
_MADE = (
    'import deepspeed\nimport torch\n%swith deepspeed.zero.Init(config_dict_or_path="ds_config.json"):\n    model = torch.nn.Linear(64, 64)\n'
    'engine, *_ = deepspeed.initialize(model=model, model_parameters=model.parameters(), config="ds_config.json")\n'
)
_LOADED = (
    "import deepspeed\nfrom transformers import AutoModel\nfrom transformers.integrations import HfDeepSpeedConfig\n"
    '%stold = HfDeepSpeedConfig("ds_config.json")\nmodel = AutoModel.from_pretrained("m")\n'
    'engine, *_ = deepspeed.initialize(model=model, model_parameters=model.parameters(), config="ds_config.json")\n'
)


@rule(
    "DS444",
    effect=Effect.CRASH,
    phase=Phase.LOAD,
    watches=("train_batch_size",),
    needs=("world_size",),
    references=(
        "deepspeed/runtime/zero/partition_parameters.py, Init.__init__",
        "deepspeed/runtime/config.py, DeepSpeedConfig.__init__",
        "https://github.com/huggingface/accelerate/pull/1352",
    ),
    untried="raised by the program, before the engine exists",
)
@bad(
    _ALL,
    at="train_batch_size",
    program=_MADE % "",
    integration="deepspeed",
    world_size=8,
    message='train.py:3 reads the config in zero.Init, and no call before it is known to initialize deepspeed.comm. DeepSpeed counts one rank until then, and may raise AssertionError "Check batch related parameters. train_batch_size is not equal to micro_batch_per_gpu * gradient_acc_step * world_size 64 != 4 * 2 * 1".',
)
@bad(
    _ALL,
    at="train_batch_size",
    program=_MADE % 'torch.distributed.init_process_group("nccl")\n',
    integration="deepspeed",
    world_size=8,
    message='train.py:4 reads the config in zero.Init, and no call before it is known to initialize deepspeed.comm. DeepSpeed counts one rank until then, and may raise AssertionError "Check batch related parameters. train_batch_size is not equal to micro_batch_per_gpu * gradient_acc_step * world_size 64 != 4 * 2 * 1".',
)
@bad(
    _ALL,
    at="train_batch_size",
    program=_LOADED % "",
    integration="deepspeed",
    world_size=8,
    message='train.py:5 reads the config in zero.Init, and no call before it is known to initialize deepspeed.comm. DeepSpeed counts one rank until then, and may raise AssertionError "Check batch related parameters. train_batch_size is not equal to micro_batch_per_gpu * gradient_acc_step * world_size 64 != 4 * 2 * 1".',
)
@good(_ALL, program=_MADE % "deepspeed.init_distributed()\n", integration="deepspeed", world_size=8)
@good(
    _ALL,
    program=_MADE % "from deepspeed.utils.distributed import init_distributed\ninit_distributed()\n",
    integration="deepspeed",
    world_size=8,
)
@good(_ALL, program=_MADE % "with deepspeed.zero.Init():\n    head = torch.nn.Linear(64, 64)\n", integration="deepspeed", world_size=8)
@good(
    _ALL, program=_MADE.replace('="ds_config.json"):', '={"zero_optimization": {"stage": 3}}):') % "", integration="deepspeed", world_size=8
)
@good(
    _ALL,
    program=_LOADED.replace('Config("ds_config.json")', 'Config({"zero_optimization": {"stage": 3}})') % "",
    integration="deepspeed",
    world_size=8,
)
@good(
    _ALL,
    program=_LOADED
    % "from transformers import HfArgumentParser, TrainingArguments\nargs, = HfArgumentParser(TrainingArguments).parse_args_into_dataclasses()\n",
    integration="deepspeed",
    world_size=8,
)
@good(_ALL, program=_LOADED % "deepspeed.init_distributed()\n", integration="deepspeed", world_size=8)
@good(_ALL.replace('"gradient_accumulation_steps": 2, ', ""), program=_MADE % "", integration="deepspeed", world_size=16)
@good(_ALL.replace('"train_batch_size": 64, ', ""), program=_MADE % "", integration="deepspeed", world_size=8)
@good(_ALL.replace("64, ", "8, "), program=_MADE % "", integration="deepspeed", world_size=1)
@good(_ALL, program=_MADE.replace('config_dict_or_path="ds_config.json"', "") % "", integration="deepspeed", world_size=8)
def zero_init_before_ranks(config: Config) -> Iterator[Finding]:
    """`zero.Init` reads the config before DeepSpeed knows the ranks, and compares the batch sizes with one rank.

    `deepspeed.zero.Init(config_dict_or_path=...)`, and `from_pretrained` after an `HfDeepSpeedConfig` for stage 3, parse the config when the model is
    built. Until `deepspeed.init_distributed` the number of ranks is 1 there, also under a launcher and after `torch.distributed.init_process_group`. If the config sets the
    total batch size, the micro batch size and the accumulation, their product is then wrong.

    Call `deepspeed.init_distributed()` first, or leave `train_batch_size` out.
    """
    program, ranks = config.setup.program if config.setup else None, config.facts.world_size
    train, micro, steps = (config.value(key) for key in _KEYS)
    if program is None or config.facts.integration is not Integration.DEEPSPEED or ranks is None or ranks == 1:
        return
    if not all(config.has(key) for key in _KEYS) or not all(type(one) is int for one in (train, micro, steps)):
        return
    if train == micro * steps or train != micro * steps * ranks:
        return  # another rule reports a product that is wrong for all ranks
    engine = next(program.events.of(ENGINE.replace(".", r"\.")), None)
    of_engine = engine.argument("config", 8) if engine is not None else None
    told = False
    for event in program.events.all:
        if event.flow or re.fullmatch(_STARTS, event.name):
            return
        tells, inits = re.fullmatch(_TELLS, event.name) is not None, re.fullmatch(ZERO_INIT, event.name) is not None
        if tells or inits:
            given = event.argument("config_file_or_dict", 0) if tells else event.argument("config_dict_or_path") or event.argument("config")
            is_same = given is not None and of_engine is not None and _is_variable(given) and given.raw == of_engine.raw
            if given is None or not (is_same or _names(given, config)):
                return  # another config; and zero.Init initializes deepspeed.comm itself, with any config or none
        told = told or tells
        loads = told and config.value(STAGE) == 3 and event.name.endswith("from_pretrained") and re.fullmatch(MODELS, event.name)
        if not (inits or loads):
            continue
        if event.conditions or not event.certain:
            return
        yield Finding(
            "train_batch_size",
            f"{event.at.where} reads the config in zero.Init, and no call before it is known to initialize deepspeed.comm. DeepSpeed counts one "
            f'rank until then, and may raise AssertionError "Check batch related parameters. train_batch_size is not equal to '
            f'micro_batch_per_gpu * gradient_acc_step * world_size {train} != {micro} * {steps} * 1".',
            help="Call deepspeed.init_distributed() before it, or remove train_batch_size.",
            related=(event.at.related("read here"),),
            certain=False,
        )
        return


def _names(given: GivenArgument, config: Config) -> bool:
    """Whether an argument is the path of the config."""
    name = config.setup.config if config.setup else None
    if not name or not isinstance(given.value, str):
        return False
    one, other = f"/{normpath(given.value)}", f"/{normpath(name)}"
    return one.endswith(other) or other.endswith(one)


def _is_variable(given: GivenArgument) -> bool:
    """Whether an argument is a variable, or an attribute of one."""
    return given.raw.replace(".", "").isidentifier()


_GROUP_FIRST = Release(0, 29, 0)
"""The first Accelerate that initializes deepspeed.comm also where torch.distributed has a process group (accelerate/state.py, PartialState)."""

_MAKES_GROUP = r"torch\.distributed\.(\w+\.)*init_process_group"
_OF_TRAINER = (
    '{"train_batch_size": "auto", "train_micro_batch_size_per_gpu": "auto", "gradient_accumulation_steps": "auto", '
    '"zero_optimization": {"stage": 3, "stage3_gather_16bit_weights_on_model_save": true}}'
)
_TRAINS = (
    "import torch\nfrom transformers import AutoModelForCausalLM, Trainer, TrainingArguments\n%s"
    "arguments = TrainingArguments('out', deepspeed='ds_config.json')\nmodel = AutoModelForCausalLM.from_pretrained('m')\n"
    "Trainer(model, arguments, train_dataset=data).train()\n"
)
_IN_RAY = (
    "from ray.train import ScalingConfig\nfrom ray.train.torch import TorchTrainer\n"
    "from transformers import AutoModelForCausalLM, Trainer, TrainingArguments\n\n\ndef train():\n"
    "    arguments = TrainingArguments('out', deepspeed='ds_config.json')\n    model = AutoModelForCausalLM.from_pretrained('m')\n"
    "    Trainer(model, arguments, train_dataset=data).train()\n\n\n"
    "TorchTrainer(train, scaling_config=ScalingConfig(num_workers=4, use_gpu=True)).fit()\n"
)
_MAKES = "torch.distributed.init_process_group('nccl')\n"
_OLD = {"accelerate": Release(0, 25, 0)}


@rule(
    "DS448",
    effect=Effect.CRASH,
    phase=Phase.LOAD,
    watches=("setup",),
    references=(
        "accelerate/state.py, PartialState.__init__ of 0.28.0 and 0.29.0",
        "deepspeed/runtime/config.py, DeepSpeedConfig.__init__",
        "https://github.com/huggingface/transformers/issues/28803",
    ),
    untried="raised while the program loads the model, with an older Accelerate",
)
@bad(
    _OF_TRAINER,
    at="train_batch_size",
    program=_IN_RAY,
    integration="transformers",
    world_size=4,
    pins=_OLD,
    message='Ray Train makes the process group before train.py:7 makes the training arguments, and Accelerate 0.25.0 then does not initialize deepspeed.comm: train.py:8 parses the config for one rank, and with several raises AssertionError "Check batch related parameters. train_batch_size is not equal to micro_batch_per_gpu * gradient_acc_step * world_size".',
)
@bad(
    _OF_TRAINER,
    at="train_batch_size",
    program=_TRAINS % _MAKES,
    integration="transformers",
    world_size=4,
    pins=_OLD,
    message='train.py:3 makes the process group before train.py:4 makes the training arguments, and Accelerate 0.25.0 then does not initialize deepspeed.comm: train.py:5 parses the config for one rank, and with several raises AssertionError "Check batch related parameters. train_batch_size is not equal to micro_batch_per_gpu * gradient_acc_step * world_size".',
)
@good(_OF_TRAINER, program=_TRAINS % "", integration="transformers", world_size=4, pins=_OLD)
@good(_OF_TRAINER, program=_TRAINS % _MAKES, integration="transformers", world_size=1, pins=_OLD)
@good(_OF_TRAINER, program=_IN_RAY, integration="transformers", world_size=4, pins={"accelerate": Release(0, 29, 0)})
@good(_OF_TRAINER, program=_IN_RAY, integration="transformers", world_size=4)
@good(_OF_TRAINER.replace('"stage": 3', '"stage": 2'), program=_IN_RAY, integration="transformers", world_size=4, pins=_OLD)
@good(_OF_TRAINER.replace('"train_batch_size": "auto", ', ""), program=_IN_RAY, integration="transformers", world_size=4, pins=_OLD)
@good(
    _OF_TRAINER,
    program=(_TRAINS % "").replace("Trainer(model", _MAKES + "Trainer(model"),
    integration="transformers",
    world_size=4,
    pins=_OLD,
)
@good(
    _OF_TRAINER,
    program=(_TRAINS % ("import deepspeed\ndeepspeed.init_distributed()\n")),
    integration="transformers",
    world_size=4,
    pins=_OLD,
)
@good(
    _OF_TRAINER, program=(_TRAINS % _MAKES).replace("from_pretrained", "from_anything"), integration="transformers", world_size=4, pins=_OLD
)
def process_group_before_accelerate(config: Config) -> Iterator[Finding]:
    """The process group exists before the training arguments, and an older Accelerate then does not initialize deepspeed.comm.

    Ray Train makes the process group of its workers before it calls the training function, and some programs call
    `torch.distributed.init_process_group` first. Before its release 0.29.0 Accelerate initializes deepspeed.comm only where there is no process group:
    at ZeRO stage 3 `from_pretrained` parses the config with one rank, and the total batch size, which the Trainer has filled for all ranks, does not fit.

    Upgrade Accelerate to 0.29.0 or later, or call `deepspeed.init_distributed()` before the training arguments.
    """
    program, release, ranks = config.setup.program if config.setup else None, config.context.pinned("accelerate"), config.facts.world_size
    if program is None or config.facts.integration is not Integration.TRANSFORMERS or release is None or release >= _GROUP_FIRST:
        return
    if (
        ranks == 1
        or not config.value(STAGE) >= 3
        or not all(config.has(key) for key in ("train_batch_size", "train_micro_batch_size_per_gpu"))
    ):
        return
    made = next(program.events.of(TRAINER_ARGUMENTS), None)
    if made is None or made.unlikely or made.tells_setups_apart:
        return
    before, after = _around(program.events.all, made)
    group = next((one for one in before if re.fullmatch(_MAKES_GROUP, one.name)), None)
    loads = next((one for one in after if re.fullmatch(LOADS, one.name) and one.flow == made.flow and one.certain), None)
    knows_ranks = any(re.fullmatch(r"deepspeed\.(\w+\.)*init_distributed", one.name) for one in program.events.all)
    of_ray = made.function and any(
        "ray.train" in text and re.search(rf"TorchTrainer\(\s*(train_loop_per_worker\s*=\s*)?{made.function}\b", text)
        for text in programs_of(config)
    )
    if loads is None or knows_ranks or not (group or of_ray):
        return
    by = f"{group.at.where} makes the process group" if group else "Ray Train makes the process group"
    yield Finding(
        "train_batch_size",
        f"{by} before {made.at.where} makes the training arguments, and Accelerate {release} then does not initialize deepspeed.comm: "
        f"{loads.at.where} parses the config for one rank, and with several raises AssertionError "
        '"Check batch related parameters. train_batch_size is not equal to micro_batch_per_gpu * gradient_acc_step * world_size".',
        help=f"Upgrade Accelerate to {_GROUP_FIRST} or later, or call deepspeed.init_distributed() before the training arguments.",
        related=(made.at.related("made here"), loads.at.related("loaded here")),
        certain=ranks is not None and made.certain and not made.conditions and (group is None or group.always),
    )


def _around(events: tuple[Event, ...], made: Event) -> tuple[tuple[Event, ...], tuple[Event, ...]]:
    """The events before one, and those after it."""
    index = events.index(made)
    return events[:index], events[index + 1 :]


_TOLD = (
    "from transformers import AutoModelForCausalLM, Trainer, TrainingArguments\nfrom transformers.integrations import HfDeepSpeedConfig\n%s"
    "model = AutoModelForCausalLM.from_pretrained('m')\n%sTrainer(model, arguments, train_dataset=data).train()\n"
)
_KEPT = "kept = HfDeepSpeedConfig('ds_config.json')\n"
_ARGUMENTS = "arguments = TrainingArguments('out', deepspeed='ds_config.json', per_device_train_batch_size=4)\n"
_QUANTIZES = ("quantization_config", "load_in_4bit", "load_in_8bit")
_RESETS = rf"{TRAINER_ARGUMENTS}|(transformers|trl)\.(\w+\.)*(HfArgumentParser|TrlParser)(\.\w+)?|accelerate\.(\w+\.)*Accelerator"
"""What tells transformers of a config that is filled, in place of the one that it knew."""


@rule(
    "DS450",
    effect=Effect.CRASH,
    phase=Phase.LOAD,
    watches=("setup",),
    references=(
        "transformers/integrations/deepspeed.py, HfDeepSpeedConfig and HfTrainerDeepSpeedConfig",
        "deepspeed/runtime/config.py, DeepSpeedConfig._batch_assertion",
        "https://github.com/bigcode-project/starcoder/issues/41",
    ),
    untried="raised while the program loads the model, before the engine exists; tried with transformers",
)
@bad(
    _OF_TRAINER,
    at="train_batch_size",
    program=_TOLD % (_KEPT, _ARGUMENTS),
    integration="transformers",
    message="train.py:4 loads the model with the HfDeepSpeedConfig of train.py:3, whose \"auto\" nothing fills: DeepSpeed raises TypeError \"'>' not supported between instances of 'str' and 'int'\" in zero.Init.",
)
@bad(
    _OF_TRAINER,
    at="train_batch_size",
    program=_TOLD % (_ARGUMENTS + _KEPT, ""),
    integration="transformers",
    message="train.py:5 loads the model with the HfDeepSpeedConfig of train.py:4, whose \"auto\" nothing fills: DeepSpeed raises TypeError \"'>' not supported between instances of 'str' and 'int'\" in zero.Init.",
)
@bad(
    _OF_TRAINER.replace('"train_batch_size": "auto", ', ""),
    at="train_micro_batch_size_per_gpu",
    program=_TOLD % (_KEPT, _ARGUMENTS),
    integration="transformers",
    message='train.py:4 loads the model with the HfDeepSpeedConfig of train.py:3, whose "auto" nothing fills: DeepSpeed raises TypeError "can\'t multiply sequence by non-int of type \'str\'" in zero.Init.',
)
@good(_OF_TRAINER, program=_TOLD % (_ARGUMENTS, ""), integration="transformers")
@good(_OF_TRAINER, program=_TOLD % (_KEPT + _ARGUMENTS, ""), integration="transformers")
@good(_OF_TRAINER, program=_TOLD % ("", _KEPT + _ARGUMENTS), integration="transformers")
@good(_OF_TRAINER, program=_TOLD % ("HfDeepSpeedConfig('ds_config.json')\n", _ARGUMENTS), integration="transformers")
@good(
    _OF_TRAINER, program=_TOLD % ("kept = HfDeepSpeedConfig({'zero_optimization': {'stage': 3}})\n", _ARGUMENTS), integration="transformers"
)
@good(_OF_TRAINER.replace('"stage": 3', '"stage": 2'), program=_TOLD % (_KEPT, _ARGUMENTS), integration="transformers")
@good(
    _OF_TRAINER.replace('"auto"', "4").replace('_size": 4', '_size": 16', 1),
    program=_TOLD % (_KEPT, _ARGUMENTS),
    integration="transformers",
)
@good(_OF_TRAINER, program=(_TOLD % (_KEPT, _ARGUMENTS)).replace("from_pretrained('m')", "from_config(c)"), integration="transformers")
@good(_OF_TRAINER, program=(_TOLD % (_KEPT, _ARGUMENTS)).replace("('m')", "('m', load_in_4bit=True)"), integration="transformers")
@good(_OF_TRAINER, program=_TOLD % ("if eager:\n    " + _KEPT + _ARGUMENTS, ""), integration="transformers")
def auto_in_zero_init(config: Config) -> Iterator[Finding]:
    """A model is loaded with an `HfDeepSpeedConfig` whose batch sizes are "auto", which nothing fills.

    `HfDeepSpeedConfig` takes a config as it is. Only the training arguments, and `Accelerator`, fill "auto", in a copy of their own. At ZeRO stage 3
    `from_pretrained` makes a `zero.Init` of the config that transformers was told of last, and DeepSpeed compares its batch sizes with 0.

    Create the training arguments before the model, and no `HfDeepSpeedConfig`; or give it a config with numbers.
    """
    program = config.setup.program if config.setup else None
    auto = [key for key in _KEYS if config.is_auto(key)]
    if program is None or not auto or not config.value(STAGE) >= 3 or any(key in path for path in program.sets for key in _KEYS):
        return
    trained = next(program.events.of(TRAINER_ARGUMENTS), None)
    named = trained.argument("deepspeed") if trained is not None else None
    told: Event | None = None
    for event in program.events.all:
        if event.flow or re.fullmatch(_RESETS, event.name) or event.name.endswith(f".{DROPPED}"):
            told = None
        elif re.fullmatch(_TELLS, event.name):
            given = event.argument("config_file_or_dict", 0)
            is_same = given is not None and named is not None and _is_variable(given) and given.raw == named.raw
            told = event if given is not None and not event.unlikely and (is_same or _names(given, config)) else None
        elif told is not None and re.fullmatch(LOADS, event.name) and not event.unlikely and not event.excludes(told):
            if not event.arguments.keys().isdisjoint(_QUANTIZES):
                continue  # transformers enters no zero.Init for a quantized model
            product = auto[0] != "train_batch_size" and not config.has("train_batch_size") and len(auto) == 2
            error = (
                "can't multiply sequence by non-int of type 'str'" if product else "'>' not supported between instances of 'str' and 'int'"
            )
            yield Finding(
                auto[0],
                f'{event.at.where} loads the model with the HfDeepSpeedConfig of {told.at.where}, whose "auto" nothing fills: DeepSpeed raises TypeError '
                f'"{error}" in zero.Init.',
                help="Create the training arguments before the model, and no HfDeepSpeedConfig; or give it a config with numbers.",
                related=(told.at.related("told here"), event.at.related("loaded here")),
                certain=event.certain and event.complete and told.certain and not event.conditions and not told.conditions,
            )
            return


_BELOW_3 = (
    '{"train_micro_batch_size_per_gpu": 4, "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}}, "zero_optimization": {"stage": 2}}'
)
_IN_INIT = (
    "import deepspeed\nimport torch\nwith deepspeed.zero.Init(%s):\n    model = torch.nn.Linear(4, 4)\n"
    "engine, *_ = deepspeed.initialize(model=model, model_parameters=model.parameters(), config='ds_config.json')\n"
)
_OWN_CLASS = (
    "import deepspeed\nimport torch\nclass Net(torch.nn.Module):\n    def __init__(self):\n        super().__init__()\n"
    "with deepspeed.zero.Init(config_dict_or_path='ds_config.json'):\n    model = Net()\n"
    "engine, *_ = deepspeed.initialize(model=model, model_parameters=model.parameters(), config='ds_config.json')\n"
)
_OUTSIDE = _IN_INIT.replace("    model =", "    teacher = torch.nn.Linear(4, 4)\nmodel =")


@rule(
    "DS451",
    effect=Effect.CRASH,
    phase=Phase.STEP,
    watches=("setup",),
    references=(
        "deepspeed/runtime/zero/partition_parameters.py, Init",
        "deepspeed/runtime/engine.py, DeepSpeedEngine._configure_distributed_model",
    ),
    untried="only a program enters deepspeed.zero.Init, and the tests run configs",
)
@bad(
    _BELOW_3,
    at="zero_optimization.stage",
    program=_IN_INIT % "",
    integration="deepspeed",
    message='train.py:3 makes the model in deepspeed.zero.Init, which leaves its weights empty on each rank, and ZeRO stage 2 does not gather them: at the latest the first forward pass raises RuntimeError, such as "mat2 must be a matrix, got 1-D tensor".',
)
@bad(
    _BELOW_3.replace("2}", "0}"),
    at="zero_optimization.stage",
    program=_IN_INIT % "enabled=True",
    integration="deepspeed",
    message='train.py:3 makes the model in deepspeed.zero.Init, which leaves its weights empty on each rank, and ZeRO stage 0 does not gather them: at the latest the first forward pass raises RuntimeError, such as "mat2 must be a matrix, got 1-D tensor".',
)
@bad(
    _BELOW_3,
    at="zero_optimization.stage",
    program=_OWN_CLASS,
    integration="deepspeed",
    message='train.py:6 makes the model in deepspeed.zero.Init, which leaves its weights empty on each rank, and ZeRO stage 2 does not gather them: at the latest the first forward pass may raise RuntimeError, such as "mat2 must be a matrix, got 1-D tensor".',
)
@good(_BELOW_3.replace("2}", "3}"), program=_IN_INIT % "", integration="deepspeed")
@good(_BELOW_3.replace("2}", "3}"), program=_OWN_CLASS, integration="deepspeed")
@good(_BELOW_3, program=_IN_INIT % "enabled=False", integration="deepspeed")
@good(_BELOW_3, program=_IN_INIT % "enabled=stage == 3", integration="deepspeed")
@good(_BELOW_3, program=_IN_INIT % "**options", integration="deepspeed")
@good(_BELOW_3, program=_OUTSIDE % "", integration="deepspeed")
@good(_BELOW_3, program=_IN_INIT.replace("deepspeed.zero.Init(%s)", "torch.device('meta')"), integration="deepspeed")
@good(_BELOW_3, program=_IN_INIT.replace("deepspeed.zero.Init(%s)", "deepspeed.OnDevice(dtype=None)"), integration="deepspeed")
@good(
    _BELOW_3,
    program=(_IN_INIT % "")
    .replace("with", "from contextlib import nullcontext\ncontext = deepspeed.zero.Init() if stage == 3 else nullcontext()\nwith")
    .replace("with deepspeed.zero.Init()", "with context"),
    integration="deepspeed",
)
@good(
    _BELOW_3,
    program="import deepspeed\nimport torch\nmodel = torch.nn.Linear(4, 4)\n"
    "engine, *_ = deepspeed.initialize(model=model, model_parameters=model.parameters(), config='ds_config.json')\n",
    integration="deepspeed",
)
@good(_BELOW_3, program=_IN_INIT % "", integration="transformers")
def divided_below_stage_3(config: Config) -> Iterator[Finding]:
    """The model is made in `deepspeed.zero.Init`, and the stage of the config is below 3.

    `deepspeed.zero.Init` divides each weight among the ranks as it is made, and leaves it with the shape [0], whatever the stage is. Only
    stage 3 gathers the weights for a layer. Below it `deepspeed.initialize` of 0.19.8 takes the empty weights without an error, and the first forward
    pass raises RuntimeError, such as "mat2 must be a matrix, got 1-D tensor". Without a config `zero.Init` also makes the weights in bf16 or fp16.

    Set the stage to 3, or make the model without `deepspeed.zero.Init`: `deepspeed.zero.Init(enabled=stage == 3)` serves both.
    """
    stage, program = config.value(STAGE), config.setup.program if config.setup else None
    if program is None or stage not in (0, 1, 2) or config.facts.integration is not Integration.DEEPSPEED:
        return
    inits = list(program.events.of(ZERO_INIT))
    if not inits or any(not _is_on(one) for one in inits):
        return
    engines = list(program.events.of(ENGINE))
    for engine in engines:
        maker, is_sure = _maker_of_model(program.events, engine), True
        if maker is None and len(engines) == 1:
            own = list(program.events.of(r"torch\.nn\.(\w+\.)*Module"))
            maker, is_sure = own[0] if len(own) == 1 else None, False
        if maker is None or maker.unlikely or maker.tells_setups_apart or not any(re.fullmatch(ZERO_INIT, one) for one in maker.within):
            continue
        yield Finding(
            STAGE,
            f"{inits[0].at.where} makes the model in deepspeed.zero.Init, which leaves its weights empty on each rank, and ZeRO stage {stage} does not gather "
            'them: at the latest the first forward pass raises RuntimeError, such as "mat2 must be a matrix, got 1-D tensor".',
            help="Set the stage to 3, or make the model without deepspeed.zero.Init.",
            related=(inits[0].at.related("divides the weights"),),
            certain=is_sure and maker.always and inits[0].always,
        )
        return


def _is_on(init: Event) -> bool:
    """Whether a `deepspeed.zero.Init` divides what is made in it."""
    enabled = init.argument("enabled")
    return init.complete and not init.unlikely and (enabled is None or enabled.value is True) and init.argument("module") is None


def _maker_of_model(events: Events, engine: Event) -> Event | None:
    """The call of a library that made the model of an engine; None if it is a class of the project, or not known."""
    maker = events.maker_of(engine.argument("model", 1))
    return maker if maker is not None and not maker.name.endswith("from_pretrained") else None
