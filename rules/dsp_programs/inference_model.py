"""DSP: models for inference that a program loads beside the training, and whose weights ZeRO stage 3 divides."""

from __future__ import annotations

import re
from collections.abc import Iterator

from dslint.config import Config
from dslint.diagnostics import Effect, Phase
from dslint.facts import Integration, Release
from dslint.frameworks.whole_load import accelerate_tells
from dslint.job.events import ENGINE, Event
from dslint.job.model import Program
from dslint.rule import Finding, bad, good, rule
from dslint.rules.helpers.examples import trained
from dslint.rules.helpers.loaders import RAISED_BY_LOADER
from dslint.rules.helpers.models import telling
from dslint.rules.helpers.prepare import PREPARE
from dslint.rules.helpers.zero import STAGE

_STAGE_3 = (
    '{"train_micro_batch_size_per_gpu": "auto", "zero_optimization": {"stage": 3, "stage3_gather_16bit_weights_on_model_save": true}}'
)
_TRAINED = trained('"zero_optimization": {"stage": 3}')
_STAGE_2 = _STAGE_3.replace('"stage": 3', '"stage": 2')
_JUDGED = (
    "from transformers import AutoModelForCausalLM, Trainer, TrainingArguments, pipeline\n%s"
    "judge = pipeline('text-classification', model='judge')\n%s"
    "class Judged(Trainer):\n    def compute_loss(self, model, inputs, return_outputs=False, **kwargs):\n"
    "        return model(**inputs).loss * judge('text')[0]['score']\n"
    "Judged(AutoModelForCausalLM.from_pretrained('m'), arguments).train()\n"
)
_ARGUMENTS = "arguments = TrainingArguments('out', deepspeed='ds_config.json')\n"
_ENCODED = (
    "import deepspeed\nfrom sentence_transformers import SentenceTransformer\nfrom transformers import AutoModel\n"
    "from transformers.integrations import HfDeepSpeedConfig\nkept = HfDeepSpeedConfig('ds_config.json')\n"
    "encoder = SentenceTransformer('all-MiniLM-L6-v2')\nmodel = AutoModel.from_pretrained('m')\n"
    "engine, *_ = deepspeed.initialize(model=model, model_parameters=model.parameters(), config='ds_config.json')\n"
    "for batch in loader:\n    target = encoder.encode(batch)\n    engine.backward(engine(batch, target).loss)\n    engine.step()\n"
)
_OWN = (
    "import torch\nfrom accelerate import Accelerator\nfrom transformers import AutoModelForCausalLM, pipeline\naccelerator = Accelerator()\n"
    "model = AutoModelForCausalLM.from_pretrained('m')\njudge = pipeline('text-classification', 'judge', device=accelerator.device)\n"
    "model, optimizer = accelerator.prepare(model, torch.optim.AdamW(model.parameters()))\n"
    "for batch in loader:\n    accelerator.backward(model(**batch).loss * judge(batch)[0]['score'])\n    optimizer.step()\n"
)
_MICRO_4 = _STAGE_3.replace('"auto"', "4")
_DIVIDES = "distributed_type: DEEPSPEED\ndeepspeed_config:\n  deepspeed_config_file: ds_config.json\n  zero3_init_flag: %s\n"


@rule(
    "DSP09",
    effect=Effect.CRASH,
    phase=Phase.LATER,
    watches=("setup",),
    references=(
        "transformers/modeling_utils.py, PreTrainedModel.get_init_context: is_deepspeed_zero3_enabled",
        "deepspeed/runtime/zero/parameter_offload.py: the hooks that gather weights are those of an engine",
        "https://github.com/huggingface/trl/issues/669",
    ),
    untried=RAISED_BY_LOADER,
    setup=True,
)
@bad(
    _STAGE_3,
    at="",
    program=_JUDGED % (_ARGUMENTS, ""),
    integration="transformers",
    message="train.py:3 loads a model with pipeline when transformers knows of ZeRO stage 3: its weights are divided among the ranks as they are loaded, and no engine gathers them. train.py:6 calls it, which may raise \"'weight' must be 2-D\".",
)
@bad(
    _TRAINED,
    at="",
    program=_ENCODED,
    integration="deepspeed",
    message="train.py:6 loads a model with SentenceTransformer when transformers knows of ZeRO stage 3: its weights are divided among the ranks as they are loaded, and no engine gathers them. train.py:10 calls it, which may raise \"'weight' must be 2-D\".",
)
@bad(
    _MICRO_4,
    at="",
    program=_OWN,
    accelerate=_DIVIDES % "true",
    message="train.py:6 loads a model with pipeline when transformers knows of ZeRO stage 3: its weights are divided among the ranks as they are loaded, and no engine gathers them. train.py:9 calls it, which may raise \"'weight' must be 2-D\".",
)
@good(_STAGE_2, program=_JUDGED % (_ARGUMENTS, ""), integration="transformers")
@good(_STAGE_3, program=_JUDGED % ("", _ARGUMENTS), integration="transformers")
@good(
    _STAGE_3,
    program=(_JUDGED % (_ARGUMENTS, "")).replace("model='judge'", "model=whole, tokenizer=tokenizer"),
    integration="transformers",
)
@good(_TRAINED, program=_ENCODED.replace("kept = HfDeepSpeedConfig('ds_config.json')\n", ""), integration="deepspeed")
@good(_TRAINED, program=_ENCODED.replace("encoder.encode(batch)", "encoder.get_sentence_embedding_dimension()"), integration="deepspeed")
@good(
    _MICRO_4,
    program=_OWN.replace(
        "loader:\n", "loader:\n    with deepspeed.zero.GatheredParameters(judge.model.parameters()):\n        s = judge(batch)\n"
    )
    .replace(" * judge(batch)[0]['score']", "")
    .replace("import torch\n", "import torch\nimport deepspeed\n"),
    accelerate=_DIVIDES % "true",
)
@good(_MICRO_4, program=_OWN, accelerate=_DIVIDES % "false", loader_release=Release(0, 34, 0))
@good(
    _STAGE_3,
    program=_OWN.replace(
        "model, optimizer = accelerator.prepare(model, ", "judged, model, optimizer = accelerator.prepare(judge.model, model, "
    ),
    accelerate=_DIVIDES % "true",
)
def inference_model_divided(config: Config) -> Iterator[Finding]:
    """At ZeRO stage 3 the program loads a model for inference, with a `pipeline` for example, that no engine gathers.

    Once transformers knows that the config is for stage 3, each model that it loads is divided among the ranks: also the one that `pipeline`,
    or `SentenceTransformer` and `CrossEncoder` of sentence-transformers, loads for a reward, a judge or a measure. Only the engine of
    DeepSpeed gathers weights, and this model has none. Its first layer finds weights of the shape [0], and raises
    "'weight' must be 2-D".

    Load it before the program makes the TrainingArguments, the Accelerator or the HfDeepSpeedConfig, or serve it from a process of its own.
    `zero3_init_flag: false` helps only before Accelerate 1.0.0, and so does `zero3_init_context_manager(enable=False)` of TRL and Accelerate.
    """
    program = config.setup.program if config.setup else None
    of_accelerate, of_trainer = (config.facts.integration is one for one in (Integration.ACCELERATE, Integration.TRANSFORMERS))
    is_known = config.document.root is not None
    if program is None or not (config.value(STAGE) >= 3 if is_known else of_accelerate):
        return
    if any(program.events.of(r"(.*\.)?unset_hf_deepspeed_config")):
        return
    told = _told(config, program, of_trainer=of_trainer)
    places = [event.start for event in program.events.all]
    if told not in places:
        return
    when = "when transformers knows of ZeRO stage 3" if is_known else "when transformers knows the config: at ZeRO stage 3"
    given = [one.raw for event in program.events.of(PREPARE, re.escape(ENGINE)) for one in event.arguments.values()]
    for load in program.events.all[places.index(told) :]:
        if not _LOADS.fullmatch(load.name) or not _is_by_name(load) or load.within:
            continue
        if load.bound and any(re.match(rf"(self\.)?{load.bound}\b", one) for one in given):
            continue  # its model gets an engine
        call = next(
            (
                one
                for one in program.events.all
                if one.origin == load.start and one.name.endswith(_CALLS) and not any("Gather" in around for around in one.within)
            ),
            None,
        )
        if call is None or load.tells_setups_apart or call.tells_setups_apart or load.unlikely:
            continue
        yield Finding(
            "",
            f"{load.at.where} loads a model with {load.name.rpartition('.')[2]} {when}{':' if is_known else ''} its weights are divided among the "
            f"ranks as they are loaded, and no engine gathers them. {call.at.where} calls it, which may raise \"'weight' must be 2-D\".",
            help="Load it before transformers knows the config, or in a process of its own.",
            elsewhere=load.at.related(""),
            related=(call.at.related("called here"),),
            certain=False,
        )
        return


_LOADS = re.compile(r"transformers\.(\w+\.)*pipeline|sentence_transformers\.(\w+\.)*(SentenceTransformer|CrossEncoder)")
"""What loads a model of transformers within, whose `from_pretrained` divides it."""
_CALLS = (".__call__", ".encode", ".predict", ".rank")


def _is_by_name(load: Event) -> bool:
    """Whether a call names the model, or leaves it to the task, instead of getting one that is loaded already; and loads it as it is."""
    is_pipeline = load.name.endswith("pipeline")
    given = load.argument("model", 1) if is_pipeline else load.argument("model_name_or_path", 0)
    is_name = given is None if is_pipeline else False
    is_name = is_name or (given is not None and not given.made and (isinstance(given.value, str) or _NAMED.search(given.raw) is not None))
    return is_name and load.complete and "model_kwargs" not in load.arguments and "device_map" not in load.arguments


_NAMED = re.compile(r"name|path|model_id", re.IGNORECASE)


def _told(config: Config, program: Program, *, of_trainer: bool) -> int | None:
    """The place of the call from which on transformers knows the config."""
    if of_trainer:
        first = next(program.events.of(r"transformers\.(\w+\.)*(\w*TrainingArguments|Hf\w*DeepSpeedConfig)|trl\.(\w+\.)*\w+Config"), None)
        return first.start if first is not None and program.loaded_early is None else None
    told = telling(config, program)
    if told is None and config.facts.integration is Integration.ACCELERATE and accelerate_tells(config) is not False:
        makers = program.events.of(r"accelerate\.(\w+\.)?Accelerator|trl\.(\w+\.)*PPOTrainer")
        told = next((one.start for one in makers if one.certain), None)
    return told
