"""DS9: calls in a program that their library refuses with DeepSpeed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from dslint.config import UNKNOWN, Config
from dslint.diagnostics import Effect, Phase
from dslint.facts import Integration, Release
from dslint.job.events import Event
from dslint.record import Record
from dslint.rule import Finding, bad, good, rule
from dslint.rules.helpers.loaders import HUGGING_FACE, RAISED_BY_LOADER
from dslint.rules.helpers.prepare import PREPARE
from dslint.rules.helpers.project import calls_itself, programs_of
from dslint.rules.helpers.releases import allows_newest, is_between, release_of
from dslint.rules.helpers.trainer_arguments import trainers
from dslint.rules.helpers.trl_arguments import configs
from dslint.rules.helpers.zero import STAGE
from dslint.source.similar import similar


class RefusedCall(Record):
    """A call that raises `error` with DeepSpeed from a ZeRO stage on, if one of `loaders` loads the config.

    With `argument` only a call with this argument does.
    """

    pattern: str
    library: str
    loaders: tuple[Integration, ...]
    error: str
    help: str
    stage: int = 0
    argument: str = ""


_LIGHTNING = r"(lightning\.pytorch|pytorch_lightning)\.callbacks\.(\w+\.)?"

CLIPPING = RefusedCall(
    r"accelerate\.(\w+\.)?Accelerator\.clip_grad_value_",
    "Accelerate",
    (Integration.ACCELERATE,),
    "DeepSpeed and FSDP do not support `clip_grad_value_`. Use `clip_grad_norm_` instead.",
    "Set gradient_clipping in the config, and remove the call.",
)

PLACEMENT = RefusedCall(
    PREPARE,
    "Accelerate",
    (Integration.ACCELERATE,),
    "You can't customize device placements with DeepSpeed or Megatron-LM.",
    "Remove device_placement, or pass it only without DeepSpeed.",
    argument="device_placement",
)

REFUSED = (
    RefusedCall(
        r"trl\.(\w+\.)*create_reference_model",
        "TRL",
        HUGGING_FACE,
        "DeepSpeed ZeRO-3 is enabled and is not compatible with `create_reference_model()`.",
        "Load the reference model with from_pretrained, or use ZeRO stage 2.",
        stage=3,
    ),
    RefusedCall(
        rf"{_LIGHTNING}BackboneFinetuning",
        "Lightning",
        (Integration.LIGHTNING,),
        "The Finetuning callback does not support running with the DeepSpeed strategy.",
        "Freeze the layers in the LightningModule, or choose another strategy.",
    ),
    RefusedCall(
        rf"{_LIGHTNING}StochasticWeightAveraging",
        "Lightning",
        (Integration.LIGHTNING,),
        "SWA does not currently support sharded models.",
        "Remove the callback, or choose another strategy.",
    ),
)

_NEWEST_READ = Release(1, 15, 0)
"""The newest release of Accelerate whose arguments are below."""

_OF_PLUGIN = (
    "gradient_accumulation_steps zero_stage is_train_batch_min offload_optimizer_device hf_ds_config gradient_clipping offload_param_device "
    "zero3_init_flag zero3_save_16bit_model offload_optimizer_nvme_path offload_param_nvme_path transformer_moe_cls_names enable_msamp "
    "msamp_opt_level"
)
_OF_ACCELERATOR = (
    "device_placement split_batches cpu rng_types kwargs_handlers deepspeed_plugin mixed_precision fsdp_plugin log_with "
    "step_scheduler_with_optimizer gradient_accumulation_steps megatron_lm_plugin dynamo_backend project_dir project_config "
    "gradient_accumulation_plugin dataloader_config deepspeed_plugins dynamo_plugin torch_tp_plugin parallelism_config"
)
_REMOVED: Mapping[str, tuple[Release, str]] = {
    "fp16": (Release(0, 16, 0), 'Write mixed_precision="fp16".'),
    "logging_dir": (Release(0, 20, 0), "Write project_dir."),
    "dispatch_batches": (Release(1, 0, 0), "Pass it to DataLoaderConfiguration, as dataloader_config."),
    "even_batches": (Release(1, 0, 0), "Pass it to DataLoaderConfiguration, as dataloader_config."),
    "use_seedable_sampler": (Release(1, 0, 0), "Pass it to DataLoaderConfiguration, as dataloader_config."),
}
"""Arguments that `Accelerator` had, with the first release without them, and what to write instead."""

_ARGUMENTS: Mapping[str, tuple[str, frozenset[str], Mapping[str, tuple[Release, str]]]] = {
    "DeepSpeedPlugin": (
        r"accelerate\.(\w+\.)*DeepSpeedPlugin",
        frozenset(_OF_PLUGIN.split()),
        {"auto_opt_mapping": (Release(0, 10, 0), "Remove it.")},
    ),
    "Accelerator": (r"accelerate\.(\w+\.)?Accelerator", frozenset((*_OF_ACCELERATOR.split(), "ipex_plugin")), _REMOVED),
}
"""By class: the pattern of its name, the arguments of all releases of Accelerate, and the removed ones. From the tagged sources."""

_STAGE_2 = '{"train_micro_batch_size_per_gpu": 4, "gradient_accumulation_steps": 1, "zero_optimization": {"stage": 2}}'
_STAGE_3 = _STAGE_2.replace('"stage": 2', '"stage": 3')
_ACCELERATE = "from accelerate import Accelerator\naccelerator = Accelerator()\nmodel, optimizer, loader = accelerator.prepare(model, optimizer, loader)\n"
_PLUGIN = (
    "from accelerate import Accelerator, DeepSpeedPlugin\nplugin = DeepSpeedPlugin(%s)\naccelerator = Accelerator(deepspeed_plugin=plugin)\n"
    "model, optimizer, loader = accelerator.prepare(model, optimizer, loader)\n"
)
_LENGTH = (
    "from trl import SFTConfig, SFTTrainer\narguments = SFTConfig('out', deepspeed='ds_config.json', %s=2048)\n"
    "SFTTrainer('m', arguments, train_dataset=data).train()\n"
)
_TRAINS = (
    "from transformers import TrainingArguments\nfrom transformers import Trainer\n"
    'arguments = TrainingArguments("out", deepspeed="ds_config.json")\n'
    "trainer = Trainer(model=model, args=arguments, %s)\ntrainer.train()\n"
)
_REFERENCE = (
    "from transformers import AutoModelForCausalLM\nfrom trl import create_reference_model\n"
    'model = AutoModelForCausalLM.from_pretrained("m")\nreference = create_reference_model(model)\n'
)
_REFERENCE_GIVEN = (
    "from own import load\nfrom transformers import AutoModelForCausalLM, Trainer, TrainingArguments\nfrom trl import create_reference_model\n"
    "class Pairs(Trainer):\n    def __init__(self, model, args, ref_model=None):\n        super().__init__(model, args)\n"
    "        if ref_model:\n            self.ref_model = ref_model\n        else:\n            self.ref_model = create_reference_model(model)\n"
    "args = TrainingArguments('out', deepspeed='ds_config.json')\nmodel = AutoModelForCausalLM.from_pretrained('m')\n"
    "Pairs(model, args%s).train()\n"
)
_BY_FLAG = (
    "import argparse\nfrom transformers import AutoModelForCausalLM\nfrom trl import create_reference_model\n"
    "parser = argparse.ArgumentParser()\nparser.add_argument('--share', action='store_true')\noptions = parser.parse_args()\n"
    "model = AutoModelForCausalLM.from_pretrained('m')\nif options.share:\n    reference = create_reference_model(model)\n"
    "else:\n    reference = AutoModelForCausalLM.from_pretrained('m')\n"
)


@rule(
    "DS983",
    effect=Effect.CRASH,
    phase=Phase.LOAD,
    watches=("setup",),
    references=(
        "trl/models/utils.py, create_reference_model",
        "accelerate/accelerator.py, Accelerator.prepare and Accelerator.__init__",
        "accelerate/utils/dataclasses.py, DeepSpeedPlugin",
        "transformers/trainer.py, Trainer.__init__ of 4.45.2, 4.46.0 and 5.0.0",
        "trl/trainer/sft_trainer.py, SFTTrainer.__init__ of 0.12.0, 0.13.0 and 0.16.0",
        "lightning/pytorch/callbacks/finetuning.py, BaseFinetuning.setup",
        "lightning/pytorch/callbacks/stochastic_weight_avg.py, StochasticWeightAveraging.setup",
    ),
    untried=RAISED_BY_LOADER,
    anywhere=True,
    setup=True,
)
@bad(
    _STAGE_3,
    at="",
    program=_REFERENCE,
    integration="transformers",
    message='train.py:4 calls create_reference_model at ZeRO stage 3: TRL may raise "DeepSpeed ZeRO-3 is enabled and is not compatible with `create_reference_model()`.".',
)
@bad(
    _STAGE_2,
    at="",
    program="from accelerate import Accelerator\naccelerator = Accelerator()\nmodel = accelerator.prepare(model, device_placement=[False])\n",
    integration="accelerate",
    message='train.py:3 calls prepare with device_placement: Accelerate raises "You can\'t customize device placements with DeepSpeed or Megatron-LM.".',
)
@good(
    _STAGE_2,
    program="from accelerate import Accelerator, DistributedType\naccelerator = Accelerator()\nplacement = None\n"
    "if accelerator.distributed_type != DistributedType.DEEPSPEED:\n    placement = [False]\n"
    "model = accelerator.prepare(model, device_placement=placement)\n",
    integration="accelerate",
)
@bad(
    _STAGE_2,
    at="",
    program=_PLUGIN % "\n    hf_ds_config='ds_config.json',\n    gradient_accumulation_step=8,\n",
    integration="accelerate",
    message="train.py:2 calls DeepSpeedPlugin with gradient_accumulation_step: Python raises TypeError \"DeepSpeedPlugin.__init__() got an unexpected keyword argument 'gradient_accumulation_step'\".",
)
@bad(
    _STAGE_2,
    at="",
    program=_PLUGIN.replace("Accelerator(", "Accelerator(fp16=True, ") % "hf_ds_config='ds_config.json'",
    integration="accelerate",
    message="train.py:3 calls Accelerator with fp16, which Accelerate 0.16.0 removed: Python may raise TypeError \"Accelerator.__init__() got an unexpected keyword argument 'fp16'\".",
)
@bad(
    _STAGE_2,
    at="",
    program=_TRAINS % "tokenizer=tokenizer",
    integration="transformers",
    pins={"transformers": Release(5, 0, 0)},
    message="train.py:4 calls Trainer with tokenizer, which transformers 5.0.0 does not take: Python raises TypeError \"Trainer.__init__() got an unexpected keyword argument 'tokenizer'\".",
)
@bad(
    _STAGE_2,
    at="",
    program=(_TRAINS % "max_seq_length=1024")
    .replace("transformers import Trainer", "trl import SFTTrainer")
    .replace(" Trainer(", " SFTTrainer("),
    integration="transformers",
    pins={"trl": Release(0, 14, 0)},
    message="train.py:4 calls SFTTrainer with max_seq_length, which trl 0.14.0 does not take: Python raises TypeError \"SFTTrainer.__init__() got an unexpected keyword argument 'max_seq_length'\".",
)
@bad(
    _STAGE_2,
    at="",
    program=_LENGTH % "max_seq_length",
    integration="transformers",
    pins={"trl": Release(0, 20, 0)},
    message="train.py:2 calls SFTConfig with max_seq_length, which trl 0.20.0 does not take: Python raises TypeError \"SFTConfig.__init__() got an unexpected keyword argument 'max_seq_length'\".",
)
@good(_STAGE_2, program=_LENGTH % "max_seq_length", integration="transformers", pins={"trl": Release(0, 19, 1)})
@good(_STAGE_2, program=_LENGTH % "max_length", integration="transformers", pins={"trl": Release(0, 20, 0)})
@good(_STAGE_2, program=_LENGTH % "max_seq_length", integration="transformers")
@good(_STAGE_2, program=_TRAINS % "tokenizer=tokenizer", integration="transformers", pins={"transformers": Release(4, 57, 1)})
@good(_STAGE_2, program=_TRAINS % "tokenizer=tokenizer", integration="transformers")
@good(
    _STAGE_2,
    program="import unsloth\n" + _TRAINS % "tokenizer=tokenizer",
    integration="transformers",
    pins={"transformers": Release(5, 0, 0)},
)
@good(_STAGE_2, program=_REFERENCE, integration="transformers")
@good(_STAGE_3.replace("3}", '3, "stage3_gather_16bit_weights_on_model_save": true}'), program=_BY_FLAG, integration="transformers")
@good(_STAGE_2, program=_ACCELERATE, integration="accelerate")
@good(
    _STAGE_2,
    program="from accelerate import Accelerator\nclass Mine(Accelerator):\n    name: str = ''\naccelerator = Mine(name='a')\n"
    "model = accelerator.prepare(model)\n",
    integration="accelerate",
)
@good(_STAGE_2, program=_PLUGIN % "hf_ds_config='ds_config.json', zero3_init_flag=True", integration="accelerate")
@good(
    _STAGE_3.replace('"stage": 3', '"stage": 3, "stage3_gather_16bit_weights_on_model_save": true'),
    program=_REFERENCE_GIVEN % ", load()",
    integration="transformers",
)
@bad(
    _STAGE_3,
    at="",
    program=_REFERENCE_GIVEN % "",
    integration="transformers",
    message='train.py:10 calls create_reference_model at ZeRO stage 3: TRL may raise "DeepSpeed ZeRO-3 is enabled and is not compatible with `create_reference_model()`.".',
)
def call_refused(config: Config) -> Iterator[Finding]:
    """A program makes a call that its library refuses with DeepSpeed.

    TRL raises at ZeRO stage 3 for `create_reference_model` once transformers knows the config, Lightning for the callbacks `BackboneFinetuning` and
    `StochasticWeightAveraging`, and Accelerate for the argument `device_placement` of `prepare`. Python raises `TypeError` where a program calls
    `DeepSpeedPlugin` or `Accelerator` with an argument that no release has, or that the installed one lacks, and a trainer of transformers or TRL
    with one that the release of the project does not take: `tokenizer` became `processing_class`, TRL 0.13 left many to the config, and
    the config of SFT has `max_length` since TRL 0.20, no longer `max_seq_length`.

    Correct the argument, or remove the call, or make it only where the training runs without DeepSpeed.
    """
    for refused in REFUSED:
        yield from _found(config, refused, sure=False)  # TRL must know the config by then, and Lightning's Trainer get the callback
    yield from _found(config, PLACEMENT, sure=True)
    yield from _unknown_arguments(config)
    yield from _arguments_of_other_releases(config)


def _unknown_arguments(config: Config) -> Iterator[Finding]:
    """The arguments that a class of Accelerate does not have."""
    program, release = config.setup.program if config.setup else None, release_of(config, "accelerate")
    if program is None or (release is not None and release > _NEWEST_READ):
        return
    for kind, (pattern, known, removed) in _ARGUMENTS.items():
        for event in program.events.of(pattern):
            names = [one for one in event.arguments if not one.isdecimal() and one not in known]
            # a class of the project that extends it has arguments of its own
            if not names or event.unlikely or event.tells_setups_apart or not calls_itself(config, event, kind):
                continue
            name = names[0]
            gone, advice = removed.get(name, (None, ""))
            if gone is not None and release is not None and release < gone:
                continue
            close = next(iter(similar(name, known)), None)
            certain = event.always and (gone is None or release is not None)
            yield Finding(
                "",
                f"{event.at.where} calls {kind} with {name}{f', which Accelerate {gone} removed' if gone else ''}: Python "
                f"{'raises' if certain else 'may raise'} TypeError \"{kind}.__init__() got an unexpected keyword argument '{name}'\".",
                help=advice
                or (f'Did you mean "{close}"?' if close else "Remove it: keys of a config belong into the config, as hf_ds_config."),
                elsewhere=event.at.related(""),
                certain=certain,
            )


def _arguments_of_other_releases(config: Config) -> Iterator[Finding]:
    """The arguments of a trainer, or of its config, that the release of its library does not take, or the newest one that the project allows."""
    program = config.setup.program if config.setup else None
    if program is None or any("unsloth" in text for text in programs_of(config)):  # which takes the arguments of older releases
        return
    for library, pattern, kind, arguments in (*trainers(), *configs()):
        pinned = release_of(config, library)
        allows = pinned is None and allows_newest(config, library)
        for event in program.events.of(pattern) if pinned is not None or allows else ():
            if event.unlikely or not calls_itself(config, event, kind):
                continue
            for name in (one for one in event.arguments if one in arguments):
                taken = arguments[name]
                if taken.last is not None if pinned is None else not is_between(pinned, taken.first, taken.last):
                    continue
                which = f"{library} {pinned} does" if pinned is not None else f"{library} {taken.first} and later do"
                certain = event.always and pinned is not None
                yield Finding(
                    "",
                    f"{event.at.where} calls {kind} with {name}, which {which} not take: Python {'raises' if certain else 'may raise'} TypeError "
                    f"\"{kind}.__init__() got an unexpected keyword argument '{name}'\".",
                    help=taken.help,
                    elsewhere=event.at.related(""),
                    certain=certain,
                )
                break


@rule(
    "DS984",
    effect=Effect.CRASH,
    phase=Phase.STEP,
    watches=("setup",),
    references=("accelerate/accelerator.py, Accelerator.clip_grad_value_",),
    untried=RAISED_BY_LOADER,
    setup=True,
)
@bad(
    _STAGE_2,
    at="",
    program=f"{_ACCELERATE}for batch in loader:\n    accelerator.backward(model(batch)[0])\n    accelerator.clip_grad_value_(model.parameters(), 1.0)\n",
    integration="accelerate",
    message='train.py:6 calls clip_grad_value_: Accelerate raises "DeepSpeed and FSDP do not support `clip_grad_value_`. Use `clip_grad_norm_` instead.".',
)
@good(
    _STAGE_2,
    program=f"{_ACCELERATE}for batch in loader:\n    accelerator.backward(model(batch)[0])\n    accelerator.clip_grad_norm_(model.parameters(), 1.0)\n",
    integration="accelerate",
)
def clipping_by_value_refused(config: Config) -> Iterator[Finding]:
    """A program calls `Accelerator.clip_grad_value_`, which Accelerate refuses with DeepSpeed.

    DeepSpeed clips gradients only by their norm. Accelerate raises "DeepSpeed and FSDP do not support `clip_grad_value_`. Use
    `clip_grad_norm_` instead." With DeepSpeed that call only returns the norm: `gradient_clipping` of the config decides.

    Set `gradient_clipping` in the config, and remove the call.
    """
    yield from _found(config, CLIPPING, sure=True)


def _found(config: Config, refused: RefusedCall, *, sure: bool) -> Iterator[Finding]:
    program = config.setup.program if config.setup else None
    if program is None or config.facts.integration not in refused.loaders:
        return
    if refused.stage and not config.value(STAGE) >= refused.stage:
        return
    calls = (
        one
        for one in program.events.of(refused.pattern)
        if not (one.unlikely or _is_for_others(one)) and (not refused.argument or _gives(one, refused.argument))
    )
    event = next(calls, None)
    if event is None or event.tells_setups_apart:
        return
    at = f" at ZeRO stage {config.value(STAGE)}" if refused.stage else ""
    what = f"{event.name.rpartition('.')[2]}{f' with {refused.argument}' if refused.argument else ''}"
    yield Finding(
        "",
        f'{event.at.where} calls {what}{at}: {refused.library} {"raises" if sure else "may raise"} "{refused.error}".',
        help=refused.help,
        elsewhere=event.at.related(""),
        certain=sure and event.certain and not event.conditions and event.flow == 0,
    )


def _is_for_others(event: Event) -> bool:
    """Whether a function makes a call only for callers that give no value, and the program gives one: `if ref_model: ... else: ...`."""
    return event.flow == 0 and any(one.missing is not None and one.holds is one.missing for one in event.conditions)


def _gives(event: Event, argument: str) -> bool:
    """Whether a call has an argument that is surely not None: programs pass a value that depends on whether DeepSpeed is used, too."""
    given = event.argument(argument)
    return given is not None and given.value is not None and given.value is not UNKNOWN
