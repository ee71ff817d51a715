"""The loaders between a config and DeepSpeed: the Hugging Face Trainer, Accelerate and Lightning."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from dslint.config import Config
from dslint.facts import Integration, Release
from dslint.facts.find_release import ReleaseSource
from dslint.schemas.recognition import TRAINER_KEYS
from dslint.source.unknown import UNKNOWN

if TYPE_CHECKING:
    from dslint.job.arguments import Arguments, SourcedValue
    from dslint.job.model import AccelerateFile, Program

HUGGING_FACE = (Integration.TRANSFORMERS, Integration.ACCELERATE)
"""The integrations that replace "auto"."""

TRAINER_SOURCE = "transformers/integrations/deepspeed.py, HfTrainerDeepSpeedConfig"
ACCELERATE_SOURCE = "accelerate/utils/dataclasses.py, DeepSpeedPlugin"
WITH_HOSTFILE = ("pdsh", "openmpi", "mvapich", "mpich", "nossh", "slurm")
"""The launchers of DeepSpeed, which find the machines in a hostfile. Source: deepspeed/launcher/runner.py, main."""

ACCELERATE_LAUNCH = "accelerate/commands/launch.py and accelerate/utils/launch.py"

NOT_INSTALLED = "requires a release of the integration that the tests do not install; taken from its source"
RAISED_BY_LOADER = "raised by transformers or Accelerate, not by DeepSpeed; tests/setup runs them"
"""Why the tests of DeepSpeed cannot try a crash of a Hugging Face loader."""

RAISED_BY_LIGHTNING = "raised by Lightning, not by DeepSpeed"
"""Why the tests of DeepSpeed cannot try a crash of Lightning."""


_REFUSES_FIELDS_SINCE = Release(0, 16, 0)


def refuses_fields_beside_config(config: Config) -> bool:
    """Whether Accelerate refuses fields of its own beside a config file. Its releases before 0.16 do not read them then."""
    release = config.context.pinned("accelerate")
    return release is None or release >= _REFUSES_FIELDS_SINCE


def names_its_release(config: Config) -> bool:
    """Whether the DeepSpeed release is given, or pinned by the project, and is one that dslint knows."""
    return config.context.has_known_release and config.context.release_source is ReleaseSource.STATED


def releases_belong_together(config: Config) -> bool:
    """Whether the releases of DeepSpeed and of the loader are those of one installation.

    A project that pins its loader does not necessarily run the DeepSpeed of dslint's environment, or the newest one.
    """
    return "loader_release" not in config.evidence or names_its_release(config)


def made_without_config(arguments: Arguments) -> bool:
    """Whether training arguments are made without a DeepSpeed config, which the program only sets in them afterwards (DS998)."""
    return "deepspeed" in arguments.before and arguments.before["deepspeed"] is None


def trainer_arguments(config: Config) -> Arguments | None:
    """The training arguments, if the Hugging Face Trainer loads the config."""
    return config.arguments if config.facts.integration is Integration.TRANSFORMERS else None


def is_loader_certain(config: Config) -> bool:
    """Whether it is certain that the integration of the config loads it, and gets it as it is written.

    It is where the user names the integration, where the program of the setup calls it, and where the arguments are those of a framework
    in which no class of the user's takes part. What the file alone suggests is not certain.
    """
    if "integration" not in config.evidence:
        return config.facts.integration is not None
    setup = config.setup
    if setup is None:
        return False
    if setup.program is not None and setup.program.loader is not None:
        return setup.program.loader == config.facts.integration
    return setup.arguments is not None and setup.arguments.sure and config.facts.integration is Integration.TRANSFORMERS


def is_program_unseen(config: Config) -> bool:
    """Whether a launch gives DeepSpeed's own flag, or the Trainer's flag for a config and no other of it, to a program that is not in the
    project, which may change the config before it uses it.
    """
    setup, arguments = config.setup, config.arguments
    if setup is None or setup.launch is None or setup.program is not None or "integration" not in config.evidence:
        return False
    if arguments is None:
        return config.facts.integration is Integration.DEEPSPEED
    return (
        arguments.framework == Integration.TRANSFORMERS.label
        and not arguments.sure
        and TRAINER_KEYS.isdisjoint(arguments.values.keys() - {"deepspeed"})
    )


def accelerate_file(config: Config) -> AccelerateFile | None:
    """The Accelerate file of the setup, if there is one."""
    return config.setup.accelerate if config.setup else None


def selects_deepspeed(config: Config) -> bool:
    """Whether a flag of `accelerate launch` selects DeepSpeed, whatever its file says."""
    launch = config.setup.launch if config.setup else None
    return launch is not None and launch.launcher == "accelerate" and "use_deepspeed" in launch.flags


def makes_plugin(config: Config) -> bool:
    """Whether the program makes a `DeepSpeedPlugin`, with which it selects DeepSpeed itself."""
    program = config.setup.program if config.setup else None
    return program is not None and any(program.events.of(r"accelerate\.(\w+\.)*DeepSpeedPlugin"))


_OTHER_TRAININGS = ("multi_gpu", "use_fsdp", "use_megatron_lm", "tpu")
"""The flags of `accelerate launch` that select another training than DeepSpeed."""


def exports_block(config: Config) -> bool:
    """Whether a plugin of the ranks gets what the Accelerate file says about DeepSpeed.

    The launcher exports it only where the file or a flag selects DeepSpeed, and a program that calls `deepspeed.initialize` itself, or trains
    with Lightning, makes no plugin. Source: accelerate/commands/launch.py, _validate_launch_command and launch_command.
    """
    file, setup = accelerate_file(config), config.setup
    if file is None or setup is None:
        return False
    if setup.program is not None and setup.program.loader in (Integration.DEEPSPEED.value, Integration.LIGHTNING.value):
        return False
    return starts_deepspeed(config)


def starts_deepspeed(config: Config) -> bool:
    """Whether `accelerate launch` with the Accelerate file of the setup starts the ranks for DeepSpeed, as far as it is known."""
    file, launch = accelerate_file(config), config.setup.launch if config.setup else None
    if file is None or selects_deepspeed(config):
        return file is not None
    kind = file.top.get("distributed_type")
    if kind is not None and isinstance(kind.value, str) and kind.value != "DEEPSPEED":
        return False
    return launch is None or launch.launcher != "accelerate" or launch.flags.keys().isdisjoint((*_OTHER_TRAININGS, "cpu"))


def overriding_flag(config: Config) -> SourcedValue | None:
    """The flag of `accelerate launch` that overrides `distributed_type: DEEPSPEED`, unless the program selects DeepSpeed itself."""
    launch = config.setup.launch if config.setup else None
    if launch is None or launch.launcher != "accelerate" or "use_deepspeed" in launch.flags:
        return None
    flag = next((launch.flags[name] for name in _OTHER_TRAININGS if name in launch.flags), None)
    return None if makes_plugin(config) or config.facts.integration is Integration.TRANSFORMERS else flag


def runs_without_deepspeed(config: Config) -> bool:
    """Whether the launch of a program that leaves DeepSpeed to Accelerate selects another training, as DS950 reports."""
    file = accelerate_file(config)
    kind = file.top.get("distributed_type") if file is not None else None
    if file is None or kind is None or not isinstance(kind.value, str) or config.facts.integration is not Integration.ACCELERATE:
        return False
    if kind.value == "DEEPSPEED":
        return overriding_flag(config) is not None
    return file.has_block and not makes_plugin(config) and not selects_deepspeed(config)


def lightning_program(config: Config) -> Program | None:
    """The program of the setup, if it trains with Lightning."""
    return config.setup.program if config.setup and config.facts.integration is Integration.LIGHTNING else None


def alone_on_each(config: Config) -> SourcedValue | None:
    """The machines on each of which a launcher for one machine is started, if nothing says that each training is meant to be another one."""
    launch = config.setup.launch if config.setup else None
    if launch is None or launch.on_each is None or launch.may_hold_more or launch.launcher not in ("torchrun", "accelerate"):
        return None
    if launch.passed is not None and launch.passed.program.value is UNKNOWN:
        return None  # a variable in the place of the program may hold flags
    file = accelerate_file(config)
    machines = launch.nodes
    if launch.launcher == "accelerate" and "num_machines" not in launch.flags:
        named = launch.flags.get("config_file")
        if named is not None and (file is None or file.path == named.path):
            return None  # a file that is not there; that of the flags stands in the script
        machines = 1 if file is None or "num_machines" not in file.top else file.number("num_machines")
    documents = config.setup.documents.values() if config.setup else ()
    differs = any(_OWN_NUMBER.search(one.text) for one in documents if one.language not in ("python", "json"))
    return launch.on_each if machines == 1 and not differs else None


_OWN_NUMBER = re.compile(
    r"SLURM_(PROCID|NODEID|ARRAY)|SKYPILOT_NODE_RANK|(?<!show )hostname(?![\w.-])|ACCELERATE_NUM_MACHINES|\bNODE_RANK|metadata\.name"
)
"""What a script may choose another training by on each machine, or another launcher."""
