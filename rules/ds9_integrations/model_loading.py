"""DS9: arguments for loading a model that do not go with ZeRO stage 3, and checkpoints that cannot be resumed."""

from __future__ import annotations

from collections.abc import Iterator

from dslint.config import Config
from dslint.diagnostics import Effect, LoadStep, Phase
from dslint.facts import Release
from dslint.frameworks import llama_factory
from dslint.frameworks.refusals import Refusal
from dslint.frameworks.registry import of_arguments
from dslint.job.arguments import Arguments
from dslint.rule import Finding, bad, good, rule
from dslint.rules.helpers.checkpoint import resumed_from
from dslint.rules.helpers.loaders import RAISED_BY_LOADER
from dslint.rules.helpers.project import is_raised_by
from dslint.rules.helpers.quantized import quantizations
from dslint.rules.helpers.refused import is_refused_by_framework
from dslint.rules.helpers.releases import release_of

STAGE = "zero_optimization.stage"
LLAMA_FACTORY_SOURCE = "LLaMA-Factory, hparams/parser.py, get_train_args, and model/model_utils/quantization.py"

_STAGE_2 = '{"train_batch_size": "auto", "zero_optimization": {"stage": 2}}'
_STAGE_3 = '{"train_batch_size": "auto", "zero_optimization": {"stage": 3, "stage3_gather_16bit_weights_on_model_save": true}}'
_LLAMA_FACTORY = "stage: sft\nmodel_name_or_path: m\nfinetuning_type: lora\noutput_dir: o\nlearning_rate: 1e-4\ndeepspeed: ds_config.json\n"
_SWIFT = "model: m\ntuner_type: lora\noutput_dir: o\nlearning_rate: 1e-4\ndeepspeed: ds_config.json\n"
_AXOLOTL = "base_model: m\nmicro_batch_size: 2\nadapter: lora\ndeepspeed: ds_config.json\n"
_LOADING = (
    "import torch\nfrom transformers import AutoModelForCausalLM, BitsAndBytesConfig, TrainingArguments\n"
    'arguments = TrainingArguments(output_dir="out", deepspeed="ds_config.json")\n'
    'model = AutoModelForCausalLM.from_pretrained("model", quantization_config=BitsAndBytesConfig(%s))\n'
)


@rule(
    "DS947",
    effect=Effect.CRASH,
    phase=Phase.LOAD,
    watches=("setup",),
    references=(
        LLAMA_FACTORY_SOURCE,
        "https://huggingface.co/docs/peft/accelerate/deepspeed",
        "https://github.com/huggingface/peft/pull/1529",
        "https://github.com/deepspeedai/DeepSpeed/pull/4647",
        "transformers/modeling_utils.py, PreTrainedModel.from_pretrained of 4.38 and 4.39",
    ),
    untried=RAISED_BY_LOADER,
)
@bad(
    _STAGE_3,
    at=("load_in_8bit",),
    training=_AXOLOTL + "load_in_8bit: true\n",
    message="load_in_8bit: true at ZeRO stage 3: DeepSpeed cannot partition 8-bit weights.",
)
@good(_STAGE_3, training=_LLAMA_FACTORY + "quantization_bit: 4\n")
@good(_STAGE_3, training=_LLAMA_FACTORY + "quantization_bit: 4\n", pins={"llamafactory": Release(0, 8, 3)})
@good(_STAGE_3, training=_AXOLOTL.replace("adapter: lora", "adapter: qlora") + "load_in_4bit: true\n")
@bad(
    _STAGE_3,
    at="",
    program=_LOADING % "load_in_4bit=True",
    integration="transformers",
    deepspeed="0.12.2",
    message='load_in_4bit=True at ZeRO stage 3: DeepSpeed 0.12.2 gathers weights of one data type only, and those of 4 bits are stored as bytes: it may raise "expected there to be only one unique element".',
)
@bad(
    _STAGE_3,
    at="",
    program=_LOADING % "load_in_4bit=True",
    integration="transformers",
    pins={"transformers": Release(4, 38, 2)},
    message='load_in_4bit=True at ZeRO stage 3: transformers 4.38.2 may raise "DeepSpeed Zero-3 is not compatible with `low_cpu_mem_usage=True` or with passing a `device_map`".',
)
@good(_STAGE_3, program=_LOADING % "load_in_4bit=True", integration="transformers", deepspeed="0.16.9")
@good(_STAGE_3, program=_LOADING % "load_in_4bit=True", integration="transformers", pins={"transformers": Release(4, 40, 0)})
@bad(
    _STAGE_3,
    at="",
    program=_LOADING % "load_in_8bit=True",
    integration="transformers",
    message="load_in_8bit=True at ZeRO stage 3: DeepSpeed cannot partition 8-bit weights.",
)
@good(_STAGE_3, program=_LOADING % "load_in_4bit=True, bnb_4bit_quant_storage=torch.bfloat16", integration="transformers")
@good(_STAGE_2, program=_LOADING % "load_in_4bit=True", integration="transformers")
@good(_STAGE_3, training=_AXOLOTL + "load_in_4bit: false\n")
@bad(
    _STAGE_3,
    at=("quant_bits",),
    training=_SWIFT + "quant_method: bnb\nquant_bits: 4\n",
    deepspeed="0.12.2",
    message='quant_bits: 4 at ZeRO stage 3: DeepSpeed 0.12.2 gathers weights of one data type only, and those of 4 bits are stored as bytes: it may raise "expected there to be only one unique element".',
)
@good(_STAGE_3, training=_SWIFT + "quant_method: bnb\nquant_bits: 4\nbnb_4bit_quant_storage: bfloat16\n")
@good(_STAGE_3, training=_SWIFT + "quant_bits: 4\n")
@good(_STAGE_2, training=_LLAMA_FACTORY + "quantization_bit: 4\n")
def quantized_weights_at_stage_3(config: Config) -> Iterator[Finding]:
    """The training loads a quantized model, and the config is for ZeRO stage 3.

    Weights of 8 bits cannot be partitioned. Weights of 4 bits can, and every rank still loads the whole model first. transformers before 4.39
    raises "DeepSpeed Zero-3 is not compatible with `low_cpu_mem_usage=True` or with passing a `device_map`" for them, or loads weights of
    size 0. DeepSpeed before 0.12.3 gathers weights of one data type only, and raises "expected there to be only one unique element", unless
    those of 4 bits are stored in the data type of the training (`bnb_4bit_quant_storage`, from bitsandbytes 0.43 on). LLaMA-Factory and
    axolotl set that themselves. LLaMA-Factory refuses weights of 8 bits, those of HQQ and EETQ, and before 0.6.0 all quantized weights (DS975).

    Use stage 2, or load the model without quantization: at stage 3 each rank holds only its part.
    """
    if not config.value(STAGE) >= 3:
        return
    program = config.setup.program if config.setup else None
    for given in quantizations(config):
        eight = given.value == 8 or "load_in_8bit" in given.name
        if is_refused_by_framework(config, given):
            continue
        if not eight and (_stores(config) or (program is not None and program.quantized_storage is not None)):
            continue
        outcome = "DeepSpeed cannot partition 8-bit weights" if eight else _error_of_four_bits(config)
        if not outcome:
            continue
        yield Finding(
            "",
            f"{given.shown} at ZeRO stage 3: {outcome}.",
            help="Use ZeRO stage 2, or load the model without quantization.",
            elsewhere=given.related(""),
            related=((STAGE, "stage 3"),),
            certain=False,
        )


def _error_of_four_bits(config: Config) -> str:
    """What older releases do with weights of 4 bits that are stored as bytes; "" if those of the project can load and partition them."""
    loader, engine = release_of(config, "transformers"), release_of(config, "deepspeed")
    if loader is not None and loader < Release(4, 39, 0):
        return f'transformers {loader} may raise "DeepSpeed Zero-3 is not compatible with `low_cpu_mem_usage=True` or with passing a `device_map`"'
    if engine is not None and engine < Release(0, 12, 3):
        return (
            f"DeepSpeed {engine} gathers weights of one data type only, and those of 4 bits are stored as bytes: it may raise "
            '"expected there to be only one unique element"'
        )
    if loader is not None or (engine is not None and engine >= Release(0, 14, 1)):  # it is newer than transformers 4.39
        return ""
    return "transformers before 4.39 may refuse to load 4-bit weights, and DeepSpeed before 0.12.3 may raise when it gathers them"


def _stores(config: Config) -> bool:
    """Whether the arguments, or their framework, set the data type in which weights of 4 bits are stored."""
    arguments = config.arguments
    if arguments is None:
        return False
    framework = of_arguments(arguments)
    if framework is not None and framework.sets_quant_storage:
        return True
    if "bnb_4bit_quant_storage" in arguments:
        return True
    release = config.context.pinned("trl")  # from 0.10 to 0.25 TRL stores them in the data type that its arguments give the model
    gives_type = "torch_dtype" in arguments or "dtype" in arguments
    return gives_type and release is not None and Release(0, 10, 0) <= release < Release(0, 26, 0)


@rule(
    "DS948",
    effect=Effect.CRASH,
    phase=Phase.LOAD,
    step=LoadStep.REFUSALS,
    watches=("setup",),
    references=(LLAMA_FACTORY_SOURCE,),
    untried=RAISED_BY_LOADER,
)
@bad(
    _STAGE_3,
    at=("use_unsloth",),
    training=_LLAMA_FACTORY + "use_unsloth: true\n",
    message='use_unsloth: true at ZeRO stage 3: LLaMA-Factory raises "Unsloth is incompatible with DeepSpeed ZeRO-3".',
)
@bad(
    _STAGE_3,
    at=("pure_bf16",),
    training=_LLAMA_FACTORY + "pure_bf16: true\n",
    message='pure_bf16: true at ZeRO stage 3: LLaMA-Factory raises "`pure_bf16` is incompatible with DeepSpeed ZeRO-3".',
)
@bad(
    _STAGE_3,
    at=("use_unsloth",),
    training=_LLAMA_FACTORY.replace("finetuning_type: lora\n", "") + "use_unsloth: true\n",
    message='use_unsloth: true at ZeRO stage 3: LLaMA-Factory raises "Unsloth is incompatible with DeepSpeed ZeRO-3".',
)
@bad(
    _STAGE_3,
    at=("use_unsloth",),
    training=_LLAMA_FACTORY + "use_unsloth: true\n",
    pins={"llamafactory": Release(0, 7, 1)},
    message='use_unsloth: true at ZeRO stage 3: this LLaMA-Factory does not check it, and loading the model may raise "DeepSpeed Zero-3 is not compatible with `low_cpu_mem_usage=True` or with passing a `device_map`".',
)
@good(_STAGE_3, training=_LLAMA_FACTORY + "pure_bf16: true\n", pins={"llamafactory": Release(0, 8, 2)})
@good(_STAGE_2, training=_LLAMA_FACTORY + "use_unsloth: true\n")
@good(_STAGE_3, training=_LLAMA_FACTORY + "use_unsloth: false\n")
def llama_factory_refuses_stage_3(config: Config) -> Iterator[Finding]:
    """LLaMA-Factory refuses an argument together with ZeRO stage 3.

    It raises for `use_unsloth` (from 0.8.0 on), `pure_bf16` and `pissa_init` (both from 0.8.3 on) as soon as the config is known to be for
    stage 3: all of them change whole weights, and stage 3 gives a rank only a part of each. Releases before 0.8 do not check `use_unsloth`,
    and fail where Unsloth loads the model with a `device_map`.

    Remove the argument, or use stage 2.
    """
    arguments, stage = config.arguments, config.value(STAGE)
    if arguments is None or not stage >= 3:
        return
    is_own = arguments.framework == llama_factory.FRAMEWORK.name
    if not is_own and "finetuning_type" not in arguments:
        return
    for refusal in llama_factory.OF_WHOLE_WEIGHTS:
        given = next(iter(refusal.given(arguments, stage)), None)
        checks = _checks(config, arguments, refusal)
        if given is None or not (checks or "use_unsloth" in refusal.when):
            continue
        certain = is_own and checks and not arguments.former
        outcome = (
            f'LLaMA-Factory {"raises" if certain else "may raise"} "{refusal.error}"'
            if checks
            else "this LLaMA-Factory does not check it, and loading the model may raise "
            '"DeepSpeed Zero-3 is not compatible with `low_cpu_mem_usage=True` or with passing a `device_map`"'
        )
        yield Finding(
            "",
            f"{given.shown} at ZeRO stage 3: {outcome}.",
            help=refusal.help,
            elsewhere=given.related(""),
            related=((STAGE, "stage 3"),),
            certain=certain,
        )


def _checks(config: Config, arguments: Arguments, refusal: Refusal) -> bool:
    """Whether the LLaMA-Factory of the project refuses an argument: its source, where the project is a checkout of it, or its release."""
    said = is_raised_by(config, llama_factory.FRAMEWORK, refusal.error)
    return refusal.holds_in(config.context.pinned("llamafactory"), arguments.former) if said is None else said


_RESUMES = "from transformers import Trainer\ntrainer = Trainer(m, args)\ntrainer.train(resume_from_checkpoint=%s)\n"


@rule(
    "DS949",
    effect=Effect.CRASH,
    phase=Phase.RESUME,
    watches=("setup",),
    references=("transformers/integrations/deepspeed.py, deepspeed_load_checkpoint", "transformers/trainer.py, Trainer._save_checkpoint"),
    untried=RAISED_BY_LOADER,
    setup=True,
)
@bad(
    _STAGE_2,
    at=("save_only_model",),
    training=_AXOLOTL + "save_only_model: true\nresume_from_checkpoint: out/checkpoint-100\n",
    message='save_only_model is on, and the training resumes (train.yaml:6): from a checkpoint that it saved itself the Trainer may raise "Can\'t find a valid checkpoint at".',
)
@bad(
    _STAGE_2,
    at=("save_only_model",),
    training=_AXOLOTL + "save_only_model: true\n",
    program=_RESUMES % "True",
    message='save_only_model is on, and the training resumes (train.py:3): from a checkpoint that it saved itself the Trainer may raise "Can\'t find a valid checkpoint at".',
)
@good(_STAGE_2, training=_AXOLOTL + "save_only_model: true\n", program=_RESUMES % "last_checkpoint")
@good(_STAGE_2, training=_AXOLOTL + "save_only_model: false\n", program=_RESUMES % "True")
@good(_STAGE_2, training=_AXOLOTL + "save_only_model: true\n")
@good(_STAGE_2, training=_AXOLOTL + "save_only_model: true\nsave_strategy: 'no'\n", program=_RESUMES % "True")
@good(_STAGE_2, training=_SWIFT + "save_only_model: true\nresume_from_checkpoint: out/checkpoint-100\nresume_only_model: true\n")
@good(_STAGE_2, training=_AXOLOTL + "save_only_model: false\nresume_from_checkpoint: out/checkpoint-100\n")
def resume_without_optimizer_state(config: Config) -> Iterator[Finding]:
    """The training resumes from a checkpoint, and saves its checkpoints without what DeepSpeed resumes from.

    With `save_only_model` the Trainer does not save the state of the engine. To resume, it looks for the folder `global_step*` in the
    checkpoint, and raises "Can't find a valid checkpoint at" if there is none. A checkpoint that this training saved cannot be resumed.

    Remove `save_only_model` from trainings that may be resumed.
    """
    arguments, setup = config.arguments, config.setup
    saving = arguments.get("save_only_model") if arguments else None
    if saving is None or saving.value is not True or setup is None or not (setup.link or setup.accelerate):
        return
    weights_only = arguments.get("resume_only_model") if arguments else None
    if weights_only is not None and weights_only.value is not False:
        return  # ms-swift resumes from the weights alone
    strategy = arguments.get("save_strategy") if arguments else None
    if strategy is not None and strategy.value in ("no", False):
        return  # it saves no checkpoint
    resuming = resumed_from(config)
    if resuming is not None:
        yield Finding(
            "",
            f"save_only_model is on, and the training resumes ({resuming.where}): from a checkpoint that it saved itself the Trainer raises "
            '"Can\'t find a valid checkpoint at".',
            help="Remove save_only_model from a training that may be resumed.",
            elsewhere=saving.related(""),
            related=(resuming.related("resumes here"),),
            certain=False,
        )
