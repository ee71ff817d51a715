"""DS9: links between files: a config that is missing, and one that is not used."""

from __future__ import annotations

from base64 import urlsafe_b64decode
from collections.abc import Iterator

from dslint.config import Config
from dslint.diagnostics import Cause, Effect, Phase
from dslint.evaluate.files import is_in_repository
from dslint.facts import Integration
from dslint.rule import Finding, bad, good, rule
from dslint.rules.helpers.loaders import RAISED_BY_LOADER

_STAGE_2 = '{"train_batch_size": "auto", "zero_optimization": {"stage": 2}}'
_TRAINING = "base_model: m\nmicro_batch_size: 2\ndeepspeed: ds_config.json\n"
_ACCELERATE = "compute_environment: LOCAL_MACHINE\ndistributed_type: DEEPSPEED\nnum_processes: 8\ndeepspeed_config:\n"


def _outcome(config: Config, path: str) -> str:
    """What the loader does about a config that does not exist."""
    if config.facts.integration is Integration.LIGHTNING:
        return 'it raises "You passed in a path to a DeepSpeed config but the path does not exist"'
    if config.facts.integration is Integration.DEEPSPEED:
        try:
            urlsafe_b64decode(path)
        except ValueError as error:  # which only the Hugging Face loaders replace by their own
            return f'it raises "{error}", because DeepSpeed reads the name of a missing file as base64'
        return 'it raises "Expected a string path to an existing deepspeed config"'
    return 'it raises "Expected a string path to an existing deepspeed config, or a dictionary, or a base64 encoded string"'


@rule(
    "DS919",
    effect=Effect.CRASH,
    phase=Phase.LOAD,
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
    message='nowhere/ds.json does not exist: not in the working directory, and not in the folder of train.yaml or above it. If the job does not find it either, it raises "Expected a string path to an existing deepspeed config, or a dictionary, or a base64 encoded string".',
)
@good(_STAGE_2, training=_TRAINING)
def config_not_found(config: Config) -> Iterator[Finding]:
    """A file names a DeepSpeed config that does not exist.

    Paths are relative to the working directory of the job. dslint looks there, in the folder of the file, and in the folders above it in its
    repository; it does not check absolute paths and paths with variables. If the job does not find the file either, it ends with
    `ValueError: Expected a string path to an existing deepspeed config, or a dictionary, or a base64 encoded string`. Under
    `deepspeed.initialize` the error is mostly `binascii.Error`: DeepSpeed reads the name of a missing file as base64.

    In a repository the finding is a warning. Outside one, the folder that the path is relative to may be elsewhere, and it is an info.

    Correct the path, or start the job in the directory that the path is relative to.
    """
    for given in config.setup.missing if config.setup else ():
        known = is_in_repository(given.path)
        hosts = given.name.endswith("hostfile")
        outcome = "the launcher prints a warning and starts on this machine only" if hosts else _outcome(config, str(given.value))
        message = (
            f"{given.value} does not exist: not in the working directory, and not in the folder of {given.path}{' or above it' if known else ''}. "
            f"If the job does not find it either, {outcome}."
        )
        yield Finding(
            "",
            message,
            help="Correct the path. It is relative to the directory in which the job starts.",
            elsewhere=given.related(""),
            effect=(Effect.SILENT if hosts else None) if known else Effect.ADVICE,
            certain=False,
            cause=Cause(f"missing {given.value}", message),
        )


@rule(
    "DS925",
    effect=Effect.IGNORED,
    watches=("setup",),
    references=("transformers/training_args.py",),
    setup=True,
)
@bad(
    _STAGE_2,
    at=("deepspeed_config", "zero_stage"),
    training=_TRAINING,
    accelerate=_ACCELERATE + "  zero_stage: 3\n",
    message="ZeRO stage 3 has no effect: the training arguments name ds_config.json (stage 2), and the Trainer silently uses that config.",
)
@good(_STAGE_2, training=_TRAINING, accelerate=_ACCELERATE + "  zero_stage: 2\n")
def config_passed_over(config: Config) -> Iterator[Finding]:
    """Both the training arguments and the Accelerate file set a DeepSpeed config.

    The Trainer uses the config of its own argument `deepspeed`, and silently ignores the ZeRO settings of the Accelerate file.

    Keep one of them: remove `deepspeed` from the arguments, or the block from the Accelerate file.
    """
    setup = config.setup
    file = setup.accelerate if setup else None
    if setup is None or file is None or setup.arguments is None or setup.link is None or setup.link.name == "deepspeed_config_file":
        return
    given = file.block.get("zero_stage") or file.config_file
    stage = config.value("zero_optimization.stage")
    if given is None or (given.name == "zero_stage" and (str(given.value) == str(stage) or not isinstance(stage, int))):
        return
    ignored = f"ZeRO stage {given.raw}" if given.name == "zero_stage" else str(given.value)
    used = f"{setup.link.value or 'another config'}{f' (stage {stage})' if isinstance(stage, int) else ''}"
    yield Finding(
        "",
        f"{ignored} has no effect: the training arguments name {used}, and the Trainer silently uses that config.",
        help="Remove the config from one of the two files.",
        elsewhere=given.related(""),
        related=(setup.link.related("this config is used"),),
    )
