"""DS9: arguments that a framework refuses: it does not know them, or not together with others or with DeepSpeed."""

from __future__ import annotations

import re
from collections.abc import Iterator

from dslint.config import UNKNOWN, Config
from dslint.diagnostics import Effect, LoadStep, Phase, SharedCause
from dslint.facts import Release
from dslint.frameworks import trl
from dslint.frameworks.base import Framework
from dslint.frameworks.huggingface import TRAINER
from dslint.frameworks.own_loading import meant
from dslint.frameworks.refusals import refused as refused_by
from dslint.frameworks.registry import of_arguments
from dslint.frameworks.tables import table
from dslint.frameworks.training import bare, is_parsed, refusal_of, refused, unknown, without_value
from dslint.frameworks.trl import partial_group
from dslint.job.arguments import Arguments
from dslint.job.events import REFUSAL, is_true
from dslint.job.model import Setup
from dslint.rule import Finding, bad, good, rule
from dslint.rules.helpers.loaders import RAISED_BY_LOADER, trainer_arguments
from dslint.rules.helpers.project import is_raised_by, programs_of, project_around
from dslint.rules.helpers.releases import is_between, release_of
from dslint.rules.helpers.trl_arguments import of_class
from dslint.source.similar import similar

_STAGE_2 = '{"train_batch_size": "auto", "zero_optimization": {"stage": 2}}'
_STAGE_3 = '{"train_batch_size": "auto", "zero_optimization": {"stage": 3, "stage3_gather_16bit_weights_on_model_save": true}}'
_LLAMA_FACTORY = "stage: sft\nmodel_name_or_path: m\nper_device_train_batch_size: 2\nlearning_rate: 1e-4\ndeepspeed: ds_config.json\n"
_CHECKS = (
    "from dataclasses import dataclass\nfrom transformers import HfArgumentParser, Trainer, TrainingArguments\n"
    "from transformers.integrations import is_deepspeed_zero3_enabled\n@dataclass\nclass Own:\n    use_lora: bool = False\n    freeze: bool = False\n"
    "own, arguments = HfArgumentParser((Own, TrainingArguments)).parse_args_into_dataclasses()\n"
    "if own.use_lora and is_deepspeed_zero3_enabled():\n    raise RuntimeError('ZeRO-3 does not go with LoRA')\n"
    "if own.freeze and not own.use_lora:\n    raise ValueError('freeze requires use_lora')\n"
    "Trainer(model, arguments).train()\n"
)
_LAUNCH = "deepspeed --num_gpus 2 train.py --use_lora --output_dir o --per_device_train_batch_size 4 --deepspeed ds_config.json\n"

CLOSE = 0.86
"""The similarity from which an argument counts as a misspelling, as for keys of an Accelerate file."""


@rule(
    "DS974",
    effect=Effect.CRASH,
    phase=Phase.LOAD,
    step=LoadStep.REST,
    watches=("setup",),
    references=("transformers/hf_argparser.py, parse_dict and parse_args_into_dataclasses",),
    untried=RAISED_BY_LOADER,
    setup=True,
)
@bad(
    _STAGE_2,
    at=("gradient_acumulation_steps",),
    training=_LLAMA_FACTORY + "gradient_acumulation_steps: 4\n",
    message='Unknown argument "gradient_acumulation_steps": LLaMA-Factory raises "Some keys are not used by the HfArgumentParser: [\'gradient_acumulation_steps\']".',
)
@good(_STAGE_2, training=_LLAMA_FACTORY + "gradient_accumulation_steps: 4\n")
def unknown_argument(config: Config) -> Iterator[Finding]:
    """A framework does not know an argument, and refuses it.

    The Trainer's `HfArgumentParser`, LLaMA-Factory, ms-swift, TRL and GPT-NeoX end the job for an argument that none of their classes has. axolotl
    ignores it. The names of all arguments come from the installed packages, and those of older releases from their wheels. A name that no
    known release has is an error if it is a misspelling of a known one, and a warning otherwise; for GPT-NeoX only misspellings of the fields
    that dslint knows are found. A name that transformers had in another
    release is an error if the project pins the release, or it is given: `evaluation_strategy` under transformers 5. The flag of a switch that
    may also be None needs a value: `--tf32 true`, and for TRL, since its release 0.20, `--bf16 true`.

    Commands that do not train, such as `llamafactory-cli chat`, `llamafactory-cli export` and `swift infer`, have no argument for a DeepSpeed
    config, and read no file that has one.

    Correct the spelling, remove the argument, or write its value.
    """
    yield from _of_inference(config)
    yield from _in_own_files(config)
    yield from _of_other_trl(config)
    arguments = config.arguments
    framework = of_arguments(arguments)
    if arguments is None or framework is None or framework.table is None or not arguments.sure:
        return
    for given in without_value(arguments):
        name = bare(given)
        release = config.context.pinned(framework.packages[0])
        certain = name in table("huggingface").valued or (release is not None and release >= Release.parse(framework.table.release))
        yield Finding(
            "",
            f'{given.name} has no value: {framework.name} {"raises" if certain else "may raise"} "argument --{name}: expected one argument".',
            help=f"Write {given.name} true.",
            elsewhere=given.related(""),
            step=LoadStep.PARSER,
            certain=certain,
        )
    strange = [(given, bare(given)) for given in unknown(arguments) if not _adds(config, bare(given))]
    misspelt = {name: next(iter(similar(name, framework.table.accepted, cutoff=CLOSE)), None) for _, name in strange}
    others = ", ".join(name for _, name in strange if misspelt[name] is None)
    for given, name in strange:
        meant = misspelt[name]
        error = refusal_of(framework, arguments, given)
        together = f'Unknown arguments {others}: {framework.name} may raise "{error}".'
        yield Finding(
            "",
            f'Unknown argument "{name}": {framework.name} {"raises" if meant else "may raise"} "{error}".',
            help=f'Write "{meant}".' if meant else f"Remove it, unless your release of {framework.name} has it.",
            elsewhere=given.related(""),
            step=None if is_parsed(arguments, given) else LoadStep.PARSER,
            certain=meant is not None,
            cause=None
            if meant
            else SharedCause("unknown-argument", together, f"Remove them, unless your release of {framework.name} has them."),
        )
    for given in refused(arguments, config.facts):
        name = bare(given)
        if name in _REPORTED_ELSEWHERE and not (name == "warmup_ratio" and framework.name != TRAINER):
            continue
        meant = _NEW_NAMES.get(name)
        error = refusal_of(framework, arguments, given)
        yield Finding(
            "",
            f'transformers {config.facts.loader_release} has no argument "{name}": {framework.name} raises "{error}".',
            help=f'Write "{meant}".' if meant else "Remove it.",
            elsewhere=given.related(""),
            step=None if is_parsed(arguments, given) else LoadStep.PARSER,
        )


def _of_other_trl(config: Config) -> Iterator[Finding]:
    """The arguments that the parser of TRL, or of transformers, reads for a config class of TRL, and that the class lacks in the release."""
    arguments, pinned = config.arguments, release_of(config, "trl")
    if arguments is None or pinned is None or any("unsloth" in text for text in programs_of(config)):
        return
    own = next(
        (
            one
            for one in trl.FRAMEWORK.classes
            if arguments.framework == trl.FRAMEWORK.name and one.lower() == f"trl.{arguments.task}config"
        ),
        "",
    )
    kind = (arguments.kind or own).rpartition(".")[2]
    passed = config.setup.launch.passed if config.setup is not None and config.setup.launch is not None else None
    given = {**(passed.flags if passed is not None else {}), **arguments.values, **{bare(one): one for one in arguments.others}}
    known, project = table("trl").accepted | table("huggingface").accepted, project_around(config)
    for name, taken in of_class(kind).items():
        one = given.get(name)
        if one is None or not is_between(pinned, taken.first, taken.last) or _adds(config, name):
            continue
        is_flag = one.name.startswith("--")
        begins = any(other != name and other.startswith(name) for other in known)  # argparse takes it for that one
        if (is_flag and begins) or not (is_flag or one.pointer is not None or one.path.endswith((".yaml", ".yml"))):
            continue
        has_own = project is not None and project.program_with_field(name) is not None
        if has_own or any(_KEEPS_OTHERS.search(text) for text in programs_of(config)):
            continue
        error = (
            "Some specified arguments are not used by the HfArgumentParser"
            if is_flag and arguments.framework != trl.FRAMEWORK.name
            else refusal_of(trl.FRAMEWORK, arguments, one)
        )
        yield Finding(
            "",
            f'{kind} of trl {pinned} has no argument "{name}": each rank may raise "{error}".',
            help=taken.help,
            elsewhere=one.related(""),
            step=LoadStep.PARSER,
            certain=False,
        )


_KEEPS_OTHERS = re.compile(
    r"return_remaining_strings\s*=\s*True|parse_known_args|fail_with_unknown_args\s*=\s*False|allow_extra_keys\s*=\s*True"
)
"""How a program parses arguments and keeps those that no class has."""


def _adds(config: Config, name: str) -> bool:
    """Whether a program adds an argument to its parser by a call, as `HfArgumentParser` is an `ArgumentParser`; or the project, which may hold
    a changed copy of a framework, has a field of this name.
    """
    project = project_around(config) if config.arguments is not None and config.arguments.framework != TRAINER else None
    if project is not None and project.program_with_field(name) is not None:
        return True
    texts = programs_of(config)
    added = re.compile(rf"add_argument\(\s*[\"']--{re.escape(name).replace('_', '[-_]')}[\"']")
    return any("add_argument" in text and added.search(text) for text in texts)


def _of_inference(config: Config) -> Iterator[Finding]:
    """The argument for a config of a command that does not train."""
    refused = config.setup.refused if config.setup is not None else None
    if refused is None:
        return
    is_flag, by_launcher = refused.given.name.startswith("-"), refused.given.name == "--local_rank"
    remove = f"Remove {refused.given.name}." if is_flag else "Give it a file without the arguments of a training."
    yield Finding(
        "",
        f'{refused.command} does not train, and has no argument "{bare(refused.given)}": it raises "{refused.error}: ...".',
        help="Start it with python: the deepspeed launcher passes --local_rank." if by_launcher else remove,
        elsewhere=refused.given.related(""),
    )


def _in_own_files(config: Config) -> Iterator[Finding]:
    """The unknown arguments of a framework without the Trainer."""
    fields = config.setup.of_framework if config.setup else None
    framework = of_arguments(fields)
    if fields is None or framework is None or not framework.refuses_unknown:
        return
    for given in fields.others:
        name = meant(framework, given.name)
        yield Finding(
            "",
            f'Unknown argument "{given.name}": {framework.name} raises "{framework.refuses_unknown.format(name=given.name)}".',
            help=f'Write "{name}".' if name is not None else "Remove it.",
            elsewhere=given.related(""),
        )


_NEW_NAMES = {"evaluation_strategy": "eval_strategy", "warmup_ratio": "warmup_steps"}
_REPORTED_ELSEWHERE = ("fp16_backend", "half_precision_backend", "fp16_opt_level", "warmup_ratio")
"""Arguments that DS924 reports, `warmup_ratio` only for the Trainer itself."""


@rule(
    "DS975",
    effect=Effect.CRASH,
    phase=Phase.LOAD,
    watches=("setup",),
    references=(
        "llamafactory/hparams/parser.py, get_train_args",
        "axolotl/utils/schemas/validation.py",
        "transformers/trainer.py, Trainer.set_initial_training_values",
        "trl/trainer/grpo_config.py and rloo_config.py, __post_init__",
    ),
    untried=RAISED_BY_LOADER,
    setup=True,
)
@bad(
    _STAGE_3,
    at=("predict_with_generate",),
    training=_LLAMA_FACTORY + "val_size: 0.1\npredict_with_generate: true\n",
    message='predict_with_generate: true at ZeRO stage 3: LLaMA-Factory may raise "`predict_with_generate` is incompatible with DeepSpeed ZeRO-3.".',
)
@bad(
    _STAGE_2,
    at=("quantization_bit",),
    training=_LLAMA_FACTORY + "finetuning_type: full\nquantization_bit: 4\n",
    message='quantization_bit: 4 with finetuning_type: full: LLaMA-Factory raises "Quantization is only compatible with the LoRA or OFT method.".',
)
@bad(
    _STAGE_3,
    at=("quantization_bit",),
    training=_LLAMA_FACTORY + "finetuning_type: lora\nquantization_bit: 8\n",
    message='quantization_bit: 8 at ZeRO stage 3: LLaMA-Factory raises "Only 4-bit quantized model can use ...".',
)
@bad(
    _STAGE_3,
    at=("quantization_bit",),
    training=_LLAMA_FACTORY + "finetuning_type: lora\nquantization_bit: 4\n",
    pins={"llamafactory": Release(0, 5, 3)},
    message='quantization_bit: 4 at ZeRO stage 3: LLaMA-Factory raises "DeepSpeed ZeRO-3 is incompatible with quantization.".',
)
@good(_STAGE_3, training=_LLAMA_FACTORY + "finetuning_type: lora\nquantization_bit: 4\n", pins={"llamafactory": Release(0, 8, 3)})
@bad(
    _STAGE_2,
    at=("use_muon",),
    training=_LLAMA_FACTORY + "use_muon: true\n",
    message="use_muon: true at ZeRO stage 2: LLaMA-Factory raises \"KeyError: 'use_muon'\".",
)
@bad(
    _STAGE_3,
    at="",
    program=_CHECKS,
    launch=_LAUNCH,
    integration="transformers",
    message="train.py:10 raises RuntimeError('ZeRO-3 does not go with LoRA'): the flags of run.sh:1 lead there at ZeRO stage 3.",
)
@good(_STAGE_2, program=_CHECKS, launch=_LAUNCH, integration="transformers")
@good(
    _STAGE_3,
    program=_CHECKS.replace("if own.use_lora", "for name, value in settings().items():\n    setattr(own, name, value)\nif own.use_lora"),
    launch=_LAUNCH,
    integration="transformers",
)
@good(_STAGE_3, program=_CHECKS, launch=_LAUNCH.replace(" --use_lora", ""), integration="transformers")
@bad(
    _STAGE_2,
    at="",
    program=_CHECKS,
    launch=_LAUNCH.replace("--use_lora", "--freeze"),
    integration="transformers",
    message="train.py:12 raises ValueError('freeze requires use_lora'): the flags of run.sh:1 lead there.",
)
@good(_STAGE_2.replace('"stage": 2', '"stage": 0'), training=_LLAMA_FACTORY + "use_muon: true\n")
@good(_STAGE_2.replace('"stage": 2', '"stage": 2, "offload_optimizer": {"device": "cpu"}'), training=_LLAMA_FACTORY + "use_muon: true\n")
@good(_STAGE_2, training=_LLAMA_FACTORY + "val_size: 0.1\npredict_with_generate: true\n")
@good(_STAGE_2, training=_LLAMA_FACTORY + "finetuning_type: lora\nquantization_bit: 4\n")
def arguments_refused(config: Config) -> Iterator[Finding]:
    """A framework, or the program itself, refuses arguments: together with others, or at the ZeRO stage of the config.

    Each framework checks its arguments before it starts DeepSpeed, and raises for those that do not go together. Its module in
    `dslint/frameworks` lists these checks, with their sources.

    With `dataloader_drop_last` each rank gets only whole batches. If the rows of the data make none, the length of the loader is 0, which the
    Trainer takes for a loader without a length: without `max_steps` it raises.

    Many programs check their flags, too, and raise where two of them do not go together, or for a flag at ZeRO stage 3.

    TRL's GRPO and RLOO generate `num_generations` texts for each prompt, and require that the batch of all ranks holds whole groups of them:
    up to TRL 0.16 the ranks times `per_device_train_batch_size`, later that times `steps_per_generation`, whose default is
    `gradient_accumulation_steps`. Where nothing pins TRL, an argument `vllm_device` says that the training is for TRL up to 0.16.

    Muon in ms-swift and LLaMA-Factory keeps a note for each matrix that it is made with. With ZeRO it meets flat partitions instead, and its
    first step raises `KeyError: 'use_muon'`.

    Change or remove one of the arguments, or use the ZeRO stage that the message names.
    """
    yield from _raised_by_program(config)
    yield from _no_whole_batch(config)
    yield from _partial_group(config)
    setup = config.setup
    arguments = (config.arguments or setup.of_framework) if setup is not None else None
    framework = of_arguments(arguments)
    is_used = setup is not None and (setup.link or setup.accelerate or setup.made)
    if arguments is None or framework is None or not framework.refusals or not arguments.sure or not is_used:
        return
    arguments = arguments.when_made()  # none of them is checked again when a program sets one
    value = config.value("zero_optimization.stage")
    stage = value if isinstance(value, int) else UNKNOWN
    release = config.context.pinned(framework.packages[0]) if framework.packages else None
    for refusal, (first, *others) in refused_by(framework.refusals, arguments, stage, release):
        if arguments.former and refusal.absent and not refusal.until:
            continue  # an older release may have another name for what is absent
        if refusal.own_optimizer and not _leaves_optimizer(config):
            continue
        said = is_raised_by(config, framework, refusal.error) if refusal.own else None
        if said is False:
            continue  # a checkout of a release that does not refuse it
        is_known = release is not None and (arguments.former is None or release < arguments.former)
        certain = bool(said) or is_known or (not arguments.former and not refusal.since)
        before = arguments.former if release is None else None
        only_some = before is not None and bool(refusal.until) and Release.parse(refusal.until) < before
        raises = f"before {refusal.until} may raise" if only_some else "raises" if certain else "may raise"
        more = f" with {' and '.join(one.shown for one in others)}" if others else ""
        at = f" at ZeRO stage {stage}" if refusal.stages else ""
        yield Finding(
            "",
            f'{first.shown}{more}{at}: {framework.name} {raises} "{refusal.error}".',
            help=refusal.help,
            elsewhere=first.related(""),
            related=tuple(one.related("together with this") for one in others),
            phase=refusal.phase,
            step=refusal.step,
            certain=certain,
        )
        return


def _raised_by_program(config: Config) -> Iterator[Finding]:
    """The error with which the program itself refuses the flags of its launch."""
    program, launch = (config.setup.program, config.setup.launch) if config.setup is not None else (None, None)
    passed = launch.passed if launch is not None else None
    if program is None or passed is None or not passed.complete:
        return
    for event in program.events.of(REFUSAL):
        at_stage_3 = is_true(event.argument("at_stage_3"))
        if not event.always or (at_stage_3 and not config.value("zero_optimization.stage") >= 3):
            continue
        what = "an error" if event.at.raw == "..." else event.at.raw
        yield Finding(
            "",
            f"{event.at.where} raises {what}: the flags of {passed.program.where} lead there{' at ZeRO stage 3' if at_stage_3 else ''}.",
            help=f"Give other flags{', or use ZeRO stage 2' if at_stage_3 else ''}.",
            elsewhere=event.at.related(""),
            related=(passed.program.related("launched here"),),
            step=LoadStep.DATA,
        )
        return


def _leaves_optimizer(config: Config) -> bool:
    """Whether the engine certainly gets the optimizer of the framework: Accelerate replaces one whose states are offloaded."""
    device = config.value("zero_optimization.offload_optimizer.device")
    return not config.has("optimizer") and not config.may_be_written("optimizer") and device in (None, "none")


_OTHER_BATCHES = frozenset(
    [
        "streaming",
        "dataset_streaming",
        "auto_find_batch_size",
        "accelerator_config",
        "parallelism_config",
        "split_batches",
        "train_sampling_strategy",
    ]
)
"""Arguments with which a rank may get other batches than those of the rows."""


def _no_whole_batch(config: Config) -> Iterator[Finding]:
    """The finding for data with fewer rows than one batch of all ranks, where the rest is dropped."""
    arguments = trainer_arguments(config)
    given = arguments.get("dataloader_drop_last") if arguments is not None and arguments.most_batches == 0 else None
    if arguments is None or given is None or arguments.said("max_steps").given is not None:
        return
    names = {*arguments.values, *map(bare, arguments.others)}
    if not names.isdisjoint(_OTHER_BATCHES) or not (arguments.sure and arguments.complete):
        return
    micro, ranks = arguments.value("per_device_train_batch_size"), config.facts.world_size
    yield Finding(
        "",
        f"{given.shown}: {arguments.rows:,} rows make no whole batch of {micro} for each of {ranks:,} ranks, and the Trainer raises "
        '"args.max_steps must be set to a positive value if dataloader does not have a length".',
        help="Remove dataloader_drop_last, or use more rows, fewer ranks or a smaller micro batch size.",
        elsewhere=given.related(""),
        related=(arguments.data.related("names the data"),) if arguments.data is not None else (),
        step=LoadStep.TRAINER,
    )


def _partial_group(config: Config) -> Iterator[Finding]:
    """The finding for a batch of all ranks that holds a part of a group of generations."""
    arguments, setup, ranks = config.arguments, config.setup, config.facts.world_size
    if arguments is None or setup is None or not (setup.link or setup.accelerate):
        return
    pinned = config.context.pinned("trl")
    release = _LAST_WITH_DEVICE if pinned is None and arguments.get("vllm_device") is not None else pinned
    found = partial_group(arguments, _method_of_trl(arguments, setup), ranks, release)
    if found is None:
        return
    generations, error = found
    raises = "TRL raises" if pinned is not None else "TRL may raise" if release is None else "TRL up to 0.16 may raise"
    given = [one for name in _OF_GROUPS if (one := arguments.get(name)) is not None]
    yield Finding(
        "",
        f'{ranks} {"rank has" if ranks == 1 else "ranks have"} no whole groups of {generations} generations: {raises} "{error}".',
        help="Choose the number of ranks, per_device_train_batch_size and num_generations so that num_generations divides their product. "
        "A GPU that only runs vLLM is not a rank.",
        elsewhere=given[0].related("") if given else None,
        related=tuple(one.related("together with this") for one in given[1:]),
        step=LoadStep.TRAINER if release is not None and release < _CHECKS_ARGUMENTS else LoadStep.ARGUMENTS,
        certain=pinned is not None,
    )


_LAST_WITH_DEVICE = Release(0, 16, 0)
"""The last release of TRL that counts no steps of accumulation. A training with `vllm_device` is for such a one: since 0.18 TRL has no such
argument, and 0.17 only warns that it does nothing.
"""

_CHECKS_ARGUMENTS = Release(0, 18, 0)
"""The release of TRL from which the class of the arguments makes the check that the trainer made before."""

_OF_GROUPS = (
    "num_generations",
    "generation_batch_size",
    "steps_per_generation",
    "per_device_train_batch_size",
    "gradient_accumulation_steps",
)


def _method_of_trl(arguments: Arguments, setup: Setup) -> str:
    """The method of TRL: the task of its command or of its class of arguments, otherwise that of the only trainer the program makes."""
    if arguments.framework == trl.FRAMEWORK.name and arguments.task:
        return arguments.task
    if arguments.kind in trl.FRAMEWORK.classes:
        return trl.FRAMEWORK.classes[arguments.kind]
    made = setup.program.events.of(r"trl\.(\w+\.)*\w+Trainer") if setup.program is not None else ()
    methods = {one.name.rpartition(".")[2].removesuffix("Trainer").lower() for one in made}
    return methods.pop() if len(methods) == 1 else ""


_ONE_GPU = "Please use `FORCE_TORCHRUN=1` to launch DeepSpeed training."
"""What LLaMA-Factory raises for a single process with DeepSpeed."""


@rule(
    "DS982",
    effect=Effect.CRASH,
    phase=Phase.LOAD,
    watches=("setup",),
    references=("llamafactory/launcher.py, launch", "swift/cli/main.py, use_torchrun", "swift/arguments/sft_args.py, _init_deepspeed"),
    untried=RAISED_BY_LOADER,
    setup=True,
)
@bad(
    _STAGE_2,
    at="",
    training=_LLAMA_FACTORY,
    launch="CUDA_VISIBLE_DEVICES=0 llamafactory-cli train train.yaml\n",
    message='The command starts one process, which sees one GPU: LLaMA-Factory may raise "Please use `FORCE_TORCHRUN=1` to launch DeepSpeed training." unless FORCE_TORCHRUN is set.',
)
@bad(
    _STAGE_2,
    at="",
    training=_LLAMA_FACTORY,
    launch="CUDA_VISIBLE_DEVICES=0 llamafactory-cli train train.yaml\n",
    pins={"llamafactory": Release(0, 9, 1)},
    message='The command starts one process, which sees one GPU: LLaMA-Factory raises "Please use `FORCE_TORCHRUN=1` to launch DeepSpeed training." unless FORCE_TORCHRUN is set.',
)
@bad(
    _STAGE_2,
    at="",
    training=_LLAMA_FACTORY,
    launch="CUDA_VISIBLE_DEVICES=0 llamafactory-cli train train.yaml\n",
    pins={"llamafactory": Release(0, 8, 0)},
    message="The command starts one process, which sees one GPU: this LLaMA-Factory does not check it, and the Trainer may not use DeepSpeed's engine, which at ZeRO stage 3 raises RuntimeError \"'weight' must be 2-D\" unless FORCE_TORCHRUN is set.",
)
@good(_STAGE_2, training=_LLAMA_FACTORY, launch="FORCE_TORCHRUN=1 CUDA_VISIBLE_DEVICES=0 llamafactory-cli train train.yaml\n")
@bad(
    _STAGE_2,
    at="",
    training=_LLAMA_FACTORY,
    launch="CUDA_VISIBLE_DEVICES=0 python src/train.py train.yaml\n",
    message='python starts src/train.py as one process: LLaMA-Factory may raise "Please use `FORCE_TORCHRUN=1` to launch DeepSpeed training.".',
)
@bad(
    _STAGE_2,
    at="",
    training=_LLAMA_FACTORY,
    launch="python src/train.py train.yaml\n",
    message='python starts src/train.py as one process: LLaMA-Factory may raise "Please launch distributed training with `llamafactory-cli` or `torchrun`." on several GPUs, and "Please use `FORCE_TORCHRUN=1` to launch DeepSpeed training." on one.',
)
@bad(
    _STAGE_2,
    at="",
    training=_LLAMA_FACTORY,
    launch="llamafactory-cli train train.yaml\n",
    world_size=1,
    message='The command starts one process, because the job has one rank: LLaMA-Factory may raise "Please use `FORCE_TORCHRUN=1` to launch DeepSpeed training." unless FORCE_TORCHRUN is set.',
)
@good(_STAGE_2, training=_LLAMA_FACTORY, launch="CUDA_VISIBLE_DEVICES=0,1 llamafactory-cli train train.yaml\n")
@good(_STAGE_2, training=_LLAMA_FACTORY, launch="FORCE_TORCHRUN=1 llamafactory-cli train train.yaml\n", world_size=1)
@good(_STAGE_2, training=_LLAMA_FACTORY, launch="llamafactory-cli train train.yaml\n", world_size=2)
def one_process_of_framework(config: Config) -> Iterator[Finding]:
    """The command of a framework starts one process, and the framework refuses DeepSpeed in it.

    `llamafactory-cli train` starts ranks with torchrun if it sees several GPUs, or if `FORCE_TORCHRUN` is set. On one GPU, which is that of a
    job with one rank, it raises "Please use `FORCE_TORCHRUN=1` to launch DeepSpeed training." since 0.8.3. `swift sft` and `swift rlhf` start ranks only
    if `NPROC_PER_NODE` or `NNODES` is set. One process that sees several GPUs would spread the model over them, which ms-swift refuses with
    DeepSpeed. `python src/train.py` starts one process whatever these variables are, and with several GPUs LLaMA-Factory asks for torchrun.

    Set the variable that the message names, or launch the program with torchrun.
    """
    launch = config.setup.launch if config.setup else None
    framework = of_arguments(config.arguments)
    if launch is None or launch.bare is None or framework is None or not framework.starts_ranks:
        return
    visible = launch.visible_gpus
    seen = config.facts.world_size if visible is None else len(visible)
    by_python = launch.launcher in ("python", "srun")  # its own command, which reads the variables, takes no part
    if framework.starts_all and by_python and seen != 1:
        several, one = "Please launch distributed training with `llamafactory-cli` or `torchrun`.", _ONE_GPU
        error, variable = f'{several}" on several GPUs, and "{one}' if seen is None else several, ""
    elif framework.starts_all and seen == 1:
        error, variable = _ONE_GPU, "FORCE_TORCHRUN=1"
    elif framework.spread_error and visible is not None and len(visible) > 1:
        error, variable = f"{framework.spread_error} ...", f"NPROC_PER_NODE={len(visible)}"
    else:
        return
    raising = _refusing_one_process(config, framework, error)
    if by_python:
        yield Finding(
            "",
            f"python starts {launch.bare.raw} as one process: "
            + (f'{framework.name} may raise "{error}"{" on one" if seen is None else ""}.' if raising else f"{_IN_ONE_PROCESS}."),
            help=f"Launch it with torchrun, or use {framework.commands[0]}{f' with {variable}' if variable else ''}.",
            elsewhere=launch.bare.related(""),
            certain=False,
        )
        return
    sees = "which sees one GPU" if seen == 1 else f"which sees {seen} GPUs"
    yield Finding(
        "",
        f"The command starts one process, {'because the job has one rank' if visible is None else sees}: "
        + (f'{framework.name} {raising} "{error}"' if raising else _IN_ONE_PROCESS)
        + f" unless {variable.partition('=')[0]} is set.",
        help=f"Write {variable} before the command.",
        elsewhere=(launch.visible if visible is not None and launch.visible is not None else launch.bare).related(""),
        certain=False,
    )


_IN_ONE_PROCESS = (
    "this LLaMA-Factory does not check it, and the Trainer may not use DeepSpeed's engine, which at ZeRO stage 3 raises "
    "RuntimeError \"'weight' must be 2-D\""
)
"""What a single process with DeepSpeed comes to in releases of LLaMA-Factory that do not refuse it."""

_REFUSES_ONE_PROCESS = Release(0, 8, 3)
"""The first release of LLaMA-Factory that refuses it."""


def _refusing_one_process(config: Config, framework: Framework, error: str) -> str:
    """How to say that a framework refuses DeepSpeed in one process: "raises", or "may raise" of an unknown release; "" if it does not."""
    said = is_raised_by(config, framework, error.partition('"')[0]) if framework.starts_all else None
    if said is not None:
        return "raises" if said else ""
    release = config.context.pinned(framework.packages[0])
    if release is None:
        return "may raise"
    return "raises" if not framework.starts_all or release >= _REFUSES_ONE_PROCESS else ""


@rule(
    "DS980",
    effect=Effect.CRASH,
    phase=Phase.LOAD,
    step=LoadStep.CHOICES,
    watches=("setup",),
    references=("transformers/trainer_utils.py, SchedulerType and SaveStrategy", "transformers/training_args.py, OptimizerNames"),
    untried=RAISED_BY_LOADER,
    setup=True,
)
@bad(
    _STAGE_2,
    at=("lr_scheduler_type",),
    training=_LLAMA_FACTORY + "lr_scheduler_type: cosin\n",
    message='lr_scheduler_type has no value "cosin": LLaMA-Factory raises "cosin is not a valid SchedulerType".',
)
@bad(
    _STAGE_2,
    at=("save_strategy",),
    training=_LLAMA_FACTORY + "save_strategy: no\n",
    message='save_strategy: no without quotes is false in YAML: LLaMA-Factory raises "False is not a valid SaveStrategy".',
)
@bad(
    _STAGE_2,
    at=("optim",),
    training=_LLAMA_FACTORY + "optim: adamw_mini\n",
    message='optim has no value "adamw_mini": LLaMA-Factory may raise "adamw_mini is not a valid OptimizerNames".',
)
@good(_STAGE_2, training=_LLAMA_FACTORY + 'lr_scheduler_type: cosine\nsave_strategy: "no"\n')
def argument_choice(config: Config) -> Iterator[Finding]:
    """An argument of the Trainer has a value that it does not accept.

    The Trainer raises for an optimizer, a schedule or a strategy that it does not know, before the model is loaded. The choices come from the
    installed package. A value that no known release has is an error if the project pins a known release of transformers, or if it is a
    misspelling of a choice; otherwise a newer release may have it. YAML reads `no` without quotes as false.

    A number that a program reads from a file as text stays text: YAML 1.1 reads `1e-4` so, because a float needs a dot, and
    `parse_yaml_file`, `parse_json_file` and `parse_dict` convert nothing. The optimizer raises for it.

    Write one of the choices, and numbers with a dot: `1.0e-4`.
    """
    arguments = config.arguments
    if arguments is not None:
        yield from _texts(config, arguments)
    framework = of_arguments(arguments)
    if arguments is None or framework is None or not framework.passes_choices or not arguments.sure:
        return
    trainers = table("huggingface")
    release = config.facts.loader_release
    for name, (kind, *choices) in trainers.choices.items():
        given = arguments.get(name)
        value = given.value if given is not None else None
        if given is None or value in choices or not isinstance(value, str | bool) or "$" in given.raw or "{{" in given.raw:
            continue
        if isinstance(value, str) and (value.lower() in choices or value in _OLDER):
            continue
        unquoted = value is False and not given.name.startswith("-") and "no" in choices
        if isinstance(value, bool) and not unquoted:
            continue
        meant = '"no"' if unquoted else next(iter(similar(str(value), choices, cutoff=CLOSE)), None)
        certain = unquoted or meant is not None or (release is not None and release <= Release.parse(trainers.release))
        told = f"{given.name.lstrip('-')}: {given.raw} without quotes is false in YAML" if unquoted else f'{name} has no value "{value}"'
        in_parser = (given.name.startswith("-") or framework.turns_into_flags) and name in ("optim", "lr_scheduler_type")
        flags = "/".join(f"--{one}" for one in dict.fromkeys((name, name.replace("_", "-"))))
        error = f"argument {flags}: invalid choice: '{value}'" if in_parser else f"{value} is not a valid {kind}"
        yield Finding(
            "",
            f'{told}: {framework.name} {"raises" if certain else "may raise"} "{error}".',
            help=f"Write {meant}." if meant is not None else f"Write one of {', '.join(choices)}.",
            elsewhere=given.related(""),
            step=LoadStep.PARSER if in_parser else None,
            certain=certain,
        )


def _texts(config: Config, arguments: Arguments) -> Iterator[Finding]:
    """The numbers that an optimizer gets as text."""
    error = " \"'<=' not supported between instances of 'float' and 'str'\"" if not config.has("optimizer") else ""
    for name in _OF_OPTIMIZERS:
        given = arguments.get(name)
        if given is None or name not in arguments.texts:
            continue
        in_yaml = given.path.endswith((".yaml", ".yml")) and given.raw[:1] not in "\"'"
        told = f"{given.shown} without a dot is text in YAML" if in_yaml else f"{given.shown} is text"
        number = f"{given.value:.1e}" if isinstance(given.value, int | float) else "a number"
        yield Finding(
            "",
            f"{told}, and the Trainer does not convert it: the optimizer raises TypeError{error}.",
            help=f"Write {number}.",
            elsewhere=given.related(""),
            phase=Phase.INITIALIZE,
        )


_OF_OPTIMIZERS = ("learning_rate", "weight_decay", "adam_beta1", "adam_beta2", "adam_epsilon")
"""The arguments whose values torch's AdamW compares with 0."""

_OLDER = frozenset({"adamw_hf", "adamw_apex_fused", "adamw_torch_npu_fused"})
"""Optimizers that older releases have."""
