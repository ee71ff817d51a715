"""DS9: what a program gives to Accelerate's `prepare`."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from dslint.config import Config
from dslint.diagnostics import Effect, Phase
from dslint.facts import Integration, Release
from dslint.job.events import MAKES_MODEL, Event
from dslint.rule import Finding, bad, good, rule
from dslint.rules.helpers.examples import ACCELERATE_HEAD
from dslint.rules.helpers.loaders import RAISED_BY_LOADER
from dslint.rules.helpers.models import telling
from dslint.rules.helpers.prepare import MICRO_BATCH, PREPARE, is_model, models_of, models_with_optimizers, without_loader
from dslint.rules.helpers.zero import STAGE

if TYPE_CHECKING:
    from dslint.job.model import Program

_STAGE_2 = '{"train_micro_batch_size_per_gpu": 4, "gradient_accumulation_steps": 1, "zero_optimization": {"stage": 2}}'
_AUTO = '{"train_micro_batch_size_per_gpu": "auto", "gradient_accumulation_steps": 1, "zero_optimization": {"stage": 2}}'

_STAGE_3, _AUTO_3 = (one.replace('"stage": 2', '"stage": 3') for one in (_STAGE_2, _AUTO))

_TWO = (
    "from accelerate import Accelerator\nfrom transformers import AutoModelForCausalLM\naccelerator = Accelerator()\n"
    'student = AutoModelForCausalLM.from_pretrained("small")\nteacher = AutoModelForCausalLM.from_pretrained("large")\n'
)

_UNKNOWN = (
    "import torch\nfrom accelerate import Accelerator\nfrom models import build\naccelerator = Accelerator()\nstudent, teacher = build(), build()\n"
    "optimizer = torch.optim.AdamW(student.parameters())\n%s\n"
    "student, teacher, optimizer = accelerator.prepare(student, teacher, optimizer)\n"
)


@rule(
    "DS965",
    effect=Effect.CRASH,
    phase=Phase.LOAD,
    watches=("setup",),
    references=(
        "accelerate/accelerator.py, Accelerator.prepare and Accelerator._prepare_deepspeed",
        "https://github.com/huggingface/accelerate/pull/1468",
    ),
    untried=RAISED_BY_LOADER,
    setup=True,
)
@bad(
    _STAGE_2,
    at="",
    program=f"{_TWO}student, teacher, optimizer, loader = accelerator.prepare(student, teacher, optimizer, loader)\n",
    integration="accelerate",
    message='train.py:6 prepares student and teacher in one call: under DeepSpeed Accelerate raises "You can\'t use same `Accelerator()` instance with multiple models when using DeepSpeed".',
)
@bad(
    _STAGE_2,
    at="",
    program=f"{_TWO}student, optimizer, loader = accelerator.prepare(student, optimizer, loader)\nteacher = accelerator.prepare(teacher)\n",
    integration="accelerate",
    loader_release=Release(0, 34, 2),
    message='train.py:7 prepares a second model, teacher, with the same Accelerator: under DeepSpeed Accelerate raises "You can\'t use same `Accelerator()` instance with multiple models when using DeepSpeed".',
)
@good(
    _STAGE_2,
    program=f"{_TWO}student, optimizer, loader = accelerator.prepare(student, optimizer, loader)\nteacher = teacher.to(accelerator.device)\n",
    integration="accelerate",
)
@bad(
    _STAGE_2,
    at="",
    program="import torch\nfrom accelerate import Accelerator\nfrom models import build\naccelerator = Accelerator()\n"
    "generator, critic, words = build()\nfirst = torch.optim.AdamW(generator.parameters())\nsecond = torch.optim.AdamW(critic.parameters())\n"
    "generator, critic, first, second = accelerator.prepare(generator, critic, first, second)\n",
    integration="accelerate",
    message='train.py:8 prepares generator and critic in one call: under DeepSpeed Accelerate may raise "You can\'t use same `Accelerator()` instance with multiple models when using DeepSpeed".',
)
@bad(
    _STAGE_2,
    at="",
    program="import itertools\nfrom accelerate import Accelerator\nfrom models import build\naccelerator = Accelerator()\n"
    "unet, encoder = build('unet'), build('text')\nparameters = itertools.chain(unet.parameters(), encoder.parameters())\n"
    "optimizer = build('optimizer')(parameters)\nunet, encoder, optimizer = accelerator.prepare(unet, encoder, optimizer)\n",
    integration="accelerate",
    message='train.py:8 prepares unet and encoder in one call: under DeepSpeed Accelerate may raise "You can\'t use same `Accelerator()` instance with multiple models when using DeepSpeed".',
)
@bad(
    _STAGE_2,
    at="",
    program=_UNKNOWN % "teacher.requires_grad_(False)",
    integration="accelerate",
    message='train.py:8 prepares student and teacher in one call: under DeepSpeed Accelerate may raise "You can\'t use same `Accelerator()` instance with multiple models when using DeepSpeed".',
)
@good(_STAGE_2, program=_UNKNOWN % "teacher.eval()", integration="accelerate")
@good(_STAGE_2, program=_UNKNOWN % "teacher.requires_grad_(False).detach()\nteacher.step(student.parameters())", integration="accelerate")
@good(
    _STAGE_2,
    program="import itertools\nfrom accelerate import Accelerator\nfrom models import build\naccelerator = Accelerator()\n"
    "unet, encoder = build('unet'), build('text')\nparameters = itertools.chain(unet.parameters(), encoder.parameters())\n"
    "optimizer = build('optimizer')(parameters)\nunet, optimizer, encoded = accelerator.prepare(unet, optimizer, encoder.tokens)\n",
    integration="accelerate",
)
@good(
    _STAGE_2,
    program="import torch\nfrom accelerate import Accelerator\nfrom models import build\naccelerator = Accelerator()\n"
    "generator, critic, words = build()\nfirst = torch.optim.AdamW(generator.parameters())\n"
    "generator, words, first = accelerator.prepare(generator, words, first)\n",
    integration="accelerate",
)
@good(
    _STAGE_2,
    program=f"import argparse\np = argparse.ArgumentParser()\np.add_argument('--deepspeed', action='store_true')\nargs = p.parse_args()\n{_TWO}"
    "if args.deepspeed:\n    student, optimizer = accelerator.prepare(student, optimizer)\n"
    "else:\n    student, teacher, optimizer = accelerator.prepare(student, teacher, optimizer)\n",
    integration="accelerate",
)
@good(
    _STAGE_3,
    program=f"{_TWO}student, optimizer, loader = accelerator.prepare(student, optimizer, loader)\nteacher = accelerator.prepare(teacher)\n",
    integration="accelerate",
    loader_release=Release(1, 9, 0),
)
@good(
    _STAGE_2,
    program="import torch\nfrom accelerate import Accelerator\nfrom diffusers import UNet2DConditionModel\nfrom diffusers.training_utils import EMAModel\n"
    "accelerator = Accelerator()\nunet = UNet2DConditionModel.from_pretrained('m')\nema = EMAModel.from_pretrained('e', UNet2DConditionModel)\n"
    "words = torch.nn.Parameter(torch.zeros(3))\nunet, ema, words, optimizer = accelerator.prepare(unet, ema, words, optimizer)\n",
    integration="accelerate",
)
@bad(
    _STAGE_2,
    at="",
    program=f"{_TWO}student, teacher, optimizer, loader = accelerator.prepare(student, teacher, optimizer, loader)\n",
    integration="accelerate",
    pins={"accelerate": Release(0, 19, 0)},
    message="train.py:6 prepares student and teacher in one call: Accelerate 0.19.0 makes one engine, of teacher, and returns it in the place of each model, so student is lost.",
)
@good(
    _STAGE_2,
    program=f"{_TWO}student, optimizer, loader = accelerator.prepare(student, optimizer, loader)\n",
    integration="accelerate",
    pins={"accelerate": Release(0, 19, 0)},
)
def two_models_prepared(config: Config) -> Iterator[Finding]:
    """The program prepares two models with one `Accelerator`, under DeepSpeed.

    DeepSpeed makes an engine of a model, and one call of `prepare` makes one engine: with two models Accelerate raises AssertionError
    "You can't use same `Accelerator()` instance with multiple models when using DeepSpeed" (from 0.20.0 on). Before Accelerate 1.0.0 two calls
    of `prepare` with a model each raise the same. Before 0.20.0 one call with two models makes an engine of the last one, and returns it for
    both: what the program then calls on the first one runs the last one, or raises AttributeError.

    Move a model that is not trained to the device without `prepare`. Train a second model with a second `Accelerator`, and from Accelerate
    1.0.0 on with a plugin of its own.
    """
    program = config.setup.program if config.setup else None
    if program is None or config.facts.integration is not Integration.ACCELERATE:
        return
    release = config.context.pinned("accelerate")
    counts = release is None or release >= Release(0, 20, 0)
    possible = (event for event in program.events.of(PREPARE) if event.certain or event.likely or event.conditions == ())
    calls = [event for event in possible if not event.tells_setups_apart]
    together = next((event for event in calls if len(models_with_optimizers(config, event, program.events)) > 1), None)
    second: Event | None = None
    if together is None and config.facts.loader_release is not None and config.facts.loader_release < Release(1, 0, 0):
        seen: dict[int | None, set[tuple[int, str]]] = {}
        for one in calls:
            models = seen.setdefault(one.origin, set())
            models.update([*models_of(one)][-1:])  # one call makes one engine: of the last model
            second = second or (one if len(models) > 1 else None)
    event: Event | None = together or second
    if event is not None:
        prepared = (models_with_optimizers(config, event, program.events) if together else models_of(event)).values()
        names = [one.raw for one in prepared]
        what = (
            f"prepares {', '.join(names[:-1])} and {names[-1]} in one call"
            if together
            else f"prepares a second model, {names[-1]}, with the same Accelerator"
        )
        outcome = (
            'under DeepSpeed Accelerate raises "You can\'t use same `Accelerator()` instance with multiple models when using DeepSpeed"'
            if counts or not together
            else f"Accelerate {release} makes one engine, of {names[-1]}, and returns it in the place of each model, so {', '.join(names[:-1])} "
            f"{'is' if len(names) == 2 else 'are'} lost"
        )
        yield Finding(
            "",
            f"{event.at.where} {what}: {outcome}.",
            help="Prepare only the model that is trained, and move the other one to accelerator.device.",
            elsewhere=event.at.related(""),
            effect=None if counts or not together else Effect.SILENT,
            certain=(event.certain or not event.conditions) and all(is_model(one) for one in prepared),
        )


_OTHER_PACKAGE = (
    "import torch\nfrom accelerate import Accelerator\nfrom long_context.modeling import LongForCausalLM\n"
    'accelerator = Accelerator()\nmodel = LongForCausalLM.from_pretrained("m")\n'
)
"""A model of a package that is not transformers, by the name and the loading of its class."""

_LOADED_ELSEWHERE = (
    "import torch\nfrom accelerate import Accelerator\nfrom parts import build, load\naccelerator = Accelerator()\n"
    "model, {0} = build(), load()\n{0} = accelerator.prepare({0})\noptimizer = torch.optim.AdamW(model.parameters())\n"
    "model, optimizer = accelerator.prepare(model, optimizer)\n"
)


@rule(
    "DS966",
    effect=Effect.CRASH,
    phase=Phase.LOAD,
    watches=("setup",),
    references=("accelerate/accelerator.py, Accelerator._prepare_deepspeed",),
    untried=RAISED_BY_LOADER,
    setup=True,
)
@bad(
    _AUTO,
    at="train_micro_batch_size_per_gpu",
    program=f"{_TWO}student = accelerator.prepare(student)\n",
    integration="accelerate",
    message='train.py:6 prepares the model without a data loader, and train_micro_batch_size_per_gpu is "auto": Accelerate raises "When using DeepSpeed, `accelerate.prepare()` requires you to pass at least one of training or evaluation dataloaders".',
)
@bad(
    _AUTO_3,
    at="train_micro_batch_size_per_gpu",
    program=f"{_OTHER_PACKAGE}model = accelerator.prepare(model)\n",
    integration="accelerate",
    message='train.py:6 prepares the model without a data loader, and train_micro_batch_size_per_gpu is "auto": Accelerate raises "When using DeepSpeed, `accelerate.prepare()` requires you to pass at least one of training or evaluation dataloaders".',
)
@good(
    _AUTO_3,
    program=f"{_OTHER_PACKAGE}loader = torch.utils.data.DataLoader(data, batch_size=4)\nmodel, loader = accelerator.prepare(model, loader)\n",
    integration="accelerate",
)
@good(
    _AUTO_3,
    program=f"{_OTHER_PACKAGE.replace('ForCausalLM', 'Processor')}model = accelerator.prepare(model)\n",
    integration="accelerate",
)
@good(
    _AUTO_3,
    program=f"{_TWO}loader = torch.utils.data.DataLoader(data, batch_size=4)\nstudent, loader = accelerator.prepare(student, loader)\n",
    integration="accelerate",
)
@good(_STAGE_3, program=f"{_TWO}student = accelerator.prepare(student)\n", integration="accelerate")
@bad(
    _AUTO,
    at="train_micro_batch_size_per_gpu",
    program="import torch\nfrom accelerate import Accelerator\nfrom models import build\naccelerator = Accelerator()\nmodel = build()\n"
    "loader = accelerator.prepare(torch.utils.data.DataLoader(data, batch_size=4))\noptimizer = torch.optim.AdamW(model.parameters())\n"
    "model, optimizer = accelerator.prepare(model, optimizer)\n",
    integration="accelerate",
    message='train.py:8 prepares the model without a data loader, and train_micro_batch_size_per_gpu is "auto": Accelerate may raise "When using DeepSpeed, `accelerate.prepare()` requires you to pass at least one of training or evaluation dataloaders".',
)
@bad(
    _AUTO,
    at="train_micro_batch_size_per_gpu",
    program=_LOADED_ELSEWHERE.format("loader"),
    integration="accelerate",
    message='train.py:8 prepares the model without a data loader, and train_micro_batch_size_per_gpu is "auto": Accelerate may raise "When using DeepSpeed, `accelerate.prepare()` requires you to pass at least one of training or evaluation dataloaders".',
)
@good(_AUTO, program=_LOADED_ELSEWHERE.format("bundle"), integration="accelerate")
@good(
    _AUTO_3,
    program=f"{_TWO}loader = torch.utils.data.DataLoader(data)\nstudent, loader = accelerator.prepare(student, loader)\nteacher = accelerator.prepare(teacher)\n",
    integration="accelerate",
)
def prepare_without_loader(config: Config) -> Iterator[Finding]:
    """The micro batch size is "auto", and the program prepares its model without a data loader.

    Accelerate fills an "auto" micro batch size from the data loader in the same call of `prepare`. Without one it raises ValueError "When
    using DeepSpeed, `accelerate.prepare()` requires you to pass at least one of training or evaluation dataloaders", also if an earlier
    call got the data loader alone. So does a block of the
    Accelerate file without a config file, whose micro batch size is always "auto".

    Pass the model, the optimizer and the data loader to one `prepare`, or set `train_micro_batch_size_per_gpu` to a number.
    """
    event = without_loader(config)
    if event is not None:
        yield Finding(
            MICRO_BATCH,
            f'{event.at.where} prepares the model without a data loader, and {MICRO_BATCH} is "auto": Accelerate raises "When using DeepSpeed, '
            '`accelerate.prepare()` requires you to pass at least one of training or evaluation dataloaders".',
            help=f"Pass the data loader to the same prepare, or set {MICRO_BATCH} to a number.",
            related=(event.at.related("prepared here"),),
            certain=event.certain and bool(models_of(event)),
        )


_DIVIDES = ACCELERATE_HEAD + "deepspeed_config:\n  deepspeed_config_file: ds_config.json\n  zero3_init_flag: true\n"
_TEACHER = f"{_TWO}student, optimizer, loader = accelerator.prepare(student, optimizer, loader)\n"
_SWITCHED_OFF = _TEACHER.replace(
    "teacher = ", "with accelerator.state.deepspeed_plugin.zero3_init_context_manager(enable=False):\n    teacher = "
)
_ENCODING = (
    "from accelerate import Accelerator\nfrom diffusers import FluxPipeline\naccelerator = Accelerator()\n"
    "pipe = FluxPipeline.from_pretrained('m', transformer=None, vae=None)\nembeds = pipe.encode_prompt('a')\n"
    "model, optimizer, loader = accelerator.prepare(model, optimizer, loader)\n"
)
_GATHERING = _STAGE_3.replace('"stage": 3', '"stage": 3, "stage3_gather_16bit_weights_on_model_save": true')
_DISTILLING = (
    "from transformers import AutoModelForCausalLM, Trainer, TrainingArguments\nclass Distilling(Trainer):\n"
    "    def __init__(self, *args, teacher=None, **kwargs):\n        super().__init__(*args, **kwargs)\n        self.teacher = teacher\n"
    "    def compute_loss(self, model, inputs, return_outputs=False):\n        target = self.teacher(**inputs).logits\n"
    "        return (model(**inputs).logits - target).mean()\n"
    "arguments = TrainingArguments('out', deepspeed='ds_config.json')\nteacher = AutoModelForCausalLM.from_pretrained('large')\n"
    "Distilling(AutoModelForCausalLM.from_pretrained('small'), arguments, teacher=teacher).train()\n"
)
_DIVIDED = re.compile(rf"transformers\.(\w+\.)*\w*(Model|For[A-Z]\w*)\w*\.({'|'.join(MAKES_MODEL)})")
_FORWARD = ("__call__", "generate")
_IN_TRAINING = (".compute_loss", ".training_step", ".prediction_step")
"""The methods of a Trainer in which a program calls a second model, such as a teacher."""


_PIPELINE = re.compile(r"diffusers\.(\w+\.)*\w*Pipeline(\.from_pretrained)?")
_FROM_DIFFUSERS = re.compile(r"^[ \t]*from\s+diffusers[\w.]*\s+import\s+(\([^()]*\)|[^\n]*)", re.MULTILINE)
_PIPELINE_NAME = re.compile(r"\b\w*Pipeline\b(?!\s+as\b)")

_NOT_A_NAME = re.compile(r"#[^\n\"']*$|(?<==)([\"'])\w+\1", re.MULTILINE)
"""A comment, and a word as the value of an argument, such as `subfolder="text_encoder"`."""


def _is_only_called(load: Event, config: Config) -> bool:
    """Whether the program only calls the model that it loads, or its methods: one that is passed on, stored in an object or listed can be a
    part of a model that gets an engine, and events do not follow it there. Its name in the text tells.
    """
    document = config.setup.documents.get(load.at.path) if config.setup else None
    if document is None or not load.bound:
        return False
    otherwise = rf"(?:(?<![\w.])|(?<=\bself\.)){load.bound}\b(?!\s*(?:=(?!=)|[.(]))"
    return re.search(otherwise, _without_own_calls(_without_pipelines(_NOT_A_NAME.sub("", document.text)))) is None


_OWN_FUNCTION = re.compile(r"^def (\w+)(\([^()]*(?:\([^()]*\)[^()]*)*\))", re.MULTILINE)


def _without_own_calls(text: str) -> str:
    """A text without the arguments of calls of its own functions, which events follow, and of `unwrap_model`."""
    names = [one[1] for one in _OWN_FUNCTION.finditer(text)]
    text = _OWN_FUNCTION.sub(r"def \1", text)
    calls = "|".join(map(re.escape, ("unwrap_model", *names)))
    return re.sub(rf"(?<!def )\b({calls})\([^()]*(?:\([^()]*\)[^()]*)*\)", r"\1", text)


def _pipelines_outside(later: tuple[Event, ...], program: Program) -> Iterator[Finding]:
    """The finding for a pipeline of diffusers that loads its text encoder, and is called: transformers divides that one, too."""
    prepared = {one.raw.rpartition(".")[2] for event in program.events.of(PREPARE) for one in event.arguments.values()}
    if any(one.startswith("text_encoder") for one in prepared):
        return
    for load in later:
        is_plain = not load.within and not load.tells_setups_apart and not _is_quantized(load) and load.complete
        if not is_plain or not _LOADS_ENCODER.fullmatch(load.name) or "text_encoder" in load.arguments or not (load.certain or load.likely):
            continue
        calls = (one for one in program.events.all if one.origin == load.start and one.name.endswith((".encode_prompt", ".__call__")))
        call = next((one for one in calls if not one.tells_setups_apart and not any("Gather" in inner for inner in one.within)), None)
        if call is not None:
            yield Finding(
                "",
                f"{load.at.where} loads a pipeline whose text encoder gets no engine, and {call.at.where} calls it: at ZeRO stage 3 transformers "
                "divides the weights of the encoder among the ranks as they are loaded, and nothing gathers them, so it may raise \"'weight' must "
                'be 2-D".',
                help="Load the pipeline before the program creates the Accelerator, or encode the prompts in a run of their own.",
                elsewhere=load.at.related(""),
                related=(call.at.related("called here"),),
                certain=False,
            )
            return


_LOADS_ENCODER = re.compile(r"diffusers\.(\w+\.)*\w*Pipeline\.from_pretrained")
_GIVES_ENGINE = re.compile(
    r"prepare_deepspeed|deepspeed\.initialize|\.prepare(_model)?\(|GatheredParameters|HfDeepSpeedConfig|set_hf_deepspeed"
)


def _may_get_engine(load: Event, call: Event, config: Config) -> bool:
    """Whether a model that a Trainer calls may get an engine: in the file of the Trainer, or as a part of another model. It may only be called,
    and passed to the Trainer.
    """
    documents = config.setup.documents if config.setup else {}
    loading, calling = documents.get(load.at.path), documents.get(call.at.path)
    if loading is None or calling is None or not load.bound or _GIVES_ENGINE.search(calling.text):
        return True
    trainer = call.function.partition(".")[0]
    without = re.sub(rf"(?<![\w.]){trainer}\((?:[^()]|\([^()]*\))*\)", "", _NOT_A_NAME.sub("", loading.text))
    without = re.sub(rf"\bself\.\w+\s*=\s*{load.bound}\b|(?m:^[ \t]*def [^\n]*$)", "", without)
    return re.search(rf"(?<![\w.]){load.bound}\b(?![ \t]*(?:=(?!=)|[.(]))", without) is not None


def _without_pipelines(text: str) -> str:
    """A program without its calls of diffusers' pipelines, which only use the models that they get: they give none an engine.

    The arguments may have calls, with one pair of brackets. A pipeline of the project may be a model that gets an engine.
    """
    names = {name for found in _FROM_DIFFUSERS.finditer(text) for name in _PIPELINE_NAME.findall(found[1])}
    called = "|".join([r"diffusers\.\w*Pipeline", *map(re.escape, sorted(names))])
    return re.sub(rf"(?<![\w.])(?:{called})(?:\.from_pretrained)?\((?:[^()]|\([^()]*\))*\)", "", text)


def _gets_engine_in_pipeline(load: Event, program: Program) -> bool:
    """Whether the program gives an engine to the model as an attribute of the pipeline that it is in: `prepare(pipeline.text_encoder)`."""
    given = (one for event in program.events.of(PREPARE) for one in event.arguments.values())
    return any(one.raw.endswith(f".{load.bound}") for one in given)


def _is_quantized(load: Event) -> bool:
    """Whether a model may be loaded quantized: transformers does not divide such a one."""
    return not load.complete or any(name.startswith(("load_in_", "quantization_config")) for name in load.arguments)


@rule(
    "DS997",
    effect=Effect.CRASH,
    phase=Phase.STEP,
    watches=("setup",),
    references=(
        "deepspeed/runtime/zero/partition_parameters.py, Init; parameter_offload.py: the hooks that gather weights are those of an engine",
        "https://github.com/huggingface/diffusers/issues/1865",
    ),
    untried="requires a program with two models, and the loader that tells transformers of the config",
    setup=True,
)
@bad(
    _STAGE_3,
    at="",
    program=f"{_TEACHER}for batch in loader:\n    target = teacher(**batch)\n",
    accelerate=_DIVIDES,
    message="train.py:5 loads a model that never gets an engine, and train.py:8 calls it: at ZeRO stage 3 transformers divides its weights among the ranks as they are loaded, and nothing gathers them, so the forward pass may raise \"'weight' must be 2-D\".",
)
@bad(
    _STAGE_3,
    at="",
    program=f"{_TEACHER}target = teacher(**batch)\n",
    accelerate=_DIVIDES.replace("true", "false"),
    loader_release=Release(1, 9, 0),
    message="train.py:5 loads a model that never gets an engine, and train.py:7 calls it: at ZeRO stage 3 transformers divides its weights among the ranks as they are loaded, and nothing gathers them, so the forward pass may raise \"'weight' must be 2-D\".",
)
@bad(
    _STAGE_3,
    at="",
    program="from diffusers import StableDiffusionPipeline\n"
    f"{_TEACHER}# Freeze the teacher\ntarget = teacher(**batch)\nStableDiffusionPipeline.from_pretrained('a', text_encoder=teacher)\n",
    accelerate=_DIVIDES,
    message="train.py:6 loads a model that never gets an engine, and train.py:9 calls it: at ZeRO stage 3 transformers divides its weights among the ranks as they are loaded, and nothing gathers them, so the forward pass may raise \"'weight' must be 2-D\".",
)
@bad(
    _STAGE_3,
    at="",
    program=_ENCODING,
    accelerate=_DIVIDES,
    message="train.py:4 loads a pipeline whose text encoder gets no engine, and train.py:5 calls it: at ZeRO stage 3 transformers divides the weights of the encoder among the ranks as they are loaded, and nothing gathers them, so it may raise \"'weight' must be 2-D\".",
)
@good(_STAGE_3, program=_ENCODING.replace("transformer=None", "text_encoder=None"), accelerate=_DIVIDES)
@good(
    _STAGE_3,
    program=_ENCODING.replace("accelerator = Accelerator()\n", "").replace("\nmodel, ", "\naccelerator = Accelerator()\nmodel, "),
    accelerate=_DIVIDES,
)
@bad(
    _STAGE_3,
    at="",
    program=_DISTILLING,
    integration="transformers",
    message="train.py:10 loads a model that never gets an engine, and train.py:7 calls it: at ZeRO stage 3 transformers divides its weights among the ranks as they are loaded, and nothing gathers them, so the forward pass may raise \"'weight' must be 2-D\".",
)
@good(
    _GATHERING,
    program=_DISTILLING.replace(
        "Distilling(AutoModelForCausalLM.from_pretrained('small'),",
        "student = AutoModelForCausalLM.from_pretrained('small')\nstudent.teacher = teacher\nDistilling(student,",
    ),
    integration="transformers",
)
@good(
    _GATHERING,
    program=_DISTILLING.replace("self.teacher = teacher", "self.teacher = prepare_deepspeed(teacher, 8)"),
    integration="transformers",
)
@good(
    _STAGE_3, program=f"{_TEACHER}target = teacher(**batch)\nwrapped = Distillation(student, text_encoder=teacher)\n", accelerate=_DIVIDES
)
@good(
    _STAGE_3,
    program=f"from own import TrainPipeline\n{_TEACHER}target = teacher(**batch)\nboth = accelerator.prepare(TrainPipeline(student, teacher))\n",
    accelerate=_DIVIDES,
)
@good(
    _STAGE_3,
    program=f"from diffusers import StableDiffusionPipeline\n{_TEACHER}pipe = StableDiffusionPipeline.from_pretrained('a', teacher=teacher)\n"
    "prepared = accelerator.prepare(pipe.teacher)\ntarget = teacher(**batch)\n",
    accelerate=_DIVIDES,
)
@bad(
    _STAGE_3,
    at="",
    program=f"{_TEACHER}def compare(student, teacher):\n    return accelerator.unwrap_model(teacher)(**batch)\ntarget = teacher(**batch)\ncompare(student, teacher)\n",
    accelerate=_DIVIDES,
    message="train.py:5 loads a model that never gets an engine, and train.py:9 calls it: at ZeRO stage 3 transformers divides its weights among the ranks as they are loaded, and nothing gathers them, so the forward pass may raise \"'weight' must be 2-D\".",
)
@good(
    _STAGE_3,
    program=f"{_TEACHER}def prepared(other, model):\n    return accelerator.prepare(model)\nteacher = prepared(student, teacher)\ntarget = teacher(**batch)\n",
    accelerate=_DIVIDES,
)
@good(_STAGE_3, program=f"{_SWITCHED_OFF}target = teacher(**batch)\n", accelerate=_DIVIDES)
@good(_STAGE_3, program=f"{_TEACHER}student.teacher = teacher\ntarget = teacher(**batch)\n", accelerate=_DIVIDES)
@good(_STAGE_2, program=f"{_TEACHER}for batch in loader:\n    target = teacher(**batch)\n", accelerate=_DIVIDES)
@good(
    _STAGE_3,
    program=f"{_TWO}student, optimizer, loader = accelerator.prepare(student, optimizer, loader)\n"
    "teacher = accelerator.prepare(teacher)\ntarget = teacher(**batch)\n",
    accelerate=_DIVIDES,
    loader_release=Release(1, 9, 0),
)
@good(
    _STAGE_3,
    program="import deepspeed\n"
    + _TEACHER
    + "with deepspeed.zero.GatheredParameters(teacher.parameters()):\n    target = teacher(**batch)\n",
    accelerate=_DIVIDES,
)
@good(_STAGE_3, program=_TEACHER + "target = teacher.config\n", accelerate=_DIVIDES)
@good(_STAGE_3, program=f"{_TEACHER}target = teacher(**batch)\n", accelerate=_DIVIDES.replace("true", "false"))
@good(
    _STAGE_3,
    program=f"{_TEACHER}target = teacher(**batch)\n",
    accelerate=_DIVIDES.replace("true", "false"),
    loader_release=Release(0, 34, 0),
)
@good(
    _STAGE_3,
    program=_TEACHER.replace('from_pretrained("large"', 'from_pretrained("large", quantization_config=settings')
    + "target = teacher(**batch)\n",
    accelerate=_DIVIDES,
)
@good(
    _STAGE_3,
    program="from transformers.integrations.deepspeed import unset_hf_deepspeed_config\n"
    + _TEACHER.replace("teacher = ", "unset_hf_deepspeed_config()\nteacher = ")
    + "target = teacher(**batch)\n",
    accelerate=_DIVIDES,
)
def model_outside_the_engine(config: Config) -> Iterator[Finding]:
    """The program calls a second model that ZeRO stage 3 has divided, and that no engine gathers.

    Once transformers knows the config, it builds each of its models inside `deepspeed.zero.Init`: a teacher, a reference model or a text
    encoder, too. Only the hooks of an engine gather the weights for the forward pass. A model that is only moved to the device has weights of
    the size 0, and its layers raise "'weight' must be 2-D", or another error about the shape. So do the text encoders that a pipeline of
    diffusers loads.

    Load it before the program creates the `Accelerator` (or `HfDeepSpeedConfig`), or give it an engine of its own. `zero3_init_flag: false`
    and `zero3_init_context_manager(enable=False)` switch zero.Init off only before Accelerate 1.0.0. Where the config is not known, dslint says
    it of programs for Accelerate.
    """
    program = config.setup.program if config.setup else None
    is_known = config.document.root is not None
    of_accelerate = config.facts.integration is Integration.ACCELERATE
    if program is None or not (config.value(STAGE) >= 3 if is_known else of_accelerate):
        return
    if any(program.events.of(r"(.*\.)?unset_hf_deepspeed_config")):
        return  # transformers forgets the config
    by_trainer = config.facts.integration is Integration.TRANSFORMERS
    told = telling(config, program) if not by_trainer else None
    if not is_known:  # each Accelerator tells transformers of a config for stage 3
        told = next((one.start for one in program.events.of(r"accelerate\.(\w+\.)?Accelerator") if one.certain), None)
    places = [event.start for event in program.events.all]
    if program.loaded_early is not None if by_trainer else told not in places:
        return
    later = program.events.all[places.index(told) if told is not None else 0 :]
    if not by_trainer and is_known:
        yield from _pipelines_outside(later, program)
    others = (event for event in program.events.all if not _PIPELINE.fullmatch(event.name) and not event.name.endswith(".unwrap_model"))
    passed_on = {one.origin for event in others for one in event.arguments.values()}
    for load in later:
        if (
            not _DIVIDED.fullmatch(load.name)
            or load.within
            or load.start in passed_on
            or load.tells_setups_apart
            or _is_quantized(load)
            or not (by_trainer or _is_only_called(load, config))
            or _gets_engine_in_pipeline(load, program)
            or not (load.certain or load.likely)
        ):
            continue
        calls = (
            event
            for event in program.events.all
            if event.origin == load.start and event.name.endswith(_FORWARD) and (not by_trainer or event.function.endswith(_IN_TRAINING))
        )
        call = next((event for event in calls if not event.tells_setups_apart and not any("Gather" in one for one in event.within)), None)
        if call is not None and not (by_trainer and _may_get_engine(load, call, config)):
            at_stage = "at ZeRO stage 3" if is_known else "if the config is for ZeRO stage 3,"
            yield Finding(
                "",
                f"{load.at.where} loads a model that never gets an engine, and {call.at.where} calls it: {at_stage} transformers divides "
                "its weights among the ranks as they are loaded, and nothing gathers them, so the forward pass may raise \"'weight' must be "
                '2-D".',
                help="Load it before transformers knows the config, or give it an engine of its own.",
                elsewhere=load.at.related(""),
                related=(call.at.related("called here"),),
                certain=False,
            )
            return
