"""DS9, continued: links between files, arguments that exclude DeepSpeed or each other, and what a program calls."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from dslint.config import Config
from dslint.config.fill import hidden_size
from dslint.diagnostics import Effect, Phase, Severity
from dslint.facts import Integration, Release
from dslint.rule import Finding, bad, good, rule
from dslint.rules.helpers.loaders import RAISED_BY_LOADER
from dslint.source.tree import Mapping

ZERO2 = '{"train_batch_size": "auto", "zero_optimization": {"stage": 2}}'
ZERO3 = '{"train_batch_size": "auto", "zero_optimization": {"stage": 3, "stage3_gather_16bit_weights_on_model_save": true}}'
TRAINING = "base_model: m\nmicro_batch_size: 2\ndeepspeed: ds_config.json\n"
HF_SOURCE = "transformers/training_args.py, TrainingArguments.__post_init__, and transformers/trainer.py"


@rule(
    "DS919",
    "config-not-found",
    effect=Effect.CRASH,
    phase=Phase.LOAD,
    watches=("setup",),
    references=("accelerate/utils/deepspeed.py, HfDeepSpeedConfig.__init__",),
    untried=RAISED_BY_LOADER,
    setup=True,
)
@bad(ZERO2, at=("deepspeed",), training="base_model: m\nmicro_batch_size: 2\ndeepspeed: nowhere/ds.json\n")
@good(ZERO2, training=TRAINING)
def config_not_found(config: Config) -> Iterator[Finding]:
    """A file names a DeepSpeed config that is not there.

    Paths count from the working directory of the job. dslint looks there, beside the file, and in the folders above it in its repository; absolute paths and those with variables are left
    alone. Where the job does not find the file either, it ends with `ValueError: Expected a string path to an existing deepspeed config, or a dictionary, or a base64 encoded string`.

    Correct the path, or start the job where it leads to the file.
    """
    for given in config.setup.missing if config.setup else ():
        hosts = given.name.endswith("hostfile")
        outcome = (
            "the launcher says so in a warning, and starts on this machine alone"
            if hosts
            else 'it raises "Expected a string path to an existing deepspeed config, or a dictionary, or a base64 encoded string"'
        )
        yield Finding(
            "",
            f"There is no {given.value}: not in the working directory, nor beside {given.path} or above it. Where the job does not find it either, {outcome}.",
            help="Correct the path; it counts from the directory in which the job is started.",
            elsewhere=given.related(""),
            severity=Severity.WARNING,
            effect=Effect.SILENT if hosts else None,
        )


@rule(
    "DS920",
    "fsdp-with-deepspeed",
    effect=Effect.CRASH,
    phase=Phase.LOAD,
    watches=("setup",),
    references=(HF_SOURCE,),
    untried=RAISED_BY_LOADER,
    setup=True,
)
@bad(ZERO2, at=("fsdp",), training=TRAINING + "fsdp:\n  - full_shard\n")
@good(ZERO2, training=TRAINING + "fsdp: []\n")
def fsdp_with_deepspeed(config: Config) -> Iterator[Finding]:
    """A training asks for FSDP and for DeepSpeed at once.

    transformers raises `ValueError: Using --fsdp xxx together with --deepspeed is not possible, deactivate one of those flags.`, axolotl "deepspeed and fsdp cannot be used
    together."

    Take one of them out.
    """
    arguments = config.arguments
    given = arguments.get("fsdp") if arguments else None
    if arguments is None or given is None or config.setup is None or config.setup.link is None:
        return
    if given.empty or given.value in (False, "", None):
        return
    error = (
        "deepspeed and fsdp cannot be used together"
        if arguments.framework == "axolotl"
        else "Using --fsdp xxx together with --deepspeed is not possible, deactivate one of those flags"
    )
    yield Finding(
        "",
        f'fsdp is set here, and deepspeed too ({config.setup.link.where}): {arguments.framework} raises "{error}".',
        help="Take out fsdp, or deepspeed.",
        elsewhere=given.related(""),
        related=(config.setup.link.related("DeepSpeed is asked for here"),),
    )


@rule(
    "DS921",
    "auto-batch-size-at-stage-3",
    effect=Effect.CRASH,
    phase=Phase.LOAD,
    watches=("setup",),
    references=(HF_SOURCE,),
    untried=RAISED_BY_LOADER,
)
@bad(ZERO3, at=("auto_find_batch_size",), training="stage: sft\nmodel_name_or_path: m\nauto_find_batch_size: true\nlearning_rate: 1e-5\n")
@good(ZERO2, training="stage: sft\nmodel_name_or_path: m\nauto_find_batch_size: true\nlearning_rate: 1e-5\n")
def auto_batch_size_at_stage_3(config: Config) -> Iterator[Finding]:
    """The Trainer is to find the batch size by trying, which it cannot at ZeRO stage 3.

    It raises "`auto_find_batch_size` isn't supported yet with DeepSpeed Zero-3."

    Write a batch size, or use stage 2.
    """
    given = config.arguments.get("auto_find_batch_size") if config.arguments else None
    if given is not None and given.value is True and config.value("zero_optimization.stage") == 3:
        yield Finding(
            "",
            'auto_find_batch_size is on, and the ZeRO stage is 3: the Trainer raises "`auto_find_batch_size` isn\'t supported yet with DeepSpeed Zero-3".',
            help="Write per_device_train_batch_size, or use stage 2.",
            elsewhere=given.related(""),
            related=(("zero_optimization.stage", "stage 3"),),
        )


@rule(
    "DS922",
    "save-only-model-and-load-best",
    effect=Effect.CRASH,
    phase=Phase.LOAD,
    watches=("setup",),
    references=(HF_SOURCE,),
    untried=RAISED_BY_LOADER,
    setup=True,
)
@bad(ZERO2, at=("save_only_model",), training=TRAINING + "save_only_model: true\nload_best_model_at_end: true\n")
@good(ZERO2, training=TRAINING + "save_only_model: true\n")
def save_only_model_and_load_best(config: Config) -> Iterator[Finding]:
    """Only the model is saved, and the best one is to be loaded in the end.

    With DeepSpeed the Trainer cannot load a checkpoint without the engine's state, and raises "DeepSpeed can't be used with `save_only_model` along with `load_best_model_at_end`."

    Take one of the two out.
    """
    arguments = config.arguments
    first, second = (arguments.get(name) if arguments else None for name in ("save_only_model", "load_best_model_at_end"))
    if (
        first
        and second
        and first.value is True
        and second.value is True
        and config.setup
        and (config.setup.link or config.setup.accelerate)
    ):
        yield Finding(
            "",
            'save_only_model and load_best_model_at_end are both on: the Trainer raises "DeepSpeed can\'t be used with `save_only_model` along with `load_best_model_at_end`".',
            help="Take one of them out.",
            elsewhere=first.related(""),
            related=(second.related("and this is on too"),),
        )


@rule(
    "DS923",
    "evaluation-below-stage-3",
    effect=Effect.CRASH,
    phase=Phase.LOAD,
    watches=("setup",),
    references=(HF_SOURCE,),
    untried=RAISED_BY_LOADER,
)
@bad(
    ZERO2,
    at=("zero_optimization", "stage"),
    training="stage: sft\nmodel_name_or_path: m\ndo_train: false\ndo_eval: true\nbf16: true\nfp16: false\n",
)
@good(ZERO3, training="stage: sft\nmodel_name_or_path: m\ndo_train: false\ndo_eval: true\nbf16: true\nfp16: false\n")
def evaluation_below_stage_3(config: Config) -> Iterator[Finding]:
    """A run that only evaluates, with a ZeRO stage below 3.

    ZeRO 1 and 2 divide what training alone needs. The Trainer raises "ZeRO inference only makes sense with ZeRO Stage 3 - please adjust your config".

    Use stage 3, or leave DeepSpeed out of an evaluation.
    """
    arguments = config.arguments
    train, evaluate = (arguments.get(name) if arguments else None for name in ("do_train", "do_eval"))
    stage = config.value("zero_optimization.stage")
    if (
        train
        and evaluate
        and train.value is False
        and evaluate.value is True
        and stage in (0, 1, 2)
        and config.has("zero_optimization.stage")
    ):
        yield Finding(
            "zero_optimization.stage",
            f'The run only evaluates ({train.where}, {evaluate.where}), and the ZeRO stage is {stage}: the Trainer raises "ZeRO inference only makes sense with ZeRO Stage 3 - please adjust your config".',
            help="Use stage 3, or run the evaluation without DeepSpeed.",
            related=(train.related("no training"), evaluate.related("an evaluation")),
        )


@rule(
    "DS924",
    "argument-gone-in-transformers-5",
    effect=Effect.ADVICE,
    watches=("setup",),
    references=("transformers/training_args.py",),
    setup=True,
)
@bad(ZERO2, at=("half_precision_backend",), training=TRAINING + "half_precision_backend: auto\n")
@bad(
    ZERO2,
    at=("warmup_ratio",),
    training="per_device_train_batch_size: 2\nlearning_rate: 1e-5\nwarmup_ratio: 0.03\n",
    integration="transformers",
    loader_release=Release(5, 23, 0),
)
@good(ZERO2, training=TRAINING + "bf16: true\n")
def argument_gone_in_transformers_5(config: Config) -> Iterator[Finding]:
    """A training argument that transformers 5 no longer has.

    `fp16_backend`, `half_precision_backend` and `fp16_opt_level` spoke of apex, which is gone: from transformers 5.0 on they are unknown arguments. `warmup_ratio` is gone in 5.23:
    `warmup_steps` takes a share of all steps, below 1, in its place. Where the release is given (`--integration transformers==5.23`), it is known what happens.

    Take it out; `bf16` and `fp16` are all that is left.
    """
    arguments, release = config.arguments, config.facts.loader_release
    five = release is not None and release >= Release(5, 0, 0) and config.facts.integration is Integration.TRANSFORMERS
    ratio = arguments.get("warmup_ratio") if arguments and "Trainer" in arguments.framework else None
    if ratio is not None and five and release is not None and release >= Release(5, 23, 0):
        yield Finding(
            "",
            f"warmup_ratio is gone in transformers {release}: TrainingArguments raises \"got an unexpected keyword argument 'warmup_ratio'\".",
            help=f"Write warmup_steps with the same share: {ratio.raw}.",
            elsewhere=ratio.related(""),
            effect=Effect.CRASH,
            phase=Phase.LOAD,
        )
    for name in ("fp16_backend", "half_precision_backend", "fp16_opt_level"):
        given = arguments.get(name) if arguments else None
        if given is not None and (five or release is None):
            yield Finding(
                "",
                f"{given.name} is gone since transformers 5.0, which raises for an argument that it does not know.",
                help="Take it out.",
                elsewhere=given.related(""),
                effect=Effect.CRASH if five else None,
                phase=Phase.LOAD if five else None,
            )


@rule("DS925", "config-passed-over", effect=Effect.IGNORED, watches=("setup",), references=("transformers/training_args.py",), setup=True)
@bad(
    ZERO2,
    at=("deepspeed_config", "zero_stage"),
    training=TRAINING,
    accelerate="compute_environment: LOCAL_MACHINE\ndistributed_type: DEEPSPEED\nnum_processes: 8\ndeepspeed_config:\n  zero_stage: 3\n",
)
@good(
    ZERO2,
    training=TRAINING,
    accelerate="compute_environment: LOCAL_MACHINE\ndistributed_type: DEEPSPEED\nnum_processes: 8\ndeepspeed_config:\n  zero_stage: 2\n",
)
def config_passed_over(config: Config) -> Iterator[Finding]:
    """Both the training arguments and Accelerate's file bring a DeepSpeed config.

    The Trainer takes the one of its own argument `deepspeed`. What Accelerate's file says of ZeRO is passed over without a word.

    Keep one of them: take `deepspeed` out of the arguments, or the block out of Accelerate's file.
    """
    setup = config.setup
    file = setup.accelerate if setup else None
    if setup is None or file is None or setup.arguments is None or setup.link is None or setup.link.name == "deepspeed_config_file":
        return
    given = file.block.get("zero_stage") or file.config_file
    stage = config.value("zero_optimization.stage")
    if given is None or (given.name == "zero_stage" and (str(given.value) == str(stage) or not isinstance(stage, int))):
        return
    says = f"ZeRO stage {given.raw}" if given.name == "zero_stage" else str(given.value)
    counts = f", whose stage is {stage}" if isinstance(stage, int) else ""
    yield Finding(
        "",
        f"{says} is passed over: the training names {setup.link.value or 'a config of its own'}{counts}, and the Trainer takes that one without a word.",
        help="Take the config out of one of the two files.",
        elsewhere=given.related(""),
        related=(setup.link.related("counts"),),
    )


@rule(
    "DS926",
    "optimizer-in-config-and-program",
    effect=Effect.CRASH,
    phase=Phase.LOAD,
    watches=("setup",),
    references=("accelerate/accelerator.py, Accelerator._prepare_deepspeed",),
    untried=RAISED_BY_LOADER,
)
@bad(
    '{"train_micro_batch_size_per_gpu": 4, "gradient_accumulation_steps": 1, "optimizer": {"type": "AdamW", "params": {"lr": 1e-5}}, "zero_optimization": {"stage": 2}}',
    at="optimizer",
    program="import torch\nfrom accelerate import Accelerator\naccelerator = Accelerator()\nopt = torch.optim.AdamW(model.parameters())\naccelerator.prepare(model, opt)\n",
    integration="accelerate",
)
@good(
    '{"train_micro_batch_size_per_gpu": 4, "gradient_accumulation_steps": 1, "optimizer": {"type": "AdamW", "params": {"lr": 1e-5}}, "zero_optimization": {"stage": 2}}',
    program="from accelerate import Accelerator\nfrom accelerate.utils import DummyOptim\naccelerator = Accelerator()\nopt = DummyOptim(model.parameters())\n",
    integration="accelerate",
)
def optimizer_in_config_and_program(config: Config) -> Iterator[Finding]:
    """The config has an optimizer, and the program makes one of torch's and hands it to Accelerate.

    Accelerate raises "You cannot specify an optimizer in the config file and in the code at the same time. Please remove the optimizer from the config file or create
    `accelerate.utils.DummyOptim` in the code."

    Do as it says.
    """
    program = config.setup.program if config.setup else None
    if (
        program is None
        or program.torch_optimizer is None
        or program.dummy_optimizer
        or program.loader != "accelerate"
        or not config.has("optimizer")
    ):
        return
    made = program.torch_optimizer
    yield Finding(
        "optimizer",
        f'The config has an optimizer, and {made.where} makes one too ({made.raw}): Accelerate raises "You cannot specify an optimizer in the config file and in the code at the same time".',
        help="Take the section out of the config, or make an accelerate.utils.DummyOptim in the program.",
        related=(made.related("made here"),),
        severity=Severity.WARNING,
    )


@rule(
    "DS927",
    "accumulation-under-lightning",
    effect=Effect.CRASH,
    phase=Phase.LOAD,
    watches=("fact:integration",),
    references=("lightning/pytorch/strategies/deepspeed.py, DeepSpeedStrategy._format_config",),
    untried="raised by Lightning, not by DeepSpeed",
)
@bad('{"gradient_accumulation_steps": 4, "zero_optimization": {"stage": 2}}', at="gradient_accumulation_steps", integration="lightning")
@good('{"zero_optimization": {"stage": 2}}', integration="lightning")
def accumulation_under_lightning(config: Config) -> Iterator[Finding]:
    """The config sets `gradient_accumulation_steps`, which Lightning's Trainer sets itself.

    It raises "Do not set `gradient_accumulation_steps` in the DeepSpeed config as this will be set with the `accumulate_grad_batches` argument passed via the Lightning Trainer."
    Fabric, where there is no such argument, takes the key.

    Take it out, and pass `accumulate_grad_batches`.
    """
    if config.facts.integration is Integration.LIGHTNING and config.has("gradient_accumulation_steps"):
        yield Finding(
            "gradient_accumulation_steps",
            'Lightning\'s Trainer raises "Do not set `gradient_accumulation_steps` in the DeepSpeed config as this will be set with the `accumulate_grad_batches` argument"; only Fabric takes the key.',
            help="Take it out, and pass accumulate_grad_batches to the Trainer.",
            severity=Severity.WARNING,
        )


_FROM_HIDDEN_SIZE = tuple(
    f"zero_optimization.{key}" for key in ("reduce_bucket_size", "stage3_prefetch_bucket_size", "stage3_param_persistence_threshold")
)
_SIZES = ("hidden_size", "hidden_sizes", "n_embd", "n_embed", "d_model", "dim")


@rule(
    "DS928",
    "no-hidden-size",
    effect=Effect.CRASH,
    phase=Phase.LOAD,
    watches=("fact:model",),
    references=("transformers/integrations/deepspeed.py, trainer_config_finalize", "accelerate/accelerator.py, _prepare_deepspeed"),
    untried=RAISED_BY_LOADER,
)
@bad(
    '{"train_batch_size": "auto", "zero_optimization": {"stage": 3, "reduce_bucket_size": "auto"}}',
    at="zero_optimization.reduce_bucket_size",
    integration="accelerate",
    model={"model_type": "llava", "text_config": {"hidden_size": 4096}},
)
@good(
    '{"train_batch_size": "auto", "zero_optimization": {"stage": 2, "reduce_bucket_size": "auto"}}',
    integration="transformers",
    model={"model_type": "llava", "text_config": {"hidden_size": 4096}},
)
def no_hidden_size(config: Config) -> Iterator[Finding]:
    """An "auto" that is computed from the model's hidden size, and a model whose config has none.

    The bucket sizes are filled from `hidden_size`, or the largest of `hidden_sizes`. The Trainer looks into `text_config` too, Accelerate alone does not: for a model of text and
    images it raises "Can find neither `model.config.hidden_size` nor `model.config.hidden_sizes`".

    Write numbers.
    """
    model = config.facts.model
    if (
        model is None
        or config.facts.integration not in (Integration.TRANSFORMERS, Integration.ACCELERATE)
        or hidden_size(config.facts) is not None
    ):
        return
    text: Any = model.data.get("text_config")
    looked = [model.data, *([text] if isinstance(text, dict) and config.facts.integration is Integration.TRANSFORMERS else [])]
    if any(name in data for data in looked for name in _SIZES) or not isinstance(config.document.root, Mapping):
        return  # a class of transformers may well map another name to hidden_size
    keys = [key for key in _FROM_HIDDEN_SIZE if config.has(key) and config.quote(key) == '"auto"']
    if not keys:
        return
    says = (
        "Can find neither `model.config.hidden_size` nor `model.config.hidden_sizes`"
        if config.facts.integration is Integration.ACCELERATE
        else "The model's config file has neither `hidden_size` nor `hidden_sizes` entry"
    )
    yield Finding(
        keys[0],
        f'{keys[0]} is "auto", to be computed from the hidden size, and {model.path} has none at the top: {config.facts.integration.label} raises "{says}".',
        help="Write a number" + (f"; so too for {', '.join(key.rpartition('.')[2] for key in keys[1:])}." if keys[1:] else "."),
        on="value",
        related=tuple((key, "this one too") for key in keys[1:]),
    )
