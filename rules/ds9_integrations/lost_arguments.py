"""DS9: arguments that a launch loses before the program gets them: bash ends the command early, or changes a word of it."""

from __future__ import annotations

import re
from collections.abc import Iterator

from dslint.config import Config
from dslint.diagnostics import Effect, Phase
from dslint.frameworks.registry import of_arguments
from dslint.job.arguments import SourcedValue
from dslint.job.model import Ending, PassedOn, Program
from dslint.rule import Finding, bad, good, rule
from dslint.rules.helpers.examples import BF16_ZERO_2
from dslint.rules.helpers.parsers import only_parser
from dslint.rules.helpers.project import programs_of

_STAGE_2 = '{"train_batch_size": "auto", "zero_optimization": {"stage": 2}}'

_ARGUMENTS = {
    Ending.BLANK: "blank",
    Ending.COMMENT_BEHIND: "blank between them",
    Ending.WORDS: "text behind the backslash",
    Ending.RETURN: "carriage return",
}
"""What ends a command, and is its last argument, too."""

_TO_UNIX = "Convert the script to Unix line ends, for example with dos2unix."
_NO_COMMENT = "Remove the comment and the blank: a backslash continues a command only at the end of its line."
_HELP = {
    Ending.BLANK: "Remove the blank.",
    Ending.COMMENT_BEHIND: _NO_COMMENT,
    Ending.WORDS: _NO_COMMENT,
    Ending.RETURN: _TO_UNIX,
    Ending.NO_BACKSLASH: "End the line before it with a backslash.",
}
_FILES = (".json", ".py", ".yaml", ".yml")
_LOSES_CONFIG = " This loses the DeepSpeed config, too."
_SWIFT = "NPROC_PER_NODE=4 \\\n%sswift sft --model m --dataset d --tuner_type lora --deepspeed ds_config.json\n"

_CONTINUED = "deepspeed --num_gpus 4 train.py \\\n  --deepspeed_config ds_config.json \\%s\n  --lr 1e-5\n"
_KNOWN_ONLY = (
    "import argparse, deepspeed\nparser = argparse.ArgumentParser()\nparser.add_argument('--local_rank', type=int)\n"
    "parser.add_argument('--batch-size', type=int, default=1)\nargs, rest = parser.parse_known_args()\n"
    "deepspeed.initialize(model=model, optimizer=optimizer, config='ds_config.json')\n"
)
_LAUNCHED = "deepspeed --num_gpus 4 train.py %s 8\n"


@rule(
    "DS978",
    effect=Effect.SILENT,
    watches=("setup",),
    references=("https://www.gnu.org/software/bash/manual/bash.html#Escape-Character",),
    anywhere=True,
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
    launch=_CONTINUED % "  # where the config is",
    integration="deepspeed",
    message="A comment behind the backslash ends the command before --lr: bash starts the training without --lr and what follows it. The blank between them is an argument, too, which a parser may refuse.",
)
@bad(
    BF16_ZERO_2,
    at="",
    launch=_CONTINUED % " # where the config is",
    integration="deepspeed",
    message='A "#" one blank behind the backslash ends the command before --lr: bash starts the training without --lr and what follows it. The text behind the backslash is an argument, too, which a parser may refuse.',
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
    _STAGE_2,
    at="",
    launch="swift sft NPROC_PER_NODE=4 --model m --dataset d --tuner_type lora --deepspeed ds_config.json\n",
    message="NPROC_PER_NODE=4 stands behind the command, where it is an argument and sets no variable: a parser may refuse it.",
)
@bad(
    BF16_ZERO_2,
    at="",
    launch=_LAUNCHED % "CUDA_VISIBLE_DEVICES=0,1 --batch",
    integration="deepspeed",
    message="CUDA_VISIBLE_DEVICES=0,1 stands behind the command, where it is an argument and sets no variable: a parser may refuse it.",
)
@good(BF16_ZERO_2, launch="OMP_NUM_THREADS=8 " + _LAUNCHED % "--batch", integration="deepspeed")
@good(BF16_ZERO_2, launch=_LAUNCHED % "--env NCCL_DEBUG=INFO --batch", integration="deepspeed")
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
@bad(
    BF16_ZERO_2,
    at="",
    launch=_LAUNCHED % "--batch_size",
    program=_KNOWN_ONLY,
    integration="deepspeed",
    message="The parser of train.py:5 has --batch-size, not --batch_size: parse_known_args leaves --batch_size aside, and the program runs with the default of --batch-size.",
)
@good(BF16_ZERO_2, launch=_LAUNCHED % "--batch-size", program=_KNOWN_ONLY, integration="deepspeed")
@good(BF16_ZERO_2, launch=_LAUNCHED % "--batch", program=_KNOWN_ONLY, integration="deepspeed")
@good(BF16_ZERO_2, launch=_LAUNCHED % "--epochs", program=_KNOWN_ONLY, integration="deepspeed")
@good(
    BF16_ZERO_2,
    launch=_LAUNCHED % "--batch_size",
    program=_KNOWN_ONLY + "other = argparse.ArgumentParser()\nother.add_argument('--batch_size')\nother.parse_args(rest)\n",
    integration="deepspeed",
)
@good(_STAGE_2, launch=_SWIFT % "")
@good(BF16_ZERO_2, launch=_CONTINUED % "", integration="deepspeed")
@good(BF16_ZERO_2, launch="deepspeed --num_gpus 4 train.py --deepspeed_config ds_config.json\n\n# --lr 1e-5\n", integration="deepspeed")
def arguments_lost(config: Config) -> Iterator[Finding]:
    """A command that goes over several lines ends before its last arguments, or begins behind its variables.

    A backslash continues a command only as the last character of its line. With a blank or a comment behind it, before an empty line and
    before a comment line, and where it is missing, bash ends the command there. It starts the training without the arguments in the lines
    that follow, and then reports "command not found" for them, once the training is over. The blank itself is an argument, and a "#" next
    to it begins no comment, so that its words are arguments, too: argparse and transformers' HfArgumentParser refuse them, and the job ends
    before the training. A launcher whose command ends before the program gets the blank as its program, or none, and ends with an error.

    Variables before a command are given to it only if they belong to it: `NPROC_PER_NODE=8` on a line of its own, or before an empty line,
    sets a variable of the script, which the command gets only if it is exported. Behind the command, as in `swift sft NPROC_PER_NODE=8`, it
    is an argument of the command, and sets nothing.

    In single quotes a backslash is a character like others, and so is one with a blank behind it in a here-document: a variable with such a
    text passes it to the program as an argument, which a parser refuses.

    A script with Windows line ends breaks in the same way: bash takes the carriage return before each line end for a character of the last
    word, and a backslash before it continues nothing.

    argparse tells `--batch_size` from `--batch-size`. `parse_known_args` leaves aside what it does not know, and the flag that was meant keeps
    its default.

    Remove the blank, the empty line or the comment, or add the backslash. Write the flags as the parser has them. Write `export` before a variable. Convert a script from Windows to
    Unix line ends.
    """
    launch = config.setup.launch if config.setup else None
    if launch is not None and launch.lost is not None:
        lost = launch.lost
        ending: Ending = lost.value
        before = f"{ending.value[0].upper()}{ending.value[1:]} ends the command before {lost.name}: bash starts"
        argument = _ARGUMENTS.get(ending)
        parser = only_parser(config.setup.program) if argument is not None and config.setup and config.setup.program else None
        crashes = launch.without_program or parser is not None
        refused = ""
        if parser is not None and not launch.without_program:
            refused = f" The {argument} is an argument, too, and {parser.who} refuses it: each rank ends with {parser.ends_with('')}."
        elif argument is not None and not launch.without_program:
            refused = f" The {argument} is an argument, too, which a parser may refuse."
        what = launch.launcher if launch.without_program else "the training"
        config_too = _LOSES_CONFIG if launch.loses_config else ""
        yield Finding(
            "",
            f"{before} {what} without {lost.name} and what follows it.{config_too}{refused}",
            help=_HELP.get(ending, "Remove it, so that the backslash before it continues the command."),
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
    if launch is not None and launch.variable_behind is not None:
        yield _behind(config, launch.variable_behind)
    program = config.setup.program if config.setup else None
    if launch is not None and launch.passed is not None and program is not None:
        texts = programs_of(config)
        yield from _left_aside(program, launch.passed, texts)


_REFUSE_WORDS = {"ms-swift": 'ValueError "remaining_argv: [...]"', "LLaMA-Factory": "ValueError about keys or arguments that are not used"}
"""By framework: its error for a word that is not an argument. Sources: swift/pipelines/base.py, llamafactory/hparams/parser.py, _parse_args."""


def _behind(config: Config, variable: SourcedValue) -> Finding:
    """The finding for a variable behind the command that should have it."""
    framework = of_arguments(config.arguments)
    error = _REFUSE_WORDS.get(framework.name) if framework is not None and variable.value is True else None
    who = f"{framework.name} raises {error}" if framework is not None and error is not None else "a parser may refuse it"
    return Finding(
        "",
        f"{variable.raw} stands behind the command, where it is an argument and sets no variable: {who}.",
        help=f"Write {variable.raw} before the command.",
        elsewhere=variable.related(""),
        effect=Effect.CRASH,
        phase=Phase.LOAD,
        certain=error is not None,
    )


_PARSES = re.compile(r"\.parse_(known_)?(intermixed_)?args(_into_dataclasses)?\(|sys\.argv|from_cli\(|fromfile_prefix_chars")


def _left_aside(program: Program, passed: PassedOn, texts: list[str]) -> Iterator[Finding]:
    """The flags of a launch that differ by dashes from those of a parser which leaves aside what it does not know, if nothing else reads them."""
    calls = list(program.events.of(r"argparse\.ArgumentParser\.known_flags"))
    if len(calls) != 1 or not calls[0].certain or calls[0].flow or sum(len(_PARSES.findall(text)) for text in texts) != 1:
        return
    known = list(calls[0].arguments)
    for name, given in passed.flags.items():
        meant = [one for one in known if one.startswith("--") and one[2:].replace("-", "_") == name]
        begins = any(one.startswith(given.name) for one in known)
        if not meant or begins or not given.name.startswith("--") or any(given.name in text for text in texts):
            continue
        yield Finding(
            "",
            f"The parser of {calls[0].at.where} has {meant[0]}, not {given.name}: parse_known_args leaves {given.name} aside, and the program "
            f"runs with the default of {meant[0]}.",
            help=f"Write {meant[0]}.",
            elsewhere=given.related(""),
            related=(calls[0].at.related("parsed here"),),
        )
