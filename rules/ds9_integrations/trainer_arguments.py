"""DS9: training arguments that the Hugging Face Trainer refuses together with DeepSpeed, or that DeepSpeed makes slow."""

from __future__ import annotations

from collections.abc import Iterator

from dslint.config import UNKNOWN, Config
from dslint.diagnostics import Effect, LoadStep, Phase
from dslint.facts import Integration, Release
from dslint.frameworks.evaluation import evaluates_by_arguments, evaluation_before_training
from dslint.frameworks.huggingface import FRAMEWORK, TRAINER
from dslint.frameworks.registry import named
from dslint.frameworks.training import refusal_of
from dslint.rule import Finding, bad, good, rule
from dslint.rules.helpers.cost import gathers_for_a_token
from dslint.rules.helpers.loaders import RAISED_BY_LOADER, trainer_arguments
from dslint.rules.helpers.refused import is_refused_by_framework

STAGE = "zero_optimization.stage"
PRECISIONS = ("fp16", "bf16")
SOURCE = "transformers/training_args.py, TrainingArguments.__post_init__, and transformers/trainer.py"

_STAGE_2 = '{"train_batch_size": "auto", "zero_optimization": {"stage": 2}}'
_STAGE_3 = '{"train_batch_size": "auto", "zero_optimization": {"stage": 3, "stage3_gather_16bit_weights_on_model_save": true}}'
_AXOLOTL = "base_model: m\nmicro_batch_size: 2\ndeepspeed: ds_config.json\n"
_LLAMA_FACTORY = "stage: sft\nmodel_name_or_path: m\n"
_PREDICTION = (
    "from transformers import AutoModelForCausalLM, Trainer, TrainingArguments\n"
    'trainer = Trainer(AutoModelForCausalLM.from_pretrained("m"), TrainingArguments("out", deepspeed="ds_config.json"))\n%s\n'
)
_EVALUATION = _LLAMA_FACTORY + "do_train: false\ndo_eval: true\nbf16: true\nfp16: false\n"
_GENERATION = _LLAMA_FACTORY + "val_size: 0.1\nper_device_train_batch_size: 2\nlearning_rate: 1e-4\ndeepspeed: ds_config.json\n"


@rule(
    "DS920",
    effect=Effect.CRASH,
    phase=Phase.LOAD,
    step=LoadStep.TRAINER,
    watches=("setup",),
    references=(SOURCE,),
    untried=RAISED_BY_LOADER,
    setup=True,
)
@bad(
    _STAGE_2,
    at=("fsdp",),
    training=_AXOLOTL + "fsdp:\n  - full_shard\n",
    message='fsdp and deepspeed (train.yaml:3) are both set: axolotl raises "deepspeed and fsdp cannot be used together".',
)
@bad(
    _STAGE_2,
    at=("fsdp",),
    training="per_device_train_batch_size: 2\nlearning_rate: 1.0e-5\nfsdp: full_shard\n",
    accelerate="distributed_type: DEEPSPEED\ndeepspeed_config:\n  deepspeed_config_file: ds_config.json\n",
    integration="transformers",
    message='fsdp and deepspeed (accelerate.yaml:3) are both set: the Hugging Face Trainer raises "Using --fsdp xxx together with --deepspeed is not possible, deactivate one of those flags".',
)
@good(_STAGE_2, training=_AXOLOTL + "fsdp: []\n")
def fsdp_with_deepspeed(config: Config) -> Iterator[Finding]:
    """The training arguments select both FSDP and DeepSpeed.

    transformers raises `ValueError: Using --fsdp xxx together with --deepspeed is not possible, deactivate one of those flags.`, and
    frameworks built on it refuse the two with errors of their own.

    Remove one of them.
    """
    arguments, setup = config.arguments, config.setup
    given = arguments.get("fsdp") if arguments else None
    if arguments is None or given is None or setup is None:
        return
    by_launcher = [*setup.accelerate.block.values(), *setup.accelerate.top.values()] if setup.accelerate is not None else []
    selected = setup.link or next(iter(by_launcher), None)
    if selected is None:
        return
    if given.empty or given.value in (False, "", None) or "${" in given.raw or "{{" in given.raw:
        return
    if given.value is UNKNOWN and given.pointer is None:
        return  # a program may choose between the two
    framework = named(arguments.framework)
    trainers = "Using --fsdp xxx together with --deepspeed is not possible, deactivate one of those flags"
    own = framework.errors.get("fsdp") if framework is not None and setup.link is not None else None
    yield Finding(
        "",
        f'fsdp and deepspeed ({selected.where}) are both set: {arguments.framework} raises "{own or trainers}".',
        help="Remove fsdp or deepspeed.",
        elsewhere=given.related(""),
        step=LoadStep.REFUSALS if own else None,
        related=(selected.related("deepspeed is set here"),),
    )


@rule(
    "DS921",
    effect=Effect.CRASH,
    phase=Phase.LOAD,
    step=LoadStep.TRAINER,
    watches=("setup",),
    references=(SOURCE,),
    untried=RAISED_BY_LOADER,
)
@bad(
    _STAGE_3,
    at=("auto_find_batch_size",),
    training=_LLAMA_FACTORY + "auto_find_batch_size: true\nlearning_rate: 1e-5\n",
    message='auto_find_batch_size is on, and the ZeRO stage is 3: the Trainer raises "`auto_find_batch_size` isn\'t supported yet with DeepSpeed Zero-3".',
)
@bad(
    _STAGE_2,
    at=("auto_find_batch_size",),
    training=_LLAMA_FACTORY + "auto_find_batch_size: true\nlearning_rate: 1e-5\n",
    pins={"transformers": Release(4, 40, 2)},
    message='auto_find_batch_size is on: the Trainer raises "`DeepSpeed` doesn\'t support `auto_find_batch_size`".',
)
@good(_STAGE_2, training=_LLAMA_FACTORY + "auto_find_batch_size: true\nlearning_rate: 1e-5\n")
@good(
    _STAGE_3,
    training=_LLAMA_FACTORY + "auto_find_batch_size: true\nlearning_rate: 1e-5\n",
    pins={"transformers": Release(4, 36, 2)},
)
def auto_batch_size_at_stage_3(config: Config) -> Iterator[Finding]:
    """`auto_find_batch_size` is on, which the Trainer does not support at ZeRO stage 3.

    It raises "`auto_find_batch_size` isn't supported yet with DeepSpeed Zero-3." From transformers 4.38 to 4.44 it refuses every stage:
    "`DeepSpeed` doesn't support `auto_find_batch_size`." Older releases do not ask.

    Write a batch size, or use stage 2.
    """
    given = config.arguments.get("auto_find_batch_size") if config.arguments else None
    if given is None or given.value is not True:
        return
    release = config.context.pinned("transformers")
    if release is not None and release < _REFUSES_STAGE_3:
        if release >= _REFUSES_WITH_DEEPSPEED and trainer_arguments(config) is not None:
            yield Finding(
                "",
                'auto_find_batch_size is on: the Trainer raises "`DeepSpeed` doesn\'t support `auto_find_batch_size`".',
                help="Write per_device_train_batch_size.",
                elsewhere=given.related(""),
            )
    elif config.value(STAGE) == 3:
        yield Finding(
            "",
            "auto_find_batch_size is on, and the ZeRO stage is 3: "
            'the Trainer raises "`auto_find_batch_size` isn\'t supported yet with DeepSpeed Zero-3".',
            help="Write per_device_train_batch_size, or use stage 2.",
            elsewhere=given.related(""),
            related=((STAGE, "stage 3"),),
        )


_REFUSES_WITH_DEEPSPEED = Release(4, 38, 0)
"""The first transformers whose Trainer refuses `auto_find_batch_size` with DeepSpeed, and `save_only_model` with `load_best_model_at_end`."""
_REFUSES_STAGE_3 = Release(4, 45, 0)
"""The first one that refuses it at stage 3 only."""


@rule(
    "DS960",
    effect=Effect.CRASH,
    phase=Phase.LOAD,
    step=LoadStep.ARGUMENTS,
    watches=("setup",),
    references=(SOURCE,),
    untried=RAISED_BY_LOADER,
    setup=True,
)
@bad(
    _STAGE_2,
    at=("fp16",),
    training=_LLAMA_FACTORY + "learning_rate: 1e-5\nfp16: true\nbf16: true\n",
    message='fp16 and bf16 are both on: transformers raises "At most one of fp16 and bf16 can be True, but not both".',
)
@bad(
    _STAGE_2,
    at=("fp16_full_eval",),
    training=_LLAMA_FACTORY + "learning_rate: 1e-5\nfp16_full_eval: true\nbf16_full_eval: true\n",
    message='fp16_full_eval and bf16_full_eval are both on: transformers raises "At most one of fp16 and bf16 can be True for full eval, but not both".',
)
@good(_STAGE_2, training=_AXOLOTL + "fp16: true\nbf16: true\n")  # it gives the Trainer only bf16
def fp16_with_bf16_arguments(config: Config) -> Iterator[Finding]:
    """The training arguments turn on both fp16 and bf16, for training or for evaluation.

    transformers raises `ValueError: At most one of fp16 and bf16 can be True, but not both` (`for full eval, but not both` for
    `fp16_full_eval` and `bf16_full_eval`) when it makes the arguments.

    Keep one of them: bf16 on GPUs that support it (Ampere and newer), fp16 on older ones.
    """
    arguments = trainer_arguments(config)
    if arguments is None:
        return
    for kind, where in (("", ""), ("_full_eval", " for full eval")):
        fp16, bf16 = (arguments.get(f"{name}{kind}") for name in PRECISIONS)
        default = next((name for name in PRECISIONS if f"{name}{kind}" not in arguments and arguments.value(f"{name}{kind}") is True), None)
        given = fp16 or bf16
        if default is not None and given is not None and given.value is True:
            yield Finding(
                "",
                f"{given.shown}, and {arguments.framework} turns {default}{kind} on by default: "
                f'transformers raises "At most one of fp16 and bf16 can be True{where}, but not both".',
                help=f"Write {default}{kind}: false, too, or choose the precision by torch_dtype.",
                elsewhere=given.related(""),
            )
        if fp16 is not None and bf16 is not None and fp16.value is True and bf16.value is True:
            yield Finding(
                "",
                f"fp16{kind} and bf16{kind} are both on: "
                f'transformers raises "At most one of fp16 and bf16 can be True{where}, but not both".',
                help="Remove one of them. On Ampere and newer GPUs keep bf16, which needs no loss scale.",
                elsewhere=fp16.related(""),
                related=(bf16.related("also on"),),
            )


@rule(
    "DS922",
    effect=Effect.CRASH,
    phase=Phase.LOAD,
    step=LoadStep.TRAINER,
    watches=("setup",),
    references=(SOURCE,),
    untried=RAISED_BY_LOADER,
    setup=True,
)
@bad(
    _STAGE_2,
    at=("save_only_model",),
    training=_AXOLOTL + "save_only_model: true\nload_best_model_at_end: true\n",
    message='save_only_model and load_best_model_at_end are both on: the Trainer raises "DeepSpeed can\'t be used with `save_only_model` along with `load_best_model_at_end`".',
)
@good(_STAGE_2, training=_AXOLOTL + "save_only_model: true\n")
@good(
    _STAGE_2,
    training=_AXOLOTL + "save_only_model: true\nload_best_model_at_end: true\n",
    pins={"transformers": Release(4, 37, 2)},
)
def save_only_model_and_load_best(config: Config) -> Iterator[Finding]:
    """`save_only_model` and `load_best_model_at_end` are both on, which the Trainer refuses with DeepSpeed.

    With DeepSpeed the Trainer cannot load a checkpoint without the state of the engine, and raises "DeepSpeed can't be used with
    `save_only_model` along with `load_best_model_at_end`." (from 4.38 on).

    Remove one of them.
    """
    arguments, setup = config.arguments, config.setup
    first, second = (arguments.get(name) if arguments else None for name in ("save_only_model", "load_best_model_at_end"))
    if not first or not second or setup is None or not (setup.link or setup.accelerate):
        return
    release = config.context.pinned("transformers")
    if release is not None and release < _REFUSES_WITH_DEEPSPEED:
        return
    if first.value is True and second.value is True:
        yield Finding(
            "",
            "save_only_model and load_best_model_at_end are both on: "
            'the Trainer raises "DeepSpeed can\'t be used with `save_only_model` along with `load_best_model_at_end`".',
            help="Remove one of them.",
            elsewhere=first.related(""),
            related=(second.related("also on"),),
        )


@rule(
    "DS923",
    effect=Effect.CRASH,
    phase=Phase.LOAD,
    step=LoadStep.PLUGIN,
    watches=("setup",),
    references=(SOURCE, "transformers/integrations/deepspeed.py, deepspeed_init"),
    untried=RAISED_BY_LOADER,
)
@bad(
    _STAGE_2,
    at=("zero_optimization", "stage"),
    training=_EVALUATION,
    message='The run only evaluates (train.yaml:3, train.yaml:4), but the ZeRO stage is 2: the Trainer raises "ZeRO inference only makes sense with ZeRO Stage 3 - please adjust your config".',
)
@bad(
    _STAGE_2,
    at=("zero_optimization", "stage"),
    training=_LLAMA_FACTORY + "output_dir: o\nbf16: true\ndo_predict: true\neval_dataset: e\npredict_with_generate: true\n",
    message='The run only evaluates (train.yaml:5), but the ZeRO stage is 2: the Trainer raises "ZeRO inference only makes sense with ZeRO Stage 3 - please adjust your config".',
)
@bad(
    _STAGE_2,
    at=("zero_optimization", "stage"),
    program=_PREDICTION % "print(trainer.evaluate())\ntrainer.train()",
    integration="transformers",
    message='train.py:3 calls trainer.evaluate before a training, but the ZeRO stage is 2: the Trainer may raise "ZeRO inference only makes sense with ZeRO Stage 3 - please adjust your config".',
)
@bad(
    _STAGE_2,
    at=("zero_optimization", "stage"),
    training="per_device_eval_batch_size: 2\noutput_dir: o\neval_strategy: steps\nbf16: true\ndo_eval: true\ndeepspeed: ds_config.json\n",
    integration="transformers",
    message='The arguments turn on evaluation, but not training (train.yaml:5), but the ZeRO stage is 2: the Trainer may raise "ZeRO inference only makes sense with ZeRO Stage 3 - please adjust your config".',
)
@good(_STAGE_2, program=_PREDICTION % "trainer.train()\ntrainer.evaluate()", integration="transformers")
@good(_STAGE_3, program=_PREDICTION % "trainer.evaluate()", integration="transformers")
@good(
    _STAGE_2,
    training="per_device_eval_batch_size: 2\noutput_dir: o\nlearning_rate: 1.0e-5\ndo_train: true\ndo_eval: true\ndeepspeed: ds_config.json\n",
    integration="transformers",
)
@good(_STAGE_3, training=_EVALUATION)
@good(
    _STAGE_2,
    training="per_device_eval_batch_size: 2\noutput_dir: o\ndo_train: false\ndo_eval: true\ndeepspeed: ds_config.json\n",
    program=_PREDICTION % "trainer.train()\ntrainer.evaluate()",
    integration="transformers",
)
@good(
    _STAGE_2,
    training=_GENERATION.replace("val_size: 0.1\n", "")
    + "eval_dataset: e\ndataset: d\ndo_train: true\ndo_predict: true\npredict_with_generate: true\n",
)
def evaluation_below_stage_3(config: Config) -> Iterator[Finding]:
    """A run that only evaluates, or that evaluates before it trains, uses a ZeRO stage below 3.

    ZeRO stages 1 and 2 divide only what training needs. The Trainer raises "ZeRO inference only makes sense with ZeRO Stage 3 - please
    adjust your config". So it does for `evaluate` or `predict` before the first `train`: until then there is no engine.

    Use stage 3, or run the evaluation without DeepSpeed. Before a training stage 3 does not help (DS887): set `eval_on_start=True`.
    """
    stage = config.value(STAGE)
    if stage not in (0, 1, 2) or not config.has(STAGE):
        return
    raises = '"ZeRO inference only makes sense with ZeRO Stage 3 - please adjust your config"'
    advice = "Use stage 3, or run the evaluation without DeepSpeed."
    by_arguments = evaluates_by_arguments(config)
    if by_arguments is not None:
        places, certain = by_arguments
        yield Finding(
            STAGE,
            f"The {'run only evaluates' if certain else 'arguments turn on evaluation, but not training'} ({', '.join(one.where for one in places)}), but the "
            f"ZeRO stage is {stage}: "
            f"the Trainer {'raises' if certain else 'may raise'} {raises}.",
            help=advice,
            related=tuple(one.related("evaluation is on" if one is places[-1] else "training is off") for one in places),
            certain=certain,
        )
        return
    event = evaluation_before_training(config)
    if event is not None:
        program = config.setup.program if config.setup is not None else None
        trains_later = program is not None and program.trains
        yield Finding(
            STAGE,
            f"{event.at.where} calls {event.called} before a training, but the ZeRO stage is {stage}: the Trainer may raise {raises}.",
            help="Set eval_on_start=True in the training arguments, or evaluate in a run of its own." if trains_later else advice,
            related=(event.at.related("evaluates here"),),
            certain=False,
        )


@rule(
    "DS924",
    effect=Effect.ADVICE,
    watches=("setup",),
    references=("transformers/training_args.py",),
    setup=True,
)
@bad(
    _STAGE_2,
    at=("half_precision_backend",),
    training=_AXOLOTL + "half_precision_backend: auto\n",
    message="transformers 5.0 removed the argument half_precision_backend, and raises for an unknown argument.",
)
@bad(
    _STAGE_2,
    at=("warmup_ratio",),
    training="per_device_train_batch_size: 2\nlearning_rate: 1e-5\nwarmup_ratio: 0.03\n",
    integration="transformers",
    loader_release=Release(5, 23, 0),
    message="transformers 5.23.0 has no argument warmup_ratio: TrainingArguments raises \"got an unexpected keyword argument 'warmup_ratio'\".",
)
@good(_STAGE_2, training=_AXOLOTL + "bf16: true\n")
def argument_gone_in_transformers_5(config: Config) -> Iterator[Finding]:
    """A training argument was removed in transformers 5.

    `fp16_backend`, `half_precision_backend` and `fp16_opt_level` configured apex: from transformers 5.0 on they are unknown arguments.
    `warmup_ratio` was removed in 5.23; `warmup_steps` below 1 is a fraction of all steps instead. The crash is reported as certain if the
    project pins the release, or it is given: `--integration transformers==5.23`.

    Remove the argument, and use `bf16` or `fp16`.
    """
    arguments, release = config.arguments, config.facts.loader_release
    five = release is not None and release >= Release(5, 0, 0) and config.facts.integration is Integration.TRANSFORMERS
    ratio = arguments.get("warmup_ratio") if arguments and arguments.framework == TRAINER else None
    if arguments is not None and ratio is not None and five and release is not None and release >= Release(5, 23, 0):
        of_class = "TrainingArguments", "got an unexpected keyword argument 'warmup_ratio'"
        parsed = ratio.name.startswith("--") or arguments.refusal == FRAMEWORK.refuses_unknown
        by, error = ("the HfArgumentParser", refusal_of(FRAMEWORK, arguments, ratio)) if parsed else of_class
        yield Finding(
            "",
            f'transformers {release} has no argument warmup_ratio: {by} raises "{error}".',
            help=f"Write the same fraction as warmup_steps: {ratio.raw}.",
            elsewhere=ratio.related(""),
            effect=Effect.CRASH,
            phase=Phase.LOAD,
            step=LoadStep.REST if parsed else LoadStep.PARSER,
        )
    for name in ("fp16_backend", "half_precision_backend", "fp16_opt_level"):
        given = arguments.get(name) if arguments else None
        if given is not None and (five or release is None):
            yield Finding(
                "",
                f"transformers 5.0 removed the argument {given.name}, and raises for an unknown argument.",
                help="Remove it.",
                elsewhere=given.related(""),
                effect=Effect.CRASH if five else None,
                phase=Phase.LOAD if five else None,
            )


@rule(
    "DS939",
    effect=Effect.SLOW,
    watches=("setup",),
    references=("https://github.com/huggingface/trl/issues/3858",),
    setup=True,
)
@bad(
    _STAGE_3,
    at=("predict_with_generate",),
    training="output_dir: out\nper_device_train_batch_size: 2\nlearning_rate: 1e-4\npredict_with_generate: true\n",
    message="predict_with_generate: true at ZeRO stage 3: generate gathers every parameter from all ranks again for each token.",
)
@bad(
    _STAGE_3,
    at=("ds3_gather_for_generation",),
    training=_GENERATION + "ds3_gather_for_generation: false\n",
    message="ds3_gather_for_generation: false at ZeRO stage 3: generate gathers every parameter from all ranks again for each token.",
)
@good(_STAGE_2, training=_GENERATION + "predict_with_generate: true\n")
@good(_STAGE_3, training=_GENERATION + "ds3_gather_for_generation: true\n")
def generation_at_stage_3(config: Config) -> Iterator[Finding]:
    """The training generates text while ZeRO stage 3 keeps the parameters divided.

    `generate` runs the model once per token, and stage 3 gathers every parameter again each time. Evaluation with `predict_with_generate`
    takes many times as long as training; a TRL trainer with `ds3_gather_for_generation: false` can appear to hang at its first step.

    Evaluate by the loss, use stage 2, generate with another engine (vLLM), or gather the parameters first if they fit on one GPU.
    """
    arguments = config.arguments
    if arguments is None or not config.value(STAGE) >= 3:
        return
    framework = named(arguments.framework)
    for name, slow, advice in (
        ("predict_with_generate", True, "Use stage 2, or generate with vLLM."),
        (
            "ds3_gather_for_generation",
            False,
            "Remove it to gather the parameters once, if they fit on one GPU; or generate with vLLM.",
        ),
    ):
        given = arguments.get(name)
        if given is not None and given.value is slow and not is_refused_by_framework(config, given):
            if framework is not None and name in framework.fails_at_stage_3:
                outcome, instead = framework.fails_at_stage_3[name]
                yield Finding(
                    "",
                    f"{given.shown} at ZeRO stage 3: {outcome}",
                    help=instead,
                    elsewhere=given.related(""),
                    effect=Effect.CRASH,
                    phase=Phase.LOAD,
                    certain=False,
                )
                continue
            yield Finding(
                "",
                f"{given.shown} at ZeRO stage 3: generate gathers every parameter from all ranks again for each token.",
                help=advice + gathers_for_a_token(config),
                elsewhere=given.related(""),
                costly=True,
            )
