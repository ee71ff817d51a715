"""DS9: the flags that a launcher passes to a program, and those that its parser knows."""

from __future__ import annotations

import re
from collections.abc import Iterator

from dslint.config import Config
from dslint.diagnostics import Effect, LoadStep, Phase
from dslint.facts import Release
from dslint.frameworks.registry import of_arguments
from dslint.job.events import Event
from dslint.job.model import Launch, PassedOn, Program
from dslint.rule import Finding, bad, good, rule
from dslint.rules.helpers.examples import BF16_ZERO_2
from dslint.source.similar import similar

_PROGRAM = (
    "import argparse\nimport deepspeed\nparser = argparse.ArgumentParser()\n"
    "%sparser = deepspeed.add_config_arguments(parser)\nargs = parser.parse_args()\n"
    "engine, *_ = deepspeed.initialize(args=args, model=model, optimizer=optimizer)\n"
)
_COMMAND = (
    'import click\nimport deepspeed\n@click.command()\n@click.option("--lr", type=float)\n%sdef main(**options):\n'
    "    deepspeed.initialize(model=model, optimizer=optimizer, config='ds_config.json')\nmain()\n"
)
_HYDRA = (
    'import deepspeed\nimport hydra\n@hydra.main(version_base="1.3", config_path="conf", config_name="base")\ndef main(cfg):\n'
    "    deepspeed.initialize(model=model, optimizer=optimizer, config='ds_config.json')\nmain()\n"
)
_REQUIRES = (
    'parser.add_argument("--local_rank", type=int)\nparser.add_argument("--epochs", type=int)\n'
    'parser.add_argument("--mode", choices=["full", "lora"], required=True)\n'
)
_CLOSE = 0.8
_UNUSED = 'ValueError "Some specified arguments are not used by the HfArgumentParser"'
_STAGE_2 = '{"train_batch_size": "auto", "zero_optimization": {"stage": 2}}'
_LLAMA_FACTORY = (
    "stage: sft\nmodel_name_or_path: m\ndataset: d\nper_device_train_batch_size: 2\nlearning_rate: 1e-4\ndeepspeed: ds_config.json\n"
)
_LAUNCH = "deepspeed --num_gpus 4 %strain.py --deepspeed_config ds_config.json\n"


@rule(
    "DS973",
    effect=Effect.CRASH,
    phase=Phase.LOAD,
    step=LoadStep.PARSER,
    watches=("setup",),
    references=(
        'deepspeed/launcher/launch.py, main: cmd.append(f"--local_rank={local_rank}")',
        "deepspeed/launcher/multinode_runner.py: only PDSHRunner.get_cmd starts launch.py",
        "https://github.com/huggingface/trl/issues/596",
    ),
    untried="raised by the parser of the program, before the engine exists",
    setup=True,
)
@bad(
    BF16_ZERO_2,
    at="",
    launch=_LAUNCH % "",
    program=_PROGRAM % "",
    integration="deepspeed",
    message='The deepspeed launcher passes --local_rank, and the parser of train.py:5 does not know it: each rank ends with "error: unrecognized arguments: --local_rank=0".',
)
@bad(
    BF16_ZERO_2,
    at="",
    launch="deepspeed --num_gpus 4 train.py --lr 1e-4\n",
    program=_COMMAND % "",
    integration="deepspeed",
    message='The deepspeed launcher passes --local_rank, and the parser of train.py:3 does not know it: each rank ends with "No such option: --local_rank".',
)
@bad(
    BF16_ZERO_2,
    at="",
    launch="deepspeed --num_gpus 4 train.py lr=1e-4\n",
    program=_HYDRA,
    integration="deepspeed",
    message='The deepspeed launcher passes --local_rank, and Hydra\'s parser, which runs the function of train.py:3, does not know it: each rank ends with "error: unrecognized arguments: --local_rank=0".',
)
@bad(
    BF16_ZERO_2,
    at="",
    launch="torchrun --nproc_per_node 4 train.py --deepspeed_config ds_config.json lr=1e-4\n",
    program=_HYDRA,
    integration="deepspeed",
    message='Hydra\'s parser, which runs the function of train.py:3, has no flag --deepspeed_config: each rank ends with "error: unrecognized arguments: --deepspeed_config".',
)
@good(BF16_ZERO_2, launch="deepspeed --num_gpus 4 --no_local_rank train.py lr=1e-4\n", program=_HYDRA, integration="deepspeed")
@good(BF16_ZERO_2, launch="torchrun --nproc_per_node 4 train.py --config-name=large lr=1e-4\n", program=_HYDRA, integration="deepspeed")
@good(
    BF16_ZERO_2,
    launch="deepspeed --num_gpus 4 train.py lr=1e-4\n",
    program="import sys\nsys.argv = [one for one in sys.argv if not one.startswith('--local_rank')]\n" + _HYDRA,
    integration="deepspeed",
)
@good(
    BF16_ZERO_2,
    launch="deepspeed --num_gpus 4 train.py lr=1e-4\n",
    program="from sys import argv\nfor one in list(argv):\n    if one.startswith('--local_rank'):\n        argv.remove(one)\n" + _HYDRA,
    integration="deepspeed",
)
@bad(
    _STAGE_2,
    at="",
    training=_LLAMA_FACTORY,
    launch="deepspeed --num_gpus 4 src/train.py train.yaml\n",
    message="The deepspeed launcher passes --local_rank before train.yaml, and LLaMA-Factory reads a YAML file only as the first argument: each rank may end with an error about missing or unknown arguments.",
)
@bad(
    BF16_ZERO_2,
    at="",
    launch=_LAUNCH.replace(" --deep", " --mode full --epoch 3 --learning_rate 1e-4 --deep") % "",
    program=_PROGRAM % _REQUIRES,
    integration="deepspeed",
    message='The parser of train.py:8 has no flag --learning_rate: each rank ends with "error: unrecognized arguments: --learning_rate".',
)
@bad(
    BF16_ZERO_2,
    at="",
    launch=_LAUNCH.replace(" --deep", " --mode quick --deep") % "",
    program=_PROGRAM % _REQUIRES,
    integration="deepspeed",
    message="--mode quick: the parser of train.py:8 ends each rank with \"error: argument --mode: invalid choice: 'quick'\".",
)
@bad(
    BF16_ZERO_2,
    at="",
    launch=_LAUNCH % "",
    program=_PROGRAM % _REQUIRES,
    integration="deepspeed",
    message='train.py is launched without --mode: the parser of train.py:8 ends each rank with "error: the following arguments are required: --mode".',
)
@good(
    BF16_ZERO_2,
    deepspeed="0.9.5",
    launch="mpirun -np 4 python train.py --deepspeed_mpi --deepspeed --deepspeed_config ds_config.json\n",
    program=_PROGRAM % "",
    integration="deepspeed",
)
@bad(
    BF16_ZERO_2,
    at="",
    launch="mpirun -np 4 python train.py --deepspeed_mpi --deepspeed --deepspeed_config ds_config.json\n",
    program=_PROGRAM % "",
    integration="deepspeed",
    message='The parser of train.py:5 has no flag --deepspeed_mpi: each rank ends with "error: unrecognized arguments: --deepspeed_mpi".',
)
@good(
    BF16_ZERO_2,
    launch=_LAUNCH.replace(" --deep", " --mode lora --epochs 3 --deep") % "",
    program=_PROGRAM % _REQUIRES,
    integration="deepspeed",
)
@good(
    BF16_ZERO_2,
    launch="deepspeed --num_gpus 4 train.py --lr 1e-4\n",
    program=_COMMAND % '@click.option("--local_rank", type=int)\n',
    integration="deepspeed",
)
@good(_STAGE_2, training=_LLAMA_FACTORY, launch="torchrun --nproc_per_node 4 src/train.py train.yaml\n")
@good(_STAGE_2, training=_LLAMA_FACTORY, launch="deepspeed --num_gpus 4 --no_local_rank src/train.py train.yaml\n")
@good(BF16_ZERO_2, launch=_LAUNCH % "", program=_PROGRAM % 'parser.add_argument("--local_rank", type=int)\n', integration="deepspeed")
@good(
    BF16_ZERO_2,
    launch="deepspeed --force_multi --launcher OpenMPI train.py --deepspeed --deepspeed_config ds_config.json\n",
    program=_PROGRAM % "",
    integration="deepspeed",
)
@good(BF16_ZERO_2, launch=_LAUNCH % "--no_local_rank ", program=_PROGRAM % "", integration="deepspeed")
@good(BF16_ZERO_2, launch=_LAUNCH % "", program=_PROGRAM.replace("parse_args()", "parse_known_args()[0]") % "", integration="deepspeed")
def arguments_not_parsed(config: Config) -> Iterator[Finding]:
    """The program's parser does not know an argument that it gets, or lacks one that it requires.

    The launcher `deepspeed` starts each rank with `--local_rank=N` among its arguments. A parser without that flag ends each rank with
    "error: unrecognized arguments: --local_rank=0"; transformers' HfArgumentParser raises ValueError "Some specified arguments are not used by
    the HfArgumentParser". LLaMA-Factory reads a YAML file only if it is the first argument of the program, and the launcher puts its flag first;
    so does a program that reads its arguments from the file `sys.argv[1]`, or only if `len(sys.argv) == 2`. ms-swift before 3.0 has no such
    argument, and raises.

    The same parser ends each rank for a flag of the launch that it does not know, for a value that it cannot read or that is not among its
    choices, and without a flag that it requires. Hydra's parser knows no flags but its own: what a program of Hydra takes is written as
    `key=value`.

    Add `parser.add_argument("--local_rank", type=int, default=-1)`, or a field `local_rank` to the dataclass, or launch with `--no_local_rank`.
    Correct the flags of the launch, or those of the parser.
    """
    program = config.setup.program if config.setup else None
    launch = config.setup.launch if config.setup else None
    if launch is None:
        return
    if program is not None and launch.passed is not None:
        yield from _of_launch(config, program, launch, launch.passed)
    if launch.launcher != "deepspeed" or "no_local_rank" in launch.flags:
        return
    across = launch.flags.get("launcher")
    if across is not None and str(across.value).lower() != "pdsh":
        return  # on several machines mpirun or srun starts the program itself, without the flag
    arguments, framework = config.arguments, of_arguments(config.arguments)
    comes_first = framework is not None and framework.file_comes_first
    if arguments is not None and comes_first and arguments.path.endswith((".yaml", ".yml")) and program is None:
        yield Finding(
            "",
            f"The deepspeed launcher passes --local_rank before {arguments.path}, and {arguments.framework} reads a YAML file only as the first "
            "argument: each rank may end with an error about missing or unknown arguments.",
            help="Launch with --no_local_rank, or with torchrun.",
            elsewhere=launch.given.related("") if launch.given is not None else None,
            certain=False,
        )
    if arguments is not None and framework is not None and framework.refuses_rank is not None:
        release = config.context.pinned(framework.packages[0])
        if framework.refuses_rank(arguments, release):
            yield Finding(
                "",
                f"The deepspeed launcher passes --local_rank, and {framework.name} {release or 'before 3.0'} does not know it: each rank raises "
                f'ValueError "{framework.refuses_flag.format(name="local_rank=0")}".',
                help="Launch with --no_local_rank, or with torchrun.",
                elsewhere=launch.given.related("") if launch.given is not None else None,
            )
    if program is None:
        return
    yield from _words(program)
    commands = list(program.events.of(r"click\.flags"))
    own = _refuses_unknown(program) or (commands[0] if len(commands) == 1 else None)
    hydras = _hydras(program)
    call = next(
        (one for one in (own, hydras) if one is not None and not any(name.startswith("--local_rank") for name in one.arguments)), None
    )
    if call is None:
        return
    of_classes = _is_of_classes(call)
    unknown = "No such option: --local_rank" if call in commands else "error: unrecognized arguments: --local_rank=0"
    error = _UNUSED if of_classes else f'"{unknown}"'
    what = "a field local_rank to a dataclass of the arguments" if of_classes else "the argument --local_rank to the parser"
    add = f"Add {'the option --local_rank to the command' if call in commands else what}, or launch with --no_local_rank."
    yield Finding(
        "",
        f"The deepspeed launcher passes --local_rank, and {_parser(call)} does not know it: each rank ends with {error}.",
        help="Launch with --no_local_rank, or with torchrun." if call is hydras else add,
        elsewhere=call.at.related(""),
    )


_CHANGES_WORDS = re.compile(r"sys\.argv\s*(\[[^\]]*\]\s*)?\+?=(?!=)|sys\.argv\.\w+\(|del sys\.argv|fromfile_prefix_chars|allow_abbrev")
_IN_CHANGES = ("sys.argv", "fromfile_prefix", "allow_abbrev")
"""What changes the arguments before a parser reads them, or how it reads them."""


def _of_launch(config: Config, program: Program, launch: Launch, passed: PassedOn) -> Iterator[Finding]:
    """What argparse says of the flags of a launch, as long as nothing else may add to them or to the parser."""
    documents = config.setup.documents.values() if config.setup else ()
    texts = (one.text for one in documents if one.language == "python" and any(word in one.text for word in _IN_CHANGES))
    if "" in passed.flags or any(_CHANGES_WORDS.search(text) for text in texts):
        return
    for call in (_refuses_unknown(program), _hydras(program)):
        if call is not None and not call.flow and not _is_of_classes(call):
            yield from _unknown_flags(call, passed, config.release)
    refusing = [one for one in program.events.of(r"(argparse\.ArgumentParser|transformers\.HfArgumentParser)\.refusals") if not one.flow]
    refused = refusing[0] if len(refusing) == 1 and refusing[0].certain else None
    for flag, message in refused.arguments.items() if refused is not None else ():
        assert refused is not None
        found = passed.flags.get(flag.lstrip("-").replace("-", "_"))
        if found is None and (launch.lost is not None or not passed.complete):
            continue  # DS978, or a variable of the environment may hold the flag
        what = f"{passed.program.raw} is launched without {flag}" if found is None else found.shown
        takes_none = str(message.value).startswith("unrecognized")  # argparse says `--flag=1` in other words
        error = f"an error, because {flag} takes no value" if takes_none else f'"error: {message.value}"'
        yield Finding(
            "",
            f"{what}: the parser of {refused.at.where} ends each rank with {error}.",
            help=f"Add {flag} to the launch." if found is None else f"Correct {flag}.",
            elsewhere=(found or passed.program).related(""),
            related=(refused.at.related("parsed here"),),
        )


_WITHOUT_MPI = Release(0, 13, 1)
"""The first release whose `deepspeed.add_config_arguments` has no `--deepspeed_mpi`. Source: deepspeed/__init__.py, _add_core_arguments."""


def _unknown_flags(call: Event, passed: PassedOn, release: Release) -> Iterator[Finding]:
    """The flags of a launch that argparse does not know. It takes the beginning of a name, too."""
    known = [*call.arguments, "--help"]
    if "--deepscale_config" in known and release < _WITHOUT_MPI:
        known.append("--deepspeed_mpi")
    for given in passed.flags.values():
        if not given.name.startswith("--") or any(flag.startswith(given.name) for flag in known):
            continue
        meant = next(iter(similar(given.name, known, cutoff=_CLOSE)), None)
        same = meant is not None and meant.replace("-", "_") == given.name.replace(
            "-", "_"
        )  # it may be required, which argparse says first
        error = "an error" if same else f'"error: unrecognized arguments: {given.name}"'
        yield Finding(
            "",
            f"{_parser(call, begin=True)} has no flag {given.name}: each rank ends with {error}.",
            help=f"Write {meant}." if meant else "Remove the flag." if _is_hydras(call) else "Remove the flag, or add it to the parser.",
            elsewhere=given.related(""),
            related=(call.at.related("parsed here"),),
        )


def _refuses_unknown(program: Program) -> Event | None:
    """The only call that parses the arguments of a program, if it ends at an unknown one."""
    calls = list(program.events.of(r"(argparse\.ArgumentParser|transformers\.HfArgumentParser)\.flags"))
    return calls[0] if len(calls) == 1 and calls[0].certain else None


def _hydras(program: Program) -> Event | None:
    """The only function of the program that Hydra's parser runs, if nothing may change the command line before."""
    calls = list(program.events.of(r"hydra\.flags"))
    return calls[0] if len(calls) == 1 and calls[0].certain and not program.reads_words else None


def _is_hydras(call: Event) -> bool:
    return call.name.startswith("hydra")


def _parser(call: Event, *, begin: bool = False) -> str:
    if _is_hydras(call):
        return f"Hydra's parser, which runs the function of {call.at.where},"
    return f"{'The' if begin else 'the'} parser of {call.at.where}"


def _is_of_classes(call: Event) -> bool:
    return call.name.startswith("transformers")


def _words(program: Program) -> Iterator[Finding]:
    """A program that reads its arguments from a file, whose path it takes from the command line by its position."""
    for call in program.events.of(r"transformers\.HfArgumentParser\.words"):
        path, words = call.argument("path"), [one.value for name, one in call.arguments.items() if name != "path"]
        refused = words[1:]
        if not call.certain or (path is None and (words[:1] != ["--local_rank=0"] or not refused)):
            continue
        if path is not None:
            then = (
                f"{call.at.where} reads it as the path of its arguments: each rank raises \"No such file or directory: '--local_rank=0'\""
            )
        else:
            then = (
                f"{call.at.where} parses the words of the command instead of a file: each rank ends with "
                f'"Some specified arguments are not used by the HfArgumentParser: {refused}", or an error about missing arguments'
            )
        yield Finding(
            "",
            f"The deepspeed launcher passes --local_rank before the arguments of the program, and {then}.",
            help="Launch with --no_local_rank, or with torchrun, or read the path from sys.argv[-1].",
            elsewhere=call.at.related(""),
        )
        return


_ARGUMENTS = {"a blank behind the backslash": "blank", "a Windows line end behind the backslash": "carriage return"}
"""What ends a command, and is its last argument, too."""

_TO_UNIX = "Convert the script to Unix line ends, for example with dos2unix."
_HELP = {
    "a blank behind the backslash": "Remove the blank.",
    "a Windows line end behind the backslash": _TO_UNIX,
    "a missing backslash": "End the line before it with a backslash.",
}
_FILES = (".json", ".py", ".yaml", ".yml")
_LOSES_CONFIG = " This loses the DeepSpeed config, too."
_SWIFT = "NPROC_PER_NODE=4 \\\n%sswift sft --model m --dataset d --tuner_type lora --deepspeed ds_config.json\n"

_CONTINUED = "deepspeed --num_gpus 4 train.py \\\n  --deepspeed_config ds_config.json \\%s\n  --lr 1e-5\n"


@rule(
    "DS978",
    effect=Effect.SILENT,
    watches=("setup",),
    references=("https://www.gnu.org/software/bash/manual/bash.html#Escape-Character",),
    setup=True,
)
@bad(
    BF16_ZERO_2,
    at="",
    launch=_CONTINUED % "\n  # --fp16 \\",
    integration="deepspeed",
    message="A comment line ends the command before --lr: bash starts the training without --lr and what follows it.",
)
@bad(
    BF16_ZERO_2,
    at="",
    launch=_CONTINUED % " ",
    integration="deepspeed",
    message="A blank behind the backslash ends the command before --lr: bash starts the training without --lr and what follows it. The blank is an argument, too, which a parser may refuse.",
)
@bad(
    BF16_ZERO_2,
    at="",
    launch=_CONTINUED % "\n",
    integration="deepspeed",
    message="An empty line ends the command before --lr: bash starts the training without --lr and what follows it.",
)
@bad(
    BF16_ZERO_2,
    at="",
    launch="deepspeed --num_gpus 4 train.py \\\n  --deepspeed_config ds_config.json\n  --lr 1e-5\n",
    integration="deepspeed",
    message="A missing backslash ends the command before --lr: bash starts the training without --lr and what follows it.",
)
@bad(
    _STAGE_2,
    at="",
    launch=_SWIFT % "\n",
    message="NPROC_PER_NODE=4 is a command of its own: the launch does not get the variable, and may start another number of ranks, unless the variable was exported before the script.",
)
@bad(
    BF16_ZERO_2,
    at="",
    launch=_CONTINUED % "\r",
    integration="deepspeed",
    message="A Windows line end behind the backslash ends the command before --lr: bash starts the training without --lr and what follows it. The carriage return is an argument, too, which a parser may refuse.",
)
@bad(
    BF16_ZERO_2,
    at="",
    launch="deepspeed --num_gpus 4 train.py --deepspeed_config ds_config.json\r\n",
    integration="deepspeed",
    message='bash passes "ds_config.json\\r", with the carriage return of the Windows line end: there is no file of that name.',
)
@good(_STAGE_2, launch=_SWIFT % "")
@good(BF16_ZERO_2, launch=_CONTINUED % "", integration="deepspeed")
@good(BF16_ZERO_2, launch="deepspeed --num_gpus 4 train.py --deepspeed_config ds_config.json\n\n# --lr 1e-5\n", integration="deepspeed")
def arguments_lost(config: Config) -> Iterator[Finding]:
    """A command that goes over several lines ends before its last arguments, or begins behind its variables.

    A backslash continues a command only as the last character of its line. With a blank behind it, before an empty line and before a comment
    line, and where it is missing, bash ends the command there. It starts the training without the arguments in the lines that follow, and
    then reports "command not found" for them, once the training is over. The blank itself is an argument: argparse and transformers'
    HfArgumentParser refuse it, and the job ends before the training. A launcher whose command ends before the program gets the blank as its
    program, or none, and ends with an error.

    Variables before a command are given to it only if they belong to it: `NPROC_PER_NODE=8` on a line of its own, or before an empty line,
    sets a variable of the script, which the command gets only if it is exported.

    In single quotes a backslash is a character like others, and so is one with a blank behind it in a here-document: a variable with such a
    text passes it to the program as an argument, which a parser refuses.

    A script with Windows line ends breaks in the same way: bash takes the carriage return before each line end for a character of the last
    word, and a backslash before it continues nothing.

    Remove the blank, the empty line or the comment, or add the backslash. Write `export` before a variable. Convert a script from Windows to
    Unix line ends.
    """
    launch = config.setup.launch if config.setup else None
    if launch is not None and launch.lost is not None:
        lost = launch.lost
        what_ends = str(lost.value)
        before = f"{what_ends[0].upper()}{what_ends[1:]} ends the command before {lost.name}: bash starts"
        argument = _ARGUMENTS.get(what_ends)
        call = _refuses_unknown(config.setup.program) if argument is not None and config.setup and config.setup.program else None
        crashes = launch.without_program or call is not None
        refused = ""
        if call is not None and not launch.without_program:
            error = _UNUSED if _is_of_classes(call) else '"error: unrecognized arguments:"'
            refused = f" The {argument} is an argument, too, and the parser of {call.at.where} refuses it: each rank ends with {error}."
        elif argument is not None and not launch.without_program:
            refused = f" The {argument} is an argument, too, which a parser may refuse."
        what = launch.launcher if launch.without_program else "the training"
        config_too = _LOSES_CONFIG if launch.loses_config else ""
        yield Finding(
            "",
            f"{before} {what} without {lost.name} and what follows it.{config_too}{refused}",
            help=_HELP.get(what_ends, "Remove it, so that the backslash before it continues the command."),
            elsewhere=lost.related(""),
            effect=Effect.CRASH if crashes else None,
            phase=Phase.LOAD if crashes else None,
        )
    if launch is not None and launch.backslash is not None:
        yield Finding(
            "",
            "A backslash is an argument of the command: in single quotes, or with a blank behind it, it continues no line. A parser may refuse "
            'it: "error: unrecognized arguments: \\".',
            help="Remove the backslashes from the text in quotes, and the blank behind one.",
            elsewhere=launch.backslash.related(""),
            effect=Effect.CRASH,
            phase=Phase.LOAD,
            certain=False,
        )
    if launch is not None and launch.with_return is not None and str(launch.with_return.value).endswith(_FILES):
        last = launch.with_return
        yield Finding(
            "",
            f'bash passes "{last.value}\\r", with the carriage return of the Windows line end: there is no file of that name.',
            help=_TO_UNIX,
            elsewhere=last.related(""),
            effect=Effect.CRASH,
            phase=Phase.LOAD,
        )
    if launch is not None and launch.unexported is not None:
        variable = launch.unexported
        yield Finding(
            "",
            f"{variable.name}={variable.raw} is a command of its own: the launch does not get the variable, and may start another number of "
            "ranks, unless the variable was exported before the script.",
            help=f"Write export {variable.name}={variable.raw}, or put it directly before the command.",
            elsewhere=variable.related(""),
            certain=False,
        )
