"""DS9: how a program loads the model that it trains."""

from __future__ import annotations

import re
from collections.abc import Iterator

from dslint.config import UNKNOWN, Config
from dslint.diagnostics import Effect, Phase, Range
from dslint.facts import Integration, Release
from dslint.frameworks.whole_load import accelerate_tells, whole_load
from dslint.job.arguments import SourcedValue
from dslint.job.events import DROPPED, HELD_WEAKLY, LOADS, MODELS, TRAINER_ARGUMENTS, is_true
from dslint.job.model import Program
from dslint.rule import Finding, bad, good, rule
from dslint.rules.helpers.examples import ACCELERATE_HEAD
from dslint.rules.helpers.loaders import HUGGING_FACE, RAISED_BY_LOADER
from dslint.rules.helpers.model import too_large_to_load
from dslint.rules.helpers.models import DIVIDING, gone_before, knows_arguments

_STAGE_3 = '{"train_micro_batch_size_per_gpu": 4, "zero_optimization": {"stage": 3, "stage3_gather_16bit_weights_on_model_save": true}}'
_STAGE_2 = '{"train_micro_batch_size_per_gpu": 4, "zero_optimization": {"stage": 2}}'
_ARGUMENTS = (
    "from transformers import AutoModelForCausalLM, TrainingArguments\n"
    'arguments = TrainingArguments(output_dir="out", deepspeed="ds_config.json")\n'
)
_BY_RANK = (
    "device_map = None\nif %s:\n    device_map = {'': int(os.environ['LOCAL_RANK'])}\n"
    "if merged:\n    model = AutoModelForCausalLM.from_pretrained('merged')\n"
    "else:\n    model = AutoModelForCausalLM.from_pretrained('base', device_map=device_map)\n"
)
_BY_ACCELERATOR = (
    "from accelerate import Accelerator\nfrom transformers import AutoModelForCausalLM\naccelerator = Accelerator()\n"
    'model = AutoModelForCausalLM.from_pretrained("model", device_map="auto")\n'
)
_FLAG_OFF = ACCELERATE_HEAD + "deepspeed_config:\n  deepspeed_config_file: ds_config.json\n  zero3_init_flag: false\n"
_LOADING = _ARGUMENTS + 'model = AutoModelForCausalLM.from_pretrained("model"%s)\n'


@rule(
    "DS946",
    effect=Effect.CRASH,
    phase=Phase.LOAD,
    watches=("setup",),
    references=(
        "transformers/integrations/accelerate.py, check_and_set_device_map",
        "transformers/modeling_utils.py, PreTrainedModel.from_pretrained",
    ),
    untried=RAISED_BY_LOADER,
)
@bad(
    '{"train_micro_batch_size_per_gpu": 4, "zero_optimization": {"stage": 3, "stage3_gather_16bit_weights_on_model_save": true}}',
    at="zero_optimization.stage",
    program=_LOADING % ', device_map="auto"',
    integration="transformers",
    message='train.py:3 loads a model with device_map="auto": at ZeRO stage 3 transformers raises "DeepSpeed Zero-3 is not compatible with passing a `device_map`".',
)
@good(
    '{"train_micro_batch_size_per_gpu": 4, "zero_optimization": {"stage": 3, "stage3_gather_16bit_weights_on_model_save": true}}',
    program=_LOADING % "",
    integration="transformers",
)
@bad(
    _STAGE_3,
    at="zero_optimization.stage",
    program="import os\n" + _ARGUMENTS + _BY_RANK % "os.environ.get('LOCAL_RANK') is not None",
    integration="transformers",
    message='train.py:10 loads a model with device_map=device_map: at ZeRO stage 3 transformers may raise "DeepSpeed Zero-3 is not compatible with passing a `device_map`".',
)
@good(
    _STAGE_3,
    program="import os\nfrom transformers.integrations import is_deepspeed_zero3_enabled\n"
    + _ARGUMENTS
    + _BY_RANK % "not is_deepspeed_zero3_enabled()",
    integration="transformers",
)
@bad(
    _STAGE_3,
    at="zero_optimization.stage",
    program=_LOADING % ", low_cpu_mem_usage=True",
    integration="transformers",
    loader_release=Release(4, 49, 0),
    message='train.py:3 loads a model with low_cpu_mem_usage=True: at ZeRO stage 3 transformers 4.49.0 raises "DeepSpeed Zero-3 is not compatible with `low_cpu_mem_usage=True` or with passing a `device_map`".',
)
@bad(
    _STAGE_3,
    at="zero_optimization.stage",
    program=_LOADING % ", low_cpu_mem_usage=True",
    integration="transformers",
    message='train.py:3 loads a model with low_cpu_mem_usage=True: at ZeRO stage 3 transformers before 4.51 may raise "DeepSpeed Zero-3 is not compatible with `low_cpu_mem_usage=True` or with passing a `device_map`".',
)
@good(_STAGE_3, program=_LOADING % ", low_cpu_mem_usage=True", integration="transformers", loader_release=Release(4, 51, 3))
@good(_STAGE_3, program=_BY_ACCELERATOR, accelerate=_FLAG_OFF, integration="accelerate", loader_release=Release(0, 34, 2))
@bad(
    _STAGE_3,
    at="zero_optimization.stage",
    program=_BY_ACCELERATOR,
    accelerate=_FLAG_OFF,
    integration="accelerate",
    loader_release=Release(1, 9, 0),
    message='train.py:4 loads a model with device_map="auto": at ZeRO stage 3 transformers raises "DeepSpeed Zero-3 is not compatible with passing a `device_map`".',
)
@good(
    _STAGE_3,
    program="import argparse\nfrom transformers import AutoModelForCausalLM, TrainingArguments\np = argparse.ArgumentParser()\np.add_argument('--dm', default=None)\n"
    "a = p.parse_args()\nargs = TrainingArguments('out', deepspeed='ds_config.json')\nmodel = AutoModelForCausalLM.from_pretrained('m', device_map=a.dm)\n",
    integration="transformers",
)
@bad(
    _STAGE_3,
    at="zero_optimization.stage",
    program=_LOADING % ', device_map="auto"',
    integration="transformers",
    loader_release=Release(4, 36, 2),
    message='train.py:3 loads a model with device_map="auto": at ZeRO stage 3 transformers raises "DeepSpeed Zero-3 is not compatible with `low_cpu_mem_usage=True` or with passing a `device_map`".',
)
@bad(
    _STAGE_3,
    at="zero_optimization.stage",
    program=_ARGUMENTS + 'if chosen():\n    model = AutoModelForCausalLM.from_pretrained("model", device_map="auto")\n',
    integration="transformers",
    message='train.py:4 loads a model with device_map="auto": at ZeRO stage 3 transformers may raise "DeepSpeed Zero-3 is not compatible with passing a `device_map`".',
)
@good(_STAGE_2, program=_LOADING % ', device_map={"": 0}', integration="transformers")
def device_map_with_zero_3(config: Config) -> Iterator[Finding]:
    """The program loads a model with `device_map` or `low_cpu_mem_usage`, and the config is for ZeRO stage 3.

    ZeRO stage 3 partitions the parameters over the ranks itself. Once the config is known to transformers, `from_pretrained` raises
    "DeepSpeed Zero-3 is not compatible with passing a `device_map`." Before transformers 4.51 it refuses `low_cpu_mem_usage=True`, too.

    Remove the argument. At stage 3 each rank needs only its part of the model.
    """
    program = config.setup.program if config.setup else None
    if program is None or config.facts.integration not in HUGGING_FACE or not config.value("zero_optimization.stage") >= 3:
        return
    if program.loaded_early is not None:
        return  # transformers does not know of stage 3 yet: DS957
    told = True if config.facts.integration is Integration.TRANSFORMERS and knows_arguments(config) else accelerate_tells(config)
    if told is False:
        return  # zero3_init_flag: false, before Accelerate 1.0.0
    given = program.device_map
    pinned = config.context.pinned("transformers")
    if given is not None and _is_for_quantized(given) and _loads_whole_bits(config):
        given = None
    if given is not None:
        refused = _WITH_LOW_MEMORY if pinned is not None and pinned < _TAKES_LOW_MEMORY else "passing a `device_map`"
        certain = told is True and _is_surely_placed(program, given, by_arguments=knows_arguments(config))
        yield Finding(
            "zero_optimization.stage",
            f"{given.where} loads a model with {given.shown}: at ZeRO stage 3 transformers {'raises' if certain else 'may raise'} "
            f'"DeepSpeed Zero-3 is not compatible with {refused}".',
            help="Remove device_map from the program.",
            related=(given.related("passed here"),),
            certain=certain,
        )
        return
    if told is not True:
        return
    oldest = config.context.at_least("transformers")
    if oldest is not None and oldest >= _TAKES_LOW_MEMORY:
        return
    loads = [one for one in program.events.of(MODELS) if is_true(one.argument("low_cpu_mem_usage"))]
    reached = next((one for one in loads if one.certain and one.flow == 0), None)
    load = reached or next(iter(loads), None)
    if load is not None:
        is_certain = reached is not None and pinned is not None
        yield Finding(
            "zero_optimization.stage",
            f"{load.at.where} loads a model with low_cpu_mem_usage=True: at ZeRO stage 3 transformers {pinned or 'before 4.51'} "
            f"{'raises' if is_certain else 'may raise'} "
            f'"DeepSpeed Zero-3 is not compatible with {_WITH_LOW_MEMORY}".',
            help="Remove low_cpu_mem_usage from the program.",
            related=(load.at.related("loaded here"),),
            certain=is_certain,
        )


def _is_surely_placed(program: Program, given: SourcedValue, *, by_arguments: bool) -> bool:
    """Whether every run tells transformers of the config, and then loads a model with this device map, which is not None.

    `by_arguments` says that training arguments name the config, and not the launcher of Accelerate.
    """
    tells = TRAINER_ARGUMENTS if by_arguments else rf"{TRAINER_ARGUMENTS}|accelerate\.(\w+\.)*Accelerator"
    is_told = False
    for event in program.events.all:
        if not event.always:
            continue
        if re.fullmatch(tells, event.name):
            is_told = is_told or not by_arguments or event.argument("deepspeed") is not None
        placed = event.argument("device_map") if re.fullmatch(LOADS, event.name) else None
        if is_told and placed is not None and placed.raw == given.raw:
            return placed.raw.startswith("{") or (placed.value is not None and placed.value is not UNKNOWN)
    return False


def _is_for_quantized(given: SourcedValue) -> bool:
    """Whether only a quantized model gets the argument: `device_map=get_kbit_device_map() if quantization_config is not None else None`."""
    return re.search(r"(ization_config|quant\w*)( is not None)? else None$", given.raw) is not None


def _loads_whole_bits(config: Config) -> bool:
    """Whether the training arguments ask for no quantization."""
    arguments = config.arguments
    given = [arguments.get(name) for name in _QUANTIZES] if arguments is not None else []
    return arguments is not None and arguments.complete and all(one is None or one.value is False for one in given)


_QUANTIZES = ("load_in_4bit", "load_in_8bit", "quantization_bit", "use_4bit_quantization", "use_8bit_quantization")


_WITH_LOW_MEMORY = "`low_cpu_mem_usage=True` or with passing a `device_map`"
"""What transformers before 4.51 refuses at stage 3."""

_TAKES_LOW_MEMORY = Release(4, 51, 0)
"""The first release of transformers that takes `low_cpu_mem_usage` at stage 3. 4.20, 4.31, 4.40, 4.46, 4.49 and 4.50.3 were read, too."""


@rule(
    "DS957",
    effect=Effect.CRASH,
    phase=Phase.LOAD,
    watches=("setup",),
    references=("accelerate/accelerator.py, Accelerator.prepare",),
    untried=RAISED_BY_LOADER,
)
@bad(
    _STAGE_2,
    at="",
    program=_LOADING % ', device_map="auto"',
    integration="transformers",
    message='train.py:3 loads a model with device_map="auto", which divides it over all visible GPUs: if there are several, Accelerate raises "You can\'t train a model that has been loaded with `device_map=\'auto\'` in any distributed mode".',
)
@bad(
    _STAGE_2,
    at="",
    program=_LOADING % ', device_map="balanced"',
    integration="transformers",
    message='train.py:3 loads a model with device_map="balanced", which divides it over all visible GPUs: if there are several, Accelerate raises "You can\'t train a model that has been loaded with `device_map=\'auto\'` in any distributed mode".',
)
@good(_STAGE_2, program=_LOADING % "", integration="transformers")
@good(_STAGE_2, program=_LOADING % ', device_map={"": 0}', integration="transformers")
@good(_STAGE_2, program=(_LOADING % ', device_map="auto"').replace('"model"', "reward_model_path"), integration="transformers")
@good(
    _STAGE_2,
    program=(_LOADING % ', device_map="auto"')
    .replace("model = ", "def load_for_generation(path):\n    return ")
    .replace('"model"', "path"),
    integration="transformers",
)
def device_map_over_several_gpus(config: Config) -> Iterator[Finding]:
    """The program divides its model over the GPUs with `device_map`, and trains it with DeepSpeed.

    With `device_map="auto"` each rank loads the model onto all the GPUs that it sees. In a distributed run every rank needs the model on its
    own GPU: Accelerate, and the Trainer with it, raises "You can't train a model that has been loaded with `device_map='auto'` in any
    distributed mode". A reward, reference or teacher model, by the name of its path, is not trained,
    nor is what a function for generation loads. Where a rank sees one GPU the map has one entry, and the training runs.

    Remove `device_map`: DeepSpeed places the model. At ZeRO stage 3 a model that transformers loads with the config known is DS946.
    """
    program = config.setup.program if config.setup else None
    given = program.device_map if program else None
    if program is None or given is None or given.value not in DIVIDING or not config.facts.passes_accelerate:
        return
    if _is_only_asked(program, given):
        return
    if config.value("zero_optimization.stage") < 3 or program.loaded_early is not None:
        yield Finding(
            "",
            f"{given.where} loads a model with {given.shown}, which divides it over all visible GPUs: if there are several, Accelerate raises "
            "\"You can't train a model that has been loaded with `device_map='auto'` in any distributed mode\".",
            help="Remove device_map from the program: DeepSpeed places the model.",
            elsewhere=given.related(""),
            certain=False,
        )


def _is_only_asked(program: Program, given: SourcedValue) -> bool:
    """Whether the model of a device map is one that only scores, teaches or generates, by its path or by the function that loads it."""
    for event in program.events.of(MODELS):
        path = event.argument("pretrained_model_name_or_path", 0)
        if path is not None and event.at.path == given.path and _is_inside(given.range, event.at.range):
            return _ONLY_ASKED.search(path.raw) is not None or _ONLY_RUNS.search(event.function) is not None
    return False


def _is_inside(inner: Range | None, outer: Range | None) -> bool:
    if inner is None or outer is None:
        return False
    return outer.start.offset <= inner.start.offset and inner.end.offset <= outer.end.offset


_ONLY_ASKED = re.compile(r"reward|(?<![a-z])ref(?![a-z])|reference|teacher|judge|verifier", re.IGNORECASE)
"""In the path of a model that is not trained, and that Accelerate never gets. Evidence: a public trainer loads the model of its reward function
over all GPUs, and scores with it under `no_grad` (ForgeLM)."""

_ONLY_RUNS = re.compile(r"generat|infer|predict|chat|demo|serv(e|ing)", re.IGNORECASE)
"""In the name of a function that loads a model which is not trained. Evidence: `load_model_tokenizer_for_generate` of Dolly, which its
notebook calls after the training."""

_TOLD = 'arguments = TrainingArguments(output_dir="out", deepspeed="ds_config.json")\n'
_LOADED = 'from transformers import AutoModelForCausalLM, TrainingArguments\n%smodel = AutoModelForCausalLM.from_pretrained("model")\n%s'

_FABRIC = (
    "import lightning as L\nfrom lightning.fabric.strategies import DeepSpeedStrategy\nfrom transformers import AutoModelForCausalLM\n"
    "fabric = L.Fabric(strategy=DeepSpeedStrategy(config='ds_config.json'), devices=8)\n%smodel, optimizer = fabric.setup(model, optimizer)\n"
)
_MODULE = (
    "import lightning as L\nfrom lightning.pytorch.strategies import DeepSpeedStrategy\nfrom transformers import AutoModelForCausalLM\n"
    "class Module(L.LightningModule):\n    def %s(self):\n        self.model = AutoModelForCausalLM.from_pretrained('m')\n"
    "trainer = L.Trainer(strategy=DeepSpeedStrategy(config='ds_config.json'), devices=8)\ntrainer.fit(Module())\n"
)

_OWN = (
    "import deepspeed\nfrom transformers import AutoModelForCausalLM\nfrom transformers.integrations import HfDeepSpeedConfig\n%s\n"
    "model = AutoModelForCausalLM.from_pretrained('m')\nengine, *_ = deepspeed.initialize(model=model, config='ds_config.json')\n"
)
_KEPT = "from transformers.integrations import HfDeepSpeedConfig\nkept = HfDeepSpeedConfig('ds_config.json')\n"


@rule(
    "DS958",
    effect=Effect.MEMORY,
    watches=("setup",),
    references=(
        "https://huggingface.co/docs/transformers/main_classes/deepspeed",
        "deepspeed/runtime/engine.py, DeepSpeedEngine._configure_distributed_model",
    ),
    setup=True,
)
@bad(
    _STAGE_3,
    at="zero_optimization.stage",
    program=_LOADED % ("", _TOLD),
    integration="transformers",
    message="train.py:2 loads the model before TrainingArguments tells transformers of ZeRO stage 3: every rank loads the whole model, and DeepSpeed moves all of it to the GPU before it partitions it.",
)
@bad(
    _STAGE_3,
    at="",
    program=_FABRIC % 'model = AutoModelForCausalLM.from_pretrained("m")\n',
    integration="lightning",
    message="train.py:5 loads the model outside of fabric.init_module(): every rank loads the whole model, and DeepSpeed moves all of it to the GPU before it partitions it.",
)
@bad(
    _STAGE_3,
    at="zero_optimization.stage",
    program=_OWN % "HfDeepSpeedConfig('ds_config.json')",
    integration="deepspeed",
    message="train.py:5 loads the model, and the HfDeepSpeedConfig of train.py:4, which nothing keeps, is gone by then: every rank loads the whole model, and DeepSpeed moves all of it to the GPU before it partitions it.",
)
@bad(
    _STAGE_3,
    at="zero_optimization.stage",
    program=_OWN % "def tell():\n    told = HfDeepSpeedConfig('ds_config.json')\ntell()",
    integration="deepspeed",
    message="train.py:7 loads the model, and the HfDeepSpeedConfig of train.py:5, a local variable of tell, is gone by then: every rank loads the whole model, and DeepSpeed moves all of it to the GPU before it partitions it.",
)
@bad(
    _STAGE_3,
    at="zero_optimization.stage",
    program=_OWN % "def tell():\n    told = HfDeepSpeedConfig('ds_config.json')\n    return told\ntell()",
    integration="deepspeed",
    message="train.py:8 loads the model, and the HfDeepSpeedConfig of train.py:5, a local variable of tell, is gone by then: every rank loads the whole model, and DeepSpeed moves all of it to the GPU before it partitions it.",
)
@good(_STAGE_3, program=_OWN % "told = HfDeepSpeedConfig('ds_config.json')", integration="deepspeed")
@good(
    _STAGE_3,
    program=_OWN % "def tell():\n    told = HfDeepSpeedConfig('ds_config.json')\n    return told\ntold = tell()",
    integration="deepspeed",
)
@good(
    _STAGE_3,
    program=_KEPT + _FABRIC % 'with fabric.init_module():\n    model = AutoModelForCausalLM.from_pretrained("m")\n',
    integration="lightning",
)
@bad(
    _STAGE_3,
    at="",
    program=_MODULE % "__init__",
    integration="lightning",
    message="train.py:6 loads the model outside of configure_model: every rank loads the whole model, and DeepSpeed moves all of it to the GPU before it partitions it.",
)
@good(_STAGE_3, program=_KEPT + _MODULE % "configure_model", integration="lightning")
@good(_STAGE_3, program=_LOADED % (_TOLD, ""), integration="transformers")
@good(_STAGE_2, program=_LOADED % ("", _TOLD), integration="transformers")
def model_loaded_before_config(config: Config) -> Iterator[Finding]:
    """At ZeRO stage 3 the program loads its model before transformers knows the DeepSpeed config.

    If transformers knows that the config is for stage 3, `from_pretrained` builds the model under `deepspeed.zero.Init`: each rank only
    holds its part. It learns of the config from `TrainingArguments`, `HfDeepSpeedConfig` or `Accelerator`. Without that each rank loads the
    whole model, and DeepSpeed moves all of it to the GPU before it partitions it: a model that is larger than a GPU does not fit.

    For a program that calls `deepspeed.initialize` itself the finding is an info: nothing says that it expects a partitioned model, and a
    small model fits. transformers does not keep the `HfDeepSpeedConfig`, and forgets the config once nothing else does: that is a warning,
    also if the config is not known. A function that returns the object does not keep it, either, if a call drops it.

    Lightning enters `deepspeed.zero.Init` only around `configure_model`, and Fabric in `fabric.init_module()`: a model that is loaded
    elsewhere, as in `__init__`, is whole on every rank. This is an info, too.

    Create `TrainingArguments` (with `deepspeed.initialize`: `HfDeepSpeedConfig(config)`, and keep the object) before the model.
    """
    if config.document.root is None:
        yield from _told_in_vain(config)
        return
    found = whole_load(config)
    lightning, own = (config.facts.integration is one for one in (Integration.LIGHTNING, Integration.DEEPSPEED))
    if found is None or ((own or lightning) and config.facts.world_size == 1):
        return  # the only rank holds the whole model in any case
    if config.facts.world_size is not None and too_large_to_load(config) is not None:
        return  # DS706 says that it does not fit
    yield Finding(
        "" if lightning else "zero_optimization.stage",
        f"{found.at.where} loads the model{found.when}: every rank loads the whole model, and DeepSpeed moves all of it to the GPU before it "
        "partitions it.",
        help=found.instead,
        elsewhere=found.at.related("") if lightning else None,
        related=() if lightning else (found.at.related("loaded here"),),
        effect=Effect.ADVICE if (own and not found.is_meant) or lightning else None,
    )


def _told_in_vain(config: Config) -> Iterator[Finding]:
    """The finding for an `HfDeepSpeedConfig` that nothing keeps while a program loads its model, whatever the config is."""
    program = config.setup.program if config.setup else None
    if program is None or config.facts.world_size == 1:
        return
    events = program.events
    all_gone = gone_before(events, len(events.all))
    tells = rf"{TRAINER_ARGUMENTS}|accelerate\.(\w+\.)*(Accelerator|DeepSpeedPlugin)"
    is_told = any(one.start not in all_gone for one in events.of(HELD_WEAKLY)) or any(events.of(tells))
    texts = [one.text for one in config.setup.documents.values()] if config.setup is not None else []
    for dropped in events.of(rf"{HELD_WEAKLY}\.{DROPPED}"):
        begins = events.all.index(dropped)
        here = [(number, one) for number, one in enumerate(events.all) if re.fullmatch(LOADS, one.name) and one.flow == dropped.flow]
        load = next((one for number, one in here if number > begins), None)
        may_load = dropped.argument("at_once") is not None and any(".from_pretrained(" in text for text in texts)
        if is_told or not (load is not None or may_load) or any(number < begins for number, _ in here):
            continue
        loads = f"{load.at.where} loads a model" if load is not None else "The program loads a model"
        yield Finding(
            "",
            f"{loads}, and nothing keeps the HfDeepSpeedConfig of {dropped.at.where}, which is gone by then: at ZeRO stage 3 transformers does not know "
            "of it, and every rank loads the whole model.",
            help="Keep the HfDeepSpeedConfig as long as the model.",
            elsewhere=dropped.at.related(""),
            related=(load.at.related("loaded here"),) if load is not None else (),
            certain=False,
        )
        return
