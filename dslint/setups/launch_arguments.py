"""The training arguments of a launch: those of its program, of a training file and of its flags."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping as Table
from dataclasses import replace

from dslint.evaluate.python.libraries.dataclasses import PLAIN_CLASSES
from dslint.evaluate.python.read import PythonFile
from dslint.facts import Integration, Release
from dslint.frameworks import huggingface
from dslint.frameworks.base import Framework
from dslint.frameworks.own_arguments import OwnArguments
from dslint.frameworks.own_loading import without_values
from dslint.frameworks.refusals import names_in
from dslint.frameworks.registry import built_from, of_script, task_of_script
from dslint.frameworks.training import arguments_of, bare, unread_flags
from dslint.job.arguments import Arguments, SourcedValue, as_read
from dslint.job.training import ARGUMENTS, WORKLOAD
from dslint.setups.command import Command
from dslint.source.unknown import UNKNOWN


def arguments_of_launch(command: Command, program: PythonFile | None, training: Arguments | None, shown: str) -> Arguments | None:
    """The training arguments: those that the program itself sets, otherwise those of a training file and of the flags.

    Those of a program of Hydra may stand in files that its words select, too, and others in a file that a flag of the program names.
    """
    found = _arguments_of_launch(command, program, training, shown)
    if found is None or training is not None or program is None or found is program.arguments:
        return found
    if not program.has(_OF_HYDRA) and not program.has(_OF_FILE):
        return found
    return replace(found, complete=False)


_OF_HYDRA = re.compile(r"\bhydra\.main\(|^from hydra import|initialize_config_dir", re.MULTILINE)

_OF_FILE = re.compile(r"\.parse_(?:json|yaml)_file\((?!.*sys\.argv)")
"""Arguments of the Trainer from a file that is not the only word of the command."""


def _arguments_of_launch(command: Command, program: PythonFile | None, training: Arguments | None, shown: str) -> Arguments | None:
    if command.framework is not None and command.framework.loader is not Integration.TRANSFORMERS:
        return None
    of_checkout = of_script(str(command.program.value), command.flags) if command.program is not None else None
    if command.framework is not None or of_checkout is not None:
        program = None  # what the framework's own program makes of its arguments is known
    if program is not None and program.loader in (Integration.DEEPSPEED, Integration.ACCELERATE):
        return None
    set_by_program = program.arguments if program is not None else None
    if training is None and set_by_program is not None and set_by_program.assigned is None:
        return set_by_program
    if training is None and program is not None and (_has_own_parser(program) or _chats(command, program)):
        return None
    flags = _training_flags(command, command.framework or of_checkout)
    link = flag_for_config(command)
    trains = program is not None and program.loader == Integration.TRANSFORMERS
    named = link is not None and bool(link.raw) and not (program is not None and _trains_nothing(command))
    if not (named or training is not None or trains or (command.framework is not None and flags) or _is_trainers(command, flags)):
        return None
    own = {name: given for name, given in flags.items() if name != "deepspeed" or command.framework}
    # A program with flags of the Trainer is one of the Trainer; a command of a framework takes its own.
    framework = command.framework or of_checkout or huggingface.FRAMEWORK
    base = training or replace(
        arguments_of(framework, shown, {}, command.task), sure=framework.is_sure and framework in (command.framework, of_checkout)
    )
    started = command.framework if command.framework is not None and base.framework == command.framework.name else None
    is_plain = program is not None and program.argument_class in PLAIN_CLASSES
    redefined = program.own_defaults if program is not None and program.is_whole and training is None else None
    sure = base.sure or started is not None or is_plain or redefined is not None
    defaults = started.defaults(command.task) if started is not None else base.defaults
    own_defaults = None if program is not None and program.has(_SETS_DEFAULTS) else redefined or frozenset[str]()
    takes_only = program is not None and program.own_flags is not None and not _takes_more(program)
    own_flags = program.own_flags if program is not None and program.own_flags is not None else frozenset[str]()
    refuses = started or (huggingface.FRAMEWORK if takes_only and is_plain else None)
    in_file = [given for given in base.others if bare(given) not in own_flags] if started is not None or takes_only else []
    others = (*in_file, *(unread_flags(refuses, command.flags, own_flags) if refuses is not None else ()))
    assigned = set_by_program.assigned if set_by_program is not None else None
    later = {name: given for name, given in set_by_program.values.items() if name in assigned} if set_by_program and assigned else {}
    told = {**base.values, **own}
    values = told | later
    before = dict(set_by_program.before) if set_by_program is not None and assigned else {}
    before = {name: link if name == "deepspeed" else told.get(name, given) for name, given in before.items()}
    kind = program.argument_class if program is not None and started is None and not is_plain else ""
    complete = base.complete and command.complete
    task = command.task or task_of_script(command.program.value if command.program is not None else None)
    script = str(command.program.value) if command.program is not None else ""
    scripts = of_checkout.former_scripts if of_checkout is not None else {}
    by_script = (without for name, without in scripts.items() if script.endswith(name))
    by_argument = (without for name, without in framework.former_arguments.items() if name in command.flags or name in base)
    former = min((*by_script, *by_argument), default=None)
    made = replace(base, values=values, before=before, complete=complete, sure=sure, defaults=defaults, others=others)
    return replace(made, kind=kind, task=task, former=former, redefined=own_defaults)


def flag_for_config(command: Command) -> SourcedValue | None:
    """The flag that names the config for the Trainer: `--deepspeed`, or that of the framework whose command or program is started."""
    framework = command.framework or (of_script(str(command.program.value), command.flags) if command.program is not None else None)
    names = framework.config_keys if framework is not None and framework.loader is Integration.TRANSFORMERS else ("deepspeed",)
    given = [command.flags[name] for name in names if name in command.flags]
    return next((one for one in given if one.raw), given[0] if given else None)


_TRAINING = frozenset(
    {"output_dir", "learning_rate", "num_train_epochs", "max_steps", "do_train", "do_eval", "do_predict"}
    | {"per_device_train_batch_size", "per_device_eval_batch_size"}
)


def _trains_nothing(command: Command) -> bool:
    """Whether a command has flags for its program, and none of a training. The chats of LMFlow hand a config to DeepSpeed themselves."""
    return (command.complete or command.hands_on) and len(command.flags) > 1 and command.flags.keys().isdisjoint(_TRAINING)


def _chats(command: Command, program: PythonFile) -> bool:
    """Whether a program that does not train reads the file of `--deepspeed` itself, though it imports what trains with the Trainer."""
    return _trains_nothing(command) and program.parses_itself("deepspeed")


def _has_own_parser(program: PythonFile) -> bool:
    """Whether a program parses its flags with argparse, and knows no Trainer: they are its own, even if they have the Trainer's names."""
    if program.parses_arguments or program.loader is not None or next(program.events.of(_PARSES), None) is None:
        return False
    return not any("Trainer" in document.text or "TrainingArguments" in document.text for document in program.documents.values())


_PARSES = r"argparse\.ArgumentParser\.(parse_(known_)?args|(known_)?flags)"


_IMPORTS = re.compile(r"(?m)^[ \t]*+(?:from[ \t]++([\w.]+)|import[ \t]++([\w., \t]+))")

_BESIDE_TRAINER = frozenset(
    """
    PIL accelerate apex bitsandbytes datasets deepspeed einops evaluate flash_attn hjson huggingface_hub matplotlib mpi4py nltk numpy
    omegaconf pandas peft psutil regex requests rouge_score safetensors scipy sentencepiece sklearn tensorboard tensorboardX tiktoken timm
    tokenizers torch torchaudio torchmetrics torchvision tqdm transformers wandb yaml
    """.split()
)
"""Packages that bring no Trainer, unless a program names it."""

_BRINGS_CODE = ("Trainer", "TrainingArguments", "import_module", "__import__", "runpy", "subprocess", "os.system", "exec(")
"""What names the Trainer, or runs what no import names."""


def has_no_trainer(files: Table[str, str]) -> bool:
    """Whether a program shows that it uses DeepSpeed without a Trainer: no file names a Trainer, or imports what could bring one."""
    if not any("deepspeed" in text for text in files.values()) or any(word in text for text in files.values() for word in _BRINGS_CODE):
        return False
    named = [name for text in files.values() for one in _IMPORTS.finditer(text) for name in (one[1] or one[2]).split(",")]
    own = {os.path.basename(name).removesuffix(".py") for name in files}
    own |= {""} if len(files) > 1 else set()  # `from . import`
    return {name.split()[0].partition(".")[0] for name in named if name.strip()} <= _BESIDE_TRAINER | sys.stdlib_module_names | own


def _takes_more(program: PythonFile) -> bool:
    """Whether a program may accept arguments that its classes do not have."""
    return program.has(_MORE_ARGUMENTS)


_MORE_ARGUMENTS = re.compile(r"return_remaining|allow_extra|parse_known|sys\.argv\s*(\[[^\]]*\]\s*)?=(?!=)|sys\.argv\.|del sys\.argv")
"""What accepts arguments that no class has, or changes those of the command line."""


_SETS_DEFAULTS = re.compile(r"\.set_defaults\(")
"""What gives arguments of a parser other defaults than their class."""


def _is_trainers(command: Command, flags: dict[str, SourcedValue]) -> bool:
    """Whether the program's flags are clearly those of the Trainer."""
    if command.launcher == "accelerate" and not command.flags.keys().isdisjoint(huggingface.OWN_LOOP):
        return False
    known = flags.keys() & {"learning_rate", "output_dir", "bf16", "fp16", "lr_scheduler_type"}
    if not flags.keys().isdisjoint(("per_device_train_batch_size", "do_train", "do_eval", "do_predict")):
        return True
    # Of 136 launches in 89 public scripts, none without a flag of the Trainer's own has more than two of these five.
    # Programs with a loop of their own, such as those of DeepSpeed-Chat, have two.
    return len(known) >= 3 and command.launcher in ("accelerate", "torchrun")


def _training_flags(command: Command, own: Framework | None) -> dict[str, SourcedValue]:
    """The training arguments among the program's flags, by the names of the Trainer. `own` is the framework whose program it is."""
    framework = own or command.started
    refused = names_in(own.refusals) if own is not None else frozenset[str]()
    kernels = framework.workload.attention.keys() if framework is not None else frozenset[str]()
    names = framework.names if framework is not None else {}
    renamed = {
        to: replace(command.flags[own], value=as_read(to, command.flags[own].value)) for own, to in names.items() if own in command.flags
    }
    known, given = ARGUMENTS | WORKLOAD | refused | kernels, command.flags | renamed
    # argparse takes the beginning of a flag for the flag. Only a missing "s" is read: other beginnings may be flags of their own.
    cut = {f"{name}s": one for name, one in given.items() if framework is not None and name not in known and f"{name}s" in known}
    return {name: one for name, one in (cut | given).items() if name in known}


def with_words(command: Command) -> Command:
    """A command with the words that override its training file among its flags: `train.yaml learning_rate=1e-5`."""
    framework = command.framework or (of_script(str(command.program.value), command.flags) if command.program is not None else None)
    if framework is None or not framework.takes_words or not command.words:
        return command
    if not str(command.words[0].raw).lower().endswith((".yaml", ".yml", ".json")):
        return command
    names = [before for word in command.words[1:] for before, equals, _ in [word.raw.partition("=")] if equals]
    known = ARGUMENTS | WORKLOAD | names_in(framework.refusals) | framework.workload.attention.keys() | {"deepspeed"}
    words = {name: given for name in names if name in known and (given := command.word_given(name)) is not None}
    read = {name: one if one.value is UNKNOWN else replace(one, value=as_read(name, one.value)) for name, one in words.items()}
    return replace(command, flags={**command.flags, **read})


def own_arguments_of_launch(
    command: Command, framework: Framework, own: OwnArguments, training: Arguments | None, shown: str, release: Release | None
) -> Arguments:
    """The arguments of a framework without the Trainer: those of the training file, with the flags and words of the launch in their place.

    What a program of the project makes of flags with such names is not known.
    """
    base = training or without_values(framework, own, shown, release)
    words = {name: given for name in own.arguments if (given := command.word_given(name)) is not None}
    flags = own.in_flags({**command.flags, **words})
    if command.framework is not framework:
        flags = {name: replace(given, value=UNKNOWN) for name, given in flags.items()}
    return replace(base, values={**base.values, **flags}, complete=base.complete and command.complete)


def own_arguments(command: Command, shown: str) -> Arguments | None:
    """What the flags of a program with its own parser say about the training. The config decides on its batch sizes."""
    if command.framework is not None or command.program is None:
        return None
    built = built_from(command.flags)
    decides = _BATCHES - (built[1].fill if built is not None else frozenset())
    values = {
        name: replace(given, value=True if not given.raw and given.value is not UNKNOWN else as_read(name, given.value))
        for name, given in _training_flags(command, None).items()
        if name not in decides
    }
    # Programs with several models have a flag for each: `--actor_gradient_checkpointing` of DeepSpeed-Chat.
    of_models = (given for name, given in command.flags.items() if name.endswith("_gradient_checkpointing") and not given.raw)
    if (one := next(of_models, None)) is not None:
        values.setdefault("gradient_checkpointing", replace(one, value=True))
    return Arguments(command.program.raw, shown, values, complete=False) if values else None


_BATCHES = frozenset({"per_device_train_batch_size", "per_device_eval_batch_size", "gradient_accumulation_steps"})
