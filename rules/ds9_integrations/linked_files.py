"""DS9: links between files: a config that is missing, and one that is not used."""

from __future__ import annotations

import os
import re
from base64 import urlsafe_b64decode
from collections.abc import Iterator
from pathlib import PurePosixPath

from dslint.config import Config
from dslint.diagnostics import Effect, LoadStep, Phase, SharedCause
from dslint.evaluate.files import is_in_repository
from dslint.facts import Integration, Release
from dslint.frameworks.accelerate import CLASHING
from dslint.frameworks.base import Framework
from dslint.frameworks.registry import of_arguments
from dslint.job.arguments import SourcedValue
from dslint.rule import Finding, bad, good, rule
from dslint.rules.helpers.loaders import RAISED_BY_LOADER, is_loader_certain, refuses_fields_beside_config, starts_deepspeed
from dslint.setups.project import project_of
from dslint.setups.start_folder import found_elsewhere, starts_without

_STAGE_2 = '{"train_batch_size": "auto", "zero_optimization": {"stage": 2}}'
_TRAINING = "base_model: m\nmicro_batch_size: 2\ndeepspeed: ds_config.json\n"
_ACCELERATE = "compute_environment: LOCAL_MACHINE\ndistributed_type: DEEPSPEED\nnum_processes: 8\ndeepspeed_config:\n"


def _outcome(config: Config, given: SourcedValue, *, certain: bool) -> str:
    """What the loader does about a config that does not exist, or may do where another one or another release may read its name."""
    path = str(given.value)
    raises = "it raises" if certain else "it may raise"
    framework = _of_launcher(config, given)
    if framework is not None and framework.launcher_file is not None:
        return f'{raises} "{framework.launcher_file.missing.format(name=path)}"'
    if _is_accelerate_file(config, given):
        return f'{raises} FileNotFoundError "The passed configuration file `{path}` does not exist"'
    own = of_arguments(config.arguments)
    if config.context.own_loader is not None:
        return f"it ends with the error of {config.context.own_loader.name} for a file that does not exist"
    if own is not None and "deepspeed" in own.errors:
        return f'{raises} "{own.errors["deepspeed"]}", because {own.name} reads the name of a missing file as JSON'
    if config.facts.integration is Integration.LIGHTNING:
        return f'{raises} "You passed in a path to a DeepSpeed config but the path does not exist"'
    if config.facts.integration is Integration.DEEPSPEED:
        error = _as_base64(path, "DeepSpeed") or '"Expected a string path to an existing deepspeed config"'
        return f"{raises} {error}, or FileNotFoundError if the program opens the file itself"
    if config.facts.integration is None:  # this part of the text is the same in DeepSpeed and Accelerate
        return (
            f'{raises} "Expected a string path to an existing deepspeed config", or FileNotFoundError if the program opens the file itself'
        )
    return f"{raises} {_error_of_accelerate(config, path)}"


def _is_accelerate_file(config: Config, given: SourcedValue) -> bool:
    """Whether it is the file of `accelerate launch`."""
    launch = config.setup.launch if config.setup is not None else None
    return launch is not None and launch.launcher == "accelerate" and launch.flags.get("config_file") == given


def _error_of_accelerate(config: Config, path: str) -> str:
    """The error of HfDeepSpeedConfig for a path without a file.

    Accelerate has it; before 0.16 it opened the path, and before 0.19 it left the error of base64 as it is. The first releases of
    transformers had a class of their own, which opened the path.
    """
    accelerate, transformers = config.context.pinned("accelerate"), config.context.pinned("transformers")
    if (accelerate is not None and accelerate < _READS_BASE64_SINCE) or (
        transformers is not None and transformers < _USES_ACCELERATE_SINCE
    ):
        return "FileNotFoundError"
    before = accelerate is not None and accelerate < _OWN_ERROR_SINCE
    error = _as_base64(path, "Accelerate") if before else None
    return error or '"Expected a string path to an existing deepspeed config, or a dictionary, or a base64 encoded string"'


_READS_BASE64_SINCE, _OWN_ERROR_SINCE = Release(0, 16, 0), Release(0, 19, 0)
_USES_ACCELERATE_SINCE = Release(4, 21, 0)


def _as_base64(path: str, reader: str) -> str | None:
    """The error for the name of a file that is read as base64; None if it is base64."""
    try:
        urlsafe_b64decode(path)
    except ValueError as error:  # which only the newer Hugging Face loaders replace by their own
        return f'"{error}", because {reader} reads the name of a missing file as base64'
    return None


def _of_launcher(config: Config, given: SourcedValue) -> Framework | None:
    """The framework that looks for a file of Accelerate's launcher among its own."""
    framework = of_arguments(config.arguments)
    file = framework.launcher_file if framework is not None else None
    return framework if file is not None and given.name.lstrip("-") == file.flag else None


def _has_own_error(config: Config) -> bool:
    """Whether the framework has an error of its own for a config that does not exist."""
    framework = of_arguments(config.arguments)
    return framework is not None and "deepspeed" in framework.errors


@rule(
    "DS919",
    effect=Effect.CRASH,
    phase=Phase.LOAD,
    step=LoadStep.PLUGIN,
    watches=("setup",),
    references=(
        "accelerate/utils/deepspeed.py, HfDeepSpeedConfig.__init__",
        "deepspeed/runtime/config.py, DeepSpeedConfig.__init__",
        "lightning/pytorch/strategies/deepspeed.py, DeepSpeedStrategy._load_config",
    ),
    untried=RAISED_BY_LOADER,
    setup=True,
)
@bad(
    _STAGE_2,
    at=("deepspeed",),
    training="base_model: m\nmicro_batch_size: 2\ndeepspeed: nowhere/ds.json\n",
    message='nowhere/ds.json does not exist: not in the working directory, and not in the folder of this file or above it. If the job does not find it either, it may raise "Expected a string path to an existing deepspeed config, or a dictionary, or a base64 encoded string".',
)
@bad(
    _STAGE_2,
    at=("deepspeed",),
    training="model: m\ntuner_type: full\nper_device_train_batch_size: 2\nlearning_rate: 1e-5\ndeepspeed: zero4\n",
    message='zero4 does not exist: not in the working directory, and not in the folder of this file or above it. If the job does not find it either, it may raise "Expecting value: line 1 column 1 (char 0)", because ms-swift reads the name of a missing file as JSON.',
)
@bad(
    _STAGE_2,
    at=("deepspeed",),
    training="base_model: m\nmicro_batch_size: 2\ndeepspeed: nowhere/ds.json\n",
    pins={"transformers": Release(4, 20, 1)},
    message="nowhere/ds.json does not exist: not in the working directory, and not in the folder of this file or above it. If the job does not find it either, it may raise FileNotFoundError.",
)
@bad(
    _STAGE_2,
    at=("deepspeed",),
    training="base_model: m\nmicro_batch_size: 2\ndeepspeed: nowhere/ds.json\n",
    pins={"accelerate": Release(0, 18, 0)},
    message='nowhere/ds.json does not exist: not in the working directory, and not in the folder of this file or above it. If the job does not find it either, it may raise "Incorrect padding", because Accelerate reads the name of a missing file as base64.',
)
@good(_STAGE_2, training=_TRAINING)
def config_not_found(config: Config) -> Iterator[Finding]:
    """A file names a DeepSpeed config that does not exist.

    Paths are relative to the working directory of the job. dslint looks there, in the folder of the file, and in the folders above it in its
    repository; it does not check absolute paths and paths with variables. If the job does not find the file either, it mostly ends with
    `ValueError: Expected a string path to an existing deepspeed config, or a dictionary, or a base64 encoded string`. Under
    `deepspeed.initialize` the error is mostly `binascii.Error`: DeepSpeed reads the name of a missing file as base64.

    In a repository the finding is a warning, and where the launch starts in a folder that holds its program and the first folder of the path.
    Otherwise the folder that the path is relative to may be elsewhere, and it is an info. It is
    an error if a script launches the job beside its program or its training file, and does nothing before that could write the file.
    A path that a launch gives is relative to the folder in which it starts, which is where it finds its program: after `cd src` the job looks
    for `configs/ds.json` in `src`. The same holds for the file that `accelerate launch --config_file` names. If dslint finds such a file only in another folder, it checks that one, and reports the path.

    A missing hostfile is reported only with `--pedantic`, because it belongs to a cluster and repositories seldom contain it, or if the
    project has one file of this name in another folder.

    dslint reports nothing for the bare name of a file in the project if a program joins a folder and this argument.

    Correct the path, or start the job in the directory that the path is relative to.
    """
    for given in config.setup.missing if config.setup else ():
        if _is_joined(given) or _is_refused_before(config, given):
            continue
        hosts = given.name.endswith(("hostfile", "-H"))
        certain = not hosts and _is_certain(config, given)
        above = is_in_repository(given.path)
        starts_there = config.setup is not None and not hosts and starts_without(config.setup, str(given.value))
        # a file of `accelerate config` is made for one cluster, so that a repository often lacks it
        known = certain or starts_there or (above and not _is_accelerate_file(config, given))
        alone = _for_one_machine(config) if hosts else None
        here = f"starts on this machine, which is what {alone.name} requests" if alone else "starts on this machine only"
        outcome = f"the launcher prints a warning and {here}" if hosts else _outcome(config, given, certain=certain)
        message = (
            f"{given.value} does not exist in the folder of the launch: {re.sub('^it ', 'the job ', outcome)}."
            if certain
            else f"{given.value} does not exist: not in the working directory, and not in the folder of this file{' or above it' if above else ''}. "
            f"If the job does not find it either, {outcome}."
        )
        yield Finding(
            "",
            message,
            help=_correction(config, given),
            elsewhere=given.related(""),
            effect=(Effect.SILENT if hosts else None) if known and not alone else Effect.ADVICE,
            step=LoadStep.REST if _of_launcher(config, given) else LoadStep.REFUSALS if _has_own_error(config) else None,
            certain=certain,
            pedantic=hosts and _hostfile_meant(given) is None,  # it names the machines of a cluster: hardly a repository has one
            cause=SharedCause(f"missing {given.value}", message, across=True),
        )
    yield from _found_elsewhere(config)


def _found_elsewhere(config: Config) -> Iterator[Finding]:
    """A config that is not in the folder in which the launch starts: dslint has found it in another folder of the project."""
    setup = config.setup
    found = found_elsewhere(setup) if setup is not None else None
    if setup is None or found is None or setup.link is None or setup.launch is None or setup.launch.passed is None:
        return
    program, link = setup.launch.passed.program, setup.link
    certain = found.alone and is_loader_certain(config)
    where = "the working directory" if found.start == "." else found.start
    message = (
        f"{program.path} starts {program.value} in {where}, and {link.value} does not exist there: "
        f"{re.sub('^it ', 'the job ', _outcome(config, link, certain=certain))}. dslint checks {setup.config}."
    )
    yield Finding(
        "",
        message,
        help=f"Write {found.right}, or start the job in the folder that the path is relative to.",
        elsewhere=link.related(""),
        related=(program.related("started here"),),
        certain=certain,
        cause=SharedCause(f"missing {link.value}", message, across=True),
    )


def _is_refused_before(config: Config, given: SourcedValue) -> bool:
    """Whether DeepSpeed refuses the argument before it looks for the file, because the program passes a config as well (DS959)."""
    program = config.setup.program if config.setup is not None else None
    return program is not None and program.config_in_args is not None and given.name.lstrip("-") == "deepspeed_config"


def _is_joined(given: SourcedValue) -> bool:
    """Whether the bare name is that of a file of the project, and a program joins a folder and the argument."""
    name, project = str(given.value), project_of(given.path)
    if "/" in name or not project.configs_named(name):
        return False
    return project.program_that_joins(given.name.lstrip("-").replace("-", "_")) is not None


def _for_one_machine(config: Config) -> SourcedValue | None:
    """The flag with which the launcher starts ranks on this machine only, whatever a hostfile says."""
    launch = config.setup.launch if config.setup else None
    nodes, included = (launch.flags.get("num_nodes"), launch.flags.get("include")) if launch is not None else (None, None)
    if nodes is not None and str(nodes.value) == "1":
        return nodes
    hosts = included.value.split("@") if included is not None and isinstance(included.value, str) else ()
    return included if hosts and all(host.partition(":")[0] == "localhost" for host in hosts) else None


def _correction(config: Config, given: SourcedValue) -> str:
    """What to write instead of the path of a missing file: the one file of its name in the project, if there is one."""
    framework = _of_launcher(config, given)
    if framework is not None and framework.table is not None:
        return f"Write the path of a file, or one of {', '.join(framework.table.presets)}."
    found = project_of(given.path).config_meant(PurePosixPath(str(given.value)).name) or _hostfile_meant(given)
    where = "It is relative to the directory in which the job starts."
    if found is not None:
        return f"Did you mean {found}? Correct the path. {where}"
    return f"Correct the path. {where}"


def _hostfile_meant(given: SourcedValue) -> str | None:
    """The only file of the project with the name of a hostfile that does not exist where a flag says."""
    found = project_of(given.path).files_named(PurePosixPath(str(given.value)).name)
    return os.path.relpath(found[0]).replace(os.sep, "/") if len(found) == 1 and given.name.endswith(("hostfile", "-H")) else None


_DUMPS = re.compile(r"\bdump\(|\bopen\([^\n]*[\"'](?:w|x|a)b?t?[\"']|write_text\(|shutil\.copy\w*\(")
"""What a program writes files with."""


_READS_ARGUMENTS = re.compile(r"argv|pars(e|ing)|\b(click|fire|typer|tyro|hydra|absl|docopt|cli)\b", re.IGNORECASE)
"""What a program that reads its command line contains, with any of the usual libraries."""


def _is_certain(config: Config, given: SourcedValue) -> bool:
    """Whether the job looks for a file where it is not: in the folder of the script, the program and the training file.

    Another release of a framework may ship other files.
    """
    framework = _of_launcher(config, given)
    shipped = framework.table if framework is not None else None
    if framework is not None and shipped is not None and str(config.context.pinned(framework.packages[0])) != shipped.release:
        return False
    setup = config.setup
    if setup is None or not setup.starts_here or not is_loader_certain(config):
        return False
    programs = [one.text for one in setup.documents.values() if one.language == "python"]
    if any(map(_DUMPS.search, programs)):
        return False  # the program may write the file
    if given.name.startswith("-") and programs and not any(map(_READS_ARGUMENTS.search, programs)):
        return False  # the program may not look at the flag
    files = [name for name in setup.documents if not name.startswith("<")]
    return len(files) > 1 and len({PurePosixPath(name).parent for name in files}) == 1 and len(PurePosixPath(str(given.value)).parts) == 1


@rule(
    "DS925",
    effect=Effect.IGNORED,
    step=LoadStep.PLUGIN,
    watches=("setup",),
    references=("transformers/training_args.py", "accelerate/utils/dataclasses.py, DeepSpeedPlugin._deepspeed_config_checks"),
    setup=True,
)
@bad(
    _STAGE_2,
    at=("deepspeed_config", "zero_stage"),
    training=_TRAINING,
    accelerate=_ACCELERATE + "  zero_stage: 3\n",
    message="zero_stage is set in accelerate.yaml, and the training arguments name ds_config.json: Accelerate raises \"When using `deepspeed_config_file`, the following accelerate config variables will be ignored: ['gradient_accumulation_steps', 'gradient_clipping', 'zero_stage', 'offload_optimizer_device', 'offload_param_device', 'offload_param_nvme_path', 'offload_optimizer_nvme_path', 'zero3_save_16bit_model', 'mixed_precision']\".",
)
@good(_STAGE_2, training=_TRAINING, accelerate=_ACCELERATE + "  zero3_init_flag: false\n")
def config_passed_over(config: Config) -> Iterator[Finding]:
    """Both the training arguments and the Accelerate file set a DeepSpeed config.

    `accelerate launch` tells its processes which fields its file has. If the file has `mixed_precision`, or its block a field that a config
    has, too, such as `zero_stage`, Accelerate raises ``ValueError: When using `deepspeed_config_file`, the following accelerate config
    variables will be ignored``, because the Trainer gives it the config of its own argument `deepspeed`. If the fields come from flags of
    `accelerate launch`, they are silently ignored. So is a config that the block names.

    Keep one of them: remove `deepspeed` from the arguments, or the block from the Accelerate file.
    """
    setup = config.setup
    file = setup.accelerate if setup else None
    if setup is None or file is None or setup.arguments is None or setup.link is None or setup.link.name == "deepspeed_config_file":
        return
    clashing = [one for one in map(file.get, CLASHING) if one is not None and one.value is not None and one.pointer is not None]
    if clashing and file.precision_flag is not None:
        clashing = [one for one in clashing if one.name != "mixed_precision"]
    if clashing and file.is_for_deepspeed and starts_deepspeed(config) and refuses_fields_beside_config(config):
        yield Finding(
            "",
            f"{', '.join(one.name for one in clashing)} {'are' if len(clashing) > 1 else 'is'} set in {file.path}, and the training arguments "
            f"name {setup.link.value or 'another config'}: Accelerate raises "
            f'"When using `deepspeed_config_file`, the following accelerate config variables will be ignored: {list(CLASHING)}".',
            help="Remove deepspeed from the training arguments, or these fields from the Accelerate file.",
            elsewhere=clashing[0].related(""),
            related=(setup.link.related("the training arguments name a config here"),),
            certain=is_loader_certain(config),
            effect=Effect.CRASH,
            phase=Phase.LOAD,
        )
        return
    given = file.block.get("zero_stage") or file.config_file
    stage = config.value("zero_optimization.stage")
    if given is None or (given.name == "zero_stage" and (str(given.value) == str(stage) or not isinstance(stage, int))):
        return
    if given.name != "zero_stage" and os.path.normpath(str(given.value)) == os.path.normpath(str(setup.link.value)):
        return  # both name the same file
    ignored = f"ZeRO stage {given.raw}" if given.name == "zero_stage" else str(given.value)
    used = f"{setup.link.value or 'another config'}{f' (stage {stage})' if isinstance(stage, int) else ''}"
    yield Finding(
        "",
        f"{ignored} has no effect: the training arguments name {used}, and the Trainer silently uses that config.",
        help="Remove the config from one of the two files.",
        elsewhere=given.related(""),
        related=(setup.link.related("this config is used"),),
    )


_SET_LATE = (
    "from transformers import HfArgumentParser, Trainer, TrainingArguments\n"
    "(arguments,) = HfArgumentParser(TrainingArguments).parse_args_into_dataclasses()\n"
    'arguments.deepspeed = "ds_config.json"\n'
    "%strainer = Trainer(model, arguments, train_dataset=data)\n"
)
_AUTO = '{"train_micro_batch_size_per_gpu": "auto", "zero_optimization": {"stage": 2}}'


@rule(
    "DS998",
    effect=Effect.SILENT,
    watches=("setup",),
    references=(
        "transformers/training_args.py, TrainingArguments.__post_init__",
        "transformers/trainer.py, Trainer.create_accelerator_and_postprocess",
    ),
    setup=True,
)
@bad(
    _AUTO,
    at="",
    integration="transformers",
    program=_SET_LATE % "",
    message="train.py:3 sets the DeepSpeed config in training arguments that are made already: they read it only while they are made, so the Trainer trains without DeepSpeed, or with the config that they were made with.",
)
@good(_AUTO, integration="transformers", program=_SET_LATE % "arguments.__post_init__()\n")
@good(
    _AUTO,
    integration="transformers",
    program=_SET_LATE.replace('arguments.deepspeed = "ds_config.json"', "if arguments.local_rank == -1:\n    arguments.deepspeed = None")
    % "",
    launch="deepspeed --num_gpus 8 train.py --output_dir out --deepspeed ds_config.json\n",
)
def config_set_too_late(config: Config) -> Iterator[Finding]:
    """The program sets `deepspeed` in training arguments that exist already.

    `TrainingArguments` reads its argument `deepspeed` once, in `__post_init__`: it makes the plugin from which the Trainer's Accelerator takes
    the config. An attribute that is set afterwards changes nothing. The training runs without DeepSpeed, or with the config that the
    arguments were made with.

    Pass `deepspeed=` when the arguments are made, or `--deepspeed FILE` on the command line.
    """
    program = config.setup.program if config.setup else None
    given = program.set_late if program is not None else None
    if given is None:
        return
    yield Finding(
        "",
        f"{given.where} sets the DeepSpeed config in training arguments that are made already: they read it only while they are made, so the "
        "Trainer trains without DeepSpeed, or with the config that they were made with.",
        help="Pass deepspeed= when the arguments are made, or --deepspeed FILE on the command line.",
        elsewhere=given.related(""),
        certain=False,
    )
